"""Tokens from a list, for tests and for a handful of machines."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from hashlib import sha256
from math import inf
from typing import Final

from msgspec.structs import replace

from ...channel import Handshake, Identity
from ...jsonrpc.errors import LocalError
from ...jsonrpc.options import CALLABLE, check
from ...secret import holds_secret
from ..challenge import TOKEN68
from ..credential import TokenCredential
from ..errors import TokenRefused
from .base import VerifierBase


@holds_secret
class Static(VerifierBase):
    """Verifies tokens from a list: token -> `Identity`, or the subject as text.

    A token is found by its SHA-256, so that the time of a lookup reveals nothing of those in the list. Read them from
    the environment or a file, and make them with `secrets.token_urlsafe()`. Raises LocalError for a token that a header
    cannot hold, or that is shorter than 8 characters.
    """

    def __init__(self, tokens: Mapping[str, Identity | str], *, now: Callable[[], float] = time.time) -> None:
        check("Static", _RULES, locals())
        self._now = now
        self._known: dict[bytes, Identity] = {}
        if not isinstance(tokens, Mapping):
            raise LocalError("Static: tokens are a dict from token to Identity or subject")
        for token, who in tokens.items():
            if not isinstance(token, str) or len(token) < 8 or not token.isascii() or not token.isprintable():
                raise LocalError("Static: a token is a text of at least 8 ASCII characters; one of these is not")
            if TOKEN68.fullmatch(token.encode()) is None:
                # the only ones that RFC 6750 lets a header carry
                raise LocalError(
                    "Static: a token has letters, digits and -._~+/ alone, and = at its end; one has others"
                )
            identity = Identity(subject=who) if isinstance(who, str) else who
            if not isinstance(identity, Identity) or not identity.subject:
                raise LocalError("Static: a token stands for an Identity or for a subject, a text that is not empty")
            self._known[sha256(token.encode()).digest()] = replace(identity, credential=TokenCredential(token))

    def __repr__(self) -> str:
        return f"Static({len(self._known)} tokens)"

    def known(self, token: bytes) -> Identity | None:
        """Return the identity of a token in the list that has not expired; None for any other."""
        found = self._known.get(sha256(token).digest())
        if found is None or (found.expires_at is not None and self._now() >= found.expires_at):
            return None
        return found

    def holding(self, token: bytes) -> Callable[[], bool]:
        """Return a function that returns, each time it is called, whether `known` would still return the same."""
        name = sha256(token).digest()
        until = inf if (found := self._known.get(name)) is None or found.expires_at is None else found.expires_at
        return lambda: self._now() < until

    async def verify(self, token: str, handshake: Handshake) -> Identity | None:
        """Return the identity of a token; None for one that is not in the list. Raises TokenRefused for one that has
        expired."""
        raw = token.encode("utf-8", "surrogatepass")
        found = self.known(raw)
        if found is None and sha256(raw).digest() in self._known:
            raise TokenRefused("The token has expired")
        return found


_RULES: Final = {"now": CALLABLE}
