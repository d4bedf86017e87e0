"""Converts arguments and answers to the types of a JSON Schema: `count=3`, `flag=yes`, `tags=a,b`.

Rules:

- Where the schema wants a string, the argument is taken as it is: `zip=01234` stays a string. Everywhere else it
  is read as JSON; if it is not JSON and the schema allows a string, it is that string.
- A boolean may be written as yes, no, on, off, true or false. An array of plain elements may be
  written with commas.
- A value that the schema certainly does not allow is refused in one sentence; the server checks the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from .arguments import NAMED, dotted
from .exit_status import Usage, suggest_name

BOOLEANS = {"true": True, "yes": True, "y": True, "on": True, "false": False, "no": False, "n": False, "off": False}
DEEPEST = 20
"""References that are followed; a schema may refer to itself."""


class Misfit(Exception):
    """A value that a schema does not allow; the text says what it allows."""


def arguments_of(words: Sequence[str], schema: Mapping[str, Any], owner: str) -> dict[str, Any]:
    """`name=value` arguments as the arguments that `schema` describes. Raises Usage."""
    properties = schema.get("properties")
    known: Mapping[str, Any] = properties if isinstance(properties, Mapping) else {}
    open_ended = schema.get("additionalProperties", not known) not in (False, None)
    found: dict[str, Any] = {}
    for word in words:
        match = NAMED.fullmatch(word)
        if match is None:
            raise Usage(f"{word!r}: write the arguments of {owner} by name: {_sample(known)}")
        name, text = match[1], match[2]
        if name in found:
            raise Usage(f"the argument {name!r} is given twice")
        if name not in known and not open_ended:
            outer = known.get(name.partition(".")[0])
            inner = dotted(name, text) if isinstance(outer, Mapping) and outer.get("type", "object") == "object" else ""
            raise Usage(f"{owner} has no argument {name!r}; {inner or _offer(name, known)}")
        try:
            found[name] = value_of(text, known.get(name, {}), schema)
        except Misfit as fault:
            raise Usage(f"{name}: {fault}, not {text!r}") from None
    required = schema.get("required")
    lacking = [name for name in required if name in known and name not in found] if isinstance(required, list) else []
    if lacking and not found:  # of other faults the server reports all at once, this one among them
        raise Usage(f"{owner} lacks {', '.join(lacking)}: write {_sample(lacking)}")
    return found


def _sample(known: Iterable[str]) -> str:
    return " ".join(f"{name}=..." for name in list(known)[:3]) or "it takes none"


def _offer(name: str, known: Mapping[str, Any]) -> str:
    return suggest_name(name, known, f"there {'are ' + ', '.join(known) if known else 'is none'}")


def value_of(word: str, schema: Any, root: Any = None) -> Any:
    """One argument as a value of `schema`; `root` resolves its references. Raises Misfit if it is certainly not
    allowed."""
    shape = resolve_schema(schema, schema if root is None else root)
    if (choices := choices_of(shape)) is not None:
        return _chosen(word, choices)
    kinds = kinds_of(shape)
    if "boolean" in kinds and word.lower() in BOOLEANS:
        return BOOLEANS[word.lower()]
    if kinds == {"string"}:
        return word
    try:
        value = msgspec.json.decode(word.encode("utf-8", "surrogateescape"))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        value = word
    if not kinds or _kind_of(value) in kinds:
        return value
    if "integer" in kinds and isinstance(value, float) and value.is_integer():
        return int(value)
    if "string" in kinds:
        return word
    items = shape.get("items", {})
    nested = kinds_of(resolve_schema(items, schema if root is None else root)) & {"array", "object"}
    if kinds == {"array"} and word[:1] not in ("[", "{", '"') and not nested:
        return [value_of(part.strip(), items, root) for part in word.split(",") if part.strip()]
    wanted = kinds - {"integer"} if "number" in kinds else kinds
    raise Misfit(f"it must be {' or '.join(map(_article, sorted(wanted)))}")


def _chosen(word: str, choices: Mapping[str, Any]) -> Any:
    """The choice that an argument names, by its value or its title."""
    for title, value in choices.items():
        if word in (value if isinstance(value, str) else msgspec.json.encode(value).decode(), title):
            return value
    raise Misfit(f"it must be one of {', '.join(choices)}")


def choices_of(schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """The choices of an enum by their names; None if the schema is not an enum."""
    if isinstance(values := schema.get("enum"), list):
        names = schema.get("enumNames")
        titles = names if isinstance(names, list) and len(names) == len(values) else values
        return {_text(title): value for title, value in zip(titles, values, strict=True)}
    for key in ("oneOf", "anyOf"):
        options = schema.get(key)
        if isinstance(options, list) and options and all(isinstance(o, dict) and "const" in o for o in options):
            return {_text(option.get("title", option["const"])): option["const"] for option in options}
    return {_text(schema["const"]): schema["const"]} if "const" in schema else None


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def resolve_schema(schema: Any, root: Any) -> dict[str, Any]:
    """The schema behind a reference within the same document; {} (any value) if it leads nowhere."""
    for _ in range(DEEPEST):
        if not isinstance(schema, dict):
            return {}
        reference = schema.get("$ref")
        if not isinstance(reference, str):
            return schema
        node: Any = root
        for part in reference.removeprefix("#").split("/")[1:]:
            node = node.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(node, dict) else None
        schema = node
    return {}


def kinds_of(schema: Mapping[str, Any]) -> set[str]:
    """The JSON types that a schema allows; empty where it does not say."""
    for key in ("anyOf", "oneOf"):
        if isinstance(options := schema.get(key), list):
            found = [kinds_of(option) for option in options if isinstance(option, dict)]
            return set().union(*found) if found and all(found) else set()
    kind = schema.get("type")
    if isinstance(kind, str):
        kind = [kind]
    if not isinstance(kind, list):
        return set()
    return {str(one) for one in kind} | ({"integer"} if "number" in kind else set())


def _kind_of(value: Any) -> str:
    for kind, name in ((bool, "boolean"), (int, "integer"), (float, "number"), (str, "string"), (list, "array")):
        if isinstance(value, kind):
            return name
    return "null" if value is None else "object"


def _article(kind: str) -> str:
    return "null" if kind == "null" else f"{'an' if kind.startswith(tuple('aeiou')) else 'a'} {kind}"
