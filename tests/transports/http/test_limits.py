"""The native HTTP front: time-outs, sizes, far ends that go, stop or never stop."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
import struct
import tracemalloc

import pytest

from dragoman import Service
from dragoman.channel import Options
from dragoman.jsonrpc.limits import MIB
from dragoman.rpc.servable import ServableService
from dragoman.transports.http.connection import ServerConnection
from tests.behind import behind
from tests.calculator import calculator

from ..ends import options, until
from .cases import ANSWER, CALL, PATIENCE, answer, chunked, error, post, rest
from .ends import Scripted, asked, native, port_of, reading, wire

# -- patience -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limit", "sent"),
    [("header_timeout", b"POST / HT"), ("body_timeout", post()[:-1]), ("body_timeout", chunked(CALL)[:-5])],
)
async def test_a_slow_request_is_cut_off(limit: str, sent: bytes) -> None:
    async with asked(ServableService(behind(calculator())), options(**{limit: 0.1})) as (_, reader, writer):
        writer.write(sent)
        got = await answer(reader)
        assert (got.status, got.headers["connection"]) == (408, "close")
        assert await rest(reader) == b""


async def test_an_idle_wire_is_closed() -> None:
    async with native({"": ServableService(behind(calculator()))}, options(idle_timeout=0.1)) as listener:
        async with wire(port_of(listener)) as (reader, writer):
            assert await rest(reader) == b""
        async with wire(port_of(listener)) as (reader, writer):
            writer.write(post())
            assert (await answer(reader)).body == ANSWER
            assert await rest(reader) == b""


async def test_a_wire_that_works_is_not_idle() -> None:
    scripted = Scripted()
    async with asked(scripted, options(idle_timeout=1.0, header_timeout=1.0)) as (listener, reader, writer):
        writer.write(post())
        x = await scripted.next()
        now = listener.now
        await until(lambda: listener.now > now + 2.5)
        x.respond(b"at last")
        assert (await answer(reader)).body == b"at last"


async def test_a_thousand_slow_writers() -> None:
    """They are cut off, and calls are answered beside them. All letters are sent before the first is cut off."""
    async with native({"": ServableService(behind(calculator()))}, options(header_timeout=4.0)) as listener:
        port = port_of(listener)
        wires = [await asyncio.open_connection("127.0.0.1", port) for _ in range(1000)]
        for _, writer in wires:
            writer.write(b"P")
        async with wire(port) as (reader, writer):
            for letter in b"OST":
                for _, slow in wires:
                    slow.write(bytes((letter,)))
                writer.write(post())
                assert (await answer(reader)).body == ANSWER
            for slow_reader, slow in wires:
                assert (await answer(slow_reader)).status == 408
                slow.close()
            writer.write(post())
            assert (await answer(reader)).body == ANSWER
        for _, slow in wires:
            with contextlib.suppress(ConnectionError):
                await slow.wait_closed()


async def test_five_hundred_aborted_uploads() -> None:
    async with native({"": ServableService(behind(calculator()))}, Options()) as listener:
        port = port_of(listener)
        for number in range(500):
            with socket.create_connection(("127.0.0.1", port)) as upload:
                upload.sendall(post(b"x" * 100_000)[: 1000 + number * 100])
                upload.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", number % 2, 0))
        async with wire(port) as (reader, writer):
            writer.write(post())
            assert (await answer(reader)).body == ANSWER
        await until(lambda: not listener.wires)


# -- which connections end, and which stay ----------------------------------------------------------------------


async def test_half_closed_and_answered() -> None:
    scripted = Scripted()
    async with asked(scripted, options(header_timeout=0.1)) as (listener, reader, writer):
        writer.write(post(b"1") + post(b"2") + b"POST / HT")
        writer.write_eof()
        first, second = await scripted.next(), await scripted.next()
        now = listener.now
        await until(lambda: listener.now > now + 0.2)
        second.respond(b"two")
        first.respond(b"one")
        got = await answer(reader)
        assert (got.body, got.interim) == (b"one", (100, 100))
        assert (await answer(reader)).body == b"two"
        assert await rest(reader) == b""
        assert first.gone is None


async def test_the_caller_goes() -> None:
    scripted = Scripted()
    async with native({"": scripted}, options(header_timeout=0.1)) as listener:
        for linger in (0, 1):  # a close, and a reset
            _, writer = await asyncio.open_connection("127.0.0.1", port_of(listener))
            writer.write(post() + post())
            first, second = await scripted.next(), await scripted.next()
            gone = [asyncio.Event(), asyncio.Event()]
            first.gone, second.gone = gone[0].set, gone[1].set
            sock = writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", linger, 0))
            writer.close()
            async with asyncio.timeout(PATIENCE):
                await gone[0].wait()
                await gone[1].wait()
            first.respond(b"late")
            second.respond(b"late")
            await until(lambda: not listener.wires)


async def test_a_reader_that_stops_is_held_back() -> None:
    """What is unsent stays bounded, and nothing more is started; then it is cut off."""
    big = b"x" * 200_000
    scripted = Scripted(lambda x: x.respond(big))
    async with asked(scripted, options(send_queue=100_000, write_timeout=0.2)) as (listener, _reader, writer):
        reading(writer, False)
        writer.write(post() * 200)
        await until(lambda: not listener.wires)
        assert scripted.exchanges.qsize() < 150


async def test_a_slow_reader_gets_everything() -> None:
    big = b"x" * 200_000
    scripted = Scripted(lambda x: x.respond(big))
    async with asked(scripted, options(send_queue=100_000)) as (listener, reader, writer):
        reading(writer, False)
        writer.write(post() * 100)
        await until(lambda: any(isinstance(front, ServerConnection) and front.full for front in listener.wires))
        reading(writer, True)
        for _ in range(100):
            assert len((await answer(reader)).body) == len(big)


async def test_what_was_asked_is_not_kept_while_its_answer_waits_for_another() -> None:
    """Once a call has its answer, no limit counts its arguments."""
    service, asked_for = Service("large"), asyncio.Event()

    @service.method
    async def slow() -> str:
        await asked_for.wait()
        return "slow"

    @service.method
    def size(text: str) -> int:
        return len(text)

    @service.method
    async def later(text: str) -> int:
        await asyncio.sleep(0)
        return len(text)

    def large(method: str) -> bytes:
        return post(b'{"jsonrpc":"2.0","id":1,"method":"%b","params":["%b"]}' % (method.encode(), b"x" * MIB))

    async with asked(ServableService(behind(service))) as (_, reader, writer):
        tracemalloc.start()
        try:
            writer.write(post(b'{"jsonrpc":"2.0","id":1,"method":"slow"}'))
            for _ in range(10):
                writer.write(large("size") + large("later"))
                await writer.drain()
            [connection] = [one for one in gc.get_objects() if type(one) is ServerConnection and one.transport]
            await until(lambda: [turn.over for turn in connection.owed] == [False, *[True] * 20])
            assert tracemalloc.get_traced_memory()[0] < 4 * MIB
        finally:
            tracemalloc.stop()
        asked_for.set()
        assert b'"slow"' in (await answer(reader)).body
        for _ in range(20):
            assert b"%d" % MIB in (await answer(reader)).body


async def test_channels_are_bounded() -> None:
    async with asked(ServableService(behind(calculator())), options(channels=1)) as (listener, reader, writer):
        writer.write(post())
        assert (await answer(reader)).body == ANSWER
        async with wire(port_of(listener)) as (second, _):
            got = await answer(second)
            assert (got.status, got.headers["retry-after"]) == (503, "1")
            assert await rest(second) == b""
        await until(lambda: len(listener.wires) == 1)
        writer.write(post())
        assert (await answer(reader)).body == ANSWER


async def test_an_upload_that_is_too_large_is_told_and_drained() -> None:
    async with asked(ServableService(behind(calculator())), options(message_size=1000)) as (_, reader, writer):
        head = post(b"x" * 1800, more="Expect: 100-continue\r\n")[:-1800]
        writer.write(head)
        got = await answer(reader)
        assert (got.status, got.interim) == (413, ())
        assert error(got.body)["data"] == {"limit": "message_size", "allowed": 1000, "received": 1800}
        writer.write(b"x" * 500)
        assert await rest(reader) == b""


async def test_expectations() -> None:
    async with asked(ServableService(behind(calculator()))) as (_, reader, writer):
        for _ in range(2):
            request = post(more="Expect: 100-continue\r\n")
            writer.write(request[: -len(CALL)])
            assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
            writer.write(CALL)
            assert (await answer(reader)).body == ANSWER
