"""What a client shows of itself to HTTP and WebSocket servers: `Options.auth`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from .jsonrpc.options import NONE, Rule

if TYPE_CHECKING:
    from ssl import SSLContext


class Authorizing(Protocol):
    """Provides the tokens for requests, as `Login()` and other values of `dragoman.auth` do."""

    def authorizing(self, url: str, tls: SSLContext | None = None) -> Any:
        """Return the authorization of the requests to a URL, a
        `transports.http.client.authorized.RequestAuthorization`. `tls`: the context for requests to other servers, such
        as the issuer of tokens."""


Auth: TypeAlias = tuple[str, str] | str | Authorizing | None
"""(user, password), a token, or an object that provides tokens."""


def _is_token(value: Any) -> bool:
    """Whether a value is a token as text. "oauth", by which other libraries mean a login, is not."""
    return isinstance(value, str) and value != "oauth"


def _is_pair(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) == 2 and all(isinstance(one, str) for one in value)


AUTH: Final = (
    Rule(_is_token, "a token (for OAuth write auth=Login(), from dragoman.auth import Login)")
    | Rule(_is_pair, "a pair of user and password")
    | Rule(lambda value: hasattr(value, "authorizing"), "a value of dragoman.auth as Login()")
    | NONE
)
