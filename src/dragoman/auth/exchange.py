"""Token exchange (RFC 8693): a token for a service further on, on behalf of our caller.

The caller's token is for this server, and is sent only to its own issuer, which issues another one in exchange.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from hashlib import sha256
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

from ..jsonrpc.errors import LocalError
from ..secret import holds_secret
from .authentication import authentication
from .errors import AuthError, IssuerAway, OAuthError
from .fetching import FetchedAnswer, Fetches
from .grant_types import ACCESS_TOKEN_TYPE, JWT_BEARER, TOKEN_EXCHANGE
from .jose import Key
from .keys import IssuerKeys

KEPT: Final = 1_000
"""Exchanged tokens that are cached, until shortly before they expire."""
EARLY: Final = 30.0
"""Seconds before its expiry from which on a token is not used any more: a call with it takes time."""


@holds_secret
class Exchange(Struct, frozen=True, kw_only=True):
    """This server as a client of the issuer, which authenticates with a secret or with a private key."""

    client_id: str
    """Our client's id at the issuer."""
    secret: str | None = None
    """Our client's secret, if it has one."""
    key: Key | None = None
    """For private_key_jwt (RFC 7523 section 2.2)."""
    method: Literal["basic", "post"] = "basic"
    """Where a secret is sent: in the `Authorization` header, or in the form."""

    def __post_init__(self) -> None:
        if (self.secret is None) == (self.key is None):
            raise LocalError("Exchange: a client has secret= or key=, one of them")

    def __repr__(self) -> str:
        return f"Exchange(client_id={self.client_id!r})"


def authenticate(client: Exchange, audience: str, now: float) -> tuple[dict[str, str], dict[str, str]]:
    """Return the form fields and header fields by which this client authenticates at `audience`, the issuer. `now`:
    Unix time."""
    method = "private_key_jwt" if client.key is not None else f"client_secret_{client.method}"
    return authentication(method, client.client_id, client.secret, client.key, audience, now)


def parse_answer(answer: FetchedAnswer, limit: int) -> dict[str, Any]:
    """Return the JSON object of an answer. Raises OAuthError for an error object with status 400, 401 or 403 (RFC 6749
    section 5.2), IssuerAway for any other answer."""
    found: Any = None
    if len(answer.body) <= limit:
        try:
            found = msgspec.json.decode(answer.body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            pass
    if answer.status == 200 and isinstance(found, dict):
        return found
    if answer.status in (400, 401, 403) and isinstance(found, dict) and isinstance(found.get("error"), str):
        raise OAuthError(found["error"], str(found.get("error_description", "")), answer.status)
    raise IssuerAway(f"The issuer answered with status {answer.status}")


class Exchanger:
    """Exchanges the tokens of one issuer."""

    __slots__ = ("_cached", "_client", "_fetcher", "_keys", "_now")

    def __init__(
        self,
        client: Exchange,
        keys: IssuerKeys,
        fetcher: Callable[[], Fetches],
        *,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._client, self._keys, self._fetcher, self._now = client, keys, fetcher, now
        self._cached: dict[tuple[bytes, str, str, str], tuple[float, str]] = {}

    async def exchange(self, token: str, *, audience: str | None, resource: str | None, scopes: Iterable[str]) -> str:
        """Return a token for another service, the same one until shortly before it expires. Raises LocalError for a
        request that cannot be made, OAuthError where the issuer refuses, IssuerAway where it does not answer."""
        if isinstance(scopes, str):
            raise LocalError("Identity.exchange: scopes is a list of texts, not one text")
        scope = " ".join(scopes)
        if not (audience or resource or scope):
            raise LocalError("Identity.exchange: say for whom: audience=, resource= or scopes=")
        key = (sha256(token.encode()).digest(), audience or "", resource or "", scope)
        kept = self._cached.get(key)
        if kept is not None and self._now() < kept[0]:
            return kept[1]
        found = await self._request(self._form(token, audience, resource, scope))
        access, kind, lasts = found.get("access_token"), found.get("token_type"), found.get("expires_in")
        if not isinstance(access, str) or not access or not isinstance(kind, str):
            raise OAuthError("invalid_response", "The issuer's answer has no access_token and token_type", 200)
        if kind.lower() != "bearer":
            raise OAuthError("invalid_response", "The issuer gave a token that is not a bearer token", 200)
        if isinstance(lasts, int | float) and lasts > EARLY:
            while len(self._cached) >= KEPT:
                del self._cached[next(iter(self._cached))]
            self._cached[key] = (self._now() + min(float(lasts), 3600.0) - EARLY, access)
        return access

    def _form(self, token: str, audience: str | None, resource: str | None, scope: str) -> dict[str, str]:
        if self._keys.issuer.exchange == "on_behalf_of":
            form = {"grant_type": JWT_BEARER, "assertion": token, "requested_token_use": "on_behalf_of", "scope": scope}
            if not scope:
                raise LocalError("Identity.exchange: Entra wants scopes=, such as ['api://.../.default']")
            return form
        # RFC 8693 section 2.1
        form = {
            "grant_type": TOKEN_EXCHANGE,
            "subject_token": token,
            "subject_token_type": ACCESS_TOKEN_TYPE,
            "requested_token_type": ACCESS_TOKEN_TYPE,
        }
        wanted = {"audience": audience, "resource": resource, "scope": scope}
        return form | {name: value for name, value in wanted.items() if value}

    async def _request(self, form: Mapping[str, str]) -> dict[str, Any]:
        issuer = self._keys.issuer
        url, by = issuer.token_endpoint, "operator"
        if url is None:
            url, by = (await self._keys.metadata()).token_endpoint, "document"
        if url is None:
            raise LocalError(f"Identity.exchange: the metadata of {issuer.issuer} name no token_endpoint")
        more, headers = authenticate(self._client, issuer.issuer, self._now())
        try:
            answer = await self._fetcher().post_form(
                url, {**form, **more}, by=by, origin=issuer.issuer, headers=headers
            )
        except (AuthError, OSError) as error:
            raise IssuerAway("The issuer does not answer") from error
        return parse_answer(answer, self._keys.limits.answer)
