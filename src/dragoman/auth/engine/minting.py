"""The tokens that an authorization server signs (RFC 9068, OpenID Connect Core 2, ID-JAG), and its keys."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...jsonrpc.errors import LocalError
from ..errors import TokenRefused
from ..jose import Key, KeySet, VerifiedToken, encode_base64url, new_key, sign_jws, verify_jws

ACCESS = "at+jwt"
ID = "JWT"
ID_JAG = "oauth-id-jag+jwt"
KEYS = 4
"""Keys at once, at most: the one that signs, and those before it, whose tokens have not expired yet."""


class SigningKeys:
    """The keys of a server: the first one signs, all verify. `keys`: private ones; empty: a new ES256 key. Raises
    LocalError for a public key."""

    def __init__(self, keys: Sequence[Key] = ()) -> None:
        if any(not key.private for key in keys):
            raise LocalError("an authorization server signs: its keys are private keys")
        self.keys = tuple(keys) or (new_key("ES256"),)

    def rotate(self, algorithm: str = "ES256") -> Key:
        """Sign with a new key from now on, and return it; the keys before it stay in the set."""
        self.keys = (new_key(algorithm), *self.keys)[:KEYS]
        return self.keys[0]

    @property
    def public(self) -> dict[str, Any]:
        """The JWK Set (RFC 7517, 5)."""
        return {"keys": [key.public_jwk() for key in self.keys]}

    @property
    def set(self) -> KeySet:
        """The public keys, to verify with."""
        return KeySet(self.keys)

    @property
    def algorithms(self) -> list[str]:
        """The algorithms of the keys, each once."""
        return sorted({key.algorithm() for key in self.keys})


class Mint:
    """Signs tokens of one issuer. `issuer` is called for each token; `clock`: Unix time."""

    def __init__(self, keys: SigningKeys, issuer: Callable[[], str], clock: Callable[[], float]) -> None:
        self.keys, self._issuer, self._clock = keys, issuer, clock

    def access(
        self,
        *,
        subject: str,
        client: str,
        audience: Sequence[str],
        scopes: Sequence[str],
        life: float,
        family: str = "",
        jkt: str = "",
        claims: Mapping[str, Any] | None = None,
        typ: str | None = ACCESS,
    ) -> str:
        """Return an access token (RFC 9068, 2). `life`: seconds; `jkt`: the thumbprint of the key that it is bound to;
        `family`: the id of its grant, which becomes part of its `jti`, so that introspection can find the grant;
        `claims`: added, in place of its own of the same name."""
        name = encode_base64url(os.urandom(12))
        own: dict[str, Any] = {
            "aud": audience[0] if len(audience) == 1 else list(audience),
            "client_id": client,
            "jti": f"{family}.{name}" if family else name,
        }
        if scopes:
            own["scope"] = " ".join(scopes)  # RFC 9068, 2.2.3
        if jkt:
            own["cnf"] = {"jkt": jkt}  # RFC 9449, 6.1
        return self.signed({**self._times(subject, life), **own, **(claims or {})}, typ)

    def identity(self, *, subject: str, client: str, nonce: str, auth_time: int, life: float) -> str:
        """Return an ID token (OpenID Connect Core 1.0, 2). `life`: seconds."""
        own: dict[str, Any] = {"aud": client, "auth_time": auth_time}
        if nonce:
            own["nonce"] = nonce
        return self.signed({**self._times(subject, life), **own}, ID)

    def authorization(
        self, *, subject: str, client: str, audience: str, resource: str, scopes: Sequence[str], life: float
    ) -> str:
        """Return an ID-JAG: an assertion for another authorization server, `audience`. `life`: seconds."""
        own: dict[str, Any] = {"aud": audience, "client_id": client, "jti": encode_base64url(os.urandom(16))}
        if resource:
            own["resource"] = resource
        if scopes:
            own["scope"] = " ".join(scopes)
        return self.signed({**self._times(subject, life), **own}, ID_JAG)

    def signed(self, claims: Mapping[str, Any], typ: str | None) -> str:
        """Return any claims as a JWS, signed with the present key."""
        return sign_jws(claims, self.keys.keys[0], typ=typ)

    def read(self, token: str, types: Sequence[str]) -> VerifiedToken | None:
        """Return one of our own tokens that has not expired, of one of these `typ`s; None for any other text."""
        try:
            found = verify_jws(token, self.keys.set)
        except TokenRefused:
            return None
        expires, issuer = found.claims.get("exp"), found.claims.get("iss")
        if not isinstance(expires, int | float) or expires <= self._clock() or issuer != self._issuer():
            return None
        return found if str(found.header.get("typ")).lower() in [each.lower() for each in types] else None

    def _times(self, subject: str, life: float) -> dict[str, Any]:
        now = int(self._clock())
        return {"iss": self._issuer(), "sub": subject, "iat": now, "exp": int(now + life)}
