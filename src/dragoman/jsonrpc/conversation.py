"""The state of one channel: calls in both directions, duplicates, limits, draining, idle, close. Pure.

The calls themselves are opaque here; they belong to the peer. Rules:

- Calls in flight are keyed by type and value of the id; a second one with an id in flight is refused while the first
  goes on.
- Beyond `calls_per_channel` a call waits, beyond `waiting_per_channel` it is refused; a call that is cancelled while it
  waits is never started.
- While it drains it accepts no new call. It is idle when no answer is owed and no call runs.
- When the far end has stopped sending, the channel is closed as soon as it is idle, and the end is attributed to the
  far end.
- A response without a readable id belongs to no call as long as the real one may still come: peers answer
  notifications, too. Where nothing more can come, it belongs to the one call, or the one batch, that is in flight.
"""

from __future__ import annotations

from typing import Any, Generic, Literal, Protocol, TypeAlias, TypeVar

import msgspec
from msgspec import UNSET, Raw

from .codec import key
from .errors import Dialect
from .limits import Limits
from .messages import Notification


class Grouped(Protocol):
    """A call that went out, as far as a conversation knows it."""

    @property
    def group(self) -> object:
        """Equal for the calls of one batch."""


R = TypeVar("R")
P = TypeVar("P", bound=Grouped)

Verdict: TypeAlias = Literal["start", "wait", "duplicate", "busy", "draining"]


class Conversation(Generic[R, P]):
    """The state of one channel. `R`: a call that came in; `P`: a call that went out."""

    __slots__ = (
        "closing",
        "departing",
        "draining",
        "half_closed",
        "inbound",
        "last_id",
        "limits",
        "notified",
        "outbound",
        "running",
        "waiting",
    )

    def __init__(self, limits: Limits) -> None:
        self.limits: Limits = limits
        self.inbound: dict[Any, R] = {}
        """Calls that came in and are not yet answered, by `codec.key` of their id."""
        self.waiting: dict[R, None] = {}
        """Calls and notifications that wait for a slot, in their order."""
        self.running: int = 0
        """Slots that are taken; a slot is released only when its work has really ended."""
        self.outbound: dict[int, P] = {}
        """Calls that went out, by id."""
        self.last_id: int = 0
        self.draining: bool = False
        """No new call is accepted."""
        self.closing: bool = False
        """We are closing the channel."""
        self.half_closed: bool = False
        """The far end sends nothing more on this channel, no response either."""
        self.notified: bool = False
        """A message that no answer is owed for was sent on this channel: some peers answer that, without an id."""
        self.departing: bool = False
        """We are closing because the far end has stopped sending."""

    def opened(self) -> None:
        """Begin anew on a new channel: what was known of the end of the last one no longer holds."""
        self.half_closed = self.departing = self.notified = False

    # -- what we owe

    def accept(self, key: Any, run: R, *, paused: bool, already_accepted: bool = False) -> Verdict:
        """Register a call that came in (`key` None: a notification). "start" and "wait" accept it; the other verdicts
        do not.

        `paused`: no call may start now, because the wire is full. `already_accepted`: the call is part of a batch that
        was accepted before draining began.
        """
        if self.draining and not already_accepted:
            return "draining"
        if key is not None and key in self.inbound:
            return "duplicate"
        verdict: Verdict
        if not paused and not self.waiting and self.running < self.limits.calls_per_channel:
            self.running += 1
            verdict = "start"
        elif len(self.waiting) < self.limits.waiting_per_channel:
            self.waiting[run] = None
            verdict = "wait"
        else:
            return "busy"
        if key is not None:
            self.inbound[key] = run
        return verdict

    def takes_inline(self, id: Any) -> bool:
        """Whether a call (`id` UNSET: a notification) may be answered in place: no call waits before it, and its id is
        not in flight."""
        return not self.waiting and (id is UNSET or not self.inbound or key(id) not in self.inbound)

    def cancelled(self, message: Notification, dialect: Dialect) -> R | None:
        """The call in flight that the far end's cancel names, or None."""
        if message.params is UNSET:
            return None
        try:
            id = _decode_members(message.params).get(dialect.cancel_key)
        except (msgspec.DecodeError, RecursionError):
            return None
        if id is None:
            return None
        text = bytes(id)
        return self.inbound.get(int(text) if text.isdigit() and len(text) < 400 else key(id))

    def settle(self, key: Any, run: R) -> bool:
        """Mark a call as answered. True the first time, when the answer is owed; False after that."""
        if self.inbound.get(key) is not run:
            return False
        del self.inbound[key]
        return True

    def withdraw(self, run: R) -> bool:
        """Remove a call from the queue. True if it was waiting there; then it is never started."""
        if run in self.waiting:
            del self.waiting[run]
            return True
        return False

    def release(self) -> None:
        """A running call's work has ended: release its slot."""
        self.running -= 1

    def next(self) -> R | None:
        """The next waiting call that may start, counted as running; None if there is none or no slot."""
        if not self.waiting or self.running >= self.limits.calls_per_channel:
            return None
        run = next(iter(self.waiting))
        del self.waiting[run]
        self.running += 1
        return run

    @property
    def idle(self) -> bool:
        """True if no answer is owed and no call runs."""
        return not self.running and not self.waiting and not self.inbound

    def leaves(self) -> bool:
        """Return whether to close the channel now, because the far end has stopped sending and no answer is owed. True
        once per channel."""
        if not self.half_closed or self.departing or not self.idle:
            return False
        self.departing = True
        return True

    @property
    def followed(self) -> bool:
        """Whether the far end ended the channel: we closed it only because the far end had stopped sending."""
        return self.departing and not self.closing

    # -- what we await

    def expect(self, pending: P) -> int:
        """Register an outgoing call; returns its id."""
        self.last_id = id = self.last_id + 1
        self.outbound[id] = pending
        return id

    def resolve(self, id: Any) -> P | None:
        """Remove and return the call that a response with this id answers; None: late, unknown, or a second one."""
        if type(id) is not int:
            id = key(id)  # an id that came as 1.0 is Raw, and means 1
            if not isinstance(id, int | float):
                return None
        return self.outbound.pop(id, None)

    def resolve_batch(self, id: Any) -> list[P]:
        """Remove and return all calls of the batch that has a call with this id; none where no call has it."""
        found = self.resolve(id)
        if found is None:
            return []
        others = [key for key, pending in self.outbound.items() if pending.group is found.group]
        return [found, *(self.outbound.pop(key) for key in others)]

    def awaited(self, id: Any) -> P | None:
        """The call that an answer with this id belongs to, which stays awaited; None where it belongs to none."""
        id = key(id)
        return self.outbound.get(id) if isinstance(id, int | float) else None  # type: ignore[arg-type]

    @property
    def single(self) -> bool:
        """Whether one call, or one batch, is in flight and nothing else."""
        return len({id(pending.group) for pending in self.outbound.values()}) == 1

    def resolve_only(self) -> list[P]:
        """Remove and return the one call in flight, or the calls of the one batch; none where there are others. For a
        response without a readable id, when no other can come."""
        return self.abandon() if self.single else []

    def progressed(self, message: Notification, dialect: Dialect) -> tuple[P, Any] | None:
        """The outgoing call to which a progress notification belongs, and the value; None without such a call."""
        try:
            progress = msgspec.json.decode(message.params)
        except (msgspec.DecodeError, RecursionError, TypeError):
            return None
        token = progress.get(dialect.progress_key) if isinstance(progress, dict) else None
        pending = self.outbound.get(token) if isinstance(token, int) else None
        if pending is None:
            return None
        member = dialect.progress_value
        return pending, progress if member is None else progress.get(member)

    def forget(self, id: int) -> bool:
        """Do not wait for this response any more. True if a call waited for it."""
        return self.outbound.pop(id, None) is not None

    def abandon(self) -> list[P]:
        """Remove and return every outgoing call without a response: the channel is over."""
        lost = list(self.outbound.values())
        self.outbound.clear()
        return lost


_decode_members = msgspec.json.Decoder(dict[str, Raw]).decode


def nameless(id: Any) -> bool:
    """Whether a response's id is null: the far end could not read which call it answers."""
    return isinstance(id, Raw) and bytes(id) == b"null"
