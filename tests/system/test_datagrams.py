"""Datagrams on the proactor loop of Windows: the transport that reads on, here on each loop."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from dragoman.system.datagrams import SocketDatagrams


class Ends(asyncio.DatagramProtocol):
    """A protocol that remembers."""

    def __init__(self) -> None:
        self.transport: Any = None
        self.came: asyncio.Queue[tuple[bytes, Any]] = asyncio.Queue()
        self.faults: asyncio.Queue[Exception] = asyncio.Queue()
        self.lost = asyncio.Event()

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def datagram_received(self, data: bytes, addr: Any) -> None:
        self.came.put_nowait((data, addr))

    def error_received(self, exc: Exception) -> None:
        self.faults.put_nowait(exc)

    def connection_lost(self, exc: Exception | None) -> None:
        assert exc is None
        self.lost.set()


def bound(port: int = 0) -> socket.socket:
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.setblocking(False)
    sock.bind(("127.0.0.1", port))
    return sock


@asynccontextmanager
async def given(sock: socket.socket) -> AsyncIterator[Ends]:
    ends = Ends()
    SocketDatagrams(asyncio.get_running_loop(), sock, ends)
    try:
        yield ends
    finally:
        ends.transport.close()
        ends.transport.close()  # once more has no effect
        await asyncio.wait_for(ends.lost.wait(), 20)
        assert sock.fileno() < 0
        ends.transport.sendto(b"late", None)


@pytest.mark.timeout(60)
async def test_there_and_back_also_nothing_at_all() -> None:
    async with given(bound()) as server:
        sock = bound()
        sock.connect(server.transport.get_extra_info("sockname"))
        async with given(sock) as client:
            for text in (b"", b"1", b"x" * 65_507):
                client.transport.sendto(text)
                data, address = await server.came.get()
                assert data == text
                server.transport.sendto(data, address)
                assert await client.came.get() == (text, client.transport.get_extra_info("peername"))


@pytest.mark.timeout(60)
async def test_it_reads_on_after_a_report_that_a_datagram_did_not_arrive() -> None:
    with bound() as nobody:
        address = nobody.getsockname()
    sock = bound()
    sock.connect(address)
    async with given(sock) as client:
        for _ in range(3):
            client.transport.sendto(b"x")
            assert isinstance(await client.faults.get(), OSError)
        async with given(bound(address[1])) as server:
            client.transport.sendto(b"y")
            _, back = await server.came.get()
            server.transport.sendto(b"z", back)
            assert await client.came.get() == (b"z", address)


class Stuck:
    """A socket's face that takes nothing at once."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)

    def sendto(self, data: bytes, address: Any) -> int:
        raise BlockingIOError


@pytest.mark.parametrize("end", ["close", "abort"])
@pytest.mark.timeout(60)
async def test_what_the_system_does_not_take_at_once_waits(end: str) -> None:
    loop = asyncio.get_running_loop()
    ends = Ends()
    paused: list[str] = []
    ends.pause_writing = lambda: paused.append("pause")  # type: ignore[method-assign]
    ends.resume_writing = lambda: paused.append("resume")  # type: ignore[method-assign]
    with bound() as far:
        sock = bound()
        SocketDatagrams(loop, Stuck(sock), ends)  # type: ignore[arg-type]
        ends.transport.set_write_buffer_limits(high=3)
        released = asyncio.Event()
        sent: list[bytes] = []

        async def send(_: Any, data: bytes, address: Any) -> None:
            await released.wait()
            sent.append(data)

        loop.sock_sendto = send  # type: ignore[method-assign,assignment]
        for text in (b"ab", b"cd"):
            ends.transport.sendto(text, far.getsockname())
        assert paused == ["pause"]
        assert ends.transport.get_write_buffer_size() == 4
        await asyncio.sleep(0)
        getattr(ends.transport, end)()
        assert ends.transport.is_closing()
        released.set()
        await asyncio.wait_for(ends.lost.wait(), 20)
        assert sent == ([b"ab", b"cd"] if end == "close" else [])
