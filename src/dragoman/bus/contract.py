"""What processes that serve together share: a `Bus` for messages, and a `Store` for data that must outlive a process.

`open_bus(url)` opens one: `memory:` within the process, `unix:///path` between the workers of one
machine (the supervisor holds it), `redis://` and `nats://` between machines, `amqp://` a bus without
a store. Rules that every engine keeps:

- A message reaches all subscribers of that moment, the publisher's own too, in the order of each publisher. A later
  subscriber does not get it. A message is an announcement, never the only copy: what must not be lost is written to the
  store before it is published.
- Keys and topics are text without spaces; values are bytes. A key without `ttl` lives until it is deleted.
- A message may begin with the trace context of its publisher (`with_trace_context`), which subscribers do not get.
- `take` is called on the event loop, never from inside `publish`. An exception of a subscriber is logged and does not
  affect the other subscribers.
- A log keeps its newest message, also above its size. A reader whose `after` is older than the log's oldest message
  sees that by the first number it gets.
- While the engine is away, calls raise `BusLost` and `alive` is False; afterwards subscriptions are restored without
  the caller. `on_state` is called on both changes. After `close` calls raise `BusLost` too, and `on_state` is not
  called.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable
from contextvars import ContextVar
from typing import Final, Protocol, TypeVar, runtime_checkable

from msgspec import MsgspecError

from ..jsonrpc.errors import LocalError
from ..net.reconnect import OutageLog
from ..net.scheme import SCHEMES, load
from ..net.urls import mask_url, printable, scheme_of
from ..repeats import Repeats

log: logging.Logger = logging.getLogger("dragoman.bus")
repeats: Repeats = Repeats(log)

T = TypeVar("T")


class BusLost(ConnectionError):
    """The engine behind a bus or a store is away; the text says which and why."""


class Subscription(Protocol):
    """One subscription."""

    async def close(self) -> None:
        """Unsubscribe."""


@runtime_checkable
class Store(Protocol):
    """Values and logs, shared by processes. Times in seconds. Every method raises BusLost while the engine is away."""

    async def get(self, key: str) -> bytes | None:
        """Return the value, or None."""

    async def put(self, key: str, value: bytes, *, ttl: float | None = None) -> None:
        """Set a value; `ttl` starts again."""

    async def put_new(self, key: str, value: bytes, *, ttl: float | None = None) -> bool:
        """Set a value if there is none and return True; return False if there is one, which stays."""

    async def delete(self, key: str) -> bool:
        """Remove a value or a log; True if there was one."""

    async def touch(self, key: str, ttl: float) -> bool:
        """Set the remaining life of a value or a log; False if there is none."""

    async def append(
        self,
        log: str,
        message: bytes,
        *,
        ttl: float,
        messages: int = 1_000,
        size: int = 1_048_576,
        number: int | None = None,
    ) -> int:
        """Add a message at the end of a log and return its number, counted from 1. Above `messages` messages or `size`
        bytes the oldest are removed. `number`: add it as this number alone; if it would get another one nothing is
        added, and that one is returned."""

    async def read(self, log: str, after: int = 0) -> list[tuple[int, bytes]]:
        """Return the messages of a log whose number is greater than `after`, with their numbers, in order."""


@runtime_checkable
class Bus(Protocol):
    """Carries messages between processes."""

    url: str
    """The URL without credentials."""
    store: Store | None
    """None if the engine stores nothing."""
    on_state: Callable[[bool], object] | None
    """Called with False when the engine is lost, and with True when it is back."""

    @property
    def alive(self) -> bool:
        """Whether the engine is connected."""

    async def publish(self, topic: str, message: bytes) -> None:
        """Send a message to all subscribers of this moment. Returns when the engine has it. Raises BusLost."""

    async def subscribe(self, topic: str, take: Callable[[bytes], object]) -> Subscription:
        """Call `take` on the loop with each message from now on; returns when the engine has the subscription. Raises
        BusLost."""

    async def close(self) -> None:
        """Close the connection to the bus."""


@runtime_checkable
class JoinsBus(Protocol):
    """A served object that shares state with others that serve the same."""

    async def join(self, bus: Bus) -> None:
        """Share this bus from now on. Called once, before serving starts."""


async def open_bus(url: str, *, tls: ssl.SSLContext | None = None) -> Bus:
    """Open the bus at a URL. `tls`: the context with which its server is verified; None: the system's defaults. Raises
    BusLost when no server answers there, LocalError for an unknown scheme and for a library that is not installed."""
    scheme = scheme_of(url)
    row = SCHEMES.get(scheme)
    if row is None or not row.open_bus:
        there = ", ".join(name for name, one in SCHEMES.items() if one.open_bus)
        raise LocalError(f"{mask_url(url)!r} is not a bus: a bus has a URL of the scheme {there}")
    bus: Bus = await load(scheme, row.open_bus)(url, tls)
    return bus


def reader(decode: Callable[[bytes], T], what: str) -> Callable[[bytes], T | None]:
    """Return a function that reads a record with this decoder. It returns None for a record that cannot be read, such
    as one of another version or of a stranger, and logs those once a minute at most. `what`: the kind of record, for
    the log."""
    trouble, count = OutageLog(what, log), 0

    def read(record: bytes) -> T | None:
        nonlocal count
        try:
            return decode(record)
        except (MsgspecError, ValueError, RecursionError) as why:
            count += 1
            trouble.report(f"{printable(str(why))}; what cannot be read is passed over, {count} in all")
            return None

    return read


class EngineBus:
    """The base of every `Bus` here: it knows whether the engine is connected, logs, counts and reports that, and counts
    for metrics. `engine`: its name in the log."""

    def __init__(self, url: str, engine: str) -> None:
        self.url: str = url
        self.alive: bool = False
        self.on_state: Callable[[bool], object] | None = None
        self.published: int = 0
        self.received: int = 0
        """Messages that were passed to a subscriber here, once for each subscriber."""
        self.missed: int = 0
        """Messages that were dropped because this process read too slowly."""
        self.outages: int = 0
        """How often the engine was lost."""
        self._engine = engine
        self._trouble = OutageLog(url, log)

    def change_state(self, alive: bool, why: str = "") -> None:
        """Log that the engine is away (again: once a minute) or back; count and report it if that is a change."""
        self._trouble.log_state(alive, self._engine, why)
        if alive is not self.alive:
            self.alive = alive
            self.outages += not alive
            if self.on_state is not None:
                self.on_state(alive)

    def counted(self, take: Callable[[bytes], object]) -> Callable[[bytes], object]:
        """Return a subscriber that counts the messages that it takes."""

        def count_and_take(message: bytes) -> object:
            self.received += 1
            return take(message)

        return count_and_take

    def measures(self) -> dict[str, float]:
        """Return the counts by the names of metrics."""
        return {
            "bus_connected": self.alive,
            "bus_published_total": self.published,
            "bus_received_total": self.received,
            "bus_dropped_total": self.missed,
            "bus_outages_total": self.outages,
        }


def call_subscriber(take: Callable[[bytes], object], topic: str, message: bytes) -> None:
    """Call a subscriber with a message, for engines; log what it raises."""
    token = None
    if message.startswith(_TRACED):
        context, _, message = message[len(_TRACED) :].partition(b"\n")
        token = published_in.set(context.decode("ascii", "replace"))
    try:
        take(message)
    except Exception:
        repeats.error("a subscriber of %s raised", topic, exc_info=True)
    finally:
        if token is not None:
            published_in.reset(token)


_TRACED: Final = b"\x00traceparent="
"""The beginning of a message that carries a context; neither text nor JSON begins so."""
published_in: ContextVar[str] = ContextVar("dragoman_published_in", default="")
"""While a subscriber is called: the trace context of its message, as `with_trace_context` took it; "" where there is
none."""


def with_trace_context(message: bytes, context: str) -> bytes:
    """Return a message with the trace context of its publisher, ASCII text without line feeds."""
    return b"%b%b\n%b" % (_TRACED, context.encode("ascii"), message)
