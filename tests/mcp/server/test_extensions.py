"""Extensions: 2026-07-28's basic/versioning, "Extension Negotiation"; basic/index, "ResultType"; and questions in a
function's own words (basic/patterns/mrtr)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pytest
from msgspec import UNSET, Raw, Struct, UnsetType

from dragoman import Limits, serve
from dragoman.jsonrpc.errors import BadAnswer, LocalError, RpcError
from dragoman.mcp import CallToolResult, Client, Context, Elicit, Server, TextContent, ToolError
from dragoman.mcp.client.extending import ClientExtension, PendingResult
from dragoman.mcp.protocol.extension import Extension
from dragoman.mcp.protocol.methods import Row
from dragoman.mcp.protocol.params import (
    CreateMessageRequest,
    CreateMessageRequestParams,
    ElicitRequest,
    ElicitRequestParams,
    EmptyResult,
    InputRequiredResult,
    ListRootsRequest,
    ListToolsResult,
    PaginatedRequestParams,
)
from dragoman.mcp.protocol.revisions import R2025_11, R2026_07, REVISIONS, Revision
from dragoman.mcp.protocol.types import SamplingMessage, Tool
from dragoman.mcp.server.extending.extension import ServerExtension
from tests.behind import behind

from ..calling import Calls, calling, client_of
from ..http_wire import body, meta
from ..scripted import META, Result, modern

every = pytest.mark.parametrize("revision", REVISIONS.values(), ids=lambda one: one.date)
NAME = "com.example/echo"
FORM = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
DECLARED: dict[str, Any] = {"extensions": {NAME: {}}}


class EchoParams(Struct):
    text: str
    times: int = 1


class AskParams(Struct, rename="camel"):
    text: str
    input_responses: dict[str, Raw] | UnsetType = UNSET
    request_state: str | UnsetType = UNSET


class EchoResult(Struct):
    said: str


class KeptResult(Struct, kw_only=True, rename="camel"):
    said: str
    ttl_ms: int = 0
    cache_scope: str = "private"


class Deferred(Struct, rename="camel"):
    """A result that comes later."""

    ticket: str


ECHO = Extension(
    name=NAME,
    settings={"loud": True},
    methods=(
        Row("com.example/echo", EchoParams, EchoResult, since=R2026_07),
        Row("com.example/kept", EchoParams, KeptResult, since=R2026_07, cacheable=True),
        Row("com.example/asks", AskParams, EchoResult, since=R2026_07, ask=True),
        Row("com.example/old", EchoParams, EchoResult),
        Row("com.example/nothing", EchoParams, EmptyResult, since=R2026_07),
        Row("com.example/unanswered", EchoParams, EchoResult, since=R2026_07),
        Row("notifications/com.example/heard", EchoParams, since=R2026_07),
    ),
    results={"deferred": Deferred},
)


def extended(heard: list[str] | None = None, **options: Any) -> Server:
    app = Server("extended", extensions=[ECHO], **options)

    @app.method("com.example/echo")
    async def echo(params: EchoParams, ctx: Context) -> EchoResult:
        return EchoResult(params.text * params.times)

    @app.method("com.example/kept", inline=True)
    def kept(params: EchoParams, ctx: Context) -> KeptResult:
        return KeptResult(said=params.text)

    @app.method("com.example/old")
    def old(params: EchoParams, ctx: Context) -> EchoResult:
        return EchoResult(f"{params.text} {ctx.revision.date}")

    @app.method("com.example/asks")
    async def asks(params: AskParams, ctx: Context) -> Any:
        question: Elicit[dict[str, str]] = Elicit("Who?", FORM, key="who")
        (answer,) = await ctx.ask(question)
        assert answer.content is not None
        return EchoResult(answer.content["name"])

    @app.method("com.example/nothing")
    async def nothing(params: EchoParams, ctx: Context) -> None:
        if params.text == "fail":
            raise ToolError("not today")
        if params.text == "wrong":
            return EchoResult("x")  # type: ignore[return-value]

    @app.method("notifications/com.example/heard")
    async def note(params: EchoParams, ctx: Context) -> None:
        if heard is not None:
            heard.append(params.text)

    @app.tool
    async def later(now: bool) -> str | Deferred:
        return "at once" if now else Deferred("t-1")

    return app


async def test_a_method_of_an_extension_is_called_like_any_other() -> None:
    heard: list[str] = []
    async with calling(extended(heard, ttl=60), R2026_07, **DECLARED) as calls:
        found = await calls.result("com.example/echo", text="ab", times=2)
        assert found["said"] == "abab"
        assert found["resultType"] == "complete"
        assert found["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "extended"
        kept = await calls.result("com.example/kept", text="a")
        assert (kept["said"], kept["ttlMs"], kept["cacheScope"]) == ("a", 60_000, "private"), "the server's hints"
        assert (await calls.result("com.example/nothing", text=""))["resultType"] == "complete"
        error = await calls.error("com.example/echo", text=7)
        assert error["code"] == -32602
        assert error["data"]["errors"][0]["field"] == "text"
        assert (await calls.error("com.example/nothing", text="fail")) == {"code": -32603, "message": "not today"}
        assert (await calls.error("com.example/nothing", text="wrong"))["code"] == -32603
        assert (await calls.error("com.example/unanswered", text="a"))["code"] == -32601
        meta = {"io.modelcontextprotocol/protocolVersion": R2026_07.date} | {
            "io.modelcontextprotocol/clientCapabilities": DECLARED
        }
        note = {"jsonrpc": "2.0", "method": "notifications/com.example/heard", "params": {"text": "x", "_meta": meta}}
        calls.channel.send(msgspec.json.encode(note))
        await calls.result("com.example/echo", text="after")
        assert heard == ["x"]


@every
async def test_a_method_exists_in_the_revisions_of_its_row(revision: Revision) -> None:
    async with calling(extended(), revision, **DECLARED) as calls:
        assert (await calls.result("com.example/old", text="a"))["said"] == f"a {revision.date}"
        if revision is not R2026_07:
            assert (await calls.error("com.example/echo", text="a"))["code"] == -32601


async def test_an_extension_is_declared_by_both() -> None:
    """ "the supporting party MUST either revert to core protocol behavior or reject the request"."""
    async with calling(extended(), R2026_07) as calls:
        found = await calls.result("server/discover")
        assert found["capabilities"]["extensions"] == {NAME: {"loud": True}}
        for method, params in (("com.example/echo", {"text": "a"}), ("tools/call", later(False))):
            error = await calls.error(method, **params)
            assert error["code"] == -32021
            assert error["data"] == {"requiredCapabilities": {"extensions": {NAME: {}}}}
        assert (await calls.call("later", {"now": True}))["content"][0]["text"] == "at once"


def later(now: bool) -> dict[str, Any]:
    return {"name": "later", "arguments": {"now": now}}


async def test_a_tool_may_end_in_a_result_of_an_extension() -> None:
    async with calling(extended(), R2026_07, **DECLARED) as calls:
        calls_result = await raw(calls, "tools/call", **later(False))
        assert (calls_result["resultType"], calls_result["ticket"]) == ("deferred", "t-1")
        tools = {one["name"]: one for one in (await calls.result("tools/list"))["tools"]}
        assert "ticket" not in str(tools["later"].get("outputSchema")), "its output schema tells of its own result"
    async with calling(extended(), R2025_11) as calls:
        assert (await calls.call("later", {"now": False}))["isError"] is True


async def raw(calls: Calls, method: str, **params: Any) -> Any:
    """A result that the core's schema does not know."""
    found = await calls.ask(method, **params)
    assert "result" in found, found
    return found["result"]


async def test_a_method_that_may_ask_is_asked_again() -> None:
    async with calling(extended(), R2026_07, elicitation={}, **DECLARED) as calls:
        first = await calls.result("com.example/asks", text="a")
        assert first["resultType"] == "input_required"
        answers = {"who": {"action": "accept", "content": {"name": "Ada"}}}
        again = await calls.result(
            "com.example/asks", text="a", requestState=first["requestState"], inputResponses=answers
        )
        assert again["said"] == "Ada"


class Tasks(ServerExtension):
    """An extension with its functions."""

    declares = ECHO

    @property
    def handlers(self) -> Mapping[str, Callable[..., Any]]:
        async def echo(params: EchoParams, ctx: Context) -> EchoResult:
            return EchoResult(params.text)

        return {"com.example/echo": echo}


async def test_an_extension_may_bring_what_answers_its_methods() -> None:
    async with calling(Server("tasks", extensions=[Tasks()]), R2026_07, **DECLARED) as calls:
        assert (await calls.result("com.example/echo", text="a"))["said"] == "a"


ROW = Row("com.example/echo", EchoParams, EchoResult)
WRONG: list[tuple[str, Callable[[], object]]] = [
    ("has a prefix", lambda: Extension(name="echo")),
    ("has a prefix", lambda: Extension(name="com.example/")),
    ("has a prefix", lambda: Extension(name="1com/echo")),
    (
        "protocol itself",
        lambda: Extension(name=NAME, methods=(Row("tools/list", PaginatedRequestParams, ListToolsResult),)),
    ),
    ("methods are rows", lambda: Extension(name=NAME, methods=("x",))),  # type: ignore[arg-type]
    ("may ask: then", lambda: Extension(name=NAME, methods=(Row("a/b", EchoParams, EchoResult, ask=True),))),
    ("is cacheable: then", lambda: Extension(name=NAME, methods=(Row("a/b", EchoParams, EchoResult, cacheable=True),))),
    ("results are Structs", lambda: Extension(name=NAME, results={"complete": Deferred})),
    ("given twice", lambda: Server("x", extensions=[ECHO, ECHO])),
    ("both have the method", lambda: Server("x", extensions=[ECHO, Extension(name="a.b/c", methods=(ROW,))])),
    (
        "resultType 'deferred' already",
        lambda: Server("x", extensions=[ECHO, Extension(name="a.b/c", results={"deferred": EchoResult})]),
    ),
    ("an extension is an Extension", lambda: Server("x", extensions=["echo"])),  # type: ignore[list-item]
    ("no extension of this server", lambda: Server("x").method("com.example/echo")(print)),
    ("no extension of this server", lambda: Server("x", extensions=[ECHO]).method("tools/list")(print)),
    ("answered by a function already", lambda: extended().method("com.example/echo")(print)),
]


@pytest.mark.parametrize(("words", "make"), WRONG, ids=[f"{n} {words}" for n, (words, _) in enumerate(WRONG)])
def test_what_cannot_be_is_said_at_once(words: str, make: Callable[[], object]) -> None:
    with pytest.raises(LocalError, match=words):
        make()


# -- questions in a function's own words ----------------------------------------------------------

QUESTION = ElicitRequest(ElicitRequestParams(message="Who?", mode="form", requested_schema=FORM))


def asking() -> Server:
    app = Server("asks")

    @app.tool
    async def own(ctx: Context, how: str = "both") -> Any:
        if ctx.input_responses or ctx.request_state:
            return f"{ctx.input_responses.get('who', {}).get('content')} {ctx.request_state}"
        questions: Any = {"who": QUESTION} if how in ("both", "questions") else UNSET
        return InputRequiredResult(
            input_requests=questions, request_state="mine" if how in ("both", "state") else UNSET
        )

    @app.prompt
    async def poem(ctx: Context) -> Any:
        return InputRequiredResult(request_state="of a prompt") if ctx.request_state is None else ctx.request_state

    return app


async def test_a_tool_may_ask_in_its_own_words() -> None:
    """What it returned is the result; its state is sealed, and the call's own."""
    async with calling(asking(), R2026_07, elicitation={}) as calls:
        first = await calls.call("own", {"how": "both"})
        assert first["resultType"] == "input_required"
        assert first["inputRequests"]["who"]["params"]["message"] == "Who?"
        assert first["requestState"] != "mine"
        answers = {"who": {"action": "accept", "content": {"name": "Ada"}}}
        arguments = {"how": "both"}
        retry = {"name": "own", "requestState": first["requestState"], "inputResponses": answers}
        again = await calls.result("tools/call", arguments=arguments, **retry)
        assert again["content"][0]["text"] == "{'name': 'Ada'} mine"
        error = await calls.error("tools/call", arguments={"how": "state"}, **retry)
        assert error["code"] == -32602, "another call's"
        assert "requestState" not in await calls.call("own", {"how": "questions"})
        assert (await calls.call("own", {"how": "neither"}))["isError"] is True
        first = await calls.result("prompts/get", name="poem")
        again = await calls.result("prompts/get", name="poem", requestState=first["requestState"])
        assert again["messages"][0]["content"]["text"] == "of a prompt"


@pytest.mark.parametrize("member", ["_meta", "inputResponses"])
async def test_a_number_that_no_double_holds_is_the_caller_s_fault(member: str) -> None:
    """Also where a function reads what the protocol does not."""
    app = Server("asks")

    @app.tool
    async def own(ctx: Context) -> str:
        return str(ctx.meta if member == "_meta" else ctx.input_responses)

    params: dict[str, Any] = {"name": "own", "inputResponses": {}, "_meta": meta()}
    params[member]["own"] = "BIG"
    answer = await behind(app).host.answer(body("tools/call", params).replace(b'"BIG"', b"1e999"))
    error = json.loads(answer or b"")["error"]
    assert error["code"] == -32602
    assert "out of range" in error["message"]


async def test_a_client_that_did_not_declare_it_is_not_asked() -> None:
    async with calling(asking(), R2026_07) as calls:
        error = await calls.error("tools/call", name="own", arguments={})
        assert error["code"] == -32021
        assert error["data"] == {"requiredCapabilities": {"elicitation": {"form": {}}}}
    async with calling(asking(), R2025_11) as calls:
        error = await calls.error("tools/call", name="own", arguments={})
        assert error["code"] == -32600
        assert "asked by calls" in error["message"]


A_URL = ElicitRequest(ElicitRequestParams(message="Go there", mode="url", url="https://example.com/"))
WITH_TOOLS = CreateMessageRequest(
    CreateMessageRequestParams(
        messages=[SamplingMessage("user", TextContent("Which?"))],
        max_tokens=9,
        tools=[Tool(name="look", input_schema={"type": "object"})],
    )
)


@pytest.mark.parametrize(
    ("question", "declared", "lacks"),
    [
        (QUESTION, {"elicitation": {"url": {}}}, {"elicitation": {"form": {}}}),
        (QUESTION, {"elicitation": {}}, None),
        (A_URL, {"elicitation": {}}, {"elicitation": {"url": {}}}),
        (A_URL, {"elicitation": {"form": {}}}, {"elicitation": {"url": {}}}),
        (A_URL, {"elicitation": {"url": {}}}, None),
        (WITH_TOOLS, {"sampling": {}}, {"sampling": {"tools": {}}}),
        (WITH_TOOLS, {"sampling": {"tools": {}}}, None),
        (ListRootsRequest(), {}, {"roots": {}}),
        (ListRootsRequest(), {"roots": {}}, None),
    ],
)
async def test_what_is_asked_in_its_own_words_has_to_be_declared_whole(
    question: Any, declared: dict[str, Any], lacks: dict[str, Any] | None
) -> None:
    """client/elicitation: "Servers MUST NOT send elicitation requests with modes that are not supported by the client";
    client/sampling: "Servers MUST NOT send tool-enabled sampling requests to Clients that have not declared support".
    """
    app = Server("asks")

    @app.tool
    async def own() -> Any:
        return InputRequiredResult(input_requests={"it": question})

    async with calling(app, R2026_07, **declared) as calls:
        if lacks is None:
            assert "it" in (await calls.call("own", {}))["inputRequests"]
        else:
            error = await calls.error("tools/call", name="own", arguments={})
            assert error["code"] == -32021
            assert error["data"] == {"requiredCapabilities": lacks}


async def test_a_completion_may_not_ask() -> None:
    """basic/patterns/mrtr: "Servers MUST NOT send `InputRequiredResult` responses on any other client requests"."""
    app = Server("asks")

    @app.prompt
    async def poem(topic: str) -> str:
        return topic

    @app.completion("poem", "topic")
    async def topics(typed: str, ctx: Context) -> list[str]:
        await ctx.roots()
        return []

    ref = {"type": "ref/prompt", "name": "poem"}
    async with calling(app, R2026_07, roots={}) as calls:
        error = await calls.error("completion/complete", ref=ref, argument={"name": "topic", "value": ""})
        assert error["code"] == -32600
        assert "may not ask" in error["message"]


# -- the client mirrors it ------------------------------------------------------------------------


class Waits(ClientExtension):
    """The extension at a client: a deferred result is asked for again, by its ticket."""

    declares = ECHO

    def __init__(self) -> None:
        self.settled: list[tuple[str, Struct]] = []

    async def settle(self, pending: PendingResult) -> Struct:
        self.settled.append((pending.method, pending.result))
        assert isinstance(pending.result, Deferred)
        found = await pending.client.request("com.example/echo", EchoParams(pending.result.ticket))
        return CallToolResult(content=[TextContent(found.said)])


WIRES = ["memory", "http://127.0.0.1:0/mcp", "tcp://127.0.0.1:0"]


@pytest.mark.parametrize("wire", WIRES, ids=[one.partition(":")[0] for one in WIRES])
async def test_a_client_calls_the_methods_of_its_extensions(wire: str) -> None:
    waits = Waits()
    async with client_of(extended(), wire, extensions=[waits], on_elicit=lambda asked: {"name": "Ada"}) as client:
        assert client.capabilities is not None
        assert client.capabilities.extensions == {NAME: {"loud": True}}
        assert await client.request("com.example/echo", EchoParams("ab", 2)) == EchoResult("abab")
        assert await client.request("com.example/echo", {"text": "c"}) == EchoResult("c")
        assert isinstance(await client.request("com.example/nothing", {"text": ""}), EmptyResult)
        assert await client.request("com.example/asks", {"text": ""}) == EchoResult("Ada")
        found = await client.call_tool("later", {"now": False})
        assert (found.text, waits.settled) == ("t-1", [("tools/call", Deferred("t-1"))])
        assert (await client.call_tool("later", {"now": True})).text == "at once"
        named = await client.request("tools/call", {"name": "later", "arguments": {"now": True}})
        assert named.text == "at once"
        with pytest.raises(RpcError, match="Method not found"):
            await client.request("com.example/unanswered", {"text": ""})
        for method in ("com.example/other", "notifications/com.example/heard", "sampling/createMessage", "ping"):
            with pytest.raises(LocalError, match="not a method of 2026-07-28"):
                await client.request(method)


async def test_a_client_without_the_extension_takes_nothing_of_it() -> None:
    """basic/index: "A `resultType` of any value unrecognized by the client MUST be considered invalid"."""
    server = modern(lambda message: [Result({"resultType": "deferred", "ticket": "t"})])
    async with Client(server) as client:
        with pytest.raises(BadAnswer, match="resultType 'deferred' is not known"):
            await client.call_tool("later")
    plain = Extension(name=NAME, methods=(ROW,))
    server = modern(lambda message: [Result({"resultType": "input_required", "requestState": "s"})])
    async with Client(server, extensions=[plain]) as client:
        with pytest.raises(BadAnswer, match="must not ask here"):
            await client.request("com.example/echo", {"text": ""})
    assert server.of("com.example/echo")[0]["params"]["_meta"][f"{META}clientCapabilities"] == {
        "extensions": {NAME: {}}
    }


async def test_a_client_s_extension_settles_its_results() -> None:
    with pytest.raises(LocalError, match="what settles them"):
        Client(extended(), extensions=[ECHO])
    with pytest.raises(LocalError, match="an Extension or a ClientExtension"):
        Client(extended(), extensions=["x"])  # type: ignore[list-item]


# -- how a type of results says its members --------------------------------------------------------


class WithType(Struct, rename="camel"):
    ticket: str
    result_type: str = "given"


class WithMeta(Struct):
    ticket: str
    meta: dict[str, Any] | UnsetType = msgspec.field(default=UNSET, name="_meta")


class WithBoth(Struct, rename="camel"):
    ticket: str
    result_type: str = "given"
    meta: dict[str, Any] | UnsetType = msgspec.field(default=UNSET, name="_meta")


class OtherNames(Struct):
    ticket: str
    kind: str = msgspec.field(default="given", name="resultType")
    about: dict[str, Any] | UnsetType = msgspec.field(default=UNSET, name="_meta")


class FalseFriends(Struct):
    """Fields that are other members on the wire."""

    ticket: str
    result_type: str = "mine"
    meta: str = "mine"


class Tagged(Struct, tag_field="resultType", tag="given"):
    ticket: str


class Empty(Struct):
    pass


RESULTS_OF = [
    (Deferred("1"), {"ticket": "1"}, {}),
    (WithType("1"), {"ticket": "1"}, {}),
    (WithMeta("1"), {"ticket": "1"}, {}),
    (WithMeta("1", {"a": 1}), {"ticket": "1"}, {"a": 1}),
    (WithBoth("1"), {"ticket": "1"}, {}),
    (WithBoth("1", meta={"a": 1}), {"ticket": "1"}, {"a": 1}),
    (OtherNames("1", about={"a": 1}), {"ticket": "1"}, {"a": 1}),
    (FalseFriends("1"), {"ticket": "1", "result_type": "mine", "meta": "mine"}, {}),
    (Tagged("1"), {"ticket": "1"}, {}),
    (Empty(), {}, {}),
]


@pytest.mark.parametrize(("result", "members", "told"), RESULTS_OF, ids=lambda one: type(one).__name__)
async def test_every_type_of_results_works(result: Struct, members: dict[str, Any], told: dict[str, Any]) -> None:
    extension = Extension(
        name=NAME,
        methods=(Row("com.example/gives", AskParams, type(result), since=R2026_07),),
        results={"given": type(result)},
    )
    server = Server("x", version="1", extensions=[extension])
    stamp = {"io.modelcontextprotocol/serverInfo": {"name": "x", "version": "1"}}

    @server.tool
    def tool() -> Any:
        return result

    @server.method("com.example/gives")
    def gives(params: AskParams, ctx: Context) -> Any:
        return result

    async with calling(server, R2026_07, **DECLARED) as calls:
        assert await calls.call("tool") == members | {"resultType": "given", "_meta": stamp | told}
        answer = await calls.ask("com.example/gives", text="x")
        assert answer["result"] == members | {"resultType": "given", "_meta": stamp | told}


class Untold(Struct, omit_defaults=True, rename="camel"):
    result_type: str = "given"


class Listed(Struct, array_like=True):
    ticket: str


@pytest.mark.parametrize(
    ("kind", "result", "why"),
    [
        ("other", WithType, "its result_type is 'given'"),
        ("other", Tagged, "its tag is 'given'"),
        ("given", Untold, "omit_defaults leaves it out"),
        ("given", Listed, "an array"),
    ],
)
def test_a_type_that_would_not_tell_what_it_is(kind: str, result: type[Struct], why: str) -> None:
    with pytest.raises(LocalError, match=f"cannot be a result of the type '{kind}': .*{why}"):
        Extension(name=NAME, results={kind: result})


# -- notifications of an extension -----------------------------------------------------------------


@pytest.mark.parametrize("revision", [R2025_11, R2026_07], ids=lambda one: one.date)
@pytest.mark.parametrize("wire", ["memory", "http"])
async def test_a_function_notifies_its_caller(revision: Revision, wire: str) -> None:
    extension = Extension(name=NAME, methods=(Row("notifications/example/status", EchoParams, direction="server"),))
    server, heard, both = Server("x", extensions=[extension]), [], asyncio.Event()

    @server.tool
    async def awaits(ctx: Context) -> str:
        await ctx.rpc.notify("notifications/example/status", {"text": "awaited"})
        return "done"

    @server.tool
    def blocks(ctx: Context) -> str:
        ctx.rpc.notify("notifications/example/status", EchoParams("blocked"))
        return "done"

    def listen(method: str, params: dict[str, Any]) -> None:
        heard.append((method, params["text"]))
        if len(heard) == 2:
            both.set()

    async with serve(server, urls="http://127.0.0.1:0/mcp") as serving:
        target = server if wire == "memory" else serving.urls[0]
        async with Client(target, revision=revision, extensions=[extension], on_notification=listen) as client:
            for name in ("awaits", "blocks"):
                assert (await client.call_tool(name)).text == "done"
            await asyncio.wait_for(both.wait(), 20)  # they may come on another stream than the answers
    assert heard == [("notifications/example/status", "awaited"), ("notifications/example/status", "blocked")]


async def test_a_method_that_lasts_sends_ahead_of_its_answer_and_takes_no_place_of_a_call() -> None:
    class Lasting(ServerExtension):
        declares = Extension(name=NAME, methods=(Row("com.example/lasts", EchoParams, EchoResult, stream=True),))
        ends: asyncio.Event

        @property
        def handlers(self) -> Mapping[str, Callable[..., Any]]:
            return {"com.example/lasts": self.last}

        async def last(self, params: EchoParams, ctx: Context) -> EchoResult:
            await ctx.rpc.notify("com.example/said", {"text": params.text})
            await self.ends.wait()
            return EchoResult("over")

    lasting = Lasting()
    lasting.ends = asyncio.Event()
    app = Server("lasting", extensions=[lasting], limits=Limits(handler_timeout=0.05, calls=4))
    async with calling(app, R2026_07, **DECLARED) as calls:
        asking = [asyncio.create_task(calls.unchecked("com.example/lasts", text=str(one))) for one in range(20)]
        async with asyncio.timeout(20):
            while len(calls.told) < 20:  # noqa: ASYNC110  (nothing tells of it)
                await asyncio.sleep(0.002)
        await asyncio.sleep(0.1)  # beyond the time-out of other methods
        assert "result" in await calls.unchecked("tools/list")
        lasting.ends.set()
        assert {(await one)["result"]["said"] for one in asking} == {"over"}


@pytest.mark.parametrize(
    ("codes", "sent"), [(frozenset({-32015}), -32015), (frozenset({-32014}), -32603), ((), -32603)]
)
async def test_an_extension_defines_codes_that_the_protocol_reserves(codes: Any, sent: int) -> None:
    class Failing(ServerExtension):
        declares = Extension(
            name=NAME, methods=(Row("com.example/fails", EchoParams, EchoResult, open=True),), codes=frozenset(codes)
        )

        @property
        def handlers(self) -> Mapping[str, Callable[..., Any]]:
            return {"com.example/fails": self.fail}

        async def fail(self, params: EchoParams, ctx: Context) -> EchoResult:
            raise RpcError("no", {"reason": "so"}, code=-32015)

    app = Server("failing", extensions=[Failing()])

    @app.tool
    def fails() -> None:
        raise RpcError("no", code=-32015)

    async with calling(app, R2026_07) as calls:
        error = (await calls.unchecked("com.example/fails", text="x"))["error"]
        assert (error["code"], error["data"]) == (sent, {"reason": "so"})
        assert (await calls.unchecked("tools/call", name="fails"))["error"][
            "code"
        ] == -32603  # its own functions have not


@pytest.mark.parametrize("code", [-32602, -32021, -32700, 1])
def test_an_extension_defines_no_code_of_the_protocol(code: int) -> None:
    with pytest.raises(LocalError, match="leave it out of codes"):
        Extension(name=NAME, codes=frozenset({code}))
