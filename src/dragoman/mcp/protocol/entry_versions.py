"""Versions of an entry: their order, how a request names one, and how a list shows them. Pure.

The members are those of FastMCP, so that its clients and ours write the same: `_meta.fastmcp.version` of a request, and
`_meta.fastmcp` of a listed entry, `{"version": "2", "versions": ["2", "1"]}`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import UNSET, Raw, UnsetType

from ...jsonrpc.errors import InvalidParams, LocalError
from ...jsonrpc.options import Rule

Order: TypeAlias = tuple[tuple[int, int, str], ...]
"""A value that sorts versions."""

LONGEST: Final = 64
"""Characters of a version at most: more than any date, hash or release has."""
_FORM: Final = rf"[0-9A-Za-z][0-9A-Za-z._+-]{{0,{LONGEST - 1}}}"
_WORD, _END, _NUMBER = 0, 1, 2
VERSION: Final = Rule(
    lambda value: value is None or (isinstance(value, str) and re.fullmatch(_FORM, value) is not None),
    f'None or a version such as "2", "1.4.0" or "2.0-beta": text of at most {LONGEST} letters, digits, and . _ + -',
)
"""The rule of the option `version`."""


@lru_cache(256)
def order(version: str) -> Order:
    """Return the value that sorts a version: numbers as numbers, a word before the end ("2.0-beta" before "2.0"), "1"
    like "1.0", "v1" like "1"."""
    parts = re.findall("[0-9]+|[a-z]+", version.lower())
    if len(parts) > 1 and parts[0] == "v":
        del parts[0]
    found: list[tuple[int, int, str]] = []
    for part in [*parts, ""]:
        if not part.isdigit():  # a word or the end: zeros before it do not count
            while len(found) > 1 and found[-1] == (_NUMBER, 0, ""):
                found.pop()
            found.append((_WORD, 0, part) if part else (_END, 0, ""))
        else:
            found.append((_NUMBER, int(part), ""))
    return tuple(found)


def requested(params: Raw | UnsetType) -> Order | None:
    """Return the version that a request with these params names; None: the highest. Raises InvalidParams for text that
    is no version."""
    meta = b"{}" if params is UNSET else _members(params).get("_meta", b"{}")
    given = _members(meta).get("fastmcp")
    if given is None:
        return None
    try:
        version = msgspec.json.decode(_members(given).get("version", b"null"))
    except msgspec.DecodeError:  # no object
        version = ""
    if version is None:
        return None
    if not VERSION.fits(version):
        raise InvalidParams('Invalid params: `_meta.fastmcp` asks for a version so: {"version": "2"}')
    return order(version)


def _members(text: Raw | bytes) -> dict[str, Raw]:
    return msgspec.json.decode(text, type=dict[str, Raw])


def asking(version: str | None) -> dict[str, Any]:
    """Return the members of `_meta` that request a version; none for None. Raises LocalError for text that is no
    version."""
    if not VERSION.fits(version):
        raise LocalError(f"version is {VERSION.words}, not {version!r:.100}")
    return {} if version is None else {"fastmcp": {"version": version}}


def with_versions(meta: Mapping[str, Any] | UnsetType, version: str, versions: tuple[str, ...]) -> dict[str, Any]:
    """Return the `_meta` of a listed entry: `version` is its own, `versions` are all that exist, the highest first."""
    given = {} if meta is UNSET else dict(meta)
    present = given.get("fastmcp")
    own = dict(present) if isinstance(present, Mapping) else {}
    return given | {"fastmcp": own | {"version": version, "versions": list(versions)}}
