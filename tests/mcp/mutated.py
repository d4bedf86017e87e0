"""Messages of MCP with one wrong thing in their params: every member of every method in every revision, by the tables.

`corpus()` is the same list each time. A sample of the params is made from the types of `params`; then each of its
members, at any depth, is left out, or is another value: of another type, too long, too deep, a number at its edge.
`stateless` requests keep their envelope except where the envelope is what is changed.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from msgspec import Struct
from msgspec import inspect as types

from dragoman import serve
from dragoman.mcp import Completion, Context, Server
from dragoman.mcp.protocol.http_options import HttpOptions
from dragoman.mcp.protocol.methods import METHODS, Row
from dragoman.mcp.protocol.revisions import REVISIONS, Revision

META = "io.modelcontextprotocol/"
WHO = {"name": "tester", "version": "1"}
DEEP = 100
"""Levels of nesting that every interpreter decodes."""

WRONG: Mapping[str, bytes] = {
    "null": b"null",
    "true": b"true",
    "zero": b"0",
    "minus": b"-1",
    "a float": b"1.5",
    "an integral float": b"1.0",
    "beyond 64 bits": b"123456789012345678901234567890",
    "an empty text": b'""',
    "a long text": b'"' + b"x" * 300 + b'"',
    "a text of three bytes a letter": b'"' + "汉".encode() * 100 + b'"',
    "controls": b'"\\u0000\\r\\n\\u007f"',
    "an empty list": b"[]",
    "a long list": b"[" + b",".join([b'"xxx"'] * 100) + b"]",
    "a list of numbers": b"[1,2.5,-3]",
    "an empty object": b"{}",
    "a long object": b'{"a":"' + b"y" * 300 + b'"}',
    "a deep list": b"[" * DEEP + b"]" * DEEP,
    "a deep object": b'{"a":' * DEEP + b"1" + b"}" * DEEP,
}
"""What stands in a member's place; long is above 200 bytes."""


class Case(Struct, frozen=True):
    """One message. `name`: the value of its `Mcp-Name`, as the sample has it."""

    revision: Revision
    method: str
    what: str
    params: bytes
    name: str | None = None
    request: bool = True

    def message(self, id: int) -> bytes:
        """Its text; `id` where it is a request."""
        number = b'"id":%d,' % id if self.request else b""
        return b'{"jsonrpc":"2.0",%b"method":"%b","params":%b}' % (number, self.method.encode(), self.params)


def server() -> Server:
    """What the messages are sent to: one of each kind."""
    app = Server("mutated", version="1.0.0", http=HttpOptions(sessions=100_000))

    @app.tool(inline=True)
    def echo(text: str = "", count: int = 0) -> str:
        return text * count

    @app.tool
    async def tell(ctx: Context, text: str = "") -> str:
        await ctx.progress(1, 2)
        await ctx.info(text)
        return text

    @app.resource("note://one", inline=True)
    def note() -> str:
        return "one"

    @app.resource("notes://{id}", inline=True)
    def notes(id: str) -> str:
        return id

    @app.prompt(inline=True)
    def poem(topic: str = "") -> str:
        return topic

    @app.completion("poem", "topic", inline=True)
    def topics(typed: str) -> Completion:
        return Completion([typed])

    return app


async def _serve() -> None:
    await serve(server(), urls=["stdio:"])


SAMPLES: Mapping[tuple[str, str], Any] = {
    ("tools/call", "name"): "tell",
    ("tools/call", "arguments"): {"text": "a"},
    ("resources/read", "uri"): "note://one",
    ("resources/subscribe", "uri"): "note://one",
    ("resources/unsubscribe", "uri"): "note://one",
    ("prompts/get", "name"): "poem",
    ("prompts/get", "arguments"): {"topic": "a"},
    ("completion/complete", "ref.name"): "poem",
    ("completion/complete", "argument.name"): "topic",
    ("logging/setLevel", "level"): "info",
}
"""Where a type alone does not tell what would do."""


def _sample(kind: types.Type, method: str, at: str) -> Any:
    """A value that would do."""
    if (method, at) in SAMPLES:
        return SAMPLES[method, at]
    match kind:
        case types.Metadata():
            return _sample(kind.type, method, at)
        case types.UnionType():
            arms = [one for one in kind.types if not isinstance(one, types.NoneType)]
            return _sample(arms[0], method, at)
        case types.StructType():
            inside = f"{at}." if at else ""
            made = {one.encode_name: _sample(one.type, method, inside + one.encode_name) for one in kind.fields}
            return made if kind.tag_field is None else {kind.tag_field: kind.tag} | made
        case types.ListType():
            return [_sample(kind.item_type, method, f"{at}.0")]
        case types.DictType():
            return {"a": _sample(kind.value_type, method, f"{at}.a")}
        case types.LiteralType():
            return kind.values[0]
        case types.StrType():
            return "a"
        case types.BoolType():
            return True
        case types.IntType() | types.FloatType():
            return 1
    return {}


def params(row: Row, revision: Revision) -> dict[str, Any]:
    """Params of a method that would do, with every member that there is."""
    made: dict[str, Any] = _sample(types.type_info(row.params), row.name, "")
    made.pop("requestState", None)  # only the server can make one
    given = made.pop("_meta", {})
    if revision.stateful:
        made["_meta"] = {key: value for key, value in given.items() if not key.startswith(META)}
    else:
        more = {"protocolVersion": revision.date, "clientInfo": WHO, "logLevel": "info"}
        capabilities = given.get(f"{META}clientCapabilities", {})
        made["_meta"] = given | {META + key: value for key, value in more.items()}
        made["_meta"][f"{META}clientCapabilities"] = capabilities
    return made


def _places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield at
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _places(inner, (*at, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _places(inner, (*at, index))


def _changed(value: Any, at: tuple[Any, ...], new: bytes | None) -> bytes:
    """The JSON of a value with what is at a place replaced, or left out."""
    if not at:
        return b"{}" if new is None else new
    first, *others = at
    parts = []
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in items:
        if key != first:
            text = json.dumps(inner).encode()
        elif others:
            text = _changed(inner, tuple(others), new)
        elif new is None:
            continue
        else:
            text = new
        parts.append(json.dumps(key).encode() + b":" + text if isinstance(value, dict) else text)
    return b"{%b}" % b",".join(parts) if isinstance(value, dict) else b"[%b]" % b",".join(parts)


@cache
def corpus() -> tuple[Case, ...]:
    """Every message."""
    found = []
    for revision in REVISIONS.values():
        for row in METHODS.values():
            whole = params(row, revision)
            named = whole.get("uri" if row.name == "resources/read" else "name")
            name = named if row.name in ("tools/call", "resources/read", "prompts/get") else None
            for at in _places(whole):
                if len(at) > 1 and (row.direction == "server" or not row.within(revision)):
                    continue  # not read any further
                wrong = {"left out": None} | dict(WRONG)
                for what, new in wrong.items():
                    where = ".".join(map(str, at)) or "params"
                    text = _changed(whole, at, new)
                    found.append(
                        Case(revision, row.name, f"{where}: {what}", text, name, request=row.result is not None)
                    )
    return tuple(found)


if __name__ == "__main__":
    asyncio.run(_serve())
