"""The brokers, as `tests.brokers.engines` has them, and supervisors, as the tests of workers do."""

from __future__ import annotations

from tests.brokers.engines import mosquitto, nats, rabbitmq, redis
from tests.workers.conftest import starter

__all__ = ["mosquitto", "nats", "rabbitmq", "redis", "starter"]
