"""The metadata of an authorization server (RFC 8414; OpenID Connect Discovery 1.0). Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import urlsplit

from ..metadata import server_locations
from .model import ALGORITHMS, GRANTS, METHODS, Settings


def metadata_paths(issuer: str) -> tuple[str, ...]:
    """Return the paths at which clients look for the document: that of RFC 8414, 3.1, and those of OpenID Connect."""
    return tuple(urlsplit(location).path for location in server_locations(issuer))


def document(settings: Settings, at: Callable[[str], str], algorithms: Sequence[str]) -> dict[str, Any]:
    """Return the document. `at`: the URL of an endpoint by its path."""
    found: dict[str, Any] = {
        "issuer": settings.issuer,
        "authorization_endpoint": at("/authorize"),
        "token_endpoint": at("/token"),
        "jwks_uri": at("/jwks.json"),
        "revocation_endpoint": at("/revoke"),
        "introspection_endpoint": at("/introspect"),
        "device_authorization_endpoint": at("/device_authorization"),
        "response_types_supported": ["code"],
        "response_modes_supported": ["query"],
        "grant_types_supported": list(GRANTS),
        "token_endpoint_auth_methods_supported": list(METHODS),
        "token_endpoint_auth_signing_alg_values_supported": sorted(ALGORITHMS),
        "introspection_endpoint_auth_methods_supported": [each for each in METHODS if each != "none"],
        "introspection_endpoint_auth_signing_alg_values_supported": sorted(ALGORITHMS),
        # MCP authorization: clients refuse a server whose code_challenge_methods_supported is absent
        "code_challenge_methods_supported": ["S256"],
        "authorization_response_iss_parameter_supported": True,
        "client_id_metadata_document_supported": settings.documents,
        "dpop_signing_alg_values_supported": sorted(ALGORITHMS),
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": list(algorithms),
    }
    if settings.registration:
        found["registration_endpoint"] = at("/register")
    if settings.scopes:
        found["scopes_supported"] = list(settings.scopes)
    if settings.resources:
        found["protected_resources"] = list(settings.resources)  # RFC 9728, 4
    if any(one.kind == "id-jag" for one in settings.trusted):
        found["authorization_grant_profiles_supported"] = ["urn:ietf:params:oauth:grant-profile:id-jag"]
    return found
