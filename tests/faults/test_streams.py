"""Streams whose far end is gone, reads nothing, says one endless thing, or only sits there."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import struct
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import msgspec
import psutil
import pytest

from dragoman import CallTimeout, ChannelError, Limits, connect, serve
from dragoman.channel import Broken
from dragoman.rpc.servable import ServableService

from .conftest import PATIENCE, Serve, census_of, child, until
from .service import Counts, faulty

MIB = 1024 * 1024
TCP_REPAIR = 19


def port_of(url: str) -> int:
    """The port of a URL."""
    return int(url.split("?")[0].rstrip("/").rsplit(":", 1)[1])


def request(id: int, method: str, *params: object) -> bytes:
    """A call as a line."""
    return msgspec.json.encode({"jsonrpc": "2.0", "method": method, "params": params, "id": id}) + b"\n"


@asynccontextmanager
async def stream(port: int, limit: int = 16 * MIB) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A plain TCP socket."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=limit)
    try:
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


# -- half-open ------------------------------------------------------------------------------------


async def test_a_far_end_that_accepts_and_never_answers_costs_a_time_out() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:  # the system accepts; no process reads
        async with connect(f"tcp://127.0.0.1:{listening.getsockname()[1]}", timeout=0.1) as peer:
            for _ in range(3):
                with pytest.raises(CallTimeout):
                    await peer.call("subtract", [2, 1])


async def test_a_far_end_that_vanished_without_a_word_is_noticed_at_the_next_write() -> None:
    """Its socket is closed without FIN or RST (TCP_REPAIR), as when a machine loses its power."""
    limits = Limits(write_timeout=1.0)
    async with serve(faulty(), urls=["tcp://127.0.0.1:0"], limits=limits) as serving:
        ours = socket.create_connection(("127.0.0.1", port_of(serving.urls[0])))
        host = serving.served[""]
        assert isinstance(host, ServableService)
        ours.sendall(request(1, "hang"))
        await until(lambda: host.runner.runs)
        try:
            ours.setsockopt(socket.IPPROTO_TCP, TCP_REPAIR, 1)
        except PermissionError:
            pytest.skip("TCP_REPAIR is for root alone")
        finally:
            ours.close()
        [peer] = host.runner.peers
        await peer.notify("told", ["something"])
        await until(lambda: not host.runner.peers)
        await until(lambda: not host.runner.runs)
        assert host.call_limit.in_flight == 0
        async with connect(serving.urls[0]) as other:
            assert await other.call("subtract", [42, 23]) == 19


async def test_a_reset_stops_what_was_asked(serving: Serve) -> None:
    server = serving("tcp://127.0.0.1:0")
    before = await server.census()
    async with connect(server.url) as peer:
        for _ in range(50):
            ours = socket.create_connection(("127.0.0.1", server.port))
            ours.sendall(request(1, "hang"))
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            ours.close()
        async with asyncio.timeout(PATIENCE):
            while (
                counts := await peer.call("counted", result=Counts)
            ).cancelled < counts.started or not counts.started:
                pass
    await server.settles_at(before)


@pytest.mark.parametrize("method", ["subtract", "later", "in_thread"])
async def test_half_a_close_with_a_hundred_calls_queued_gets_a_hundred_answers(method: str, serving: Serve) -> None:
    server = serving("tcp://127.0.0.1:0", "--limit", "calls_per_channel=3")
    async with stream(server.port) as (reader, writer):
        params = [1, 0] if method == "subtract" else [1]
        writer.write(b"".join(request(n, method, *params) for n in range(100)))
        writer.write_eof()
        async with asyncio.timeout(PATIENCE):
            answers = [msgspec.json.decode(line) for line in (await reader.read()).splitlines()]
    assert sorted(answer["id"] for answer in answers) == list(range(100))
    assert all(answer["result"] == 1 for answer in answers)


# -- a far end that does not read ----------------------------------------------------------------------------


async def test_a_reader_that_stops_is_held_back_and_then_cut_off_and_the_others_are_not_harmed() -> None:
    limits = Limits(write_timeout=1.0, send_queue=256 * 1024)
    async with serve(faulty(), urls=["tcp://127.0.0.1:0"], limits=limits) as serving:
        host = serving.served[""]
        assert isinstance(host, ServableService)
        async with connect(serving.urls[0]) as other, stream(port_of(serving.urls[0]), 1024) as (_, writer):
            writer.transport.pause_reading()  # type: ignore[attr-defined]
            writer.write(b"".join(request(n, "text", MIB) for n in range(400)))
            await until(lambda: len(host.runner.peers) == 2)
            slow = next(peer for peer in host.runner.peers if peer.caller.remote.endswith(f":{local(writer)}"))
            await until(lambda: slow._channel is not None and not slow._channel.writable)
            held_back = await other.call("counted", result=Counts)
            assert 0 < held_back.started < 300, "calls start although their answers are not read"
            while slow._channel is not None:
                assert await other.call("subtract", [42, 23]) == 19
            assert isinstance(slow._why, Broken)
            assert "took nothing" in str(slow._why)
            assert (await other.call("counted", result=Counts)).started < 300
            await until(lambda: not host.runner.runs)
            assert host.call_limit.in_flight == 0


def local(writer: asyncio.StreamWriter) -> int:
    """The port at our end."""
    return int(writer.get_extra_info("sockname")[1])


async def test_a_reader_that_stops_and_comes_back_gets_everything() -> None:
    async with serve(faulty(), urls=["tcp://127.0.0.1:0"]) as serving:
        host = serving.served[""]
        assert isinstance(host, ServableService)
        async with stream(port_of(serving.urls[0])) as (reader, writer):
            writer.transport.pause_reading()  # type: ignore[attr-defined]
            writer.write(b"".join(request(n, "text", 500_000) for n in range(100)))
            await until(lambda: host.runner.peers)
            [peer] = host.runner.peers
            await until(lambda: peer._channel is not None and not peer._channel.writable)
            writer.transport.resume_reading()  # type: ignore[attr-defined]
            async with asyncio.timeout(PATIENCE):
                answers = [msgspec.json.decode(await reader.readuntil(b"\n")) for _ in range(100)]
    assert sorted(answer["id"] for answer in answers) == list(range(100))
    assert all(len(answer["result"]) == 500_000 for answer in answers)


# -- what never ends ------------------------------------------------------------------------------

GIB = 1024
"""Pieces of a MiB."""
GROWTH = 40 * MIB


@asynccontextmanager
async def tcp_server(
    framing: str, serving: Serve
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter, psutil.Process]]:
    """One end of a TCP stream, and the server's process."""
    server = serving(f"tcp://127.0.0.1:0?framing={framing}")
    async with stream(server.port) as (reader, writer):
        yield reader, writer, server.memory


@asynccontextmanager
async def stdio_server(
    framing: str, serving: Serve
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter, psutil.Process]]:
    """A child's pipes, and the child."""
    server = await asyncio.create_subprocess_exec(
        *child("--framing", framing),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        limit=16 * MIB,
    )
    assert server.stdin is not None
    assert server.stdout is not None
    yield server.stdout, server.stdin, psutil.Process(server.pid)
    server.stdin.close()
    async with asyncio.timeout(PATIENCE):
        assert await server.wait() == 0


async def line(reader: asyncio.StreamReader) -> bytes:
    """The next line."""
    return await reader.readuntil(b"\n")


async def headed(reader: asyncio.StreamReader) -> bytes:
    """The next message with a Content-Length."""
    head = await reader.readuntil(b"\r\n\r\n")
    return await reader.readexactly(int(head.split(b"Content-Length: ")[1].split(b"\r\n")[0]))


@pytest.mark.slow
@pytest.mark.parametrize("wire", ["tcp", "stdio"])
@pytest.mark.parametrize("framing", ["newline", "content-length"])
async def test_a_message_of_a_gigabyte_costs_no_memory(wire: str, framing: str, serving: Serve) -> None:
    await endless(tcp_server if wire == "tcp" else stdio_server, framing, serving)


async def endless(
    server: Callable[
        [str, Serve],
        contextlib.AbstractAsyncContextManager[tuple[asyncio.StreamReader, asyncio.StreamWriter, psutil.Process]],
    ],
    framing: str,
    serving: Serve,
) -> None:
    """Send it a piece at a time, watch the server's memory, read its refusal, and ask again."""
    newline = framing == "newline"
    read: Callable[[asyncio.StreamReader], Awaitable[bytes]] = line if newline else headed
    wrapped: Callable[[bytes], bytes] = (
        (lambda message: message)
        if newline
        else (lambda message: b"Content-Length: %d\r\n\r\n%b" % (len(message), message))
    )
    async with server(framing, serving) as (reader, writer, process), asyncio.timeout(PATIENCE):
        writer.write(wrapped(request(1, "subtract", 42, 23)))
        assert msgspec.json.decode(await read(reader))["result"] == 19
        before = process.memory_info().rss
        highest = 0
        if not newline:
            writer.write(b"Content-Length: %d\r\n\r\n" % (GIB * MIB))
        piece = b"x" * MIB
        for _ in range(GIB):
            writer.write(piece)
            await writer.drain()
            highest = max(highest, process.memory_info().rss)
        if newline:
            writer.write(b"\n")
        refusal = msgspec.json.decode(await read(reader))
        assert refusal["id"] is None
        assert refusal["error"]["code"] == -32003
        assert refusal["error"]["data"]["limit"] == "message_size"
        assert refusal["error"]["data"]["allowed"] == 4 * MIB
        writer.write(wrapped(request(2, "subtract", 42, 23)))
        assert msgspec.json.decode(await read(reader)) == {"jsonrpc": "2.0", "result": 19, "id": 2}
        assert highest - before < GROWTH, f"grew by {(highest - before) / MIB:.0f} MiB"


# -- a far end that does nothing --------------------------------------------------------------------------

IDLE = 10_000
PER_CHANNEL = 16 * 1024
"""Bytes of the server's memory; the benchmark measures it exactly."""
IDLERS = """
import resource, socket, sys
port, count = int(sys.argv[1]), int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_NOFILE, (count + 100, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
held = []
for n in range(count):
    held.append(socket.create_connection(("127.0.0.1", port)))
    if n % 500 == 499:  # when the last has an answer, all are accepted: the system's queue never overflows
        held[-1].sendall(b'{"jsonrpc":"2.0","method":"subtract","params":[2,1],"id":1}' + bytes([10]))
        held[-1].recv(1000)
print("here", flush=True)
sys.stdin.read()
"""


@pytest.mark.slow
async def test_ten_thousand_idle_channels_and_an_active_one(serving: Serve) -> None:
    hard = psutil.Process().rlimit(psutil.RLIMIT_NOFILE)[1]
    if 0 <= hard < IDLE + 200:
        pytest.skip(f"the hard limit of open files is {hard}, this needs {IDLE + 200}")
    server = serving("tcp://127.0.0.1:0", descriptors=IDLE + 200)
    empty = await server.census()
    memory = server.rss
    idlers = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", IDLERS, str(server.port), str(IDLE)), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert idlers.stdin is not None
    assert idlers.stdout is not None
    async with asyncio.timeout(PATIENCE):
        assert await idlers.stdout.readline() == b"here\n"
    async with connect(server.url) as peer:
        full = await census_of(peer)
        assert full.descriptors >= empty.descriptors + IDLE
        assert full.tasks <= empty.tasks, "an idle channel costs a task"
        assert await asyncio.gather(*(peer.call("later", [n]) for n in range(100))) == list(range(100))
        assert server.rss - memory < IDLE * PER_CHANNEL
    idlers.stdin.close()
    async with asyncio.timeout(PATIENCE):
        await idlers.wait()
    await server.settles_at(empty)


async def comes_back(url: str) -> None:
    """Call until one is answered: uvloop resets connections that it cannot take before the ends of the others have
    reached it."""
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                async with connect(url, timeout=PATIENCE) as late:
                    assert await late.call("subtract", [42, 23]) == 19
                    return
            except ChannelError:
                await asyncio.sleep(0.01)


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
async def test_a_server_out_of_file_descriptors_goes_on_and_comes_back(loop: str, serving: Serve) -> None:
    server = serving("tcp://127.0.0.1:0", *(["--no-uvloop"] if loop == "asyncio" else []), descriptors=64)
    async with connect(server.url) as peer:
        held = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(100)]
        assert await peer.call("subtract", [42, 23]) == 19
        for one in held:
            one.close()
        await comes_back(server.url)
    assert len(server.errors().splitlines()) < 1000, "what a far end can cause at will floods the log"


# -- calls in both directions while neither end is quick to read ---------------------------------------


@asynccontextmanager
async def relay(port: int, piece: int) -> AsyncIterator[int]:
    """A relay that reads `piece` bytes a turn, each way, so that both ends meet a slow reader. Its port."""

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(piece):
                writer.write(data)
                await writer.drain()
                await asyncio.sleep(0)
        writer.close()

    async def arrive(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port, limit=piece)
        await asyncio.gather(pass_on(reader, far_writer), pass_on(far_reader, writer))

    listening = await asyncio.start_server(arrive, "127.0.0.1", 0, limit=piece)
    yield listening.sockets[0].getsockname()[1]
    listening.close()
    await listening.wait_closed()


async def test_two_peers_that_flood_each_other_over_a_slow_wire_both_finish() -> None:
    """Each sends 300 calls with 64 KiB in and out; the send queues are full on both sides all the time."""
    limits = Limits(send_queue=64 * 1024, calls_per_channel=8, waiting_per_channel=1000, write_timeout=PATIENCE)
    text = "x" * 65_536
    async with serve(faulty(), urls=["tcp://127.0.0.1:0"], limits=limits) as serving:
        host = serving.served[""]
        assert isinstance(host, ServableService)
        async with relay(port_of(serving.urls[0]), 8192) as port:
            url = f"tcp://127.0.0.1:{port}"
            async with connect(url, service=faulty(), limits=limits, timeout=PATIENCE) as ours:
                await until(lambda: host.runner.peers)
                [theirs] = host.runner.peers
                calls = [peer.call("later", [text], timeout=PATIENCE) for _ in range(300) for peer in (ours, theirs)]
                async with asyncio.timeout(PATIENCE):
                    answers = await asyncio.gather(*calls)
                assert all(answer == text for answer in answers)


async def test_what_a_flood_does_not_get_done_ends_in_a_named_error() -> None:
    """The same with small limits and short patience: every call ends, in an answer or in an error that says why."""
    limits = Limits(send_queue=64 * 1024, calls_per_channel=4, waiting_per_channel=16, write_timeout=PATIENCE)
    text = "x" * 65_536
    async with serve(faulty(), urls=["tcp://127.0.0.1:0"], limits=limits) as serving:
        host = serving.served[""]
        assert isinstance(host, ServableService)
        async with relay(port_of(serving.urls[0]), 4096) as port:
            url = f"tcp://127.0.0.1:{port}"
            async with connect(url, service=faulty(), limits=limits) as ours:
                await until(lambda: host.runner.peers)
                [theirs] = host.runner.peers
                calls = [peer.call("later", [text], timeout=2.0) for _ in range(300) for peer in (ours, theirs)]
                async with asyncio.timeout(PATIENCE):
                    answers = await asyncio.gather(*calls, return_exceptions=True)
                kinds = {type(answer).__name__ for answer in answers}
                assert kinds <= {"str", "CallTimeout", "RpcError"}, kinds
                busy = [json.dumps(answer.data) for answer in answers if hasattr(answer, "data")]
                assert all("calls_per_channel" in data for data in busy)
                assert "str" in kinds
                assert await ours.call("subtract", [42, 23], timeout=PATIENCE) == 19
                assert await theirs.call("subtract", [42, 23], timeout=PATIENCE) == 19


# -- errors that answer errors --------------------------------------------------------------------


async def test_a_far_end_that_pretty_prints_its_errors_is_cut_off() -> None:
    """Each line of such an error is a message to us, which we answer with an error, which it answers, and so on."""
    heard = 0
    lines = json.dumps({"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "what?"}}, indent=2)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal heard
        writer.write(lines.encode() + b"\n")
        with contextlib.suppress(ConnectionError):
            while await reader.readline():
                heard += 1
                writer.write(lines.encode() + b"\n")
        writer.close()
        over.set()

    over = asyncio.Event()
    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with (
            asyncio.timeout(PATIENCE),
            connect(f"tcp://127.0.0.1:{port}", limits=Limits(malformed_in_a_row=50)) as peer,
        ):
            with pytest.raises(Broken, match=r"51 messages in a row were not JSON-RPC \(limit malformed_in_a_row\)"):
                await peer.call("subtract", [2, 1], timeout=None)
            await over.wait()
    assert heard <= 51


async def test_malformed_messages_are_counted_in_a_row() -> None:
    async with (
        serve(faulty(), urls="tcp://127.0.0.1:0", limits=Limits(malformed_in_a_row=3)) as serving,
        stream(port_of(serving.urls[0])) as (reader, writer),
    ):
        for n in range(4):
            writer.write(b"what?\n" * 3 + request(n, "rpc.discover"))
            answers = [msgspec.json.decode(await reader.readline()) for _ in range(4)]
            assert sorted((one["id"] is None) for one in answers) == [False, True, True, True]
        writer.write(b"what?\n" * 4)
        assert len((await reader.read()).splitlines()) <= 3  # and the end


async def test_a_banner_on_a_child_s_standard_output_is_named(caplog: pytest.LogCaptureFixture) -> None:
    program = """\
import sys
print("Server started on stdio!", flush=True)
for line in sys.stdin:
    if '"method"' in line:
        print('{"jsonrpc":"2.0","result":19,"id":1}', flush=True)
"""
    async with connect([sys.executable, "-c", program]) as peer:
        assert await peer.call("subtract", [42, 23]) == 19
    (said,) = [one.getMessage() for one in caplog.records if one.levelname == "WARNING"]
    assert "'Server started on stdio!'" in said
    assert said.endswith("print to stderr there")
