"""Tools: from a function to a listing, and from a call to its result (server/tools of every revision)."""

from __future__ import annotations

import asyncio
import enum
import json
import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypedDict

import msgspec
import pydantic
import pytest
from msgspec import Meta, Raw, Struct, structs

import dragoman
from dragoman import RpcError
from dragoman.channel import Caller
from dragoman.jsonrpc.errors import LocalError
from dragoman.mcp import (
    CallToolResult,
    Context,
    File,
    Header,
    Icon,
    Image,
    ResourceLink,
    Server,
    TextContent,
    ToolAnnotations,
    ToolError,
)
from dragoman.mcp.protocol.admission import Admitted
from dragoman.mcp.protocol.revisions import R2024_11, R2025_03, R2025_06, R2025_11, R2026_07, REVISIONS, Revision
from dragoman.mcp.server.output import LARGEST_TEXT
from dragoman.rpc.middleware import Call, Next
from tests.behind import behind

from ..calling import calling

every = pytest.mark.parametrize("revision", REVISIONS.values(), ids=lambda one: one.date)
older = pytest.mark.parametrize("revision", [R2024_11, R2025_03, R2025_06, R2025_11], ids=lambda one: one.date)


class Unit(enum.Enum):
    C = "celsius"
    F = "fahrenheit"


class Place(Struct):
    """A place."""

    town: str
    zip: int = 0


class Forecast(Struct):
    place: Place
    degrees: float
    unit: Unit = Unit.C


class Model(pydantic.BaseModel):
    size: int = pydantic.Field(ge=1, description="How large.")


@dataclass
class Point:
    x: int
    y: int


class Keyed(TypedDict):
    a: int


class Pair(NamedTuple):
    a: int
    b: str


@pytest.fixture
def server() -> Server:
    return Server("tests", version="1.0")


# -- listing --------------------------------------------------------------------------------------


@every
async def test_listed(server: Server, revision: Revision) -> None:
    @server.tool(
        "weather.forecast",
        title="Forecast",
        icons=[Icon("https://example.com/i.png")],
        annotations=ToolAnnotations(read_only_hint=True),
        meta={"example.com/k": 1},
    )
    async def forecast(
        city: Annotated[str, Meta(description="The city.")],
        ctx: Context,
        days: Annotated[int, Meta(ge=1, le=7)] = 3,
        unit: Unit = Unit.C,
        country: str = "CN",
        exact: Literal["yes", "no"] = "no",
    ) -> Forecast:
        """The weather of the next days.

        It is only a guess.

        Args:
            days: How many days.
            country: ISO code of the country,
                two letters.

        Raises:
            ValueError: never.
        """
        return Forecast(Place(city), 20.5, unit)

    async with calling(server, revision) as calls:
        tool = (await calls.tools())["weather.forecast"]
    assert tool["description"] == "The weather of the next days.\n\nIt is only a guess."
    schema = tool["inputSchema"]
    assert schema["type"] == "object"
    assert schema["required"] == ["city"]
    assert schema["additionalProperties"] is False
    properties = schema["properties"]
    assert list(properties) == ["city", "days", "unit", "country", "exact"]
    assert properties["city"] == {"type": "string", "description": "The city."}
    assert properties["days"] == {
        "type": "integer",
        "minimum": 1,
        "maximum": 7,
        "description": "How many days.",
        "default": 3,
    }
    assert properties["country"]["description"] == "ISO code of the country, two letters."
    assert properties["exact"]["enum"] == ["no", "yes"]
    assert schema["$defs"]["Unit"]["enum"] == ["celsius", "fahrenheit"]
    assert ("title" in tool) == (revision.order >= R2025_06.order)
    assert ("icons" in tool) == (revision.order >= R2025_11.order)
    assert ("annotations" in tool) == (revision.order >= R2025_03.order)
    assert ("_meta" in tool) == (revision.order >= R2025_06.order)
    if revision.structured:
        output = tool["outputSchema"]
        assert output["type"] == "object"
        assert output["required"] == ["place", "degrees"]
    else:
        assert "outputSchema" not in tool


@every
async def test_output_schemas(server: Server, revision: Revision) -> None:
    """2025-11-25 and before: an output schema is an object's; 2026-07-28: any."""

    def many() -> list[Place]:
        return [Place("A")]

    def number() -> int:
        return 5

    def model() -> Model:
        return Model(size=3)

    def keyed() -> Keyed:
        return {"a": 1}

    def perhaps() -> Place | None:
        return None

    def anything() -> dict[str, Any]:
        return {"any": ["thing"]}

    for function in (many, number, model, keyed, perhaps, anything):
        server.add_tool(function)
    expected: dict[str, Any] = {
        "many": [{"town": "A", "zip": 0}],
        "number": 5,
        "model": {"size": 3},
        "keyed": {"a": 1},
        "perhaps": None,
        "anything": {"any": ["thing"]},
    }
    async with calling(server, revision) as calls:
        tools = await calls.tools()
        for name, value in expected.items():
            result = await calls.call(name)
            assert [msgspec.json.decode(block["text"]) for block in result["content"]] == [value]
            if not revision.structured:
                assert "structuredContent" not in result
                continue
            wrap = not isinstance(value, dict) and revision.order < R2026_07.order
            assert result["structuredContent"] == ({"result": value} if wrap else value)
            schema = tools[name]["outputSchema"]
            if wrap:
                assert schema["type"] == "object"
                assert schema["required"] == ["result"]
            if revision is R2026_07 and name == "many":
                assert schema["type"] == "array"


@pytest.mark.parametrize(
    "hint",
    [
        str,
        bytes,
        None,
        Any,
        Image,
        File,
        Path,
        CallToolResult,
        TextContent,
        list[TextContent],
        list[str | Image],
        Image | None,
    ],
)
async def test_content_has_no_output_schema(server: Server, hint: Any) -> None:
    def tool() -> Any:
        return None

    tool.__annotations__["return"] = hint
    server.add_tool(tool)
    async with calling(server, R2026_07) as calls:
        assert "outputSchema" not in (await calls.tools())["tool"]


async def test_a_path_is_its_text(server: Server, tmp_path: Path) -> None:
    """What is in a file is sent only where the author says so."""
    secret = tmp_path / "secret.txt"
    secret.write_text("swordfish")
    values: dict[str, Any] = {"file": secret, "folder": tmp_path, "list": [secret, tmp_path], "sent": File(secret)}

    @server.tool
    def untyped(key: str) -> Any:
        return values[key]

    @server.tool
    def declared() -> Path:
        return secret

    @server.tool
    def several() -> list[Path]:
        return [secret, tmp_path]

    @server.tool
    def inside() -> dict[str, Path | int]:
        return {"at": secret}

    async with calling(server, R2026_07) as calls:
        assert "outputSchema" not in (await calls.tools())["declared"]
        for name, arguments, text in (
            ("untyped", {"key": "file"}, str(secret)),
            ("untyped", {"key": "folder"}, str(tmp_path)),
            ("untyped", {"key": "list"}, json.dumps([str(secret), str(tmp_path)], separators=(",", ":"))),
            ("declared", {}, str(secret)),
        ):
            assert (await calls.call(name, arguments))["content"] == [{"type": "text", "text": text}]
        assert (await calls.tools())["several"]["outputSchema"]["items"] == {"type": "string", "format": "path"}
        assert (await calls.call("several"))["structuredContent"] == [str(secret), str(tmp_path)]
        assert (await calls.call("inside"))["structuredContent"] == {"at": str(secret)}
        (sent,) = (await calls.call("untyped", {"key": "sent"}))["content"]
        assert sent["resource"] == {"uri": secret.as_uri(), "mimeType": "text/plain", "text": "swordfish"}


@pytest.mark.parametrize("hint", [list, tuple, list[Any], Sequence, Sequence[Any], list | None], ids=str)
@every
async def test_a_list_that_does_not_say_what_is_in_it_may_hold_content(
    server: Server, hint: Any, revision: Revision
) -> None:
    values: dict[str, Any] = {"mixed": ["a", Image(b"GIF89a")], "data": [1, {"a": 2}], "none": []}

    def tool(key: str) -> Any:
        return values[key]

    tool.__annotations__["return"] = hint
    server.add_tool(tool)
    async with calling(server, revision) as calls:
        assert "outputSchema" not in (await calls.tools())["tool"]
        mixed = await calls.call("tool", {"key": "mixed"})
        assert [block["type"] for block in mixed["content"]] == ["text", "image"]
        assert "structuredContent" not in mixed
        assert (await calls.call("tool", {"key": "data"}))["content"] == [{"type": "text", "text": '[1,{"a":2}]'}]


class Shop:
    @classmethod
    def opening(cls) -> int:
        return 8

    @property
    def stock(self) -> int:
        return 1

    @staticmethod
    def closing() -> int:
        return 18


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("attribute", ["opening", "stock"])
@pytest.mark.parametrize("which", ["tool", "prompt", "resource", "completion", "method"])
def test_what_stands_in_a_class_and_is_not_a_function_is_refused(
    server: Server, which: str, attribute: str, named: bool
) -> None:
    decorator: Any = dragoman.Service("api").method if which == "method" else getattr(server, which)
    if which in ("resource", "completion"):
        decorator = decorator("a://b") if which == "resource" else decorator("a", "b")
    elif named:
        decorator = decorator("name")
    with pytest.raises(LocalError, match=f"{attribute}: @[a-z]+.{which} stands above a (classmethod|property)"):
        decorator(vars(Shop)[attribute])
    with pytest.raises(LocalError, match="registers a function or another callable"):
        decorator(3.5)


async def test_a_static_method_is_a_function(server: Server) -> None:
    assert server.tool(vars(Shop)["closing"]) is vars(Shop)["closing"]
    async with calling(server, R2026_07) as calls:
        assert (await calls.call("closing"))["structuredContent"] == 18


async def test_names_by_name(server: Server) -> None:
    """`name=`, as everybody writes."""
    service = dragoman.Service("api")

    @service.method(name="method.name", inline=True)
    def method() -> int:
        return 1

    @server.tool(name="tool-name", title="T")
    def tool() -> int:
        return 1

    @server.prompt(name="prompt-name")
    def prompt(a: str) -> str:
        return a

    @server.resource(uri="x://y", name="resource-name")
    def resource() -> str:
        return ""

    @server.completion(ref="prompt-name", argument="a")
    def completion(value: str) -> list[str]:
        return []

    assert list(service.methods) == ["method.name"]
    async with calling(server, R2026_07) as calls:
        assert list(await calls.tools()) == ["tool-name"]
        assert (await calls.result("prompts/list"))["prompts"][0]["name"] == "prompt-name"
        assert (await calls.result("resources/list"))["resources"][0]["name"] == "resource-name"


def test_options_beside_a_function_count(server: Server) -> None:
    service = dragoman.Service("api")

    def function() -> int:
        return 1

    untyped: Any = service.method
    assert untyped(function, inline=True, timeout=3) is function
    assert (service.methods["function"].kind, service.methods["function"].timeout) == ("inline", 3)
    tool: Any = server.tool
    tool(function, title="T")
    assert behind(server).catalog.tool("function", Caller()).listed.title == "T"


@pytest.mark.parametrize("optional", [False, True])
def test_a_context_in_the_wrong_place_names_the_right_import(server: Server, optional: bool) -> None:
    def rpc(ctx: Any) -> None: ...

    def mcp(ctx: Any) -> None: ...

    rpc.__annotations__["ctx"] = dragoman.Context | None if optional else dragoman.Context
    mcp.__annotations__["ctx"] = Context | None if optional else Annotated[Context, "the context"]
    for add in (server.add_tool, server.add_prompt, lambda f: server.add_resource(f, "x://y")):
        with pytest.raises(LocalError, match=r"parameter 'ctx': .* here it is the one of `from dragoman.mcp import"):
            add(rpc)
    with pytest.raises(LocalError, match=r"parameter 'ctx': .* here it is the one of `from dragoman import Context`"):
        dragoman.Service("api").method(mcp)


async def test_no_parameters(server: Server) -> None:
    """server/tools: "For tools with no parameters [...] Recommended: explicitly accepts only empty objects"."""

    @server.tool
    def ping() -> str:
        return "pong"

    async with calling(server, R2026_07) as calls:
        schema = (await calls.tools())["ping"]["inputSchema"]
        assert schema == {"type": "object", "properties": {}, "additionalProperties": False}
        # `arguments` may be left out
        assert (await calls.call("ping"))["content"] == [{"type": "text", "text": "pong"}]
        assert (await calls.call("ping", {}))["content"] == [{"type": "text", "text": "pong"}]
        assert "x: Unknown argument" in await calls.refusal("ping", {"x": 1})


@pytest.mark.parametrize(
    "text",
    [
        "Do.\n\n:param a: The a.\n:param b: The b,\n    and more.\n",
        "Do.\n\nArgs:\n    a: The a.\n    b (int): The b,\n        and more.\n",
        "Do.\n\nParameters\n----------\na : int\n    The a.\nb : int, optional\n    The b,\n    and more.\n",
    ],
)
async def test_docstrings(server: Server, text: str) -> None:
    def tool(a: int, b: int = 0) -> None: ...

    tool.__doc__ = text
    server.add_tool(tool)
    async with calling(server, R2026_07) as calls:
        listed = (await calls.tools())["tool"]
    assert listed["description"] == "Do."
    properties = listed["inputSchema"]["properties"]
    assert properties["a"]["description"] == "The a."
    assert properties["b"]["description"] == "The b, and more."


@pytest.mark.parametrize("name", ["a b", "a,b", "über", "x" * 129])
def test_strange_names_are_warned_of(server: Server, name: str, caplog: pytest.LogCaptureFixture) -> None:
    """Tool Names: each rule is a SHOULD."""
    with caplog.at_level(logging.WARNING, "dragoman.mcp"):
        server.add_tool(lambda: None, name=name)
    assert "names should have" in caplog.text


@pytest.mark.parametrize("name", ["getUser", "DATA_EXPORT_v2", "a-b", "x" * 64])
def test_good_names(server: Server, name: str, caplog: pytest.LogCaptureFixture) -> None:
    server.add_tool(lambda: None, name=name)
    assert not caplog.records


# -- arguments ------------------------------------------------------------------------------------


def everything(
    text: str,
    number: int,
    place: Place,
    point: Point,
    model: Model,
    keyed: Keyed,
    pair: Pair,
    items: list[int] = [],  # noqa: B006  (the function's own object)
    *,
    only: float = 1.5,
    **more: bool,
) -> dict[str, Any]:
    """Every kind of argument."""
    return {
        "text": text,
        "number": number,
        "place": type(place).__name__,
        "point": type(point).__name__,
        "model": type(model).__name__,
        "keyed": keyed,
        "pair": type(pair).__name__,
        "items": items,
        "only": only,
        "more": more,
    }


GOOD: dict[str, Any] = {
    "text": "t",
    "number": 1,
    "place": {"town": "A"},
    "point": {"x": 1, "y": 2},
    "model": {"size": 1},
    "keyed": {"a": 1},
    "pair": [1, "b"],
}


async def test_arguments(server: Server) -> None:
    server.add_tool(everything)
    async with calling(server, R2026_07) as calls:
        made = (await calls.call("everything", GOOD | {"only": 2, "extra": True}))["structuredContent"]
        assert made == {
            "text": "t",
            "number": 1,
            "place": "Place",
            "point": "Point",
            "model": "Model",
            "keyed": {"a": 1},
            "pair": "Pair",
            "items": [],
            "only": 2.0,
            "more": {"extra": True},
        }
        # 1.0 is an integer to JSON Schema
        assert (await calls.call("everything", GOOD | {"number": 1.0}))["structuredContent"]["number"] == 1


WRONG = {
    "text": 5,
    "place": {"town": 1, "zip": "x"},
    "point": {"x": "1"},
    "model": {"size": 0},
    "keyed": {},
    "pair": [1, 2],
    "extra": "no",
}
FAULTS = [
    ("text", "Expected a string", 5),
    ("number", "Missing argument", None),
    ("place.town", "Expected a string", 1),
    ("place.zip", "Expected an integer", "x"),
    ("point.x", "Expected an integer", "1"),
    ("point.y", "Missing field", None),
    ("model.size", "greater than or equal to 1", 0),
    ("keyed.a", "Missing field", None),
    ("pair[1]", "Expected a string", 2),
    ("extra", "Expected true or false", "no"),
]


@every
async def test_every_fault_is_told(server: Server, revision: Revision) -> None:
    """2025-11-25 and later, Error Handling: "Input validation errors" are tool execution errors; before, "Invalid
    arguments" are protocol errors, which no model reads, so that they are results there too, but by option."""
    server.add_tool(everything)
    async with calling(server, revision) as calls:
        text = await calls.refusal("everything", WRONG)
    by_revision = Server("tests", argument_errors="revision")
    by_revision.add_tool(everything)
    async with calling(by_revision, revision) as calls:
        if revision.argument_results:
            assert await calls.refusal("everything", WRONG) == text
        else:
            error = await calls.error("tools/call", name="everything", arguments=WRONG)
            assert error["code"] == -32602
            assert [one["field"] for one in error["data"]["errors"]] == [field for field, _, _ in FAULTS]
            assert error["message"] == text
    for (field, message, received), line in zip(FAULTS, text.splitlines()[1:], strict=True):
        assert line.startswith(f"- {field}: ")
        assert message in line
        assert ("(received " in line) == (received is not None)
        if received is not None:
            assert f"(received {msgspec.json.encode(received).decode()})" in line


@every
@pytest.mark.parametrize("arguments", [[1], "x", 5, None, True])
async def test_arguments_that_are_not_an_object(server: Server, revision: Revision, arguments: Any) -> None:
    """Error Handling: "Malformed requests" are protocol errors in every revision."""
    server.add_tool(everything)
    async with calling(server, revision) as calls:
        error = await calls.error("tools/call", name="everything", arguments=arguments)
    assert error["code"] == -32602


async def test_a_number_too_large(server: Server) -> None:
    @server.tool
    def tool(x: float) -> float:
        return x

    raw = (
        b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"tool","arguments":{"x":1e999},'
        b'"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",'
        b'"io.modelcontextprotocol/clientCapabilities":{}}}}'
    )
    answer = msgspec.json.decode(await behind(server).host.answer(raw) or b"")
    assert answer["id"] == 7
    assert answer["result"]["isError"]


def test_what_cannot_be_a_tool(server: Server) -> None:
    def positional(a: int, /) -> None: ...
    def rest(*a: int) -> None: ...
    def gives() -> Any:
        yield 1

    class Own:
        pass

    def own(a: Own) -> None: ...
    def returns() -> Own:
        return Own()

    for function, words in (
        (positional, "have names"),
        (rest, "have names"),
        (gives, "generator"),
        (own, "Own"),
        (returns, "Own"),
        (lambda: None, "name"),
    ):
        with pytest.raises(LocalError, match=words):
            server.add_tool(function)
    assert not behind(server).catalog.has("tools")


async def test_either_context(server: Server) -> None:
    @server.tool
    async def ours(ctx: Context) -> str:
        return f"{type(ctx).__module__} {ctx.revision.order}"

    service = dragoman.Service("included")

    @service.method
    async def theirs(context: dragoman.Context, a: int = 1) -> str:
        return f"{type(context).__module__} {context.method}"

    server.include(service)

    @server.tool
    def in_thread(a: int, ctx: Context | None) -> str:
        assert ctx is not None
        return f"{a} {threading.current_thread() is threading.main_thread()}"

    @server.tool(inline=True)
    def inline(ctx: Context) -> str:
        return str(threading.current_thread() is threading.main_thread())

    async with calling(server, R2026_07) as calls:
        tools = await calls.tools()
        assert tools["theirs"]["inputSchema"]["properties"].keys() == {"a"}
        assert tools["in_thread"]["inputSchema"]["properties"].keys() == {"a"}

        async def said(name: str, arguments: Any = None) -> str:
            ((block,),) = ((await calls.call(name, arguments))["content"],)
            return str(block["text"])

        assert await said("ours") == "dragoman.mcp.server.context 4"
        assert await said("theirs") == "dragoman.rpc.context tools/call"
        assert await said("in_thread", {"a": 2}) == "2 False"
        assert await said("inline") == "True"


# -- results --------------------------------------------------------------------------------------


async def test_results_conform_to_their_schema(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    """Output Schema: "Servers MUST provide structured results that conform to this schema"."""
    values: list[Any] = [Place("A", "no"), {"town": "B"}, {"town": 5}, {}, 5, None, Place("C", 7.0)]  # type: ignore[arg-type]

    @server.tool
    def place(index: int) -> Place:
        return values[index]  # type: ignore[no-any-return]

    async with calling(server, R2026_07) as calls:
        for index in (1, 6):
            assert "isError" not in await calls.call("place", {"index": index})
        for index in (0, 2, 3, 4, 5):
            text = await calls.refusal("place", {"index": index})
            assert "reference" in text
            assert "town" not in text
    assert "output schema" in caplog.text
    assert "result.zip: Expected an integer" in caplog.text


@every
async def test_large_structured_content_is_not_repeated(server: Server, revision: Revision) -> None:
    """Structured Content: the text beside it is a SHOULD, for clients that know nothing else."""

    @server.tool
    def large(size: int) -> dict[str, str]:
        return {"a": "x" * size}

    async with calling(server, revision) as calls:
        small = await calls.call("large", {"size": 10})
        assert small["content"] == [{"type": "text", "text": '{"a":"xxxxxxxxxx"}'}]
        result = await calls.call("large", {"size": LARGEST_TEXT})
    text = result["content"][0]["text"]
    if revision.structured:
        assert len(text) < 200
        assert len(result["structuredContent"]["a"]) == LARGEST_TEXT
    else:
        assert len(text) > LARGEST_TEXT


LONG = "a long text, " * 6_000
"""Long enough to be read and written apart from the rest of its message."""


@every
async def test_a_long_text(server: Server, revision: Revision) -> None:
    @server.tool
    async def echo(text: str) -> str:
        return text

    async with calling(server, revision) as calls:
        for text in (LONG, LONG + '\u00e9\n"\\', LONG + "\U0001f600"):
            result = await calls.call("echo", {"text": text})
            assert result["content"] == [{"type": "text", "text": text}]
            assert result.get("resultType") == (None if revision.stateful else "complete")
            assert ("_meta" in result) == (not revision.stateful)


async def test_long_arguments_are_the_same_whatever_their_types(server: Server) -> None:
    """Those that are text are decoded with the message, all others from the whole text."""

    @server.tool
    async def plain(a: str, b: str | None = None, c: Any = None, n: int = 1) -> list[int]:
        assert (a[:6], c) == ("a long", None)
        return [len(a), len(b or ""), n]

    @server.tool
    async def bounded(a: Annotated[str, Meta(max_length=10)]) -> str:
        return a

    @server.tool
    async def nested(a: list[str], c: Any) -> list[int]:
        return [len(a[0]), len(c["x"])]

    @server.tool
    async def whole(number: int, ctx: Context) -> int:
        return number

    async with calling(server, R2026_07) as calls:
        length = len(LONG)
        assert (await calls.call("plain", {"a": LONG}))["structuredContent"] == [length, 0, 1]
        assert (await calls.call("plain", {"n": 2, "b": LONG, "a": LONG}))["structuredContent"] == [length, length, 2]
        assert (await calls.call("nested", {"a": [LONG], "c": {"x": LONG}}))["structuredContent"] == [length, length]
        for tool, given in (
            ("plain", {"a": LONG, "n": LONG}),
            ("plain", {"a": LONG, LONG: 1}),
            ("bounded", {"a": LONG}),
            ("whole", {"number": LONG}),
        ):
            said = await calls.refusal(tool, given)
            assert "a long" in said or "length <= 10" in said, said


async def test_a_long_text_that_cannot_be_written(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    @server.tool
    async def half() -> str:
        return LONG + "\ud800"

    async with calling(server, R2026_07) as calls:
        assert "half failed (reference " in await calls.refusal("half")
    assert "surrogates not allowed" in caplog.text


async def test_middleware_gets_a_long_text_as_json(server: Server) -> None:
    """As it gets all other results."""
    seen = []

    async def middleware(call: Call, next: Next) -> Any:
        seen.append(await next(call))
        return seen[-1]

    server.use(middleware)

    @server.tool
    async def echo(text: str) -> str:
        return text

    async with calling(server, R2026_07) as calls:
        result = await calls.call("echo", {"text": LONG})
    assert result["content"] == [{"type": "text", "text": LONG}]
    assert [json.loads(bytes(one)) for one in seen if isinstance(one, Raw)] == [result]


async def test_middleware_may_change_long_arguments(server: Server) -> None:
    async def middleware(call: Call, next: Next) -> Any:
        if isinstance(call.params, Admitted):
            changed = structs.replace(call.params.params, arguments=Raw(b'{"text":"another"}'))
            call.params = structs.replace(call.params, params=changed)
        return await next(call)

    server.use(middleware)

    @server.tool
    async def echo(text: str) -> str:
        return text

    async with calling(server, R2026_07) as calls:
        assert (await calls.call("echo", {"text": LONG}))["content"] == [{"type": "text", "text": "another"}]


@every
async def test_a_whole_result(server: Server, revision: Revision) -> None:
    @server.tool
    def whole() -> CallToolResult:
        return CallToolResult(content=[TextContent("a")], structured_content={"b": 1}, meta={"example.com/c": 2})

    async with calling(server, revision) as calls:
        result = await calls.call("whole")
    assert result["content"] == [{"type": "text", "text": "a"}]
    assert result["_meta"]["example.com/c"] == 2
    assert ("structuredContent" in result) == revision.structured
    assert ("io.modelcontextprotocol/serverInfo" in result["_meta"]) == (not revision.stateful)


async def test_a_schema_of_ones_own_for_the_result(server: Server) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}

    @server.tool(output_schema=schema)
    def tool(n: Any) -> Any:
        return {"n": n}

    @server.tool(output_schema={"type": "array", "items": {"$ref": "#/$defs/N"}, "$defs": {"N": {"type": "integer"}}})
    def several() -> Any:
        return [1]

    @server.tool(output_schema={"type": ["array", "integer"], "items": {"$ref": "#"}})
    def rooted() -> Any:
        return [1]

    async with calling(server, R2025_11) as calls:
        tools = await calls.tools()
        assert tools["tool"]["outputSchema"] == schema
        assert (await calls.call("tool", {"n": 1}))["structuredContent"] == {"n": 1}
        assert "reference" in await calls.refusal("tool", {"n": "x"})
        assert tools["several"]["outputSchema"]["properties"]["result"]["items"] == {"$ref": "#/$defs/N"}
        assert (await calls.call("several"))["structuredContent"] == {"result": [1]}
        assert "outputSchema" not in tools["rooted"]
    async with calling(server, R2026_07) as calls:
        assert (await calls.tools())["rooted"]["outputSchema"]["items"] == {"$ref": "#"}
        assert (await calls.call("several"))["structuredContent"] == [1]


@every
async def test_a_whole_result_is_what_the_output_schema_allows(
    server: Server, revision: Revision, caplog: pytest.LogCaptureFixture
) -> None:
    """server/tools, Output Schema: "Servers MUST provide structured results that conform to this schema"."""

    def tool(content: Any) -> Any:
        return CallToolResult(content=[TextContent("a")], structured_content=content)

    server.add_tool(tool, name="numbers", output_schema={"type": "array", "items": {"type": "integer"}})

    @server.tool
    def typed(how: str) -> int:
        if how == "failed":
            return CallToolResult(content=[TextContent("no number")], is_error=True)  # type: ignore[return-value]
        more: Any = {} if how == "nothing" else {"structured_content": how if how == "text" else 1}
        return CallToolResult(content=[TextContent("a")], **more)  # type: ignore[return-value]

    async with calling(server, revision) as calls:
        result = await calls.call("numbers", {"content": [1]})
        wrapped = [1] if revision.structured_values else {"result": [1]}
        assert result.get("structuredContent") == (wrapped if revision.structured else None)
        assert "reference" in await calls.refusal("numbers", {"content": ["x"]})
        assert "isError" not in await calls.call("typed", {"how": "number"})
        assert await calls.refusal("typed", {"how": "failed"}) == "no number"
        assert "reference" in await calls.refusal("typed", {"how": "text"})
        assert "reference" in await calls.refusal("typed", {"how": "nothing"})
    assert "typed has an output schema, and returned a CallToolResult without structured_content" in caplog.text


# -- failures -------------------------------------------------------------------------------------


class Declared(RpcError):
    code = 77
    message = "Declared"


@every
async def test_failures(server: Server, revision: Revision, caplog: pytest.LogCaptureFixture) -> None:
    @server.tool
    async def fail(how: str) -> str:
        if how == "tool":
            raise ToolError("The city is not known.")
        if how == "empty":
            raise ToolError
        if how == "rpc":
            raise Declared(data={"a": 1})
        if how == "exit":
            raise SystemExit(3)
        if how == "group":
            raise ExceptionGroup("all", [ToolError("from a group")])
        raise ValueError("the password is swordfish")

    async with calling(server, revision) as calls:
        assert await calls.refusal("fail", {"how": "tool"}) == "The city is not known."
        assert await calls.refusal("fail", {"how": "empty"}) == "fail failed"
        assert await calls.refusal("fail", {"how": "group"}) == "from a group"
        error = await calls.error("tools/call", name="fail", arguments={"how": "rpc"})
        assert error == {"code": 77, "message": "Declared", "data": {"a": 1}}
        for how in ("value", "exit"):
            text = await calls.refusal("fail", {"how": how})
            assert "swordfish" not in text
            reference = text.removeprefix("fail failed (reference ").removesuffix(")")
            assert reference in caplog.text
    assert "swordfish" in caplog.text


async def test_debug_tells_more(server: Server) -> None:
    server.debug = True

    @server.tool
    def fail() -> None:
        raise ValueError("swordfish")

    async with calling(server, R2026_07) as calls:
        assert "ValueError: swordfish" in await calls.refusal("fail")


@every
@pytest.mark.parametrize("code", [-32000, -32001, -32002, -32020, -32021, -32022, -32042, -32099, -32700, -32601, 5])
async def test_codes(server: Server, revision: Revision, code: int, caplog: pytest.LogCaptureFixture) -> None:
    """basic/index, Error Codes: "MUST NOT emit any code from this sub-range that is not defined"."""

    @server.tool
    async def fail() -> None:
        raise RpcError("Hm", {"a": 1}, code=code)

    allowed = {5, -32601}
    allowed |= {-32021} if not revision.stateful else {revision.missing_resource} - {-32602}
    allowed |= {-32042} if revision.url_elicitation_error else set()
    async with calling(server, revision) as calls:
        error = await calls.error("tools/call", name="fail")
    assert error == {"code": code if code in allowed else -32603, "message": "Hm", "data": {"a": 1}}


@every
async def test_unknown_tool(server: Server, revision: Revision) -> None:
    """Error Handling: "Unknown tool" is a protocol error, -32602."""
    async with calling(server, revision) as calls:
        error = await calls.error("tools/call", name="missing")
    assert error == {"code": -32602, "message": "Unknown tool: missing"}


# -- written schemas ------------------------------------------------------------------------------

WRITTEN = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {"Address": {"$anchor": "addr", "type": "object", "properties": {"street": {"type": "string"}}}},
    "properties": {"name": {"type": "string"}, "address": {"$ref": "#/$defs/Address"}, "n": {"type": "integer"}},
    "allOf": [{"anyOf": [{"required": ["name"]}, {"required": ["n"]}]}],
    "if": {"properties": {"n": {"const": 1}}, "required": ["n"]},
    "then": {"required": ["address"]},
    "additionalProperties": False,
}


@every
async def test_a_schema_of_ones_own(server: Server, revision: Revision) -> None:
    """A raw JSON Schema is listed as it is, and checked as it says."""

    async def raw(arguments: dict[str, Any], ctx: Context) -> str:
        return f"{arguments} {ctx.revision.order}"

    server.add_tool(raw, input_schema=WRITTEN)
    async with calling(server, revision) as calls:
        assert (await calls.tools())["raw"]["inputSchema"] == WRITTEN
        result = await calls.call("raw", {"name": "a", "n": 2})
        assert result["content"][0]["text"] == f"{{'name': 'a', 'n': 2}} {revision.order}"
        text = await calls.refusal("raw", {"name": 5, "x": 1, "n": 1})
        assert "- x: Unknown argument (received 1)" in text
        assert "- address: Missing argument" in text
        assert "- name: " in text
        assert "(received 5)" in text
        assert "anyOf" in await calls.refusal("raw")


@every
async def test_a_schema_of_ones_own_whose_dict_is_given_by_name(server: Server, revision: Revision) -> None:
    async def raw(ctx: Context, *, arguments: dict[str, Any]) -> str:
        return str(arguments)

    server.add_tool(raw, input_schema={"type": "object"})
    async with calling(server, revision) as calls:
        assert (await calls.call("raw", {"n": 2}))["content"][0]["text"] == "{'n': 2}"


def test_bad_schemas_of_ones_own(server: Server) -> None:
    def raw(arguments: dict[str, Any]) -> None: ...
    def two(a: int, b: int) -> None: ...

    with pytest.raises(LocalError, match='"type": "object"'):
        server.add_tool(raw, input_schema={"type": "array"})
    with pytest.raises(LocalError, match="one dict"):
        server.add_tool(two, input_schema={"type": "object"})
    with pytest.raises(LocalError, match=r"raw, input schema.*fetched"):
        server.add_tool(raw, input_schema={"type": "object", "properties": {"a": {"$ref": "https://example.com/s"}}})
    with pytest.raises(LocalError, match="x-mcp-header"):
        server.add_tool(raw, input_schema={"type": "object", "properties": {"a": {"x-mcp-header": "A"}}})


# -- headers --------------------------------------------------------------------------------------


class Where(Struct):
    zone: Annotated[str, Header("Zone")]
    other: int = 0


async def test_headers(server: Server) -> None:
    """server/tools, x-mcp-header: on primitive properties that a chain of `properties` leads to."""

    @server.tool
    def deploy(
        region: Annotated[str, Header("Region"), Meta(description="Where.")],
        where: Where,
        count: Annotated[int | None, Header("Count")] = None,
    ) -> None: ...

    async with calling(server, R2026_07) as calls:
        schema = (await calls.tools())["deploy"]["inputSchema"]
    properties = schema["properties"]
    assert properties["region"] == {"type": "string", "x-mcp-header": "Region", "description": "Where."}
    assert properties["count"] == {"type": "integer", "x-mcp-header": "Count"}
    assert properties["where"]["properties"]["zone"] == {"type": "string", "x-mcp-header": "Zone"}
    assert "$defs" not in schema
    assert [one.name for one in behind(server).catalog.tool("deploy", Caller()).marked] == ["Region", "Zone", "Count"]


def test_headers_where_none_can_be(server: Server) -> None:
    def listed(a: Annotated[list[str], Header("A")]) -> None: ...
    def number(a: Annotated[float, Header("A")]) -> None: ...
    def twice(a: Annotated[str, Header("A")], b: Annotated[str, Header("a")]) -> None: ...
    def inside(a: list[Where]) -> None: ...
    def spaced(a: Annotated[str, Header("A B")]) -> None: ...

    for function in (listed, number, twice, inside, spaced):
        with pytest.raises(LocalError, match="x-mcp-header"):
            server.add_tool(function)


# -- included services ----------------------------------------------------------------------------


class OutOfStock(RpcError):
    code = 1001
    message = "Out of stock"


@pytest.fixture
def shop() -> dragoman.Service:
    shop = dragoman.Service("shop")

    @shop.method(errors=[OutOfStock], idempotent=True)
    async def buy(item: str, count: int = 1) -> Place:
        """Buy.

        Args:
            item: What.
        """
        if count > 9:
            raise OutOfStock(data={"left": 9})
        if count < 0:
            raise RpcError("Negative", code=1002)
        return Place(item, count)

    @shop.method
    def thread(context: dragoman.Context) -> str:
        return f"{threading.current_thread() is threading.main_thread()} {context._where}"

    @shop.method(inline=True)
    def quick(a: int) -> int:
        return a

    return shop


@pytest.mark.parametrize("wrapped", [False, True])
@every
async def test_include(server: Server, shop: dragoman.Service, revision: Revision, wrapped: bool) -> None:
    seen: list[Any] = []

    async def watch(call: Any, next: Any) -> Any:
        seen.append((call.method, call.params))
        return await next(call)

    if wrapped:
        shop.use(watch)
    server.include(shop, prefix="shop.")
    async with calling(server, revision) as calls:
        tools = await calls.tools()
        assert list(tools) == ["shop.buy", "shop.thread", "shop.quick"]
        assert tools["shop.buy"]["description"] == "Buy."
        assert tools["shop.buy"]["inputSchema"]["properties"]["item"]["description"] == "What."
        result = await calls.call("shop.buy", {"item": "tea"})
        assert msgspec.json.decode(result["content"][0]["text"]) == {"town": "tea", "zip": 1}
        assert (await calls.call("shop.thread"))["content"][0]["text"] == "False thread"
        assert (await calls.call("shop.quick", {"a": 3}))["content"][0]["text"] == "3"
        # a declared error is for the model to read
        assert await calls.refusal("shop.buy", {"item": "tea", "count": 10}) == 'Out of stock\n{"left":9}'
        error = await calls.error("tools/call", name="shop.buy", arguments={"item": "tea", "count": -1})
        assert error == {"code": 1002, "message": "Negative"}
        assert "- item: Missing argument" in await calls.refusal("shop.buy", {})
        assert (await calls.error("tools/call", name="shop.quick", arguments=[1]))["code"] == -32602
    if wrapped:
        assert seen[0][0] == "buy"
        assert bytes(seen[0][1]) == b'{"item": "tea"}'


def test_include_all_or_none(server: Server, shop: dragoman.Service) -> None:
    server.add_tool(lambda: None, name="quick")
    with pytest.raises(LocalError, match="quick"):
        server.include(shop)
    assert [entry.key for entry in behind(server).catalog.entries("tools")] == ["quick"]


# -- at run time ----------------------------------------------------------------------------------


async def test_cancelled(server: Server) -> None:
    """A cancelled call stops its handler, and `except Exception` of ours never swallows that."""
    begun, ended = asyncio.Event(), asyncio.Event()

    @server.tool
    async def slow() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with calling(server, R2025_11) as calls:
        asking = asyncio.ensure_future(calls.ask("tools/call", name="slow"))
        await asyncio.wait_for(begun.wait(), 20)
        calls.channel.send(b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}')
        await asyncio.wait_for(ended.wait(), 20)
        asking.cancel()


async def test_links_for_clients_that_do_not_know_them(server: Server) -> None:
    @server.tool
    def link() -> ResourceLink:
        return ResourceLink(uri="file:///a", name="a")

    async with calling(server, R2025_03) as calls:
        (block,) = (await calls.call("link"))["content"]
        assert block == {"type": "text", "text": "a: file:///a"}
    async with calling(server, R2025_06) as calls:
        (block,) = (await calls.call("link"))["content"]
        assert block["type"] == "resource_link"


class Form(Struct):
    name: str


async def test_questions_end_the_call(server: Server) -> None:
    """basic/patterns/mrtr: what cannot be asked now ends in `input_required`, whatever the handler catches."""

    @server.tool
    async def on_loop(ctx: Context) -> str:
        try:
            content = (await ctx.elicit("Who?", Form, key="who")).content
            return str(content and content.name)
        except Exception:
            return "swallowed"

    @server.tool
    def in_thread(ctx: Context) -> str:
        try:
            content = ctx.elicit("Who?", Form, key="who").content
            return str(content and content.name)
        except Exception:
            return "swallowed"

    @server.tool
    async def plainly(ctx: Context) -> str:
        return str(await ctx.elicit("Who?", Form))

    async with calling(server, R2026_07, elicitation={"form": {}}) as calls:
        for name in ("on_loop", "in_thread"):
            result = await calls.call(name)
            assert result["resultType"] == "input_required"
            assert result["inputRequests"]["who"]["params"]["message"] == "Who?"
            assert result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "tests"
            answers = {"who": {"action": "accept", "content": {"name": "Ann"}}}
            again = await calls.result(
                "tools/call", name=name, inputResponses=answers, requestState=result["requestState"]
            )
            assert again["content"] == [{"type": "text", "text": "Ann"}]
    async with calling(server, R2026_07) as calls:
        # not declared: a protocol error, never the tool's
        assert (await calls.error("tools/call", name="plainly"))["code"] == -32021


@every
async def test_floats_that_are_not_finite(server: Server, revision: Revision) -> None:
    """JSON has no word for them: they are null, where the output schema has room for it; else the result fails."""

    @server.tool
    def measured() -> dict[str, Any]:
        return {"a": float("inf"), "b": [float("-inf"), float("nan"), 1.5]}

    @server.tool
    def degrees() -> float:
        return float("nan")

    @server.tool
    def perhaps() -> float | None:
        return float("nan")

    async with calling(server, revision) as calls:
        found = await calls.call("measured")
        assert msgspec.json.decode(found["content"][0]["text"]) == {"a": None, "b": [None, None, 1.5]}
        if revision.structured:
            assert found["structuredContent"] == {"a": None, "b": [None, None, 1.5]}
        assert "degrees failed" in await calls.refusal("degrees")
        assert (await calls.call("perhaps"))["content"][0]["text"] == "null"
