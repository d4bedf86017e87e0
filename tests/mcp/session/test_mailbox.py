"""Sessions behind a broker: one for each mailbox, and at most so many."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from dragoman.channel import Broken, Caller
from dragoman.jsonrpc.errors import Refusal
from dragoman.mcp.protocol.options import HttpOptions
from dragoman.mcp.server.server import Server
from tests.behind import behind
from tests.transports.ends import until

from ..http_tools import tools
from ..http_wire import ME, body


class Delivery:
    """An exchange whose caller has a mailbox."""

    def __init__(self, mailbox: str, request: bytes) -> None:
        self.request = request
        self.caller = Caller(scheme="memory+broker", remote=mailbox)
        self.gone: Callable[[], None] | None = None
        self.told: list[Any] = []
        self.takes = True
        self.answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def respond(self, answer: bytes | None, refusal: Refusal | None = None) -> None:
        self.answer.set_result(None if answer is None else json.loads(answer))

    def stream(self, message: bytes) -> bool:
        return True

    def tell(self, message: bytes) -> bool:
        self.told.append(json.loads(message))
        return self.takes


HELLO = body("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": ME}, 0)
READY = body("notifications/initialized", id=None)


async def delivered(server: Server, raw: bytes) -> Delivery:
    """One delivery from the mailbox `a`, answered."""
    delivery = Delivery("a", raw)
    behind(server).exchange(delivery)
    await asyncio.wait_for(delivery.answer, 20)
    return delivery


async def test_the_one_that_was_silent_longest_is_forgotten() -> None:
    server, _ = tools(http=HttpOptions(sessions=2))

    async def say(mailbox: str, raw: bytes) -> Any:
        delivery = Delivery(mailbox, raw)
        behind(server).exchange(delivery)
        return await asyncio.wait_for(delivery.answer, 20)

    for mailbox in ("a", "b"):
        assert (await say(mailbox, HELLO))["result"]["protocolVersion"] == "2025-11-25"
    assert "result" in await say("a", body("ping"))  # b is silent
    assert "result" in await say("c", HELLO)
    assert "result" in await say("a", body("ping"))
    assert "result" in await say("c", body("ping"))
    forgotten = await say("b", body("ping"))
    assert forgotten["error"]["code"] == -32602
    assert len(behind(server).host.peers) == 2
    await behind(server).drain(0)


async def test_a_client_that_begins_again_has_forgotten_the_old_session() -> None:
    server, _ = tools()
    for _ in range(2):
        answer = (await delivered(server, HELLO)).answer.result()
        assert answer["result"]["protocolVersion"] == "2025-11-25"
        assert len(behind(server).host.peers) == 1
    await behind(server).drain(0)
    assert not behind(server).host.peers


async def test_what_is_said_outside_calls_goes_to_the_mailbox() -> None:
    server, _ = tools()
    await delivered(server, HELLO)
    await delivered(server, READY)
    last = await delivered(server, body("ping"))
    server.remove_tool("add")
    await until(lambda: last.told)
    assert [one["method"] for one in last.told] == ["notifications/tools/list_changed"]
    (peer,) = behind(server).host.peers
    last.takes = False
    await peer.notify("notifications/message", {})  # it is dropped
    with pytest.raises(Broken, match="mailbox"):
        await peer.call("ping", timeout=20)
    await behind(server).drain(0)


async def test_a_batch_is_answered_and_begins_nothing() -> None:
    server, _ = tools()
    await delivered(server, HELLO)
    answer = (await delivered(server, b"[" + body("ping") + b"]")).answer.result()
    assert json.dumps(answer).count("-32600") == 1
    await behind(server).drain(0)


async def test_a_delivery_that_is_given_up_ends_its_call() -> None:
    server, stage = tools()
    await delivered(server, HELLO)
    delivery = Delivery("a", body("tools/call", {"name": "slow", "arguments": {}}, 3))
    behind(server).exchange(delivery)
    await asyncio.wait_for(stage.started.wait(), 20)
    assert delivery.gone is not None
    delivery.gone()
    await asyncio.wait_for(stage.cancelled.wait(), 20)
    await behind(server).drain(0)
