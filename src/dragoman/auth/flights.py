"""Requests that strangers can cause: shared by all who want the same, bounded in number, within fair shares."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from contextvars import Context
from typing import Any, Generic, TypeVar

from ..allowance import NoRoom, Owner, Slots
from .errors import IssuerAway

K = TypeVar("K", bound=Hashable)


class Flights(Generic[K]):
    """The running requests, by key. `most`: how many at once; `full`: the error's text for a caller for whom there is
    no room."""

    def __init__(self, most: int, full: str) -> None:
        self._most, self._full = most, full
        self._tasks: dict[K, asyncio.Task[Any]] = {}
        self._slots: Slots[K] = Slots(most)

    def __len__(self) -> int:
        return len(self._tasks)

    async def join(self, key: K, owner: Owner, run: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        """Return what `run` returns, or raise what it raises; it is called if none runs for this key yet, and goes on
        if a caller is cancelled. `owner`: to whose share it counts. Raises IssuerAway where there is no room for this
        owner, and where the request had to give way to another owner's."""
        task = self._tasks.get(key)
        if task is None or task.done() or task.get_loop() is not asyncio.get_running_loop():
            self._make_room(owner)
            # in a context of its own: it belongs to no single request
            task = self._tasks[key] = asyncio.get_running_loop().create_task(run(), context=Context())
            self._slots.take(owner, key)
            task.add_done_callback(lambda done: self._end(key, done))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():
                raise IssuerAway(self._full) from None
            raise

    def _make_room(self, owner: Owner) -> None:
        if len(self._slots) < self._most:
            return
        try:
            gone = self._slots.yielding(owner)
        except NoRoom:
            raise IssuerAway(self._full) from None
        if self._slots.owner(gone) == owner:
            # its own requests do not give way: an owner that asks for too much would never get an answer
            raise IssuerAway(self._full)
        self._slots.free(gone)
        self._tasks[gone].cancel()

    def _end(self, key: K, task: asyncio.Task[Any]) -> None:
        if self._tasks.get(key) is task:
            del self._tasks[key]
            self._slots.free(key)
        if not task.cancelled():
            task.exception()  # a failure that nobody waited for was logged where it happened
