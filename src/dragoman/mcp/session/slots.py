"""The places for sessions that replicas share: a bound on their number that needs no count.

Each session has one of `HttpOptions.sessions` places, which are keys of the store. None gets a place beyond; near the
bound, where not every place is tried, one may be refused while a few are free yet.
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
"""Places that are tried for a new session, at random where there are more."""


class _Slot(Struct, array_like=True):
    """A place that is taken."""

    session: str
    begun: float
    """When it was taken, in seconds since the epoch."""
    used: bool = False
    """The client has sent something after `initialize`."""


_unpacked = msgspec.msgpack.Decoder(_Slot).decode
_packed = msgspec.msgpack.Encoder().encode


class Slots:
    """The places. All of it raises BusLost."""

    def __init__(self, shared: Shared, count: int) -> None:
        self._shared = shared
        self._count = count

    def _key(self, slot: int) -> str:
        return self._shared.key("slot", str(slot))

    async def take(self, session: str, ttl: float, evict: Callable[[str, int], Awaitable[None]]) -> int | None:
        """A place for a session, for so many seconds; None when there is none.

        Where all are taken, a session that was begun and not used gives way, the oldest first: `evict` ends it.
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
        """The session is used, and keeps its place for so many seconds more."""
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
