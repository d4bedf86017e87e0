"""PyJWT, and FastMCP's verifier of tokens (argument: `pyjwt` or `fastmcp`), with keys that are there already."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from bench.worker import offer, offer_async

ISSUER, RESOURCE = "https://as.example", "https://mcp.example/mcp"
KEYS: dict[str, Any] = {
    "ES256": ec.generate_private_key(ec.SECP256R1()),
    "RS256": rsa.generate_private_key(65537, 2048),
}


def token(name: str) -> str:
    now = int(time.time())
    claims = {"iss": ISSUER, "aud": RESOURCE, "sub": "user-19", "client_id": "app", "scope": "notes:read notes:write"}
    return jwt.encode(claims | {"iat": now, "exp": now + 3600, "jti": "1"}, KEYS[name], name, {"typ": "at+jwt"})


def by_pyjwt(name: str) -> Callable[[], str]:
    text, public = token(name), KEYS[name].public_key()
    return lambda: str(jwt.decode(text, public, [name], audience=RESOURCE, issuer=ISSUER)["sub"])


def by_fastmcp(name: str) -> Callable[[], Any]:
    pem = KEYS[name].public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
    verifier = import_module("fastmcp.server.auth.providers.jwt").JWTVerifier(
        public_key=pem, issuer=ISSUER, audience=RESOURCE, algorithm=name
    )
    text = token(name)

    async def verify() -> str:
        found = await verifier.verify_token(text)
        return str(found.claims["sub"]) if found is not None else "refused"

    return verify


if __name__ == "__main__":
    if sys.argv[1] == "pyjwt":
        offer({name: by_pyjwt(name) for name in KEYS})
    else:
        asyncio.run(offer_async({name: by_fastmcp(name) for name in KEYS}))
