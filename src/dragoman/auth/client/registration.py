"""How a client gets its id at an authorization server: given by the user, by a document, or by dynamic registration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct

from ..errors import OAuthError
from ..fetch import By
from ..grant_types import AUTHORIZATION_CODE, REFRESH_TOKEN
from ..metadata import ServerMetadata
from .errors import AuthorizationFailed, LoginNeeded
from .requests import answer_of
from .tokens import Registration
from .world import World

FAR = 1e12
"""The latest expiry of a secret, Unix time: a server may write a number that is too large for a clock."""


class ClientOptions(Struct, frozen=True, kw_only=True):
    """The user's options for this client."""

    client_id: str | None = None
    client_secret: str | None = None
    metadata_url: str | None = None
    """The URL of a client id metadata document that the user hosts."""
    name: str = "dragoman"
    grants: tuple[str, ...] = (AUTHORIZATION_CODE, REFRESH_TOKEN)

    def __repr__(self) -> str:
        return f"ClientOptions({self.client_id!r}, {self.metadata_url!r})"

    @property
    def hint(self) -> str:
        """The part of a store's key that separates entries of differently configured clients."""
        return self.client_id or self.metadata_url or ""


def find_known(client: ClientOptions, server: ServerMetadata) -> Registration | None:
    """Return the client's id at this server, where no registration is needed: "pre-registered ... if available", then
    "Client ID Metadata Documents if the authorization server indicates" them."""
    if client.client_id is not None:
        return Registration(client_id=client.client_id, client_secret=client.client_secret)
    if client.metadata_url is not None and server.client_id_metadata_document_supported:
        return Registration(client_id=client.metadata_url, how="document")
    return None


async def register(
    world: World, client: ClientOptions, server: ServerMetadata, redirect_uri: str, by: By
) -> Registration:
    """Register dynamically (RFC 7591). Raises LoginNeeded where the server has no registration, AuthorizationFailed
    with the server's reason where it refuses."""
    if server.registration_endpoint is None:
        raise LoginNeeded(
            f"{server.issuer} registers no clients by itself: register this one there by hand (redirect URI "
            f"{redirect_uri}) and give its id, client_id=; or host a client metadata document, client_metadata_url="
        )
    redirects = [redirect_uri]
    if urlsplit(redirect_uri).hostname == "127.0.0.1":
        # some servers know loopback only by its name
        redirects.append(redirect_uri.replace("://127.0.0.1", "://localhost", 1))
    for index, redirect in enumerate(redirects):
        got = await world.post_json(server.registration_endpoint, _metadata(client, server, redirect), by=by)
        try:
            return _registration_of(answer_of(got, "the registration endpoint"), redirect)
        except OAuthError as error:
            last = index == len(redirects) - 1
            if last or error.error not in ("invalid_redirect_uri", "invalid_client_metadata"):
                raise AuthorizationFailed(f"{server.issuer} does not register this client: {error}") from error
            world.say(f"{server.issuer} refuses the redirect URI {redirect}: {redirects[index + 1]} is tried")
    raise AssertionError("unreachable")


def _metadata(client: ClientOptions, server: ServerMetadata, redirect_uri: str) -> Mapping[str, Any]:
    methods = server.token_endpoint_auth_methods_supported
    # a program on somebody's machine keeps no secret from them: "none" unless the server will not have it
    wanted = ("none", "client_secret_basic", "client_secret_post")
    method = "none" if methods is None else next((one for one in wanted if one in methods), "none")
    return {
        "client_name": client.name,
        "redirect_uris": [redirect_uri],
        # "MCP clients that desire refresh tokens SHOULD include refresh_token in their grant_types"
        "grant_types": list(client.grants),
        "response_types": ["code"],
        "token_endpoint_auth_method": method,
        # "MCP clients MUST specify an appropriate application_type during Dynamic Client Registration"
        "application_type": "native",
    }


def _registration_of(answer: Mapping[str, Any], redirect_uri: str) -> Registration:
    client_id, secret = answer.get("client_id"), answer.get("client_secret")
    method, expires = answer.get("token_endpoint_auth_method"), answer.get("client_secret_expires_at", 0)
    if not isinstance(client_id, str) or not client_id:
        raise AuthorizationFailed("the registration endpoint answers without a client_id")
    return Registration(
        client_id=client_id,
        client_secret=secret if isinstance(secret, str) and secret else None,
        method=method if isinstance(method, str) else None,
        secret_expires_at=float(min(expires, FAR)) if type(expires) in (int, float) and expires > 0 else 0.0,
        redirect_uri=redirect_uri,
        how="registered",
    )
