"""WebSocket peers that are gone, read nothing, or send frames without end. Frames are made by hand, the mask being
0."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest

from dragoman import Limits, connect, serve
from dragoman.channel import Broken
from dragoman.rpc.servable import ServableService

from .conftest import PATIENCE, Serve, heard, until
from .service import Counts, faulty

MIB = 1024 * 1024
HANDSHAKE = (
    b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)
TEXT, CONTINUED, CLOSE = 1, 0, 8
TOO_BIG = 1009


def port_of(url: str) -> int:
    """The port of a URL."""
    return int(url.rstrip("/").rsplit(":", 1)[1])


def frame(payload: bytes, opcode: int = TEXT, *, final: bool = True, length: int | None = None) -> bytes:
    """A frame; `length` is what it claims."""
    size = len(payload) if length is None else length
    return struct.pack("!BBQL", (0x80 if final else 0) | opcode, 0x80 | 127, size, 0) + payload


def request(id: int, method: str, *params: object) -> bytes:
    """A call as a frame."""
    return frame(msgspec.json.encode({"jsonrpc": "2.0", "method": method, "params": params, "id": id}))


@asynccontextmanager
async def shaken(port: int) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A socket after the handshake."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=MIB)
    writer.write(HANDSHAKE)
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")
    try:
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


@pytest.mark.parametrize("kind", ["one frame", "fragments"])
async def test_a_message_without_end_is_cut_off_and_costs_no_memory(kind: str, serving: Serve) -> None:
    server = serving("ws://127.0.0.1:0")
    before = await server.census()
    memory = highest = server.rss
    async with shaken(server.port) as (reader, writer):
        if kind == "one frame":
            writer.write(frame(b"", length=1024 * MIB))
        piece = b"x" * MIB
        saying = asyncio.ensure_future(heard(reader))
        with contextlib.suppress(ConnectionError):
            async with asyncio.timeout(PATIENCE):
                for sent in range(1024):  # what comes after the close frame is read and dropped, or it would be lost
                    opcode = CONTINUED if sent else TEXT
                    writer.write(piece if kind == "one frame" else frame(piece, opcode, final=False))
                    await writer.drain()
                    highest = max(highest, server.rss)
        said = await saying
        assert said[:1] == bytes([0x80 | CLOSE])
        assert struct.unpack("!H", said[2:4]) == (TOO_BIG,)
    assert highest - memory < 40 * MIB
    async with connect(server.url) as peer:
        assert await peer.call("subtract", [42, 23]) == 19
    await server.settles_at(before)


async def test_a_reader_that_stops_is_held_back_and_then_cut_off_and_the_others_are_not_harmed() -> None:
    limits = Limits(write_timeout=1.0, send_queue=256 * 1024)
    async with serve(faulty(), urls=["ws://127.0.0.1:0"], limits=limits) as serving:
        host = serving.served[""]
        assert isinstance(host, ServableService)
        async with shaken(port_of(serving.urls[0])) as (_, writer):
            await until(lambda: host.runner.peers)
            [slow] = host.runner.peers
            writer.transport.pause_reading()  # type: ignore[attr-defined]
            writer.write(b"".join(request(n, "text", MIB) for n in range(400)))
            await until(lambda: slow._channel is not None and not slow._channel.writable)
            async with connect(serving.urls[0]) as other:
                while slow._channel is not None:
                    assert await other.call("subtract", [42, 23]) == 19
                assert (await other.call("counted", result=Counts)).started < 300
        assert isinstance(slow._why, Broken)
        await until(lambda: not host.runner.runs)
        assert host.call_limit.in_flight == 0


async def test_two_hundred_peers_that_vanish_in_the_middle_of_a_frame(serving: Serve) -> None:
    server = serving("ws://127.0.0.1:0")
    before = await server.census()
    async with connect(server.url) as peer:
        for _ in range(200):
            wire = socket.create_connection(("127.0.0.1", server.port))
            wire.sendall(HANDSHAKE + request(1, "hang") + frame(b"x" * 1000, length=100_000))
            wire.recv(10)  # of the 101
            wire.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            wire.close()
        assert await peer.call("subtract", [42, 23]) == 19
        async with asyncio.timeout(PATIENCE):
            while (counts := await peer.call("counted", result=Counts)).cancelled < counts.started:
                pass
    await server.settles_at(before)
    assert server.errors() == ""


async def test_half_a_handshake_is_cut_off() -> None:
    limits = Limits(header_timeout=0.2)
    async with serve(faulty(), urls=["ws://127.0.0.1:0"], limits=limits) as serving:
        reader, writer = await asyncio.open_connection("127.0.0.1", port_of(serving.urls[0]))
        writer.write(HANDSHAKE[:-2])
        async with asyncio.timeout(PATIENCE):
            said = await reader.read()
        writer.close()
        await writer.wait_closed()
    assert said.startswith(b"HTTP/1.1 408 "), said
