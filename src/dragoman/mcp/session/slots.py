"""Slots for sessions that replicas share: they bound the number of sessions without counting.

Each session has one of `HttpOptions.sessions` slots, which are keys of the store, so there are never more sessions.
Near the bound, where not every slot is tried, one may be refused while a few are free.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from time import time
from typing import Final

import msgspec
from msgspec import Struct

from .shared import Shared

PROBES: Final = 32
"""Slots that are tried for a new session, at random if there are more."""


class _Slot(Struct, array_like=True):
    """A taken slot."""

    session: str
    begun: float
    """When it was taken, in seconds since the epoch."""
    used: bool = False
    """The client has sent something after `initialize`."""


_unpacked = msgspec.msgpack.Decoder(_Slot).decode
_packed = msgspec.msgpack.Encoder().encode


class Slots:
    """The slots. Every method raises BusLost."""

    def __init__(self, shared: Shared, count: int) -> None:
        self._shared = shared
        self._count = count

    def _key(self, slot: int) -> str:
        return self._shared.key("slot", str(slot))

    async def take(self, session: str, ttl: float, evict: Callable[[str, int], Awaitable[None]]) -> int | None:
        """A slot for a session, for a number of seconds; None when there is none.

        If all are taken, a session that was begun and not used is ended, the oldest first: `evict` ends it.
        """
        shared = self._shared
        mine = _packed(_Slot(session, time()))
        tried = random.sample(range(self._count), min(self._count, PROBES))
        for slot in tried:
            if await shared.put_new(self._key(slot), mine, ttl):
                return slot
        begun = []
        for slot in tried:
            found = await self._read(slot)
            if found is not None and not found.used:
                begun.append((found.begun, slot, found.session))
        for _, slot, other in sorted(begun):
            await evict(other, slot)
            if await shared.put_new(self._key(slot), mine, ttl):
                return slot
        return None

    async def use(self, slot: int, session: str, ttl: float) -> None:
        """The session is used, and keeps its slot for this many seconds more."""
        found = await self._read(slot)
        if found is not None and found.session == session:
            found.used = True
            await self._shared.put(self._key(slot), _packed(found), ttl)

    async def free(self, slot: int, session: str) -> None:
        """The session is over."""
        found = await self._read(slot)
        if found is not None and found.session == session:
            await self._shared.delete(self._key(slot))

    async def _read(self, slot: int) -> _Slot | None:
        found = None if slot < 0 else await self._shared.get(self._key(slot))
        return None if found is None else _unpacked(found)
