"""Access tokens with nothing around them: one hash and one lookup, or one signature and one JSON object."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from collections.abc import Callable
from hashlib import sha256

import msgspec
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.hashes import SHA256

from bench.worker import offer

CLAIMS = {"iss": "https://as.example", "aud": "https://mcp.example/mcp", "sub": "user-19", "client_id": "app"}
TEXT = json.dumps(CLAIMS | {"scope": "notes:read notes:write", "iat": 1, "exp": 2, "jti": "1"}).encode()
SIGNED = urlsafe_b64encode(b'{"alg":"ES256","typ":"at+jwt","kid":"ES256"}') + b"." + urlsafe_b64encode(TEXT)
KNOWN = {sha256(SIGNED + b"x" * 87).digest(): "user-19"}


def cached() -> str:
    return KNOWN[sha256(SIGNED + b"x" * 87).digest()]


def es256() -> Callable[[], str]:
    key = ec.generate_private_key(ec.SECP256R1())
    public, signature, algorithm = key.public_key(), key.sign(SIGNED, ec.ECDSA(SHA256())), ec.ECDSA(SHA256())

    def verify() -> str:
        public.verify(signature, SIGNED, algorithm)
        return str(msgspec.json.decode(TEXT)["sub"])

    return verify


def rs256() -> Callable[[], str]:
    key = rsa.generate_private_key(65537, 2048)
    pad, digest = padding.PKCS1v15(), SHA256()
    public, signature = key.public_key(), key.sign(SIGNED, pad, digest)

    def verify() -> str:
        public.verify(signature, SIGNED, pad, digest)
        return str(msgspec.json.decode(TEXT)["sub"])

    return verify


if __name__ == "__main__":
    offer({"cached": cached, "ES256": es256(), "RS256": rs256()})
