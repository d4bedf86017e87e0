"""The user's login at the identity provider of an enterprise: OpenID Connect, once. Its ID token is the assertion that
a resource's token is got with; it is kept with its refresh token, as any other login, and renewed."""

from __future__ import annotations

import time
from typing import Any

from ..errors import AuthError, TokenRefused
from ..fetch import Fetched
from ..id_token import id_token_claims
from ..jose import ASYMMETRIC, KeySet, parse_jws
from ..metadata import AuthorizationServer
from .authorizer import Authorizer
from .code import check_pkce, code_of, random_text, request
from .discovery import check_endpoint, needed
from .driver import Driver
from .errors import AuthorizationFailed
from .grants import Clock, redeemed
from .login import Asked, Terms, redirect_at
from .machine import Idp, metadata_of
from .requests import Sender
from .steps import Browse, Flow, Get, Listen
from .store import Store
from .tokens import EARLY, Grant, Tokens, union


class IdentityProvider:
    """Gives the ID token of the user who logs in at `idp`. `terms`: of the login. `login_wait`: as `Authorizer`'s."""

    def __init__(
        self, idp: Idp, terms: Terms, driver: Driver, store: Store, login_wait: float | None, clock: Clock = time.time
    ) -> None:
        self._idp = idp
        self._terms = terms
        self._driver = driver
        self._clock = clock
        self._checked: str | None = None
        """The ID token that was verified by this process."""
        self._refused = ""
        self._subject: str | None = None
        self._authorizer = Authorizer(
            idp.issuer,
            self._login,
            driver,
            store,
            account=terms.account,
            hint=idp.client_id,
            login_wait=login_wait,
            clock=clock,
        )
        self.close = self._authorizer.close

    def __repr__(self) -> str:
        return f"IdentityProvider({self._idp.issuer!r})"

    async def id_token(self, refused: str = "") -> str:
        """An ID token that does not expire soon: the one that is stored, a renewed one, or that of a login. `refused`:
        the one that the provider would not take any more. Raises AuthError."""
        self._refused = refused or self._refused
        tokens = await self._authorizer.such_as(self._usable)
        grant, text = self._authorizer.grant, tokens.id_token
        if grant is None or text is None or not self._usable(tokens):
            raise AuthorizationFailed(f"{self._idp.issuer} gives no ID token that can be used")
        if text != self._checked:  # a renewed one, or one of another run
            try:
                await self._driver.run(self._verified(grant.server, text, None))
            except TokenRefused as error:
                self._refused = text
                raise AuthorizationFailed(f"the ID token of {self._idp.issuer} is not used: {error}") from error
        return text

    def _usable(self, tokens: Tokens) -> bool:
        claims = _claims(tokens.id_token)
        if claims is None or tokens.id_token == self._refused:
            return False
        # OpenID Connect Core 1.0 section 12.2: "its `sub` Claim Value MUST be the same as in the ID Token issued when
        # the original authentication occurred"
        if self._subject is not None and claims.get("sub") != self._subject and tokens.id_token != self._checked:
            return False
        expires = claims.get("exp")
        return isinstance(expires, int | float) and expires - EARLY > self._clock()

    def _login(self, asked: Asked) -> Flow[Grant]:
        """OpenID Connect Core 1.0 section 3.1, with PKCE. Raises LoginNeeded, LoginFailed and other AuthErrors."""
        idp, terms = self._idp, self._terms
        server = yield from metadata_of(idp)
        check_pkce(server, terms.assume_pkce)
        uri: str = yield Listen(port=terms.redirect_port, exact=bool(terms.redirect_port))
        scopes = union(("openid",), terms.scopes or ())
        if terms.scopes is None and "offline_access" in (server.scopes_supported or ()):
            scopes = union(scopes, ("offline_access",))
        us, nonce = idp.registration, random_text()
        ours = request(
            server,
            us,
            redirect_at(uri, terms.redirect_host),
            resource=None,
            scopes=scopes,
            assume_pkce=terms.assume_pkce,
            extra={"nonce": nonce},
        )
        query: str = yield Browse(url=ours.url, state=ours.state)
        sender = Sender(us, server, by="operator")
        tokens = yield from redeemed(sender, ours, code_of(ours, query), None, scopes, asked.clock)
        if tokens.id_token is None:
            raise AuthorizationFailed(f"{idp.issuer} gives no ID token: it may not know the scope openid")
        try:
            yield from self._verified(server, tokens.id_token, nonce)
        except TokenRefused as error:
            raise AuthorizationFailed(f"the ID token of {idp.issuer} is not used: {error}") from error
        return Grant(
            url=asked.url,
            server=server,
            resource=None,
            client=us,
            by="operator",
            account=terms.account,
            requested=scopes,
            tokens=tokens,
        )

    def _verified(self, server: AuthorizationServer, text: str, nonce: str | None) -> Flow[None]:
        """Remember an ID token as verified. Raises TokenRefused, AuthError."""
        claims = yield from id_token_verified(server, text, self._idp.client_id, nonce, self._clock())
        self._checked, self._subject = text, claims["sub"]


def id_token_verified(
    server: AuthorizationServer, text: str, client: str, nonce: str | None, now: float
) -> Flow[dict[str, Any]]:
    """The claims of an ID token, by the keys that its issuer publishes. Raises TokenRefused, AuthError."""
    check_endpoint(server.jwks_uri, "jwks_uri")
    place = needed(server.jwks_uri, "jwks_uri", server)
    got: Fetched = yield Get(url=place, by="operator", why="the keys of the identity provider")
    if got.status != 200:
        raise AuthError(f"the keys of {server.issuer} are not at {place}: HTTP {got.status}")
    keys = KeySet.from_json(got.body)
    return id_token_claims(text, keys, issuer=server.issuer, client=client, nonce=nonce, now=now)


def _claims(text: str | None) -> dict[str, Any] | None:
    """What an ID token says, None for none."""
    try:
        return None if text is None else parse_jws(text, ASYMMETRIC).claims()
    except TokenRefused:
        return None
