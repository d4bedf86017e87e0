"""What the soak's callers do: each scene connects, calls, checks each answer, and leaves in one of the ways in which
callers leave. A scene is a coroutine function of a `Turn`; it raises `Wrong` for an answer that is not the right one.

What a disturbance excuses (a worker that is killed) is `Turn.excused`: a lost channel then, and never a wrong answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any, TypeAlias

from msgspec import Struct, field

from dragoman import ChannelError, RpcError, Service, connect
from dragoman.mcp import Client


class Wrong(Exception):
    """An answer that is not the right one, or a failure that nothing excuses."""


class Turn(Struct):
    """One run of a scene: its URL, its dice, and what it counts."""

    url: str
    random: Random
    counts: Counter[str] = field(default_factory=Counter)
    excused: Callable[[], bool] = lambda: False
    """Whether a lost channel is no fault at this moment."""
    moves: bool = False
    """Whether its server is one of several that come and go, so that a peer has to connect anew."""

    def same(self, what: str, found: object, wanted: object) -> None:
        """Count an answer. Raises Wrong for another than is wanted."""
        if found != wanted:
            raise Wrong(f"{self.url}: {what} is {found!r}, not {wanted!r}")
        self.counts[what] += 1


Scene: TypeAlias = Callable[[Turn], Coroutine[Any, Any, None]]

# -- JSON-RPC


def _client() -> Service:
    own = Service("client", discover=False)

    @own.method(inline=True)
    def double(value: int) -> int:
        return 2 * value

    return own


async def rpc(turn: Turn) -> None:
    """Calls of every kind over one channel, in both directions where the wire has two."""
    duplex = turn.url.startswith(("tcp:", "ws:", "unix:"))
    async with connect(turn.url, service=_client() if duplex else None, reconnect=turn.moves) as peer:
        for _ in range(turn.random.randrange(1, 12)):
            number = turn.random.randrange(1 << 30)
            turn.same("add", await peer.call("add", [number, 1]), number + 1)
            text = str(number) * turn.random.choice((1, 1, 100, 2000))
            turn.same("threaded", await peer.call("threaded", [text]), text[::-1])
            several = await asyncio.gather(*(peer.call("later", [one, 0.001 * one]) for one in range(5)))
            turn.same("later", several, [0, 1, 2, 3, 4])
            async with peer.batch() as batch:
                sums = [batch.call("add", [one, number]) for one in range(3)]
                batch.notify("later", [None])
            turn.same("batch", [one.result() for one in sums], [one + number for one in range(3)])
            try:
                await peer.call("fail", [number])
            except RpcError as error:
                turn.same("fail", (error.code, error.data), (7, number))
            else:
                raise Wrong(f"{turn.url}: fail was answered with a result")
            await peer.notify("later", [None])
            if duplex:
                turn.same("ask_back", await peer.call("ask_back", [number]), 2 * number)
        if turn.random.random() < 0.3:  # it goes while its calls run
            calls = [asyncio.ensure_future(peer.call("later", [1, 5.0])) for _ in range(3)]
            await asyncio.sleep(0.01)
            for call in calls[: turn.random.randrange(4)]:
                call.cancel()
            await peer.close(0)
            await asyncio.gather(*calls, return_exceptions=True)


async def cut_off(turn: Turn) -> None:
    """A program that dies: its connection is reset in the middle of a message, or of its calls."""
    host, port = turn.url.split("//")[1].split("/")[0].split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    message = b'{"jsonrpc":"2.0","method":"later","params":["x",5.0],"id":1}\n'
    writer.write(message * turn.random.randrange(4) + message[: turn.random.randrange(len(message))])
    with contextlib.suppress(ConnectionError):
        await writer.drain()
    if turn.random.random() < 0.5:
        writer.write_eof()
    await asyncio.sleep(0.02)
    writer.transport.abort()
    turn.counts["cut off"] += 1
    del reader


# -- MCP


async def _answer(asked: Any) -> dict[str, Any] | None:
    return {"name": "Ada"}


def _scene_of(revision: str) -> Scene:
    async def mcp(turn: Turn) -> None:
        """Tools, questions, progress, cancels, lists and changes of one client."""
        async with Client(turn.url, revision=revision, on_elicit=_answer) as client:
            for _ in range(turn.random.randrange(1, 6)):
                number = turn.random.randrange(1 << 30)
                joined = await client.call_tool("join", {"left": "a", "right": str(number)}, result=str)
                turn.same("join", joined, f"a{number}")
                if revision > "2025-06":  # earlier ones know no question
                    greeted = await client.call_tool("greet", {"greeting": "Hello"}, result=str)
                    turn.same("greet", greeted, "Hello, Ada")
                seen: list[float] = []
                counted = await client.call_tool("count", {"up_to": 5}, result=int, on_progress=_into(seen))
                turn.same("count", counted, 5)
                turn.same("progress", sorted(seen) == seen and len(seen) <= 5, True)
                (content,) = (await client.read_resource("soak://changed")).contents
                turn.same("read", content.text, "text")
                call = asyncio.ensure_future(client.call_tool("slow", {"seconds": 5.0}))
                await asyncio.sleep(0.005)
                call.cancel()
                await asyncio.gather(call, return_exceptions=True)
            turn.same("tools", {"join", "greet", "count"} <= {tool.name for tool in await client.list_tools()}, True)
            if turn.random.random() < 0.3:  # it goes while a call of its own runs
                call = asyncio.ensure_future(client.call_tool("slow", {"seconds": 5.0}))
                await asyncio.sleep(0.01)
                await client.close()
                await asyncio.gather(call, return_exceptions=True)

    return mcp


def _into(seen: list[float]) -> Callable[[Any], None]:
    return lambda told: seen.append(told.progress)


def _changes_of(revision: str) -> Scene:
    async def changes(turn: Turn) -> None:
        """A client that listens while another changes a list and a resource."""
        async with (
            Client(turn.url, revision=revision) as client,
            Client(turn.url, revision="2026-07-28") as other,
            client.subscribe(["soak://changed"], tools=True) as changes,
        ):
            await other.call_tool("change")
            kinds = set()
            async for change in changes:
                kinds.add(change.kind)
                if len(kinds) == 2:
                    break
            turn.same("changes", len(kinds), 2)

    return changes


async def resumed(turn: Turn) -> None:
    """A session whose server closes the stream of a call: the client comes back for the answer."""
    async with Client(turn.url, revision="2025-11-25") as client:
        for _ in range(2):
            turn.same("resumed", await client.call_tool("resumed", result=str), "resumed")


async def left(turn: Turn) -> None:
    """A client of the stateful era that is gone without a word, in the middle of a question."""
    host, port = turn.url.split("//")[1].split("/")[0].split(":")
    hello = {
        "protocolVersion": "2025-11-25",
        "capabilities": {"elicitation": {}},
        "clientInfo": {"name": "left", "version": "1"},
    }
    reader, writer = await asyncio.open_connection(host, int(port))
    _post(writer, host, {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello})
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    session = next(line.partition(": ")[2] for line in head.splitlines() if line.lower().startswith("mcp-session-id"))
    _post(writer, host, {"jsonrpc": "2.0", "method": "notifications/initialized"}, session)
    call = {"name": "greet", "arguments": {"greeting": "Hello"}}
    _post(writer, host, {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call}, session)
    with contextlib.suppress(asyncio.IncompleteReadError):
        await reader.readuntil(b"elicitation/create")
        turn.counts["left"] += 1
    writer.transport.abort()


def _post(writer: asyncio.StreamWriter, host: str, message: object, session: str = "") -> None:
    body = json.dumps(message).encode()
    more = f"mcp-session-id: {session}\r\nmcp-protocol-version: 2025-11-25\r\n" if session else ""
    head = (
        f"POST /mcp HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\n"
        f"accept: application/json, text/event-stream\r\n{more}content-length: {len(body)}\r\n\r\n"
    )
    writer.write(head.encode() + body)


SCENES: dict[str, list[Scene]] = {
    "rpc": [rpc],
    "tcp": [rpc, cut_off],
    "mcp": [
        _scene_of("2026-07-28"),
        _scene_of("2025-11-25"),
        _scene_of("2025-03-26"),
        _changes_of("2026-07-28"),
        _changes_of("2025-11-25"),
        resumed,
        left,
    ],
}
"""What is done at a URL, by the kind of what is there."""


async def lives(turn: Turn, scene: Scene, seconds: Callable[[], float]) -> None:
    """Run a scene again and again until the time is over. Raises Wrong."""
    while seconds() > 0:
        try:
            async with asyncio.timeout(60):
                await scene(turn)
        except (ChannelError, OSError, TimeoutError, asyncio.IncompleteReadError) as fault:
            if not turn.excused():
                raise Wrong(f"{turn.url}, {scene.__name__}: {type(fault).__name__}: {fault}") from fault
            turn.counts["excused"] += 1
        except RpcError as fault:
            raise Wrong(f"{turn.url}, {scene.__name__}: {fault!r}") from fault
