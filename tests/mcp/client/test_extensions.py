"""The client's side of extensions: what it declares, answers, hears, adds to calls and settles (2026-07-28's
basic/versioning, "Extension Negotiation"), and questions that are answered by a call's own functions, in every
revision."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Raw, Struct

from dragoman.channel import ChannelError
from dragoman.jsonrpc.errors import BadAnswer, CallTimeout, LocalError, RpcError
from dragoman.mcp import CallToolResult, Client, Context, Elicit, Extension, Row, Server, TextContent
from dragoman.mcp.client import notifications as client_notifications
from dragoman.mcp.client.blocking import connect
from dragoman.mcp.client.extending import ClientExtension, OutgoingCall, PendingResult
from dragoman.mcp.client.extension_client import ExtensionClient
from dragoman.mcp.protocol.extension import ResultType, StatefulForm, Topic
from dragoman.mcp.protocol.params import EmptyResult, ProgressNotificationParams
from dragoman.mcp.protocol.revisions import R2025_03, R2025_06, R2025_11, R2026_07, REVISIONS, Revision

from ..calling import client_of
from ..scripted import META, Message, Result, Scripted, discovered, legacy, modern, notification, said
from ..scripted_http import Seen, Talk, answer, scripted

NAME = "com.example/jobs"
STATEFUL = [one for one in REVISIONS.values() if one.stateful]
every = pytest.mark.parametrize("revision", REVISIONS.values(), ids=lambda one: one.date)
stateful = pytest.mark.parametrize("revision", STATEFUL, ids=lambda one: one.date)
eras = pytest.mark.parametrize("revision", [R2025_11, R2026_07], ids=lambda one: one.date)
WIRES = ["memory", "tcp://127.0.0.1:0", "http://127.0.0.1:0/mcp"]
FORM = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
QUESTION: Message = {"method": "elicitation/create", "params": {"message": "who?", "requestedSchema": FORM}}


class Job(Struct):
    id: str


class Measure(Struct):
    depth: int


class Started(Struct, rename="camel"):
    """A result that comes later, as stateless revisions write it."""

    job_id: str


class StartedJob(Struct):
    """The same in stateful revisions."""

    job: Job


JOBS = Extension(
    name=NAME,
    settings={"loud": True},
    methods=(
        Row("com.example/measure", Job, Measure, direction="server"),
        Row("com.example/both", Job, Measure, direction="both"),
        Row("com.example/stop", Job, EmptyResult, direction="server", until=R2025_06),
        Row("com.example/unanswered", Job, Measure, direction="server"),
        Row("com.example/fetch", Job, Measure, named="id"),
        Row("com.example/cancel", Job, EmptyResult),
        Row("notifications/com.example/status", Job, direction="server"),
        Row("notifications/com.example/old", Job, direction="server", until=R2025_06),
        Row("notifications/com.example/seen", Job),
    ),
    results={
        "started": ResultType(
            type=Started,
            stateful=StatefulForm(
                type=StartedJob, member="job", convert=lambda one: StartedJob(Job(one.job_id)), since=R2025_06
            ),
        )
    },
    topics=(Topic(name="jobs", method="notifications/com.example/job", member="jobIds"),),
)

Settle = Callable[[PendingResult], Awaitable[Any]]


async def settled(pending: PendingResult) -> CallToolResult:
    found: Any = pending.result
    return CallToolResult(content=[TextContent(found.job_id if isinstance(found, Started) else found.job.id)])


class Jobs(ClientExtension):
    """The extension with all its functions."""

    declares = JOBS

    def __init__(self, settle: Settle = settled) -> None:
        self.got: list[tuple[str, Any]] = []
        self.come = asyncio.Event()
        self._settle = settle

    @property
    def answers(self) -> Mapping[str, Callable[[Any, ExtensionClient], Any]]:
        async def measure(params: Job, client: ExtensionClient) -> Any:
            if params.id == "refused":
                raise RpcError("not here", code=7)
            if params.id == "fails":
                raise ValueError("a secret")
            if params.id == "wrong":
                return 7
            return {"depth": 3} if params.id == "mapping" else Measure(len(params.id))

        def stop(params: Job, client: ExtensionClient) -> None:
            self.got.append((client.revision.date, params))

        return {"com.example/measure": measure, "com.example/both": measure, "com.example/stop": stop}

    @property
    def heard(self) -> Mapping[str, Callable[[Any, ExtensionClient], Any]]:
        def keep(params: Any, client: ExtensionClient) -> None:
            if params == Job("fails"):
                raise ValueError("heard badly")
            self.got.append((client.revision.date, params))
            self.come.set()

        return dict.fromkeys(
            ("notifications/com.example/status", "notifications/com.example/old", "notifications/com.example/job"), keep
        )

    async def settle(self, pending: PendingResult) -> Any:
        return await self._settle(pending)


class Prepares(Jobs):
    def __init__(self, members: Mapping[str, Any]) -> None:
        super().__init__()
        self.calls: list[OutgoingCall] = []
        self._members = members

    def prepare(self, call: OutgoingCall) -> Mapping[str, Any]:
        self.calls.append(call)
        return self._members


def speaks(
    revision: Revision, answers: Callable[[Message], Iterable[Any]] = lambda message: (), **can: Any
) -> Scripted:
    """A scripted server of one revision."""
    return legacy(answers, revision.date, **can) if revision.stateful else modern(answers, **can)


def started(revision: Revision, id: str = "j-1") -> Result:
    """A result of the extension."""
    return Result({"job": {"id": id}} if revision.stateful else {"resultType": "started", "jobId": id})


# -- what both declare


@every
async def test_extensions_are_declared_where_the_revision_has_them(revision: Revision) -> None:
    server = speaks(revision, lambda message: [said("x")], extensions={NAME: {"fast": 1}})
    async with Client(server, revision=revision, extensions=[Jobs()]) as client:
        await client.call_tool("t")
        assert client.capabilities.extensions == {NAME: {"fast": 1}}
    if revision.stateful:
        (message,) = server.of("initialize")
        declared = message["params"]["capabilities"]
    else:
        (message,) = server.of("tools/call")
        declared = message["params"]["_meta"][f"{META}clientCapabilities"]
    assert declared == ({"extensions": {NAME: {"loud": True}}} if revision.order >= R2025_06.order else {})


@pytest.mark.parametrize("revision", [R2025_06, R2025_11, R2026_07], ids=lambda one: one.date)
async def test_our_server_and_client_tell_each_other(revision: Revision) -> None:
    async with Client(Server("x", extensions=[JOBS]), revision=revision, extensions=[Jobs()]) as client:
        assert client.capabilities.extensions == {NAME: {"loud": True}}


# -- requests of the server


ASKED: list[tuple[str, Any, Any]] = [
    ("com.example/measure", {"id": "abc"}, {"depth": 3}),
    ("com.example/measure", {"id": "mapping"}, {"depth": 3}),
    ("com.example/both", {"id": "a"}, {"depth": 1}),
    ("com.example/measure", {"id": 7}, -32602),
    ("com.example/measure", None, -32602),
    ("com.example/measure", {"id": "refused"}, 7),
    ("com.example/measure", {"id": "fails"}, -32603),
    ("com.example/measure", {"id": "wrong"}, -32603),
    ("com.example/unanswered", {"id": "a"}, -32601),
    ("com.example/fetch", {"id": "a"}, -32601),
    ("notifications/com.example/status", {"id": "a"}, -32601),
    ("com.example/other", {"id": "a"}, -32601),
]


@stateful
async def test_a_server_s_requests_are_answered_by_their_rows(revision: Revision) -> None:
    got: dict[str, Message] = {}

    def answers(message: Message) -> Iterable[Any]:
        if message.get("method") == "tools/call":
            for at, (method, params, _) in enumerate(ASKED):
                yield {"jsonrpc": "2.0", "id": f"q-{at}", "method": method} | (
                    {} if params is None else {"params": params}
                )
        elif "method" not in message:
            got[message["id"]] = message
            if len(got) == len(ASKED):
                server.say(said("done"), server.of("tools/call")[0])

    server = speaks(revision, answers)
    async with Client(server, revision=revision, extensions=[Jobs()]) as client:
        await client.call_tool("t")
    for at, (method, params, expected) in enumerate(ASKED):
        found = got[f"q-{at}"]
        assert (found["error"]["code"] if isinstance(expected, int) else found["result"]) == expected, (method, params)
        assert "secret" not in json.dumps(found)


@stateful
@pytest.mark.parametrize("wire", WIRES, ids=[one.partition(":")[0] for one in WIRES])
async def test_a_tool_asks_by_a_method_of_an_extension(revision: Revision, wire: str) -> None:
    app, jobs = Server("x", extensions=[JOBS]), Jobs()

    @app.tool
    async def measures(ctx: Context) -> str:
        found = await ctx.rpc.call("com.example/measure", {"id": "four"})
        if ctx.revision.order <= R2025_06.order:
            assert await ctx.rpc.call("com.example/stop", {"id": "s"}) == {}
        return str(found["depth"])

    async with client_of(app, wire, revision=revision, extensions=[jobs]) as client:
        assert (await client.call_tool("measures")).text == "4"
    assert jobs.got == ([(revision.date, Job("s"))] if revision.order <= R2025_06.order else [])


async def test_a_stateless_server_calls_nothing() -> None:
    jobs, at = Jobs(), {"jsonrpc": "2.0", "id": 1, "method": "com.example/stop", "params": {"id": "a"}}
    server = modern(lambda message: [at, said("x")])
    async with Client(server, extensions=[jobs]) as client:
        await client.call_tool("t")
    assert not jobs.got


# -- notifications of the server


@every
async def test_notifications_reach_the_functions_of_extensions(
    revision: Revision, caplog: pytest.LogCaptureFixture
) -> None:
    status, old = "notifications/com.example/status", "notifications/com.example/old"
    notes = [
        notification(status, id="fails"),
        notification(status, id=7),
        notification(status),
        notification("notifications/com.example/seen", id="ours"),
        notification("notifications/com.example/unknown", id="x"),
        notification(old, id="old"),
        notification(status, id="a"),
    ]
    jobs, told = Jobs(), []
    server = speaks(revision, lambda message: [*notes, said("x")])
    client = Client(
        server, revision=revision, extensions=[jobs], on_notification=lambda method, params: told.append(method)
    )
    async with client:
        assert (await client.call_tool("t")).text == "x", "the channel goes on"
    olds = [(revision.date, Job("old"))] if revision.order <= R2025_06.order else []
    assert jobs.got == [*olds, (revision.date, Job("a"))]
    assert len(told) == len(notes)
    assert [one.levelno for one in caplog.records if "failed" in one.message] == [logging.ERROR]


async def test_functions_that_do_not_end_are_bounded(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(client_notifications, "HEARING", 2)
    begun, both, end = [], asyncio.Event(), asyncio.Event()

    class Slow(Jobs):
        @property
        def heard(self) -> Mapping[str, Callable[[Any, ExtensionClient], Any]]:
            async def wait(params: Job, client: ExtensionClient) -> None:
                begun.append(params.id)
                if len(begun) == 2:
                    both.set()
                await end.wait()

            return {"notifications/com.example/status": wait}

    notes = [notification("notifications/com.example/status", id=str(n)) for n in range(4)]
    async with Client(modern(lambda message: [*notes, said("x")]), extensions=[Slow()]) as client:
        await client.call_tool("t")
        await both.wait()
        assert begun == ["0", "1"]
        assert "notifications/com.example/status was dropped: 2 functions" in caplog.text
        end.set()
        while len(begun) < 4:  # there is space again
            await client.call_tool("t")


@pytest.mark.parametrize("option", ["on_notification", "on_log"])
async def test_functions_of_the_user_that_do_not_end_are_bounded(
    option: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(client_notifications, "HEARING", 2)
    begun, end = [], asyncio.Event()

    async def wait(*params: Any) -> None:
        begun.append(params)
        await end.wait()

    notes = [notification("notifications/message", level="info", data=n) for n in range(4)]
    options: dict[str, Any] = {option: wait}
    async with Client(modern(lambda message: [*notes, said("x")]), **options) as client:
        await client.call_tool("t")
        await client.call_tool("t")
        assert len(begun) == 2
        assert "notifications/message was dropped: 2 functions" in caplog.text
        end.set()
        while len(begun) < 4:  # there is space again
            await client.call_tool("t")


# -- topics


def listening(granted: Any = None) -> Scripted:
    """A stateless server that acknowledges `granted`, or all, and then notifies of a job."""

    def answers(message: Message) -> Iterable[Any]:
        if message["method"] == "subscriptions/listen":
            about = {f"{META}subscriptionId": message["id"]}
            wanted = message["params"]["notifications"] if granted is None else granted
            yield notification("notifications/subscriptions/acknowledged", _meta=about, notifications=wanted)
            yield notification("notifications/com.example/job", _meta=about, id="1", state="done")
        elif "id" in message:
            yield said("x")

    return modern(answers)


@pytest.mark.parametrize(
    ("granted", "has"), [(None, {"jobIds": ["1", "2"]}), ({"jobIds": ["1"], "mine": 1}, {"jobIds": ["1"]}), ({}, {})]
)
async def test_a_client_subscribes_to_a_topic(granted: Any, has: Any) -> None:
    server, jobs = listening(granted), Jobs()
    async with Client(server, extensions=[jobs]) as client:
        async with client.subscribe(topics={"jobIds": ["1", "2"]}, tools=granted is None) as changes:
            assert changes.granted_topics == has
            assert changes.granted.tools_list_changed is (True if granted is None else msgspec.UNSET)
            await jobs.come.wait()
        ((_, told),) = jobs.got
        assert (told["id"], told["state"]) == ("1", "done")
        with pytest.raises(LocalError, match=r"no extension of this client has the member 'jobs': there are jobIds"):
            client.subscribe(topics={"jobs": ["1"]})
    (listen,) = server.of("subscriptions/listen")
    wanted = {"jobIds": ["1", "2"]} | ({"toolsListChanged": True} if granted is None else {})
    assert listen["params"]["notifications"] == wanted


async def test_an_acknowledgment_that_makes_no_sense_ends_a_subscription() -> None:
    async with Client(listening(7), extensions=[Jobs()]) as client:
        with pytest.raises(BadAnswer, match="acknowledged"):
            async with client.subscribe(topics={"jobIds": ["1"]}):
                pass


async def test_a_stateful_revision_has_no_topics_to_subscribe_to() -> None:
    server, jobs = legacy(lambda message: [notification("notifications/com.example/job", id="1"), said("x")]), Jobs()
    async with Client(server, extensions=[jobs]) as client, client.subscribe(topics={"jobIds": ["1"]}) as changes:
        assert changes.granted_topics == {}
        await client.call_tool("t")
    assert jobs.got == [(R2025_11.date, {"id": "1"})]
    assert "subscriptions/listen" not in server.methods()


def test_a_blocking_client_subscribes_to_a_topic_and_calls_an_extension() -> None:
    app, heard = Server("x", extensions=[JOBS]), []

    @app.method("com.example/fetch", inline=True)
    def fetch(params: Job, ctx: Context) -> Measure:
        return Measure(len(params.id))

    @app.method("notifications/com.example/seen", inline=True)
    def seen(params: Job, ctx: Context) -> None:
        heard.append(params.id)

    with connect(app, revision=R2026_07, extensions=[Jobs()]) as client:
        client.notify("notifications/com.example/seen", Job("n"))
        assert client.request("com.example/fetch", Job("ab")) == Measure(2)
        with client.subscribe(topics={"jobIds": ["1"]}, tools=True) as changes:
            assert dict(changes.granted_topics) == {}
    assert heard == ["n"]


# -- notifications of the client


@every
@pytest.mark.parametrize("wire", WIRES, ids=[one.partition(":")[0] for one in WIRES])
async def test_a_client_notifies(revision: Revision, wire: str) -> None:
    app, heard = Server("x", extensions=[JOBS]), []

    @app.method("notifications/com.example/seen")
    async def seen(params: Job, ctx: Context) -> None:
        heard.append((ctx.revision.date, params.id))
        come.set()

    @app.method("com.example/fetch")
    async def fetch(params: Job, ctx: Context) -> Measure:
        return Measure(1)

    come = asyncio.Event()
    if not revision.streamable and wire.startswith("http"):
        pytest.skip("the revision has no Streamable HTTP")
    async with client_of(app, wire, revision=revision, extensions=[Jobs()]) as client:
        await client.notify("notifications/com.example/seen", {"id": "n"})
        async with asyncio.timeout(20):
            await come.wait()
        assert heard == [(revision.date, "n")]
        assert await client.request("com.example/fetch", Job("\u00e9")) == Measure(1), "its name is a header"
        for method in ("com.example/fetch", "notifications/com.example/status", "notifications/cancelled", "x/y"):
            with pytest.raises(LocalError, match="is not a notification of"):
                await client.notify(method, {"id": "n"})
        for params in (None, {"id": 7}, {}):
            with pytest.raises(LocalError, match=r"params of com\.example/fetch have 'id', a text"):
                await client.request("com.example/fetch", params)


class InOrder(Struct, array_like=True):
    id: str


@eras
async def test_params_that_are_no_object_are_not_sent(revision: Revision) -> None:
    server = speaks(revision)
    wrong: list[Any] = [5, "x", [], [1], InOrder("x"), Raw(b"[1]"), Raw(b"{"), Raw(b'{"id":"\xff"}')]
    async with Client(server, revision=revision, extensions=[Jobs()]) as client:
        sent = len(server.heard)
        for params in wrong:
            for send, method in (
                (client.request, "com.example/cancel"),
                (client.request_raw, "com.example/cancel"),
                (client.notify, "notifications/com.example/seen"),
            ):
                with pytest.raises(LocalError, match=f"the params of {method} are "):
                    await send(method, params)
        assert len(server.heard) == sent
        await client.notify("notifications/com.example/seen", Raw(b" { } "))  # type: ignore[arg-type]
        await server.until("notifications/com.example/seen")
    assert server.of("notifications/com.example/seen")[0].get("params", {}).keys() <= {"_meta"}


async def test_a_notification_over_http_has_its_headers() -> None:
    """basic/transports/streamable-http, Request Metadata."""

    async def script(seen: Seen, talk: Talk) -> None:
        if seen.method != "POST":
            talk.say(None, "405 Method Not Allowed")
        elif "id" in seen.message:
            talk.result(seen, discovered().value)
        else:
            talk.say(None, "202 Accepted")

    async with scripted(script) as server, Client(server.url, extensions=[Jobs()]) as client:
        await client.notify("notifications/com.example/seen", {"id": "n", "_meta": {"a.b/c": 1}})
        seen = server.seen[-1]
    assert (seen.headers["mcp-method"], seen.headers["mcp-protocol-version"]) == (
        "notifications/com.example/seen",
        R2026_07.date,
    )
    assert seen.message["params"]["id"] == "n"
    assert {"a.b/c", f"{META}protocolVersion", f"{META}clientCapabilities"} <= seen.message["params"]["_meta"].keys()


# -- what extensions add to calls


@every
async def test_an_extension_adds_to_the_params_of_calls(revision: Revision) -> None:
    listed = {"name": "t", "inputSchema": {"type": "object"}, "description": "known"}

    def answers(message: Message) -> Iterable[Any]:
        method = message["method"]
        if method == "tools/list":
            return [Result({"resultType": "complete", "tools": [listed], "ttlMs": 0, "cacheScope": "private"})]
        if method == "resources/read":
            return [Result({"resultType": "complete", "contents": []})]
        if method == "prompts/get":
            return [Result({"resultType": "complete", "messages": []})]
        return [said("x") if method == "tools/call" else Result({"depth": 1})]

    adds = {"task": {}, "name": "other", "uri": "x:other", "_meta": {"a.b/c": 1, "a.b/d": 2, "progressToken": "mine"}}
    server, prepares = speaks(revision, answers, tools={}), Prepares(adds)
    async with Client(server, revision=revision, extensions=[prepares]) as client:
        await client.call_tool("t", {"x": 1}, meta={"a.b/c": "own"})
        await client.list_tools()
        await client.call_tool("t")
        await client.read_resource("x:y")
        await client.get_prompt("p")
        await client.request("com.example/fetch", Job("i"))
    first, second = (one["params"] for one in server.of("tools/call"))
    assert (first["name"], first["arguments"], first["task"]) == ("t", {"x": 1}, {})
    assert (first["_meta"]["a.b/c"], first["_meta"]["a.b/d"]) == ("own", 2)
    assert first["_meta"].get("progressToken") != "mine"
    assert (second["task"], second["_meta"]["a.b/c"]) == ({}, 1)
    (read,) = server.of("resources/read")
    assert (read["params"]["uri"], read["params"]["task"]) == ("x:y", {})
    calls = [(one.method, one.name, one.tool and one.tool.description) for one in prepares.calls]
    assert calls == [
        ("tools/call", "t", None),
        ("tools/call", "t", "known"),
        ("resources/read", "x:y", None),
        ("prompts/get", "p", None),
        ("com.example/fetch", "i", None),
    ]
    assert {one.revision for one in prepares.calls} == {revision}
    assert prepares.calls[0].capabilities.tools is not msgspec.UNSET
    assert all("task" not in one.get("params", {}) for one in server.of("tools/list"))


@pytest.mark.parametrize("members", [None, 5, {"_meta": 5}], ids=repr)
async def test_what_adds_no_members_is_said(members: Any) -> None:
    async with Client(modern(), extensions=[Prepares(members)]) as client:
        with pytest.raises(LocalError, match=r"Prepares\.prepare returns the members to add, and `_meta` as a dict"):
            await client.call_tool("t")


# -- results of extensions


@pytest.mark.parametrize("revision", [R2025_06, R2025_11, R2026_07], ids=lambda one: one.date)
@pytest.mark.parametrize("call", ["call_tool", "get_prompt", "read_resource", "request"])
async def test_a_result_of_an_extension_is_settled(revision: Revision, call: str) -> None:
    seen: list[PendingResult] = []

    async def settle(pending: PendingResult) -> Any:
        seen.append(pending)
        found = {"get_prompt": {"messages": []}, "read_resource": {"contents": []}, "request": {"depth": 4}}
        return found[call] if call in found else await settled(pending)

    calls: dict[str, Callable[[Client], Awaitable[Any]]] = {
        "call_tool": lambda client: client.call_tool("t"),
        "get_prompt": lambda client: client.get_prompt("t"),
        "read_resource": lambda client: client.read_resource("x:t"),
        "request": lambda client: client.request("com.example/fetch", {"id": "t"}),
    }
    server = speaks(revision, lambda message: [started(revision)])
    async with Client(server, revision=revision, extensions=[Jobs(settle)]) as client:
        for _ in range(2):  # what was settled is not kept
            found = await calls[call](client)
        if call == "call_tool":
            assert found.text == "j-1"
    assert [one.result for one in seen] == [StartedJob(Job("j-1")) if revision.stateful else Started("j-1")] * 2
    assert (seen[0].name, seen[0].total, seen[0].on_progress) == ("x:t" if call == "read_resource" else "t", None, None)


USUAL = {"content": [{"type": "text", "text": "usual"}]}


@pytest.mark.parametrize(
    ("revision", "value", "text"),
    [
        (R2025_11, USUAL | {"job": {"id": "x"}}, "usual"),
        (R2025_11, USUAL | {"structuredContent": {"job": {"id": "x"}}}, "usual"),
        (R2025_11, {"content": [{"type": "text", "text": '{"job": 1}'}]}, '{"job": 1}'),
        (R2025_03, {"job": {"id": "x"}}, None),
        (R2026_07, {"job": {"id": "x"}}, None),
        (R2025_11, {"job": 7}, None),
        (R2025_11, {"other": {"job": {"id": "x"}}}, None),
        (R2025_11, ["job"], None),
    ],
)
async def test_what_is_no_stateful_form_of_a_result(revision: Revision, value: Any, text: str | None) -> None:
    server = speaks(revision, lambda message: [Result(value)])
    async with Client(server, revision=revision, extensions=[Jobs()]) as client:
        if text is None:
            with pytest.raises(BadAnswer):
                await client.call_tool("t")
        else:
            assert (await client.call_tool("t")).text == text


@eras
async def test_results_of_an_extension_are_not_settled_without_end(revision: Revision) -> None:
    """A server answers each request of `settle` with one more."""

    async def asks(pending: PendingResult) -> Any:
        return await pending.client.request("com.example/fetch", Job("x"))

    server = speaks(revision, lambda message: [started(revision)])
    async with Client(server, revision=revision, extensions=[Jobs(asks)]) as client:
        for _ in range(2):
            with pytest.raises(BadAnswer, match="a result of an extension again, while 8 others are settled"):
                await client.call_tool("t")
    assert len(server.of("com.example/fetch")) == 16


@eras
async def test_what_settles_returns_text_that_is_no_utf_8(revision: Revision) -> None:
    async def broken(pending: PendingResult) -> Any:
        return Raw(b'{"content":[{"type":"text","text":"\xff"}]}')

    server = speaks(revision, lambda message: [started(revision)])
    async with Client(server, revision=revision, extensions=[Jobs(broken)]) as client:
        with pytest.raises(BadAnswer, match="the result does not fit"):
            await client.call_tool("t")


def works(revision: Revision) -> Scripted:
    """A server with a job that never ends, and is cancelled."""

    def answers(message: Message) -> Iterable[Any]:
        if message.get("method") == "tools/call":
            yield started(revision)
        elif message.get("method") == "com.example/cancel":
            yield Result({"resultType": "complete"})

    return speaks(revision, answers)


async def never(pending: PendingResult) -> Any:
    """Wait for a job, and cancel it at the server if it is not waited for any more."""
    try:
        return await pending.client.request("com.example/fetch", {"id": "j-1"}, timeout=None)
    finally:
        assert await pending.client.request("com.example/cancel", {"id": "j-1"}) is not None


@eras
async def test_a_cancelled_call_ends_its_job(revision: Revision) -> None:
    server = works(revision)
    async with Client(server, revision=revision, extensions=[Jobs(never)]) as client:
        call = asyncio.ensure_future(client.call_tool("t"))
        await server.until("com.example/fetch")
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
    assert server.of("com.example/cancel")[0]["params"]["id"] == "j-1"


@eras
async def test_the_total_time_of_a_call_is_that_of_its_job(revision: Revision) -> None:
    server, left = works(revision), list[float]()

    async def settle(pending: PendingResult) -> Any:
        assert pending.total is not None
        left.append(pending.total)
        return await never(pending)

    async with Client(server, revision=revision, extensions=[Jobs(settle)]) as client:
        with pytest.raises(CallTimeout, match=r"tools/call: no result within 0\.2 s in all"):
            await client.call_tool("t", total=0.2)
        assert 0 < left[0] <= 0.2
        assert server.of("com.example/cancel")

        async def late(pending: PendingResult) -> Any:
            raise TimeoutError("its own")

        client_extension = Jobs(late)
        async with Client(works(revision), revision=revision, extensions=[client_extension]) as other:
            with pytest.raises(TimeoutError, match="its own"):
                await other.call_tool("t", total=10)


@eras
async def test_progress_reaches_a_call_that_is_settled(revision: Revision) -> None:
    """Also the server's own, under the token of the call, and what the extension reports; after the end, nothing."""
    steps: list[float] = []

    async def step(progress: ProgressNotificationParams) -> None:
        steps.append(progress.progress)
        if progress.progress == 2:
            raise ValueError("heard badly")

    async def settle(pending: PendingResult) -> Any:
        assert pending.on_progress is not None
        pending.on_progress(ProgressNotificationParams(progress_token="", progress=2))
        await pending.client.request("com.example/fetch", {"id": "j-1"})
        return await settled(pending)

    def answers(message: Message) -> Iterable[Any]:
        method = message.get("method")
        if method == "tools/call":
            yield started(revision)
            return
        token = server.of("tools/call")[0]["params"]["_meta"]["progressToken"]
        for given in (token, "foreign", [token]):
            yield notification("notifications/progress", progressToken=given, progress=3 if given == token else 9)
        if method == "com.example/fetch":
            yield Result({"depth": 1})
        elif method == "ping":
            yield Result({})
        else:
            yield discovered()

    server = speaks(revision, answers)
    async with Client(server, revision=revision, extensions=[Jobs(settle)]) as client:
        assert (await client.call_tool("t", on_progress=step)).text == "j-1"
        if revision.stateful:
            await client.ping()
    assert steps == [2, 3]


# -- questions of one call


def of_name(name: str) -> Callable[[Any], Any]:
    async def on_elicit(asked: Any) -> dict[str, str]:
        return {"name": name}

    return on_elicit


def asking() -> Server:
    app = Server("asks")

    @app.tool
    async def who(ctx: Context, waits: int = 0) -> str:
        if waits:
            arrived.append(1)
            if len(arrived) == waits:
                together.set()
            async with asyncio.timeout(20):
                await together.wait()
        question: Elicit[dict[str, str]] = Elicit("Who?", FORM, key="who")
        (found,) = await ctx.ask(question)
        return (found.content or {"name": found.action})["name"]

    @app.tool
    async def where(ctx: Context) -> str:
        return ", ".join(str(root.uri) for root in await ctx.roots())

    @app.tool
    async def what(ctx: Context) -> str:
        found: Any = await ctx.sample("?", max_tokens=9)
        return str(found.text if hasattr(found, "text") else found.content.text)

    @app.prompt
    async def poem(ctx: Context) -> str:
        return await who(ctx)

    @app.resource("x:who")
    async def page(ctx: Context) -> str:
        return await who(ctx)

    arrived: list[int] = []
    together = asyncio.Event()
    return app


OWN = Path("/own").absolute().as_uri()
"""A root that is written as a path; on Windows it has the drive."""


@pytest.mark.parametrize(
    "revision", [one for one in REVISIONS.values() if one.order >= R2025_06.order], ids=lambda one: one.date
)
@pytest.mark.parametrize("wire", WIRES, ids=[one.partition(":")[0] for one in WIRES])
async def test_a_call_has_answers_of_its_own(revision: Revision, wire: str) -> None:
    usual: dict[str, Any] = {"on_elicit": of_name("usual"), "on_sample": lambda asked: "usual", "roots": ["/usual"]}
    async with client_of(asking(), wire, revision=revision, **usual) as client:
        assert (await client.call_tool("who")).text == "usual"
        assert (await client.call_tool("who", on_elicit=of_name("Ada"))).text == "Ada"
        assert (await client.call_tool("who", on_elicit=None)).text == "usual"
        assert (await client.call_tool("who", on_sample=lambda asked: "x")).text == "usual"
        assert (await client.call_tool("what", on_sample=lambda asked: "own")).text == "own"
        assert (await client.call_tool("where", on_roots=["/own"])).text == OWN
        assert (await client.call_tool("where", on_roots=list)).text == ""
        found = await client.get_prompt("poem", on_elicit=of_name("Bo"))
        assert getattr(found.messages[0].content, "text", None) == "Bo"
        for name in ("Cy", "Di"):
            assert (await client.read_resource("x:who", on_elicit=of_name(name))).contents[0].text == name
        named = {"name": "who", "arguments": {}}
        assert (await client.request("tools/call", named, on_elicit=of_name("Ed"))).text == "Ed"
        assert (await client.call_tool("who")).text == "usual"


@pytest.mark.parametrize(
    ("revision", "wire"),
    [(R2025_06, WIRES[2]), (R2025_11, WIRES[2]), *((R2026_07, wire) for wire in WIRES)],
)
async def test_calls_at_once_have_answers_of_their_own(revision: Revision, wire: str) -> None:
    """Where a question says to which call it belongs."""
    async with client_of(asking(), wire, revision=revision, on_elicit=of_name("usual")) as client:
        names = ["Ada", "Bo", "Cy", None]
        calls = [
            client.call_tool("who", {"waits": 4}, on_elicit=None if one is None else of_name(one)) for one in names
        ]
        assert [one.text for one in await asyncio.gather(*calls)] == ["Ada", "Bo", "Cy", "usual"]


@pytest.mark.parametrize("wire", WIRES[:2], ids=["memory", "tcp"])
@pytest.mark.parametrize("names", [("Ada", "Bo"), ("Ada", None)])
async def test_a_question_that_may_belong_to_several_calls_is_answered_by_the_client(
    wire: str, names: tuple[str | None, ...]
) -> None:
    async with client_of(asking(), wire, revision=R2025_11, on_elicit=of_name("usual")) as client:
        calls = [
            client.call_tool("who", {"waits": 2}, on_elicit=None if one is None else of_name(one)) for one in names
        ]
        found = sorted([one.text for one in await asyncio.gather(*calls)])
        # the second question may come when the first call is over, and is certain then
        assert "usual" in found
        assert len(set(found) - {"usual"}) <= 1
        same = of_name("same")
        calls = [client.call_tool("who", {"waits": 2}, on_elicit=same) for _ in range(2)]
        assert [one.text for one in await asyncio.gather(*calls)] == ["same", "same"], "the answer is certain"


@every
async def test_a_client_without_answers_may_have_them_for_one_call(revision: Revision) -> None:
    """Where capabilities are declared with each request."""
    options: list[tuple[str, Any, str, str]] = [
        ("on_elicit", of_name("Ada"), "elicitation", "on_elicit"),
        ("on_elicit_url", lambda asked: True, "elicitation", "on_elicit_url"),
        ("on_sample", lambda asked: "x", "sampling", "on_sample"),
        ("on_roots", ["/x"], "roots", "roots"),
    ]
    server = speaks(revision, lambda message: [said("x")])
    async with Client(server, revision=revision) as client:
        for name, function, capability, usual in options:
            given: Any = {name: function}
            if revision.stateful:
                with pytest.raises(LocalError, match=rf"{name} answers nothing in .*: give {usual} to Client"):
                    await client.call_tool("t", **given)
                continue
            await client.call_tool("t", **given)
            params = server.of("tools/call")[-1]["params"]
            assert [*params["_meta"][f"{META}clientCapabilities"]] == [capability]
            await client.call_tool("t")
            params = server.of("tools/call")[-1]["params"]
            assert params["_meta"][f"{META}clientCapabilities"] == {}
        with pytest.raises(LocalError, match="on_elicit"):
            await client.call_tool("t", on_elicit="Ada")  # type: ignore[call-overload]


async def test_a_stateless_call_is_answered_without_answers_of_the_client() -> None:
    async with Client(asking(), revision=R2026_07) as client:
        assert (await client.call_tool("who", on_elicit=of_name("Ada"), on_progress=print)).text == "Ada"
        assert (await client.call_tool("who", on_elicit=of_name("Ada"), meta={"a.b/c": 1})).text == "Ada"
        with pytest.raises(RpcError) as caught:
            await client.call_tool("who")
        assert caught.value.code == -32021


def test_a_blocking_call_has_answers_of_its_own() -> None:
    for revision in (R2025_11, R2026_07):
        with connect(asking(), revision=revision, on_elicit=of_name("usual")) as client:
            assert client.call_tool("who", on_elicit=lambda asked: {"name": "Ada"}).text == "Ada"
            assert client.call_tool("who").text == "usual"


@eras
async def test_a_call_that_is_settled_is_asked_as_the_call_itself(revision: Revision) -> None:
    """In what the extension requests for it, and by the extension itself, at most so many questions at once."""
    answered: list[Message] = []

    async def settle(pending: PendingResult) -> Any:
        found = await pending.client.request("com.example/fetch", {"id": "j"})
        answers = await pending.client.answer({"k": QUESTION})
        assert json.loads(bytes(answers["k"]))["content"] == {"name": "Ada"}
        for wrong in ({"k": {"method": "tools/call"}}, {"k": 7}, {str(n): QUESTION for n in range(1000)}):
            with pytest.raises(BadAnswer):
                await pending.client.answer(wrong)
        return CallToolResult(content=[TextContent(str(found.depth))])

    def answers(message: Message) -> Iterable[Any]:
        if message.get("method") == "tools/call":
            yield started(revision)
        elif message.get("method") == "com.example/fetch":
            if revision.stateful:
                yield {"jsonrpc": "2.0", "id": "q", **QUESTION}
            else:
                yield Result({"depth": 7})
        elif message.get("id") == "q":
            answered.append(message["result"])
            server.say(Result({"depth": 7}), server.of("com.example/fetch")[0])

    server = speaks(revision, answers)
    async with Client(server, revision=revision, on_elicit=of_name("usual"), extensions=[Jobs(settle)]) as client:
        assert (await client.call_tool("t", on_elicit=of_name("Ada"))).text == "7"
    assert [one["content"] for one in answered] == ([{"name": "Ada"}] if revision.stateful else [])


async def test_a_question_outside_a_call_is_answered_by_the_client() -> None:
    """Over HTTP a question on the home stream belongs to no call."""
    answered: asyncio.Queue[Any] = asyncio.Queue()
    home: asyncio.Future[Talk] = asyncio.get_running_loop().create_future()

    async def script(seen: Seen, talk: Talk) -> None:
        if seen.method == "GET":
            talk.stream()
            home.set_result(talk)
            await asyncio.get_running_loop().create_future()
        elif seen.method == "DELETE":
            talk.say(None, "204 No Content")
        elif seen.message.get("method") == "initialize":
            init = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "x", "version": "1"}}
            talk.result(seen, init, headers={"Mcp-Session-Id": "s"})
        elif seen.message.get("method") == "tools/call":
            talk.stream()
            asked = {"jsonrpc": "2.0", **QUESTION}
            (await home).event({**asked, "id": "at home"})
            first = await answered.get()
            talk.event({**asked, "id": "in the call"})
            names = [one["result"]["content"]["name"] for one in (first, await answered.get())]
            talk.event(answer(seen.id, {"content": [{"type": "text", "text": " ".join(names)}]}))
            talk.end()
        else:
            if "method" not in seen.message:
                answered.put_nowait(seen.message)
            talk.say(None, "202 Accepted")

    async with (
        scripted(script) as server,
        Client(server.url, revision=R2025_11, on_elicit=of_name("usual")) as client,
    ):
        assert (await client.call_tool("t", on_elicit=of_name("Ada"))).text == "usual Ada"


# -- declarations that cannot be


def of(**members: Any) -> ClientExtension:
    kind: Any = type("Wrong", (Jobs,), members)
    found: ClientExtension = kind()
    return found


def other(**members: Any) -> ClientExtension:
    return of(declares=Extension(name="com.example/other", **members), answers={}, heard={})


FORMED = ResultType(type=Measure, stateful=StatefulForm(type=StartedJob, member="job", convert=StartedJob))
WRONG: list[tuple[str, Callable[[], Any]]] = [
    (r"Wrong\.answers: x/y is not declared: .*has com\.example/both", lambda: [of(answers={"x/y": print})]),
    ("com.example/fetch is not declared", lambda: [of(answers={"com.example/fetch": print})]),
    (r"measure has a function\(params, client\)", lambda: [of(answers={"com.example/measure": 7})]),
    (r"Wrong\.heard: notifications/com.example/seen", lambda: [of(heard={"notifications/com.example/seen": print})]),
    ("has none", lambda: [of(declares=Extension(name=NAME), answers={}, heard={"x/y": print})]),
    ("both recognised by the member job", lambda: [Jobs(), other(results={"other": FORMED})]),
    (
        "hears notifications/com.example/job already",
        lambda: [
            Jobs(),
            of(
                declares=Extension(
                    name="com.example/other",
                    topics=(Topic(name="other", method="notifications/com.example/job", member="others"),),
                ),
                answers={},
                heard={"notifications/com.example/job": print},
            ),
        ],
    ),
]


@pytest.mark.parametrize(("words", "make"), WRONG, ids=[f"{n}" for n, _ in enumerate(WRONG)])
async def test_what_cannot_be_is_said_at_once(words: str, make: Callable[[], Any]) -> None:
    with pytest.raises(LocalError, match=words):
        Client(legacy(), extensions=make())


# -- around the connection, and calls that last


class Opens(Jobs):
    """An extension that notes when it is entered and left, and what it can do then."""

    def __init__(self, fails: str = "") -> None:
        super().__init__()
        self.noted: list[str] = []
        self.opened: ExtensionClient | None = None
        self._fails = fails

    @asynccontextmanager
    async def connected(self, client: ExtensionClient) -> AsyncIterator[None]:
        self.opened = client
        found = await client.request("com.example/fetch", Job("abc"))
        self.noted.append(f"entered {found.depth}")
        if self._fails == "entering":
            raise LookupError(self._fails)
        try:
            yield
        finally:
            await client.request("com.example/fetch", Job("left"))
            self.noted.append("left")
        if self._fails == "leaving":
            raise LookupError(self._fails)


def fetches(message: Message) -> Iterable[Any]:
    return [Result({"resultType": "complete", "depth": 3})] if message["method"] == "com.example/fetch" else []


@eras
async def test_an_extension_is_entered_and_left_with_the_connection(revision: Revision) -> None:
    one, other = Opens(), Other()
    server = speaks(revision, fetches)
    async with Client(server, revision=revision, extensions=[one, other]) as client:
        assert (one.noted, other.noted) == (["entered 3"], ["opened"])
        assert one.opened is not None
        assert one.opened.revision == client.revision
        assert one.opened.comes_back
    assert (one.noted, other.noted) == (["entered 3", "left"], ["opened"])
    assert server.of("com.example/fetch")[-1]["params"]["id"] == "left"
    assert not one.opened.comes_back
    await client.close()
    assert one.noted == ["entered 3", "left"]


class Other(ClientExtension):
    """An extension whose `open` has nothing to enter."""

    declares = Extension(name="com.example/other")

    def __init__(self) -> None:
        self.noted: list[str] = []

    def connected(self, client: ExtensionClient) -> None:
        self.noted.append("opened")


async def test_an_extension_that_fails_when_it_is_entered_or_left_ends_the_connection() -> None:
    for fails, noted in (("entering", ["entered 3"]), ("leaving", ["entered 3", "left"])):
        one, server = Opens(fails), speaks(R2026_07, fetches)
        client = Client(server, extensions=[one])
        with pytest.raises(LookupError, match=fails):
            async with client:
                assert fails == "leaving"
        assert one.noted == noted
        with pytest.raises(ChannelError):
            await client.request("com.example/fetch", Job("a"))


@eras
async def test_a_call_that_lasts(revision: Revision) -> None:
    jobs, begun = Opens(), list[int]()
    server = speaks(revision, lambda message: fetches(message) if message["params"].get("id") != "long" else [])
    async with Client(server, revision=revision, timeout=0.05, extensions=[jobs]):
        assert jobs.opened is not None
        call = asyncio.ensure_future(jobs.opened.stream("com.example/fetch", Job("long"), begun=begun.append))
        await server.until("com.example/fetch")
        await asyncio.sleep(0.15)  # longer than the client waits for others
        assert not call.done()
        sent = server.of("com.example/fetch")[-1]
        assert begun == [sent["id"]]
        server.say(Result({"resultType": "complete", "depth": 7}), sent)
        assert await call == Measure(7)
        come = asyncio.Event()
        call = asyncio.ensure_future(jobs.opened.stream("com.example/fetch", Job("long"), begun=lambda id: come.set()))
        await come.wait()
        call.cancel()
        await server.until("notifications/cancelled")
        with pytest.raises(LocalError, match="fech is not a method"):
            await jobs.opened.stream("com.example/fech", begun=begun.append)
