"""The user's login at the identity provider of an enterprise: OpenID Connect, once. Its ID token is the assertion that
is exchanged for a resource's token; it is stored and renewed like any other login."""

from __future__ import annotations

import time
from typing import Any

from ..errors import AuthError, TokenRefused
from ..id_token import id_token_claims
from ..jose import ASYMMETRIC, KeySet, parse_jws
from ..metadata import ServerMetadata
from .authorizer import Authorizer
from .code import check_pkce, code_of, new_request, random_text
from .endpoints import check_endpoint, need_endpoint
from .errors import AuthorizationFailed
from .grants import Clock, redeem
from .login import Terms, TokenRequest, redirect_at
from .machine import Idp, metadata_of
from .requests import Sender
from .store import TokenStore
from .tokens import EARLY, Grant, Tokens, union
from .world import World


class IdentityProvider:
    """Provides the ID token of the user who logs in at `idp`. `terms`: of the login. `login_wait`: seconds to wait for
    a login of another process; None: no person logs in here."""

    def __init__(
        self,
        idp: Idp,
        terms: Terms,
        world: World,
        store: TokenStore,
        login_wait: float | None,
        clock: Clock = time.time,
    ) -> None:
        self._idp = idp
        self._terms = terms
        self._world = world
        self._clock = clock
        self._checked: str | None = None
        """The ID token that was verified by this process."""
        self._refused = ""
        self._subject: str | None = None
        self._authorizer = Authorizer(
            idp.issuer,
            self._login,
            world,
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
        """Return an ID token that does not expire soon: the one that is stored, a renewed one, or that of a login.
        `refused`: the one that the provider would not take any more. Raises AuthError."""
        self._refused = refused or self._refused
        tokens = await self._authorizer.usable_tokens(self._usable)
        grant, text = self._authorizer.grant, tokens.id_token
        if grant is None or text is None or not self._usable(tokens):
            raise AuthorizationFailed(f"{self._idp.issuer} gives no ID token that can be used")
        if text != self._checked:  # a renewed one, or one of another run
            try:
                await self._world.run(self._verify(self._world, grant.server, text, None))
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

    async def _login(self, world: World, request: TokenRequest) -> Grant:
        """Log the user in (OpenID Connect Core 1.0 section 3.1, with PKCE). Raises LoginNeeded, LoginFailed and other
        AuthErrors."""
        idp, terms = self._idp, self._terms
        server = await metadata_of(world, idp)
        check_pkce(server, terms.assume_pkce)
        uri = await world.listen(terms.redirect_port, exact=bool(terms.redirect_port))
        scopes = union(("openid",), terms.scopes or ())
        if terms.scopes is None and "offline_access" in (server.scopes_supported or ()):
            scopes = union(scopes, ("offline_access",))
        us, nonce = idp.registration, random_text()
        ours = new_request(
            server,
            us,
            redirect_at(uri, terms.redirect_host),
            resource=None,
            scopes=scopes,
            assume_pkce=terms.assume_pkce,
            extra={"nonce": nonce},
        )
        query = await world.browse(ours.url, ours.state)
        sender = Sender(us, server, by="operator")
        tokens = await redeem(world, sender, ours, code_of(ours, query), None, scopes, request.clock)
        if tokens.id_token is None:
            raise AuthorizationFailed(f"{idp.issuer} gives no ID token: it may not know the scope openid")
        try:
            await self._verify(world, server, tokens.id_token, nonce)
        except TokenRefused as error:
            raise AuthorizationFailed(f"the ID token of {idp.issuer} is not used: {error}") from error
        return Grant(
            url=request.url,
            server=server,
            resource=None,
            client=us,
            by="operator",
            account=terms.account,
            requested=scopes,
            tokens=tokens,
        )

    async def _verify(self, world: World, server: ServerMetadata, text: str, nonce: str | None) -> None:
        """Verify an ID token, and remember that it was. Raises TokenRefused, AuthError."""
        claims = await verify_id_token(world, server, text, self._idp.client_id, nonce, self._clock())
        self._checked, self._subject = text, claims["sub"]


async def verify_id_token(
    world: World, server: ServerMetadata, text: str, client: str, nonce: str | None, now: float
) -> dict[str, Any]:
    """Return the claims of an ID token, verified with the keys that its issuer publishes. Raises TokenRefused,
    AuthError."""
    check_endpoint(server.jwks_uri, "jwks_uri")
    location = need_endpoint(server.jwks_uri, "jwks_uri", server)
    got = await world.get(location, by="operator", why="the keys of the identity provider")
    if got.status != 200:
        raise AuthError(f"the keys of {server.issuer} are not at {location}: HTTP {got.status}")
    keys = KeySet.from_json(got.body)
    return id_token_claims(text, keys, issuer=server.issuer, client=client, nonce=nonce, now=now)


def _claims(text: str | None) -> dict[str, Any] | None:
    """Return the claims of an ID token, not verified; None where there is none."""
    try:
        return None if text is None else parse_jws(text, ASYMMETRIC).claims()
    except TokenRefused:
        return None
