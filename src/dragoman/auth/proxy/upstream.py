"""The issuer behind a proxy: where its endpoints are, its logins, and its tokens."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import urlencode, urlsplit, urlunsplit

import msgspec
from msgspec import Struct

from ...jsonrpc.errors import LocalError
from ..authentication import authentication
from ..errors import AuthError, IssuerAway, OAuthError, TokenRefused
from ..id_token import id_token_claims
from ..jose import KeySet, encoded
from ..keys import Fetches, published
from ..pkce import s256
from ..server.redirects import is_loopback
from ..urls import split


class Upstream(Struct, frozen=True, kw_only=True):
    """An issuer at which this server is a client. Endpoints that are empty are found by its metadata."""

    issuer: str
    """Its URL."""
    authorization_endpoint: str = ""
    """Where users log in."""
    token_endpoint: str = ""
    """Where codes and refresh tokens are exchanged."""
    userinfo_endpoint: str = ""
    """Asked for the user where there is no ID token."""
    jwks_uri: str = ""
    """Its JWK Set, for ID tokens."""
    subject: str = "sub"
    """The member that names the user, unique and for ever."""
    scopes: tuple[str, ...] = ("openid",)
    """What our client asks for there."""
    parameters: Mapping[str, str] = {}
    """Further parameters of its authorization request, as Google's access_type=offline."""
    post: bool = False
    """Its token endpoint takes id and secret in the body; else in the header (RFC 6749, 2.3.1)."""
    iss: bool = False
    """Its answers have `iss` (RFC 9207)."""


GITHUB: Final = Upstream(
    issuer="https://github.com/login/oauth",
    authorization_endpoint="https://github.com/login/oauth/authorize",
    token_endpoint="https://github.com/login/oauth/access_token",
    userinfo_endpoint="https://api.github.com/user",
    subject="id",
    post=True,
    scopes=("read:user",),
)
"""GitHub, whose tokens are opaque: the user is whom its API names for a token that was issued to this very client."""


class Tokens(Struct, frozen=True, kw_only=True):
    """What the upstream gave for one grant."""

    access_token: str
    refresh_token: str = ""
    expires_at: float | None = None

    def __repr__(self) -> str:
        return f"Tokens(expires_at={self.expires_at!r})"


class Login(Struct, frozen=True):
    """One login that goes on at the upstream."""

    state: str
    verifier: str
    nonce: str


class UpstreamClient:
    """This server as a client of the upstream. `redirect_uri` is asked at each login."""

    def __init__(
        self,
        upstream: Upstream,
        client_id: str,
        secret: str,
        redirect_uri: Callable[[], str],
        http: Callable[[], Fetches],
        clock: Callable[[], float],
    ) -> None:
        self.upstream = upstream
        self._id, self._secret, self._redirect_uri = client_id, secret, redirect_uri
        self._http, self._clock = http, clock
        self._found: Upstream | None = None

    async def known(self) -> Upstream:
        """The upstream with its endpoints. Raises IssuerAway where its metadata cannot be had."""
        told = self.upstream
        if told.authorization_endpoint and told.token_endpoint:
            return told
        if self._found is None:
            self._found = await self._discovered()
        return self._found

    async def _discovered(self) -> Upstream:
        told = self.upstream
        try:
            document = await published(self._http(), told.issuer)
        except AuthError as error:
            raise IssuerAway(f"The upstream issuer cannot be used: {error}", 10) from error
        names = ("authorization_endpoint", "token_endpoint", "userinfo_endpoint", "jwks_uri")
        found = {name: getattr(told, name) or getattr(document, name) or "" for name in names}
        if not all(_secure(found[name]) for name in names[:2]):
            raise IssuerAway("The upstream issuer cannot be used: its metadata name no https endpoints", 10)
        iss = told.iss or document.authorization_response_iss_parameter_supported is True
        ways = document.token_endpoint_auth_methods_supported or ("client_secret_basic",)
        return msgspec.structs.replace(told, iss=iss, post="client_secret_basic" not in ways, **found)

    async def begin(self) -> tuple[Login, str]:
        """A new login, and the URL to which its user is sent."""
        known = await self.known()
        login = Login(encoded(os.urandom(32)), encoded(os.urandom(32)), encoded(os.urandom(16)))
        asked = {
            **known.parameters,
            "response_type": "code",
            "client_id": self._id,
            "redirect_uri": self._redirect_uri(),
            "scope": " ".join(known.scopes),
            "state": login.state,
            "code_challenge": s256(login.verifier),
            "code_challenge_method": "S256",
        }
        if "openid" in known.scopes:
            asked["nonce"] = login.nonce
        parts = urlsplit(known.authorization_endpoint)
        # RFC 6749, 3.1: the endpoint's own query is kept
        query = "&".join(each for each in (parts.query, urlencode(asked)) if each)
        return login, urlunsplit(parts._replace(query=query))

    async def finish(self, login: Login, code: str) -> tuple[dict[str, Any], Tokens]:
        """What the upstream says of the user, and its tokens. Raises OAuthError, AuthError and OSError."""
        form = {"grant_type": "authorization_code", "code": code, "redirect_uri": self._redirect_uri()}
        given = await self._asked(form | {"code_verifier": login.verifier})
        known = await self.known()
        text = given.get("id_token")
        if isinstance(text, str) and known.jwks_uri:
            user = await self._of_id_token(known, text, login)
        elif known.userinfo_endpoint and "openid" not in known.scopes:
            user = await self._of_userinfo(known, str(given["access_token"]))
        else:
            raise OAuthError("server_error", "The upstream issuer sent no ID token", 502)
        if user.get(known.subject) in (None, "", True, False):
            raise OAuthError("server_error", f"The upstream issuer names no user ({known.subject})", 502)
        return user, self._tokens(given, "")

    async def renewed(self, tokens: Tokens) -> Tokens:
        """New tokens for a refresh token. Raises OAuthError (`invalid_grant`: the user or the upstream ended it)."""
        form = {"grant_type": "refresh_token", "refresh_token": tokens.refresh_token}
        return self._tokens(await self._asked(form), tokens.refresh_token)

    def _tokens(self, given: Mapping[str, Any], before: str) -> Tokens:
        life, refresh = given.get("expires_in"), given.get("refresh_token")
        number = isinstance(life, int | float) and not isinstance(life, bool)
        return Tokens(
            access_token=str(given["access_token"]),
            refresh_token=refresh if isinstance(refresh, str) else before,
            expires_at=self._clock() + float(life) if number and life is not None else None,
        )

    async def _asked(self, form: Mapping[str, str]) -> dict[str, Any]:
        known = await self.known()
        method = "client_secret_post" if known.post else "client_secret_basic"
        more, headers = authentication(method, self._id, self._secret, None, known.issuer, self._clock())
        answer = await self._http().post_form(
            known.token_endpoint,
            {**form, **more},
            by="operator",
            origin=known.issuer,
            headers=headers | {"accept": "application/json"},
        )
        found = _object(answer.body)
        error = found.get("error")
        if isinstance(error, str):  # GitHub has status 200 for it
            raise OAuthError(error, "The upstream issuer refuses", answer.status)
        if answer.status != 200 or not isinstance(found.get("access_token"), str):
            raise IssuerAway(f"The upstream's token endpoint answers with status {answer.status}", 5)
        return found

    async def _of_id_token(self, known: Upstream, text: str, login: Login) -> dict[str, Any]:
        """OpenID Connect Core, 3.1.3.7."""
        keys = await self._http().get(known.jwks_uri, by="operator", origin=known.issuer)
        held, now = KeySet.from_json(keys.body), self._clock()
        try:
            return id_token_claims(text, held, issuer=known.issuer, client=self._id, nonce=login.nonce, now=now)
        except TokenRefused as error:
            raise OAuthError("server_error", f"The upstream's ID token is not taken: {error}", 502) from error

    async def _of_userinfo(self, known: Upstream, token: str) -> dict[str, Any]:
        """The user of a token that the upstream has just issued to us."""
        headers = {"authorization": f"Bearer {token}", "accept": "application/json"}
        answer = await self._http().get(known.userinfo_endpoint, by="operator", origin=known.issuer, headers=headers)
        if answer.status != 200:
            raise IssuerAway(f"The upstream's user endpoint answers with status {answer.status}", 5)
        return _object(answer.body)


def _secure(url: str) -> bool:
    """Whether users and codes may be sent there: https, or http on loopback."""
    parts = split(url)
    return parts is not None and ((parts.scheme == "https" and bool(parts.hostname)) or is_loopback(url))


def _object(body: bytes) -> dict[str, Any]:
    try:
        return msgspec.json.decode(body, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}


def upstream_of(issuer: Any) -> Upstream:
    """An upstream from what `Bearer` takes as issuer: a URL or a preset. Raises LocalError for what is none."""
    name = issuer if isinstance(issuer, str) else getattr(issuer, "issuer", None)
    if not isinstance(name, str):
        raise LocalError(
            "Proxy stands before one issuer: Bearer(issuer, proxy=...) takes its URL, or Proxy(upstream=...)"
        )
    return GITHUB if name in ("https://github.com", GITHUB.issuer) else Upstream(issuer=name)
