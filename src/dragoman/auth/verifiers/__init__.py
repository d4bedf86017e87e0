"""Verifiers: they find out whose a token is, by its signature, its issuer or a list, or who calls, by a TLS
certificate."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...doors import door

if TYPE_CHECKING:
    from .base import Verifier
    from .bearer import Bearer
    from .introspection import Introspection
    from .mutual_tls import MutualTls
    from .opaque import OpaqueTokens
    from .static import Static
else:
    __getattr__, __dir__ = door(
        __name__,
        {
            "base": "Verifier",
            "bearer": "Bearer",
            "introspection": "Introspection",
            "mutual_tls": "MutualTls",
            "opaque": "OpaqueTokens",
            "static": "Static",
        },
    )
    del TYPE_CHECKING, annotations, door

__all__ = ["Bearer", "Introspection", "MutualTls", "OpaqueTokens", "Static", "Verifier"]
