"""A user whom a company's identity provider vouches for: the login there, its ID token, and both legs of ID-JAG."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import msgspec
import pytest

import dragoman
from dragoman import LocalError
from dragoman.auth import AuthorizationFailed, Enterprise, FileStore, Login, LoginNeeded, MemoryStore
from dragoman.auth.client.discovery import DiscoveryOptions
from dragoman.auth.client.identity import IdentityProvider
from dragoman.auth.client.login import Terms
from dragoman.auth.client.machine import Idp
from dragoman.auth.client.person import Person
from dragoman.auth.client.registration import ClientOptions
from dragoman.auth.client.store import TokenStore
from dragoman.auth.client.world import World
from dragoman.auth.engine.model import TrustedIssuer
from dragoman.auth.errors import TokenRefused
from dragoman.auth.fetch import Fetched, Fetcher
from dragoman.auth.grant_types import JWT_BEARER, TOKEN_EXCHANGE
from dragoman.auth.id_token import id_token_claims
from dragoman.auth.jose import Key, KeySet, new_key, sign_jws
from dragoman.auth.testing import LocalIssuer

from ...canary import CANARY
from .protected import Protected
from .test_whole import User

AT_IDP, SECRET = f"{CANARY}-at-the-provider", f"{CANARY}-of-the-client"


class Company:
    """An identity provider, an authorization server that trusts it, and a server that takes that one's tokens."""

    def __init__(self, idp: LocalIssuer, server: Protected) -> None:
        self.idp, self.server, self.user = idp, server, User()
        self.store: TokenStore = MemoryStore()

    def enterprise(self, **options: Any) -> Enterprise:
        """What a client of this company is given."""
        given = {"login": Login(on_url=self.user, store=self.store)} if "id_token" not in options else {}
        ours = {"idp_client_id": "app", "idp_client_secret": AT_IDP, "client_id": "app", "client_secret": SECRET}
        return Enterprise(idp=self.idp.url, **{**ours, **given, **options})

    async def call(self, auth: Enterprise) -> dict[str, Any]:
        """Call once; what the token says that the server was sent last."""
        async with dragoman.connect(self.server.url, auth=auth) as peer:
            assert await peer.call("echo", [1]) == [1]
        assert self.server.tokens[-1] is not None
        return LocalIssuer.claims(self.server.tokens[-1])


@pytest.fixture
def company() -> Iterator[Company]:
    callback = ("http://127.0.0.1/callback",)
    with LocalIssuer(path="/idp", scopes=("openid", "offline_access")) as idp:
        idp.client(
            "app", AT_IDP, redirect_uris=callback, grants=("authorization_code", "refresh_token", TOKEN_EXCHANGE)
        )
        with LocalIssuer(trusted=(TrustedIssuer(issuer=idp.url),)) as issuer:
            issuer.client("app", SECRET, grants=(JWT_BEARER,))
            with Protected(issuer, lambda token: True) as server:
                yield Company(idp, server)


async def test_one_login_at_the_provider_and_none_at_the_server(company: Company) -> None:
    claims = await company.call(company.enterprise())
    assert claims["sub"] == "alice"
    assert claims["aud"] == company.server.url
    assert claims["iss"] == company.server.issuer.url
    [window] = company.user.windows
    asked = parse_qs(urlsplit(window).query)
    assert window.startswith(company.idp.url)
    assert asked["scope"] == ["openid offline_access"]
    assert asked["nonce"]
    assert "resource" not in asked


async def test_the_login_is_kept_for_other_servers_and_other_runs(company: Company, tmp_path: Path) -> None:
    company.store = FileStore(tmp_path / "tokens", keyring=False)
    await company.call(company.enterprise())
    company.store = FileStore(tmp_path / "tokens", keyring=False)
    await company.call(company.enterprise())
    with Protected(company.server.issuer, lambda token: True) as other:
        company.server = other
        assert (await company.call(company.enterprise()))["aud"] == other.url
    assert len(company.user.windows) == 1


async def test_an_id_token_that_is_given(company: Company) -> None:
    async def asked() -> str:
        return company.idp.server.engine.mint.identity(subject="bob", client="app", nonce="", auth_time=0, life=60)

    assert (await company.call(company.enterprise(id_token=asked)))["sub"] == "bob"
    assert (await company.call(company.enterprise(id_token=await asked())))["sub"] == "bob"
    assert not company.user.windows


def forget_keys(issuer: LocalIssuer) -> None:
    """As if it were set up anew: what it signed is its own no more."""
    issuer.server.engine.keys.keys = ()
    issuer.rotate_keys()


async def test_an_id_token_that_the_provider_takes_no_more_is_a_new_login(company: Company) -> None:
    async with dragoman.connect(company.server.url, auth=company.enterprise()) as peer:
        await peer.call("echo", [1])
        first = company.server.tokens[-1]
        company.server.takes = lambda token: token != first
        forget_keys(company.idp)
        assert await peer.call("echo", [2]) == [2]
    assert len(company.user.windows) == 2


async def test_a_function_is_asked_for_another_id_token_once(company: Company) -> None:
    asked = []

    def given() -> str:
        asked.append(1)
        good = company.idp.server.engine.mint.identity(subject="bob", client="app", nonce="", auth_time=0, life=60)
        return good if len(asked) == 2 else company.idp.expired()

    assert (await company.call(company.enterprise(id_token=given)))["sub"] == "bob"
    with pytest.raises(AuthorizationFailed, match="refuses the ID token: invalid_request"):
        await company.call(company.enterprise(id_token=given))
    assert len(asked) == 4


async def test_nobody_is_there(company: Company) -> None:
    absent = Login(interactive=False, store=MemoryStore())
    with pytest.raises(LoginNeeded, match=f"a person has to log in first: at {company.idp.url}, by a program"):
        await company.call(company.enterprise(login=absent))


@pytest.mark.parametrize(
    "options", [{"id_token": "x", "login": Login(store=MemoryStore())}, {"login": "device"}, {"login": "id"}]
)
def test_what_is_no_login_at_a_provider(options: dict[str, Any]) -> None:
    made = {"device": Login(store=MemoryStore(), device=True), "id": Login(store=MemoryStore(), client_id="x")}
    options = {name: made.get(value, value) if isinstance(value, str) else value for name, value in options.items()}
    with pytest.raises(LocalError, match=r"either id_token= or login=|its client is idp_client_id="):
        Enterprise(idp="https://idp.example", idp_client_id="app", client_id="app", **options)


# -- a provider that answers as a test says

IDP, NOW = "https://idp.example", 1_000_000.0
PROVIDER = Idp(issuer=IDP, token_endpoint=None, client_id="app", client_secret=SECRET)


class Provider(Fetcher):
    """An identity provider: metadata, keys, and a token endpoint whose ID tokens have these claims."""

    def __init__(self) -> None:
        super().__init__()
        self.key = new_key("ES256", kid="1")
        self.keys = [self.key]
        self.claims: dict[str, Any] = {}
        self.no_id_token = False
        self.nonce = ""
        self.forms: list[Mapping[str, str]] = []
        self.windows = 0
        self.now = NOW

    def id_token(self, key: Key | None = None, **claims: Any) -> str:
        own = {"iss": IDP, "sub": "ada", "aud": "app", "iat": self.now, "exp": self.now + 300, "nonce": self.nonce}
        return sign_jws({**own, **self.claims, **claims}, key or self.key, typ="JWT")

    async def get(self, url: str, **options: Any) -> Fetched:
        if url == f"{IDP}/keys":
            return Fetched(200, {}, msgspec.json.encode({"keys": [key.public_jwk() for key in self.keys]}))
        metadata = {"issuer": IDP, "jwks_uri": f"{IDP}/keys", "code_challenge_methods_supported": ["S256"]}
        return Fetched(
            200,
            {},
            msgspec.json.encode(
                metadata | {"authorization_endpoint": f"{IDP}/authorize", "token_endpoint": f"{IDP}/token"}
            ),
        )

    async def post_form(self, url: str, form: Mapping[str, str], **options: Any) -> Fetched:
        self.forms.append(form)
        answer = {"access_token": f"{CANARY}-{len(self.forms)}", "token_type": "Bearer", "refresh_token": "r"}
        return Fetched(
            200, {}, msgspec.json.encode(answer | ({} if self.no_id_token else {"id_token": self.id_token()}))
        )

    def browse(self, url: str) -> str:
        asked = {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}
        self.windows += 1
        self.nonce = asked["nonce"]
        return "?" + urlencode({"code": "c", "state": asked["state"]})

    def client(self, store: TokenStore | None = None) -> IdentityProvider:
        """A client of it, with a user who says yes."""
        store = MemoryStore() if store is None else store
        world = World(IDP, self, store, Person(on_url=self.browse))
        terms = Terms(wanted=DiscoveryOptions(), client=ClientOptions())
        return IdentityProvider(PROVIDER, terms, world, store, 1.0, lambda: self.now)


async def test_an_id_token_is_used_until_it_expires_and_renewed_then() -> None:
    provider = Provider()
    client = provider.client()
    first = await client.id_token()
    assert await client.id_token() == first
    provider.now += 280  # it would expire on its way
    second = await client.id_token()
    assert second != first
    assert [form["grant_type"] for form in provider.forms] == ["authorization_code", "refresh_token"]
    assert provider.windows == 1
    provider.no_id_token = True  # "it might not contain an `id_token`": the user logs in
    provider.now += 300
    with pytest.raises(AuthorizationFailed, match="gives no ID token"):
        await client.id_token()
    assert provider.windows == 2


async def test_a_renewed_id_token_of_another_user_is_a_new_login() -> None:
    provider = Provider()
    client = provider.client()
    await client.id_token()
    provider.now += 300
    provider.claims = {"sub": "eve"}
    assert LocalIssuer.claims(await client.id_token())["sub"] == "eve"
    assert provider.windows == 2


@pytest.mark.parametrize(
    "claims", [{"nonce": "other"}, {"nonce": None}, {"aud": "other"}, {"iss": "https://evil.example"}]
)
async def test_a_login_with_an_id_token_that_is_not_of_it(claims: dict[str, Any]) -> None:
    provider = Provider()
    provider.claims = claims
    with pytest.raises(AuthorizationFailed, match=r"the ID token of https://idp.example is not used: The ID token is"):
        await provider.client().id_token()


async def test_a_stored_id_token_is_verified_again_by_another_run() -> None:
    provider, store = Provider(), MemoryStore()
    await provider.client(store).id_token()
    provider.key = new_key("ES256", kid="2")
    provider.keys = [provider.key]
    late = provider.client(store)
    with pytest.raises(AuthorizationFailed, match="not used"):
        await late.id_token()
    await late.id_token()  # the next request gets another one
    assert provider.windows == 1
    assert provider.forms[-1]["grant_type"] == "refresh_token"


# -- the rules

KEY = new_key("ES256", kid="1")
KEYS = KeySet.from_json({"keys": [KEY.public_jwk()]})
GOOD = {"iss": IDP, "sub": "ada", "aud": "app", "iat": NOW, "exp": NOW + 300, "nonce": "n"}


def claims_of(token: str, nonce: str | None = "n") -> dict[str, Any]:
    return id_token_claims(token, KEYS, issuer=IDP, client="app", nonce=nonce, now=NOW)


@pytest.mark.parametrize("claims", [{}, {"aud": ["app"]}, {"azp": "app"}, {"exp": NOW - 29}, {"iat": NOW + 30}])
def test_an_id_token_that_is_taken(claims: dict[str, Any]) -> None:
    assert claims_of(sign_jws(GOOD | claims, KEY, typ="JWT"))["sub"] == "ada"
    assert claims_of(sign_jws(GOOD | claims, KEY), None)["sub"] == "ada"


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "another issuer": ({"iss": f"{IDP}/"}, "another issuer"),
    "no issuer": ({"iss": None}, "another issuer"),
    "another client": ({"aud": "other"}, "another client"),
    "a second audience": ({"aud": ["app", "other"]}, "another client"),
    "no audience": ({"aud": []}, "another client"),
    "presented by another": ({"azp": "other"}, "another client"),
    "expired": ({"exp": NOW - 30}, "expired"),
    "no expiry": ({"exp": None}, "not a time"),
    "an expiry that is not a number": ({"exp": True}, "not a time"),
    "an expiry beyond time": ({"exp": 1e300}, "not a time"),
    "from the future": ({"iat": NOW + 31}, "future"),
    "another login": ({"nonce": "m"}, "another login"),
    "no nonce": ({"nonce": None}, "another login"),
    "no user": ({"sub": ""}, "no user"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_an_id_token_that_is_refused(name: str) -> None:
    claims, why = REFUSED[name]
    with pytest.raises(TokenRefused, match=why):
        claims_of(sign_jws(GOOD | claims, KEY, typ="JWT"))


@pytest.mark.parametrize("typ", ["at+jwt", "oauth-id-jag+jwt", "logout+jwt", "dpop+jwt"])
def test_another_kind_of_token_is_no_id_token(typ: str) -> None:
    with pytest.raises(TokenRefused, match="by its type"):
        claims_of(sign_jws(GOOD, KEY, typ=typ))


def test_a_signature_of_another() -> None:
    with pytest.raises(TokenRefused, match="signature"):
        claims_of(sign_jws(GOOD, new_key("ES256", kid="1"), typ="JWT"))
