"""`dragoman console`: prints the URL of a console that runs on this machine, with its secret, and opens it."""

from __future__ import annotations

import os
import sys
import time
import webbrowser
from typing import Annotated, Final
from urllib.parse import urlsplit

from cyclopts import App, Parameter
from rich.text import Text

from ...console import ListedConsole, read_listed
from ..exit_status import FINE, Usage
from ..options import OUTPUT, Output
from ..terminal import clean, compact, out

app: App = App(
    name="console",
    usage="Usage: dragoman console [OPTIONS] [PORT]",
    help_epilogue="""\
Examples:

  dragoman console                                open it in the browser
  dragoman console --print                        print its URL, open nothing
  dragoman console 9092                           the one at this port
  dragoman console --json                         all of them, for scripts

A server has one if it was started so: serve calculator:api --console :9092

The URL has the secret of the console in its fragment: whoever has it may look
at the server, call its methods and stop its calls. Only consoles of processes
of this user are found.""",
)

SHOWN: Final = 10
"""Ports that an error names at most."""


@app.default
def console(
    port: int | None = None,
    /,
    *,
    print_only: Annotated[bool, Parameter(name="--print")] = False,
    output: Output = OUTPUT,
) -> int:
    """Open the page that shows what goes on in a server of this machine.

    Parameters
    ----------
    port
        Its port, where several run.
    print_only
        Print the URL, and open no browser.
    """
    running = read_listed()
    found = [one for one in running if port is None or urlsplit(one.url).port == port]
    if output.json:
        print(compact([{"name": one.name, "url": one.url, "pid": one.pid} for one in found]))
        return FINE
    if not found:
        at = "" if port is None else f" at port {port}"
        there = ", ".join(sorted({f"{urlsplit(one.url).port}" for one in running}, key=int)[:SHOWN])
        how = (
            f"there are some at {there}" if there else "dragoman serve TARGET --console :9092 starts a server with one"
        )
        raise Usage(f"no console{at} of this user runs here; {how}")
    for one in found:
        out.print(_line(one), soft_wrap=True)
    if len(found) == 1 and not print_only and _has_browser():
        webbrowser.open(found[0].url)
    return FINE


def _line(one: ListedConsole) -> Text:
    began = time.strftime("%H:%M:%S", time.localtime(one.began))
    return Text.assemble((one.url, "cyan"), (f"  {clean(one.name)[:60]}, process {one.pid}, since {began}", "dim"))


def _has_browser() -> bool:
    """Whether a person sits here who has one."""
    windowed = sys.platform in ("darwin", "win32") or bool(
        os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    )
    return sys.stdout.isatty() and windowed
