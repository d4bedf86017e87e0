"""Writes the output of the command: results to stdout, everything else to stderr, with styles on a terminal only.

Rules: text from a peer is never interpreted as markup or as control sequences; JSON is printed as it came, laid out but
not changed; `NO_COLOR` and `TERM=dumb` are respected (rich does that), `--color` comes before them.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable, Sequence

import msgspec
from rich.console import Console
from rich.highlighter import JSONHighlighter
from rich.text import Text

from ..jsonrpc.errors import RpcError
from .exit_status import Ending, readable
from .wrapping import hanging


def _console(*, stderr: bool) -> Console:
    """The console of a stream. Rich takes whatever is none for an old console of Windows, whose styles are calls."""
    stream = sys.stderr if stderr else sys.stdout
    old = None if stream is not None and stream.isatty() else False
    return Console(stderr=stderr, highlight=False, markup=False, emoji=False, legacy_windows=old)


out: Console = _console(stderr=False)
err: Console = _console(stderr=True)

WIDE = 100
"""JSON up to this many columns stays on one line."""
LEAST = 24
"""Columns in which text is wrapped at least, however narrow a terminal is."""


def prepare() -> None:
    """Open those of the three standard streams that are closed, at /dev/null: else a socket gets their number. Replace
    characters that the terminal's encoding lacks instead of failing."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 - until the process ends
            os.set_inheritable(getattr(sys, name).fileno(), True)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            with contextlib.suppress(
                ValueError, OSError
            ):  # what is not written yet is reported when the next is written
                stream.reconfigure(errors="backslashreplace")


def colour(when: str) -> None:
    """Styles: "always", "never", or "auto", on a terminal whose environment has no NO_COLOR."""
    for console in (out, err):
        if when != "auto":
            console.no_color = when == "never"
            # rich has no public way to change this after the beginning, and the consoles are imported by name
            console._color_system = Console(color_system="standard" if when == "always" else None)._color_system


def for_people() -> None:
    """Lay results out for people, also where stdout is not a terminal."""
    out._force_terminal = True  # as `_color_system` in `colour`


def has_colour(console: Console) -> bool:
    """Whether styles are written to a console."""
    return console.color_system is not None


def clean(text: str) -> str:
    """Text from a peer, made safe to print: characters that are not printable are escaped, except line ends."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode("ascii") for c in text)


def compact(value: object) -> str:
    """A value as one line of JSON."""
    return escape_json(msgspec.json.encode(value).decode())


def escape_json(text: str) -> str:
    """JSON text with what a terminal would obey, or not show, escaped as JSON does it: the values stay the same."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in "\t\r\n" else _escaped(c) for c in text)


def count_of(number: int, thing: str) -> str:
    """So many things: `no faults`, `1 fault`, `2 faults`."""
    return f"{number or 'no'} {thing}{'' if number == 1 else 's'}"


def lay_out(raw: bytes) -> str:
    """JSON text for people: on one line if it fits, otherwise indented. Strings are escaped as JSON does it."""
    flat = msgspec.json.format(raw, indent=0)
    return escape_json((flat if len(flat) <= WIDE else msgspec.json.format(raw, indent=2)).decode())


def _escaped(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))


def show_json(raw: bytes) -> None:
    """A result on stdout."""
    text = Text(lay_out(raw))
    if has_colour(out):
        JSONHighlighter().highlight(text)
    out.print(text, soft_wrap=True)


def show(text: Text | str, style: str = "", *, indent: int = 0, hang: int = 2, console: Console = out) -> None:
    """Print a line for people, moved in by `indent` columns. On a terminal it is wrapped at words, and what follows the
    first line is moved in by `hang` columns more; elsewhere it stays one line."""
    line = text if isinstance(text, Text) else Text(clean(text), style)
    if console.is_terminal:
        line = hanging(line, max(console.width - indent, LEAST), hang)
    for part in line.split("\n", allow_blank=True):
        console.print(Text(" " * indent).append_text(part) if part.plain else part, soft_wrap=True)


def show_rows(rows: Iterable[Sequence[Text | str]], *, indent: int = 0) -> None:
    """Rows in columns on stdout. The last cell of a row is wrapped within its column on a terminal; elsewhere each row
    is one line."""
    cells = [[cell if isinstance(cell, Text) else Text(clean(cell)) for cell in row] for row in rows]
    widths = [max(cell.cell_len for cell in column) for column in zip(*cells, strict=True)]
    before_last = sum(widths[:-1]) + 2 * (len(widths) - 1)
    hang = before_last if out.width - indent - before_last >= LEAST else 4
    for *before, last in cells:
        line = Text()
        for cell, width in zip(before, widths, strict=False):
            line.append_text(cell).append(" " * (width - cell.cell_len + 2))
        show(line.append_text(last), indent=indent, hang=hang)


def say(text: str, style: str = "") -> None:
    """Print a line on stderr."""
    show(text, style, console=err)


def show_ending(ending: Ending, json: bool) -> None:
    """Report a failure: on stderr for people, with `json` as one line on stdout."""
    if json:
        print(compact(ending.as_json()), flush=True)
        return
    if ending.error is not None:
        show_error(ending.error)
    else:
        show(Text.assemble(("dragoman: ", "bold red"), clean(ending.text)), console=err)
    for advice in ending.advice:
        show(advice, "yellow", indent=2, console=err)


def show_error(error: RpcError) -> None:
    """Show an error that the peer answered: code, message, data."""
    code = str(error.name or error.code)
    show(Text.assemble(("error ", "bold red"), (clean(code), "bold"), "  ", clean(error.message)), console=err)
    if error.data is not None:
        for line in readable(error.data, error.message).splitlines():
            show(line, indent=2, console=err)
