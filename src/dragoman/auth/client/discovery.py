"""How a client finds the authorization server of a resource (RFC 9728, RFC 8414, OpenID Connect Discovery)."""

from __future__ import annotations

from urllib.parse import urljoin

from msgspec import UNSET, Struct, UnsetType

from ..challenge import Challenge
from ..fetch import By, FetchFailed
from ..metadata import (
    MetadataRefused,
    ProtectedResource,
    ServerMetadata,
    canonical,
    check_document_issuer,
    check_document_resource,
    decode_document,
    origin_of,
    resource_locations,
    server_locations,
)
from .endpoints import check_endpoint
from .errors import AuthorizationFailed
from .world import World


class DiscoveryOptions(Struct, frozen=True, kw_only=True):
    """What the user fixed in advance, instead of leaving it to discovery."""

    issuer: str | None = None
    """The only authorization server that is used, even if the resource names others."""
    resource: str | UnsetType | None = UNSET
    """The `resource` to ask for; None: none; UNSET: as the resource's metadata says."""


class Discovery(Struct, frozen=True, kw_only=True):
    """The authorization server of a resource, and what the metadata say of the tokens to request."""

    server: ServerMetadata
    resource: str | None
    scopes: tuple[str, ...] | None
    """The `scopes_supported` of the resource."""
    by: By
    """Who named the issuer."""
    bound: bool = False
    """Whether the resource accepts only tokens that are bound to a key (DPoP)."""


async def discover(world: World, url: str, challenge: Challenge | None, wanted: DiscoveryOptions) -> Discovery:
    """Return the authorization server of the resource at `url`, and the `resource` to name. Raises AuthError."""
    document = await _fetch_resource(world, url, challenge, wanted)
    if document is None:
        return await _discover_without_metadata(world, url, wanted)
    listed = document.authorization_servers or ()
    if wanted.issuer is not None:
        issuer, by = wanted.issuer, _operator
        if listed and issuer not in listed:
            world.say(f"the resource names {', '.join(listed)}; {issuer} is used, because issuer= pins it")
    elif listed:
        issuer, by = listed[0], _document
    else:
        raise AuthorizationFailed(f"the metadata of {url} names no authorization server: pin it with issuer=")
    server = await issuer_metadata(world, issuer, by)
    if server is None:
        raise AuthorizationFailed(f"the authorization server {issuer} has no metadata at its well-known URIs")
    resource = document.resource if wanted.resource is UNSET else wanted.resource
    bound = bool(document.dpop_bound_access_tokens_required)
    return Discovery(server=server, resource=resource, scopes=document.scopes_supported, by=by, bound=bound)


_operator: By = "operator"
_document: By = "document"


async def _fetch_resource(
    world: World, url: str, challenge: Challenge | None, wanted: DiscoveryOptions
) -> ProtectedResource | None:
    """Return the metadata of the resource, None if there is none."""
    # "use the resource metadata URL from the parsed WWW-Authenticate headers when present; otherwise, they MUST fall
    # back to constructing and requesting the well-known URIs in the order listed above"
    named = challenge.params.get("resource_metadata") if challenge is not None else None
    away = ""
    for location in [_join(url, named)] if named else resource_locations(url):
        got = await world.get(location, by="document", why="the metadata of the resource")
        if got.status >= 500:
            away = away or f"{location} answers HTTP {got.status}"
        if got.status != 200:
            continue
        document = decode_document(got.body, ProtectedResource, location)
        if wanted.resource is UNSET:
            check_document_resource(document, url)
        return document
    if away:  # it may have metadata: a server must not look older than it is because it fails
        raise FetchFailed(away)
    if named:
        raise AuthorizationFailed(f"the resource's metadata, which its challenge names, is not at {named}")
    return None


def _join(url: str, named: str) -> str:
    try:
        return urljoin(url, named)
    except ValueError:
        raise MetadataRefused("the challenge's resource_metadata is not a URL") from None


async def _discover_without_metadata(world: World, url: str, wanted: DiscoveryOptions) -> Discovery:
    """Return the authorization server of a resource without metadata: the issuer that the user pinned, or else the
    resource's own host, as 2025-03-26 has it. Raises AuthError."""
    resource = canonical(url) if wanted.resource is UNSET else wanted.resource
    if wanted.issuer is not None:
        server = await issuer_metadata(world, wanted.issuer, "operator")
        if server is None:
            raise AuthorizationFailed(f"the issuer {wanted.issuer} has no metadata at its well-known URIs")
        return Discovery(server=server, resource=resource, scopes=None, by="operator")
    origin = origin_of(url)
    server = await issuer_metadata(world, origin, "document")
    if server is None:
        # 2025-03-26: "MCP clients that do not support or cannot discover metadata use default endpoints": only where
        # there is no metadata of a resource, or a server could be made to look older than it is
        world.say(f"{origin} has no metadata at all: the fixed paths of the first revision with logins are tried")
        server = ServerMetadata(
            issuer=origin,
            authorization_endpoint=f"{origin}/authorize",
            token_endpoint=f"{origin}/token",
            registration_endpoint=f"{origin}/register",
            code_challenge_methods_supported=("S256",),
        )
    return Discovery(server=server, resource=resource, scopes=None, by="document")


async def issuer_metadata(world: World, issuer: str, by: By) -> ServerMetadata | None:
    """Return the metadata of an issuer, None if there is none at its well-known URIs. Raises MetadataRefused."""
    for location in server_locations(issuer):
        got = await world.get(location, by=by, why="the metadata of the authorization server")
        if got.status != 200:
            if got.status >= 500:
                raise FetchFailed(f"{location} answers HTTP {got.status}")
            continue
        document = decode_document(got.body, ServerMetadata, location)
        check_document_issuer(document, issuer)
        for name in ("authorization_endpoint", "token_endpoint", "registration_endpoint"):
            check_endpoint(getattr(document, name), name)
        return document
    return None
