"""WebSocket: how it ends, and what holds back a far end that does not read."""

from __future__ import annotations

import asyncio
import socket
import struct

import pytest
from websockets.asyncio.client import ClientConnection
from websockets.asyncio.server import ServerConnection
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.frames import Close

from dragoman.channel import Broken, Channel, Closed, Ended, Options
from dragoman.jsonrpc.limits import Limits
from dragoman.transports.http.websocket import WebSocket, dial, in_words

from ..ends import Echo, Recorder, options, until
from .cases import PATIENCE, answer
from .ends import reading, wire
from .socket_ends import dialled, handshake, library, library_server, serving

# -- endings --------------------------------------------------------------------------------------


async def failed(far: ClientConnection) -> Close:
    """The close frame that the library's end is given."""
    with pytest.raises(ConnectionClosed) as closed:
        await far.recv()
    assert closed.value.rcvd is not None
    return closed.value.rcvd


async def test_too_large() -> None:
    echo = Echo()
    async with serving(echo, options(message_size=1000)) as (_, url):
        async with library(url) as far:
            await far.send("x" * 1001)
            assert (await failed(far)).code == 1009
        why = await echo.ends[0].over()
        assert isinstance(why, Broken)
        assert "1009 message too big" in str(why)
        async with library(url) as far:
            await far.send(["x" * 600, "x" * 600])
            assert (await failed(far)).code == 1009
        assert "1009" in str(await echo.ends[1].over())


async def test_no_utf_8() -> None:
    echo = Echo()
    async with serving(echo) as (_, url):
        for message in (b"\xff", [b"\xc3", b"\xc3"], b"\xed\xa0\x80"):
            async with library(url) as far:
                await far.send(message, text=True)
                assert (await failed(far)).code == 1007
            why = await echo.ends[-1].over()
            assert isinstance(why, Broken)
            assert "1007 invalid frame payload data" in str(why)
            assert not echo.ends[-1].messages


async def test_broken_frames() -> None:
    echo = Echo()
    async with serving(echo) as (_, url):
        port = int(url.rpartition(":")[2])
        for frame in (b"\x81\x01x", b"\x83\x80\0\0\0\0", b"\x80\x80\0\0\0\0", b"\xc1\x80\0\0\0\0"):
            async with wire(port) as (reader, writer):
                writer.write(handshake())
                await answer(reader)
                writer.write(frame)
                assert (await reader.read())[2:4] == struct.pack("!H", 1002)
            assert "1002 protocol error" in str(await echo.ends[-1].over())


async def test_the_far_end_is_lost() -> None:
    echo = Echo()
    async with serving(echo) as (_, url):
        for linger in (0, 1):
            reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
            writer.write(handshake())
            await answer(reader)
            sock = writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", linger, 0))
            writer.close()
            await until(lambda: echo.ends)
            why = await echo.ends[-1].over()
            assert isinstance(why, Broken)
            with pytest.raises(Broken):
                echo.ends[-1].channel.send(b"late")
            with pytest.raises(Broken):
                await echo.ends[-1].channel.flush()
            await echo.ends[-1].channel.close()


async def test_closing_from_the_serving_end() -> None:
    echo = Echo()
    async with serving(echo) as (listener, url):
        async with library(url) as far:
            await far.send("1")
            await far.recv()
            end = echo.ends[0]
            end.channel.send(b"last")
            await end.channel.close()
            assert isinstance(end.why, Closed)
            assert await far.recv() == "last"
            assert (await failed(far)).code == 1000
            await end.channel.close()
        assert not listener.wires
        async with dialled(url) as near:
            near.channel.send(b"1")
            await near.got(1)
            await echo.ends[1].channel.close()
            assert isinstance(await near.over(), Ended)


async def test_aborting() -> None:
    echo = Echo()
    async with serving(echo) as (_, url), dialled(url) as end:
        end.channel.send(b"1")
        await end.got(1)
        echo.ends[0].channel.abort(Broken("enough"))
        assert str(await echo.ends[0].over()) == "enough"
        assert isinstance(await end.over(), Broken)


async def test_an_ending_before_it_is_opened() -> None:
    """A channel that was lost before it was opened still tells its end, and what came is delivered."""

    async def hasty(far: ServerConnection) -> None:
        await far.send("1")
        far.transport.abort()

    async with library_server(hasty) as url:
        channel = await dial(url, Options())
        end = Recorder(channel)
        await end.over()
        await channel.close()
        assert isinstance(end.why, Broken)


async def test_a_far_end_that_never_says_goodbye(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dragoman.transports.http.websocket._CLOSE_TIMEOUT", 0.05)
    echo = Echo()
    async with serving(echo) as (_, url), wire(int(url.rpartition(":")[2])) as (reader, writer):
        writer.write(handshake())
        await answer(reader)
        await until(lambda: echo.ends)
        async with asyncio.timeout(PATIENCE):
            await echo.ends[0].channel.close()
        assert isinstance(echo.ends[0].why, Closed)


# -- backpressure ---------------------------------------------------------------------------------


async def fill(channel: Channel, message: bytes) -> None:
    """Send until the buffers of both ends' systems take no more, and the channel ends."""
    while True:
        channel.send(message)
        await channel.flush()


async def test_a_reader_that_stops() -> None:
    echo = Echo()
    with_options = options(send_queue=50_000, write_timeout=0.1)
    async with serving(echo, with_options) as (_, url), library(url) as far:
        await far.send("1")
        await far.recv()
        far.transport.pause_reading()
        channel: Channel = echo.ends[0].channel
        with pytest.raises(Broken):
            await fill(channel, b"x" * 50_000)
        why = await echo.ends[0].over()
        assert isinstance(why, Broken)
        assert "write_timeout" in str(why)
        far.transport.abort()


async def test_a_reader_that_goes_on() -> None:
    echo = Echo()
    async with serving(echo, options(send_queue=50_000)) as (_, url), library(url) as far:
        await far.send("1")
        await far.recv()
        far.transport.pause_reading()
        channel = echo.ends[0].channel
        count = 0
        while channel.writable:
            channel.send(b"x" * 50_000)
            count += 1
            await asyncio.sleep(0)
        flushed = asyncio.create_task(channel.flush())
        far.transport.resume_reading()
        for _ in range(count):
            await far.recv()
        async with asyncio.timeout(PATIENCE):
            await flushed
        assert channel.writable
        assert echo.ends[0].resumptions == 1


async def test_pings_of_a_far_end_that_does_not_read() -> None:
    """They are dropped, not piled up."""
    echo = Echo()
    async with (
        serving(echo, options(send_queue=50_000)) as (_, url),
        wire(int(url.rpartition(":")[2]), narrow=True) as (reader, writer),
    ):
        writer.write(handshake())
        await answer(reader)
        await until(lambda: echo.ends)
        reading(writer, False)
        channel = echo.ends[0].channel
        assert isinstance(channel, WebSocket)
        ping = b"\x89\xfd\0\0\0\0" + b"p" * 125
        sent = 0
        while channel.writable:
            writer.write(ping * 100)
            await writer.drain()
            await asyncio.sleep(0)
            sent += 100
        for _ in range(20):
            writer.write(ping * 100)
            await writer.drain()
            sent += 100
        writer.write(b"\x81\x81\0\0\0\0x")
        await echo.ends[0].got(1)
        reading(writer, True)
        received = 0
        tail = b""
        async with asyncio.timeout(PATIENCE):
            while not tail.endswith(b"\x81\x01x"):
                tail = tail[-2:] + (data := await reader.read(1 << 16))
                received += len(data)
        assert received < (sent - 1000) * 127


def test_close_codes_in_words() -> None:
    assert in_words(Close(1001, "")) == "1001 going away"
    assert in_words(Close(1006, "")) == "1006 abnormal closure"
    assert in_words(Close(4000, "a\nb")) == "4000 a code of its own: a\\nb"


async def test_refused_by_the_library() -> None:
    async with serving(Echo(), Options(limits=Limits(channels=1))) as (_, url), library(url):
        with pytest.raises(InvalidStatus):
            await library(url)
