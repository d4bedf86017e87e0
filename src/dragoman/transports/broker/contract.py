"""How a channel is made of a broker: an address for requests, an address for answers, a correlation id.

The one place that knows, with its two faces `broker_channel` (callers) and `broker_listener` (workers). `amqp`,
`mqtt`, `nats` and `redis` know publish, subscribe and acknowledge and nothing else: each gives a `BrokerAdapter`.

Rules:

- A request is one letter to the URL's address. It names the caller's mailbox and the call (correlation), and has an
  idempotency key, like the correlation unless the caller chose one. The answer is one letter to the mailbox.
- A message that the broker did not confirm is sent again, with the same key, once the broker is back, and says so.
- A delivery is settled after its answer is confirmed, so that a worker that dies in between has lost nothing.
- Cancels and broadcasts go to the control address, which everyone who serves the URL's address hears.
- What is longer than the broker takes is refused before it is sent.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from typing import Literal, Protocol, TypeAlias

from msgspec import Struct, field

from ...channel import Broken
from ...jsonrpc.errors import LocalError
from ...net.urls import Url

REPLY_TO_LENGTH = 2_000
"""The longest reply address: a topic of 1,000 bytes with a client's name and a correlation. Engines drop the connection
over addresses far beyond it."""
DELIVERIES = 5
"""How often a request is given to a worker, none of which lived to answer it, before it is set aside."""

# what stands in a letter's headers
KEY = "key"
"""The idempotency key: who sends a message again does it under the same key. A caller without one gets no protection
from being run twice but `Caller.redelivered`."""
DEADLINE = "deadline"
"""When the answer will not be waited for any more: milliseconds since 1970, in UTC."""
AGAIN = "again"
"""How often it was sent before without the broker's saying that it has it: it may have it twice."""
KIND = "kind"
"""What a letter is when it is neither a request nor its answer: one of the four below."""
CANCEL = "cancel"
"""Control: the caller no longer waits for the answer of the call that `correlation` names."""
BROADCAST = "broadcast"
"""Control: a notification for everyone who serves the address."""
AHEAD = "ahead"
"""Mailbox: a message that is no answer; one that comes before the answer, or long after."""
UNROUTABLE = "unroutable"
"""Mailbox, by the post itself: no worker was there to take the request that `correlation` names, as it turned out."""

RECONNECT_GRACE = 5.0
"""Seconds after a reconnection in which "no worker is there" proves nothing: the others are on their way back as well,
and a broker that starts takes connections before it has all its queues."""

now = time.time
"""The time of day that deadlines are held against. Two machines must agree on it to well within a call's time."""

Outcome: TypeAlias = Literal["answered", "nothing_owed", "retry", "reject"]
"""How a delivery ends: its answer is confirmed; none was owed; somebody else shall do it (requeue); it is no
request at all, or killed the workers that took it (dead-letter)."""


def unsettled(outcome: Outcome) -> None:
    """How a delivery ends for which the broker wants no acknowledgement."""


class BrokerMessage(Struct, frozen=True, kw_only=True, eq=False):
    """One message as a broker delivers it."""

    body: bytes
    reply_to: str = ""
    """Where the answer goes; "" where none can."""
    mailbox: str = ""
    """The caller's mailbox, where `reply_to` is a place of its own within it for each answer."""
    correlation: str = ""
    """Names the call: it comes back with the answer, and a cancel carries it."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """What travels beside the body: `key`, `deadline`, `kind`, and what the caller added."""
    count: int = 0
    """How often it was delivered before; 0 the first time."""
    settle: Callable[[Outcome], None] = unsettled
    """Called exactly once, on the loop, where the broker wants acknowledgements."""


Take: TypeAlias = Callable[[BrokerMessage], None]
"""Must not raise: a broker's library would take it for a fault of its own."""


class Mailboxes:
    """The addresses to which a worker may send answers: those that match one of the engine's `usual` patterns or one in
    the URL's `?reply_to=` (several are separated by commas), in which `*` stands for any characters. A client that may
    put a request on the queue chooses its reply address, and the worker publishes with its own permissions. Without this
    rule the caller could have an answer published to any address of the broker.

    `legal`: what an address on this wire is made of, besides being printable.
    """

    def __init__(self, where: Url, *usual: str, legal: str = ".+") -> None:
        given = [one for one in where.query.get("reply_to", "").split(",") if one]
        if "reply_to" in where.query and not given:
            raise LocalError(f"{where.shown}: ?reply_to= is a pattern of addresses, such as answers.*")
        patterns = (re.escape(one).replace(r"\*", ".*") for one in (*usual, *given))
        self._matches = re.compile("|".join(patterns), re.DOTALL).fullmatch
        self._legal = re.compile(legal).fullmatch

    def hold(self, address: str) -> bool:
        """Whether answers may go there."""
        return (
            self._matches(address) is not None
            and len(address) <= REPLY_TO_LENGTH
            and address.isprintable()
            and self._legal(address) is not None
        )


class Unroutable(Broken):
    """No worker serves that address: the broker said so at once."""


class Refused(Broken):
    """The broker did not take the message and will not take it the next time: its queue is full, or we may not."""


class NotTaken(ConnectionError):
    """The broker has not got the message, that is certain, and may take it the next time."""


class BrokerAdapter(Protocol):
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

    async def request(self, letter: BrokerMessage, ttl: float | None) -> None:
        """Send a request to the URL's address; returns when the broker has it. `ttl`: seconds after which the caller
        does not wait for it. Raises Unroutable, Refused, and ConnectionError when the broker is lost: NotTaken where it
        has not got it, else it may or may not have it."""

    async def tell(self, letter: BrokerMessage) -> None:
        """Send to everyone who serves the URL's address. Raises ConnectionError."""

    def answerable(self, letter: BrokerMessage) -> bool:
        """Whether the answer to this request would go to one of the `Mailboxes`."""

    async def answer(self, to: str, letter: BrokerMessage) -> None:
        """Send to the mailbox at `to`; returns when the broker has it. A mailbox that is gone is no error. Raises
        ConnectionError, Refused for what the broker will never take."""

    async def close(self) -> None:
        """Leave. What is unsettled goes back to the others."""
