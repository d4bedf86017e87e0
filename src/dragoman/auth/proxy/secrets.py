"""The keys of a proxy, all derived from the one configured secret: to sign values, to sign tokens, to seal records."""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Sequence

from ...jsonrpc.errors import LocalError, needs
from ..jose import Key

try:
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
except ImportError:
    raise needs("An OAuth proxy", "cryptography", "auth") from None

LEAST = 32
"""Bytes of a secret, at least."""
_NONCE = 12
_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
"""The order of P-256 (SEC 2, 2.4.2)."""


def check_secrets(key: bytes | Sequence[bytes]) -> tuple[bytes, ...]:
    """Return the secrets, the present one first. Raises LocalError for one that is too short."""
    given = (key,) if isinstance(key, bytes) else tuple(key)
    if not given or not all(isinstance(one, bytes) and len(one) >= LEAST for one in given):
        raise LocalError(
            f"Proxy: key is {LEAST} secret bytes or more, or a list of such, the present one first; "
            "make one by: python -c 'import secrets; print(secrets.token_hex(32))'"
        )
    return given


def derive(secret: bytes, use: str, size: int = 32) -> bytes:
    """Return `size` bytes for one use, from which neither the secret nor the bytes of another use can be computed
    (HKDF-Expand, RFC 5869)."""
    found, block = b"", b""
    for each in range(1, -(-size // 32) + 1):
        block = hmac.digest(secret, block + f"dragoman proxy {use}".encode() + bytes([each]), hashlib.sha256)
        found += block
    return found[:size]


def signing_key(secret: bytes) -> Key:
    """Return the ES256 key that is derived from this secret, the same on each replica."""
    # FIPS 186-5, A.2.1: 64 bits more than the order has, so that no number is likelier than another
    number = int.from_bytes(derive(secret, "sign", 40), "big") % (_ORDER - 1) + 1
    pem = ec.derive_private_key(number, ec.SECP256R1()).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return Key.from_pem(pem)


class AesSealer:
    """Seals by AES-256-GCM with the first secret, and opens what any of them sealed."""

    def __init__(self, secrets: Sequence[bytes]) -> None:
        self._keys = [AESGCM(derive(one, "seal")) for one in secrets]

    def seal(self, document: bytes, context: bytes) -> bytes:
        """Return the sealed document; `context` is its associated data."""
        nonce = os.urandom(_NONCE)
        return nonce + self._keys[0].encrypt(nonce, document, context)

    def open(self, sealed: bytes, context: bytes) -> bytes | None:
        """Return the document; None if none of the secrets sealed it for this context."""
        for key in self._keys:
            try:
                return key.decrypt(sealed[:_NONCE], sealed[_NONCE:], context)
            except (InvalidTag, ValueError):
                continue
        return None
