"""Sessions behind a broker: one for each mailbox and principal, and at most so many."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from dragoman.channel import Broken, Caller, Identity
from dragoman.jsonrpc.codec import AnyAnswer, text_of
from dragoman.mcp.protocol.http_options import HttpOptions
from dragoman.mcp.server.server import Server
from tests.behind import behind
from tests.transports.ends import until

from ..http_tools import tools
from ..http_wire import ME, body


class Delivery:
    """An exchange whose caller has a mailbox."""

    def __init__(self, mailbox: str, request: bytes, who: str = "") -> None:
        self.request = request
        identity = Identity(subject=who) if who else None
        self.caller = Caller(scheme="memory+broker", remote=mailbox, identity=identity)
        self.gone: Callable[[], None] | None = None
        self.told: list[Any] = []
        self.takes = True
        self.answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def respond(self, answer: AnyAnswer) -> None:
        text = text_of(answer)
        self.answer.set_result(None if text is None else json.loads(text))

    def stream(self, message: bytes) -> bool:
        return True

    def tell(self, message: bytes) -> bool:
        self.told.append(json.loads(message))
        return self.takes


HELLO = body("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": ME}, 0)
READY = body("notifications/initialized", id=None)


async def delivered(server: Server, raw: bytes, who: str = "") -> Delivery:
    """One delivery from the mailbox `a`, answered."""
    delivery = Delivery("a", raw, who)
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


async def test_mailboxes_of_one_caller_shut_no_other_out() -> None:
    server, _ = tools(http=HttpOptions(sessions=20))

    async def say(mailbox: str, raw: bytes, who: str = "") -> Any:
        delivery = Delivery(mailbox, raw, who)
        behind(server).exchange(delivery)
        return await asyncio.wait_for(delivery.answer, 20)

    assert "result" in await say("a", HELLO, "ann")
    for number in range(50):
        assert "result" in await say(f"m{number}", HELLO, "mallory")
    for number in range(50):
        assert "result" in await say(f"x{number}", HELLO)
    assert "result" in await say("a", body("ping"), "ann")
    for number in range(20):
        assert "result" in await say(f"{number}", HELLO, f"user {number}")
    refused = await say("y", HELLO)
    assert (refused["error"]["code"], refused["error"]["data"]["limit"]) == (-32603, "sessions")
    assert len(behind(server).host.peers) == 20
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


FORMS = {"protocolVersion": "2025-11-25", "capabilities": {"elicitation": {}}, "clientInfo": ME}


async def asked_at(server: Server, who: str) -> tuple[Delivery, Any]:
    """A session of this principal at the mailbox `a`; its call of `ask`, id 7, and the question that it waits for."""
    await delivered(server, body("initialize", FORMS, 0), who)
    await delivered(server, READY, who)
    call = Delivery("a", body("tools/call", {"name": "ask", "arguments": {}}, 7), who)
    told: list[Any] = []
    call.stream = lambda message: told.append(json.loads(message)) or True  # type: ignore[method-assign,func-returns-value]
    behind(server).exchange(call)
    await until(lambda: told)
    return call, told[0]


def reply(question: Any, city: str) -> bytes:
    """The form of a question, filled in."""
    result = {"action": "accept", "content": {"city": city}}
    return json.dumps({"jsonrpc": "2.0", "id": question["id"], "result": result}).encode()


@pytest.mark.parametrize(("whose", "other"), [("", "mallory"), ("alice", "mallory"), ("alice", "")])
async def test_another_principal_at_the_mailbox_has_no_such_session(whose: str, other: str) -> None:
    server, _ = tools()
    call, question = await asked_at(server, whose)
    for message in (
        reply(question, "Mallorca"),
        json.dumps({"jsonrpc": "2.0", "id": question["id"], "error": {"code": 1, "message": "no"}}).encode(),
        body("notifications/cancelled", {"requestId": 7}, None),
        body("notifications/progress", {"progressToken": question["id"], "progress": 1}, None),
        body("initialize", FORMS, 7),
        body("notifications/initialized", None, None),
        body("notifications/cancelled", {"requestId": 7}, None),  # with a session of its own now
        reply(question, "Mallorca"),
    ):
        await delivered(server, message, other)
    assert not call.answer.done()
    await delivered(server, reply(question, "Aleppo"), whose)
    answer = await asyncio.wait_for(call.answer, 20)
    assert answer["result"]["content"][0]["text"] == "Aleppo"
    await behind(server).drain(0)


async def test_requests_of_another_principal_find_no_session() -> None:
    server, _ = tools()
    await delivered(server, HELLO, "alice")
    assert "result" in (await delivered(server, body("tools/list"), "alice")).answer.result()
    for method in ("tools/list", "ping", "logging/setLevel"):
        assert (await delivered(server, body(method), "mallory")).answer.result()["error"]["code"] == -32602
    await behind(server).drain(0)


async def test_questions_of_two_sessions_at_one_mailbox_have_different_ids() -> None:
    server, _ = tools()
    (_, first), (_, second) = [await asked_at(server, who) for who in ("alice", "bob")]
    assert first["id"] != second["id"]
    await behind(server).drain(0)
