"""A lease in the store of the bus: one replica of a server at a time holds it, and does the work that it is for.

Rules:

- It is a key that lives `LIFE` seconds and that its holder renews. The others look every `BEAT` seconds whether it is
  free, so that a dead holder is replaced within `LIFE` + `BEAT` seconds, and one that gives up within `BEAT`.
- A holder that could not renew it in time stops its work `MARGIN` seconds before another may take it.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import time
from contextlib import suppress
from typing import Final

from ...bus.contract import BusLost
from .shared import Replica

LIFE: Final = 6.0
"""Seconds for which a lease lives after it was renewed."""
BEAT: Final = 1.5
"""Seconds between two renewals, and between two tries to take it."""
MARGIN: Final = 1.5
"""Seconds that the work of a holder that lost the store has to stop, before another may take the lease."""


class Lease:
    """One replica's part in a lease. `name`: the name of the work, the same on all replicas."""

    def __init__(self, replica: Replica, name: str) -> None:
        self._replica = replica
        self._key = replica.key("lead", hashlib.sha256(name.encode()).hexdigest()[:24])
        self._holder = secrets.token_hex(16).encode()
        """The value of the key while this replica holds it."""
        self._until = 0.0
        """When it has to be given up unless it is renewed, on the monotonic clock."""

    async def take(self) -> None:
        """Return once this replica holds it."""
        while True:
            began = time.monotonic()
            with suppress(BusLost):  # tried again: meanwhile a replica that reaches the store may take it
                if await self._replica.put_new(self._key, self._holder, LIFE):
                    self._until = began + LIFE - MARGIN
                    return
            await asyncio.sleep(BEAT)

    async def keep(self) -> None:
        """Renew it until it is lost, then return: another replica has it, or it could not be renewed in time."""
        while (left := self._until - time.monotonic()) > 0:
            await asyncio.sleep(min(BEAT, left))
            began = time.monotonic()
            with suppress(TimeoutError, BusLost):
                async with asyncio.timeout(max(self._until - began, 0)):
                    if not await self._renew():
                        return
                self._until = began + LIFE - MARGIN

    async def _renew(self) -> bool:
        """Let it live `LIFE` seconds from now; return False if another replica has it."""
        if await self._replica.get(self._key) != self._holder:
            return False
        # no other replica can have taken it since: `keep` allows less time for both steps than is left of its life
        return await self._replica.touch(self._key, LIFE)

    async def give_up(self) -> None:
        """Let another replica take it at once, if this one still holds it. Returns within `BEAT` seconds: a lease that
        cannot be deleted in time expires."""
        left = min(self._until - time.monotonic(), BEAT)
        if left <= 0:  # by the time of the delete it may be another's
            return
        with suppress(TimeoutError, BusLost):
            async with asyncio.timeout(left):
                if await self._replica.get(self._key) == self._holder:
                    await self._replica.delete(self._key)
