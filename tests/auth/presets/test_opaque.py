"""Opaque tokens: taken only when their issuer says that they were issued to our client."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from msgspec.structs import replace

from dragoman.auth import IssuerAway, OpaqueTokens, TokenRefused
from dragoman.auth.limits import AuthLimits
from dragoman.auth.presets import github, google
from dragoman.auth.presets.opaque import GITHUB_API, GOOGLE_CHECK
from dragoman.jsonrpc.errors import LocalError
from tests.auth.issuing import PLAIN, RESOURCE, FakeIssuer, Reply, reply

FAR = 4_000_000_000
TOKEN = "gho_16C7e42F292c6912E7710c838347Ae178B4a"
CHECK = f"{GITHUB_API}/applications/Iv1.ours/token"
GITHUB: dict[str, Any] = {
    "id": 1,
    "url": "https://api.github.com/authorizations/1",
    "scopes": ["repo", "user"],
    "token": TOKEN,
    "token_last_eight": "Ae178B4a",
    "hashed_token": "25f94a2a5c7fbaf499c665bc73d67c1c87e496da8985131633ee0a95819db2e8",
    "app": {"url": "https://my-github-app.com", "name": "my app", "client_id": "Iv1.ours"},
    "expires_at": None,
    "user": {"login": "octocat", "id": 583231, "type": "User"},
}
OURS = "1234-abc.apps.googleusercontent.com"
GOOGLE: dict[str, Any] = {
    "azp": OURS,
    "aud": OURS,
    "sub": "110169484474386276334",
    "scope": "openid https://www.googleapis.com/auth/userinfo.email",
    "exp": str(FAR),
    "expires_in": "3599",
    "email": "ada@example.com",
    "email_verified": "true",
    "access_type": "online",
}


def of_github(fake: FakeIssuer, answer: Any = GITHUB, **options: Any) -> OpaqueTokens:
    fake.pages[CHECK] = answer if isinstance(answer, Reply) else reply(answer)
    return github("Iv1.ours", "s3cret", resource=RESOURCE, fetcher=fake, **options)


def of_google(fake: FakeIssuer, answer: Any = GOOGLE, **options: Any) -> OpaqueTokens:
    fake.pages[GOOGLE_CHECK] = answer if isinstance(answer, Reply) else reply(answer)
    return google(OURS, "5678-def.apps.googleusercontent.com", resource=RESOURCE, fetcher=fake, **options)


async def test_github() -> None:
    fake = FakeIssuer()
    verifier = of_github(fake, implies={"repo": ["repo:status"]})
    who = await verifier.verify(TOKEN, PLAIN)
    assert (who.subject, who.client_id, who.issuer) == ("583231", "Iv1.ours", "https://github.com/login/oauth")
    assert who.scopes == {"repo", "user", "repo:status"}
    assert (who.claims["login"], who.expires_at) == ("octocat", None)
    assert TOKEN not in json.dumps(dict(who.claims)) + repr(who)
    [question] = fake.asked
    assert (question.url, question.form, question.by) == (CHECK, {"access_token": TOKEN}, "operator")
    assert question.headers["authorization"] == "Basic SXYxLm91cnM6czNjcmV0"
    assert await verifier.verify(TOKEN, PLAIN) is verifier.known(TOKEN.encode()) is who
    assert len(fake.asked) == 1
    assert "s3cret" not in repr(verifier) + repr(vars(verifier))


async def test_github_with_an_end() -> None:
    answer = GITHUB | {"expires_at": "2096-10-02T07:06:40Z", "scopes": None}
    who = await of_github(FakeIssuer(), answer).verify(TOKEN, PLAIN)
    assert (who.expires_at, who.scopes) == (FAR, frozenset())


async def test_google() -> None:
    fake = FakeIssuer()
    who = await of_google(fake).verify("ya29.token", PLAIN)
    assert (who.subject, who.client_id, who.issuer) == (GOOGLE["sub"], OURS, "https://accounts.google.com")
    assert who.scopes == {"openid", "https://www.googleapis.com/auth/userinfo.email"}
    assert (who.claims["email"], who.expires_at) == ("ada@example.com", FAR)
    [question] = fake.asked
    assert (question.url, question.form) == (GOOGLE_CHECK, {})
    assert question.headers["authorization"] == "Bearer ya29.token"


def without(answer: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in answer.items() if name not in names}


REFUSED: list[tuple[str, Any, Any, str]] = [
    (
        "github: unknown, or of another app",
        of_github,
        Reply(404, b'{"message":"Not Found"}'),
        "not of this server's client",
    ),
    ("github: not valid", of_github, Reply(422), "not of this server's client"),
    ("github: of another app", of_github, GITHUB | {"app": {"client_id": "Iv1.theirs"}}, "another service"),
    ("github: of an app without id", of_github, GITHUB | {"app": {}}, "not what it documents"),
    ("github: of no app", of_github, without(GITHUB, "app"), "not what it documents"),
    ("github: of no user", of_github, GITHUB | {"user": None}, "not what it documents"),
    ("github: of a user by name alone", of_github, GITHUB | {"user": {"login": "octocat"}}, "not what it documents"),
    ("github: a user's id as text", of_github, GITHUB | {"user": {"login": "o", "id": "1"}}, "not what it documents"),
    ("github: expired", of_github, GITHUB | {"expires_at": "2020-01-01T00:00:00Z"}, "expired"),
    ("github: an end that is none", of_github, GITHUB | {"expires_at": "soon"}, "not what it documents"),
    ("github: scopes of a wrong kind", of_github, GITHUB | {"scopes": [1]}, "scope is neither"),
    ("github: what GET /user answers", of_github, {"login": "octocat", "id": 583231}, "not what it documents"),
    ("github: no JSON", of_github, Reply(200, b"<html>"), "not what it documents"),
    ("github: deep", of_github, Reply(200, b'{"app":' + b"[" * 90_000), "not what it documents"),
    ("google: not valid", of_google, Reply(400, b'{"error":"invalid_token"}'), "not of this server's client"),
    ("google: of another client", of_google, GOOGLE | {"aud": "evil.apps.googleusercontent.com"}, "another service"),
    ("google: of no client", of_google, without(GOOGLE, "aud"), "not what it documents"),
    ("google: azp ours, aud not", of_google, GOOGLE | {"aud": "x", "azp": OURS}, "another service"),
    ("google: no user", of_google, without(GOOGLE, "sub"), "not what it documents"),
    ("google: expired", of_google, GOOGLE | {"exp": "1000000000"}, "expired"),
    ("google: no end", of_google, without(GOOGLE, "exp"), "not what it documents"),
    ("google: an end that is none", of_google, GOOGLE | {"exp": "soon"}, "not what it documents"),
    ("google: aud a list", of_google, GOOGLE | {"aud": [OURS]}, "client_id is not text"),
]


@pytest.mark.parametrize(("make", "answer", "words"), [pytest.param(*row[1:], id=row[0]) for row in REFUSED])
async def test_an_opaque_token_that_is_refused(make: Any, answer: Any, words: str) -> None:
    fake = FakeIssuer()
    verifier = make(fake, answer)
    for _ in range(2):
        with pytest.raises(TokenRefused, match=words):
            await verifier.verify(TOKEN, PLAIN)
    assert len(fake.asked) == 1  # it is asked about once
    assert verifier.known(TOKEN.encode()) is None


@pytest.mark.parametrize("status", [401, 403, 429, 500, 502, 503, 301, 204])
async def test_an_answer_that_says_nothing_of_the_token(status: int) -> None:
    for make in (of_github, of_google):
        fake = FakeIssuer()
        verifier = make(fake, Reply(status))
        for _ in range(2):
            with pytest.raises(IssuerAway):
                await verifier.verify(TOKEN, PLAIN)
        assert len(fake.asked) == 2  # the next one may be answered


async def test_away() -> None:
    fake = FakeIssuer()
    verifier = of_github(fake)
    fake.away = True
    with pytest.raises(IssuerAway):
        await verifier.verify(TOKEN, PLAIN)
    fake.away = False
    assert (await verifier.verify(TOKEN, PLAIN)).subject == "583231"


async def test_one_question_for_all_who_wait_and_so_many_at_once() -> None:
    fake = FakeIssuer()
    verifier = of_github(fake, limits=AuthLimits(questions=2))
    fake.gate = asyncio.Event()
    same = [asyncio.ensure_future(verifier.verify(TOKEN, PLAIN)) for _ in range(20)]
    other = asyncio.ensure_future(verifier.verify(TOKEN + "2", PLAIN))
    await fake.was_asked.wait()
    with pytest.raises(IssuerAway, match=r"AuthLimits\.questions allows 2"):
        await verifier.verify(TOKEN + "3", PLAIN)
    fake.gate.set()
    await asyncio.gather(*same, other)
    assert len(fake.asked) == 2
    assert (await verifier.verify(TOKEN + "3", PLAIN)).subject == "583231"


async def test_a_token_too_long_is_not_asked_about() -> None:
    fake = FakeIssuer()
    with pytest.raises(TokenRefused, match="16384 are taken"):
        await of_github(fake).verify("x" * 20_000, PLAIN)
    assert not fake.asked


def test_what_cannot_be_right() -> None:
    with pytest.raises(LocalError, match="id and secret"):
        github("", "x", resource=RESOURCE)
    with pytest.raises(LocalError, match="id and secret"):
        github("x", "", resource=RESOURCE)
    with pytest.raises(LocalError, match="name your OAuth clients"):
        google(resource=RESOURCE)
    with pytest.raises(LocalError, match="name your OAuth clients"):
        google("", resource=RESOURCE)
    with pytest.raises(LocalError, match="resource is this server's URL"):
        google("x", resource="mcp")


async def test_a_bound_token_is_refused_where_nobody_proves_it() -> None:
    found = GITHUB | {"cnf": {"jkt": "x" * 43}}
    fake = FakeIssuer()
    github_check = of_github(fake)._check
    bound = replace(github_check, read=lambda answer: {**github_check.read(answer), "cnf": answer["cnf"]})
    fake.pages[CHECK] = reply(found)
    verifier = OpaqueTokens(bound, resource=RESOURCE, fetcher=fake)
    for _ in range(2):
        with pytest.raises(TokenRefused, match="The token is bound"):
            await verifier.verify(TOKEN, PLAIN)
        assert verifier.known(TOKEN.encode()) is None
