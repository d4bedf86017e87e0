"""Grants in which no browser is: programs, devices, assertions, token exchange; revocation and introspection."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dragoman.auth.authentication import ASSERTION
from dragoman.auth.engine.model import Lives
from dragoman.auth.jose import new_key, parse_jws, sign_jws
from dragoman.auth.server import Client, TrustedIssuer, secret_hash

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
    header,
    id_jag,
    pending,
)


def keyed(**options: Any) -> Asker:
    """A server that knows a client with a key, and issuers whose assertions are grants."""
    return Asker(
        clients=(
            Client(id="keyed", method="private_key_jwt", keys=KEYS, grants=ALL),
            Client(id="shop", method="client_secret_basic", secret_hash=secret_hash(SECRET), grants=ALL),
            Client(id="worker", grants=(BEARER,)),
        ),
        trusted=(
            TrustedIssuer(issuer=IDP, keys=KEYS),
            TrustedIssuer(issuer="https://cluster.example", keys=KEYS, kind="workload", clients={"pod-1": "worker"}),
        ),
        **options,
    )


def assertion(asker: Asker, **changes: Any) -> dict[str, str]:
    """A client's assertion that is right but for these claims; None leaves one out."""
    now = asker.clock()
    said = {"iss": "keyed", "sub": "keyed", "aud": ISSUER, "exp": now + 60, "iat": now, "jti": str(asker.clock())}
    made = {name: value for name, value in (said | changes).items() if value is not None}
    return {"client_assertion_type": ASSERTION, "client_assertion": sign_jws(made, KEY, typ="JWT")}


async def test_client_credentials_give_a_token_of_the_client_and_no_refresh_token() -> None:
    asker = Asker()
    given = body(await asker.token(BASIC, grant_type="client_credentials", scope="sync", resource=RESOURCE))
    found = claims(given["access_token"])
    assert (found["sub"], found["client_id"], found["aud"], found["scope"]) == ("shop", "shop", RESOURCE, "sync")
    assert "refresh_token" not in given


async def test_a_secret_may_stand_in_the_body() -> None:
    form = {"grant_type": "client_credentials", "client_id": "shop", "client_secret": SECRET}
    assert (await Asker().token(**form)).status == 200


WRONG_CLIENTS = {
    "no such client": (basic("unknown", "x"), {}),
    "a wrong secret": (basic("shop", "x"), {}),
    "an empty secret": (basic("shop", ""), {}),
    "no colon": ({"authorization": "Basic c2hvcA=="}, {}),
    "no base64": ({"authorization": "Basic ???"}, {}),
    "bytes that are not text": ({"authorization": "Basic /////w=="}, {}),
    "a bearer token": ({"authorization": "Bearer x"}, {}),
    "the right secret by another scheme": ({"authorization": BASIC["authorization"].replace("Basic", "Bearer")}, {}),
    "two headers": ({"authorization": f"{BASIC['authorization']}, {BASIC['authorization']}"}, {}),
    "another id in the body": (BASIC, {"client_id": "app"}),
    "a secret in the body that is wrong": ({}, {"client_id": "shop", "client_secret": "x"}),
    "no secret at all": ({}, {"client_id": "shop"}),
    "a secret for a public client": ({}, {"client_id": "app", "client_secret": "x"}),
}


@pytest.mark.parametrize(("headers", "form"), WRONG_CLIENTS.values(), ids=WRONG_CLIENTS)
@pytest.mark.parametrize("path", ["/token", "/revoke", "/introspect", "/device_authorization"])
async def test_a_client_that_does_not_prove_itself_is_refused(
    path: str, headers: dict[str, str], form: dict[str, str]
) -> None:
    made = await Asker().post(path, {"grant_type": "client_credentials", "token": "x"} | form, headers)
    assert (made.status, body(made)["error"]) == (401, "invalid_client")
    assert bool(header(made, "WWW-Authenticate")) is ("authorization" in headers)


async def test_two_ways_at_once_are_refused() -> None:
    made = await Asker().token(BASIC, grant_type="client_credentials", client_secret=SECRET)
    assert (made.status, body(made)["error"]) == (400, "invalid_request")


async def test_a_public_client_gets_nothing_by_itself() -> None:
    asker = Asker(clients=(Client(id="app", grants=ALL),))
    for grant in ("client_credentials", EXCHANGE):
        assert body(await asker.token(client_id="app", grant_type=grant))["error"] == "unauthorized_client"


# -- private_key_jwt


async def test_a_client_proves_itself_by_its_key_once_each() -> None:
    asker = keyed()
    sent = assertion(asker)
    assert (await asker.token(grant_type="client_credentials", **sent)).status == 200
    replayed = await asker.token(grant_type="client_credentials", **sent)
    assert (replayed.status, body(replayed)["error"]) == (401, "invalid_client")
    endpoint = assertion(asker, aud=ISSUER + "/token", jti="two")
    assert (await asker.token(grant_type="client_credentials", **endpoint)).status == 200


async def test_keys_at_a_url_are_fetched_as_what_a_stranger_named() -> None:
    """So that an address in the own network is not asked, whatever a client writes into its registration."""
    client = Client(id="keyed", method="private_key_jwt", keys_url="https://app.example/keys", grants=ALL)
    asker = Asker(clients=(client,))
    asker.web.pages["https://app.example/keys"] = Page(body=msgspec.json.encode(KEYS))
    made = await asker.token(grant_type="client_credentials", **assertion(asker))
    assert made.status == 200
    assert asker.web.trusted == [False]


NOW = 1_800_000_000.0
WRONG_ASSERTIONS: dict[str, dict[str, Any]] = {
    "another issuer": {"iss": "shop"},
    "another subject": {"sub": "shop"},
    "another audience": {"aud": "https://other.example"},
    "an audience besides": {"aud": [ISSUER, "https://other.example"]},
    "no audience": {"aud": None},
    "an empty audience": {"aud": []},
    "no expiry": {"exp": None},
    "expired": {"exp": NOW - 31},
    "an expiry that is text": {"exp": "1900000000"},
    "an expiry that is true": {"exp": True},
    "valid for hours": {"exp": NOW + 7_200},
    "from the future": {"iat": NOW + 31},
    "not yet": {"nbf": NOW + 31},
    "no jti": {"jti": None},
    "an empty jti": {"jti": ""},
    "a jti that is a number": {"jti": 1},
    "a huge jti": {"jti": "x" * 513},
}


@pytest.mark.parametrize("changes", WRONG_ASSERTIONS.values(), ids=WRONG_ASSERTIONS)
async def test_a_wrong_assertion_of_a_client_is_refused(changes: dict[str, Any]) -> None:
    asker = keyed()
    made = await asker.token(grant_type="client_credentials", client_id="keyed", **assertion(asker, **changes))
    assert (made.status, body(made)["error"]) == (401, "invalid_client")


@pytest.mark.parametrize("text", ["", "x", "a.b.c", "é.é.é", "eyJhbGciOiJub25lIn0.e30."])
async def test_what_is_no_assertion_is_refused(text: str) -> None:
    sent = {"client_assertion_type": ASSERTION, "client_assertion": text, "grant_type": "client_credentials"}
    assert (await keyed().token(**sent)).status in (400, 401)
    assert (await keyed().token(client_id="keyed", **sent)).status in (400, 401)


async def test_an_assertion_of_another_key_or_type_is_refused() -> None:
    asker = keyed()
    other = sign_jws(claims(assertion(asker)["client_assertion"]), new_key("ES256", kid="k1"), typ="JWT")
    sent = {"client_assertion_type": ASSERTION, "client_assertion": other, "grant_type": "client_credentials"}
    assert (await asker.token(**sent)).status == 401
    right = assertion(asker) | {"client_assertion_type": "saml"}
    assert (await asker.token(grant_type="client_credentials", **right)).status == 400


# -- jwt-bearer


async def test_an_id_jag_gives_a_token_for_its_user_and_resource() -> None:
    asker = keyed()
    given = body(await asker.token(BASIC, grant_type=BEARER, assertion=id_jag(asker), scope="notes:read admin"))
    found = claims(given["access_token"])
    assert (found["sub"], found["aud"], found["scope"]) == ("carol", RESOURCE, "notes:read")
    assert "refresh_token" not in given
    replayed = await asker.token(BASIC, grant_type=BEARER, assertion=id_jag(asker))
    assert body(replayed)["error"] == "invalid_grant"


WRONG_ID_JAGS: dict[str, dict[str, Any]] = {
    "another client": {"client_id": "keyed"},
    "no client": {"client_id": None},
    "no user": {"sub": None},
    "an empty user": {"sub": ""},
    "the token endpoint": {"aud": ISSUER + "/token"},
    "another audience": {"aud": "https://other.example"},
    "an issuer that is not trusted": {"iss": "https://evil.example"},
    "an issuer of workloads": {"iss": "https://cluster.example"},
    "a slash more": {"iss": IDP + "/"},
    "expired": {"exp": NOW - 31},
    "no expiry": {"exp": None},
    "no jti": {"jti": None},
    "an access token": {"typ": "at+jwt"},
    "no type": {"typ": None},
    "another key": {"key": new_key("ES256", kid="k1")},
    "a resource that is none": {"resource": "mcp"},
}


@pytest.mark.parametrize("changes", WRONG_ID_JAGS.values(), ids=WRONG_ID_JAGS)
async def test_a_wrong_id_jag_is_refused(changes: dict[str, Any]) -> None:
    asker = keyed()
    made = await asker.token(BASIC, grant_type=BEARER, assertion=id_jag(asker, **changes))
    assert (made.status, body(made)["error"]) in ((400, "invalid_grant"), (400, "invalid_target"))


async def test_an_id_jag_without_its_client_is_refused() -> None:
    asker = keyed()
    assert body(await asker.token(grant_type=BEARER, assertion=id_jag(asker)))["error"] == "invalid_grant"


async def test_an_id_jag_for_one_resource_is_not_for_another() -> None:
    asker = keyed()
    sent = await asker.token(BASIC, grant_type=BEARER, assertion=id_jag(asker), resource=RESOURCE + "2")
    assert body(sent)["error"] == "invalid_target"


async def test_a_workload_is_its_client_by_its_platforms_token() -> None:
    asker = keyed()

    def platform(**changes: Any) -> str:
        said = {"iss": "https://cluster.example", "sub": "pod-1", "aud": ISSUER, "exp": asker.clock() + 600}
        return sign_jws(said | changes, KEY)

    for _ in range(2):  # a platform hands out one token for a while
        given = body(await asker.token(grant_type=BEARER, assertion=platform(), resource=RESOURCE, scope="sync"))
        found = claims(given["access_token"])
        assert (found["sub"], found["client_id"], found["aud"]) == ("worker", "worker", RESOURCE)
    for wrong in (platform(sub="pod-2"), platform(aud="https://other.example"), platform(exp=asker.clock() - 31)):
        assert body(await asker.token(grant_type=BEARER, assertion=wrong))["error"] == "invalid_grant"
    assert (
        body(await asker.token(grant_type=BEARER, assertion=platform(), client_id="shop"))["error"] == "invalid_grant"
    )


@pytest.mark.parametrize(("said", "status"), [(IDP, 200), ("https://evil.example", 503)])
async def test_an_issuers_keys_are_found_by_its_metadata(said: str, status: int) -> None:
    asker = Asker(trusted=[TrustedIssuer(issuer=IDP)])
    asker.web.pages = {
        IDP + "/.well-known/openid-configuration": Page(
            body=msgspec.json.encode({"issuer": said, "jwks_uri": IDP + "/keys"})
        ),
        IDP + "/keys": Page(body=msgspec.json.encode(KEYS)),
    }
    assert (await asker.token(BASIC, grant_type=BEARER, assertion=id_jag(asker))).status == status


# -- token exchange


async def test_an_exchange_gives_a_token_of_the_subject_for_another_audience() -> None:
    asker = Asker()
    token = (await asker.login())["access_token"]
    form = {"grant_type": EXCHANGE, "subject_token": token, "subject_token_type": TYPE + "access_token"}
    given = body(await asker.token(BASIC, **form, resource="https://next.example", scope="notes:read"))
    found = claims(given["access_token"])
    assert given["issued_token_type"] == TYPE + "access_token"
    assert (found["sub"], found["aud"], found["scope"]) == ("alice", "https://next.example", "notes:read")
    assert found["act"] == {"sub": "shop"}
    assert body(await asker.token(BASIC, **form, scope="admin"))["error"] == "invalid_scope"
    # 4.1: "prior actors" are nested
    again = form | {"subject_token": given["access_token"], "resource": RESOURCE, "scope": "notes:read"}
    found = claims(body(await asker.token(BASIC, **again))["access_token"])
    assert found["act"] == {"sub": "shop", "act": {"sub": "shop"}}


async def test_an_exchange_of_what_has_ended_is_refused() -> None:
    asker = Asker()
    given = await asker.login()
    form = {"grant_type": EXCHANGE, "subject_token": given["access_token"], "subject_token_type": TYPE + "access_token"}
    await asker.post("/revoke", {"token": given["refresh_token"], "client_id": "app"})
    assert body(await asker.token(BASIC, **form))["error"] == "invalid_request"
    for changes in (
        {"subject_token": "x"},
        {"subject_token_type": "saml"},
        {"requested_token_type": "saml"},
        {"actor_token": "x"},
        {"subject_token": given["refresh_token"]},
    ):
        assert body(await asker.token(BASIC, **(form | changes)))["error"] == "invalid_request"


async def test_an_id_token_becomes_an_id_jag_for_another_server() -> None:
    asker = Asker(lives=Lives(access=600.0))
    code = await asker.code(client_id="shop", scope="openid")
    form = {"grant_type": "authorization_code", "code": code, "redirect_uri": REDIRECT, "code_verifier": "v" * 43}
    token = body(await asker.token(BASIC, **form))["id_token"]
    form = {
        "grant_type": EXCHANGE,
        "subject_token": token,
        "subject_token_type": TYPE + "id_token",
        "requested_token_type": TYPE + "id-jag",
        "audience": "https://other.example",
        "resource": RESOURCE,
        "scope": "notes:read",
    }
    given = body(await asker.token(BASIC, **form))
    assert (given["issued_token_type"], given["token_type"]) == (TYPE + "id-jag", "N_A")
    found = claims(given["access_token"])
    assert parse_jws(given["access_token"], frozenset({"ES256"})).header["typ"] == "oauth-id-jag+jwt"
    assert (found["sub"], found["aud"], found["client_id"]) == ("alice", "https://other.example", "shop")
    assert (found["resource"], found["scope"]) == (RESOURCE, "notes:read")
    assert given["expires_in"] == found["exp"] - found["iat"] == 300
    mine = await asker.login(scope="openid")  # its ID token is the app's
    for kind, other in (("id_token", mine["id_token"]), ("access_token", mine["access_token"])):
        changes = {"subject_token": other, "subject_token_type": TYPE + kind}
        refused = body(await asker.token(BASIC, **(form | changes)))
        assert refused["error"] == "invalid_request"
        assert "the ID token that this client got" in refused["error_description"]
    for audiences in ([], ["https://other.example", "https://another.example"]):
        fields = [*((name, value) for name, value in form.items() if name != "audience")]
        made = await asker.post("/token", [*fields, *(("audience", one) for one in audiences)], BASIC)
        assert body(made)["error"] == "invalid_request"


async def test_an_id_token_is_exchanged_by_its_own_client_alone() -> None:
    asker = Asker()
    token = (await asker.login(scope="openid"))["id_token"]
    form = {"grant_type": EXCHANGE, "subject_token": token, "subject_token_type": TYPE + "id_token"}
    refused = body(await asker.token(BASIC, **form))
    assert (refused["error"], refused["error_description"]) == (
        "invalid_request",
        "The subject_token was issued to another client",
    )


@pytest.mark.parametrize("grant", ["password", "implicit", "urn:ietf:params:oauth:grant-type:saml2-bearer"])
async def test_a_grant_that_there_is_not(grant: str) -> None:
    refused = await Asker().token(BASIC, grant_type=grant, username="alice", password="wonder")
    assert (refused.status, body(refused)["error"]) == (400, "unsupported_grant_type")


# -- devices


async def device(asker: Asker) -> dict[str, Any]:
    """A device's request."""
    form = {"client_id": "other", "scope": "notes:read", "resource": RESOURCE}
    return body(await asker.post("/device_authorization", form))


async def poll(asker: Asker, asked: dict[str, Any], client: str = "other") -> dict[str, Any]:
    """A device's poll, in time."""
    asker.clock.advance(6)
    return body(await asker.token(grant_type=DEVICE, device_code=asked["device_code"], client_id=client))


async def test_a_device_gets_tokens_when_its_user_agrees() -> None:
    asker = Asker()
    asked = await device(asker)
    assert asked["verification_uri"] == ISSUER + "/device"
    assert (await poll(asker, asked))["error"] == "authorization_pending"
    shown = await asker.ask("GET", "/device", "user_code=" + asked["user_code"])
    assert asked["user_code"] in shown.body.decode()
    page = await asker.post("/device", {"user_code": asked["user_code"].lower().replace("-", " ")})
    assert "this very code" in page.body.decode()
    assert (await asker.consent(page)).status == 200
    given = await poll(asker, asked)
    assert claims(given["access_token"])["aud"] == RESOURCE
    assert (await poll(asker, asked))["error"] == "expired_token"
    assert "no such code" in (await asker.post("/device", {"user_code": asked["user_code"]})).body.decode()


async def test_a_registration_that_a_device_uses_lives_on() -> None:
    asker = Asker(registration=True)
    said = {"redirect_uris": [REDIRECT], "token_endpoint_auth_method": "none", "grant_types": [DEVICE]}
    made = await asker.ask(
        "POST", "/register", body=msgspec.json.encode(said), headers={"content-type": "application/json"}
    )
    id = body(made)["client_id"]
    for _ in range(2):
        form = {"client_id": id, "scope": "notes:read", "resource": RESOURCE}
        asked = body(await asker.post("/device_authorization", form))
        await asker.consent(await asker.post("/device", {"user_code": asked["user_code"]}))
        assert "access_token" in await poll(asker, asked, client=id)
        asker.clock.advance(86_401)  # seconds after which one that no one uses is forgotten


async def test_a_device_is_denied() -> None:
    asker = Asker()
    asked = await device(asker)
    page = await asker.post("/device", {"user_code": asked["user_code"]})
    assert (await asker.consent(page, answer="deny")).status == 200
    assert (await poll(asker, asked))["error"] == "access_denied"


async def test_a_device_that_polls_too_soon_is_slowed_down() -> None:
    asker = Asker()
    asked = await device(asker)
    form = {"grant_type": DEVICE, "device_code": asked["device_code"], "client_id": "other"}
    errors = [body(await asker.token(**form))["error"] for _ in range(2)]
    asker.clock.advance(6)
    errors.append(body(await asker.token(**form))["error"])
    asker.clock.advance(16)
    errors.append(body(await asker.token(**form))["error"])
    assert errors == ["authorization_pending", "slow_down", "slow_down", "authorization_pending"]


async def test_a_device_code_expires_and_is_its_clients() -> None:
    asker = Asker()
    asked = await device(asker)
    form = {"grant_type": DEVICE, "device_code": asked["device_code"]}
    assert body(await asker.token(BASIC, **form))["error"] == "invalid_grant"
    asker.clock.advance(601)
    assert (await poll(asker, asked))["error"] == "expired_token"


async def test_user_codes_cannot_be_guessed_at_will() -> None:
    asker = Asker()
    pages = [await asker.post("/device", {"user_code": "BCDF-GHJK"}) for _ in range(31)]
    assert [page.status for page in pages] == [200] * 30 + [429]
    elsewhere = await asker.post("/device", {"user_code": "BCDF-GHJK"}, remote="192.0.2.9:1")
    assert elsewhere.status == 200, "one that guesses stops no other"
    asked = await device(asker)
    asker.clock.advance(121)
    assert pending(await asker.post("/device", {"user_code": asked["user_code"]}))


# -- revocation and introspection


async def test_revoking_a_refresh_token_ends_its_access_tokens() -> None:
    asker = Asker()
    given = await asker.login()
    made = await asker.post("/revoke", {"token": given["refresh_token"], "client_id": "app"})
    assert (made.status, made.body) == (200, b"")
    assert await asker.introspect(given["access_token"]) == {"active": False}
    assert (await asker.refresh(given["refresh_token"])).status == 400


async def test_revoking_an_access_token_leaves_the_grant() -> None:
    asker = Asker()
    given = await asker.login()
    assert (await asker.post("/revoke", {"token": given["access_token"], "client_id": "app"})).status == 200
    assert await asker.introspect(given["access_token"]) == {"active": False}
    assert (await asker.refresh(given["refresh_token"])).status == 200


async def test_a_client_revokes_its_own_tokens_alone() -> None:
    asker = Asker()
    given = await asker.login()
    for token in (given["access_token"], given["refresh_token"]):
        made = await asker.post("/revoke", {"token": token, "client_id": "other"})
        assert body(made)["error"] == "unauthorized_client"
    assert (await asker.introspect(given["access_token"]))["active"] is True
    assert (await asker.post("/revoke", {"token": "made up", "client_id": "other"})).status == 200


async def test_introspection_says_nothing_of_what_is_not_active() -> None:
    asker = Asker()
    given = await asker.login()
    assert (await asker.introspect(given["access_token"]))["aud"] == RESOURCE
    for token in ("x", given["refresh_token"], given["access_token"][:-4] + "AAAA"):
        assert await asker.introspect(token) == {"active": False}
    asker.clock.advance(301)
    assert await asker.introspect(given["access_token"]) == {"active": False}
    made = await asker.post("/introspect", {"token": given["access_token"], "client_id": "app"})
    assert (made.status, body(made)["error"]) == (401, "invalid_client")


async def test_a_resource_learns_of_its_own_tokens_alone() -> None:
    asker = Asker()
    server = Client(
        id="rs", method="client_secret_basic", secret_hash=secret_hash("s"), grants=(), resources=(RESOURCE,)
    )
    asker.engine.clients.add(server)
    mine, others = (
        (await asker.login())["access_token"],
        (await asker.login(resource="https://x.example"))["access_token"],
    )
    said = [
        body(await asker.post("/introspect", {"token": each}, basic("rs", "s")))["active"] for each in (mine, others)
    ]
    assert said == [True, False]
