"""The brokers as fixtures: see `engines`."""

from __future__ import annotations

from .engines import mosquitto, nats, rabbitmq, redis

__all__ = ["mosquitto", "nats", "rabbitmq", "redis"]
