"""Sessions behind a broker: one for each mailbox, and at most so many."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

from dragoman.channel import Caller
from dragoman.jsonrpc.errors import Refusal
from dragoman.mcp.protocol.options import HttpOptions
from tests.behind import behind

from ..http_tools import tools
from ..http_wire import ME, body


class Delivery:
    """An exchange whose caller has a mailbox."""

    def __init__(self, mailbox: str, request: bytes) -> None:
        self.request = request
        self.caller = Caller(scheme="memory+broker", remote=mailbox)
        self.gone: Callable[[], None] | None = None
        self.answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def respond(self, answer: bytes | None, refusal: Refusal | None = None) -> None:
        self.answer.set_result(None if answer is None else json.loads(answer))

    def stream(self, message: bytes) -> bool:
        return True

    def tell(self, message: bytes) -> bool:
        return True


async def test_the_one_that_was_silent_longest_is_forgotten() -> None:
    server, _ = tools(http=HttpOptions(sessions=2))

    async def say(mailbox: str, raw: bytes) -> Any:
        delivery = Delivery(mailbox, raw)
        behind(server).exchange(delivery)
        return await asyncio.wait_for(delivery.answer, 20)

    hello = body("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": ME}, 0)
    for mailbox in ("a", "b"):
        assert (await say(mailbox, hello))["result"]["protocolVersion"] == "2025-11-25"
    assert "result" in await say("a", body("ping"))  # b is silent
    assert "result" in await say("c", hello)
    assert "result" in await say("a", body("ping"))
    assert "result" in await say("c", body("ping"))
    forgotten = await say("b", body("ping"))
    assert forgotten["error"]["code"] == -32602
    assert len(behind(server).host.peers) == 2
    await behind(server).drain(0)
