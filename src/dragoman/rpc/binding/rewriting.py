"""Rewrites JSON Schemas, part by part. Values in them (`default`, `examples`, what users add) are not changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

TreePart: TypeAlias = dict[str, Any]
"""A schema, or a schema within one."""

_MAPS = frozenset({"properties", "patternProperties", "dependentSchemas", "$defs", "definitions"})
"""Keywords whose value is an object of schemas by name."""
_BELOW = frozenset(
    {
        *("items", "prefixItems", "contains", "unevaluatedItems", "additionalItems", "additionalProperties"),
        *("unevaluatedProperties", "propertyNames", "anyOf", "oneOf", "allOf", "not", "if", "then", "else"),
    }
)
"""Keywords whose value is a schema, or a list of schemas."""
_KINDS: Mapping[Any, str] = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    type(None): "null",
}


def each_part(schema: Any, change: Callable[[TreePart], TreePart]) -> Any:
    """Return the schema with each of its parts replaced by `change(part)`, the inner ones first."""
    if isinstance(schema, list):
        return [each_part(item, change) for item in schema]
    if not isinstance(schema, dict):
        return schema
    found = {}
    for key, value in schema.items():
        if key in _BELOW:
            value = each_part(value, change)
        elif key in _MAPS and isinstance(value, dict):
            value = {name: each_part(part, change) for name, part in value.items()}
        found[key] = value
    return change(found)


def typed(schema: Any) -> Any:
    """Return the schema with a `type` beside each `enum` and `const`, without which code generators allow anything; and
    with the tag of each discriminated union required, which pydantic's schemas leave out if the tag has a default."""
    return each_part(schema, lambda part: _typed(_tagged(part)))


def _tagged(part: TreePart) -> TreePart:
    choice = part.get("discriminator")
    if not isinstance(choice, dict) or "oneOf" not in part or not isinstance(tag := choice.get("propertyName"), str):
        return part
    return part | {"required": list(dict.fromkeys([*part.get("required", ()), tag]))}


def _typed(part: TreePart) -> TreePart:
    values = part["enum"] if isinstance(part.get("enum"), list) else [part["const"]] if "const" in part else []
    kinds = list(dict.fromkeys(_KINDS.get(type(value), "") for value in values))
    if not kinds or "" in kinds or part.keys() & {"type", "anyOf", "oneOf", "allOf", "$ref"}:
        return part
    return part | {"type": kinds[0] if len(kinds) == 1 else kinds}


def renamed(schema: Any, names: Mapping[str, str], refs: str) -> Any:
    """Return the schema with references to renamed components changed. `names`: the new names by the old ones; `refs`:
    the form of references, like "#/$defs/{name}"."""
    prefix = refs.removesuffix("{name}")
    targets = {prefix + name: prefix + other for name, other in names.items()}

    def change(part: TreePart) -> TreePart:
        found = part
        if isinstance(ref := part.get("$ref"), str) and ref in targets:
            found = found | {"$ref": targets[ref]}
        choice = part.get("discriminator")
        if isinstance(choice, dict) and isinstance(mapping := choice.get("mapping"), dict):
            tags = {tag: targets.get(to, to) for tag, to in mapping.items()}
            found = found | {"discriminator": choice | {"mapping": tags}}
        return found

    return each_part(schema, change) if names else schema


def references(schema: Any) -> list[str]:
    """Return each `$ref` in a schema."""
    found: list[str] = []

    def note(part: TreePart) -> TreePart:
        if isinstance(ref := part.get("$ref"), str):
            found.append(ref)
        return part

    each_part(schema, note)
    return found


def as_draft_7(schema: Any) -> Any:
    """Return a schema of 2020-12 with tuples written as in draft 7: `items` lists their schemas, `additionalItems` is
    the schema of further items."""
    return each_part(schema, _as_draft_7)


def _as_draft_7(part: TreePart) -> TreePart:
    if not isinstance(lead := part.get("prefixItems"), list):
        return part
    found = {key: value for key, value in part.items() if key not in ("prefixItems", "items")}
    more = "items" in part and part.get("maxItems") != len(lead)  # whether further items are allowed
    return found | {"items": lead} | ({"additionalItems": part["items"]} if more else {})
