"""Logs of `engines.nats.bus`: each is a subject of one stream, and its newest message describes the whole log.

Headers of a message: `Number`, from 1; `Before`, the bytes that came before it; `First`, the number of the oldest that
counts; `Origin`, the position in the stream after which this log begins (what is older was another log of that name).
A `Touch` is a message that only lets the log live longer.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from weakref import WeakValueDictionary

from msgspec import Struct
from msgspec.structs import replace

from .store import StreamEntry, StreamStore, now

NUMBER, BEFORE, FIRST, ORIGIN, TOUCH = "Number", "Before", "First", "Origin", "Touch"
KNOWN = 2_000
"""Logs whose messages' sizes are cached, so that appending takes one round trip."""
SLACK = 64
"""Removed messages may stay in the stream up to this number: deleting each singly would double the work."""


class _LogHead(Struct, frozen=True):
    """The headers of a message."""

    number: int
    before: int
    first: int
    origin: int
    touch: bool

    @property
    def headers(self) -> dict[str, str]:
        """The headers as they are written."""
        numbers = {NUMBER: self.number, BEFORE: self.before, FIRST: self.first, ORIGIN: self.origin}
        return {name: str(value) for name, value in numbers.items()} | ({TOUCH: "1"} if self.touch else {})


def _read_head(entry: StreamEntry) -> _LogHead | None:
    """Return a message's headers; None if it is not of a log, but was written there by others."""
    try:
        number, before, first, origin = (int(entry.headers[name]) for name in (NUMBER, BEFORE, FIRST, ORIGIN))
    except (KeyError, ValueError):
        return None
    return _LogHead(number, before, first, origin, TOUCH in entry.headers)


class _LogCache:
    """What this process knows of one log: the position of the newest message, and number, bytes before and position of
    each."""

    def __init__(self, origin: int) -> None:
        self.origin = origin
        self.newest = origin
        self.number = 0
        self.total = 0
        self.first = 1
        self.cleared = 1
        self.expires = 0
        self.sizes: OrderedDict[int, tuple[int, int]] = OrderedDict()

    def note(self, entry: StreamEntry, head: _LogHead) -> None:
        """Take in a message that was read."""
        self.newest = entry.position
        self.first = max(self.first, head.first)
        if not head.touch:
            self.add(head.number, head.before, len(entry.body), entry.position)

    def add(self, number: int, before: int, size: int, position: int) -> None:
        """Take in a message of the log, the newest of it."""
        self.newest, self.number, self.total = position, number, before + size
        self.sizes[number] = (before, position)

    def bounded(self, size: int, messages: int, most: int) -> int:
        """Return the number of the first message that the log keeps once a message of that size is added."""
        first, number = max(self.first, self.number + 2 - messages), self.number + 1
        while first < number and self.total + size - self.sizes.get(first, (0, 0))[0] > most:
            first += 1
        return first


class Logs:
    """The logs of one `StreamStore`."""

    def __init__(self, store: StreamStore) -> None:
        self._store = store
        self._caches: OrderedDict[str, _LogCache] = OrderedDict()
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def append(
        self, name: str, message: bytes, ttl: float, messages: int, size: int, only: int | None = None
    ) -> int:
        """Append a message; return its number. `only`: add nothing unless the number would be this one."""
        # one after the other: of many at once all but the first would fail, and read the whole log anew
        async with self._locks.setdefault(name, asyncio.Lock()):
            return await self._append(name, message, ttl, messages, size, only)

    async def _append(self, name: str, message: bytes, ttl: float, messages: int, size: int, only: int | None) -> int:
        known = self._caches.pop(name, None) or _LogCache(0)
        learned = False
        while True:
            if known.number and known.expires <= now():
                known = _LogCache(known.newest)
            first = known.bounded(len(message), messages, size)
            number, before = known.number + 1, known.total
            if only is not None and only != number:
                if learned:
                    self._keep(name, known)
                    return number
                known, learned = await self._learn(name, known), True  # others may have appended since
                continue
            headers = _LogHead(number, before, first, known.origin, touch=False).headers
            position = await self._store.add(name, message, ttl, after=known.newest, headers=headers)
            if position is not None:
                break
            known, learned = await self._learn(name, known), True
        known.add(number, before, len(message), position)
        known.expires = now() + round(ttl * 1000)
        await self._trim(name, known, first)
        self._keep(name, known)
        return number

    def _keep(self, name: str, known: _LogCache) -> None:
        self._caches[name] = known
        if len(self._caches) > KNOWN:
            self._caches.popitem(last=False)

    async def read(self, name: str, after: int) -> list[tuple[int, bytes]]:
        newest = await self._store.last(name)
        if newest is None or newest.over or (last := _read_head(newest)) is None:
            return []
        after = max(after, last.first - 1)
        if after >= last.number:
            return []
        if after == last.number - 1 and not last.touch:
            return [(last.number, newest.body)]
        found: list[tuple[int, bytes]] = []
        async for entry in self._store.entries(name, start=last.origin + 1):
            head = _read_head(entry)
            if head is not None and head.origin == last.origin and head.number > after and not head.touch:
                found.append((head.number, entry.body))
        return found

    async def touch(self, name: str, ttl: float) -> bool:
        while (newest := await self._store.last(name)) is not None and not newest.over:
            head = _read_head(newest)
            if head is None:
                return False
            headers = replace(head, touch=True).headers
            if await self._store.add(name, b"", ttl, after=newest.position, headers=headers) is not None:
                return True
        return False

    def forget(self) -> None:
        """Forget all logs: the stream is a new one."""
        self._caches.clear()

    async def drop(self, name: str) -> bool:
        self._caches.pop(name, None)
        return await self._store.drop(name)

    async def _learn(self, name: str, known: _LogCache) -> _LogCache:
        """Read the current state: another process has appended."""
        newest = await self._store.last(name)
        if newest is None:
            return _LogCache(0)
        last = None if newest.over else _read_head(newest)
        if last is None:
            return _LogCache(newest.position)
        origin = last.origin
        if known.origin != origin or known.newest == origin or known.newest > newest.position:
            known = _LogCache(origin)
        async for entry in self._store.entries(name, start=known.newest + 1):
            head = _read_head(entry)
            if head is not None and head.origin == origin:
                if not head.touch and head.number <= known.number:  # deleted meanwhile, and begun again
                    known = _LogCache(origin)
                known.note(entry, head)
        known.expires = newest.expires or 0
        return known

    async def _trim(self, name: str, known: _LogCache, first: int) -> None:
        """Drop old messages from the cache, and delete them from the stream from time to time."""
        if known.number == 1 and known.origin:
            await self._store.clear(name, known.origin)
        known.first = first
        while known.sizes and next(iter(known.sizes)) < first:
            known.sizes.popitem(last=False)
        if first - known.cleared >= SLACK and first in known.sizes:
            known.cleared = first
            await self._store.clear(name, known.sizes[first][1] - 1)
