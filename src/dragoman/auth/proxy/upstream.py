"""The issuer behind a proxy: its endpoints, its logins, and its tokens. Requests to it are the flows of `auth.client`;
the browser that they need is that of the proxy's user."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from msgspec import Struct, structs

from ...jsonrpc.errors import LocalError
from ..client.code import AuthorizationRequest, code_of, new_request, random_text
from ..client.endpoints import check_secure, need_endpoint
from ..client.errors import LoginFailed
from ..client.grants import redeem, refresh
from ..client.identity import verify_id_token
from ..client.requests import Sender, answer_of, outcome_of
from ..client.store import MemoryStore
from ..client.tokens import Registration, Tokens, tokens_of
from ..client.world import World
from ..errors import AuthError, IssuerAway, OAuthError, TokenRefused
from ..fetch import Fetched, as_fetched
from ..fetching import Fetches
from ..keys import fetch_metadata
from ..metadata import ServerMetadata


class Upstream(Struct, frozen=True, kw_only=True):
    """An issuer at which this server is a client. Endpoints that are empty are found by its metadata."""

    issuer: str
    """Its URL."""
    authorization_endpoint: str = ""
    """Where users log in."""
    token_endpoint: str = ""
    """Where codes and refresh tokens are exchanged."""
    userinfo_endpoint: str = ""
    """Where the user is found if there is no ID token."""
    jwks_uri: str = ""
    """Its JWK Set, for ID tokens."""
    subject: str = "sub"
    """The member that names the user, which is unique and never changes."""
    scopes: tuple[str, ...] = ("openid",)
    """The scopes that our client requests there."""
    parameters: Mapping[str, str] = {}
    """Further parameters of the authorization request, such as Google's access_type=offline."""
    post: bool = False
    """Whether its token endpoint expects id and secret in the body, not in the header (RFC 6749, 2.3.1)."""
    iss: bool = False
    """Whether its authorization responses have `iss` (RFC 9207)."""


_ENDPOINTS: Final = ("authorization_endpoint", "token_endpoint", "userinfo_endpoint", "jwks_uri")


GITHUB: Final = Upstream(
    issuer="https://github.com/login/oauth",
    authorization_endpoint="https://github.com/login/oauth/authorize",
    token_endpoint="https://github.com/login/oauth/access_token",
    userinfo_endpoint="https://api.github.com/user",
    subject="id",
    post=True,
    scopes=("read:user",),
)
"""GitHub, whose tokens are opaque: its API names the user of a token, which was just issued to this very client."""


GOOGLE: Final = Upstream(
    issuer="https://accounts.google.com",
    parameters={"access_type": "offline", "prompt": "consent"},
)
"""Google, with the parameters for which it issues a refresh token: without one each login ends after an hour."""


class PendingLogin(Struct, frozen=True):
    """One login that is going on at the upstream."""

    request: AuthorizationRequest
    nonce: str


class UpstreamClient:
    """This server as a client of the upstream. `redirect_uri`: the one that is registered there."""

    def __init__(
        self,
        upstream: Upstream,
        client_id: str,
        secret: str,
        redirect_uri: str,
        http: Callable[[], Fetches],
        clock: Callable[[], float],
    ) -> None:
        self.upstream = upstream
        self._client = Registration(client_id=client_id, client_secret=secret)
        self._redirect_uri, self._http, self._clock = redirect_uri, http, clock
        self._server: ServerMetadata | None = None

    async def server(self) -> ServerMetadata:
        """Return the upstream's metadata, with the endpoints that were given. Raises IssuerAway where they cannot be
        fetched or used."""
        if self._server is None:
            try:
                self._server = await self._find_server()
            except AuthError as error:
                raise IssuerAway(f"The upstream issuer cannot be used: {error}", 10) from error
        return self._server

    async def _find_server(self) -> ServerMetadata:
        row = self.upstream
        found = ServerMetadata(issuer=row.issuer)
        if not (row.authorization_endpoint and row.token_endpoint):
            found = await fetch_metadata(self._http(), row.issuer)
        given = {name: getattr(row, name) for name in _ENDPOINTS if getattr(row, name)}
        if row.post:
            given["token_endpoint_auth_methods_supported"] = ("client_secret_post",)
        if row.iss:
            given["authorization_response_iss_parameter_supported"] = True
        found = structs.replace(found, **given)
        for name in ("authorization_endpoint", "token_endpoint"):  # both, before a user is sent there
            check_secure(need_endpoint(getattr(found, name), name, found), name, found)
        return found

    async def begin(self) -> PendingLogin:
        """Begin a login; its user is sent to `request.url`. Raises AuthError."""
        row, nonce = self.upstream, random_text()
        extra = {**row.parameters, **({"nonce": nonce} if "openid" in row.scopes else {})}
        request = new_request(
            await self.server(),
            self._client,
            self._redirect_uri,
            resource=None,
            scopes=row.scopes,
            assume_pkce=True,
            extra=extra,
        )
        return PendingLogin(request, nonce)

    async def finish(self, login: PendingLogin, query: str) -> tuple[dict[str, Any], Tokens]:
        """Return the upstream's claims about the user who came back with this query, and its tokens. Raises OAuthError,
        AuthError and OSError."""
        try:
            code = code_of(login.request, query)
        except LoginFailed as failed:
            raise OAuthError(
                "access_denied" if failed.error else "server_error", "The login did not succeed"
            ) from failed
        row, server, world = self.upstream, await self.server(), self._world()
        tokens = await redeem(world, self._sender(server), login.request, code, None, row.scopes, self._clock)
        if tokens.id_token is not None and server.jwks_uri:
            client, text = self._client.client_id, tokens.id_token
            try:
                user = await verify_id_token(world, server, text, client, login.nonce, self._clock())
            except TokenRefused as error:
                raise OAuthError("server_error", f"The upstream's ID token is not taken: {error}", 502) from error
        elif server.userinfo_endpoint and "openid" not in row.scopes:
            user = await self._fetch_user(server.userinfo_endpoint, tokens.access_token)
        else:
            raise OAuthError("server_error", "The upstream issuer sent no ID token", 502)
        if user.get(row.subject) in (None, "", True, False):
            raise OAuthError("server_error", f"The upstream issuer names no user ({row.subject})", 502)
        return user, structs.replace(tokens, id_token=None)

    async def renew(self, tokens: Tokens) -> Tokens | None:
        """Return new tokens for a refresh token; None where the user or the upstream ended the login. Raises AuthError
        and OSError where that cannot be found out now."""
        got = await refresh(self._world(), self._sender(await self.server()), tokens, None, self._clock)
        if outcome_of(got).kind == "ended":
            return None
        return tokens_of(answer_of(got, "the upstream's token endpoint"), self._clock(), (), tokens)

    async def ends(self, tokens: Tokens, longest: float) -> float:
        """Return the Unix time at which a login with these tokens ends; 0 where only the upstream can say. Without a
        refresh token that is when the access token expires; where that is unknown too, `longest` seconds from now."""
        if tokens.refresh_token is not None:
            return 0.0
        if tokens.expires_at is not None:
            return tokens.expires_at
        return 0.0 if (await self.server()).userinfo_endpoint else self._clock() + longest

    async def accepts(self, tokens: Tokens) -> bool:
        """Return whether the upstream still accepts an access token whose expiry is not known; True where it has no
        endpoint to ask. Raises AuthError and OSError where that cannot be found out now."""
        endpoint = (await self.server()).userinfo_endpoint
        if not endpoint:
            return True
        got = await self._request_userinfo(endpoint, tokens.access_token)
        if got.status != 401 and not 200 <= got.status < 300:
            raise IssuerAway(f"The upstream's user endpoint answers with status {got.status}", 5)
        return got.status != 401

    def _sender(self, server: ServerMetadata) -> Sender:
        return Sender(self._client, server, by="operator")

    def _world(self) -> World:
        return World(self.upstream.issuer, self._http(), MemoryStore(), None)

    async def _fetch_user(self, endpoint: str, token: str) -> dict[str, Any]:
        """Return the claims about the user of a token that the upstream has just issued to us. Raises IssuerAway."""
        got = await self._request_userinfo(endpoint, token)
        if got.status != 200 or not isinstance(got.json, dict):
            raise IssuerAway(f"The upstream's user endpoint answers with status {got.status}", 5)
        return got.json

    async def _request_userinfo(self, endpoint: str, token: str) -> Fetched:
        headers = {"authorization": f"Bearer {token}", "accept": "application/json"}
        return as_fetched(await self._http().get(endpoint, by="operator", origin=self.upstream.issuer, headers=headers))


def upstream_of(issuer: object) -> Upstream:
    """Return the upstream for the issuer of a `Bearer`, a URL or a preset. Raises LocalError for several of them."""
    name = issuer if isinstance(issuer, str) else getattr(issuer, "issuer", None)
    if not isinstance(name, str):
        raise LocalError(
            "Proxy stands before one issuer: Bearer(issuer, proxy=...) takes its URL, or Proxy(upstream=...)"
        )
    if name in ("https://github.com", GITHUB.issuer):
        return GITHUB
    return GOOGLE if name == GOOGLE.issuer else Upstream(issuer=name)
