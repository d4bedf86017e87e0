"""The login of commands that call: tokens that `dragoman login` stored are used, and a server that asks for one gets a
login if a person is there. Most servers ask for none, so nothing of authorization is imported for them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..exit_status import Usage
from ..progress import pause_bars

if TYPE_CHECKING:
    from ssl import SSLContext


def on_demand(target: object, headers: Mapping[str, str], account: str | None, interactive: bool) -> OnDemand | None:
    """For `Options.auth`: the login at a server over HTTP, unless the user gave an Authorization header. Raises Usage
    for an account where there are no logins."""
    http = isinstance(target, str) and target.startswith(("http://", "https://"))
    given = "authorization" in (name.lower() for name in headers)
    if account is not None and (given or not http):
        raise Usage(
            f"--account {account}: there is an Authorization header already, which says who calls"
            if given
            else f"--account {account}: logins are for servers at http and https URLs"
        )
    return OnDemand(account or "default", interactive) if http and not given else None


class OnDemand:
    """A `Login` that is made when something is stored, or a server asks."""

    def __init__(self, account: str, interactive: bool) -> None:
        self._account = account
        self._interactive = interactive

    def authorizing(self, url: str, tls: SSLContext | None = None) -> Deferred:
        """The authorization of requests to `url`."""
        return Deferred(url, tls, self._account, self._interactive)


class Deferred:
    """The authorization of requests to one URL. `real`: None as long as no one needed it."""

    def __init__(self, url: str, tls: SSLContext | None, account: str, interactive: bool) -> None:
        self.real: Any = None
        self._url = url
        self._tls = tls
        self._account = account
        self._interactive = interactive
        self._stored = _anything_stored()

    def begin(self, operation: str, patience: Callable[[], AbstractContextManager[object]]) -> DeferredAttempt:
        """A request begins."""

        def waiting() -> AbstractContextManager[object]:
            pause_bars()  # there may be a question to a person
            return patience()

        return DeferredAttempt(self, operation, waiting)

    async def close(self) -> None:
        """Give up what was begun."""
        if self.real is not None:
            await self.real.close()

    async def ready(self, requested: bool) -> Any:
        """The authorization, if there may be tokens, or the server asks for one."""
        if self.real is None and (requested or self._stored):
            from .login import stored_login  # noqa: PLC0415  (start-up: most servers ask for no token)

            login, entry = await stored_login(self._url, self._account, interactive=self._interactive)
            if self.real is None and (entry is not None or requested):  # another request may have been quicker
                self.real = login.authorizing(self._url, self._tls)
            self._stored = False
        return self.real


class DeferredAttempt:
    """One request."""

    __slots__ = ("_deferred", "_operation", "_patience", "_real", "_request")

    def __init__(
        self, deferred: Deferred, operation: str, patience: Callable[[], AbstractContextManager[object]]
    ) -> None:
        self._deferred = deferred
        self._operation = operation
        self._patience = patience
        self._real: Any = None
        self._request = ("", "")

    async def fields(self, method: str, url: str) -> Mapping[str, str]:
        """The header fields of this request."""
        self._request = (method, url)
        if self._real is None:
            real = await self._deferred.ready(requested=False)
            if real is None:
                return {}
            self._real = real.begin(self._operation, self._patience)
        fields: Mapping[str, str] = await self._real.fields(method, url)
        return fields

    async def again(self, status: int, headers: Mapping[str, str]) -> bool:
        """Whether to send the request again."""
        if self._real is None:
            if status != 401 or not asks_for_token(headers.get("www-authenticate", "")):
                return False
            self._real = (await self._deferred.ready(requested=True)).begin(self._operation, self._patience)
            if await self._real.fields(*self._request):
                return True  # another request logged in meanwhile
        again: bool = await self._real.again(status, headers)
        return again


def asks_for_token(challenge: str) -> bool:
    """Whether a login may help at a server with this WWW-Authenticate: it asks for a token, or says nothing."""
    from ...auth.challenge import parse_challenges  # noqa: PLC0415  (start-up: most servers ask for nothing)

    found = parse_challenges(challenge)
    return not found or any(one.of("bearer") or one.of("dpop") for one in found)


def _anything_stored() -> bool:
    """Whether the folder of tokens has any, without opening it."""
    base = os.environ.get("XDG_STATE_HOME")
    try:
        folder = (Path(base) if base else Path.home() / ".local" / "state") / "dragoman" / "tokens"
        return any(one.endswith(".token") for one in os.listdir(folder))
    except (OSError, RuntimeError):
        return False
