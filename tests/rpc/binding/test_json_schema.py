"""JSON Schemas that people wrote: basic/index, "JSON Schema Usage"."""

from __future__ import annotations

import socket
import sys
from typing import Any

import pytest

from dragoman.jsonrpc.errors import LocalError
from dragoman.rpc.binding.compiled_schema import DEEPEST
from dragoman.rpc.binding.faults import MOST
from dragoman.rpc.binding.json_schema import LARGEST, SEARCHED, validator


def test_every_fault() -> None:
    check = validator(
        {
            "type": "object",
            "properties": {
                "a": {"type": "integer", "minimum": 3},
                "b": {"type": "array", "items": {"type": "string"}},
                "c": {"properties": {"x": {}}, "required": ["x"], "additionalProperties": False},
                "d": {"properties": {"x": {}}, "unevaluatedProperties": False},
                "e": {"type": "object", "additionalProperties": False},
            },
            "required": ["y", "z"],
            "additionalProperties": False,
        }
    )
    assert check({"y": 1, "z": 2} | {"a": 3}) != []
    found = check({"a": 1, "b": ["x", 2], "c": {"w w": 1}, "d": {"z": 1}, "e": {"z": 1}, "q": [1]})
    told = {one.field: (one.message, one.received) for one in found}
    assert told.keys() == {"a", "b[1]", "c.x", 'c["w w"]', "d.z", "e", "q", "y", "z"}
    assert told["a"] == ("1 is less than the minimum of 3", 1)
    assert told["b[1]"] == ('2 is not of type "string"', 2)
    assert told["c.x"][0] == "Missing field"
    assert told['c["w w"]'] == ("Unknown field", 1)
    assert told["d.z"] == ("Unknown field", 1)
    assert told["e"] == ("Unknown field: nothing is allowed here", 1)
    assert told["q"] == ("Unknown argument", [1])
    (fault,) = validator({"type": "object", "additionalProperties": False})({"x": 1})
    assert (fault.field, fault.message, fault.received) == ("x", "Unknown argument", 1)
    assert told["y"][0] == "Missing argument"


def test_faults_are_bounded() -> None:
    check = validator({"items": {"type": "string"}})
    assert len(check([1] * 10_000)) == MOST
    # of what is large the first fault is told, since looking for all costs too much
    assert len(check([1] * SEARCHED)) == 1
    assert check(["x"] * SEARCHED) == []
    found = validator({"type": "string"})(["x" * 100_000])
    assert len(found[0].message) <= 300
    assert len(str(found[0].received)) <= 300


@pytest.mark.parametrize(
    ("dialect", "good"),
    [
        ("https://json-schema.org/draft/2020-12/schema", True),
        ("https://json-schema.org/draft/2019-09/schema", True),
        ("http://json-schema.org/draft-07/schema#", True),
        ("http://json-schema.org/draft-07/schema", True),
        ("http://json-schema.org/draft-06/schema#", True),
        ("http://json-schema.org/draft-04/schema#", True),
        ("https://example.com/my-dialect", False),
    ],
)
def test_dialects(dialect: str, good: bool) -> None:
    """Implementation Requirements: "They MUST handle unsupported dialects gracefully"."""
    schema = {"$schema": dialect, "type": "integer"}
    if good:
        check = validator(schema)
        assert check(5) == []
        assert len(check("x")) == 1
        return
    with pytest.raises(LocalError, match="dialect is not known"):
        validator(schema)


def test_2020_12_is_the_default() -> None:
    """Schema Dialect: "it defaults to JSON Schema 2020-12", where `prefixItems` counts, an array as items does not."""
    check = validator({"prefixItems": [{"type": "integer"}]})
    assert len(check(["x"])) == 1
    with pytest.raises(LocalError):
        validator({"items": [{"type": "integer"}]})
    seven = validator({"$schema": "http://json-schema.org/draft-07/schema#", "items": [{"type": "integer"}]})
    assert len(seven(["x"])) == 1


@pytest.mark.parametrize(
    "schema", [{"type": "nope"}, {"required": "a"}, {"pattern": "(("}, {"$ref": "#/nope"}, [], "x", None, 5]
)
def test_no_schemas(schema: Any) -> None:
    """Schema Validation: "Schemas MUST be valid according to their declared or default dialect"."""
    with pytest.raises(LocalError, match=r"^the tool: "):
        validator(schema, where="the tool")


def test_booleans_are_schemas() -> None:
    assert validator(True)(5) == []
    assert len(validator(False)(5)) == 1


def test_nothing_is_fetched() -> None:
    """`$ref` Resolution: "MUST NOT automatically dereference `$ref` values that resolve to a network URI"."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.2)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/schema.json"
        for schema in ({"$ref": url}, {"properties": {"a": {"$ref": url}}}, {"$dynamicRef": url}, {"$schema": url}):
            with pytest.raises(LocalError):
                validator(schema)
        with pytest.raises(TimeoutError):
            listener.accept()


def test_references_inside() -> None:
    schema = {
        "$id": "https://example.com/root",
        "$defs": {"A": {"$anchor": "a", "type": "integer"}, "B": {"$id": "b", "type": "string"}},
        "properties": {
            "x": {"$ref": "#a"},
            "y": {"$ref": "https://example.com/root#/$defs/A"},
            "z": {"$ref": "b"},
        },
    }
    check = validator(schema)
    assert check({"x": 1, "y": 2, "z": "b"}) == []
    assert {one.field for one in check({"x": "1", "y": "2", "z": 3})} == {"x", "y", "z"}


def test_bounds() -> None:
    """Composition-Keyword Resource Use: "Implementations SHOULD apply reasonable bounds"."""
    deep: dict[str, Any] = {"type": "integer"}
    for _ in range(100_000):
        deep = {"not": deep}
    with pytest.raises(LocalError, match=f"more than {DEEPEST} levels"):
        validator(deep)
    with pytest.raises(LocalError, match="bytes"):
        validator({"description": "x" * LARGEST})
    itself: dict[str, Any] = {}
    itself["not"] = itself
    with pytest.raises(LocalError, match="levels"):
        validator(itself)


@pytest.mark.parametrize("depth", [2_990, 10_000])
def test_values_that_are_deep(depth: int) -> None:
    """The first is about what a message has at most on Windows with Python 3.12, where recursion is bounded so."""
    nested: list[Any] = []
    for _ in range(depth):
        nested = [nested]
    validator({"items": {"$ref": "#"}})(nested)
    validator({"items": {"$ref": "#"}, "type": "string"})(nested)


def test_values_that_are_hard() -> None:
    validator({"type": "integer"})(10**400)
    # a pattern that backtracks for ever does not
    assert validator({"pattern": "^(a+)+(?=b)$"})("a" * 5_000)


def test_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jsonschema_rs", None)
    with pytest.raises(LocalError, match=r"dragoman\[mcp\]"):
        validator({})


def chain(length: int, **last: Any) -> dict[str, Any]:
    """Each definition leads to the next in two ways."""
    defs: dict[str, Any] = {f"a{i}": {"anyOf": [{"$ref": f"#/$defs/a{i + 1}"}] * 2} for i in range(length)}
    return {"$defs": defs | {f"a{length}": {"type": "string"} | last}, "$ref": "#/$defs/a0"}


def test_too_many_ways() -> None:
    """ "a malicious schema [...] as a Denial-of-Service vector against the validator"."""
    assert len(validator(chain(8))(5)) == 1
    for schema in (
        chain(60),
        chain(60) | {"$ref": "#/$defs/a1"},
        {"$defs": chain(60)["$defs"], "properties": {"a": {"allOf": [{"$ref": "#/$defs/a0"}]}}},
        {
            "$defs": {f"a{i}": {"$anchor": f"n{i}", "oneOf": [{"$ref": f"#n{i + 1}"}] * 2} for i in range(60)}
            | {"z": {"$anchor": "n60"}}
        },
        {
            "$defs": {
                f"a{i}": {"$id": f"x:n{i}", "not": {"$ref": f"x:n{i + 1}"}, "if": {"$ref": f"x:n{i + 1}"}}
                for i in range(60)
            }
        },
    ):
        with pytest.raises(LocalError, match="ways"):
            validator(schema)


def test_circles() -> None:
    """A schema that refers to itself is nothing strange."""
    tree = {
        "type": "object",
        "properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}, "value": {"type": "integer"}},
    }
    check = validator(tree)
    assert check({"left": {"right": {"value": 1}}}) == []
    assert [one.field for one in check({"left": {"right": {"value": "1"}}})] == ["left.right.value"]
    nested: Any = {"value": "x"}
    for _ in range(100):
        nested = {"left": nested}
    assert [one.message for one in check(nested)] == ["Nested too deep"]
