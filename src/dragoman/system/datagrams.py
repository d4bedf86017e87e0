"""Sockets for datagrams, on every event loop.

Loops that wait for readiness, and uvloop, have a transport for them. That of Windows' proactor loop in CPython 3.12
stops reading at the first report that a datagram did not arrive, so that a single caller that closes its socket too
early would silence a server. There it is replaced by one that reads on.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from collections import deque
from typing import Any, Final


async def bound_datagrams(protocol: asyncio.DatagramProtocol, sock: socket.socket) -> None:
    """Give the protocol what comes to a bound socket, and a transport that sends from there."""
    loop = asyncio.get_running_loop()
    if _reads_on(loop):
        await loop.create_datagram_endpoint(lambda: protocol, sock=sock)
    else:
        SocketDatagrams(loop, sock, protocol)


async def connected_datagrams(protocol: asyncio.DatagramProtocol, host: str, port: int) -> None:
    """Give the protocol a transport that sends to that address alone, and what comes from there. Raises OSError, and
    UnicodeError for a host that cannot be a name."""
    loop = asyncio.get_running_loop()
    if _reads_on(loop):
        await loop.create_datagram_endpoint(lambda: protocol, remote_addr=(host, port))
    else:
        SocketDatagrams(loop, await _connect(loop, host, port), protocol)


def _reads_on(loop: asyncio.AbstractEventLoop) -> bool:
    return not (sys.platform == "win32" and isinstance(loop, asyncio.ProactorEventLoop))


async def _connect(loop: asyncio.AbstractEventLoop, host: str, port: int) -> socket.socket:
    """Return a socket that is connected to the first address of the host that the system has a way to."""
    fault = OSError(f"{host} has no address")
    for family, kind, protocol, _, address in await loop.getaddrinfo(host, port, type=socket.SOCK_DGRAM):
        sock = socket.socket(family, kind, protocol)
        try:
            sock.setblocking(False)
            sock.connect(address)
        except OSError as refused:
            sock.close()
            fault = refused
        else:
            return sock
    raise fault


class SocketDatagrams(asyncio.DatagramTransport):
    """A transport for a bound or connected socket that does not block, which becomes its own. It needs no more of a
    loop than `sock_recv` and its like. Errors of single datagrams go to the protocol's `error_received`."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, sock: socket.socket, protocol: asyncio.DatagramProtocol
    ) -> None:
        try:
            peer = sock.getpeername()
        except OSError:  # it is not connected
            peer = None
        super().__init__({"socket": sock, "sockname": sock.getsockname(), "peername": peer})
        self._loop = loop
        self._sock = sock
        self._peer = peer
        self._protocol = protocol
        self._unsent: deque[tuple[bytes, Any]] = deque()
        self._size = 0
        self._most = 64 * 1024
        self._paused = False
        self._closing = False
        protocol.connection_made(self)
        self._reading: asyncio.Task[None] | None = loop.create_task(self._read())
        self._reading.add_done_callback(self._read_last)
        self._writing: asyncio.Task[None] | None = None

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Let the protocol pause when more than `high` bytes wait; it goes on when none does."""
        self._most = 64 * 1024 if high is None else high

    def get_write_buffer_size(self) -> int:
        """Return how many bytes wait for the system to take them."""
        return self._size

    def is_closing(self) -> bool:
        """Return whether it is closed, or about to be."""
        return self._closing

    def sendto(self, data: Any, addr: Any = None) -> None:
        """Send a datagram, as soon as the system takes it. `addr`: to whom, if the socket is not connected."""
        if self._closing:
            return
        if self._writing is None:
            try:
                if self._peer is None:
                    self._sock.sendto(data, addr)
                else:
                    self._sock.send(data)
            except (BlockingIOError, InterruptedError):
                pass
            except OSError as fault:
                self._protocol.error_received(fault)
                return
            else:
                return
        self._unsent.append((bytes(data), addr))
        self._size += len(data)
        if self._writing is None:
            self._writing = self._loop.create_task(self._write())
            self._writing.add_done_callback(self._written)
        if self._size > self._most and not self._paused:
            self._paused = True
            self._protocol.pause_writing()

    def close(self) -> None:
        """Read no more, send what waits, and end."""
        self._closing = True
        if self._reading is not None:
            self._reading.cancel()

    def abort(self) -> None:
        """End; what waits is dropped."""
        self.close()
        if self._writing is not None:
            self._writing.cancel()

    async def _read(self) -> None:
        while True:
            try:
                if self._peer is None:
                    data, address = await self._loop.sock_recvfrom(self._sock, _LARGEST)
                else:
                    data, address = await self._loop.sock_recv(self._sock, _LARGEST), self._peer
            except OSError as fault:
                self._protocol.error_received(fault)
                # one that is no datagram's would come again and again
                await asyncio.sleep(0 if getattr(fault, "winerror", None) in _OF_A_DATAGRAM else _REST)
                continue
            if address is not None:  # a later CPython's way to say that a datagram did not arrive
                self._protocol.datagram_received(data, address)

    def _read_last(self, reading: asyncio.Task[None]) -> None:
        self._reading = None
        self._fail(reading)
        self._end()

    async def _write(self) -> None:
        while self._unsent:
            data, address = self._unsent[0]
            try:
                if self._peer is None:
                    await self._loop.sock_sendto(self._sock, data, address)
                else:
                    await self._loop.sock_sendall(self._sock, data)
            except OSError as fault:
                self._protocol.error_received(fault)
            self._unsent.popleft()
            self._size -= len(data)

    def _written(self, writing: asyncio.Task[None]) -> None:
        self._writing = None
        self._unsent.clear()
        self._size = 0
        self._fail(writing)
        if self._paused and not self._closing:
            self._paused = False
            self._protocol.resume_writing()
        self._end()

    def _fail(self, task: asyncio.Task[None]) -> None:
        """Tell the loop what the protocol has raised, and end."""
        if not task.cancelled() and (fault := task.exception()) is not None:
            self._loop.call_exception_handler(
                {"message": "a protocol for datagrams failed", "exception": fault, "transport": self}
            )
            self.abort()

    def _end(self) -> None:
        if self._closing and self._reading is None and self._writing is None and self._sock.fileno() >= 0:
            self._sock.close()
            self._protocol.connection_lost(None)


_LARGEST: Final = 65_536
"""Bytes to ask for: more than any datagram holds."""
_REST: Final = 0.1
"""Seconds to wait after an error that is not known to be a datagram's."""
_OF_A_DATAGRAM: Final = frozenset((234, 1225, 1231, 1232, 1233, 1234, 10040, 10051, 10052, 10054, 10061, 10065))
"""Errors of Windows, as the loop and as sockets report them, that say what became of one datagram: too long, or that
it did not arrive at its network, host or port (RFC 1122, 4.1.3.3)."""
