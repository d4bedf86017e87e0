"""A login through a proxy: consent for the client here, then the login at the upstream, then the way back.

The MCP specification demands this against confused deputies (Security Best Practices, "Confused Deputy Problem"): the
user consents to each client before the browser goes to the upstream, where the login may need no click. Only after that
consent there is a state; it is valid for ten minutes and for one code, and bound to the client and the browser.

Nothing is stored for a login that has begun, so that strangers, who can begin any number, fill no store: what is needed
when the browser comes back is in an encrypted cookie, whose name is made from the state.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from inspect import isawaitable
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct, structs

from ...repeats import Repeats
from ..engine.authorize import Authorization, cookies
from ..engine.engine import AuthorizationEngine
from ..engine.families import Families
from ..engine.messages import EndpointRequest, EndpointResponse, Parameters, oauth_error, of_query, redirect
from ..engine.model import Approved, Client, Pending
from ..engine.pages import error_page, warning
from ..engine.records import Sealer
from ..engine.seals import digest
from ..errors import AuthError, OAuthError
from ..jose import decode_base64url, encode_base64url
from .upstream import PendingLogin, UpstreamClient

log: logging.Logger = logging.getLogger("dragoman.auth.proxy")
repeats: Repeats = Repeats(log)

STATE_LIFE = 600.0
"""Seconds for the login at the upstream."""
PIECE = 3_800
"""Characters of one cookie: browsers keep 4,096 bytes with its name (RFC 6265, 6.1)."""
PIECES = 3
"""Cookies of one login at most: enough for a client's id of 4,096 characters and a state of 2,000."""
LOGINS = 3
"""Logins of one browser at once: servers take request headers of 8 KiB and more. A further one ends the oldest."""

Admit: TypeAlias = Callable[[Mapping[str, Any]], "bool | Iterable[str] | Awaitable[bool | Iterable[str]]"]
"""Called with the upstream's claims about a user; returns whether the user may log in, or the scopes that the user may
have."""


class WaitingLogin(Struct, frozen=True):
    """A login that was sent to the upstream."""

    pending: Pending
    login: PendingLogin
    until: float
    """Unix time at which it expires."""


class UpstreamLogin:
    """Sends users who consented to the upstream, and receives them when they come back. It is an `Approver`."""

    def __init__(self, upstream: UpstreamClient, admit: Admit | None, sealer: Sealer) -> None:
        self.upstream, self._admit, self._sealer = upstream, admit, sealer
        self._engine: AuthorizationEngine | None = None

    @property
    def engine(self) -> AuthorizationEngine:
        """The engine whose logins it approves."""
        assert self._engine is not None
        return self._engine

    def serve(self, engine: AuthorizationEngine) -> None:
        """Approve the logins of this engine, and add its /callback."""
        self._engine = engine
        engine.add("/callback", {"GET": self.callback})

    def fields(self) -> str:
        """Return HTML that says where the user logs in next."""
        return warning(f"You log in at {urlsplit(self.upstream.upstream.issuer).netloc} next.")

    def automatic(self) -> Approved | None:
        """Return None: the page is always shown, since an upstream that knows the user may not ask anything."""
        return None

    async def approve(
        self, pending: Pending, client: Client, form: Parameters, headers: Mapping[str, str]
    ) -> EndpointResponse:
        """Send a user who consented to this client to the upstream, with a new state and cookies for it."""
        engine = self.engine
        try:
            login = await self.upstream.begin()
        except AuthError as error:
            return error_page(str(error), status=503)
        state, url = login.request.state, login.request.url
        login = structs.replace(login, request=structs.replace(login.request, url=""))
        waiting = msgspec.msgpack.encode(WaitingLogin(pending, login, engine.clock() + STATE_LIFE))
        text = encode_base64url(self._sealer.seal(waiting, _seal_context(state)))
        pieces = [text[at : at + PIECE] for at in range(0, len(text), PIECE)]
        if len(pieces) > PIECES:
            return error_page("The client's id and state are too long to log in here")
        lines = [*self._expired_cookies(headers)]
        lines += (
            self._cookie(self._cookie_name(state, number), piece, STATE_LIFE) for number, piece in enumerate(pieces)
        )
        return redirect(url, {}, tuple(lines))

    def _cookie(self, name: str, value: str, life: float) -> tuple[str, str]:
        # Lax and not Strict: the way back from the upstream begins on another site
        secure = "" if self.engine.settings.loopback else "; Secure"
        return "Set-Cookie", f"{name}={value}; Path=/; Max-Age={life:.0f}; HttpOnly; SameSite=Lax{secure}"

    def _cookie_name(self, state: str, number: int) -> str:
        return f"{self._prefix}{digest(state)[:12]}-{number}"

    @property
    def _prefix(self) -> str:
        return f"{'' if self.engine.settings.loopback else '__Host-'}dragoman-up-"

    def _expired_cookies(self, headers: Mapping[str, str]) -> Iterator[tuple[str, str]]:
        """Return the header fields that end the oldest logins of a browser that has begun too many."""
        held = [name for name in cookies(headers) if name.startswith(self._prefix)]
        # RFC 6265, 5.4: "cookies with earlier creation-times are listed before cookies with later creation-times"
        logins = list(dict.fromkeys(name.rpartition("-")[0] for name in held))
        old = logins[: max(0, len(logins) + 1 - LOGINS)]
        return (self._cookie(name, "", 0) for name in held if name.rpartition("-")[0] in old)

    async def callback(self, request: EndpointRequest) -> EndpointResponse:
        """Answer a GET of the redirect URI that is registered at the upstream."""
        engine = self.engine
        try:
            state = of_query(request.query).need("state")
        except OAuthError as error:
            return error_page(error.description)
        held = cookies(request.headers)
        names = [name for number in range(PIECES) if (name := self._cookie_name(state, number)) in held]
        waiting = self._read_waiting(state, "".join(held[name] for name in names))
        if waiting is None:
            why = "This browser did not begin this login, or it is too old, or was finished already"
            return error_page(f"{why}; start again where you came from", status=403)
        client = await engine.clients.find(waiting.pending.client, request.owner)
        if client is None:
            return error_page("The client is gone")
        made = await self._finish(engine.authorization, waiting, client, request.query)
        # a login is tried only once
        return structs.replace(made, headers=(*made.headers, *(self._cookie(name, "", 0) for name in names)))

    def _read_waiting(self, state: str, text: str) -> WaitingLogin | None:
        """Return the login of this state from the text of a browser's cookies; None if there is none, or it has
        expired."""
        try:
            sealed = decode_base64url(text.encode())
        except ValueError:  # also of UnicodeEncodeError
            return None
        document = self._sealer.open(sealed, _seal_context(state))
        if document is None:
            return None
        waiting = msgspec.msgpack.decode(document, type=WaitingLogin)
        return waiting if waiting.until > self.engine.clock() else None

    async def _finish(
        self, authorization: Authorization, waiting: WaitingLogin, client: Client, query: str
    ) -> EndpointResponse:
        pending = waiting.pending
        try:
            approved, scopes = await self._approve(waiting, query)
            pending = structs.replace(pending, scopes=scopes)
            return await authorization.answer_client(pending, client, approved)
        except OAuthError as error:
            known = (
                error
                if error.error in _SHOWN_TO_CLIENTS
                else OAuthError("server_error", "The login at the issuer failed")
            )
        except (AuthError, OSError):
            known = OAuthError("temporarily_unavailable", "The issuer behind this server is away")
        return authorization.fail(pending, known)

    async def _approve(self, waiting: WaitingLogin, query: str) -> tuple[Approved, tuple[str, ...]]:
        user, tokens = await self.upstream.finish(waiting.login, query)
        scopes = await self._admit_user(user, waiting.pending.scopes)
        family, engine = Families.new_id(), self.engine
        longest, now = engine.settings.lives.refresh, engine.clock()
        ends = await self.upstream.ends(tokens, longest)
        if ends:
            repeats.warning(
                "%s gives no refresh token: a login ends %.0f s after it began; see upstream_scopes= and "
                "Upstream.parameters for what makes it give one",
                self.upstream.upstream.issuer,
                ends - now,
            )
        await engine.records.put("upstream", family, tokens, min(longest, ends - now) if ends else longest)
        return Approved(str(user[self.upstream.upstream.subject]), {}, family, ends), scopes

    async def _admit_user(self, user: Mapping[str, Any], scopes: tuple[str, ...]) -> tuple[str, ...]:
        if self._admit is None:
            return scopes
        answer: Any = self._admit(user)
        answer = await answer if isawaitable(answer) else answer
        if answer is True:
            return scopes
        allowed = frozenset(answer) if answer else frozenset()
        if not allowed:
            raise oauth_error("access_denied", "This user may not use this server")
        return tuple(each for each in scopes if each in allowed)


def _seal_context(state: str) -> bytes:
    """Return the context to which the login of a state is bound when it is sealed."""
    return b"upstream login " + state.encode("utf-8", "replace")


_SHOWN_TO_CLIENTS = frozenset({"access_denied", "temporarily_unavailable"})
