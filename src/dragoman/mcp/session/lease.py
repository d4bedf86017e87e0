"""A lease in the store of the bus: of the replicas of a server, one at a time holds it, and does some work.

Rules:

- It is a key that lives `LIFE` seconds and that its holder renews. The others look every `BEAT` seconds whether it is
  free, so that a dead holder is replaced within `LIFE` + `BEAT` seconds, and one that gives up within `BEAT`.
- A holder that could not renew it in time gives up `MARGIN` seconds before another may take it.
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
"""Seconds between two renewals, and between two looks whether it is free."""
MARGIN: Final = 1.5
"""Seconds in which the work of a holder that lost its store has to stop."""


class Lease:
    """One replica's part in a lease. `name`: that of the work."""

    def __init__(self, replica: Replica, name: str) -> None:
        self._replica = replica
        self._key = replica.key("lead", hashlib.sha256(name.encode()).hexdigest()[:24])
        self._mine = secrets.token_hex(16).encode()
        self._until = 0.0
        """When it has to be given up unless it is renewed, on the monotonic clock."""

    async def take(self) -> None:
        """Return once this replica holds it."""
        while True:
            began = time.monotonic()
            with suppress(BusLost):  # tried again: it is taken by nobody, or by one who can reach the store
                if await self._replica.put_new(self._key, self._mine, LIFE):
                    self._until = began + LIFE - MARGIN
                    return
            await asyncio.sleep(BEAT)

    async def keep(self) -> None:
        """Renew it; return once it is lost."""
        while (left := self._until - time.monotonic()) > 0:
            await asyncio.sleep(min(BEAT, left))
            began = time.monotonic()
            with suppress(TimeoutError, BusLost):
                async with asyncio.timeout(max(self._until - began, 0)):
                    if not await self._renew():
                        return
                self._until = began + LIFE - MARGIN

    async def _renew(self) -> bool:
        if await self._replica.get(self._key) != self._mine:
            return False
        # it cannot have become another's since, within the time for this
        return await self._replica.touch(self._key, LIFE)

    async def give_up(self) -> None:
        """Let another replica take it at once, if this one holds it still. Returns within `BEAT` seconds: a lease that
        cannot be deleted in time expires."""
        left = min(self._until - time.monotonic(), BEAT)
        if left <= 0:  # by the time of the delete it may be another's
            return
        with suppress(TimeoutError, BusLost):
            async with asyncio.timeout(left):
                if await self._replica.get(self._key) == self._mine:
                    await self._replica.delete(self._key)
