"""Keys of a terminal, one by one, without waiting for the end of a line."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from ...system.terminal import typed_keys

ARROWS: Final = {b"\x1b[A": "up", b"\x1b[B": "down", b"\x1bOA": "up", b"\x1bOB": "down"}


@contextmanager
def keys() -> Iterator[asyncio.Queue[str]]:
    """A queue of the keys that are pressed: "up", "down", or a character; empty where standard input is not a terminal.
    Ctrl-C stays a signal. The terminal is as it was at the end."""
    pressed: asyncio.Queue[str] = asyncio.Queue()
    if not sys.stdin.isatty():
        yield pressed
        return

    def take(given: bytes) -> None:
        if not given:  # the terminal is gone
            pressed.put_nowait("q")
        for key in parse_keys(given):
            pressed.put_nowait(key)

    with typed_keys(take):
        yield pressed


def parse_keys(given: bytes) -> list[str]:
    """The keys that these bytes are; other sequences of control characters are none."""
    found, at = [], 0
    while at < len(given):
        arrow = ARROWS.get(given[at : at + 3])
        if arrow is not None:
            found.append(arrow)
            at += 3
        elif given[at] == 0x1B:
            break
        else:
            found.append(chr(given[at]).lower())
            at += 1
    return found
