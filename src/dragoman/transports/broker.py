"""How a channel is made of a broker: an address for requests, an address for answers, a correlation id.

The one place that knows, with its two faces `broker_channel` (who calls) and `broker_listener` (who serves). `amqp`,
`mqtt`, `nats` and `redis` know publish, subscribe and acknowledge and nothing else: each gives a `Post`.

Rules:

- A request is one letter to the URL's address. It names the caller's mailbox and the call (correlation), and has an
  idempotency key, like the correlation unless the caller chose one. The answer is one letter to the mailbox.
- A message that the broker did not confirm is sent again, with the same key, once the broker is back, and says so.
- A delivery is settled after its answer is confirmed, so that a worker that dies in between has lost nothing.
- Cancels and broadcasts go to the control address, which everyone who serves the URL's address hears.
- What is longer than the broker takes is refused before it is sent.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping
from typing import Literal, Protocol, TypeAlias

from msgspec import Struct, field

from ..channel import Broken
from ..jsonrpc.errors import LocalError
from .urls import Url, printable

DELIVERIES = 5
"""How often a request is given to a worker, none of which lived to answer it, before it is set aside."""

# what stands in a letter's headers
KEY = "key"
"""The idempotency key: who sends a message again does it under the same key. A caller without one gets no protection
from being run twice but `Caller.redelivered`."""
DEADLINE = "deadline"
"""When nobody will wait for the answer any more: milliseconds since 1970, in UTC."""
AGAIN = "again"
"""How often it was sent before without the broker's saying that it has it: it may have it twice."""
KIND = "kind"
"""What a letter is when it is neither a request nor its answer: one of the four below."""
CANCEL = "cancel"
"""Control: nobody waits for the answer of the call that `correlation` names."""
BROADCAST = "broadcast"
"""Control: a notification for everyone who serves the address."""
AHEAD = "ahead"
"""Mailbox: a message that is no answer; one that comes before the answer, or long after."""
UNROUTABLE = "unroutable"
"""Mailbox, by the post itself: nobody was there to take the request that `correlation` names, as it turned out."""

YOUNG = 5.0
"""Seconds after a reconnection in which "nobody is there" proves nothing: the others are on their way back as well, and
a broker that starts takes connections before it has all its queues."""

now = time.time
"""The time of day that deadlines are held against. Two machines must agree on it to well within a call's time."""

Outcome: TypeAlias = Literal["answered", "nothing_owed", "retry", "reject"]
"""How a delivery ends: its answer is confirmed; none was owed; somebody else shall do it (requeue); it is no
request at all, or killed whoever took it (dead-letter)."""


def unsettled(outcome: Outcome) -> None:
    """How a delivery ends for which the broker wants no acknowledgement."""


class Letter(Struct, frozen=True, kw_only=True, eq=False):
    """One message as a broker delivers it."""

    body: bytes
    reply_to: str = ""
    """Where the answer goes; "" where none can."""
    correlation: str = ""
    """Names the call: it comes back with the answer, and a cancel carries it."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """What travels beside the body: `key`, `deadline`, `kind`, and what the caller added."""
    count: int = 0
    """How often it was delivered before; 0 the first time."""
    settle: Callable[[Outcome], None] = unsettled
    """Called exactly once, on the loop, where the broker wants acknowledgements."""


Take: TypeAlias = Callable[[Letter], None]


class Unroutable(Broken):
    """Nobody serves that address: the broker said so at once."""


class Refused(Broken):
    """The broker did not take the message and will not take it the next time: its queue is full, or we may not."""


class NotTaken(ConnectionError):
    """The broker has not got the message, that is certain, and may take it the next time."""


class Post(Protocol):
    """What a broker's library can do. Once it is open it reconnects by itself, with growing, jittered pauses of some
    seconds at most, and renews what it consumes. It calls back on the loop."""

    name: str
    """For words: "RabbitMQ", "NATS", ..."""
    limit: int
    """The longest message the broker takes, in bytes."""
    durable: bool
    """Whether the broker keeps requests and answers while we are away. Where not, the calls that are out when it is
    lost fail at once."""
    on_state: Callable[[bool, str], None] | None
    """Set by the channel or listener: called with False and why when the broker is lost, and again with each attempt to
    come back that failed; with True when it is back."""

    async def open(self) -> None:
        """Connect for the first time. Raises OSError, in words where the library has good ones."""

    async def work(self, take: Take, prefetch: int) -> None:
        """Take requests of the URL's address, in competition with other workers, `prefetch` unsettled at most."""

    async def pause(self) -> None:
        """Take no more requests (what is unsettled stays ours)."""

    async def hear(self, take: Take) -> None:
        """Take what everyone who serves this address gets: cancels and broadcasts. At most once."""

    async def mailbox(self, take: Take) -> str:
        """Make an address of our own for answers, and take them (they are settled once they are read)."""

    async def request(self, letter: Letter, ttl: float | None) -> None:
        """Send a request to the URL's address; returns when the broker has it. `ttl`: seconds after which nobody waits
        for it. Raises Unroutable, Refused, and ConnectionError when the broker is lost: NotTaken where it has not got it,
        else it may or may not have it."""

    async def tell(self, letter: Letter) -> None:
        """Send to everyone who serves the URL's address. Raises ConnectionError."""

    async def answer(self, to: str, letter: Letter) -> None:
        """Send to somebody's mailbox; returns when the broker has it. A mailbox that is gone is no error. Raises
        ConnectionError."""

    async def close(self) -> None:
        """Leave. What is unsettled goes back to the others."""


# -- what the URLs of brokers have in common ------------------------------------------------------


def asked(where: Url, *known: str) -> Mapping[str, str]:
    """The URL's query. LocalError for a name that is none of `known`."""
    for name in where.query:
        if name not in known:
            raise LocalError(f"{where.shown}: ?{printable(name)}= means nothing here; known are {', '.join(known)}")
    return where.query


def number(where: Url, name: str, default: int, least: int = 1) -> int:
    """A number in the URL's query. LocalError for what is none, or below `least`."""
    text = where.query.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 16) or int(text) < least:
        raise LocalError(f"{where.shown}: ?{name}= is a whole number from {least} on, not {printable(text)!r}")
    return int(text)


def address(where: Url, name: str = "queue", *, legal: str = r"[^\s\x00-\x1f]{1,200}") -> tuple[str, str]:
    """The address that a URL names, and the path before it: `?queue=` with the whole path, else the path's last part
    with what stands before that. LocalError where there is none, or what does not match `legal`."""
    path = where.path.strip("/")
    before, _, last = path.rpartition("/")
    found = where.query.get(name)
    if found is not None:
        before, last = path, found
    if not last:
        raise LocalError(f"{where.shown}: name who is called, as in {where.scheme}://{where.address}/calculator")
    if not re.fullmatch(legal, last):
        raise LocalError(f"{where.shown}: {printable(last)!r} cannot name who is called on this wire")
    return last, before


def choice(where: Url, name: str, default: str, other: str) -> str:
    """One of two words in the URL's query. LocalError for another."""
    chosen = where.query.get(name, default)
    if chosen not in (default, other):
        raise LocalError(f"{where.shown}: ?{name}= is {default} or {other}, not {printable(chosen)!r}")
    return chosen


def credentials(where: Url) -> tuple[str, str] | None:
    """User and password: the URL's, else those in the environment (`DRAGOMAN_AMQP_USER`, `DRAGOMAN_AMQP_PASSWORD`; the
    middle is the broker's scheme without TLS: AMQP, MQTT, NATS, REDIS)."""
    if where.user is not None:
        return where.user, where.password or ""
    kind = {"amqps": "AMQP", "mqtts": "MQTT", "natss": "NATS", "rediss": "REDIS"}.get(where.scheme)
    kind = kind or where.scheme.upper()
    user, password = os.environ.get(f"DRAGOMAN_{kind}_USER"), os.environ.get(f"DRAGOMAN_{kind}_PASSWORD")
    return None if user is None and password is None else (user or "", password or "")
