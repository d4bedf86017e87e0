"""Tokens that are introspected at their issuer (RFC 7662): opaque ones, or those that may be revoked at any time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec

from ...channel import Handshake, Identity
from ...jsonrpc.errors import LocalError
from ...jsonrpc.options import CALLABLE, NAME, NONE, SECONDS, TEXTS, check, instance, mapping, one_of
from ...secret import holds_secret
from ..claims import Claims
from ..credential import TokenCredential
from ..dpop import ProofChecker
from ..errors import IssuerAway, OAuthError, TokenRefused
from ..exchange import Exchange, authenticate, parse_answer
from ..fetching import FETCHER, Fetches, fetcher_of
from ..jose import Key, VerifiedToken
from ..limits import DEFAULTS, AuthLimits
from ..tokens import LEEWAY, ClaimRules, Issuer, TokenBinding
from ..urls import split_web
from .bearer import audiences, check_resource
from .cache import CachingVerifier, TokenCache
from .possession import POLICIES, Policy, Possession
from .questions import TokenQuestions

BELIEVED: Final = 60.0
"""Seconds for which an answer is cached: for that long a revoked token is still accepted."""


@holds_secret
class Introspection(CachingVerifier):
    """Verifies tokens by asking an introspection endpoint.

    `url`: the endpoint; `issuer`: whose it is. `client_id` with `secret` or `key`: this server as a client there.
    `resource`: this server's URL as clients write it; the answer's `aud` must name it, or what `audience` says. An
    endpoint that returns no `aud` can be used with `clients`: the answer's `client_id` must be one of them. The other
    options are those of `Bearer`. Raises LocalError for options that cannot be right.
    """

    def __init__(
        self,
        url: str,
        *,
        issuer: str,
        resource: str,
        client_id: str,
        secret: str | None = None,
        key: Key | None = None,
        audience: str | Iterable[str] | None = None,
        clients: Iterable[str] = (),
        dpop: Policy = "off",
        implies: Mapping[str, Iterable[str]] | None = None,
        leeway: float = LEEWAY,
        cache_seconds: float = BELIEVED,
        fetcher: Fetches | None = None,
        limits: AuthLimits = DEFAULTS,
        now: Callable[[], float] = time.time,
    ) -> None:
        check("Introspection", _RULES, locals())
        check_resource("Introspection", resource)
        if split_web(url) is None:
            raise LocalError(f"Introspection: the endpoint is an https URL, not {url!r}")
        self.resource, self.issuers, self.dpop = resource, (issuer,), dpop
        """This server's URL; the issuers of the tokens; whether bound ones are accepted."""
        self._url, self._issuer, self._now, self._limits = url, issuer, now, limits
        self._client = Exchange(client_id=client_id, secret=secret, key=key)
        self._fetch = fetcher_of(fetcher)
        ours = frozenset(clients)
        row = Issuer(issuer=issuer, audience_claim="client_id" if ours else "aud")
        wanted = audiences(resource, audience)
        self._rules = ClaimRules(
            row, audience=ours or wanted, resource=wanted, leeway=leeway, implies=implies, expires=False
        )
        super().__init__(
            TokenCache(seconds=cache_seconds, limits=limits, now=now),
            Possession(dpop, resource, ProofChecker(limits=limits, now=now)),
        )
        self._questions = TokenQuestions(issuer, self._ask, self._cache, limits=limits)

    def __repr__(self) -> str:
        return f"Introspection({self._url!r}, issuer={self._issuer!r}, resource={self.resource!r})"

    async def _identify(self, token: str, handshake: Handshake) -> tuple[Identity, TokenBinding | None]:
        return await self._questions.identify(token, handshake)

    async def _ask(self, token: str) -> tuple[Identity, TokenBinding | None]:
        more, headers = authenticate(self._client, self._issuer, self._now())
        form = {"token": token, "token_type_hint": "access_token", **more}
        answer = await self._fetch().post_form(self._url, form, by="operator", origin=self._issuer, headers=headers)
        try:
            found = parse_answer(answer, self._limits.answer)
        except OAuthError as error:
            # RFC 7662 section 2.3: an error is about our own request: "a properly formed and authorized query for an
            # inactive ... token ... is not considered an error response"
            raise IssuerAway("The issuer does not let this server ask about tokens") from error
        return self._check(token, found)

    def _check(self, token: str, found: dict[str, Any]) -> tuple[Identity, TokenBinding | None]:
        # RFC 7662 section 2.2: "active: REQUIRED. Boolean indicator"
        if found.get("active") is not True:
            raise TokenRefused("The token is not active: it has expired, was revoked, or is not of this issuer")
        claims = {"iss": self._issuer} | found
        if str(claims.get("token_type", "access_token")).lower() not in ("bearer", "dpop", "access_token"):
            raise TokenRefused("The token is not an access token (token_type)")
        raw = msgspec.json.encode(claims)
        return self._rules.check_claims(
            VerifiedToken({"typ": "at+jwt"}, claims, raw),
            self._now(),
            claims=Claims(raw),
            credential=TokenCredential(token),
        )


_RULES: Final = {
    "url": NAME,
    "issuer": NAME,
    "resource": NAME,
    "client_id": NAME,
    "secret": NAME | NONE,
    "key": instance(Key, "a Key") | NONE,
    "audience": NAME | TEXTS | NONE,
    "clients": TEXTS,
    "dpop": one_of(*POLICIES),
    "implies": mapping(TEXTS) | NONE,
    "leeway": SECONDS,
    "cache_seconds": SECONDS,
    "fetcher": FETCHER,
    "limits": instance(AuthLimits, "an AuthLimits"),
    "now": CALLABLE,
}
