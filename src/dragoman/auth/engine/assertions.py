"""JWTs that others signed: a client that authenticates with its key, and assertions as grants (RFC 7523, ID-JAG)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...allowance import Allowance, Owner
from ..errors import AuthError, IssuerAway, OAuthError, TokenRefused
from ..jose import KeySet, VerifiedToken, parse_jws, verify_jws, verify_signature
from ..keys import IssuerKeys
from ..tokens import Issuer
from .messages import oauth_error
from .minting import ID_JAG
from .model import ALGORITHMS, Client, Settings, TrustedIssuer
from .published import PublishedDocuments
from .records import Records

LEEWAY = 30.0
"""Seconds by which another clock may differ."""
LONGEST = 3_600.0
"""Seconds for which a client's assertion or an ID-JAG may be valid: its `jti` is remembered for as long."""
USED = 5_000
"""Assertions of unknown clients that a process remembers at once: anyone may register with a key of its own."""
_ID = 512


class Assertions:
    """Checks assertions, and that each `jti` is used only once."""

    def __init__(self, settings: Callable[[], Settings], records: Records, published: PublishedDocuments) -> None:
        self._settings, self._records, self._published = settings, records, published
        self._issuers: dict[str, IssuerKeys] = {}
        self._used = Allowance(USED, LONGEST + 2 * LEEWAY)

    def subject(self, assertion: str) -> str:
        """Return the client that an assertion names, before anything of it is verified. Raises OAuthError."""
        try:
            found = parse_jws(assertion, ALGORITHMS).claims().get("sub")
        except TokenRefused:
            found = None
        if not isinstance(found, str):
            raise oauth_error("invalid_client", "The client's assertion is not a JWT with a sub", 401)
        return found

    async def authenticate(self, client: Client, assertion: str, endpoint: str, owner: Owner) -> None:
        """Check a client's assertion: `private_key_jwt` (RFC 7523, 3; OpenID Connect Core, 9). `endpoint`: the URL of
        the token endpoint; `owner`: to whose share it counts. Raises OAuthError (`invalid_client`).

        `aud` is the issuer alone, or the token endpoint, as older clients have it; as one text or a list of one, so
        that no other server takes it as well.
        """
        try:
            keys = client.keys if client.keys is not None else await self._published.client_keys(client.keys_url, owner)
            token = verify_jws(assertion, KeySet.from_json(keys), ALGORITHMS)
        except AuthError as fault:
            if isinstance(fault, OAuthError) and fault.status == 503:
                raise
            raise oauth_error("invalid_client", f"The assertion is not accepted: {fault}", 401) from None
        claims = token.claims
        if claims.get("iss") != client.id or claims.get("sub") != client.id:
            raise oauth_error("invalid_client", "iss and sub of the client's assertion are the client's id", 401)
        await self._check_times(claims, {self._settings().issuer, endpoint}, "invalid_client", 401)
        if not owner.known and not self._used.take(owner, self._records.clock()):
            raise oauth_error("temporarily_unavailable", "Too many assertions were used; try again later", 503)
        await self._use_once(claims, "invalid_client", 401)

    async def granted(
        self, assertion: str, client: Client | None, endpoint: str
    ) -> tuple[TrustedIssuer, VerifiedToken]:
        """Return who issued an assertion that is a grant, and the verified assertion. Raises OAuthError
        (`invalid_grant`).

        `client`: the client that authenticated, None where none did, which a workload need not.
        """
        try:
            parts = parse_jws(assertion, ALGORITHMS)
            name = parts.claims().get("iss")
        except TokenRefused as error:
            raise oauth_error("invalid_grant", f"The assertion cannot be read: {error}") from None
        kind = "id-jag" if str(parts.header.get("typ")).lower() == ID_JAG else "workload"
        found = [one for one in self._settings().trusted if one.issuer == name and one.kind == kind]
        if not found:
            raise oauth_error("invalid_grant", f"The assertion's issuer is not trusted here for a grant of kind {kind}")
        trusted, issuer = found[0], self._settings().issuer
        try:
            if trusted.keys is None:
                token = await self._keys_of(trusted.issuer).verify_signature(parts)
            else:
                token = verify_signature(parts, KeySet.from_json(trusted.keys).find(parts.header))
        except IssuerAway as away:  # no one can say now whether it is good
            lines = (("Retry-After", str(away.retry_after)),)
            raise oauth_error("temporarily_unavailable", away.description, 503, lines) from None
        except AuthError as fault:
            raise oauth_error("invalid_grant", f"The assertion is not accepted: {fault}") from None
        if not isinstance(token.claims.get("sub"), str) or not token.claims["sub"]:
            raise oauth_error("invalid_grant", "The assertion has no sub")
        # ID-JAG, 4.4: the audience is this server's issuer. Platforms' tokens name the token endpoint as well.
        audience = {issuer} if kind == "id-jag" else {issuer, endpoint}
        await self._check_times(token.claims, audience, "invalid_grant", 400)
        if kind == "id-jag":
            # "the client_id claim MUST identify the same client as the client authentication"
            if client is None or token.claims.get("client_id") != client.id:
                raise oauth_error("invalid_grant", "The assertion was issued to another client")
            await self._use_once(token.claims, "invalid_grant", 400)
        return trusted, token

    def _keys_of(self, issuer: str) -> IssuerKeys:
        """Return the keys of an issuer that the operator named, by its metadata (RFC 8414)."""
        if (found := self._issuers.get(issuer)) is None:
            found = IssuerKeys(Issuer(issuer=issuer), lambda: self._published, clock=self._records.clock)
            self._issuers[issuer] = found
        return found

    async def _check_times(self, claims: Mapping[str, Any], audience: set[str], error: str, status: int) -> None:
        """Check `aud`, `exp`, `nbf` and `iat` (RFC 7523, 3). Raises OAuthError."""
        aud = claims.get("aud")
        named = aud if isinstance(aud, list) else [aud]
        if len(named) != 1 or not isinstance(named[0], str) or named[0] not in audience:
            raise oauth_error(error, "The assertion is for another audience", status)
        now = self._records.clock()
        expires, begins, made = (claims.get(name) for name in ("exp", "nbf", "iat"))
        # "The JWT MUST contain an "exp" (expiration time) claim"
        if isinstance(expires, bool) or not isinstance(expires, int | float) or expires <= now - LEEWAY:
            raise oauth_error(error, "The assertion has expired, or has no exp", status)
        if expires > now + LONGEST * 24:
            raise oauth_error(error, "The assertion is valid for more than a day", status)
        for name, value in (("nbf", begins), ("iat", made)):
            if value is not None and (not isinstance(value, int | float) or value > now + LEEWAY):
                raise oauth_error(error, f"The assertion's {name} lies in the future", status)

    async def _use_once(self, claims: Mapping[str, Any], error: str, status: int) -> None:
        """Check that the `jti` was not used before. RFC 7523, 3: "The authorization server MAY ensure that JWTs are not
        replayed by maintaining the set of used "jti" values"; ID-JAG demands it. Raises OAuthError."""
        name = claims.get("jti")
        if not isinstance(name, str) or not 0 < len(name) <= _ID:
            raise oauth_error(error, "The assertion has no jti", status)
        now = self._records.clock()
        if claims["exp"] > now + LONGEST:
            raise oauth_error(error, f"The assertion is valid for more than {LONGEST:.0f} s", status)
        life = claims["exp"] - now + 2 * LEEWAY
        if not await self._records.first("jti", f"{claims.get('iss')} {name}", life):
            raise oauth_error(error, "The assertion was used before", status)
