"""Token exchange (RFC 8693), and Entra's way of it."""

from __future__ import annotations

from base64 import b64decode
from typing import Any

import jwt
import pytest

from dragoman.auth import Bearer, Exchange, Issuer, IssuerAway, OAuthError
from dragoman.auth.authentication import ASSERTION, ASSERTION_LIFE
from dragoman.auth.exchange import EARLY
from dragoman.auth.grant_types import ACCESS_TOKEN_TYPE, JWT_BEARER, TOKEN_EXCHANGE
from dragoman.auth.jose import new_key
from dragoman.channel import Identity
from dragoman.jsonrpc.errors import LocalError
from tests.auth.issuing import ISSUER, METADATA, NOW, PLAIN, RESOURCE, Clock, FakeIssuer, Reply, reply, token

URL = ISSUER + "/token"
GOT = {"access_token": "new", "issued_token_type": ACCESS_TOKEN_TYPE, "token_type": "Bearer", "expires_in": 300}
CLIENT = Exchange(client_id="our server", secret="s3cret/+ é")


async def caller(
    fake: FakeIssuer, client: Exchange | None = CLIENT, clock: Clock | None = None, **row: Any
) -> Identity:
    fake.pages.setdefault(URL, reply(GOT))
    issuer = Issuer(issuer=ISSUER, **row)
    verifier = Bearer(issuer, resource=RESOURCE, fetcher=fake, now=clock or Clock(), exchange=client)
    return await verifier.verify(token(), PLAIN)


async def test_what_is_asked_for() -> None:
    fake = FakeIssuer()
    who = await caller(fake)
    assert await who.exchange(audience="api", resource="https://api.example", scopes=["read", "write"]) == "new"
    question = fake.asked[-1]
    assert (question.url, question.by) == (URL, "document")
    assert question.form == {
        "grant_type": TOKEN_EXCHANGE,
        "subject_token": token(),
        "subject_token_type": ACCESS_TOKEN_TYPE,
        "requested_token_type": ACCESS_TOKEN_TYPE,
        "audience": "api",
        "resource": "https://api.example",
        "scope": "read write",
    } | {"subject_token": who.credential.reveal()}  # type: ignore[union-attr]
    kind, _, pair = question.headers["authorization"].partition(" ")
    assert (kind, b64decode(pair)) == ("Basic", b"our+server:s3cret%2F%2B+%C3%A9")  # RFC 6749 section 2.3.1


async def test_a_secret_in_the_form() -> None:
    fake = FakeIssuer()
    who = await caller(fake, Exchange(client_id="app", secret="s", method="post"))
    await who.exchange(audience="api")
    form = fake.asked[-1].form or {}
    assert (form["client_id"], form["client_secret"], dict(fake.asked[-1].headers)) == ("app", "s", {})


async def test_a_private_key() -> None:
    fake, key = FakeIssuer(), new_key("ES256")
    who = await caller(fake, Exchange(client_id="app", key=key))
    await who.exchange(audience="api")
    form = fake.asked[-1].form or {}
    assert (form["client_assertion_type"], dict(fake.asked[-1].headers)) == (ASSERTION, {})
    public = jwt.PyJWK(key.public_jwk()).key
    unjudged: Any = {"verify_exp": False, "verify_iat": False}  # the clock is that of the test
    claims = jwt.decode(form["client_assertion"], public, algorithms=["ES256"], audience=ISSUER, options=unjudged)
    assert (claims["iss"], claims["sub"], claims["exp"] - claims["iat"]) == ("app", "app", ASSERTION_LIFE)
    assert claims["jti"]


async def test_on_behalf_of() -> None:
    fake = FakeIssuer()
    fake.pages["https://login.example/token"] = reply(GOT)
    who = await caller(fake, exchange="on_behalf_of", token_endpoint="https://login.example/token")
    assert await who.exchange(scopes=["api://x/.default"]) == "new"
    form, by = fake.asked[-1].form or {}, fake.asked[-1].by
    assert {**form, "assertion": ""} == {
        "grant_type": JWT_BEARER,
        "assertion": "",
        "requested_token_use": "on_behalf_of",
        "scope": "api://x/.default",
    }
    assert by == "operator"
    with pytest.raises(LocalError, match="Entra wants scopes"):
        await who.exchange(audience="x")


async def test_a_token_that_was_got_is_given_again_until_shortly_before_its_end() -> None:
    clock = Clock()
    fake = FakeIssuer()
    who = await caller(fake, clock=clock)
    fake.pages[URL] = lambda _: reply(GOT | {"access_token": f"new {fake.count(URL)}"})
    assert [await who.exchange(audience="a") for _ in range(3)] == ["new 1"] * 3
    assert await who.exchange(audience="b") == "new 2"
    assert await who.exchange(audience="a", scopes=["x"]) == "new 3"
    clock.now += 300 - EARLY
    assert await who.exchange(audience="a") == "new 4"


async def test_what_lasts_for_long_is_kept_for_an_hour() -> None:
    clock, fake = Clock(), FakeIssuer()
    fake.pages[URL] = reply(GOT | {"expires_in": 10**9})
    who = await caller(fake, clock=clock)
    for clock.now in (NOW, NOW + 3600 - EARLY - 1, NOW + 3600 - EARLY):
        await who.exchange(audience="a")
    assert fake.count(URL) == 2


@pytest.mark.parametrize("lasts", [None, 0, -1, "300", 10, True])
async def test_what_says_no_time_is_not_kept(lasts: Any) -> None:
    fake = FakeIssuer()
    fake.pages[URL] = reply(GOT | {"expires_in": lasts})
    who = await caller(fake)
    for _ in range(2):
        await who.exchange(audience="a")
    assert fake.count(URL) == 2


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (reply({"error": "invalid_grant", "error_description": "no"}, 400), "invalid_grant: no"),
        (reply({"error": "invalid_client"}, 401), "invalid_client"),
        (reply({"error": "access_denied"}, 403), "access_denied"),
        (reply({"token_type": "Bearer"}), "no access_token"),
        (reply(GOT | {"access_token": 7}), "no access_token"),
        (reply(GOT | {"access_token": ""}), "no access_token"),
        (reply(GOT | {"token_type": None}), "no access_token"),
        (reply(GOT | {"token_type": "N_A"}), "not a bearer token"),
        (reply(GOT | {"token_type": "DPoP"}), "not a bearer token"),
        (reply({"error": 'x"\n<b>', "error_description": "\x1b[31m"}, 400), r"^x\?\?<b>: \?\[31m$"),
    ],
)
async def test_a_no(answer: Reply, error: str) -> None:
    fake = FakeIssuer()
    fake.pages[URL] = answer
    who = await caller(fake)
    with pytest.raises(OAuthError, match=error):
        await who.exchange(audience="a")


@pytest.mark.parametrize(
    "answer",
    [
        Reply(500),
        Reply(429),
        Reply(200, b""),
        reply([]),
        Reply(400, b"<html>"),
        reply({"x": 1}, 400),
        Reply(200, b"{" * 300_000),
    ],
)
async def test_no_answer(answer: Reply) -> None:
    fake = FakeIssuer()
    fake.pages[URL] = answer
    who = await caller(fake)
    with pytest.raises(IssuerAway):
        await who.exchange(audience="a")


async def test_away() -> None:
    fake = FakeIssuer()
    who = await caller(fake)
    fake.away = True
    with pytest.raises(IssuerAway):
        await who.exchange(audience="a")


async def test_wrong_uses() -> None:
    fake = FakeIssuer()
    who = await caller(fake)
    with pytest.raises(LocalError, match="say for whom"):
        await who.exchange()
    with pytest.raises(LocalError, match="list of texts"):
        await who.exchange(audience="a", scopes="read write")
    fake = FakeIssuer()
    fake.pages[METADATA] = reply({"issuer": ISSUER, "jwks_uri": ISSUER + "/keys"})
    who = await caller(fake)
    with pytest.raises(LocalError, match="no token_endpoint"):
        await who.exchange(audience="a")
    for wrong in ({}, {"secret": "a", "key": new_key("ES256")}):
        with pytest.raises(LocalError, match="secret= or key="):
            Exchange(client_id="a", **wrong)  # type: ignore[arg-type]


def test_the_secret_is_not_shown() -> None:
    assert "s3cret" not in repr(CLIENT) + str(CLIENT)
