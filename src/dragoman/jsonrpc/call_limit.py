"""How many calls are in flight, and whether one more may begin."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from .budget import Budget
from .errors import Refusal
from .limits import Limits


class CallLimit:
    """Counts the calls `in_flight` of one served object over all wires, at most `limits.calls`, and the bytes of their
    params, at most `limits.calls_size`; and whether it is `draining`. `budget`: the bytes that it keeps and has not
    sent; objects that are served together share one.

    Call `enter` before a call that takes time starts, and `leave` with the same size when it has ended. `idle`, if
    set, is called when no call is in flight any more.
    """

    __slots__ = ("_limit", "_size_limit", "budget", "draining", "idle", "in_flight", "size", "spares", "stopping")

    def __init__(self, limits: Limits) -> None:
        self.in_flight: int = 0
        self.size: int = 0
        """Bytes of the params of the calls in flight."""
        self.draining: bool = False
        self.idle: Callable[[], None] | None = None
        self.stopping: list[Callable[[], object]] = []
        """Functions that are called when draining begins."""
        self.spares: list[Callable[[], bool]] = []
        """Functions that are called when all slots are taken. Each ends one call whose caller has gone; False: it has
        none."""
        self.budget: Budget = Budget(limits)
        self.restrict(limits)

    def restrict(self, limits: Limits) -> None:
        """Count against other limits from now on."""
        self._limit: int = limits.calls
        self._size_limit: int = limits.calls_size
        self.budget.restrict(limits)

    def drain(self) -> None:
        """Refuse new calls from now on, and tell those in flight that do so `on_drain`."""
        if not self.draining:
            self.draining = True
            for tell in tuple(self.stopping):
                tell()

    @contextmanager
    def on_drain(self, tell: Callable[[], object]) -> Iterator[None]:
        """Call `tell` if draining begins within the block: for a call that waits for what others do, and would hold up
        the drain. Look at `draining` too, which may have begun before."""
        self.stopping.append(tell)
        try:
            yield
        finally:
            self.stopping.remove(tell)

    def refusal(self, already_accepted: bool = False, size: int = 0) -> Refusal | None:
        """The reason to refuse a call now whose params have `size` bytes, or None. `already_accepted`: the call is part
        of a batch that was accepted before draining began."""
        if self.draining and not already_accepted:
            return Refusal("draining", "Draining: this server is closing and takes no new calls", {"retry_after": 1})
        if self.in_flight >= self._limit and not any(end() for end in tuple(self.spares)):
            return busy("calls", self._limit)
        if self.in_flight and self.size + size > self._size_limit:
            return busy("calls_size", self._size_limit)
        return None

    def enter(self, already_accepted: bool = False, size: int = 0) -> Refusal | None:
        """Count a call and return None; if it cannot run now, return the reason, as `refusal`."""
        if self.in_flight >= self._limit or self.size + size > self._size_limit or self.draining:
            refusal = self.refusal(already_accepted, size)
            if refusal is not None:
                return refusal
        self.in_flight += 1
        self.size += size
        return None

    def leave(self, size: int = 0) -> None:
        """Count a call of that size no longer."""
        self.in_flight -= 1
        self.size -= size
        if not self.in_flight and self.idle is not None:
            self.idle()


def busy(limit: str, allowed: int) -> Refusal:
    """The refusal of a call above a limit of concurrency; `retry_after` in seconds."""
    data = {"limit": limit, "allowed": allowed, "retry_after": 1}
    return Refusal("busy", f"Busy: {limit} allows {allowed} at once", data)
