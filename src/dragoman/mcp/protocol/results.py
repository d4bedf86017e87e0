"""Encodes a result for the caller's revision, and adds the server's description where the revision has it. Pure.

"Servers SHOULD include `io.modelcontextprotocol/serverInfo` in every result's `_meta`" (2026's
basic/index): the stamp is made once per server and spliced in front, so that it costs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, Raw, Struct

from ...jsonrpc.errors import LocalError
from .encoding import encode, members_of
from .foreign_decoding import decode_content
from .revisions import NEWEST, Revision
from .types import SERVER_INFO, Implementation

S = TypeVar("S", bound=Struct)


class Stamp(Struct, frozen=True):
    """The server's description, ready to be put into results."""

    info: Implementation
    prefix: bytes
    """The beginning of a result's JSON text, `_meta` included."""
    meta: Raw
    """The `_meta` alone."""
    text_prefix: bytes
    """The beginning of a tool's result with one text."""


def stamp(info: Implementation) -> Stamp:
    """Return the stamp of a server with this description."""
    meta = msgspec.json.encode({SERVER_INFO: Raw(encode(info, NEWEST))})
    prefix = b'{"_meta":' + meta + b","
    text_prefix = prefix + b'"resultType":"complete","content":[{"type":"text","text":'
    return Stamp(info, prefix, Raw(meta), text_prefix)


def finish(result: Any, revision: Revision, stamp: Stamp, kind: str | None = None) -> Raw:
    """Return a result as JSON text for this revision, stamped. `kind`: the `resultType` of an extension's result; None:
    it is one of the protocol's types.

    Raises LocalError for a value that the revision cannot express.
    """
    if revision.stateful:
        return Raw(encode(result, revision))
    if kind is not None:
        return _of_extension(result, revision, stamp, kind)
    if result.meta is not UNSET:
        return Raw(encode(msgspec.structs.replace(result, meta=_with_info(result.meta, revision, stamp)), revision))
    return stamp_text(encode(result, revision), stamp)


def _of_extension(result: Struct, revision: Revision, stamp: Stamp, kind: str) -> Raw:
    """Return the JSON text of an extension's result, with `resultType` and `_meta` added where its type has none."""
    names = members_of(type(result))
    own = getattr(result, names["_meta"]) if "_meta" in names else UNSET
    if own is not UNSET:
        result = msgspec.structs.replace(result, **{names["_meta"]: _with_info(own, revision, stamp)})
    text = encode(result, revision)
    if "resultType" not in names:
        text = b'{"resultType":' + msgspec.json.encode(kind) + (b"," + text[1:] if len(text) > 2 else b"}")
    return stamp_text(text, stamp) if own is UNSET else Raw(text)


def _with_info(meta: Mapping[str, Any], revision: Revision, stamp: Stamp) -> dict[str, Any]:
    return {SERVER_INFO: Raw(encode(stamp.info, revision))} | dict(meta)


def read_back(value: S) -> S:
    """Return a value of the protocol's types that a user made, as a client decodes it. Raises LocalError for one that
    no client could decode: a Struct's constructor accepts any value."""
    try:
        return decode_content(Raw(encode(value, NEWEST)), type(value))
    except msgspec.DecodeError as error:
        raise LocalError(f"no client could read this {type(value).__name__}: {error}") from None


def stamp_text(text: bytes, stamp: Stamp) -> Raw:
    """Return the JSON text of a result, which has members but no `_meta`, with the stamp added."""
    return Raw(stamp.prefix + text[1:])
