# mypy: ignore-errors
"""FastMCP's verifier of access tokens, with a key that is there already."""

from __future__ import annotations

from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from fastmcp.server.auth.providers.jwt import JWTVerifier

from bench.contestants.pyjwt import signed
from bench.messages import ISSUER, RESOURCE
from bench.worker import measure_async


async def new(algorithm: str) -> None:
    text, public = signed(algorithm)
    pem = public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
    verifier = JWTVerifier(public_key=pem, issuer=ISSUER, audience=RESOURCE, algorithm=algorithm)

    async def verify() -> str:
        found = await verifier.verify_token(text)
        return str(found.claims["sub"]) if found is not None else "refused"

    await measure_async(verify)
