"""The document of one caller: keys, their values as JSON text, and when they expire (Unix time). Pure."""

from __future__ import annotations

import itertools
import logging
from typing import TypeAlias

import msgspec
from msgspec import Raw

from ..jsonrpc.limits import Limits
from .contract import Edit, StoreFull

Document: TypeAlias = dict[str, tuple[Raw, float | None]]

_read = msgspec.json.Decoder(Document).decode
_write = msgspec.json.Encoder().encode
_unreadable = itertools.count(1)

log: logging.Logger = logging.getLogger("dragoman.store")


def alive(document: bytes | None, now: float) -> Document:
    """The entries that have not expired; none of a document that cannot be read."""
    found = {} if document is None else _entries(document)
    return {key: entry for key, entry in found.items() if entry[1] is None or entry[1] > now}


def _entries(document: bytes) -> Document:
    try:
        return _read(document)
    except (msgspec.MsgspecError, ValueError, RecursionError) as why:
        count = next(_unreadable)
        words = "a document of the store cannot be read, and counts as none (%d so far): %s"
        log.log(logging.DEBUG if count > 1 else logging.WARNING, words, count, why)
        return {}


def put(document: bytes | None, key: str, value: bytes, until: float | None, now: float, limits: Limits) -> Edit:
    """Set a value. Raises StoreFull above `store_value_size`, `store_keys` and `store_size`."""
    if len(value) > limits.store_value_size:
        raise StoreFull(
            f"the value of {key!r} has {len(value)} bytes; limit store_value_size allows {limits.store_value_size}"
        )
    found = alive(document, now)
    if key not in found and len(found) >= limits.store_keys:
        raise StoreFull(f"{len(found)} keys are stored for this caller; limit store_keys allows no more")
    edit = _edit(found | {key: (Raw(value), until)})
    if edit.document is not None and len(edit.document) > limits.store_size:
        raise StoreFull(
            f"all that is stored for this caller would have {len(edit.document)} bytes; limit store_size allows "
            f"{limits.store_size}"
        )
    return edit


def drop(document: bytes | None, key: str, now: float) -> Edit:
    """Remove a value; the result is whether existed was one."""
    found = alive(document, now)
    existed = found.pop(key, None) is not None
    edit = _edit(found)
    return msgspec.structs.replace(edit, result=existed, changed=existed)


def _edit(found: Document) -> Edit:
    if not found:
        return Edit(None, None)
    times = [until for _, until in found.values()]
    ends = [time for time in times if time is not None]
    return Edit(_write(found), max(ends) if len(ends) == len(times) else None)
