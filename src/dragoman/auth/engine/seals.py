"""Values that a browser or a client holds for the server, signed so that nobody else can make them. Pure."""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Iterator, Sequence
from typing import TypeVar

import msgspec

from ..jose import decode_base64url, encode_base64url

T = TypeVar("T")
SECRET = 32
"""Bytes of a server's secret, at least."""


def digest(text: str) -> str:
    """Return the SHA-256 of a text of 128 random bits or more, which needs no slow hash."""
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


class Signer:
    """Signs with a secret: HMAC-SHA-256 over the value and a name of its use, so that it is not valid for another use.

    `secret`: 32 bytes or more; several: the first one signs, all verify; None: a new one, for this process.
    """

    __slots__ = ("_secrets",)

    def __init__(self, secret: bytes | Sequence[bytes] | None = None) -> None:
        given = (secret,) if isinstance(secret, bytes) else tuple(secret or ())
        self._secrets = given or (os.urandom(SECRET),)

    def mark(self, use: str, text: str) -> str:
        """Return the signature of a text."""
        return _mark(self._secrets[0], use, text)

    def mark_beside(self, use: str, signed: str, of: str) -> str:
        """Return the signature, for `use`, of a text that `sign` made for the use `of`: by the secret that signed it,
        if that is not the present one."""
        value, _, mark = signed.partition(".")
        return _mark(next(self._makers(of, value, mark)), use, signed)

    def is_mark(self, use: str, text: str, mark: str) -> bool:
        """Return whether `mark` is the signature of a text for this use."""
        return next(self._makers(use, text, mark), None) is not None

    def _makers(self, use: str, text: str, mark: str) -> Iterator[bytes]:
        """Return the secrets that make this signature of a text."""
        given = mark.encode("utf-8", "replace")
        return (one for one in self._secrets if hmac.compare_digest(_mark(one, use, text).encode(), given))

    def sign(self, use: str, value: object) -> str:
        """Return a value as signed text."""
        text = encode_base64url(msgspec.json.encode(value))
        return f"{text}.{self.mark(use, text)}"

    def read(self, use: str, text: str, type: type[T]) -> T | None:
        """Return the value in signed text; None for text that was not signed here for this use."""
        value, _, mark = text.partition(".")
        if not text.isascii() or not self.is_mark(use, value, mark):
            return None
        return msgspec.json.decode(decode_base64url(value.encode()), type=type)

    def derive(self, use: str) -> bytes:
        """Return 32 secret bytes for another use, derived from the present secret."""
        return hmac.digest(self._secrets[0], f"derived:{use}".encode(), hashlib.sha256)


def _mark(secret: bytes, use: str, text: str) -> str:
    return encode_base64url(hmac.digest(secret, f"{use}:{text}".encode(), hashlib.sha256))
