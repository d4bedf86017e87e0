"""The contract of verifiers: a token and what is known of its request, to an identity."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from ...channel import Handshake, Identity

if TYPE_CHECKING:
    from ..keys import Fetches


class Verifier(Protocol):
    """Says whose a token is. `dragoman.auth` has several; any object with this method is one.

    It may have more, which a guard looks for: `known(token: bytes)`, the identity of a token that was verified before
    and needs nothing else of its request, or None; beside it `holding(token: bytes)`, a function that says whether
    `known` would still say the same, and is asked instead of it about each further request with an equal head;
    `resource` and `issuers`, which stand in the protected resource's metadata; `dpop`, "off", "accepted" or "required";
    `certificates`, True where it wants to be asked without a token.
    """

    async def verify(self, token: str, handshake: Handshake) -> Identity | None:
        """The identity behind a token; None if this verifier does not know it. Raises TokenRefused with the reason why
        not, IssuerAway where no one can say now."""


class Before(Protocol):
    """Stands before an issuer and issues tokens of its own: a `Proxy`."""

    def before(self, issuer: Any, resource: str) -> tuple[str, Fetches]:
        """The issuer of its own tokens for this resource, and what fetches its keys. Raises LocalError."""
