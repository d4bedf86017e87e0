"""Entries in the memory of this process, which end with it."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from .contract import ENTRY_SIZE, LOCK_WAIT, EntryKey, Stored, TokenStoreError
from .locking import acquire


class MemoryStore:
    """A `TokenStore` in memory. Tasks, loops and threads may share it. `lock_wait`: seconds to wait for an entry's
    lock."""

    def __init__(self, *, lock_wait: float = LOCK_WAIT) -> None:
        self._entries: dict[EntryKey, Stored] = {}
        self._locks: dict[EntryKey, threading.Lock] = {}
        self._swap = threading.Lock()
        self._generation = 0
        self._lock_wait = lock_wait

    def __repr__(self) -> str:
        return f"MemoryStore({len(self._entries)} entries)"

    async def read(self, key: EntryKey) -> Stored | None:
        """Return the entry, or None."""
        return self._entries.get(key)

    async def write(self, key: EntryKey, value: bytes, after: int | None) -> bool:
        """Replace the entry if its generation is still `after`. Raises TokenStoreError for one that is too large."""
        if len(value) > ENTRY_SIZE:
            raise TokenStoreError(f"an entry of {len(value)} bytes; at most {ENTRY_SIZE} are kept")
        with self._swap:
            found = self._entries.get(key)
            if (None if found is None else found.generation) != after:
                return False
            self._generation += 1
            self._entries[key] = Stored(value, self._generation)
            return True

    async def remove(self, key: EntryKey, after: int) -> bool:
        """Remove the entry if its generation is still `after`."""
        with self._swap:
            found = self._entries.get(key)
            if found is None or found.generation != after:
                return False
            del self._entries[key]
            return True

    async def keys(self) -> Sequence[EntryKey]:
        """Return the keys of all entries."""
        return tuple(self._entries)

    @asynccontextmanager
    async def locked(
        self, key: EntryKey, *, wait: float | None = None, held: Callable[[], object] | None = None
    ) -> AsyncIterator[None]:
        """Hold the entry's lock. Raises LockHeld after `wait` seconds, by default `lock_wait`."""
        lock = self._locks.setdefault(key, threading.Lock())
        seconds = self._lock_wait if wait is None else wait
        await acquire(lambda: lock.acquire(blocking=False), seconds, "the lock of a token", held)
        try:
            yield
        finally:
            lock.release()

    async def protection(self) -> str:
        """Return how entries are protected."""
        return "in memory, until this process ends"
