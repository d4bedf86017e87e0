"""Proofs that may be used only once: those seen by this process, and by all processes that share a store.

Rules:

- Each process remembers the proofs that it received, within a limit: a second use here is refused without the store.
- With a store (that of the bus, which workers and replicas share) a proof is written there too before it is accepted,
  for as long as it could be used. A store that is away fails closed: a proof that may have been used elsewhere is
  refused.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, Protocol

from ..allowance import Allowance, Owner
from ..repeats import Repeats
from .errors import IssuerAway

CLOCKS: Final = 60.0
"""Seconds by which the clocks of processes that share a store may differ: a used proof is kept for as much longer."""

log: Final = logging.getLogger("dragoman.auth")
repeats: Final = Repeats(log)


class SeenOnce(Protocol):
    """The part of a `bus.Store` that this room uses."""

    async def put_new(self, key: str, value: bytes, *, ttl: float | None = None) -> bool:
        """Set a value if there is none and return True; False if there is one. Raises ConnectionError."""


class Replays:
    """Remembers the proofs seen within `span` seconds, in two generations: at most `limit`, of which each owner has a
    fair share; a proof beyond that is not accepted. `now`: Unix time in seconds."""

    __slots__ = ("_allowance", "_before", "_limit", "_now", "_seen", "_span", "_stores", "_turn")

    def __init__(self, limit: int, span: float, now: Callable[[], float]) -> None:
        self._limit, self._span, self._now = limit, span, now
        self._allowance = Allowance(limit, span)
        self._seen: set[bytes] = set()
        self._before: set[bytes] = set()
        self._turn = now() + span
        self._stores: list[SeenOnce] = []

    def share(self, store: SeenOnce) -> Callable[[], None]:
        """Remember proofs in this store too, until the returned function is called."""
        self._stores.append(store)
        return lambda: self._stores.remove(store)

    def take(self, name: bytes, owner: Owner) -> bool:
        """Remember a proof in this process; False if it was seen before. Raises IssuerAway where there is no room for
        this owner."""
        moment = self._now()
        if moment >= self._turn:
            self._before = self._seen if moment < self._turn + self._span else set()
            self._seen, self._turn = set(), moment + self._span
        if name in self._seen or name in self._before:
            return False
        if not self._allowance.take(owner, moment):
            raise IssuerAway(
                f"AuthLimits.proofs allows {self._limit} DPoP proofs to be remembered, and one caller its share",
                self._allowance.after(moment),
            )
        self._seen.add(name)
        return True

    async def take_shared(self, name: bytes, owner: Owner) -> bool:
        """Remember a proof in every process that shares a store with this one; False if it was seen before. Raises
        IssuerAway where there is no room for this owner, or the store is away."""
        if not self.take(name, owner):
            return False
        if not self._stores:
            return True
        try:
            return await self._stores[-1].put_new(f"dragoman.dpop.{name.hex()}", b"", ttl=self._span + CLOCKS)
        except ConnectionError as why:
            repeats.warning("the store of used DPoP proofs cannot be reached: %s", why)
            raise IssuerAway("the store of used DPoP proofs cannot be reached") from why
