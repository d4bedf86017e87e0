"""The two metadata documents of OAuth: that of an authorization server (RFC 8414, OpenID Connect Discovery) and that of
a protected resource (RFC 9728): their URLs, their members, and the checks before either is used. Pure.

URLs are kept as the strings that they were, because issuers and resources are compared byte for byte.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TypeVar
from urllib.parse import SplitResult, urlunsplit

import msgspec
from msgspec import Struct

from .errors import AuthError
from .urls import split, split_issuer

_SERVER = "oauth-authorization-server"
_OPENID = "openid-configuration"
_RESOURCE = "oauth-protected-resource"


class MetadataRefused(AuthError):
    """A metadata document must not be used. The message says which check it failed."""


class ServerMetadata(Struct, frozen=True, kw_only=True):
    """Metadata of an authorization server (RFC 8414 section 2): the members that are used here."""

    issuer: str
    authorization_endpoint: str | None = None
    token_endpoint: str | None = None
    registration_endpoint: str | None = None
    revocation_endpoint: str | None = None
    device_authorization_endpoint: str | None = None
    """RFC 8628 section 4."""
    jwks_uri: str | None = None
    userinfo_endpoint: str | None = None
    scopes_supported: tuple[str, ...] | None = None
    token_endpoint_auth_methods_supported: tuple[str, ...] | None = None
    code_challenge_methods_supported: tuple[str, ...] | None = None
    authorization_response_iss_parameter_supported: bool | None = None
    """RFC 9207 section 3."""
    client_id_metadata_document_supported: bool | None = None


class ProtectedResource(Struct, frozen=True, kw_only=True):
    """Metadata of a protected resource (RFC 9728 section 2): the members that are used here."""

    resource: str
    authorization_servers: tuple[str, ...] | None = None
    jwks_uri: str | None = None
    scopes_supported: tuple[str, ...] | None = None
    dpop_bound_access_tokens_required: bool | None = None


_Document = TypeVar("_Document", ServerMetadata, ProtectedResource)


def decode_document(body: bytes, kind: type[_Document], where: str) -> _Document:
    """Return the document in `body`, which came from the URL `where`. Raises MetadataRefused for other content."""
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MetadataRefused(f"{where} is not the metadata that it should be: {error}") from None


def _parts(url: str) -> SplitResult:
    parts = split(url)
    if parts is None:
        raise MetadataRefused(f"{url[:80]!r} is not a URL")
    return parts


def server_locations(issuer: str) -> list[str]:
    """Return the URLs at which the metadata of this issuer may be, in the order in which to request them. Raises
    MetadataRefused for an issuer that cannot be one."""
    parts = split_issuer(issuer)
    if parts is None:
        raise MetadataRefused("an issuer is an https URL with a host and without query, fragment or user")
    # "any terminating "/" MUST be removed before inserting "/.well-known/"" (RFC 8414 section 3.1)
    path = parts.path.rstrip("/")
    paths = [f"/.well-known/{_SERVER}{path}", f"/.well-known/{_OPENID}{path}"]
    if path:
        paths.append(f"{path}/.well-known/{_OPENID}")
    return [urlunsplit((parts.scheme, parts.netloc, path, "", "")) for path in paths]


def resource_locations(url: str) -> list[str]:
    """Return the URLs at which the metadata of the resource at `url` may be: with its path inserted, then at the root
    (RFC 9728 section 3.1). Raises MetadataRefused for text that is no URL."""
    parts = _parts(url)
    path = parts.path.rstrip("/") if parts.path == "/" else parts.path
    paths = [f"/.well-known/{_RESOURCE}{path}", f"/.well-known/{_RESOURCE}"]
    return [urlunsplit((parts.scheme, parts.netloc, path, "", "")) for path in dict.fromkeys(paths)]


def canonical(url: str) -> str:
    """Return the canonical URI of a resource (RFC 8707 section 2): scheme and host in lower case, without fragment and
    user, and without a path that is only "/". Raises MetadataRefused for text that is no URL."""
    parts = _parts(url)
    netloc = parts.netloc.rpartition("@")[2].lower()
    default = {"https": ":443", "http": ":80"}.get(parts.scheme.lower(), "")
    if default and netloc.endswith(default):
        netloc = netloc.removesuffix(default)
    return urlunsplit((parts.scheme.lower(), netloc, "" if parts.path == "/" else parts.path, parts.query, ""))


def origin_of(url: str) -> str:
    """Return scheme, host and port of a URL. Raises MetadataRefused for text that is no URL."""
    parts = _parts(canonical(url))
    return f"{parts.scheme}://{parts.netloc}"


def check_document_issuer(document: ServerMetadata, issuer: str, aliases: Collection[str] = ()) -> None:
    """Raise MetadataRefused unless a document names this issuer, or one of its `aliases`: "The "issuer" value returned
    MUST be identical to the authorization server's issuer identifier value into which the well-known URI string was
    inserted", and if not "MUST NOT be used" (RFC 8414 section 3.3)."""
    if document.issuer != issuer and document.issuer not in aliases:
        raise MetadataRefused(
            f"the metadata of the issuer {issuer!r} names another issuer, {document.issuer!r}: it is not used. If you "
            f"trust it, pin what it says: issuer={document.issuer!r}"
        )


def check_document_resource(document: ProtectedResource, url: str) -> None:
    """Raise MetadataRefused unless a document is about the resource at `url`: "The "resource" value returned MUST be
    identical to the protected resource's resource identifier value" (RFC 9728 section 3.3). That is the URL that is
    called, or its origin, where one document is for the whole host."""
    named = canonical(document.resource)
    ours = canonical(url)
    if named not in (ours, ours.partition("?")[0], origin_of(url)):
        raise MetadataRefused(
            f"the metadata of the protected resource is for {document.resource!r}, and {url!r} is called: a token for "
            "the one must not be sent to the other. If it is the server that you mean, call it by its own URL; or, if you "
            "trust it, say so with resource= (--resource of dragoman login)"
        )
