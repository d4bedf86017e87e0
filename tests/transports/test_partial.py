"""Messages that come in part: on each wire of a server they end in time, and together they hold no more than
allowed."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator, Callable

import pytest

from dragoman.channel import Broken, Listener
from dragoman.schemes import listen

from .ends import PATIENCE, Echo, options, until

KIB = 1024


def upgraded(part: bytes) -> bytes:
    """A WebSocket's handshake, and behind it a part of its first message."""
    lines = b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    key = b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
    return b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n" + lines + key + part


def frame(size: int, fin: bool, length: int) -> bytes:
    return struct.pack("!BBQL", 0x80 * fin | 1, 0x80 | 127, length, 0) + b" " * size


BEGINNINGS: dict[str, Callable[[int], bytes]] = {
    "tcp://127.0.0.1:0": lambda size: b" " * size,
    "tcp://127.0.0.1:0?framing=json": lambda size: b"[" + b" " * size,
    "tcp://127.0.0.1:0?framing=content-length": lambda size: b"Content-Length: 1000000\r\n\r\n" + b" " * size,
    "ws://127.0.0.1:0/frame": lambda size: upgraded(frame(size, True, 1_000_000)),
    "ws://127.0.0.1:0/fragments": lambda size: upgraded(frame(size, False, size)),
}
BODY = "http://127.0.0.1:0"
HEAD = b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 1000000\r\n\r\n"
ALL = BEGINNINGS | {BODY: lambda size: HEAD + b" " * size}


@contextlib.asynccontextmanager
async def serving(url: str, **limits: object) -> AsyncIterator[tuple[Echo, Listener]]:
    echo = Echo()
    listener = await listen(url.replace("/frame", "/").replace("/fragments", "/"), {"": echo}, options(**limits))
    try:
        yield echo, listener
    finally:
        await listener.close()
        await echo.drain(1)
        async with asyncio.timeout(PATIENCE):
            await listener.closed()


async def begun(listener: Listener, sent: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    port = int(listener.url.partition("?")[0].rstrip("/").rpartition(":")[2])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(sent)
    return reader, writer


async def rest(reader: asyncio.StreamReader) -> bytes:
    """All that still comes; a reset is an end too."""
    said = b""
    with contextlib.suppress(ConnectionError):
        async with asyncio.timeout(PATIENCE):
            while piece := await reader.read(65_536):
                said += piece
    return said


@pytest.mark.parametrize("url", BEGINNINGS)
async def test_a_message_without_end_is_cut_off_in_time(url: str) -> None:
    async with serving(url, message_timeout=0.2) as (echo, listener):
        far = [await begun(listener, BEGINNINGS[url](100 * KIB)) for _ in range(20)]
        for reader, writer in far:
            await rest(reader)
            writer.close()
        await until(lambda: len(echo.ends) == 20 and all(end.endings for end in echo.ends))
        for end in echo.ends:
            assert isinstance(end.why, Broken)
            assert "within 0.2 s (limit message_timeout)" in str(end.why)


async def test_messages_that_come_slowly_but_end_are_not_a_fault() -> None:
    """Each piece ends a message and begins the next: something has always come in part, but never one for long."""
    async with serving("tcp://127.0.0.1:0", message_timeout=1.0) as (echo, listener):
        reader, writer = await begun(listener, b"[1")
        loop = asyncio.get_running_loop()
        over = loop.time() + 2.5
        count = 0
        while loop.time() < over:
            writer.write(b"]\n[1")
            assert await reader.readline() == b"[1]\n"
            count += 1
            await asyncio.sleep(0.01)
        assert len(echo.ends[0].messages) == count
        assert not echo.ends[0].endings
        writer.close()


@pytest.mark.parametrize("url", ALL)
async def test_all_parts_together_are_bounded_and_the_largest_goes_first(url: str) -> None:
    limits = {"partial_bytes": 1000 * KIB, "message_size": 1_000_000, "message_timeout": None}
    beginning = ALL[url]
    async with serving(url, **limits) as (echo, listener):
        small = [await begun(listener, beginning(10 * KIB)) for _ in range(5)]
        large = [await begun(listener, beginning(400 * KIB)) for _ in range(4)]
        gone = [asyncio.ensure_future(rest(reader)) for reader, _ in large]
        staying = [asyncio.ensure_future(rest(reader)) for reader, _ in small]
        await asyncio.wait(gone, return_when=asyncio.FIRST_COMPLETED, timeout=PATIENCE)
        await until(lambda: sum(one.done() for one in gone) == 2)  # two of four fit
        assert not any(one.done() for one in staying)
        if url == BODY:
            said = next(one.result() for one in gone if one.done())
            assert said.startswith(b"HTTP/1.1 503 ")
            assert b"partial_bytes" in said
            assert b"Retry-After" in said
        else:
            assert any("limit partial_bytes" in str(end.why) for end in echo.ends if end.endings)
        for _, writer in (*small, *large):
            writer.close()
        await asyncio.wait((*gone, *staying))


@pytest.mark.parametrize("url", ["tcp://127.0.0.1:0", "tcp://127.0.0.1:0?framing=json"])
async def test_what_was_counted_is_let_go(url: str) -> None:
    """Message by message, far more than may be held at once."""
    async with serving(url, partial_bytes=100 * KIB, message_size=100 * KIB) as (echo, listener):
        _, writer = await begun(listener, b"")
        message = b"[" + b" " * 90_000 + b"]\n"
        await until(lambda: echo.ends)
        for count in range(10):
            writer.write(message[:50_000])
            await writer.drain()
            writer.write(message[50_000:])
            await echo.ends[0].got(count + 1)
        for _ in range(10):
            _, gone = await begun(listener, message[:50_000])
            await until(lambda: len(echo.ends) > 1)
            gone.close()
            await until(lambda: echo.ends[-1].is_finished or echo.ends[-1].endings)
        assert not echo.ends[0].endings
        writer.close()
