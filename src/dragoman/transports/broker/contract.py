"""How a broker becomes a wire: an address for requests, an address for answers, a correlation id.

Callers use `channel`, workers use `listener`; both are built on this contract. `amqp`,
`mqtt`, `nats` and `redis` implement publish, subscribe and acknowledge, each in a `BrokerAdapter`.

Rules:

- A request is one broker message to the URL's address. It names the caller's mailbox and the call (correlation id), and
  has an idempotency key, equal to the correlation id unless the caller chose one. The answer is one message to the
  mailbox.
- A message that the broker did not confirm is sent again, with the same key, once the broker is back, and marked; so is
  the request of an open call if the broker has forgotten meanwhile what it had confirmed. If the broker refuses
  the second one, the call waits for the answer to the first.
- A delivery is settled after its answer is confirmed, so that nothing is lost if the worker dies before.
- Cancels and broadcasts go to the control address, which all workers of the URL's address read.
- A message longer than the broker takes is refused before it is sent.
"""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Callable, Mapping
from typing import Literal, Protocol, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from ...channel import Broken
from ...jsonrpc.errors import LocalError
from ...net.sharing import OnState
from ...net.urls import Url

REPLY_TO_LENGTH = 2_000
"""The longest reply address: a topic of 1,000 bytes with a client's name and a correlation id. Engines close the
connection because of much longer addresses."""
MAILBOXES_KNOWN = 1_000
"""Addresses that a worker remembers to have accepted, so that it looks at a caller's mailbox once and not at each
call."""
DELIVERIES = 5
"""How often a request is delivered, to workers that all died, before it is dead-lettered."""

# headers of a broker message
KEY = "key"
"""The idempotency key: the same when a message is sent again. Without one, only `Caller.redelivered` protects a caller
from running twice."""
DEADLINE = "deadline"
"""The time after which the caller does not wait any more: milliseconds since 1970, in UTC."""
AGAIN = "again"
"""How often it was sent before without a confirmation, so that the broker may have it twice."""
DELIVERED = "delivered"
"""In the copy of a request that was given back: how often the request was delivered before, to workers that may have
begun it. The broker counts the deliveries of the copy from 0."""
KIND = "kind"
"""The kind of a message that is neither a request nor its answer: one of the four below."""
CANCEL = "cancel"
"""Control: the caller no longer waits for the answer of the call that `correlation` names."""
BROADCAST = "broadcast"
"""Control: a notification for all workers of the address."""
AHEAD = "ahead"
"""Mailbox: a message that is not an answer; it may come before the answer, or long after."""
UNROUTABLE = "unroutable"
"""Mailbox, from the adapter itself: there was no worker to take the request that `correlation` names."""

now: Callable[[], float] = time.time
"""The time of day with which deadlines are compared. Two machines must agree on it to well within a call's time."""

Outcome: TypeAlias = Literal["answered", "nothing_owed", "retry", "reject"]
"""How a delivery ends: its answer is confirmed; none was owed; another worker shall run it (requeue); it is not a
request, or killed the workers that took it (dead-letter)."""


def unsettled(outcome: Outcome) -> None:
    """Settles a delivery for which the broker wants no acknowledgement."""


class BrokerMessage(Struct, frozen=True, kw_only=True, eq=False):
    """One message as a broker delivers it."""

    body: bytes
    reply_to: str = ""
    """The address of the answer; "" if there is none."""
    mailbox: str = ""
    """The caller's mailbox, if `reply_to` is an address within it that differs for each answer."""
    correlation: str = ""
    """The correlation id of the call: the answer and a cancel carry it."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """The headers: `key`, `deadline`, `kind`, and those that the caller added."""
    count: int = 0
    """How often it was delivered before; 0 the first time. Of an outgoing request: how often it was confirmed."""
    settle: Callable[[Outcome], None] = unsettled
    """Called exactly once, on the loop, if the broker wants acknowledgements."""


class Denial(BrokerMessage, frozen=True, kw_only=True, eq=False):
    """A message that the adapter itself puts into the mailbox when the broker reports, afterwards and for no message in
    particular, that we may not send requests. All open calls fail. The body says what is not permitted."""


def number_in(headers: Mapping[str, str], name: str) -> int:
    """The count in a header, `AGAIN` or `DELIVERED`; 0 if there is none, or no number of at most 5 digits."""
    text = headers.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 6 else 0


def given_back(message: BrokerMessage) -> BrokerMessage:
    """Return the copy in which a request that no worker has begun goes back to a broker that would count a requeued one
    as delivered. The copy keeps the count (`DELIVERED`). It is marked (`AGAIN`), because both exist if the worker dies
    before it acknowledges the request."""
    again = str(number_in(message.headers, AGAIN) + 1)
    return replace(message, headers={**message.headers, AGAIN: again, DELIVERED: str(message.count)})


Take: TypeAlias = Callable[[BrokerMessage], None]
"""Takes one message. It must not raise, because a broker's library would treat that as a fault of its own."""


class Mailboxes:
    """The addresses to which a worker may send answers: those that match one of the engine's `usual` patterns or one in
    the URL's `?reply_to=` (several are separated by commas), in which `*` stands for any characters. A client that may
    put a request on the queue chooses its reply address, and the worker publishes with its own permissions. Without
    this rule the caller could have an answer published to any address of the broker.

    `legal`: whether an address, which is printable, is one on this wire.
    """

    def __init__(self, where: Url, *usual: str, legal: Callable[[str], object] = bool) -> None:
        given = [one for one in where.query.get("reply_to", "").split(",") if one]
        if "reply_to" in where.query and not given:
            raise LocalError(f"{where.shown}: ?reply_to= is a pattern of addresses, such as answers.*")
        patterns = (re.escape(one).replace(r"\*", ".*") for one in (*usual, *given))
        self._matches = re.compile("|".join(patterns), re.DOTALL).fullmatch
        self._legal = legal
        self._held: set[str] = set()

    def hold(self, address: str) -> bool:
        """Return whether answers may be sent to this address. An address that is allowed is remembered, since a caller
        has one mailbox for many calls."""
        if address in self._held:
            return True
        if not self.may_hold(address):
            return False
        if len(self._held) >= MAILBOXES_KNOWN:
            self._held.clear()
        self._held.add(address)
        return True

    def may_hold(self, address: str) -> bool:
        """Return the same without remembering it, for wires on which every answer has an address of its own."""
        return (
            len(address) <= REPLY_TO_LENGTH
            and address.isprintable()
            and self._matches(address) is not None
            and bool(self._legal(address))
        )


def mailbox_parts(where: Url) -> tuple[str, ...]:
    """The parts that make the address of a new mailbox one's own: `?mailbox=`, by which the broker's access rules can
    confine a caller, where the URL has it; and 122 random bits, because a caller that may put a request on the queue
    may name any address in it. Raises LocalError."""
    confined = where.query.get("mailbox")
    if confined is None:
        return (uuid.uuid4().hex,)
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,100}", confined):
        raise LocalError(f"{where.shown}: ?mailbox= is made of letters, digits, - and _")
    return confined, uuid.uuid4().hex


class Unroutable(Broken):
    """No worker serves that address; the broker reported it at once."""


class Refused(Broken):
    """The broker did not take the message, and another try would not help: its queue is full, or we lack permission."""


class NotTaken(ConnectionError):
    """The broker certainly does not have the message, and may take it at the next try."""


class BrokerAdapter(Protocol):
    """What an engine implements. Once open it reconnects by itself, with growing, jittered pauses of at most some
    seconds, and restores its consumers. It calls back on the loop."""

    name: str
    """The name for messages: "RabbitMQ", "NATS", ..."""
    limit: int
    """The longest message that the broker takes, in bytes."""
    durable: bool
    """Whether the broker keeps requests and answers while we are disconnected. If not, the calls in flight fail at once
    when it is lost."""
    on_state: OnState
    """Set by the channel or listener: called with False and the reason when the broker is lost and after each failed
    try to reconnect, and with True when it is back; then with the reason why it may have lost a request that it had
    confirmed, or an answer, so that open calls are sent again; "" if it has not."""

    async def open(self) -> None:
        """Connect for the first time. Raises OSError, with a readable text if the library has one."""

    async def work(self, take: Take, prefetch: int) -> None:
        """Take requests from the URL's address, in competition with other workers, at most `prefetch` unsettled."""

    async def pause(self) -> None:
        """Take no more requests; unsettled ones stay ours."""

    async def receive_control(self, take: Take) -> None:
        """Receive what comes to the control address: cancels and broadcasts, each at most once."""

    async def mailbox(self, take: Take) -> str:
        """Make an address of our own for answers, and receive them (they are settled once they are read)."""

    async def request(self, message: BrokerMessage, ttl: float | None) -> None:
        """Send a request to the URL's address; returns when the broker has it. `ttl`: seconds after which the caller
        does not wait for it. Raises Unroutable, Refused, and ConnectionError when the broker is lost: NotTaken if it
        certainly does not have the request, otherwise it may have it."""

    async def send_control(self, message: BrokerMessage) -> None:
        """Send a cancel or a broadcast to the control address, which all workers read. Raises ConnectionError."""

    def answerable(self, message: BrokerMessage) -> bool:
        """Whether the answer to this request would go to one of the `Mailboxes`."""

    async def answer(self, to: str, message: BrokerMessage) -> None:
        """Send to the mailbox at `to`; returns when the broker has it. A mailbox that is gone is not an error. Raises
        ConnectionError, and Refused for a message that the broker will never take."""

    async def close(self) -> None:
        """Disconnect. Unsettled requests go back to the other workers."""
