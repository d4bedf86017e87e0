"""The steps at a command: it starts, its first byte on stdout, what it says on stderr, and its framing."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shlex
import signal
from collections import deque
from collections.abc import Sequence
from time import perf_counter

from ...jsonrpc.framing import FramingName, framing
from ...jsonrpc.limits import CLIENT
from ...net.replies import excerpt
from ...net.sockets import in_words
from ...net.urls import printable
from ..options import Access
from ..programs import OURS
from .naming import Heard, of_bytes, silent
from .record import Fault, Faulty, Record, Step
from .sockets import ID, LOOK, REQUEST, by_content_length, listen

START = 10.0
"""Seconds that a command has for its first answer: it may have to install itself; `--timeout` makes it less."""
_LAST_WORDS = 20
"""Lines of stderr that are kept."""
_MISSING = re.compile(r"(?:ModuleNotFoundError|ImportError): .*?'([\w.]+)'")


class _Program:
    """A command that runs, and what it says on stderr."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.stderr: deque[str] = deque(maxlen=_LAST_WORDS)
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

    async def status(self) -> int | None:
        """Its exit status, if it ends by itself now, with all of its stderr."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(self._reading), LOOK)
            return await asyncio.wait_for(self.process.wait(), LOOK)
        return None

    async def end(self) -> None:
        """End it and what it started."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        await self.process.wait()
        await self._reading


async def examine(command: Sequence[str], access: Access, framing_name: FramingName | None, record: Record) -> None:
    """Start the command, send it one request, and look at what it does."""
    place = printable(shlex.join(command), 80)
    seconds = min(access.seconds() or START, START)
    with record.step("spawn") as step:
        program = await _spawned(command, place)
        step.said = f"process {program.process.pid}"
    try:
        with record.step("first byte") as step:
            heard = await _asked(program, framing_name, seconds, step)
            if not heard.raw:
                raise Faulty(await _without_a_word(program, heard, command, seconds, framing_name, place))
        with record.step("framing") as step:
            fault = await _faulty(program, heard, framing_name, place)
            if fault is not None:
                raise Faulty(fault)
            step.said = framing_name or "newline"
        with record.step("stderr") as step:
            step.said = f"{len(program.stderr)} lines" if program.stderr else "quiet"
    finally:
        await program.end()


async def _spawned(command: Sequence[str], place: str) -> _Program:
    pipe = asyncio.subprocess.PIPE
    try:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True
        )
    except FileNotFoundError:
        if _is_there(command[0]):
            mend = f"the interpreter in the first line of {command[0]} is not there: correct it"
            raise Faulty(Fault("no_interpreter", f"{place} cannot start", mend, False)) from None
        mend = f"install {printable(command[0])}, or give its whole path; a URL begins with a scheme such as http://"
        raise Faulty(Fault("no_program", f"there is no program {printable(command[0])!r}", mend, False)) from None
    except PermissionError:
        mend = f"make it executable: chmod +x {shlex.quote(command[0])}"
        what = f"{printable(command[0])!r} may not be run"
        raise Faulty(Fault("not_executable", what, mend, False)) from None
    except (OSError, ValueError) as error:
        mend = "begin it with a line such as #!/usr/bin/env python3, or name the interpreter: 'python FILE'"
        raise Faulty(Fault("no_format", f"{place} cannot start: {in_words(error)}", mend, False)) from None
    return _Program(process)


def _is_there(program: str) -> bool:
    return os.path.exists(program)


async def _asked(program: _Program, framing_name: FramingName | None, seconds: float, step: Step) -> Heard:
    """What comes on stdout for one request; once something has come, the answer has `LOOK` seconds."""
    process = program.process
    assert process.stdin is not None
    assert process.stdout is not None
    heard = Heard(framing_name, ID)
    started = perf_counter()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds) as limit:
            with contextlib.suppress(ConnectionError):
                process.stdin.write(framing(framing_name or "newline", CLIENT).wrap(REQUEST))
                await process.stdin.drain()
            loop = asyncio.get_running_loop()
            await listen(process.stdout, heard, lambda: limit.reschedule(loop.time() + LOOK))
    step.said = f"after {1000 * (perf_counter() - started):.0f} ms" if heard.raw else "none"
    return heard


async def _faulty(program: _Program, heard: Heard, framing_name: FramingName | None, place: str) -> Fault | None:
    """What is wrong with what came on stdout."""
    if heard.answered:
        if not (noise := heard.noise()):
            return None
        what = f"{place} prints on stdout what is not JSON-RPC: {excerpt(noise)}"
        return Fault("noise", what, "print it on stderr: stdout carries messages and nothing else")
    fault = of_bytes(heard, "stdio", place, framing_name == "content-length")
    if heard.ended and (fault is None or fault.kind == "not_json") and (status := await program.status()):
        return _exited(program, place, status)
    if fault is not None and fault.kind == "not_json":
        mend = "check that this is the command of a server; its log belongs to stderr, stdout carries messages alone"
        return Fault("noise", f"{place} prints on stdout what is not JSON-RPC: {excerpt(heard.raw)}", mend)
    return fault or silent(place)


async def _without_a_word(
    program: _Program,
    heard: Heard,
    command: Sequence[str],
    seconds: float,
    framing_name: FramingName | None,
    place: str,
) -> Fault:
    """The fault of a command that wrote nothing to stdout."""
    if heard.ended and (status := await program.status()) is not None:
        return _exited(program, place, status)
    if framing_name is None:
        other = await _spawned(command, place)
        try:
            if (await _asked(other, "content-length", min(seconds, 2 * LOOK), Step(""))).answered:
                return by_content_length(place)
        finally:
            await other.end()
    if heard.ended:
        mend = "the server must keep its stdout open until its stdin ends"
        return Fault("stdout_closed", f"{place} closes its stdout and goes on running", mend, False)
    found = silent(place)
    if program.stderr:
        return Fault("silent", f"{found.what}; on stderr: {printable(program.stderr[-1])}", found.mend, False)
    return found


def _exited(program: _Program, place: str, status: int) -> Fault:
    """The fault of a command that ended instead of answering."""
    last = printable(program.stderr[-1].strip()) if program.stderr else ""
    how = f"was ended by {signal.Signals(-status).name}" if status < 0 else f"ends with exit status {status}"
    what = f"{place} {how} and does not answer{f': {last}' if last else ''}"
    for line in program.stderr:
        if (missing := _MISSING.search(line)) is not None:
            mend = f"install {missing[1].partition('.')[0]} where the command's Python looks for it"
            return Fault("missing_module", what, mend, False)
    if last.startswith(OURS):
        return Fault("own", last.removeprefix(OURS), "correct the file or the name", False)
    if any(line.startswith("Traceback ") for line in program.stderr):
        return Fault("crashed", what, "it fails while it starts: mend what the traceback on its stderr says", False)
    if status in (126, 127):
        return Fault("no_program", what, "a command within it is not there: install it, or correct its path", False)
    if status == 0:
        return Fault("ended", what, "the server must read its stdin until it ends, and answer each request", False)
    if status < 0:
        return Fault("killed", what, "find what ended it: the system's log, a limit of memory", False)
    return Fault("exited", what, f"run it by hand and look: {place}", False)
