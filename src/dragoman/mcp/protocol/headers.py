"""The HTTP headers that repeat parts of a request's body (2026-07-28, basic/transports/streamable-http). Pure.

Rules:

- `MCP-Protocol-Version` repeats the revision that `_meta` names, `Mcp-Method` the method, `Mcp-Name` the name or
  URI, and `Mcp-Param-{name}` each argument whose property in the tool's input schema has `x-mcp-header: {name}`.
  The case of a header's name does not matter, that of its value does.
- A value that is not plain ASCII is sent as `=?base64?...?=`; decoding is strict.
- This module only compares; the transport chooses the status and error of a mismatch.
"""

from __future__ import annotations

import re
from binascii import Error as Base64Error
from binascii import a2b_base64, b2a_base64
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Raw, Struct, UnsetType

from ...jsonrpc.errors import LocalError

HTTP: Final = frozenset({"http", "https"})
"""The schemes of callers whose headers repeat parts of a stateless message."""
MARK: Final = "x-mcp-header"
"""The annotation of a property in an input schema."""
VERSION: Final = "mcp-protocol-version"
METHOD: Final = "mcp-method"
NAME: Final = "mcp-name"
PARAM: Final = "mcp-param-"
SAFE_INTEGER: Final = 2**53 - 1
"""The largest integer a marked parameter may have; the smallest is its negative."""

_BEGIN, _END = "=?base64?", "?="
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_PLAIN = re.compile(r"[\x20-\x7e\t]*")
_INTEGER = r"([+-]?[0-9]{1,20})(?:\.0{1,20})?"
_SHOWN = 64
_DEEPEST = 64

Primitive: TypeAlias = Literal["string", "integer", "boolean"]


class HeaderParam(Struct, frozen=True):
    """A marked parameter: its path in the arguments, and the name of its header."""

    path: tuple[str, ...]
    name: str
    type: Primitive

    @property
    def header(self) -> str:
        """The header's name, as it is sent."""
        return f"Mcp-Param-{self.name}"


# -- what a schema marks --------------------------------------------------------------------------


def marked(schema: Any) -> tuple[HeaderParam, ...]:
    """Return the marked parameters of a tool's input schema, in the schema's order.

    Raises ValueError with the reason when an annotation breaks the rules ("Schema Extension"): then clients must
    not offer the tool, and a server refuses it.
    """
    found: list[HeaderParam] = []
    for path, allowed, part in _parts(schema):
        if MARK not in part:
            continue
        where = ".".join(path) or "the schema itself"
        # "reachable via a chain consisting solely of `properties` keys"
        if not allowed:
            raise ValueError(f"{MARK} of {where}: it stands where no chain of `properties` leads")
        name = part[MARK]
        if not isinstance(name, str) or _TOKEN.fullmatch(name) is None:
            raise ValueError(f"{MARK} of {where}: {name!r} is not a token that a header's name could have")
        found.append(HeaderParam(path, name, _primitive(part, where)))
    names: set[str] = set()
    for one in found:
        # "MUST be case-insensitively unique among all `x-mcp-header` values in the `inputSchema`"
        if one.name.lower() in names:
            raise ValueError(f"{MARK} of {'.'.join(one.path)}: {one.name!r} is there twice")
        names.add(one.name.lower())
    return tuple(found)


def _primitive(part: dict[str, Any], where: str) -> Primitive:
    # "MUST only be applied to parameters with primitive types (integer, string, boolean)"; an argument may be null
    # all the same ("Parameter value is `null`")
    kinds = part.get("type")
    kinds = [kind for kind in kinds if kind != "null"] if isinstance(kinds, list) else [kinds]
    if kinds == ["string"] or kinds == ["integer"] or kinds == ["boolean"]:
        kind: Primitive = kinds[0]
        return kind
    raise ValueError(f"{MARK} of {where}: it marks only a string, an integer or a boolean, not {part.get('type')!r}")


_MAPS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems", "items")
_ONES = (
    "items",
    "additionalItems",
    "additionalProperties",
    "unevaluatedItems",
    "unevaluatedProperties",
    "propertyNames",
    "contains",
    "contentSchema",
    "not",
    "if",
    "then",
    "else",
)


def _parts(schema: Any) -> Iterator[tuple[tuple[str, ...], bool, dict[str, Any]]]:
    """Yield every schema in a schema, itself too: the path to it, whether the path has only properties, the schema.
    Raises ValueError for a schema that is nested too deep."""
    todo: list[tuple[tuple[str, ...], bool, Any]] = [((), True, schema)]
    while todo:
        path, plain, part = todo.pop()
        if not isinstance(part, dict):
            continue
        # the root is not a property
        yield path, plain and bool(path), part
        if len(path) > _DEEPEST:
            raise ValueError(f"the schema is more than {_DEEPEST} levels deep")
        below: list[tuple[tuple[str, ...], bool, Any]] = []
        for key in _MAPS:
            inner = part.get(key)
            if isinstance(inner, dict):
                straight = plain and key == "properties"
                below += [((*path, name), straight, one) for name, one in inner.items()]
        for key in _LISTS:
            inner = part.get(key)
            if isinstance(inner, list):
                below += [((*path, key), False, one) for one in inner]
        below += [((*path, key), False, part[key]) for key in _ONES if isinstance(part.get(key), dict)]
        todo += reversed(below)


# -- values ---------------------------------------------------------------------------------------


def session_name(id: str) -> str:
    """Return the name by which observers know a session: a digest of its id, which is a secret; the same everywhere."""
    from hashlib import sha256  # noqa: PLC0415  (start-up: where there are observers)

    return sha256(id.encode("utf-8", "replace")).hexdigest()[:16]


def encode_value(value: str) -> str:
    """Return a text as a header's value: itself, or `=?base64?...?=` if a header cannot hold it or it would be
    misread."""
    if (
        _PLAIN.fullmatch(value) is not None
        and value == value.strip(" \t")
        and not (value.startswith(_BEGIN) and value.endswith(_END))
    ):
        return value
    return f"{_BEGIN}{b2a_base64(value.encode(), newline=False).decode()}{_END}"


def decode_value(value: str) -> str:
    """Return the text that a header's value encodes, without white space around it.

    Raises ValueError with the reason for characters that a value may not have and for invalid base64.
    """
    value = value.strip(" \t")
    if _PLAIN.fullmatch(value) is None:
        raise ValueError("contains invalid characters")
    # in "=?base64?=" the two marks overlap, so it is a plain value
    if not (value.startswith(_BEGIN) and value.endswith(_END) and len(value) >= len(_BEGIN) + len(_END)):
        return value
    try:
        return a2b_base64(value[len(_BEGIN) : -len(_END)], strict_mode=True).decode()
    except (Base64Error, UnicodeDecodeError) as error:
        raise ValueError("is not valid base64 of UTF-8") from error


def _text(value: Any) -> str | None:
    """Return an argument in the form of a header; None if it has no header: null, absent, or not a primitive."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return str(value) if isinstance(value, int) else None


def _value_at(arguments: Any, path: tuple[str, ...]) -> Any:
    """Return the argument at a path, None without one: "reading the instance value at the exact property path"."""
    for name in path:
        if not isinstance(arguments, dict):
            return None
        arguments = arguments.get(name)
    return arguments


def _decode_arguments(arguments: Raw | Mapping[str, Any] | UnsetType | None) -> Any:
    return msgspec.json.decode(arguments) if isinstance(arguments, Raw) else arguments


# -- both ends ------------------------------------------------------------------------------------


def mirror(
    parameters: tuple[HeaderParam, ...], arguments: Raw | Mapping[str, Any] | UnsetType | None
) -> dict[str, str]:
    """Return the `Mcp-Param-*` headers of a call. Raises LocalError for an integer beyond `SAFE_INTEGER`."""
    if not parameters:
        return {}
    values = _decode_arguments(arguments)
    headers: dict[str, str] = {}
    for one in parameters:
        value = _value_at(values, one.path)
        text = _text(value)
        if text is None:
            continue
        if not isinstance(value, str) and not isinstance(value, bool) and abs(value) > SAFE_INTEGER:
            raise LocalError(f"{'.'.join(one.path)}: {text} is beyond the integers that a header carries safely")
        headers[one.header] = encode_value(text)
    return headers


def check_version(version: str | UnsetType, headers: Mapping[str, str]) -> str | None:
    """Return why `MCP-Protocol-Version` does not agree with the `version` that the body's `_meta` names; None if it
    does.

    UNSET: the body names none; then only the presence of the header is checked.
    """
    header = headers.get(VERSION)
    # "Every POST request to the MCP endpoint MUST include an `MCP-Protocol-Version` header", and "The header value
    # MUST match the `io.modelcontextprotocol/protocolVersion` field carried in the request body's `_meta`"
    if header is None:
        return "Header mismatch: MCP-Protocol-Version header is missing"
    if header == version or isinstance(version, UnsetType):
        return None
    return _differs("MCP-Protocol-Version", header, version)


def check(method: str, name: str | None, headers: Mapping[str, str]) -> str | None:
    """Return why a request's headers (names in lower case) do not agree with its body; None if they do.

    `name`: the params' name or URI; None if the method has none. The values of a header that came twice are joined by
    ", ", and so agree with nothing.
    """
    if headers.get(METHOD) != method and (fault := _compare("Mcp-Method", headers.get(METHOD), method, False)):
        return fault
    if name is not None and not (
        headers.get(NAME) == name and name.isascii() and name.isprintable() and name[:2] != "=?"
    ):
        return _compare("Mcp-Name", headers.get(NAME), name, True)
    return None


def check_arguments(
    arguments: Raw | Mapping[str, Any] | UnsetType | None,
    parameters: tuple[HeaderParam, ...],
    headers: Mapping[str, str],
) -> str | None:
    """Return why a request's headers do not agree with the arguments of the called tool; None if they do. `parameters`:
    its marked ones. `Mcp-Param-*` headers that name none of them are ignored."""
    try:
        values = _decode_arguments(arguments)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        # the tool's own decoder may ignore the faulty member
        return f"Header mismatch: no header can agree with arguments that cannot be read: {error}"
    for one in parameters:
        if fault := _compare_parameter(one, _value_at(values, one.path), headers.get(PARAM + one.name.lower())):
            return fault
    return None


def _compare_parameter(one: HeaderParam, value: Any, header: str | None) -> str | None:
    text = _text(value)
    if header is None:
        return f"Header mismatch: {one.header} header is missing" if text is not None else None
    if text is None or isinstance(value, str | bool):
        return _compare(one.header, header, text, True)
    if abs(value) > SAFE_INTEGER:
        return f"Header mismatch: {one.header}: the body's value is beyond the integers that a header carries safely"
    try:
        found = decode_value(header)
    except ValueError as error:
        return f"Header mismatch: {one.header} header value {error}"
    # "servers SHOULD compare the header value and the body value numerically rather than as strings"
    match = re.fullmatch(_INTEGER, found)
    return None if match is not None and int(match[1]) == value else _differs(one.header, found, text)


def _compare(label: str, header: str | None, body: str | None, sentinel: bool) -> str | None:
    if header is None:
        return f"Header mismatch: {label} header is missing"
    try:
        found = decode_value(header)
    except ValueError as error:
        return f"Header mismatch: {label} header value {error}"
    if (found if sentinel else header.strip(" \t")) == body:
        return None
    return _differs(label, found, body)


def _differs(label: str, header: str, body: str | None) -> str:
    start = f"Header mismatch: {label} header value {_short(header)}"
    return f"{start} is not in the body" if body is None else f"{start} does not match body value {_short(body)}"


def _short(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "...")
