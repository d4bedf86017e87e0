"""The console's page as its operator has it: a server, its console at an address of its own, and a browser there."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from msgspec import Struct

from dragoman.console.endpoint import Console
from dragoman.console.recorder import Recorder
from dragoman.serving import Serving
from tests.console.ends import with_console


class Operated(Struct, eq=False):
    """What is served, and the console's URL, with its secret."""

    serving: Serving
    console: Console
    recorder: Recorder
    url: str
    secret: str


@asynccontextmanager
async def operated(served: Any, urls: Any = "http://127.0.0.1:0") -> AsyncIterator[Operated]:
    """Serve it, and its console."""
    async with with_console(served, urls) as ends:
        yield Operated(ends.serving, ends.console, ends.recorder, f"http://127.0.0.1:{ends.port}", ends.secret)
