"""Issuers of opaque access tokens: GitHub and Google. Each has an endpoint that says to which client a token was
issued."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final

from ...jsonrpc.errors import LocalError
from ..fetching import FetchedAnswer, Fetches
from ..limits import DEFAULTS, AuthLimits
from ..verifiers.opaque import OpaqueTokens, TokenCheck

GITHUB: Final = "https://github.com/login/oauth"
GITHUB_API: Final = "https://api.github.com"
GOOGLE: Final = "https://accounts.google.com"
GOOGLE_CHECK: Final = "https://oauth2.googleapis.com/tokeninfo"


def github(
    client_id: str,
    client_secret: str,
    *,
    resource: str,
    implies: Mapping[str, Iterable[str]] | None = None,
    cache_seconds: float = 300.0,
    api: str = GITHUB_API,
    fetcher: Fetches | None = None,
    limits: AuthLimits = DEFAULTS,
) -> OpaqueTokens:
    """Return a verifier of GitHub's tokens that were issued to our OAuth app or GitHub App (`gho_`, `ghu_`).

    It asks GitHub, with our client's id and secret, whether the token was issued to us; `GET /user`, which answers for
    any token of anybody, is not used. `subject` is the user's number, which stays when the name changes; the name is
    `claims["login"]`. `api`: the URL of an enterprise server's API. Raises LocalError for an empty id or secret."""
    if not client_id or not client_secret:
        raise LocalError("github: the client's id and secret are those of your app, and neither is empty")
    secret = "Basic " + b64encode(f"{client_id}:{client_secret}".encode()).decode()
    url = f"{api.rstrip('/')}/applications/{client_id}/token"
    headers = {"authorization": secret, "accept": "application/vnd.github+json", "x-github-api-version": "2022-11-28"}

    async def ask(fetch: Fetches, token: str) -> FetchedAnswer:
        return await fetch.post_json(url, {"access_token": token}, by="operator", origin=api, headers=headers)

    row = TokenCheck(issuer=GITHUB, clients=frozenset({client_id}), ask=ask, read=_of_github)
    return OpaqueTokens(
        row, resource=resource, implies=implies, cache_seconds=cache_seconds, fetcher=fetcher, limits=limits
    )


def _of_github(answer: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the answer to `POST /applications/{client_id}/token` as claims; it repeats the token, which is left
    out."""
    user, app, expires = answer["user"], answer["app"], answer.get("expires_at")
    if type(user["id"]) is not int:
        raise TypeError("a user's id is a number")
    scopes = answer.get("scopes") or []
    claims = {"sub": str(user["id"]), "client_id": app["client_id"], "scope": scopes, "login": user["login"]}
    if expires is not None:
        claims["exp"] = datetime.fromisoformat(expires).timestamp()
    return claims


def google(
    *client_ids: str,
    resource: str,
    implies: Mapping[str, Iterable[str]] | None = None,
    cache_seconds: float = 300.0,
    fetcher: Fetches | None = None,
    limits: AuthLimits = DEFAULTS,
) -> OpaqueTokens:
    """Return a verifier of Google's access tokens (`ya29.`) that were issued to one of our clients.

    Google's `tokeninfo` says to which client; `userinfo`, which answers for any token of anybody, is not used. Scopes
    are URLs: "openid", "email" and "profile" become `https://www.googleapis.com/auth/userinfo.email` and the like.
    Raises LocalError where no client is named.
    """
    if not client_ids or not all(client_ids):
        raise LocalError("google: name your OAuth clients, such as '1234-abc.apps.googleusercontent.com'")

    async def ask(fetch: Fetches, token: str) -> FetchedAnswer:
        # the token is sent in the header: URLs are written to logs
        return await fetch.post_form(
            GOOGLE_CHECK, {}, by="operator", origin=GOOGLE, headers={"authorization": f"Bearer {token}"}
        )

    row = TokenCheck(issuer=GOOGLE, clients=frozenset(client_ids), ask=ask, read=_of_google)
    return OpaqueTokens(
        row, resource=resource, implies=implies, cache_seconds=cache_seconds, fetcher=fetcher, limits=limits
    )


def _of_google(answer: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the answer of `tokeninfo`, whose values are all texts, as claims. Its `aud` is the client to which the
    token was issued."""
    claims = {name: answer[name] for name in ("email", "email_verified", "hd", "access_type") if name in answer}
    return claims | {
        "sub": answer["sub"],
        "client_id": answer["aud"],
        "scope": answer.get("scope", ""),
        "exp": int(answer["exp"]),
    }
