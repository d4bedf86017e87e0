"""How clients describe themselves: in the document at a client's URL (CIMD), or in a registration (RFC 7591). Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from ..errors import OAuthError
from ..grant_types import AUTHORIZATION_CODE, DEVICE_CODE
from ..urls import REDIRECT_LOOPBACK, split
from .messages import oauth_error
from .model import METHODS, REGISTRABLE, Client
from .redirects import fault

DOCUMENT = 16 * 1024
"""Bytes of a client's document. The draft recommends 5 KB; documents in use are longer."""
URIS = 20
"""Redirect URIs of one client."""
NAME = 100
"""Characters of a client's name that are shown."""


def is_url(client_id: str) -> bool:
    """Return whether a client's id looks like the URL of its document."""
    return client_id.startswith(("https://", "http://"))


def url_fault(client_id: str, *, loopback: bool) -> str:
    """Return what is wrong with the URL of a document; "" if nothing is. `loopback`: http on loopback is allowed.

    draft-ietf-oauth-client-id-metadata-document, 3: "Client identifier URLs MUST have an "https" scheme, MUST contain a
    path component, MUST NOT contain single-dot or double-dot path segments, MUST NOT contain a fragment component and
    MUST NOT contain a username or password."
    """
    parts = split(client_id)
    if parts is None:
        return "is not a URL"
    if not re.fullmatch(r"[\x21-\x7e]+", client_id) or "\\" in client_id or len(client_id) > 2_000:
        return "is not a URL of printable ASCII"
    if parts.scheme != "https" and not (loopback and parts.scheme == "http" and parts.hostname in REDIRECT_LOOPBACK):
        return "is not https"
    if not parts.hostname or parts.path in ("", "/"):
        return "has no path"
    if "#" in client_id or "@" in parts.netloc:
        return "has a fragment or user information"
    dots = {".", "..", "%2e", "%2e%2e", ".%2e", "%2e."}
    return "has dot segments" if dots.intersection(parts.path.lower().split("/")) else ""


def of_document(url: str, body: bytes) -> Client:
    """Return the client that its document describes. Raises OAuthError (`invalid_client`)."""
    try:
        found = msgspec.json.decode(body, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise _document("is not a JSON object") from None
    # "The client_id property in the document MUST match the document URL using simple string comparison."
    if found.get("client_id") != url:
        raise _document("names another client_id")
    # "MUST NOT include ... client_secret_post, client_secret_basic, client_secret_jwt, or any other method based around
    # a shared symmetric secret"
    if "client_secret" in found or "client_secret_expires_at" in found:
        raise _document("has a client_secret, which a public document cannot keep")
    if found.get("token_endpoint_auth_method", "none") not in ("none", "private_key_jwt"):
        raise _document("asks for another token_endpoint_auth_method than none and private_key_jwt")
    if not isinstance(found.get("client_name"), str) or not found["client_name"].strip():
        raise _document("has no client_name")
    try:
        return _client(url, found, default="none", document=True)
    except OAuthError as error:
        raise _document(f"cannot be used: {error.description}") from None


def of_registration(id: str, body: bytes) -> Client:
    """Return the client that asks to be registered (RFC 7591, 2). Raises OAuthError."""
    try:
        found = msgspec.json.decode(body, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise oauth_error("invalid_client_metadata", "The body is not a JSON object") from None
    # RFC 7591, 2: 'If unspecified or omitted, the default is "client_secret_basic"'
    return _client(id, found, default="client_secret_basic", document=False)


def _document(what: str) -> OAuthError:
    return oauth_error("invalid_client", f"The client's metadata document {what}")


def _metadata(what: str) -> OAuthError:
    return oauth_error("invalid_client_metadata", what)


def _client(id: str, found: Mapping[str, Any], *, default: str, document: bool) -> Client:
    method = found.get("token_endpoint_auth_method", default)
    if method not in METHODS:
        raise _metadata(f"token_endpoint_auth_method is one of {', '.join(METHODS)}")
    grants = _texts(found, "grant_types") or (AUTHORIZATION_CODE,)
    # a client that registers itself may not give itself grants in which no user decides; RFC 7591, 2 lets us leave
    # out what is not supported
    grants = tuple(grant for grant in grants if grant in REGISTRABLE)
    if not grants:
        raise _metadata(f"grant_types has none of {', '.join(REGISTRABLE)}")
    if any(kind != "code" for kind in _texts(found, "response_types")):
        raise _metadata("response_types is code")
    uris = _texts(found, "redirect_uris")
    if not uris and (AUTHORIZATION_CODE in grants or DEVICE_CODE not in grants):
        raise oauth_error("invalid_redirect_uri", "redirect_uris is missing")
    if len(uris) > URIS:
        raise oauth_error("invalid_redirect_uri", f"redirect_uris has more than {URIS}")
    for uri in uris:
        if wrong := fault(uri):
            raise oauth_error("invalid_redirect_uri", f"A redirect URI {wrong}")
    keys, keys_url = found.get("jwks"), found.get("jwks_uri", "")
    if method == "private_key_jwt" and (isinstance(keys, dict) == bool(keys_url)):
        raise _metadata("private_key_jwt needs jwks or jwks_uri, and not both")  # RFC 7591, 2
    if not isinstance(keys_url, str) or (keys_url and not keys_url.startswith("https://")):
        raise _metadata("jwks_uri is an https URL")
    scope = found.get("scope", "")
    if not isinstance(scope, str):
        raise _metadata("scope is a text")
    name = found.get("client_name", "")
    return Client(
        id=id,
        name=displayable(name) if isinstance(name, str) else "",
        redirect_uris=uris,
        method=method,
        keys=keys if isinstance(keys, dict) else None,
        keys_url=keys_url,
        grants=grants,
        # `scope` in a registration is ignored: it is the client's own default, not a limit that an operator set
        dpop=found.get("dpop_bound_access_tokens") is True,
        document=document,
    )


def displayable(name: str) -> str:
    """Return a name as a page may show it, without control and formatting characters, which could reorder the text."""
    return "".join(each for each in name if each.isprintable()).strip()[:NAME]


def _texts(found: Mapping[str, Any], name: str) -> tuple[str, ...]:
    value = found.get(name, ())
    if not isinstance(value, list | tuple) or not all(isinstance(each, str) for each in value):
        raise _metadata(f"{name} is a list of texts")
    return tuple(dict.fromkeys(value))
