"""Encrypts what is kept: one who reads the file or the engine that keeps them learns nothing of their content.

Rules:

- A record is encrypted whole with AES-256-GCM. Its id stays readable, and so does what is searched for: of a task its
  server and runner, its owner (a digest), whether it has ended, when it may be deleted, and how large it is.
- Each record has a key of its own, made from the secret, what it is for, and its id: it opens under that id alone, and
  no key encrypts so many records that two random nonces could be equal (NIST SP 800-38D section 8.3 allows 2**32).
- The first secret seals, every one opens.
- Who can write there can delete a record, and can put back an earlier one.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from ..jsonrpc.errors import needs
from ..secret import holds_secret

try:
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM
except ImportError:
    raise needs("What is kept encrypted, with keys,", "cryptography", "auth") from None

_FORM: Final = b"\x01"
"""How a sealed record begins; one that is not sealed and one of a later form begin otherwise."""
_NONCE: Final = 12
_HEAD: Final = len(_FORM) + _NONCE
_CIPHERS: Final = 1_000
"""Ciphers that are kept, of records that were used last: to make one takes as long as to encrypt a short record."""


@holds_secret
class RecordSeal:
    """Encrypts records, and opens them. `secrets`: as `dragoman.secret.read_secrets` returns them; `purpose`: what the
    records are, up to 16 bytes: a record of another purpose is not opened."""

    def __init__(self, secrets: Sequence[bytes], purpose: bytes) -> None:
        self._purpose = purpose
        self._masters = [hashlib.sha256(one).digest() for one in secrets]
        self._cipher = lru_cache(_CIPHERS)(self._make_cipher)

    def __repr__(self) -> str:
        return "<RecordSeal>"

    def _make_cipher(self, number: int, id: str) -> AESGCM:
        """Return the cipher of a record for the secret of that number."""
        key = hashlib.blake2b(id.encode(), key=self._masters[number], person=self._purpose, digest_size=32)
        return AESGCM(key.digest())

    def seal(self, id: str, content: bytes) -> bytes:
        """Return the content, encrypted by the first secret for this id."""
        nonce = os.urandom(_NONCE)
        return _FORM + nonce + self._cipher(0, id).encrypt(nonce, content, _FORM)

    def open(self, id: str, sealed: bytes) -> bytes | None:
        """Return what was encrypted for this id; None if none of the secrets opens it."""
        if not sealed.startswith(_FORM):
            return None
        nonce, content = sealed[len(_FORM) : _HEAD], sealed[_HEAD:]
        for number in range(len(self._masters)):
            try:
                return self._cipher(number, id).decrypt(nonce, content, _FORM)
            except (InvalidTag, ValueError):  # sealed with another secret, for another id, or cut off
                continue
        return None
