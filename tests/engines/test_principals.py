"""Two principals behind one broker, of whom one names the other's mailbox: on every wire it finds nothing of the
other's there."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from pydantic import BaseModel

from dragoman import Context, Service, connect, serve
from dragoman.channel import Admitted, Denied, Handshake, Identity
from dragoman.mcp import Client, Server
from dragoman.mcp import Context as McpContext
from dragoman.transports.broker.contract import BrokerAdapter, BrokerMessage

from .wires import EVERY, PATIENCE, adapter, jsonrpc


class ByToken:
    """Lets in who shows a token, and remembers the mailbox of each."""

    def __init__(self) -> None:
        self.mailboxes: dict[str, str] = {}

    async def __call__(self, handshake: Handshake) -> Admitted | Denied:
        token = dict(handshake.headers).get(b"authorization", b"").decode()
        self.mailboxes.setdefault(token, handshake.remote)
        return Admitted(identity=Identity(subject=token)) if token else Denied(reason="show a token")


class Mallory:
    """A caller with a token of its own, who names any mailbox as the address of the answer."""

    def __init__(self, adapter: BrokerAdapter) -> None:
        self.adapter = adapter
        self.got: asyncio.Queue[BrokerMessage] = asyncio.Queue()
        self.own = ""
        self._number = 0

    async def send(self, body: bytes, mailbox: str, **headers: str) -> None:
        self._number += 1
        await self.adapter.request(
            BrokerMessage(
                body=body,
                reply_to=mailbox,
                correlation=f"m-{self._number}",
                headers={"authorization": "mallory", "key": f"m-{self._number}"} | headers,
            ),
            PATIENCE,
        )

    async def all_done(self) -> None:
        """What was sent before has been dealt with: one worker takes requests in their order."""
        if not self.own:
            self.own = await self.adapter.mailbox(self.got.put_nowait)
        await self.send(jsonrpc("marker"), self.own)
        async with asyncio.timeout(PATIENCE):
            (await self.got.get()).settle("answered")


class Payee(BaseModel):
    name: str


@EVERY
async def test_a_session_is_its_principals_alone(url: str, engine: object) -> None:
    server, guard = Server("bank", version="1"), ByToken()
    asked, go = asyncio.Event(), asyncio.Event()
    logged: list[str] = []

    @server.tool
    async def pay(ctx: McpContext) -> str:
        answer = await ctx.elicit("Pay whom?", Payee)
        assert answer.content is not None
        return answer.content.name

    async def fill_in(request: Any) -> dict[str, str]:
        asked.set()
        await go.wait()
        return {"name": "bob"}

    one_more = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "m", "version": "1"}}
    async with (
        serve(server, urls=url, guard=guard),
        Client(
            url,
            headers={"authorization": "alice"},
            revision="2025-11-25",
            on_elicit=fill_in,
            on_log=lambda log: logged.append(str(log)),
            timeout=PATIENCE,
        ) as alice,
        adapter(url) as its,
    ):
        mallory, call = Mallory(its), asyncio.create_task(alice.call_tool("pay"))
        async with asyncio.timeout(PATIENCE):
            await asked.wait()
        mailbox, sent = guard.mailboxes["alice"], json.dumps
        for id in (*range(4), "1"):  # whatever the question's is, and the call's
            answer = {"jsonrpc": "2.0", "id": id, "result": {"action": "accept", "content": {"name": "mallory"}}}
            cancelled = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}}
            await mallory.send(sent(answer).encode(), mailbox)
            await mallory.send(sent(cancelled).encode(), mailbox)
        hello = {"jsonrpc": "2.0", "id": "m", "method": "initialize", "params": one_more}
        await mallory.send(sent(hello).encode(), mailbox)
        await mallory.all_done()
        assert not call.done()
        go.set()
        result = await call
        assert result.content[0].text == "bob"  # type: ignore[union-attr]
        assert len(await alice.list_tools()) == 1


@EVERY
async def test_an_idempotency_key_is_its_principals_alone(url: str, engine: object) -> None:
    api, guard, ran = Service("shop"), ByToken(), list[str]()

    @api.method
    async def place(item: str, context: Context) -> str:
        assert context.caller.identity is not None
        ran.append(context.caller.identity.subject)
        return f"{ran[-1]}'s {item}"

    async with (
        serve(api, urls=url, guard=guard),
        connect(url, headers={"authorization": "alice"}, timeout=PATIENCE) as alice,
        adapter(url) as its,
    ):
        mallory = Mallory(its)
        for _ in range(2):
            assert await alice.call("place", ["lamp"], extra={"key": "order-1"}) == "alice's lamp"
        for _ in range(2):
            await mallory.send(jsonrpc("place", "lamp"), guard.mailboxes["alice"], key="order-1")
        await mallory.all_done()
        assert await alice.call("place", ["lamp"], extra={"key": "order-1"}) == "alice's lamp"
    assert ran == ["alice", "mallory"]
