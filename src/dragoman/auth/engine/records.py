"""What an authorization server stores: codes, grants, registrations, marks of what was used; each for a bounded time.

A record is one document of a `store.contract.Engine`, under the hash of its kind and key. So a code cannot be read out
of the store; tokens can only from the last answer to a refresh, which is stored for its time of grace. With a `Sealer`
the documents are encrypted, and bound to their names.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from typing import Protocol, TypeVar

import msgspec
from msgspec import Raw, Struct

from ...store.contract import Edit, Engine

T = TypeVar("T")
R = TypeVar("R")

OWNERS = 20_000
"""Records at once, where a server keeps them in memory: a grant takes two or three."""
TOTAL = 64 * 1024 * 1024
"""Bytes of all records, where a server keeps them in memory."""


class Sealer(Protocol):
    """Encrypts documents. `context` is authenticated with the document: a document of another name does not open."""

    def seal(self, document: bytes, context: bytes) -> bytes:
        """Return the sealed document."""

    def open(self, sealed: bytes, context: bytes) -> bytes | None:
        """Return the document; None if it was not sealed with this key for this context."""


class _Record(Struct, array_like=True):
    until: float
    value: Raw


_decode = msgspec.json.Decoder(_Record).decode


class Records:
    """Values by kind and key in an engine. `clock`: Unix time in seconds. Methods raise `StoreFull` and `StoreLost`."""

    def __init__(self, engine: Engine, *, clock: Callable[[], float] = time.time, sealer: Sealer | None = None) -> None:
        self.engine, self.clock, self._sealer = engine, clock, sealer

    async def put(self, kind: str, key: str, value: object, life: float) -> None:
        """Store a value for `life` seconds, in place of an earlier one."""
        name = _name_of(kind, key)
        document, until = self._encode(name, value, self.clock() + life)
        await self.engine.change(name, lambda before: Edit(document, until))

    async def get(self, kind: str, key: str, type: type[T]) -> T | None:
        """Return the value; None if there is none, or it has expired."""
        name = _name_of(kind, key)
        return self._read(name, await self.engine.read(name), type)[0]

    async def change(
        self,
        kind: str,
        key: str,
        type: type[T],
        edit: Callable[[T | None], tuple[T | None, R]],
        life: float | None = None,
    ) -> R:
        """Change a value in one step, also where other processes change it, and return the result. `edit` gets the
        value, or None, and returns the new one (None: remove it) and a result; it may be called more than once. `life`:
        seconds from now for a new value; None: it expires when the old one would have."""
        name = _name_of(kind, key)

        def edit_document(before: bytes | None) -> Edit:
            found, until = self._read(name, before, type)
            made, result = edit(found)
            if made is None:
                return Edit(None, None, result, changed=before is not None)
            document, until = self._encode(name, made, until if life is None or made is found else self.clock() + life)
            return Edit(document, until, result, changed=document != before)

        result: R = await self.engine.change(name, edit_document)
        return result

    async def take(self, kind: str, key: str, type: type[T]) -> T | None:
        """Remove the value and return it: of several callers one gets it."""
        return await self.change(kind, key, type, lambda found: (None, found))

    async def first(self, kind: str, key: str, life: float) -> bool:
        """Mark a key as used for `life` seconds; return whether it was not marked before."""
        return await self.change(kind, key, bool, lambda found: (True, found is None), life)

    def _encode(self, name: str, value: object, until: float) -> tuple[bytes, float]:
        document = msgspec.json.encode(_Record(until, Raw(msgspec.json.encode(value))))
        return document if self._sealer is None else self._sealer.seal(document, name.encode()), until

    def _read(self, name: str, document: bytes | None, type: type[T]) -> tuple[T | None, float]:
        if document is not None and self._sealer is not None:
            document = self._sealer.open(document, name.encode())
        if document is None:
            return None, 0.0
        kept = _decode(document)
        if kept.until <= self.clock():
            return None, 0.0
        return msgspec.json.decode(kept.value, type=type), kept.until


def _name_of(kind: str, key: str) -> str:
    """Return the name of a record: a hash, since an engine's names have only the letters a to f and digits."""
    return hashlib.sha256(f"auth:{kind}:{key}".encode("utf-8", "surrogatepass")).hexdigest()
