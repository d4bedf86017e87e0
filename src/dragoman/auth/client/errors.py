"""The errors of a client without authorization. They end the call that needs it, so they are `Broken` too."""

from __future__ import annotations

from ...channel import Broken, Reason
from ...net.urls import printable
from ..errors import AuthError


class AuthorizationFailed(AuthError, Broken):
    """There is no token for this call: the text says at which step it failed, and what would help. What was stored is
    kept."""

    def __init__(self, text: str) -> None:
        super().__init__(printable(text, 1000))


class LoginNeeded(AuthorizationFailed):
    """A person has to act: to log in, where none is present (`interactive=False`), or to register a client by hand."""

    reason: Reason = "login"


class AssertionRefused(AuthorizationFailed):
    """The assertion for the user is no longer accepted; another one may be."""


class LoginFailed(AuthorizationFailed):
    """A login did not end in a token: it was refused or timed out, or its answer must not be trusted."""

    reason: Reason = "login"

    error: str = ""
    """The error code of an authorization response."""
