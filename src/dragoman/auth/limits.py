"""The limits of authorization: what a stranger, a bearer or an issuer can make us hold, read or compute."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from ..jsonrpc.limits import KIB
from ..jsonrpc.options import check_struct, whole


class AuthLimits(Struct, frozen=True, kw_only=True):
    """Limits of what verifying a token may cost. Real issuers stay below each default."""

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
    """Keys of a JWK set; those after them are not read."""
    tries: int = 4
    """Keys that are tried for a token without `kid`. Each costs one verification of a signature."""
    cached_tokens: int = 10_000
    """Verified tokens that are cached, below 1 KiB each beside the token; beyond that, the oldest is dropped."""
    cached_refusals: int = 1_000
    """Refused tokens that are cached, apart from the good ones, so that bad ones cannot push good ones out."""
    proofs: int = 400_000
    """DPoP proofs that are remembered against replay, some 100 bytes each; beyond that, calls get 503. Each caller has
    a tenth, and more while less than half is in use: a single caller has 200,000, 160 calls a second."""
    questions: int = 64
    """Tokens about which issuers are asked at once, by introspection and the like. Beyond that, a question of the
    address that asks most gives way to that of another address, and further ones of its own get 503."""
    answer: int = 256 * KIB
    """Bytes of an answer of an introspection or token endpoint."""

    def __post_init__(self) -> None:
        check_struct(self, _RULES)


_RULES: Final = {name: whole(1) for name in AuthLimits.__struct_fields__}

DEFAULTS: Final = AuthLimits()
