"""A cache of verified tokens, by the SHA-256 of each, and the base of the verifiers that have one: a token is verified
once, and then found in two microseconds.

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
"""Seconds for which a verified token is cached at most: for that long a token stays valid after its issuer has
withdrawn the key."""
REFUSED: Final = 10.0
"""Seconds for which a refused token is refused again without being checked."""


class TokenCache:
    """The tokens that were verified or refused. `seconds`: how long a good one is cached at most; never beyond its
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
        """Return until when a token is cached, whose it is, and what it is bound to; None if it is not cached, or not
        any more."""
        found = self._good.get(sha256(token).digest())
        return found if found is not None and self._now() < found[0] else None

    def holding(self, token: bytes) -> Callable[[], bool]:
        """Return a function that returns, each time it is called, whether `find` would still return what it returns
        now: until the token expires, or is not cached any more."""
        good, now, name = self._good, self._now, sha256(token).digest()
        found = good.get(name)
        until = -inf if found is None else found[0]
        return lambda: now() < until and good.get(name) is found

    def check_refused(self, token: bytes) -> None:
        """Raise TokenRefused for a token that was refused before."""
        found = self._refused.get(sha256(token).digest())
        if found is not None and self._now() < found[0]:
            again = found[1]
            raise TokenRefused(again.description, error=again.error, scheme=again.scheme)

    def keep(self, token: bytes, identity: Identity, bound: TokenBinding | None = None) -> None:
        """Cache a verified token."""
        until = self._now() + self._seconds
        if identity.expires_at is not None:
            until = min(until, identity.expires_at)
        name = sha256(token).digest()
        self._good.pop(name, None)  # so that it becomes the newest
        while len(self._good) >= self._limits.cached_tokens:
            del self._good[next(iter(self._good))]
        self._good[name] = (until, identity, bound)

    def refuse(self, token: bytes, error: TokenRefused) -> None:
        """Cache a refusal, one that is not for a passing reason."""
        while len(self._refused) >= self._limits.cached_refusals:
            del self._refused[next(iter(self._refused))]
        plain = TokenRefused(error.description, error=error.error, scheme=error.scheme)  # without its traceback
        self._refused[sha256(token).digest()] = (self._now() + REFUSED, plain)

    def clear(self) -> None:
        """Forget all tokens, because the keys that verified them have changed."""
        self._good.clear()
        self._refused.clear()


class CachingVerifier(VerifierBase):
    """A verifier with a cache of its tokens. `possession`: checks that a caller holds what a token is bound to; None:
    its issuers bind no tokens."""

    def __init__(self, cache: TokenCache, possession: Possession | None) -> None:
        self._cache = cache
        self._possession = possession

    def known(self, token: bytes) -> Identity | None:
        """Return the identity of a token that was verified before, is still valid and is bound to nothing; None: call
        `verify`. `token`: as it came, of the scheme Bearer."""
        found = self._cache.find(token)
        return found[1] if found is not None and found[2] is None and self.dpop != "required" else None

    def holding(self, token: bytes) -> Callable[[], bool] | None:
        """Return a function that returns, each time it is called, whether `known` would still return the same."""
        return self._cache.holding(token)

    def share(self, store: SeenOnce) -> Callable[[], None]:
        """Remember used proofs in this store too, which other processes share, until the returned function is
        called."""
        return do_nothing if self._possession is None else self._possession.share(store)

    async def verify(self, token: str, handshake: Handshake) -> Identity:
        """Return the identity behind a token. Raises TokenRefused with the reason why not, IssuerAway where that cannot
        be found out now."""
        identity, bound = await self._identify(token, handshake)
        if self._possession is not None:
            await self._possession.check_binding(token, identity, bound, handshake)
        return identity

    async def _identify(self, token: str, handshake: Handshake) -> tuple[Identity, TokenBinding | None]:
        """Return the bearer and what the token is bound to, from the cache or by the stages up to `check_claims`.
        Raises TokenRefused, IssuerAway."""
        raise NotImplementedError
