"""The guard of a service behind a broker: it sees the headers of a delivery before anything of it is decoded."""

from __future__ import annotations

import asyncio
import re

import pytest

from dragoman import Context, Service, connect, serve
from dragoman.channel import Admitted, Denied, Handshake, Identity
from dragoman.jsonrpc.errors import RpcError
from dragoman.jsonrpc.limits import SERVER
from dragoman.transports.broker.contract import BrokerMessage
from dragoman.transports.broker.memory import broker

from .brokers import Engine, name
from .hostile import request
from .wires import EVERY, PATIENCE, adapter, jsonrpc, plus, until


class RecordingGuard:
    """Lets in callers that show a token, and remembers what it saw."""

    def __init__(self) -> None:
        self.seen: list[Handshake] = []

    async def __call__(self, handshake: Handshake) -> Admitted | Denied:
        self.seen.append(handshake)
        token = dict(handshake.headers).get(b"authorization", b"")
        if token == b"hang":
            await asyncio.Event().wait()
        if token == b"raise":
            raise RuntimeError("a fault of the guard's")
        return Admitted(identity=Identity(subject=token.decode())) if token else Denied(reason="show a token")


def telling(ran: list[str]) -> Service:
    api = Service("telling")

    @api.method(inline=True)
    def who(context: Context) -> str:
        identity = context.caller.identity
        ran.append("anonymous" if identity is None else identity.subject)
        return ran[-1]

    return api


@EVERY
async def test_the_guard_decides_about_each_delivery(url: str, engine: Engine) -> None:
    ran: list[str] = []
    guard = RecordingGuard()
    async with serve(telling(ran), urls=plus(url, "prefetch=1"), guard=guard), connect(url, timeout=PATIENCE) as peer:
        assert await peer.call("who", extra={"Authorization": "alice"}) == "alice"
        with pytest.raises(RpcError, match="show a token") as denied:
            await peer.call("who")
        assert (denied.value.code, denied.value.data) == (-32600, {"status": 401})
        assert await peer.call("who", extra={"Authorization": "bob"}) == "bob"
    assert ran == ["alice", "bob"]
    assert {seen.scheme for seen in guard.seen} == {url.partition(":")[0]}


async def test_a_kept_answer_is_not_given_to_a_caller_that_is_denied() -> None:
    url, ran = f"memory+broker:{name()}", list[str]()
    messages: asyncio.Queue[BrokerMessage] = asyncio.Queue()
    verdicts: list[Admitted | Denied] = [Admitted(), Admitted(), Denied(reason="no more", status=403)]

    async def guard(handshake: Handshake) -> Admitted | Denied:
        return verdicts.pop(0)

    async with serve(telling(ran), urls=url, guard=guard), adapter(url) as one:
        mailbox = await one.mailbox(messages.put_nowait)
        message = BrokerMessage(body=request("who", []), reply_to=mailbox, correlation="c", headers={"key": "k"})
        for words in (b'"result":"anonymous"', b'"result":"anonymous"', b"no more"):
            await one.request(message, None)
            async with asyncio.timeout(PATIENCE):
                assert words in (await messages.get()).body
    assert ran == ["anonymous"]


async def test_a_guard_that_hangs_or_raises_denies(caplog: pytest.LogCaptureFixture) -> None:
    url, ran = f"memory+broker:{name()}?prefetch=1", list[str]()
    limits = SERVER.but(guard_timeout=0.5)
    async with (
        serve(telling(ran), urls=url, guard=RecordingGuard(), limits=limits),
        connect(url, timeout=PATIENCE) as peer,
    ):
        with pytest.raises(RpcError, match="did not decide in time") as late:
            await peer.call("who", extra={"authorization": "hang"})
        assert (late.value.code, late.value.data) == (-32603, {"status": 503})
        with pytest.raises(RpcError, match="Internal error; the reference is") as failed:
            await peer.call("who", extra={"authorization": "raise"})
        (reference,) = re.findall(r"reference is (\w+)", str(failed.value))
        assert reference in caplog.text
        assert await peer.call("who", extra={"authorization": "alice"}) == "alice"
    assert ran == ["alice"]


async def test_broadcasts_and_notifications_are_judged_too() -> None:
    url, ran = f"memory+broker:{name()}", list[str]()
    async with serve(telling(ran), urls=url, guard=RecordingGuard()), adapter(url) as one:
        for headers in ({}, {"authorization": "carol"}):
            await one.send_control(BrokerMessage(body=jsonrpc("who"), headers={"kind": "broadcast", **headers}))
            await one.request(BrokerMessage(body=jsonrpc("who"), headers=headers), None)
        await until(lambda: len(ran) == 2)
        assert not broker().queues[url.partition(":")[2]].dead
    assert ran == ["carol", "carol"]
