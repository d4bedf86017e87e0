"""Values and logs that expire, for the `memory:` engine and for the hub that workers share. Pure.

Rules:

- No reader sees an expired entry; its memory is released by one of the next writes.
- A log keeps its newest message, also above its size; numbers are not used twice while the log lives.
- Values and logs share one namespace: a value put under the key of a log replaces it, and the reverse.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from heapq import heappop, heappush
from typing import Any, cast

_FOREVER = float("inf")
_AT_ONCE = 8
"""Entries examined per write, so that no write waits for a large clean-up."""


class _Kept:
    """One value or one log."""

    __slots__ = ("count", "deadline", "due", "log", "size", "value")

    def __init__(self, value: bytes | None) -> None:
        self.value = value
        self.log: deque[bytes] = deque()
        self.count = 0  # the number of the log's last message
        self.size = 0
        self.deadline = _FOREVER
        self.due = _FOREVER  # the time of its entry in the heap


class MemoryBusStore:
    """The methods of `contract.Store` as plain functions. `clock` gives seconds and never goes back."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._kept: dict[str, _Kept] = {}
        self._heap: list[tuple[float, str]] = []

    def __len__(self) -> int:
        """The number of values and logs in memory, including expired ones that are not yet cleared."""
        return len(self._kept)

    def get(self, key: str) -> bytes | None:
        found = self._find(key)
        return None if found is None else found.value

    def put(self, key: str, value: bytes, ttl: float | None = None) -> None:
        self._expire_some()
        kept = self._find(key)
        if kept is None or kept.value is None:
            kept = self._kept[key] = _Kept(value)
        kept.value = value
        kept.deadline = _FOREVER
        if ttl is not None:
            self._until(key, kept, ttl)

    def put_new(self, key: str, value: bytes, ttl: float | None = None) -> bool:
        if self._find(key) is not None:
            return False
        self.put(key, value, ttl)
        return True

    def delete(self, key: str) -> bool:
        existed = self._find(key) is not None
        if existed:
            del self._kept[key]
        return existed

    def touch(self, key: str, ttl: float) -> bool:
        found = self._find(key)
        if found is not None:
            self._until(key, found, ttl)
        return found is not None

    def append(
        self,
        log: str,
        message: bytes,
        ttl: float,
        messages: int = 1_000,
        size: int = 1_048_576,
        number: int | None = None,
    ) -> int:
        self._expire_some()
        kept = self._find(log)
        due = 1 if kept is None or kept.value is not None else kept.count + 1
        if number is not None and number != due:
            return due
        if kept is None or kept.value is not None:
            kept = self._kept[log] = _Kept(None)
        kept.log.append(message)
        kept.count += 1
        kept.size += len(message)
        while len(kept.log) > 1 and (len(kept.log) > messages or kept.size > size):
            kept.size -= len(kept.log.popleft())
        self._until(log, kept, ttl)
        return kept.count

    def read(self, log: str, after: int = 0) -> list[tuple[int, bytes]]:
        kept = self._find(log)
        if kept is None:
            return []
        first = kept.count - len(kept.log) + 1
        return [(number, message) for number, message in enumerate(kept.log, first) if number > after]

    def _find(self, key: str) -> _Kept | None:
        kept = self._kept.get(key)
        if kept is not None and kept.deadline <= self._clock():
            del self._kept[key]
            return None
        return kept

    def _until(self, key: str, kept: _Kept, ttl: float) -> None:
        """Set the deadline of a key. Each key has one entry in the heap: a later deadline is found when that comes up,
        an earlier one is pushed."""
        kept.deadline = self._clock() + ttl
        if kept.deadline < kept.due:
            kept.due = kept.deadline
            heappush(self._heap, (kept.due, key))

    def _expire_some(self) -> None:
        """Release the memory of some expired entries."""
        now = self._clock()
        heap = self._heap
        for _ in range(_AT_ONCE):
            if not heap or heap[0][0] > now:
                return
            due, key = heappop(heap)
            kept = self._kept.get(key)
            if kept is None or kept.due != due:  # the entry belongs to a former value of the key
                continue
            if kept.deadline <= now:
                del self._kept[key]
                continue
            kept.due = kept.deadline
            if kept.due != _FOREVER:
                heappush(heap, (kept.due, key))


class RemoteStore:
    """A `contract.Store` that passes its calls on to another one. `ask`: calls a method of that by name, with
    arguments."""

    def __init__(self, ask: Callable[..., Awaitable[Any]]) -> None:
        self._ask = ask

    async def get(self, key: str) -> bytes | None:
        return cast("bytes | None", await self._ask("get", key))

    async def put(self, key: str, value: bytes, *, ttl: float | None = None) -> None:
        await self._ask("put", key, value, ttl)

    async def put_new(self, key: str, value: bytes, *, ttl: float | None = None) -> bool:
        return bool(await self._ask("put_new", key, value, ttl))

    async def delete(self, key: str) -> bool:
        return bool(await self._ask("delete", key))

    async def touch(self, key: str, ttl: float) -> bool:
        return bool(await self._ask("touch", key, ttl))

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
        return int(await self._ask("append", log, message, ttl, messages, size, number))

    async def read(self, log: str, after: int = 0) -> list[tuple[int, bytes]]:
        return [(number, message) for number, message in await self._ask("read", log, after)]
