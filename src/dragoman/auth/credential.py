"""The token that a caller presented, wrapped so that no log or `repr` shows it by accident."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NoReturn

from ..jsonrpc.errors import LocalError

if TYPE_CHECKING:
    from .exchange import Exchanger
else:
    Exchanger = Any  # start-up: annotations resolve at run time, to no more than this


class TokenCredential:
    """A `channel.Credential` that is a token. `exchange`: trades it at its issuer; None: that is not set up."""

    __slots__ = ("_exchange", "_token")

    def __init__(self, token: str, exchange: Exchanger | None = None) -> None:
        self._token = token
        self._exchange = exchange

    def __repr__(self) -> str:
        return "<a token>"

    def __reduce__(self) -> NoReturn:
        raise LocalError("a credential is not pickled: it is a secret. identity.credential.reveal() has it")

    def __copy__(self) -> TokenCredential:
        return self

    def __deepcopy__(self, _: Any) -> TokenCredential:
        return self

    def reveal(self) -> str:
        """Return the token. It was issued for this server: to send it further on is forbidden (MCP, Token
        Passthrough)."""
        return self._token

    async def exchange(self, *, audience: str | None, resource: str | None, scopes: Iterable[str]) -> str:
        """Return a token for another service, issued in exchange for this one (RFC 8693). Raises LocalError where this
        server is no client of the issuer, OAuthError where the issuer refuses, IssuerAway where it does not answer."""
        if self._exchange is None:
            raise LocalError("Identity.exchange needs a client at the issuer: Bearer(..., exchange=Exchange(id, ...))")
        return await self._exchange.exchange(self._token, audience=audience, resource=resource, scopes=scopes)
