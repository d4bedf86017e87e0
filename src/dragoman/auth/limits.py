"""The limits of authorization: what a stranger, a bearer or an issuer can make us hold, read or compute."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from ..jsonrpc.limits import KIB
from ..jsonrpc.options import check_struct, whole


class AuthLimits(Struct, frozen=True, kw_only=True):
    """What verifying a token may cost. Each has a default that real issuers stay under."""

    token: int = 16 * KIB
    """Bytes of a token: what is longer is refused before any of it is decoded. A token of Entra with 200 groups has
    about 10 KiB."""
    proof: int = 8 * KIB
    """Bytes of a DPoP proof; one with an RSA key of 4096 bits has about 2 KiB."""
    depth: int = 32
    """Levels of nesting in a token's claims: one that is deeper is refused before it is decoded."""
    key_set: int = 512 * KIB
    """Bytes of a JWK set; one with 20 keys and their certificates has about 40 KiB."""
    keys: int = 128
    """Keys of a JWK set; what comes after them is not read."""
    tries: int = 4
    """Keys that are tried for a token without `kid`. Each costs one verification of a signature."""
    cached_tokens: int = 10_000
    """Verified tokens that are kept, under 1 KiB each beside the token; over it the oldest goes."""
    cached_refusals: int = 1_000
    """Refused tokens that are kept, apart from the good ones, so that bad ones cannot push good ones out."""
    proofs: int = 400_000
    """DPoP proofs that are remembered against replay, some 100 bytes each; over it, calls get 503. Each caller has a
    tenth, and more while less than half is taken: a lone one has 200,000, 160 calls a second."""
    questions: int = 64
    """Tokens that are checked with issuers at once, by introspection and the like. Over it the question of the address
    that asks most gives way for another address, and further ones of that one get 503."""
    answer: int = 256 * KIB
    """Bytes of an issuer's metadata, of an introspection's or a token endpoint's answer."""

    def __post_init__(self) -> None:
        check_struct(self, _RULES)


_RULES: Final = {name: whole(1) for name in AuthLimits.__struct_fields__}

DEFAULTS: Final = AuthLimits()
