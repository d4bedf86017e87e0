"""Accepting: who is served when a socket closes; which of several processes accepts less (`LoadBoard`)."""

from __future__ import annotations

import asyncio
import socket
import tempfile
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from dragoman import serve
from dragoman.net.accept import ABSENT, PATIENCE, LoadBoard
from tests.calculator import calculator
from tests.loops import NAMES, RUNNERS
from tests.transports.ends import PATIENCE as PATIENT
from tests.transports.ends import until

WAITING = 40
"""Callers in the queue of a socket: more than are accepted at one wake-up."""
CALL = b'{"jsonrpc":"2.0","method":"subtract","params":[42,23],"id":1}'
POST = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
URLS = {"tcp": "tcp://127.0.0.1:0", "unix": "unix:", "http": "http://127.0.0.1:0"}


def connected(url: str) -> socket.socket:
    """A connection to a server whose loop stands still meanwhile."""
    if url.startswith("unix:"):
        made = socket.socket(socket.AF_UNIX)
        made.connect(url.removeprefix("unix:"))
        return made
    return socket.create_connection(("127.0.0.1", int(url.rstrip("/").rpartition(":")[2])))


def call_at(url: str) -> bytes:
    """A call as the wire has it."""
    return POST % (len(CALL), CALL) if url.startswith("http:") else CALL + b"\n"


async def answer_of(caller: socket.socket) -> bytes:
    """All that comes, to the end."""
    with caller:
        caller.setblocking(False)
        found = b""
        async with asyncio.timeout(PATIENT):
            while chunk := await asyncio.get_running_loop().sock_recv(caller, 1 << 16):
                found += chunk
        return found


@pytest.mark.parametrize("run", RUNNERS, ids=NAMES)
@pytest.mark.parametrize("scheme", URLS)
def test_who_has_connected_is_served_when_the_socket_closes(
    run: Callable[[Coroutine[Any, Any, None]], None], scheme: str, tmp_path: Path
) -> None:
    async def main() -> None:
        url = URLS[scheme] if scheme != "unix" else f"unix:{tmp_path}/socket"
        async with serve(calculator(), urls=url) as serving:
            callers = [connected(serving.urls[0]) for _ in range(WAITING)]
            for caller in callers:
                caller.sendall(call_at(url))
            closing = asyncio.create_task(serving.close())
            answers = await asyncio.gather(*map(answer_of, callers))
            await closing
        assert all(b'"result":19' in answer for answer in answers)

    run(main())


async def test_a_request_that_is_on_its_way_when_the_socket_closes_is_answered() -> None:
    async with serve(calculator(), urls=URLS["http"]) as serving:
        caller = connected(serving.urls[0])
        listener: Any = serving._listeners[0]
        await until(lambda: listener.carried() == 1)
        closing = asyncio.create_task(serving.close())
        await until(lambda: listener._closing)
        caller.sendall(call_at("http:"))
        assert b'"result":19' in await answer_of(caller)
        await closing


@pytest.fixture
def boards() -> Iterator[list[LoadBoard]]:
    """Three places in one memory; the third is empty."""
    with tempfile.TemporaryFile() as file:
        file.write(ABSENT.to_bytes(8, "little", signed=True) * 3)
        file.flush()
        yield [LoadBoard(file.fileno(), place) for place in range(2)]


def test_who_carries_more_gives_way(boards: list[LoadBoard]) -> None:
    one, other = boards
    carried = [0, 0]
    one.join(lambda: carried[0])
    assert not one.gives_way()  # alone
    other.join(lambda: carried[1])
    assert not one.gives_way()  # as many
    carried[0] = 1
    assert one.gives_way()
    assert not other.gives_way()
    carried[1] = 5
    assert other.gives_way()
    assert not one.gives_way()


def test_patience_ends_until_something_changes(boards: list[LoadBoard]) -> None:
    one, other = boards
    carried = [9, 0]
    one.join(lambda: carried[0])
    other.join(lambda: carried[1])
    assert [one.gives_way() for _ in range(PATIENCE + 3)] == [True] * PATIENCE + [False] * 3
    carried[1] = 1
    assert not other.gives_way()  # it lives
    assert one.gives_way()


def test_several_doors_of_one_process_count_together(boards: list[LoadBoard]) -> None:
    one, other = boards
    first, second = lambda: 2, lambda: 3
    one.join(first)
    one.join(second)
    other.join(lambda: 4)
    assert one.gives_way()
    one.leave(second)
    assert not one.gives_way()
    one.leave(second)  # once more does no harm
