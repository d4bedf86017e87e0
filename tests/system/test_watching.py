"""Sockets are watched on loops that wait for completions alone."""

from __future__ import annotations

import asyncio
import socket
import threading
from typing import Any

import pytest

from dragoman.system.watching import add_reader, add_writer, remove_reader, remove_writer


class Completions(asyncio.SelectorEventLoop):
    """A loop without readiness, as Windows' proactor loop."""

    def add_reader(self, fd: Any, callback: Any, *args: Any) -> None:  # type: ignore[override]
        raise NotImplementedError

    def add_writer(self, fd: Any, callback: Any, *args: Any) -> None:  # type: ignore[override]
        raise NotImplementedError

    def remove_reader(self, fd: Any) -> bool:
        raise NotImplementedError

    def remove_writer(self, fd: Any) -> bool:
        raise NotImplementedError


def watchers() -> list[threading.Thread]:
    return [one for one in threading.enumerate() if one.name == "dragoman watches sockets"]


@pytest.fixture(params=[Completions, asyncio.new_event_loop], ids=["completions", "own"])
def runner(request: pytest.FixtureRequest) -> asyncio.Runner:
    return asyncio.Runner(loop_factory=request.param)


def test_readable_again_and_again_until_it_is_removed(runner: asyncio.Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        with ours, theirs:
            ours.setblocking(False)
            found: asyncio.Queue[bytes] = asyncio.Queue()
            add_reader(loop, ours, lambda: found.put_nowait(ours.recv(1)))
            theirs.send(b"abc")
            assert [await found.get() for _ in range(3)] == [b"a", b"b", b"c"]
            remove_reader(loop, ours)
            theirs.send(b"d")
            add_writer(loop, ours, lambda: found.put_nowait(b"writable"))
            assert await found.get() == b"writable"
            remove_writer(loop, ours)
            remove_writer(loop, ours)  # once more has no effect

    with runner:
        runner.run(main())


def test_two_sockets_and_one_is_closed(runner: asyncio.Runner) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        one, other = socket.socketpair()
        two, another = socket.socketpair()
        with other, two, another:
            two.setblocking(False)
            found: asyncio.Queue[bytes] = asyncio.Queue()
            add_reader(loop, one, lambda: None)
            add_reader(loop, two, lambda: found.put_nowait(two.recv(1)))
            remove_reader(loop, one)
            one.close()
            another.send(b"x")
            assert await found.get() == b"x"
            remove_reader(loop, two)

    with runner:
        runner.run(main())


def test_the_thread_ends_with_the_last_socket() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        before = watchers()  # of tests before, which may be ending still
        with ours, theirs:
            add_reader(loop, ours, lambda: None)
            (watcher,) = [one for one in watchers() if one not in before]
            remove_reader(loop, ours)
            await loop.run_in_executor(None, watcher.join, 20)
            assert not watcher.is_alive()

    with asyncio.Runner(loop_factory=Completions) as runner:
        runner.run(main())
