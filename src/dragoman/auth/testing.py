"""An authorization server for tests of servers and clients: in this process, at an address of its own.

    with LocalIssuer(resources=["http://127.0.0.1:8000/mcp"]) as issuer:
        token = issuer.token("alice", scopes="notes:read")

It runs in a thread of its own, so it serves plain tests and coroutines alike. The test can advance its clock.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from types import TracebackType
from typing import Any, TypedDict, Unpack

from ..doors import public_dir
from ..jsonrpc.errors import LocalError
from .engine.clients import secret_hash
from .engine.model import Client, Lives, Method, TrustedIssuer, User
from .engine.published import Fetch
from .jose import ASYMMETRIC, Key, parse_jws
from .server.server import AuthorizationServer

__all__ = ["IssuerClock", "LocalIssuer"]
__dir__: Callable[[], list[str]] = public_dir(__name__)

_START = 30.0
"""Seconds for the server to start or stop; it takes milliseconds."""


class IssuerClock:
    """Unix time in seconds, which a test moves: codes, refresh tokens and devices' codes expire by it. The times in
    access tokens are its own, so after a negative `advance` they are old for a resource server with another clock."""

    def __init__(self) -> None:
        self._moved = 0.0

    def __call__(self) -> float:
        return time.time() + self._moved

    def advance(self, seconds: float) -> None:
        """Move the clock on, or back."""
        self._moved += seconds


class IssuerOptions(TypedDict, total=False):
    """The options of `AuthorizationServer`, which describes them."""

    users: Sequence[User]
    automatic: str | None
    clients: Iterable[Client]
    scopes: Iterable[str]
    default_scopes: Iterable[str]
    resources: Iterable[str]
    registration: bool
    documents: bool
    dpop_nonce: bool
    trusted: Sequence[TrustedIssuer]
    lives: Lives | None
    keys: Sequence[Key]
    fetch: Fetch | None
    clock: Callable[[], float]


class ClientFields(TypedDict, total=False):
    """The fields of `auth.server.Client`, which describes them, except its id."""

    name: str
    redirect_uris: tuple[str, ...]
    method: Method
    secret_hash: str
    keys: Mapping[str, Any] | None
    keys_url: str
    grants: tuple[str, ...]
    scopes: tuple[str, ...] | None
    resources: tuple[str, ...] | None
    dpop: bool
    document: bool


class LocalIssuer:
    """An `AuthorizationServer` on loopback for a `with` block. `url` is its issuer. `options`: those of
    `AuthorizationServer`; here `registration` is on and `automatic` is "alice", so that a login needs no browser;
    automatic=None shows the pages. `path`: that of the issuer, such as "/tenant".

    Raises LocalError where it cannot start.
    """

    def __init__(self, *, path: str = "", **options: Unpack[IssuerOptions]) -> None:
        self.clock: IssuerClock = IssuerClock()
        """The server's clock, which a test can advance."""
        given: dict[str, Any] = {"registration": True, "automatic": "alice", "clock": self.clock, **options}
        self._path = path
        self.server: AuthorizationServer = AuthorizationServer(f"http://127.0.0.1:1{path}", **given)
        """The running authorization server."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._end: asyncio.Event | None = None
        self._thread: threading.Thread | None = None

    def __repr__(self) -> str:
        return f"<LocalIssuer {self.url}>"

    @property
    def url(self) -> str:
        """The issuer."""
        return self.server.engine.settings.issuer

    def __enter__(self) -> LocalIssuer:
        started = threading.Event()
        failed: list[BaseException] = []

        def run() -> None:
            try:
                asyncio.run(self._serve(started))
            except BaseException as error:
                failed.append(error)
            finally:
                started.set()

        self._thread = threading.Thread(target=run, name="dragoman-issuer", daemon=True)
        self._thread.start()
        if not started.wait(_START) or failed:
            raise LocalError(f"the authorization server does not start: {failed[0] if failed else 'no answer'}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._loop is not None and self._end is not None and self._thread is not None:
            self._loop.call_soon_threadsafe(self._end.set)
            self._thread.join(_START)

    async def _serve(self, started: threading.Event) -> None:
        # by its name, as every door: serving stands above authorization
        serve = import_module("dragoman.serving").serve
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        async with serve(self.server, urls="http://127.0.0.1:0", origins="*", cors=("*",)) as serving:
            self.server.engine.move_to(serving.urls[0].rstrip("/") + self._path)
            started.set()
            await self._end.wait()

    # -- tokens, clients and keys for tests

    def token(
        self,
        subject: str = "alice",
        *,
        scopes: Iterable[str] | str = (),
        resource: str | Sequence[str] = (),
        client: str = "test",
        life: float | None = None,
        claims: dict[str, Any] | None = None,
    ) -> str:
        """Return an access token without a login; the arguments of `AuthorizationServer.token`."""
        return self.server.token(subject, scopes=scopes, resource=resource, client=client, life=life, claims=claims)

    def expired(
        self,
        subject: str = "alice",
        *,
        scopes: Iterable[str] | str = (),
        resource: str | Sequence[str] = (),
        client: str = "test",
        life: float = -3_600.0,
        claims: dict[str, Any] | None = None,
    ) -> str:
        """Return a token that expired an hour ago; the arguments of `token`. `life`: negative seconds."""
        return self.token(subject, scopes=scopes, resource=resource, client=client, life=life, claims=claims)

    @staticmethod
    def claims(token: str) -> dict[str, Any]:
        """Return the claims of a token, without verifying its signature."""
        return parse_jws(token, ASYMMETRIC).claims()

    def client(self, id: str, secret: str = "", **fields: Unpack[ClientFields]) -> Client:
        """Add a client, and return it; with a secret it authenticates by HTTP Basic, unless `fields` say otherwise.
        `fields`: those of `Client`."""
        own: dict[str, Any] = {"method": "client_secret_basic", "secret_hash": secret_hash(secret)} if secret else {}
        made = Client(id=id, **{**own, **fields})
        self.server.engine.clients.add(made)
        return made

    def rotate_keys(self) -> None:
        """Sign with a new key from now on; tokens of the last keys stay valid."""
        self.server.engine.keys.rotate()

    def revoke_all(self, refresh_token: str) -> None:
        """End the grant of a refresh token, as if its user had revoked it. Raises LocalError for a token of another
        server, and outside of the `with` block."""
        engine = self.server.engine
        named = engine.families.read(refresh_token)
        if named is None:
            raise LocalError("this refresh token was not issued here")
        if self._loop is None:
            raise LocalError("LocalIssuer: the server does not run; use it in a with block")
        asyncio.run_coroutine_threadsafe(engine.families.end(named[0]), self._loop).result(_START)
