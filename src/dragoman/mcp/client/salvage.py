"""Keeps the good parts of a result that does not fit as a whole, with a warning in the log.

One bad tool must not hide all others, and a tool has already run when its result has content of a kind that this client
does not know. Bad entries of a list are left out; a block of an unknown type becomes a `ForeignContent`.
"""

from __future__ import annotations

import logging
from typing import Any, Final, TypeVar, cast, get_args, get_origin

import msgspec
from msgspec import Raw, Struct, structs

from ...repeats import Repeats
from ..protocol import lenient
from ..protocol.encoding import decode
from ..protocol.foreign_decoding import decode_content
from ..protocol.params import (
    ListPromptsResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ListToolsResult,
)

logger: logging.Logger = logging.getLogger("dragoman.mcp")
repeats: Repeats = Repeats(logger)

T = TypeVar("T")

_LISTS: Final = (ListToolsResult, ListResourcesResult, ListResourceTemplatesResult, ListPromptsResult)
_SHOWN: Final = 5
"""Faults of one result that are logged at most."""
_UNREADABLE: Final = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)


class _Named(Struct):
    name: Any = None


def salvage(method: str, raw: Raw, kind: type[T]) -> T | None:
    """Return a result that does not fit, without its bad parts; None if it does not fit without them either."""
    try:
        if kind not in _LISTS:
            return decode_content(raw, kind, lenient.decode)
        members = decode(raw, dict[str, Raw])
        field = next(one for one in structs.fields(cast(Any, kind)) if get_origin(one.type) is list)
        good = _good_entries(method, members[field.encode_name], get_args(field.type)[0])
        return lenient.decode(Raw(msgspec.json.encode(members | {field.encode_name: good})), kind)
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
