from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import socket
import ssl
import stat
import struct
import sys
import tracemalloc
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import trustme

from dragoman.channel import Broken, Caller, Channel, Closed, Ended, Listener, Options
from dragoman.jsonrpc.errors import LocalError
from dragoman.jsonrpc.framing import framing
from dragoman.jsonrpc.limits import MIB, Limits
from dragoman.schemes import dial, listen
from dragoman.transports.stream.channel import StreamChannel
from tests.loops import RUNNERS

from ..ends import PATIENCE, Echo, Recorder, options, until

Main = Callable[[], Coroutine[Any, Any, None]]


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def server_tls(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost", "127.0.0.1").configure_cert(context)
    return context


@pytest.fixture
def client_tls(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context


@contextlib.asynccontextmanager
async def served(url: str, opts: Options | None = None, echo: Echo | None = None) -> Any:
    """A listener and what it serves; drained and released at the end."""
    echo = echo or Echo()
    listener = await listen(url, {"": echo}, opts or Options())
    try:
        yield listener, echo
    finally:
        await listener.close()
        await echo.drain(1)
        async with asyncio.timeout(PATIENCE):
            await listener.closed()


async def raw(listener: Listener) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A far end of asyncio's own, which knows nothing of channels."""
    url = listener.url.partition("?")[0]
    if url.startswith("unix:"):
        return await asyncio.open_unix_connection(url.removeprefix("unix:"))
    return await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))


async def shut(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


def frozen(listener: Listener) -> socket.socket:
    """A far end that does nothing by itself."""
    return socket.create_connection(("127.0.0.1", int(listener.url.rpartition(":")[2])))


# -- the usual ------------------------------------------------------------------------------------


@pytest.mark.parametrize("run", RUNNERS)
@pytest.mark.parametrize("kind", ["tcp", "tls", "unix", "tcp content-length", "tcp6"])
def test_there_and_back(
    run: Callable[..., None],
    kind: str,
    tmp_path: Path,
    server_tls: ssl.SSLContext,
    client_tls: ssl.SSLContext,
) -> None:
    url = {
        "tcp": "tcp://127.0.0.1:0",
        "tls": "tls://localhost:0",
        "unix": f"unix:{tmp_path}/s",
        "tcp content-length": "tcp://localhost:0?framing=content-length",
        "tcp6": "tcp://[::1]:0",
    }[kind]
    if kind == "tcp6" and not has_ipv6():
        pytest.skip("this machine has no IPv6")

    async def main() -> None:
        async with served(url, Options(server_tls=server_tls)) as (listener, echo):
            channel = await dial(listener.url, Options(client_tls=client_tls))
            assert isinstance(channel, Channel)
            assert channel.duplex
            assert channel.writable
            assert channel.caller.scheme == kind.split()[0].removesuffix("6")
            assert channel.caller.tls == (kind == "tls")
            end = Recorder(channel)
            for i in range(1000):
                channel.send(b'{"n": %d}' % i)
            await channel.flush()
            assert await end.got(1000) == [b'{"n": %d}' % i for i in range(1000)]
            big = b'"' + b"x" * 3_000_000 + b'"'
            channel.send(big)
            assert (await end.got(1001))[-1] == big
            far = echo.ends[0]
            assert far.channel.caller.tls == (kind == "tls")
            assert far.channel.caller.remote
            far.channel.send(b'"from there"')
            assert (await end.got(1002))[-1] == b'"from there"'
            await channel.close()
            await channel.close()
            assert isinstance(end.why, Closed)
            assert isinstance(await far.over(), Ended)
            with pytest.raises(Closed):
                channel.send(b"1")
            with pytest.raises(Closed):
                await channel.flush()

    run(main())


def has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


@pytest.mark.parametrize("kind", ["tcp", "tls", "unix"])
async def test_the_far_end_closes(
    kind: str, tmp_path: Path, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext
) -> None:
    url = f"unix:{tmp_path}/s" if kind == "unix" else f"{kind}://localhost:0"
    async with served(url, Options(server_tls=server_tls)) as (listener, echo):
        channel = await dial(listener.url, Options(client_tls=client_tls))
        end = Recorder(channel)
        end.on_finished = lambda end: closing.append(asyncio.ensure_future(end.channel.close()))
        closing: list[asyncio.Future[None]] = []
        channel.send(b"1")
        await end.got(1)
        await echo.ends[0].channel.close()
        assert isinstance(await end.over(), Ended)
        assert isinstance(echo.ends[0].why, Closed)
        await asyncio.gather(*closing)
        await channel.close()


class Tape:
    """A wire that writes down what it is told to write."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.writes.append(data)

    def is_closing(self) -> bool:
        return False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def pause_reading(self) -> None:
        pass

    def is_reading(self) -> bool:
        return True


class Tub:
    """A wire with a buffer and asyncio's flow control. `pour` lets bytes leave; it lets go of its channel at `close`
    unless it is `stuck`."""

    def __init__(self, *, stuck: bool = False, **limits: Any) -> None:
        self.buffered = 0
        self.at_eof: int | None = None
        """The bytes that had not left when the end was said."""
        self.was_aborted = False
        self._stuck = stuck
        self._reading = True
        self._high, self._low = 64 * 1024, 16 * 1024
        self._paused = self._lost = False
        self.channel = StreamChannel(framing("newline", Limits()), Limits(**limits), Caller())
        self.channel.connection_made(self)  # type: ignore[arg-type]

    def write(self, data: bytes) -> None:
        self.buffered += len(data)
        self._pause()

    def _pause(self) -> None:
        if self.buffered > self._high and not self._paused:
            self._paused = True
            self.channel.pause_writing()

    def pour(self, count: int) -> None:
        self.buffered -= count
        if self._paused and self.buffered <= self._low:
            self._paused = False
            self.channel.resume_writing()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = 64 * 1024 if high is None else high
        self._low = self._high // 4 if low is None else low
        self._pause()

    def get_write_buffer_size(self) -> int:
        return self.buffered

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.at_eof = self.buffered

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True

    def is_reading(self) -> bool:
        return self._reading

    def is_closing(self) -> bool:
        return False

    def close(self) -> None:
        if not self._stuck:
            self._lose()

    def abort(self) -> None:
        self.was_aborted = True
        self._lose()

    def _lose(self) -> None:
        if not self._lost:
            self._lost = True
            self.channel.connection_lost(None)


async def test_the_end_is_said_after_the_last_byte_has_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dragoman.transports.stream.channel._LINGER", 0.0)
    tub = Tub()
    end = Recorder(tub.channel)
    tub.channel.send(b"1")
    closing = asyncio.ensure_future(tub.channel.close())
    await asyncio.sleep(0)
    with pytest.raises(Closed):
        tub.channel.flush().send(None)  # at once, though bytes are left
    assert (tub.buffered, tub.at_eof) == (2, None)
    tub.pour(1)
    await asyncio.sleep(0)
    assert (tub.buffered, tub.at_eof) == (1, None)
    tub.pour(1)
    await closing
    assert (tub.at_eof, tub.was_aborted) == (0, False)
    assert isinstance(end.why, Closed)


async def test_a_far_end_that_takes_a_little_at_a_time_does_not_hold_close_up() -> None:
    tub = Tub(write_timeout=0.1)
    Recorder(tub.channel)
    tub.channel.send(b"x" * 1_000_000)

    async def sip() -> None:
        while True:
            tub.pour(1)
            await asyncio.sleep(0.01)

    sipping = asyncio.ensure_future(sip())
    async with asyncio.timeout(PATIENCE):
        await tub.channel.close()
    sipping.cancel()
    assert tub.was_aborted
    assert tub.at_eof is None


async def test_a_wire_that_does_not_let_go_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_LINGER", "_RELEASE"):
        monkeypatch.setattr(f"dragoman.transports.stream.channel.{name}", 0.01)
    tub = Tub(stuck=True)
    end = Recorder(tub.channel)
    async with asyncio.timeout(PATIENCE):
        await tub.channel.close()
    assert tub.was_aborted
    assert isinstance(end.why, Closed)


async def test_what_is_sent_in_one_turn_goes_out_in_one_write() -> None:
    tape = Tape()
    channel = StreamChannel(framing("newline", Limits()), Limits(), Caller())
    channel.connection_made(tape)  # type: ignore[arg-type]
    Recorder(channel, lambda end, message: end.channel.send(message))
    channel.data_received(b"1\n2\n3\n")
    assert tape.writes == [b"1\n2\n3\n"]  # at once, at the end of the read that brought them
    for i in range(4, 7):
        channel.send(b"%d" % i)
    assert len(tape.writes) == 1
    await asyncio.sleep(0)
    assert tape.writes[1:] == [b"4\n5\n6\n"]
    for _ in range(10):
        channel.send(b"x" * 30_000)
    assert len(tape.writes) > 2  # but not without end
    await asyncio.sleep(0)
    before = len(tape.writes)
    for i in range(3):
        channel.send(b"%d" % i)
    await asyncio.sleep(0)
    assert tape.writes[before:] == [b"0\n1\n2\n"]  # what was much before is not counted again
    channel.connection_lost(None)


async def test_what_came_before_open_is_kept() -> None:
    channel = StreamChannel(framing("newline", Limits()), Limits(), Caller())
    channel.connection_made(Tape())  # type: ignore[arg-type]
    channel.data_received(b"1\n2")
    channel.data_received(b"2\n3")
    channel.eof_received()
    end = Recorder(channel)
    assert not end.messages
    assert await end.got(3) == [b"1", b"22", b"3"]
    assert end.is_finished
    channel.connection_lost(None)
    assert isinstance(end.why, Ended)


async def test_what_came_before_open_is_kept_when_the_wire_is_gone_already() -> None:
    for late in (True, False):
        channel = StreamChannel(framing("newline", Limits()), Limits(), Caller())
        channel.connection_made(Tape())  # type: ignore[arg-type]
        channel.data_received(b"1\n2\n")
        if late:
            channel.connection_lost(None)
        end = Recorder(channel)
        if not late:
            channel.connection_lost(None)
        assert isinstance(await end.over(), Ended)
        assert end.messages == [b"1", b"2"]


async def test_nothing_is_read_before_open() -> None:
    tub = Tub()
    assert not tub.is_reading()
    Recorder(tub.channel)
    assert tub.is_reading()
    tub.abort()


async def test_nothing_is_taken_after_a_stream_that_lost_its_frames() -> None:
    channel = StreamChannel(framing("content-length", Limits()), Limits(), Caller())
    channel.connection_made(Tape())  # type: ignore[arg-type]
    end = Recorder(channel)
    finished: list[Recorder] = []
    end.on_finished = finished.append
    channel.data_received(b"X: " + b"x" * 20_000)
    channel.data_received(b"\r\n\r\nContent-Length: 1\r\n\r\n1")
    assert (end.messages, len(end.refusals), len(finished)) == ([], 1, 1)
    channel.connection_lost(None)
    assert (type(end.why), end.why and end.why.reason) == (Ended, "hung_up")


# -- what far ends do -----------------------------------------------------------------------------


async def test_a_byte_at_a_time() -> None:
    async with served("tcp://127.0.0.1:0?framing=content-length") as (listener, _):
        reader, writer = await raw(listener)
        for byte in b"Content-Length: 2\r\n\r\n42":
            writer.write(bytes([byte]))
            await writer.drain()
        assert await reader.readexactly(23) == b"Content-Length: 2\r\n\r\n42"
        await shut(writer)


@pytest.mark.parametrize("run", RUNNERS)
@pytest.mark.parametrize("kind", ["tcp", "unix"])
def test_half_close_every_answer_comes(run: Callable[..., None], kind: str, tmp_path: Path) -> None:
    """End of file is the end of the questions, not of the answers, even of those that take their time."""
    url = f"unix:{tmp_path}/s" if kind == "unix" else "tcp://127.0.0.1:0"

    async def main() -> None:
        echo = Echo(on_message=lambda end, message: None, closes=False)
        async with served(url, echo=echo) as (listener, _):
            reader, writer = await raw(listener)
            writer.writelines([b"%d\n" % i for i in range(99)])
            writer.write(b"99")
            writer.write_eof()
            await until(lambda: echo.ends)
            await echo.ends[0].until(lambda end: end.is_finished)
            for message in await echo.ends[0].got(100):
                echo.ends[0].channel.send(message)
            await echo.ends[0].channel.close()
            assert isinstance(echo.ends[0].why, Ended)
            assert await reader.read() == b"".join(b"%d\n" % i for i in range(100))
            await shut(writer)

    run(main())


async def test_a_line_without_end_is_dropped_as_it_comes() -> None:
    async with served("tcp://127.0.0.1:0", options(message_size=MIB)) as (listener, echo):
        reader, writer = await raw(listener)
        chunk = b"x" * MIB
        writer.write(chunk)
        await writer.drain()
        gc.collect()
        tracemalloc.start()
        try:
            for _ in range(64):
                writer.write(chunk)
                await writer.drain()
            writer.write(b"\n1\n")
            assert await reader.readline() == b"1\n"
            assert tracemalloc.get_traced_memory()[1] < 4 * MIB
        finally:
            tracemalloc.stop()
        (refused,) = echo.ends[0].refusals
        assert refused.refusal.data == {"limit": "message_size", "allowed": MIB, "received": 65 * MIB}
        await shut(writer)


async def test_a_header_without_end_ends_the_channel() -> None:
    async with served("tcp://127.0.0.1:0?framing=content-length") as (listener, echo):
        reader, writer = await raw(listener)
        writer.write(b"X: " + b"x" * 20_000)
        assert await reader.read() == b""
        await until(lambda: echo.ends[0].endings)
        assert echo.ends[0].refusals[0].kind == "too_large"
        await shut(writer)


@pytest.mark.parametrize("run", RUNNERS)
def test_a_slow_reader_holds_the_sender_back(run: Callable[..., None]) -> None:
    async def main() -> None:
        async with served("tcp://127.0.0.1:0", options(send_queue=100_000)) as (listener, echo):
            reader, writer = await raw(listener)
            writer.write(b"1\n")
            assert await reader.readline() == b"1\n"
            writer.transport.pause_reading()  # type: ignore[attr-defined]
            end = echo.ends[0]
            sent = 1
            while end.channel.writable:
                end.channel.send(b"x" * 1000)
                sent += 1
                await asyncio.sleep(0)
            for _ in range(10):
                end.channel.send(b"y" * 1000)  # still nothing is dropped
            waiting = asyncio.ensure_future(end.channel.flush())
            await asyncio.sleep(0)
            assert not waiting.done()
            writer.transport.resume_reading()  # type: ignore[attr-defined]
            for _ in range(sent - 1):
                assert await reader.readline() == b"x" * 1000 + b"\n"
            for _ in range(10):
                assert await reader.readline() == b"y" * 1000 + b"\n"
            await waiting
            assert end.channel.writable
            assert end.resumptions == 1
            await shut(writer)

    run(main())


async def fill(channel: Channel) -> None:
    """Send until the buffers of both ends' systems take no more, and the channel ends."""
    while True:
        channel.send(b"x" * 1_000_000)
        await channel.flush()


@pytest.mark.parametrize("run", RUNNERS)
@pytest.mark.parametrize("kind", ["tcp", "tls"])
def test_a_stalled_write_breaks_the_channel(
    run: Callable[..., None], kind: str, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext
) -> None:
    async def main() -> None:
        limits = Limits(send_queue=1000, write_timeout=0.2)
        async with served(f"{kind}://localhost:0", Options(limits=limits, server_tls=server_tls)) as (listener, echo):
            port = int(listener.url.rpartition(":")[2])
            reader, writer = await asyncio.open_connection("localhost", port, ssl=client_tls if kind == "tls" else None)
            writer.write(b"1\n")
            assert await reader.readline() == b"1\n"
            writer.transport.pause_reading()  # type: ignore[attr-defined]
            end = echo.ends[0]
            with pytest.raises(Broken, match=r"took nothing of what was sent to it for 0.2 s"):
                await fill(end.channel)
            assert isinstance(await end.over(), Broken)
            writer.transport.abort()
            await shut(writer)

    run(main())


async def reset(listener: Listener, echo: Echo) -> None:
    """Reset the first channel from its far end; the loop has not heard of it when this returns."""
    with frozen(listener) as far:
        far.sendall(b"1\n")
        await until(lambda: echo.ends and echo.ends[0].messages)
        far.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


async def test_a_reset_is_broken() -> None:
    async with served("tcp://127.0.0.1:0") as (listener, echo):
        await reset(listener, echo)
        assert "broke: connection reset by the far end" in str(await echo.ends[0].over())
        assert isinstance(echo.ends[0].why, Broken)


# -- closing --------------------------------------------------------------------------------------


async def test_a_channel_whose_far_end_has_just_reset_it_is_closed() -> None:
    async with served("tcp://127.0.0.1:0") as (listener, echo):
        await reset(listener, echo)
        await echo.ends[0].channel.close()
        assert echo.ends[0].endings


@pytest.mark.parametrize("run", RUNNERS)
@pytest.mark.parametrize("kind", ["tcp", "tls", "unix"])
def test_what_was_sent_before_close_arrives(
    run: Callable[..., None], kind: str, tmp_path: Path, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext
) -> None:
    async def main() -> None:
        url = f"unix:{tmp_path}/s" if kind == "unix" else f"{kind}://localhost:0"
        echo = Echo(on_message=lambda end, message: None)
        async with served(url, Options(server_tls=server_tls), echo) as (listener, _):
            channel = await dial(listener.url, Options(client_tls=client_tls))
            Recorder(channel)
            for _ in range(20):
                channel.send(b"x" * 500_000)
            await channel.close()
            await echo.ends[0].over()
            assert len(echo.ends[0].messages) == 20

    run(main())


async def test_answers_survive_a_close_while_the_far_end_still_talks() -> None:
    """Closing a socket with unread bytes resets it; then what was on its way would be lost."""
    async with served("tcp://127.0.0.1:0", echo=Echo(on_message=lambda end, message: None)) as (listener, echo):
        reader, writer = await raw(listener)
        writer.write(b"1\n")
        await until(lambda: echo.ends and echo.ends[0].messages)
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(b"x" * 3_000_000)
        echo.ends[0].channel.send(b"y" * 3_000_000)
        closing = asyncio.ensure_future(echo.ends[0].channel.close())
        await asyncio.sleep(0)
        writer.transport.resume_reading()  # type: ignore[attr-defined]
        assert await reader.read() == b"y" * 3_000_000 + b"\n"
        await shut(writer)
        await closing
        assert len(echo.ends[0].messages) == 1


async def test_close_does_not_wait_for_ever_for_a_reader_that_stopped() -> None:
    async with served("tcp://127.0.0.1:0", options(send_queue=1000, write_timeout=0.2)) as (listener, echo):
        with frozen(listener):
            await until(lambda: echo.ends)
            echo.ends[0].channel.send(b"x" * 50_000_000)
            async with asyncio.timeout(PATIENCE):
                await asyncio.gather(echo.ends[0].channel.close(), echo.ends[0].channel.close())
            assert isinstance(echo.ends[0].why, Closed)


async def test_a_cancelled_close_lets_go() -> None:
    async with served("tcp://127.0.0.1:0") as (listener, echo):
        with frozen(listener):
            await until(lambda: echo.ends)
            echo.ends[0].channel.send(b"x" * 50_000_000)
            closing = asyncio.ensure_future(echo.ends[0].channel.close())
            await asyncio.sleep(0)
            closing.cancel()
            assert isinstance(await echo.ends[0].over(), Closed)


async def test_abort() -> None:
    async with served("tcp://127.0.0.1:0") as (listener, echo):
        reader, writer = await raw(listener)
        await until(lambda: echo.ends)
        end = echo.ends[0]
        end.channel.send(b"dropped")
        end.channel.abort(Broken("enough"))
        end.channel.abort(Broken("again"))
        assert not end.endings  # never from inside
        with pytest.raises(Broken, match="enough"):
            end.channel.send(b"1")
        assert str(await end.over()) == "enough"
        assert await reader.read() == b""
        await shut(writer)


async def test_nothing_is_delivered_after_a_close_in_the_middle_of_a_read() -> None:
    def stop(end: Recorder, message: bytes) -> None:
        end.channel.abort(Closed("enough"))

    async with served("tcp://127.0.0.1:0", echo=Echo(on_message=stop)) as (listener, echo):
        _, writer = await raw(listener)
        writer.write(b"1\n2\n3\n")
        await until(lambda: echo.ends)
        await echo.ends[0].over()
        assert echo.ends[0].messages == [b"1"]
        await shut(writer)


@contextlib.asynccontextmanager
async def unopened() -> Any:
    """A channel whose wire is there and that was not opened; what loops tell it, the test tells it."""
    ours, theirs = socket.socketpair()
    channel = StreamChannel(framing("newline", Limits()), Limits(), Caller(remote="there"))
    ours.setblocking(False)
    with theirs:
        await asyncio.get_running_loop().create_connection(lambda: channel, sock=ours)
        yield channel
        channel.abort(Closed("over"))
        await channel.gone()


@pytest.mark.parametrize("opened", ["after", "before"])
async def test_the_end_of_file_right_behind_early_data_is_told_after_them(opened: str) -> None:
    async with unopened() as channel:
        channel.data_received(b"1\n2")
        if opened == "before":  # and `open` has not caught up yet
            end = Recorder(channel)
        assert channel.eof_received()
        if opened == "after":
            end = Recorder(channel)
        assert end.messages == []
        await end.until(lambda end: end.is_finished)
        assert end.messages == [b"1", b"2"]


async def test_a_channel_that_the_last_message_ends_is_not_finished_as_well() -> None:
    async with unopened() as channel:
        channel.data_received(b"1\n2")
        channel.eof_received()

        def stop(end: Recorder, message: bytes) -> None:
            if message == b"2":
                end.channel.abort(Closed("enough"))

        end = Recorder(channel, stop)
        assert str(await end.over()) == "enough"
        assert end.messages == [b"1", b"2"]
        assert not end.is_finished


# -- doors ----------------------------------------------------------------------------------------


async def test_a_closed_listener_accepts_no_channel_and_ends_none() -> None:
    async with served("tcp://127.0.0.1:0") as (listener, _):
        channel = await dial(listener.url, Options())
        end = Recorder(channel)
        channel.send(b"1")
        await end.got(1)
        await listener.close()
        with pytest.raises(Broken, match=f"Cannot connect to {listener.url}: connection refused"):
            await dial(listener.url, Options())
        channel.send(b"2")
        await end.got(2)
        await channel.close()


async def test_limits_channels(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "dragoman.wire"):
        async with served("tcp://127.0.0.1:0", options(channels=1)) as (listener, echo):
            one = await raw(listener)
            await until(lambda: echo.ends)
            two = await raw(listener)
            with contextlib.suppress(ConnectionResetError):
                assert await two[0].read() == b""
            one[1].write(b"1\n")
            assert await one[0].readline() == b"1\n"
            await shut(one[1])
            await echo.ends[0].over()
            three = await raw(listener)
            three[1].write(b"1\n")
            assert await three[0].readline() == b"1\n"
            await shut(two[1])
            await shut(three[1])
    assert "turned away: limits.channels" in caplog.text


async def test_localhost_is_one_port_on_all_its_addresses() -> None:
    async with served("tcp://localhost:0") as (listener, _):
        assert listener.url.startswith("tcp://localhost:")
        port = int(listener.url.rpartition(":")[2])
        for _, _, _, _, address in socket.getaddrinfo("localhost", port, type=socket.SOCK_STREAM):
            with contextlib.suppress(OSError), socket.create_connection((str(address[0]), port)):
                break
        else:
            pytest.fail("no process listens")


async def test_every_address() -> None:
    async with served("tcp://:0") as (listener, _):
        assert listener.url.startswith("tcp://0.0.0.0:")
        await (await dial(listener.url.replace("0.0.0.0", "127.0.0.1"), Options())).close()


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("tcp://203.0.113.1:0", "that is not an address of this machine; take 127.0.0.1 .* every address of it"),
        ("tcp://no.such.name.invalid:0", "its name cannot be resolved"),
        ("unix:/no/such/folder/s", "there is no such folder"),
        (f"unix:/tmp/{'x' * 200}", "a socket's path may be 107 bytes long, this one is 205"),
    ],
)
async def test_a_door_that_cannot_be_opened_is_one_sentence(url: str, says: str) -> None:
    with pytest.raises(LocalError, match=f"Cannot listen on .*: {says}$") as caught:
        await listen(url, {"": Echo()}, Options())
    assert isinstance(caught.value, OSError)


async def test_a_port_in_use() -> None:
    async with served("tcp://127.0.0.1:0") as (listener, _):
        with pytest.raises(LocalError, match=f"Cannot listen on {listener.url}: the address is in use"):
            await listen(listener.url, {"": Echo()}, Options())


async def test_wrong_use() -> None:
    with pytest.raises(LocalError, match="a TLS server needs its certificate"):
        await listen("tls://127.0.0.1:0", {"": Echo()}, Options())
    with pytest.raises(LocalError, match=r"serves one object, not 2 .a, b."):
        await listen("tcp://127.0.0.1:0", {"a": Echo(), "b": Echo()}, Options())
    with pytest.raises(LocalError, match="no framing is called 'lines'; take one of newline, content-length, json"):
        await listen("tcp://127.0.0.1:0?framing=lines", {"": Echo()}, Options())
    with pytest.raises(LocalError, match="framng= means nothing here"):
        await dial("tcp://127.0.0.1:1?framng=newline", Options())


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("tcp://127.0.0.1:1", "connection refused"),
        ("tcp://no.such.name.invalid:1", "its name cannot be resolved"),
        ("unix:/no/such/socket", "there is no such file"),
    ],
)
async def test_a_missing_far_end(url: str, says: str) -> None:
    with pytest.raises(Broken, match=f"Cannot connect to {url}: {says}$"):
        await dial(url, Options())


# -- TLS ------------------------------------------------------------------------------------------


async def test_a_certificate_that_is_not_trusted(server_tls: ssl.SSLContext) -> None:
    async with served("tls://localhost:0", Options(server_tls=server_tls)) as (listener, echo):
        with pytest.raises(Broken, match="the certificate is not trusted"):
            await dial(listener.url, Options())
        assert not echo.ends


async def test_no_tls_there(client_tls: ssl.SSLContext) -> None:
    async with served("tcp://localhost:0") as (listener, _):
        impatient = Options(client_tls=client_tls, limits=Limits(call_timeout=0.2))
        with pytest.raises(Broken, match=r"Cannot connect to tls://localhost:[0-9]+: no answer in time"):
            await dial(listener.url.replace("tcp", "tls"), impatient)


async def test_garbage_for_a_handshake_is_one_line_at_debug(
    server_tls: ssl.SSLContext, client_tls: ssl.SSLContext, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, "dragoman.wire"):
        async with served("tls://localhost:0", Options(server_tls=server_tls)) as (listener, _):
            reader, writer = await raw(listener)
            writer.write(b"GET / HTTP/1.1\r\n\r\n")
            with contextlib.suppress(ConnectionResetError):
                await reader.read()
            await shut(writer)
            await until(lambda: [r for r in caplog.records if r.name == "dragoman.wire"])
            channel = await dial(listener.url, Options(client_tls=client_tls))  # and the next one is served
            end = Recorder(channel)
            channel.send(b"1")
            await end.got(1)
            await channel.close()
    (record,) = [r for r in caplog.records if r.name == "dragoman.wire"]
    assert "no handshake with 127.0.0.1" in record.getMessage()
    assert "\n" not in record.getMessage()
    assert record.exc_info is None
    assert not [r for r in caplog.records if r.levelno > logging.DEBUG]


async def test_a_handshake_that_does_not_come_is_cut_off(server_tls: ssl.SSLContext) -> None:
    limits = Limits(header_timeout=0.1, channels=1)
    async with served("tls://localhost:0", Options(server_tls=server_tls, limits=limits)) as (listener, _):
        reader, writer = await raw(listener)
        with contextlib.suppress(ConnectionResetError):
            assert await reader.read() == b""
        await shut(writer)


async def test_handshakes_count_as_channels_and_end_with_the_listener(server_tls: ssl.SSLContext) -> None:
    async with served("tls://localhost:0", Options(server_tls=server_tls, limits=Limits(channels=1))) as (listener, _):
        one = await raw(listener)
        two = await raw(listener)
        with contextlib.suppress(ConnectionResetError):
            assert await two[0].read() == b""
        await listener.close()
        with contextlib.suppress(ConnectionResetError):
            assert await one[0].read() == b""
        await shut(one[1])
        await shut(two[1])


# -- socket files ---------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [0o600, 0o660, 0o666])
async def test_permissions_hold(tmp_path: Path, mode: int) -> None:
    before = os.umask(0)
    try:
        async with served(f"unix:{tmp_path}/s", Options(mode=mode)):
            assert stat.S_IMODE((tmp_path / "s").stat().st_mode) == mode
    finally:
        assert os.umask(before) == 0  # as it was


async def test_a_stale_socket_is_replaced_and_a_live_one_is_not(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    assert path.exists()
    async with served(f"unix:{path}") as (listener, _):
        with pytest.raises(LocalError, match=f"Cannot listen on unix:{path}: the socket is in use"):
            await listen(f"unix:{path}", {"": Echo()}, Options())
        await (await dial(listener.url, Options())).close()
    assert not path.exists()


async def test_what_is_not_a_socket_is_never_removed(tmp_path: Path) -> None:
    path = tmp_path / "precious"
    path.write_text("data")
    with pytest.raises(LocalError, match="a file is there that is not a socket"):
        await listen(f"unix:{path}", {"": Echo()}, Options())
    assert path.read_text() == "data"


async def test_only_our_own_file_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "s"
    async with served(f"unix:{path}"):
        path.unlink()
        with socket.socket(socket.AF_UNIX) as other:
            other.bind(str(path))
    assert path.exists()


async def test_a_relative_path_is_found_again_after_a_change_of_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with served("unix:rel.sock") as (listener, _):
        await (await dial("unix:rel.sock", Options())).close()
        assert listener.url == "unix:rel.sock"
        monkeypatch.chdir("/")
    assert not (tmp_path / "rel.sock").exists()


# -- cost -----------------------------------------------------------------------------------------


async def test_an_idle_channel_costs_little() -> None:
    count = 1000
    of_the_loop = 64 * 1024 if sys.platform == "win32" else 0  # what the proactor loop reads each into
    async with served("tcp://127.0.0.1:0") as (listener, echo):
        gc.collect()
        tracemalloc.start()
        try:
            loop = asyncio.get_running_loop()
            fars = []
            for _ in range(count):
                far = socket.socket()
                far.setblocking(False)
                await loop.sock_connect(far, ("127.0.0.1", int(listener.url.rpartition(":")[2])))
                fars.append(far)
            await until(lambda: len(echo.ends) == count and len(asyncio.all_tasks()) == 1)  # none of their own
            gc.collect()
            cost = tracemalloc.get_traced_memory()[0] / count
        finally:
            tracemalloc.stop()
        for far in fars:
            far.close()
        assert cost - of_the_loop < 8 * 1024, f"{cost:.0f} bytes"
        await until(lambda: all(end.endings for end in echo.ends))
