"""A server that drains: when each channel closes, and that no call of a peer that connects again is lost or run twice.

Two servings share one listening socket here, as an old and a new worker do.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import pytest

from dragoman import Limits, Service, connect, serve
from dragoman.rpc.peer import Peer
from dragoman.serving import Serving
from tests.transports.ends import PATIENCE, until

WIRES = ["tcp", "tcp content-length", "unix", "ws", "http"]
CLOSING = b'{"jsonrpc":"2.0","method":"$/closing","params":{}}'


class Worker:
    """One generation of a server, which counts what it has run."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.api = Service("worker")
        self.ran: list[int] = []
        self.held: list[int] = []
        self.cancelled: list[int] = []
        self.gate = asyncio.Event()
        self.api.method(inline=True)(self.count)
        self.api.method(self.brief)
        self.api.method(self.hold)

    def count(self, number: int) -> str:
        self.ran.append(number)
        return self.name

    async def brief(self, number: int) -> str:
        self.ran.append(number)
        await asyncio.sleep(0)
        return self.name

    async def hold(self, number: int) -> str:
        self.held.append(number)
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled.append(number)
            raise
        return self.name


class Pair:
    """An old and a new worker on one socket."""

    def __init__(self, wire: str, folder: Path) -> None:
        scheme, _, self.framing = wire.partition(" ")
        self.old, self.new = Worker("old"), Worker("new")
        if scheme == "unix":
            self.socket = socket.socket(socket.AF_UNIX)
            self.socket.bind(str(folder / "s"))
            self.url = f"unix:{folder / 's'}"
        else:
            self.socket = socket.create_server(("127.0.0.1", 0))
            self.url = f"{scheme}://127.0.0.1:{self.socket.getsockname()[1]}"
        self.socket.listen(100)

    @asynccontextmanager
    async def serving(self, worker: Worker) -> AsyncIterator[Serving]:
        framing: Any = self.framing or None
        with self.socket.dup() as shared:
            async with serve(
                worker.api, urls=self.url, framing=framing, sockets={self.url: [shared.detach()]}
            ) as serving:
                yield serving

    def connect(self, **options: Any) -> Any:
        framing: Any = self.framing or None
        return connect(self.url, framing=framing, reconnect=True, timeout=PATIENCE, **options)


@pytest.fixture(params=WIRES)
async def pair(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Pair]:
    pair = Pair(request.param, tmp_path)
    yield pair
    pair.socket.close()


async def test_an_idle_peer_moves_at_once(pair: Pair) -> None:
    """Although the call of another peer goes on."""
    async with pair.serving(pair.old) as old, pair.connect() as busy, pair.connect() as idle:
        held = asyncio.create_task(busy.call("hold", [1]))
        assert await idle.call("count", [1]) == "old"
        await until(lambda: pair.old.held)
        async with pair.serving(pair.new):
            closing = asyncio.create_task(old.close())
            async with asyncio.timeout(PATIENCE):
                number = 2
                while await idle.call("count", [number]) != "new":
                    number += 1
            assert not closing.done()
            pair.old.gate.set()
            assert await held == "old"
            await closing
            assert await busy.call("count", [0]) == "new"
    assert sorted(pair.old.ran + pair.new.ran) == list(range(number + 1))


async def test_under_load_every_call_is_answered_and_runs_once(pair: Pair) -> None:
    """Callers of one peer that are never idle together, and callers of a peer each."""
    answers: Counter[str] = Counter()
    numbers = iter(range(1_000_000))
    sent: list[int] = []
    enough = asyncio.Event()

    async def call(peer: Peer, method: str) -> None:
        while not enough.is_set():
            number = next(numbers)
            sent.append(number)
            answers[await peer.call(method, [number])] += 1
            await asyncio.sleep(0)

    async with pair.serving(pair.old) as old, pair.connect() as one, pair.connect() as two, pair.connect() as three:
        callers = [asyncio.create_task(call(one, method)) for method in ("brief", "brief", "brief", "count")]
        callers += [asyncio.create_task(call(peer, "brief")) for peer in (two, three)]
        await until(lambda: answers["old"] > 50)
        async with pair.serving(pair.new):
            await old.close()
            await until(lambda: answers["new"] > 200)
            enough.set()
            await asyncio.gather(*callers)
    assert sorted(pair.old.ran + pair.new.ran) == sent
    print(f"{len(sent)} calls: {dict(answers)}")


@pytest.mark.parametrize("pair", ["tcp", "tcp content-length", "unix", "ws"], indirect=True)
async def test_a_channel_with_an_older_call_takes_new_ones(pair: Pair) -> None:
    async with pair.serving(pair.old) as old, pair.connect() as peer:
        held = asyncio.create_task(peer.call("hold", [1]))
        await until(lambda: pair.old.held)
        async with pair.serving(pair.new):
            closing = asyncio.create_task(old.close())
            for number in range(20):
                assert await peer.call("count", [number]) == "old"
                assert await peer.call("brief", [number]) == "old"
            pair.old.gate.set()
            assert await held == "old"
            await closing
            assert await peer.call("count", [1]) == "new"


@pytest.mark.parametrize("pair", ["tcp", "tcp content-length", "unix", "ws"], indirect=True)
async def test_what_a_draining_server_refuses_is_sent_to_the_next(pair: Pair) -> None:
    """The older call outlasts the time in which new ones are taken; a drain that ends answers it too."""
    async with pair.serving(pair.old) as old, pair.connect() as peer:
        held = asyncio.create_task(peer.call("hold", [1]))
        await until(lambda: pair.old.held)
        async with pair.serving(pair.new):
            closing = asyncio.create_task(old.close(1.0))
            answers: list[Any] = []
            while "new" not in answers:
                answers.append(await peer.call("brief", [len(answers)]))
            assert sorted(pair.old.ran + pair.new.ran) == list(range(len(answers)))
            with pytest.raises(Exception, match="Draining: the server closed before the call was done"):
                await held
            await closing


async def raw(serving: Serving) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", int(serving.urls[0].rpartition(":")[2]))


def request(method: str, number: int) -> bytes:
    return b'{"jsonrpc":"2.0","method":"%b","params":[%d],"id":%d}\n' % (method.encode(), number, number)


async def test_the_last_words_of_a_channel_in_bytes() -> None:
    """What was taken is answered before `$/closing`; nothing that comes after it is run."""
    worker = Worker("old")
    async with serve(worker.api, urls="tcp://127.0.0.1:0") as serving:
        reader, writer = await raw(serving)
        writer.write(request("count", 1))
        await reader.readline()
        closing = asyncio.create_task(serving.close())
        assert await reader.readline() == CLOSING + b"\n"
        writer.write(request("count", 2))
        assert await reader.read() == b""
        writer.close()
        await closing
        assert worker.ran == [1]


@pytest.mark.parametrize("dialect", ["lsp", "plain"])
async def test_a_peer_that_does_not_connect_again_sees_a_closed_channel(dialect: Literal["lsp", "plain"]) -> None:
    worker = Worker("old")
    async with (
        serve(worker.api, urls="tcp://127.0.0.1:0") as serving,
        connect(serving.urls[0], dialect=dialect) as peer,
    ):
        assert await peer.call("count", [1]) == "old"
        await serving.close()
        await until(lambda: peer.closed)
        with pytest.raises(ConnectionError):
            await peer.call("count", [2])


# -- far ends that have closed their sending side ---------------------------------------------------------------------


@pytest.mark.parametrize("how", ["killed", "reset"])
async def test_the_calls_of_who_is_gone_end(how: str) -> None:
    """A killed program's kernel sends an end of file, as one that waits for its answers does."""
    worker = Worker("old")
    async with serve(worker.api, urls="tcp://127.0.0.1:0") as serving:
        far = socket.create_connection(("127.0.0.1", int(serving.urls[0].rpartition(":")[2])))
        far.sendall(b"".join(request("hold", number) for number in range(20)))
        await until(lambda: len(worker.held) == 20)
        if how == "reset":
            far.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        far.close()
        closing = asyncio.create_task(serving.close())  # waits for none that has gone
        await until(lambda: len(worker.cancelled) == 20)
        await closing


async def test_the_calls_of_a_killed_program_end_on_a_unix_socket(tmp_path: Path) -> None:
    worker = Worker("old")
    async with serve(worker.api, urls=f"unix:{tmp_path / 's'}"):
        far = socket.socket(socket.AF_UNIX)
        far.connect(str(tmp_path / "s"))
        far.sendall(request("hold", 1))
        await until(lambda: worker.held)
        far.close()
        await until(lambda: worker.cancelled)


async def test_a_far_end_that_waits_for_its_answers_has_them() -> None:
    """What was written to find out whether it is there is white space of its answer."""
    worker = Worker("old")
    async with serve(worker.api, urls="tcp://127.0.0.1:0") as serving:
        reader, writer = await raw(serving)
        writer.write(request("hold", 7))
        writer.write_eof()
        assert await reader.readexactly(2) == b"  "
        worker.gate.set()
        assert json.loads(await reader.readline()) == {"jsonrpc": "2.0", "result": "old", "id": 7}
        assert await reader.read() == b""
        writer.close()


async def test_where_nothing_tells_the_calls_end_after_a_bound() -> None:
    worker = Worker("old")
    limits = Limits(half_closed_timeout=0.2)
    async with serve(worker.api, urls="tcp://127.0.0.1:0", framing="content-length", limits=limits) as serving:
        _, writer = await raw(serving)
        call = request("hold", 7)
        writer.write(b"Content-Length: %d\r\n\r\n" % len(call) + call)
        writer.write_eof()
        await until(lambda: worker.cancelled == [7])
        writer.close()
