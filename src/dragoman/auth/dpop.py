"""DPoP: proof that the sender of a token holds the key that it is bound to (RFC 9449).

A nonce is computed from the time and a key, so that nothing is kept for it, and servers that share the key accept each
other's.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import time
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from ..allowance import Owner
from .errors import TokenRefused
from .jose import ASYMMETRIC, Key, KeyRefused, encode_base64url, parse_jws, sign_jws, thumbprint
from .limits import DEFAULTS, AuthLimits
from .replays import Replays, SeenOnce

TYPE: Final = "dpop+jwt"
WINDOW: Final = 300.0
"""Seconds by which a proof's `iat` may differ from our clock, either way."""
NONCE_LIFE: Final = 120.0
"""Seconds for which a nonce is given out; it is accepted for as long again."""
_PORTS: Final = {"https": 443, "http": 80}
_KEYS: Final = 1_000
"""Keys of proofs that are kept; to make one from its JWK takes a quarter of the time of a check."""
_JTI: Final = 512


def normal(url: str) -> str:
    """Return a URL without query and fragment, its scheme and host in lower case, without its scheme's default port
    (RFC 9449 section 4.3, step 9; RFC 3986 sections 6.2.2 and 6.2.3). Raises ValueError if it is not an absolute
    URL."""
    parts = urlsplit(url)
    if not parts.scheme or not parts.hostname:
        raise ValueError("not an absolute URL")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    port = parts.port
    shown = "" if port is None or port == _PORTS.get(parts.scheme) else f":{port}"
    return f"{parts.scheme}://{host}{shown}{parts.path or '/'}"


def token_hash(token: str) -> str:
    """Return a token's `ath`: "the base64url-encoded SHA-256 hash of the ASCII encoding of the associated access
    token's value"."""
    return encode_base64url(hashlib.sha256(token.encode()).digest())


def proof(
    key: Key,
    method: str,
    url: str,
    *,
    token: str | None = None,
    nonce: str | None = None,
    now: Callable[[], float] = time.time,
) -> str:
    """Return a new proof for one request (RFC 9449 section 4.2). `token`: the access token that goes with it, if one
    does; `nonce`: the last one that the server gave. Raises ValueError for a URL that is not absolute."""
    normal(url)
    claims: dict[str, Any] = {
        "jti": encode_base64url(os.urandom(16)),
        "htm": method,
        # "The HTTP target URI ... of the request to which the JWT is attached, without query and fragment parts."
        "htu": url.partition("#")[0].partition("?")[0],
        "iat": int(now()),
    }
    if token is not None:
        claims["ath"] = token_hash(token)
    if nonce is not None:
        claims["nonce"] = nonce
    jwk = {name: value for name, value in key.public_jwk().items() if name not in ("kid", "use", "alg")}
    return sign_jws(claims, key, typ=TYPE, headers={"jwk": jwk, "kid": None})


class Nonces:
    """Nonces that the server demands in proofs (RFC 9449 section 8). `key`: 32 secret bytes or more that all servers at
    one address share; None: a new key for this process. `life`: seconds for which one is given out."""

    __slots__ = ("_key", "_now", "life")

    def __init__(
        self, key: bytes | None = None, *, life: float = NONCE_LIFE, now: Callable[[], float] = time.time
    ) -> None:
        self._key = key or os.urandom(32)
        self._now = now
        self.life: float = life

    def current(self) -> str:
        """Return the nonce to give out now."""
        return self._make(int(self._now() / self.life))

    def good(self, nonce: object) -> bool:
        """Return whether this is the present nonce or the one before it."""
        turn = int(self._now() / self.life)
        text = nonce.encode() if isinstance(nonce, str) and nonce.isascii() else b""
        return any(hmac.compare_digest(text, self._make(each).encode()) for each in (turn, turn - 1))

    def _make(self, turn: int) -> str:
        return encode_base64url(hmac.digest(self._key, b"dragoman dpop nonce %d" % turn, "sha256")[:18])


class ProofChecker:
    """Checks DPoP proofs (RFC 9449 section 4.3) and remembers them against replay.

    `nonces`: those of which a proof must have one; None: it needs none. `window`: seconds by which a proof's `iat` may
    differ from our clock. `now`: Unix time in seconds. Used proofs are remembered by this process, and by all that
    `share` a store.
    """

    __slots__ = ("_keys", "_limits", "_now", "_replays", "_window", "algorithms", "nonces")

    def __init__(
        self,
        *,
        nonces: Nonces | None = None,
        algorithms: frozenset[str] = ASYMMETRIC,
        window: float = WINDOW,
        limits: AuthLimits = DEFAULTS,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.algorithms: frozenset[str] = algorithms
        self.nonces: Nonces | None = nonces
        self._window, self._limits, self._now = window, limits, now
        # a proof is good from iat - window to iat + window, and with a nonce no longer than that is
        span = 2 * window if nonces is None else min(2 * window, 2 * nonces.life)
        self._replays = Replays(limits.proofs, span, now)
        self._keys: dict[str, Key] = {}

    def check(
        self,
        proof: str,
        method: str,
        url: str,
        *,
        token: str | None = None,
        thumbprint: str | None = None,
        owner: Owner | None = None,
    ) -> str:
        """Return the thumbprint of the key that made this proof for this request, `url` as the client sees it.

        `token`: the access token beside it, whose hash the proof must have; `thumbprint`: the key that the token is
        bound to; `owner`: whose share of `limits.proofs` it counts to; None: the key's. Raises TokenRefused
        ("invalid_dpop_proof", or "use_dpop_nonce" with the nonce to use), and IssuerAway where the share is used up.
        """
        signer, name = self._verify(proof, method, url, token, thumbprint)
        if not self._replays.take(name, owner or Owner(signer)):
            raise _used_before()
        return signer

    async def check_shared(
        self,
        proof: str,
        method: str,
        url: str,
        *,
        token: str | None = None,
        thumbprint: str | None = None,
        owner: Owner | None = None,
    ) -> str:
        """Check a proof, as `check` does, and also that no process that shares a store with this one has seen it.
        Raises IssuerAway also where the store is away."""
        signer, name = self._verify(proof, method, url, token, thumbprint)
        if not await self._replays.take_shared(name, owner or Owner(signer)):
            raise _used_before()
        return signer

    def share(self, store: SeenOnce) -> Callable[[], None]:
        """Remember proofs in this store too, that of a bus, until the returned function is called."""
        return self._replays.share(store)

    def _verify(self, proof: str, method: str, url: str, token: str | None, expected: str | None) -> tuple[str, bytes]:
        """Verify a proof; return the thumbprint of its key, and the name by which it is remembered. Raises
        TokenRefused."""
        if len(proof) > self._limits.proof:
            raise _refused(f"is longer than {self._limits.proof} bytes")
        try:
            parts = parse_jws(proof, self.algorithms, limits=self._limits)
            claims = parts.claims(self._limits)
        except TokenRefused as error:
            raise _refused(f"cannot be read: {error}") from None
        key, signer = self._key(parts.header, expected)
        if not key.verifies(parts.header["alg"], parts.signed, parts.signature):
            raise _refused("is not signed by the key in its header")
        self._check_claims(claims, method, url, token)
        # RFC 9449 section 11.1: "a server SHOULD reject DPoP proof JWTs with unnecessarily large jti values or store
        # only a hash thereof"
        return signer, hashlib.sha256(f"{signer} {claims['jti']}".encode("utf-8", "surrogatepass")).digest()[:16]

    def _key(self, header: Mapping[str, Any], expected: str | None) -> tuple[Key, str]:
        """Return the key in a proof's header and its thumbprint."""
        # "4. The typ JOSE Header Parameter has the value dpop+jwt."
        if str(header.get("typ")).lower() != TYPE:
            raise _refused(f"has another typ than {TYPE}")
        jwk = header.get("jwk")
        if not isinstance(jwk, dict):
            raise _refused("has no jwk in its header")
        # "7. The jwk JOSE Header Parameter does not contain a private key."
        if "d" in jwk or "k" in jwk:
            raise _refused("has a private key in its header")
        try:
            found = thumbprint(jwk)
        except KeyRefused:
            raise _refused("has a key that cannot be read") from None
        # "12. ... confirm that the public key to which the access token is bound matches the public key from the DPoP
        # proof": compared first, so that only keys of good tokens are ever made
        if expected is not None and not hmac.compare_digest(found, expected):
            raise _refused("is made by another key than the one that the token is bound to")
        key = self._keys.get(found)
        if key is None:
            try:
                key = Key.from_jwk({name: value for name, value in jwk.items() if name not in ("kid", "alg")})
            except KeyRefused as error:
                raise _refused(f"has a key that is not taken: {error}") from None
            if expected is not None:
                while len(self._keys) >= _KEYS:
                    del self._keys[next(iter(self._keys))]
                self._keys[found] = key
        return key, found

    def _check_claims(self, claims: Mapping[str, Any], method: str, url: str, token: str | None) -> None:
        """Check what a proof claims: steps 3 and 8 to 12 of RFC 9449 section 4.3. Raises TokenRefused."""
        jti, htu, iat = claims.get("jti"), claims.get("htu"), claims.get("iat")
        if not isinstance(jti, str) or not 0 < len(jti) <= _JTI:
            raise _refused(f"needs a jti, a string of at most {_JTI} characters")
        # "8. The htm claim matches the HTTP method of the current request."
        if claims.get("htm") != method:
            raise _refused("is for another HTTP method (htm)")
        # "9. The htu claim matches the HTTP URI value ..., ignoring any query and fragment parts."
        try:
            same = isinstance(htu, str) and normal(htu) == normal(url)
        except ValueError:
            same = False
        if not same:
            raise _refused("is for another URL (htu)")
        # "10. If the server provided a nonce value to the client, the nonce claim matches"
        if self.nonces is not None and not self.nonces.good(claims.get("nonce")):
            raise TokenRefused(
                "The DPoP proof needs the nonce of the DPoP-Nonce header",
                error="use_dpop_nonce",
                scheme="DPoP",
                headers=(("DPoP-Nonce", self.nonces.current()),),
            )
        # "11. The creation time of the JWT ... is within an acceptable window"
        if not isinstance(iat, int | float) or not (now := self._now()) - self._window <= iat <= now + self._window:
            raise _refused(f"was not made within {self._window:.0f} s of this server's time (iat)")
        # "12. ... ensure that the value of the ath claim equals the hash of that access token"
        if token is not None:
            ath = claims.get("ath")
            if not isinstance(ath, str) or not ath.isascii() or not hmac.compare_digest(ath, token_hash(token)):
                raise _refused("is for another token (ath)")


def _used_before() -> TokenRefused:
    return _refused("was used before (jti)")


def _refused(what: str) -> TokenRefused:
    return TokenRefused(f"The DPoP proof {what}", error="invalid_dpop_proof", scheme="DPoP")
