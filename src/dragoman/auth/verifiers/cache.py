"""A cache of verified tokens, by the SHA-256 of each, and what the verifiers that have one share: a token is looked up
in two microseconds and verified once.

Good tokens and refused ones are kept apart, each within a bound, so that no number of bad ones pushes a good one out.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from hashlib import sha256
from math import inf
from typing import Final

from ...channel import Handshake, Identity
from ..errors import TokenRefused
from ..limits import DEFAULTS, AuthLimits
from ..replays import SeenOnce
from ..tokens import TokenBinding
from .base import VerifierBase, do_nothing
from .possession import Possession

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
        self._good: dict[bytes, tuple[float, Identity, TokenBinding | None]] = {}
        self._refused: dict[bytes, tuple[float, TokenRefused]] = {}

    def __len__(self) -> int:
        return len(self._good)

    def find(self, token: bytes) -> tuple[float, Identity, TokenBinding | None] | None:
        """Return until when a token is good, whose it is, and what it is bound to; None if it is not here, or its time
        is over."""
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

    def keep(self, token: bytes, identity: Identity, bound: TokenBinding | None = None) -> None:
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


class CachingVerifier(VerifierBase):
    """A verifier of tokens that it keeps in a cache. `possession`: checks what a token is bound to; None: its issuers
    bind none."""

    def __init__(self, cache: TokenCache, possession: Possession | None) -> None:
        self._cache = cache
        self._possession = possession

    def known(self, token: bytes) -> Identity | None:
        """Return the identity of a token that was verified before, is still good and is bound to nothing; None: ask
        `verify`. `token`: as it came, of the scheme Bearer."""
        found = self._cache.find(token)
        return found[1] if found is not None and found[2] is None and self.dpop != "required" else None

    def holding(self, token: bytes) -> Callable[[], bool] | None:
        """Return a function that says, each time it is called, whether `known` would still return the same."""
        return self._cache.holding(token)

    def share(self, store: SeenOnce) -> Callable[[], None]:
        """Remember proofs that were used in this store too, which other processes share, until the function that is
        returned is called."""
        return do_nothing if self._possession is None else self._possession.share(store)

    async def verify(self, token: str, handshake: Handshake) -> Identity:
        """Return the identity behind a token. Raises TokenRefused with the reason why not, IssuerAway where no one can
        say now."""
        identity, bound = await self._identify(token, handshake)
        if self._possession is not None:
            await self._possession.check_binding(token, identity, bound, handshake)
        return identity

    async def _identify(self, token: str, handshake: Handshake) -> tuple[Identity, TokenBinding | None]:
        """Return the bearer and what the token is bound to, from the cache or by the stages up to `check_claims`."""
        raise NotImplementedError
