"""Asks an issuer about tokens: once for all who wait for the same token, and for a bounded number of them at once."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from hashlib import sha256
from typing import Any, Final

from ...allowance import owner_at
from ...channel import Handshake, Identity
from ...repeats import Repeats
from ..errors import AuthError, IssuerAway, TokenRefused
from ..flights import Flights
from ..limits import DEFAULTS, AuthLimits
from ..tokens import TokenBinding
from .cache import TokenCache

log: Final = logging.getLogger("dragoman.auth")
repeats: Final = Repeats(log)


class TokenQuestions:
    """Asks one issuer about tokens. `ask(token)` returns the bearer and what the token is bound to; it raises
    TokenRefused, and AuthError or OSError where the issuer does not answer. `name`: the issuer's, for the log."""

    __slots__ = ("_ask", "_flights", "_limits", "_name", "cache")

    def __init__(
        self,
        name: str,
        ask: Callable[[str], Coroutine[Any, Any, tuple[Identity, TokenBinding | None]]],
        cache: TokenCache,
        *,
        limits: AuthLimits = DEFAULTS,
    ) -> None:
        self._name, self._ask, self._limits = name, ask, limits
        full = f"AuthLimits.questions allows {limits.questions} tokens to be asked about at once"
        self._flights: Flights[bytes] = Flights(limits.questions, full)
        self.cache: TokenCache = cache

    async def identify(self, token: str, handshake: Handshake) -> tuple[Identity, TokenBinding | None]:
        """Return who the bearer is, and what the token is bound to. `handshake`: of the caller, to whose address the
        question counts. Raises TokenRefused and IssuerAway."""
        if len(token) > self._limits.token:
            raise TokenRefused(f"The token has {len(token)} bytes: {self._limits.token} are taken")
        raw = token.encode("utf-8", "surrogatepass")
        found = self.cache.find(raw)
        if found is not None:
            return found[1:]
        self.cache.check_refused(raw)
        name = sha256(raw).digest()
        owner = owner_at(handshake.remote, handshake.scheme)
        verified: tuple[Identity, TokenBinding | None] = await self._flights.join(
            name, owner, lambda: self._ask_and_cache(token, raw)
        )
        return verified

    async def _ask_and_cache(self, token: str, raw: bytes) -> tuple[Identity, TokenBinding | None]:
        try:
            identity, bound = await self._ask(token)
        except TokenRefused as error:
            self.cache.refuse(raw, error)
            raise
        except IssuerAway as error:
            repeats.warning("%s cannot be asked about a token: %s", self._name, error.__cause__ or error)
            raise
        except (AuthError, OSError) as error:
            repeats.warning("%s cannot be asked about a token: %s", self._name, error)
            raise IssuerAway("The issuer of the token does not answer") from error
        else:
            self.cache.keep(raw, identity, bound)
            return identity, bound
