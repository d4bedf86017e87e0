"""What one peer owes and awaits on one channel: ids, duplicates, limits, draining. Pure state.

The runs (calls coming in) and pendings (calls going out) it holds are opaque here: the peer's.
Rules: calls in flight are keyed by type and value of the id; a second one with an id in flight is
refused while the first goes on; beyond `calls_per_channel` a call waits, beyond
`waiting_per_channel` it is refused; what is cancelled while it waits is never started.
"""

from __future__ import annotations

from typing import Any, Generic, Literal, TypeAlias, TypeVar

from .codec import key
from .limits import Limits

R = TypeVar("R")
P = TypeVar("P")

Verdict: TypeAlias = Literal["start", "wait", "duplicate", "busy", "draining"]


class Conversation(Generic[R, P]):
    """The state of one channel. `R`: a call that came in; `P`: a call that went out."""

    __slots__ = ("draining", "inbound", "last_id", "limits", "outbound", "running", "waiting")

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.inbound: dict[Any, R] = {}
        """Calls that came in and are not yet answered, by `codec.key` of their id."""
        self.waiting: dict[R, None] = {}
        """Those (and notifications) that have no place yet, in their order."""
        self.running = 0
        """Places taken; a place is given back only when its work has really ended."""
        self.outbound: dict[int, P] = {}
        """Calls that went out, by id."""
        self.last_id = 0
        self.draining = False

    # -- what we owe

    def accept(self, key: Any, run: R, *, paused: bool, taken: bool = False) -> Verdict:
        """A call came in (`key` None: a notification). "start" and "wait" take it on; the others do not.

        `paused`: nothing may start now, because the wire is full. `taken`: it is part of a batch that was
        taken on before draining began.
        """
        if self.draining and not taken:
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

    def settle(self, key: Any, run: R) -> bool:
        """The call has its answer. True the first time: the answer is still owed; then never again."""
        if self.inbound.get(key) is not run:
            return False
        del self.inbound[key]
        return True

    def withdraw(self, run: R) -> bool:
        """Take a call out of the queue. True when it was waiting there: it is never started."""
        if run in self.waiting:
            del self.waiting[run]
            return True
        return False

    def release(self) -> None:
        """A running call's work has ended: its place is free."""
        self.running -= 1

    def next(self) -> R | None:
        """The next waiting call that may start, now running; None when there is none or no place."""
        if not self.waiting or self.running >= self.limits.calls_per_channel:
            return None
        run = next(iter(self.waiting))
        del self.waiting[run]
        self.running += 1
        return run

    @property
    def idle(self) -> bool:
        """Nothing is owed and nothing runs."""
        return not self.running and not self.waiting and not self.inbound

    # -- what we await

    def expect(self, pending: P) -> int:
        """A call goes out: its id."""
        self.last_id += 1
        self.outbound[self.last_id] = pending
        return self.last_id

    def resolve(self, id: Any) -> P | None:
        """An answer came: the call it belongs to, or None (late, foreign, twice)."""
        id = key(id)  # an id that came as 1.0 is Raw, and means 1
        return self.outbound.pop(id, None) if isinstance(id, int | float) else None  # type: ignore[arg-type]

    def only(self) -> P | None:
        """The one call that an answer without a readable id must belong to; None when there are several."""
        if len(self.outbound) != 1:
            return None
        return self.outbound.popitem()[1]

    def forget(self, id: int) -> bool:
        """This answer is not waited for any more. True when it was awaited."""
        return self.outbound.pop(id, None) is not None

    def abandon(self) -> list[P]:
        """The channel is over: every call that went out and has no answer."""
        lost = list(self.outbound.values())
        self.outbound.clear()
        return lost
