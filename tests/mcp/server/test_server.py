"""A `Server` as a whole: served twice, its lifespan, its middleware, what it says of itself."""

from __future__ import annotations

import asyncio
import functools
import json
import ssl
import threading
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
import trustme

from dragoman import RpcError, Service, connect, serve
from dragoman.bus.memory import MemoryBus
from dragoman.channel import Admitted, Caller, ChannelError, Denied, Handshake, Identity
from dragoman.jsonrpc.codec import AnyAnswer, FailedAnswer
from dragoman.jsonrpc.errors import LocalError
from dragoman.jsonrpc.limits import SERVER
from dragoman.mcp import Client, Context, Server, ToolError
from dragoman.mcp.asking.forms import CannotAsk
from dragoman.mcp.client.subscriptions import Changed
from dragoman.mcp.protocol import revisions as r
from dragoman.mcp.server.listing import PAGE_BYTES
from dragoman.mcp.server.registry import MOST_TOOLS
from dragoman.rpc.middleware import Call, Next
from dragoman.transports.memory import pair
from tests.behind import behind

from ..asking_server import Wire
from ..asking_server import text as text_of
from ..calling import calling
from ..http_wire import Place, body, meta, standard

ALL = list(r.REVISIONS.values())
EVERY = pytest.mark.parametrize("revision", ALL, ids=lambda one: one.date)


def text(result: Any) -> str:
    return "".join(block.text for block in result.content)


async def test_a_server_is_served_a_second_time() -> None:
    app = Server("twice")

    @app.tool
    def thread(a: int) -> int:
        return a + 1

    for _ in range(2):
        async with serve(app, urls=["tcp://127.0.0.1:0"]) as serving, Client(serving.urls[0]) as client:
            assert await client.call_tool("thread", {"a": 1}, result=int) == 2


@EVERY
async def test_a_lifespan_is_around_the_calls(revision: r.Revision) -> None:
    seen: list[str] = []

    @asynccontextmanager
    async def life(server: Server) -> AsyncIterator[dict[str, int]]:
        seen.append(f"begin {server.name}")
        yield {"answer": 42}
        seen.append("end")

    app = Server("living", lifespan=life)

    @app.tool
    async def ask(ctx: Context) -> int:
        found: int = ctx.state["answer"]
        return found

    async with serve(app, urls=["tcp://127.0.0.1:0"]) as serving:
        assert seen == ["begin living"], "before the first call"
        async with Client(serving.urls[0], revision=revision) as client:
            assert text(await client.call_tool("ask")) == "42"
    assert seen == ["begin living", "end"]


class Lives:
    """A server whose lifespan gives the loop that it belongs to, and what it saw. `hold`: its tool waits there."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.loops: list[asyncio.AbstractEventLoop] = []

        @asynccontextmanager
        async def life(server: Server) -> AsyncIterator[asyncio.AbstractEventLoop]:
            self.seen.append("begin")
            self.loops.append(asyncio.get_running_loop())
            try:
                yield self.loops[-1]
            finally:
                self.seen.append("end")

        self.app = app = Server("living", lifespan=life)

        @app.tool
        async def here(ctx: Context) -> bool:
            return ctx.state is asyncio.get_running_loop()

        @app.tool
        def in_a_thread(ctx: Context) -> bool:
            return ctx.state is self.loops[-1]

        @app.tool(inline=True)
        def in_place(ctx: Context) -> bool:
            return ctx.state is asyncio.get_running_loop()

    async def used(self) -> None:
        """A client in this process, as docs/mcp/testing.md has it."""
        async with Client(self.app) as client:
            for tool in ("here", "in_a_thread", "in_place"):
                assert await client.call_tool(tool, result=bool) is True
            assert self.seen[-1] == "begin"
        assert self.seen[-1] == "end"


def test_each_event_loop_has_a_lifespan() -> None:
    """Two tests with `Client(app)`, two `asyncio.run`."""
    lives = Lives()
    for _ in range(2):
        asyncio.run(lives.used())
    assert lives.seen == ["begin", "end"] * 2
    assert lives.loops[0] is not lives.loops[1]


async def test_two_loops_at_once_have_each_their_own() -> None:
    lives = Lives()
    async with Client(lives.app) as client:
        assert await client.call_tool("here", result=bool)
        await asyncio.to_thread(asyncio.run, lives.used())
        assert lives.seen == ["begin", "begin", "end"]
        assert await client.call_tool("here", result=bool), "the other loop's end was not ours"
        assert await client.call_tool("in_place", result=bool)
        assert behind(lives.app).state is asyncio.get_running_loop()
    assert lives.seen == ["begin", "begin", "end", "end"]
    assert behind(lives.app).state is None


async def test_a_lifespan_lasts_as_long_as_its_last_user() -> None:
    lives = Lives()
    async with Client(lives.app) as inside:
        async with serve(lives.app, urls=["tcp://127.0.0.1:0"]) as serving, Client(serving.urls[0]) as client:
            async with Client(lives.app):
                pass
            assert await client.call_tool("here", result=bool) is True
        assert lives.seen == ["begin"]
        async with serve(lives.app, urls=["tcp://127.0.0.1:0"]):
            assert await inside.call_tool("here", result=bool) is True
    assert lives.seen == ["begin", "end"]


@EVERY
async def test_a_call_begins_the_lifespan_where_nothing_else_did(revision: r.Revision) -> None:
    """A mounted ASGI app gets no startup."""
    lives = Lives()
    async with calling(lives.app, revision) as calls:
        for tool in ("here", "in_a_thread", "in_place"):
            assert (await calls.call(tool))["content"][0]["text"] == "true"
        assert lives.seen == ["begin"]
    await behind(lives.app).stop()
    assert lives.seen == ["begin", "end"]


class Once:
    """One exchange; its answer."""

    def __init__(self, request: bytes) -> None:
        self.request, self.caller = request, Caller()
        self.gone: Callable[[], None] | None = None
        self.answer: bytes | None = None

    def respond(self, answer: AnyAnswer) -> None:
        self.answer = answer.text if isinstance(answer, FailedAnswer) else answer

    def stream(self, message: bytes) -> bool:
        return False


def tool_call(name: str) -> bytes:
    """A stateless request."""
    return body("tools/call", {"name": name, "_meta": meta()})


async def test_a_lifespan_that_has_begun_stands_in_the_way_of_no_call() -> None:
    """A tool that is quick is answered before `exchange` returns, as without a lifespan."""
    lives = Lives()
    await behind(lives.app).start()
    once = Once(tool_call("in_place"))
    behind(lives.app).exchange(once)
    assert once.answer is not None
    assert b'"text":"true"' in once.answer
    await behind(lives.app).stop()


async def test_a_lifespan_that_fails_fails_the_call_that_begins_it_and_is_tried_again() -> None:
    failing = [RuntimeError("no database")]

    @asynccontextmanager
    async def life(server: Server) -> AsyncIterator[int]:
        if failing:
            raise failing.pop()
        yield 42

    app = Server("second try", lifespan=life)

    @app.tool
    async def ask(ctx: Context) -> int:
        return int(ctx.state)

    async with calling(app, r.NEWEST) as calls:
        assert (await calls.error("tools/call", name="ask"))["code"] == -32603
        assert (await calls.call("ask"))["content"][0]["text"] == "42"
    await behind(app).stop()


async def test_a_lifespan_that_fails_is_told_at_the_start() -> None:
    @asynccontextmanager
    async def life(server: Server) -> AsyncIterator[None]:
        raise RuntimeError("no database")
        yield

    with pytest.raises(RuntimeError, match="no database"):
        async with serve(Server("failing", lifespan=life), urls=["tcp://127.0.0.1:0"]):
            pass


@EVERY
async def test_middleware_is_around_every_method(revision: r.Revision) -> None:
    seen: list[str] = []
    app = Server("watched")

    @app.use
    async def watch(call: Call, next: Next) -> Any:
        seen.append(call.method)
        return await next(call)

    @app.tool
    async def early() -> str:
        return "early"

    app.add_tool(lambda: "late", name="late", description="added after")
    async with Client(app, revision=revision) as client:
        await client.list_tools()
        assert text(await client.call_tool("early")) == "early"
        assert text(await client.call_tool("late")) == "late"
    assert [name for name in seen if name.startswith("tools/")] == ["tools/list", "tools/call", "tools/call"]


@EVERY
async def test_what_is_not_registered_is_not_declared(revision: r.Revision) -> None:
    async with Client(Server("empty"), revision=revision) as client:
        found = client.capabilities
        assert found is not None
        assert not found.tools
        assert not found.resources
        assert not found.prompts
        assert not found.completions


async def test_a_server_leaves_its_bus_with_its_last_user_and_without_any() -> None:
    bus = MemoryBus("users")
    app = Server("users", keys=["a key that all replicas have"])
    await behind(app).join(bus)
    await behind(app).stop()  # nothing has started it
    assert behind(app).shared is None
    await behind(app).join(bus)
    await behind(app).start()
    await behind(app).start()
    await behind(app).stop()
    assert behind(app).shared is not None
    await behind(app).stop()
    assert behind(app).shared is None
    await bus.close()


@EVERY
async def test_a_template_alone_may_have_completions(revision: r.Revision) -> None:
    app = Server("completing")
    app.add_prompt(lambda a: a, name="p")
    app.add_resource(lambda path: path, "file:///{path}", name="file")
    app.completion("file:///{path}", "path")(lambda value: [value])
    async with Client(app, revision=revision) as client:
        assert client.capabilities is not None
        assert (client.capabilities.completions is not msgspec.UNSET) == (revision is not r.R2024_11)


@EVERY
async def test_what_will_be_registered_can_be_declared_before(revision: r.Revision) -> None:
    """A session is told the capabilities once: a list that was not declared cannot be said to have changed."""
    app = Server("later", tools=True, resources=True, prompts=True, completions=True)
    async with Client(app, revision=revision) as client:
        found = client.capabilities
        assert found is not None
        assert found.tools is not msgspec.UNSET
        assert found.resources is not msgspec.UNSET
        assert found.resources.subscribe is True
        assert found.prompts is not msgspec.UNSET
        assert (found.completions is not msgspec.UNSET) == (revision is not r.R2024_11)
        for listed in (client.list_resources, client.list_tools, client.list_prompts):
            assert await listed() == []
        async with client.subscribe(resources=True) as changes:
            app.add_resource(lambda: "now", "note://later", name="later")
            assert await anext(changes) == Changed("resources")
        assert [one.uri for one in await client.list_resources()] == ["note://later"]


@EVERY
async def test_an_unknown_tool_is_a_protocol_error(revision: r.Revision) -> None:
    """server/tools, "Error Handling": unknown tools are protocol errors, -32602."""
    async with Client(Server("empty"), revision=revision) as client:
        with pytest.raises(RpcError, match="nothing") as error:
            await client.call_tool("nothing")
        assert error.value.code == -32602


@EVERY
async def test_a_tool_error_reaches_the_model(revision: r.Revision) -> None:
    app = Server("failing")

    @app.tool
    async def fails() -> None:
        raise ToolError("the printer is out of paper")

    async with Client(app, revision=revision) as client:
        result = await client.call_tool("fails")
        assert result.is_error is True
        assert text(result) == "the printer is out of paper"


@EVERY
async def test_methods_of_a_service_are_tools(revision: r.Revision) -> None:
    api = Service("calculator")

    @api.method
    def subtract(minuend: int, subtrahend: int) -> int:
        "Subtract."
        return minuend - subtrahend

    app = Server("both")
    app.include(api, prefix="math_")
    async with serve({"/rpc": api, "/mcp": app}, urls=["http://127.0.0.1:0"]) as serving:
        async with connect(serving.urls[0] + "/rpc") as peer:
            assert await peer.call("subtract", [42, 23]) == 19
        async with Client(serving.urls[0] + "/mcp", revision=revision if revision.streamable else None) as client:
            assert text(await client.call_tool("math_subtract", {"minuend": 42, "subtrahend": 23})) == "19"


@pytest.mark.parametrize("revision", [one for one in ALL if one.stateful], ids=lambda one: one.date)
async def test_an_error_for_an_id_that_is_none(revision: r.Revision) -> None:
    """basic/index: a request's id "MUST NOT be `null`". Its error has the id null before 2025-11-25, and none since."""
    async with serve(Server("strict"), urls=["tcp://127.0.0.1:0"]) as serving:
        host, _, port = serving.urls[0].removeprefix("tcp://").rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        who = '{"name": "tester", "version": "1"}'
        params = f'{{"protocolVersion": "{revision.date}", "capabilities": {{}}, "clientInfo": {who}}}'
        writer.write(f'{{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {params}}}\n'.encode())
        assert revision.date.encode() in await reader.readline()
        for id in ("null", "1.5"):
            writer.write(f'{{"jsonrpc": "2.0", "id": {id}, "method": "ping"}}\n'.encode())
            answer = msgspec.json.decode(await reader.readline())
            assert answer["error"]["code"] == -32600
            if revision.null_error_id and id == "null":
                assert answer["id"] is None
            elif not revision.null_error_id:
                assert "id" not in answer
        writer.close()


async def test_a_cancelled_call_stops_its_handler_and_gets_no_answer() -> None:
    """basic/utilities/cancellation: stop, and do not answer."""
    app = Server("slow")
    begun, stopped = asyncio.Event(), asyncio.Event()

    @app.tool
    async def slow() -> None:
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            stopped.set()

    @app.tool
    async def quick() -> None: ...

    for revision in ALL:
        begun.clear()
        stopped.clear()
        async with Client(app, revision=revision) as client:
            call = asyncio.ensure_future(client.call_tool("slow"))
            await begun.wait()
            call.cancel()
            async with asyncio.timeout(30):
                await stopped.wait()
            assert not (await client.call_tool("quick")).is_error
            assert behind(app).call_limit.in_flight == 0


@EVERY
async def test_a_reserved_code_never_crosses(revision: r.Revision) -> None:
    """2026-07-28 basic/index, "Error Codes": implementations MUST NOT emit any code of -32020 to -32099 that the
    specification does not define. A method's declared error is a tool's failure; another one is masked."""

    class Busy(RpcError):
        code = -32050
        message = "Busy"

    api = Service("coded")

    @api.method(errors=[Busy])
    def declared() -> None:
        raise Busy

    app = Server("coded")
    app.include(api)

    @app.tool
    async def undeclared() -> None:
        raise Busy

    async with Client(app, revision=revision) as client:
        result = await client.call_tool("declared")
        assert result.is_error is True
        assert "Busy" in text(result)
        with pytest.raises(RpcError) as error:
            await client.call_tool("undeclared")
        assert error.value.code == -32603


async def test_only_initialized_makes_a_session_initialized() -> None:
    """basic/lifecycle: "The server SHOULD NOT send requests other than pings and logging before"."""
    app = Server("asks")

    @app.tool
    async def folders(ctx: Context) -> str:
        try:
            return str(await ctx.roots())
        except CannotAsk as error:
            return str(error)

    near, far = pair()
    behind(app).attach(far)
    wire = Wire(near)
    hello = {
        "protocolVersion": r.R2025_11.date,
        "capabilities": {"roots": {}},
        "clientInfo": {"name": "c", "version": "1"},
    }
    wire.send({"id": 0, "method": "initialize", "params": hello})
    assert "result" in await wire.next()
    wire.send({"method": "notifications/roots/list_changed"})
    wire.send({"id": 1, "method": "tools/call", "params": {"name": "folders"}})
    assert "notifications/initialized" in text_of(await wire.next())
    wire.send({"method": "notifications/initialized"})
    wire.send({"id": 2, "method": "tools/call", "params": {"name": "folders"}})
    asked = await wire.next()
    assert asked["method"] == "roots/list"
    wire.send({"id": asked["id"], "result": {"roots": []}})
    assert text_of(await wire.next()) == "[]"
    await near.close()


@pytest.mark.parametrize("url", ["tcp://127.0.0.1:0", "http://127.0.0.1:0/mcp"])
async def test_a_server_is_served_within_the_limits_that_serve_is_given(url: str) -> None:
    app = Server("limited")
    started, go = asyncio.Event(), asyncio.Event()

    @app.tool
    async def wait() -> str:
        started.set()
        await go.wait()
        return "done"

    @app.tool
    def long(size: int) -> str:
        return "x" * size

    @app.tool(inline=True)
    def echo(text: str) -> str:
        return text

    short = SERVER.but(handler_timeout=0.05)
    async with serve(app, urls=[url], limits=short) as serving, Client(serving.urls[0]) as client:
        with pytest.raises(RpcError, match="Timed out"):
            await client.call_tool("wait")
    started.clear()
    narrow = SERVER.but(calls_per_channel=1, waiting_per_channel=0)
    async with serve(app, urls=["tcp://127.0.0.1:0"], limits=narrow) as serving, Client(serving.urls[0]) as client:
        first = asyncio.ensure_future(client.call_tool("wait"))
        await started.wait()
        with pytest.raises(RpcError, match="1 calls run and 0 wait"):
            await client.call_tool("wait")
        go.set()
        assert text(await first) == "done"
    started.clear()
    go.clear()
    limits = SERVER.but(message_size=2_000, response_size=1_500, calls=1)
    async with serve(app, urls=[url], limits=limits) as serving, Client(serving.urls[0]) as client:
        assert text(await client.call_tool("echo", {"text": "x" * 500})) == "x" * 500
        with pytest.raises(Exception, match=r"2,?000|too large|413"):
            await client.call_tool("echo", {"text": "x" * 2_000})
        with pytest.raises(RpcError, match=r"too large|Too large"):
            await client.call_tool("long", {"size": 1_400})
        first = asyncio.ensure_future(client.call_tool("wait"))
        await started.wait()
        with pytest.raises(Exception, match=r"Busy|503"):
            await client.call_tool("wait")
        go.set()
        assert text(await first) == "done"


async def test_a_client_trusts_the_authority_that_it_is_given() -> None:
    authority = trustme.CA()
    server_tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(server_tls)
    client_tls = ssl.create_default_context()
    authority.configure_trust(client_tls)
    app = Server("secured")
    app.add_tool(lambda: "inside", name="where")
    for url in ("https://127.0.0.1:0/mcp", "tls://127.0.0.1:0", "wss://127.0.0.1:0/mcp"):
        async with serve(app, urls=[url], tls=server_tls) as serving:
            async with Client(serving.urls[0], tls=client_tls) as client:
                assert text(await client.call_tool("where")) == "inside"
            with pytest.raises(ChannelError, match="certificate"):
                await Client(serving.urls[0]).__aenter__()


async def test_a_guard_says_401_before_the_body_is_read() -> None:
    """basic/authorization: "MUST receive a HTTP 401 response"; it may wait for another service."""

    async def guard(handshake: Handshake) -> Admitted | Denied:
        await asyncio.sleep(0)
        token = dict(handshake.headers).get(b"authorization", b"")
        if token != b"Bearer good":
            return Denied(reason="no token", headers=(("WWW-Authenticate", "Bearer"),))
        return Admitted(identity=Identity(subject="ada"))

    app = Server("guarded")

    @app.tool
    async def who(ctx: Context) -> str:
        return ctx.identity.subject if ctx.identity else ""

    async with serve(app, urls=["http://127.0.0.1:0/mcp"], guard=guard) as serving:
        port = int(serving.urls[0].split(":")[2].split("/")[0])
        found = await Place(port, app).call("who")
        assert (found.status, found.headers["www-authenticate"]) == (401, "Bearer")
        async with Client(serving.urls[0], auth="good") as client:
            assert text(await client.call_tool("who")) == "ada"


def known(caller: Caller) -> bool:
    return caller.headers.get("x-user") == "ada"


@pytest.mark.parametrize("scope", ["public", "private"])
async def test_what_is_there_for_some_callers_is_unknown_to_others(scope: Any) -> None:
    """Lists and look-ups take the caller; a list that is made for one is for no cache that others share."""
    app = Server("doors", cache_scope=scope, page_size=2, ttl=60)
    for number in range(3):
        app.add_tool(lambda: "open", name=f"open{number}")
        app.add_tool(lambda: "secret", name=f"secret{number}", visible=known)
    app.add_resource(lambda: "one", "note://one", name="one", visible=known)
    app.add_resource(lambda id: id, "notes://{id}", name="notes", visible=known)
    app.add_resource(lambda id: f"every {id}", "notes://{+id}", name="every")
    app.add_prompt(lambda topic: topic, name="poem", visible=known)
    app.completion("poem", "topic")(lambda typed: [typed])
    async with serve(app, urls=["http://127.0.0.1:0/mcp"]) as serving:
        url = serving.urls[0]
        async with Client(url, headers={"X-User": "ada"}) as ada, Client(url) as other:
            for client, tools in ((ada, 6), (other, 3), (ada, 6)):
                names = [one.name for one in await client.list_tools()]
                assert (len(names), names) == (tools, sorted(names, key=lambda name: (name[-1], name)))
            assert text(await ada.call_tool("secret1")) == "secret"
            assert text(await other.call_tool("open1")) == "open"
            with pytest.raises(RpcError, match="Unknown tool: secret1"):
                await other.call_tool("secret1")
            assert [one.uri for one in await ada.list_resources()] == ["note://one"]
            assert (await other.list_resources(), await other.list_prompts()) == ([], [])
            assert (await ada.read_resource("notes://a")).contents[0].text == "a"
            assert (await other.read_resource("notes://a")).contents[0].text == "every a"
            with pytest.raises(RpcError, match="Resource not found"):
                await other.read_resource("note://one")
            assert len(await ada.list_prompts()) == 1
            for refused in (other.get_prompt("poem", {"topic": "x"}), other.complete("poem", "topic", "x")):
                with pytest.raises(RpcError, match="Unknown prompt"):
                    await refused
        port = int(url.split(":")[2].split("/")[0])
        raw = body("tools/list", {"_meta": meta()})
        found = msgspec.json.decode((await Place(port, app).ask(raw, standard("tools/list"))).body)["result"]
        assert (found["cacheScope"], found["ttlMs"]) == ("private", 60_000)
    await behind(app).start()
    app.remove_tool("secret0")
    app.remove_tool("secret1")
    app.remove_tool("secret2")
    async with calling(app, r.NEWEST) as calls:
        assert (await calls.result("tools/list"))["cacheScope"] == scope, "none is for some alone any more"
        assert (await calls.result("resources/list"))["cacheScope"] == "private"


async def test_the_principal_is_issuer_subject_and_client_of_an_identity() -> None:
    app = Server("who")

    @app.tool(inline=True)
    def who(ctx: Context) -> str:
        return f"{ctx.principal} {ctx.identity and ctx.identity.scopes}"

    once = Once(tool_call("who"))
    identity = Identity(issuer="https://a", subject="ad\ud800", client_id="c", scopes=frozenset({"read"}))
    once.caller = Caller(identity=identity)
    behind(app).exchange(once)
    shown = msgspec.json.decode(once.answer or b"")["result"]["content"][0]["text"]
    assert shown == """["https://a","ad\\ud800","c"] frozenset({'read'})"""
    once = Once(tool_call("who"))
    behind(app).exchange(once)
    assert b"None None" in (once.answer or b"")


def test_every_revision_given_is_one() -> None:
    for given in ([r.NEWEST, "2025-06-18"], iter([r.NEWEST, "2025-06-18"]), iter(["2025-06-18"]), iter([])):
        with pytest.raises(LocalError, match="such as NEWEST"):
            Server("odd", revisions=given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("tools", "size", "page_size", "pages"),
    [
        (101, 0, None, [101]),
        (1_000, 0, None, [1_000]),
        (101, 0, 100, [100, 1]),
        (3, PAGE_BYTES // 2, None, [1, 1, 1]),
        (5, PAGE_BYTES // 3, None, [2, 2, 1]),
        (5, PAGE_BYTES // 3, 1, [1, 1, 1, 1, 1]),
        (2, PAGE_BYTES + 1, None, [1, 1]),
    ],
)
async def test_a_list_is_one_page_within_its_bytes(
    tools: int, size: int, page_size: int | None, pages: list[int]
) -> None:
    """Many hosts read the first page alone."""
    app = Server("long", page_size=page_size)
    for number in range(tools):
        app.add_tool(lambda: "", name=f"tool{number}", description="x" * size)
    async with calling(app, r.R2025_11) as calls:
        found: list[int] = []
        cursor: dict[str, Any] = {}
        while len(found) == 0 or cursor:
            result = await calls.result("tools/list", **cursor)
            found.append(len(result["tools"]))
            cursor = {"cursor": result["nextCursor"]} if "nextCursor" in result else {}
    assert found == pages


def test_more_tools_than_hosts_take_are_told_once(caplog: pytest.LogCaptureFixture) -> None:
    app = Server("crowded")
    for number in range(MOST_TOOLS):
        app.add_tool(lambda: "", name=f"tool{number}")
    assert not caplog.messages
    for number in range(3):
        app.add_tool(lambda: "", name=f"more{number}")
    (said,) = caplog.messages
    assert said.startswith("more than 128 tools: many hosts take fewer")


async def test_what_may_be_called_again_in_a_service_may_be_as_a_tool() -> None:
    api = Service("api")
    api.method(idempotent=True)(_again)
    api.method(name="once")(_again)
    app = Server("including")
    app.include(api)
    async with calling(app, r.R2025_11) as calls:
        tools = {one["name"]: one for one in (await calls.result("tools/list"))["tools"]}
    assert tools["_again"]["annotations"] == {"idempotentHint": True}
    assert "annotations" not in tools["once"]
    assert "icons" not in tools["once"]


def _again() -> int:
    return 1


class Kept:
    def read(self, key: str) -> str:
        return key


def test_what_wants_an_instance_is_refused() -> None:
    app = Server("kept")
    with pytest.raises(LocalError, match=r"Kept\.read wants self: register it of an instance, Kept\(\.\.\.\)\.read"):
        app.add_tool(Kept.read)
    with pytest.raises(LocalError, match="Kept is a class: register a function"):
        app.add_tool(Kept)
    for taken, words in ((Kept.read, "wants self"), (Kept, "is a class")):  # a partial gives it no instance
        with pytest.raises(LocalError, match=words):
            app.add_tool(functools.partial(taken), name="read")
    app.add_tool(Kept().read)


async def test_an_iterator_is_the_list_that_is_declared() -> None:
    app = Server("lazy")

    def numbers() -> Iterable[int]:
        return iter([1, 2])

    app.add_tool(numbers)
    async with calling(app, r.NEWEST) as calls:
        assert (await calls.call("numbers"))["structuredContent"] == [1, 2]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
async def test_a_number_that_json_has_not_is_named_in_the_log(value: float, caplog: pytest.LogCaptureFixture) -> None:
    app = Server("odd")

    def measured() -> dict[str, float]:
        return {"fine": 1.0, "odd": value}

    app.add_tool(measured)
    async with calling(app, r.NEWEST) as calls:
        assert str(value) not in await calls.refusal("measured")
    assert f"JSON has no {value!r}, which is written as null" in caplog.text


def test_names_of_arguments_that_hosts_refuse_are_told(caplog: pytest.LogCaptureFixture) -> None:
    app = Server("named")
    names = ("fine", "also.fine-1", "größe", "with space", "x" * 65)
    schema = {"type": "object", "properties": {name: {} for name in names}}
    app.add_tool(lambda arguments: None, name="odd", input_schema=schema)
    (said,) = caplog.messages
    assert said.startswith("tool 'odd', arguments 'größe', 'with space', 'xxx")


@pytest.mark.parametrize("revision", [r.R2025_11, r.NEWEST])
@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_progress_begins_the_time_of_a_call_again(revision: r.Revision, kind: str) -> None:
    """Whether the caller asked for progress or not."""
    app = Server("long")

    def left(ctx: Context) -> float:
        return ctx.time_left or 0.0

    async def steps(ctx: Context) -> list[bool]:
        site: Any = ctx.rpc._site
        site.runner.clock.set(site, 5)
        await ctx.progress(1)
        renewed = left(ctx) > 200
        site.runner.clock.set(site, 5)
        await ctx.progress(1)  # it has not grown
        return [renewed, left(ctx) <= 5]

    def in_thread(ctx: Context) -> list[bool]:
        site: Any = ctx.rpc._site
        done = threading.Event()

        def begin() -> None:
            site.runner.clock.set(site, 5)
            done.set()

        site.loop.call_soon_threadsafe(begin)
        done.wait(20)
        done.clear()
        ctx.progress(1)
        site.loop.call_soon_threadsafe(done.set)
        done.wait(20)
        return [left(ctx) > 200, True]

    app.add_tool(steps if kind == "async" else in_thread, name="steps")
    async with calling(app, revision) as calls:
        found = await calls.call("steps")
        assert json.loads(found["content"][0]["text"]) == [True, True]


@pytest.mark.parametrize(
    ("options", "contextual", "declared"), [({}, False, False), ({}, True, True), ({"logging": True}, False, True)]
)
async def test_logging_is_declared_where_a_function_may_log(
    options: dict[str, Any], contextual: bool, declared: bool
) -> None:
    """Deprecated by SEP-2577: in the stateful era it is declared as before."""
    app = Server("quiet", **options)

    def quiet() -> None: ...
    def loud(ctx: Context) -> None: ...

    app.add_tool(loud if contextual else quiet)
    async with Client(app, revision=r.NEWEST) as client:
        assert (client.capabilities.logging == {}) is declared
    async with Client(app, revision=r.R2025_11) as client:
        assert client.capabilities.logging == {}


async def test_what_a_list_gives_can_be_registered_again() -> None:
    app, other = Server("one"), Server("other")
    app.add_tool(lambda a: a, name="echo", icons=None)
    (listed,) = await app.list_tools()
    other.add_tool(
        lambda a: a, name=listed.name, title=listed.title, description=listed.description, icons=listed.icons,
        annotations=listed.annotations, meta=listed.meta,
    )  # fmt: skip
    assert await other.list_tools() == [listed]
    with pytest.raises(LocalError, match=r"annotations is ToolAnnotations\(read_only_hint=True\)"):
        app.add_tool(lambda: 1, name="x", annotations={"readOnlyHint": True})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "here"),
    [
        ("mount", r"server\.include\(other"),
        ("add_middleware", r"server\.use\(middleware\)"),
        ("custom_route", r"server\.route\(path\)"),
        ("streamable_http_app", r"dragoman\.http_app\(server\)"),
        ("nothing_known", "no attribute 'nothing_known'$"),
    ],
)
def test_names_of_other_libraries_are_told(name: str, here: str) -> None:
    with pytest.raises(AttributeError, match=here):
        getattr(Server("s"), name)
    assert not hasattr(Server("s"), name)


@pytest.mark.parametrize(("name", "here"), [("report_progress", "progress(value, total)"), ("list_roots", "roots()")])
async def test_names_of_other_libraries_are_told_of_a_context(name: str, here: str) -> None:
    app, found = Server("s"), []

    @app.tool
    def look(ctx: Context) -> bool:
        try:
            getattr(ctx, name)
        except AttributeError as error:
            found.append(str(error))
        return hasattr(ctx, name)

    async with Client(app) as client:
        assert (await client.call_tool("look")).text == "false"
    assert here in found[0]
