"""Frames are cheap to send and not to read: fragments are bounded, a turn of the loop takes no more than its share."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
from collections.abc import AsyncIterator

import pytest

from dragoman.channel import Broken
from dragoman.transports.http.websocket import FRAGMENTS, FRAMES, SLICE
from tests.transports.ends import until

from .cases import PATIENCE
from .ends import served, wire
from .socket_ends import dialled, handshake, serving

PING = b"\x89\x80\0\0\0\0"


def frame(opcode: int, data: bytes = b"", *, fin: bool = False, masked: bool = True) -> bytes:
    head = bytes([fin << 7 | opcode, masked << 7 | len(data)])
    return head + (b"\0\0\0\0" if masked else b"") + data


@contextlib.asynccontextmanager
async def raw() -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A WebSocket to our serving end, byte by byte."""
    async with serving(served()[""]) as (listener, _), wire(int(listener.url.rpartition(":")[2])) as (reader, writer):
        writer.write(handshake())
        await reader.readuntil(b"\r\n\r\n")
        yield reader, writer


@pytest.mark.parametrize("data", [b"", b" "], ids=["empty", "one byte"])
async def test_a_message_in_too_many_fragments_ends_its_connection(data: bytes) -> None:
    async with raw() as (reader, writer):
        writer.write(frame(1, data) + frame(0, data) * (2 * FRAGMENTS))
        async with asyncio.timeout(PATIENCE):
            got = await reader.read()
    assert got[:1] == b"\x88"
    assert int.from_bytes(got[2:4], "big") == 1008
    assert b"fragments" in got


async def test_a_long_message_may_have_many_fragments() -> None:
    call = b'{"jsonrpc":"2.0","method":"echo","params":["%b"],"id":1}' % (b"x" * 100 * FRAGMENTS * 2)
    pieces = [call[at : at + 100] for at in range(0, len(call), 100)]
    async with raw() as (reader, writer):
        writer.write(frame(1, pieces[0]) + b"".join(frame(0, one) for one in pieces[1:]) + frame(0, fin=True))
        async with asyncio.timeout(PATIENCE):
            assert b'"result"' in await reader.readuntil(b'"id":1}')


async def test_the_calling_end_is_bounded_as_well_and_closes_at_once() -> None:
    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        start = head.lower().index(b"sec-websocket-key: ") + len(b"sec-websocket-key: ")
        writer.write(_accepting(head[start:].partition(b"\r\n")[0]))
        writer.write(frame(1, masked=False) + frame(0, masked=False) * (2 * FRAGMENTS))
        with contextlib.suppress(ConnectionError):
            while await reader.read(1024):  # it never ends its side by itself
                pass
        writer.close()

    server = await asyncio.start_server(flood, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        async with asyncio.timeout(5), dialled(f"ws://127.0.0.1:{port}/") as end:
            await until(lambda: bool(end.endings))
        assert isinstance(end.endings[0], Broken)
        assert "fragments" in str(end.endings[0])


def _accepting(key: bytes) -> bytes:
    accept = base64.b64encode(hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())
    lines = (b"HTTP/1.1 101 Switching Protocols", b"Upgrade: websocket", b"Connection: Upgrade")
    return b"\r\n".join((*lines, b"Sec-WebSocket-Accept: " + accept, b"", b""))


async def test_many_frames_wait_for_the_next_turn_and_none_is_lost() -> None:
    count = 4 * (FRAMES + SLICE // len(PING))
    async with raw() as (reader, writer):
        call = b'{"jsonrpc":"2.0","method":"get_data","id":1}'
        writer.write(PING * count + frame(1, call, fin=True))
        async with asyncio.timeout(PATIENCE):
            assert b'"result":["hello",5]' in await reader.readuntil(b'"id":1}')
