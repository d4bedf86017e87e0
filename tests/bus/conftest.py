"""The brokers, for engines that need one."""

from __future__ import annotations

from tests.brokers.engines import nats, rabbitmq, redis

__all__ = ["nats", "rabbitmq", "redis"]
