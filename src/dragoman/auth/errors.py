"""The errors of authorization. None of them contains a token, a secret or text that a stranger chose.

The words of RFC 6750 section 3.1, RFC 9449 section 7.1 and RFC 6749 section 5.2 name what is wrong.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

_FOREIGN: Final = re.compile(r"[^\x20-\x21\x23-\x5b\x5d-\x7e]")
_LONGEST: Final = 300


def describe(text: str) -> str:
    """Return `text` as an `error_description`: what the grammar does not allow becomes "?", and it is cut at 300
    characters.

    RFC 6750 section 3: "Values for the "error" and "error_description" attributes MUST NOT include characters outside
    the set %x20-21 / %x23-5B / %x5D-7E."
    """
    return _FOREIGN.sub("?", text)[:_LONGEST]


class AuthError(Exception):
    """The base of all errors of `dragoman.auth`."""


class TokenRefused(AuthError):
    """A token, or the proof beside it, is not accepted."""

    def __init__(
        self,
        description: str,
        *,
        error: str = "invalid_token",
        scheme: str = "Bearer",
        headers: Sequence[tuple[str, str]] = (),
    ) -> None:
        self.description: str = describe(description)
        """What is wrong, in words for the caller: no token, no secret."""
        super().__init__(self.description)
        self.error = error
        """"invalid_token", "invalid_request", "insufficient_scope", "invalid_dpop_proof" or "use_dpop_nonce"."""
        self.scheme = scheme
        """The scheme of the challenge that this belongs to: "Bearer" or "DPoP"."""
        self.headers: tuple[tuple[str, str], ...] = tuple(headers)
        """Header fields that go with the refusal, such as `DPoP-Nonce`."""


class UnknownKey(TokenRefused):
    """No known key of the issuer has the `kid` of the token: the keys that we hold may be older than the token."""


class NotYet(TokenRefused):
    """The token is not valid yet: it may be accepted later."""


class IssuerAway(AuthError):
    """Whether a token is valid cannot be found out now: the issuer does not answer, or a limit is reached. HTTP 503."""

    def __init__(self, description: str, retry_after: int = 1) -> None:
        self.description: str = describe(description)
        """What is wrong, in words for the caller: no token, no secret."""
        super().__init__(self.description)
        self.retry_after: int = max(1, retry_after)
        """Seconds to wait before another try."""


class OAuthError(AuthError):
    """An endpoint of an authorization server answered with an error object (RFC 6749 section 5.2)."""

    def __init__(self, error: str, description: str = "", status: int = 400) -> None:
        self.error: str = describe(error)
        """The error's code, such as "invalid_grant"."""
        self.description: str = describe(description)
        """The endpoint's own description, in characters that are safe to show."""
        self.status = status
        """The HTTP status of the answer."""
        super().__init__(f"{self.error}: {self.description}" if self.description else self.error)
