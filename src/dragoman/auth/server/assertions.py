"""JWTs that others signed: a client that authenticates with its key, and assertions as grants (RFC 7523, ID-JAG)."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from math import inf
from typing import Any, TypeAlias

from ..errors import AuthError, TokenRefused
from ..jose import KeySet, Token, taken_apart, verified
from ..keys import COOLDOWN, FRESH, LIFE, SingleFlight
from ..metadata import server_locations
from .messages import refused
from .minting import ID_JAG
from .model import ALGORITHMS, Client, Settings, TrustedIssuer
from .records import Records

log: logging.Logger = logging.getLogger("dragoman.auth")

LEEWAY = 30.0
"""Seconds by which another clock may differ."""
LONGEST = 3_600.0
"""Seconds for which a client's assertion or an ID-JAG may be valid: its `jti` is kept as long."""
_ID = 512

Keys = Callable[[str, bool], Awaitable[Mapping[str, Any]]]
"""The JSON at a URL; the flag: an issuer that is trusted named it."""

_Known: TypeAlias = tuple[Mapping[str, Any] | None, float, float]
"""The keys of an issuer, when they were fetched, and when that last failed."""
_UNKNOWN: _Known = (None, -inf, -inf)


class Assertions:
    """Checks them, and that each with a `jti` is used once."""

    def __init__(self, settings: Callable[[], Settings], records: Records, keys: Keys) -> None:
        self._settings, self._records, self._keys = settings, records, keys
        self._known: dict[str, _Known] = {}
        self._vain: dict[str, float] = {}
        self._flights: dict[str, SingleFlight] = {}

    def subject(self, assertion: str) -> str:
        """The client that an assertion names, before anything of it is verified. Raises OAuthError."""
        try:
            found = taken_apart(assertion, ALGORITHMS).claims().get("sub")
        except TokenRefused:
            found = None
        if not isinstance(found, str):
            raise refused("invalid_client", "The client's assertion is not a JWT with a sub", 401)
        return found

    async def authenticate(self, client: Client, assertion: str, endpoint: str) -> None:
        """`private_key_jwt` (RFC 7523, 3; OpenID Connect Core, 9). Raises OAuthError (`invalid_client`).

        `aud` is the issuer alone, or the token endpoint, as older clients have it; as one text or a list of one, so
        that no other server takes it as well.
        """
        token = await self._verified(assertion, client.keys, client.keys_url, "invalid_client", 401)
        claims = token.claims
        if claims.get("iss") != client.id or claims.get("sub") != client.id:
            raise refused("invalid_client", "iss and sub of the client's assertion are the client's id", 401)
        await self._timely(claims, {self._settings().issuer, endpoint}, "invalid_client", 401)
        await self._once(claims, "invalid_client", 401)

    async def granted(self, assertion: str, client: Client | None, endpoint: str) -> tuple[TrustedIssuer, Token]:
        """An assertion that is a grant, and who issued it. Raises OAuthError (`invalid_grant`).

        `client`: the client that authenticated, None where none did, which a workload need not.
        """
        try:
            parts = taken_apart(assertion, ALGORITHMS)
            name = parts.claims().get("iss")
        except TokenRefused as error:
            raise refused("invalid_grant", f"The assertion cannot be read: {error}") from None
        kind = "id-jag" if str(parts.header.get("typ")).lower() == ID_JAG else "workload"
        found = [one for one in self._settings().trusted if one.issuer == name and one.kind == kind]
        if not found:
            raise refused("invalid_grant", f"The assertion's issuer is not trusted here for a grant of kind {kind}")
        trusted, issuer = found[0], self._settings().issuer
        token = await self._verified(assertion, trusted.keys, trusted.issuer, "invalid_grant", 400, metadata=True)
        if not isinstance(token.claims.get("sub"), str) or not token.claims["sub"]:
            raise refused("invalid_grant", "The assertion has no sub")
        # ID-JAG, 4.4: the audience is this server's issuer. Platforms' tokens name the token endpoint as well.
        audience = {issuer} if kind == "id-jag" else {issuer, endpoint}
        await self._timely(token.claims, audience, "invalid_grant", 400)
        if kind == "id-jag":
            # "the client_id claim MUST identify the same client as the client authentication"
            if client is None or token.claims.get("client_id") != client.id:
                raise refused("invalid_grant", "The assertion was issued to another client")
            await self._once(token.claims, "invalid_grant", 400)
        return trusted, token

    async def _verified(
        self,
        assertion: str,
        keys: Mapping[str, Any] | None,
        url: str,
        error: str,
        status: int,
        *,
        metadata: bool = False,
    ) -> Token:
        try:
            if keys is None and metadata:
                return await self._by_issuer(assertion, url)
            document = await self._keys(url, False) if keys is None else keys
            return verified(assertion, KeySet.from_json(document), ALGORITHMS)
        except AuthError as fault:
            raise refused(error, f"The assertion is not accepted: {fault}", status) from None

    async def _by_issuer(self, assertion: str, issuer: str) -> Token:
        try:
            return verified(assertion, KeySet.from_json(await self._of_issuer(issuer, FRESH)), ALGORITHMS)
        except TokenRefused:  # its key may be newer than those that are known
            if self._records.clock() - self._vain.get(issuer, -inf) < COOLDOWN:
                raise
        keys = await self._of_issuer(issuer, 0.0)
        try:
            return verified(assertion, KeySet.from_json(keys), ALGORITHMS)
        except TokenRefused:
            self._vain[issuer] = self._records.clock()
            raise

    async def _of_issuer(self, issuer: str, life: float) -> Mapping[str, Any]:
        """The keys of an issuer that the operator named, not older than `life` seconds. If they cannot be had,
        or were asked for in vain, it is left alone for `COOLDOWN` seconds: anyone may name it in an assertion."""
        keys, fetched, failed = self._known.get(issuer, _UNKNOWN)
        now = self._records.clock()
        if now - fetched >= life and now - failed >= COOLDOWN:
            flight = self._flights.setdefault(issuer, SingleFlight(partial(self._fetched, issuer)))
            await flight.join()
            keys, fetched, _ = self._known[issuer]
        if keys is None or now - fetched > LIFE:
            raise refused("invalid_grant", "The keys of the assertion's issuer cannot be had")
        return keys

    async def _fetched(self, issuer: str) -> None:
        keys, fetched, failed = self._known.get(issuer, _UNKNOWN)
        try:
            keys, fetched = await self._by_metadata(issuer), self._records.clock()
        except AuthError as fault:  # what is known serves on
            log.warning("the keys of %s cannot be fetched: %s", issuer, fault)
            failed = self._records.clock()
        self._known[issuer] = keys, fetched, failed

    async def _by_metadata(self, issuer: str) -> Mapping[str, Any]:
        """The keys of an issuer, by its metadata (RFC 8414)."""
        for place in server_locations(issuer):
            try:
                found = await self._keys(place, True)
            except AuthError:
                continue
            if found.get("issuer") == issuer and isinstance(found.get("jwks_uri"), str):
                return await self._keys(found["jwks_uri"], True)
        raise refused("invalid_grant", "The metadata of the assertion's issuer cannot be had")

    async def _timely(self, claims: Mapping[str, Any], audience: set[str], error: str, status: int) -> None:
        """`aud`, `exp`, `nbf` and `iat` (RFC 7523, 3)."""
        aud = claims.get("aud")
        named = aud if isinstance(aud, list) else [aud]
        if len(named) != 1 or not isinstance(named[0], str) or named[0] not in audience:
            raise refused(error, "The assertion is for another audience", status)
        now = self._records.clock()
        expires, begins, made = (claims.get(name) for name in ("exp", "nbf", "iat"))
        # "The JWT MUST contain an "exp" (expiration time) claim"
        if isinstance(expires, bool) or not isinstance(expires, int | float) or expires <= now - LEEWAY:
            raise refused(error, "The assertion has expired, or has no exp", status)
        if expires > now + LONGEST * 24:
            raise refused(error, "The assertion is valid for more than a day", status)
        for name, value in (("nbf", begins), ("iat", made)):
            if value is not None and (not isinstance(value, int | float) or value > now + LEEWAY):
                raise refused(error, f"The assertion's {name} lies in the future", status)

    async def _once(self, claims: Mapping[str, Any], error: str, status: int) -> None:
        """RFC 7523, 3: "The authorization server MAY ensure that JWTs are not replayed by maintaining the set of used
        "jti" values"; ID-JAG demands it."""
        name = claims.get("jti")
        if not isinstance(name, str) or not 0 < len(name) <= _ID:
            raise refused(error, "The assertion has no jti", status)
        now = self._records.clock()
        if claims["exp"] > now + LONGEST:
            raise refused(error, f"The assertion is valid for more than {LONGEST:.0f} s", status)
        life = claims["exp"] - now + 2 * LEEWAY
        if not await self._records.first("jti", f"{claims.get('iss')} {name}", life):
            raise refused(error, "The assertion was used before", status)
