"""Standard Webhooks: how a message that is POSTed to a callback is signed, and how its receiver verifies it.

What is signed is `id.timestamp.body`, by HMAC-SHA256 with the bytes of a secret; the message carries the three headers
`webhook-id`, `webhook-timestamp` (seconds since 1970) and `webhook-signature`. While a secret is being replaced, a
message has a signature of each, separated by spaces. Nothing here reads a clock or waits.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import secrets as random_bytes
from collections.abc import Mapping, Sequence
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from ....jsonrpc.errors import LocalError

ID_HEADER: Final = "webhook-id"
TIMESTAMP_HEADER: Final = "webhook-timestamp"
SIGNATURE_HEADER: Final = "webhook-signature"

SECRET_PREFIX: Final = "whsec_"
SHORTEST_SECRET: Final = 24
"""Bytes a secret has at least; the specification's bound."""
LONGEST_SECRET: Final = 64
"""Bytes a secret has at most; the block of SHA-256, beyond which HMAC would only hash it."""
NEW_SECRET: Final = 32
"""Bytes of a secret that is made here; as many as the digest has."""
TOLERANCE: Final = 300
"""Seconds that a timestamp may differ from the receiver's clock; what Standard Webhooks suggests."""
MAX_ID: Final = 256
"""Characters of a `webhook-id`; it is kept for a while, lest its message be handled twice."""
MAX_SIGNATURES: Final = 16
"""Signatures in one header; a message has one for each secret in use, which are two while a secret is replaced."""

Headers: TypeAlias = Mapping[str, str] | Sequence[tuple[str, str]]
"""The headers of a request: by name, or as pairs; the case of names does not matter."""
Reason: TypeAlias = Literal["missing", "repeated", "malformed", "too old", "too new", "wrong"]

_ID = re.compile(r"[!-~]+")
_TIMESTAMP = re.compile(r"0|[1-9][0-9]{0,11}")
_SIGNATURE = re.compile(r"[!-+\--~]+,[!-+\--~]+")


class InvalidSignature(Exception):
    """A message that its sender did not sign as a secret wants it, or not within the tolerance. The text is for the
    receiver's log: a sender is not told more than that its message was refused. `reason`: what is wrong, in a word."""

    def __init__(self, reason: Reason, text: str) -> None:
        super().__init__(text)
        self.reason: Reason = reason


class SignedHeaders(Struct, frozen=True):
    """What the headers of a message say."""

    id: str
    """The `webhook-id`: equal for each attempt to deliver one message."""
    timestamp: int
    """When this attempt was signed, in seconds since 1970."""
    signatures: tuple[str, ...]
    """The signatures, each with its version."""


def new_secret() -> str:
    """Return a new random secret, `whsec_` and base64."""
    return SECRET_PREFIX + base64.b64encode(random_bytes.token_bytes(NEW_SECRET)).decode()


def read_secret(text: str) -> bytes:
    """Return the bytes of a secret: `whsec_` and base64 of 24 to 64 bytes, whose padding may be missing. Raises
    LocalError, without the secret in its text, for anything else."""
    if not isinstance(text, str) or not text.startswith(SECRET_PREFIX):
        raise LocalError(f"a webhook secret begins with {SECRET_PREFIX!r}, and base64 follows")
    encoded = text[len(SECRET_PREFIX) :].rstrip("=")
    try:
        key = base64.b64decode(encoded + "=" * (-len(encoded) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise LocalError(f"a webhook secret is {SECRET_PREFIX!r} and base64 (A-Z, a-z, 0-9, + and /)") from None
    if not SHORTEST_SECRET <= len(key) <= LONGEST_SECRET:
        raise LocalError(f"a webhook secret has {SHORTEST_SECRET} to {LONGEST_SECRET} bytes, and this one {len(key)}")
    return key


def sign(secret: str | Sequence[str], id: str, timestamp: int, body: bytes) -> str:
    """Return the `webhook-signature` of a message: "v1," and base64, for several secrets several, separated by spaces.

    `timestamp`: seconds since 1970. Raises LocalError for an invalid secret, for none, and for an `id` or a timestamp
    that cannot be sent as a header.
    """
    if len(id) > MAX_ID or not _ID.fullmatch(id):
        raise LocalError(f"{ID_HEADER} has 1 to {MAX_ID} visible ASCII characters, and not {id[:MAX_ID]!r}")
    if timestamp < 0:
        raise LocalError(f"{TIMESTAMP_HEADER} is in seconds since 1970, and not {timestamp}")
    keys = _keys(secret)
    return " ".join(_signature(key, id, str(int(timestamp)), body) for key in keys)


def sign_headers(secret: str | Sequence[str], id: str, timestamp: int, body: bytes) -> dict[str, str]:
    """Return the three headers of a message. Raises as `sign`."""
    return {ID_HEADER: id, TIMESTAMP_HEADER: str(int(timestamp)), SIGNATURE_HEADER: sign(secret, id, timestamp, body)}


def read_headers(headers: Headers, now: float, tolerance: float = TOLERANCE) -> SignedHeaders:
    """Return what the headers of a message say, before any secret is looked up. `now`: seconds since 1970.

    Raises InvalidSignature for a header that is missing, stands twice or cannot be read, and for a timestamp that
    differs from `now` by more than `tolerance` seconds.
    """
    id, timestamp, given = (header(headers, name) for name in (ID_HEADER, TIMESTAMP_HEADER, SIGNATURE_HEADER))
    if len(id) > MAX_ID or not _ID.fullmatch(id):
        raise InvalidSignature("malformed", f"{ID_HEADER} has 1 to {MAX_ID} visible ASCII characters")
    if not _TIMESTAMP.fullmatch(timestamp):
        raise InvalidSignature("malformed", f"{TIMESTAMP_HEADER} is a number of seconds, and not {timestamp[:32]!r}")
    signatures = tuple(given.split())
    if len(signatures) > MAX_SIGNATURES or not all(_SIGNATURE.fullmatch(one) for one in signatures):
        words = f"{SIGNATURE_HEADER} has 1 to {MAX_SIGNATURES} signatures, each a version, a comma and base64"
        raise InvalidSignature("malformed", words)
    age = now - int(timestamp)
    if age > tolerance:
        raise InvalidSignature("too old", f"{TIMESTAMP_HEADER} is {age:.0f} s ago; {tolerance:g} s are allowed")
    if -age > tolerance:
        raise InvalidSignature("too new", f"{TIMESTAMP_HEADER} is {-age:.0f} s ahead; {tolerance:g} s are allowed")
    return SignedHeaders(id, int(timestamp), signatures)


def is_signed(signed: SignedHeaders, secrets: str | Sequence[str], body: bytes) -> bool:
    """Return whether one of `secrets` signed a message. How long it takes tells nothing about a secret. Raises
    LocalError for an invalid secret."""
    # Every pair is compared, also after one is equal: the time does not tell which.
    equal = 0
    for key in _keys(secrets):
        expected = _signature(key, signed.id, str(signed.timestamp), body).encode()
        for one in signed.signatures:
            equal |= hmac.compare_digest(expected, one.encode())
    return bool(equal)


def verify(
    secrets: str | Sequence[str], headers: Headers, body: bytes, now: float, tolerance: float = TOLERANCE
) -> SignedHeaders:
    """Return what the headers of a message say if one of `secrets` signed it. `now`: seconds since 1970.

    Raises InvalidSignature as `read_headers` does, and for a signature by another secret or of another message;
    LocalError for an invalid secret.
    """
    signed = read_headers(headers, now, tolerance)
    if not is_signed(signed, secrets, body):
        raise InvalidSignature("wrong", f"no signature in {SIGNATURE_HEADER} is that of this message by a known secret")
    return signed


def _keys(secrets: str | Sequence[str]) -> list[bytes]:
    keys = [read_secret(one) for one in ([secrets] if isinstance(secrets, str) else secrets)]
    if not keys:
        raise LocalError("give at least one webhook secret")
    return keys


def _signature(key: bytes, id: str, timestamp: str, body: bytes) -> str:
    digest = hmac.new(key, f"{id}.{timestamp}.".encode() + body, hashlib.sha256).digest()
    return f"v1,{base64.b64encode(digest).decode()}"


def header(headers: Headers, name: str) -> str:
    """Return the one value of a header. Raises InvalidSignature where it is missing, empty or repeated: of two values a
    proxy in between might have verified the other one."""
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    values = [value.strip() for one, value in pairs if one.lower() == name]
    if not values or not values[0]:
        raise InvalidSignature("missing", f"the header {name} is missing")
    if len(values) > 1:
        raise InvalidSignature("repeated", f"the header {name} stands {len(values)} times")
    return values[0]
