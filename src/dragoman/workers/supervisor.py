"""Many workers on one machine: a supervisor that holds the sockets and the bus, and starts the processes that serve.

A worker is any program that calls `serve` with the same URLs (see `worker`); `dragoman serve --workers N` is one.
Rules:

- A worker is a new interpreter; it inherits the listening sockets and no other state.
- A worker that ends by itself is replaced, and one line says how it ended. If workers end again and again, the pauses
  grow. A worker that cannot be started counts as one that ended; the other workers go on.
- A reload starts the new worker, waits until it listens, and then has the old one drain, so that there are never fewer
  workers. If the new one does not listen, the old ones stay.
- When no worker serves and `ATTEMPTS` starts in a row have failed, the supervisor gives up.
- SIGTERM and SIGINT drain; a second one kills. SIGHUP reloads. If the supervisor dies, the workers drain.
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
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import partial
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct

from ..bus.hub import BusHub, open_hub
from ..net.accept import ABSENT, SharedSockets
from ..net.activation import activation
from ..net.reconnect import backoff
from ..net.service_manager import managed, notify, notify_reloading
from ..net.sockets import in_words
from ..secret import RUN_SECRET, SECRET
from ..system.signals import HANGUP, TERMINATE, off_signal, on_signal
from .process import WorkerProcess
from .reports import Reports, collect_answers, collect_reports
from .worker import GRACE, VARIABLE, WorkerSpec, check_count

PAUSES = (0.1, 10.0)
"""The first and the longest pause before a worker is started again, in seconds."""
STEADY = 10.0
"""Seconds of service after which the end of a worker is not counted as a repetition of the last end."""
ATTEMPTS = 5
"""Failed starts in a row after which the supervisor gives up, if no worker serves."""
_UNTIL_CHANGED = 1e6
"""The pause, in seconds, of a slot that waits for a change of the program."""
_NO_WORKER = ABSENT.to_bytes(8, sys.byteorder, signed=True)
ENDED_KEPT = 1000
"""Last reports of ended workers that are kept until they are collected."""
START_TIME = 60.0
"""Seconds that a worker may take until it listens."""
USAGE = 2
"""The exit status of a program that was started with wrong arguments: it would fail again."""


Beside: TypeAlias = Callable[["Supervisor"], AbstractAsyncContextManager[object]]
"""What runs beside the workers, from before the first starts until the last has ended."""
Say: TypeAlias = Callable[[str, bool], object]
"""Reports one line to the user; the second argument is True for a failure."""


async def run_workers(
    command: Sequence[str],
    urls: Sequence[str],
    *,
    workers: int,
    bus: str | None = None,
    mode: int = 0o600,
    env: Mapping[str, str] | None = None,
    changes: AsyncIterator[str] | None = None,
    may_reload: Callable[[], bool] | None = None,
    say: Say | None = None,
    beside: Beside | None = None,
) -> int:
    """Run `workers` processes of `command` that serve at `urls`, until SIGTERM or SIGINT, or until it is cancelled.

    Returns the exit status: 0 after a drain, 128 and the signal's number after a second signal, 2 when the command
    was wrong from the start, 1 when it gave up.

    `bus`: the URL of the bus that they share; None: the supervisor holds one. `mode`: the permissions of Unix sockets.
    `env`: variables to add to the workers' environment. `changes`: each item is a reason to reload; if it is given, a
    program that cannot start waits for the next one. `may_reload`: called at SIGHUP; False leaves the workers as they
    are. `beside`: entered with the supervisor, which asks workers for reports and answers (`worker.ControlPipe`), as
    for metrics of them all.

    Raises LocalError for a URL that cannot be listened on, or not by several processes.
    """
    check_count(workers)
    sockets = await SharedSockets.open(urls, mode)
    hub, folder = None, None
    try:
        if bus is None:
            folder = tempfile.mkdtemp(prefix="dragoman-")
            hub = await open_hub(os.path.join(folder, "bus"))
            bus = hub.url
        environment = {**os.environ, **(env or {}), "DRAGOMAN_BUS": bus}
        if not environment.get(SECRET):  # one worker opens what another has sealed
            environment[RUN_SECRET] = secrets.token_urlsafe(32)
        supervisor = Supervisor(command, sockets, environment, say or _to_stderr, may_reload)
        async with nullcontext() if beside is None else beside(supervisor):
            activation().warn()
            return await supervisor.run(workers, changes)
    finally:
        sockets.close()
        await _close_shared(hub, folder)


async def _close_shared(hub: BusHub | None, folder: str | None) -> None:
    if hub is not None:
        await hub.close()
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)


def _to_stderr(text: str, grave: bool) -> None:
    print(text, file=sys.stderr, flush=True)  # noqa: T201  (unless the caller says otherwise)


# -- all of them ----------------------------------------------------------------------------------


class WorkerFailure(Struct, frozen=True):
    """A worker that never listened. `pid`: None if no process was started."""

    words: str
    pid: int | None
    status: int


class _Slot:
    """A slot, in which one worker runs at a time, and the pauses between its workers."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.worker: WorkerProcess | None = None
        self.lock = asyncio.Lock()
        self.pause = 0.0
        self._pauses = backoff(*PAUSES)

    def pause_longer(self) -> None:
        """Pause before the next worker starts: one has failed."""
        self.pause = next(self._pauses)

    def pause_no_more(self) -> None:
        """Let the next worker start at once: one serves."""
        self.pause = 0.0
        self._pauses = backoff(*PAUSES)


class Supervisor:
    """Keeps a worker running in every slot."""

    def __init__(
        self,
        command: Sequence[str],
        sockets: SharedSockets,
        env: Mapping[str, str],
        say: Say,
        may_reload: Callable[[], bool] | None = None,
    ) -> None:
        self.group: str = secrets.token_hex(8)
        """The name of its workers, by which what they share knows them from those of other supervisors."""
        self._command = list(command)
        self._sockets = sockets
        self._env = env
        self._say = say
        self._may_reload = may_reload
        self._slots: list[_Slot] = []
        self._load_board = tempfile.TemporaryFile()  # noqa: SIM115  (as long as we live)
        self._living: set[WorkerProcess] = set()
        self._last_reports: deque[bytes] = deque(maxlen=ENDED_KEPT)
        self._tasks: set[asyncio.Task[None]] = set()
        self._stop = asyncio.Event()
        self._hurry = asyncio.Event()
        self._reload_due = asyncio.Event()
        self._generation = 0
        self._failures = 0
        self._starts = 0
        self._faults = 0
        self._announced = False
        self._waits_for_change = False
        self._status = 0

    async def run(self, workers: int, changes: AsyncIterator[str] | None) -> int:
        """Serve until a signal, or until it gives up."""
        self._signals()
        self._waits_for_change = changes is not None
        self._slots = [_Slot(number) for number in range(1, workers + 1)]
        self._load_board.write(_NO_WORKER * workers)
        self._load_board.flush()
        self._begin(self._start_all())
        self._begin(self._reloads())
        if changes is not None:
            self._begin(self._watch(changes))
        try:
            await self._stop.wait()
        finally:  # it also drains when it is cancelled
            self._stop.set()
            await self._end()
            self._ignore_signals()
            self._load_board.close()
        return self._status

    async def _manage(self) -> None:
        """Notify the service manager that the first worker serves, and then of the end."""
        async with managed():
            await self._stop.wait()

    async def reports(self) -> Reports:
        """Return every worker's report; of one that does not answer in time, the one before."""
        living = await collect_reports(self._living)
        ended = list(self._last_reports)
        self._last_reports.clear()
        return Reports(living, ended, self._starts, self._faults)

    async def query(self, message: bytes, pid: int | None = None) -> dict[int, bytes]:
        """Return the answers of all workers to a JSON-RPC message of one line, or of the one with that process id, by
        process id; without those that do not answer in time."""
        return await collect_answers([one for one in self._living if pid in (None, one.pid)], message)

    def reload(self) -> None:
        """Replace every worker, one after the other."""
        self._reload_due.set()
        self._end_pauses()

    def _end_pauses(self) -> None:
        """End every pause now, also one that is about to begin."""
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

    async def _start_all(self) -> None:
        """Start the first worker alone, so that an error of the program is reported once and not by each worker."""
        await self._fill(self._slots[0])
        for slot in self._slots[1:]:
            self._begin(self._fill(slot))

    async def _fill(self, slot: _Slot) -> None:
        """Start workers for a slot until one listens."""
        hurry = self._hurry
        while slot.worker is None and not self._stop.is_set():
            if slot.pause:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(slot.pause):
                        await hurry.wait()
            async with slot.lock:
                if slot.worker is not None or self._stop.is_set():
                    return
                hurry = self._hurry  # a reload that is requested from now on may come too late for this worker
                worker = await self._start_and_wait(slot.number)
                if isinstance(worker, WorkerProcess):
                    self._adopt(slot, worker)
                    return
                slot.pause_longer()
                if not self._stop.is_set():
                    self._failed(slot, worker)

    async def _start_and_wait(self, number: int) -> WorkerProcess | WorkerFailure:
        """Start a process and wait until it listens or has failed."""
        try:
            worker = await self._start(number)
        except OSError as why:  # no process, descriptor or memory is available now, or the program is gone
            wrong = isinstance(why, FileNotFoundError | PermissionError | NotADirectoryError)
            return WorkerFailure(
                f"worker {number} could not be started: {self._command[0]}: {in_words(why)}",
                None,
                USAGE if wrong else 1,
            )
        if await worker.ready:
            return worker
        await asyncio.wait([worker.over])
        words = f"worker {number} (pid {worker.pid}) {worker.how()} before it listened"
        return WorkerFailure(words, worker.pid, worker.over.result())

    def _adopt(self, slot: _Slot, worker: WorkerProcess) -> None:
        """Put a worker that listens into its slot."""
        slot.worker = worker
        self._failures = 0
        if not self._announced:
            self._announced = True
            self._begin(self._manage())
        self._say(f"worker {worker.number} (pid {worker.pid}) is ready", False)
        worker.over.add_done_callback(lambda over: self._lost(slot, worker))

    def _lost(self, slot: _Slot, worker: WorkerProcess) -> None:
        """Begin another worker: one that served has ended."""
        if self._stop.is_set() or slot.worker is not worker:  # reloaded: another worker serves in the slot
            return
        slot.worker = None
        self._faults += 1
        os.lseek(self._load_board.fileno(), (slot.number - 1) * len(_NO_WORKER), os.SEEK_SET)
        os.write(self._load_board.fileno(), _NO_WORKER)
        lived = asyncio.get_running_loop().time() - worker.since
        if lived >= STEADY:
            slot.pause_no_more()
        else:
            slot.pause_longer()
        self._say(f"worker {worker.number} (pid {worker.pid}) {worker.how()}; {_when(slot.pause)}", True)
        self._begin(self._fill(slot))

    def _failed(self, slot: _Slot, failure: WorkerFailure) -> None:
        """Give up, wait for a change, or begin another worker: one ended before it listened."""
        self._failures += 1
        self._faults += 1
        if self._waits_for_change:
            slot.pause = _UNTIL_CHANGED
            self._say(f"{failure.words}; waiting for a change", True)
        elif not self._announced and failure.status == USAGE:
            if failure.pid is None:  # no process has reported it
                self._say(failure.words, True)
            self._give_up(USAGE)
        elif self._failures >= ATTEMPTS and not self._has_worker():
            self._say(f"{failure.words}; giving up after {self._failures} attempts", True)
            self._give_up(1)
        else:
            self._say(f"{failure.words}; {_when(slot.pause)}", True)

    def _has_worker(self) -> bool:
        return any(slot.worker is not None for slot in self._slots)

    def _give_up(self, status: int) -> None:
        self._status = status
        self._stop.set()
        self._end_pauses()

    async def _start(self, number: int) -> WorkerProcess:
        """Start a process. Raises OSError."""
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        sockets = self._sockets.numbers()
        spec = WorkerSpec(
            number=number,
            pipe=theirs.fileno(),
            supervisor=os.getpid(),
            load_board=self._load_board.fileno(),
            announce=number == 1 and not self._announced,
            group=self.group,
            sockets=sockets,
        )
        descriptors = [
            theirs.fileno(),
            self._load_board.fileno(),
            *(one for several in sockets.values() for one in several),
        ]
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.DEVNULL,
                env={**self._env, VARIABLE: msgspec.json.encode(spec).decode()},
                pass_fds=descriptors,
                start_new_session=True,  # Ctrl-C reaches it through the supervisor
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        worker = WorkerProcess(number, self._generation, process, ours)
        self._starts += 1
        self._living.add(worker)
        worker.over.add_done_callback(lambda over: self._forget(worker))
        late = asyncio.get_running_loop().call_later(START_TIME, self._late, worker)
        worker.ready.add_done_callback(lambda ready: late.cancel())
        if self._stop.is_set():  # the drain was requested before it could listen
            worker.kill()
        return worker

    def _forget(self, worker: WorkerProcess) -> None:
        self._living.discard(worker)
        if worker.report:
            self._last_reports.append(worker.report)

    def _late(self, worker: WorkerProcess) -> None:
        self._say(f"worker {worker.number} (pid {worker.pid}) did not listen within {START_TIME:g} s", True)
        worker.kill()

    # -- reloading

    async def _watch(self, changes: AsyncIterator[str]) -> None:
        try:
            async for reason in changes:
                self._say(reason, True)
                self.reload()
        except Exception as fault:  # the iterator is the caller's; the workers go on without it
            self._say(f"watching for changes has failed: {type(fault).__name__}: {fault}", True)

    async def _reloads(self) -> None:
        """Run reloads one after another; several requests made meanwhile are one."""
        while True:
            await self._reload_due.wait()
            self._reload_due.clear()
            self._generation += 1
            notified = self._announced and notify_reloading()
            for slot in self._slots:
                if not await self._replace(slot):
                    break
            if notified:
                notify("READY=1")

    async def _replace(self, slot: _Slot) -> bool:
        """Replace the worker of a slot: the new one listens before the old one drains. False if it never listens."""
        async with slot.lock:
            old = slot.worker
            if old is None or old.generation == self._generation:  # `_fill` starts a new worker anyway
                slot.pause_no_more()
                return True
            worker = await self._start_and_wait(slot.number)
            if isinstance(worker, WorkerFailure):
                self._faults += 1
                if not self._stop.is_set():
                    self._say(f"the new {worker.words}; the old ones go on", True)
                return False
            slot.pause_no_more()
            self._adopt(slot, worker)
        self._begin(self._retire(old))
        return True

    async def _retire(self, worker: WorkerProcess) -> None:
        worker.drain()
        await asyncio.wait([worker.over], timeout=worker.seconds + GRACE)
        worker.kill()

    # -- ending

    def _signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, TERMINATE):
            on_signal(loop, number, partial(self._end_requested, number))
        if HANGUP is not None:
            on_signal(loop, HANGUP, self._reload_requested)

    def _ignore_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, TERMINATE, HANGUP):
            if number is not None:
                off_signal(loop, number)

    def _reload_requested(self) -> None:
        if self._may_reload is not None and not self._may_reload():
            return
        self._say("reloading: one worker after the other", False)
        self.reload()

    def _end_requested(self, number: int) -> None:
        if self._stop.is_set():
            self._status = 128 + number
            for worker in self._living:
                worker.kill()
            return
        self._say("draining: calls in flight may end, new ones are refused (a second signal ends at once)", True)
        self._stop.set()
        self._end_pauses()

    async def _end(self) -> None:
        """Accept no new connection, let calls finish, and kill the workers that do not end in time."""
        self._sockets.close()
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


def _when(pause: float) -> str:
    return f"another starts in {pause:.2g} s" if pause else "another starts"
