"""Arguments that a service takes beyond its signatures, by each option of leniency, however a method runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Literal

import pytest
from msgspec import Raw, Struct

from dragoman import Context, Identity, Limits, Service, connect, serve
from dragoman.channel import Caller, Handshake
from dragoman.jsonrpc import LENIENT, STRICT, Leniency
from dragoman.jsonrpc.errors import InvalidParams, RpcError
from dragoman.mcp import Client, Server
from dragoman.rpc.binding import loose_arguments
from dragoman.rpc.binding.loose_arguments import read_loosely
from dragoman.rpc.middleware import Call, Next

TEXT = Leniency(text_arguments=True)
FORBIDDEN = -32004
UNKNOWN = Leniency(unknown_arguments=True)
NULL = Leniency(null_params=True)
OTHERS = Leniency(accept_v1=True, null_error=True, string_codes=True, any_media_type=True)
EACH = {"strict": STRICT, "text": TEXT, "unknown": UNKNOWN, "null": NULL, "others": OTHERS, "all": LENIENT}


class Range(Struct):
    start: int
    end: int = 0


def log(
    path: str,
    count: int = 10,
    short: bool = False,
    ranges: tuple[Range, ...] = (),
    tags: dict[str, int] | None = None,
    mode: Literal["all"] | float = "all",
) -> str:
    return repr((path, count, short, [(one.start, one.end) for one in ranges], tags, mode))


def only(a: int, /) -> int:
    return a


def total(*numbers: int) -> int:
    return sum(numbers)


def named(*, n: int = 1) -> int:
    return n


def open_to(a: int = 0, **others: int) -> str:
    return repr((a, others))


FUNCTIONS: tuple[Callable[..., Any], ...] = (log, only, total, named, open_to)

TAKEN: list[tuple[str, Any, str, Any]] = [
    ("log", {"path": "5", "count": "3", "short": "true"}, "text", ["5", 3, True]),
    ("log", ["5", "3", "true"], "text", ["5", 3, True]),
    ("log", {"path": ".", "ranges": '[{"start":"1","end":2}]'}, "text", [".", 10, False, [{"start": 1, "end": 2}]]),
    ("log", {"path": ".", "ranges": ['{"start":1}'], "mode": "2.5"}, "text",
     {"path": ".", "ranges": [{"start": 1}], "mode": 2.5}),
    ("log", {"path": ".", "tags": '{"a b":"1"}'}, "text", {"path": ".", "tags": {"a b": 1}}),
    ("log", {"path": ".", "tags": "null", "mode": "all"}, "text", {"path": "."}),
    ("only", ["7"], "text", [7]),
    ("total", [1, "2", "3"], "text", [1, 2, 3]),
    ("named", {"n": "4"}, "text", {"n": 4}),
    ("open_to", {"a": "1", "b c": "2"}, "text", {"a": 1, "b c": 2}),
    ("log", {"path": ".", "toolCallId": "n8n", "sessionId": None}, "unknown", ["."]),
    ("named", {"n": 2, "x": [1]}, "unknown", {"n": 2}),
    ("log", {"path": ".", "count": None, "short": None, "ranges": None}, "null", ["."]),
    ("log", {"path": ".", "ranges": [{"start": 1, "end": None}]}, "null", [".", 10, False, [{"start": 1}]]),
    ("named", {"n": None}, "null", {}),
    ("named", None, "null", {}),
]  # fmt: skip
"""A method, params, the option that takes them, and the params that mean the same."""

REFUSED: list[tuple[str, Any, str]] = [
    ("log", {"path": 3}, "path"),
    ("log", {"path": None}, "path"),
    ("log", {}, "path"),
    ("log", {"path": ".", "count": "three"}, "count"),
    ("log", {"path": ".", "count": "1e999"}, "count"),
    ("log", {"path": ".", "count": "NaN"}, "count"),
    ("log", {"path": ".", "count": "[3]"}, "count"),
    ("log", {"path": ".", "count": '"3"'}, "count"),
    ("log", {"path": ".", "count": ""}, "count"),
    ("log", {"path": ".", "short": "yes"}, "short"),
    ("log", {"path": ".", "short": 1}, "short"),
    ("log", {"path": ".", "ranges": "["}, "ranges"),
    ("log", {"path": ".", "ranges": "[" * 5_000}, "ranges"),
    ("log", {"path": ".", "ranges": [None]}, "ranges[0]"),
    ("log", {"path": ".", "ranges": [{"start": None}]}, "ranges[0].start"),
    ("log", [".", None], "count"),
    ("log", [".", 1, True, [], None, 1, "surplus"], "[6]"),
    ("only", {"a": 1}, "a"),
    ("only", [], "a"),
    ("total", ["1", "x"], "[1]"),
    ("open_to", {"a": 1, "b": "x"}, "b"),
]
"""Params that no option takes, and the place of their fault."""


async def through(call: Call, next: Next) -> Any:
    return await next(call)


def served(lenient: Leniency | bool, **options: Any) -> Service:
    """A service with each function in every kind: in place, in a thread, on the loop, with a context."""
    api = Service("loose", lenient=lenient, **options)
    for function in FUNCTIONS:
        _add(api, function)
    return api


def _add(api: Service, function: Callable[..., Any]) -> None:
    name = function.__name__
    api.method(name + ".inline", inline=True)(function)
    api.method(name + ".thread")(function)
    api.method(name + ".fenced", inline=True, allow=lambda identity, arguments: True)(function)

    async def on_the_loop(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    on_the_loop.__wrapped__ = function  # type: ignore[attr-defined]
    api.method(name + ".loop")(on_the_loop)


KINDS = ("inline", "thread", "loop", "fenced")
KNOWN = Caller(scheme="https", identity=Identity(subject="ada"))


def text_of(method: str, params: Any, id: int = 1) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": method, "params": params, "id": id}


async def answers(lenient: Leniency, method: str, params: Any, **options: Any) -> list[dict[str, Any]]:
    """What a call is answered in every kind and way: alone, in a batch, without a loop and on one, on a channel."""
    api = served(lenient, **options)
    found: list[Any] = []
    for kind in KINDS:
        message = text_of(f"{method}.{kind}", params)
        raw, several = json.dumps(message).encode(), json.dumps([message, message | {"id": 2}]).encode()
        found.append(await api.answer_async(raw, caller=KNOWN))
        found += json.loads(await api.answer_async(several, caller=KNOWN) or b"")
        if kind == "inline" and not options:
            found.append(api.answer(raw))
            found += json.loads(api.answer(several) or b"")
    return [one if isinstance(one, dict) else json.loads(one) for one in found]


@pytest.mark.parametrize("middleware", [(), (through,)], ids=["bare", "middleware"])
@pytest.mark.parametrize("option", EACH)
@pytest.mark.parametrize(("method", "sent", "taking", "meant"), TAKEN, ids=lambda value: str(value)[:40])
async def test_an_option_takes_its_own_arguments(
    method: str, sent: Any, taking: str, meant: Any, option: str, middleware: Any
) -> None:
    right = (await answers(STRICT, method, meant))[0]["result"]
    found = await answers(EACH[option], method, sent, **({"middleware": middleware} if middleware else {}))
    for one in found:
        if option in (taking, "all"):
            assert one["result"] == right
        else:
            assert one["error"]["code"] in (InvalidParams.code, -32600)  # `"params": null` is no request
    for one in await answers(EACH[option], method, meant):
        assert one["result"] == right


@pytest.mark.parametrize("option", EACH)
@pytest.mark.parametrize(("method", "sent", "place"), REFUSED, ids=lambda value: str(value)[:40])
async def test_what_is_wrong_is_refused_whatever_is_accepted(method: str, sent: Any, place: str, option: str) -> None:
    strict = (await answers(STRICT, method, sent))[0]["error"]
    assert any(one["field"].startswith(place.partition("[")[0]) for one in strict["data"]["errors"])
    for one in await answers(EACH[option], method, sent):
        assert one["error"]["code"] == InvalidParams.code
        assert any(fault["field"].startswith(place) for fault in one["error"]["data"]["errors"]) or option != "all"


async def test_on_a_channel_both_ends_may_be_lenient() -> None:
    api = Service("far", lenient=True)
    own = Service("near")

    @own.method(inline=True)
    def twice(n: int) -> int:
        return 2 * n

    @api.method
    async def ask(n: int, ctx: Context) -> int:
        found: int = await ctx.call("twice", {"n": str(n), "more": 1}, result=int)
        return found

    async with serve(api, urls=["memory:loose"]):
        async with connect("memory:loose", service=own, lenient=True) as peer:
            assert await peer.call("ask", {"n": "4", "id": None}) == 8
        async with connect("memory:loose", service=own) as peer:
            with pytest.raises(RpcError):
                await peer.call("ask", {"n": "4"})


def own_notes(identity: Identity, arguments: Mapping[str, Any] | None) -> bool:
    return arguments is None or arguments["owner"] == 7


def notes(owner: int, page: int = 1) -> int:
    return owner


@pytest.mark.parametrize("params", [{"owner": "8"}, {"owner": 8, "x": 1}, {"owner": 8, "page": None}, ["8"]])
@pytest.mark.parametrize("options", [{}, {"middleware": (through,)}])
async def test_who_may_call_is_asked_of_the_arguments_that_the_function_gets(params: Any, options: Any) -> None:
    for inline in (True, False):
        api = Service("notes", lenient=True, **options)
        api.method(allow=own_notes, inline=inline)(notes)
        one = text_of("notes", params)
        raw = json.dumps([one, one | {"id": 2}]).encode()
        assert [a["error"]["code"] for a in json.loads(await api.answer_async(raw, caller=KNOWN) or b"")] == [
            FORBIDDEN
        ] * 2
        mine = json.loads(json.dumps(one).replace("8", "7"))
        answer = json.loads(await api.answer_async(json.dumps(mine).encode(), caller=KNOWN) or b"")
        assert answer["result"] == 7


class Anyone:
    """On a wire within this machine nobody is asked for a token."""

    async def verify(self, token: str, handshake: Handshake) -> None:
        return None


@pytest.mark.parametrize("arguments", [{"owner": "8"}, {"owner": 8, "x": 1}, {"owner": 8, "page": None}])
async def test_so_it_is_where_a_service_is_included_in_a_lenient_server(arguments: Any) -> None:
    api = Service("notes")
    api.method(allow=own_notes)(notes)
    server = Server("outer", lenient=True, auth=Anyone())
    server.include(api)
    async with Client(server) as client:
        with pytest.raises(RpcError, match="not with these arguments"):
            await client.call_tool("notes", arguments)
        found = await client.call_tool("notes", arguments | {"owner": str(arguments["owner"]).replace("8", "7")})
        assert found.structured_content == 7


async def test_the_service_that_answers_decides_for_what_it_includes() -> None:
    strict, lenient = Service("inner"), Service("inner", lenient=True)
    for inner in (strict, lenient):
        inner.method(inline=True)(named)
    outer, closed = Service("outer", lenient=True), Service("outer")
    outer.include(strict)
    closed.include(lenient)
    raw = json.dumps(text_of("named", {"n": "4"})).encode()
    assert json.loads(outer.answer(raw) or b"")["result"] == 4
    assert "error" in json.loads(closed.answer(raw) or b"")
    assert "error" in json.loads(strict.answer(raw) or b"")


@pytest.mark.parametrize(("items", "readings"), [(10, 2), (700, 8), (400_000, 2)])
def test_a_large_message_is_not_read_eight_times(items: int, readings: int) -> None:
    """Each reading finds a hundred faults: what is read again is bounded in bytes, too."""
    again: list[int] = []

    def read(params: Raw) -> int:
        again.append(len(params))
        if found := [at for at, one in enumerate(json.loads(bytes(params))["a"]) if isinstance(one, str)][:100]:
            raise InvalidParams(data={"errors": [{"field": f"a[{at}]"} for at in found]})
        return items

    given = Raw(json.dumps({"a": ["1"] * items}).encode())
    with pytest.raises(InvalidParams) as first:
        read(given)
    try:
        assert read_loosely(given, first.value, read, Leniency(text_arguments=True), {"a"}, 8) == items
    except InvalidParams:
        assert items > 800
    assert len(again) == readings


def test_an_argument_is_decoded_once_for_all_its_faults(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred faults in one large argument, of which none can be amended, must not cost a hundred decodings of it."""
    decoded: list[int] = []
    value = loose_arguments._value

    def counting(text: Any) -> Any:
        decoded.append(len(text))
        return value(text)

    monkeypatch.setattr(loose_arguments, "_value", counting)
    faults = {"errors": [{"field": f"a[{at}].b"} for at in range(100)]}
    given = Raw(json.dumps({"a": [{"b": {}}] * 100}).encode())
    with pytest.raises(InvalidParams):
        read_loosely(given, InvalidParams(data=faults), lambda raw: 1, LENIENT, {"a"}, 8)
    assert decoded == [len(bytes(given)) - len('{"a": }')]


def depth_of(x: list[Any]) -> int:
    return 1 + max(map(depth_of, x), default=0)


@pytest.mark.parametrize("way", ["inline", "thread", "async", "batch", "middleware", "tool", "included", "schema"])
async def test_text_is_nested_no_deeper_than_the_message_may_be(way: str) -> None:
    """The message and its params, or the arguments in them, are levels too: the text may have what they leave."""
    limits, above = Limits(depth=16), 3 if way in ("tool", "included", "schema") else 2
    api = Service("api", lenient=True, limits=limits, middleware=[through] if way == "middleware" else ())
    if way == "async":

        async def deep(x: list[Any]) -> int:
            return depth_of(x)

        api.method("deep")(deep)
    else:
        api.method("deep", inline=way in ("inline", "batch"))(depth_of)
    server = Server("server", lenient=True, limits=limits)
    if way == "included":
        server.include(api)
    elif way == "schema":
        schema = {"type": "object", "properties": {"x": {"type": "array"}}, "required": ["x"]}
        server.tool("deep", input_schema=schema)(lambda given: depth_of(given["x"]))
    else:
        server.tool("deep")(depth_of)

    async def fits(levels: int) -> bool:
        given = {"x": "[" * levels + "]" * levels}
        if above == 3:
            async with Client(server) as client:
                result = await client.call_tool("deep", given)
            return not result.is_error
        sent: Any = text_of("deep", given)
        found = json.loads(await api.answer_async(json.dumps([sent] if way == "batch" else sent).encode()) or b"")
        [answer] = found if way == "batch" else [found]
        assert answer.get("result", levels) == levels
        return "result" in answer

    assert await fits(16 - above)
    assert not await fits(17 - above)
    assert not await fits(900)


async def test_who_may_call_is_not_asked_of_text_that_is_nested_too_deep() -> None:
    seen: list[Any] = []

    def allow(identity: Identity, arguments: Mapping[str, Any] | None) -> bool:
        seen.append(arguments)
        return True

    api = Service("api", lenient=True, limits=Limits(depth=16))
    api.method("deep", allow=allow)(depth_of)
    caller = Caller(identity=Identity(subject="u"))
    raw = json.dumps(text_of("deep", {"x": "[" * 100 + "]" * 100})).encode()
    assert "error" in json.loads(await api.answer_async(raw, caller=caller) or b"")
    assert seen in ([], [None])
