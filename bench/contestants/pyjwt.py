"""PyJWT verifying access tokens, with a key that is there already."""

from __future__ import annotations

import time
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from bench.messages import CLAIMS, ISSUER, RESOURCE
from bench.worker import measure


def signed(algorithm: str) -> tuple[str, Any]:
    """A token, and the public key."""
    key: Any = (
        ec.generate_private_key(ec.SECP256R1()) if algorithm == "ES256" else rsa.generate_private_key(65537, 2048)
    )
    now = int(time.time())
    claims = CLAIMS | {"iat": now, "exp": now + 3600, "jti": "1"}
    return jwt.encode(claims, key, algorithm, {"typ": "at+jwt"}), key.public_key()


def new(algorithm: str) -> None:
    text, public = signed(algorithm)
    measure(lambda: str(jwt.decode(text, public, [algorithm], audience=RESOURCE, issuer=ISSUER)["sub"]))
