"""What processes that serve together share: a `Bus` for messages, a `Store` for what must outlive one of them.

`open_bus(url)` opens one: `memory:` within the process, `unix:///path` between the workers of one
machine (the supervisor holds it), `redis://` and `nats://` between machines, `amqp://` a bus without
a store. Rules every engine keeps:

- A message reaches everyone who is subscribed at that moment, the publisher too, in the order of each
  publisher; who comes later has missed it. It is a hint, never the only copy: what must not be lost is
  in the store before it is published.
- Keys and topics are text without spaces; values are bytes. A key without `ttl` lives until it is deleted.
- `take` is called on the event loop, never from inside `publish`; what it raises is logged and harms no other
  subscriber.
- The newest message of a log stays whatever its size. A reader whose `after` is older than what is kept sees it by
  the first number it gets.
- While the engine is away, calls raise `BusLost`, `alive` is False and subscriptions come back by themselves;
  `on_state` hears of both. After `close` calls raise `BusLost` too, and `on_state` hears nothing of that.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable
from typing import Protocol, runtime_checkable

from ..jsonrpc.errors import LocalError
from ..net.scheme import SCHEMES, load
from ..net.urls import scheme_of

log = logging.getLogger("dragoman.bus")


class BusLost(ConnectionError):
    """The engine behind a bus or a store is away; the text says which and why."""


class Subscription(Protocol):
    """One subscription."""

    async def close(self) -> None:
        """Hear no more."""


@runtime_checkable
class Store(Protocol):
    """Values and logs, shared. Times in seconds."""

    async def get(self, key: str) -> bytes | None:
        """The value, or None."""

    async def put(self, key: str, value: bytes, *, ttl: float | None = None) -> None:
        """Set a value; `ttl` begins anew."""

    async def put_new(self, key: str, value: bytes, *, ttl: float | None = None) -> bool:
        """Set a value where there is none; False where there was one, which stays."""

    async def delete(self, key: str) -> bool:
        """Take a value or a log away; True when there was one."""

    async def touch(self, key: str, ttl: float) -> bool:
        """Let a value or a log live so long from now on; False when there is none."""

    async def append(
        self, log: str, message: bytes, *, ttl: float, messages: int = 1_000, size: int = 1_048_576
    ) -> int:
        """Add a message at the end of a log and return its number, counted from 1. Above `messages` or `size` bytes
        the oldest go."""

    async def read(self, log: str, after: int = 0) -> list[tuple[int, bytes]]:
        """The messages of a log whose number is greater than `after`, with their numbers, in order."""


@runtime_checkable
class Bus(Protocol):
    """Messages between processes."""

    url: str
    """Without credentials."""
    store: Store | None
    """None where the engine keeps nothing."""
    alive: bool
    on_state: Callable[[bool], object] | None

    async def publish(self, topic: str, message: bytes) -> None:
        """Tell everyone who is subscribed now. Returns when the engine has it."""

    async def subscribe(self, topic: str, take: Callable[[bytes], object]) -> Subscription:
        """Call `take` on the loop with each message from now on; returns when the engine knows it."""

    async def close(self) -> None:
        """Leave."""


@runtime_checkable
class JoinsBus(Protocol):
    """Something served that shares more than calls with others which serve the same."""

    async def join(self, bus: Bus) -> None:
        """Called once, before it starts."""


async def open_bus(url: str, *, tls: ssl.SSLContext | None = None) -> Bus:
    """Open the bus at a URL. `tls`: by which its server is checked; None: the system's defaults. Raises BusLost when
    no server answers there, LocalError for a scheme that is none and for a library that is not installed."""
    scheme = scheme_of(url)
    row = SCHEMES.get(scheme)
    if row is None or not row.open_bus:
        there = ", ".join(name for name, one in SCHEMES.items() if one.open_bus)
        raise LocalError(f"there is no bus {url.partition('@')[2] or url!r}; one of {there}: is")
    bus: Bus = await load(scheme, row.open_bus)(url, tls)
    return bus


def heard(take: Callable[[bytes], object], topic: str, message: bytes) -> None:
    """Hand a message to a subscriber, for engines: a fault of the subscriber's is its own."""
    try:
        take(message)
    except Exception:
        log.exception("a subscriber of %s raised", topic)
