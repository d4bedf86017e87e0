"""The HTTP client's connections: what HTTP/1.1 (RFC 9112) lets a server say, and what it does not."""

from __future__ import annotations

import asyncio
import gc
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from dragoman.channel import Broken, Options
from dragoman.jsonrpc.errors import BadAnswer, LocalError
from dragoman.jsonrpc.limits import CLIENT
from dragoman.net.urls import parse
from dragoman.transports.http.client import pool as http_pool
from dragoman.transports.http.client.connection import HIGH, ClientConnection
from dragoman.transports.http.client.pool import Pool
from tests.mcp.scripted_http import Script, Scripted, Seen, Talk, forever, scripted

from ...ends import until

OK = b"HTTP/1.1 200 OK\r\n"


@asynccontextmanager
async def asking(script: Script, options: Options | None = None) -> AsyncIterator[tuple[Pool, Scripted]]:
    async with scripted(script) as server:
        pool = Pool(parse(server.url), options or Options(limits=CLIENT), "application/json")
        try:
            yield pool, server
        finally:
            await pool.close()


def raw(*pieces: bytes, cut: bool = False) -> Script:
    async def script(seen: Seen, talk: Talk) -> None:
        for piece in pieces:
            talk.raw(piece)
            await talk.writer.drain()
        if cut:
            talk.cut()

    return script


async def body_of(pool: Pool) -> bytes:
    return await (await pool.ask("POST", b"{}")).body(1 << 20)


# -- what goes out --------------------------------------------------------------------------------


async def test_a_request_as_it_goes_out() -> None:
    options = Options(headers={"X-Own": "é", "Accept": "mine"}, auth="token")
    async with asking(raw(OK + b"Content-Length: 0\r\n\r\n"), options) as (pool, server):
        await pool.ask("POST", b"{}", {"x-one": "1", "user-agent": "other"})
        await pool.ask("GET", target="/a%20é?b=ü|")
        post, get = server.seen
    assert post.headers == {
        "host": f"127.0.0.1:{server.port}",
        "accept": "mine",
        "user-agent": "other",
        "authorization": "Bearer token",
        "x-own": "é".encode().decode("latin-1"),
        "x-one": "1",
        "content-type": "application/json",
        "content-length": "2",
    }
    assert (get.method, get.target) == ("GET", "/a%20%C3%A9?b=%C3%BC%7C")
    assert "content-type" not in get.headers
    assert "content-length" not in get.headers


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("http://[::1]:8000/", "[::1]:8000"),
        ("http://a.example/", "a.example"),
        ("https://bücher.example:443/", "xn--bcher-kva.example"),
    ],
)
async def test_the_host(url: str, host: str) -> None:
    pool = Pool(parse(url), Options(), "*/*")
    assert f"\r\nhost: {host}\r\n".encode() in b"\r\n" + pool._lines
    await pool.close()


@pytest.mark.parametrize("headers", [{"x": "a\r\nb: c"}, {"x": "\0"}, {"a b": "c"}, {"": "c"}, {"x\n": "c"}])
async def test_a_header_that_would_be_two_is_not_sent(headers: dict[str, str]) -> None:
    async with asking(raw(OK + b"Content-Length: 0\r\n\r\n")) as (pool, server):
        with pytest.raises(Broken, match="nothing was sent"):
            await pool.ask("POST", b"{}", headers)
        assert not server.seen
    with pytest.raises(LocalError):
        Pool(parse("http://a.example"), Options(headers=headers), "*/*")


# -- what comes back ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "pieces",
    [
        [OK + b"Content-Length: 4\r\n\r\nbody"],
        [OK, b"Content-", b"Length: 4\r", b"\n\r\nbo", b"dy"],
        [OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\nbo\r\n2;x=y\r\ndy\r\n0\r\nTrailer: 1\r\n\r\n"],
        [
            b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n",
            b"HTTP/1.1 100 Continue\r\n\r\n" + OK + b"Content-Length: 4\r\n\r\nbody",
        ],
        [OK + b"Upgrade: h2,h2c\r\nConnection: Upgrade\r\nContent-Length: 4\r\n\r\nbody"],
    ],
)
async def test_bodies_and_a_connection_used_again(pieces: list[bytes]) -> None:
    async with asking(raw(*pieces)) as (pool, server):
        assert [await body_of(pool) for _ in range(3)] == [b"body"] * 3
        assert [one.connection for one in server.seen] == [1, 1, 1]


@pytest.mark.parametrize(
    "reply",
    [
        OK + b"\r\nbody",
        b"HTTP/1.0 200 OK\r\n\r\nbody",
        b"HTTP/1.0 200 OK\r\nContent-Length: 4\r\n\r\nbody",
        OK + b"Connection: close\r\nContent-Length: 4\r\n\r\nbody",
    ],
)
async def test_a_body_that_ends_with_its_connection(reply: bytes) -> None:
    async with asking(raw(reply, cut=True)) as (pool, server):
        assert [await body_of(pool) for _ in range(2)] == [b"body"] * 2
        assert [one.connection for one in server.seen] == [1, 2]


@pytest.mark.parametrize(
    ("reply", "kind", "words"),
    [
        (b"", Broken, "closed the connection without an answer"),
        (b"HTTP/1.1 200", Broken, "closed the connection without an answer"),
        (b"SMTP ready\r\n\r\n", BadAnswer, "is not HTTP"),
        (b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", BadAnswer, "is not HTTP"),
        (OK + b"Content-Length: 4\r\nContent-Length: 5\r\n\r\nbody!", BadAnswer, "is not HTTP"),
        (OK + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", BadAnswer, "is not HTTP"),
        (OK + b"Content-Length: -4\r\n\r\nbody", BadAnswer, "is not HTTP"),
        (OK + b"X: " + b"x" * 20_000 + b"\r\n\r\n", BadAnswer, "header_size allows 16384 bytes"),
        (OK + b"X: " + b"x" * 20_000, BadAnswer, "header_size allows 16384 bytes"),
        (OK + b"X: y\r\n" * 5000 + b"Content-Length: 0\r\n\r\n", BadAnswer, "header_size allows 16384 bytes"),
        (OK + b"Content-Length: 4\r\n\r\nbod", Broken, "broke off"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n", Broken, "broke off"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\nz\r\nbody\r\n", Broken, "broke off"),
    ],
)
async def test_what_is_not_a_reply(reply: bytes, kind: type[Exception], words: str) -> None:
    async with asking(raw(reply, cut=True)) as (pool, server):
        for number in (1, 2):
            with pytest.raises(kind, match=words):
                await body_of(pool)
            assert server.seen[-1].connection == number


@pytest.mark.parametrize("at_once", [True, False])
async def test_bytes_without_a_request_end_the_connection(at_once: bool) -> None:
    """Else they would be taken for the answer to the next request."""
    evil = OK + b"Content-Length: 4\r\n\r\nevil"

    async def script(seen: Seen, talk: Talk) -> None:
        talk.raw(OK + b"Content-Length: 4\r\n\r\ngood" + (evil if at_once else b""))
        if not at_once:
            await talk.writer.drain()
            sent.set()
            talk.raw(evil)

    sent = asyncio.Event()
    async with asking(script) as (pool, server):
        assert await body_of(pool) == b"good"
        await until(lambda: not pool._live)
        assert await body_of(pool) == b"good"
        assert [one.connection for one in server.seen] == [1, 2]


@pytest.mark.parametrize("compress", [zlib.compress, lambda data: zlib.compress(data, wbits=31)])
async def test_compressed_though_not_asked_for(compress: object) -> None:
    assert callable(compress)
    packed: bytes = compress(b"x" * 900_000)
    coding = b"gzip" if packed[:2] == b"\x1f\x8b" else b"deflate"
    reply = OK + b"Content-Encoding: %b\r\nContent-Length: %d\r\n\r\n%b" % (coding, len(packed), packed)
    async with asking(raw(reply)) as (pool, server):
        assert await body_of(pool) == b"x" * 900_000
        assert "accept-encoding" not in server.seen[0].headers


async def test_what_is_compressed_badly() -> None:
    async with asking(raw(OK + b"Content-Encoding: gzip\r\nContent-Length: 4\r\n\r\nbody")) as (pool, _):
        with pytest.raises(Broken, match="broke off"):
            await body_of(pool)


# -- time and space -------------------------------------------------------------------------------


async def test_a_caller_that_does_not_read_holds_the_far_end_back() -> None:
    size = 64 << 20

    async def script(seen: Seen, talk: Talk) -> None:
        talk.raw(OK + b"Content-Length: %d\r\n\r\n" % size)
        for _ in range(size >> 16):
            talk.raw(b"x" * (1 << 16))
            await talk.writer.drain()
        await forever()

    async with asking(script) as (pool, _):
        reply = await pool.ask("GET")
        for _ in range(2000):
            await asyncio.sleep(0)
        assert reply._size <= 3 * HIGH
        got = 0
        while got < size:
            got += len(await reply.chunk())
        assert got == size
        assert reply.ended
        assert await reply.chunk() == b""


async def test_an_answer_that_is_late() -> None:
    async def script(seen: Seen, talk: Talk) -> None:
        if seen.method == "GET":
            talk.raw(OK + b"Content-Length: 4\r\n\r\n")
        await forever()

    async with asking(script) as (pool, server):
        with pytest.raises(Broken, match=r"did not answer within 0\.05 s"):
            await pool.ask("POST", b"{}", timeout=0.05)
        reply = await pool.ask("GET", timeout=0.05)
        with pytest.raises(Broken, match=r"did not answer within 0\.05 s"):
            await reply.body(100)
        await server.left(), await server.left()


async def test_a_cancelled_request_closes_its_connection() -> None:
    async def script(seen: Seen, talk: Talk) -> None:
        await forever()

    async with asking(script) as (pool, server):
        asked = asyncio.ensure_future(pool.ask("GET"))
        await server.next()
        asked.cancel()
        await server.left()
        assert not pool._live


async def test_a_connection_that_was_idle_for_long_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async with asking(raw(OK + b"Content-Length: 4\r\n\r\nbody")) as (pool, server):
        await body_of(pool)
        monkeypatch.setattr(http_pool, "KEEPALIVE", 0)
        await body_of(pool)
        pool._sweep()
        await until(lambda: not pool._live)
        assert not pool._idle
        assert [one.connection for one in server.seen] == [1, 2]


async def test_a_connection_that_the_server_closed_is_not_used() -> None:
    async def script(seen: Seen, talk: Talk) -> None:
        talk.raw(OK + b"Content-Length: 4\r\n\r\nbody")
        talk.cut()

    async with asking(script) as (pool, server):
        for _ in range(3):
            assert await body_of(pool) == b"body"
            await until(lambda: not pool._live)
        assert len(server.seen) == 3


async def test_an_answer_before_the_request_is_through() -> None:
    """The server has heard enough (413): what is unsent is dropped."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
        await until(lambda: not pool._live)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=1 << 16)
    async with server:
        pool = Pool(parse(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"), Options(), "*/*")
        reply = await pool.ask("POST", b"x" * (32 << 20))
        assert reply.line == "HTTP 413 Too Large"
        await until(lambda: not pool._live)
        await pool.close()


@pytest.mark.parametrize("used", [False, True], ids=["a new connection", "a connection that waited"])
async def test_a_server_that_hangs_up_before_the_next_request(used: bool) -> None:
    """Between the end of the stream and the end of the transport a connection takes no request: the next one goes out
    on another, and none leaves a failure behind that nothing takes."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if used:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(OK + b"Content-Length: 4\r\n\r\nbody")
        writer.close()

    unheard: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unheard.append(context["message"]))
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        pool = Pool(parse(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"), Options(), "*/*")
        if used:
            assert await (await pool.ask("GET")).body(100) == b"body"
        else:
            await pool._connect()
        (wire,) = pool._live
        while not _closing(wire):  # noqa: ASYNC110  (a look at every turn: what follows is one turn long)
            await asyncio.sleep(0)
        if used:
            assert await (await pool.ask("GET")).body(100) == b"body"
        with pytest.raises(Broken, match="without an answer"):
            await wire.ask(b"GET / HTTP/1.1\r\n\r\n", b"", None)
        await pool.close()
    del wire
    gc.collect()
    assert unheard == []


def _closing(wire: ClientConnection) -> bool:
    return wire._transport is None or wire._transport.is_closing()
