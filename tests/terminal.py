"""A terminal, and pictures of it: what a person sees of a session, with its colours, as SVG.

A session is a `.console` file of docs/snippets. It is run with a terminal at the ends of its commands, and the picture
is made of what they have written. Nothing in the SVG is loaded from elsewhere.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from xml.etree import ElementTree

import pyte
from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.style import Style
from rich.terminal_theme import SVG_EXPORT_THEME
from rich.text import Text

from tests.ports import free_port
from tests.snippets import ADDRESS, LINES, SNIPPETS, anywhere, environment, folder, replaced, steps, without_samples

FONTS = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', 'Noto Sans Mono CJK SC', monospace"
FORMAT = re.sub(r"<!-- Generated.*?-->\s*|@font-face \{\{.*?\}\}\s*", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL).replace(
    "Fira Code, monospace", FONTS
)
NAMED = {"brown": "yellow", "default": None}
"""Colours of pyte that have another name in rich."""


class Terminal:
    """A terminal of so many columns and rows, in which commands run one after another."""

    def __init__(self, columns: int, rows: int, work: Path) -> None:
        self.columns, self.rows, self.work = columns, rows, work
        self.ports: dict[str, str] = {}
        """The real port of each placeholder."""
        self._screen = pyte.Screen(columns, rows)
        self._stream = pyte.ByteStream(self._screen)
        self._processes: list[subprocess.Popen[bytes]] = []

    def write(self, text: str) -> None:
        """Show a text."""
        self._stream.feed(text.replace("\n", "\r\n").encode())

    def prompt(self, command: str) -> None:
        """Show what a person types."""
        self.write(f"\x1b[32m$\x1b[0m \x1b[1m{command}\x1b[0m\n")

    def run(self, command: str, until: str | None = None, times: int = 1) -> None:
        """Run a command of the shell until it ends; one that goes on, until it has shown `until` so many times."""
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", self.rows, self.columns, 0, 0))
        for port in [one for one in ADDRESS.findall(command) if one not in self.ports and not until]:
            self.ports[port] = str(free_port())  # a port without a server refuses
        real = anywhere(command, self.ports) if until else replaced(command, self.ports)
        own = {"TERM": "xterm-256color", "COLUMNS": str(self.columns), "LINES": str(self.rows)}
        process = subprocess.Popen(
            ["bash", "-o", "pipefail", "-c", f"exec {real}" if until else real],
            cwd=self.work,
            env=environment() | own,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        self._processes.append(process)
        seen = b""
        for data in _written(ours, until, times):
            seen += data
            if until is None or "serve" not in command:
                self._feed(data)
        if until and "serve" in command:
            served = ADDRESS.findall(command)  # it prints them in this order, and then what to try
            self.ports.update(zip(served, ADDRESS.findall(seen.decode())[: len(served)], strict=True))
            self._feed(seen)

    def _feed(self, data: bytes) -> None:
        back = {real: shown for shown, real in self.ports.items()}
        self._stream.feed(replaced(data.decode(), back).encode())

    def close(self) -> None:
        """End what still runs."""
        for process in self._processes:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            try:
                process.wait(LINES)
            except subprocess.TimeoutExpired:
                process.kill()

    def lines(self) -> list[Text]:
        """What is shown, without empty lines at the end."""
        found = [self._line(row) for row in range(self.rows)]
        while found and not found[-1].plain.strip():
            found.pop()
        return found

    def _line(self, row: int) -> Text:
        line = Text()
        chars = (self._screen.buffer[row][column] for column in range(self.columns))
        for style, run in groupby(chars, _style):
            line.append("".join(char.data for char in run), style)
        line.rstrip()
        return line

    def svg(self, title: str) -> str:
        """The picture."""
        lines = self.lines()
        console = Console(record=True, width=self.columns, file=io.StringIO(), legacy_windows=False)
        console.print(Text("\n").join(lines), soft_wrap=True)
        name = re.sub(r"\W", "-", title)
        text = console.export_svg(title=title, theme=SVG_EXPORT_THEME, code_format=FORMAT, unique_id=f"t-{name}")
        return "\n".join(line.rstrip() for line in text.splitlines()) + "\n"


def _written(terminal: int, until: str | None, times: int) -> Iterator[bytes]:
    """What is written to a terminal, until it is closed; with `until`, until that was shown so many times and
    nothing came for a moment."""
    seen, end = b"", time.monotonic() + LINES
    while time.monotonic() < end:
        shown = until is not None and seen.count(until.encode()) >= times
        if not select.select([terminal], [], [], 0.5)[0]:
            if shown:
                return
            continue
        data = b""
        with contextlib.suppress(OSError):  # how Linux says that the other end is closed
            data = os.read(terminal, 65536)
        if not data:
            return
        seen += data
        yield data
    raise AssertionError(f"{until!r} was not shown: {seen.decode()}")


def _style(char: pyte.screens.Char) -> Style:
    front, back = (_colour(one) for one in (char.fg, char.bg))
    return Style(color=front, bgcolor=back, bold=char.bold, italic=char.italics, reverse=char.reverse)


def _colour(name: str) -> str | None:
    if re.fullmatch("[0-9a-f]{6}", name):
        return f"#{name}"
    plain = NAMED.get(name, name)
    return plain if plain is None else re.sub("^bright", "bright_", plain)


def record(name: str, place: Path, columns: int, most: int | None = None) -> str:
    """The picture of a session of docs/snippets, or of its first commands."""
    path = SNIPPETS / name
    terminal = Terminal(columns, 120, folder(path, place, {}))
    try:
        for command, expected in steps(without_samples(path.read_text()))[:most]:
            terminal.prompt(command)
            terminal.run(command, until=expected[-1].split(" ")[0] if command.startswith("dragoman serve") else None)
        return terminal.svg("dragoman")
    finally:
        terminal.close()


def text_of(svg: str) -> str:
    """The text of a picture, line by line."""
    lines: dict[str, str] = {}
    for one in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text"):
        if (clip := one.attrib.get("clip-path")) is not None:
            lines[clip] = lines.get(clip, "") + (one.text or "").strip("\n")
    return "\n".join(lines.values()).replace("\xa0", " ")
