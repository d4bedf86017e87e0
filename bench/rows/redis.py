"""Round trips over Redis."""

from __future__ import annotations

from bench.brokers import broker, round_trips
from bench.environments import Missing
from bench.figures import Figure, Row
from bench.referee import Failed, Referee


def redis(referee: Referee) -> list[Row]:
    """A stream with a group, beside the bare library."""
    try:
        with broker(lambda port, _: ["redis-server", "--port", str(port), "--save", "", "--appendonly", "no"]) as port:
            return round_trips(
                referee,
                "redis",
                "Redis streams",
                "bench.limits.redis",
                lambda name: f"redis://127.0.0.1:{port}/{name}",
                10_000,
            )
    except (Missing, Failed) as why:
        return [Row("redis", "Redis streams", "us", Figure("dragoman", missing=str(why)))]
