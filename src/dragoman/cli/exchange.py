"""What `--trace FILE` and `--verbose` show of the messages: JSON Lines in a file, and each message laid out on stderr.

Values under names such as "password" are masked in both, by `rpc.tracing`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
from rich.highlighter import JSONHighlighter
from rich.text import Text

from ..rpc.tracing import Event, Hook, json_lines
from .options import trace_to
from .terminal import clean, err, has_colour, lay_out


class _Line(msgspec.Struct):
    """The members of a line of the trace that are shown."""

    direction: str
    kind: str
    message: str
    answer: str | None = None
    outcome: str | None = None
    ms: float | None = None


class _Shown:
    """Whether `--verbose` was given."""

    verbose = False


def show_exchange(verbose: bool) -> None:
    """Show the messages of this process's calls from now on, or not."""
    _Shown.verbose = verbose


@contextmanager
def exchange(trace: str | None) -> Iterator[Hook | None]:
    """The `trace` of `connect` and `Client`; None where neither option was given. Raises Usage when the file of
    the trace cannot be opened."""
    with trace_to(trace) as write:
        hooks = [json_lines(write)] if write is not None else []
        if _Shown.verbose:
            hooks.append(json_lines(_show))
        yield _all(hooks) if hooks else None


def _all(hooks: list[Hook]) -> Hook:
    def hook(event: Event) -> None:
        for one in hooks:
            one(event)

    return hook if len(hooks) > 1 else hooks[0]


def _show(line: str) -> None:
    """An event on stderr: the message when it passes, then its answer with the time that it took."""
    event = msgspec.json.decode(line, type=_Line)
    out = event.direction == "out"
    if event.kind == "started" or event.outcome == "notified":
        _arrow("-->" if out else "<--", event.message, "")
    elif event.answer is not None:
        _arrow("<--" if out else "-->", event.answer, f"  {event.ms:.1f} ms" if event.ms is not None else "")
    else:
        _arrow("<--" if out else "-->", event.message if event.kind == "failed" else "", f"  {event.outcome or ''}")


def _arrow(sign: str, message: str, after: str) -> None:
    try:
        text = Text(lay_out(message.encode()))
    except msgspec.DecodeError:  # it was cut, or is not JSON
        text = Text(clean(message))
    if has_colour(err):
        JSONHighlighter().highlight(text)
    err.print(Text.assemble((f"{sign} ", "bold"), text, (after, "dim")), soft_wrap=True)
