"""What is sent to a token endpoint for each grant. Flows over a `World`; each raises AuthError: FetchFailed or
FetchRefused for a request, OAuthError for an answer that refuses, AuthorizationFailed for one that is no answer."""

from __future__ import annotations

import time
from collections.abc import Callable

from ..errors import OAuthError
from ..fetch import Fetched
from ..grant_types import (
    AUTHORIZATION_CODE,
    CLIENT_CREDENTIALS,
    DEVICE_CODE,
    ID_JAG_TYPE,
    ID_TOKEN_TYPE,
    JWT_BEARER,
    REFRESH_TOKEN,
    TOKEN_EXCHANGE,
)
from .code import AuthorizationRequest
from .endpoints import check_endpoint, need_endpoint
from .errors import AuthorizationFailed, LoginFailed
from .person import DeviceCode
from .requests import Sender, answer_of
from .tokens import Tokens, tokens_of
from .world import World

Clock = Callable[[], float]

INTERVAL = 5.0
"""Seconds between two polls of a device, where the server does not say (RFC 8628 section 3.2)."""
LONGEST_DEVICE = 1800.0
"""Seconds for which a device polls at most, even if the server allows more."""
MOST_QUESTIONS = 500
"""Polls of one device: one every 5 s for half an hour, and some more."""


async def redeem(
    world: World,
    sender: Sender,
    request: AuthorizationRequest,
    code: str,
    resource: str | None,
    scopes: tuple[str, ...],
    clock: Clock = time.time,
) -> Tokens:
    """Return the tokens for a code."""
    # "`resource` MUST be included in both authorization requests and token requests"
    form = {
        "grant_type": AUTHORIZATION_CODE,
        "code": code,
        "redirect_uri": request.redirect_uri,
        "code_verifier": request.verifier,
        "resource": resource,
    }
    return await _tokens(world, sender, form, scopes, clock)


async def client_credentials(
    world: World, sender: Sender, resource: str | None, scopes: tuple[str, ...], clock: Clock = time.time
) -> Tokens:
    """Return the tokens of the client itself (RFC 6749 section 4.4)."""
    form = {"grant_type": CLIENT_CREDENTIALS, "resource": resource, "scope": " ".join(scopes) or None}
    return await _tokens(world, sender, form, scopes, clock)


async def jwt_bearer(
    world: World,
    sender: Sender,
    assertion: str,
    resource: str | None,
    scopes: tuple[str, ...],
    clock: Clock = time.time,
) -> Tokens:
    """Return the tokens for an assertion (RFC 7523 section 2.1)."""
    form = {
        "grant_type": JWT_BEARER,
        "assertion": assertion,
        "resource": resource,
        "scope": " ".join(scopes) or None,
    }
    return await _tokens(world, sender, form, scopes, clock)


async def id_jag(
    world: World,
    sender: Sender,
    endpoint: str,
    id_token: str,
    *,
    audience: str,
    resource: str | None,
    scopes: tuple[str, ...],
    clock: Clock = time.time,
) -> str:
    """Return an identity assertion grant for an ID token (RFC 8693): the first leg of enterprise-managed
    authorization."""
    form = {
        "grant_type": TOKEN_EXCHANGE,
        "requested_token_type": ID_JAG_TYPE,
        "audience": audience,
        "resource": resource,
        "scope": " ".join(scopes) or None,
        "subject_token": id_token,
        "subject_token_type": ID_TOKEN_TYPE,
    }
    got = await sender.post(world, endpoint, form, clock())
    answer = answer_of(got, "the identity provider's token endpoint")
    # "`issued_token_type` REQUIRED urn:ietf:params:oauth:token-type:id-jag"
    if answer.get("issued_token_type") != ID_JAG_TYPE or not isinstance(answer.get("access_token"), str):
        raise AuthorizationFailed("the identity provider's answer holds no identity assertion grant (id-jag)")
    return str(answer["access_token"])


async def refresh(
    world: World, sender: Sender, tokens: Tokens, resource: str | None, clock: Clock = time.time
) -> Fetched:
    """Return the raw answer to a refresh, for `outcome_of`. It names no scope, so that the new token has those of the
    grant (RFC 6749 section 6)."""
    endpoint = need_endpoint(sender.server.token_endpoint, "token_endpoint", sender.server)
    form = {"grant_type": REFRESH_TOKEN, "refresh_token": tokens.refresh_token, "resource": resource}
    return await sender.post(world, endpoint, form, clock())


async def log_in_by_device(
    world: World, sender: Sender, resource: str | None, scopes: tuple[str, ...], clock: Clock = time.time
) -> Tokens:
    """Show a code, and query the token endpoint until the user has entered it: the device flow (RFC 8628)."""
    server = sender.server
    endpoint = need_endpoint(server.device_authorization_endpoint, "device_authorization_endpoint", server)
    form = {"scope": " ".join(scopes) or None, "resource": resource, "client_id": sender.client.client_id}
    got = await sender.post(world, endpoint, form, clock())
    answer = answer_of(got, "the device authorization endpoint")
    code, user_code = answer.get("device_code"), answer.get("user_code")
    uri = answer.get("verification_uri", answer.get("verification_url"))
    if not (isinstance(code, str) and isinstance(user_code, str) and isinstance(uri, str)):
        raise LoginFailed("the device authorization endpoint's answer has no code to show")
    complete = answer.get("verification_uri_complete")
    for shown in (uri, complete if isinstance(complete, str) else None):
        check_endpoint(shown, "verification_uri")
    pause, life = _seconds(answer.get("interval"), INTERVAL), _seconds(answer.get("expires_in"), LONGEST_DEVICE)
    until = clock() + min(life, LONGEST_DEVICE)
    shown_code = DeviceCode(
        uri=uri, code=user_code, complete=complete if isinstance(complete, str) else None, expires_in=life
    )
    await world.show_code(shown_code)
    form = {"grant_type": DEVICE_CODE, "device_code": code, "resource": resource}
    for _ in range(MOST_QUESTIONS):
        if clock() + pause > until:
            break
        await world.wait(pause)
        try:
            return await _tokens(world, sender, form, scopes, clock)
        except OAuthError as error:
            # RFC 8628 section 3.5: on slow_down "the interval MUST be increased by 5 seconds for this and all
            # subsequent requests"
            if error.error == "slow_down":
                pause += 5
            elif error.error != "authorization_pending":
                raise LoginFailed(f"{server.issuer} ends the login: {error}") from error
    raise LoginFailed("the code was not entered in time")


async def revoke(world: World, sender: Sender, tokens: Tokens, clock: Clock = time.time) -> bool:
    """Revoke the refresh token, or the access token if there is none (RFC 7009). Return whether the server did it."""
    endpoint = sender.server.revocation_endpoint
    if endpoint is None:
        world.say(f"{sender.server.issuer} revokes no tokens: what it issued stays good until it expires")
        return False
    token, hint = tokens.refresh_token, "refresh_token"
    if token is None:
        token, hint = tokens.access_token, "access_token"
    got = await sender.post(world, endpoint, {"token": token, "token_type_hint": hint}, clock())
    return 200 <= got.status < 300


async def _tokens(
    world: World, sender: Sender, form: dict[str, str | None], scopes: tuple[str, ...], clock: Clock
) -> Tokens:
    endpoint = need_endpoint(sender.server.token_endpoint, "token_endpoint", sender.server)
    got = await sender.post(world, endpoint, form, clock())
    tokens = tokens_of(answer_of(got, "the token endpoint"), clock(), scopes)
    if sender.dpop is not None and tokens.token_type != "DPoP":
        raise AuthorizationFailed(f"{sender.server.issuer} issues a token that is not bound to our key (DPoP)")
    return tokens


def _seconds(value: object, default: float) -> float:
    good = isinstance(value, int | float) and not isinstance(value, bool) and value >= 1
    return float(min(value, LONGEST_DEVICE)) if good and isinstance(value, int | float) else default
