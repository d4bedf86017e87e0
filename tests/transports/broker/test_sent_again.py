"""Which requests a caller sends again after an outage of the broker, and which not."""

from __future__ import annotations

import asyncio
import json

import pytest

from dragoman import connect
from dragoman.transports.broker.contract import BrokerMessage, Refused
from dragoman.transports.broker.memory import MemoryAdapter, broker
from tests.engines.brokers import name
from tests.engines.wires import PATIENCE, adapter, until


@pytest.fixture
def url() -> str:
    return f"memory+broker:{name()}"


async def test_what_a_broker_forgot_is_asked_again(url: str) -> None:
    """The requests of calls that are open, with their key and a mark: not those that were answered or are cancelled."""
    came: list[BrokerMessage] = []
    async with adapter(url, serving=True) as worker, connect(url, timeout=PATIENCE) as peer:
        await worker.work(came.append, 10)
        calls = [asyncio.create_task(peer.call("add", [1, n])) for n in range(3)]
        await until(lambda: len(came) == 3)
        bodies = [json.loads(one.body) for one in came]
        answers = [
            json.dumps({"jsonrpc": "2.0", "id": one["id"], "result": one["params"][1]}).encode() for one in bodies
        ]
        await worker.answer(came[0].reply_to, BrokerMessage(body=answers[0], correlation=came[0].correlation))
        assert await calls[bodies[0]["params"][1]] == bodies[0]["params"][1]
        calls[bodies[1]["params"][1]].cancel()
        await asyncio.wait([calls[bodies[1]["params"][1]]])
        for one in tuple(broker().adapters):
            one.on_state(False, "it was stopped")
            one.on_state(True, "it has forgotten all")
        await until(lambda: len(came) == 4)
        again = came[3]
        assert (again.body, again.correlation, again.reply_to) == (came[2].body, came[2].correlation, came[2].reply_to)
        assert again.headers == {**came[2].headers, "again": "1"}
        await worker.answer(again.reply_to, BrokerMessage(body=answers[2], correlation=again.correlation))
        assert await calls[bodies[2]["params"][1]] == bodies[2]["params"][1]


async def test_a_call_that_a_full_queue_refuses_to_take_again_waits_for_its_first_answer(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker had confirmed it, so a worker may be running it: that it is refused would not be true."""
    came: list[BrokerMessage] = []
    refused = asyncio.Event()

    async def full(self: MemoryAdapter, message: BrokerMessage, ttl: float | None) -> None:
        refused.set()
        raise Refused("the queue is full")

    async with adapter(url, serving=True) as worker, connect(url, timeout=PATIENCE) as peer:
        await worker.work(came.append, 10)
        call = asyncio.create_task(peer.call("add", [1, 2]))
        await until(lambda: len(came) == 1)
        monkeypatch.setattr(MemoryAdapter, "request", full)
        for one in tuple(broker().adapters):
            one.on_state(True, "it has forgotten all")
        await refused.wait()
        await asyncio.sleep(0)
        answer = json.dumps({"jsonrpc": "2.0", "id": json.loads(came[0].body)["id"], "result": 3}).encode()
        await worker.answer(came[0].reply_to, BrokerMessage(body=answer, correlation=came[0].correlation))
        assert await call == 3


async def test_a_call_that_is_answered_before_it_is_confirmed_is_not_sent_again(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    came: list[BrokerMessage] = []
    take, lost = MemoryAdapter.request, asyncio.Event()

    async def unconfirmed(self: MemoryAdapter, message: BrokerMessage, ttl: float | None) -> None:
        await take(self, message, ttl)
        await lost.wait()
        if len(came) == 1:
            raise ConnectionError("lost before it was confirmed")

    monkeypatch.setattr(MemoryAdapter, "request", unconfirmed)
    async with adapter(url, serving=True) as worker, connect(url, timeout=PATIENCE) as peer:
        await worker.work(came.append, 10)
        call = asyncio.create_task(peer.call("add", [1, 2]))
        await until(lambda: len(came) == 1)
        answer = json.dumps({"jsonrpc": "2.0", "id": json.loads(came[0].body)["id"], "result": 3}).encode()
        await worker.answer(came[0].reply_to, BrokerMessage(body=answer, correlation=came[0].correlation))
        assert await call == 3
        lost.set()
        await asyncio.sleep(0.3)  # longer than the first pause
    assert len(came) == 1
