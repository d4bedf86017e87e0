"""What observers are told, on every wire and both ways: one table of cases."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextvars import Context as Variables
from contextvars import ContextVar, copy_context
from typing import Any

import pytest

from dragoman import CallTimeout, Context, LocalError, RpcError, Service, connect, serve
from dragoman.jsonrpc.limits import SERVER
from dragoman.mcp import Client, Server
from dragoman.mcp.protocol.revisions import R2025_11, R2026_07, Revision
from dragoman.observer import Additions, Observation, Rejection
from tests.behind import behind

SHORT = SERVER.but(drain_timeout=0.1)
WIRES = ["memory:seen", "tcp://127.0.0.1:0", "ws://127.0.0.1:0", "http://127.0.0.1:0", "memory+broker:seen"]
parent: ContextVar[str] = ContextVar("parent", default="")

Said = tuple[str, str, str, str | None, int | None]


class Recorder:
    """An observer that keeps what it is told, and checks the rules of telling."""

    def __init__(self, additions: Additions | None = None) -> None:
        self.begun: list[Observation] = []
        self.ends: list[Observation] = []
        self.rejections: list[Rejection] = []
        self.additions = additions
        self.over = asyncio.Event()
        self.came = asyncio.Event()

    def came_in(self, seen: Observation) -> Variables | None:
        self._begins(seen)
        context = copy_context()
        context.run(parent.set, str(seen.meta().get("traceparent", seen.caller.headers.get("traceparent", ""))))
        return context

    def outbound(self, seen: Observation) -> Additions | None:
        self._begins(seen)
        assert seen.message == b""
        return self.additions

    def _begins(self, seen: Observation) -> None:
        assert seen.outcome is None
        assert seen not in self.begun
        self.begun.append(seen)
        self.came.set()

    def started(self, seen: Observation) -> None:
        assert seen in self.begun
        assert seen.wait is not None
        assert seen.ended is None

    def ended(self, seen: Observation) -> None:
        assert seen in self.begun
        assert seen not in self.ends
        assert seen.seconds is not None
        assert seen.seconds >= (seen.wait or 0) >= 0
        self.ends.append(seen)
        self.over.set()

    def rejected(self, seen: Rejection) -> None:
        self.rejections.append(seen)
        self.over.set()

    def said(self, direction: str) -> list[Said]:
        return [
            (one.kind, one.method, one.outcome or "", one.batch.outcome if one.batch else None, one.code)
            for one in self.ends
            if one.direction == direction
        ]

    async def until(self, count: int) -> None:
        """So many have ended."""
        while len(self.ends) < count:
            self.over.clear()
            await self.over.wait()


def service() -> Service:
    api = Service("seen")

    @api.method(inline=True)
    def subtract(minuend: int, subtrahend: int) -> int:
        return minuend - subtrahend

    @api.method
    async def echo(value: str) -> str:
        await asyncio.sleep(0)
        return value + parent.get()

    @api.method
    def thread() -> str:
        return parent.get()

    @api.method
    async def fail() -> None:
        raise ValueError("a secret")

    @api.method
    async def note(fails: bool = False) -> None:
        if fails:
            raise ValueError

    @api.method(timeout=0.01)
    async def slow() -> None:
        await asyncio.Event().wait()

    @api.method
    async def forever() -> None:
        await asyncio.Event().wait()

    return api


async def plain(peer: Any) -> None:
    assert await peer.call("subtract", [3, 1]) == 2


async def waiting(peer: Any) -> None:
    assert await peer.call("echo", ["x"]) == "x"


async def unknown(peer: Any) -> None:
    with pytest.raises(RpcError):
        await peer.call("nothing")


async def unfit(peer: Any) -> None:
    with pytest.raises(RpcError):
        await peer.call("subtract", ["x", 1])


async def failing(peer: Any) -> None:
    with pytest.raises(RpcError):
        await peer.call("fail")


async def late(peer: Any) -> None:
    with pytest.raises(RpcError):
        await peer.call("slow")


async def noted(peer: Any) -> None:
    await peer.notify("note", [False])


async def noted_badly(peer: Any) -> None:
    await peer.notify("note", [True])


async def batch(peer: Any) -> None:
    async with peer.batch() as several:
        several.call("subtract", [3, 1])
        wrong = several.call("nothing")
        several.notify("note")
    assert wrong.exception() is not None


Case = tuple[Callable[[Any], Awaitable[None]], list[Said], list[Said]]
CASES: dict[str, Case] = {
    "in place": (
        plain,
        [("request", "subtract", "result", None, None)],
        [("request", "subtract", "result", None, None)],
    ),
    "waits": (waiting, [("request", "echo", "result", None, None)], [("request", "echo", "result", None, None)]),
    "unknown": (
        unknown,
        [("request", "nothing", "error", None, -32601)],
        [("request", "nothing", "error", None, -32601)],
    ),
    "unfit": (
        unfit,
        [("request", "subtract", "error", None, -32602)],
        [("request", "subtract", "error", None, -32602)],
    ),
    "fails": (failing, [("request", "fail", "error", None, -32603)], [("request", "fail", "error", None, -32603)]),
    "times out": (late, [("request", "slow", "timed_out", None, -32002)], [("request", "slow", "error", None, -32002)]),
    "notification": (
        noted,
        [("notification", "note", "notified", None, None)],
        [("notification", "note", "notified", None, None)],
    ),
    "a notification that fails": (
        noted_badly,
        [("notification", "note", "error", None, -32603)],
        [("notification", "note", "notified", None, None)],
    ),
    "batch": (
        batch,
        [
            ("batch", "", "result", None, None),
            ("notification", "note", "notified", "result", None),
            ("request", "nothing", "error", "result", -32601),
            ("request", "subtract", "result", "result", None),
        ],
        [
            ("batch", "", "result", None, None),
            ("notification", "note", "notified", "result", None),
            ("request", "nothing", "error", "result", -32601),
            ("request", "subtract", "result", "result", None),
        ],
    ),
}


@pytest.mark.parametrize("url", WIRES)
@pytest.mark.parametrize("case", CASES)
async def test_every_message_is_told_at_both_ends(url: str, case: str) -> None:
    does, came, went = CASES[case]
    inside, outside = Recorder(), Recorder()
    async with (
        serve(service(), urls=url, observers=[inside], limits=SHORT) as serving,
        connect(serving.urls[0], observers=[outside]) as peer,
    ):
        await does(peer)
        await inside.until(len(came))
        await outside.until(len(went))
        assert sorted(inside.said("in"), key=str) == came
        assert sorted(outside.said("out"), key=str) == went
        for one in inside.ends:
            assert one.caller.scheme
            assert (one.service, one.direction) == ("seen", "in")
            assert one.message or one.batch is not None


async def test_a_batch_whose_block_is_left_is_told_as_cancelled() -> None:
    inside, outside = Recorder(), Recorder()
    async with (
        serve(service(), urls="memory:left", observers=[inside], limits=SHORT),
        connect("memory:left", observers=[outside]) as peer,
    ):

        async def left() -> None:
            async with peer.batch() as several:
                several.call("subtract", [3, 1])
                several.notify("note")
                raise KeyError

        with pytest.raises(KeyError):
            await left()
        assert {one.outcome for one in outside.ends} == {"cancelled"}
        assert sorted(one.kind for one in outside.ends) == ["batch", "notification", "request"]
    assert not inside.begun


@pytest.mark.parametrize("url", WIRES)
async def test_calls_of_one_channel_have_its_number_and_each_exchange_has_its_own(url: str) -> None:
    inside = Recorder()
    async with (
        serve(service(), urls=url, observers=[inside], limits=SHORT) as serving,
        connect(serving.urls[0]) as peer,
    ):
        for _ in range(3):
            await peer.call("subtract", [3, 1])
        await inside.until(3)
    numbers = {one.channel for one in inside.ends}
    assert len(numbers) == (3 if url.startswith(("http", "memory+broker")) else 1)


@pytest.mark.parametrize("url", WIRES)
async def test_what_is_given_up_is_told(url: str) -> None:
    inside, outside = Recorder(), Recorder()
    async with (
        serve(service(), urls=url, observers=[inside], limits=SHORT) as serving,
        connect(serving.urls[0], observers=[outside]) as peer,
    ):
        with pytest.raises(CallTimeout):
            await peer.call("forever", timeout=0.5)
        await inside.until(1)
        (one,) = (one for one in outside.ends if one.kind == "request")
        assert (one.outcome, one.method) == ("timed_out", "forever")
        found = next(one for one in inside.ends if one.kind == "request")
        assert found.outcome in ("cancelled", "lost")


async def test_what_is_lost_with_its_channel_is_told() -> None:
    inside, outside = Recorder(), Recorder()
    async with serve(service(), urls="tcp://127.0.0.1:0", observers=[inside], limits=SHORT) as serving:
        async with connect(serving.urls[0], observers=[outside]) as peer:
            calling = asyncio.ensure_future(peer.call("forever", timeout=None))
            await peer.call("subtract", [3, 1])
        with pytest.raises(ConnectionError):
            await calling
        await inside.until(2)
        assert ("request", "forever", "lost", None, None) in outside.said("out")
        assert {one.outcome for one in inside.ends if one.method == "forever"} <= {"lost", "cancelled"}


@pytest.mark.parametrize("raw", [b"nonsense", b'{"jsonrpc":"2.0","id":1}', b"[]", b'"' + b"x" * 3000 + b'"'])
async def test_what_is_not_a_message_is_told(raw: bytes) -> None:
    told = Recorder()
    api = Service("seen", limits=SERVER.but(message_size=2000))
    over = api.observe(told)
    assert api.answer(raw) == await api.answer_async(raw)
    assert [(one.kind, one.outcome, one.message) for one in told.ends] == [("malformed", "refused", raw)] * 2
    assert all(one.reason and one.code is not None for one in told.ends)
    over()
    api.answer(raw)
    assert len(told.ends) == 2


async def test_a_busy_service_tells_what_it_refuses() -> None:
    told = Recorder()
    async with (
        serve(service(), urls="http://127.0.0.1:0", observers=[told], limits=SHORT.but(calls=1)) as serving,
        connect(serving.urls[0]) as peer,
    ):
        first = asyncio.ensure_future(peer.call("forever"))
        await told.came.wait()
        with pytest.raises(RpcError):
            await peer.call("echo", ["x"])
        assert told.said("in") == [("request", "echo", "refused", None, -32000)]
        assert "Busy" in told.ends[0].reason
        first.cancel()


@pytest.mark.parametrize("url", ["http://127.0.0.1:0", "memory+broker:headers"])
async def test_header_fields_that_an_observer_adds_arrive_and_its_context_is_the_handlers(url: str) -> None:
    adds = Recorder(Additions(headers={"traceparent": "00-1"}, meta={"ignored": 1}))
    async with (
        serve(service(), urls=url, observers=[Recorder(), Recorder()]) as serving,
        connect(serving.urls[0], observers=[adds]) as peer,
    ):
        assert await peer.call("echo", ["x"]) == "x00-1"
        assert await peer.call("thread") == "00-1"


@pytest.mark.parametrize("url", ["memory:mcp", "tcp://127.0.0.1:0", "http://127.0.0.1:0/mcp"])
@pytest.mark.parametrize("revision", [R2025_11, R2026_07], ids=["2025-11-25", "2026-07-28"])
async def test_meta_that_an_observer_adds_arrives_in_mcp(url: str, revision: Revision) -> None:
    told, adds = Recorder(), Recorder(Additions(meta={"traceparent": "00-2"}))
    server = Server("town")

    @server.tool
    async def where() -> str:
        return parent.get()

    async with (
        serve(
            {"/mcp": server} if url.startswith("http") else server, urls=url.removesuffix("/mcp"), observers=[told]
        ) as serving,
        Client(
            serving.urls[0] + ("/mcp" if url.startswith("http") else ""), revision=revision, observers=[adds]
        ) as client,
    ):
        assert await client.call_tool("where", result=str) == "00-2"
        (call,) = (one for one in told.ends if one.method == "tools/call")
        assert (call.outcome, call.protocol, call.service) == ("result", "mcp", "town")
        assert call.meta()["traceparent"] == "00-2"
        with pytest.raises(RpcError):
            await client.read_resource("town://none")
        assert any(one.outcome == "error" for one in told.ends)
        assert len([one for one in told.begun if one.kind != "stream"]) == len(told.ends)
    assert behind(server).service._watch is None


async def test_an_observer_that_raises_is_logged_once_and_fails_no_call(caplog: pytest.LogCaptureFixture) -> None:
    class Raising:
        def point(self, seen: Any) -> Any:
            raise RuntimeError("no disk")

        came_in = outbound = started = ended = rejected = point

    with caplog.at_level(logging.ERROR):
        async with (
            serve(service(), urls="memory:raising", observers=[Raising()]) as serving,
            connect(serving.urls[0], observers=[Raising()]) as peer,
        ):
            for _ in range(3):
                await plain(peer)
                await waiting(peer)
    assert [record.name for record in caplog.records] == ["dragoman.observers"] * 2


async def test_the_way_back_is_told() -> None:
    inside, outside = Recorder(), Recorder()
    api = service()

    @api.method
    async def back(context: Context) -> int:
        await context.progress(1)
        return int(await context.call("subtract", [3, 1], result=int))

    async with (
        serve(api, urls="tcp://127.0.0.1:0", observers=[inside]) as serving,
        connect(serving.urls[0], service=service(), observers=[outside]) as peer,
    ):
        assert await peer.call("back", on_progress=lambda value: None) == 2
    assert ("request", "subtract", "result", None, None) in inside.said("out")
    assert ("notification", "$/progress", "notified", None, None) in inside.said("out")
    assert ("request", "subtract", "result", None, None) in outside.said("in")


@pytest.mark.parametrize(
    "added", [Additions(headers={"a b": "x"}), Additions(headers={"a": "x\r\ny: z"}), Additions(meta={"a": object()})]
)
async def test_what_cannot_be_added_fails_no_call(added: Additions, caplog: pytest.LogCaptureFixture) -> None:
    async with (
        serve(service(), urls="http://127.0.0.1:0") as serving,
        connect(serving.urls[0], observers=[Recorder(added)]) as peer,
    ):
        await plain(peer)
        await plain(peer)
    assert [record.name for record in caplog.records] == ["dragoman.observers"]


def test_what_is_not_an_observer_is_said() -> None:
    with pytest.raises(LocalError, match="an Observer"):
        Service("seen").observe(print)  # type: ignore[arg-type]
