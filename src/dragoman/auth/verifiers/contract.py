"""The contract of verifiers: a token and what is known of its request, to an identity."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from ...access import Verifier as Verifier

if TYPE_CHECKING:
    from ..keys import Fetches
    from ..tokens import Issuer


class Before(Protocol):
    """Stands before an issuer and issues tokens of its own: a `Proxy`."""

    def before(self, issuer: str | Issuer | Sequence[str | Issuer], resource: str) -> tuple[str, Fetches]:
        """The issuer of its own tokens for this resource, and what fetches its keys. Raises LocalError."""
