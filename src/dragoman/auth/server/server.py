"""An authorization server for development and tests, as an object for `serve(server, urls=...)`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ...jsonrpc.errors import LocalError
from ..engine.clients import secret_hash as secret_hash
from ..engine.engine import AuthorizationEngine
from ..engine.engine import check_issuer as check_issuer
from ..engine.model import Client as Client
from ..engine.model import Lives as Lives
from ..engine.model import Settings
from ..engine.model import TrustedIssuer as TrustedIssuer
from ..engine.model import User as User
from ..engine.published import Fetch, fetch_for
from ..engine.served import ServedEngine
from ..jose import Key
from .accounts import LocalUsers

NOTICE = "An authorization server for trying, with test users and keys of this run. It is not for production."


class AuthorizationServer(ServedEngine):
    """An OAuth 2.1 authorization server with users of its own, for development and tests: it stores everything in
    memory. Serve it at its issuer: `await serve(AuthorizationServer("http://127.0.0.1:9000"),
    urls="http://127.0.0.1:9000")`.

    `issuer`: its URL; LocalError for plain HTTP off loopback. `users`: who may log in; none given: alice and bob,
    without passwords. `automatic`: the name of a user who agrees to everything without a page. `clients`: those that it
    knows; others are named by the URL of their metadata document (`documents`), or register (`registration`). `scopes`:
    those that exist; empty: any. `resources`: those for which it issues tokens; empty: any. `trusted`: issuers whose
    assertions are grants. `keys`: private keys for tokens; empty: a new ES256 key. `fetch`: gets clients' documents;
    None: from public addresses, and from loopback where the issuer is there. `clock`: Unix time in seconds.
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
            fetch=fetch or fetch_for(issuer),
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
        """Return an access token without a login, for tests. `scopes`: a list, or text with spaces; `resource`: its
        audience; `life`: seconds, negative for one that has expired; `claims`: added, in place of its own of the same
        name."""
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
