"""Middleware that is ready to use: around methods, tools, and a peer's own calls."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import msgspec
import pytest

from dragoman import Broken, Caller, LocalError, RpcError, Service, connect, serve
from dragoman.channel import Identity
from dragoman.mcp import Client, Context, Server
from dragoman.mcp.protocol.revisions import R2026_07
from dragoman.mcp.server.calling import request
from dragoman.middleware import (
    AuditEntry,
    audit,
    map_errors,
    rate_limit,
    response_cache,
    retries,
    size_limit,
    timing,
)
from dragoman.store import StoreLost
from dragoman.store.memory import InMemoryStore
from tests.behind import behind

from .mcp.calling import calling

ADA, BOB = (Caller(scheme="tcp", identity=Identity(subject=name)) for name in ("ada", "bob"))


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def ask(api: Service, method: str, params: Any = (), caller: Caller | None = None, id: bool = True) -> Any:
    """The result of a call without a loop, or its error object."""
    request = {"jsonrpc": "2.0", "method": method, "params": params} | ({"id": 1} if id else {})
    answer = api.answer(msgspec.json.encode(request), **({} if caller is None else {"caller": caller}))
    if answer is None:
        return None
    decoded = msgspec.json.decode(answer)
    return decoded.get("result", decoded.get("error"))


def counting(*middleware: Any) -> tuple[Service, list[int]]:
    api, ran = Service("counts", middleware=middleware), []

    @api.method
    def twice(a: int = 1) -> int:
        ran.append(a)
        if a < 0:
            raise RpcError("negative", code=7)
        return 2 * a

    return api, ran


# -- rate limit ------------------------------------------------------------------------------------


def test_a_caller_has_so_many_calls_and_another_one_its_own() -> None:
    clock = Clock()
    api, ran = counting(rate_limit(2, burst=3, clock=clock))
    assert [ask(api, "twice", caller=ADA) for _ in range(3)] == [2, 2, 2]
    refused = ask(api, "twice", caller=ADA)
    data = {"limit": "rate", "allowed": 2, "retry_after": 0.5}
    assert refused == {"code": -32000, "message": "Busy: 2 calls a second are allowed", "data": data}
    assert ask(api, "twice", caller=BOB) == 2
    clock.now += 0.5
    assert ask(api, "twice", caller=ADA) == 2
    assert ask(api, "twice", caller=ADA)["code"] == -32000
    clock.now += 3600
    assert [ask(api, "twice", caller=ADA) == 2 for _ in range(4)] == [True, True, True, False], "no more than the burst"
    assert len(ran) == 8


@pytest.mark.parametrize("shared", [False, True])
def test_clients_of_one_user_share_its_rate(shared: bool) -> None:
    """Anyone may register clients."""
    api, _ = counting(rate_limit(1, clock=Clock(), shared=shared))
    ada, mine, other = (
        Caller(identity=Identity(subject="ada", issuer=issuer, client_id=client))
        for issuer, client in (("https://as.example", "x"), ("https://as.example", "y"), ("https://other.example", "x"))
    )
    assert ask(api, "twice", caller=ada) == 2
    assert ask(api, "twice", caller=mine)["code"] == -32000
    assert ask(api, "twice", caller=other) == 2


def test_the_number_of_buckets_is_bounded() -> None:
    api, ran = counting(rate_limit(1, callers=2, clock=Clock()))
    for name in ("a", "b", "c", "a"):
        assert ask(api, "twice", caller=Caller(identity=Identity(subject=name))) == 2, "that of a had to go"
    assert ask(api, "twice", caller=Caller(identity=Identity(subject="a")))["code"] == -32000
    assert len(ran) == 4


def test_callers_without_identity_are_their_hosts_and_a_function_may_tell_otherwise() -> None:
    api, _ = counting(rate_limit(1, clock=Clock()))
    assert ask(api, "twice", caller=Caller(remote="10.0.0.1:5000")) == 2
    assert ask(api, "twice", caller=Caller(remote="10.0.0.1:5001"))["code"] == -32000
    assert ask(api, "twice", caller=Caller(remote="10.0.0.2:5000")) == 2
    assert ask(api, "twice", caller=Caller(remote="[2001:db8::1]:5000")) == 2
    assert ask(api, "twice", caller=Caller(remote="[2001:db8::2]:5000"))["code"] == -32000, "a /64 is of one caller"
    assert ask(api, "twice", caller=Caller(remote="[2001:db8:0:1::1]:5000")) == 2
    assert [ask(api, "twice", caller=Caller(remote=f"reply.{name}")) for name in "ab"] == [2, 2]
    by_method, _ = counting(rate_limit(1, by=lambda call: call.method, clock=Clock()))
    assert ask(by_method, "twice", caller=ADA) == 2
    assert ask(by_method, "twice", caller=BOB)["code"] == -32000


class Counted(InMemoryStore):
    """Counts the changes, and may be away."""

    changes = 0
    away = False

    async def change(self, owner: str, edit: Any) -> Any:
        self.changes += 1
        if self.away:
            raise StoreLost("as if it were")
        return await super().change(owner, edit)


async def test_a_shared_rate_is_counted_where_the_store_is(caplog: pytest.LogCaptureFixture) -> None:
    clock, engine = Clock(), Counted(10, 100_000)
    apps = [counting(rate_limit(2, burst=3, shared=True, clock=clock)) for _ in range(2)]
    for api, _ in apps:
        behind(api)._kept_in = engine
    ends = [api for api, _ in apps]

    async def tried(api: Service, caller: Caller = ADA) -> Any:
        answer = await api.answer_async(b'{"jsonrpc":"2.0","method":"twice","id":1}', caller=caller)
        return msgspec.json.decode(answer or b"").get("result", "busy")

    assert [await tried(ends[n % 2]) for n in range(5)] == [2, 2, 2, "busy", "busy"]
    assert await tried(ends[0], BOB) == 2
    assert engine.changes == 6
    assert [await tried(ends[0]) for _ in range(5)] == ["busy"] * 5
    assert engine.changes == 6, "it is known that there is no token yet"
    clock.now += 0.5
    assert [await tried(ends[1]), await tried(ends[0])] == [2, "busy"]
    clock.now -= 50
    assert await tried(ends[1]) == "busy", "a clock that went back gives nothing"
    clock.now += 3650
    engine.away = True
    assert [await tried(ends[0]) for _ in range(4)] == [2, 2, 2, "busy"]
    assert caplog.text.count("rates are counted by each process alone: as if it were") == 1
    engine.away = False
    assert [await tried(ends[0]) for _ in range(4)] == [2, 2, 2, "busy"]
    assert sum(len(ran) for _, ran in apps) == 11


# -- cache -----------------------------------------------------------------------------------------


def test_an_equal_call_gets_what_is_kept_until_its_time_is_over() -> None:
    clock = Clock()
    api, ran = counting(response_cache(["twice"], ttl=5, clock=clock))
    assert [ask(api, "twice", [3], ADA), ask(api, "twice", [3], ADA)] == [6, 6]
    assert ran == [3]
    assert ask(api, "twice", [3], BOB) == 6
    assert ran == [3, 3], "another caller has its own"
    clock.now += 5
    assert ask(api, "twice", [3], ADA) == 6
    assert ran == [3, 3, 3]
    assert [ask(api, "twice", {"a": -1}, ADA)["code"] for _ in range(2)] == [7, 7]
    assert ran[-2:] == [-1, -1], "an error is not kept"
    assert ask(api, "twice", [3], ADA, id=False) is None
    assert ran[-1] == 3, "a notification runs"


def test_the_cache_is_bounded_and_may_be_shared() -> None:
    api, ran = counting(response_cache(["twice"], ttl=5, entries=2, shared=True, clock=Clock()))
    for a in (1, 2, 1, 3, 1, 2):
        ask(api, "twice", [a], BOB if a == 1 else ADA)
    assert ran == [1, 2, 3, 2], "2 was used least recently when 3 came"
    other, ran = counting(response_cache(["else"], ttl=5))
    assert [ask(other, "twice", caller=ADA), ask(other, "twice", caller=ADA)] == [2, 2]
    assert ran == [1, 1]


def test_callers_without_an_identity_share_nothing_by_their_address() -> None:
    api, ran = counting(response_cache(["twice"], ttl=5, clock=Clock()))
    behind = Caller(scheme="http", remote="10.0.0.1:5000")  # a proxy, or a house full of people
    assert [ask(api, "twice", [3], behind), ask(api, "twice", [3], behind)] == [6, 6]
    assert ran == [3, 3]


async def test_what_an_mcp_server_refuses_has_the_codes_of_mcp() -> None:
    limits = [size_limit(200, names=["look"]), rate_limit(1, clock=Clock())]
    server = Server("tools", middleware=limits)

    @server.tool
    async def look(text: str) -> str:
        return text

    with pytest.raises(RpcError, match="params allows 200 bytes") as large:
        await server.call_tool("look", {"text": "x" * 200})
    assert large.value.code == -32600
    for _ in range(2):
        with pytest.raises(RpcError, match="params allows 200 bytes"):
            await server.call_tool("look", {"text": "x" * 300})
    await server.list_tools()
    with pytest.raises(RpcError, match="1 calls a second are allowed") as busy:
        await server.list_tools()
    assert (busy.value.code, busy.value.data["retry_after"]) == (-32603, 1.0)


async def test_a_tool_is_kept_by_its_name_and_a_question_or_a_failure_is_not() -> None:
    server, ran = Server("tools", middleware=[response_cache(["look", "ask", "fails"], ttl=5, shared=True)]), []

    @server.tool
    async def look(a: int) -> int:
        ran.append("look")
        return a

    @server.tool
    async def other(a: int) -> int:
        ran.append("other")
        return a

    @server.tool
    async def ask(ctx: Context) -> str:
        ran.append("ask")
        answer = await ctx.elicit("Which?", str)
        return str(answer)

    @server.tool
    async def fails() -> int:
        ran.append("fails")
        raise ValueError("no")

    async with Client(server) as client:
        for _ in range(2):
            assert await client.call_tool("look", {"a": 1}, result=int) == 1
            assert await client.call_tool("look", {"a": 2}, result=int) == 2
            assert await client.call_tool("other", {"a": 1}, result=int) == 1
            with pytest.raises(Exception, match="fails"):
                await client.call_tool("fails", result=int)
    assert sorted(ran) == ["fails", "fails", "look", "look", "other", "other"]
    async with calling(server, R2026_07, elicitation={}) as calls:
        for _ in range(2):
            assert (await calls.call("ask"))["resultType"] == "input_required"
    assert ran.count("ask") == 2


class Versioned:
    """Versions of a tool, a resource and a prompt behind a cache that all callers share."""

    def __init__(self, *, shared: bool) -> None:
        self.ran: list[str] = []
        names = ["rate", "rate://now", "ask", "tenant"]
        self.server = Server("bank", middleware=[response_cache(names, ttl=60, shared=shared)])
        for version in ("1", "2"):
            options: Any = {"version": version, "visible": ADA.__eq__ if version == "2" else None}
            self.server.add_tool(self.says(version), name="rate", **options)
            self.server.add_resource(self.says(version), "Rate://Now", name="rate", **options)
            self.server.add_prompt(self.says(version), name="ask", **options)

        @self.server.tool
        def tenant(ctx: Context) -> str:
            self.ran.append("tenant")
            return str(ctx.meta.get("com.example/tenant"))

    def says(self, version: str) -> Any:
        def say() -> str:
            self.ran.append(version)
            return version

        return say


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("tools/call", {"name": "rate"}),
        ("resources/read", {"uri": "rate://now"}),
        ("resources/read", {"uri": "RATE://n%6fw"}),
        ("prompts/get", {"name": "ask"}),
    ],
)
async def test_each_version_has_results_of_its_own(method: str, params: dict[str, Any]) -> None:
    bank = Versioned(shared=True)
    core = behind(bank.server)
    # the caller, the version that is asked for, the one that answers, whether it ran
    for caller, wanted, answers, ran in (
        (ADA, None, "2", True),
        (BOB, None, "1", True),
        (ADA, "1", "1", False),
        (ADA, "2", "2", False),
        (BOB, "1", "1", False),
    ):
        bank.ran.clear()
        found = await request(core, method, params, caller, dict[str, Any], wanted)
        assert f'"text":"{answers}"' in msgspec.json.encode(found).decode()
        assert bank.ran == [answers] * ran


async def test_what_a_request_says_of_itself_makes_no_other_result() -> None:
    """Progress tokens, the client's name and trace context are of the call; other members of `_meta` are told to the
    function."""
    bank = Versioned(shared=True)
    for name in ("one", "another"):
        async with Client(bank.server, name=name) as client:
            for told in (None, lambda progress: None):
                assert (await client.call_tool("rate", on_progress=told)).text == "1"
            await client.call_tool("rate", meta={"traceparent": f"00-{'1' * 32}-{'2' * 16}-01"})
    assert bank.ran == ["1"]
    async with Client(bank.server) as client:
        for tenant in ("a", "b", "a"):
            assert (await client.call_tool("tenant", meta={"com.example/tenant": tenant})).text == tenant
    assert bank.ran == ["1", "tenant", "tenant"]


# -- errors, sizes, time and audit -----------------------------------------------------------------


class NotFound(RpcError):
    code, message = 404, "Not found"


def test_errors_are_mapped_by_the_nearest_class() -> None:
    api = Service(
        "maps", middleware=[map_errors({LookupError: NotFound, KeyError: lambda error: RpcError(str(error), code=5)})]
    )

    @api.method
    def fails(kind: str) -> None:
        raise {"key": KeyError("k"), "index": IndexError(), "value": ValueError(), "own": RpcError("own", code=9)}[kind]

    assert [ask(api, "fails", [kind])["code"] for kind in ("key", "index", "value", "own")] == [5, 404, -32603, 9]


def test_params_above_a_size_are_refused_for_the_named() -> None:
    api, ran = counting(size_limit(20, names=["twice"]))
    assert ask(api, "twice", {"a": 1}) == 2
    refused = ask(api, "twice", {"a": 1, "b": "x" * 20})
    assert (refused["code"], refused["data"]) == (-32003, {"limit": "params", "allowed": 20, "received": 34})
    assert ran == [1]


def test_time_and_audit_tell_of_every_end(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "dragoman.calls")
    entries: list[AuditEntry] = []
    times: list[str] = []
    clock = Clock()
    api, _ = counting(audit(entries.append, clock=clock), timing(lambda name, took: times.append(name)), timing())
    ask(api, "twice", [1], ADA)
    ask(api, "twice", [-1], Caller(remote="10.0.0.1:5000"))
    ask(api, "twice", ["x"])
    assert [(one.name, one.caller, one.outcome, one.at) for one in entries] == [
        ("twice", ADA.identity.principal if ADA.identity else "", "ok", 100.0),
        ("twice", "10.0.0.1", "7", 100.0),
        ("twice", "", "-32602", 100.0),
    ]
    assert times == ["twice"] * 3
    assert len([record for record in caplog.records if record.message.startswith("twice took ")]) == 3


async def test_an_audit_names_the_tool_and_what_was_cancelled() -> None:
    entries: list[AuditEntry] = []
    server = Server("tools", middleware=[audit(entries.append)])
    began = asyncio.Event()

    @server.tool
    async def waits() -> None:
        began.set()
        await asyncio.Event().wait()

    async with Client(server) as client:
        entries.clear()
        calling = asyncio.ensure_future(client.call_tool("waits"))
        await began.wait()
        calling.cancel()
        await asyncio.wait([calling])
        async with asyncio.timeout(30):
            while not [one for one in entries if one.name == "waits"]:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    assert [(one.method, one.outcome) for one in entries if one.name == "waits"] == [("tools/call", "cancelled")]


# -- retries ---------------------------------------------------------------------------------------

CODES = {"busy": -32000, "draining": -32001, "passing": -32603, "internal": -32603, "other": 8}


@pytest.mark.parametrize(
    ("ends", "named", "outcome"),
    [
        ([], True, "done"),
        (["busy", "busy"], True, "done"),
        (["broken", "busy"], True, "done"),
        (["draining"], True, "done"),
        (["passing"], True, "done"),
        (["internal"], True, "internal"),
        (["busy"] * 4, True, "busy"),
        (["busy"], False, "busy"),
        (["broken"], False, "broken"),
        (["other"], True, "other"),
    ],
)
async def test_what_may_be_repeated_is(ends: list[str], named: bool, outcome: str) -> None:
    left = list(ends)

    async def breaks(call: Any, next: Any) -> Any:
        result = await next(call)
        if left and left[0] == "broken":
            left.pop(0)
            raise Broken("as if it had")
        return result

    api = Service("flaky")

    @api.method
    async def work() -> str:
        if left and left[0] != "broken":
            kind = left.pop(0)
            data = {} if kind == "internal" else {"retry_after": 0.001}
            raise RpcError("Busy", data, code=CODES[kind])
        return "done"

    again = retries(["work" if named else "else"], times=3, pause=0.001)
    async with serve(api, urls="memory:retries"), connect("memory:retries", middleware=[again, breaks]) as peer:
        try:
            found = await peer.call("work")
        except Broken:
            found = "broken"
        except RpcError as error:
            found = {code: kind for kind, code in CODES.items()}[error.code]
    assert found == outcome


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: rate_limit(0), "rate"),
        (lambda: rate_limit(1, burst=0), "burst"),
        (lambda: response_cache("look", ttl=1), r"names are those of the calls to keep, as in \['lookup'\]"),
        (lambda: response_cache(["look"], ttl=0), "ttl"),
        (lambda: retries([], times=1), "names are those of the calls that may be repeated"),
        (lambda: retries(["a"], times=0), "times"),
        (lambda: size_limit(0), "params"),
        (lambda: size_limit(9, names="look"), "size_limit: names are those of the calls to look at"),
        (lambda: map_errors({5: NotFound}), "5 is not a class of exceptions"),  # type: ignore[dict-item]
        (lambda: audit(5), "write"),  # type: ignore[arg-type]
        (lambda: timing(5), "took"),  # type: ignore[arg-type]
    ],
)
def test_options_that_cannot_be_are_refused(make: Any, words: str) -> None:
    with pytest.raises(LocalError, match=words):
        make()
