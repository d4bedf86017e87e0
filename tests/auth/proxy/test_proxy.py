"""The proxy before an issuer at which clients cannot register: its logins, and every way to make it a confused deputy.

The list is that of the MCP specification, Security Best Practices, "Confused Deputy Problem".
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import msgspec
import pytest

from dragoman import LocalError
from dragoman.auth import AuthError, Bearer, IssuerAway, TokenRefused
from dragoman.auth.engine.messages import FORM, EndpointRequest, EndpointResponse
from dragoman.auth.jose import encode_base64url
from dragoman.auth.metadata import server_locations
from dragoman.auth.proxy import GITHUB, Proxy, Upstream
from dragoman.auth.proxy.consent import LOGINS, PIECE, PIECES
from dragoman.auth.proxy.secrets import AesSealer, signing_key
from dragoman.auth.server import Client, Lives, secret_hash
from dragoman.bus.memory import MemoryBus
from dragoman.channel import Handshake, Identity
from dragoman.store.memory import InMemoryStore

from ..engine.asking import (
    CHALLENGE,
    LOOPBACK,
    REDIRECT,
    RESOURCE,
    VERIFIER,
    Asker,
    Page,
    answer,
    basic,
    body,
    claims,
    header,
)

URL = "https://notes.example"
UPSTREAM = "https://up.example"
KEY = b"k" * 32
SECRET = "the upstream's secret"


class Wire:
    """What asks the upstream; `away`: nothing is answered."""

    def __init__(self, upstream: Asker) -> None:
        self.upstream, self.away = upstream, False
        self.pages: dict[str, Page] = {}
        self.asked: list[tuple[str, Mapping[str, str]]] = []

    async def get(self, url: str, *, by: Any = None, origin: Any = None, headers: Any = None) -> Any:
        return await self._ask("GET", url, b"", headers or {})

    async def post_form(self, url: str, form: Any, *, by: Any = None, origin: Any = None, headers: Any = None) -> Any:
        return await self._ask("POST", url, urlencode(form).encode(), {"content-type": FORM, **headers})

    async def post_json(
        self, url: str, content: Any, *, by: Any = None, origin: Any = None, headers: Any = None
    ) -> Any:
        raise AssertionError("an upstream is sent forms")

    async def _ask(self, method: str, url: str, body: bytes, headers: Mapping[str, str]) -> Page:
        self.asked.append((url, headers))
        if self.away:
            raise OSError("no route")
        if url in self.pages:
            return self.pages[url]
        path = urlsplit(url).path
        made = await self.upstream.engine.answer(EndpointRequest(method=method, path=path, headers=headers, body=body))
        return Page(made.status, {name.lower(): value for name, value in made.headers}, made.body)


class Behind(Asker):
    """A proxy with a browser before it and an upstream behind it."""

    def __init__(self, upstream_lives: Lives | None = None, **options: Any) -> None:
        known = Client(
            id="px",
            method="client_secret_basic",
            secret_hash=secret_hash(SECRET),
            redirect_uris=(URL + "/callback",),
        )
        self.upstream = Asker(UPSTREAM, automatic="alice", clients=[known], lives=upstream_lives or Lives())
        self.clock = self.upstream.clock
        self.wire = Wire(self.upstream)
        standard: dict[str, Any] = {
            "client_id": "px",
            "client_secret": SECRET,
            "scopes": ["notes:read", "notes:write"],
            "key": KEY,
            "store": InMemoryStore(1_000, 1_000_000, self.clock),
            "clients": [
                Client(id="app", name="The app", redirect_uris=(REDIRECT, LOOPBACK)),
                Client(id="evil", name="Free gifts", redirect_uris=("https://evil.example/callback",)),
            ],
            "http": self.wire,
            "clock": self.clock,
        }
        self.proxy = Proxy(URL, **(standard | options))
        self.bearer = Bearer(UPSTREAM, resource=RESOURCE, proxy=self.proxy, now=self.clock)
        self.engine = self.proxy.engine
        self.cookies = {}

    async def sent(self, **changes: str | None) -> EndpointResponse:
        """What a user who consents is answered: the way to the upstream."""
        return await self.consent(await self.authorize(**changes))

    async def back(self, sent: EndpointResponse) -> str:
        """The query with which the upstream sends the user back."""
        made = await self.upstream.ask("GET", "/authorize", urlsplit(header(sent, "Location")).query)
        assert header(made, "Location").startswith(URL + "/callback?"), made
        return urlsplit(header(made, "Location")).query

    async def through(self, **changes: str | None) -> EndpointResponse:
        """The whole way, up to the redirect to the client."""
        return await self.ask("GET", "/callback", await self.back(await self.sent(**changes)))

    async def code(self, **changes: str | None) -> str:
        return answer(await self.through(**changes))["code"]

    async def verified(self, token: str) -> Identity:
        pairs = [(b"authorization", f"Bearer {token}".encode())]
        return await self.bearer.verify(token, Handshake(scheme="https", method="POST", url=RESOURCE, headers=pairs))


# -- what it does


async def test_a_login_goes_to_the_upstream_and_ends_in_a_token_of_our_own() -> None:
    behind = Behind()
    given = await behind.login()
    found = claims(given["access_token"])
    assert (found["iss"], found["aud"], found["sub"]) == (URL, RESOURCE, "alice")
    identity = await behind.verified(given["access_token"])
    assert (identity.issuer, identity.subject, identity.client_id) == (URL, "alice", "app")
    assert identity.scopes == {"notes:read", "notes:write"}
    assert given["expires_in"] == 300


async def test_the_upstreams_tokens_stay_here_and_are_there_for_calls_further_on() -> None:
    behind = Behind()
    given = await behind.login()
    identity = await behind.verified(given["access_token"])
    upstream = await behind.proxy.upstream_token(identity)
    assert claims(upstream)["iss"] == UPSTREAM
    store = behind.engine.records.engine
    assert isinstance(store, InMemoryStore)
    kept = b"".join(document for document, _ in store._documents.values())
    for secret in (upstream, given["refresh_token"], "alice", "access_token", UPSTREAM):
        assert secret.encode() not in kept
    assert upstream not in str(given)


async def test_neither_the_upstreams_tokens_nor_those_of_other_issuers_are_taken() -> None:
    behind = Behind()
    identity = await behind.verified((await behind.login())["access_token"])
    for wrong in (await behind.proxy.upstream_token(identity), Asker(URL).server.token(resource=RESOURCE)):
        with pytest.raises(TokenRefused):
            await behind.verified(wrong)


async def test_no_secret_stands_in_a_repr() -> None:
    behind = Behind()
    await behind.login()
    assert SECRET not in repr(behind.proxy)
    assert repr(behind.proxy) == f"<Proxy {URL} before {UPSTREAM}>"


async def test_clients_register_and_have_documents() -> None:
    behind = Behind()
    found = body(await behind.ask("GET", "/.well-known/oauth-authorization-server"))
    assert found["registration_endpoint"] == URL + "/register"
    assert found["client_id_metadata_document_supported"] is True
    assert found["protected_resources"] == [RESOURCE]


@pytest.mark.parametrize("method", ["none", "client_secret_basic"])
async def test_a_registration_is_its_id_and_fills_no_store(method: str) -> None:
    behind = Behind()
    said = msgspec.json.encode(
        {"redirect_uris": [REDIRECT], "client_name": "New", "token_endpoint_auth_method": method}
    )
    json = {"content-type": "application/json"}
    made = [body(await behind.ask("POST", "/register", body=said, headers=json)) for _ in range(50)]
    assert len({one["client_id"] for one in made}) == 50
    assert len(behind.engine.records.engine) == 0  # type: ignore[arg-type]
    id, secret = made[0]["client_id"], made[0].get("client_secret", "")
    assert bool(secret) is (method != "none")
    page = await behind.authorize(client_id=id)
    assert "New asks for access" in page.body.decode()
    form = {"grant_type": "authorization_code", "code": await behind.code(client_id=id), "code_verifier": VERIFIER}
    right = basic(id, secret) if secret else None
    assert (await behind.token(basic(id, "wrong"), **form)).status == 401
    given = body(await behind.token(right, **(form if secret else form | {"client_id": id})))
    assert (await behind.verified(given["access_token"])).client_id == id
    after = Behind(key=b"n" * 32)
    for wrong in (id[:-1] + ("A" if id[-1] != "A" else "B"), id + "x", id.partition(".")[0], "x.y", "é.é", "." * 5_000):
        assert (await behind.authorize(client_id=wrong)).status == 400
    assert (await after.authorize(client_id=id)).status == 400


async def test_a_registration_that_is_too_long_for_an_id_is_refused() -> None:
    said = msgspec.json.encode({"redirect_uris": [f"{REDIRECT}/{'x' * 400}/{each}" for each in range(15)]})
    made = await Behind().ask("POST", "/register", body=said, headers={"content-type": "application/json"})
    assert (made.status, body(made)["error"]) == (400, "invalid_client_metadata")


async def test_a_device_logs_in_by_way_of_the_upstream() -> None:
    device = "urn:ietf:params:oauth:grant-type:device_code"
    behind = Behind(clients=[Client(id="tv", grants=(device, "refresh_token"))])
    asked = body(await behind.post("/device_authorization", {"client_id": "tv", "scope": "notes:read"}))
    page = await behind.post("/device", {"user_code": asked["user_code"]})
    done = await behind.ask("GET", "/callback", await behind.back(await behind.consent(page)))
    assert done.status == 200
    behind.clock.advance(6)
    given = body(await behind.token(grant_type=device, device_code=asked["device_code"], client_id="tv"))
    identity = await behind.verified(given["access_token"])
    assert identity.subject == "alice"
    # the grant of a device is the one that the upstream's tokens are kept for
    assert await behind.proxy.upstream_token(identity)
    assert (await behind.refresh(given["refresh_token"], client_id="tv")).status == 200


async def test_who_may_come_in_is_decided_by_what_the_upstream_says() -> None:
    async def some(user: Mapping[str, Any]) -> list[str]:
        return ["notes:read"] if user["sub"] == "alice" else []

    assert (await Behind(admit=some).login())["scope"] == "notes:read"
    assert answer(await Behind(admit=lambda user: False).through())["error"] == "access_denied"
    assert answer(await Behind(admit=lambda user: []).through())["error"] == "access_denied"
    assert (await Behind(admit=lambda user: True).login())["scope"] == "notes:read notes:write"


async def test_no_scope_is_given_that_was_not_named() -> None:
    assert answer(await Behind().authorize(scope="notes:read notes:admin"))["error"] == "invalid_scope"
    assert answer(await Behind(scopes=[]).authorize(scope="notes:read"))["error"] == "invalid_scope"


async def test_a_grant_lives_as_long_as_the_upstreams() -> None:
    behind = Behind()
    given = await behind.login()
    identity = await behind.verified(given["access_token"])
    first = await behind.proxy.upstream_token(identity)
    behind.clock.advance(290)
    given = body(await behind.refresh(given["refresh_token"]))
    assert await behind.proxy.upstream_token(identity) != first
    await behind.upstream.engine.families.end(claims(first)["jti"].partition(".")[0])
    behind.clock.advance(290)
    assert body(await behind.refresh(given["refresh_token"]))["error"] == "invalid_grant"
    with pytest.raises(AuthError, match="has ended"):
        await behind.proxy.upstream_token(identity)


async def test_a_renewal_goes_on_when_the_call_that_led_to_it_is_cancelled() -> None:
    """The upstream's answer holds the only refresh token that is good."""
    behind = Behind(Lives(grace=0))
    identity = await behind.verified((await behind.login())["access_token"])
    behind.clock.advance(290)
    asked, answered, post = asyncio.Event(), asyncio.Event(), behind.wire.post_form

    async def slow(*args: Any, **options: Any) -> Any:
        got = await post(*args, **options)
        asked.set()
        await answered.wait()
        return got

    behind.wire.post_form = slow  # type: ignore[method-assign]
    first = asyncio.create_task(behind.proxy.upstream_token(identity))
    await asked.wait()
    first.cancel()
    await asyncio.wait([first])
    second = asyncio.create_task(behind.proxy.upstream_token(identity))
    answered.set()
    fresh = await second
    behind.clock.advance(290)
    assert await behind.proxy.upstream_token(identity) != fresh  # the refresh token that it brought is good


async def test_an_upstream_that_is_away_ends_nothing() -> None:
    behind = Behind()
    given = await behind.login()
    identity = await behind.verified(given["access_token"])
    behind.clock.advance(290)
    behind.wire.away = True
    refused = await behind.refresh(given["refresh_token"])
    assert (refused.status, body(refused)["error"]) == (503, "temporarily_unavailable")
    with pytest.raises(IssuerAway):
        await behind.proxy.upstream_token(identity)
    behind.wire.away = False
    assert (await behind.refresh(given["refresh_token"])).status == 200


async def test_revoking_takes_the_upstreams_tokens_along() -> None:
    behind = Behind()
    given = await behind.login()
    identity = await behind.verified(given["access_token"])
    await behind.post("/revoke", {"token": given["refresh_token"], "client_id": "app"})
    with pytest.raises(AuthError, match="has ended"):
        await behind.proxy.upstream_token(identity)


async def test_replicas_with_one_key_and_store_are_one() -> None:
    behind = Behind()
    other = Behind(store=behind.engine.records.engine)
    other.wire.upstream = behind.upstream
    page = await behind.authorize()
    other.cookies = behind.cookies
    given = body(
        await other.redeem(
            answer(await other.ask("GET", "/callback", await behind.back(await other.consent(page))))["code"]
        )
    )
    assert (await behind.verified(given["access_token"])).subject == "alice"
    assert (await behind.refresh(given["refresh_token"])).status == 200


async def test_a_new_key_takes_over_and_the_one_before_stays_good() -> None:
    behind = Behind()
    given = await behind.login()
    after = Behind(store=behind.engine.records.engine, key=[b"n" * 32, KEY])
    assert (await after.verified(given["access_token"])).subject == "alice"
    assert (await after.refresh(given["refresh_token"])).status == 200
    gone = Behind(store=behind.engine.records.engine, key=b"n" * 32)
    assert (await gone.refresh(given["refresh_token"])).status == 400


async def test_github_names_its_users_by_its_api_for_a_token_of_ours() -> None:
    behind = Behind(upstream=GITHUB)
    behind.wire.pages = {
        GITHUB.token_endpoint: Page(body=b'{"access_token":"gho_x","token_type":"bearer","scope":"read:user"}'),
        GITHUB.userinfo_endpoint: Page(body=b'{"id":583231,"login":"octocat"}'),
    }
    sent = await behind.sent()
    asked = parse_qs(urlsplit(header(sent, "Location")).query)
    assert header(sent, "Location").startswith(GITHUB.authorization_endpoint)
    assert Bearer("https://github.com", resource=RESOURCE, proxy=Proxy(URL, client_id="a", client_secret="b"))
    assert (asked["scope"], asked["code_challenge_method"]) == (["read:user"], ["S256"])
    made = await behind.ask("GET", "/callback", urlencode({"code": "c", "state": asked["state"][0]}))
    given = body(await behind.redeem(answer(made)["code"]))
    identity = await behind.verified(given["access_token"])
    assert (identity.subject, await behind.proxy.upstream_token(identity)) == ("583231", "gho_x")
    behind.wire.pages[GITHUB.token_endpoint] = Page(body=b'{"error":"bad_verification_code"}')
    asked = parse_qs(urlsplit(header(await behind.sent(), "Location")).query)
    made = await behind.ask("GET", "/callback", urlencode({"code": "c", "state": asked["state"][0]}))
    assert answer(made)["error"] == "server_error"


@pytest.mark.parametrize("name", ["authorization_endpoint", "token_endpoint"])
@pytest.mark.parametrize(
    "url",
    [
        "",
        "http://up.example/x",
        "http://localhost.evil.example/x",
        "http://127.0.0.1.evil.example/x",
        "http://localhost@evil.example/x",
        "https://",
        "https://[",
        "javascript:alert(1)",
    ],
)
async def test_users_and_codes_are_sent_to_https_alone(name: str, url: str) -> None:
    behind = Behind()
    told = {"issuer": UPSTREAM, "authorization_endpoint": UPSTREAM + "/a", "token_endpoint": UPSTREAM + "/t", name: url}
    page = Page(body=json.dumps(told).encode())
    behind.wire.pages = dict.fromkeys(server_locations(UPSTREAM), page)
    sent = await behind.sent()
    assert (sent.status, header(sent, "Location")) == (503, "")
    assert [asked for asked, _ in behind.wire.asked] == server_locations(UPSTREAM)[:1]


# -- the confused deputy


async def test_each_client_is_consented_to_before_the_upstream_is_asked() -> None:
    behind = Behind()
    await behind.login()
    for id, uri in (("evil", "https://evil.example/callback"), ("app", REDIRECT)):  # also a client of before
        page = await behind.authorize(client_id=id, redirect_uri=uri)
        assert (page.status, header(page, "Location")) == (200, "")
        text = page.body.decode()
        for shown in (id, "notes:read, notes:write", urlsplit(uri).netloc, "You log in at up.example next."):
            assert shown in text
        assert "frame-ancestors 'none'" in header(page, "Content-Security-Policy")


async def test_denying_asks_no_upstream() -> None:
    behind = Behind()
    made = await behind.consent(await behind.authorize(), answer="deny")
    assert answer(made)["error"] == "access_denied"
    assert behind.wire.asked == []


async def test_there_is_no_state_and_no_cookie_of_it_before_the_consent() -> None:
    behind = Behind()
    page = await behind.authorize()
    assert "dragoman-up" not in header(page, "Set-Cookie")
    assert len(behind.engine.records.engine) == 0  # type: ignore[arg-type]
    sent = await behind.consent(page)
    cookie = header(sent, "Set-Cookie")
    assert cookie.startswith("__Host-dragoman-up-")
    for part in ("Path=/", "HttpOnly", "SameSite=Lax", "Secure", "Max-Age=600"):
        assert part in cookie.split("; ")


async def test_the_state_is_ours_new_each_time_and_never_the_clients() -> None:
    behind = Behind()
    states = {parse_qs(urlsplit(header(await behind.sent(), "Location")).query)["state"][0] for _ in range(3)}
    assert len(states) == 3
    assert "st" not in states


async def test_a_consent_of_another_browser_is_refused() -> None:
    behind = Behind()
    page = await behind.authorize(client_id="evil", redirect_uri="https://evil.example/callback")
    behind.cookies = {}  # the victim's browser, to which the attacker's form was sent
    assert (await behind.consent(page)).status == 403
    assert behind.wire.asked == []


async def test_a_return_of_another_browser_is_refused() -> None:
    behind = Behind()
    query = await behind.back(await behind.sent())
    behind.cookies = {}
    made = await behind.ask("GET", "/callback", query)
    assert (made.status, header(made, "Location")) == (403, "")


async def test_a_state_is_good_once_and_for_ten_minutes() -> None:
    behind = Behind()
    query = await behind.back(await behind.sent())
    held = dict(behind.cookies)
    assert "code" in answer(await behind.ask("GET", "/callback", query))
    assert (await behind.ask("GET", "/callback", query)).status == 403, "the browser has nothing of it any more"
    behind.cookies = held
    again = await behind.ask("GET", "/callback", query)
    assert "code" not in header(again, "Location"), "nor is it good with what it had"
    late = await behind.back(await behind.sent())
    behind.clock.advance(601)
    assert (await behind.ask("GET", "/callback", late)).status == 403


async def test_a_return_with_another_or_no_state_goes_nowhere() -> None:
    behind = Behind()
    await behind.sent()
    for query in ("code=x", "code=x&state=", "code=x&state=a&state=b", "error=x", "state=%00"):
        made = await behind.ask("GET", "/callback", query)
        assert (made.status, header(made, "Location")) == (400, "")
    made = await behind.ask("GET", "/callback", "code=x&state=made-up")
    assert (made.status, header(made, "Location")) == (403, "")


async def test_logins_that_strangers_begin_fill_nothing() -> None:
    store = InMemoryStore(1, 1_000)
    behind = Behind(store=store)
    for answered in ("allow", "deny"):
        for _ in range(50):
            behind.cookies = {}
            sent = await behind.consent(await behind.authorize(), answer=answered)
            assert sent.status == 303
    assert len(store) == 0
    state = parse_qs(urlsplit(header(await behind.sent(), "Location")).query)["state"][0]
    assert (await behind.ask("GET", "/callback", urlencode({"state": state, "error": "access_denied"}))).status == 303
    assert len(store) == 0, "nor does one that the upstream refuses"


async def test_another_browser_uses_no_login_up() -> None:
    behind = Behind()
    query = await behind.back(await behind.sent())
    held, behind.cookies = behind.cookies, {}
    for _ in range(3):
        assert (await behind.ask("GET", "/callback", query)).status == 403
    await behind.sent()  # a login of its own
    assert (await behind.ask("GET", "/callback", query)).status == 403
    behind.cookies = held
    assert "code" in answer(await behind.ask("GET", "/callback", query))


async def test_what_a_browser_keeps_of_a_login_is_sealed_and_of_its_state_alone() -> None:
    behind = Behind()
    first = await behind.back(await behind.sent(state="canary-7f3a-state"))
    second = await behind.back(await behind.sent())
    lines = "".join(behind.cookies.values())
    for text in ("canary-7f3a-state", CHALLENGE):  # a shorter text may stand in what is sealed by chance
        assert text not in lines
        assert encode_base64url(text.encode())[:-2] not in lines
    names = [name for name in behind.cookies if "dragoman-up-" in name]
    assert len(names) == 2
    behind.cookies[names[0]], behind.cookies[names[1]] = behind.cookies[names[1]], behind.cookies[names[0]]
    for query in (first, second):
        assert (await behind.ask("GET", "/callback", query)).status == 403
    for value in ("", "=", "\xe9", "AAAA", behind.cookies[names[0]][:-4]):
        behind.cookies[names[0]] = value
        assert (await behind.ask("GET", "/callback", first)).status == 403


async def test_a_login_of_many_characters_takes_some_cookies_and_one_of_too_many_a_page() -> None:
    behind = Behind(registration=True)
    uris = [f"https://app.example/{'x' * 250}/{number}" for number in range(8)]
    sent = msgspec.json.encode({"redirect_uris": uris, "token_endpoint_auth_method": "none"})
    made = await behind.ask("POST", "/register", body=sent, headers={"content-type": "application/json"})
    client = body(made)["client_id"]
    assert 2_500 < len(client) <= 4_096
    changes: dict[str, str | None] = {"client_id": client, "redirect_uri": uris[0], "state": "s" * 2_000}
    query = await behind.back(await behind.sent(**changes))
    held = [value for name, value in behind.cookies.items() if "dragoman-up-" in name]
    assert 1 < len(held) <= PIECES
    assert all(len(value) <= PIECE for value in held)
    assert answer(await behind.ask("GET", "/callback", query))["state"] == "s" * 2_000
    refused = await behind.sent(**changes, nonce="n" * 2_000, scope="notes:read")
    assert refused.status in (303, 400)
    assert sum("dragoman-up-" in value for name, value in refused.headers if name == "Set-Cookie") <= 2 * PIECES


async def test_a_browser_keeps_its_last_logins() -> None:
    behind = Behind()
    queries = []
    for _ in range(LOGINS + 2):
        queries.append(await behind.back(await behind.sent()))
        behind.cookies = {name: value for name, value in behind.cookies.items() if value}
    assert sum("dragoman-up-" in name for name in behind.cookies) == LOGINS
    statuses = [(await behind.ask("GET", "/callback", query)).status for query in queries]
    assert statuses == [403] * 2 + [303] * LOGINS


async def test_one_page_gives_one_code() -> None:
    """Allowed twice, which is two logins at the upstream."""
    behind = Behind()
    page = await behind.authorize()
    queries = [await behind.back(await behind.consent(page)) for _ in range(2)]
    assert "code" in answer(await behind.ask("GET", "/callback", queries[0]))
    again = await behind.ask("GET", "/callback", queries[1])
    assert (again.status, header(again, "Location")) == (400, "")


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ({"upstream": "https://github.com"}, "upstream is an Upstream such as GITHUB"),
        ({"upstream": b"x"}, "upstream is an Upstream"),
        ({"scopes": "notes:read"}, "scopes is a list"),
        ({"upstream_scopes": "openid"}, "upstream_scopes is a list"),
        ({"admit": "everybody"}, "admit is a function"),
        ({"store": 7}, "store is text"),
        ({"clients": ["app"]}, "clients is a list, of which each is a Client"),
        ({"registration": "no"}, "registration is True or False"),
        ({"documents": None}, "documents is True or False"),
        ({"lives": 600}, "lives is a Lives"),
        ({"clock": 7}, "clock is a function"),
    ],
)
def test_options_that_cannot_be_are_told_at_once(option: dict[str, Any], words: str) -> None:
    with pytest.raises(LocalError, match=f"Proxy: {words}"):
        Proxy(URL, **({"client_id": "px", "client_secret": SECRET} | option))


async def test_a_redirect_uri_that_is_not_the_clients_reaches_no_consent() -> None:
    behind = Behind()
    for uri in ("https://evil.example/callback", REDIRECT + "/", REDIRECT + "?x"):
        made = await behind.authorize(redirect_uri=uri)
        assert (made.status, header(made, "Location")) == (400, "")


async def test_no_parameter_of_the_client_reaches_the_upstream() -> None:
    behind = Behind()
    sent = await behind.sent(scope="notes:read", nonce="client-nonce", prompt="consent", login_hint="x", state="client")
    asked = parse_qs(urlsplit(header(sent, "Location")).query)
    assert asked["redirect_uri"] == [URL + "/callback"]
    assert asked["client_id"] == ["px"]
    assert asked["scope"] == ["openid"]
    assert not {"client-nonce", "client", RESOURCE, REDIRECT} & {value for values in asked.values() for value in values}


@pytest.mark.parametrize("iss", ["https://evil.example", UPSTREAM + "/", None])
async def test_an_answer_of_another_issuer_is_refused_before_its_code_is_used(iss: str | None) -> None:
    behind = Behind()
    found = parse_qs(await behind.back(await behind.sent()))
    found.pop("iss")
    fields = {name: values[0] for name, values in found.items()} | ({} if iss is None else {"iss": iss})
    before = len(behind.wire.asked)
    made = await behind.ask("GET", "/callback", urlencode(fields))
    assert answer(made)["error"] == "server_error"
    assert len(behind.wire.asked) == before


async def test_an_error_of_the_upstream_is_told_in_our_own_words() -> None:
    behind = Behind()
    found = parse_qs(await behind.back(await behind.sent()))
    fields = {"error": "<script>", "error_description": "evil", "state": found["state"][0], "iss": UPSTREAM}
    made = answer(await behind.ask("GET", "/callback", urlencode(fields)))
    assert (made["error"], made["state"], made["iss"]) == ("access_denied", "st", URL)
    assert "evil" not in str(made)


@pytest.mark.parametrize(
    "changes",
    [{"aud": "other"}, {"iss": "https://evil.example"}, {"exp": 1}, {"nonce": "another"}, {"sub": ""}],
    ids=str,
)
async def test_an_id_token_that_is_not_of_this_login_is_refused(
    changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    behind = Behind()
    mint = behind.upstream.engine.mint
    signed = mint.signed
    monkeypatch.setattr(mint, "signed", lambda said, typ: signed(said | changes if typ == "JWT" else said, typ))
    assert answer(await behind.through())["error"] == "server_error"


async def test_an_upstream_that_is_away_or_of_another_name_makes_a_page() -> None:
    behind = Behind()
    behind.wire.away = True
    assert (await behind.sent()).status == 503
    behind = Behind(upstream=Upstream(issuer="https://other.example"))
    assert (await behind.sent()).status == 503  # its metadata name another issuer


async def test_an_upstream_that_goes_away_meanwhile_is_told_to_the_client() -> None:
    behind = Behind()
    query = await behind.back(await behind.sent())
    behind.wire.away = True
    assert answer(await behind.ask("GET", "/callback", query))["error"] == "temporarily_unavailable"


# -- its start


async def test_several_processes_need_key_and_store() -> None:
    for given in ({"key": None}, {"store": None}, {"key": None, "store": None}, {"store": "memory:"}):
        with pytest.raises(LocalError, match="several processes"):
            await Behind(**given).proxy.join(MemoryBus("proxy"))
    await Behind(store="sqlite:grants.db").proxy.join(MemoryBus("proxy"))


async def test_one_process_without_them_says_that_logins_end_with_it(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "dragoman.auth.proxy"):
        await Behind(key=None).proxy.start()
    assert "end with this process" in caplog.text


async def test_its_store_is_opened_and_closed(tmp_path: Any) -> None:
    behind = Behind(store=f"sqlite:{tmp_path}/grants.db")
    await behind.proxy.start()
    given = await behind.login()
    await behind.proxy.stop()
    again = Behind(store=f"sqlite:{tmp_path}/grants.db")
    await again.proxy.start()
    assert (await again.refresh(given["refresh_token"])).status == 200
    await again.proxy.stop()


def test_what_cannot_be_right_is_refused_at_once() -> None:
    with pytest.raises(LocalError, match="32 secret bytes"):
        Behind(key=b"short")
    with pytest.raises(LocalError, match="client_id and client_secret"):
        Behind(client_secret="")
    with pytest.raises(LocalError, match="plain HTTP off loopback"):
        Proxy("http://notes.example", client_id="a", client_secret="b")
    with pytest.raises(LocalError, match="stands before"):
        Bearer(UPSTREAM, resource=RESOURCE + "2", proxy=Behind().proxy)
    with pytest.raises(LocalError, match="stands before one issuer"):
        Bearer([UPSTREAM, URL], resource=RESOURCE, proxy=Proxy(URL, client_id="a", client_secret="b"))


async def test_a_proxy_with_nothing_behind_it_does_not_start() -> None:
    with pytest.raises(LocalError, match="nothing is behind it"):
        await Proxy(URL, client_id="a", client_secret="b").start()


async def test_a_caller_of_another_issuer_has_no_token_here() -> None:
    with pytest.raises(LocalError, match="logged in elsewhere"):
        await Behind().proxy.upstream_token(Identity(subject="alice", issuer="https://other.example"))


def test_keys_are_the_same_for_one_secret_and_seals_are_bound_to_their_place() -> None:
    assert signing_key(KEY).public_jwk() == signing_key(KEY).public_jwk()
    assert signing_key(KEY).kid != signing_key(b"n" * 32).kid
    sealer = AesSealer([KEY])
    sealed = sealer.seal(b"document", b"here")
    assert sealer.open(sealed, b"here") == b"document"
    for wrong in (
        sealer.open(sealed, b"there"),
        AesSealer([b"n" * 32]).open(sealed, b"here"),
        sealer.open(b"", b"here"),
    ):
        assert wrong is None
    changed = sealed[:-1] + bytes([sealed[-1] ^ 1])
    assert sealer.open(changed, b"here") is None
    assert sealer.seal(b"document", b"here") != sealed
