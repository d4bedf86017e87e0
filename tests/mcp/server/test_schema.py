"""What functions take and return, as JSON Schema; see test_tools for the rest."""

from __future__ import annotations

import pytest

from dragoman.mcp.server.schema import description, output_schema, wrapped


def test_wrapped() -> None:
    assert wrapped({"type": "integer"}) == {
        "type": "object",
        "properties": {"result": {"type": "integer"}},
        "required": ["result"],
    }
    whole = wrapped({"$schema": "x", "type": "array", "items": {"$ref": "#/$defs/A"}, "$defs": {"A": {}}})
    assert whole["$defs"] == {"A": {}}
    assert whole["$schema"] == "x"
    assert whole["properties"]["result"] == {"type": "array", "items": {"$ref": "#/$defs/A"}}


def test_output_schemas_of_types() -> None:
    assert output_schema(int) == {"type": "integer"}
    assert output_schema(dict[str, int])["type"] == "object"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        ("One line.", "One line."),
        ("One.\n\nTwo.", "One.\n\nTwo."),
        ("One.\n\nArgs:\n    a: b\n        c\n\nTwo.", "One.\n\nTwo."),
        ("One.\n\nRaises:\n    E: b\nReturns:\n    c", "One.\n\nReturns:\n    c"),
        ("One.\n\nParameters\n----------\na : int\n    b\n\nReturns\n-------\nint", "One.\n\nReturns\n-------\nint"),
        ("One.\n\n:param a: b\n    c\n:returns: d", "One.\n\n:returns: d"),
        ("One.\n\nExample:\n    f(1)", "One.\n\nExample:\n    f(1)"),
    ],
)
def test_description(text: str, expected: str) -> None:
    assert description(text) == expected
