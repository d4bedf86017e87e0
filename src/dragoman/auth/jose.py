"""Signed tokens, keys and key sets (RFC 7515, 7517, 7518, 7519, 7638, 8037). The only file that imports joserfc.

- Keys come from the verifier, never from a token: a token with `jwk`, `jku`, `x5u` or `x5c` in its header is refused,
  except for the `jwk` of a DPoP proof, which the rules of proofs demand.
- Only asymmetric algorithms are accepted, never `none`; HMAC only with a `Secret`, which the server's user gave. No key
  serves both kinds.
- A key serves only the algorithms that fit its type and curve, and only its `alg` if it has one.
- A token with `crit` is refused: we understand no extension (RFC 7515 section 4.1.11: "If any of the listed extension
  Header Parameters are not understood and supported by the recipient, then the JWS is invalid")."""

from __future__ import annotations

import binascii
import hashlib
import hmac
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import Struct

from ..jsonrpc.errors import LocalError, needs
from ..secret import holds_secret
from .errors import AuthError, TokenRefused, UnknownKey
from .limits import DEFAULTS, AuthLimits

try:
    from cryptography.hazmat.primitives.serialization import (
        load_der_public_key,
        load_pem_private_key,
        load_pem_public_key,
    )
    from cryptography.x509 import load_der_x509_certificate
    from joserfc.errors import JoseError
    from joserfc.jwk import ECKey, OKPKey, RSAKey
    from joserfc.jws import JWSRegistry
except ImportError:
    raise needs("Authorization", "joserfc", "auth") from None

_Native: TypeAlias = ECKey | RSAKey | OKPKey

FITS: Final[Mapping[str, tuple[str, str]]] = {
    "ES256": ("EC", "P-256"),
    "ES384": ("EC", "P-384"),
    "ES512": ("EC", "P-521"),
    "RS256": ("RSA", ""),
    "RS384": ("RSA", ""),
    "RS512": ("RSA", ""),
    "PS256": ("RSA", ""),
    "PS384": ("RSA", ""),
    "PS512": ("RSA", ""),
    "EdDSA": ("OKP", "Ed25519"),
    "Ed25519": ("OKP", "Ed25519"),
}
"""The supported algorithms, with the type and curve of their keys (RFC 7518 section 3.1, RFC 8037, 9864)."""

ASYMMETRIC: Final = frozenset(FITS)
HMACS: Final[Mapping[str, int]] = {"HS256": 32, "HS384": 48, "HS512": 64}
"""The algorithms of a `Secret`, and the bytes that it has at least. RFC 7518 section 3.2: "A key of the same size as
the hash output (for instance, 256 bits for "HS256") or larger MUST be used with this algorithm." """
_PUBLIC_WORDS: Final = (b"-----BEGIN", b"-----END", b"ssh-", b"ecdsa-sha2-", b'"kty"', b"'kty'")
RSA_BITS: Final = (2048, 8192)
"""The sizes of RSA keys that are accepted, in bits. RFC 7518 section 3.3: "A key of size 2048 bits or larger MUST be
used"; with more than 8192 each verification is expensive."""
_KID: Final = 512
"""Characters of a `kid`."""

_FORBIDDEN: Final = ("crit", "jku", "x5u", "x5c", "b64", "zip", "enc")
_PRIVATE: Final = frozenset({"d", "p", "q", "dp", "dq", "qi", "oth", "k"})
_REQUIRED: Final = {"EC": ("crv", "kty", "x", "y"), "RSA": ("e", "kty", "n"), "OKP": ("crv", "kty", "x")}
_ALGORITHMS: Final = {name: JWSRegistry.algorithms[name] for name in FITS}
_NATIVE: Final[Mapping[str, type[_Native]]] = {"EC": ECKey, "RSA": RSAKey, "OKP": OKPKey}
_DEFAULT_ALGORITHMS: Final = {
    ("EC", "P-256"): "ES256",
    ("EC", "P-384"): "ES384",
    ("EC", "P-521"): "ES512",
    ("RSA", ""): "RS256",
}
_FAULTS: Final = (JoseError, ValueError, TypeError, KeyError, AttributeError, OverflowError)

# base64url to base64; what only base64 has becomes "!", which its strict decoder refuses
_TO_BASE64: Final = bytes.maketrans(b"-_+/=", b"+/!!!")
_FROM_URL: Final = bytes.maketrans(b"-_", b"+/")
_LAST_CHARACTERS: Final = {2: b"AQgw", 3: b"AEIMQUYcgkosw048"}


class KeyRefused(AuthError):
    """A key cannot be used to sign or to verify; the text says why, and contains nothing of the key."""


def decode_base64url(text: bytes) -> bytes:
    """Decode strict base64url without padding (RFC 7515 section 2). Raises ValueError for anything else, so that no two
    texts give the same bytes."""
    last = _LAST_CHARACTERS.get(len(text) % 4)
    if last is not None and text[-1] not in last:
        raise ValueError("not canonical")
    try:
        return binascii.a2b_base64(text.translate(_TO_BASE64) + b"=" * (-len(text) % 4), strict_mode=True)
    except binascii.Error as error:
        raise ValueError("not base64url") from error


def encode_base64url(data: bytes) -> str:
    """Encode as base64url without padding."""
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def thumbprint(jwk: Mapping[str, Any]) -> str:
    """Return the SHA-256 thumbprint of a public or private JWK, base64url (RFC 7638 section 3). Raises KeyRefused for a
    JWK that lacks a member."""
    try:
        members = {name: jwk[name] for name in _REQUIRED[jwk["kty"]]}
    except (KeyError, TypeError):
        raise KeyRefused("a JWK lacks a member that its kty requires") from None
    return encode_base64url(hashlib.sha256(msgspec.json.encode(members)).digest())


@holds_secret
class Key:
    """A key to verify with and, if it is private, to sign with. Its `repr` shows only its name and kind."""

    __slots__ = ("_native", "alg", "curve", "kid", "kty", "private")

    def __init__(self, native: _Native, *, kid: str | None = None, alg: str | None = None) -> None:
        self._native = native
        self.kty: str = native.key_type
        """The key type: "EC", "RSA" or "OKP" (RFC 7518 section 6.1)."""
        self.curve: str = "" if isinstance(native, RSAKey) else native.curve_name
        """The curve, such as "P-256"; empty for RSA."""
        self.private: bool = native.is_private
        """Whether it can sign."""
        if self.kty != "RSA" and (self.kty, self.curve) not in FITS.values():
            raise KeyRefused("a key of EC is on P-256, P-384 or P-521, one of OKP on Ed25519")
        if alg is not None and FITS.get(alg) != (self.kty, self.curve):
            raise KeyRefused(f"a key of type {self.kty} {self.curve} does not fit its alg")
        self.alg: str | None = alg
        """The only algorithm that it may be used with; None: any that fits its type."""
        self.kid: str = kid if kid is not None else thumbprint(self.public_jwk())
        """Its name; its thumbprint where it has none of its own (RFC 7638)."""

    def __repr__(self) -> str:
        return f"<Key {self.kid!r} {self.kty} {self.curve}{' private' if self.private else ''}>"

    @classmethod
    def from_pem(cls, pem: str | bytes, *, password: bytes | None = None, kid: str | None = None) -> Key:
        """Return a private key (PKCS#8, PKCS#1, SEC 1) or a public one from PEM text. Raises KeyRefused."""
        data = pem.encode() if isinstance(pem, str) else pem
        try:
            native: Any = load_pem_private_key(data, password) if b"PRIVATE" in data else load_pem_public_key(data)
        except Exception:  # cryptography raises errors of several libraries; none may show what it read
            raise KeyRefused("this is not the PEM text of a key, or its password is another") from None
        kind: Any
        for kind in _NATIVE.values():
            if isinstance(native, kind.binding._cryptography_key_types):
                if kind is RSAKey:
                    _check_bits(native.key_size)
                return cls(kind.import_key(native), kid=kid)
        raise KeyRefused("this PEM text holds no RSA, EC or Ed25519 key")

    @classmethod
    def from_jwk(cls, jwk: Mapping[str, Any]) -> Key:
        """Return a key from a JWK. Raises KeyRefused for a kind that signs nothing, for another use than "sig", and for
        a size or curve that is not accepted."""
        kty, kid, alg = jwk.get("kty"), jwk.get("kid"), jwk.get("alg")
        if not isinstance(kty, str) or kty not in _NATIVE:
            raise KeyRefused("a JWK's kty is RSA, EC or OKP")
        # RFC 7517 section 4.2: "sig" (signature), "enc" (encryption)
        if jwk.get("use", "sig") != "sig":
            raise KeyRefused('a JWK whose use is not "sig" verifies nothing')
        operations = jwk.get("key_ops")
        needed = "sign" if "d" in jwk else "verify"
        if operations is not None and not (isinstance(operations, list) and needed in operations):
            raise KeyRefused(f"a JWK whose key_ops lack {needed}")
        for name, value in (("kid", kid), ("alg", alg)):
            if value is not None and not (isinstance(value, str) and len(value) <= _KID):
                raise KeyRefused(f"a JWK's {name} is a short string")
        wanted = {*_REQUIRED[kty], *(_PRIVATE if "d" in jwk else ())}
        members = {name: value for name, value in jwk.items() if name in wanted}
        if not all(isinstance(value, str) for name, value in members.items() if name != "oth"):
            raise KeyRefused("a JWK's members are strings")
        try:
            if kty == "RSA":
                _check_bits(int.from_bytes(decode_base64url(members["n"].encode()), "big").bit_length())
            native = _NATIVE[kty].import_key(members)
            native.public_key  # noqa: B018  (it is made when it is first used: a point off its curve fails here)
        except _FAULTS:
            raise KeyRefused(f"a JWK of type {kty} cannot be read") from None
        return cls(native, kid=kid, alg=alg)

    def public_jwk(self) -> dict[str, Any]:
        """Return the public part: `kty`, its members, `kid`, `use`, and `alg` if it is bound to one."""
        jwk = {name: value for name, value in self._native.as_dict(private=False).items() if name not in _PRIVATE}
        found: dict[str, Any] = {name: jwk[name] for name in _REQUIRED[self.kty]}
        if hasattr(self, "kid"):
            found |= {"kid": self.kid, "use": "sig"} | ({"alg": self.alg} if self.alg else {})
        return found

    def private_jwk(self) -> dict[str, Any]:
        """Return the whole key, for a store of secrets. Raises LocalError for a public key."""
        if not self.private:
            raise LocalError(f"{self!r} is a public key: it has no private part to give")
        whole: dict[str, Any] = dict(self._native.as_dict(private=True))
        return self.public_jwk() | {name: whole[name] for name in whole.keys() & _PRIVATE}

    def algorithm(self) -> str:
        """Return the algorithm that it signs with."""
        return self.alg or _DEFAULT_ALGORITHMS.get((self.kty, self.curve), "EdDSA")

    def signature(self, data: bytes) -> bytes:
        """Return the signature of these bytes by `algorithm()`. Raises LocalError for a public key."""
        if not self.private:
            raise LocalError(f"{self!r} is a public key: it cannot sign")
        return _ALGORITHMS[self.algorithm()].sign(data, self._native)

    def verifies(self, algorithm: str, data: bytes, signature: bytes) -> bool:
        """Return whether this is the signature of these bytes by this key and algorithm; False also where they do not
        fit."""
        if FITS.get(algorithm) != (self.kty, self.curve) or self.alg not in (None, algorithm):
            return False
        try:
            return bool(_ALGORITHMS[algorithm].verify(data, signature, self._native))
        except _FAULTS:
            return False


@holds_secret
class Secret:
    """A secret that signer and verifier share (HMAC), for one algorithm of `HMACS`. Raises KeyRefused for one that is
    too short."""

    __slots__ = ("_data", "alg")

    def __init__(self, data: bytes, alg: str) -> None:
        if len(data) < HMACS[alg]:
            raise KeyRefused(
                f"one for {alg} has at least {HMACS[alg]} bytes, this one {len(data)}; make one with: "
                "python -c 'import secrets; print(secrets.token_urlsafe(64))'"
            )
        self._data = data
        self.alg: str = alg
        """The only algorithm that it is for."""

    def __repr__(self) -> str:
        return f"<Secret {self.alg}>"

    def verifies(self, algorithm: str, data: bytes, signature: bytes) -> bool:
        """Return whether this is the signature of these bytes by this secret; False for another algorithm."""
        if algorithm != self.alg:
            return False
        return hmac.compare_digest(hmac.digest(self._data, data, f"sha{algorithm[2:]}"), signature)


def public_bytes(data: bytes) -> bool:
    """Return whether this is the text of a key or certificate (PEM, SSH, JWK), or DER of one, binary or as the bare
    base64 that issuers show. Others may know such bytes, so they are no secret for HMAC."""
    text = data.replace(b"\0", b"")  # UTF-16 of ASCII has a zero in each character
    if any(word in text for word in _PUBLIC_WORDS):
        return True
    forms = [data]
    try:
        bare = b"".join(text.translate(_FROM_URL).split()).rstrip(b"=")
        forms.append(binascii.a2b_base64(bare + b"=" * (-len(bare) % 4), strict_mode=True))
    except binascii.Error:
        pass
    return any(_is_der(form) for form in forms)


def _is_der(data: bytes) -> bool:
    for load in (load_der_public_key, load_der_x509_certificate):
        try:
            load(data)
        except Exception:  # as in `from_pem`
            continue
        return True
    return False


def _check_bits(bits: int) -> None:
    """Raise KeyRefused for a size of RSA keys that is not accepted. It is called before the key is made, since a long
    one costs much time, and a short one a warning of joserfc."""
    if not RSA_BITS[0] <= bits <= RSA_BITS[1]:
        raise KeyRefused(f"an RSA key has {RSA_BITS[0]} to {RSA_BITS[1]} bits, this one {bits}")


def new_key(algorithm: str, *, kid: str | None = None) -> Key:
    """Return a new private key for an algorithm of `FITS`; RSA keys have 2048 bits. Raises LocalError for another
    name."""
    if algorithm not in FITS:
        raise LocalError(f"there is no algorithm {algorithm!r}: {', '.join(FITS)}")
    kty, curve = FITS[algorithm]
    if kty == "RSA":
        return Key(RSAKey.generate_key(2048), kid=kid, alg=algorithm)
    native = ECKey.generate_key(curve) if kty == "EC" else OKPKey.generate_key("Ed25519")
    return Key(native, kid=kid, alg=algorithm)


class KeySet:
    """The public keys of an issuer (RFC 7517 section 5), by `kid`."""

    __slots__ = ("_by_kid", "_names", "keys", "skipped")

    def __init__(self, keys: tuple[Key, ...], skipped: tuple[str, ...] = ()) -> None:
        self.keys: tuple[Key, ...] = keys
        """The keys, in their order."""
        self.skipped: tuple[str, ...] = skipped
        """Why keys of the set were left out, one line each."""
        self._by_kid: dict[str, list[Key]] = {}
        for key in keys:
            self._by_kid.setdefault(key.kid, []).append(key)
        self._names = frozenset((key.kid, thumbprint(key.public_jwk())) for key in keys)

    def __repr__(self) -> str:
        return f"KeySet({list(self.keys)})"

    @classmethod
    def from_json(cls, document: bytes | Mapping[str, Any], *, limits: AuthLimits = DEFAULTS) -> KeySet:
        """Return a JWK set. Keys that cannot be used are skipped (RFC 7517 section 5: "Implementations SHOULD ignore
        JWKs within a JWK Set that use "kty" (key type) values that are not understood by them, that are missing
        required members, or for which values are out of the supported ranges"). Raises KeyRefused if it is not a JWK
        set."""
        if isinstance(document, bytes):
            if len(document) > limits.key_set:
                raise KeyRefused(f"a JWK set of {len(document)} bytes: AuthLimits.key_set allows {limits.key_set}")
            try:
                document = msgspec.json.decode(document, type=dict[str, Any])
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                raise KeyRefused("a JWK set is a JSON object") from None
        entries = document.get("keys")
        if not isinstance(entries, list):
            raise KeyRefused('a JWK set has a list "keys"')
        keys, skipped = [], []
        for index, entry in enumerate(entries[: limits.keys]):
            try:
                if not isinstance(entry, dict):
                    raise KeyRefused("a JWK is an object")
                keys.append(Key.from_jwk({name: value for name, value in entry.items() if name not in _PRIVATE}))
            except KeyRefused as error:
                skipped.append(f"keys[{index}]: {error}")
        return cls(tuple(keys), tuple(skipped))

    def keeps(self, other: KeySet) -> bool:
        """Return whether this set still has every key of `other`."""
        return self._names >= other._names

    def find(self, header: Mapping[str, Any], limits: AuthLimits = DEFAULTS) -> tuple[Key, ...]:
        """Return the keys that may have signed a token with this header, by its `kid` and `alg`. Raises UnknownKey if
        no key has this `kid`, TokenRefused if one has it but is of another algorithm, and where there are too many."""
        kid, alg = header.get("kid"), header["alg"]
        named = self.keys if kid is None else self._by_kid.get(kid, ())
        fitting = tuple(key for key in named if FITS[alg] == (key.kty, key.curve) and key.alg in (None, alg))
        if not fitting:
            if kid is None or not named:
                raise UnknownKey("The token is signed by a key that its issuer does not publish")
            raise TokenRefused("The key that the token names is of another algorithm than the token")
        if len(fitting) > limits.tries:
            raise TokenRefused("The token names no key (kid), and its issuer publishes too many to try each")
        return fitting


class VerifiedToken(Struct, frozen=True):
    """A token whose signature was verified."""

    header: dict[str, Any]
    claims: dict[str, Any]
    raw: bytes
    """The claims as they were signed: JSON text."""


class UnverifiedToken(Struct, frozen=True):
    """A token in its parts, of which nothing was verified."""

    header: dict[str, Any]
    payload: bytes
    signed: bytes
    """The signing input."""
    signature: bytes

    def claims(self, limits: AuthLimits = DEFAULTS) -> dict[str, Any]:
        """Return the claims. Raises TokenRefused if they are not a JSON object, or nested deeper than
        `limits.depth`."""
        return _decode_object(self.payload, "claims are", limits)


_decode: Final = msgspec.json.Decoder(dict[str, Any]).decode


def _decode_object(data: bytes, what: str, limits: AuthLimits) -> dict[str, Any]:
    if data.count(b"[") + data.count(b"{") > limits.depth and deeper(data, limits.depth):
        raise TokenRefused(f"The token's {what} nested more than {limits.depth} levels deep")
    try:
        data.isascii() or data.decode()
        return _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise TokenRefused(f"The token's {what} not a JSON object") from None


def deeper(data: bytes, limit: int) -> bool:
    """Return whether JSON text is nested deeper than `limit` levels. Brackets in strings are not counted."""
    depth, quoted, escaped = 0, False, False
    for byte in data:
        if escaped:
            escaped = False
        elif quoted:
            escaped, quoted = byte == 0x5C, byte != 0x22
        elif byte == 0x22:
            quoted = True
        elif byte in b"[{":
            depth += 1
            if depth > limit:
                return True
        elif byte in b"]}":
            depth -= 1
    return False


def parse_jws(token: str, algorithms: frozenset[str], *, limits: AuthLimits = DEFAULTS) -> UnverifiedToken:
    """Return a compact JWS in its parts, its header checked, nothing verified. Raises TokenRefused."""
    if len(token) > limits.token:
        raise TokenRefused(f"The token has {len(token)} bytes: {limits.token} are taken")
    try:
        signed, _, signature = token.encode("ascii").rpartition(b".")
        head, dot, payload = signed.partition(b".")
        if not dot or not head or b"." in payload:
            raise ValueError("not three parts")
        parts = decode_base64url(head), decode_base64url(payload), decode_base64url(signature)
    except ValueError:  # UnicodeEncodeError is one
        raise TokenRefused("The token is not a signed JWT: three parts of base64url with dots between") from None
    header = _decode_object(parts[0], "header is", limits)
    _check_header(header, algorithms)
    return UnverifiedToken(header, parts[1], signed, parts[2])


def _check_header(header: Mapping[str, Any], algorithms: frozenset[str]) -> None:
    alg = header.get("alg")
    # RFC 8725 section 3.1: "Libraries MUST enable the caller to specify a supported set of algorithms and MUST NOT use
    # any other algorithms when performing cryptographic operations."
    if not isinstance(alg, str) or alg not in algorithms or (alg not in FITS and alg not in HMACS):
        raise TokenRefused("The token is signed with an algorithm that is not taken here")
    for name in _FORBIDDEN:
        if name in header:
            raise TokenRefused(f"The token's header has {name}, which is never taken")
    if not isinstance(header.get("typ", ""), str):
        raise TokenRefused("The token's typ is not a string")
    # RFC 7515 section 4.1.3: a DPoP proof carries its key, every other token is verified with keys of its issuer
    if "jwk" in header and str(header.get("typ")).lower() != "dpop+jwt":
        raise TokenRefused("The token's header has jwk, which is never taken")
    kid = header.get("kid")
    if kid is not None and not (isinstance(kid, str) and len(kid) <= _KID):
        raise TokenRefused(f"The token's kid is a string of at most {_KID} characters")


def verify_signature(
    token: UnverifiedToken, keys: tuple[Key | Secret, ...], *, limits: AuthLimits = DEFAULTS
) -> VerifiedToken:
    """Return the token, whose signature one of these keys has verified. Raises TokenRefused if none does."""
    alg = token.header["alg"]
    for key in keys:
        if key.verifies(alg, token.signed, token.signature):
            return VerifiedToken(token.header, token.claims(limits), token.payload)
    raise TokenRefused("The token's signature is not that of its issuer's key")


def verify_jws(
    token: str, keys: KeySet, algorithms: frozenset[str] = ASYMMETRIC, *, limits: AuthLimits = DEFAULTS
) -> VerifiedToken:
    """Parse a compact JWS and verify its signature with one of the keys. Its claims are not checked. Raises
    TokenRefused."""
    parts = parse_jws(token, algorithms, limits=limits)
    return verify_signature(parts, keys.find(parts.header, limits), limits=limits)


def sign_jws(
    claims: Mapping[str, Any], key: Key, *, typ: str | None = None, headers: Mapping[str, Any] | None = None
) -> str:
    """Return a compact JWS of these claims. `headers` are added to `alg`, `typ` and, unless they say otherwise, `kid`;
    a header that is None is left out. Raises LocalError for a public key."""
    fields = {"alg": key.algorithm(), "typ": typ, "kid": key.kid} | dict(headers or {})
    present = {name: value for name, value in fields.items() if value is not None}
    text = f"{encode_base64url(msgspec.json.encode(present))}.{encode_base64url(msgspec.json.encode(claims))}"
    return f"{text}.{encode_base64url(key.signature(text.encode()))}"
