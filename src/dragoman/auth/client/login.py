"""A person logs in: in a browser with a listener on loopback, or on another device with a code."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from msgspec import Struct

from ..challenge import Challenge
from ..errors import OAuthError
from ..fetch import By
from ..grant_types import DEVICE_CODE, REFRESH_TOKEN
from ..metadata import ServerMetadata
from ..urls import host_of
from .code import check_pkce, code_of, new_request
from .discovery import Discovery, DiscoveryOptions, discover
from .endpoints import need_endpoint
from .errors import AuthorizationFailed, LoginFailed
from .grants import Clock, log_in_by_device, redeem
from .registration import ClientOptions, find_known, register
from .requests import Sender
from .tokens import Grant, Registration, Tokens, union
from .world import World

if TYPE_CHECKING:
    from ..jose import Key

_FORGOTTEN = frozenset(("invalid_client", "unauthorized_client"))


class Terms(Struct, frozen=True, kw_only=True):
    """The user's options for getting a token, common to all kinds of login."""

    wanted: DiscoveryOptions
    client: ClientOptions
    scopes: tuple[str, ...] | None = None
    account: str = "default"
    private: tuple[str, ...] = ()
    """Hosts that may be in a private network though documents name them, in lower case."""
    dpop: bool = False
    redirect_port: int = 0
    redirect_host: str = "127.0.0.1"
    assume_pkce: bool = False
    device: bool = False


class TokenRequest(Struct, frozen=True, kw_only=True):
    """Why a token is requested: for which URL, after which challenge, in place of which grant."""

    url: str
    challenge: Challenge | None = None
    before: Grant | None = None
    """The earlier grant, if there was one: its scopes are requested again, and its issuer is compared."""
    clock: Clock
    text: str = ""
    """The assertion to exchange."""

    def __repr__(self) -> str:
        return f"TokenRequest({self.url!r})"


def scopes_for(request: TokenRequest, found: Discovery, terms: Terms, *, person: bool) -> tuple[str, ...]:
    """Return the scopes to request: those of the challenge, else all that the resource lists, else none; with those
    that were requested before at this issuer (the union of the step-up), and `offline_access` where the server offers
    it."""
    challenged = request.challenge.scopes if request.challenge is not None else ()
    before = request.before
    same = before is not None and before.server.issuer == found.server.issuer
    earlier = before.requested if before is not None and same else ()
    base = challenged or (() if earlier else found.scopes or ())
    if terms.scopes is not None:
        base = union(terms.scopes, challenged if earlier else ())
    scopes = union(earlier, base)
    # "MAY add `offline_access` to the `scope` parameter ... when the Authorization Server metadata contains it in
    # `scopes_supported`"; alone it would narrow what the server grants by default
    if person and terms.scopes is None and "offline_access" in (found.server.scopes_supported or ()) and scopes:
        scopes = union(scopes, ("offline_access",))
    return scopes


def check_migrated(request: TokenRequest, found: Discovery, terms: Terms) -> None:
    """Raise AuthorizationFailed if the resource has moved to another issuer than the one where the user's client id is
    registered: "If the authorization server indicated by protected resource metadata no longer matches the one the
    credentials were registered with, clients SHOULD surface an error"."""
    before, server = request.before, found.server
    if terms.client.client_id is None or terms.wanted.issuer is not None or before is None:
        return
    if before.client.how == "given" and before.server.issuer != server.issuer:
        raise AuthorizationFailed(
            f"{request.url} now names the authorization server {server.issuer}; the client id given was used at "
            f"{before.server.issuer}. If it is registered there too, pin it: issuer={server.issuer!r}"
        )


def bound_key(found: Discovery, terms: Terms, before: Grant | None) -> Key | None:
    """Return the key to which tokens are to be bound (DPoP): that of the earlier grant, or a new one. None: they are
    not to be bound."""
    if not terms.dpop and not found.bound:
        return None
    from ..jose import Key, new_key  # noqa: PLC0415  (joserfc, for those who bind their tokens)

    if before is not None and before.dpop_key is not None:
        return Key.from_jwk(before.dpop_key)
    return new_key("ES256")


def _private_hosts(server: ServerMetadata, terms: Terms) -> tuple[str, ...]:
    """Return the hosts of the issuer that the user allows to be in a private network."""
    hosts = {host_of(url) for url in (server.issuer, server.token_endpoint, server.revocation_endpoint)}
    return tuple(sorted(hosts.intersection(terms.private)))


def make_grant(
    request: TokenRequest, found: Discovery, terms: Terms, sender: Sender, scopes: tuple[str, ...], tokens: Tokens
) -> Grant:
    """Return the grant to store."""
    return Grant(
        url=request.url,
        server=found.server,
        resource=found.resource,
        client=sender.client,
        by=found.by,
        private=_private_hosts(found.server, terms),
        account=terms.account,
        requested=scopes,
        tokens=tokens,
        dpop_key=None if sender.dpop is None else sender.dpop.private_jwk(),
    )


async def login(world: World, request: TokenRequest, terms: Terms) -> Grant:
    """Log a person in. Raises LoginNeeded, LoginFailed and other AuthErrors."""
    found = await discover(world, request.url, request.challenge, terms.wanted)
    check_migrated(request, found, terms)
    server = found.server
    need_endpoint(
        server.token_endpoint, "token_endpoint", server
    )  # before a client is registered and a person sent to log in
    scopes = scopes_for(request, found, terms, person=True)
    key = bound_key(found, terms, request.before)
    if terms.device:
        return await _by_device(world, request, found, terms, scopes, key)
    check_pkce(server, terms.assume_pkce)
    for again in (True, False):
        client, redirect, fresh = await _client(world, request, found.by, terms, server)
        sender = Sender(client, server, by=found.by, dpop=key)
        ours = new_request(
            server, client, redirect, resource=found.resource, scopes=scopes, assume_pkce=terms.assume_pkce
        )
        query = await world.browse(ours.url, ours.state)
        try:
            code = code_of(ours, query)
            tokens = await redeem(world, sender, ours, code, found.resource, scopes, request.clock)
            return make_grant(request, found, terms, sender, scopes, tokens)
        except (OAuthError, LoginFailed) as error:
            forgotten = error.error in _FORGOTTEN and client.how == "registered" and not fresh
            if not (again and forgotten):
                raise error if isinstance(error, LoginFailed) else LoginFailed(f"{server.issuer}: {error}") from error
            await world.remember(server.issuer, None)
            world.say(f"{server.issuer} no longer knows this client ({error.error}): it is registered anew, once")
    raise AssertionError("unreachable")


async def _client(
    world: World, request: TokenRequest, by: By, terms: Terms, server: ServerMetadata
) -> tuple[Registration, str, bool]:
    """Return the client's registration, the redirect URI, and whether it was registered just now. The listener is bound
    first: its port is part of the registration, and the browser must find it."""
    given = find_known(terms.client, server)
    if given is not None:
        uri = await world.listen(terms.redirect_port, exact=bool(terms.redirect_port))
        return given, redirect_at(uri, terms.redirect_host), False
    stored = await world.recall(server.issuer)
    if stored is not None and stored.expired(request.clock()):
        world.say(f"the secret of this client at {server.issuer} has expired: it is registered anew")
        stored = None
    port = 0 if stored is None or stored.redirect_uri is None else urlsplit(stored.redirect_uri).port or 0
    uri = await world.listen(terms.redirect_port or port, exact=bool(terms.redirect_port))
    # servers differ in whether any port of loopback will do (RFC 8252 section 7.3): the one that was registered does
    if stored is not None and stored.redirect_uri is not None and urlsplit(uri).port == port:
        return stored, stored.redirect_uri, False
    client = await register(world, terms.client, server, redirect_at(uri, terms.redirect_host), by)
    await world.remember(server.issuer, client)
    return client, client.redirect_uri or uri, True


def redirect_at(uri: str, host: str) -> str:
    """Return the redirect URI with the name for loopback that the server expects."""
    return uri.replace("://127.0.0.1", f"://{host}", 1)


async def _by_device(
    world: World, request: TokenRequest, found: Discovery, terms: Terms, scopes: tuple[str, ...], key: Key | None
) -> Grant:
    """Log a person in on another device (RFC 8628), for machines without a browser. Raises AuthError."""
    server = found.server
    client = find_known(terms.client, server)
    if client is None:
        client = await world.recall(server.issuer)
    if client is None:
        wanted = ClientOptions(name=terms.client.name, grants=(DEVICE_CODE, REFRESH_TOKEN))
        client = await register(world, wanted, server, "http://127.0.0.1/callback", found.by)
        await world.remember(server.issuer, client)
    sender = Sender(client, server, by=found.by, dpop=key)
    tokens = await log_in_by_device(world, sender, found.resource, scopes, request.clock)
    return make_grant(request, found, terms, sender, scopes, tokens)
