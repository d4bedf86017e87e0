"""An authorization server for development and tests, made with `auth.engine`.

from dragoman.auth.server import AuthorizationServer
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...doors import door

if TYPE_CHECKING:
    from .server import AuthorizationServer, Client, Lives, TrustedIssuer, User, check_issuer, secret_hash
else:
    __getattr__, __dir__ = door(
        __name__, {"server": "AuthorizationServer Client Lives TrustedIssuer User check_issuer secret_hash"}
    )
    del TYPE_CHECKING, annotations, door

__all__ = ["AuthorizationServer", "Client", "Lives", "TrustedIssuer", "User", "check_issuer", "secret_hash"]
