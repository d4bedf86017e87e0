"""`dragoman check`: lists every fault of the messages in a file."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Annotated, BinaryIO

import msgspec
from cyclopts import App, Parameter
from rich.text import Text

from ..jsonrpc.check import Problem, problems
from .ends import ANSWERED_WITH_ERROR, FINE, Usage
from .options import OUTPUT, Output
from .terminal import clean, compact, err, many, out

app = App(
    name="check",
    help_epilogue="""\
Examples:

  dragoman check messages.jsonl
  tail -f traffic.jsonl | dragoman check -
  dragoman check messages.jsonl --json       an object for each fault

One message per line: a request, a response or a batch; blank lines are skipped.
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
    with _opened(file) as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            messages += 1
            for problem in problems(line.rstrip(b"\r\n")):
                errors += problem.severity == "error"
                warnings += problem.severity == "warning"
                _show(file, number, problem, output.json)
    if not output.json:
        _sum_up(messages, errors, warnings)
    return ANSWERED_WITH_ERROR if errors else FINE


@contextlib.contextmanager
def _opened(file: str) -> Iterator[BinaryIO]:
    if file == "-":
        yield sys.stdin.buffer
        return
    try:
        lines = open(file, "rb")  # noqa: SIM115 - closed below
    except OSError as fault:
        raise Usage(f"{file}: {fault.strerror}") from None
    with lines:
        yield lines


def _show(file: str, line: int, problem: Problem, json: bool) -> None:
    if json:
        print(compact({"file": file, "line": line} | msgspec.structs.asdict(problem)), flush=True)
        return
    style = "red" if problem.severity == "error" else "yellow"
    out.print(
        Text.assemble(
            (f"{clean(file)}:{line}", "bold"),
            "  ",
            (problem.severity, style),
            "  ",
            (clean(problem.path), "cyan"),
            "  ",
            clean(problem.message),
        ),
        soft_wrap=True,
    )


def _sum_up(messages: int, errors: int, warnings: int) -> None:
    style = "red" if errors else "yellow" if warnings else "green"
    counted = [many(messages, "message"), many(errors, "error"), many(warnings, "warning")]
    err.print(Text(", ".join(counted), style=style))
