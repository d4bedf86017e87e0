"""Opaque tokens of issuers that have a check of their own and no introspection: GitHub, Google.

Such a token says nothing about this server. It is accepted only if the check says that it was issued to *our* client: a
token that another app got from the same issuer is valid there, but not for us. What an issuer returns about the user of
a token (userinfo) does not prove that, and is never used.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct

from ...channel import Handshake, Identity
from ...jsonrpc.options import CALLABLE, NAME, NONE, SECONDS, TEXTS, check, instance, mapping
from ..claims import Claims
from ..credential import TokenCredential
from ..errors import IssuerAway, TokenRefused
from ..fetching import FETCHER, FetchedAnswer, Fetches, fetcher_of
from ..jose import VerifiedToken
from ..limits import DEFAULTS, AuthLimits
from ..tokens import ClaimRules, Issuer, TokenBinding
from .bearer import check_resource
from .cache import SECONDS as BELIEVED
from .cache import CachingVerifier, TokenCache
from .questions import TokenQuestions


class TokenCheck(Struct, frozen=True, kw_only=True):
    """How an issuer says whose an opaque token is, and to which client it was issued."""

    issuer: str
    clients: frozenset[str]
    """Our clients at the issuer."""
    ask: Callable[[Fetches, str], Awaitable[FetchedAnswer]]
    """Asks the issuer about a token. May raise AuthError or OSError."""
    read: Callable[[Mapping[str, Any]], Mapping[str, Any]]
    """Returns the claims in an answer: `sub`, `client_id`, `scope`, `exp`. If it raises LookupError, TypeError or
    ValueError, the answer is not what the issuer documents, and the token is refused."""
    unknown: frozenset[int] = frozenset({400, 404, 422})
    """The HTTP statuses by which the issuer says that a token is not valid."""


class OpaqueTokens(CachingVerifier):
    """Verifies opaque tokens by an issuer's own check. Presets make these: `github(...)`, `google(...)`.

    `resource`: this server's URL as clients write it, for the metadata; `cache_seconds`: for how long an answer is
    cached at most.
    """

    def __init__(
        self,
        token_check: TokenCheck,
        *,
        resource: str,
        cache_seconds: float = BELIEVED,
        implies: Mapping[str, Any] | None = None,
        fetcher: Fetches | None = None,
        limits: AuthLimits = DEFAULTS,
        now: Callable[[], float] = time.time,
    ) -> None:
        check("OpaqueTokens", _RULES, locals())
        check_resource("OpaqueTokens", resource)
        self.resource, self.issuers = resource, (token_check.issuer,)
        """This server's URL; the issuers of the tokens."""
        self._check, self._now, self._limits = token_check, now, limits
        self._fetch = fetcher_of(fetcher)
        row = Issuer(issuer=token_check.issuer, audience_claim="client_id")
        self._rules = ClaimRules(row, audience=token_check.clients, implies=implies, leeway=0.0, expires=False)
        super().__init__(
            TokenCache(seconds=cache_seconds, limits=limits, now=now), None
        )  # these issuers bind no tokens
        self._questions = TokenQuestions(token_check.issuer, self._ask, self._cache, limits=limits)

    def __repr__(self) -> str:
        return f"OpaqueTokens({self._check.issuer!r}, resource={self.resource!r})"

    async def _identify(self, token: str, handshake: Handshake) -> tuple[Identity, TokenBinding | None]:
        return await self._questions.identify(token, handshake)

    async def _ask(self, token: str) -> tuple[Identity, TokenBinding | None]:
        answer = await self._check.ask(self._fetch(), token)
        if answer.status in self._check.unknown:
            raise TokenRefused("The token is not of this server's client, has expired or was revoked")
        if answer.status != 200 or len(answer.body) > self._limits.answer:
            raise IssuerAway(f"The issuer answered with status {answer.status}")
        try:
            found = msgspec.json.decode(answer.body, type=dict[str, Any])
            claims = {"iss": self._check.issuer, **self._check.read(found)}
        except (LookupError, TypeError, ValueError, RecursionError):  # msgspec's errors are ValueErrors
            raise TokenRefused("The issuer's answer about the token is not what it documents") from None
        raw = msgspec.json.encode(claims)
        identity, bound = self._rules.check_claims(
            VerifiedToken({"typ": "at+jwt"}, claims, raw),
            self._now(),
            claims=Claims(raw),
            credential=TokenCredential(token),
        )
        if bound is not None:
            raise TokenRefused("The token is bound (cnf), and possession of that is not proved here")
        return identity, None


_RULES: Final = {
    "token_check": instance(TokenCheck, "a TokenCheck"),
    "resource": NAME,
    "cache_seconds": SECONDS,
    "implies": mapping(TEXTS) | NONE,
    "fetcher": FETCHER,
    "limits": instance(AuthLimits, "an AuthLimits"),
    "now": CALLABLE,
}
