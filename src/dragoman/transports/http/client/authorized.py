"""Requests that need a token: each is sent with one, and sent again after a 401 or 403 where another token may help. A
value of `Options.auth` provides the token; this module knows no OAuth.

A request that was refused in this way was not run, so it may be sent again. No other request ever is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Protocol

from ....channel import Options
from ....net.urls import Url
from .connection import ClientReply
from .pool import Pool
from .posts import Posts

MOST = 8
"""How often one request is sent at most: for a nonce or two, a renewed token, a login, two logins for more scopes."""


class RequestAttempt(Protocol):
    """One request, however often it is sent."""

    async def fields(self, method: str, url: str) -> Mapping[str, str]:
        """The header fields of authorization, names in lower case. Raises Broken if there can be none."""

    async def again(self, status: int, headers: Mapping[str, str]) -> bool:
        """Return whether to send the request again after this answer. Raises Broken."""


class RequestAuthorization(Protocol):
    """The authorization of the requests to one URL."""

    def begin(self, operation: str, patience: Callable[[], AbstractContextManager[object]]) -> RequestAttempt:
        """Begin a request. `operation`: what it does, in words; `patience`: makes a context in which it does not time
        out."""

    async def close(self) -> None:
        """Release what it holds: no request will come any more."""


class RequestSender(Protocol):
    """What sends requests to one server: a `Pool`, or one that authorizes them."""

    async def ask(
        self,
        method: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        target: str | None = None,
        timeout: float | None = None,
    ) -> ClientReply:
        """Send a request; see `Pool.ask`."""

    async def close(self) -> None:
        """Close every connection."""


class AuthorizedPool:
    """A pool whose requests are authorized. `operation(body)`: what a request does."""

    def __init__(
        self, pool: Pool, where: Url, authorization: RequestAuthorization, operation: Callable[[bytes], str]
    ) -> None:
        self.posts: Posts | None = None
        """The POSTs whose calls wait without a time-out while a person logs in."""
        self.on_token: Callable[[], object] = _nothing
        """Called before a request that has another token than the one before it."""
        self._sent: str | None = None
        self._pool = pool
        self._origin = f"{where.scheme}://{where.address}"
        self._target = where.target
        self._authorization = authorization
        self._operation = operation

    async def ask(
        self,
        method: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        target: str | None = None,
        timeout: float | None = None,
    ) -> ClientReply:
        """Send a request with authorization and return its reply. Raises Broken, BadAnswer."""
        url = self._origin + (self._target if target is None else target)
        attempt = self._authorization.begin(method if not body else self._operation(body), self._patience)
        for tries in range(MOST):
            fields = await attempt.fields(method, url)
            if (token := fields.get("authorization")) != self._sent:
                self._sent = token
                self.on_token()
            reply = await self._pool.ask(method, body, {**(headers or {}), **fields}, target=target, timeout=timeout)
            try:
                # no login for a DELETE, which ends a session: a window would open when the program ends
                again = method != "DELETE" and await attempt.again(reply.status, reply.headers)
            except BaseException:
                reply.close()
                raise
            if not again or tries == MOST - 1:
                break
            reply.close()
        return reply

    async def close(self) -> None:
        """Close every connection."""
        await self._authorization.close()
        await self._pool.close()

    @contextmanager
    def _patience(self) -> Iterator[None]:
        """The call of the current POST does not time out in this context; its time begins anew after it."""
        post = None if self.posts is None else self.posts.of_task(asyncio.current_task())
        call = None if post is None else post.call
        if call is None:
            with nullcontext():
                yield
            return
        call.hold()
        try:
            yield
        finally:
            call.resume()


def _nothing() -> None:
    """Do nothing, where nothing is to be done about a new token."""


def _post(body: bytes) -> str:
    return "POST"


def requests_to(
    where: Url, options: Options, accept: str, operation: Callable[[bytes], str] = _post
) -> Pool | AuthorizedPool:
    """A pool for a server, whose requests are authorized if `options.auth` says how to."""
    pool = Pool(where, options, accept)
    authorizing = getattr(options.auth, "authorizing", None)
    if authorizing is None:
        return pool
    url = f"{where.scheme}://{where.address}{where.target}"
    return AuthorizedPool(pool, where, authorizing(url, options.client_tls), operation)
