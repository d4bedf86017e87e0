"""What strangers, and clients that want more than theirs, send to an authorization server."""

from __future__ import annotations

import asyncio
import random
from typing import Any
from urllib.parse import urlencode

import msgspec
import pytest

from dragoman.allowance import Allowance, Slots
from dragoman.auth.authentication import ASSERTION
from dragoman.auth.dpop import ProofChecker
from dragoman.auth.engine.clients import REGISTRATIONS
from dragoman.auth.engine.device import GUESSES, WAITING
from dragoman.auth.engine.messages import EndpointRequest, Parameters
from dragoman.auth.engine.model import Pending
from dragoman.auth.engine.published import FETCHES
from dragoman.auth.engine.seals import Signer
from dragoman.auth.errors import TokenRefused
from dragoman.auth.jose import new_key, sign_jws
from dragoman.auth.keys import COOLDOWN
from dragoman.auth.proxy import GITHUB, Proxy
from dragoman.auth.server import Client, TrustedIssuer, User, secret_hash
from dragoman.auth.server.accounts import LocalUsers
from dragoman.store.contract import Change
from dragoman.store.memory import InMemoryStore

from .asking import (
    ALL,
    BASIC,
    BEARER,
    DEVICE,
    EXCHANGE,
    IDP,
    ISSUER,
    KEY,
    KEYS,
    REDIRECT,
    RESOURCE,
    SECRET,
    TYPE,
    Asker,
    Page,
    basic,
    body,
    claims,
    id_jag,
    pending,
)


class SlowStore(InMemoryStore):
    """Other tasks run before and after each step, as with a store at another place."""

    turns = random.Random(7)

    async def _pause(self) -> None:
        for _ in range(self.turns.randrange(8)):
            await asyncio.sleep(0)

    async def read(self, owner: str) -> bytes | None:
        await self._pause()
        found = await super().read(owner)
        await self._pause()
        return found

    async def change(self, owner: str, edit: Change) -> Any:
        await self._pause()
        found = await super().change(owner, edit)
        await self._pause()
        return found


def slow() -> Asker:
    """A server with a `SlowStore`."""
    asker = Asker()
    asker.engine.records.engine = SlowStore(1_000, 1_000_000, asker.clock)
    return asker


def shop(**more: Any) -> Client:
    """A client with a secret and all grants."""
    return Client(id="shop", method="client_secret_basic", secret_hash=secret_hash(SECRET), grants=ALL, **more)


async def test_an_exchange_gives_a_client_no_scope_that_is_not_its_own() -> None:
    app = Client(id="app", redirect_uris=("https://app.example/callback",))
    asker = Asker(clients=(app, shop(scopes=("notes:read",))))
    token = (await asker.login())["access_token"]  # for reading and writing
    form = {"grant_type": EXCHANGE, "subject_token": token, "subject_token_type": TYPE + "access_token"}
    assert claims(body(await asker.token(BASIC, **form))["access_token"])["scope"] == "notes:read"
    assert body(await asker.token(BASIC, **form, scope="notes:write"))["error"] == "invalid_scope"


@pytest.mark.parametrize("asked", ["notes:write", ""])
async def test_an_id_jag_never_gives_a_default_scope_that_it_has_not(asked: str) -> None:
    asker = Asker(
        clients=(shop(scopes=None if asked else ("notes:write",)),),
        trusted=(TrustedIssuer(issuer=IDP, keys=KEYS),),
        scopes=("notes:read", "notes:write"),
        default_scopes=("notes:write",),
    )
    form = {"grant_type": BEARER, "assertion": id_jag(asker, scope="notes:read")} | ({"scope": asked} if asked else {})
    assert body(await asker.token(BASIC, **form))["error"] == "invalid_scope"


async def test_user_codes_that_are_sent_at_once_count_too() -> None:
    asker = slow()
    pages = await asyncio.gather(*(asker.post("/device", {"user_code": "BCDF-GHJK"}) for _ in range(3 * GUESSES)))
    assert sorted(page.status for page in pages) == [200] * GUESSES + [429] * 2 * GUESSES


async def test_right_user_codes_do_not_count() -> None:
    asker = Asker()
    asked = body(await asker.post("/device_authorization", {"client_id": "other"}))
    for _ in range(GUESSES + 1):
        assert pending(await asker.post("/device", {"user_code": asked["user_code"]}))


async def test_invented_names_give_no_new_tries_for_a_password() -> None:
    client, login = Client(id="app"), Pending(id="x", client="app", until=0.0, cookie="")
    users, tried = LocalUsers((User(name="bob", password="canary-7f3a-builder"),)), 0

    async def wrong(name: str) -> str:
        found = await users.approve(login, client, Parameters({"user": name, "password": "guessed"}, {}), {})
        assert isinstance(found, str)
        return found

    for one in range(4):
        for _ in range(5):
            tried += not (await wrong("bob")).startswith("Too many")
        for name in range(1_001):
            await wrong(f"{one}.{name}")
    assert tried == 5
    assert len(users._wrong) <= 1_001


async def test_waiting_devices_leave_room_for_logins() -> None:
    asker = Asker()

    async def begun(remote: str) -> Any:
        return body(await asker.post("/device_authorization", {"client_id": "other"}, remote=remote))["user_code"]

    async def there(code: str) -> bool:
        made = await asker.post("/device", {"user_code": code}, remote="192.0.2.9:1")
        return b"no such code" not in made.body

    honest = await begun("192.0.2.2:1")
    flood = [await begun(f"192.0.2.1:{port}") for port in range(2 * WAITING)]
    assert await there(honest), "it keeps its place"
    assert [await there(code) for code in (flood[0], flood[WAITING], flood[WAITING + 1], flood[-1])] == [
        False,
        False,
        True,
        True,
    ]
    assert (await asker.login())["access_token"]
    assert len(asker.engine.records.engine) < 2 * WAITING + 10  # type: ignore[arg-type]


async def test_a_device_whose_user_has_answered_does_not_give_way() -> None:
    asker = Asker()
    asked = body(await asker.post("/device_authorization", {"client_id": "other"}))
    page = await asker.post("/device", {"user_code": asked["user_code"]})
    assert (await asker.consent(page)).status == 200
    for _ in range(WAITING + 1):
        await asker.post("/device_authorization", {"client_id": "other"})
    form = {"grant_type": DEVICE, "device_code": asked["device_code"], "client_id": "other"}
    assert body(await asker.token(**form))["access_token"]


async def test_documents_of_clients_are_fetched_once_for_all_and_for_none_alone() -> None:
    asker, gate, asked = Asker(), asyncio.Event(), list[str]()

    async def slow(url: str, limit: int, trusted: bool) -> Page:
        asked.append(url)
        if "slow" in url:
            await gate.wait()
        return Page(status=404)

    asker.engine.published._fetch = slow

    async def begin(url: str, remote: str) -> int:
        return (await asker.ask("GET", "/authorize", urlencode({"client_id": url}), remote=remote)).status

    flood = [asyncio.create_task(begin(f"https://slow.example/{n}", "192.0.2.1:1")) for n in range(FETCHES + 8)]
    again = asyncio.create_task(begin("https://slow.example/1", "192.0.2.1:1"))
    for _ in range(5):
        await asyncio.sleep(0)
    assert len(asked) == FETCHES
    assert {one.result() for one in flood[FETCHES:]} == {503}
    assert await begin("https://app.example/client", "192.0.2.2:1") == 400, "it is asked for, and is not there"
    assert await flood[0] == 503, "the oldest of the address that asks most"
    gate.set()
    assert {await one for one in (*flood[1:FETCHES], again)} == {400}
    assert asked.count("https://slow.example/1") == 1


async def test_used_assertions_of_strangers_are_bounded() -> None:
    asker = Asker(registration=True)
    key = new_key("ES256", kid="k")
    sent = {"redirect_uris": ["https://app.example/callback"], "token_endpoint_auth_method": "private_key_jwt"}
    json = {"content-type": "application/json"}
    made = await asker.ask(
        "POST", "/register", body=msgspec.json.encode(sent | {"jwks": {"keys": [key.public_jwk()]}}), headers=json
    )
    id = body(made)["client_id"]
    asker.engine.clients._assertions._used = Allowance(10, 3_600.0)
    statuses = []
    for number in range(7):
        now = int(asker.clock())
        said = {"iss": id, "sub": id, "aud": ISSUER, "jti": str(number), "exp": now + 60, "iat": now}
        form = {"client_assertion": sign_jws(said, key), "client_assertion_type": ASSERTION, "token": "x"}
        statuses.append((await asker.post("/revoke", form)).status)
    assert statuses == [200] * 5 + [503] * 2


async def test_registrations_leave_room_for_logins() -> None:
    asker = Asker(registration=True)
    sent = msgspec.json.encode(
        {"redirect_uris": ["https://app.example/callback"], "token_endpoint_auth_method": "none"}
    )

    async def register() -> int:
        json = {"content-type": "application/json"}
        return (await asker.ask("POST", "/register", body=sent, headers=json)).status

    assert {await register() for _ in range(REGISTRATIONS + 20)} == {201}
    assert (await asker.login())["access_token"]
    assert len(asker.engine.records.engine) < REGISTRATIONS + 10  # type: ignore[arg-type]


async def test_a_registration_gives_way_until_a_user_lets_it_in() -> None:
    asker = Asker(registration=True)
    asker.engine.clients._unused = Slots(4, 86_400.0)
    json = {"content-type": "application/json"}
    sent = msgspec.json.encode({"redirect_uris": [REDIRECT], "token_endpoint_auth_method": "none"})

    async def register(remote: str) -> str:
        made = await asker.ask("POST", "/register", body=sent, headers=json, remote=remote)
        return str(body(made)["client_id"])

    used, honest = await register("192.0.2.2:1"), await register("192.0.2.2:1")
    assert await asker.code(client_id=used)
    flood = [await register("192.0.2.1:1") for _ in range(9)]
    there = [(await asker.authorize(client_id=id)).status for id in (used, honest, *flood)]
    assert there == [200, 200] + [400] * 6 + [200] * 3


def test_a_registered_clients_secret_is_good_as_long_as_the_key_that_signed_it() -> None:
    old, new = b"o" * 32, b"n" * 32
    signed_once = Signer(old).sign("client", {"id": "x"})
    secret = Signer(old).mark("client secret", signed_once)
    assert Signer((new, old)).mark_beside("client secret", signed_once, "client") == secret
    with pytest.raises(StopIteration):
        Signer(new).mark_beside("client secret", signed_once, "client")


async def test_a_registered_client_authenticates_after_the_key_was_changed() -> None:
    old, new = b"o" * 32, b"n" * 32

    def proxy(key: Any) -> Any:
        made = Proxy(ISSUER, client_id="x", client_secret="y", upstream=GITHUB, key=key)
        made.before("https://github.com", RESOURCE)
        return made.engine

    sent = msgspec.json.encode({"redirect_uris": ["https://app.example/callback"]})
    headers = {"content-type": "application/json"}
    before = proxy(old)
    made = body(await before.answer(EndpointRequest(method="POST", path="/register", headers=headers, body=sent)))
    form = {"content-type": "application/x-www-form-urlencoded"} | basic(made["client_id"], made["client_secret"])
    revoked = EndpointRequest(method="POST", path="/revoke", headers=form, body=b"token=x")
    for engine in (before, proxy((new, old))):
        assert (await engine.answer(revoked)).status == 200
    assert (await proxy(new).answer(revoked)).status == 401


async def test_a_code_that_comes_twice_at_once_leaves_no_grant() -> None:
    asker = slow()
    for _ in range(60):
        code = await asker.code()
        for made in await asyncio.gather(*(asker.redeem(code) for _ in range(3))):
            if made.status == 200:
                assert (await asker.refresh(body(made)["refresh_token"])).status == 400
            else:
                assert body(made)["error"] == "invalid_grant"


async def test_assertions_do_not_send_the_server_for_keys_each_time() -> None:
    asker = Asker(trusted=[TrustedIssuer(issuer=IDP)])
    place = IDP + "/.well-known/openid-configuration"

    async def tried(jti: str, key: Any = KEY) -> int:
        sent = id_jag(asker, key=key, jti=jti)
        return (await asker.token(BASIC, grant_type=BEARER, assertion=sent)).status

    assert await asyncio.gather(*(tried(str(n)) for n in range(20))) == [503] * 20  # it is away
    away = len(asker.web.asked)
    assert await tried("a") == 503
    assert len(asker.web.asked) == away  # and is left alone for a while
    asker.web.pages = {
        place: Page(body=msgspec.json.encode({"issuer": IDP, "jwks_uri": IDP + "/keys"})),
        IDP + "/keys": Page(body=msgspec.json.encode(KEYS)),
    }
    asker.clock.advance(COOLDOWN)
    assert await asyncio.gather(*(tried(f"b{n}") for n in range(20))) == [200] * 20
    assert asker.web.asked.count(IDP + "/keys") == 1
    newer = new_key("ES256", kid="k2")
    assert await tried("c", newer) == 400
    asker.clock.advance(COOLDOWN)
    asker.web.pages[IDP + "/keys"] = Page(body=msgspec.json.encode({"keys": [newer.public_jwk()]}))
    assert await tried("d", newer) == 200
    asker.web.pages.clear()
    asker.clock.advance(1_000)
    assert await tried("e", newer) == 200  # its last keys serve while it is away
    asker.clock.advance(4 * 3_600)
    assert await tried("f", newer) == 503


async def test_bytes_beyond_ascii_in_basic_are_refused() -> None:
    asker = Asker()
    made = await asker.token({"authorization": "Basic \xe9"}, grant_type="client_credentials")
    assert (made.status, body(made)["error"]) == (401, "invalid_client")


@pytest.mark.parametrize("aud", [[{}], {"a": 1}, [[ISSUER]], 7, None])
async def test_an_audience_of_another_type_is_refused(aud: Any) -> None:
    asker = Asker(clients=(shop(),), trusted=(TrustedIssuer(issuer=IDP, keys=KEYS),))
    made = await asker.token(BASIC, grant_type=BEARER, assertion=id_jag(asker, aud=aud))
    assert (made.status, body(made)["error"]) == (400, "invalid_grant")


@pytest.mark.parametrize("iat", [10**400, -(10**400), 10**25, 1e300], ids=["huge", "negative", "large", "float"])
def test_a_proof_of_another_age_is_refused(iat: Any) -> None:
    jwk = {name: value for name, value in KEY.public_jwk().items() if name in ("kty", "crv", "x", "y")}
    said = {"jti": "a", "htm": "POST", "htu": RESOURCE, "iat": msgspec.Raw(str(iat).encode())}
    proof = sign_jws(said, KEY, typ="dpop+jwt", headers={"jwk": jwk, "kid": None})
    with pytest.raises(TokenRefused, match="iat"):
        ProofChecker().check(proof, "POST", RESOURCE)


async def test_a_document_whose_age_has_a_digit_of_another_script() -> None:
    asker = Asker()
    place = "https://client.example/app"
    document = {"client_id": place, "client_name": "x", "redirect_uris": ["https://client.example/cb"]}
    asker.web.pages[place] = Page(200, {"cache-control": "max-age=\xb2"}, msgspec.json.encode(document))
    made = await asker.authorize(client_id=place, redirect_uri="https://client.example/cb")
    assert (made.status, pending(made) != "") == (200, True)
