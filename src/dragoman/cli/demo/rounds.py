"""The rounds of the demo on each wire: serve the calculator, call it, be called back; and a few wrong calls.

Nothing is printed here; `demo.py` does that. Each round ends in a `Round` with its outcome; if this machine lacks
something for a wire, the wire is skipped with the reason.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
import statistics
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from time import perf_counter
from typing import Any, Literal

import msgspec
from msgspec import Struct

from ...connecting import connect
from ...jsonrpc.errors import LocalError
from ...rpc.peer import Peer
from ...rpc.service import Service
from ...serving import serve
from ...system.programs import search_path
from ...system.sockets import UNIX
from ..exit_status import ending_of
from .calculator import api

CALLS = 50
"""Calls whose round trip is measured, one after another."""
PATIENCE = 30.0
"""Seconds for one wire, from start to end: a child on a busy machine needs many for its start."""
QUESTION, ANSWERED = "the caller, you there?", "here I am"

State = Literal["waiting", "running", "fine", "skipped", "failed"]


class Round(Struct, kw_only=True):
    """One wire: the call and its outcome."""

    wire: str
    url: str
    method: str
    params: Any
    expected: Any
    duplex: bool
    """True where the far end can call back."""
    state: State = "waiting"
    answer: Any = None
    median: float | None = None
    """The median of the round trips, in milliseconds."""
    called_back: str | None = None
    """The caller's answer when it was called back."""
    promise: str | None = None
    """The delivery guarantee of a broker, e.g. "at least once"."""
    note: str = ""
    """Why the round was skipped, or what failed."""


class Exchanged(Struct, kw_only=True):
    """A wrong call: the bytes of the request and of the answer."""

    what: str
    sent: bytes
    code: int
    """The expected error code."""
    received: bytes = b""

    @property
    def fine(self) -> bool:
        """True if the answer is the expected error."""
        try:
            return bool(msgspec.json.decode(self.received)["error"]["code"] == self.code)
        except (msgspec.DecodeError, KeyError, TypeError):
            return False


def rounds(folder: Path) -> list[Round]:
    """The wires, in the order in which they are shown; sockets and certificates go to `folder`."""
    by_name = {"dividend": 1, "divisor": 8}
    sock, lsp = f"unix:{folder}/calc.sock", "tcp://127.0.0.1:0?framing=content-length"
    table: list[tuple[str, str, str, Any, Any, bool]] = [
        ("memory", "memory:demo", "subtract", [42, 23], 19, True),
        ("stdio, a child", "stdio:", "divide", by_name, 0.125, True),
        ("tcp", "tcp://127.0.0.1:0", "sum", [1, 2, 4], 7.0, True),
        ("tcp, LSP frames", lsp, "get_data", msgspec.UNSET, ["hello", 5], True),
        ("tls", "tls://127.0.0.1:0", "divide", [1, 8], 0.125, True),
        ("unix socket", sock, "sum", [0.5, 2], 2.5, True),
        ("udp", "udp://127.0.0.1:0", "subtract", [23, 42], -19, False),
        ("http", "http://127.0.0.1:0", "subtract", [42, 23], 19, False),
        ("websocket", "ws://127.0.0.1:0", "sum", list(range(10)), 45.0, True),
    ]
    return [
        Round(wire=wire, url=url, method=method, params=params, expected=expected, duplex=duplex)
        for wire, url, method, params, expected, duplex in table
    ]


async def play(row: Round, folder: Path, changed: Callable[[], None]) -> None:
    """Play one round and record the outcome in `row`; `changed` is called whenever `row` has changed."""
    row.state = "running"
    changed()
    try:
        async with asyncio.timeout(PATIENCE):
            await _play(row, folder, changed)
        row.state = "fine"
    except _Skip as reason:
        row.state, row.note = "skipped", str(reason)
    except TimeoutError as fault:
        row.state, row.note = "failed", str(fault) or f"not done within {PATIENCE:g} s"
    except _Wrong as fault:
        row.state, row.note = "failed", str(fault)
    except Exception as fault:
        row.state, row.note = "failed", ending_of(fault).text
        if isinstance(fault, LocalError) and isinstance(fault.__cause__ or fault.__context__, ImportError):
            row.state = "skipped"
    changed()


class _Skip(Exception):
    """This machine lacks something; the text names it."""


async def _play(row: Round, folder: Path, changed: Callable[[], None]) -> None:
    here = Service("caller")

    @here.method(inline=True)
    def answer(question: str) -> str:
        """The method that the calculator calls back."""
        return ANSWERED if question == QUESTION else f"what do you mean, {question}?"

    async with _connect(row, folder, here) as peer:
        row.answer = await peer.call(row.method, row.params)
        if row.answer != row.expected:
            raise _Wrong(f"{row.method} answered {row.answer!r}, not {row.expected!r}")
        changed()
        await peer.notify("update", [1, 2, 3])
        times = []
        for _ in range(CALLS):
            started = perf_counter()
            await peer.call(row.method, row.params)
            times.append(perf_counter() - started)
        row.median = 1000 * statistics.median(times)
        changed()
        if row.duplex:
            row.called_back = await peer.call("ask_back", [QUESTION])
            if row.called_back != ANSWERED:
                raise _Wrong(f"called back, the caller said {row.called_back!r}")


class _Wrong(Exception):
    """An answer is not the expected one."""


@contextlib.asynccontextmanager
async def _connect(row: Round, folder: Path, here: Service) -> AsyncIterator[Peer]:
    """A peer at the far end of the round's wire, whose near end offers `here`."""
    if row.url == "stdio:":
        command = [sys.executable, "-m", "dragoman.cli.demo.calculator", "stdio:"]
        async with connect(command, service=here, timeout=PATIENCE) as peer:
            yield peer
        return
    if row.url.startswith("unix:") and not UNIX:
        raise _Skip("this system has no Unix sockets in Python")
    ours, theirs = _contexts(folder) if row.url.startswith("tls:") else (None, None)
    async with serve(api, urls=[row.url], tls=ours) as serving:
        row.url = serving.urls[0]
        near = here if row.duplex else None
        async with connect(row.url, service=near, timeout=PATIENCE, tls=theirs) as peer:
            yield peer


def _contexts(folder: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """TLS contexts for both ends, with a certificate that the openssl command makes."""
    openssl = search_path("openssl", os.environ.get("PATH"))
    if openssl is None:
        raise _Skip("there is no openssl command to make a certificate with")
    key, certificate = folder / "key.pem", folder / "cert.pem"
    words = "req -x509 -nodes -days 1 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -subj /CN=127.0.0.1"
    words += " -addext subjectAltName=IP:127.0.0.1"
    made = subprocess.run(
        [openssl, *words.split(), "-keyout", str(key), "-out", str(certificate)], capture_output=True, check=False
    )
    if made.returncode:
        raise _Skip("this openssl command cannot make the certificate")
    ours = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    ours.load_cert_chain(certificate, key)
    return ours, ssl.create_default_context(cafile=str(certificate))


# -- what goes wrong ------------------------------------------------------------------------------


def mistakes() -> list[Exchanged]:
    """Four different wrong calls."""
    return [
        Exchanged(
            what="text that is not JSON",
            sent=b'{"jsonrpc": "2.0", "method": "subtract", "params": [42, 23',
            code=-32700,
        ),
        Exchanged(
            what="a method that does not exist",
            sent=b'{"jsonrpc": "2.0", "method": "substract", "params": [42, 23], "id": 1}',
            code=-32601,
        ),
        Exchanged(
            what="wrong arguments, all at once",
            sent=b'{"jsonrpc": "2.0", "method": "subtract", "params": {"minuend": "42", "minus": 23}, "id": 2}',
            code=-32602,
        ),
        Exchanged(
            what="an error that the method declares",
            sent=b'{"jsonrpc": "2.0", "method": "divide", "params": [1, 0], "id": 3}',
            code=1001,
        ),
    ]


async def make(wrong: list[Exchanged]) -> None:
    """Send each call over a bare TCP socket, one per line, and record the line that comes back."""
    async with asyncio.timeout(PATIENCE), serve(api, urls=["tcp://127.0.0.1:0"]) as serving:
        host, _, port = serving.urls[0].removeprefix("tcp://").rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        try:
            for each in wrong:
                writer.write(each.sent + b"\n")
                each.received = (await reader.readline()).rstrip(b"\n")
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()


async def progress(report: Callable[[Any], None]) -> str:
    """Call `slow` over a WebSocket or, if that is missing, TCP; `report` gets every progress value. Returns the
    answer."""
    async with serve(api, urls=["tcp://127.0.0.1:0"]) as serving, connect(serving.urls[0]) as peer:
        answer: str = await peer.call("slow", [1.0, 10], result=str, on_progress=report, timeout=PATIENCE)
        return answer
