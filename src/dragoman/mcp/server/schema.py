"""The JSON Schemas of tools: of their functions' arguments and results.

Rules:

- A function's schemas come from its `Binding` (2020-12), with every `$ref` inside the document. An input schema is one
  of an object without other members, unless the function takes **kwargs.
- An output schema is one of an object for peers up to 2025-11-25: they get any other result `v` as `{"result": v}`.
  From 2026-07-28 on "structuredContent can be any JSON value", and it is sent as it is.
- Schemas that a user writes are checked by `rpc.binding.json_schema`.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import Meta

from ...jsonrpc.errors import LocalError
from ...rpc.binding.binding import Binding
from ...rpc.binding.hooks import schemas
from ...rpc.binding.schema import REFS
from ...rpc.binding.tree import Node
from ..protocol.headers import MARK, HeaderParam, marked

Schema: TypeAlias = dict[str, Any]
RESULT: Final = "result"
"""The one member of a wrapped result."""


def Header(name: str) -> Meta:
    """Mark a parameter for HTTP headers (server/tools, `x-mcp-header`): `region: Annotated[str, Header("Region")]`.

    Clients then send it as the header `Mcp-Param-Region` too, by which proxies can route; so mark nothing secret. Only
    text, integers and booleans can be marked, in the tool's arguments or in Structs in them.
    """
    return Meta(extra_json_schema={MARK: name})


# -- of functions ---------------------------------------------------------------------------------


def input_schema(binding: Binding, where: str) -> tuple[Schema, tuple[HeaderParam, ...]]:
    """Return the input schema of a function's arguments, and the parameters that are marked for headers.

    Raises LocalError, whose text begins with `where`, for arguments that can only be given by position, and for marks
    on types that no header can hold."""
    for p in binding.parameters:
        if p.kind in ("positional", "rest"):
            sign = "*" if p.kind == "rest" else ""
            raise LocalError(
                f"{where}, parameter {sign}{p.name}: arguments have names here; take away the `/` or the `*`"
            )
    schema = binding.params_schema()
    if not schema["required"]:
        del schema["required"]
    text = str(schema)
    if MARK not in text:
        return schema, ()
    schema = _with_reachable_marks(schema)
    return schema, marks(schema, where)


def marks(schema: Any, where: str) -> tuple[HeaderParam, ...]:
    """Return the parameters that an input schema marks for headers. Raises LocalError if a mark breaks the rules."""
    try:
        return marked(schema)
    except ValueError as error:
        raise LocalError(f"{where}: {error}") from error


def output_schema(hint: Any) -> Schema:
    """Return the schema of a result of this type (a translated one, see `rpc.binding.annotations`)."""
    (schema,), components = schemas([hint], refs=REFS, result=True, inline=True)
    name = schema.get("$ref", "").removeprefix("#/$defs/")
    if name in components and len(schema) == 1:
        # the root has a `type` of its own, as clients want
        schema = components[name]
        if f'"#/$defs/{name}"' not in msgspec.json.encode(components).decode():
            components = {other: part for other, part in components.items() if other != name}
    return schema | ({"$defs": components} if components else {})


def is_object(schema: Mapping[str, Any]) -> bool:
    """Return whether it is the schema of an object, and so an output schema for every revision."""
    return schema.get("type") == "object"


def wrapped(schema: Schema) -> Schema:
    """Return the schema of `{"result": v}` for values v of this schema."""
    inner = {key: value for key, value in schema.items() if key not in _OF_ROOT}
    outer = {key: schema[key] for key in _OF_ROOT if key in schema}
    return outer | {"type": "object", "properties": {RESULT: inner}, "required": [RESULT]}


_OF_ROOT = ("$schema", "$defs", "definitions")


def _with_reachable_marks(schema: Schema) -> Schema:
    """Return a schema in which all marks are reachable only through `properties`: `$ref`s to marked parts are replaced
    by these, and a marked parameter that may be absent is described without its null."""
    definitions = schema.get("$defs", {})
    shown: Schema = _written_out(schema | {"$defs": {}}, definitions, ())
    used = msgspec.json.encode(shown).decode()
    left = {name: part for name, part in definitions.items() if MARK not in str(part)}
    shown.pop("$defs")
    return shown | ({"$defs": left} if left and "#/$defs/" in used else {})


def _written_out(part: Any, definitions: Schema, inside: tuple[str, ...]) -> Any:
    if isinstance(part, list):
        return [_written_out(one, definitions, inside) for one in part]
    if not isinstance(part, dict):
        return part
    name = part.get("$ref", "").removeprefix("#/$defs/") if isinstance(part.get("$ref"), str) else ""
    if name in definitions and name not in inside and MARK in str(definitions[name]):
        rest = {key: value for key, value in part.items() if key != "$ref"}
        return _written_out(definitions[name] | rest, definitions, (*inside, name))
    if isinstance(part.get("anyOf"), list):
        members = [one for one in part["anyOf"] if one != {"type": "null"}]
        if len(members) == 1 and isinstance(members[0], dict) and (MARK in part or MARK in members[0]):
            part = {key: v for key, v in part.items() if key != "anyOf" and (key, v) != ("default", None)} | members[0]
    return {key: _written_out(value, definitions, inside) for key, value in part.items()}


# -- descriptions ---------------------------------------------------------------------------------

_HEAD = r"(Args|Arguments|Parameters|Params|Keyword Arg(ument)?s|Other Parameters|Raises):?"
_ANY_HEAD = rf"({_HEAD}|(Returns?|Yields|Examples?|Notes?|Warnings?|References|See Also):?)"
_FIELDS = r":(param|parameter|arg|argument|key|keyword|type|raises?)\b.*"
_RULE = r"-{3,}"


@functools.cache
def _patterns() -> list[re.Pattern[str]]:
    """Return these patterns, compiled when a docstring is first read."""
    return [re.compile(text) for text in (_HEAD, _ANY_HEAD, _FIELDS, _RULE)]


def description(text: str) -> str:
    """Return the description in a docstring, without the parts about parameters and errors."""
    kept: list[str] = []
    skipped, depth = False, 0
    lines = text.splitlines()
    head, any_head, fields, rule = _patterns()
    for index, line in enumerate(lines):
        stripped, indent = line.strip(), len(line) - len(line.lstrip())
        ruled = index + 1 < len(lines) and rule.fullmatch(lines[index + 1].strip()) is not None
        if fields.fullmatch(stripped):
            skipped, depth = True, indent
        elif any_head.fullmatch(stripped) or ruled:
            # under a ruled (NumPy) head nothing is indented
            skipped, depth = head.fullmatch(stripped) is not None, -1 if ruled else indent
        elif skipped and stripped and indent <= depth:
            skipped = False
        if not skipped:
            kept.append(line)
    return "\n".join(kept).strip()


# -- what a result is -----------------------------------------------------------------------------


def is_structured(tree: Node, content: tuple[type, ...]) -> bool:
    """Return whether results of this type are structured. They are not if it is None, plain text or bytes, a path, not
    annotated, a list without element type, or has one of the classes `content` in it."""
    if tree.kind == "leaf" and tree.cls in _PLAIN:
        return False
    return not any(_is_content(part, content) for part in _members(tree))


_PLAIN: Final = (str, bytes, bytearray, memoryview, type(None))


def _members(node: Node) -> Iterable[Node]:
    if node.kind in ("union", "items", "positions"):
        return [part for one in node.parts for part in _members(one)]
    return [node]


def _is_content(node: Node, content: tuple[type, ...]) -> bool:
    """Return whether values of a type may be content: if the annotation says so, or says nothing."""
    if node.kind != "leaf":
        return False
    return (
        node.type is Any
        or node.cls in (list, tuple, Sequence)
        or (node.cls is not None and issubclass(node.cls, content))
    )
