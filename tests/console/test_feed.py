"""The feed: one stream for each browser, which is conflated, bounded, and slows nothing."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pytest

from dragoman import RpcError, Service, connect
from dragoman.console.feed import BROWSERS, QUEUED, Feed
from dragoman.console.rows import EndedCall, Tick
from dragoman.console.views import parse_filter

from ..engines.wires import until
from .ends import Ends, with_console


def api() -> Service:
    made = Service("s")

    @made.method(inline=True)
    def add(a: int, b: int) -> int:
        return a + b

    @made.method
    async def wait() -> None:
        await asyncio.sleep(600)

    return made


class Stream:
    """A browser that reads the lines."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def open(cls, ends: Ends, query: str = "") -> Stream:
        reader, writer = await asyncio.open_connection("127.0.0.1", ends.port)
        writer.write(ends.request(f"/api/feed{query}"))
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200"), head
        assert b"application/jsonl" in head
        assert b"chunked" in head.lower()
        return cls(reader, writer)

    async def line(self) -> dict[str, Any]:
        """The next line: one chunk, unless it is empty."""
        chunk = b"\n\r\n"
        while chunk == b"\n\r\n":
            size = int(await self.reader.readline(), 16)
            chunk = await self.reader.readexactly(size + 2)
        assert chunk.endswith(b"\n\r\n")
        assert chunk.count(b"\n") == 2
        return msgspec.json.decode(chunk)  # type: ignore[no-any-return]

    async def rows(self, count: int) -> list[dict[str, Any]]:
        """The next rows."""
        found: list[dict[str, Any]] = []
        while len(found) < count:
            found += (await self.line())["rows"]
        return found


async def test_what_ends_is_told() -> None:
    async with with_console(api()) as ends, connect(ends.serving.urls[0]) as peer:
        await peer.call("add", [0, 0])
        stream, errors = await Stream.open(ends), await Stream.open(ends, "?q=status:error&calls=0")
        first = await stream.line()
        assert (first["rows"], first["missed"], first["ended"]) == ([], 0, 1)  # only what ends from now on
        await errors.line()
        await peer.call("add", [1, 2])
        with pytest.raises(RpcError):
            await peer.call("absent")
        assert [one["method"] for one in await stream.rows(2)] == ["add", "absent"]
        assert [one["method"] for one in await errors.rows(1)] == ["absent"]
        call = asyncio.ensure_future(peer.call("wait"))
        while not (line := await stream.line())["calls"]:
            pass
        assert (line["in_flight"], line["calls"][0]["method"]) == (1, "wait")
        call.cancel()
        stream.writer.close()
        errors.writer.close()
        await until(lambda: len(ends.console._feed) == 0)


async def test_a_line_has_at_most_the_rows_that_wait() -> None:
    """Thousands of calls between two lines: the newest are told, and how many there were besides."""
    async with with_console(api()) as ends, connect(ends.serving.urls[0]) as peer:
        stream = await Stream.open(ends)
        await stream.line()
        for _ in range(3):
            await asyncio.gather(*(peer.call("add", [1, one]) for one in range(250)))
        told = missed = 0
        while told + missed < 750:
            line = await stream.line()
            told += len(line["rows"])
            missed += line["missed"]
            assert len(line["rows"]) <= 200
        assert told + missed == 750
        stream.writer.close()


async def test_a_hung_browser_holds_nothing_and_slows_no_call() -> None:
    async with with_console(api()) as ends, connect(ends.serving.urls[0]) as peer:
        narrow = socket.socket()
        narrow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        narrow.setblocking(False)
        await asyncio.get_running_loop().sock_connect(narrow, ("127.0.0.1", ends.port))
        reader, writer = await asyncio.open_connection(sock=narrow, limit=1024)
        writer.write(ends.request("/api/feed"))
        await reader.readuntil(b"\r\n\r\n")
        writer.transport.pause_reading()  # type: ignore[attr-defined]  # it reads nothing more
        ends.console._feed._interval = 0.01  # the buffers of the system take megabytes
        (browser,) = ends.console._feed._browsers
        other = await Stream.open(ends)
        (served,) = ends.serving.served.values()

        def call_often() -> None:
            for _ in range(200):
                served.service.answer(b'{"jsonrpc":"2.0","method":"add","params":[1,2],"id":1}')  # type: ignore[attr-defined]

        async with asyncio.timeout(60):
            while browser.reply.writable or not browser._missed:
                call_often()
                await other.line()  # which goes on
        assert browser._size <= QUEUED
        assert sum(len(one) for one in browser._rows) <= QUEUED
        before = browser._missed
        for _ in range(2):
            call_often()
            await other.line()
        assert await peer.call("add", [1, 2]) == 3
        assert browser._missed > before
        assert browser._size <= QUEUED
        writer.transport.abort()
        other.writer.close()


async def test_too_many_browsers() -> None:
    async with with_console(api()) as ends:
        streams = [await Stream.open(ends) for _ in range(BROWSERS)]
        answer = await ends.send(ends.request("/api/feed"))
        assert (answer.status, answer.headers["retry-after"]) == (503, ["5"])
        streams[0].writer.close()
        await until(lambda: len(ends.console._feed) < BROWSERS)
        (await Stream.open(ends)).writer.close()
        for one in streams:
            one.writer.close()


async def test_nothing_is_read_without_a_browser_and_all_end_with_the_console() -> None:
    async with with_console(api()) as ends:
        assert ends.console._feed._work is None
        stream = await Stream.open(ends)
        await stream.line()
    assert (await stream.reader.read()).endswith(b"0\r\n\r\n")
    stream.writer.close()


# -- the conflation by itself


class Reply:
    """A reply whose reader stops and goes on."""

    def __init__(self) -> None:
        self.gone: Callable[[], None] | None = None
        self.resumed: Callable[[], None] | None = None
        self.doubted: Callable[[], None] | None = None
        self.writable = True
        self.lines: list[dict[str, Any]] = []
        self.sizes: list[int] = []

    def respond(self, status: int, headers: object = (), body: bytes = b"") -> None: ...
    def reject(self, status: int, reason: str) -> None: ...
    def start(self, status: int, headers: object = ()) -> None: ...
    def finish(self, chunk: bytes = b"") -> None: ...

    def write(self, chunk: bytes) -> None:
        self.lines.append(msgspec.json.decode(chunk))
        self.sizes.append(len(chunk))


class Ticks:
    """A source that says what it is given."""

    def __init__(self) -> None:
        self.number = 0
        self.failing = False
        self.read = asyncio.Semaphore(0)

    async def tick(self, after: Mapping[str, int]) -> dict[str, Tick]:
        await self.read.acquire()
        if self.failing:
            raise OSError("gone")
        rows = [
            EndedCall(
                seq=one, id=f"{one}", time=1.0, ended=2.0 + one, ms=1.0, service="s", method="m" * 900, kind="request",
                outcome="result",
            )
            for one in range(self.number, self.number + 50)
        ]  # fmt: skip
        self.number += 50
        return {"": Tick(seq=self.number, in_flight=0, errors=0, ended=self.number, calls=[], rows=rows, missed=0)}


async def test_a_slow_browser_is_told_what_it_missed() -> None:
    ticks, reply = Ticks(), Reply()
    feed = Feed(ticks, interval=0)
    assert feed.open(reply, (), parse_filter("")) is not None
    ticks.read.release()
    await until(lambda: len(reply.lines) == 1)
    reply.writable = False
    for _ in range(9):
        ticks.read.release()
    await until(lambda: ticks.number == 500)
    reply.writable = True
    ticks.read.release()
    await until(lambda: len(reply.lines) == 2)
    first, late = reply.lines
    assert (len(first["rows"]), first["missed"]) == (50, 0)
    assert late["missed"] + len(late["rows"]) == 500
    assert late["missed"] > 400
    assert max(reply.sizes) <= QUEUED + 1024
    feed.close()


async def test_a_source_that_fails_ends_no_stream(caplog: pytest.LogCaptureFixture) -> None:
    ticks, reply = Ticks(), Reply()
    feed = Feed(ticks, interval=0)
    feed.open(reply, (), parse_filter(""))
    ticks.failing = True
    ticks.read.release()
    await until(lambda: "could not be read" in caplog.text)
    ticks.failing = False
    ticks.read.release()
    await until(lambda: any(one["rows"] for one in reply.lines))
    feed.close()
