"""Seals what is secret in the outbox: encrypted where there are keys, otherwise as it is."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ....store.sealing import RecordSeal

_PLAIN, _SEALED = b"0", b"1"


class Unreadable(Exception):
    """Something was sealed by a key that is not here, or was changed."""


def seal(keys: Sequence[bytes], value: bytes, about: str) -> bytes:
    """Return the value, sealed by the first key; as it is without keys. `about`: whose it is, which is not hidden."""
    return _SEALED + _seal_of(tuple(keys)).seal(about, value) if keys else _PLAIN + value


def unseal(keys: Sequence[bytes], sealed: bytes, about: str) -> bytes:
    """Return what `seal` got. Raises Unreadable if none of the keys opens it."""
    if sealed[:1] == _PLAIN:
        return sealed[1:]
    found = _seal_of(tuple(keys)).open(about, sealed[1:]) if keys else None
    if found is None:
        raise Unreadable(f"the secrets of {about} are sealed by a key that is not among keys=, or were changed")
    return found


@lru_cache(16)
def _seal_of(keys: tuple[bytes, ...]) -> RecordSeal:
    from ....store.sealing import RecordSeal  # noqa: PLC0415  (an extra, imported where it is used)

    return RecordSeal(keys, b"dragoman.events")
