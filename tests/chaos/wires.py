"""The brokers and how each is addressed here, with what it promises."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from msgspec import Struct

from tests.engines.brokers import name


class Wire(Struct, frozen=True, kw_only=True):
    """One way over one broker."""

    fixture: str
    """The broker: the name of its fixture."""
    query: str = ""
    brisk: str = ""
    """More of the URL's query: silence is noticed in 2 seconds, and a request is given to 4 workers at most."""
    bound: str = ""
    """The query's word for the length of the queue; empty where it has none."""
    keeps: bool = True
    """Whether nothing that was accepted may be lost."""
    mailbox: bool = True
    """Whether answers are kept for a caller whose wire is dead. On NATS they go to an inbox, which keeps nothing."""
    restarts: int = 5
    """How many restarts are tried in each run of the tests."""

    def path(self, *more: str) -> str:
        """An address of its own, as it stands behind the broker's URL."""
        place = name("chaos")
        query = "&".join(part for part in (self.query.format(name=place), *more) if part)
        return f"/{place}?{query}" if query else f"/{place}"


WIRES = {
    # it takes some 10 seconds to start, so few restarts of it in every run of the tests
    "rabbitmq": Wire(fixture="rabbitmq", brisk="heartbeat=2&deliveries=4", bound="length", restarts=2),
    "mqtt": Wire(fixture="mosquitto", brisk="keepalive=2&deliveries=4"),
    "redis": Wire(fixture="redis", brisk="idle=2&deliveries=4", bound="max"),
    "jetstream": Wire(fixture="nats", query="stream={name}", brisk="wait=2&deliveries=4", bound="max", mailbox=False),
    "nats": Wire(fixture="nats", keeps=False, mailbox=False),
}
"""Core NATS promises at most once: calls in flight when it goes fail immediately, notifications may be lost."""
KEEPING = [name for name, wire in WIRES.items() if wire.keeps]


def over(names: Iterable[str]) -> pytest.MarkDecorator:
    """The scene is for these: `wire` is the name of one of them. Those of one broker run in one process."""
    rows = [pytest.param(name, marks=pytest.mark.xdist_group(WIRES[name].fixture)) for name in names]
    return pytest.mark.parametrize("wire", rows)


INNOCENT = "deliveries=20"
"""Where workers die all the time, a request that has done nothing may be given to more of them than five."""
