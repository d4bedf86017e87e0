"""The endpoints that an authorization server's metadata name: whether they exist, and may be used. Pure."""

from __future__ import annotations

from urllib.parse import urlsplit

from ..errors import AuthError
from ..metadata import MetadataRefused, ServerMetadata
from ..urls import is_loopback, split_web
from .errors import LoginFailed


def check_endpoint(url: str | None, name: str) -> None:
    """Raise MetadataRefused for an endpoint that is no web URL, such as `javascript:`. "All authorization server
    endpoints MUST be served over HTTPS": plain http passes here, and is judged where it is fetched."""
    if url is None:
        return
    parts = split_web(url)
    if parts is None or parts.fragment or not url.isprintable():
        raise MetadataRefused(f"the {name} of the metadata is not an https URL")


def check_secure(url: str, name: str, server: ServerMetadata) -> None:
    """Check an endpoint that a person or a code is sent to. Raises MetadataRefused, and LoginFailed for plain http off
    loopback."""
    check_endpoint(url, name)
    parts = urlsplit(url)
    if parts.scheme == "http" and not is_loopback(parts.hostname or ""):
        raise LoginFailed(f"the {name} of {server.issuer} is plain http: no browser and no code is sent there")


def need_endpoint(url: str | None, name: str, server: ServerMetadata) -> str:
    """Return the URL. Raises AuthError where the metadata name none."""
    if url is None:
        raise AuthError(f"the authorization server {server.issuer} has no {name}")
    return url
