"""The work of one wake-up is bounded on every loop: who has more to read waits until the others had their turn."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from dragoman.channel import Broken, Options
from dragoman.net.read_buffer import SIZE
from dragoman.transports.http.listener import listen as listen_http
from dragoman.transports.stream.listener import listen as listen_stream
from tests.loops import NAMES, RUNNERS
from tests.servable import Idle
from tests.transports.ends import until

Run = Callable[[Coroutine[Any, Any, None]], None]
Listen = Callable[..., Coroutine[Any, Any, Any]]
LINE = b"x" * 63 + b"\n"
MOST = 64 * 1024 * 1024


def fill(port: int, first: bytes, piece: bytes) -> socket.socket:
    """A connection on which as many bytes wait as the system holds, before the loop has read one."""
    sock = socket.create_connection(("127.0.0.1", port))
    sock.setblocking(False)
    sent, data = 0, first + piece * (SIZE // len(piece))
    try:
        while sent < MOST:
            sent += sock.send(data)
            data = piece * (SIZE // len(piece))
    except BlockingIOError:
        pass
    assert sent > 2 * SIZE
    return sock


class Turns:
    """The most that was counted in one turn of the loop."""

    def __init__(self) -> None:
        self.count = self.most = self.all = 0
        self._loop = asyncio.get_running_loop()
        self._loop.call_soon(self._turn)

    def add(self) -> None:
        self.count += 1
        self.all += 1
        self.most = max(self.most, self.count)

    def _turn(self) -> None:
        self.count = 0
        self._loop.call_soon(self._turn)


class Lines(Idle):
    """Counts the messages of channels."""

    def __init__(self, turns: Turns) -> None:
        super().__init__()
        self.turns = turns

    def attach(self, channel: Any) -> None:
        self.channel = channel
        channel.open(self)

    def received(self, message: bytes, call: Any = None) -> None:
        self.turns.add()

    def refused(self, malformed: Any) -> None: ...

    def finished(self) -> None: ...

    def ended(self, why: Any) -> None: ...


class Posts(Idle):
    """Counts the POSTs."""

    def __init__(self, turns: Turns) -> None:
        super().__init__()
        self.turns = turns

    def exchange(self, x: Any) -> None:
        self.turns.add()
        x.respond(None)


def most_in_a_turn(
    run: Run, listen: Listen, url: str, make: type[Lines | Posts], piece: bytes, count: int, first: bytes = b""
) -> int:
    """The most pieces that a listener takes in one turn of the loop, of more than `count`, behind `first`."""

    async def main() -> None:
        turns = Turns()
        served = make(turns)
        listener = await listen(url, {"": served}, Options())
        sock = fill(int(listener.url.rpartition(":")[2]), first, piece)
        try:
            await until(lambda: turns.all > count)
        finally:
            sock.close()
            await listener.close()
            if isinstance(served, Lines):
                served.channel.abort(Broken("the test is over"))
            await listener.closed()
        most.append(turns.most)

    most: list[int] = []
    run(main())
    return most[0]


@pytest.mark.parametrize("run", RUNNERS, ids=NAMES)
def test_a_stream_takes_one_buffer_in_a_turn(run: Run) -> None:
    most = most_in_a_turn(run, listen_stream, "tcp://127.0.0.1:0", Lines, LINE, 2 * SIZE // len(LINE))
    assert most <= SIZE // len(LINE) + 1


@pytest.mark.parametrize("run", RUNNERS, ids=NAMES)
def test_http_takes_one_buffer_in_a_turn(run: Run) -> None:
    post = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
    most = most_in_a_turn(run, listen_http, "http://127.0.0.1:0", Posts, post, SIZE // len(post))
    assert most <= SIZE // len(post) + 1


@pytest.mark.parametrize("run", RUNNERS, ids=NAMES)
def test_a_websocket_takes_one_buffer_in_a_turn(run: Run) -> None:
    upgrade = (
        b"GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
    )
    frame = b"\x81\xfe\x04\x00" + bytes(4) + b"x" * 1024  # so large that the bytes bound a turn, not the frames
    most = most_in_a_turn(run, listen_http, "ws://127.0.0.1:0", Lines, frame, 2 * SIZE // len(frame), upgrade)
    assert most <= SIZE // len(frame) + 1
