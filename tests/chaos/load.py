"""The caller: so many calls a second, come what may, and how each of them ended.

Two thirds of what it sends are calls of `charge`, which must not be run twice by a worker that is not told of the
first time, a quarter calls of `look`, which may, the rest notifications (`note`). A notification counts as accepted
once `notify` has returned.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Collection
from typing import Any

from msgspec import Struct

from dragoman import RpcError
from dragoman.rpc.peer import Peer

RATE = 200.0
WORK = 0.1
"""Seconds that a run takes at most; half of it on average."""
DEADLINE = 30.0
MOST = 1_000
"""Calls in flight at one time. Beyond that none are made, or a machine that is slower than the load would be buried
under it."""


GRACE = 5.0
"""Seconds that calls have, once the others have ended, of which the broker may know nothing any more."""
FORGOTTEN = "forgotten"
"""The outcome of a call that was given up because the broker was killed before it had saved it."""


class Call(Struct):
    """One call."""

    method: str
    key: str
    start: float
    end: float = 0.0
    outcome: str = ""
    """"answered", `FORGOTTEN`, or the kind of its error; empty while it is out."""


class Load:
    """Calls at a steady rate, until `stop`."""

    def __init__(self, peer: Peer, *, seed: int, rate: float = RATE, deadline: float = DEADLINE) -> None:
        self.calls: list[Call] = []
        self.answered = 0
        self.errors: Counter[str] = Counter()
        self.deadline = deadline
        self._peer = peer
        self._random = random.Random(seed)
        self._rate = rate
        self._stopped = asyncio.Event()
        self._out: dict[asyncio.Task[None], Call] = {}
        self._changed = asyncio.Condition()
        self._clock = asyncio.create_task(self._tick())

    async def _tick(self) -> None:
        start, made = time.monotonic(), 0
        while not self._stopped.is_set():
            due = int((time.monotonic() - start) * self._rate)
            for _ in range(min(due - made, MOST - len(self._out))):
                self._begin()
            made = due
            await asyncio.sleep(1 / self._rate)

    def _begin(self) -> None:
        dice = self._random.random()
        method = "charge" if dice < 2 / 3 else "look" if dice < 11 / 12 else "note"
        call = Call(method, str(len(self.calls)), time.monotonic())
        self.calls.append(call)
        task = asyncio.create_task(self._one(call, self._random.uniform(0, WORK)))
        self._out[task] = call
        task.add_done_callback(self._out.pop)

    async def _one(self, call: Call, seconds: float) -> None:
        try:
            if call.method == "note":
                await self._peer.notify("note", [call.key])
            else:
                await self._peer.call(call.method, [call.key, seconds], timeout=self.deadline)
            call.outcome = "answered"
            self.answered += 1
        except asyncio.CancelledError:
            call.outcome = FORGOTTEN
        except Exception as fault:  # whatever it is, it is how this call ended
            call.outcome = _kind(fault)
            self.errors[call.outcome] += 1
        call.end = time.monotonic()
        async with self._changed:
            self._changed.notify_all()

    async def more(self, answers: int, patience: float = 120.0) -> None:
        """Wait for so many further answers."""
        until = self.answered + answers
        async with asyncio.timeout(patience), self._changed:
            await self._changed.wait_for(lambda: self.answered >= until)

    async def refused(self, patience: float = 120.0) -> None:
        """Wait for the first call that ends in an error."""
        async with asyncio.timeout(patience), self._changed:
            await self._changed.wait_for(lambda: self.errors)

    async def first_since(self, moment: float, after: float = 0.0, patience: float = 120.0) -> float:
        """When the first call that began after `moment` was answered, answers that came before `after` not counted."""
        begun = len(self.calls)
        while begun and self.calls[begun - 1].start >= moment:
            begun -= 1

        def ends() -> list[float]:
            answered = [call for call in self.calls[begun:] if call.outcome == "answered" and call.method != "note"]
            return [call.end for call in answered if call.end >= after]

        async with asyncio.timeout(patience), self._changed:
            await self._changed.wait_for(ends)
        return min(ends())

    async def stop(self, forgotten: Collection[str] = ()) -> None:
        """Make no more calls and wait until every call has ended; what has no end long after its deadline is left. The
        `forgotten` may have been lost without a fault of ours: they are given up a little after the last of the others
        has ended."""
        self._stopped.set()
        await self._clock
        others = [task for task, call in self._out.items() if call.key not in forgotten]
        if others:
            await asyncio.wait(others, timeout=self.deadline + 30)
        rest = [task for task, call in self._out.items() if call.key in forgotten]
        if rest:
            _, late = await asyncio.wait(rest, timeout=GRACE)
            for task in late:
                task.cancel()
            await asyncio.gather(*late)

    async def abandon(self) -> None:
        """End it where a test has failed."""
        tasks: list[asyncio.Task[Any]] = [self._clock, *self._out]
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


def _kind(fault: Exception) -> str:
    if isinstance(fault, RpcError):
        return f"{type(fault).__name__}({fault.code}): {fault.message}"
    return f"{type(fault).__name__}: {str(fault)[:60]}" if type(fault) is not TimeoutError else "TimeoutError"
