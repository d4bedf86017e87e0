"""One table of wire cases over every wire and framing, bytes in and bytes out: no wire changes what is said."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

import msgspec
import pytest
import websockets

from dragoman import serve
from dragoman.channel import Options
from dragoman.schemes import dial
from tests.calculator import calculator
from tests.wire_cases import Case, all_cases, check

CASES = all_cases()
PATIENCE = 20.0


class Far(Protocol):
    """A caller that knows bytes only."""

    async def ask(self, message: bytes, answered: bool) -> bytes | None: ...


class Stream:
    """A caller on a wire that lives: whether nothing is owed shows when a later call is answered."""

    def __init__(self, send: Callable[[bytes], Awaitable[Any]], next: Callable[[], Awaitable[bytes]]) -> None:
        self.send = send
        self.next = next
        self.count = 0

    async def ask(self, message: bytes, answered: bool) -> bytes | None:
        self.count += 1
        marker = f"marker {self.count}"
        await self.send(message)
        await self.send(b'{"jsonrpc":"2.0","method":"get_data","id":"%b"}' % marker.encode())
        answers: list[bytes] = []
        marked = False
        async with asyncio.timeout(PATIENCE):
            while not marked or (answered and not answers):
                answer = await self.next()
                if _id(answer) == marker:
                    marked = True
                elif not answer.startswith(b'{"jsonrpc":"2.0","method":"$/progress"'):
                    answers.append(answer)
        assert len(answers) <= 1, f"more than one answer: {answers}"
        return answers[0] if answers else None


def _id(answer: bytes) -> Any:
    value = msgspec.json.decode(answer)
    return value.get("id") if isinstance(value, dict) else None


# -- the wires ------------------------------------------------------------------------------------


@asynccontextmanager
async def memory() -> AsyncIterator[Far]:
    async with serve(calculator(), urls=["memory:every-wire"]):
        channel = await dial("memory:every-wire", Options())
        got: asyncio.Queue[bytes] = asyncio.Queue()

        class Receiver:
            def received(self, message: bytes, call: Any = None) -> None:
                got.put_nowait(message)

            def refused(self, malformed: Any) -> None: ...
            def resumed(self) -> None: ...
            def finished(self) -> None: ...
            def ended(self, why: Any) -> None: ...

        channel.open(Receiver())

        async def send(message: bytes) -> None:
            channel.send(message)

        yield Stream(send, got.get)
        await channel.close()


def lines(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Stream:
    async def send(message: bytes) -> None:
        writer.write(message.replace(b"\n", b" ").replace(b"\r", b" ") + b"\n")
        await writer.drain()

    async def next() -> bytes:
        return (await reader.readuntil(b"\n"))[:-1]

    return Stream(send, next)


def headed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Stream:
    async def send(message: bytes) -> None:
        writer.write(b"Content-Length: %d\r\n\r\n%b" % (len(message), message))
        await writer.drain()

    async def next() -> bytes:
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.split(b"Content-Length: ")[1].split(b"\r\n")[0])
        return await reader.readexactly(length)

    return Stream(send, next)


Reader = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Stream]


@asynccontextmanager
async def tcp(framing: str, far: Reader) -> AsyncIterator[Far]:
    async with serve(calculator(), urls=[f"tcp://127.0.0.1:0?framing={framing}"]) as serving:
        port = int(serving.urls[0].split(":")[2].split("?")[0])
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**24)
        yield far(reader, writer)
        writer.close()
        await writer.wait_closed()


@asynccontextmanager
async def unix(tmp_path: Path) -> AsyncIterator[Far]:
    async with serve(calculator(), urls=[f"unix:{tmp_path}/s"]):
        reader, writer = await asyncio.open_unix_connection(f"{tmp_path}/s", limit=2**24)
        yield lines(reader, writer)
        writer.close()
        await writer.wait_closed()


@asynccontextmanager
async def stdio(framing: str, far: Reader) -> AsyncIterator[Far]:
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.stdio_calculator", f"stdio:?framing={framing}"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        limit=2**24,
    )
    assert child.stdin is not None
    assert child.stdout is not None
    yield far(child.stdout, child.stdin)
    child.stdin.close()
    assert await child.wait() == 0


@asynccontextmanager
async def websocket(binary: bool) -> AsyncIterator[Far]:
    async with (
        serve(calculator(), urls=["ws://127.0.0.1:0"]) as serving,
        websockets.connect(serving.urls[0], max_size=2**24, compression=None) as socket,
    ):

        async def send(message: bytes) -> None:
            await socket.send(message, text=not binary)

        async def next() -> bytes:
            answer = await socket.recv()
            return answer.encode() if isinstance(answer, str) else answer

        yield Stream(send, next)


class Post:
    """A caller over HTTP, one POST a message on one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def ask(self, message: bytes, answered: bool) -> bytes | None:
        self.writer.write(
            b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
            % (len(message), message)
        )
        async with asyncio.timeout(PATIENCE):
            head = await self.reader.readuntil(b"\r\n\r\n")
            status = int(head.split(b" ")[1])
            if status == 204:
                return None
            length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            assert status in (200, 413), head
            return await self.reader.readexactly(length) or None  # a notification may be refused by the status alone


@asynccontextmanager
async def http() -> AsyncIterator[Far]:
    async with serve(calculator(), urls=["http://127.0.0.1:0"]) as serving:
        port = int(serving.urls[0].split(":")[2].strip("/"))
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**24)
        yield Post(reader, writer)
        writer.close()
        await writer.wait_closed()


class Datagrams(asyncio.DatagramProtocol):
    """A caller over UDP."""

    def __init__(self) -> None:
        self.got: asyncio.Queue[bytes] = asyncio.Queue()
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def datagram_received(self, data: bytes, addr: Any) -> None:
        self.got.put_nowait(data)


@asynccontextmanager
async def udp() -> AsyncIterator[Far]:
    async with serve(calculator(), urls=["udp://127.0.0.1:0"], amplify=True) as serving:
        port = int(serving.urls[0].split(":")[2])
        transport, ours = await asyncio.get_running_loop().create_datagram_endpoint(
            Datagrams, remote_addr=("127.0.0.1", port)
        )

        async def send(message: bytes) -> None:
            transport.sendto(message)

        yield Stream(send, ours.got.get)
        transport.close()


WIRES = ["memory", "tcp", "tcp-lsp", "unix", "stdio", "stdio-lsp", "ws", "ws-binary", "http", "udp"]


@pytest.fixture
async def far(wire: str, tmp_path: Path) -> AsyncIterator[Far]:
    wires = {
        "memory": memory,
        "tcp": lambda: tcp("newline", lines),
        "tcp-lsp": lambda: tcp("content-length", headed),
        "unix": lambda: unix(tmp_path),
        "stdio": lambda: stdio("newline", lines),
        "stdio-lsp": lambda: stdio("content-length", headed),
        "ws": lambda: websocket(False),
        "ws-binary": lambda: websocket(True),
        "http": http,
        "udp": udp,
    }
    async with wires[wire]() as caller:
        yield caller


def fits(wire: str, case: Case) -> bool:
    """Whether this wire can carry the message at all."""
    if wire in ("tcp", "unix", "stdio"):  # where lines are messages and blank lines are nothing
        return case.one_line
    if wire == "ws":  # text frames are UTF-8 by themselves
        try:
            case.message.decode()
        except UnicodeDecodeError:
            return False
    return wire != "udp" or 0 < len(case.message) < 60_000


@pytest.mark.parametrize("wire", WIRES)
async def test_every_case_has_its_answer(wire: str, far: Far) -> None:
    carried = [case for case in CASES if fits(wire, case)]
    assert len(carried) > 600
    faults = []
    for case in carried:
        answer = await far.ask(case.message, case.answered)
        try:
            check(case, answer)
        except AssertionError as fault:
            faults.append(str(fault))
    assert not faults, f"{len(faults)} of {len(carried)}:\n" + "\n".join(faults[:20])
