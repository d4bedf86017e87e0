"""One call's fault is its own: a bad answer fails its call, in words, and everything else goes on."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from websockets.asyncio.server import ServerConnection
from websockets.asyncio.server import serve as serve_websockets

from dragoman import BadAnswer, CallTimeout, RpcError, connect
from dragoman.channel import ChannelError
from dragoman.jsonrpc import Limits
from dragoman.mcp import Client

from .bad_answers import BATCHES, BODIES, KINDS, NOISE, STRAYS, Bad
from .mcp.scripted import Message, Scripted
from .mcp.scripted_http import Seen, Talk, scripted

LONG = 60.0
CHILD = """
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    for one in message if isinstance(message, list) else [message]:
        for text in one.get("params") or ():
            sys.stdout.write(text + "\\n")
            sys.stdout.flush()
"""
"""A child process that writes the lines which it is given."""


def good(id: int, value: Any = "fine") -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": id, "result": value}).encode()


# -- HTTP -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["first", "later"])
@pytest.mark.parametrize("bad", BODIES, ids=lambda bad: repr(bad.text[:60]))
async def test_over_http_a_bad_body_fails_its_own_call(bad: Bad, place: str) -> None:
    asked, release = asyncio.Event(), asyncio.Event()

    async def answer(seen: Seen, talk: Talk) -> None:
        if seen.message["method"] == "slow":
            asked.set()
            await release.wait()
        talk.say(bad.to(seen.id) if seen.message["method"] == "bad" else good(seen.id))

    async with scripted(answer) as server, connect(server.url, timeout=LONG) as peer:
        if place == "later":
            assert await peer.call("good") == "fine"
        slow = asyncio.create_task(peer.call("slow"))
        await asked.wait()
        with pytest.raises((BadAnswer, RpcError)) as caught:
            await peer.call("bad")
        assert bad.says in str(caught.value)
        assert "write tcp://" not in str(caught.value)
        release.set()
        assert await slow == "fine"
        assert await peer.call("good") == "fine"
        assert not peer.closed


async def test_over_http_a_body_settles_no_call_of_another_post() -> None:
    first, both = asyncio.Event(), asyncio.Event()

    async def answer(seen: Seen, talk: Talk) -> None:
        if seen.message["method"] == "slow":
            first.set()
            await both.wait()
            talk.say(good(seen.id, "its own"))
        else:  # the answer of the other, beside its own
            talk.say(b"[%b,%b]" % (good(1, "stolen"), good(seen.id)))

    async with scripted(answer) as server, connect(server.url, timeout=LONG) as peer:
        slow = asyncio.create_task(peer.call("slow"))
        await first.wait()
        assert await peer.call("quick") == "fine"
        both.set()
        assert await slow == "its own"


@pytest.mark.parametrize("bad", BATCHES, ids=lambda bad: repr(bad.text[:90]))
async def test_over_http_a_bad_answer_to_a_batch_ends_its_calls_at_once(bad: Bad) -> None:
    async def answer(seen: Seen, talk: Talk) -> None:
        talk.say(bad.to(1) if isinstance(seen.message, list) else good(seen.id))

    async with scripted(answer) as server, connect(server.url, timeout=LONG) as peer:
        async with peer.batch() as batch:
            calls = batch.call("bad"), batch.call("other")
        found = await asyncio.gather(*calls, return_exceptions=True)
        assert all(isinstance(one, BadAnswer) and bad.says in str(one) for one in found)
        assert await peer.call("good") == "fine"


async def test_over_http_any_number_of_bad_answers_ends_nothing() -> None:
    async def answer(seen: Seen, talk: Talk) -> None:
        talk.say(b"{NaN" if seen.message["method"] == "bad" else good(seen.id))

    async with scripted(answer) as server, connect(server.url, limits=Limits(malformed_in_a_row=3)) as peer:
        for _ in range(6):
            with pytest.raises(BadAnswer, match="not a JSON-RPC answer"):
                await peer.call("bad")
        assert await peer.call("good") == "fine"


async def test_no_wire_is_guessed_after_a_good_answer() -> None:
    async def answer(seen: Seen, talk: Talk) -> None:
        if seen.message["method"] == "bad":
            talk.raw(b'{"jsonrpc":"2.0","id":%d,"result":1}' % seen.id)
            talk.cut()
        else:
            talk.say(good(seen.id))

    async with scripted(answer) as server, connect(server.url) as peer:
        with pytest.raises(BadAnswer, match="write tcp://"):
            await peer.call("bad")
        assert await peer.call("good") == "fine"
        for _ in range(2):  # on the connection of the good one, and on a new one
            with pytest.raises(BadAnswer, match="is not HTTP") as caught:
                await peer.call("bad")
            assert "tcp://" not in str(caught.value)
        assert await peer.call("good") == "fine"


# -- wires that carry many messages --------------------------------------------------------------------

Answer = Callable[[Any], list[bytes]]


@contextlib.asynccontextmanager
async def tcp(answer: Answer) -> AsyncIterator[str]:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while line := await reader.readline():
                for text in answer(json.loads(line)):
                    writer.write(text + b"\n")
        writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0, limit=2**20)
    async with server:
        yield f"tcp://127.0.0.1:{server.sockets[0].getsockname()[1]}"


@contextlib.asynccontextmanager
async def websocket(answer: Answer) -> AsyncIterator[str]:
    async def talk(connection: ServerConnection) -> None:
        async for message in connection:
            for text in answer(json.loads(message)):
                await connection.send(text.decode("utf-8"), text=True)

    async with serve_websockets(talk, "127.0.0.1", 0) as server:
        yield f"ws://127.0.0.1:{next(iter(server.sockets)).getsockname()[1]}"


@contextlib.asynccontextmanager
async def stdio(answer: Answer) -> AsyncIterator[list[str]]:
    yield [sys.executable, "-c", CHILD]


WIRES: dict[str, Callable[[Answer], contextlib.AbstractAsyncContextManager[Any]]] = {
    "tcp": tcp, "websocket": websocket, "stdio": stdio,
}  # fmt: skip


def echoed(message: Any) -> list[bytes]:
    """The texts in its params, as they are: what the child does."""
    messages = message if isinstance(message, list) else [message]  # a batch
    return [text.encode() for one in messages for text in one.get("params") or ()]


def texts(*answers: bytes) -> list[str]:
    return [text.decode() for text in answers]


@pytest.mark.parametrize("place", ["first", "later"])
@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("bad", KINDS, ids=lambda bad: repr(bad.text[:60]))
async def test_on_a_channel_an_answer_with_an_id_ends_its_call_at_once(bad: Bad, wire: str, place: str) -> None:
    async with WIRES[wire](echoed) as target, connect(target, timeout=LONG) as peer:
        id = 1
        if place == "later":
            assert await peer.call("good", texts(good(id))) == "fine"
            id += 1
        slow = asyncio.create_task(peer.call("slow", []))
        await asyncio.sleep(0)
        with pytest.raises(BadAnswer) as caught:
            await peer.call("bad", texts(bad.to(id + 1)))
        assert bad.says in str(caught.value)
        assert await peer.call("good", texts(good(id), good(id + 2))) == "fine"
        assert await slow == "fine"


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("bad", BATCHES, ids=lambda bad: repr(bad.text[:90]))
async def test_on_a_channel_a_bad_answer_to_a_batch_ends_its_calls_at_once(bad: Bad, wire: str) -> None:
    async with WIRES[wire](echoed) as target, connect(target, timeout=LONG) as peer:
        slow = asyncio.create_task(peer.call("slow", []))
        await asyncio.sleep(0)
        async with peer.batch() as batch:
            calls = batch.call("bad", texts(bad.to(2))), batch.call("other", [])
        for one in calls:
            with pytest.raises(BadAnswer) as caught:
                await one
            assert bad.says in str(caught.value)
        assert await peer.call("good", texts(good(4), good(1))) == "fine"
        assert await slow == "fine"


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("bad", NOISE + STRAYS, ids=lambda bad: repr(bad.text[:60]))
async def test_on_a_channel_what_names_no_call_is_waited_over_and_named_by_the_time_out(bad: Bad, wire: str) -> None:
    async with WIRES[wire](echoed) as target, connect(target, timeout=LONG) as peer:
        await peer.notify("hello", texts(bad.to(7)))
        slow = asyncio.create_task(peer.call("slow", []))
        await asyncio.sleep(0)
        assert await peer.call("noisy", texts(bad.to(7), good(2))) == "fine"
        assert await peer.call("noisy", texts(good(3), bad.to(7), good(1))) == "fine"
        assert await slow == "fine"
        with pytest.raises(CallTimeout) as caught:
            await peer.call("lost", texts(bad.to(7)), timeout=0.2)
        assert bad.says in str(caught.value)
        assert await peer.call("good", texts(good(5))) == "fine"


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("bad", STRAYS, ids=lambda bad: repr(bad.text[:60]))
async def test_on_a_channel_an_answer_without_an_id_may_come_before_the_first_one(bad: Bad, wire: str) -> None:
    async with WIRES[wire](echoed) as target, connect(target, timeout=LONG) as peer:
        assert await peer.call("first", texts(bad.to(1), good(1))) == "fine"


@pytest.mark.parametrize("wire", WIRES)
async def test_an_error_without_an_id_is_that_of_the_only_call_where_nothing_follows(wire: str) -> None:
    line = b'{"jsonrpc":"2.0","error":{"code":-32700,"message":"Parse error"},"id":null}'
    async with WIRES[wire](echoed) as target, connect(target, timeout=LONG) as peer:
        with pytest.raises(RpcError, match="Parse error"):
            await peer.call("unreadable", texts(line))
        async with peer.batch() as batch:
            first, second = batch.call("unreadable", texts(line)), batch.call("other")
        with pytest.raises(RpcError, match="Parse error"):
            await first
        with pytest.raises(RpcError, match="Parse error"):
            await second


async def test_when_the_channel_ends_the_error_says_what_came_before() -> None:
    asked = 0

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        while asked < 2 and await reader.readline():
            asked += 1
        writer.write(b"Traceback: out of cheese\n")
        writer.close()

    async with await asyncio.start_server(talk, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with connect(f"tcp://127.0.0.1:{port}", timeout=LONG) as peer:
            calls = await asyncio.gather(peer.call("a"), peer.call("b"), return_exceptions=True)
    for why in calls:
        assert isinstance(why, ChannelError)
        assert "out of cheese" in str(why)


# -- MCP, both eras ----------------------------------------------------------------------------------

ERAS = ["2025-11-25", "2026-07-28"]
TOOL = {"name": "forecast", "inputSchema": {"type": "object"}}
SERVER = {"name": "rusty", "version": "1.0.0"}


def mcp_result(message: Message, era: str) -> dict[str, Any]:
    method, stamp = message["method"], {"resultType": "complete"} if era > "2026" else {}
    if method == "initialize":
        return {"protocolVersion": era, "capabilities": {"tools": {}}, "serverInfo": SERVER}
    if method == "server/discover":
        return stamp | {
            "supportedVersions": [era], "capabilities": {"tools": {}}, "serverInfo": SERVER, "ttlMs": 0,
            "cacheScope": "private",
        }  # fmt: skip
    if method == "tools/list":
        return stamp | {"tools": [TOOL], "ttlMs": 0, "cacheScope": "private"}
    return stamp | {"content": [{"type": "text", "text": "sunny"}]}


def mcp_answer(message: Message, era: str) -> bytes:
    body: dict[str, Any] = {"jsonrpc": "2.0", "id": message["id"]}
    if message["method"] == "server/discover" and era < "2026":
        return json.dumps(body | {"error": {"code": -32601, "message": "Method not found"}}).encode()
    return json.dumps(body | {"result": mcp_result(message, era)}).encode()


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("bad", STRAYS + NOISE, ids=lambda bad: repr(bad.text[:60]))
async def test_an_mcp_client_waits_over_answers_without_an_id(bad: Bad, era: str) -> None:
    """As a server that answers notifications, too, has it; in the era without them before each answer."""

    def script(message: Message) -> list[bytes]:
        if "method" not in message:
            return []  # our own error about the noise
        return [bad.to(7)] if "id" not in message else [bad.to(7), mcp_answer(message, era)]

    async with Client(Scripted(script), revision=era) as client:
        assert [tool.name for tool in await client.list_tools()] == ["forecast"]
        assert (await client.call_tool("forecast")).text == "sunny"


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("cut", ["one write", "two writes"])
@pytest.mark.parametrize("bad", STRAYS + NOISE, ids=lambda bad: repr(bad.text[:60]))
async def test_over_http_events_that_answer_no_call_are_passed_over(bad: Bad, cut: str, era: str) -> None:
    async def answer(seen: Seen, talk: Talk) -> None:
        if seen.method != "POST":
            talk.say(status="405 Method Not Allowed" if seen.method == "GET" else "200 OK")
        elif "id" not in seen.message:
            talk.say(bad.to(7))  # to a notification, which owes none
        else:
            talk.stream()
            talk.event(bad.to(seen.id + 1000))
            if cut == "two writes":
                await talk.writer.drain()
                await asyncio.sleep(0.01)
            talk.event(mcp_answer(seen.message, era))
            talk.end()

    async with scripted(answer) as server, Client(server.url, revision=era) as client:
        assert [tool.name for tool in await client.list_tools()] == ["forecast"]
        assert (await client.call_tool("forecast")).text == "sunny"


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("way", ["body", "event"])
@pytest.mark.parametrize("bad", BODIES, ids=lambda bad: repr(bad.text[:60]))
async def test_over_http_a_bad_answer_fails_its_own_mcp_call(bad: Bad, way: str, era: str) -> None:
    asked, release = asyncio.Event(), asyncio.Event()

    async def answer(seen: Seen, talk: Talk) -> None:
        message = {} if seen.method != "POST" else seen.message
        name = message.get("params", {}).get("name")
        if seen.method != "POST":
            talk.say(status="405 Method Not Allowed" if seen.method == "GET" else "200 OK")
        elif "id" not in message:
            talk.say(status="202 Accepted")
        elif name == "bad" and way == "event":
            talk.stream()
            talk.event(bad.to(seen.id))
            talk.end()
        elif name == "bad":
            talk.say(bad.to(seen.id))
        else:
            if name == "slow":
                asked.set()
                await release.wait()
            talk.say(mcp_answer(message, era))

    async with scripted(answer) as server, Client(server.url, revision=era, timeout=LONG) as client:
        slow = asyncio.create_task(client.call_tool("slow"))
        await asked.wait()
        with pytest.raises((BadAnswer, RpcError, ChannelError)) as caught:
            await client.call_tool("bad")
        assert "tcp://" not in str(caught.value)
        release.set()
        assert (await slow).text == "sunny"
        assert (await client.call_tool("good")).text == "sunny"
