"""Values in the store of a bus that several processes change, none of whose changes is lost.

A cell is a log whose newest message is its value: a message is appended as the number after the one that was read, or
not at all. Changes that wait at the same time are written together.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Final, Generic, Protocol, TypeAlias, TypeVar

from ..store.contract import StoreLost

T = TypeVar("T")

FOREVER: Final = 10 * 365 * 86_400.0
"""Seconds that a value lives that is never to expire: a log of a bus has a ttl."""
TRIES: Final = 100
"""How often a change is begun again because another process came first."""
PAUSE: Final = 0.02
"""The longest pause in seconds before it is, from the third time on."""


class SharedLogs(Protocol):
    """The part of a `bus.Store` that is used."""

    async def get(self, key: str) -> bytes | None: ...
    async def put(self, key: str, value: bytes, *, ttl: float | None = None) -> None: ...
    async def delete(self, key: str) -> bool: ...
    async def touch(self, key: str, ttl: float) -> bool: ...
    async def append(
        self,
        log: str,
        message: bytes,
        *,
        ttl: float,
        messages: int = 1_000,
        size: int = 1_048_576,
        number: int | None = None,
    ) -> int: ...
    async def read(self, log: str, after: int = 0) -> list[tuple[int, bytes]]: ...


CellEdit: TypeAlias = Callable[[T], bool]
"""Changes a value in place and returns True, or leaves it and returns False, or raises. It may be called again, with a
newer value, also with one that it has changed before."""


class Cell(Generic[T]):
    """A value, from one event loop. `read`: of its bytes, b"" where there are none yet; `write`: the reverse."""

    def __init__(self, logs: SharedLogs, key: str, read: Callable[[bytes], T], write: Callable[[T], bytes]) -> None:
        self.key: str = key
        self._logs = logs
        self._read, self._write = read, write
        self._known: tuple[int, T] | None = None
        """The newest number and value that are known, from which a change begins without reading."""
        self._waiting: list[_Change[T]] = []
        self._lock = asyncio.Lock()

    async def read(self) -> T:
        """Return the value as it is now; it is not to be changed."""
        return (await self._load(0))[1]

    async def change(self, edit: CellEdit[T]) -> None:
        """Change the value in one step. Raises what `edit` raises, and StoreLost."""
        mine = _Change(edit)
        self._waiting.append(mine)
        try:
            async with self._lock:
                if not mine.done:
                    await self._change_all(mine)
        finally:
            if mine in self._waiting:
                self._waiting.remove(mine)
        if mine.error is not None:
            raise mine.error

    async def _change_all(self, mine: _Change[T]) -> None:
        """Do all changes that wait."""
        taken, self._waiting = self._waiting, []
        try:
            await self._change(taken)
        except Exception as error:
            for one in taken:
                one.error = error
        except BaseException:  # this call was cancelled, and the next one does what the others wait for
            self._waiting[:0] = [one for one in taken if one is not mine]
            raise
        for one in taken:
            one.done = True

    async def _change(self, taken: list[_Change[T]]) -> None:
        known, self._known = self._known, None
        fresh = known is None
        number, value = known or await self._load(0)
        for turn in range(TRIES):
            changed = [one.apply(value) for one in taken]
            if not fresh and not all(changed):  # it may be otherwise by what others have written meanwhile
                number, value = await self._load(0)
                fresh = True
                continue
            if any(changed):
                due = await self._logs.append(self.key, self._write(value), ttl=FOREVER, messages=1, number=number + 1)
                if due != number + 1:
                    if turn > 1:
                        await asyncio.sleep(random.uniform(0, PAUSE))
                    number, value = await self._load(due - 1)
                    fresh = True
                    continue
                number += 1
            self._known = number, value
            return
        raise StoreLost(f"{self.key} is changed by others all the time")

    async def _load(self, least: int) -> tuple[int, T]:
        """Read the newest number, at least this one, and the value. A value that the bus does not let us read counts as
        missing, and has a number."""
        found = await self._logs.read(self.key)
        number, value = found[-1] if found else (0, b"")
        return max(number, least), self._read(value)


class _Change(Generic[T]):
    """A change that waits, and what came of it."""

    __slots__ = ("done", "edit", "error")

    def __init__(self, edit: CellEdit[T]) -> None:
        self.edit = edit
        self.done = False
        self.error: Exception | None = None

    def apply(self, value: T) -> bool:
        """Return whether it changed the value."""
        self.error = None
        try:
            return self.edit(value)
        except Exception as error:
            self.error = error
            return False
