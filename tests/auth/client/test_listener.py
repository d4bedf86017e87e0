"""The listener for the answer: it takes the one that is expected, and nothing else ends or answers a login."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit

import pytest

from dragoman.auth.client.errors import LoginFailed
from dragoman.auth.client.listener import MOST_AT_ONCE, CallbackListener
from dragoman.auth.client.person import Person, query_of
from tests.ports import free_port


@asynccontextmanager
async def listening() -> AsyncIterator[tuple[CallbackListener, str, asyncio.Task[str]]]:
    listener = CallbackListener()
    uri = await listener.open(0, exact=False)
    waiting = asyncio.create_task(listener.answer("right"))
    await asyncio.sleep(0)
    try:
        yield listener, uri, waiting
    finally:
        waiting.cancel()
        await listener.close()


async def sent(uri: str, raw: bytes) -> str:
    """The answer to a raw request."""
    reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(uri).port)
    writer.write(raw)
    await writer.drain()
    answer = (await reader.read()).decode()
    writer.close()
    return answer


def get(uri: str, target: str, host: str | None = None, method: str = "GET") -> bytes:
    return f"{method} {target} HTTP/1.1\r\nHost: {host or urlsplit(uri).netloc}\r\n\r\n".encode()


async def test_the_answer() -> None:
    async with listening() as (_, uri, waiting):
        answer = await sent(uri, get(uri, "/callback?code=secret&state=right"))
        assert answer.startswith("HTTP/1.1 200")
        assert "secret" not in answer
        assert "no-store" in answer
        assert "frame-ancestors 'none'" in answer
        assert await waiting == "code=secret&state=right"
        # one shot
        assert "400" in await sent(uri, get(uri, "/callback?code=other&state=right"))


@pytest.mark.parametrize(
    ("target", "host", "method", "status"),
    [
        ("/callback?code=c&state=wrong", None, "GET", 400),
        ("/callback?code=c", None, "GET", 400),
        ("/callback", None, "GET", 400),
        ("/callback?state=right&state=right", None, "GET", 400),
        ("/callback?error=access_denied&state=wrong", None, "GET", 400),
        ("/callback?code=c&state=right", "evil.example", "GET", 400),
        ("/callback?code=c&state=right", "127.0.0.1", "GET", 400),
        ("/callback?code=c&state=right", None, "POST", 405),
        ("/favicon.ico", None, "GET", 404),
        ("/callback/?code=c&state=right", None, "GET", 404),
        ("/?code=c&state=right", None, "GET", 404),
        ("http://[/callback?code=c&state=right", None, "GET", 400),
    ],
)
async def test_what_is_not_the_answer_changes_nothing(target: str, host: str | None, method: str, status: int) -> None:
    async with listening() as (_, uri, waiting):
        assert (await sent(uri, get(uri, target, host, method))).startswith(f"HTTP/1.1 {status}")
        assert not waiting.done()
        await sent(uri, get(uri, "/callback?code=c&state=right"))
        assert await waiting == "code=c&state=right"


@pytest.mark.parametrize("raw", [b"\r\n\r\n", b"GET\r\n\r\n", b"\x16\x03\x01\r\n\r\n", b"x" * 100_000 + b"\r\n\r\n"])
async def test_what_is_no_request(raw: bytes) -> None:
    async with listening() as (_, uri, waiting):
        try:
            assert "200" not in (await sent(uri, raw))[:20]
        except ConnectionError:
            pass
        assert not waiting.done()


async def test_it_listens_before_the_browser_is_sent_away_and_keeps_its_port() -> None:
    person, port = Person(on_url=lambda url: None), free_port()
    uri = await person.listen(port, True)
    assert (await sent(uri, get(uri, "/callback?state=x"))).startswith("HTTP/1.1 400")
    await person.close()
    assert urlsplit(await person.listen(port, True)).port == port
    taken = CallbackListener()
    assert urlsplit(await taken.open(port, exact=False)).port != port
    await taken.close()
    with pytest.raises(LoginFailed, match=str(port)):
        await taken.open(port, exact=True)
    await person.close()


async def test_a_pasted_answer() -> None:
    person = Person(on_url=lambda url: "http://127.0.0.1:1/callback?code=c&state=s")
    await person.listen(0, False)
    assert await person.browse("https://as.example/authorize", "s") == "code=c&state=s"


@pytest.mark.skipif(sys.platform == "win32", reason="a terminal of Unix")
async def test_what_is_typed_after_the_login_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer to a question of the server, say, which the program reads next."""
    ours, theirs = os.openpty()
    threads = set(threading.enumerate())
    with os.fdopen(theirs, "r") as terminal:
        monkeypatch.setattr(sys, "stdin", terminal)
        person = Person(browser=False)
        uri = await person.listen(0, False)
        login = asyncio.ensure_future(person.browse("https://as.example/authorize", "s"))
        await asyncio.sleep(0)
        assert (await sent(uri, get(uri, "/callback?code=c&state=s"))).startswith("HTTP/1.1 200")
        assert await login == "code=c&state=s"
        for thread in set(threading.enumerate()) - threads:
            if thread.daemon:
                await asyncio.to_thread(thread.join, 20)
                assert not thread.is_alive()
        os.write(ours, b"deny\n")
        assert await asyncio.to_thread(terminal.readline) == "deny\n"
    os.close(ours)


@pytest.mark.skipif(sys.platform == "win32", reason="a terminal of Unix")
async def test_a_line_of_the_terminal_is_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = os.openpty()
    with os.fdopen(theirs, "r") as terminal:
        monkeypatch.setattr(sys, "stdin", terminal)
        person = Person(browser=False)
        await person.listen(0, False)
        os.write(ours, b"\nhttp://127.0.0.1:1/callback?code=c&state=s\n")
        assert await person.browse("https://as.example/authorize", "s") == "code=c&state=s"
    os.close(ours)


async def test_nobody_answers() -> None:
    person = Person(on_url=lambda url: None, timeout=0.05)
    await person.listen(0, False)
    with pytest.raises(LoginFailed, match="no one answered"):
        await person.browse("https://as.example/authorize", "s")


@pytest.mark.parametrize("text", ["", "hello", "https://as.example/authorize", "https://[?code=c&state=s"])
def test_what_is_no_answer(text: str) -> None:
    with pytest.raises(LoginFailed, match="pasted"):
        query_of(text)


async def test_silent_connections_keep_no_browser_out() -> None:
    async with listening() as (_, uri, waiting):
        port = urlsplit(uri).port
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2 * MOST_AT_ONCE)]
        half = await asyncio.open_connection("127.0.0.1", port)
        half[1].write(b"GET /callback?code=c")
        assert (await sent(uri, get(uri, "/callback?code=c&state=right"))).startswith("HTTP/1.1 200")
        assert await waiting == "code=c&state=right"
        for reader, _ in silent[: MOST_AT_ONCE + 2]:  # the oldest have gone
            with suppress(ConnectionError):
                assert await reader.read() == b""
        for _, writer in (*silent, half):
            writer.close()
