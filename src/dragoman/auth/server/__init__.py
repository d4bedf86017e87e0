"""An authorization server: the engine, and the server for development and tests that is made of it.

from dragoman.auth.server import AuthorizationServer
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...doors import door

if TYPE_CHECKING:
    from .clients import secret_hash
    from .engine import check_issuer
    from .model import Client, Lives, TrustedIssuer, User
    from .server import AuthorizationServer
else:
    __getattr__, __dir__ = door(
        __name__,
        {
            "clients": "secret_hash",
            "engine": "check_issuer",
            "model": "Client Lives TrustedIssuer User",
            "server": "AuthorizationServer",
        },
    )
    del TYPE_CHECKING, annotations, door

__all__ = ["AuthorizationServer", "Client", "Lives", "TrustedIssuer", "User", "check_issuer", "secret_hash"]
