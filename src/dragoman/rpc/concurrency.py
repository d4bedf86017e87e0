"""The slots of methods with a concurrency of their own."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TypeAlias

from .method import MethodHandler

MethodKey: TypeAlias = tuple[str, MethodHandler]
"""The key of a method and its copies, such as those that calls get while the lifespan begins."""


class ConcurrencyLimit:
    """The slots of one method with a concurrency of its own, kept while one of them is taken."""

    __slots__ = ("_all", "_key", "_size", "free", "queue")

    def __init__(self, size: int, key: MethodKey, all: dict[MethodKey, ConcurrencyLimit]) -> None:
        self._key = key
        self._all = all
        self._size = size
        self.free: int = size
        self.queue: deque[asyncio.Future[None]] = deque()

    def take(self) -> None:
        """Take a free slot."""
        self.free -= 1
        self._all[self._key] = self

    def leave(self) -> None:
        """Give a slot to the call that waits longest, or back."""
        while self.queue:
            turn = self.queue.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self.free += 1
        if self.free == self._size:
            self._all.pop(self._key, None)
