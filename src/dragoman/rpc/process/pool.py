"""The child processes of one event loop: each runs one call at a time, and is killed when its call ends early.

Rules:

- A call takes an idle child, or starts one: a fresh interpreter, never a fork, so that it is the same on every system.
  At most `ProcessLimits.processes` exist at once, and a killed one counts until it is really gone.
- A child is used again if its call ended, with a result or an error, and left no thread behind; not after
  `calls_per_process` calls.
- A child ends with its parent, however that ends: it reads the end of its pipe. All children of a loop are killed when
  the loop shuts down.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import subprocess
import sys
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any, Final, cast

import msgspec
from msgspec import Struct

from ...channel import Identity
from ...jsonrpc.call_limit import busy
from ...jsonrpc.errors import CallRefused, InternalError, LocalError, too_large
from ...jsonrpc.limits import MIB
from ...jsonrpc.options import TIME, check_struct, rules_of, whole
from ...system.limits import cores
from ...system.processes import ProcessGroup, describe_status, group_options
from ..context import Done
from ..context_members import reach
from .frames import (
    HEADROOM,
    MARK,
    AnswerFrame,
    BegunFrame,
    CallFrame,
    ForgetFrame,
    Frame,
    FrameReader,
    FrameTooLong,
    FunctionPath,
    LogFrame,
    OutcomeFrame,
    Reducers,
    SetupFrame,
    UseFrame,
    check_size,
    pack,
    pack_error,
    pack_value,
    unpack_error,
    unpack_value,
)
from .remote_context import KeptCredential

logger: logging.Logger = logging.getLogger("dragoman.process")

_PRINTED: Final = 64 * 1024
"""Bytes that an interpreter may print before it runs our code."""
_HELD: Final = 100
"""Frames that wait for the parent, above which it reads no more from a child."""
_GONE: Final = 1.0
"""Seconds in which the end of the pipe is expected once a process has exited; a process of its own may hold it open."""
_END: Final = 5.0
"""Seconds for an idle child to exit by itself, and for killed ones to be gone when a loop shuts down."""


class ProcessLimits(Struct, frozen=True, kw_only=True):
    """The limits of functions in child processes, per event loop. Sizes in bytes, times in seconds."""

    processes: int | None = None
    """Most child processes at once; None: one for each core that this process may use. More would only share them."""
    waiting: int = 100
    """Most calls that wait for one of those; further ones are refused as busy."""
    message_size: int = 16 * MIB
    """Most bytes of a call's arguments, of its result, and of each use of its context, as pickles: they are built and
    read on the event loop."""
    calls_per_process: int = 100
    """After so many calls a child ends, so that what leaks in it does not grow for ever."""
    idle_time: float = 30.0
    """How long a child is kept that has nothing to do. A new one costs the imports of the function's module."""

    def __post_init__(self) -> None:
        check_struct(self, _RULES)


_RULES = rules_of(ProcessLimits, waiting=whole(0), idle_time=TIME)


def _without_credential(identity: Identity) -> Any:
    if identity.credential is not None:
        identity = msgspec.structs.replace(identity, credential=KeptCredential())
    return identity.__reduce__()


REDUCERS: Final[Reducers] = {Identity: _without_credential}
"""How values are sent to children that are not sent as they are."""


def command() -> list[str]:
    """Return the command that starts a child: this interpreter, with its flags and import path."""
    flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]  # as multiprocessing does
    path = [one or os.getcwd() for one in sys.path if isinstance(one, str)]
    return [
        sys.executable,
        *flags,
        "-c",
        f"import sys; sys.path[:] = {path!a}; from {__package__}.child import main; main()",
    ]


class ChildProcess(asyncio.SubprocessProtocol):
    """One child process. `ended`: is called once it is gone."""

    def __init__(self, limits: ProcessLimits, ended: Callable[[ChildProcess], None]) -> None:
        self._limits = limits
        self._ended = ended
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.SubprocessTransport
        self._frames = FrameReader(limits.message_size + HEADROOM)
        self._start: bytearray | None = bytearray()  # what came before the mark; None: the mark has come
        self._received: deque[Frame] = deque()
        self._awaited: asyncio.Future[None] | None = None
        self._over = False  # no further frame comes
        self._paused = False
        self.pid: int = 0
        """Its process id."""
        self.group: ProcessGroup | None = None
        """It and those that it has started, once it is started."""
        self.status: int | None = None
        """Its exit status, once it is gone."""
        self.gone: asyncio.Future[None] = self._loop.create_future()
        """Done once the process is gone."""
        self.calls: int = 0
        """How many calls it has begun."""
        self.has_slot: bool = True
        """Whether one of the pool's slots is freed when it is gone."""
        self.timer: asyncio.TimerHandle | None = None
        """Ends it when it has been idle for long."""

    @property
    def alive(self) -> bool:
        """Whether it can run a call, as far as is known."""
        return not self._over and not self.gone.done()

    # -- what the transport calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.SubprocessTransport", transport)  # uvloop's is of no such class
        self.pid = self._transport.get_pid()
        self.group = ProcessGroup(self.pid)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """Take bytes from the child."""
        if self._start is not None:
            self._start += data
            printed, mark, rest = self._start.partition(MARK)
            if not mark:
                if len(self._start) > _PRINTED:
                    self.kill()
                return
            self._start, data = None, bytes(rest)
            if printed:
                logger.info("process %d printed before it began: %r", self.pid, bytes(printed[:200]))
        try:
            self._received += self._frames.feed(data)
        except FrameTooLong as error:
            logger.error("process %d sends a message of %d bytes", self.pid, error.size)
            self.kill()
        except Exception:
            logger.exception("process %d sends what cannot be read", self.pid)
            self.kill()
        if len(self._received) > _HELD and not self._paused:
            self._paused = True
            self._pipe(1).pause_reading()
        self._wake()

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        """Note that the child sends no more."""
        if fd == 1:
            self._finish()

    def process_exited(self) -> None:
        """Note that the process is gone."""
        self.stop_timer()
        if self.group is not None:
            self.group.close()
        self.status = self._transport.get_returncode()
        self.gone.set_result(None)
        if self._over:
            self._transport.close()
        else:  # what it has sent may still be in the pipe
            self._loop.call_later(_GONE, self._finish)
        self._ended(self)

    def _finish(self) -> None:
        self._over = True
        if self.gone.done():
            self._transport.close()
        self._wake()

    def _wake(self) -> None:
        if self._awaited is not None and not self._awaited.done():
            self._awaited.set_result(None)

    def _pipe(self, number: int) -> Any:
        return self._transport.get_pipe_transport(number)

    async def receive(self) -> Frame | None:
        """Return the next frame; None if the child has ended."""
        while not self._received:
            if self._over:
                return None
            if self._paused:
                self._paused = False
                self._pipe(1).resume_reading()
            self._awaited = self._loop.create_future()
            await self._awaited
        return self._received.popleft()

    # -- running a call

    def send(self, frame: Frame) -> None:
        """Send a frame; without effect once the child has ended."""
        text = pack(frame)
        if not self._over and not self._pipe(0).is_closing():
            self._pipe(0).write(text)

    async def run(self, call: CallFrame, contexts: Sequence[Any]) -> OutcomeFrame | None:
        """Run a call; None if it had not begun before the child ended. `contexts`: those that it may use. Raises
        InternalError if the child ends by itself."""
        uses: dict[int, asyncio.Task[None]] = {}
        begun = False
        self.send(call)
        try:
            while (frame := await self.receive()) is not None:
                if isinstance(frame, BegunFrame):
                    begun = True
                    self.calls += 1
                elif isinstance(frame, OutcomeFrame):
                    return frame
                elif isinstance(frame, LogFrame):
                    _log(frame)
                elif isinstance(frame, ForgetFrame):
                    if frame.number in uses:
                        uses[frame.number].cancel()
                elif isinstance(frame, UseFrame):
                    self._use(frame, contexts, uses)
        finally:
            for use in tuple(uses.values()):
                use.cancel()
        if not begun and self.calls:
            return None
        raise InternalError("Internal error: the process that ran this call ended before its answer")

    def _use(self, frame: UseFrame, contexts: Sequence[Any], uses: dict[int, asyncio.Task[None]]) -> None:
        """Carry out a use of a context: at once, or in a task where it has to wait."""
        try:
            found, is_method = reach(contexts[frame.context], frame.path)
            if is_method:
                arguments, named = unpack_value(frame.given or b"", f"an argument of ctx.{frame.path}")
                found = found(*arguments, **named)
                if hasattr(found, "__await__") and not isinstance(found, Done):
                    use = uses[frame.number] = asyncio.create_task(self._await(frame, found))
                    use.add_done_callback(lambda done: uses.pop(frame.number, None))
                    return
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # what ends the call, such as a question to retry with, ends it in the child
            self._fail(frame, error)
        else:
            self._answer(frame, found)

    async def _await(self, frame: UseFrame, work: Any) -> None:
        try:
            found = await work
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # as above
            self._fail(frame, error)
            if isinstance(error, asyncio.CancelledError):
                raise
        else:
            self._answer(frame, found)

    def _answer(self, frame: UseFrame, value: Any) -> None:
        try:
            text = pack_value(value, f"ctx.{frame.path}", REDUCERS)
            check_size(text, self._limits.message_size, f"ctx.{frame.path}")
        except LocalError as error:
            self._fail(frame, error)
        else:
            self.send(AnswerFrame(frame.number, text))

    def _fail(self, frame: UseFrame, error: BaseException) -> None:
        self.send(AnswerFrame(frame.number, pack_error(error), failed=True))

    # -- its end

    def how(self) -> str:
        """Return how it ended, for the log."""
        return "closed its pipe" if self.status is None else describe_status(self.status)

    def kill(self) -> None:
        """Kill it now, and those that it has started and that are still in its group."""
        self.stop_timer()
        self._over = True
        if not self.gone.done():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                if self.group is None:
                    self._transport.kill()
                else:
                    self.group.kill()
        if not self._pipe(0).is_closing():
            self._pipe(0).abort()
        self._pipe(1).close()
        self._wake()

    def end(self) -> None:
        """Let it end by itself, while it is idle; kill it if it does not soon."""
        self._over = True
        self._pipe(0).close()
        self.timer = self._loop.call_later(_END, self.kill)

    def stop_timer(self) -> None:
        """Stop the timer of its idle time."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


def _log(frame: LogFrame) -> None:
    record = logging.makeLogRecord(frame.record)
    found = logging.getLogger(record.name)
    if found.isEnabledFor(record.levelno):
        found.handle(record)


class ProcessPool:
    """The children of the running loop with the same limits."""

    def __init__(self, limits: ProcessLimits) -> None:
        self.limits = limits
        self.size: int = limits.processes or cores()
        """Most processes at once."""
        self._free = self.size
        self._queue: deque[asyncio.Future[None]] = deque()
        self._idle: list[ChildProcess] = []
        self.children: set[ChildProcess] = set()
        """Those that exist."""
        self._none_left: asyncio.Future[None] | None = None
        self._life: AsyncGenerator[None, None] | None = None

    async def run(self, target: FunctionPath, given: bytes, contexts: Sequence[Any]) -> OutcomeFrame:
        """Run a function in a child; see `CallFrame` for `given`. Raises CallRefused if too many calls wait, and for
        arguments above the limit; InternalError if the child ends by itself."""
        if len(given) > self.limits.message_size:
            raise CallRefused(too_large("ProcessLimits.message_size", self.limits.message_size, len(given)))
        await self._begin()
        while True:
            await self._take_slot()
            child = await self._child()
            outcome = None
            try:
                outcome = await child.run(CallFrame(target, given), contexts)
            except InternalError:
                await asyncio.wait([child.gone], timeout=_GONE)  # its exit status may come after the end of its pipe
                logger.error("%s(): its process %d %s", target.name, child.pid, child.how())
                raise
            finally:
                if outcome is None or not outcome.reusable or not child.alive:
                    child.kill()
                elif child.calls < self.limits.calls_per_process:
                    self._keep(child)
                else:
                    child.end()
            if outcome is not None:
                return outcome

    # -- slots

    async def _take_slot(self) -> None:
        if self._free:
            self._free -= 1
            return
        if len(self._queue) >= self.limits.waiting:
            raise CallRefused(busy("processes", self.size))
        turn = asyncio.get_running_loop().create_future()
        self._queue.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # its turn had come
                self._leave_slot()
            elif turn in self._queue:
                self._queue.remove(turn)
            raise

    def _leave_slot(self) -> None:
        """Give a slot to the call that waits longest, or back."""
        while self._queue:
            turn = self._queue.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1

    # -- children

    async def _child(self) -> ChildProcess:
        """Return an idle child, or start one. It has the slot of the call."""
        while self._idle:
            child = self._idle.pop()
            if child.alive:
                child.stop_timer()
                child.has_slot = True
                return child
            child.kill()
        try:
            return await self._start()
        except (OSError, NotImplementedError) as error:
            why = getattr(error, "strerror", None) or error or type(error).__name__
            raise LocalError(f"a child process cannot be started: {sys.executable}: {why}") from error

    async def _start(self) -> ChildProcess:
        child = ChildProcess(self.limits, self._gone)
        try:
            await asyncio.get_running_loop().subprocess_exec(
                lambda: child, *command(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=None, **group_options()
            )
        except BaseException:
            if child.has_slot and not child.gone.done():  # else it has left it itself
                child.has_slot = False
                self._leave_slot()
            raise
        self.children.add(child)
        child.send(SetupFrame(sys.argv, logging.getLogger().level, self.limits.message_size))
        return child

    def _keep(self, child: ChildProcess) -> None:
        child.timer = asyncio.get_running_loop().call_later(self.limits.idle_time, self._end, child)
        child.has_slot = False
        self._idle.append(child)
        self._leave_slot()

    def _end(self, child: ChildProcess) -> None:
        """End a child that has been idle for long. It has a slot until it is gone."""
        if not self._free:  # a call is about to take it
            child.timer = asyncio.get_running_loop().call_later(self.limits.idle_time, self._end, child)
            return
        self._idle.remove(child)
        self._free -= 1
        child.has_slot = True
        child.end()

    def _gone(self, child: ChildProcess) -> None:
        self.children.discard(child)
        if child in self._idle:
            self._idle.remove(child)
        if child.has_slot:
            self._leave_slot()
        if not self.children and self._none_left is not None and not self._none_left.done():
            self._none_left.set_result(None)

    # -- the end of the loop

    async def _begin(self) -> None:
        """Begin with the first call: from then on the loop closes this pool when it shuts down."""
        if self._life is None:
            self._life = self._live()
            await anext(self._life)

    async def _live(self) -> AsyncGenerator[None, None]:
        try:
            yield
        finally:  # `loop.shutdown_asyncgens`, which `asyncio.run` calls
            self._life = None
            await self.close()

    async def close(self) -> None:
        """Kill all children, and wait until they are gone."""
        for child in tuple(self.children):
            child.kill()
        if self.children:
            self._none_left = asyncio.get_running_loop().create_future()
            await asyncio.wait([self._none_left], timeout=_END)


_pools: Final[dict[asyncio.AbstractEventLoop, dict[ProcessLimits, ProcessPool]]] = {}


def pool_of(limits: ProcessLimits) -> ProcessPool:
    """Return the pool of the running loop with these limits, or make it. Those of closed loops are forgotten."""
    loop = asyncio.get_running_loop()
    if loop not in _pools:
        for other in [one for one in _pools if one.is_closed()]:
            _pools.pop(other, None)
    pools = _pools.setdefault(loop, {})
    return pools.get(limits) or pools.setdefault(limits, ProcessPool(limits))


def result_of(outcome: OutcomeFrame, what: str) -> Any:
    """Return the result of a call, or raise its error."""
    if outcome.failed:
        raise unpack_error(outcome.value)
    return unpack_value(outcome.value, f"{what}: its result")
