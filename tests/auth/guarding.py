"""Verifiers and identities for the tests of the guard of tokens."""

from __future__ import annotations

from typing import Final

from dragoman import Identity
from dragoman.auth import IssuerAway, Static, TokenRefused
from dragoman.channel import Handshake

from ..canary import CANARY

ISSUER: Final = "https://as.example"
RESOURCE: Final = "https://mcp.example/mcp"
METADATA: Final = "https://mcp.example/.well-known/oauth-protected-resource/mcp"


def token(name: str) -> str:
    """The token of a caller."""
    return f"{CANARY}-{name}"


def who(name: str, *scopes: str, roles: tuple[str, ...] = (), expires: float | None = None) -> Identity:
    """An identity."""
    return Identity(
        subject=name,
        client_id="client",
        issuer=ISSUER,
        scopes=frozenset(scopes),
        roles=frozenset(roles),
        expires_at=expires,
    )


class Issued(Static):
    """A list of tokens of one issuer, for one resource; some are special."""

    resource: str = RESOURCE
    issuers: tuple[str, ...] = (ISSUER,)
    dpop: str = "off"

    async def verify(self, token: str, handshake: Handshake) -> Identity | None:
        if token.endswith("away"):
            raise IssuerAway("the issuer does not answer", retry_after=7)
        if token.endswith("expired"):
            raise TokenRefused("The token has expired")
        if token.endswith("narrow"):
            raise TokenRefused("It is not for this", error="insufficient_scope")
        if token.endswith("odd"):
            raise TokenRefused("It is twice there", error="invalid_request")
        if token.endswith("nonce"):
            raise TokenRefused("Use it", error="use_dpop_nonce", scheme="DPoP", headers=[("DPoP-Nonce", "n1")])
        if token.endswith("broken"):
            raise RuntimeError("a fault of the verifier's own")
        return await super().verify(token, handshake)


def issued(**more: Identity) -> Issued:
    """A verifier with three callers: ada reads, bob writes too and is an admin, eve may do nothing."""
    known = {
        "ada": who("ada", "notes:read"),
        "bob": who("bob", "notes:read", "notes:write", roles=("admin",)),
        "eve": who("eve"),
    } | more
    return Issued({token(name): identity for name, identity in known.items()})
