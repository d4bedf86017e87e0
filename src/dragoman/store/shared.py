"""Documents in the store of the bus, for workers and replicas that share it.

A bus has no transactions, so a document is changed under a lock: a key that one process at a time can make. It expires
by itself, so a process that dies with it blocks a caller for `HELD` seconds at most.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from typing import Any, Protocol

from .contract import Change, StoreLost

HELD = 5.0
"""Seconds after which a lock ends by itself. A change takes some milliseconds, and is given up after half
of this time."""
PATIENCE = 10.0
"""Seconds to wait for the lock."""
_PAUSES = (0.002, 0.05)


class Values(Protocol):
    """The part of a `bus.Store` that is used."""

    async def get(self, key: str) -> bytes | None: ...
    async def put(self, key: str, value: bytes, *, ttl: float | None = None) -> None: ...
    async def put_new(self, key: str, value: bytes, *, ttl: float | None = None) -> bool: ...
    async def delete(self, key: str) -> bool: ...


class SharedStore:
    """An `Engine` in the store of a bus, whose errors (`BusLost`) are raised as StoreLost."""

    def __init__(self, values: Values, clock: Callable[[], float] = time.time) -> None:
        self._values = values
        self._clock = clock
        self._locks: dict[str, tuple[asyncio.Lock, int]] = {}

    async def read(self, owner: str) -> bytes | None:
        try:
            return await self._values.get(_key(owner))
        except ConnectionError as error:
            raise StoreLost(str(error)) from error

    async def change(self, owner: str, edit: Change) -> Any:
        lock, users = self._locks.get(owner) or (asyncio.Lock(), 0)
        self._locks[owner] = (lock, users + 1)  # within this process calls wait for each other without asking the bus
        try:
            async with lock:
                return await self._change_locked(owner, edit)
        except ConnectionError as error:
            raise error if isinstance(error, StoreLost) else StoreLost(str(error)) from error
        finally:
            lock, users = self._locks.pop(owner)
            if users > 1:
                self._locks[owner] = (lock, users - 1)

    async def _change_locked(self, owner: str, edit: Change) -> Any:
        values, key = self._values, _key(owner)
        mark = os.urandom(8).hex().encode()
        await self._take(f"{key}.lock", mark)
        try:
            async with asyncio.timeout(HELD / 2):  # a slower process might write over what came after it
                made = edit(await values.get(key))
                if not made.changed:
                    return made.result
                if made.document is None:
                    await values.delete(key)
                else:
                    ttl = None if made.until is None else max(0.001, made.until - self._clock())
                    await values.put(key, made.document, ttl=ttl)
        except TimeoutError as error:
            raise StoreLost("the store of the bus is too slow for a change") from error
        finally:
            if await values.get(f"{key}.lock") == mark:
                await values.delete(f"{key}.lock")
        return made.result

    async def _take(self, lock: str, mark: bytes) -> None:
        pause, longest = _PAUSES
        end = asyncio.get_running_loop().time() + PATIENCE
        while not await self._values.put_new(lock, mark, ttl=HELD):
            if asyncio.get_running_loop().time() > end:
                raise StoreLost("another process changes what is stored for this caller, and does not end")
            await asyncio.sleep(pause)
            pause = min(longest, pause * 2)

    async def close(self) -> None:
        """Do nothing: the bus belongs to `serve`."""


def _key(owner: str) -> str:
    return f"dragoman.state.{owner}"
