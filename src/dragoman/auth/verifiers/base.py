"""What a guard uses of a verifier beside `verify`.

Any object with a coroutine `verify` is a verifier (`access.Verifier`); those of this room are a `VerifierBase`, and the
guard wraps others in a `ForeignVerifier`. In each a token passes these stages: `parse`, `verify_signature`,
`check_claims`, `check_binding`; then the guard admits its bearer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...access import Verifier as Verifier
from ...channel import Handshake, Identity
from ..replays import SeenOnce


class VerifierBase:
    """The base of verifiers, with defaults for all but `verify`: no issuer, and no token that is known in advance."""

    resource: str = ""
    """The URL of the protected resource, which the metadata describe; "": there are no metadata."""
    issuers: Sequence[str] = ()
    """The issuers of its tokens."""
    dpop: str = "off"
    """Whether tokens that are bound to a key (RFC 9449) are "off", "accepted" or "required"."""
    certificates: bool = False
    """Whether it checks TLS client certificates: then it is called for requests without a token, too."""

    async def verify(self, token: str, handshake: Handshake) -> Identity | None:
        """Return the identity behind a token; None if this verifier does not know it. Raises TokenRefused with the
        reason why not, IssuerAway where that cannot be found out now."""
        raise NotImplementedError

    def known(self, token: bytes) -> Identity | None:
        """Return the identity of a token that was verified before and is still valid, whatever else its request has;
        None: call `verify`. `token`: as it came, of the scheme Bearer."""
        return None

    def holding(self, token: bytes) -> Callable[[], bool] | None:
        """Return a function that returns, each time it is called, whether `known` would still return the same. It is
        called in place of `known` for each further request with an equal header, so it must cost next to nothing. None:
        `known` is called each time."""
        return None

    def share(self, store: SeenOnce) -> Callable[[], None]:
        """Remember used proofs in this store too, which other processes share, until the returned function is
        called."""
        return do_nothing


def do_nothing() -> None:
    """Do nothing: there is nothing to stop sharing."""


class ForeignVerifier(VerifierBase):
    """A user's object with a coroutine `verify`, and with those other members of `VerifierBase` that it has."""

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
        """Return what the user's object returns for a token."""
        return await self._inner.verify(token, handshake)  # type: ignore[no-any-return]


def base_of(verifier: Verifier) -> VerifierBase:
    """Return a verifier as a `VerifierBase`, which the guard calls."""
    return verifier if isinstance(verifier, VerifierBase) else ForeignVerifier(verifier)


def inherits_apart(verifier: object, name: str, other: str) -> bool:
    """Return whether a verifier defines its own `other`, but inherits the method `name`, of which its author may not
    know: then the two need not agree. "Own" is what a subclass, a wrapper or the instance defines."""
    for owner in (verifier, *type(verifier).__mro__):
        own = getattr(owner, "__dict__", {})
        if name in own:
            return False
        if other in own:
            return True
    return True
