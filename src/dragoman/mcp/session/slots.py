"""Slots for sessions that replicas share: they bound the number of sessions without counting.

Each session has one of `HttpOptions.sessions` slots, which are keys of the store, so there are never more sessions.
Near the bound, where not every slot is tried, one may be refused while a few are free. If all are taken, who gives way
is decided among those that are tried, as `allowance.Places` decides.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from time import time
from typing import Final

import msgspec
from msgspec import Struct

from ...allowance import NoRoom, Owner, Places
from ...bus.contract import reader
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
    owner: Owner = Owner("")


_unpacked = reader(msgspec.msgpack.Decoder(_Slot).decode, "slots of sessions")
_packed = msgspec.msgpack.Encoder().encode


class Slots:
    """The slots. Every method raises BusLost."""

    def __init__(self, shared: Shared, count: int) -> None:
        self._shared = shared
        self._count = count

    def _key(self, slot: int) -> str:
        return self._shared.key("slot", str(slot))

    async def take(
        self, session: str, owner: Owner, ttl: float, evict: Callable[[str, int], Awaitable[None]]
    ) -> int | None:
        """A slot for a session, for a number of seconds; None when there is none.

        If all are taken, another session is ended by `evict`: one that was begun and not used, or else one in use.
        """
        shared = self._shared
        mine = _packed(_Slot(session, time(), owner=owner))
        tried = random.sample(range(self._count), min(self._count, PROBES))
        for slot in tried:
            if await shared.put_new(self._key(slot), mine, ttl):
                return slot
        found = {slot: taken for slot in tried if (taken := await self._read(slot)) is not None}
        for slot in _yielding(found, owner):
            await evict(found[slot].session, slot)
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


def _yielding(found: Mapping[int, _Slot], owner: Owner) -> Iterator[int]:
    """The slots that may give way for one of this owner, the first choice first: another replica may be as quick."""
    for used in (False, True):
        places: Places[int] = Places(len(found))
        for slot, taken in sorted(found.items(), key=lambda one: one[1].begun):
            if taken.used is used:
                places.take(taken.owner, slot)
        with suppress(NoRoom):
            while True:
                yield (slot := places.yielding(owner))
                places.free(slot)
