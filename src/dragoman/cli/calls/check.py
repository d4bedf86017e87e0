"""`dragoman check`: lists every fault of the messages in a file."""

from __future__ import annotations

import contextlib
import errno
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, BinaryIO

import msgspec
from cyclopts import App, Parameter
from rich.text import Text

from ...jsonrpc.check import Problem, problems
from ...system.files import reason_of
from ..exit_status import ANSWERED_WITH_ERROR, FINE, Usage, suggest_name
from ..options import OUTPUT, Output
from ..terminal import clean, compact, count_of, err, show

LARGEST = 16 * 1024 * 1024
"""Bytes of a message that is laid out over several lines."""

app: App = App(
    name="check",
    help_epilogue="""\
Examples:

  dragoman check messages.jsonl
  tail -f traffic.jsonl | dragoman check -
  dragoman check messages.jsonl --json       an object for each fault

One message per line: a request, a response or a batch; blank lines are skipped.
A file that is one message laid out over several lines is taken as that.
An error is something that the specification forbids, a warning something that
it discourages. Exit status 1 if there is any error.""",
)


@app.default
def check(file: Annotated[str, Parameter(allow_leading_hyphen=True)], /, *, output: Output = OUTPUT) -> int:
    """Find every fault of the JSON-RPC messages in a file.

    Parameters
    ----------
    file
        A file of JSON Lines, or - for stdin.
    """
    messages = errors = warnings = 0
    with _open(file) as lines:
        for number, line in _messages(lines):
            messages += 1
            for problem in problems(line.rstrip(b"\r\n")):
                errors += problem.severity == "error"
                warnings += problem.severity == "warning"
                _show(file, number, problem, output.json)
    if not output.json:
        _sum_up(messages, errors, warnings)
    return ANSWERED_WITH_ERROR if errors else FINE


def _messages(lines: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """The messages and the numbers of their lines: one a line, or one JSON value that is laid out over the file."""
    kept: list[bytes] = []
    size = begins = 0
    for number, line in enumerate(lines, 1):
        if begins:  # the first message is not complete in its line
            kept.append(line)
            size += len(line)
            if size > LARGEST or (not kept[0].lstrip().startswith(b"[") and line.startswith(b"{") and _is_json(line)):
                break
        elif not line.strip():
            continue
        elif line.lstrip()[:1] in (b"{", b"[") and not line.rstrip().endswith((b"}", b"]")):
            kept, size, begins = [line], len(line), number
        else:
            yield number, line
            yield from ((at, more) for at, more in enumerate(lines, number + 1) if more.strip())
            return
    whole = b"".join(kept)
    if size <= LARGEST and _is_json(whole):
        yield begins, whole
        return
    yield from ((begins + at, one) for at, one in enumerate(kept) if one.strip())
    yield from ((at, more) for at, more in enumerate(lines, begins + len(kept)) if more.strip())


def _is_json(text: bytes) -> bool:
    try:
        msgspec.json.decode(text, type=msgspec.Raw)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True


@contextlib.contextmanager
def _open(file: str) -> Iterator[BinaryIO]:
    if file == "-":
        yield sys.stdin.buffer
        return
    try:
        lines = open(file, "rb")  # noqa: SIM115 - closed below
    except OSError as fault:
        there = [path.name for path in Path().glob("*") if path.is_file()] if fault.errno == errno.ENOENT else []
        hint = suggest_name(file, there, "")
        raise Usage(f"{file}: {reason_of(fault)}{hint and f'; {hint}'}") from None
    with lines:
        yield lines


def _show(file: str, line: int, problem: Problem, json: bool) -> None:
    if json:
        print(compact({"file": file, "line": line} | msgspec.structs.asdict(problem)), flush=True)
        return
    style = "red" if problem.severity == "error" else "yellow"
    where = (f"{clean(file)}:{line}", "bold")
    path = (clean(problem.path), "cyan")
    show(Text.assemble(where, "  ", (problem.severity, style), "  ", path, "  ", clean(problem.message)))


def _sum_up(messages: int, errors: int, warnings: int) -> None:
    style = "red" if errors else "yellow" if warnings else "green"
    counted = [count_of(messages, "message"), count_of(errors, "error"), count_of(warnings, "warning")]
    err.print(Text(", ".join(counted), style=style))
