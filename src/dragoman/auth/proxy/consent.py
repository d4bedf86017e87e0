"""A login through a proxy: consent for the client here, then the login at the upstream, then the way back.

What the MCP specification demands against confused deputies (Security Best Practices, "Confused Deputy Problem"): the
user consents to each client before the upstream is asked, for its login there may need no click; the state exists only
after that consent, once, for ten minutes, bound to the browser that consented and to the client.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Awaitable, Callable, Iterable, Mapping
from inspect import isawaitable
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from msgspec import Struct, structs

from ..errors import AuthError, OAuthError
from ..jose import encoded
from ..server.authorize import Authorization, cookies
from ..server.engine import AuthorizationEngine
from ..server.families import Families
from ..server.messages import Parameters, Request, Response, of_query, redirect, refused
from ..server.model import Approved, Client, Pending
from ..server.pages import error_page, warning
from ..server.seals import digest
from .upstream import Login, UpstreamClient

STATE_LIFE = 600.0
"""Seconds for the login at the upstream."""

Admit: TypeAlias = Callable[[Mapping[str, Any]], "bool | Iterable[str] | Awaitable[bool | Iterable[str]]"]
"""Gets what the upstream says of a user: whether the user may come in, or with which scopes at most."""


class Waiting(Struct, frozen=True):
    """A login that was sent to the upstream."""

    pending: Pending
    login: Login
    cookie: str
    """SHA-256 of the cookie of the browser that consented."""


class UpstreamLogin:
    """Sends users who consented to the upstream, and takes them back. It is an `Approver`."""

    def __init__(self, upstream: UpstreamClient, admit: Admit | None) -> None:
        self.upstream, self._admit = upstream, admit
        self._engine: AuthorizationEngine | None = None

    @property
    def engine(self) -> AuthorizationEngine:
        """The engine for which it approves."""
        assert self._engine is not None
        return self._engine

    def serve(self, engine: AuthorizationEngine) -> None:
        """Approve for this engine, and answer at its /callback."""
        self._engine = engine
        engine.add("/callback", {"GET": self.callback})

    def fields(self) -> str:
        """Where the user logs in next."""
        return warning(f"You log in at {urlsplit(self.upstream.upstream.issuer).netloc} next.")

    def targets(self) -> tuple[str, ...]:
        """Logins of the upstream lead over several of its hosts, and browsers hold the form's redirects to this."""
        return ("https:", "http://127.0.0.1:*") if self.engine.settings.loopback else ("https:",)

    def automatic(self) -> Approved | None:
        """Never: an upstream that knows the user asks nothing, so this page is the only question."""
        return None

    async def approve(self, pending: Pending, client: Client, form: Parameters) -> Response:
        """The user consented to this client: only now there is a state, and a cookie for it."""
        engine = self.engine
        try:
            login = await self.upstream.begin()
        except AuthError as error:
            return error_page(str(error), status=503)
        value = encoded(hashlib.sha256(f"{login.asked.verifier}{pending.id}".encode()).digest())
        waiting = Waiting(pending, login, digest(value))
        state = login.asked.state
        await engine.records.put("upstream state", state, waiting, STATE_LIFE)
        # Lax and not Strict: the way back from the upstream begins on another site
        secure = "" if engine.settings.loopback else "; Secure"
        cookie = f"{self._name(state)}={value}; Path=/; Max-Age={STATE_LIFE:.0f}; HttpOnly; SameSite=Lax{secure}"
        return redirect(login.asked.url, {}, (("Set-Cookie", cookie),))

    def _name(self, state: str) -> str:
        return f"{'' if self.engine.settings.loopback else '__Host-'}dragoman-up-{digest(state)[:12]}"

    async def callback(self, request: Request) -> Response:
        """GET of the redirect URI that the upstream knows."""
        engine = self.engine
        try:
            asked = of_query(request.query)
            state = asked.need("state")
        except OAuthError as error:
            return error_page(error.description)
        # taken: it is good once, whatever comes of it
        waiting = await engine.records.take("upstream state", state, Waiting)
        if waiting is None or not hmac.compare_digest(waiting.login.asked.state, state):
            return error_page("This login is too old or was finished already; start again where you came from")
        value = cookies(request.headers).get(self._name(state), "")
        if not value or not hmac.compare_digest(digest(value), waiting.cookie):
            return error_page("Another browser began this login; start again where you came from", status=403)
        client = await engine.clients.find(waiting.pending.client)
        if client is None:
            return error_page("The client is gone")
        return await self._finished(engine.authorization, waiting, client, request.query)

    async def _finished(self, authorization: Authorization, waiting: Waiting, client: Client, query: str) -> Response:
        pending = waiting.pending
        try:
            approved, scopes = await self._approved(waiting, query)
            pending = structs.replace(pending, scopes=scopes)
            return await authorization.finished(pending, client, approved)
        except OAuthError as error:
            known = error if error.error in _TOLD else OAuthError("server_error", "The login at the issuer failed")
        except (AuthError, OSError):
            known = OAuthError("temporarily_unavailable", "The issuer behind this server is away")
        return authorization.failed(pending, known)

    async def _approved(self, waiting: Waiting, query: str) -> tuple[Approved, tuple[str, ...]]:
        user, tokens = await self.upstream.finish(waiting.login, query)
        scopes = await self._admitted(user, waiting.pending.scopes)
        family, engine = Families.new_id(), self.engine
        await engine.records.put("upstream", family, tokens, engine.settings.lives.refresh)
        return Approved(str(user[self.upstream.upstream.subject]), {}, family), scopes

    async def _admitted(self, user: Mapping[str, Any], scopes: tuple[str, ...]) -> tuple[str, ...]:
        if self._admit is None:
            return scopes
        said: Any = self._admit(user)
        said = await said if isawaitable(said) else said
        if said is True:
            return scopes
        allowed = frozenset(said) if said else frozenset()
        if not allowed:
            raise refused("access_denied", "This user may not use this server")
        return tuple(each for each in scopes if each in allowed)


_TOLD = frozenset({"access_denied", "temporarily_unavailable"})
