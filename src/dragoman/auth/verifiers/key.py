"""The one key that is given to `Bearer` in place of those that an issuer publishes: a public key, or a shared secret.

The given value decides which kind of algorithm is used, and a token never does: a public key verifies only asymmetric
signatures, and a secret only HMAC. So a token that is "signed" by HMAC with the text of a public key as the secret,
which everyone may know, is refused; and the text of a key is not accepted as a secret (RFC 8725 section 2.1).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from msgspec import Struct

from ...jsonrpc.errors import LocalError
from ..jose import ASYMMETRIC, FITS, HMACS, Key, KeyRefused, Secret, public_bytes
from ..tokens import Issuer

_HS256: Final = "HS256"
_ED25519: Final = ("EdDSA", "Ed25519")


class GivenKey(Struct, frozen=True):
    """A key, and the names of the one algorithm that it is for."""

    key: Key | Secret
    algorithms: frozenset[str]


def key_maker(
    public_key: str | bytes | None, secret: str | bytes | None, algorithm: str | None
) -> Callable[[Issuer], GivenKey] | None:
    """Return a function that returns the key of an issuer's tokens, from what the user gave; None where that is
    nothing. Both raise LocalError for a key that cannot be used, with nothing of the key in its text."""
    if secret is not None:
        if public_key is not None:
            raise LocalError("Bearer: give public_key= or secret=, and not both: a token is signed with one of them")
        made = _secret(secret, _HS256 if algorithm is None else algorithm)
        return lambda issuer: _fit(made, [made.alg], issuer)
    if public_key is None:
        if algorithm is not None:
            raise LocalError(
                "Bearer: algorithm goes with public_key= or secret=; which ones an issuer uses that publishes its keys "
                "is Issuer(algorithms=...)"
            )
        return None
    key = _public(public_key)
    names = [name for name, kind in FITS.items() if kind == (key.kty, key.curve)]
    if algorithm is not None and algorithm not in names:
        what = f"a key of type {key.kty} {key.curve}".strip()
        raise LocalError(f"Bearer: algorithm is {_any(names)} for {what}, not {algorithm!r}")
    return lambda issuer: _fit(key, names if algorithm is None else [algorithm], issuer)


def _fit(key: Key | Secret, names: list[str], issuer: Issuer) -> GivenKey:
    """Return the key with the first of the algorithms `names` that the issuer uses. Raises LocalError if it uses
    none."""
    # ASYMMETRIC is the default of a row, which does not limit the key's algorithms: a secret's are not even among them
    uses = names if issuer.algorithms == ASYMMETRIC else [name for name in names if name in issuer.algorithms]
    if not uses:
        raise LocalError(
            f"Bearer: {issuer.issuer} signs with {_any(sorted(issuer.algorithms))}, and this key is for {_any(names)}"
        )
    # one algorithm by two names (RFC 8037, RFC 9864)
    return GivenKey(key, frozenset(uses if uses[0] in _ED25519 else uses[:1]))


def _public(given: str | bytes) -> Key:
    text = given if isinstance(given, bytes) else given.encode("utf-8", "replace")
    if b"-----BEGIN" not in text:
        raise LocalError(
            "Bearer: public_key is the PEM text of a public key, -----BEGIN PUBLIC KEY----- and so on; of a file: "
            'Path("key.pem").read_text(). Keys at a URL: Issuer(issuer=..., jwks_uri=...); a shared secret: secret='
        )
    if b"PRIVATE KEY-----" in text:
        raise LocalError(
            "Bearer: public_key is a private key, which only the one who signs should have; its public part: "
            "openssl pkey -in key.pem -pubout"
        )
    if b"-----BEGIN CERTIFICATE" in text:
        raise LocalError("Bearer: public_key is a certificate; its key: openssl x509 -in cert.pem -noout -pubkey")
    if text.count(b"-----BEGIN") > 1:
        raise LocalError(
            "Bearer: public_key is one key, and here are several: give each issuer's to a Bearer of its own"
        )
    try:
        return Key.from_pem(text)
    except KeyRefused as error:
        raise LocalError(f"Bearer: public_key: {error}") from None


def _secret(given: str | bytes, algorithm: str) -> Secret:
    if algorithm not in HMACS:
        raise LocalError(f"Bearer: algorithm is {_any(list(HMACS))} for a secret, not {algorithm!r}")
    data = given if isinstance(given, bytes) else given.encode("utf-8", "surrogatepass")
    if public_bytes(data):
        raise LocalError(
            "Bearer: secret is the text of a key or a certificate, which others may know: everyone could sign with it. "
            "Give a public key as public_key="
        )
    try:
        return Secret(data, algorithm)
    except KeyRefused as error:
        raise LocalError(f"Bearer: secret: {error}") from None


def _any(names: list[str]) -> str:
    return " or ".join(names)
