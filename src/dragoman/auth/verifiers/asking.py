"""Asks an issuer about tokens: once for all who wait for the same token, and for a bounded number of them at once."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from hashlib import sha256
from typing import Final

from ...channel import Identity
from ..errors import AuthError, IssuerAway, TokenRefused
from ..keys import SingleFlight
from ..limits import DEFAULTS, AuthLimits
from ..tokens import Binding
from .cache import TokenCache

log: Final = logging.getLogger("dragoman.auth")


class Asking:
    """`ask(token)` says who the bearer is and what the token is bound to; it raises TokenRefused, and AuthError or
    OSError where the issuer cannot be asked. `name`: the issuer's, for the log."""

    __slots__ = ("_ask", "_flights", "_limits", "_name", "cache")

    def __init__(
        self,
        name: str,
        ask: Callable[[str], Awaitable[tuple[Identity, Binding | None]]],
        cache: TokenCache,
        *,
        limits: AuthLimits = DEFAULTS,
    ) -> None:
        self._name, self._ask, self._limits = name, ask, limits
        self._flights: dict[bytes, SingleFlight] = {}
        self.cache: TokenCache = cache

    async def verified(self, token: str) -> tuple[Identity, Binding | None]:
        """Who the bearer is, and what the token is bound to. Raises TokenRefused and IssuerAway."""
        if len(token) > self._limits.token:
            raise TokenRefused(f"The token has {len(token)} bytes: {self._limits.token} are taken")
        raw = token.encode("utf-8", "surrogatepass")
        found = self.cache.find(raw)
        if found is not None:
            return found[1:]
        self.cache.check_refused(raw)
        name = sha256(raw).digest()
        flight = self._flights.get(name)
        if flight is None:
            if len(self._flights) >= self._limits.questions:
                raise IssuerAway(
                    f"AuthLimits.questions allows {self._limits.questions} tokens to be asked about at once"
                )
            flight = self._flights[name] = SingleFlight(lambda: self._asked(token, raw, name))
        asked: tuple[Identity, Binding | None] = await flight.join()
        return asked

    async def _asked(self, token: str, raw: bytes, name: bytes) -> tuple[Identity, Binding | None]:
        try:
            identity, bound = await self._ask(token)
        except TokenRefused as error:
            self.cache.refuse(raw, error)
            raise
        except IssuerAway as error:
            log.warning("%s cannot be asked about a token: %s", self._name, error.__cause__ or error)
            raise
        except (AuthError, OSError) as error:
            log.warning("%s cannot be asked about a token: %s", self._name, error)
            raise IssuerAway("The issuer of the token does not answer") from error
        else:
            self.cache.keep(raw, identity, bound)
            return identity, bound
        finally:
            del self._flights[name]
