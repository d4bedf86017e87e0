"""A cache of verified tokens, by the SHA-256 of each: a token is looked up in two microseconds and verified once.

Good tokens and refused ones are kept apart, each within a bound, so that no number of bad ones pushes a good one out.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from hashlib import sha256
from math import inf
from typing import Final

from ...channel import Identity
from ..errors import TokenRefused
from ..limits import DEFAULTS, AuthLimits
from ..tokens import Binding

SECONDS: Final = 300.0
"""Seconds for which a verified token is believed at most: so long a key that was withdrawn, or a claim that a preset
now refuses, can still be good."""
REFUSED: Final = 10.0
"""Seconds for which a refused token stays refused without being looked at."""


class TokenCache:
    """What was found out about tokens. `seconds`: how long a good one is believed at most; it never outlives its
    `expires_at`. `now`: Unix time in seconds."""

    __slots__ = ("_good", "_limits", "_now", "_refused", "_seconds")

    def __init__(
        self, *, seconds: float = SECONDS, limits: AuthLimits = DEFAULTS, now: Callable[[], float] = time.time
    ) -> None:
        self._seconds, self._limits, self._now = seconds, limits, now
        self._good: dict[bytes, tuple[float, Identity, Binding | None]] = {}
        self._refused: dict[bytes, tuple[float, TokenRefused]] = {}

    def __len__(self) -> int:
        return len(self._good)

    def find(self, token: bytes) -> tuple[float, Identity, Binding | None] | None:
        """Until when a token is good, whose it is, and what it is bound to; None if it is not here, or its time is
        over."""
        found = self._good.get(sha256(token).digest())
        return found if found is not None and self._now() < found[0] else None

    def holding(self, token: bytes) -> Callable[[], bool]:
        """Says, each time it is called, whether `find` would give what it gives now: until the token's time is over, or
        it is not here any more."""
        good, now, name = self._good, self._now, sha256(token).digest()
        found = good.get(name)
        until = -inf if found is None else found[0]
        return lambda: now() < until and good.get(name) is found

    def check_refused(self, token: bytes) -> None:
        """Raises TokenRefused for a token that was refused before."""
        found = self._refused.get(sha256(token).digest())
        if found is not None and self._now() < found[0]:
            again = found[1]
            raise TokenRefused(again.description, error=again.error, scheme=again.scheme)

    def keep(self, token: bytes, identity: Identity, bound: Binding | None = None) -> None:
        """Keep a verified token."""
        until = self._now() + self._seconds
        if identity.expires_at is not None:
            until = min(until, identity.expires_at)
        name = sha256(token).digest()
        self._good.pop(name, None)  # to the end of the line
        while len(self._good) >= self._limits.cached_tokens:
            del self._good[next(iter(self._good))]
        self._good[name] = (until, identity, bound)

    def refuse(self, token: bytes, error: TokenRefused) -> None:
        """Keep a refusal that time alone does not change."""
        while len(self._refused) >= self._limits.cached_refusals:
            del self._refused[next(iter(self._refused))]
        plain = TokenRefused(error.description, error=error.error, scheme=error.scheme)  # without its traceback
        self._refused[sha256(token).digest()] = (self._now() + REFUSED, plain)

    def clear(self) -> None:
        """Forget all: what they were judged by has changed."""
        self._good.clear()
        self._refused.clear()
