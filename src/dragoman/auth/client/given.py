"""Tokens that the user's own code provides: `Token(fn)`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import nullcontext
from typing import TypeAlias

from ...jsonrpc.errors import LocalError
from ...net.fields import VALUE
from ...secret import holds_secret
from ..errors import AuthError
from .authorizer import Patience, as_call_error
from .errors import AuthorizationFailed
from .tokens import EARLY
from .world import call

Given: TypeAlias = str | tuple[str, float]


@holds_secret
class Token:
    """`auth=Token(fn)`: `fn()`, plain or async, returns the token, or the token and when it expires (Unix time).

    It is called for the first request, shortly before the token expires, and once for a request that is answered with
    401; never twice at the same time.
    """

    def __init__(self, function: Callable[[], Given | Awaitable[Given]]) -> None:
        if not callable(function):
            raise LocalError("Token(fn): a function that gives the token; a token as text is auth='...' itself")
        self._function = function

    def __repr__(self) -> str:
        return "Token(...)"

    def authorizing(self, url: str, tls: object = None) -> GivenTokens:
        """Return the tokens for the requests to `url`; for `Options.auth`."""
        return GivenTokens(self._function)


class GivenTokens:
    """The tokens that a function returns, for the requests to one resource."""

    def __init__(self, function: Callable[[], Given | Awaitable[Given]]) -> None:
        self._function = function
        self._lock = asyncio.Lock()
        self._token: str | None = None
        self._renew_at: float | None = None

    def __repr__(self) -> str:
        return "GivenTokens()"

    def begin(self, operation: str, patience: Patience = nullcontext) -> GivenAttempt:
        """Begin a request."""
        return GivenAttempt(self, patience)

    async def close(self) -> None:
        """Do nothing: there is nothing to release."""

    def ready(self) -> str | None:
        """Return the token, if there is one that does not expire soon."""
        return None if self._renew_at is not None and self._renew_at <= time.time() else self._token

    async def token(self) -> str:
        """Return the token to use now. Raises AuthorizationFailed."""
        if (token := self.ready()) is not None:
            return token
        await self.renew(self._token)
        return self._token or ""

    async def renew(self, used: str | None) -> bool:
        """Call the function, unless another request has since `used`. Return whether there is another token now. Raises
        AuthorizationFailed."""
        async with self._lock:
            if self._token != used:
                return True
            given = await call(self._function)
            token, expires_at = given if isinstance(given, tuple) else (given, None)
            if not isinstance(token, str) or not token or not VALUE.fullmatch(token):
                raise AuthorizationFailed("the function of Token(fn) gave no token that a header can carry")
            self._renew_at = None
            if expires_at is not None:
                now = time.time()
                self._renew_at = float(expires_at) - min(EARLY, max(float(expires_at) - now, 0.0) / 2)
                if self._renew_at <= now:  # the function returns an expired token: used until it is refused
                    self._renew_at = None
            self._token = token
            return token != used


class GivenAttempt:
    """One request with a token of the function."""

    __slots__ = ("_patience", "_renewed", "_tokens", "_used")

    def __init__(self, tokens: GivenTokens, patience: Patience) -> None:
        self._tokens = tokens
        self._patience = patience
        self._used: str | None = None
        self._renewed = False

    async def fields(self, method: str, url: str) -> Mapping[str, str]:
        """Return the header fields of this request."""
        self._used = self._tokens.ready()
        if self._used is None:
            try:
                with self._patience():
                    self._used = await self._tokens.token()
            except AuthError as error:
                raise as_call_error(error) from error
        return {"authorization": f"Bearer {self._used}"}

    async def again(self, status: int, headers: Mapping[str, str]) -> bool:
        """Return whether to send the request again: once after a 401, with another token."""
        if status != 401 or self._renewed:
            return False
        self._renewed = True
        try:
            with self._patience():
                return await self._tokens.renew(self._used)
        except AuthError as error:
            raise as_call_error(error) from error
