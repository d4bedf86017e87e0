"""The threads of calls that go on beyond their requests: a part of the pool, which callers share fairly.

Such a call may hold its thread for hours, and the functions of ordinary requests must find one meanwhile.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from math import inf

from ..allowance import Allowance, Owner


class ThreadShare:
    """Lets at most `most` functions have a thread at once; others wait, the callers by turns. Use it on one loop."""

    def __init__(self, most: int) -> None:
        self._allowance = Allowance(most, inf)
        self._waiting: OrderedDict[Owner, deque[asyncio.Future[None]]] = OrderedDict()

    @property
    def waiting(self) -> int:
        """Functions that wait for a thread."""
        return sum(map(len, self._waiting.values()))

    async def take(self, owner: Owner) -> None:
        """Take a thread for this owner; wait until it may have one."""
        if owner not in self._waiting and self._allowance.take(owner, 0.0):
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(owner, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # its turn had come
                self.give_back(owner)
            else:
                self._leave(owner, turn)
            raise

    def give_back(self, owner: Owner) -> None:
        """Give a thread of this owner back; the next one that waits gets it."""
        self._allowance.give_back(owner)
        for other in tuple(self._waiting):
            if self._allowance.take(other, 0.0):
                turn = self._waiting[other][0]
                self._leave(other, turn)
                if other in self._waiting:
                    self._waiting.move_to_end(other)
                turn.set_result(None)

    def _leave(self, owner: Owner, turn: asyncio.Future[None]) -> None:
        queue = self._waiting[owner]
        queue.remove(turn)
        if not queue:
            del self._waiting[owner]
