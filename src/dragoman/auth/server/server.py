"""An authorization server for development and tests, as something that is served: `serve(server, urls=...)`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ...jsonrpc.errors import LocalError
from ...routes import Route, RouteExchange
from ...transports.http.alone import HttpAlone
from ..jose import Key
from .accounts import LocalUsers
from .clients import Fetch
from .engine import AuthorizationEngine
from .fetching import fetched_for
from .messages import Request
from .model import Client, Lives, Settings, TrustedIssuer, User

NOTICE = "An authorization server for trying, with test users and keys of this run. It is not for production."


class HttpFace(HttpAlone):
    """Serves the endpoints of an engine over HTTP."""

    def __init__(self, name: str, engine: AuthorizationEngine) -> None:
        super().__init__(name, "This is an authorization server: it answers HTTP alone")
        self.engine: AuthorizationEngine = engine
        """What answers its requests."""

    def http_routes(self) -> Sequence[Route]:
        """The endpoints, at paths from the root on: the issuer's own path counts. A guard is not asked about them."""
        return [
            Route(path, (*methods, "HEAD") if "GET" in methods else tuple(methods), True, self._take)
            for path, methods in self.engine.paths().items()
        ]

    def _take(self, x: RouteExchange) -> None:
        refusal = self.call_limit.enter()
        if refusal is not None:
            x.respond(503, (("Retry-After", "1"),), b"")
            return
        self._begin(self._answer(x)).add_done_callback(lambda _: self.call_limit.leave())

    async def _answer(self, x: RouteExchange) -> None:
        asked = x.request
        made = await self.engine.answer(
            Request(
                method=asked.method,
                path=asked.path,
                query=asked.query,
                headers=asked.headers,
                body=asked.body,
                remote=x.caller.remote,
            )
        )
        x.respond(made.status, made.headers, made.body)


class AuthorizationServer(HttpFace):
    """An OAuth 2.1 authorization server with users of its own, for development and tests: everything that it knows ends
    with the process. Serve it at its issuer: `await serve(AuthorizationServer("http://127.0.0.1:9000"),
    urls="http://127.0.0.1:9000")`.

    `issuer`: its URL; LocalError for plain HTTP off loopback. `users`: who may log in; none given: alice and bob,
    without passwords. `automatic`: the name of a user who agrees to everything without a page. `clients`: those that it
    knows; others come by the URL of their metadata document (`documents`) or, by choice, by `registration`. `scopes`:
    those there are; empty: any. `resources`: for which it issues tokens; empty: any. `trusted`: issuers whose
    assertions are grants. `keys`: private keys for tokens; none given: a new ES256 key. `fetch`: gets clients'
    documents; None: from public addresses, and from loopback where the issuer is there. `clock`: Unix time in seconds.
    """

    def __init__(
        self,
        issuer: str,
        *,
        users: Sequence[User] = (),
        automatic: str | None = None,
        clients: Iterable[Client] = (),
        scopes: Iterable[str] = (),
        default_scopes: Iterable[str] = (),
        resources: Iterable[str] = (),
        registration: bool = False,
        documents: bool = True,
        dpop_nonce: bool = False,
        trusted: Sequence[TrustedIssuer] = (),
        lives: Lives | None = None,
        keys: Sequence[Key] = (),
        fetch: Fetch | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        known = tuple(users) or (User(name="alice"), User(name="bob"))
        if automatic is not None and automatic not in {one.name for one in known}:
            raise LocalError(f"automatic={automatic!r} is none of the users {', '.join(one.name for one in known)}")
        settings = Settings(
            issuer=issuer,
            scopes=tuple(scopes) or None,
            default_scopes=tuple(default_scopes),
            resources=tuple(resources),
            registration=registration,
            documents=documents,
            dpop_nonce=dpop_nonce,
            trusted=tuple(trusted),
            lives=lives or Lives(),
            notice=NOTICE,
        )
        engine = AuthorizationEngine(
            settings,
            LocalUsers(known, automatic, clock),
            clients=clients,
            keys=keys,
            fetch=fetch or fetched_for(issuer),
            clock=clock,
        )
        super().__init__("authorization", engine)
        self.users = known

    def token(
        self,
        subject: str = "alice",
        *,
        scopes: Iterable[str] | str = (),
        resource: str | Sequence[str] = (),
        client: str = "test",
        life: float | None = None,
        claims: Mapping[str, Any] | None = None,
    ) -> str:
        """An access token without a login, for tests. `scopes`: a list, or text with spaces; `resource`: its audience;
        `life`: seconds, negative for one that has expired; `claims`: added, or in place of its own."""
        settings = self.engine.settings
        named = (resource,) if isinstance(resource, str) and resource else tuple(resource)
        return self.engine.mint.access(
            subject=subject,
            client=client,
            audience=named or settings.resources[:1] or (settings.issuer,),
            scopes=scopes.split() if isinstance(scopes, str) else tuple(scopes),
            life=settings.lives.access if life is None else life,
            claims=claims,
        )
