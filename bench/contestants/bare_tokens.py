"""Access tokens with nothing around them: one hash and one lookup, or one signature and one JSON object."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from collections.abc import Callable
from hashlib import sha256

import msgspec
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.hashes import SHA256

from bench.messages import CLAIMS
from bench.worker import measure

TEXT = json.dumps(CLAIMS | {"iat": 1, "exp": 2, "jti": "1"}).encode()
SIGNED = urlsafe_b64encode(b'{"alg":"ES256","typ":"at+jwt","kid":"ES256"}') + b"." + urlsafe_b64encode(TEXT)


def known() -> None:
    subjects = {sha256(SIGNED + b"x" * 87).digest(): "user-19"}
    measure(lambda: subjects[sha256(SIGNED + b"x" * 87).digest()])


def new(algorithm: str) -> None:
    check = _es256() if algorithm == "ES256" else _rs256()

    def verify() -> str:
        check()
        return str(msgspec.json.decode(TEXT)["sub"])

    measure(verify)


def _es256() -> Callable[[], None]:
    key, algorithm = ec.generate_private_key(ec.SECP256R1()), ec.ECDSA(SHA256())
    public, signature = key.public_key(), key.sign(SIGNED, algorithm)
    return lambda: public.verify(signature, SIGNED, algorithm)


def _rs256() -> Callable[[], None]:
    key, pad, digest = rsa.generate_private_key(65537, 2048), padding.PKCS1v15(), SHA256()
    public, signature = key.public_key(), key.sign(SIGNED, pad, digest)
    return lambda: public.verify(signature, SIGNED, pad, digest)
