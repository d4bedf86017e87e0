"""HTTP from far ends that give up, dribble, contradict themselves or never stop."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct

import msgspec
import pytest

from dragoman import Limits, connect, serve
from dragoman.rpc.servable import ServableService

from .conftest import PATIENCE, Serve, heard, until
from .service import Census, faulty

MIB = 1024 * 1024
BODY = b'{"jsonrpc":"2.0","method":"subtract","params":[42,23],"id":1}'
ANSWER = b'{"jsonrpc":"2.0","result":19,"id":1}'


def head(*lines: bytes) -> bytes:
    """The head of a POST."""
    return b"\r\n".join((b"POST / HTTP/1.1", b"Host: 127.0.0.1", b"Content-Type: application/json", *lines, b"", b""))


def port_of(url: str) -> int:
    """The port of a URL."""
    return int(url.rstrip("/").rsplit(":", 1)[1])


def reset(wire: socket.socket) -> None:
    """Close it with a RST."""
    wire.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    wire.close()


async def answer(port: int, sent: bytes) -> bytes:
    """All that comes back until the server closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(sent)
    try:
        async with asyncio.timeout(PATIENCE):
            return await reader.read()
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


@pytest.mark.parametrize("how", ["reset", "closed"])
async def test_five_hundred_aborted_uploads_and_a_healthy_call(how: str, serving: Serve) -> None:
    server = serving("http://127.0.0.1:0")
    before = await server.census()
    async with connect(server.url) as peer:
        assert await peer.call("subtract", [42, 23]) == 19
        for _ in range(500):
            wire = socket.create_connection(("127.0.0.1", server.port))
            wire.sendall(head(b"Content-Length: 100000") + b"x" * 1000)
            reset(wire) if how == "reset" else wire.close()
        async with asyncio.timeout(PATIENCE):
            assert await peer.call("subtract", [42, 23]) == 19
            async with connect(server.url) as other:
                assert await other.call("subtract", [42, 23]) == 19
    await server.settles_at(before)
    assert server.errors() == ""


async def test_callers_that_give_up_stop_their_handlers() -> None:
    async with serve(faulty(), urls=["http://127.0.0.1:0"]) as serving:
        host = serving.served[""]
        assert isinstance(host, ServableService)
        call = BODY.replace(b'"subtract","params":[42,23]', b'"hang"')
        wires = [socket.create_connection(("127.0.0.1", port_of(serving.urls[0]))) for _ in range(50)]
        for wire in wires:
            wire.sendall(head(b"Content-Length: %d" % len(call)) + call)
        await until(lambda: host.call_limit.in_flight == 50)
        for wire in wires:
            reset(wire)
        await until(lambda: not host.call_limit.in_flight)
        assert not host.runner.runs


@pytest.mark.slow
async def test_a_thousand_far_ends_that_send_a_byte_a_second_are_cut_off_and_do_no_harm() -> None:
    limits = Limits(header_timeout=2.0, body_timeout=2.0)
    async with serve(faulty(), urls=["http://127.0.0.1:0"], limits=limits) as serving:
        port = port_of(serving.urls[0])
        cut: list[bytes] = []

        async def dribble(sent: bytes, then: bytes) -> None:
            """Send the first part whole and the second a byte at a time, until there is an answer."""
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(sent)
            over = asyncio.ensure_future(reader.read())
            with contextlib.suppress(ConnectionError):
                for byte in then:
                    if over.done():
                        break
                    writer.write(bytes([byte]))
                    await asyncio.wait([over], timeout=1.0)
            with contextlib.suppress(ConnectionError):
                cut.append(await over)
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

        slow_heads = [dribble(b"POST / HTTP/1.1\r\nHo", b"st: 127.0.0.1\r\n" * 100) for _ in range(500)]
        slow_bodies = [dribble(head(b"Content-Length: 10000"), b"x" * 10_000) for _ in range(500)]
        healthy = 0
        dribbling = [asyncio.ensure_future(one) for one in (*slow_heads, *slow_bodies)]
        async with connect(serving.urls[0]) as peer, asyncio.timeout(PATIENCE):
            while not all(one.done() for one in dribbling):
                assert await peer.call("later", [healthy], timeout=PATIENCE) == healthy
                healthy += 1
        assert healthy
        await asyncio.gather(*dribbling)
        assert len(cut) == 1000
        assert {said.split(b"\r\n")[0] for said in cut} == {b"HTTP/1.1 408 Request Timeout"}


AMBIGUOUS = {
    "both lengths": head(b"Content-Length: 61", b"Transfer-Encoding: chunked") + b"0\r\n\r\n",
    "both lengths the other way": head(b"Transfer-Encoding: chunked", b"Content-Length: 61") + b"0\r\n\r\n",
    "two lengths": head(b"Content-Length: 61", b"Content-Length: 62") + BODY,
    "two equal lengths": head(b"Content-Length: 61", b"Content-Length: 61") + BODY,
    "a list of lengths": head(b"Content-Length: 61, 61") + BODY,
    "a signed length": head(b"Content-Length: +61") + BODY,
    "a negative length": head(b"Content-Length: -61") + BODY,
    "a length in hex": head(b"Content-Length: 0x3d") + BODY,
    "a length with a blank before the colon": head(b"Content-Length : 61") + BODY,
    "a coding that is not the last": head(b"Transfer-Encoding: chunked, identity") + b"0\r\n\r\n",
    "an unknown coding": head(b"Transfer-Encoding: xchunked") + b"0\r\n\r\n",
    "chunked twice": head(b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked") + b"0\r\n\r\n",
    "a chunk of a negative size": head(b"Transfer-Encoding: chunked") + b"-1\r\nx\r\n0\r\n\r\n",
    "a chunk of an enormous size": head(b"Transfer-Encoding: chunked") + b"fffffffffffffffff\r\nx\r\n0\r\n\r\n",
    "a folded header": head(b"Content-Length:\r\n 61") + BODY,
}


@pytest.mark.parametrize("sent", AMBIGUOUS.values(), ids=AMBIGUOUS)
async def test_an_ambiguous_length_is_refused_and_the_rest_is_not_read_as_a_request(sent: bytes) -> None:
    smuggled = head(b"Content-Length: %d" % len(BODY)) + BODY
    async with serve(faulty(), urls=["http://127.0.0.1:0"]) as serving:
        said = await answer(port_of(serving.urls[0]), sent + smuggled)
    assert said.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 413 ", b"HTTP/1.1 501 ")), said
    assert said.count(b"HTTP/1.1 ") == 1, said
    assert b"connection: close" in said.lower()
    assert ANSWER not in said


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["length", "chunked", "header", "target"])
async def test_a_request_of_a_gigabyte_is_cut_off_and_costs_no_memory(kind: str, serving: Serve) -> None:
    server = serving("http://127.0.0.1:0")
    before_it = await server.census()
    beginning, piece = {
        "length": (head(b"Content-Length: %d" % (1024 * MIB)), b"x" * MIB),
        "chunked": (head(b"Transfer-Encoding: chunked"), b"100000\r\n" + b"x" * MIB + b"\r\n"),
        "header": (b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ", b"x" * MIB),
        "target": (b"POST /", b"x" * MIB),
    }[kind]
    status = {"length": 413, "chunked": 413, "header": 431, "target": 414}[kind]
    before, highest = server.rss, 0
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    sent = 0
    saying = asyncio.ensure_future(heard(reader))
    with contextlib.suppress(ConnectionError):
        async with asyncio.timeout(PATIENCE):
            writer.write(beginning)
            for sent in range(1024):  # noqa: B007
                writer.write(piece)
                await writer.drain()
                highest = max(highest, server.rss)
    said = await saying
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()
    assert sent < 1000, "it was read to its end"
    assert said.startswith(b"HTTP/1.1 %d " % status)
    assert highest - before < 40 * MIB
    await server.settles_at(before_it)
    async with connect(server.url) as peer:
        assert await peer.call("subtract", [42, 23]) == 19


async def test_a_flood_of_pipelined_calls_from_one_that_does_not_read_is_held_back() -> None:
    limits = Limits(write_timeout=1.0)
    call = msgspec.json.encode({"jsonrpc": "2.0", "method": "text", "params": [MIB], "id": 1})
    one = head(b"Content-Length: %d" % len(call)) + call
    api = faulty()
    async with serve(api, urls=["http://127.0.0.1:0"], limits=limits) as serving:
        host = serving.served[""]
        assert isinstance(host, ServableService)
        with socket.create_connection(("127.0.0.1", port_of(serving.urls[0]))) as wire:
            wire.setblocking(False)
            loop = asyncio.get_running_loop()
            flooding = asyncio.ensure_future(loop.sock_sendall(wire, one * 2000))
            async with connect(serving.urls[0]) as peer:
                with contextlib.suppress(ConnectionError):
                    async with asyncio.timeout(PATIENCE):
                        while not flooding.done():
                            assert await peer.call("subtract", [42, 23]) == 19
                        await flooding
                started = (await peer.call("counted"))["started"]
                assert started < 200, "calls start although their answers are not read"
            await until(lambda: not host.call_limit.in_flight)


@pytest.mark.parametrize("limit", ["header_timeout", "idle_timeout"])
async def test_who_says_nothing_is_cut_off(limit: str) -> None:
    limits = Limits(header_timeout=0.2, idle_timeout=0.2)
    async with serve(faulty(), urls=["http://127.0.0.1:0"], limits=limits) as serving:
        said = await answer(port_of(serving.urls[0]), b"POST / HT" if limit == "header_timeout" else b"")
    assert said.startswith(b"HTTP/1.1 408 ") if limit == "header_timeout" else said == b""


async def test_no_more_channels_than_allowed_and_the_next_comes_in_when_one_goes(serving: Serve) -> None:
    server = serving("http://127.0.0.1:0", "--limit", "channels=10")
    held = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(10)]
    said = await answer(server.port, head(b"Content-Length: %d" % len(BODY)) + BODY)
    assert said.startswith(b"HTTP/1.1 503 "), said
    for one in held:
        one.close()
    async with asyncio.timeout(PATIENCE):
        while not (
            await answer(server.port, head(b"Content-Length: %d" % len(BODY), b"Connection: close") + BODY)
        ).endswith(ANSWER):
            pass
    async with connect(server.url) as peer:
        assert (await peer.call("census", result=Census)).tasks < 10


async def test_garbage_behind_a_wish_for_another_protocol_is_refused(serving: Serve) -> None:
    """Found by the fuzzer: it was a traceback in the log, and the far end got no 400."""
    server = serving("http://127.0.0.1:0")
    wish = head(b"Connection: Upgrade", b"Upgrade: h2c", b"Content-Length: %d" % len(BODY)) + BODY
    said = await answer(server.port, wish + b"\0\0 garbage\r\n\r\n")
    assert said.startswith(b"HTTP/1.1 200 OK\r\n"), said
    assert ANSWER + b"HTTP/1.1 400 " in said, said
    assert server.errors() == ""
