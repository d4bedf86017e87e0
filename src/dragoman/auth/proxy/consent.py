"""A login through a proxy: consent for the client here, then the login at the upstream, then the way back.

What the MCP specification demands against confused deputies (Security Best Practices, "Confused Deputy Problem"): the
user consents to each client before going to the upstream, for its login there may need no click; the state exists only
after that consent, for ten minutes, bound to the browser that consented and to the client, and gives a code once.

Nothing is kept for a login that has begun, so that strangers, who can begin any number, fill nothing: what is needed
when it comes back is in a cookie of the browser, encrypted, under the name of its state.
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
"""Cookies of one login, which a client's id of 4,096 characters and a state of 2,000 need at most."""
LOGINS = 3
"""Logins of one browser at once: servers take request headers of 8 KiB and more. A further one ends the oldest."""

Admit: TypeAlias = Callable[[Mapping[str, Any]], "bool | Iterable[str] | Awaitable[bool | Iterable[str]]"]
"""Gets what the upstream says of a user: whether the user may come in, or with which scopes at most."""


class Waiting(Struct, frozen=True):
    """A login that was sent to the upstream."""

    pending: Pending
    login: PendingLogin
    until: float
    """Unix time at which it is over."""


class UpstreamLogin:
    """Sends users who consented to the upstream, and takes them back. It is an `Approver`."""

    def __init__(self, upstream: UpstreamClient, admit: Admit | None, sealer: Sealer) -> None:
        self.upstream, self._admit, self._sealer = upstream, admit, sealer
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

    def automatic(self) -> Approved | None:
        """Never: an upstream that knows the user asks nothing, so this page is the only question."""
        return None

    async def approve(
        self, pending: Pending, client: Client, form: Parameters, headers: Mapping[str, str]
    ) -> EndpointResponse:
        """Send a user who consented to this client to the upstream: only now there is a state, and a cookie for it."""
        engine = self.engine
        try:
            login = await self.upstream.begin()
        except AuthError as error:
            return error_page(str(error), status=503)
        state, url = login.request.state, login.request.url
        login = structs.replace(login, request=structs.replace(login.request, url=""))
        waiting = msgspec.msgpack.encode(Waiting(pending, login, engine.clock() + STATE_LIFE))
        text = encode_base64url(self._sealer.seal(waiting, _seal_context(state)))
        pieces = [text[at : at + PIECE] for at in range(0, len(text), PIECE)]
        if len(pieces) > PIECES:
            return error_page("The client's id and state are too long to log in here")
        lines = [*self._forgetting_cookies(headers)]
        lines += (self._cookie(self._name(state, number), piece, STATE_LIFE) for number, piece in enumerate(pieces))
        return redirect(url, {}, tuple(lines))

    def _cookie(self, name: str, value: str, life: float) -> tuple[str, str]:
        # Lax and not Strict: the way back from the upstream begins on another site
        secure = "" if self.engine.settings.loopback else "; Secure"
        return "Set-Cookie", f"{name}={value}; Path=/; Max-Age={life:.0f}; HttpOnly; SameSite=Lax{secure}"

    def _name(self, state: str, number: int) -> str:
        return f"{self._prefix}{digest(state)[:12]}-{number}"

    @property
    def _prefix(self) -> str:
        return f"{'' if self.engine.settings.loopback else '__Host-'}dragoman-up-"

    def _forgetting_cookies(self, headers: Mapping[str, str]) -> Iterator[tuple[str, str]]:
        """Return the lines that end the oldest logins of a browser that has begun too many."""
        held = [name for name in cookies(headers) if name.startswith(self._prefix)]
        # RFC 6265, 5.4: "cookies with earlier creation-times are listed before cookies with later creation-times"
        logins = list(dict.fromkeys(name.rpartition("-")[0] for name in held))
        old = logins[: max(0, len(logins) + 1 - LOGINS)]
        return (self._cookie(name, "", 0) for name in held if name.rpartition("-")[0] in old)

    async def callback(self, request: EndpointRequest) -> EndpointResponse:
        """GET of the redirect URI that the upstream knows."""
        engine = self.engine
        try:
            state = of_query(request.query).need("state")
        except OAuthError as error:
            return error_page(error.description)
        held = cookies(request.headers)
        names = [name for number in range(PIECES) if (name := self._name(state, number)) in held]
        waiting = self._read_waiting(state, "".join(held[name] for name in names))
        if waiting is None:
            why = "This browser did not begin this login, or it is too old, or was finished already"
            return error_page(f"{why}; start again where you came from", status=403)
        client = await engine.clients.find(waiting.pending.client, request.owner)
        if client is None:
            return error_page("The client is gone")
        made = await self._finish(engine.authorization, waiting, client, request.query)
        # what was tried once is not tried again
        return structs.replace(made, headers=(*made.headers, *(self._cookie(name, "", 0) for name in names)))

    def _read_waiting(self, state: str, text: str) -> Waiting | None:
        """Return the login of this state in a browser's cookies; None if it is not there, or its time is over."""
        try:
            sealed = decode_base64url(text.encode())
        except ValueError:  # also of UnicodeEncodeError
            return None
        document = self._sealer.open(sealed, _seal_context(state))
        if document is None:
            return None
        waiting = msgspec.msgpack.decode(document, type=Waiting)
        return waiting if waiting.until > self.engine.clock() else None

    async def _finish(
        self, authorization: Authorization, waiting: Waiting, client: Client, query: str
    ) -> EndpointResponse:
        pending = waiting.pending
        try:
            approved, scopes = await self._approve(waiting, query)
            pending = structs.replace(pending, scopes=scopes)
            return await authorization.answer_client(pending, client, approved)
        except OAuthError as error:
            known = (
                error
                if error.error in _TOLD_TO_CLIENTS
                else OAuthError("server_error", "The login at the issuer failed")
            )
        except (AuthError, OSError):
            known = OAuthError("temporarily_unavailable", "The issuer behind this server is away")
        return authorization.fail(pending, known)

    async def _approve(self, waiting: Waiting, query: str) -> tuple[Approved, tuple[str, ...]]:
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
        said: Any = self._admit(user)
        said = await said if isawaitable(said) else said
        if said is True:
            return scopes
        allowed = frozenset(said) if said else frozenset()
        if not allowed:
            raise oauth_error("access_denied", "This user may not use this server")
        return tuple(each for each in scopes if each in allowed)


def _seal_context(state: str) -> bytes:
    """Return what a sealed login is bound to."""
    return b"upstream login " + state.encode("utf-8", "replace")


_TOLD_TO_CLIENTS = frozenset({"access_denied", "temporarily_unavailable"})
