"""`ctx.store`: in memory, in a file, and on the bus, for services and MCP servers."""

from __future__ import annotations

import asyncio
import itertools
import os
import sqlite3
import stat
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import msgspec
import pytest

from dragoman import Caller, Context, Limits, LocalError, RpcError, Service, connect, http_app, serve
from dragoman.bus.memory import MemoryBus
from dragoman.channel import Admitted, Handshake, Identity
from dragoman.mcp import Client, Server
from dragoman.mcp import Context as McpContext
from dragoman.mcp.protocol.revisions import R2025_11, R2026_07
from dragoman.store import CallStore, Engine, StoreFull, StoreLost, open_store
from dragoman.store import shared as shared_module
from dragoman.store.calls import owner_of
from dragoman.store.memory import InMemoryStore
from dragoman.store.shared import SharedStore
from dragoman.store.sqlite import SqliteStore
from dragoman.system.files import is_private
from tests.behind import behind

ENGINES = ["memory", "sqlite", "bus"]
FORBIDDEN = "Forbidden: this call is for callers that say who they are"
_names = itertools.count()


@asynccontextmanager
async def opened(
    kind: str, folder: Path, owners: int = 100, total: int = 1 << 20
) -> AsyncIterator[tuple[Engine, Callable[[], Engine]]]:
    """An engine, and what opens it once more, as another process would."""
    bus = MemoryBus(f"store-{next(_names)}")
    limits = Limits(store_owners=owners, store_total=total)
    urls = {"memory": "memory:", "sqlite": f"sqlite:{folder}/state.db", "bus": "bus"}
    async with AsyncExitStack() as stack:

        def again() -> Engine:
            engine = open_store(urls[kind], limits, bus)
            stack.push_async_callback(engine.close)
            return engine

        yield again(), again
    await bus.close()


def of(engine: Engine, owner: str = "a", longest: float | None = None, **limits: Any) -> CallStore:
    return CallStore(
        engine, owner, Limits(**limits), encode=msgspec.json.encode, done=lambda work: work, longest=longest
    )


EACH = pytest.mark.parametrize("kind", ENGINES)


@EACH
async def test_what_is_set_is_got_until_it_is_deleted_or_expires(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1_000_000.0]
    monkeypatch.setattr("dragoman.store.calls.time.time", lambda: now[0])
    async with opened(kind, tmp_path) as (engine, _):
        ada, bob = of(engine, "a"), of(engine, "b")
        assert await ada.get("k") is None
        assert await ada.get("k", 5) == 5
        for value in (None, True, 1, 1.5, "ä\u0000", [1, {"a": []}], {"b": 2**63}):
            await ada.set("k", value)
            assert await ada.get("k", "none") == value
        await ada.set("k:2", 2, ttl=10)
        await ada.set("j", 3, ttl=0.5)
        await bob.set("k", "b's")
        assert await ada.keys() == ["j", "k", "k:2"]
        assert await ada.keys("k") == ["k", "k:2"]
        assert await bob.keys() == ["k"]
        now[0] += 0.5
        assert await ada.get("j") is None
        assert await ada.keys() == ["k", "k:2"]
        await ada.set("k:2", 22, ttl=10)
        now[0] += 9.9
        assert await ada.get("k:2") == 22, "the time starts again"
        await ada.set("k:2", 23)
        now[0] += 1e9
        assert await ada.keys() == ["k", "k:2"], "no ttl: for ever"
        assert await ada.delete("k")
        assert not await ada.delete("k")
        assert await ada.keys() == ["k:2"]
        assert await ada.delete("k:2")
        assert await engine.read("a") is None, "nothing is left of an empty document"
        assert await bob.get("k") == "b's"


@EACH
async def test_changes_at_once_lose_nothing(kind: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path) as (engine, again):
        ends = [of(engine), of(engine if kind == "memory" else again())]
        await asyncio.gather(*(one.set(f"{n}-{end}", n) for n in range(20) for end, one in enumerate(ends)))
        assert len(await ends[0].keys()) == 40
        gone = await asyncio.gather(*(one.delete("3-0") for one in ends))
        assert sorted(gone) == [False, True]


async def test_a_limit_may_be_reached() -> None:
    store = of(InMemoryStore(1, 1_000), store_keys=2, store_value_size=10, store_size=100, store_key_length=5)
    await store.set("aaaaa", "x" * 8)
    await store.set("b", "x" * 8)
    assert [await store.get("aaaaa"), await store.get("b")] == ["x" * 8] * 2
    for key, value, words in (("aaaaaa", 1, "store_key_length"), ("b", "x" * 9, "store_value_size")):
        with pytest.raises(StoreFull, match=words):
            await store.set(key, value)
    document = b'{"a":["12",null]}'
    exact = of(InMemoryStore(1, 1_000), store_size=len(document))
    await exact.set("a", "12")
    with pytest.raises(StoreFull, match="limit store_size allows 17"):
        await exact.set("a", "123")


async def test_what_expires_first_takes_nothing_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A document lives as long as its last entry, and an entry no longer than the store allows."""
    now = [1_000_000.0]
    monkeypatch.setattr("dragoman.store.calls.time.time", lambda: now[0])
    engine = InMemoryStore(1, 1_000, lambda: now[0])
    store = of(engine, longest=10)
    await store.set("long", 1, ttl=20)
    await store.set("short", 1, ttl=5)
    await store.set("ever", 1)
    now[0] += 6
    with pytest.raises(StoreFull):
        await of(engine, "b").set("a", 1)  # nothing of the only caller there may be has ended, but one key
    assert await store.keys() == ["ever", "long"]
    now[0] += 4
    assert await store.keys() == []
    await of(engine, "b").set("a", 1)
    assert await engine.read("a") is None


async def test_taking_away_what_is_not_there_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1_000_000.0]
    monkeypatch.setattr("dragoman.store.calls.time.time", lambda: now[0])
    engine = InMemoryStore(1, 1_000)
    store = of(engine)
    await store.set("a", 1, ttl=5)
    before = await engine.read("a")
    now[0] += 6
    assert await store.delete("a") is False, "it has expired"
    assert await store.delete("b") is False
    assert await engine.read("a") is before


@EACH
async def test_sizes_and_numbers_are_bounded(kind: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path, owners=2) as (engine, _):
        store = of(engine, store_keys=2, store_value_size=100, store_size=150, store_key_length=5)
        await store.set("a", 1)
        await store.set("b", "x" * 60)
        cases: list[tuple[str, Any, str]] = [
            ("c", 1, "limit store_keys allows no more"),
            ("a", "x" * 99, "has 101 bytes; limit store_value_size allows 100"),
            ("a", "x" * 80, "limit store_size allows 150"),
            ("aaaaaa", 1, "limit store_key_length allows 5"),
        ]
        for key, value, words in cases:
            with pytest.raises(StoreFull, match=words):
                await store.set(key, value)
        assert [await store.get("a"), await store.keys()] == [1, ["a", "b"]], "nothing was changed"
        await store.set("b", 2)
        if kind != "bus":
            await of(engine, "b").set("a", 1, ttl=0.001)
            await asyncio.sleep(0.002)
            await of(engine, "c").set("a", 1)  # that of b has expired
            with pytest.raises(StoreFull, match="2 callers have something stored; limit store_owners allows no more"):
                await of(engine, "d").set("a", 1)
            assert await of(engine, "b").get("a") is None


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_all_callers_together_are_bounded(kind: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path, total=100_000) as (engine, _):
        stored = 0
        with suppress(StoreFull):
            for number in range(20):
                await of(engine, f"{number}").set("a", "x" * 10_000)
                stored += 1
        with pytest.raises(StoreFull, match="all callers together may store 100000 bytes; limit store_total"):
            await of(engine, "another").set("a", "x" * 10_000)
        assert 2 < stored < 10
        assert await of(engine, "0").get("a") == "x" * 10_000
        for number in range(stored):
            await of(engine, f"{number}").delete("a")
        for number in range(stored):
            await of(engine, f"{number}").set("a", "x" * 9_000, ttl=0.001)
        await asyncio.sleep(0.002)
        for number in range(20, 20 + stored):  # what has expired makes room
            await of(engine, f"{number}").set("a", "x" * 9_000)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda store: store.get(""), "text that is not empty"),
        (lambda store: store.get(5), "not 5"),
        (lambda store: store.get("\ud800"), "text that UTF-8 has"),
        (lambda store: store.set("a", 1, ttl=0), "above 0"),
        (lambda store: store.set("a", 1, ttl=True), "above 0"),
        (lambda store: store.set("a", 1, ttl=float("nan")), "above 0"),
        (lambda store: store.set("a", 1, ttl="1"), "above 0"),
    ],
    ids=[str(n) for n in range(7)],
)
def test_wrong_arguments_are_refused(call: Any, words: str) -> None:
    with pytest.raises(LocalError, match=words):
        call(of(InMemoryStore(1, 1_000)))


async def test_a_file_survives_its_process_and_is_its_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    one = SqliteStore(str(path), 10, 1 << 20)
    await of(one).set("a", [1])
    await one.close()
    with pytest.raises(StoreLost, match="is closed"):
        await one.read("a")
    assert is_private(os.stat(path))
    if sys.platform != "win32":
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    two = SqliteStore(str(path), 10, 1 << 20)
    assert await of(two).get("a") == [1]
    await two.close()


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("sqlite:/nowhere/at/all.db", "cannot be opened: no such file or directory$"),
        ("sqlite:{folder}", "cannot be opened"),
        ("sqlite:{folder}/text", "cannot be opened: file is not a database"),
        ("sqlite:{folder}/other", "cannot be opened: no such column"),
        ("sqlite:", "one of memory:"),
        ("redis://host", "there is no store 'redis://host': one of memory:"),
        ("bus", "there is no bus: give bus="),
    ],
)
async def test_a_store_that_cannot_be_opened_is_told_when_serving_begins(url: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no database at all, and longer than its header\n" * 100)
    with sqlite3.connect(tmp_path / "other") as other:
        other.execute("CREATE TABLE documents (a, b)")
    other.close()
    with pytest.raises(LocalError, match=words):
        async with serve(Service("s"), urls="memory:never", store=url.format(folder=tmp_path)):
            pass


async def test_a_bus_that_stores_nothing_is_told() -> None:
    bus = MemoryBus("nothing")
    bus.store = None
    with pytest.raises(LocalError, match="memory:nothing stores nothing"):
        open_store("bus", Limits(), bus)
    await bus.close()


async def test_a_bus_that_is_away_is_told_and_a_lock_that_stays_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    bus = MemoryBus("away")
    assert bus.store is not None
    store = of(SharedStore(bus.store))
    bus.disconnect()
    for call in (store.get("a"), store.set("a", 1), store.delete("a"), store.keys()):
        with pytest.raises(StoreLost, match="disconnected"):
            await call
    bus.connect_again()
    await bus.store.put_new("dragoman.state.a.lock", b"another", ttl=60)
    monkeypatch.setattr(shared_module, "PATIENCE", 0.01)
    with pytest.raises(StoreLost, match="does not end"):
        await store.set("a", 1)
    assert await bus.store.get("dragoman.state.a.lock") == b"another", "it is another's"
    await bus.store.delete("dragoman.state.a.lock")
    await store.set("a", 1)
    assert await bus.store.get("dragoman.state.a.lock") is None
    await bus.close()


def test_no_two_callers_have_one_name() -> None:
    identities = [
        Identity(subject="a"),
        Identity(subject="a", issuer=""),
        Identity(subject="a", issuer="i"),
        Identity(subject="", issuer="ia"),
        Identity(subject='a","i', issuer=None),
        Identity(subject="a\ud800", issuer="i"),
    ]
    names = [owner_of(app, one, "") for app in ("x", "y") for one in identities]
    names += [owner_of("x", None, session) for session in ("a", "i", '["a"]')]
    assert len(set(names)) == len(names)
    same = [owner_of("x", Identity(subject="a", client_id=id, scopes=frozenset(id or "")), "s") for id in (None, "c")]
    assert len(set(same)) == 1, "the client is not of it"
    assert all(len(name) == 64 and name.isalnum() for name in names)


# -- in functions ------------------------------------------------------------------------------------


def counting(given: Any, context: Any = Context, **decorated: Any) -> Any:
    """An app with a counter for each caller, as an `async def` and as a plain function."""
    register = given.tool if isinstance(given, Server) else given.method

    async def count(ctx: context) -> int:
        found: int = await ctx.store.get("n", 0) + 1
        await ctx.store.set("n", found)
        return found

    def plainly(ctx: context) -> int:
        found: int = ctx.store.get("n", 0) + 1
        ctx.store.set("n", found)
        assert ctx.store.keys("n") == ["n"]
        return found

    def inline(ctx: context) -> None:
        ctx.store.get("n")

    for function in (count, plainly):
        register(function)
    register(inline=True)(inline)
    return given


async def named(handshake: Handshake) -> Admitted:
    """A guard that takes the identity from a header, if there is one."""
    who = dict(handshake.headers).get(b"x-who")
    return Admitted(identity=None if who is None else Identity(subject=who.decode(), issuer="here"))


@EACH
async def test_methods_have_the_store_of_their_caller(kind: str, tmp_path: Path) -> None:
    store = {"memory": "memory:", "sqlite": f"sqlite:{tmp_path}/state.db", "bus": "bus"}[kind]
    app = counting(Service("app"))
    app.route("/n")(lambda request, ctx: ctx.store.get("n"))
    urls = ["http://127.0.0.1:0"]
    async with serve(app, urls=urls, store=store, bus=f"memory:methods-{kind}", guard=named) as serving:
        [url] = serving.urls
        async with connect(url, headers={"X-Who": "ada"}) as ada, connect(url, headers={"X-Who": "bob"}) as bob:
            assert [await ada.call("count"), await ada.call("plainly"), await ada.call("count")] == [1, 2, 3]
            assert await bob.call("plainly") == 1
        async with connect(url) as anonymous:
            for method in ("count", "plainly"):
                with pytest.raises(RpcError) as told:
                    await anonymous.call(method)
                assert (told.value.code, told.value.message, told.value.data) == (-32004, FORBIDDEN, None)
            with pytest.raises(RpcError, match="Internal error"):
                await anonymous.call("inline")
        with pytest.raises(HTTPError, match="403") as denied:
            await asyncio.to_thread(urlopen, url + "/n")
        denied.value.close()


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
async def test_each_client_in_this_process_has_a_store_of_its_own(revision: str) -> None:
    app = Server("app")

    @app.tool
    async def count(ctx: McpContext) -> int:
        await ctx.store.set("n", await ctx.store.get("n", 0) + 1)
        return int(await ctx.store.get("n"))

    async with Client(app, revision=revision) as ada, Client(app, revision=revision) as bob:
        found = [await client.call_tool("count", result=int) for client in (ada, ada, bob, ada)]
    async with Client(app, revision=revision) as later:
        assert [*found, await later.call_tool("count", result=int)] == [1, 2, 1, 3, 1]


async def test_the_errors_say_what_would_be_right(caplog: pytest.LogCaptureFixture) -> None:
    app = counting(Service("app"))
    async with serve(app, urls="http://127.0.0.1:0") as serving, connect(serving.urls[0]) as peer:
        with pytest.raises(RpcError):
            await peer.call("count")
        assert (
            "count: ctx.store belongs to a caller, and this one is anonymous and has no session: this server lets"
            in (caplog.text)
        )
        assert "callers in over http. Give it auth= or a guard" in caplog.text
        assert "test_store.py" in caplog.text  # where it was
        with pytest.raises(RpcError):
            await peer.call("inline")
        assert "an inline function must not wait" in caplog.text


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
async def test_a_caller_without_a_store_is_told_so_in_plain_words(
    revision: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A session has a store, and a call that belongs to none and to nobody has not: no fault of the server's."""
    app = Server("app")

    @app.tool
    async def grouped(ctx: McpContext) -> int:
        async with asyncio.TaskGroup() as group:
            setting: Any = ctx.store.set("n", 1)  # the store itself is asked for in the group
            group.create_task(setting)
        return 1

    @app.tool
    def plainly(ctx: McpContext) -> int:
        return int(ctx.store.get("n", 1))

    @app.resource("x://n")
    async def resource(ctx: McpContext) -> str:
        return str(await ctx.store.get("n", 1))

    @app.prompt
    async def prompted(ctx: McpContext) -> str:
        return str(await ctx.store.get("n", 1))

    async with (
        serve(app, urls="http://127.0.0.1:0/mcp") as serving,
        Client(serving.urls[0], revision=revision) as client,
    ):
        if revision == "2025-11-25":
            assert [await client.call_tool(tool, result=int) for tool in ("grouped", "plainly")] == [1, 1]
            return
        for tool in ("grouped", "plainly"):
            result = await client.call_tool(tool)
            assert result.is_error
            assert result.text == FORBIDDEN
        assert "tool 'grouped' failed: tools/call: ctx.store belongs to a caller" in caplog.text
        for ask in (lambda: client.read_resource("x://n"), lambda: client.get_prompt("prompted")):
            with pytest.raises(RpcError) as told:
                await ask()
            assert (told.value.code, told.value.message, told.value.data) == (-32600, FORBIDDEN, None)


async def test_a_tool_that_calls_back_where_it_cannot_says_so() -> None:
    """The JSON-RPC side of an MCP call over HTTP carries no calls back."""
    app = Server("app")

    @app.tool
    async def asks(ctx: McpContext) -> None:
        await ctx.rpc.call("ping")

    async with serve(app, urls="http://127.0.0.1:0/mcp") as serving, Client(serving.urls[0]) as client:
        result = await client.call_tool("asks")
        assert result.is_error
        assert result.text == "Invalid Request: this call calls its caller back, and http has no way for it"


async def test_without_a_guard_a_connection_is_a_session() -> None:
    app = counting(Service("app"))
    async with serve(app, urls="tcp://127.0.0.1:0") as serving:
        async with connect(serving.urls[0]) as one, connect(serving.urls[0]) as two:
            assert [await one.call("count"), await one.call("plainly"), await two.call("count")] == [1, 2, 1]
        async with connect(serving.urls[0]) as three:
            assert await three.call("count") == 1
    assert behind(app)._kept_in is not None
    limited = Limits(store_session_life=0.001)
    async with serve(app, urls="tcp://127.0.0.1:0", limits=limited) as serving, connect(serving.urls[0]) as one:
        assert await one.call("count") == 1
        await asyncio.sleep(0.01)
        assert await one.call("count") == 1


async def test_connections_of_one_caller_shut_no_other_out_and_what_is_full_is_told() -> None:
    """Each connection without an identity is a session of its own; their documents give way."""
    app = counting(Service("app"))
    limits = Limits(store_owners=3, store_value_size=4)

    async def keeps(value: str, ctx: Context) -> None:
        await ctx.store.set("kept", value)

    app.method(keeps)
    async with serve(app, urls="tcp://127.0.0.1:0", limits=limits) as serving:
        for _ in range(6):
            async with connect(serving.urls[0]) as one:
                assert await one.call("count") == 1
        async with connect(serving.urls[0]) as one:
            with pytest.raises(RpcError, match="limit store_value_size allows 4") as told:
                await one.call("keeps", ["too long"])
            assert told.value.code == -32003
    who = Identity(subject="ada")

    async def guard(handshake: Handshake) -> Admitted:
        return Admitted(identity=msgspec.structs.replace(who, subject=dict(handshake.headers)[b"x-name"].decode()))

    async with serve(app, urls="http://127.0.0.1:0", limits=limits, guard=guard) as serving:
        for name in ("ada", "bob", "cyd", "dan"):
            async with connect(serving.urls[0], headers={"x-name": name}) as one:
                if name != "dan":
                    assert await one.call("count") == 1
                    continue
                with pytest.raises(RpcError, match="3 callers have something stored; limit store_owners") as told:
                    await one.call("count")
                assert told.value.code == -32000


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
async def test_a_tool_that_is_over_a_limit_of_the_store_tells_it(revision: Any) -> None:
    app = Server("app", limits=Limits(store_value_size=4))

    @app.tool
    async def keeps(value: str, ctx: McpContext) -> str:
        await ctx.store.set("kept", value)
        return "kept"

    async with Client(app, revision=revision) as client:
        with pytest.raises(RpcError, match="limit store_value_size allows 4"):
            await client.call_tool("keeps", {"value": "too long"})


def test_without_a_wire_it_is_in_memory() -> None:
    app = counting(Service("app"))
    call = b'{"jsonrpc":"2.0","method":"plainly","id":1}'
    answers = [app.answer(call, caller=Caller(identity=Identity(subject=who))) for who in ("ada", "ada", "bob")]
    assert [msgspec.json.decode(one)["result"] for one in answers] == [1, 2, 1]
    assert msgspec.json.decode(app.answer(call))["error"] == {"code": -32004, "message": FORBIDDEN}


@pytest.mark.parametrize("revision", [R2025_11, R2026_07], ids=["2025", "2026"])
@pytest.mark.parametrize("face", ["native", "asgi"])
async def test_tools_have_the_store_of_their_caller_or_its_session(face: str, revision: Any) -> None:
    from tests.transports.http.ends import asgi

    server = counting(Server("app"), McpContext)

    async def value(client: Client, tool: str = "count") -> str:
        result = await client.call_tool(tool)
        [block] = result.content
        return f"{'error: ' * bool(result.is_error)}{block.text}"  # type: ignore[union-attr]

    async def tried(url: str) -> None:
        async with Client(url, revision=revision, headers={"X-Who": "ada"}) as ada:
            assert [await value(ada), await value(ada, "plainly")] == ["1", "2"]
        async with Client(url, revision=revision, headers={"X-Who": "ada"}) as again:
            assert await value(again) == "3"
        async with Client(url, revision=revision) as one, Client(url, revision=revision) as two:
            if revision is R2025_11:
                assert [await value(one), await value(one, "plainly"), await value(two)] == ["1", "2", "1"]
            else:
                assert (await value(one)).startswith("error: ")
                async with Client(url, revision=revision, headers={"Mcp-Session-Id": "x"}) as forged:
                    assert (await value(forged)).startswith("error: "), "such a name is not believed"

    if face == "native":
        async with serve(server, urls="http://127.0.0.1:0/mcp", guard=named) as serving:
            await tried(serving.urls[0])
    else:
        async with asgi(http_app({"/mcp": server}, guard=named, store="memory:")) as port:
            await tried(f"http://127.0.0.1:{port}/mcp")


async def test_an_app_keeps_its_own(tmp_path: Path) -> None:
    one, two = counting(Service("one")), counting(Service("two"))
    engine = InMemoryStore(10, 100_000)
    for _ in range(2):
        async with serve({"/1": one, "/2": two}, urls="http://127.0.0.1:0", store=engine, guard=named) as serving:
            for path in ("/1", "/2"):
                async with connect(serving.urls[0] + path, headers={"X-Who": "ada"}) as peer:
                    await peer.call("count")
    assert len(engine) == 2
    assert [behind(app)._kept_in for app in (one, two)] == [None, None]
