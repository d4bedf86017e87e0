"""The table of signatures (`signatures.jsonl`): what is shown, taken and refused, for methods and for tools, and how
FastMCP and FastAPI differ. Every difference has a name, and docs/types.md has it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import UNSET

from dragoman import Service
from dragoman.jsonrpc.errors import RpcError
from dragoman.mcp import Client, Server
from tests.rpc.binding.signatures import POOL, function, here, signatures, table

TABLE = table()
VALUES: list[Any] = [UNSET, *POOL]
PAGE = Path(__file__).parents[3] / "docs" / "types.md"


def test_the_table_is_whole() -> None:
    assert [row["signature"] for row in TABLE] == signatures()
    assert len(TABLE) >= 250


@pytest.mark.parametrize("row", TABLE, ids=[row["signature"] for row in TABLE])
def test_a_signature_is_what_the_table_says(row: dict[str, Any]) -> None:
    assert json.loads(json.dumps(here(row["signature"]))) == row["here"]


# -- methods and tools


def given(row: dict[str, Any], *, taken: bool) -> tuple[dict[str, Any], str | None] | None:
    """Arguments that fit, or that do not, and what is received; None where the table has none."""
    for value, verdict in zip(VALUES, row["here"]["verdicts"], strict=True):
        if (verdict is not None) is taken:
            return ({} if value is UNSET else {row["here"]["name"]: value}), verdict
    return None


CALLED = [row for row in TABLE if "refused" not in row["here"]]


def test_a_method_takes_what_the_table_says() -> None:
    api = Service("table")
    taken: list[str] = []
    for index, row in enumerate(CALLED):
        api.method(str(index), inline=True)(function(row["signature"], taken))
    for index, row in enumerate(CALLED):
        for fits in (True, False):
            if (one := given(row, taken=fits)) is None:
                continue
            params, expected = one
            taken.clear()
            asked = {"jsonrpc": "2.0", "id": 1, "method": str(index), "params": params}
            answer = json.loads(api.answer(json.dumps(asked).encode()) or b"{}")
            assert ("result" in answer) is fits, row["signature"]
            assert taken == ([expected] if fits else []), row["signature"]
            if not fits:
                assert answer["error"]["data"]["errors"], row["signature"]


async def test_a_tool_takes_what_the_table_says_and_shows_it() -> None:
    app = Server("table")
    taken: list[str] = []
    for index, row in enumerate(CALLED):
        app.add_tool(function(row["signature"], taken), name=f"t{index}", inline=True)
    async with Client(app) as client:
        shown = {tool.name: tool.input_schema for tool in await client.list_tools()}
        for index, row in enumerate(CALLED):
            schema = dict(row["here"]["schema"])
            if not schema["required"]:
                del schema["required"]
            assert shown[f"t{index}"] == schema, row["signature"]
            for fits in (True, False):
                if (one := given(row, taken=fits)) is None:
                    continue
                params, expected = one
                taken.clear()
                try:
                    result = await client.call_tool(f"t{index}", params)
                    good = not result.is_error
                except RpcError:
                    good = False
                assert good is fits, row["signature"]
                assert taken == ([expected] if fits else []), row["signature"]


# -- how the peers differ


def flat(schema: Any, parts: dict[str, Any], inside: tuple[str, ...] = ()) -> Any:
    """A schema with its references written out, to be compared."""
    if isinstance(schema, list):
        return [flat(one, parts, inside) for one in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        if name in inside:
            return {"$ref": "itself"}
        rest = {key: value for key, value in schema.items() if key != "$ref"}
        return flat(parts.get(name, {}) | rest, parts, (*inside, name))
    if isinstance(schema.get("properties"), dict):
        named = {name: flat(one, parts, inside) for name, one in schema["properties"].items()}
        rest = {key: value for key, value in schema.items() if key != "properties"}
        return {"properties": named} | flat(rest, parts, inside)
    kept = ("default", "examples", "enum", "const")
    return {k: v if k in kept else flat(v, parts, inside) for k, v in schema.items() if k not in ("$defs", "title")}


def apart(ours: Any, theirs: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """The places at which two schemas differ."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key in sorted(ours.keys() | theirs.keys()):
            yield from (
                apart(ours.get(key), theirs.get(key), f"{path}/{key}")
                if key in ours and key in theirs
                else [(f"{path}/{key}", ours.get(key), theirs.get(key))]
            )
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs) and ours != theirs:
        if isinstance(ours[0], dict):
            for index, (one, other) in enumerate(zip(ours, theirs, strict=True)):
                yield from apart(one, other, f"{path}[{index}]")
        else:
            yield path, ours, theirs
    elif ours != theirs:
        yield path, ours, theirs


SHOWN = [
    (r"[Bb]ytes", r"/(contentEncoding|format|maxLength|contentMediaType)$", "bytes are base64"),
    (r"\b(dt|time)\b", r"/examples$", "times have an example"),
    (r"Decimal", r"/(anyOf|format|type|minimum)$", "a Decimal is text"),
    (
        r"Color|Level|Shade|Literal|Bits|Outer",
        r"/(enum|type|const)$",
        "values of an Enum or Literal are sorted",
    ),
    (r"list|dict|Sequence|Any", r"/(items|additionalProperties)$", "what may hold anything says nothing"),
    (r"tuple", r"/items$", "a tuple has no more places"),
    (r"Bounded|Files|Validated", r"/default$", "defaults that a factory makes are shown"),
    (r"None|Chain", r"/default$", "a default of null is shown"),
    (r"Annotated.* = Field", r"/description$", "a description in Annotated stays beside a default"),
    (r" \| ", r"anyOf|/(ge|minimum)$", "bounds of a union stand at its members"),
    (r"Doc\(", r"/description$", "Doc is a description"),
    (r"[dD]iscriminator", r"/required$", "the tag of a discriminated union is required"),
]
"""(The signature, the place in the schema, the difference)."""


def test_every_difference_of_schemas_has_a_name() -> None:
    found, unnamed = set(), []
    for row in TABLE:
        for peer in ("fastmcp", "fastapi"):
            ours, theirs = row["here"], row[peer]
            if "refused" in ours or "refused" in theirs:
                continue
            pairs = [flat(side["schema"]["properties"], side["schema"].get("$defs", {})) for side in (ours, theirs)]
            for place, one, other in apart(*pairs):
                name = next((n for s, p, n in SHOWN if re.search(s, row["signature"]) and re.search(p, place)), None)
                found.add(name)
                if name is None:
                    unnamed.append((peer, row["signature"], place, one, other))
    assert not unnamed
    assert {str(name) for name in found} <= named(), "docs/types.md has every difference"


def named() -> set[str]:
    """The differences that the page has."""
    return set(re.findall(r"^\| ([^|`]+?) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE))


def verdict(signature: str, value: Any, ours: str | None, theirs: str | None) -> str | None:
    """The name of a difference of verdicts or values."""
    dates = re.search(r"\b(dt|date|time|timedelta|Aware|Naive\w*)\b|datetime", signature, re.IGNORECASE)
    if "Iterable" in signature:
        return "an Iterable is a list"
    if re.search(r"bytes", signature, re.IGNORECASE) and isinstance(value, str):
        return "bytes are base64"
    if "Pair" in signature and isinstance(value, dict) and ours is None:
        return "a NamedTuple is an array"
    if ours is None:
        if isinstance(value, bool | int | float) or value == "1" or value == {"x": "1"}:
            return "values are not converted"
        return "dates and durations are ISO 8601, whole" if dates and isinstance(value, str) else None
    if theirs is None:
        if type(value) is float:
            return "1.0 is an integer"
        return "bounds of a union stand at its members" if "int | str, Field(ge=1)" in signature else None
    if theirs.replace("TzInfo(0)", "datetime.timezone.utc") == ours or (type(value) is float and "Decimal" in ours):
        return "the same value is written in another way"
    if theirs == repr(value) and isinstance(value, str) and "str" in signature:
        return "text comes last in a union"
    if "date, str" not in signature and re.search(r"tuple\[date \| str", signature):
        return "text comes last in a union"
    if " | " in signature and type(value) is float:
        return "values are not converted"
    return "the first member of a union that fits is taken" if " | " in signature else None


def test_every_difference_of_verdicts_has_a_name() -> None:
    found, unnamed = set(), []
    for row in TABLE:
        for peer in ("fastmcp", "fastapi"):
            ours, theirs = row["here"], row[peer]
            if "refused" in ours or "refused" in theirs:
                continue
            for value, one, other in zip(VALUES, ours["verdicts"], theirs["verdicts"], strict=True):
                if one == other:
                    continue
                name = verdict(row["signature"], value, one, other)
                found.add(name)
                if name is None:
                    unnamed.append((peer, row["signature"], value, one, other))
    assert not unnamed
    assert {str(name) for name in found} <= named(), "docs/types.md has every difference"


def test_nothing_that_a_peer_takes_cannot_be_written_here() -> None:
    refused = [row["signature"] for row in TABLE if "refused" in row["here"]]
    assert not [row["signature"] for row in TABLE if row["signature"] in refused and "refused" not in row["fastmcp"]]
