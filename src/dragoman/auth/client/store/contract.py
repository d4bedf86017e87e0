"""The contract of stores of tokens."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from msgspec import Struct

from ...errors import AuthError

LOCK_WAIT = 30.0
"""Seconds to wait for the lock of an entry. It is held for one token request, whose own time-out is shorter."""

ENTRY_SIZE = 1 << 20
"""Bytes of an entry at most. A token endpoint's answer is bounded to less, so a larger entry is damaged."""


class TokenStoreError(AuthError):
    """The store cannot be used now; the text says why and what would help. Nothing that is stored was lost."""


class LockHeld(TokenStoreError):
    """Another task or process holds the lock, and did not release it in time."""


class EntryKey(Struct, frozen=True):
    """The name of an entry. `issuer` and `resource` are compared byte for byte, as the specification compares them."""

    issuer: str
    """The authorization server's issuer identifier."""
    resource: str
    """The resource identifier that the tokens are for."""
    client: str = ""
    """The client_id or the URL of the client's document where the user gave one; empty where it was registered."""
    account: str = "default"
    """The name that the user gave to one of several logins."""

    @property
    def text(self) -> str:
        """The four fields as one text, different for each key: a JSON array."""
        return json.dumps([self.issuer, self.resource, self.client, self.account], separators=(",", ":"))


class Stored(Struct, frozen=True):
    """An entry as it was read. `value`: what was written. `generation`: rises with every write of this key, also over
    a removal."""

    value: bytes
    generation: int

    def __repr__(self) -> str:
        return f"Stored({len(self.value)} bytes, generation={self.generation})"


class TokenStore(Protocol):
    """Keeps entries by their keys. Every method raises TokenStoreError where the store cannot be used."""

    async def read(self, key: EntryKey) -> Stored | None:
        """Return the entry, or None."""

    async def write(self, key: EntryKey, value: bytes, after: int | None) -> bool:
        """Replace the entry if its generation is still `after` (None: there is none). False: somebody else has written
        meanwhile, and nothing was changed."""

    async def remove(self, key: EntryKey, after: int) -> bool:
        """Remove the entry if its generation is still `after`. False: it is not, and nothing was changed."""

    async def keys(self) -> Sequence[EntryKey]:
        """Return the keys of all entries that can be read."""

    def locked(
        self, key: EntryKey, *, wait: float | None = None, held: Callable[[], object] | None = None
    ) -> AbstractAsyncContextManager[None]:
        """Hold the entry's lock, against other tasks, threads and (in files) processes. Reading and writing do not need
        it. `wait`: seconds to wait for it; None: the store's own default, such as LOCK_WAIT; `held` is called once if
        somebody else has it. Raises LockHeld after that time, TokenStoreError."""

    async def protection(self) -> str:
        """Return how entries are protected, as a phrase for their owner."""
