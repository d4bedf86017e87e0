"""How a handler asks: by calls where the server may call, by `input_required` where it may not."""

from __future__ import annotations

import asyncio
import json
import logging
from enum import Enum
from typing import Any

import pytest
from msgspec import Struct

from dragoman import BadAnswer, CallTimeout, LocalError, RpcError
from dragoman.jsonrpc.limits import CLIENT, SERVER
from dragoman.mcp.asking.ask import QuestionFailed, completed, require_url
from dragoman.mcp.asking.forms import CannotAsk
from dragoman.mcp.asking.questions import Elicit, Elicited, ElicitUrl, Roots, Sample, known_in
from dragoman.mcp.protocol.encoding import encode
from dragoman.mcp.protocol.revisions import R2024_11, R2025_03, R2025_06, R2025_11, R2026_07, REVISIONS, Revision
from dragoman.mcp.protocol.types import (
    ImageContent,
    SamplingMessage,
    TextContent,
    Tool,
    ToolResultContent,
    ToolUseContent,
)
from dragoman.mcp.server.context import Context
from dragoman.mcp.server.server import Server
from dragoman.transports.memory import pair
from tests.behind import behind

from ..asking_server import EVERY, KEY, Asker, Stand, Wire, meta, request, text
from ..calling import calling, conforms
from ..schemas import needs_schemas

NAME = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


class Person(Struct):
    """The form that we ask for."""

    name: str
    age: int = 0


class Size(Enum):
    """A choice."""

    SMALL = "s"
    BIG = "b"


class Clock:
    """A wall clock that is ours to turn."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def accept(**content: Any) -> dict[str, Any]:
    return {"action": "accept", "content": content}


def sampled(words: str = "Paris") -> dict[str, Any]:
    return {"role": "assistant", "content": {"type": "text", "text": words}, "model": "m"}


def retry(answer: Any, responses: Any = None, *, id: int = 2, **more: Any) -> dict[str, Any]:
    """The same request again, with the state it was given."""
    state = answer["result"]["requestState"]
    return request(more.pop("name", "tool"), id=id, requestState=state, inputResponses=responses or {}, **more)


def serving(function: Any, **options: Any) -> Stand:
    """A server with this one tool."""
    stand = Stand(**options)
    function.__name__ = "tool"
    stand.tool(function)
    return stand


async def greet(ctx: Asker) -> str:
    (who,) = await ctx.ask(Elicit("Who are you?", Person, key="user_name"))
    return f"Hello, {who.content.name}!" if who.accepted else f"No: {who.action}"


# -- where the client asks again (2026-07-28, basic/patterns/mrtr) ---------------------------------


async def test_the_first_run_ends_with_the_question_and_the_second_with_the_answer() -> None:
    stand = serving(greet)
    first = await stand.call(request("tool"))
    result = first["result"]
    assert result["resultType"] == "input_required"
    asked = result["inputRequests"]["user_name"]
    assert asked["method"] == "elicitation/create"
    assert asked["params"]["message"] == "Who are you?"
    assert asked["params"]["mode"] == "form"
    assert asked["params"]["requestedSchema"]["required"] == ["name"]
    assert isinstance(result["requestState"], str)
    second = await stand.call(retry(first, {"user_name": accept(name="Alice")}))
    assert second["result"]["resultType"] == "complete"
    assert text(second) == "Hello, Alice!"


@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_the_user_may_decline(action: str) -> None:
    """client/elicitation: "MUST handle cases where the user declines or cancels"."""
    stand = serving(greet)
    first = await stand.call(request("tool"))
    assert text(await stand.call(retry(first, {"user_name": {"action": action}}))) == f"No: {action}"


@pytest.mark.parametrize(
    "responses",
    [
        {},
        {"wrong_key": accept(name="x")},
        {"user_name": 12345},
        {"user_name": None},
        {"user_name": {"action": "maybe"}},
        {"user_name": {"action": "accept"}},
        {"user_name": accept(age=1)},
        {"user_name": accept(name=1)},
        {"user_name": sampled()},
    ],
)
async def test_what_is_missing_or_does_not_fit_is_asked_again(responses: Any) -> None:
    """ "the server SHOULD respond with a new `InputRequiredResult` requesting the missing information again"."""
    stand = serving(greet)
    first = await stand.call(request("tool"))
    second = await stand.call(retry(first, responses))
    assert second["result"]["resultType"] == "input_required"
    assert list(second["result"]["inputRequests"]) == ["user_name"]
    assert second["result"]["requestState"] != first["result"]["requestState"]
    assert text(await stand.call(retry(second, {"user_name": accept(name="Bob")}))) == "Hello, Bob!"


async def test_an_answer_without_a_question_is_ignored() -> None:
    """ "If additional, unexpected parameters are provided [...] the server SHOULD ignore"."""
    stand = serving(greet)
    first = await stand.call(request("tool"))
    responses = {"user_name": accept(name="Alice", x=[1]), "extra": 5}
    assert text(await stand.call(retry(first, responses))) == "Hello, Alice!"


async def test_an_answer_may_come_without_the_state() -> None:
    stand = serving(greet)
    assert (
        text(await stand.call(request("tool", inputResponses={"user_name": accept(name="Alice")}))) == "Hello, Alice!"
    )


async def test_several_rounds() -> None:
    """The state changes between the rounds and holds what was answered in them."""
    runs = []

    async def steps(ctx: Asker) -> Any:
        runs.append(1)
        (one,) = await ctx.ask(Elicit("Name?", Person))
        (two,) = await ctx.ask(Elicit(f"Color of {one.content.name}?", str))
        (three,) = await ctx.ask(Roots())
        return [one.content.name, two.content, three[0].uri]

    stand = serving(steps)
    first = await stand.call(request("tool"))
    (key,) = first["result"]["inputRequests"]
    assert key.startswith("q1-")
    second = await stand.call(retry(first, {key: accept(name="Ann")}))
    (key2,) = second["result"]["inputRequests"]
    assert key2.startswith("q2-")
    third = await stand.call(retry(second, {key2: accept(value="red")}))
    (key3,) = third["result"]["inputRequests"]
    assert third["result"]["inputRequests"][key3] == {"method": "roots/list", "params": {}}
    last = await stand.call(retry(third, {key3: {"roots": [{"uri": "file:///a"}]}}))
    assert json.loads(text(last)) == ["Ann", "red", "file:///a"]
    assert len(runs) == 4
    states = [one["result"]["requestState"] for one in (first, second, third)]
    assert len(set(states)) == 3


async def test_several_questions_at_once() -> None:
    async def many(ctx: Asker) -> Any:
        name, words, roots = await ctx.ask(
            Elicit("Name?", NAME, key="user_name"),
            Sample(messages="Greet!", max_tokens=50, key="greeting"),
            Roots(key="client_roots"),
        )
        return [name.content, words.content.text, len(roots)]

    stand = serving(many)
    first = await stand.call(request("tool"))
    asked = first["result"]["inputRequests"]
    assert list(asked) == ["user_name", "greeting", "client_roots"]
    assert asked["user_name"]["params"]["requestedSchema"] == NAME
    assert asked["greeting"] == {
        "method": "sampling/createMessage",
        "params": {"messages": [{"role": "user", "content": {"type": "text", "text": "Greet!"}}], "maxTokens": 50},
    }
    second = await stand.call(retry(first, {"user_name": accept(name="Ann"), "client_roots": {"roots": []}}))
    assert list(second["result"]["inputRequests"]) == ["greeting"]  # what came in time is kept
    last = await stand.call(retry(second, {"greeting": sampled("Hi")}))
    assert json.loads(text(last)) == [{"name": "Ann"}, "Hi", 0]


async def test_a_model_is_asked_with_a_text_alone_and_answers_with_text() -> None:
    async def greets(ctx: Asker) -> str:
        (answer,) = await ctx.ask(Sample(messages="Greet!", key="greeting"))
        return str(answer.text)

    stand = serving(greets)
    first = await stand.call(request("tool"))
    assert first["result"]["inputRequests"]["greeting"]["params"]["maxTokens"] == 512
    image = {"type": "image", "data": "AAAA", "mimeType": "image/png"}
    blocks = [{"type": "text", "text": "Hello"}, image, {"type": "text", "text": "and welcome"}]
    last = await stand.call(retry(first, {"greeting": sampled() | {"content": blocks}}))
    assert text(last) == "Hello\nand welcome"


async def test_a_handler_cannot_swallow_it() -> None:
    async def careless(ctx: Asker) -> str:
        try:
            await ctx.ask(Roots())
        except Exception:
            return "swallowed"
        return "answered"

    first = await serving(careless).call(request("tool"))
    assert first["result"]["resultType"] == "input_required"


async def test_a_plain_function_asks_without_waiting() -> None:
    def plain(ctx: Asker) -> Any:
        (who,) = ctx.ask_blocking(Elicit("Name?", NAME, key="n"))
        return who.content

    stand = serving(plain)
    first = await stand.call(request("tool"))
    assert first["result"]["resultType"] == "input_required"
    assert json.loads(text(await stand.call(retry(first, {"n": accept(name="Ann")})))) == {"name": "Ann"}


async def test_it_comes_out_of_a_group_of_tasks() -> None:
    async def grouped(ctx: Asker) -> Any:
        async with asyncio.TaskGroup() as group:
            one = group.create_task(ctx.ask(Elicit("One?", str, key="one")))
            two = group.create_task(ctx.ask(Elicit("Two?", str, key="two")))
        return [one.result()[0].content, two.result()[0].content]

    stand = serving(grouped)
    answer = await stand.call(request("tool"))
    for round in range(2):
        (key,) = answer["result"]["inputRequests"]
        answer = await stand.call(retry(answer, {key: accept(value=key)}, id=2 + round))
    assert json.loads(text(answer)) == ["one", "two"]


async def test_two_questions_need_two_keys() -> None:
    async def twice(ctx: Asker) -> Any:
        await ctx.ask(Roots(key="a"), Roots(key="a"))

    with pytest.raises(LocalError, match="'a'"):
        async with _asker() as ctx:
            await twice(ctx)


class _asker:
    """An Asker outside of a call, for what is raised at the author."""

    async def __aenter__(self) -> Asker:
        from dragoman.jsonrpc.messages import Request
        from dragoman.mcp.protocol.admission import EVERYTHING, admit
        from dragoman.rpc.context import Context
        from dragoman.rpc.dispatch import HERE, InlineCall

        raw = json.dumps(request("tool")["params"]).encode()
        import msgspec

        message = Request("tools/call", msgspec.Raw(raw), 1)
        admitted = admit(message, None, EVERYTHING)
        assert admitted is not None
        nowhere = InlineCall(HERE)
        admitted.surroundings = Stand()
        return Asker(Context(message, nowhere, "async"), admitted)

    async def __aexit__(self, *_: object) -> None: ...


async def test_a_question_that_changed_is_asked_anew_and_the_log_says_so(caplog: pytest.LogCaptureFixture) -> None:
    words = ["First?", "Another?", "Another?"]

    async def fickle(ctx: Asker) -> Any:
        (who,) = await ctx.ask(Elicit(words.pop(0), NAME, key="n"))
        return who.content["name"]

    stand = serving(fickle)
    first = await stand.call(request("tool"))
    with caplog.at_level(logging.WARNING, "dragoman.mcp"):
        second = await stand.call(retry(first, {"n": accept(name="to the first")}))
    assert second["result"]["inputRequests"]["n"]["params"]["message"] == "Another?"
    assert "tools/call tool asks n before what was answered already (n)" in caplog.text
    assert text(await stand.call(retry(second, {"n": accept(name="to the second")}))) == "to the second"


async def test_a_question_put_before_known_ones_is_told_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    early = [False, True, True]

    async def fickle(ctx: Asker) -> Any:
        if early.pop(0):
            await ctx.ask(Elicit("Early?", str, key="early"))
        (who,) = await ctx.ask(Elicit("Name?", NAME, key="n"))
        return who.content["name"]

    stand = serving(fickle)
    first = await stand.call(request("tool"))
    with caplog.at_level(logging.WARNING, "dragoman.mcp"):
        second = await stand.call(retry(first, {"n": accept(name="Ann")}))
    assert "asks early before what was answered already (n)" in caplog.text
    assert list(second["result"]["inputRequests"]) == ["early"]


async def test_no_warning_where_a_handler_keeps_its_order(caplog: pytest.LogCaptureFixture) -> None:
    async def steady(ctx: Asker) -> str:
        for n in range(3):
            await ctx.ask(Elicit("More?", None), Elicit(f"Of {n}?", str))
        return "done"

    stand = serving(steady)
    with caplog.at_level(logging.WARNING, "dragoman.mcp"):
        answer = await stand.call(request("tool"))
        while answer["result"]["resultType"] == "input_required":
            answer = await stand.call(
                retry(answer, {key: accept(value="x") for key in answer["result"]["inputRequests"]})
            )
    assert text(answer) == "done"
    assert not caplog.records


# -- what comes back is an attacker's until it is verified -----------------------------------------


def refusal(answer: Any) -> Any:
    assert answer["error"]["code"] == -32602
    return answer["error"]["data"]["reason"]


async def test_a_state_that_was_changed_is_an_error() -> None:
    """ "MUST reject state that fails verification"."""
    stand = serving(greet)
    again = retry(await stand.call(request("tool")), {"user_name": accept(name="Eve")})
    again["params"]["requestState"] += "-TAMPERED"
    assert refusal(await stand.call(again)) == "tampered"


@pytest.mark.parametrize("state", [{}, {"requestState": "x"}], ids=["first", "again"])
async def test_a_number_that_no_double_holds_is_no_failure_of_the_server_s(
    state: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    message = json.dumps(request("tool", more="BIG", **state)).replace('"BIG"', "1e999")
    answer = await serving(greet).host.answer(message.encode())
    assert json.loads(answer or b"")["error"]["code"] == -32602
    assert not caplog.records


async def test_a_state_of_another_request_is_an_error() -> None:
    stand = serving(greet)
    stand.tools["other"] = stand.tools["tool"]
    first = await stand.call(request("tool"))
    assert refusal(await stand.call(retry(first, name="other"))) == "mismatched"
    assert refusal(await stand.call(retry(first, arguments={"amount": 1_000_000}))) == "mismatched"


async def test_a_state_of_another_client_is_an_error() -> None:
    stand = serving(greet)
    stand.who = "ann"
    first = await stand.call(request("tool"))
    stand.who = "bob"
    assert refusal(await stand.call(retry(first, {"user_name": accept(name="x")}))) == "foreign"


async def test_a_state_that_expired_is_an_error() -> None:
    clock = Clock()
    stand = serving(greet, clock=clock, life=60)
    first = await stand.call(request("tool"))
    clock.now += 61
    assert refusal(await stand.call(retry(first, {"user_name": accept(name="x")}))) == "expired"


async def test_another_process_with_the_same_key_takes_it_up() -> None:
    """ "without requiring a shared storage layer across server instances"."""
    first = await serving(greet).call(request("tool"))
    assert text(await serving(greet).call(retry(first, {"user_name": accept(name="Ann")}))) == "Hello, Ann!"


@pytest.mark.parametrize("by", ["server", "question"])
async def test_once(by: str) -> None:
    """ "MUST enforce that invariant server-side"."""

    async def redeem(ctx: Asker) -> str:
        options: dict[str, Any] = {"once": True} if by == "question" else {}
        (sure,) = await ctx.ask(Elicit("Redeem?", None, key="sure"), **options)
        return sure.action if isinstance(sure.action, str) else ""

    stand = serving(redeem, once=by == "server")
    alone = await stand.call(request("tool", inputResponses={"sure": {"action": "accept"}}))
    assert alone["result"]["resultType"] == "input_required"  # an answer without the state cannot be counted
    again = retry(alone, {"sure": {"action": "accept"}})
    assert text(await stand.call(again)) == "accept"
    assert refusal(await stand.call(again)) == "used"


async def test_a_state_may_be_used_again_unless_once_is_set() -> None:
    stand = serving(greet)
    again = retry(await stand.call(request("tool")), {"user_name": accept(name="Ann")})
    assert text(await stand.call(again)) == text(await stand.call(again))


# -- what the client can --------------------------------------------------------------------------


def tool(name: str = "t") -> Tool:
    return Tool(name=name, input_schema={"type": "object"})


@pytest.mark.parametrize(
    ("questions", "declared", "required"),
    [
        ([Sample(messages="x", max_tokens=1)], {}, {"sampling": {}}),
        ([Sample(messages="x", max_tokens=1, tools=[tool()])], {"sampling": {}}, {"sampling": {"tools": {}}}),
        (
            [Sample(messages="x", max_tokens=1, include_context="thisServer")],
            {"sampling": {"tools": {}}},
            {"sampling": {"context": {}}},
        ),
        ([Elicit("x", None)], {"sampling": {}}, {"elicitation": {"form": {}}}),
        ([Elicit("x", None)], {"elicitation": {"url": {}}}, {"elicitation": {"form": {}}}),
        ([ElicitUrl("x", "https://a.b/")], {"elicitation": {}}, {"elicitation": {"url": {}}}),
        ([Roots()], {"elicitation": {}}, {"roots": {}}),
        (
            [Elicit("x", None), ElicitUrl("x", "https://a.b/"), Roots()],
            {},
            {"elicitation": {"form": {}, "url": {}}, "roots": {}},
        ),
    ],
)
async def test_what_was_not_declared_is_not_asked(questions: Any, declared: Any, required: Any) -> None:
    """ "Servers MUST NOT send an `inputRequests` that the client has not declared support for": -32021."""

    async def asks(ctx: Asker) -> Any:
        await ctx.ask(*questions)

    answer = await serving(asks).call(request("tool", capabilities=declared))
    assert answer["error"]["code"] == -32021
    assert answer["error"]["data"] == {"requiredCapabilities": required}


async def test_an_empty_elicitation_capability_means_forms() -> None:
    """client/elicitation: "an empty capabilities object is equivalent to declaring support for `form` mode only"."""
    answer = await serving(greet).call(request("tool", capabilities={"elicitation": {}}))
    assert answer["result"]["resultType"] == "input_required"


async def test_a_handler_may_go_on_without() -> None:
    async def polite(ctx: Asker) -> str:
        try:
            await ctx.ask(Sample(messages="x", max_tokens=1))
        except CannotAsk:
            return "alone, then"
        return ""

    assert text(await serving(polite).call(request("tool", capabilities={}))) == "alone, then"


# -- where the server calls -----------------------------------------------------------------------


async def asked_over(wire: Wire, method: str) -> Any:
    """The next message, which is this question."""
    message = await wire.next()
    assert message["method"] == method, message
    return message


def call(wire: Wire) -> None:
    wire.send({"id": "c", "method": "tools/call", "params": {"name": "tool", "arguments": {}}})


async def test_a_question_is_a_call() -> None:
    """2025-11-25, client/elicitation."""
    wire = serving(greet).wire(R2025_11)
    call(wire)
    asked = await asked_over(wire, "elicitation/create")
    assert asked["params"]["mode"] == "form"
    wire.send({"id": asked["id"], "result": accept(name="Ann")})
    assert text(await wire.next()) == "Hello, Ann!"


async def test_2025_06_has_no_modes() -> None:
    wire = serving(greet).wire(R2025_06, {"elicitation": {}})
    call(wire)
    asked = await asked_over(wire, "elicitation/create")
    assert set(asked["params"]) == {"message", "requestedSchema"}
    wire.send({"id": asked["id"], "result": {"action": "decline"}})
    assert text(await wire.next()) == "No: decline"


@pytest.mark.parametrize("blocking", [False, True])
async def test_several_questions_are_several_calls_at_once(blocking: bool) -> None:
    questions: Any = (Elicit("Name?", NAME), Sample(messages="Greet!", max_tokens=5), Roots())

    def plain(ctx: Asker) -> Any:
        name, words, roots = ctx.ask_blocking(*questions)
        return [name.content, words.content.text, len(roots)]

    async def many(ctx: Asker) -> Any:
        name, words, roots = await ctx.ask(*questions)
        return [name.content, words.content.text, len(roots)]

    wire = serving(plain if blocking else many).wire(R2025_11)
    call(wire)
    asked = [await wire.next() for _ in range(3)]
    results = {
        "elicitation/create": accept(name="Ann"),
        "sampling/createMessage": sampled("Hi"),
        "roots/list": {"roots": []},
    }
    for one in reversed(asked):
        wire.send({"id": one["id"], "result": results[one["method"]]})
    assert json.loads(text(await wire.next())) == [{"name": "Ann"}, "Hi", 0]


async def test_a_form_that_does_not_fit_is_shown_again_and_not_for_ever(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    errors: list[BaseException] = []

    async def asks(ctx: Asker) -> Any:
        try:
            return (await ctx.ask(Elicit("Name?", Person)))[0].content.name
        except BadAnswer as error:
            errors.append(error)
            return "gave up"

    stand = serving(asks)
    wire = stand.wire(R2025_11)
    call(wire)
    wire.send({"id": (await wire.next())["id"], "result": accept(name=1)})
    wire.send({"id": (await wire.next())["id"], "result": accept(name="Ann")})
    assert text(await wire.next()) == "Ann"
    assert [("asked again" in one.message, "name: " in one.message) for one in caplog.records] == [(True, True)]
    call(wire)
    for _ in range(3):
        wire.send({"id": (await wire.next())["id"], "result": accept(name=1, age="x")})
    assert text(await wire.next()) == "gave up"
    assert "name: " in str(errors[0])
    assert "age: " in str(errors[0])


@pytest.mark.parametrize("blocking", [False, True])
async def test_the_client_s_error_has_a_name(blocking: bool) -> None:
    """client/sampling, "Error Handling": -1, "User rejected sampling request"."""

    def plain(ctx: Asker) -> Any:
        try:
            ctx.ask_blocking(Sample(messages="x", max_tokens=1))
        except QuestionFailed as error:
            return error.error.code

    async def asks(ctx: Asker) -> Any:
        try:
            await ctx.ask(Sample(messages="x", max_tokens=1))
        except QuestionFailed as error:
            return error.error.code

    wire = serving(plain if blocking else asks).wire(R2025_11)
    call(wire)
    asked = await wire.next()
    wire.send({"id": asked["id"], "error": {"code": -1, "message": "User rejected sampling request"}})
    assert text(await wire.next()) == "-1"


async def test_the_client_s_error_is_not_ours() -> None:
    """Codes that a revision reserves are not handed on as if they were this server's."""

    async def asks(ctx: Asker) -> Any:
        await ctx.ask(Roots())

    wire = serving(asks).wire(R2025_11)
    call(wire)
    wire.send({"id": (await wire.next())["id"], "error": {"code": -32042, "message": "no"}})
    error = (await wire.next())["error"]
    assert error["code"] == -32603
    assert error["data"] == {"code": -32042, "message": "no"}


async def test_the_first_error_ends_the_others() -> None:
    async def asks(ctx: Asker) -> Any:
        try:
            await ctx.ask(Roots(), Sample(messages="x", max_tokens=1))
        except QuestionFailed:
            return "failed"

    wire = serving(asks).wire(R2025_11)
    call(wire)
    roots, sampling = await wire.next(), await wire.next()
    wire.send({"id": roots["id"], "error": {"code": -32603, "message": "no"}})
    rest = [await wire.next(), await wire.next()]
    told = next(one for one in rest if one.get("method") == "notifications/cancelled")
    assert told["params"]["requestId"] == sampling["id"]
    assert any("result" in one and text(one) == "failed" for one in rest)


async def test_a_question_has_a_time() -> None:
    async def asks(ctx: Asker) -> str:
        try:
            await ctx.ask(Roots(), timeout=0.01)
        except CallTimeout:
            return "there was no answer"
        return ""

    wire = serving(asks).wire(R2025_11)
    call(wire)
    await asked_over(wire, "roots/list")
    messages = [await wire.next(), await wire.next()]
    assert any(one.get("method") == "notifications/cancelled" for one in messages)
    assert any("result" in one and text(one) == "there was no answer" for one in messages)


@pytest.mark.parametrize(
    ("revision", "declared", "question"),
    [
        (R2025_11, {}, Roots()),
        (R2025_11, {"elicitation": {}}, ElicitUrl("x", "https://a.b/")),
        (R2025_06, {"elicitation": {"url": {}}}, ElicitUrl("x", "https://a.b/")),
        (R2025_06, {"sampling": {"tools": {}}}, Sample(messages="x", max_tokens=1, tools=[tool()])),
        (R2025_03, {"elicitation": {}}, Elicit("x", None)),
        (R2024_11, {}, Sample(messages="x", max_tokens=1)),
    ],
)
async def test_a_session_is_not_asked_what_it_did_not_declare(revision: Any, declared: Any, question: Any) -> None:
    """ "Servers MUST NOT send elicitation requests with modes that are not supported by the client"."""

    async def asks(ctx: Asker) -> Any:
        await ctx.ask(question)

    wire = serving(asks).wire(revision, declared)
    call(wire)
    answer = await wire.next()
    assert answer["error"]["code"] == -32600
    assert "client" in answer["error"]["message"]


@pytest.mark.parametrize(
    ("revision", "question", "name"),
    [
        (R2025_06, ElicitUrl("x", "https://a.b/"), "elicitation by URL"),
        (R2025_03, Elicit("x", None), "elicitation/create"),
    ],
)
async def test_a_question_that_a_revision_has_not_is_named(revision: Revision, question: Any, name: str) -> None:
    async def asks(ctx: Asker) -> Any:
        await ctx.ask(question)

    wire = serving(asks).wire(revision)
    call(wire)
    assert (await wire.next())["error"]["message"].endswith(f"has no {name}")


# -- URLs -----------------------------------------------------------------------------------------


async def test_a_url_2025_11() -> None:
    async def connect(ctx: Asker) -> str:
        (gone,) = await ctx.ask(ElicitUrl("Please connect.", "https://mcp.example.com/connect", id="e-1"))
        told = completed(ctx, "e-1")
        assert told is not None
        await told
        return str(gone.accepted)

    wire = serving(connect).wire(R2025_11)
    call(wire)
    asked = await asked_over(wire, "elicitation/create")
    url = "https://mcp.example.com/connect"
    assert asked["params"] == {"mode": "url", "elicitationId": "e-1", "url": url, "message": "Please connect."}
    wire.send({"id": asked["id"], "result": {"action": "accept"}})
    told = await wire.next()
    assert told["method"] == "notifications/elicitation/complete"
    assert told["params"] == {"elicitationId": "e-1"}
    assert text(await wire.next()) == "True"


async def test_a_url_2026_07_may_be_a_new_one_each_time() -> None:
    count = iter(range(9))

    async def connect(ctx: Asker) -> str:
        (gone,) = await ctx.ask(ElicitUrl("Please connect.", f"https://a.b/?{next(count)}"))
        told = completed(ctx, "e-1")  # the revision has no such message
        assert told is not None
        await told
        return str(gone.accepted)

    stand = serving(connect)
    first = await stand.call(request("tool"))
    ((key, asked),) = first["result"]["inputRequests"].items()
    assert asked["params"] == {"mode": "url", "url": "https://a.b/?0", "message": "Please connect."}
    assert text(await stand.call(retry(first, {key: {"action": "accept"}}))) == "True"


@pytest.mark.parametrize("url", ["", "a.b/c", "https://", "https://a b/", "http://[/"])
async def test_a_url_is_valid(url: str) -> None:
    """ "The `url` parameter MUST contain a valid URL"."""
    with pytest.raises(LocalError, match="URL"):
        ElicitUrl("x", url).request(R2025_11)


async def test_a_url_may_be_required_first() -> None:
    """2025-11-25: -32042, with `elicitations` that have an `elicitationId`; later a mere question."""

    async def needs(ctx: Asker) -> None:
        require_url(ctx, ElicitUrl("Authorize first.", "https://a.b/", id="e-2"))

    stand = serving(needs)
    wire = stand.wire(R2025_11)
    call(wire)
    error = (await wire.next())["error"]
    assert error["code"] == -32042
    one = {"mode": "url", "elicitationId": "e-2", "url": "https://a.b/", "message": "Authorize first."}
    assert error["data"] == {"elicitations": [one]}
    answer = await stand.call(request("tool"))
    ((_, asked),) = answer["result"]["inputRequests"].items()
    assert asked["params"]["url"] == "https://a.b/"
    old = stand.wire(R2025_06)
    call(old)
    assert (await old.next())["error"]["code"] == -32600


# -- sampling -------------------------------------------------------------------------------------


def use(*ids: str) -> SamplingMessage:
    return SamplingMessage("assistant", [ToolUseContent(id=one, name="t", input={}) for one in ids])


def result(*ids: str) -> SamplingMessage:
    return SamplingMessage("user", [ToolResultContent(tool_use_id=one, content=[TextContent("x")]) for one in ids])


async def test_sampling_says_all_it_was_given() -> None:
    question = Sample(
        messages=["Weather?", use("a", "b"), result("b", "a"), SamplingMessage("assistant", TextContent("Rain."))],
        max_tokens=10,
        system_prompt="Be brief.",
        tools=[tool()],
        tool_choice="auto",
        model_preferences=["small", "big"],
        include_context="none",
        temperature=0.5,
        stop_sequences=["."],
        metadata={"x": 1},
    )

    async def asks(ctx: Asker) -> Any:
        return (await ctx.ask(question))[0].stop_reason

    wire = serving(asks).wire(R2025_11)
    call(wire)
    asked = await asked_over(wire, "sampling/createMessage")
    params = asked["params"]
    assert [one["role"] for one in params.pop("messages")] == ["user", "assistant", "user", "assistant"]
    assert params.pop("tools")[0]["name"] == "t"
    assert params == {
        "maxTokens": 10,
        "systemPrompt": "Be brief.",
        "toolChoice": {"mode": "auto"},
        "modelPreferences": {"hints": [{"name": "small"}, {"name": "big"}]},
        "includeContext": "none",
        "temperature": 0.5,
        "stopSequences": ["."],
        "metadata": {"x": 1},
    }
    wire.send({"id": asked["id"], "result": sampled() | {"stopReason": "endTurn"}})
    assert text(await wire.next()) == "endTurn"


async def test_older_messages_have_one_block_each() -> None:
    many = SamplingMessage("user", [TextContent("Look:"), ImageContent("aGk=", "image/png")])

    async def asks(ctx: Asker) -> Any:
        return (await ctx.ask(Sample(messages=many, max_tokens=1)))[0].content.text

    wire = serving(asks).wire(R2025_06)
    call(wire)
    asked = await asked_over(wire, "sampling/createMessage")
    assert [one["content"]["type"] for one in asked["params"]["messages"]] == ["text", "image"]
    wire.send({"id": asked["id"], "result": sampled()})
    assert text(await wire.next()) == "Paris"


@pytest.mark.parametrize(
    "messages",
    [
        [use("a")],
        [use("a", "b"), result("a")],
        [use("a"), "text first", result("a")],
        [result("a")],
        [use("a"), SamplingMessage("user", [TextContent("and"), ToolResultContent(tool_use_id="a", content=[])])],
        [use("a"), SamplingMessage("assistant", [ToolResultContent(tool_use_id="a", content=[])])],
    ],
)
def test_every_use_of_a_tool_is_answered_at_once_and_alone(messages: Any) -> None:
    """ "each tool use [...] matched by a corresponding tool result [...] before any other message"."""
    with pytest.raises(LocalError, match="tools"):
        Sample(messages=messages, max_tokens=1).request(R2025_11)


async def test_roots_are_files() -> None:
    """client/roots: "This MUST be a `file://` URI"."""

    async def asks(ctx: Asker) -> Any:
        try:
            [roots] = await ctx.ask(Roots())
            return [root.uri for root in roots]
        except BadAnswer as error:
            return str(error)

    wire = serving(asks).wire(R2025_11)
    for uri, words in (
        ("https://a.b", "a root is a file:// URI"),
        ("file:///a", "file:///a"),
        ("FILE:///a", "FILE:///a"),
    ):
        call(wire)
        wire.send({"id": (await wire.next())["id"], "result": {"roots": [{"uri": uri}]}})
        assert words in text(await wire.next())


# -- every kind of handler ------------------------------------------------------------------------


def hello(answer: Elicited[Person]) -> str:
    assert answer.content is not None
    return f"Hello, {answer.content.name}!"


def whole() -> Server:
    """A server with all that may ask (basic/patterns/mrtr, "Supported Requests"), and all ways to write it."""
    server = Server("whole", version="1", keys=KEY)

    @server.tool
    async def tool(ctx: Context) -> str:
        return hello(await ctx.elicit("Name?", Person, key="n"))

    @server.tool
    def plain(ctx: Context) -> str:
        (who,) = ctx.ask(Elicit("Name?", Person, key="n"))
        return hello(who)

    @server.prompt
    async def prompt(ctx: Context) -> str:
        return hello(await ctx.elicit("Name?", Person, key="n"))

    @server.resource("test://name")
    def resource(ctx: Context) -> str:
        return hello(ctx.elicit("Name?", Person, key="n"))

    return server


KINDS = [
    ("tools/call", {"name": "tool"}),
    ("tools/call", {"name": "plain"}),
    ("prompts/get", {"name": "prompt"}),
    ("resources/read", {"uri": "test://name"}),
]


@pytest.mark.parametrize(("method", "params"), KINDS)
async def test_tools_prompts_and_resources_ask_where_the_client_asks_again(method: str, params: Any) -> None:
    server = whole()

    async def send(**more: Any) -> Any:
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"_meta": meta(), **params, **more}}
        answer = await behind(server).host.answer(json.dumps(message).encode())
        assert answer is not None
        return json.loads(answer)

    first = (await send())["result"]
    assert first["resultType"] == "input_required"
    conforms(R2026_07, "InputRequiredResult", first)
    responses = {"n": accept(name="Ann")}
    last = await send(requestState=first["requestState"], inputResponses=responses)
    assert last["result"]["resultType"] == "complete"
    assert "Hello, Ann!" in json.dumps(last)
    assert refusal(await send(requestState=first["requestState"] + "x", inputResponses=responses)) == "tampered"


@pytest.mark.parametrize(("method", "params"), KINDS)
async def test_tools_prompts_and_resources_ask_where_the_server_calls(method: str, params: Any) -> None:
    near, far = pair(CLIENT)
    server = whole()
    behind(server).attach(near)
    wire = Wire(far)
    hello = {"protocolVersion": R2025_11.date, "capabilities": EVERY, "clientInfo": {"name": "c", "version": "1"}}
    wire.send({"id": 0, "method": "initialize", "params": hello})
    await wire.next()
    wire.send({"method": "notifications/initialized"})
    wire.send({"id": 1, "method": method, "params": params})
    asked = await asked_over(wire, "elicitation/create")
    wire.send({"id": asked["id"], "result": accept(name="Ann")})
    assert "Hello, Ann!" in json.dumps((await wire.next())["result"])


# -- the oracle -----------------------------------------------------------------------------------

QUESTIONS: list[Any] = [
    Elicit("x", Person),
    Elicit("x", Size),
    Elicit("x", None),
    ElicitUrl("x", "https://a.b/"),
    Sample(messages=["x"], max_tokens=1, system_prompt="y", tools=[tool()], tool_choice="none"),
    Roots(),
]


@needs_schemas
@pytest.mark.parametrize("revision", [R2024_11, R2025_03, R2025_06, R2025_11, R2026_07])
def test_what_is_asked_is_what_the_official_schema_says(revision: Revision) -> None:
    for question in QUESTIONS:
        if not known_in(question, revision):
            continue
        message = json.loads(encode(question.request(revision), revision))
        if revision.server_calls:
            message |= {"jsonrpc": "2.0", "id": 1}
        name = {"elicitation/create": "ElicitRequest", "roots/list": "ListRootsRequest"}.get(
            question.method, "CreateMessageRequest"
        )
        conforms(revision, name, message)


@needs_schemas
async def test_an_input_required_result_is_what_the_official_schema_says() -> None:
    async def many(ctx: Asker) -> None:
        await ctx.ask(*QUESTIONS)

    answer = await serving(many).call(request("tool"))
    conforms(R2026_07, "InputRequiredResult", answer["result"])
    missing = await serving(many).call(request("tool", capabilities={}))
    conforms(R2026_07, "MissingRequiredClientCapabilityError", missing)


def test_the_errors_are_what_they_say() -> None:
    assert issubclass(CannotAsk, RpcError)
    assert issubclass(QuestionFailed, RpcError)
    assert meta()["io.modelcontextprotocol/protocolVersion"]


@pytest.mark.parametrize("inside", ["task", "thread"])
async def test_nothing_is_asked_before_the_session_is_initialized(inside: str) -> None:
    """ "The server SHOULD NOT send requests other than pings and logging before receiving the `initialized`
    notification" (basic/lifecycle): the call fails at once, and the same call after it is asked."""
    server = Server("early")

    @server.tool
    async def task(ctx: Context) -> str:
        await ctx.info("asking")
        return str((await ctx.elicit("Who?", Person)).action)

    @server.tool
    def thread(ctx: Context) -> str:
        ctx.info("asking")
        return str(ctx.elicit("Who?", Person).action)

    near, far = pair(CLIENT)
    behind(server).attach(near)
    wire = Wire(far)
    hello = {"protocolVersion": R2025_11.date, "capabilities": EVERY, "clientInfo": {"name": "c", "version": "1"}}
    wire.send({"id": 0, "method": "initialize", "params": hello})
    assert "result" in await wire.next()
    call = {"method": "tools/call", "params": {"name": inside}}
    wire.send({"id": 1, **call})
    assert (await wire.next())["params"]["data"] == "asking"  # logging is allowed
    refused = await wire.next()
    assert (refused["id"], refused["error"]["code"]) == (1, -32600)
    assert "notifications/initialized" in refused["error"]["message"]
    wire.send({"method": "notifications/initialized"})
    wire.send({"id": 2, **call})
    assert (await wire.next())["method"] == "notifications/message"
    question = await wire.next()
    assert question["method"] == "elicitation/create"
    wire.send({"id": question["id"], "result": {"action": "decline"}})
    assert text(await wire.next()) == "decline"


async def test_a_session_that_began_in_a_crowd_is_asked_all_the_same() -> None:
    """Notifications may be dropped where too many calls run; not what the session's questions hang on."""
    server = Server("crowded", limits=SERVER.but(calls=1))
    go = asyncio.Event()

    @server.tool
    async def hold() -> str:
        await go.wait()
        return "held"

    @server.tool
    async def who(ctx: Context) -> str:
        return str((await ctx.elicit("Who?", Person)).action)

    hello = {"protocolVersion": R2025_11.date, "capabilities": EVERY, "clientInfo": {"name": "c", "version": "1"}}
    wires = []
    for _ in range(2):
        near, far = pair(CLIENT)
        behind(server).attach(near)
        wires.append(Wire(far))
        wires[-1].send({"id": 0, "method": "initialize", "params": hello})
        assert "result" in await wires[-1].next()
    first, second = wires
    first.send({"id": 1, "method": "tools/call", "params": {"name": "hold"}})
    second.send({"method": "notifications/initialized"})
    second.send({"id": 1, "method": "tools/call", "params": {"name": "who"}})
    assert (await second.next())["error"]["data"]["limit"] == "calls"  # it is full indeed
    go.set()
    assert text(await first.next()) == "held"
    second.send({"id": 2, "method": "tools/call", "params": {"name": "who"}})
    question = await second.next()
    assert question["method"] == "elicitation/create"
    second.send({"id": question["id"], "result": {"action": "cancel"}})
    assert text(await second.next()) == "cancel"


async def test_an_answer_that_is_not_used_in_one_round_is_there_in_the_next() -> None:
    """A conditional question: what was answered stays in the state until the call has its result."""
    asked = iter(["a", "ab", "bc", "abc"])

    async def asks(ctx: Asker) -> str:
        answers = []
        for key in next(asked):
            (one,) = await ctx.ask(Elicit(f"{key}?", Person, key=key))
            answers.append(one.content.name)
        return " ".join(answers)

    stand = serving(asks)
    answer = await stand.call(request("tool"))
    for key in "abc":
        assert list(answer["result"]["inputRequests"]) == [key]
        answer = await stand.call(retry(answer, {key: accept(name=key.upper())}))
    assert text(answer) == "A B C"


@pytest.mark.parametrize("revision", REVISIONS.values(), ids=lambda one: one.date)
async def test_in_a_plain_function_completed_is_done_at_once(revision: Revision) -> None:
    """There is nothing to await there, and a coroutine that was never awaited would be a warning."""

    server = Server("plain")

    @server.tool
    def plain(ctx: Context) -> str:
        return repr(ctx.completed("e-1"))

    async with calling(server, revision) as calls:
        assert (await calls.call("plain"))["content"][0]["text"] == "None"
