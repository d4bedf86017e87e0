"""What a client shows of itself to HTTP and WebSocket servers: `Options.auth`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from .jsonrpc.options import NONE, Rule

if TYPE_CHECKING:
    from ssl import SSLContext


class Authorizing(Protocol):
    """Says where the tokens for requests come from; values of `dragoman.auth` are, as `Login()`."""

    def authorizing(self, url: str, tls: SSLContext | None = None) -> Any:
        """The authorization of the requests to a URL, a `transports.http.client.authorized.RequestAuthorization`.
        `tls`: the `ssl.SSLContext` for requests to others."""


Auth: TypeAlias = tuple[str, str] | str | Authorizing | None
"""(user, password), a token, or where tokens come from."""


def _is_token(value: Any) -> bool:
    """Whether it is a token as text; "oauth", which other libraries take for a login, is none."""
    return isinstance(value, str) and value != "oauth"


def _is_pair(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) == 2 and all(isinstance(one, str) for one in value)


AUTH: Final = (
    Rule(_is_token, "a token (for OAuth write auth=Login(), from dragoman.auth import Login)")
    | Rule(_is_pair, "a pair of user and password")
    | Rule(lambda value: hasattr(value, "authorizing"), "a value of dragoman.auth as Login()")
    | NONE
)
