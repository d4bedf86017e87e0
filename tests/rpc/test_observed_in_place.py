"""Quick methods run in place where there are observers too, who see what the dispatcher would show them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextvars import Context as Variables
from contextvars import ContextVar, copy_context
from typing import Any

import msgspec
import pytest

from dragoman import RpcError, Service, connect, serve
from dragoman.jsonrpc.limits import SERVER
from dragoman.observer import Observation, Rejection
from dragoman.rpc.dispatch import Dispatcher

here: ContextVar[str] = ContextVar("here", default="nowhere")
ITS_OWN = {"number", "channel", "time", "began", "started", "ended", "caller", "elements", "batch", "error"}

CALLS = [
    b'{"jsonrpc":"2.0","method":"add","params":[1,2],"id":1}',
    b'{"jsonrpc":"2.0","method":"add","params":{"a":1,"b":2},"id":"x"}',
    b'{"jsonrpc":"2.0","method":"add","params":["a"],"id":1}',
    b'{"jsonrpc":"2.0","method":"add","id":1}',
    b'{"jsonrpc":"2.0","method":"add","params":[1,2]}',
    b'{"jsonrpc":"2.0","method":"add","params":7,"id":1}',
    b'{"jsonrpc":"2.0","method":"add","params":[1,2],"id":-0}',
    b'{"jsonrpc":"2.0","method":"add","params":[1,2],"id":"%b"}' % (b"x" * 2000),
    b'{"jsonrpc":"2.0","method":"refuse","id":1}',
    b'{"jsonrpc":"2.0","method":"fail","id":1}',
    b'{"jsonrpc":"2.0","method":"leave","id":1}',
    b'{"jsonrpc":"2.0","method":"nothing","id":1}',
    b'{"jsonrpc":"2.0","method":"endless","id":1}',
    b'{"jsonrpc":"2.0","method":"where","id":1}',
    b'{"jsonrpc":"2.0","method":"none","id":1}',
    b'[{"jsonrpc":"2.0","method":"add","params":[1,2],"id":1},{"jsonrpc":"2.0","method":"fail","id":2}]',
    b'{"jsonrpc":"2.0","method":"add"',
]


class Told:
    """An observer that keeps what it is told, in its order, and has handlers run in a context of its own."""

    def __init__(self) -> None:
        self.points: list[tuple[str, Observation]] = []

    def came_in(self, seen: Observation) -> Variables | None:
        assert (seen.started, seen.outcome) == (None, None)
        self.points.append(("came_in", seen))
        context = copy_context()
        context.run(here.set, "within")
        return context

    def outbound(self, seen: Observation) -> None:
        self.points.append(("outbound", seen))

    def started(self, seen: Observation) -> None:
        assert seen.outcome is None
        self.points.append(("started", seen))

    def ended(self, seen: Observation) -> None:
        self.points.append(("ended", seen))

    def rejected(self, seen: Rejection) -> None:
        raise AssertionError(seen)

    def said(self) -> list[tuple[str, dict[str, Any]]]:
        """The points with all that is the same each time."""
        names = [name for name in Observation.__struct_fields__ if name not in ITS_OWN]
        return [
            (point, {name: getattr(seen, name) for name in names} | {"error": repr(seen.error)})
            for point, seen in self.points
        ]


def api(told: Told) -> Service:
    made = Service("s", limits=SERVER.but(response_size=10_000))

    @made.method(inline=True)
    def add(a: int, b: int) -> int:
        assert [point for point, seen in told.points if seen.batch is None and seen.kind == "request"][-1] == "started"
        return a + b

    @made.method(inline=True)
    def refuse() -> None:
        raise RpcError.of(7, "no")

    @made.method(inline=True)
    def fail() -> None:
        raise ValueError("no")

    @made.method(inline=True)
    def leave() -> None:
        raise SystemExit(1)

    @made.method(inline=True)
    def nothing() -> None: ...

    @made.method(inline=True)
    def endless() -> str:
        return "x" * 20_000

    @made.method(inline=True)
    def where() -> str:
        return here.get()

    made.observe(told)
    return made


@pytest.mark.parametrize("raw", CALLS)
@pytest.mark.parametrize("way", ["answer", "answer_async"])
async def test_a_call_in_place_is_seen_as_one_of_the_dispatcher(
    raw: bytes, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "urandom", bytes)  # the references of errors
    found = []
    for quick in (True, False):
        told = Told()
        made = api(told)
        if not quick:
            made._quick.clear()
        answer = made.answer(raw) if way == "answer" else await made.answer_async(raw)
        found.append((answer, told.said()))
    assert found[0] == found[1]
    assert found[0][1][-1][0] == "ended"


def test_it_passes_the_dispatcher_by(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told()
    made = api(told)

    def dispatch(*given: object, **more: object) -> None:
        raise AssertionError(given)

    monkeypatch.setattr(Dispatcher, "dispatch", dispatch)
    assert made.answer(b'{"jsonrpc":"2.0","method":"where","id":1}') == b'{"jsonrpc":"2.0","result":"within","id":1}'
    assert [point for point, _ in told.points] == ["came_in", "started", "ended"]
    assert here.get() == "nowhere"


async def test_exchanges_have_numbers_and_a_channel_one() -> None:
    told = Told()
    made = api(told)
    for _ in range(2):
        await made.answer_async(CALLS[0])
    first, second = {seen.number: seen.channel for _, seen in told.points}.values()
    assert first != second
    told.points.clear()
    async with serve(made, urls="memory:numbers"), connect("memory:numbers") as peer:
        for _ in range(2):
            assert await peer.call("add", [1, 2]) == 3
    channels = {seen.channel for _, seen in told.points if seen.direction == "in"}
    assert len(channels) == 1
    assert not channels & {0, first, second}


async def test_what_a_call_in_place_sends_belongs_to_it() -> None:
    told, sends, sent = Told(), list[Callable[[], Awaitable[None]]](), list[Awaitable[None]]()
    made = api(told)

    @made.method(inline=True)
    def tell() -> None:
        sent.append(asyncio.ensure_future(sends[0]()))

    async with serve(made, urls="memory:parents"), connect("memory:parents", observers=[told]) as peer:
        sends.append(lambda: peer.notify("told"))
        await peer.call("tell")
        await sent[0]
    (parent,) = {seen for point, seen in told.points if seen.method == "tell" and seen.direction == "in"}
    (child,) = {seen for point, seen in told.points if seen.method == "told" and seen.direction == "out"}
    assert child.parent is parent
    assert msgspec.json.decode(parent.answer or b"")["result"] is None
