"""An extension's life and work of its own: its part of the lifespan, calls that go on beyond their requests, questions
that wait for answers from elsewhere, and work on one replica at a time."""

from __future__ import annotations

import asyncio
import gc
import json
import threading
import time
import weakref
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from msgspec import Raw
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind

from dragoman import Limits, serve
from dragoman.bus import BusLost
from dragoman.bus.memory import MemoryBus
from dragoman.channel import Caller
from dragoman.console.recorder import Recorder
from dragoman.jsonrpc.errors import CallRefused, LocalError, RpcError
from dragoman.mcp import CallToolResult, Client, Context, Elicit, ElicitUrl, Server, TextContent
from dragoman.mcp.asking.ask import AskParked
from dragoman.mcp.protocol.extension import Extension
from dragoman.mcp.protocol.http_options import HttpOptions
from dragoman.mcp.protocol.params import InputRequest
from dragoman.mcp.protocol.revisions import R2025_11, R2026_07, Revision
from dragoman.mcp.server.extending.extension import ServerExtension
from dragoman.mcp.server.extending.home import ServerHome
from dragoman.mcp.session import lease
from dragoman.observer import Observation, Rejection
from dragoman.rpc.detached import DetachedCall
from dragoman.rpc.middleware import Call, Next
from dragoman.rpc.tracing import Trace
from dragoman.telemetry import AccessLog, Metrics, Traces
from tests.behind import behind

from ..calling import Calls, calling
from ..http_wire import served
from ..replicas import KEYS

NAME = "com.example/running"
FORM = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
ELICITS: dict[str, Any] = {"elicitation": {"form": {}, "url": {}}}
both = pytest.mark.parametrize("revision", [R2025_11, R2026_07], ids=lambda one: one.date)
kinds = pytest.mark.parametrize("kind", ["async", "plain"])


class Running(ServerExtension):
    """Lets each call of a tool go on beyond its request, or (`wait`) waits for its end there."""

    declares = Extension(name=NAME)

    def __init__(self, *, wait: bool = False, log: list[str] | None = None, **options: Any) -> None:
        self.options, self.wait = options, wait
        self.log: list[str] = [] if log is None else log
        self.homes: dict[asyncio.AbstractEventLoop, ServerHome] = {}
        self.calls: asyncio.Queue[DetachedCall] = asyncio.Queue()
        self.latest: dict[asyncio.AbstractEventLoop, DetachedCall] = {}
        self.asked: asyncio.Queue[tuple[dict[str, InputRequest], asyncio.Future[Mapping[str, Raw]]]] = asyncio.Queue()
        self.steps: list[tuple[float, float | None, str | None]] = []
        self.works: dict[str, Callable[[], Any]] = {}

    @property
    def home(self) -> ServerHome:
        return self.homes[asyncio.get_running_loop()]

    def open(self, home: ServerHome) -> AbstractAsyncContextManager[Any]:
        return self._opened(home)

    @asynccontextmanager
    async def _opened(self, home: ServerHome) -> AsyncIterator[None]:
        self.homes[asyncio.get_running_loop()] = home
        self.log.append(f"open {home.name}")
        for name, work in self.works.items():
            home.lead(name, work)
        yield
        self.log.append(f"close {home.name}")

    async def park(self, requests: dict[str, InputRequest]) -> Mapping[str, Raw]:
        answers: asyncio.Future[Mapping[str, Raw]] = asyncio.get_running_loop().create_future()
        self.asked.put_nowait((requests, answers))
        return await answers

    async def around(self, call: Call, next: Next) -> Any:
        self.log.append(f"around {call.method}")
        if call.method != "tools/call":
            return await next(call)
        detached = self.home.run_detached(
            call, next, asker=AskParked(self.park), on_progress=lambda *step: self.steps.append(step), **self.options
        )
        self.calls.put_nowait(detached)
        self.latest[asyncio.get_running_loop()] = detached
        return await detached.result if self.wait else CallToolResult(content=[TextContent("goes on")])

    def measures(self) -> Mapping[str, float]:
        return {"running_tasks": 2, "channels": 99}


def made(extension: ServerExtension, **options: Any) -> Server:
    app = Server("town", extensions=[extension], **options)

    @app.tool
    async def slow(ctx: Context) -> str:
        ctx.progress(1, 3, "one")
        await asyncio.Event().wait()
        return "never"

    @app.tool
    async def twice(n: int, ctx: Context) -> int:
        ctx.progress(1, 2, "half")
        return 2 * n

    @app.tool
    def twice_plain(n: int, ctx: Context) -> int:
        ctx.progress(1, 2, "half")
        return 2 * n

    @app.tool
    async def who(ctx: Context) -> str:
        question: Elicit[dict[str, str]] = Elicit("Who?", FORM, key="who")
        other: Elicit[dict[str, str]] = Elicit("And?", FORM)
        first, second = await ctx.ask(question, other)
        assert first.content is not None
        assert second.content is not None
        return f"{first.content['name']} and {second.content['name']}"

    @app.tool
    def who_plain(ctx: Context) -> str:
        question: Elicit[dict[str, str]] = Elicit("Who?", FORM, key="who")
        other: Elicit[dict[str, str]] = Elicit("And?", FORM)
        first, second = ctx.ask(question, other)
        assert first.content is not None
        assert second.content is not None
        return f"{first.content['name']} and {second.content['name']}"

    return app


@asynccontextmanager
async def town(app: Server, revision: Revision, **capabilities: Any) -> AsyncIterator[Calls]:
    """A client of a server that is served within this process, until the end of the block."""
    served = behind(app)
    await served.start()
    try:
        async with calling(app, revision, **capabilities) as calls:
            yield calls
    finally:
        await served.stop()


async def text_of(detached: DetachedCall) -> str:
    """The text of a tool's result, which comes as JSON text."""
    async with asyncio.timeout(20):
        result = await detached.result
    found: str = msgspec.json.decode(result)["content"][0]["text"]
    return found


async def ended(detached: DetachedCall) -> str:
    """Why it was ended."""
    async with asyncio.timeout(20):
        with pytest.raises(CallRefused) as caught:
            await detached.result
    return caught.value.refusal.kind


# -- its part of the lifespan ---------------------------------------------------------------------


@pytest.mark.parametrize("wire", ["memory", "tcp://127.0.0.1:0", "http://127.0.0.1:0/mcp"])
async def test_what_an_extension_opens_lasts_as_long_as_the_serving(wire: str) -> None:
    log: list[str] = []

    async def life(app: Server) -> AsyncIterator[str]:
        log.append("begin")
        yield "state"
        log.append("end")

    inner = Server("inner", extensions=[Running(log=log)])
    app = made(Running(log=log), lifespan=life)
    app.include(inner, namespace="inner")
    if wire == "memory":
        async with Client(app) as client:
            await client.list_tools()
    else:
        async with serve(app, urls=wire) as serving:
            assert log == ["begin", "open inner", "open town"], "before the first call"
            async with Client(serving.urls[0]) as client:
                await client.list_tools()
    assert [one for one in log if not one.startswith("around")] == [
        "begin",
        "open inner",
        "open town",
        "close town",
        "close inner",
        "end",
    ]
    assert "around tools/list" in log[3:-3]


def test_each_event_loop_has_a_home_of_its_own() -> None:
    """Of one server, served twice at once."""
    running = Running()
    app = made(running)
    served, done = threading.Barrier(2), threading.Barrier(2)

    async def serving() -> None:
        async with serve(app, urls="tcp://127.0.0.1:0") as here, Client(here.urls[0]) as client:
            await asyncio.to_thread(served.wait, 20)
            assert (await client.call_tool("twice", {"n": 4})).text == "goes on"
            assert await text_of(running.latest[asyncio.get_running_loop()]) == "8"
            others = [home for loop, home in running.homes.items() if loop is not asyncio.get_running_loop()]
            with pytest.raises(LocalError, match="on another event loop"):
                others[0].lead("x", asyncio.Event().wait)
            await asyncio.to_thread(done.wait, 20)

    faults: list[BaseException] = []

    def run() -> None:
        try:
            asyncio.run(serving())
        except BaseException as error:
            faults.append(error)

    threads = [threading.Thread(target=run) for _ in range(2)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert not faults
    assert len(set(running.homes.values())) == 2
    assert sorted(one for one in running.log if "around" not in one) == ["close town"] * 2 + ["open town"] * 2


async def test_a_home_has_the_parts_of_the_server_that_is_served() -> None:
    running = Running()
    inner = made(running)
    outer = Server("outer", keys=KEYS)
    outer.include(inner, namespace="x")
    bus = MemoryBus("home parts")
    inner.__servable__().seal.clock = lambda: 7.0
    async with serve(outer, urls="tcp://127.0.0.1:0", bus=bus, store="memory:"):
        home = running.home
        assert (home.name, home.extension, home.clock()) == ("town", NAME, 7.0)
        assert home.bus is not None
        assert home.bus.url == bus.url
        assert home.store is behind(outer).service._kept_in
        assert (home.surroundings.service, repr(home)) == (
            inner.__servable__().service,
            f"<ServerHome of {NAME} in town>",
        )
    assert home.bus is None
    with pytest.raises(LocalError, match="served no more"):
        home.lead("x", asyncio.Event().wait)
    await bus.close()


async def test_the_measures_of_extensions_are_the_server_s() -> None:
    outer = made(Running())
    outer.include(made(Running()), namespace="x")
    measures = behind(outer).measures()
    assert measures["running_tasks"] == 4, "those of what is included are added"
    assert measures["channels"] == 0, "the server's own stay"


async def test_an_extension_that_opens_nothing() -> None:
    class Opens(ServerExtension):
        declares = Extension(name=NAME)

        def open(self, home: ServerHome) -> None:
            return None

    async with Client(Server("x", extensions=[Opens()])) as client:
        assert await client.list_tools() == []


# -- calls that go on -----------------------------------------------------------------------------


@both
@kinds
async def test_a_call_goes_on_beyond_its_request(revision: Revision, kind: str) -> None:
    """With the other middleware, in a thread if its function is plain, and its progress goes to the extension."""
    running = Running()
    app = made(running)
    seen: list[Any] = []

    @app.use
    async def noting(call: Call, next: Next) -> Any:
        seen.append((call.method, call.context.caller.scheme))
        return await next(call)

    async with town(app, revision) as calls:
        name = "twice" if kind == "async" else "twice_plain"
        first = await calls.result("tools/call", name=name, arguments={"n": 21}, _meta={"progressToken": "t"})
        assert first["content"][0]["text"] == "goes on"
        assert await text_of(await running.calls.get()) == "42"
        assert running.steps == [(1.0, 2.0, "half")]
        assert [one for one in calls.told if one["method"] == "notifications/progress"] == []
        assert ("tools/call", "memory") in seen
    assert behind(app).call_limit.in_flight == 0


@both
async def test_it_fails_as_a_call_does(revision: Revision) -> None:
    """A tool's failure is its result; an error is raised."""
    running = Running()
    app = made(running)

    @app.tool
    async def fails() -> str:
        raise RpcError.of(7, "no")

    async with town(app, revision) as calls:
        await calls.call("fails", {})
        with pytest.raises(RpcError, match="no"):
            await (await running.calls.get()).result
        await calls.call("twice", {"n": "x"})
        assert "Invalid arguments" in await text_of(await running.calls.get())


async def test_it_has_the_slot_of_its_method_that_its_request_had() -> None:
    """So a request that waits for it does not wait for itself."""
    running = Running(wait=True)
    app = made(running)
    order: list[int] = []
    go = asyncio.Event()

    @app.tool(concurrency=1)
    async def alone(n: int) -> int:
        order.append(n)
        await go.wait()
        order.append(n)
        return n

    async with town(app, R2026_07) as calls:
        asking = [asyncio.ensure_future(calls.call("alone", {"n": n})) for n in range(3)]
        first = await running.calls.get()
        go.set()
        assert [(await one)["content"][0]["text"] for one in asking] == ["0", "1", "2"]
        assert order == [0, 0, 1, 1, 2, 2]
        assert first.done


@kinds
async def test_one_that_begins_after_its_request_waits_for_a_slot_of_its_own(kind: str) -> None:
    """The slot that its request had may be another call's by then."""
    kept: list[tuple[Call, Next]] = []

    class Later(Running):
        async def around(self, call: Call, next: Next) -> Any:
            kept.append((call, next))
            return await next(call)

    running = Later()
    app, now, most = made(running), 0, 0
    guard = threading.Lock()

    def enter(by: int) -> None:
        nonlocal now, most
        with guard:
            now += by
            most = max(most, now)

    @app.tool(concurrency=1)
    async def alone() -> None:
        enter(1)
        for _ in range(5):
            await asyncio.sleep(0)
        enter(-1)

    @app.tool(concurrency=1)
    def alone_plain() -> None:
        enter(1)
        time.sleep(0.02)
        enter(-1)

    async with town(app, R2026_07) as calls:
        await calls.call("alone" if kind == "async" else "alone_plain", {})
        await calls.ask("ping")  # its work has ended by then
        later = [running.home.run_detached(*kept[0]) for _ in range(3)]
        for one in later:
            await one.result
    assert most == 1


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ({"about": None}, "about is text, not None"),
        ({"timeout": "1"}, "timeout is a number of seconds above 0, or None, or left out, not '1'"),
        ({"timeout": -1}, "timeout is a number"),
        ({"timeout": float("nan")}, "timeout is a number"),
        ({"caller": "Ada"}, "caller is a Caller, or None, not 'Ada'"),
    ],
)
async def test_wrong_options_leave_nothing_behind(option: dict[str, Any], words: str) -> None:
    class Wrong(Running):
        async def around(self, call: Call, next: Next) -> Any:
            if call.method == "tools/call":
                with pytest.raises(LocalError, match=words):
                    self.home.run_detached(call, next, **option)
            return await next(call)

    app = made(Wrong())
    app.observe(Told())

    @app.tool(concurrency=1)
    async def alone() -> str:
        return "done"

    async with town(app, R2026_07) as calls:
        for _ in range(2):  # its slot is free again
            assert (await calls.call("alone"))["content"][0]["text"] == "done"
        assert behind(app).call_limit.in_flight == 0


@both
async def test_neither_the_end_of_its_request_nor_of_its_channel_ends_it(revision: Revision) -> None:
    running = Running(wait=True)
    app = made(running)
    go, errors = asyncio.Event(), []

    @app.tool
    async def later(ctx: Context) -> str:
        await go.wait()
        try:
            assert ctx.rpc.peer is not None
            await ctx.rpc.peer.call("ping")
        except Exception as error:
            errors.append(type(error).__name__)
        return f"{ctx.cancelled} {ctx.caller.scheme} {await ctx.info('x')}"

    served = behind(app)
    await served.start()
    async with calling(app, revision) as calls:
        request = asyncio.ensure_future(calls.call("later", {}))
        detached = await running.calls.get()
    request.cancel()
    go.set()
    assert await text_of(detached) == "False memory False"
    assert errors == ["Closed"] or errors == ["Ended"]
    await served.stop()


async def test_it_goes_on_when_its_client_leaves_over_http() -> None:
    running = Running(wait=True)
    app = made(running)
    go = asyncio.Event()

    @app.tool
    async def later(ctx: Context) -> str:
        await go.wait()
        await ctx.store.set("a", 1)
        return f"{ctx.headers.get('x-mine')} {await ctx.store.get('a')} {ctx.rpc.peer}"

    async with serve(app, urls="http://127.0.0.1:0/mcp") as serving:
        async with Client(serving.urls[0], revision=R2025_11, headers={"x-mine": "7"}) as client:
            asking = asyncio.ensure_future(client.call_tool("later"))
            detached = await running.calls.get()
            asking.cancel()
        go.set()
        assert (await text_of(detached)).startswith("7 1 <Peer")


async def test_whose_call_it_is_may_be_another_s() -> None:
    running = Running(caller=Caller(scheme="mine", remote="elsewhere"))
    app = made(running)

    @app.tool
    def mine(ctx: Context) -> str:
        return f"{ctx.caller.scheme} {ctx.caller.remote}"

    async with town(app, R2026_07) as calls:
        await calls.call("mine", {})
        assert await text_of(await running.calls.get()) == "mine elsewhere"


@both
async def test_it_can_be_cancelled(revision: Revision) -> None:
    running = Running()
    stopped = asyncio.Event()
    app = made(running)

    @app.tool
    async def sleeps(ctx: Context) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            assert ctx.cancelled
            stopped.set()
            raise

    @app.tool
    def blocks(ctx: Context) -> None:
        while not ctx.cancelled:
            time.sleep(0.001)
        loop.call_soon_threadsafe(stopped.set)

    loop = asyncio.get_running_loop()
    async with town(app, revision) as calls:
        for name in ("sleeps", "blocks"):
            await calls.call(name, {})
            detached = await running.calls.get()
            waits = asyncio.ensure_future(detached.result)
            await asyncio.sleep(0)
            waits.cancel()  # one who stops waiting does not stop the call
            await asyncio.wait([waits])
            assert not detached.done
            detached.cancel()
            detached.cancel()
            assert await ended(detached) == "cancelled"
            await asyncio.wait_for(stopped.wait(), 20)
            stopped.clear()


async def test_one_that_is_cancelled_at_once_never_begins() -> None:
    ran: list[str] = []

    class AtOnce(Running):
        async def around(self, call: Call, next: Next) -> Any:
            detached = self.home.run_detached(call, next)
            detached.cancel()
            self.calls.put_nowait(detached)
            return CallToolResult(content=[TextContent("x")])

    running = AtOnce()
    app = made(running)

    @app.tool
    async def runs() -> None:
        ran.append("ran")

    async with town(app, R2026_07) as calls:
        await calls.call("runs", {})
        assert await ended(await running.calls.get()) == "cancelled"
        await calls.ask("ping")
        assert (ran, behind(app).call_limit.in_flight) == ([], 0)


async def test_its_time_is_its_own() -> None:
    running = Running(timeout=0.02)
    app = made(running)
    async with town(app, R2026_07) as calls:
        await calls.call("slow", {})
        detached = await running.calls.get()
        assert await ended(detached) == "timed_out"
        with pytest.raises(CallRefused, match=r"longer than 0\.02 s"):
            await detached.result


async def test_a_question_pauses_its_time() -> None:
    running = Running(timeout=1.0)
    async with town(made(running), R2026_07, **ELICITS) as calls:
        await calls.call("who_plain", {})
        detached = await running.calls.get()
        requests, answers = await running.asked.get()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(answers), 1.2)
        assert not detached.done
        answers.set_result({key: accepted("Ada") for key in requests})
        assert await text_of(detached) == "Ada and Ada"


async def test_a_drain_lets_it_end_or_ends_it() -> None:
    running = Running()
    app = made(running)
    go = asyncio.Event()

    @app.tool
    async def ends() -> str:
        await go.wait()
        return "ended"

    serving = serve(app, urls="tcp://127.0.0.1:0")
    await serving.__aenter__()
    async with Client(serving.urls[0]) as client:
        for name in ("ends", "slow"):
            await client.call_tool(name)
    first, second = running.calls.get_nowait(), running.calls.get_nowait()
    closing = asyncio.ensure_future(serving.close(0.3))
    await asyncio.sleep(0)
    assert not first.done
    go.set()
    assert await text_of(first) == "ended"
    assert await ended(second) == "draining"
    await closing
    assert running.log[-1] == "close town"


async def test_the_end_of_the_home_ends_it() -> None:
    """A client in this process drains nothing: its server ends with it."""
    running = Running()
    ends: list[str] = []

    class Hears(Running):
        @asynccontextmanager
        async def _opened(self, home: ServerHome) -> AsyncIterator[None]:
            self.homes[asyncio.get_running_loop()] = home
            yield
            ends.append(await ended(self.calls.get_nowait()))

    running = Hears()
    app = made(running)
    async with Client(app) as client:
        await client.call_tool("slow")
    assert (ends, behind(app).call_limit.in_flight) == (["draining"], 0)


@pytest.mark.parametrize("limits", [Limits(detached_calls=4), Limits(calls=9)], ids=["its own", "half of calls"])
async def test_how_many_go_on_is_bounded(limits: Limits) -> None:
    """`detached_calls`, and never more than half of `calls`, of all callers together."""
    running = Running()
    app = made(running, limits=limits)
    async with town(app, R2026_07) as calls:
        for number in range(4):
            running.options["caller"] = Caller(scheme="tcp", remote=f"192.0.2.{number}:1")
            await calls.call("slow", {})
        running.options["caller"] = Caller(scheme="tcp", remote="192.0.2.9:1")
        error = await calls.error("tools/call", name="slow", arguments={})
        assert error["data"] == {"limit": "detached_calls", "allowed": 4, "retry_after": 1}
        assert behind(app).call_limit.in_flight == 4, "they are calls in flight"
        first = running.calls.get_nowait()
        first.cancel()
        assert await ended(first) == "cancelled"
        await calls.ask("ping")  # its work has ended by then
        await calls.call("slow", {})


async def test_one_caller_does_not_take_all() -> None:
    """While others have none, half of all; beyond that a caller has a tenth."""
    running = Running()
    app = made(running, limits=Limits(detached_calls=20))
    async with town(app, R2026_07) as calls:
        for _ in range(10):
            await calls.call("slow", {})
        error = await calls.error("tools/call", name="slow", arguments={})
        assert error["data"]["limit"] == "detached_calls"
        running.options["caller"] = Caller(scheme="tcp", remote="192.0.2.9:1")
        await calls.call("slow", {})


async def test_a_call_that_finds_no_room_is_refused() -> None:
    """`calls` counts the request, too."""
    running = Running()
    app = made(running, limits=Limits(calls=1))
    async with town(app, R2026_07) as calls:
        for _ in range(3):
            error = await calls.error("tools/call", name="slow", arguments={})
            assert error["data"] == {"limit": "calls", "allowed": 1, "retry_after": 1}
        assert behind(app).call_limit.in_flight == 0


@kinds
async def test_progress_that_its_receiver_fails_at_fails_no_call(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    class Fails(Running):
        async def around(self, call: Call, next: Next) -> Any:
            self.calls.put_nowait(self.home.run_detached(call, next, on_progress=lambda *step: 1 / 0))
            return CallToolResult(content=[TextContent("goes on")])

    running = Fails()
    async with town(made(running), R2026_07) as calls:
        await calls.call("twice" if kind == "async" else "twice_plain", {"n": 2})
        assert await text_of(await running.calls.get()) == "4"
    assert "what takes the progress of" in caplog.text


@kinds
async def test_nothing_of_it_is_kept_after_its_end(kind: str) -> None:
    """Also not in its params, which the garbage collector does not look into."""
    taken: list[weakref.ref[Any]] = []

    class Taker:
        def __call__(self, *step: Any) -> None: ...

    class Notes(Running):
        async def around(self, call: Call, next: Next) -> Any:
            taker = Taker()
            taken.append(weakref.ref(taker))
            self.calls.put_nowait(self.home.run_detached(call, next, on_progress=taker))
            return CallToolResult(content=[TextContent("goes on")])

    running = Notes()
    async with town(made(running), R2026_07) as calls:
        await calls.call("twice" if kind == "async" else "twice_plain", {"n": 2})
        detached = await running.calls.get()
        assert await text_of(detached) == "4"
        del detached
        await calls.ask("ping")
        gc.collect()
        assert [one() for one in taken] == [None]


# -- questions that wait for answers from elsewhere -----------------------------------------------


def accepted(name: object) -> Raw:
    return Raw(json.dumps({"action": "accept", "content": {"name": name}}).encode())


@both
@kinds
async def test_a_function_waits_for_answers_from_elsewhere(revision: Revision, kind: str) -> None:
    """A wrong answer is asked again, under another key."""
    running = Running()
    async with town(made(running), revision, **ELICITS) as calls:
        await calls.call("who" if kind == "async" else "who_plain", {})
        detached = await running.calls.get()
        requests, answers = await running.asked.get()
        assert [one.params.message for one in requests.values()] == ["Who?", "And?"]  # type: ignore[union-attr]
        first, second = requests
        assert first == "who"
        answers.set_result({first: accepted(7), second: accepted("Bob")})
        requests, answers = await running.asked.get()
        (again,) = requests
        assert again not in (first, second)
        answers.set_result({again: accepted("Ada")})
        assert await text_of(detached) == "Ada and Bob"
        assert [one for one in calls.told if "id" in one] == [], "nothing is asked on the channel"


@both
@kinds
async def test_one_that_waits_for_answers_can_be_cancelled(revision: Revision, kind: str) -> None:
    running = Running()
    async with town(made(running), revision, **ELICITS) as calls:
        await calls.call("who" if kind == "async" else "who_plain", {})
        detached = await running.calls.get()
        _, answers = await running.asked.get()
        detached.cancel()
        assert await ended(detached) == "cancelled"
        await asyncio.wait([answers], timeout=20)
        assert answers.cancelled()


async def test_a_thread_that_waits_for_an_answer_holds_up_the_next_call_that_goes_on() -> None:
    running = Running()
    async with town(made(running, limits=Limits(threads=2)), R2026_07, **ELICITS) as calls:
        await calls.call("who_plain", {})
        first = await running.calls.get()
        requests, answers = await running.asked.get()
        await calls.call("twice_plain", {"n": 1})  # calls that go on have one thread of the two
        second = await running.calls.get()
        assert not second.done
        answers.set_result({key: accepted("Ada") for key in requests})
        assert await text_of(first) == "Ada and Ada"
        assert await text_of(second) == "2"


async def test_threads_that_wait_for_answers_leave_half_of_all_to_others() -> None:
    running = Running()
    app = made(running, limits=Limits(threads=2))
    async with town(app, R2026_07, **ELICITS) as calls:
        host = behind(app).host
        host.parked += 1  # the thread of another caller
        await calls.call("who_plain", {})
        with pytest.raises(CallRefused, match="Busy: 1 threads wait for answers, half of all"):
            await (await running.calls.get()).result
        host.parked -= 1
        await calls.call("who_plain", {})
        requests, answers = await running.asked.get()
        answers.set_result({key: accepted("Ada") for key in requests})
        assert await text_of(await running.calls.get()) == "Ada and Ada"


@both
async def test_what_a_client_has_not_declared_is_not_asked(revision: Revision) -> None:
    running = Running()
    async with town(made(running), revision) as calls:
        await calls.call("who", {})
        with pytest.raises(RpcError, match="elicitation"):
            await (await running.calls.get()).result
        assert running.asked.empty()


@both
async def test_wrong_answers_do_not_go_on_for_ever(revision: Revision) -> None:
    running = Running()
    async with town(made(running), revision, **ELICITS) as calls:
        await calls.call("who", {})
        detached = await running.calls.get()
        keys: set[str] = set()
        for _ in range(3):
            requests, answers = await running.asked.get()
            assert not keys & requests.keys()
            keys |= requests.keys()
            answers.set_result({key: accepted(0) for key in requests})
        assert msgspec.json.decode(await detached.result)["isError"] is True
        await calls.call("who", {})
        detached = await running.calls.get()
        requests, answers = await running.asked.get()
        answers.set_result({})
        assert msgspec.json.decode(await detached.result)["isError"] is True


@both
async def test_a_url_that_must_be_opened_first(revision: Revision) -> None:
    running = Running()
    app = made(running)

    @app.tool
    async def opens(ctx: Context) -> None:
        ctx.require_url(ElicitUrl("Go", "https://example.com/", id="1"))

    async with town(app, revision, **ELICITS) as calls:
        await calls.call("opens", {})
        with pytest.raises(RpcError) as caught:
            await (await running.calls.get()).result
        assert caught.value.code == (-32042 if revision is R2025_11 else -32600)


@kinds
async def test_without_a_way_of_its_own_a_call_asks_as_its_revision_does(kind: str) -> None:
    class Plain(Running):
        async def around(self, call: Call, next: Next) -> Any:
            if call.method != "tools/call":
                return await next(call)
            self.calls.put_nowait(self.home.run_detached(call, next))
            return CallToolResult(content=[TextContent("goes on")])

    running = Plain()
    name = "who" if kind == "async" else "who_plain"
    async with Client(made(running), revision=R2025_11, on_elicit=lambda asked: {"name": "Ada"}) as client:
        await client.call_tool(name)
        assert await text_of(running.calls.get_nowait()) == "Ada and Ada"
    running = Plain()
    async with town(made(running), R2026_07, **ELICITS) as calls:
        await calls.call(name, {})
        assert msgspec.json.decode(await (await running.calls.get()).result)["resultType"] == "input_required"


@both
@kinds
async def test_a_call_in_its_request_may_wait_for_answers_from_elsewhere(revision: Revision, kind: str) -> None:
    class Within(Running):
        async def around(self, call: Call, next: Next) -> Any:
            call.params.asker = AskParked(self.park)
            return await next(call)

    running = Within()
    async with town(made(running), revision, **ELICITS) as calls:
        asking = asyncio.ensure_future(calls.call("who" if kind == "async" else "who_plain", {}))
        requests, answers = await running.asked.get()
        answers.set_result({key: accepted("Ada") for key in requests})
        assert (await asking)["content"][0]["text"] == "Ada and Ada"


# -- work on one replica at a time ----------------------------------------------------------------


class Works:
    """Work that notes where it runs."""

    def __init__(self) -> None:
        self.now: list[str] = []
        self.begun: asyncio.Queue[str] = asyncio.Queue()
        self.most = 0

    def at(self, place: str) -> Callable[[], Any]:
        async def work() -> None:
            self.now.append(place)
            self.most = max(self.most, len(self.now))
            self.begun.put_nowait(place)
            try:
                await asyncio.Event().wait()
            finally:
                self.now.remove(place)

        return work


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lease of a second."""
    for name, seconds in (("LIFE", 1.0), ("BEAT", 0.1), ("MARGIN", 0.5)):
        monkeypatch.setattr(lease, name, seconds)


def leading(works: Works, place: str) -> Server:
    running = Running()
    running.works["sweep"] = works.at(place)
    return Server("led", extensions=[running], keys=KEYS)


async def test_work_runs_here_at_once_without_a_bus() -> None:
    works = Works()
    async with Client(leading(works, "here")):
        assert await asyncio.wait_for(works.begun.get(), 20) == "here"
    assert works.now == []


@pytest.mark.usefixtures("quick")
async def test_work_runs_on_one_replica_which_another_replaces() -> None:
    works = Works()
    buses = [MemoryBus("leading") for _ in range(3)]
    servings = [
        serve(leading(works, f"{n}"), urls="tcp://127.0.0.1:0", bus=bus, limits=Limits(drain_timeout=1))
        for n, bus in enumerate(buses)
    ]
    for one in servings:
        await one.__aenter__()
    first = int(await asyncio.wait_for(works.begun.get(), 20))
    await servings[first].close()
    second = int(await asyncio.wait_for(works.begun.get(), 20))
    assert second != first
    buses[second].disconnect()  # it cannot renew: it stops before another begins
    third = int(await asyncio.wait_for(works.begun.get(), 20))
    assert third not in (first, second)
    assert (works.now, works.most) == ([f"{third}"], 1)
    buses[second].connect_again()
    for one in servings:
        await one.close()
    assert works.now == []
    for bus in buses:
        await bus.close()


async def test_work_that_fails_is_begun_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("dragoman.mcp.server.extending.home.FIRST_PAUSE", 0.1)
    running, tries, done = Running(), [], asyncio.Event()

    async def work() -> None:
        tries.append(time.monotonic())
        if len(tries) < 4:
            raise ValueError("not yet")
        done.set()

    running.works["sweep"] = work
    async with Client(Server("led", extensions=[running])):
        await asyncio.wait_for(done.wait(), 20)
    pauses = [after - before for before, after in pairwise(tries)]
    least = [0.8 * 0.1 * 2**one for one in range(3)]  # never shorter, but by a tick of Windows' clock, 16 ms
    assert all(pause >= wanted for pause, wanted in zip(pauses, least, strict=True)), pauses
    assert caplog.text.count(f"'sweep' of {NAME} failed") == 3
    assert len(tries) == 4, "work that returns is over"


async def test_work_that_is_cancelled_by_itself_is_begun_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A task for which it waits was cancelled, and not the work."""
    monkeypatch.setattr("dragoman.mcp.server.extending.home.FIRST_PAUSE", 0.01)
    running, tries, done = Running(), [], asyncio.Event()

    async def work() -> None:
        tries.append(1)
        if len(tries) > 1:
            done.set()
        other = asyncio.ensure_future(asyncio.Event().wait())
        other.cancel()
        await other

    running.works["sweep"] = work
    async with Client(Server("led", extensions=[running])):
        await asyncio.wait_for(done.wait(), 20)
    assert f"'sweep' of {NAME} failed; it begins again" in caplog.text


async def test_work_that_fails_when_it_is_stopped_does_not_begin_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("dragoman.mcp.server.extending.home.FIRST_PAUSE", 0.01)
    running, tries, begun = Running(), [], asyncio.Event()

    async def work() -> None:
        tries.append(1)
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            raise ValueError("cannot put it away")

    running.works["sweep"] = work
    async with Client(Server("led", extensions=[running])):
        await asyncio.wait_for(begun.wait(), 20)
    assert tries == [1]
    assert f"'sweep' of {NAME} failed when it was stopped" in caplog.text
    assert "does not stop" not in caplog.text


class Stuck:
    """A store whose deletions wait, and which renews nothing."""

    def __init__(self, store: Any) -> None:
        self._store, self.go = store, asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def touch(self, key: str, ttl: float) -> bool:
        raise BusLost("nothing is renewed")

    async def delete(self, key: str) -> bool:
        await self.go.wait()
        found: bool = await self._store.delete(key)
        return found


@pytest.mark.usefixtures("quick")
async def test_a_lease_that_was_lost_is_left_to_its_next_holder() -> None:
    buses = [MemoryBus("late") for _ in range(2)]
    servers = [Server("led", keys=KEYS) for _ in buses]
    async with AsyncExitStack() as stack:
        for app, bus in zip(servers, buses, strict=True):
            await stack.enter_async_context(serve(app, urls="tcp://127.0.0.1:0", bus=bus))
        replicas = [behind(app).shared for app in servers]
        assert replicas[0] is not None
        assert replicas[1] is not None
        first, second = (lease.Lease(one, "sweep") for one in replicas if one is not None)
        await first.take()
        stuck: Any = Stuck(replicas[0].store)
        replicas[0].store = stuck
        await asyncio.wait_for(first.keep(), 20)
        giving = asyncio.ensure_future(first.give_up())
        await asyncio.wait_for(second.take(), 20)
        stuck.go.set()
        await giving
        keeping = asyncio.ensure_future(second.keep())
        assert await asyncio.wait({keeping}, timeout=0.3) == (set(), {keeping}), "it is still the second's"
        keeping.cancel()
    for bus in buses:
        await bus.close()


async def test_what_cannot_be_led_is_said_at_once() -> None:
    running = Running()
    async with Client(Server("led", extensions=[running])):
        running.home.lead("sweep", asyncio.Event().wait)
        with pytest.raises(LocalError, match="'sweep' is led already"):
            running.home.lead("sweep", asyncio.Event().wait)
        with pytest.raises(LocalError, match="the name of the work"):
            running.home.lead("", asyncio.Event().wait)
    bus = MemoryBus("keeps nothing")
    bus.store = None
    running.works["sweep"] = asyncio.Event().wait
    with pytest.raises(LocalError, match="keeps nothing, so no replica can know"):
        async with serve(Server("led", extensions=[running], keys=KEYS), urls="tcp://127.0.0.1:0", bus=bus):
            pass
    await bus.close()


# -- what observers get ---------------------------------------------------------------------------


class Told:
    """An observer that remembers."""

    def __init__(self) -> None:
        self.begun: list[Observation] = []
        self.ends: list[Observation] = []
        self.more = asyncio.Event()

    def came_in(self, seen: Observation) -> None:
        self.begun.append(seen)
        self.more.set()

    def outbound(self, seen: Observation) -> None:
        self.begun.append(seen)

    def started(self, seen: Observation) -> None: ...

    def ended(self, seen: Observation) -> None:
        self.ends.append(seen)
        self.more.set()

    def rejected(self, seen: Rejection) -> None: ...

    async def until(self, found: Callable[[Observation], bool], ends: bool = True) -> Observation:
        """The first observation of this kind, once it is there."""
        async with asyncio.timeout(20):
            while True:
                for one in self.ends if ends else self.begun:
                    if found(one):
                        return one
                self.more.clear()
                await self.more.wait()


@both
async def test_what_goes_on_is_observed_with_its_request(revision: Revision) -> None:
    running, told = Running(about="task-1"), Told()
    app = made(running)
    app.observe(told)
    async with town(app, revision, **ELICITS) as calls:
        await calls.call("twice", {"n": 1})
        await text_of(await running.calls.get())
        request = await told.until(lambda one: one.kind == "request" and one.method == "tools/call")
        detached = await told.until(lambda one: one.kind == "detached")
        assert (detached.parent, request.parent) == (request, None)
        assert (detached.method, detached.target, detached.about) == ("tools/call", "twice", "task-1")
        assert (detached.outcome, request.outcome, request.about) == ("result", "result", "")
        assert (detached.channel, detached.service) == (request.channel, "town")
        assert b"twice" in bytes(detached.params)
        assert detached.wait is not None
        await calls.call("slow", {})
        other = await told.until(lambda one: one.kind == "detached" and one.target == "slow", ends=False)
        assert other.stop is not None or await told.until(lambda one: one is other and one.stop is not None, ends=False)
        (await running.calls.get()).cancel()
        assert (await told.until(lambda one: one is other)).outcome == "cancelled"


async def test_telemetry_shows_what_goes_on() -> None:
    """A span within that of its request, a line of the access log, a call in flight that can be killed, and nothing for
    those who trace messages."""
    exporter, provider = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    lines: list[str] = []
    events: list[str | None] = []
    recorder, metrics = Recorder(), Metrics()
    running = Running(about="task-1")
    app = made(running)
    for one in (
        Traces(provider),
        AccessLog(lines.append, format="json"),
        recorder,
        metrics,
        Trace(lambda event: events.append(event.method)),
    ):
        app.observe(one)
    async with town(app, R2026_07) as calls:
        await calls.call("twice", {"n": 1})
        await text_of(await running.calls.get())
        await calls.call("slow", {})
        detached = await running.calls.get()
        while not (listed := [one for one in recorder.board.calls().calls if one.killable]):
            await calls.ask("ping")
        assert [(one.kind, one.name, one.state) for one in listed] == [("detached", "slow", "running")]
        recorder.board.kill(listed[0].id)
        assert await ended(detached) == "cancelled"
    spans = {(span.name, span.kind): span for span in exporter.get_finished_spans()}
    request = spans[("tools/call twice", SpanKind.SERVER)]
    inner = spans[("tools/call twice", SpanKind.INTERNAL)]
    assert inner.parent is not None
    assert inner.parent.span_id == request.get_span_context().span_id  # type: ignore[union-attr]
    assert inner.attributes is not None
    assert inner.attributes["dragoman.about"] == "task-1"
    found = [(one["name"], one.get("kind"), one.get("about")) for one in map(json.loads, lines) if "name" in one]
    assert sorted(found, key=str) == [
        ("slow", "detached", "task-1"),
        ("slow", None, None),
        ("twice", "detached", "task-1"),
        ("twice", None, None),
    ]
    assert {json.loads(line).get("trace") for line in lines if "twice" in line} == {
        f"{request.get_span_context().trace_id:032x}"  # type: ignore[union-attr]
    }
    assert events.count("tools/call") == 4, "the beginning and the end of two requests"
    (in_flight,) = [one for one in metrics.snapshot() if one.name == "dragoman_calls_in_flight"]
    assert [sample.total for sample in in_flight.samples] == [0]
    provider.shutdown()


async def test_what_a_handler_sends_belongs_to_its_call() -> None:
    told = Told()
    app = Server("town")
    app.observe(told)

    @app.tool
    async def asks(ctx: Context) -> str:
        ctx.progress(1)
        return str((await ctx.elicit("Who?", FORM)).content)

    @app.tool
    def asks_plain(ctx: Context) -> str:
        ctx.progress(1)
        return str(ctx.elicit("Who?", FORM).content)

    options: dict[str, Any] = {"on_elicit": lambda asked: {"name": "Ada"}, "on_progress": lambda step: None}
    async with Client(app, revision=R2025_11, **options) as client:
        for name in ("asks", "asks_plain"):
            await client.call_tool(name)
            call = await told.until(lambda one, name=name: one.target == name)  # type: ignore[misc]
            sent = [one.method for one in told.begun if one.parent is call]
            assert sent == ["notifications/progress", "elicitation/create"]


async def test_the_streams_of_a_session_are_observed() -> None:
    told = Told()
    app = made(Running())
    async with serve(app, urls="http://127.0.0.1:0/mcp", observers=[told]) as serving:
        async with Client(serving.urls[0], revision=R2025_11) as client:
            await client.list_tools()
            stream = await told.until(lambda one: one.kind == "stream", ends=False)
            assert (stream.about, stream.outcome, stream.direction) == ("messages", None, "in")
            assert stream.started is not None
            listed = await told.until(lambda one: one.method == "tools/list")
            assert stream.session == listed.session != ""
            assert stream.session not in serving.urls[0]
        over = await told.until(lambda one: one.kind == "stream")
        assert (over, over.outcome) == (stream, "cancelled")


async def test_a_stream_whose_session_its_client_deletes_is_withdrawn_as_well() -> None:
    """As one whose connection it closes: which of the two is heard first is not certain."""
    told = Told()
    app = made(Running())
    app.observe(told)
    async with served(app) as place:
        sitting = await place.begin()
        async with sitting.get() as events:
            stream = await told.until(lambda one: one.kind == "stream", ends=False)
            assert (await place.ask(headers=sitting.headers, method="DELETE")).status == 204
            assert await events.rest() == []
            assert (stream.outcome, stream.reason) == ("cancelled", "the client ended the session")


async def test_the_stream_of_the_oldest_transport_is_observed() -> None:
    told = Told()
    app = made(Running(), http=HttpOptions(sse_2024=True))
    async with serve(app, urls="http://127.0.0.1:0/mcp", observers=[told]) as serving:
        at = serving.urls[0].removesuffix("/mcp").removeprefix("http://")
        host, _, port = at.rpartition(":")
        _reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"GET /sse HTTP/1.1\r\nHost: %b\r\nAccept: text/event-stream\r\n\r\n" % at.encode())
        stream = await told.until(lambda one: one.kind == "stream", ends=False)
        assert (stream.about, stream.outcome) == ("messages", None)
        writer.close()
        assert (await told.until(lambda one: one.kind == "stream")).outcome == "cancelled"


async def test_a_subscription_is_observed_with_its_members() -> None:
    told = Told()
    app = made(Running(), resources=True)
    app.observe(told)

    @app.resource("town://map")
    def map() -> str:
        return "x"

    async with town(app, R2026_07) as calls:
        wanted = {"toolsListChanged": True, "resourceSubscriptions": ["town://map"]}
        asking = asyncio.ensure_future(calls.ask("subscriptions/listen", notifications=wanted))
        seen = await told.until(lambda one: one.about != "", ends=False)
        assert (seen.method, seen.about) == ("subscriptions/listen", "toolsListChanged, resourceSubscriptions (1)")
        await behind(app).subscriptions.close()
        await asking
        assert (await told.until(lambda one: one is seen)).outcome == "result"
