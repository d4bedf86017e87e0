"""Runners on a bus: which live, which tasks each has, and which of those call it.

- A runner lives while its key does, which a beat lets live on; the time is the engine's.
- `runners` names all that may have tasks. Each has a cell with the tasks that it may have: one is added before it
  becomes the runner's, and dropped some time after it has ended. The cell "" has those that wait for a runner.
- Who changes a task so that it calls its runner adds its id to that runner's log of calls.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final

import msgspec
from msgspec import Struct

from .cells import FOREVER, Cell, SharedLogs

NAMESPACE: Final = "dragoman.task."
CALLS: Final = 1_000
"""Calls that a runner may not have read yet; what it has missed it finds when it looks through its tasks."""
HELD_UP: Final = 60.0
"""Seconds for which a lost runner is remembered that has no task: it creates some before it beats, if it goes on."""
GONE: Final = 3_600.0
"""Seconds for which the empty cell of a runner that is gone is kept: it could come back."""


class RunningTask(Struct, frozen=True, array_like=True):
    """A task that a runner may have. `since`: the Unix time at which it was added."""

    server: str
    since: float


Running = dict[str, RunningTask]


class _Here:
    """What is known here of a runner that has beaten here."""

    __slots__ = ("calling", "looked", "next", "seen")

    def __init__(self) -> None:
        self.seen = 0
        """The number of the last call that was read."""
        self.calling: set[str] = set()
        self.looked = 0.0
        """When its tasks were looked through last, and (`next`) which are next."""
        self.next = 0


class BusRunners:
    """The runners of one bus. `life`: seconds that one lives after a beat; `now`: Unix time."""

    def __init__(self, logs: SharedLogs, life: float, now: Callable[[], float]) -> None:
        self._logs, self._life, self._now = logs, life, now
        self._names = Cell(logs, f"{NAMESPACE}runners", _read_names, msgspec.json.encode)
        self._cells: dict[str, Cell[Running]] = {}
        self._registered: set[str] = set()
        self._ended: dict[str, set[str]] = {}
        """Tasks that are to be dropped from cells the next time."""
        self._here: dict[str, _Here] = {}
        self._idle: dict[str, float] = {}
        """Since when lost runners were seen to have no task."""

    def _cell(self, runner: str) -> Cell[Running]:
        cell = self._cells.get(runner)
        if cell is None:
            cell = self._cells[runner] = Cell(self._logs, f"{NAMESPACE}running.{runner}", _read_running, _write)
        return cell

    # -- one runner

    async def let_live(self, runner: str) -> None:
        """Let it live for `life` seconds from now on."""
        here = self._here.get(runner)
        alive = f"{NAMESPACE}alive.{runner}"
        if here is not None and await self._logs.touch(alive, self._life):
            return
        await self._logs.put(alive, b"", ttl=self._life)
        self._here[runner] = _Here()  # others may have taken it for lost, and have cleared up
        self._registered.discard(runner)
        await self._register(runner)

    async def _register(self, runner: str) -> None:
        if runner and runner not in self._registered:
            await self._names.change(partial(_add_name, runner))
            self._registered.add(runner)

    async def stop(self, runner: str) -> None:
        """Let it live no more."""
        await self.drop_ended()
        await self._logs.delete(f"{NAMESPACE}alive.{runner}")
        self._here.pop(runner, None)
        self._registered.discard(runner)

    # -- its tasks

    async def running(self, runner: str) -> Running:
        """Return the tasks that it may have."""
        return await self._cell(runner).read()

    async def add(self, runner: str, tasks: Mapping[str, str]) -> None:
        """Note that it may have these tasks, each with its server."""
        await self._register(runner)
        now = self._now()
        ended = self._ended.pop(runner, set()).difference(tasks)

        def edit(running: Running) -> bool:
            new = {id: RunningTask(server, now) for id, server in tasks.items() if id not in running}
            found = [id for id in ended if running.pop(id, None) is not None]
            running.update(new)
            return bool(new or found)

        await self._cell(runner).change(edit)

    async def drop(self, runner: str, ids: Iterable[str]) -> None:
        """Note that it has these no more."""
        gone = [*ids]
        await self._cell(runner).change(lambda running: bool([id for id in gone if running.pop(id, None) is not None]))

    def drop_later(self, runner: str, id: str) -> None:
        """Do that with the next change of its tasks."""
        self._ended.setdefault(runner, set()).add(id)

    async def drop_ended(self) -> None:
        """Do what `drop_later` has put off."""
        for runner in [*self._ended]:
            await self.drop(runner, self._ended.pop(runner, set()))

    # -- calls

    async def call(self, runner: str, id: str) -> None:
        """Let a runner know that this task calls it."""
        await self._logs.append(f"{NAMESPACE}calls.{runner}", id.encode(), ttl=FOREVER, messages=CALLS)

    def note_call(self, runner: str, id: str) -> None:
        """Note what is known here already."""
        if (here := self._here.get(runner)) is not None:
            here.calling.add(id)

    async def calls(self, runner: str) -> set[str]:
        """Return the tasks that have called it and were not `answered`."""
        here = self._here.setdefault(runner, _Here())
        for number, id in await self._logs.read(f"{NAMESPACE}calls.{runner}", here.seen):
            here.seen = number
            here.calling.add(id.decode("utf-8", "replace"))
        return {*here.calling}

    def answered(self, runner: str, id: str) -> None:
        """Note that a task calls no more."""
        if (here := self._here.get(runner)) is not None:
            here.calling.discard(id)

    async def due(self, runner: str, period: float, most: int) -> Running:
        """Return some of its tasks, at most so many, if none were returned for so many seconds: all in turn."""
        here, now = self._here.setdefault(runner, _Here()), self._now()
        if now < here.looked + period:
            return {}
        here.looked = now
        self._registered.discard(runner)
        await self._register(runner)
        running = [*(await self.running(runner)).items()]
        some, here.next = running[here.next : here.next + most], here.next + most
        if here.next >= len(running):
            here.next = 0
        return dict(some)

    # -- all

    async def lost(self) -> list[str]:
        """Return the runners that live no more and may have tasks."""
        names = [*await self._names.read()]
        alive = await asyncio.gather(*[self._logs.get(f"{NAMESPACE}alive.{name}") for name in names])
        lost = [name for name, found in zip(names, alive, strict=True) if found is None]
        self._idle = {name: since for name, since in self._idle.items() if name in lost}
        return lost

    async def forget(self, runner: str) -> None:
        """Forget a lost runner that has no task, if that is so for some time: it could go on where it was held up."""
        now = self._now()
        if now < self._idle.setdefault(runner, now) + HELD_UP:
            return
        await self._names.change(partial(_drop_name, runner))
        await self._logs.touch(f"{NAMESPACE}running.{runner}", GONE)
        await self._logs.delete(f"{NAMESPACE}calls.{runner}")
        self._cells.pop(runner, None)
        self._registered.discard(runner)


def _add_name(name: str, names: list[str]) -> bool:
    if name in names:
        return False
    names.append(name)
    return True


def _drop_name(name: str, names: list[str]) -> bool:
    if name not in names:
        return False
    names.remove(name)
    return True


_write = msgspec.msgpack.Encoder().encode
_decode_running = msgspec.msgpack.Decoder(Running).decode
_decode_names = msgspec.json.Decoder(list[str]).decode


def _read_running(written: bytes) -> Running:
    try:
        return _decode_running(written) if written else {}
    except msgspec.MsgspecError:
        return {}


def _read_names(written: bytes) -> list[str]:
    try:
        return _decode_names(written) if written else []
    except msgspec.MsgspecError:
        return []
