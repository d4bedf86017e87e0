"""What an extension declares beyond its methods: capabilities, results, options of entries, headers, states."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any
from urllib.request import urlopen

import pytest
from msgspec import UNSET, Raw, Struct, UnsetType

from dragoman import serve
from dragoman.jsonrpc.errors import LocalError
from dragoman.jsonrpc.options import FLAG, NONE, one_of
from dragoman.mcp import Context, InputRequiredResult, Server
from dragoman.mcp.protocol.admission import Admitted
from dragoman.mcp.protocol.extension import Extension, ResultType, StatefulForm, Topic
from dragoman.mcp.protocol.methods import Row
from dragoman.mcp.protocol.revisions import R2025_06, R2025_11, R2026_07, REVISIONS, Revision
from dragoman.mcp.server.extending.extension import ServerExtension
from dragoman.routes import RouteRequest
from dragoman.rpc.middleware import Call, Next
from dragoman.rpc.service import Service

from ..calling import Calls, calling
from ..http_wire import body, meta, served, standard

every = pytest.mark.parametrize("revision", REVISIONS.values(), ids=lambda one: one.date)
NAME = "com.example/jobs"
DECLARED: dict[str, Any] = {"extensions": {NAME: {}}}

SLOW: dict[str, Any] = {"slow": True}
HEAVY: dict[str, Any] = {"weight": True}
UPPER: dict[str, Any] = {"shelf": "upper"}


def wrong(option: str) -> dict[str, Any]:
    return {option: "left"}


class JobParams(Struct, rename="camel"):
    job_id: str
    request_state: str | UnsetType = UNSET
    input_responses: dict[str, Raw] | UnsetType = UNSET


class JobState(Struct, rename="camel"):
    state: str


class Ticket(Struct, rename="camel"):
    job_id: str


class OldTicket(Struct):
    job: Ticket


def capabilities(revision: Revision) -> dict[str, Any]:
    return {"tasks": {"list": {}}} if revision is R2025_11 else {"com.example": {"since": revision.date}}


JOBS = Extension(
    name=NAME,
    stage="beta",
    settings={"many": True},
    capabilities=capabilities,
    methods=(
        Row("jobs/get", JobParams, JobState, named="jobId"),
        Row("jobs/any", JobParams, JobState, open=True),
        Row("jobs/own", JobParams, JobState, ask=True, own_state=True),
        Row("jobs/sealed", JobParams, JobState, ask=True),
    ),
    results={
        "ticket": ResultType(
            type=Ticket, stateful=StatefulForm(type=OldTicket, member="job", convert=OldTicket, since=R2025_06)
        )
    },
    options={"tool": {"slow": bool, "weight": int}, "resource": {"shelf": one_of("upper", "lower") | NONE}},
)


class Jobs(ServerExtension):
    declares = JOBS

    def __init__(self) -> None:
        self.seen: list[tuple[str, Mapping[str, Any]]] = []

    @property
    def handlers(self) -> Mapping[str, Callable[..., Any]]:
        async def state_of(params: JobParams, ctx: Context) -> JobState:
            given = params.request_state
            return JobState(f"{params.job_id} {'' if given is UNSET else given}".strip())

        return dict.fromkeys(("jobs/get", "jobs/any", "jobs/own", "jobs/sealed"), state_of)

    async def around(self, call: Call, next: Next) -> Any:
        self.seen.append((call.params.surroundings.name or call.method, call.params.surroundings.extended))
        if call.params.surroundings.extended.get("slow"):
            return Ticket("j-1")
        return await next(call)


def jobs() -> tuple[Server, Jobs]:
    extension = Jobs()
    app = Server("jobs", extensions=[extension])

    @app.tool(**SLOW)
    def slow() -> str:
        raise AssertionError("it does not run")

    @app.tool
    def quick() -> str:
        return "done"

    @app.resource("shelf://one", **UPPER)
    def one() -> str:
        return "book"

    @app.prompt
    def ask() -> str:
        return "?"

    return app, extension


async def whole(calls: Calls, method: str, **params: Any) -> Any:
    """Return a result of which the core's schemas know nothing."""
    answer = await calls.unchecked(method, **params)
    assert "result" in answer, answer
    return answer["result"]


@every
async def test_a_server_declares_an_extension_and_its_other_capabilities(revision: Revision) -> None:
    app, _ = jobs()
    async with calling(app, revision, **DECLARED) as calls:
        if revision.stateful:
            info = {"name": "test", "version": "1"}
            asked = {"protocolVersion": revision.date, "capabilities": {}, "clientInfo": info}
            found = (await whole(calls, "initialize", **asked))["capabilities"]
        else:
            found = (await whole(calls, "server/discover"))["capabilities"]
    assert found.get("extensions") == ({NAME: {"many": True}} if revision.order >= R2025_06.order else None)
    assert {name: found[name] for name in capabilities(revision)} == capabilities(revision)
    assert "tools" in found


@every
@pytest.mark.parametrize("declared", [DECLARED, {}], ids=["declared", "undeclared"])
async def test_a_result_in_the_form_of_each_era(revision: Revision, declared: dict[str, Any]) -> None:
    """It is returned in place of a tool's own result only to a client that has declared it."""
    app, _ = jobs()
    async with calling(app, revision, **declared) as calls:
        answer = await calls.unchecked("tools/call", name="slow", arguments={})
    if not declared and not revision.stateful:
        assert answer["error"]["code"] == -32021
    elif not declared or revision.order < R2025_06.order:
        assert "job" not in str(answer.get("result", "")).replace("jobs", ""), answer
        assert answer["error"]["code"] == -32603, answer
    elif revision.stateful:
        assert answer["result"] == {"job": {"jobId": "j-1"}}
    else:
        assert (answer["result"]["resultType"], answer["result"]["jobId"]) == ("ticket", "j-1")


def wants_a_job(admitted: Admitted) -> bool:
    return admitted.raw is not UNSET and b'"job"' in bytes(admitted.raw)


async def test_a_result_of_the_stateful_era_may_be_for_some_calls_alone() -> None:
    """2025-11-25's tasks are not declared by the client: a call asks for one."""
    form = StatefulForm(type=OldTicket, member="job", convert=OldTicket, for_call=wants_a_job)
    own = Extension(name=NAME, results={"ticket": ResultType(type=Ticket, stateful=form)})
    app = Server("jobs", extensions=[own])

    @app.tool
    def slow() -> str | Ticket:
        return Ticket("j-2")

    async with calling(app, R2025_11) as calls:
        assert await whole(calls, "tools/call", name="slow", arguments={}, job={}) == {"job": {"jobId": "j-2"}}
        assert (await calls.call("slow", {}))["isError"] is True
        listed = await calls.tools()
        assert "jobId" not in str(listed["slow"].get("outputSchema"))


async def test_options_of_an_extension_reach_its_middleware() -> None:
    app, extension = jobs()
    async with calling(app, R2026_07, **DECLARED) as calls:
        assert (await calls.call("quick", {}))["content"][0]["text"] == "done"
        assert (await calls.result("resources/read", uri="shelf://one"))["contents"][0]["text"] == "book"
        await calls.result("prompts/get", name="ask")
        await calls.result("tools/list")
    assert extension.seen == [
        ("quick", {"slow": None, "weight": None}),
        ("shelf://one", {"shelf": "upper"}),
        ("ask", {}),
        ("tools/list", {}),
    ]


async def test_an_included_entry_keeps_its_options_and_the_answering_server_its_extensions() -> None:
    inner, own = jobs()
    outer, answering = jobs()
    outer.include(inner, namespace="in")
    plain = Server("plain")
    plain.include(inner, namespace="in")
    async with calling(outer, R2026_07, **DECLARED) as calls:
        assert (await whole(calls, "tools/call", name="in_slow", arguments={}))["resultType"] == "ticket"
        assert (await calls.call("in_quick", {}))["content"][0]["text"] == "done"
    assert answering.seen == [("in_slow", {"slow": True, "weight": None}), ("in_quick", {"slow": None, "weight": None})]
    async with calling(plain, R2026_07) as calls:
        assert (await calls.call("in_quick", {}))["content"][0]["text"] == "done"
    assert own.seen == [], "an included server's extensions are not included"


async def test_an_http_route_is_no_call_of_the_extension_s() -> None:
    app, extension = jobs()

    @app.route("/text")
    def text(request: RouteRequest) -> str:
        return "plain"

    async with serve(app, urls="http://127.0.0.1:0/mcp") as serving:
        port = int(serving.urls[0].split(":")[2].split("/")[0])
        answer = await asyncio.to_thread(urlopen, f"http://127.0.0.1:{port}/text")
        assert (answer.status, answer.read()) == (200, b"plain")
    assert extension.seen == []


async def test_a_method_of_a_service_as_a_tool_has_no_options_of_extensions() -> None:
    app, extension = jobs()
    api = Service("adding")

    @api.method
    def add(a: int, b: int) -> int:
        return a + b

    app.include(api)
    async with calling(app, R2026_07, **DECLARED) as calls:
        assert (await calls.call("add", {"a": 1, "b": 2}))["structuredContent"] == 3
    assert extension.seen == [("add", {"slow": None, "weight": None})]


async def test_a_member_is_repeated_in_a_header_by_its_name_in_json() -> None:
    """The header `Mcp-Name` of a method of an extension, whose member is spelled otherwise in Python."""
    app, _ = jobs()
    params = {"jobId": "j-1", "_meta": meta(capabilities=DECLARED)}
    async with served(app) as place:
        right = await place.ask(body("jobs/get", params), standard("jobs/get", "j-1"))
        assert json.loads(right.body)["result"]["state"] == "j-1"
        for name in ("j-2", None):
            wrong = await place.ask(body("jobs/get", params), standard("jobs/get", name))
            assert (wrong.status, json.loads(wrong.body)["error"]["code"]) == (400, -32020)


@every
async def test_an_open_method_answers_clients_that_declared_nothing(revision: Revision) -> None:
    app, _ = jobs()
    async with calling(app, revision) as calls:
        assert (await whole(calls, "jobs/any", jobId="j"))["state"] == "j"
        if not revision.stateful:
            assert (await calls.error("jobs/get", jobId="j"))["code"] == -32021


async def test_a_method_may_read_its_state_itself() -> None:
    app, _ = jobs()
    async with calling(app, R2026_07, **DECLARED) as calls:
        assert (await whole(calls, "jobs/own", jobId="j", requestState="theirs"))["state"] == "j theirs"
        error = await calls.error("jobs/sealed", jobId="j", requestState="theirs")
        assert error["code"] == -32602, "a state that this server has not sealed"


async def test_such_a_method_asks_in_its_own_words(caplog: pytest.LogCaptureFixture) -> None:
    """Its state comes back as it was returned; what this library asks would be asked without end."""
    declared = Extension(name=NAME, methods=(Row("jobs/own", JobParams, JobState, ask=True, own_state=True),))
    app = Server("jobs", extensions=[declared])

    @app.method("jobs/own")
    async def own(params: JobParams, ctx: Context) -> Any:
        if params.job_id == "elicits":
            await ctx.elicit("Who?", str)
        if params.request_state is UNSET:
            return InputRequiredResult(request_state="mine")
        return JobState(params.request_state)

    async with calling(app, R2026_07, elicitation={"form": {}}, **DECLARED) as calls:
        asked = await whole(calls, "jobs/own", jobId="j")
        assert (asked["resultType"], asked["requestState"]) == ("input_required", "mine")
        assert (await whole(calls, "jobs/own", jobId="j", requestState="mine"))["state"] == "mine"
        assert (await calls.error("jobs/own", jobId="elicits"))["code"] == -32603
    assert "jobs/own reads its requestState itself (own_state): it asks by an InputRequiredResult" in caplog.text


def extension(**members: Any) -> Callable[[], object]:
    return lambda: Extension(name=NAME, **members)


class Unset(ServerExtension):
    pass


form = StatefulForm(type=OldTicket, member="task", convert=OldTicket)
TOPIC = Topic(name="jobs", method="notifications/jobs", member="jobIds")
WRONG: list[tuple[str, Callable[[], object]]] = [
    ("stage is one of experimental, beta, stable", extension(stage="alpha")),
    (
        "has a member of that name in JSON, 'job_id'",
        extension(methods=(Row("a", JobParams, JobState, named="job_id"),)),
    ),
    ("clients recognise 'ticket'", extension(results={"ticket": ResultType(type=Ticket, stateful=form)})),
    ("returns tools, which the server declares itself", extension(capabilities=lambda revision: {"tools": {}})),
    ("returns members by name", extension(capabilities=lambda revision: None)),
    ("topics are Topic", extension(topics=("jobs",))),
    ("the protocol's own", extension(topics=(Topic(name="x", method="notifications/message", member="x"),))),
    ("the protocol's own", extension(topics=(Topic(name="x", method="a", member="resourceSubscriptions"),))),
    ("options are those of tool, resource, prompt", extension(options={"method": {}})),
    ("has a type, or a Rule that None fits", extension(options={"tool": {"slow": FLAG}})),
    ("has a type, or a Rule that None fits", extension(options={"tool": {"not a name": FLAG | NONE}})),
    (
        "a tool has the option 'title' already",
        lambda: Server("x", extensions=[extended("a/b", options={"tool": {"title": FLAG | NONE}})]),
    ),
    ("`declares` is an Extension", lambda: Server("x", extensions=[Unset()])),
    (
        "another topic",
        lambda: Server("x", extensions=[extended("a/b", topics=(TOPIC,)), extended("a/c", topics=(TOPIC,))]),
    ),
    ("option 'slow' of a tool already", lambda: Server("x", extensions=[JOBS, extended("a/b", options=JOBS.options)])),
    (
        "two extensions declare the capability com.example",
        lambda: Server("x", extensions=[JOBS, extended("a/b", capabilities=capabilities)]),
    ),
    ("@server.tool: .*no option 'slow'", lambda: Server("x").tool("a", **SLOW)(print)),
    ("slow is True or False", lambda: Server("x", extensions=[JOBS]).tool("a", **wrong("slow"))(print)),
    ("weight is of the type int", lambda: Server("x", extensions=[JOBS]).tool("a", **HEAVY)(print)),
    ("shelf is", lambda: Server("x", extensions=[JOBS]).resource("a:b", **wrong("shelf"))(print)),
]


def extended(name: str, **members: Any) -> Extension:
    return Extension(name=name, **members)


@pytest.mark.parametrize(("words", "make"), WRONG, ids=[f"{n} {words}" for n, (words, _) in enumerate(WRONG)])
def test_what_cannot_be_declared_is_said_at_once(words: str, make: Callable[[], object]) -> None:
    with pytest.raises(LocalError, match=words):
        make()
