"""The claims of an identity, kept as the bytes that came, so that a cache of tokens does not hold a dict for each."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

import msgspec

from ..jsonrpc.errors import LocalError
from .jose import decode_base64url


@lru_cache(maxsize=512)
def _read(source: str | bytes) -> dict[str, Any]:
    raw = decode_base64url(source.split(".")[1].encode()) if isinstance(source, str) else source
    return msgspec.json.decode(raw, type=dict[str, Any])


class Claims(Mapping[str, Any]):
    """The claims of a verified token, or of an issuer's answer about one, read when they are first used.
    Read-only; what is nested in them is shared between calls and is not to be changed."""

    __slots__ = ("_source",)

    def __init__(self, source: str | bytes) -> None:
        self._source = source
        """A compact JWS, or JSON text."""

    def __getitem__(self, name: str) -> Any:
        return _read(self._source)[name]

    def __iter__(self) -> Iterator[str]:
        return iter(_read(self._source))

    def __len__(self) -> int:
        return len(_read(self._source))

    def __repr__(self) -> str:
        return f"Claims({_read(self._source)!r})"

    def __copy__(self) -> Claims:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> dict[str, Any]:
        return copy.deepcopy(dict(self), memo)  # the copy's owner may change what is nested in it

    def __reduce__(self) -> Any:
        raise LocalError("Claims hold the token: pickle dict(identity.claims) instead")
