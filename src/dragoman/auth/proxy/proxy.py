"""The proxy: an authorization server of our own before an issuer at which clients cannot register.

It is for production: its tokens are short-lived and for one resource, the upstream's are stored encrypted and never
sent to a client, its key and store come from configuration, and without them it refuses to serve from several
processes.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final
from urllib.parse import urlsplit

import msgspec

from ...channel import Identity
from ...jsonrpc.errors import LocalError
from ...jsonrpc.limits import SERVER
from ...jsonrpc.options import CALLABLE, FLAG, NAME, NONE, TEXTS, check, instance, many
from ...repeats import Repeats
from ...secret import holds_secret
from ...store.contract import Engine
from ...store.memory import InMemoryStore
from ...store.opening import SharesValues, open_store
from ..client.tokens import Tokens
from ..engine.engine import AuthorizationEngine
from ..engine.messages import EndpointRequest, oauth_error
from ..engine.model import Client, Lives, Settings, TokenFamily
from ..engine.published import fetch_for
from ..engine.records import OWNERS, TOTAL
from ..engine.served import ServedEngine
from ..errors import AuthError, IssuerAway, OAuthError
from ..fetch import Fetched, Fetcher
from ..fetching import Fetches
from ..keys import SingleFlight
from ..tokens import Issuer
from .consent import Admit, UpstreamLogin
from .secrets import AesSealer, check_secrets, derive, signing_key
from .upstream import Upstream, UpstreamClient, upstream_of

log: logging.Logger = logging.getLogger("dragoman.auth.proxy")
repeats: Repeats = Repeats(log)

SOON = 60.0
"""Seconds before its expiry from which on an upstream's token is renewed."""
RENEWING = 15.0
"""Seconds for which one replica renews a token alone."""


@holds_secret
class Proxy(ServedEngine):
    """Lets clients log in here that cannot register at the real issuer. It is given to `Bearer`, and served beside what
    that protects:

        proxy = Proxy("https://notes.example", client_id=..., client_secret=..., key=..., store="sqlite:grants.db")
        server = Server("notes", auth=Bearer("https://accounts.google.com", resource=..., proxy=proxy))
        await serve({"/mcp": server, "/login": proxy}, urls=...)

    Its endpoints are at `url`, its redirect URI at the upstream is `url` + "/callback". `client_id` and
    `client_secret`: this server's at the upstream. `upstream`: an `Upstream` such as GITHUB, where the issuer of
    `Bearer` has no metadata. `scopes`: those of this server that clients may get, no others. `admit`: called with the
    upstream's claims about a user, returns whether the user may log in, or the scopes that the user may have; None:
    everybody who can log in at the upstream may, with all of `scopes`. `upstream_scopes`: requested at the upstream.
    `key`: 32 secret bytes or more, or several, the present one first. `store`: "sqlite:PATH", "bus", "memory:" or an
    engine. Without `key` and `store` all logins end with the process, and several processes are refused. `clients`:
    those known besides the ones that register or have a document. `http`: a `Fetcher` for requests to the upstream.
    `clock`: Unix time in seconds. Raises LocalError for options that cannot be right.
    """

    def __init__(
        self,
        url: str,
        *,
        client_id: str,
        client_secret: str,
        upstream: Upstream | None = None,
        scopes: Iterable[str] = (),
        upstream_scopes: Iterable[str] = (),
        admit: Admit | None = None,
        key: bytes | Sequence[bytes] | None = None,
        store: str | Engine | None = None,
        clients: Iterable[Client] = (),
        registration: bool = True,
        documents: bool = True,
        lives: Lives | None = None,
        http: Fetches | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if not client_id or not client_secret:
            raise LocalError("Proxy: client_id and client_secret are this server's at the issuer behind it")
        check("Proxy", _RULES, locals())
        self._given = key is not None and store is not None
        secrets = (os.urandom(32),) if key is None else check_secrets(key)
        self._store = store
        self._http = http
        self._upstream, self._upstream_scopes = upstream, tuple(upstream_scopes)
        self._bus: SharesValues | None = None
        self._started = 0
        self._flights: dict[tuple[str, bool], SingleFlight] = {}
        self._client = UpstreamClient(
            upstream or Upstream(issuer=url), client_id, client_secret, f"{url}/callback", self._fetcher, clock
        )
        sealer = AesSealer(secrets)
        approver = UpstreamLogin(self._client, admit, sealer)
        settings = Settings(
            issuer=url, scopes=tuple(scopes), registration=registration, documents=documents, keeps=False
        )
        engine = AuthorizationEngine(
            msgspec.structs.replace(settings, lives=lives or Lives()),
            approver,
            clients=clients,
            keys=[signing_key(one) for one in secrets],
            store=InMemoryStore(OWNERS, TOTAL, clock) if store is None or isinstance(store, str) else store,
            secret=[derive(one, "signer") for one in secrets],
            sealer=sealer,
            fetch=fetch_for(url),
            renew=self._renew,
            clock=clock,
        )
        super().__init__("login", engine)
        approver.serve(engine)

    def __repr__(self) -> str:
        return f"<Proxy {self.engine.settings.issuer} before {self._client.upstream.issuer}>"

    def _fetcher(self) -> Fetches:
        if self._http is None:
            self._http = Fetcher()
        return self._http

    # -- for `Bearer`

    def before(self, issuer: str | Issuer | Sequence[str | Issuer], resource: str) -> tuple[str, OwnDocuments]:
        """Be the proxy before this issuer, for this resource. Return the issuer of our own tokens, and a fetcher of its
        metadata and keys. Raises LocalError for a second resource, and for what is not an issuer."""
        settings = self.engine.settings
        if settings.resources and settings.resources != (resource,):
            raise LocalError(f"Proxy: it stands before {settings.resources[0]} already; make another one")
        upstream = self._upstream or upstream_of(issuer)
        self._client.upstream = (
            msgspec.structs.replace(upstream, scopes=self._upstream_scopes) if self._upstream_scopes else upstream
        )
        self.engine.settings = msgspec.structs.replace(settings, resources=(resource,))
        return settings.issuer, OwnDocuments(self.engine)

    async def upstream_token(self, identity: Identity) -> str:
        """Return a caller's access token at the upstream, for calls to its APIs. Raises LocalError for an identity of
        another issuer, AuthError where the login has ended, IssuerAway where the token cannot be renewed now."""
        if identity.issuer != self.engine.settings.issuer:
            raise LocalError("Proxy.upstream_token: this caller logged in elsewhere")
        family = str(identity.claims.get("jti", "")).partition(".")[0]
        try:
            return (await self._current_tokens(family, asks=False)).access_token
        except OAuthError as error:
            if error.status == 503:
                raise IssuerAway(error.description, 5) from None
            raise AuthError(error.description) from None

    # -- the tokens of the upstream

    async def _renew(self, family: str, grant: TokenFamily) -> None:
        """Renew the upstream's tokens of one of our grants, before that is refreshed. Raises OAuthError, and ends the
        grant where the login at the upstream has ended."""
        tokens = await self._current_tokens(family, asks=True)
        records, life = self.engine.records, self.engine.settings.lives.refresh
        await records.put("upstream", family, tokens, min(life, grant.ends - records.clock()) if grant.ends else life)

    async def _current_tokens(self, family: str, *, asks: bool) -> Tokens:
        """Return the upstream's tokens of a grant, renewed if they expire soon. `asks`: whether tokens whose expiry is
        not known are renewed, or checked at the upstream, too. Raises OAuthError."""
        key = (family, asks)
        flight = self._flights.setdefault(key, SingleFlight(lambda: self._load_tokens(family, asks)))
        found: Tokens = await flight.join()
        return found

    async def _load_tokens(self, family: str, asks: bool) -> Tokens:
        records = self.engine.records
        try:
            tokens, due = await self._stored_tokens(family, asks)
            # its refresh token may be valid for one use only: of several replicas one uses it
            if not due or not await records.first("renewing", family, RENEWING):
                return tokens
            try:
                tokens, due = await self._stored_tokens(family, asks)  # another one may have done so just now
                return await self._renew_tokens(family, tokens) if due else tokens
            finally:
                await records.take("renewing", family, bool)
        finally:
            self._flights.pop((family, asks), None)

    async def _stored_tokens(self, family: str, asks: bool) -> tuple[Tokens, bool]:
        """Return the tokens in the store, and whether they are to be renewed or checked at the upstream. Raises
        OAuthError where the login has ended."""
        records = self.engine.records
        tokens = await records.get("upstream", family, Tokens)
        if tokens is None:
            raise oauth_error("invalid_grant", "The login has ended")
        ends, now = tokens.expires_at, records.clock()
        if ends is None:
            return tokens, asks
        if tokens.refresh_token is None and ends <= now:
            await self.engine.families.end(family)
            raise oauth_error("invalid_grant", "The login at the issuer has ended")
        return tokens, ends <= now + SOON and tokens.refresh_token is not None

    async def _renew_tokens(self, family: str, tokens: Tokens) -> Tokens:
        records = self.engine.records
        try:
            if tokens.refresh_token is None:
                made = tokens if await self._client.accepts(tokens) else None
            else:
                made = await self._client.renew(tokens)
        except (AuthError, OSError) as error:
            repeats.warning(
                "%s: a login cannot be renewed at the issuer behind it now: %s", self.engine.settings.issuer, error
            )
            raise oauth_error("temporarily_unavailable", "The issuer behind this server is away", 503) from None
        if made is None:
            await self.engine.families.end(family)
            raise oauth_error("invalid_grant", "The login at the issuer has ended")
        if made is not tokens:
            await records.put("upstream", family, made, self.engine.settings.lives.refresh)
        return made

    # -- start and stop

    async def join(self, bus: SharesValues) -> None:
        """Serve together with other processes, over their bus. Raises LocalError without `key` and a shared store."""
        if not self._given or self._store == "memory:":
            raise LocalError(
                "Proxy: several processes serve it, so it needs key= and a store= that they share, "
                "such as sqlite:PATH or bus"
            )
        self._bus = bus

    async def start(self) -> None:
        """Open the store. Raises LocalError where no `Bearer` has this proxy."""
        if not self.engine.settings.resources:
            raise LocalError("Proxy: nothing is behind it; give it to Bearer(issuer, resource=..., proxy=proxy)")
        self._started += 1
        if self._started > 1:
            return
        if not self._given:
            log.warning("%s: without key= and store= all logins end with this process", self.engine.settings.issuer)
        if isinstance(self._store, str):
            limits = SERVER.but(store_owners=OWNERS * 10, store_total=TOTAL * 4)
            self.engine.records.engine = open_store(self._store, limits, self._bus)

    async def stop(self) -> None:
        """Close the store, if it was opened here."""
        self._started = max(0, self._started - 1)
        if not self._started and isinstance(self._store, str):
            await self.engine.records.engine.close()


_RULES: Final = {
    "url": NAME,
    "client_id": NAME,
    "client_secret": NAME,
    "upstream": instance(Upstream, 'an Upstream such as GITHUB, or Upstream(issuer="https://...")') | NONE,
    "scopes": TEXTS,
    "upstream_scopes": TEXTS,
    "admit": CALLABLE | NONE,
    "store": NAME | instance(Engine, "an engine of a store") | NONE,
    "clients": many(instance(Client, "a Client")),
    "registration": FLAG,
    "documents": FLAG,
    "lives": instance(Lives, "a Lives") | NONE,
    "clock": CALLABLE,
}


class OwnDocuments:
    """A fetcher of the metadata and keys of the proxy's own issuer, without a request over a wire."""

    def __init__(self, engine: AuthorizationEngine) -> None:
        self._engine = engine

    async def get(self, url: str, *, by: object = None, origin: str | None = None, headers: object = None) -> Fetched:
        """Return the document at a URL of ours; 404 for any other."""
        parts = urlsplit(url)
        if f"{parts.scheme}://{parts.netloc}" != "/".join(self._engine.settings.issuer.split("/")[:3]):
            return Fetched(404, {}, b"")
        made = await self._engine.answer(EndpointRequest(method="GET", path=parts.path))
        return Fetched(made.status, {name.lower(): value for name, value in made.headers}, made.body, url)

    async def post_form(
        self, url: str, form: object, *, by: object = None, origin: str | None = None, headers: object = None
    ) -> Fetched:
        """Raise AuthError: nothing is posted to our own issuer."""
        raise AuthError("the tokens of a Proxy are not exchanged: it has upstream_token")

    async def post_json(
        self, url: str, content: object, *, by: object = None, origin: str | None = None, headers: object = None
    ) -> Fetched:
        """Raise AuthError: nothing is posted to our own issuer."""
        return await self.post_form(url, content)
