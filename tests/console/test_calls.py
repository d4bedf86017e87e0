"""Calls in flight: who calls what, where each of them is, and how it is stopped."""

from __future__ import annotations

import asyncio
import logging
import threading
from pathlib import Path
from typing import Any

import pytest

import dragoman
from dragoman import Context, RpcError, Service, connect
from dragoman.channel import Admitted, Handshake, Identity, Options
from dragoman.console.recorder import Recorder
from dragoman.mcp import Client, Server
from dragoman.middleware import Call, Next
from dragoman.observer import Observation
from dragoman.rpc.servable import ServableService
from dragoman.schemes import listen

from ..engines.wires import until
from .ends import Ends, with_console

HERE = Path(__file__)
OURS = Path(dragoman.__file__).parent
LINES = HERE.read_text().splitlines()


def line_of(mark: str) -> int:
    (found,) = (number for number, line in enumerate(LINES, 1) if line.endswith(f"# {mark}"))
    return found


class Waits:
    """A service whose methods wait in all ways, until they may end."""

    def __init__(self) -> None:
        self.api = api = Service("waits", middleware=[self.around])
        self.future: asyncio.Future[None] | None = None
        self.event = threading.Event()
        self.begun = threading.Event()

        @api.method
        async def sleep() -> None:
            await asyncio.sleep(600)  # in sleep

        @api.method
        async def deep() -> None:
            await self.inner()

        @api.method
        async def gathered() -> None:
            await asyncio.gather(self.inner(), asyncio.sleep(600))

        @api.method
        async def task() -> None:
            await asyncio.create_task(self.inner())

        @api.method
        async def asks(ctx: Context) -> None:
            await ctx.call("answer")  # in asks

        @api.method
        def block() -> None:
            self.begun.set()
            self.wait_for_event()

        @api.method(concurrency=1)
        async def one_by_one() -> None:
            await self.inner()

    async def around(self, call: Call, next: Next) -> Any:
        return await next(call)

    async def inner(self) -> None:
        self.future = asyncio.get_running_loop().create_future()
        await self.future  # in inner

    def wait_for_event(self) -> None:
        self.event.wait()  # in a thread


async def listed(ends: Ends, count: int, **like: Any) -> list[dict[str, Any]]:
    while True:
        calls: list[dict[str, Any]] = (await ends.get("/api/now?where=1"))["calls"]
        found = [one for one in calls if all(one[name] == value for name, value in like.items())]
        if len(found) == count:
            return found


@pytest.mark.parametrize(
    ("method", "mark", "function", "kind"),
    [
        ("sleep", "in sleep", "Waits.__init__.<locals>.sleep", "coroutine"),
        ("deep", "in inner", "Waits.inner", "coroutine"),
        ("gathered", "in inner", "Waits.inner", "coroutine"),
        ("task", "in inner", "Waits.inner", "coroutine"),
        ("asks", "in asks", "Waits.__init__.<locals>.asks", "coroutine"),
        ("block", "in a thread", "Waits.wait_for_event", "thread"),
    ],
)
async def test_where_a_call_is(method: str, mark: str, function: str, kind: str) -> None:
    waits = Waits()
    answered = asyncio.Event()
    own = Service("caller")

    @own.method
    async def answer() -> None:
        await answered.wait()

    async with with_console(waits.api) as ends, connect(ends.serving.urls[0], service=own) as peer:
        call = asyncio.ensure_future(peer.call(method))
        try:
            (one,) = await listed(ends, 1, state="running")
            if kind == "thread":
                await asyncio.to_thread(waits.begun.wait)
            while (one["where"] or {"kind": ""})["kind"] != kind:  # its first step, or its thread, has not begun
                (one,) = await listed(ends, 1, state="running")
            where = one["where"]
            while where["at"]["line"] != line_of(mark):
                where = (await listed(ends, 1, state="running"))[0]["where"]
            assert where["at"] == {"file": str(HERE), "line": line_of(mark), "function": function}
            assert where["at"] in where["stack"]
            assert not [each for each in where["stack"] if Path(each["file"]).is_relative_to(OURS)]
            plain = (await ends.get("/api/now"))["calls"][0]
            assert plain["where"] is None  # it is read only when it is asked for
            assert 0 < plain["left"] <= 300 if method != "asks" else plain["left"] is None
        finally:
            waits.event.set()
            answered.set()
            call.cancel()


async def test_a_call_that_waits_for_its_turn() -> None:
    waits = Waits()
    async with with_console(waits.api) as ends, connect(ends.serving.urls[0]) as peer:
        calls = [asyncio.ensure_future(peer.call("one_by_one")) for _ in range(2)]
        (waiting,) = await listed(ends, 1, state="waiting")
        (running,) = await listed(ends, 1, state="running")
        assert waiting["wait"] > 0
        assert int(running["id"]) < int(waiting["id"])
        assert (running["wire"], running["worker"]) == ("tcp", "")
        assert running["remote"].startswith("127.0.0.1:")
        for one in calls:
            one.cancel()


async def test_calls_are_stopped_and_the_log_says_by_whom(caplog: pytest.LogCaptureFixture) -> None:
    waits = Waits()
    caplog.set_level(logging.INFO, "dragoman.audit")
    async with with_console(waits.api) as ends, connect(ends.serving.urls[0]) as peer:
        calls = [asyncio.ensure_future(peer.call("deep")) for _ in range(3)]
        found = await listed(ends, 3, state="running")
        ids = [one["id"] for one in found]
        assert await ends.post("/api/stop", ids[0], ids[1], "999999", "x\n", "1" * 500) == {
            ids[0]: "",
            ids[1]: "",
            "999999": "no call 999999 is in flight; `look` lists them",
            "x\n": "no call x\n is in flight; `look` lists them",
            "1" * 100: f"no call {'1' * 100} is in flight; `look` lists them",
        }
        done, _ = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
        assert {type(one.exception()) for one in done} == {RpcError} or all(
            isinstance(one.exception(), RpcError) for one in done
        )
        await listed(ends, 1, state="running")
        stopped = [one.getMessage() for one in caplog.records if one.name == "dragoman.audit"]
        assert len(stopped) == 2
        assert stopped[0].startswith(f"stopped id={ids[0]} service=waits method=deep remote=127.0.0.1:")
        assert "by=the console's secret at 127.0.0.1:" in stopped[0]
        assert ends.secret not in caplog.text
        rows = (await ends.get("/api/timeline?q=status:cancelled"))["rows"]
        assert sorted(row["id"] for row in rows) == sorted(ids[:2])
        for one in calls:
            one.cancel()


async def test_who_calls() -> None:
    waits = Waits()

    async def guard(handshake: Handshake) -> Admitted:
        return Admitted(identity=Identity(subject="ada", issuer="https://issuer"))

    recorder = Recorder()
    waits.api.observe(recorder)
    served = ServableService(waits.api)
    listener = await listen("http://127.0.0.1:0", {"": served}, Options(guard=guard))
    async with connect(listener.url) as peer:
        call = asyncio.ensure_future(peer.call("deep"))
        await until(lambda: len(recorder.board) == 1)
        (one,) = recorder.board.calls().calls
        assert (one.principal, one.known, one.wire) == ("ada", True, "http")
        call.cancel()
        await until(lambda: len(recorder.board) == 0)
        (row,) = recorder.timeline.newest()
        assert row.principal == "ada"
    await listener.close()
    await served.drain(1)
    await listener.closed()


async def test_the_tool_of_a_session() -> None:
    app = Server("tools")
    begun = asyncio.Event()

    @app.tool
    async def nap(secret: str) -> str:
        begun.set()
        await asyncio.sleep(600)  # in nap
        return secret

    async with with_console(app, "http://127.0.0.1:0/mcp") as ends:
        async with Client(ends.serving.urls[0], revision="2025-11-25") as client:
            call = asyncio.ensure_future(client.call_tool("nap", {"secret": "hush"}))
            await begun.wait()
            (one,) = await listed(ends, 1, state="running")
            assert (one["method"], one["target"], one["name"]) == ("tools/call", "nap", "nap")
            assert one["session"]
            assert one["where"]["at"]["line"] == line_of("in nap")
            assert "hush" not in f"{one}"
            assert await ends.post("/api/stop", one["id"]) == {one["id"]: ""}
            with pytest.raises(RpcError, match="Cancelled by the operator"):
                await call
        (row,) = (await ends.get("/api/timeline?q=target:nap"))["rows"]
        assert (row["session"], row["outcome"]) == (one["session"], "cancelled")


async def test_an_observation_has_no_work_once_it_is_over() -> None:
    seen: list[Observation] = []

    class Keeps:
        def came_in(self, one: Observation) -> None:
            seen.append(one)

        def outbound(self, one: Observation) -> None: ...
        def started(self, one: Observation) -> None: ...
        def ended(self, one: Observation) -> None: ...
        def rejected(self, one: Any) -> None: ...

    api = Service("s")

    @api.method
    def threaded() -> int:
        return 1

    api.observe(Keeps())
    await api.answer_async(b'{"jsonrpc":"2.0","method":"threaded","id":1}')
    await api.answer_async(b'{"jsonrpc":"2.0","method":"threaded","id":2}')
    assert [one.work for one in seen] == [None, None]
    assert seen[0].number < seen[1].number
