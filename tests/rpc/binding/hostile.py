"""Schemas, patterns and values that a far end chose to be slow: (name, schema, value, how the check ends).

How it ends: "fits", "fault" (a fault that says what does not fit), "bounded" (a fault that says that it cannot be
checked), "refused" (the schema itself is not taken).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

HERE: dict[str, Any] = {"$ref": "#"}
NO_INTEGER: dict[str, Any] = {"not": {"type": "integer"}}


def arrays(levels: int, leaf: Any = 1) -> Any:
    for _ in range(levels):
        leaf = [leaf]
    return leaf


def objects(levels: int, leaf: Any = 1, name: str = "a") -> Any:
    for _ in range(levels):
        leaf = {name: leaf}
    return leaf


def chain(length: int, word: str) -> dict[str, Any]:
    """Each definition leads to the next twice."""
    twice: dict[str, Any] = {}
    for number in range(length):
        led = {"$ref": f"#/$defs/a{number + 1}"}
        both: Any = [led, led] if word in ("allOf", "anyOf", "oneOf") else led
        other = {"not": led} if word not in ("allOf", "anyOf", "oneOf", "not") else {}
        twice[f"a{number}"] = {word: both} | other
    return {"$ref": "#/$defs/a0", "$defs": twice | {f"a{length}": {"type": "string"}}}


# what leads to the items or members of a value in two ways, and so to those below in 2 ** depth
_ITEMS: dict[str, dict[str, Any]] = {
    "items twice": {"allOf": [{"items": HERE}, {"items": HERE}]},
    "items and contains": {"items": HERE, "contains": HERE, "minContains": 0},
    "prefixItems twice": {"allOf": [{"prefixItems": [HERE]}, {"prefixItems": [HERE]}]},
    "prefixItems and unevaluatedItems": {"allOf": [{"prefixItems": [HERE]}], "unevaluatedItems": HERE, "items": HERE},
    "unevaluatedItems twice": {"allOf": [{"unevaluatedItems": HERE}, {"unevaluatedItems": HERE}]},
    "anyOf items": {"anyOf": [{"items": HERE, "minItems": 1}, {"items": HERE}]},
    "oneOf items": {"oneOf": [{"items": HERE, "minItems": 2}, {"items": HERE}]},
    "not items": {"not": {"not": {"items": HERE}}, "items": HERE},
    "if items": {"if": {"items": HERE}, "then": {"items": HERE}, "else": {"items": HERE}},
    "many items": {"allOf": [{"items": HERE}] * 20},
    "dynamic items": {
        "$dynamicAnchor": "n",
        "allOf": [{"items": {"$dynamicRef": "#n"}}, {"items": {"$dynamicRef": "#n"}}],
    },
    "two that alternate": {
        "$defs": {
            "a": {"allOf": [{"items": {"$ref": "#/$defs/b"}}, {"items": {"$ref": "#/$defs/b"}}]} | NO_INTEGER,
            "b": {"allOf": [{"items": {"$ref": "#/$defs/a"}}, {"items": {"$ref": "#/$defs/a"}}]} | NO_INTEGER,
        },
        "$ref": "#/$defs/a",
    },
    "dynamic scopes": {
        "$id": "https://example.com/a",
        "$dynamicAnchor": "n",
        "$defs": {
            f"d{number}": {"$id": f"d{number}", "$dynamicAnchor": "n", "items": {"$dynamicRef": "#n"}}
            for number in range(8)
        },
        "allOf": [{"items": {"$ref": f"d{number}"}} for number in range(8)],
        "items": {"$dynamicRef": "#n"},
    },
}
_MEMBERS: dict[str, dict[str, Any]] = {
    "properties twice": {"allOf": [{"properties": {"a": HERE}}, {"properties": {"a": HERE}}]},
    "patternProperties twice": {"patternProperties": {"a": HERE, "^a": HERE, "a$": HERE}},
    "properties and patternProperties": {"properties": {"a": HERE}, "patternProperties": {"a": HERE}},
    "additionalProperties twice": {"allOf": [{"additionalProperties": HERE}, {"additionalProperties": HERE}]},
    "unevaluatedProperties twice": {"allOf": [{"unevaluatedProperties": HERE}, {"unevaluatedProperties": HERE}]},
    "dependentSchemas": {"dependentSchemas": {"a": {"properties": {"a": HERE}}}, "properties": {"a": HERE}},
    "if properties": {"if": {"properties": {"a": HERE}}, "then": {"properties": {"a": HERE}}},
    "anyOf properties": {"anyOf": [{"properties": {"a": HERE}, "required": ["b"]}, {"properties": {"a": HERE}}]},
    "propertyNames and members": {"propertyNames": {"minLength": 1}, "additionalProperties": HERE, "allOf": [{}] * 50},
}
_DRAFTS: dict[str, dict[str, Any]] = {
    "items of draft 7": {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "allOf": [{"items": [HERE]}, {"items": [HERE], "additionalItems": HERE}, {"items": HERE}],
    },
    "items of draft 4": {
        "$schema": "http://json-schema.org/draft-04/schema#",
        "allOf": [{"items": HERE}, {"items": HERE}],
    },
    "recursiveRef": {
        "$schema": "https://json-schema.org/draft/2019-09/schema",
        "$recursiveAnchor": True,
        "allOf": [{"items": {"$recursiveRef": "#"}}, {"items": {"$recursiveRef": "#"}}],
    },
}
_PATTERNS = (
    "^(a+)+$",
    "^(a*)*$",
    "^(a|a)*$",
    "^(a|aa)+$",
    "^([a-z]+)*$",
    "(.*)*x",
    "(x+x+)+y",
    "^(([a-z])+.)+[A-Z]([a-z])+$",
    "(a?){40}a{40}$",
    "^(?:a?){100}b$",
    "[01]*1[01]{40}$",
    r"(\w+\s?)+$",
)
_NOT_RUN = (
    "^(a+)+(?=b)$",
    "^(?!(a+)+$)",
    "^(?:(a+)+)?!$",
    r"^(a+)+\1$",
    "(?<=(a+)+)b",
    "a{1000}{1000}",
    "(((a{100}){100}){100}){100}",
)


def _growing() -> Iterator[tuple[str, Any, Any, str]]:
    for name, schema in (_ITEMS | _DRAFTS).items():
        yield f"{name}, fitting", schema, arrays(20, []), "bounded" if name == "dynamic scopes" else "fits"
        yield f"{name}, not fitting", schema | NO_INTEGER, arrays(20), ""
    for name, schema in _MEMBERS.items():
        yield f"{name}, fitting", schema, objects(20, {}), "fits"
        yield f"{name}, not fitting", schema | NO_INTEGER, objects(20), ""


def _chains() -> Iterator[tuple[str, Any, Any, str]]:
    for word in ("allOf", "anyOf", "oneOf"):
        yield f"a chain of {word}", chain(40, word), 5, "fault" if word == "allOf" else "bounded"
        yield f"a chain of {word} at an array", chain(40, word), [5], "fault"
    for word in ("items", "contains", "unevaluatedItems"):
        yield f"a chain of {word}", chain(40, word), arrays(30), ""
    for word in ("additionalProperties", "unevaluatedProperties", "propertyNames"):
        yield f"a chain of {word}", chain(40, word), objects(30), ""


def _wide() -> Iterator[tuple[str, Any, Any, str]]:
    many = [{"const": number} for number in range(4_000)]
    yield "many constants, many values", {"items": {"anyOf": many}}, list(range(2_000, 6_000)), "bounded"
    yield "a long enum, many values", {"items": {"enum": list(range(9_000))}}, [-1] * 90_000, "fault"
    yield "a long enum of long texts", {"items": {"enum": ["a" * 900] * 900}}, ["a" * 899] * 900, "fault"
    yield "a large constant", {"items": {"const": [0] * 9_000}}, [[0] * 9_000] * 90, ""
    yield "equal items", {"uniqueItems": True}, [[0] * 900] * 900, "bounded"
    yield "a few equal items", {"uniqueItems": True}, [[0] * 90] * 900, "fault"
    yield "unequal items", {"uniqueItems": True}, [[0] * 90 + [one] for one in range(900)], "fits"
    wide = {"properties": {f"p{number}": {} for number in range(4_000)}, "additionalProperties": {"$ref": "#"}}
    yield "many properties, many objects", {"items": wide | {"additionalProperties": False}}, [{}] * 90_000, ""
    yield "many properties, many objects below themselves", wide, {f"x{one}": {} for one in range(9_000)}, ""
    yield "many required", {"items": {"required": [f"r{one}" for one in range(9_000)]}}, [{}] * 9_000, "fault"
    yield (
        "nothing but members",
        {"additionalProperties": {"type": "integer"}},
        {f"m{one}": one for one in range(90_000)},
        "",
    )
    yield "too many parts", {"allOf": [{}] * 30_000}, 1, "refused"
    yield "too deep", {"not": arrays(0, objects(80, {}, "not"))}, 1, "refused"
    yield "a value that is too deep", {"items": HERE}, arrays(500), "fault"
    yield "a circle of references", {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}, [], "fits"
    yield "a circle of references at a text", {"allOf": [HERE]}, "x", "bounded"
    yield "a huge number", {"multipleOf": 1e-300}, 10**300, ""
    yield "errors within errors", {"anyOf": [{"anyOf": [{"anyOf": [{"type": "null"}] * 9}] * 9}] * 9}, 1, "fault"
    path = {f"d{one}": {"$ref": f"#/$defs/d{one + 1}"} for one in range(3_000)}
    yield "a long way", {"$ref": "#/$defs/d0", "$defs": path | {"d3000": {}}}, 1, ""
    yield "out of the document", {"$ref": "https://example.com/schema"}, 1, "refused"
    yield "no schema behind a reference", {"$ref": "#/x", "x": {"pattern": 5, "items": 7}}, "x", "refused"
    yield "an array behind a reference", {"$ref": "#/x/0", "x": [{"required": "abc"}]}, {}, "refused"


def _texts() -> Iterator[tuple[str, Any, Any, str]]:
    for pattern in _PATTERNS:
        yield f"the pattern {pattern}", {"pattern": pattern}, "a" * 5_000 + "!", ""
        yield f"names of {pattern}", {"patternProperties": {pattern: False}}, {"a" * 5_000 + "!": 1}, ""
    for pattern in _NOT_RUN:
        yield f"the pattern {pattern}", {"pattern": pattern}, "a" * 5_000 + "!", "refused or fits"
    yield "a pattern of many states", {"pattern": "([ab]{90}c?){90}$"}, "ab" * 500_000, "bounded"
    yield (
        "many patterns",
        {"properties": {f"p{one}": {"pattern": f"a{{90}}{one}"} for one in range(900)}},
        {},
        "refused",
    )
    yield "a long text, many ways", {"allOf": [{"pattern": f"a{{{n}}}b"} for n in range(90)]}, "a" * 1_000_000, ""


CASES: list[tuple[str, Any, Any, str]] = [*_growing(), *_chains(), *_wide(), *_texts()]
