"""What a guard asks of a verifier beside `verify`.

Any object with a coroutine `verify` is a verifier (`access.Verifier`); those here are of `VerifierBase`, and the guard
takes others as `ForeignVerifier`. The stages of a token stand in this order in each: `parse`, `verify_signature`,
`check_claims`, `check_binding`; the guard then admits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...access import Verifier as Verifier
from ...channel import Handshake, Identity
from ..replays import SeenOnce


class VerifierBase:
    """A verifier that knows no token without waiting, and is of no issuer: what others have more is overridden."""

    resource: str = ""
    """The URL of the protected resource, which its metadata are about."""
    issuers: Sequence[str] = ()
    """The issuers of its tokens."""
    dpop: str = "off"
    """Whether tokens that are bound to a key (RFC 9449) are "off", "accepted" or "required"."""
    certificates: bool = False
    """Whether it looks at TLS client certificates: then it is called without a token, too."""

    async def verify(self, token: str, handshake: Handshake) -> Identity | None:
        """Return the identity behind a token; None if this verifier does not know it. Raises TokenRefused with the
        reason why not, IssuerAway where no one can say now."""
        raise NotImplementedError

    def known(self, token: bytes) -> Identity | None:
        """Return the identity of a token that was verified before, is still good and depends on nothing else of its
        request; None: ask `verify`. `token`: as it came, of the scheme Bearer."""
        return None

    def holding(self, token: bytes) -> Callable[[], bool] | None:
        """Return a function that says, each time it is called, whether `known` would still return the same. It is
        called in place of `known` for each further request with an equal head, so it must cost next to nothing. None:
        `known` is called each time."""
        return None

    def share(self, store: SeenOnce) -> Callable[[], None]:
        """Remember proofs that were used in this store too, which other processes share, until the function that is
        returned is called."""
        return do_nothing


def do_nothing() -> None:
    """Nothing was shared."""


class ForeignVerifier(VerifierBase):
    """An object of the user's with a coroutine `verify`, and with what else of `VerifierBase` it has."""

    def __init__(self, inner: Verifier) -> None:
        self._inner: Any = inner
        if hasattr(inner, "resource") and hasattr(inner, "issuers"):
            self.resource, self.issuers = inner.resource, inner.issuers
        self.dpop = getattr(inner, "dpop", "off")
        self.certificates = getattr(inner, "certificates", False)
        for name in ("known", "holding", "share"):
            if callable(own := getattr(inner, name, None)):
                setattr(self, name, own)

    async def verify(self, token: str, handshake: Handshake) -> Identity | None:
        """Return what the user's object says of a token."""
        return await self._inner.verify(token, handshake)  # type: ignore[no-any-return]


def base_of(verifier: Verifier) -> VerifierBase:
    """Return a verifier as the guard asks it."""
    return verifier if isinstance(verifier, VerifierBase) else ForeignVerifier(verifier)


def inherits_apart(verifier: object, name: str, other: str) -> bool:
    """Return whether the method `name` need not agree with `other`, which a subclass, a wrapper or an instance has of
    its own while `name` comes from what it is made of, of which its author may not know."""
    for owner in (verifier, *type(verifier).__mro__):
        own = getattr(owner, "__dict__", {})
        if name in own:
            return False
        if other in own:
            return True
    return True
