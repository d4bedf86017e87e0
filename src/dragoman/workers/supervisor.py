"""Many workers on one machine: a supervisor that holds the sockets and the bus, and starts the processes that serve.

A worker is any program that calls `serve` with the same URLs (see `worker`); `dragoman serve --workers N` is one.
Rules:

- A worker is a fresh interpreter; it inherits the listening sockets, never a half-copied state.
- A worker that ends unasked is replaced, with one line that says how it ended. Pauses grow while ends follow each
  other. One that cannot even be started is one that ended: the others are not harmed by it.
- A reload starts the new worker, waits until it listens, and lets the old one drain then: never are fewer serving. A
  new one that does not come to listen leaves the old ones in place.
- When no worker serves and `ATTEMPTS` starts in a row have failed, the supervisor gives up.
- SIGTERM and SIGINT drain; a second one kills. SIGHUP reloads. The supervisor's own death drains the workers.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct

from ..bus.hub import Hub, hold
from ..jsonrpc.errors import LocalError
from ..net.accept import ABSENT, SharedSockets
from ..net.sockets import in_words
from .worker import DRAIN, GRACE, READY, VARIABLE, WorkerSpec

FIRST_PAUSE = 0.1
LONGEST_PAUSE = 10.0
STEADY = 10.0
"""Seconds of service after which a worker's end is news, and no repetition of the last one."""
ATTEMPTS = 5
_UNTIL_CHANGED = 1e6
_NOBODY = ABSENT.to_bytes(8, sys.byteorder, signed=True)
DRAIN_TIME = 30.0
"""Seconds for the drain of a worker that has not said how long its own may last."""
START_TIME = 60.0
"""Seconds for a worker to come to listen."""
USAGE = 2
"""The exit status of a program that was started wrongly: trying again would not help."""

Say: TypeAlias = Callable[[str, bool], object]
"""Tells people one line; True where something went wrong."""


async def run_workers(
    command: Sequence[str],
    urls: Sequence[str],
    *,
    workers: int,
    bus: str | None = None,
    mode: int = 0o600,
    env: Mapping[str, str] | None = None,
    changes: AsyncIterator[str] | None = None,
    say: Say | None = None,
) -> int:
    """Run so many processes of `command` that serve at `urls`, until SIGTERM or SIGINT, or until it is cancelled.

    Returns the exit status: 0 after a drain, 128 and the signal's number after a second signal, 2 when the command
    was wrong from the start, 1 when it gave up.

    `bus`: the URL of the bus that they share; None: one that is held here. `mode`: the permissions of Unix sockets.
    `env`: more of the workers' environment. `changes`: each item is a reason to reload; with it, a program that cannot
    start waits for the next one.

    LocalError for a URL that cannot be listened on, or not by several processes.
    """
    if workers < 1:
        raise LocalError(f"{workers} workers cannot serve: at least 1")
    doors = await SharedSockets.open(urls, mode)
    hub, folder = None, None
    try:
        if bus is None:
            folder = tempfile.mkdtemp(prefix="dragoman-")
            hub = await hold(os.path.join(folder, "bus"))
            bus = hub.url
        told = {**os.environ, **(env or {}), "DRAGOMAN_BUS": bus}
        told.setdefault("DRAGOMAN_SECRET", secrets.token_urlsafe(32))  # what one seals, another opens
        supervisor = Supervisor(command, doors, told, say or _to_stderr)
        return await supervisor.run(workers, changes)
    finally:
        doors.close()
        await _leave(hub, folder)


async def _leave(hub: Hub | None, folder: str | None) -> None:
    if hub is not None:
        await hub.close()
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)


def _to_stderr(text: str, grave: bool) -> None:
    print(text, file=sys.stderr, flush=True)  # noqa: T201  (unless the caller says otherwise)


# -- one worker -----------------------------------------------------------------------------------


class Worker:
    """One process. `ready` is whether it came to listen, `over` its exit status."""

    def __init__(self, number: int, generation: int, process: asyncio.subprocess.Process, line: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        self.number, self.generation = number, generation
        self.process = process
        self.pid = process.pid
        self.since = loop.time()
        self.ready: asyncio.Future[bool] = loop.create_future()
        self.over: asyncio.Task[int] = loop.create_task(process.wait())
        self.seconds = DRAIN_TIME
        self._line = line
        loop.add_reader(line, self._heard)
        self.over.add_done_callback(self._ended)

    def _heard(self) -> None:
        try:
            said = self._line.recv(64)
        except OSError:
            said = b""
        if said.startswith(READY) and not self.ready.done():
            self.seconds = float(said.split()[1])
            self.since = asyncio.get_running_loop().time()
            self.ready.set_result(True)
        elif not said:
            asyncio.get_running_loop().remove_reader(self._line)

    def _ended(self, over: asyncio.Task[int]) -> None:
        asyncio.get_running_loop().remove_reader(self._line)
        self._line.close()
        if not self.ready.done():
            self.ready.set_result(False)

    def drain(self) -> None:
        """Ask it to end. One that does not listen yet cannot hear."""
        if self.over.done():
            return
        if not self.ready.done():
            self._signal(signal.SIGTERM)
            return
        with contextlib.suppress(OSError):
            self._line.send(DRAIN)

    def kill(self) -> None:
        """End it at once."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        if not self.over.done():
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(number)

    def how(self) -> str:
        """How it ended, in words."""
        status = self.over.result()
        if status >= 0:
            return f"ended with status {status}"
        try:
            return f"was killed by {signal.Signals(-status).name}"
        except ValueError:
            return f"was killed by signal {-status}"


# -- all of them ----------------------------------------------------------------------------------


class Failure(Struct, frozen=True):
    """A worker that never listened. `pid`: None where there was no process."""

    words: str
    pid: int | None
    status: int


class _Place:
    """Where one worker at a time serves."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.worker: Worker | None = None
        self.lock = asyncio.Lock()
        self.pause = 0.0


class Supervisor:
    """Keeps every place filled."""

    def __init__(self, command: Sequence[str], doors: SharedSockets, env: Mapping[str, str], say: Say) -> None:
        self._command = list(command)
        self._doors = doors
        self._env = env
        self._say = say
        self._places: list[_Place] = []
        self._crowd = tempfile.TemporaryFile()  # noqa: SIM115  (as long as we live)
        self._living: set[Worker] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._stop = asyncio.Event()
        self._hurry = asyncio.Event()
        self._wanted = asyncio.Event()
        self._generation = 0
        self._failures = 0
        self._announced = False
        self._waits_for_change = False
        self._status = 0

    async def run(self, workers: int, changes: AsyncIterator[str] | None) -> int:
        """Serve until a signal, or until it gives up."""
        self._signals()
        self._waits_for_change = changes is not None
        self._places = [_Place(number) for number in range(1, workers + 1)]
        self._crowd.write(_NOBODY * workers)
        self._crowd.flush()
        self._begin(self._first())
        self._begin(self._reloads())
        if changes is not None:
            self._begin(self._watch(changes))
        try:
            await self._stop.wait()
        finally:  # cancelled, it drains too
            self._stop.set()
            await self._end()
            self._deaf()
            self._crowd.close()
        return self._status

    def reload(self) -> None:
        """Replace every worker, one after the other."""
        self._wanted.set()
        self._now()

    def _now(self) -> None:
        """What pauses, or was about to, goes on."""
        hurry, self._hurry = self._hurry, asyncio.Event()
        hurry.set()

    # -- keeping

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (fault := task.exception()) is not None:
            self._say(f"the supervisor failed: {fault!r}", True)
            self._give_up(1)

    async def _first(self) -> None:
        """The first worker alone: what is wrong with the program is said once, not by each of them."""
        await self._fill(self._places[0])
        for place in self._places[1:]:
            self._begin(self._fill(place))

    async def _fill(self, place: _Place) -> None:
        """Start workers for a place until one listens there."""
        hurry = self._hurry
        while place.worker is None and not self._stop.is_set():
            if place.pause:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(place.pause):
                        await hurry.wait()
            async with place.lock:
                if place.worker is not None or self._stop.is_set():
                    return
                hurry = self._hurry  # what is wished from here on may be too late for the one that starts now
                worker = await self._come(place.number)
                if isinstance(worker, Worker):
                    self._serves(place, worker)
                    return
                place.pause = _longer(place.pause)
                if not self._stop.is_set():
                    self._failed(place, worker)

    async def _come(self, number: int) -> Worker | Failure:
        """Start a process and wait until it listens, or until it is clear that it will not."""
        try:
            worker = await self._start(number)
        except OSError as why:  # no process, descriptor or memory to be had now, or the program is gone
            wrong = isinstance(why, FileNotFoundError | PermissionError | NotADirectoryError)
            return Failure(
                f"worker {number} could not be started: {self._command[0]}: {in_words(why)}",
                None,
                USAGE if wrong else 1,
            )
        if await worker.ready:
            return worker
        await asyncio.wait([worker.over])
        words = f"worker {number} (pid {worker.pid}) {worker.how()} before it listened"
        return Failure(words, worker.pid, worker.over.result())

    def _serves(self, place: _Place, worker: Worker) -> None:
        place.worker = worker
        self._failures = 0
        self._announced = True
        self._say(f"worker {worker.number} (pid {worker.pid}) is ready", False)
        worker.over.add_done_callback(lambda over: self._lost(place, worker))

    def _lost(self, place: _Place, worker: Worker) -> None:
        """A worker that served is over."""
        if self._stop.is_set() or place.worker is not worker:  # reloaded: another serves there
            return
        place.worker = None
        os.pwrite(self._crowd.fileno(), _NOBODY, (place.number - 1) * len(_NOBODY))
        lived = asyncio.get_running_loop().time() - worker.since
        place.pause = 0.0 if lived >= STEADY else _longer(place.pause)
        self._say(f"worker {worker.number} (pid {worker.pid}) {worker.how()}; {_when(place.pause)}", True)
        self._begin(self._fill(place))

    def _failed(self, place: _Place, failure: Failure) -> None:
        """A worker ended before it listened."""
        self._failures += 1
        if self._waits_for_change:
            place.pause = _UNTIL_CHANGED
            self._say(f"{failure.words}; waiting for a change", True)
        elif not self._announced and failure.status == USAGE:
            if failure.pid is None:  # no process was there to say it
                self._say(failure.words, True)
            self._give_up(USAGE)
        elif self._failures >= ATTEMPTS and not self._any():
            self._say(f"{failure.words}; giving up after {self._failures} attempts", True)
            self._give_up(1)
        else:
            self._say(f"{failure.words}; {_when(place.pause)}", True)

    def _any(self) -> bool:
        return any(place.worker is not None for place in self._places)

    def _give_up(self, status: int) -> None:
        self._status = status
        self._stop.set()
        self._now()

    async def _start(self, number: int) -> Worker:
        """Start a process. OSError where that cannot be done."""
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        sockets = self._doors.numbers()
        job = WorkerSpec(
            number=number,
            line=theirs.fileno(),
            supervisor=os.getpid(),
            crowd=self._crowd.fileno(),
            announce=number == 1 and not self._announced,
            sockets=sockets,
        )
        handed = [theirs.fileno(), self._crowd.fileno(), *(one for several in sockets.values() for one in several)]
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.DEVNULL,
                env={**self._env, VARIABLE: msgspec.json.encode(job).decode()},
                pass_fds=handed,
                start_new_session=True,  # Ctrl-C reaches it through us
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        worker = Worker(number, self._generation, process, ours)
        self._living.add(worker)
        worker.over.add_done_callback(lambda over: self._living.discard(worker))
        late = asyncio.get_running_loop().call_later(START_TIME, self._late, worker)
        worker.ready.add_done_callback(lambda ready: late.cancel())
        if self._stop.is_set():  # it was too late to be told
            worker.kill()
        return worker

    def _late(self, worker: Worker) -> None:
        self._say(f"worker {worker.number} (pid {worker.pid}) did not listen within {START_TIME:g} s", True)
        worker.kill()

    # -- reloading

    async def _watch(self, changes: AsyncIterator[str]) -> None:
        try:
            async for reason in changes:
                self._say(reason, True)
                self.reload()
        except Exception as fault:  # the caller's own; workers that serve need it not
            self._say(f"changes are watched no more: {type(fault).__name__}: {fault}", True)

    async def _reloads(self) -> None:
        """One reload after the other; several wishes at once are one."""
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            self._generation += 1
            for place in self._places:
                if not await self._replace(place):
                    break

    async def _replace(self, place: _Place) -> bool:
        """The new worker of a place listens before the old one drains. False when it never comes to that."""
        async with place.lock:
            old = place.worker
            if old is None or old.generation == self._generation:  # the one that fills it starts anew anyway
                place.pause = 0.0
                return True
            worker = await self._come(place.number)
            if isinstance(worker, Failure):
                if not self._stop.is_set():
                    self._say(f"the new {worker.words}; the old ones go on", True)
                return False
            place.pause = 0.0
            self._serves(place, worker)
        self._begin(self._retire(old))
        return True

    async def _retire(self, worker: Worker) -> None:
        worker.drain()
        await asyncio.wait([worker.over], timeout=worker.seconds + GRACE)
        worker.kill()

    # -- ending

    def _signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._told_to_end, number)
        loop.add_signal_handler(signal.SIGHUP, self._told_to_reload)

    def _deaf(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.remove_signal_handler(number)

    def _told_to_reload(self) -> None:
        self._say("reloading: one worker after the other", False)
        self.reload()

    def _told_to_end(self, number: int) -> None:
        if self._stop.is_set():
            self._status = 128 + number
            for worker in self._living:
                worker.kill()
            return
        self._say("draining: calls in flight may end, new ones are refused (once more ends at once)", True)
        self._stop.set()
        self._now()

    async def _end(self) -> None:
        """No new connection is accepted; calls may finish; what does not is ended."""
        self._doors.close()
        for worker in tuple(self._living):
            worker.drain()
        starting = [task for task in self._tasks if not task.done()]
        if self._living:
            seconds = max(worker.seconds for worker in self._living) + GRACE
            await asyncio.wait([worker.over for worker in self._living], timeout=seconds)
        for task in starting:
            task.cancel()
        if starting:
            await asyncio.wait(starting)
        for worker in tuple(self._living):
            self._say(f"worker {worker.number} (pid {worker.pid}) did not end in time and is killed", True)
            worker.kill()
        if self._living:
            await asyncio.wait([worker.over for worker in self._living])


def _longer(pause: float) -> float:
    return min(pause * 2 or FIRST_PAUSE, LONGEST_PAUSE)


def _when(pause: float) -> str:
    return f"another starts in {pause:g} s" if pause else "another starts"
