"""The steps at a command: it starts, its first byte on stdout, what it says on stderr, and its framing.

Rules: the command is started once. What speaks with it later does so through a Unix socket of ours (`Program.offer`),
as often as one connects there; only one that ended by itself is started again, as a host of MCP would do.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import tempfile
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from time import perf_counter

from ...jsonrpc.framing import FramingName, framing
from ...jsonrpc.limits import CLIENT
from ...net.commands import cause_of, command_name
from ...net.environment import child_environment
from ...net.replies import excerpt
from ...net.sockets import in_words
from ...net.urls import printable
from ...system.processes import ProcessGroup, describe_status, ended_by_fault, ended_by_others, group_options
from ...system.programs import INTERPRETER, NOT_FOUND, PERMIT, UnsafeArgument, start_program
from ...system.unix_sockets import local_server
from ...system.words import quote_word
from ..faults import ReplyReader, diagnose_bytes, diagnose_silence, diagnose_slowness, is_whole
from ..options import AccessOptions
from ..programs import OURS, environment
from .record import LOOK, Diagnosis, Examination, ExaminationStep, FaultFound, Patience
from .sockets import ID, REQUEST, listen, wants_content_length

_KEPT = 200
"""Lines of stderr that are kept."""
_STARTS = 3
"""Starts of a command that ends by itself."""
_MISSING = re.compile(r"(?:ModuleNotFoundError|ImportError): .*?'([\w.]+)'|No module named ([\w.]+)")
_TRACE = re.compile(r"^Traceback |^goroutine \d+ \[|^\s+at \S+.*[(:]\d+|panicked at ")
_EARLY = re.compile(r"(?i)initiali[sz]e")
"""What a server says that ends because a request came before `initialize`."""


class Program:
    """A command that runs, and what it says on stderr."""

    def __init__(self, command: Sequence[str], access: AccessOptions) -> None:
        self.name: str = command_name(command)
        self.stderr: deque[str] = deque(maxlen=_KEPT)
        self.starts: int = 0
        self._command = command
        self.access: AccessOptions = access
        self._process: asyncio.subprocess.Process | None = None
        self._group: ProcessGroup | None = None
        self._reading: asyncio.Future[None] | None = None
        self._passing: asyncio.Future[None] | None = None
        self._writer: asyncio.StreamWriter | None = None
        """Who speaks with it through the socket."""

    @property
    def process(self) -> asyncio.subprocess.Process:
        """The process that runs."""
        assert self._process is not None
        return self._process

    async def start(self) -> None:
        """Start it. Raises FaultFound."""
        pipe = asyncio.subprocess.PIPE
        command, where = self._command, self.name
        try:
            self._process = await start_program(
                command,
                child_environment(environment(command) | self.access.environment(), self.access.env_inherit),
                stdin=pipe,
                stdout=pipe,
                stderr=pipe,
                **group_options(),
            )
            self._group = ProcessGroup(self._process.pid)
        except UnsafeArgument as fault:
            fix = "write the program behind the batch file in its place"
            raise FaultFound(Diagnosis("unsafe_argument", str(fault), fix, False)) from None
        except FileNotFoundError:
            if _is_there(command[0]):
                fix = f"the interpreter in the first line of {command[0]} is not there: correct it"
                raise FaultFound(Diagnosis("no_interpreter", f"{where} cannot start", fix, False)) from None
            fix = f"install {printable(command[0])}, or give its whole path; a URL begins with a scheme such as http://"
            raise FaultFound(
                Diagnosis("no_program", f"there is no program {printable(command[0])!r}", fix, False)
            ) from None
        except PermissionError:
            fix = f"{PERMIT} {quote_word(command[0])}"
            what = f"{printable(command[0])!r} may not be run"
            raise FaultFound(Diagnosis("not_executable", what, fix, False)) from None
        except (OSError, ValueError) as error:
            what = f"{where} cannot start: {in_words(error)}"
            raise FaultFound(Diagnosis("no_format", what, INTERPRETER, False)) from None
        self.starts += 1
        self._reading = asyncio.ensure_future(self._read())

    async def _read(self) -> None:
        assert self.process.stderr is not None
        held = b""
        while data := await self.process.stderr.read(65536):
            *lines, held = (held + data).split(b"\n")
            self._keep(lines)
            held = held[-65536:]
        self._keep([held])

    def _keep(self, lines: Sequence[bytes]) -> None:
        self.stderr.extend(line.decode("utf-8", "replace") for line in lines if line.strip())

    @property
    def cause(self) -> str:
        """What its stderr says about why it fails."""
        return cause_of(list(self.stderr))

    async def status(self) -> int | None:
        """Its exit status, if it ends by itself now, with all of its stderr."""
        assert self._reading is not None
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(self._reading), LOOK)
            return await asyncio.wait_for(self.process.wait(), LOOK)
        return None

    async def end(self) -> None:
        """End it and what it started."""
        if self._process is None:
            return
        if self._group is not None:
            self._group.kill()
        await self._process.wait()
        for task in (self._passing, self._reading):
            if task is not None:
                await asyncio.wait([task])

    # -- for others

    @asynccontextmanager
    async def offer(self) -> AsyncIterator[str]:
        """The URL at which the running program answers its clients, one after the other."""
        with tempfile.TemporaryDirectory(prefix="dragoman-") as folder:
            server, url = await local_server(self._connected, folder)
            self._passing = asyncio.ensure_future(self._pass_on())
            try:
                yield url
            finally:
                server.close()
                self._hang_up()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass on what one of them says, until the next connects."""
        self._hang_up()
        try:
            if self._passing is not None and self._passing.done():
                if self.starts == _STARTS:
                    return
                await self.end()
                await self.start()
                self._passing = asyncio.ensure_future(self._pass_on())
            self._writer = writer
            assert self.process.stdin is not None
            while data := await reader.read(65536):
                self.process.stdin.write(data)
                await self.process.stdin.drain()
        except (OSError, FaultFound):
            pass  # either end is gone, which the other learns by the end of its stream
        finally:
            writer.close()

    async def _pass_on(self) -> None:
        """Pass on what the program says; without a client it is dropped."""
        assert self.process.stdout is not None
        while data := await self.process.stdout.read(65536):
            if (writer := self._writer) is not None and not writer.is_closing():
                writer.write(data)
                with contextlib.suppress(OSError):
                    await writer.drain()
        self._hang_up()

    def _hang_up(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None


async def examine(program: Program, framing_name: FramingName | None, record: Examination, patience: Patience) -> None:
    """Start the command, send it one request, and look at what it does. Raises FaultFound."""
    where = program.name
    with record.step("spawn") as step:
        await program.start()
        step.said = f"process {program.process.pid}, {_passed(program)}"
    with record.step("first byte") as step:
        reply = await _request(program, framing_name, patience, step)
        if not reply.raw:
            if await _dislikes_ping(program, reply):
                step.said = "it ends at a request before initialize, so it is started again"
                return
            raise FaultFound(await _without_a_word(program, reply, framing_name, patience))
    with record.step("framing") as step:
        fault = await _faulty(program, reply, framing_name, where, patience)
        if fault is not None:
            raise FaultFound(fault)
        step.said = framing_name or "newline"
    with record.step("stderr") as step:
        step.said = f"{len(program.stderr)} lines" if program.stderr else "quiet"


def _is_there(program: str) -> bool:
    return os.path.exists(program)


def _passed(program: Program) -> str:
    """Which part of the environment it gets, in words."""
    access = program.access
    if access.env_inherit:
        return "with your environment but for DRAGOMAN_*"
    given = sorted(child_environment(access.environment(), False))
    return f"with {', '.join(printable(name, 40) for name in given)} (--env NAME passes more of your environment on)"


async def _request(
    program: Program, framing_name: FramingName | None, patience: Patience, step: ExaminationStep
) -> ReplyReader:
    """What comes on stdout for one request; once noise has come, the answer has `patience.look` seconds."""
    process = program.process
    assert process.stdin is not None
    assert process.stdout is not None
    reply = ReplyReader(framing_name, ID)
    started = perf_counter()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(patience.left) as limit:
            loop = asyncio.get_running_loop()

            def noisy() -> None:
                if not reply.calm:
                    limit.reschedule(min(limit.when() or 0.0, loop.time() + patience.look))

            await _say(program, framing_name or "newline")
            await listen(process.stdout, reply, noisy)
    step.said = f"after {1000 * (perf_counter() - started):.0f} ms" if reply.raw else "none"
    return reply


async def _say(program: Program, framing_name: FramingName) -> None:
    """Send it the request."""
    assert program.process.stdin is not None
    with contextlib.suppress(ConnectionError):
        program.process.stdin.write(framing(framing_name, CLIENT).wrap(REQUEST))
        await program.process.stdin.drain()


async def _faulty(
    program: Program, reply: ReplyReader, framing_name: FramingName | None, where: str, patience: Patience
) -> Diagnosis | None:
    """What is wrong with what came on stdout."""
    if reply.answered:
        if not (noise := reply.noise()):
            return None
        what = f"{where} prints on stdout what is not JSON-RPC: {excerpt(noise)}"
        return Diagnosis("noise", what, "print it on stderr: stdout carries messages and nothing else")
    if reply.calm and not reply.ended and not reply.echoed and (reply.messages or not is_whole(reply.raw)):
        return diagnose_silence(where, patience.total, f"on stdout came {excerpt(reply.raw)}")
    fault = diagnose_bytes(reply, "stdio", where, framing_name == "content-length")
    if reply.ended and (fault is None or fault.kind == "not_json") and (status := await program.status()):
        return _exited(program, where, status, reply)
    if fault is not None and fault.kind == "not_json":
        fix = "check that this is the command of a server; its log belongs to stderr, stdout carries messages alone"
        return Diagnosis("noise", f"{where} prints on stdout what is not JSON-RPC: {excerpt(reply.raw)}", fix)
    return fault or diagnose_silence(where, patience.total)


async def _dislikes_ping(program: Program, reply: ReplyReader) -> bool:
    """Whether it ended because it wants `initialize` as its first message."""
    if not reply.ended or await program.status() is None:
        return False
    return any(_EARLY.search(line) for line in program.stderr)


async def _without_a_word(
    program: Program, reply: ReplyReader, framing_name: FramingName | None, patience: Patience
) -> Diagnosis:
    """The fault of a command that wrote nothing to stdout."""
    where = program.name
    if reply.ended and (status := await program.status()) is not None:
        return _exited(program, where, status, reply)
    if reply.ended:
        fix = "the server must keep its stdout open until its stdin ends"
        return Diagnosis("stdout_closed", f"{where} closes its stdout and goes on running", fix, False)
    if framing_name is None and (fault := await _last_look(program, patience)) is not None:
        return fault
    said = f"on stderr: {program.cause}" if program.stderr else "nor has it written to stderr"
    return diagnose_silence(where, patience.total, said)


async def _last_look(program: Program, patience: Patience) -> Diagnosis | None:
    """Whether it was slow, or reads Content-Length headers; None if it is silent still."""
    assert program.process.stdout is not None
    lines, framed = ReplyReader(None, ID), ReplyReader("content-length", ID)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(patience.look):
            await _say(program, "content-length")
            while not (lines.answered or framed.answered) and (data := await program.process.stdout.read(65536)):
                lines.feed(data)
                framed.feed(data)
    if framed.answered:
        return wants_content_length(program.name)
    return diagnose_slowness(program.name, patience.total) if lines.answered else None


def _exited(program: Program, where: str, status: int, reply: ReplyReader) -> Diagnosis:
    """The fault of a command that ended instead of answering."""
    failed, killed = ended_by_fault(status), ended_by_others(status)
    how = describe_status(status) if failed or killed else f"ends with exit status {status}"
    cause = program.cause or (excerpt(reply.raw) if reply.raw.strip() else "")
    what = f"{where} {how} and does not answer{f': {cause}' if cause else ''}"
    for line in program.stderr:
        if (missing := _MISSING.search(line)) is not None:
            name = (missing[1] or missing[2]).partition(".")[0]
            fix = f"install {name} where the command's Python looks for it"
            return Diagnosis("missing_module", what, fix, False)
    if cause.startswith(OURS):
        return Diagnosis("own", cause.removeprefix(OURS), "correct the file or the name", False)
    if killed:
        return Diagnosis("killed", what, "find what ended it: the system's log, a limit of memory", False)
    if any(_TRACE.search(line) for line in program.stderr):
        return Diagnosis("crashed", what, "it fails while it starts: fix what the trace on its stderr says", False)
    if status in NOT_FOUND:
        return Diagnosis("no_program", what, "a command within it is not there: install it, or correct its path", False)
    if status == 0:
        return Diagnosis("ended", what, "the server must read its stdin until it ends, and answer each request", False)
    if failed:
        return Diagnosis("killed", what, "find what ended it: the system's log, a core dump", False)
    fix = f"do what it says, or run it by hand and look: {where}; it gets little of your environment (--env NAME)"
    return Diagnosis("exited", what, fix, False)
