"""The errors of a client that has no authorization. They end the call that needed it, so they are `Broken` too."""

from __future__ import annotations

from ...channel import Broken, Reason
from ...net.urls import printable
from ..errors import AuthError


class AuthorizationFailed(AuthError, Broken):
    """No token for this call: the text says at which step, and what would help. What was stored is kept."""

    def __init__(self, text: str) -> None:
        super().__init__(printable(text, 1000))


class LoginNeeded(AuthorizationFailed):
    """Only a person can go on, by logging in, and there is none to ask (`interactive=False`), or no client id."""

    reason: Reason = "login"


class AssertionRefused(AuthorizationFailed):
    """What vouches for the user is not taken any more; another one may be."""


class LoginFailed(AuthorizationFailed):
    """The login was begun and did not end in a token: refused, timed out, or an answer that must not be trusted."""

    reason: Reason = "login"

    error: str = ""
    """The error code of an authorization response."""
