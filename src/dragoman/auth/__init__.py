"""OAuth 2.1 and signed tokens: who may call a server, and how a client becomes somebody who may. It knows no MCP.

from dragoman.auth import Bearer
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..doors import door

if TYPE_CHECKING:
    from .client.errors import AuthorizationFailed, LoginFailed, LoginNeeded
    from .client.given import Token
    from .client.sources import ClientCredentials, Enterprise, Login, Workload
    from .client.store import FileStore, MemoryStore
    from .errors import AuthError, IssuerAway, OAuthError, TokenRefused
    from .exchange import Exchange
    from .fetch import Fetcher
    from .jose import Key, KeySet
    from .limits import AuthLimits
    from .proxy import Proxy
    from .tokens import Issuer
    from .verifiers import Bearer, Introspection, MutualTls, OpaqueTokens, Static, Verifier
else:
    __getattr__, __dir__ = door(
        __name__,
        {
            "client.errors": "AuthorizationFailed LoginFailed LoginNeeded",
            "client.given": "Token",
            "client.sources": "ClientCredentials Enterprise Login Workload",
            "client.store": "FileStore MemoryStore",
            "errors": "AuthError IssuerAway OAuthError TokenRefused",
            "exchange": "Exchange",
            "fetch": "Fetcher",
            "jose": "Key KeySet",
            "limits": "AuthLimits",
            "proxy": "Proxy",
            "tokens": "Issuer",
            "verifiers": "Bearer Introspection MutualTls OpaqueTokens Static Verifier",
        },
    )
    del TYPE_CHECKING, annotations, door

__all__ = [
    "AuthError",
    "AuthLimits",
    "AuthorizationFailed",
    "Bearer",
    "ClientCredentials",
    "Enterprise",
    "Exchange",
    "Fetcher",
    "FileStore",
    "Introspection",
    "Issuer",
    "IssuerAway",
    "Key",
    "KeySet",
    "Login",
    "LoginFailed",
    "LoginNeeded",
    "MemoryStore",
    "MutualTls",
    "OAuthError",
    "OpaqueTokens",
    "Proxy",
    "Static",
    "Token",
    "TokenRefused",
    "Verifier",
    "Workload",
]
