"""Keeps the good parts of a result that does not fit as a whole, with a warning in the log.

One bad tool must not hide all others, and a tool has already run when its result has content of a kind that this client
does not know. Bad entries of a list are left out; unknown content becomes text, the text of its JSON.
"""

from __future__ import annotations

import logging
from typing import Any, Final, TypeVar, cast, get_args, get_origin

import msgspec
from msgspec import Raw, Struct, structs

from ...repeats import Repeats
from ..protocol import lenient
from ..protocol.encoding import decode
from ..protocol.params import (
    CallToolResult,
    ListPromptsResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ListToolsResult,
)
from ..protocol.types import ContentBlock, TextContent

logger: logging.Logger = logging.getLogger("dragoman.mcp")
repeats: Repeats = Repeats(logger)

T = TypeVar("T")

_LISTS: Final = (ListToolsResult, ListResourcesResult, ListResourceTemplatesResult, ListPromptsResult)
_KNOWN: Final = frozenset(one.__struct_config__.tag for one in get_args(ContentBlock))
_SHOWN: Final = 5
"""Faults of one result that are logged at most."""
_UNREADABLE: Final = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)


class _Named(Struct):
    name: Any = None


class _Typed(Struct):
    type: str


def salvage(method: str, raw: Raw, kind: type[T]) -> T | None:
    """Return a result that does not fit, without its bad parts; None if it does not fit without them either."""
    try:
        members = decode(raw, dict[str, Raw])
        if kind in _LISTS:
            field = next(one for one in structs.fields(cast(Any, kind)) if get_origin(one.type) is list)
            name, items = field.encode_name, _good_entries(method, members[field.encode_name], get_args(field.type)[0])
        elif kind is CallToolResult:
            name, items = "content", _known_content(method, members["content"])
        else:
            return None
        return lenient.decode(Raw(msgspec.json.encode(members | {name: items})), kind)
    except (*_UNREADABLE, KeyError):
        return None


def _good_entries(method: str, listed: Raw, kind: Any) -> list[Raw]:
    """Return the entries of a list that fit."""
    good, bad = [], []
    for one in decode(listed, list[Raw]):
        try:
            lenient.decode(one, kind)
            good.append(one)
        except _UNREADABLE as error:
            bad.append(f"{_name(one)} is left out: {error}")
    if bad:
        more = f"; and {len(bad) - _SHOWN} more" if len(bad) > _SHOWN else ""
        repeats.warning("%s: %s%s", method, "; ".join(bad[:_SHOWN]), more)
    return good


def _name(entry: Raw) -> str:
    try:
        name = decode(entry, _Named).name
    except _UNREADABLE:
        name = None
    return repr(name[:80]) if isinstance(name, str) else "an entry without a name"


def _known_content(method: str, content: Raw) -> list[Any]:
    """Return the blocks of content, those of an unknown type as the text of their JSON."""
    found: list[Any] = []
    for one in decode(content, list[Raw]):
        kind = decode(one, _Typed).type
        if kind in _KNOWN:
            found.append(one)
        else:
            repeats.warning("%s: content of the type %.40r is not known here, and handed on as text", method, kind)
            found.append(TextContent(bytes(one).decode()))
    return found
