"""Writes the output of the command: results to stdout, everything else to stderr, with styles on a terminal only.

Rules: text from a peer is never interpreted as markup or as control sequences; JSON is printed as it came, laid out but
not changed; `NO_COLOR` and `TERM=dumb` are respected (rich does that).
"""

from __future__ import annotations

import contextlib
import sys

import msgspec
from rich.console import Console
from rich.highlighter import JSONHighlighter
from rich.text import Text

from ..jsonrpc.errors import RpcError
from .ends import Ending, readable

out = Console(highlight=False, markup=False, emoji=False)
err = Console(stderr=True, highlight=False, markup=False, emoji=False)

WIDE = 100
"""JSON up to this many columns stays on one line."""


def prepare() -> None:
    """Replace characters that the terminal's encoding lacks instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            with contextlib.suppress(ValueError):
                stream.reconfigure(errors="backslashreplace")


def clean(text: str) -> str:
    """Text from a peer, made safe to print: characters that are not printable are escaped, except line ends."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode("ascii") for c in text)


def compact(value: object) -> str:
    """A value as one line of JSON."""
    return msgspec.json.encode(value).decode()


def many(number: int, thing: str) -> str:
    """So many things: `no faults`, `1 fault`, `2 faults`."""
    return f"{number or 'no'} {thing}{'' if number == 1 else 's'}"


def laid_out(raw: bytes) -> str:
    """JSON text for people: on one line if it fits, otherwise indented. Strings are escaped as JSON does it."""
    flat = msgspec.json.format(raw, indent=0)
    text = (flat if len(flat) <= WIDE else msgspec.json.format(raw, indent=2)).decode()
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else _escaped(c) for c in text)


def _escaped(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))


def show_json(raw: bytes) -> None:
    """A result on stdout."""
    text = Text(laid_out(raw))
    if out.is_terminal:
        JSONHighlighter().highlight(text)
    out.print(text, soft_wrap=True)


def say(text: str, style: str = "") -> None:
    """Print a line on stderr."""
    err.print(Text(clean(text), style=style), soft_wrap=True)


def show_ending(ending: Ending, json: bool) -> None:
    """Report a failure: on stderr for people, with `json` as one line on stdout."""
    if json:
        print(compact(ending.as_json()), flush=True)
        return
    if ending.error is not None:
        show_error(ending.error)
        return
    err.print(Text.assemble(("dragoman: ", "bold red"), clean(ending.text)), soft_wrap=True)


def show_error(error: RpcError) -> None:
    """Show an error that the peer answered: code, message, data."""
    code = str(error.name or error.code)
    err.print(Text.assemble(("error ", "bold red"), (clean(code), "bold"), "  ", clean(error.message)), soft_wrap=True)
    if error.data is not msgspec.UNSET:
        for line in clean(readable(error.data)).split("\n"):
            err.print(Text("  " + line), soft_wrap=True)
