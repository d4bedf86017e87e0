"""The doctor names the first fault of each seeded far end, with its fix."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import os
import socket
import ssl
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import trustme

from dragoman.cli.doctor.doctor import run_examination
from dragoman.cli.doctor.record import Examination
from dragoman.cli.options import AccessOptions, LinkOptions, WireOptions

from .faults import COMMANDS, NO_HTTP, REPLIES, STREAMS

LOG = "print('starting', flush=True)\n"
ANSWERS = """\
import json, sys
for line in sys.stdin:
    id = json.loads(line).get("id")
    if id is not None:
        print(json.dumps({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "no"}}), flush=True)
"""
LSP = """\
import json, sys
raw = sys.stdin.buffer
while True:
    head = raw.readline()
    if not head:
        break
    if head.lower().startswith(b"content-length:"):
        size = int(head.partition(b":")[2])
        while raw.readline().strip():
            pass
        id = json.loads(raw.read(size))["id"]
        body = json.dumps({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "no"}})
        sys.stdout.buffer.write(f"Content-Length: {len(body)}\\r\\n\\r\\n{body}".encode())
        sys.stdout.buffer.flush()
"""
DOCUMENTS = {
    b"/broken": b"{",
    b"/none": b'{"resource":"{place}"}',
    b"/other": b'{"resource":"https://other.example","authorization_servers":["https://login.example"]}',
    b"/prefix": b'{"resource":"{place}/rp","authorization_servers":["https://login.example"]}',
    b"/good": b'{"resource":"{place}","authorization_servers":["https://login.example"]}',
}
AUTHORITY = trustme.CA()


def named(record: Examination, kind: str, fix: str) -> None:
    """The first fault is this one, and the last step has it."""
    assert record.fault is not None, record
    assert record.fault.kind == kind, record.fault
    assert fix in record.fault.fix
    assert record.fault.what
    assert [step.ok for step in record.steps] == [True] * (len(record.steps) - 1) + [False]


def link(**access: object) -> LinkOptions:
    return LinkOptions(access=AccessOptions(**access))  # type: ignore[arg-type]


Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@contextlib.asynccontextmanager
async def listening(talk: Talk, tls: ssl.SSLContext | None = None, path: str | None = None) -> AsyncIterator[int]:
    """The port (0 for a socket at `path`) of a server whose every connection is over when this is."""
    talks: set[asyncio.Task[None]] = set()

    async def taken(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        talks.add(task)
        try:
            await talk(reader, writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the far end has hung up, or the test is over
        finally:
            writer.transport.abort() if tls is not None else writer.close()
            with contextlib.suppress(OSError, asyncio.CancelledError):
                await writer.wait_closed()

    if path is not None:
        server = await asyncio.start_unix_server(taken, path)
    else:
        server = await asyncio.start_server(taken, "127.0.0.1", 0, ssl=tls)
    try:
        yield server.sockets[0].getsockname()[1] if path is None else 0
    finally:
        server.close()
        for task in talks:
            task.cancel()
        await asyncio.gather(*talks)


@contextlib.asynccontextmanager
async def far_end(sends: bytes, scheme: str = "tcp", folder: Path | None = None) -> AsyncIterator[str]:
    """The URL of a far end that answers anything with these bytes and hangs up."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(sends)
        await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
            await reader.read()

    path = f"{folder}/far.sock" if scheme == "unix" else None
    async with listening(talk, server_tls() if scheme == "tls" else None, path) as port:
        yield f"unix:{path}" if path is not None else f"{scheme}://127.0.0.1:{port}"


def server_tls(name: str = "127.0.0.1", **made: object) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    AUTHORITY.issue_cert(name, **made).configure_cert(context)  # type: ignore[arg-type]
    return context


@pytest.fixture
def ca(tmp_path: Path) -> str:
    AUTHORITY.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    return str(tmp_path / "ca.pem")


@pytest.mark.parametrize(("scheme", "framing", "sends", "kind", "fix"), STREAMS)
async def test_streams(scheme: str, framing: str, sends: bytes, kind: str, fix: str, tmp_path: Path, ca: str) -> None:
    wire = WireOptions(framing="content-length") if framing else WireOptions()
    async with far_end(sends, scheme, tmp_path) as url:
        named(await run_examination(url, link(ca=ca), wire), kind, fix)


async def test_an_answer_without_a_newline() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b'{"jsonrpc":"2.0","id":1,"result":null}')
        await reader.read()

    async with listening(talk) as port:
        place = f"tcp://127.0.0.1:{port}"
        named(await run_examination(place, link(timeout=2), WireOptions()), "framing", "--framing json")


async def test_silence() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with listening(talk) as port:
        for scheme in ("tcp", "http"):
            record = await run_examination(f"{scheme}://127.0.0.1:{port}", link(timeout=0.3), WireOptions())
            named(record, "silent", "stuck")


async def test_one_that_reads_content_length_only() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        got = await reader.read(200)
        if got.lower().startswith(b"content-length"):
            body = b'{"jsonrpc":"2.0","id":1,"result":null}'
            writer.write(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
        await reader.read()

    async with listening(talk) as port:
        place = f"tcp://127.0.0.1:{port}"
        named(await run_examination(place, link(timeout=2), WireOptions()), "framing", "--framing content-length")


async def test_no_connection() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        closed = f"127.0.0.1:{free.getsockname()[1]}"
        for scheme in ("tcp", "http", "ws", "redis"):
            path = "/calculator" if scheme == "redis" else ""
            record = await run_examination(f"{scheme}://{closed}{path}", LinkOptions(), WireOptions())
            named(record, "refused", f"nothing listens at {closed}")
    named(await run_examination("tcp://no..such:9", LinkOptions(), WireOptions()), "other", "log")
    named(
        await run_examination("http://nosuchhost.invalid:9", LinkOptions(), WireOptions()),
        "unresolved",
        f"{'getent hosts' if sys.platform == 'linux' else 'nslookup'} nosuchhost.invalid",
    )


async def test_no_unix_socket(tmp_path: Path) -> None:
    named(
        await run_examination(f"unix:{tmp_path}/none.sock", LinkOptions(), WireOptions()),
        "no_socket",
        "start the server",
    )
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(f"{tmp_path}/stale.sock")
    named(
        await run_examination(f"unix:{tmp_path}/stale.sock", LinkOptions(), WireOptions()),
        "refused",
        "start the server",
    )
    (tmp_path / "file").write_text("x")
    named(await run_examination(f"unix:{tmp_path}/file", LinkOptions(), WireOptions()), "no_socket", "makes its own")
    assert (
        await run_examination(f"unix:{tmp_path}", LinkOptions(), WireOptions())
    ).fault.what == f"{tmp_path} is a folder, not a socket"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("scheme", "name", "trusted", "expired", "kind", "fix"),
    [
        ("tls", "127.0.0.1", False, False, "untrusted", "--ca FILE"),
        ("https", "127.0.0.1", False, False, "untrusted", "--ca FILE"),
        ("wss", "127.0.0.1", False, False, "untrusted", "--ca FILE"),
        ("tls", "other.example", True, False, "wrong_name", "for 127.0.0.1"),
        ("https", "other.example", True, False, "wrong_name", "for 127.0.0.1"),
        ("https", "127.0.0.1", True, True, "expired", "a new certificate"),
        ("tcp", "127.0.0.1", True, False, "other_protocol", "write tls://"),
        ("http", "127.0.0.1", True, False, "other_protocol", "write https://"),
    ],
)
async def test_tls(scheme: str, name: str, trusted: bool, expired: bool, kind: str, fix: str, ca: str) -> None:
    past = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=2)
    tls = server_tls(name, **({"not_after": past} if expired else {}))

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            await reader.read()

    async with listening(talk, tls) as port:
        url = f"{scheme}://127.0.0.1:{port}"
        record = await run_examination(url, link(ca=ca) if trusted else LinkOptions(), WireOptions())
    named(record, kind, fix)


@pytest.mark.parametrize("scheme", ["tls", "https", "wss"])
async def test_no_tls_there(scheme: str) -> None:
    async with far_end(b"HTTP/1.1 400 Bad Request\r\n\r\n") as url:
        record = await run_examination(url.replace("tcp:", f"{scheme}:"), LinkOptions(), WireOptions())
    named(record, "not_tls", {"tls": "write tcp://", "https": "write http://", "wss": "write ws://"}[scheme])


@pytest.mark.parametrize("scheme", ["tls", "https"])
async def test_a_client_certificate_is_wanted(scheme: str, ca: str) -> None:
    """OpenSSL's own server says so by an alert; asyncio's closes without it."""
    tls = server_tls()
    AUTHORITY.configure_trust(tls)
    tls.verify_mode = ssl.CERT_REQUIRED
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def talk() -> None:
            with contextlib.suppress(OSError):
                while not over.is_set():
                    taken, _ = server.accept()
                    taken.settimeout(20)
                    with contextlib.suppress(OSError), tls.wrap_socket(taken, server_side=True):
                        pass
                    taken.close()

        thread = threading.Thread(target=talk)
        thread.start()
        url = f"{scheme}://127.0.0.1:{server.getsockname()[1]}"
        record = await run_examination(url, link(ca=ca), WireOptions())
        over.set()
        socket.create_connection(server.getsockname()).close()
        thread.join()
    assert record.fault is not None
    assert record.fault.kind in ("certificate_wanted", "reset", "hung_up")
    assert "--cert FILE" in record.fault.fix

    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with listening(hold, tls) as port:
        named(
            await run_examination(f"{scheme}://127.0.0.1:{port}", link(ca=ca), WireOptions()), "hung_up", "--cert FILE"
        )


@contextlib.asynccontextmanager
async def http_server(reply: bytes) -> AsyncIterator[str]:
    """The place of an HTTP server that gives this reply to each POST, and documents to GET."""
    place = b""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        method, target, _ = head.split(b" ", 2)
        if method == b"POST":
            start, _, body = reply.replace(b"{place}", place).partition(b"\r\n\r\n")
            await reader.readexactly(int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]))
        elif target in DOCUMENTS:
            start, body = b"200 OK", DOCUMENTS[target].replace(b"{place}", place)
        else:
            start, body = b"404 Not Found", b""
        writer.write(b"HTTP/1.1 %b\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%b" % (start, len(body), body))
        await writer.drain()

    async with listening(talk) as port:
        url = f"http://127.0.0.1:{port}"
        place = url.encode()
        yield url


@pytest.mark.parametrize(("reply", "kind", "fix"), REPLIES)
async def test_http(reply: bytes, kind: str, fix: str) -> None:
    async with http_server(reply) as url:
        named(await run_examination(url, LinkOptions(), WireOptions()), kind, fix)


async def test_credentials_that_are_refused() -> None:
    async with http_server(b'401 Unauthorized\r\nWWW-Authenticate: Bearer error="invalid_token"') as url:
        record = await run_examination(url, link(bearer="old"), WireOptions())
    named(record, "refused_login", "get a new one")
    assert "invalid_token" in record.steps[-1].said


async def test_no_websocket_there() -> None:
    async with http_server(b"200 OK") as url:
        named(
            await run_examination(url.replace("http:", "ws:"), LinkOptions(), WireOptions()), "not_websocket", "http://"
        )


@pytest.mark.parametrize(("sends", "kind", "fix"), NO_HTTP, ids=[f"{at}-{row[1]}" for at, row in enumerate(NO_HTTP)])
async def test_what_is_no_http(sends: bytes, kind: str, fix: str) -> None:
    async with far_end(sends) as url:
        named(await run_examination(url.replace("tcp:", "http:"), LinkOptions(), WireOptions()), kind, fix)


@pytest.mark.parametrize(("words", "kind", "fix"), COMMANDS)
async def test_commands(words: str, kind: str, fix: str, tmp_path: Path) -> None:
    for name, text, mode in (
        ("plain.py", "#!/bin/sh\n", 0o644),
        ("lost.py", "#!/nowhere/python\n", 0o755),
        ("format.py", "print(1)\n", 0o755),
        ("banner.py", f"import time\n{LOG}time.sleep(60)\n", 0o644),
        ("chatty.py", LOG + ANSWERS, 0o644),
        ("lsp.py", LSP, 0o644),
        ("batch.py", ANSWERS.replace("json.dumps({", "json.dumps([{").replace("}}), ", "}}]), "), 0o644),
        ("wide.py", "import sys\nsys.stdout.reconfigure(encoding='utf-16')\n" + ANSWERS, 0o644),
        ("deaf.py", "import os, time\nos.close(1)\ntime.sleep(60)\n", 0o644),
        ("empty.py", "x = 1\n", 0o644),
    ):
        (tmp_path / name).write_text(text)
        os.chmod(tmp_path / name, mode)
    command = words.format(python=sys.executable, folder=tmp_path)
    patience = {"silent": 1.0, "framing": 8.0}.get(kind, 30.0)  # a program has that for its start, too
    if command.endswith(("plain.py", "lost.py", "format.py")):
        command += " run"  # a command line, not a file to serve
    named(await run_examination(command, link(timeout=patience), WireOptions()), kind, fix)
