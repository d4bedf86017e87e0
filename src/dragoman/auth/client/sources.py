"""What a client's `auth=` may be: `Login`, `ClientCredentials`, `Enterprise`, `Workload`. Each is a source of tokens,
and makes an `Authorizer` for a URL."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from ...jsonrpc.errors import LocalError, needs
from ...jsonrpc.options import CALLABLE, FLAG, NAME, NONE, TEXT, TEXTS, TIME, Rule, check, one_of, whole
from ...secret import holds_secret
from ..fetch import Fetcher
from .authorizer import Authorizer, Obtain
from .discovery import DiscoveryOptions
from .login import Terms, TokenRequest, login
from .machine import Idp, by_credentials, by_enterprise, by_workload
from .person import LOGIN_TIMEOUT, OnUrl, Person
from .registration import ClientOptions
from .store import TokenStore
from .store.memory import MemoryStore
from .tokens import Grant
from .world import World, call

if TYPE_CHECKING:
    from ssl import SSLContext

    from ..jose import Key
    from .identity import IdentityProvider
else:
    SSLContext = Key = IdentityProvider = Any  # start-up: annotations resolve at run time, to no more than this

LOGIN_MARGIN: Final = 60.0
"""Seconds beyond a person's `timeout` to wait for the login of another process: its requests take time, too."""

Resource: TypeAlias = str | UnsetType | None
Text: TypeAlias = str | Callable[[], str | Awaitable[str]]

_STORE: Final = Rule(lambda value: hasattr(value, "write") and hasattr(value, "locked"), "a store, as FileStore()")
_COMMON: Final = {
    "issuer": NAME | NONE,
    "resource": TEXT | NONE | Rule(lambda value: value is UNSET, "left out"),
    "scopes": TEXT | TEXTS | NONE,
    "account": NAME,
    "dpop": FLAG,
    "store": _STORE | NONE,
    "allow_private": TEXTS,
    "environment_proxies": FLAG,
}
_LOGIN: Final = _COMMON | {
    "client_id": NAME | NONE,
    "client_secret": TEXT | NONE,
    "client_metadata_url": NAME | NONE,
    "client_name": NAME,
    "redirect_port": whole(0),
    "redirect_host": one_of("127.0.0.1", "localhost"),
    "device": FLAG,
    "pkce": one_of("required", "assume"),
    "interactive": FLAG,
    "on_url": CALLABLE | NONE,
    "browser": FLAG,
    "timeout": TIME,
}


class _SourceOptions(Struct, frozen=True, kw_only=True):
    """The options that all four sources have, as the user gave them."""

    issuer: str | None
    resource: Resource
    scopes: str | Iterable[str] | None
    dpop: bool
    account: str
    store: TokenStore | None
    allow_private: Collection[str]
    environment_proxies: bool

    def terms(self, client: ClientOptions) -> Terms:
        """Return these options in the form that the flows use."""
        scopes = self.scopes.split() if isinstance(self.scopes, str) else self.scopes
        return Terms(
            wanted=DiscoveryOptions(issuer=self.issuer, resource=self.resource),
            client=client,
            scopes=None if scopes is None else tuple(dict.fromkeys(scopes)),
            account=self.account,
            private=tuple(dict.fromkeys(host.lower() for host in self.allow_private)),
            dpop=self.dpop,
        )

    def world(
        self,
        url: str,
        tls: SSLContext | None,
        store: TokenStore,
        person: Person | None = None,
        needed: str | None = None,
    ) -> World:
        """Return the world of the flows for a URL."""
        fetcher = Fetcher(allow_private=self.allow_private, environment_proxies=self.environment_proxies, tls=tls)
        return World(url, fetcher, store, person, needed=needed)


_SHARED: Final = _SourceOptions.__struct_fields__


def _options(given: Mapping[str, Any]) -> _SourceOptions:
    """Return the shared options among a constructor's `locals()`, which were checked."""
    return _SourceOptions(**{name: given[name] for name in _SHARED})


class _MachineSource:
    """What the three sources for programs share: their terms, their store, and how they make an `Authorizer`."""

    def __init__(self, client: ClientOptions, options: _SourceOptions) -> None:
        self.terms = options.terms(client)
        self.store: TokenStore = MemoryStore() if options.store is None else options.store
        self._options = options

    def authorizer(
        self,
        url: str,
        tls: SSLContext | None,
        obtain: Obtain,
        key: Key | None,
        read: Callable[[], Any] | None = None,
        provider: IdentityProvider | None = None,
    ) -> Authorizer:
        """Return the authorization of requests to `url`. `read`, or `provider`: returns the assertion to exchange
        (`TokenRequest.text`), before each flow; neither: there is none."""
        given = None if read is None else lambda _: call(read)
        return Authorizer(
            url,
            obtain,
            self._options.world(url, tls, self.store),
            self.store,
            account=self.terms.account,
            hint=self.terms.client.hint,
            key=key,
            read=given if provider is None else provider.id_token,
            closing=None if provider is None else provider.close,
        )


@holds_secret
class Login:
    """`auth=Login()`: a person logs in, once; the tokens are kept and renewed.

    `issuer`: the only authorization server to use. `resource`: the `resource` to ask for, where the server wants
    another than its own metadata says; None: none (Entra refuses it). `scopes`: instead of those that the server asks
    for. `client_id`, `client_secret`: of a client registered by hand. `client_metadata_url`: the client id metadata
    document that you host. `redirect_port`, `redirect_host`: of the listener, where the registration wants them so.
    `device`: by a code on another device. `pkce`: "assume" for servers that do S256 without saying so (Entra, Cognito).
    `dpop`: bind tokens to a key. `account`: separates several logins at one server. `store`: by default files of this
    user. `interactive`: False: no one is there, so LoginNeeded is raised. `on_url`: called with the URL instead of
    opening a browser. `timeout`: seconds for the person. `allow_private`: hosts in private networks that documents may
    name; those of the issuer are kept with the login, for its renewals. `environment_proxies`: use HTTPS_PROXY.
    """

    def __init__(
        self,
        *,
        issuer: str | None = None,
        resource: Resource = UNSET,
        scopes: str | Iterable[str] | None = None,
        client_id: str | None = None,
        client_secret: str | None = None,
        client_metadata_url: str | None = None,
        client_name: str = "dragoman",
        redirect_port: int = 0,
        redirect_host: Literal["127.0.0.1", "localhost"] = "127.0.0.1",
        device: bool = False,
        pkce: Literal["required", "assume"] = "required",
        dpop: bool = False,
        account: str = "default",
        store: TokenStore | None = None,
        interactive: bool = True,
        on_url: OnUrl | None = None,
        browser: bool = True,
        timeout: float = LOGIN_TIMEOUT,
        allow_private: Collection[str] = (),
        environment_proxies: bool = False,
    ) -> None:
        check("Login", _LOGIN, locals())
        if client_metadata_url is not None and not client_metadata_url.startswith("https://"):
            raise LocalError("Login: client_metadata_url is an https URL, for its text is the client's id")
        self.store: TokenStore = _default_store() if store is None else store
        client = ClientOptions(
            client_id=client_id, client_secret=client_secret, metadata_url=client_metadata_url, name=client_name
        )
        self._options = _options(locals())
        self.terms: Terms = replace(
            self._options.terms(client),
            redirect_port=redirect_port,
            redirect_host=redirect_host,
            assume_pkce=pkce == "assume",
            device=device,
        )
        """The options of the login."""
        self._interactive = interactive
        self._timeout = timeout
        self._person = partial(Person, on_url=on_url, browser=browser, timeout=timeout)

    def __repr__(self) -> str:
        return f"Login(account={self.terms.account!r})"

    def authorizing(self, url: str, tls: SSLContext | None = None) -> Authorizer:
        """Return the authorization of requests to `url`; for `Options.auth`."""
        person = self._person() if self._interactive else None
        world = self._options.world(url, tls, self.store, person)
        return Authorizer(
            url,
            lambda world, request: login(world, request, self.terms),
            world,
            self.store,
            account=self.terms.account,
            hint=self.terms.client.hint,
            login_wait=self._login_wait,
        )

    def check_at_idp(self) -> None:
        """Raise LocalError if an option is set that a login at an identity provider does not have."""
        terms = self.terms
        if terms.client.hint or terms.wanted != DiscoveryOptions() or terms.dpop or terms.device:
            raise LocalError(
                "Enterprise: a login at the identity provider has none of client_id, client_metadata_url, issuer, "
                "resource, dpop and device: its client is idp_client_id=, and its answer is bound to a nonce"
            )

    def at_idp(self, idp: Idp, tls: SSLContext | None = None) -> IdentityProvider:
        """Return this login, at an identity provider."""
        from .identity import IdentityProvider  # noqa: PLC0415  (joserfc, for those who log in there)

        needed = f"at {idp.issuer}, by a program that calls with this store and interactive=True"
        person = self._person() if self._interactive else None
        world = self._options.world(idp.issuer, tls, self.store, person, needed)
        return IdentityProvider(idp, self.terms, world, self.store, self._login_wait)

    @property
    def _login_wait(self) -> float | None:
        return self._timeout + LOGIN_MARGIN if self._interactive else None


@holds_secret
class ClientCredentials:
    """`auth=ClientCredentials(id, secret=...)` or `key=...`: a program with an account of its own.

    `key`: a private key (PEM text, or a `Key`), for `private_key_jwt`; its public part is registered at the server.
    `store`: by default this process's memory. The others: as of `Login`.
    """

    def __init__(
        self,
        client_id: str,
        *,
        secret: str | None = None,
        key: Key | str | bytes | None = None,
        issuer: str | None = None,
        resource: Resource = UNSET,
        scopes: str | Iterable[str] | None = None,
        dpop: bool = False,
        account: str = "default",
        store: TokenStore | None = None,
        allow_private: Collection[str] = (),
        environment_proxies: bool = False,
    ) -> None:
        check("ClientCredentials", _COMMON, locals())
        if (secret is None) == (key is None):
            raise LocalError("ClientCredentials: either secret= or key=, and one of them")
        self._machine = _MachineSource(ClientOptions(client_id=client_id, client_secret=secret), _options(locals()))
        self._key = _key(key)

    def __repr__(self) -> str:
        return f"ClientCredentials({self._machine.terms.client.client_id!r})"

    def authorizing(self, url: str, tls: SSLContext | None = None) -> Authorizer:
        """Return the authorization of requests to `url`; for `Options.auth`."""
        terms, key = self._machine.terms, self._key
        return self._machine.authorizer(
            url, tls, lambda world, request: by_credentials(world, request, terms, key), key
        )


@holds_secret
class Workload:
    """`auth=Workload(file, client_id=...)`: the identity that a platform gives to a program, such as the service
    account token of Kubernetes or the token of a CI, exchanged for one of the resource (RFC 7523).

    `source`: the path of the file, read anew each time because platforms rotate it, or a function that gives the JWT.
    """

    def __init__(
        self,
        source: str | os.PathLike[str] | Callable[[], str | Awaitable[str]],
        *,
        client_id: str,
        issuer: str | None = None,
        resource: Resource = UNSET,
        scopes: str | Iterable[str] | None = None,
        dpop: bool = False,
        account: str = "default",
        store: TokenStore | None = None,
        allow_private: Collection[str] = (),
        environment_proxies: bool = False,
    ) -> None:
        check("Workload", _COMMON, locals())
        self._machine = _MachineSource(ClientOptions(client_id=client_id), _options(locals()))
        self._source = source

    def __repr__(self) -> str:
        return f"Workload({self._machine.terms.client.client_id!r})"

    def authorizing(self, url: str, tls: SSLContext | None = None) -> Authorizer:
        """Return the authorization of requests to `url`; for `Options.auth`."""
        source, terms = self._source, self._machine.terms
        read = source if callable(source) else lambda: asyncio.to_thread(_content, Path(source))
        return self._machine.authorizer(
            url, tls, lambda world, request: by_workload(world, request, terms, request.text), None, read
        )


@holds_secret
class Enterprise:
    """`auth=Enterprise(idp=..., ...)`: enterprise-managed authorization: the company's identity provider says who the
    user is and what they may use, and no server shows a page of its own.

    `idp`: its issuer. `login`: how the user logs in there, once for all servers (OpenID Connect); None: `Login()`; of
    its options those of the person and the store count, and `scopes` beside `openid`. `id_token`: instead of a login,
    the user's ID token, or a function that gives it. `idp_client_id`, `idp_client_secret`: this client there;
    `client_id`, `client_secret`: at the resource's authorization server. `idp_token_endpoint`: None: as the provider's
    metadata says. The others: as of `Login`. Raises LocalError for a login that cannot be one at a provider.
    """

    def __init__(
        self,
        *,
        idp: str,
        idp_client_id: str,
        client_id: str,
        id_token: Text | None = None,
        login: Login | None = None,
        idp_client_secret: str | None = None,
        client_secret: str | None = None,
        idp_token_endpoint: str | None = None,
        issuer: str | None = None,
        resource: Resource = UNSET,
        scopes: str | Iterable[str] | None = None,
        dpop: bool = False,
        account: str = "default",
        store: TokenStore | None = None,
        allow_private: Collection[str] = (),
        environment_proxies: bool = False,
    ) -> None:
        check("Enterprise", _COMMON, locals())
        self._machine = _MachineSource(
            ClientOptions(client_id=client_id, client_secret=client_secret), _options(locals())
        )
        self._idp = Idp(
            issuer=idp, token_endpoint=idp_token_endpoint, client_id=idp_client_id, client_secret=idp_client_secret
        )
        if id_token is not None and login is not None:
            raise LocalError("Enterprise: either id_token= or login=: a login gets the ID token by itself")
        self._id_token = id_token
        self._login = None if id_token is not None else Login() if login is None else login
        if self._login is not None:
            self._login.check_at_idp()

    def __repr__(self) -> str:
        return f"Enterprise({self._idp.issuer!r})"

    def authorizing(self, url: str, tls: SSLContext | None = None) -> Authorizer:
        """Return the authorization of requests to `url`; for `Options.auth`."""
        given, terms, idp = self._id_token, self._machine.terms, self._idp

        async def flow(world: World, request: TokenRequest) -> Grant:
            return await by_enterprise(world, request, terms, idp, request.text)

        if self._login is None:
            return self._machine.authorizer(url, tls, flow, None, given if callable(given) else lambda: given)
        return self._machine.authorizer(url, tls, flow, None, provider=self._login.at_idp(idp, tls))


def _default_store() -> TokenStore:
    """Return the store of a user's logins. Raises LocalError where the extra `auth` is not installed."""
    try:
        from .store.files import FileStore  # noqa: PLC0415  (cryptography, for those who log in)
    except ImportError:
        raise needs("A login that outlives its process", "cryptography", "auth") from None
    return FileStore()


def _key(given: Key | str | bytes | None) -> Key | None:
    if isinstance(given, str | bytes):
        from ..jose import Key  # noqa: PLC0415  (joserfc, for those who sign)

        return Key.from_pem(given)
    return given


def _content(path: Path) -> str:
    """Return the JWT in a file. Raises LocalError."""
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise LocalError(f"Workload: {path} cannot be read: {error}") from error
