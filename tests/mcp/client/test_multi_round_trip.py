"""What a server asks within a call, in both eras: basic/patterns/mrtr, client/elicitation, client/sampling,
client/roots."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from dragoman.jsonrpc.errors import BadAnswer, CallTimeout, LocalError, RpcError
from dragoman.mcp.client.client import Client
from dragoman.mcp.client.handlers import Declined
from dragoman.mcp.protocol.params import (
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequestParams,
    ElicitResult,
)
from dragoman.mcp.protocol.types import Root, TextContent
from tests.transports.http.cases import PATIENCE

from ..scripted import META, Error, Message, Result, Scripted, initialized, legacy, modern, said

FORM = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": {"type": "string", "enum": ["active", "inactive"], "default": "active"},
        "verified": {"type": "boolean", "default": True},
        "nickname": {"type": "string"},
    },
    "required": ["name"],
}
DEFAULTS = {"name": "John Doe", "age": 30, "score": 95.5, "status": "active", "verified": True}
MESSAGES = [{"role": "user", "content": {"type": "text", "text": "capital of France?"}}]


def elicit(schema: Any = FORM, **members: Any) -> Message:
    return {"method": "elicitation/create", "params": {"message": "who?", "requestedSchema": schema, **members}}


def sample(**members: Any) -> Message:
    return {"method": "sampling/createMessage", "params": {"messages": MESSAGES, "maxTokens": 9, **members}}


ROOTS: Message = {"method": "roots/list"}


def required(requests: Any = None, state: Any = None, **members: Any) -> Result:
    """`input_required`."""
    given = {} if requests is None else {"inputRequests": requests}
    stated = {} if state is None else {"requestState": state}
    return Result({"resultType": "input_required", **given, **stated, **members})


def asks(*answers: Any) -> Scripted:
    """A stateless server that answers the calls by these, one after the other."""
    left = iter(answers)
    return modern(lambda message: [next(left)] if "id" in message else [])


def asks_by_request(question: Message) -> Scripted:
    """A stateful server whose tool asks first; the tool's result has the whole answer as its text."""
    calls: list[Message] = []

    def answers(message: Message) -> Iterable[Any]:
        if message.get("method") == "tools/call":
            calls.append(message)
            yield {"jsonrpc": "2.0", "id": "q-1", **question}
        elif message.get("id") == "q-1":
            server.say(said(json.dumps(message.get("result", message.get("error")))), calls[0])

    server = legacy(answers)
    return server


Asked = Callable[[Message, dict[str, Any]], Any]


async def by_request(question: Message, **handlers: Any) -> Any:
    """The answer of a client with these handlers to a question of the stateful era."""
    async with Client(asks_by_request(question), **handlers) as client:
        result = await client.call_tool("t")
        assert isinstance(result.content[0], TextContent)
        return json.loads(result.content[0].text)


async def by_round(question: Message, **handlers: Any) -> Any:
    """The same in the stateless era."""
    server = asks(required({"k": question}), said("done"))
    async with Client(server, **handlers) as client:
        await client.call_tool("t")
    return server.of("tools/call")[1]["params"]["inputResponses"]["k"]


both = pytest.mark.parametrize("ask", [by_request, by_round])


# -- the handlers, alike in both eras


@both
async def test_a_form_is_accepted_with_its_defaults(ask: Any) -> None:
    """client/elicitation: "Clients that support defaults SHOULD pre-populate form fields with these values"."""
    seen: list[ElicitRequestParams] = []

    async def answer(asked: ElicitRequestParams) -> ElicitResult:
        seen.append(asked)
        return ElicitResult(action="accept", content={})

    assert await ask(elicit(), on_elicit=answer) == {"action": "accept", "content": DEFAULTS}
    assert seen[0].message == "who?"
    assert seen[0].requested_schema == FORM


@both
@pytest.mark.parametrize(
    ("given", "answered"),
    [
        ({"name": "Ada", "age": 36}, {"action": "accept", "content": DEFAULTS | {"name": "Ada", "age": 36}}),
        (True, {"action": "accept", "content": DEFAULTS}),
        (False, {"action": "decline"}),
        (None, {"action": "cancel"}),
        (ElicitResult(action="decline", content={"name": "x"}), {"action": "decline"}),
    ],
)
async def test_what_a_function_may_answer_to_a_form(ask: Any, given: Any, answered: Any) -> None:
    """client/elicitation, Response Actions. A plain function runs in a thread of its own."""
    assert await ask(elicit(), on_elicit=lambda asked: given) == answered


@both
async def test_form_mode_may_be_said(ask: Any) -> None:
    assert (await ask(elicit(mode="form"), on_elicit=lambda asked: True))["action"] == "accept"


@both
async def test_a_url_is_consented_to(ask: Any) -> None:
    """client/elicitation: "For URL mode: The `content` field is omitted"."""
    asked: list[ElicitRequestParams] = []

    def answer(params: ElicitRequestParams) -> bool:
        asked.append(params)
        return True

    question = {
        "method": "elicitation/create",
        "params": {"mode": "url", "message": "go", "url": "https://example.com/a", "elicitationId": "e"},
    }
    assert await ask(question, on_elicit_url=answer) == {"action": "accept"}
    assert asked[0].url == "https://example.com/a"


@both
async def test_a_model_is_sampled(ask: Any) -> None:
    async def answer(asked: CreateMessageRequestParams) -> CreateMessageResult:
        assert asked.max_tokens == 9
        return CreateMessageResult(role="assistant", content=TextContent("Paris"), model="m", stop_reason="endTurn")

    expected = {
        "role": "assistant",
        "content": {"type": "text", "text": "Paris"},
        "model": "m",
        "stopReason": "endTurn",
    }
    assert await ask(sample(), on_sample=answer) == expected
    assert (await ask(sample(), on_sample=lambda asked: "Paris"))["content"] == {"type": "text", "text": "Paris"}


@both
async def test_roots_are_listed(ask: Any, tmp_path: Path) -> None:
    """client/roots: a root's `uri` "MUST be a `file://` URI"."""
    expected = {"roots": [{"uri": tmp_path.as_uri(), "name": tmp_path.name}, {"uri": "file:///x", "name": "X"}]}
    assert await ask(ROOTS, roots=[tmp_path, Root("file:///x", "X")]) == expected

    async def later() -> list[str]:
        return ["file:///y", "File:///Z"]

    assert await ask(ROOTS, roots=later) == {"roots": [{"uri": "file:///y"}, {"uri": "File:///Z"}]}


# -- the stateless era


async def test_a_retry_is_the_call_again_with_answers_and_state() -> None:
    """basic/patterns/mrtr, Client Requirements: new id, exact state, both only in the retry."""
    state = '\\u00e9\\ud83d\\ude00 \\/ \\"x\\"'  # as it stands in the JSON text
    raw = b'{"jsonrpc":"2.0","id":%d,"result":{"resultType":"input_required","requestState":"' + state.encode() + b'"}}'
    sent: list[Message] = []

    def answers(message: Message) -> Iterable[Any]:
        sent.append(message)
        if len(sent) == 1:
            return [required({"a": elicit(), "b": ROOTS}, "s1")]
        return [raw % message["id"]] if len(sent) == 2 else [said("done")]

    server = modern(answers)
    async with Client(server, on_elicit=lambda asked: {"name": "Ada"}, roots=["file:///r"]) as client:
        result = await client.call_tool("t", {"x": 1}, meta={"traceparent": "00-1"})
        assert isinstance(result.content[0], TextContent)
    first, second, third = (one["params"] for one in sent)
    assert len({one["id"] for one in sent}) == 3
    assert "requestState" not in first
    assert "inputResponses" not in first
    for one in (first, second, third):
        assert (one["name"], one["arguments"]) == ("t", {"x": 1})
        assert one["_meta"]["traceparent"] == "00-1"
    assert second["requestState"] == "s1"
    assert second["inputResponses"]["a"] == {"action": "accept", "content": DEFAULTS | {"name": "Ada"}}
    assert second["inputResponses"]["b"] == {"roots": [{"uri": "file:///r"}]}
    # "the client MUST echo back the exact value"; "the client MAY retry the original request immediately"
    assert b'"requestState":"' + state.encode() + b'"' in server.raw[-1]
    assert "inputResponses" not in third


async def test_without_a_state_none_is_sent() -> None:
    """ "If the `InputRequiredResult` does not contain a `requestState` field, the client MUST NOT include one"."""
    server = asks(required({"a": ROOTS}, "s1"), required({"b": ROOTS}), said("done"))
    async with Client(server, roots=[]) as client:
        await client.call_tool("t")
    second, third = server.of("tools/call")[1:]
    assert second["params"]["requestState"] == "s1"
    assert "requestState" not in third["params"]
    assert set(third["params"]["inputResponses"]) == {"b"}


async def test_what_is_asked_touches_no_other_call() -> None:
    """ "They MUST NOT be used for any other request that the client may be sending in parallel"."""
    release = asyncio.Event()

    async def slow(asked: ElicitRequestParams) -> bool:
        await release.wait()
        return True

    def answers(message: Message) -> Iterable[Any]:
        params = message["params"]
        if params["name"] == "asks" and "requestState" not in params:
            return [required({"a": elicit()}, "s")]
        return [said(json.dumps(sorted(params)))]

    async with Client(modern(answers), on_elicit=slow) as client:
        asking = asyncio.ensure_future(client.call_tool("asks"))
        other = await client.call_tool("other")
        release.set()
        await asking
    assert isinstance(other.content[0], TextContent)
    assert other.content[0].text == '["_meta", "name"]'


async def test_prompts_and_resources_may_ask_and_what_they_say_then_is_not_kept() -> None:
    """basic/patterns/mrtr, Supported Requests; server/utilities/caching: "MUST NOT be cached"."""

    def answers(message: Message) -> Iterable[Any]:
        if "inputResponses" not in message["params"]:
            return [required({"a": ROOTS})]
        if message["method"] == "prompts/get":
            return [Result({"resultType": "complete", "messages": []})]
        contents = [{"uri": "x:y", "text": "z"}]
        return [Result({"resultType": "complete", "contents": contents, "ttlMs": 60000, "cacheScope": "public"})]

    server = modern(answers)
    async with Client(server, roots=[]) as client:
        assert (await client.get_prompt("p")).messages == []
        for _ in range(2):
            assert (await client.read_resource("x:y")).contents[0].text == "z"
    assert len(server.of("resources/read")) == 4


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (required({"a": {"method": "tools/list"}}), "no server may ask"),
        (required(), "without inputRequests and without requestState"),
        (required(state=5), "requestState is not a string"),
        (Result({"resultType": "unheard_of", "content": []}), "'unheard_of' is not known"),
        (Result({"resultType": 5, "content": []}), "cannot be read"),
        (Result({"resultType": "complete"}), "does not fit"),
        (Result([]), "cannot be read"),
        (required({"a": elicit("no schema")}), "requestedSchema"),
        (required({"a": elicit(mode="url", url="https://e.com")}), "not declared"),
        (required({"a": {"method": "elicitation/create"}}), "asks wrongly"),
        (required({"a": sample()}), "was not declared"),
    ],
)
async def test_a_server_that_asks_wrongly_fails_its_call(answer: Result, why: str) -> None:
    """basic/index: "A `resultType` of any value unrecognized by the client MUST be considered invalid"."""
    async with Client(asks(answer), on_elicit=lambda asked: True) as client:
        with pytest.raises(BadAnswer, match=why):
            await client.call_tool("t")


async def test_a_server_that_asks_without_end_is_stopped() -> None:
    server = asks(*[required({"a": ROOTS}, "s")] * 9)
    async with Client(server, roots=[], rounds=4) as client:
        with pytest.raises(BadAnswer, match="still asks after 4 rounds"):
            await client.call_tool("t")
    assert len(server.of("tools/call")) == 5


async def test_nothing_else_may_ask() -> None:
    """ "Servers MUST NOT send `InputRequiredResult` responses on any other client requests"."""
    async with Client(asks(required({"a": ROOTS})), roots=[]) as client:
        with pytest.raises(BadAnswer, match="must not ask here"):
            await client.list_tools()


async def test_an_absent_result_type_is_complete() -> None:
    """basic/index: "clients MUST treat an absent `resultType` as "complete" "."""
    async with Client(asks(Result({"content": []}))) as client:
        assert (await client.call_tool("t")).content == []


async def test_a_declined_sampling_ends_the_call() -> None:
    """client/sampling: "the client does not need to replay the initial call with an error message"."""
    server = asks(required({"a": sample()}))
    async with Client(server, on_sample=lambda asked: None) as client:
        with pytest.raises(Declined, match="rejected"):
            await client.call_tool("t")
    assert len(server.of("tools/call")) == 1


async def test_an_answer_that_does_not_fit_the_form_is_not_sent() -> None:
    """client/elicitation: "Clients SHOULD validate all responses against the provided schema"."""
    server = asks(required({"a": elicit()}))
    async with Client(server, on_elicit=lambda asked: {"age": "old", "status": "asleep"}) as client:
        with pytest.raises(LocalError, match=r"age.*status"):
            await client.call_tool("t")


async def test_what_a_handler_raises_comes_out_of_the_call() -> None:
    def fails(asked: ElicitRequestParams) -> bool:
        raise ZeroDivisionError

    async with Client(asks(required({"a": elicit()})), on_elicit=fails) as client:
        with pytest.raises(ZeroDivisionError):
            await client.call_tool("t")


# -- what is declared


@pytest.mark.parametrize(
    ("handlers", "stateless", "newest", "older"),
    [
        ({}, {}, {}, {}),
        ({"on_elicit": bool}, {"elicitation": {"form": {}}}, {"elicitation": {"form": {}}}, {"elicitation": {}}),
        ({"on_elicit_url": bool}, {"elicitation": {"url": {}}}, {"elicitation": {"url": {}}}, {}),
        ({"on_sample": str}, {"sampling": {}}, {"sampling": {}}, {"sampling": {}}),
        ({"on_sample": str, "sample_tools": True}, *[{"sampling": {"tools": {}}}] * 2, {"sampling": {}}),
        ({"roots": []}, {"roots": {}}, {"roots": {"listChanged": True}}, {"roots": {"listChanged": True}}),
    ],
)
async def test_what_is_declared_follows_from_the_handlers(
    handlers: dict[str, Any], stateless: Any, newest: Any, older: Any
) -> None:
    """client/elicitation, client/sampling and client/roots, Capabilities, of each revision."""
    server = modern()
    async with Client(server, **handlers):
        assert server.heard[0]["params"]["_meta"][f"{META}clientCapabilities"] == stateless
    for version, declared in (("2025-11-25", newest), ("2025-06-18", older)):
        server = legacy(version=version)
        async with Client(server, revision=version, **handlers):
            assert server.heard[0]["params"]["capabilities"] == declared


# -- the stateful era


@pytest.mark.parametrize(
    ("question", "code"),
    [
        (elicit(), -32601),
        (sample(), -32601),
        (ROOTS, -32601),
        ({"method": "tools/list"}, -32601),
        ({"method": "x"}, -32601),
    ],
)
async def test_what_is_not_declared_is_refused(question: Message, code: int) -> None:
    """client/roots, Error Handling: "Client does not support roots: -32601 (Method not found)"."""
    assert (await by_request(question))["code"] == code


@pytest.mark.parametrize(
    ("question", "handlers", "code"),
    [
        # client/elicitation: "with a mode not declared in client capabilities: -32602"
        (elicit(mode="url", url="https://example.com"), {"on_elicit": bool}, -32602),
        (elicit(), {"on_elicit_url": bool}, -32602),
        ({"method": "elicitation/create"}, {"on_elicit": bool}, -32602),
        # client/sampling: "User rejected sampling request: -1"
        (sample(), {"on_sample": lambda asked: None}, -1),
        # "The client MUST return an error if this field is provided but `sampling.tools` is not declared"
        (sample(tools=[]), {"on_sample": lambda asked: "x"}, -32602),
        (sample(toolChoice={"mode": "auto"}), {"on_sample": lambda asked: "x"}, -32602),
    ],
)
async def test_what_cannot_be_answered_is_refused(question: Message, handlers: dict[str, Any], code: int) -> None:
    assert (await by_request(question, **handlers))["code"] == code


USE = {"type": "tool_use", "id": "u", "name": "t", "input": {}}
RESULT = {"type": "tool_result", "toolUseId": "u", "content": []}
TEXT = {"type": "text", "text": "x"}


@pytest.mark.parametrize(
    ("contents", "fine"),
    [
        ([TEXT, [USE], [RESULT]], True),
        ([TEXT, [TEXT, USE], [RESULT], TEXT], True),
        ([TEXT, [USE], TEXT], False),  # "Tool result missing in request: -32602"
        ([TEXT, [USE]], False),
        ([TEXT, [USE], [RESULT, TEXT]], False),  # "Tool results mixed with other content: -32602"
        ([[RESULT]], False),
    ],
)
async def test_tool_calls_and_results_are_balanced(contents: list[Any], fine: bool) -> None:
    """client/sampling, Message Content Constraints."""
    roles = ["user", "assistant"]
    messages = [{"role": roles[place % 2], "content": content} for place, content in enumerate(contents)]
    found = await by_request(sample(messages=messages), on_sample=lambda asked: "x", sample_tools=True)
    assert found.get("code") == (None if fine else -32602)


async def test_what_a_handler_raises_is_masked() -> None:
    def fails(asked: ElicitRequestParams) -> bool:
        raise ZeroDivisionError("secret")

    found = await by_request(elicit(), on_elicit=fails)
    assert found["code"] == -32603
    assert "secret" not in json.dumps(found)


async def test_a_ping_is_answered() -> None:
    """basic/utilities/ping: "The receiver MUST respond promptly with an empty response"."""
    assert await by_request({"method": "ping"}) == {}


async def test_what_is_asked_right_after_the_handshake_is_answered() -> None:
    """basic/lifecycle: after `initialized` the server may ask, be the client's own words still on their way."""

    def script(message: Message) -> Iterable[Any]:
        if message.get("method") == "initialize":
            yield initialized()
        elif message.get("method") == "notifications/initialized":
            yield {"jsonrpc": "2.0", "id": "early", "method": "roots/list"}
        elif message.get("id") == "early":
            answered.append(message)
        elif "id" in message:
            yield Result({})

    answered: list[Message] = []
    async with Client(Scripted(script), revision="2025-11-25", roots=["file:///a"]) as client:
        await client.ping()
        await client.ping()
    assert answered[0]["result"] == {"roots": [{"uri": "file:///a"}]}


async def test_a_stateless_server_gets_no_response() -> None:
    """basic/transports/stdio: "The client MUST NOT write JSON-RPC responses"."""

    def answers(message: Message) -> Iterable[Any]:
        return [{"jsonrpc": "2.0", "id": 7, "method": "ping"}, b"nonsense", said("done")]

    server = modern(answers)
    async with Client(server) as client:
        await client.call_tool("t")
        await client.call_tool("t")
    assert all("method" in one for one in server.heard)


async def test_new_roots_are_told() -> None:
    """client/roots: "clients that support `listChanged` MUST send a notification" (stateful revisions)."""
    server = legacy()
    async with Client(server, roots=["file:///a"]) as client:
        await client.set_roots(["file:///b"])
        await asyncio.sleep(0)
        assert server.methods()[-1] == "notifications/roots/list_changed"
    async with Client(legacy()) as client:
        with pytest.raises(LocalError):
            await client.set_roots([])


# -- the error that sends to a URL


def url_required(*ids: str) -> Error:
    asked = [{"mode": "url", "elicitationId": id, "url": f"https://example.com/{id}", "message": "go"} for id in ids]
    return Error(-32042, "first", {"elicitations": asked})


async def test_a_call_that_sends_to_a_url_is_made_again_when_the_user_was_there() -> None:
    """2025-11-25's client/elicitation: clients "MAY wait for this notification to automatically retry requests"."""
    told: list[str] = []

    def answers(message: Message) -> Iterable[Any]:
        return [said("done")] if told else [url_required("a", "b")]

    def consent(asked: ElicitRequestParams) -> bool:
        assert asked.elicitation_id is not None
        told.append(str(asked.elicitation_id))
        if len(told) == 2:
            for id in ("unknown", "a", "a", "b"):
                note = {
                    "jsonrpc": "2.0",
                    "method": "notifications/elicitation/complete",
                    "params": {"elicitationId": id},
                }
                loop.call_soon_threadsafe(server.say, note)
        return True

    server = legacy(answers)
    loop = asyncio.get_running_loop()
    async with Client(server, on_elicit_url=consent) as client:
        await client.call_tool("t")
    assert told == ["a", "b"]
    assert len(server.of("tools/call")) == 2


COMPLETE = {"jsonrpc": "2.0", "method": "notifications/elicitation/complete", "params": {"elicitationId": "a"}}


@pytest.mark.parametrize("before", [0, 150])
async def test_the_end_of_an_errand_may_overtake_the_error_that_names_it(before: int) -> None:
    """What is remembered of errands that are not known is bounded: the newest are."""

    def answers(message: Message) -> Iterable[Any]:
        if len(server.of("tools/call")) > 1:
            return [said("done")]
        others = [COMPLETE | {"params": {"elicitationId": f"other {n}"}} for n in range(before)]
        return [*others, COMPLETE, url_required("a")]

    server = legacy(answers)
    async with Client(server, on_elicit_url=lambda asked: True) as client:
        async with asyncio.timeout(PATIENCE):
            assert (await client.call_tool("t", timeout=None)).text == "done"


async def test_the_end_of_an_errand_is_optional() -> None:
    """ "Servers MAY send" it: the call is made again when its time-out has passed without."""

    def answers(message: Message) -> Iterable[Any]:
        return [said("done")] if len(server.of("tools/call")) > 1 else [url_required("a")]

    server = legacy(answers)
    async with Client(server, on_elicit_url=lambda asked: True) as client:
        async with asyncio.timeout(PATIENCE):
            assert (await client.call_tool("t", timeout=0.5)).text == "done"
    still = legacy(lambda message: [url_required("a")])
    async with Client(still, on_elicit_url=lambda asked: True, timeout=0.5) as client:
        with pytest.raises(RpcError) as caught:
            await client.get_prompt("t")
    assert caught.value.code == -32042
    assert len(still.of("prompts/get")) == 2


async def test_an_errand_takes_no_longer_than_the_call_may_in_all() -> None:
    async def never(asked: ElicitRequestParams) -> bool:
        await asyncio.Event().wait()
        return True

    async with Client(legacy(lambda message: [url_required("a")]), on_elicit_url=never) as client:
        with pytest.raises(CallTimeout, match=r"0\.02 s in all"):
            await client.call_tool("t", total=0.02)


@pytest.mark.parametrize("handlers", [{}, {"on_elicit_url": lambda asked: False}])
async def test_a_client_that_does_not_open_the_url_gets_the_error(handlers: dict[str, Any]) -> None:
    async with Client(legacy(lambda message: [url_required("a")]), **handlers) as client:
        with pytest.raises(RpcError) as caught:
            await client.call_tool("t")
    assert caught.value.code == -32042
