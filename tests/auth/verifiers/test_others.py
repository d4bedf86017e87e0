"""Verifiers that need no key set: `Introspection`, `Static`, `MutualTls`."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from dragoman.auth import Introspection, IssuerAway, MutualTls, Static, TokenRefused
from dragoman.auth.dpop import proof
from dragoman.auth.jose import new_key, thumbprint
from dragoman.auth.limits import AuthLimits
from dragoman.channel import Handshake, Identity
from dragoman.jsonrpc.errors import LocalError
from tests.auth.issuing import ISSUER, NOW, PLAIN, RESOURCE, Clock, FakeIssuer, Reply, reply, shown

URL = ISSUER + "/introspect"
ACTIVE: dict[str, Any] = {
    "active": True,
    "scope": "notes:read notes:write",
    "client_id": "app",
    "username": "ada",
    "token_type": "Bearer",
    "exp": int(NOW) + 600,
    "iat": int(NOW) - 10,
    "sub": "ada",
    "aud": RESOURCE,
    "iss": ISSUER,
}


def introspection(fake: FakeIssuer, answer: Any = ACTIVE, **options: Any) -> Introspection:
    fake.pages[URL] = answer if isinstance(answer, Reply) else reply(answer)
    given: dict[str, Any] = {"issuer": ISSUER, "resource": RESOURCE, "client_id": "rs", "secret": "s3cret"}
    return Introspection(URL, **given | {"fetcher": fake, "now": Clock()} | options)


# -- introspection ----------------------------------------------------------------------------------------------------


async def test_introspection() -> None:
    fake = FakeIssuer()
    verifier = introspection(fake, implies={"notes:write": ["notes:list"]})
    who = await verifier.verify("opaque", PLAIN)
    assert (who.subject, who.client_id, who.issuer, who.expires_at) == ("ada", "app", ISSUER, NOW + 630)
    assert who.scopes == {"notes:read", "notes:write", "notes:list"}
    assert who.claims["username"] == "ada"
    [question] = fake.asked
    assert (question.url, question.by) == (URL, "operator")
    assert question.form == {"token": "opaque", "token_type_hint": "access_token"}
    assert question.headers["authorization"].startswith("Basic ")
    assert verifier.known(b"opaque") is who
    assert "opaque" not in repr(who)


async def test_limits_hold_for_what_is_asked() -> None:
    fake = FakeIssuer()
    verifier = introspection(fake, limits=AuthLimits(token=8))
    assert (await verifier.verify("12345678", PLAIN)).subject == "ada"
    with pytest.raises(TokenRefused, match="has 9 bytes: 8 are taken"):
        await verifier.verify("123456789", PLAIN)
    assert len(fake.asked) == 1


async def test_questions_are_shared_out_among_addresses() -> None:
    fake = FakeIssuer()
    fake.gate = asyncio.Event()
    verifier = introspection(fake, limits=AuthLimits(questions=4))
    flood, honest = (msgspec.structs.replace(PLAIN, remote=f"192.0.2.{n}:1000") for n in (1, 2))
    asked = [asyncio.ensure_future(verifier.verify(f"junk{n}", flood)) for n in range(4)]
    for _ in range(5):
        await asyncio.sleep(0)
    with pytest.raises(IssuerAway):
        await verifier.verify("junk4", flood)
    let_in = asyncio.ensure_future(verifier.verify("good", honest))
    for _ in range(5):
        await asyncio.sleep(0)
    fake.gate.set()
    assert (await let_in).subject == "ada"
    found = await asyncio.gather(*asked, return_exceptions=True)
    assert [type(one) for one in found].count(IssuerAway) == 1, "one of the flood's gave way"


async def test_an_answer_is_believed_for_a_minute() -> None:
    clock, fake = Clock(), FakeIssuer()
    verifier = introspection(fake, now=clock)
    await verifier.verify("opaque", PLAIN)
    fake.pages[URL] = reply({"active": False})
    clock.now += 59
    await verifier.verify("opaque", PLAIN)
    clock.now += 1
    with pytest.raises(TokenRefused, match="not active"):
        await verifier.verify("opaque", PLAIN)


async def test_an_answer_that_is_believed_once() -> None:
    fake = FakeIssuer()
    verifier = introspection(fake, cache_seconds=0)
    for _ in range(2):
        assert (await verifier.verify("opaque", PLAIN)).subject == "ada"
    assert len(fake.asked) == 2


async def test_an_answer_without_an_end_is_believed_no_longer() -> None:
    clock, fake = Clock(), FakeIssuer()
    answer = {name: value for name, value in ACTIVE.items() if name not in ("exp", "iss", "iat")}
    verifier = introspection(fake, answer, now=clock)
    who = await verifier.verify("opaque", PLAIN)
    assert (who.expires_at, who.issuer) == (None, ISSUER)
    clock.now += 60
    assert verifier.known(b"opaque") is None


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("not active", {"active": False}, "not active"),
    ("active a text", {"active": "true"}, "not active"),
    ("active 1", {"active": 1}, "not active"),
    ("active null", {"active": None}, "not active"),
    ("of another issuer", {"iss": "https://evil.example"}, "another issuer"),
    ("for another", {"aud": "https://other.example"}, "another service"),
    ("for no one", {"aud": None}, "for whom"),
    ("expired", {"exp": int(NOW) - 60}, "expired"),
    ("an end that is none", {"exp": "soon"}, "exp is not a time"),
    ("to come", {"nbf": int(NOW) + 60}, "not valid yet"),
    ("a refresh token", {"token_type": "refresh_token"}, "not an access token"),
    ("an ID token", {"token_type": "id_token"}, "not an access token"),
    ("scope a number", {"scope": 1}, "scope is neither"),
    ("of no one", {"sub": None, "client_id": None}, "neither a subject"),
    ("bound to a key", {"cnf": {"jkt": "x"}}, "takes no DPoP"),
    ("bound to a certificate", {"cnf": {"x5t#S256": "x"}}, "cannot be checked"),
]


@pytest.mark.parametrize(("changes", "words"), [pytest.param(*row[1:], id=row[0]) for row in REFUSED])
async def test_an_answer_that_does_not_admit(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(TokenRefused, match=words):
        await introspection(FakeIssuer(), ACTIVE | changes).verify("opaque", PLAIN)


async def test_no_member_at_all() -> None:
    with pytest.raises(TokenRefused, match="not active"):
        await introspection(FakeIssuer(), {}).verify("opaque", PLAIN)


@pytest.mark.parametrize(
    "answer",
    [
        Reply(500),
        Reply(404),
        Reply(200, b"<html>"),
        reply([ACTIVE]),
        reply({"error": "invalid_client"}, 401),
        Reply(302),
    ],
    ids=lambda answer: f"{answer.status} {answer.body[:20].decode()}",
)
async def test_an_answer_that_says_nothing(answer: Reply) -> None:
    fake = FakeIssuer()
    verifier = introspection(fake, answer)
    with pytest.raises(IssuerAway):
        await verifier.verify("opaque", PLAIN)
    fake.pages[URL] = reply(ACTIVE)
    assert (await verifier.verify("opaque", PLAIN)).subject == "ada"


async def test_clients_instead_of_an_audience() -> None:
    bare = {name: value for name, value in ACTIVE.items() if name != "aud"}
    fake = FakeIssuer()
    assert (await introspection(fake, bare, clients=["app"]).verify("opaque", PLAIN)).subject == "ada"
    with pytest.raises(TokenRefused, match="another service"):
        await introspection(fake, bare | {"client_id": "other"}, clients=["app"]).verify("opaque", PLAIN)
    with pytest.raises(TokenRefused, match="another service"):  # what names an audience must name us
        await introspection(fake, bare | {"aud": "https://other.example"}, clients=["app"]).verify("opaque", PLAIN)


async def test_a_bound_token() -> None:
    key, clock = new_key("ES256"), Clock()
    answer = ACTIVE | {"cnf": {"jkt": thumbprint(key.public_jwk())}, "token_type": "DPoP"}
    verifier = introspection(FakeIssuer(), answer, dpop="accepted", now=clock)
    for _ in range(2):
        made = proof(key, "POST", RESOURCE, token="opaque", now=clock)
        assert (await verifier.verify("opaque", shown("opaque", scheme="DPoP", proofs=(made,)))).subject == "ada"
    assert verifier.known(b"opaque") is None
    with pytest.raises(TokenRefused, match="sent as DPoP"):
        await verifier.verify("opaque", shown("opaque"))


async def test_who_waits_may_go() -> None:
    fake = FakeIssuer()
    fake.gate = asyncio.Event()
    verifier = introspection(fake)
    first, second = (asyncio.ensure_future(verifier.verify("opaque", PLAIN)) for _ in range(2))
    await fake.was_asked.wait()
    first.cancel()
    fake.gate.set()
    assert (await second).subject == "ada"
    assert len(fake.asked) == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"secret": None}, "secret= or key="),
        ({"secret": ""}, "secret is text that is not empty"),
        ({"key": new_key("ES256")}, "secret= or key="),
        ({"resource": "x"}, "resource is this server's URL"),
        ({"client_id": ""}, "client_id is text"),
        ({"clients": "app"}, "clients is a list"),
        ({"audience": []}, "without an audience"),
        ({"dpop": True}, "dpop is"),
    ],
)
def test_introspection_that_cannot_be_right(options: dict[str, Any], words: str) -> None:
    with pytest.raises(LocalError, match=words):
        introspection(FakeIssuer(), **options)


def test_an_endpoint_is_a_url() -> None:
    for url in ("as.example", "ftp://as.example/introspect", "https:///introspect", "https://[::1/introspect"):
        with pytest.raises(LocalError, match="endpoint is an https URL"):
            Introspection(url, issuer=ISSUER, resource=RESOURCE, client_id="a", secret="b")


# -- a list -----------------------------------------------------------------------------------------------------------


async def test_static() -> None:
    service = Identity(subject="ci", scopes=frozenset({"deploy"}), expires_at=NOW + 10)
    clock = Clock()
    verifier = Static({"token-of-ada": "ada", "token-of-ci": service}, now=clock)
    assert (await verifier.verify("token-of-ada", PLAIN)).subject == "ada"  # type: ignore[union-attr]
    found = verifier.known(b"token-of-ci")
    assert found is not None
    assert found.scopes == {"deploy"}
    assert found.credential is not None
    assert found.credential.reveal() == "token-of-ci"
    for other in ("token-of-eve", "", "TOKEN-OF-ADA", "token-of-ada ", "é", "\ud800"):
        assert await verifier.verify(other, PLAIN) is None
    clock.now += 10
    assert verifier.known(b"token-of-ci") is None
    with pytest.raises(TokenRefused, match="expired"):
        await verifier.verify("token-of-ci", PLAIN)
    assert "token-of-ada" not in repr(verifier) + repr(found) + repr(vars(verifier))


@pytest.mark.parametrize(
    "tokens",
    [{"pass!word#1": "ada"}, {"p=assword": "ada"}, {"token,token": "ada"}, {"short": "ada"}, {"with a space": "ada"}, {"line\nbreak-": "ada"}, {"ünïcödé-token": "ada"}, {7: "ada"}, "token-of-ada",
     {"token-of-ada": ""}, {"token-of-ada": None}, {"token-of-ada": Identity(subject="")}],
)  # fmt: skip
def test_a_list_that_cannot_be_right(tokens: Any) -> None:
    with pytest.raises(LocalError, match="Static: ") as caught:
        Static(tokens)
    assert "short" not in str(caught.value).replace("shorter", "")


# -- certificates -----------------------------------------------------------------------------------------------------

CERTIFICATE: dict[str, Any] = {
    "subject": ((("countryName", "NL"),), (("commonName", "worker-7"),)),
    "issuer": ((("organizationName", "Example, Inc."),), (("commonName", "Example CA"),)),
    "version": 3,
    "notAfter": "Jan 15 08:00:00 2028 GMT",
    "subjectAltName": (("URI", "spiffe://example/worker"), ("DNS", "worker.example"), ("email", "w@example")),
}


def over(certificate: Any) -> Handshake:
    return Handshake(scheme="tls", certificate=certificate)


@pytest.mark.parametrize(
    ("kind", "who"),
    [
        ("uri", "spiffe://example/worker"),
        ("dns", "worker.example"),
        ("email", "w@example"),
        ("common_name", "worker-7"),
    ],
)
async def test_certificates(kind: Any, who: str) -> None:
    verifier = MutualTls({who: ["work"]}, name=kind, now=Clock())
    found = await verifier.verify("", over(CERTIFICATE))
    assert found is not None
    assert found.subject == who
    assert found.scopes == {"work"}
    assert found.issuer == "x509:organizationName=Example\\, Inc.,commonName=Example CA"
    assert found.expires_at == 1_831_536_000
    others = {"uri", "dns", "email", "common_name"} - {kind}
    for other in others:  # a name of one kind is none of another
        with pytest.raises(TokenRefused, match="none of a caller"):
            await MutualTls({who: []}, name=other, now=Clock()).verify("", over(CERTIFICATE))  # type: ignore[arg-type]


async def test_certificates_with_an_identity() -> None:
    who = Identity(subject="ada", issuer="ours", roles=frozenset({"admin"}), expires_at=NOW + 5)
    found = await MutualTls({"spiffe://example/worker": who}, now=Clock()).verify("", over(CERTIFICATE))
    assert found == who


@pytest.mark.parametrize(
    ("certificate", "words"),
    [
        ({}, ""),
        (None, ""),
        (CERTIFICATE | {"subjectAltName": ()}, "none of a caller"),
        (CERTIFICATE | {"subjectAltName": (("URI", "spiffe://example/worker2"),)}, "none of a caller"),
        (CERTIFICATE | {"subjectAltName": (("DNS", "spiffe://example/worker"),)}, "none of a caller"),
        (CERTIFICATE | {"notAfter": "Jan 15 08:00:00 2020 GMT"}, "expired"),
        (CERTIFICATE | {"notAfter": "soon"}, "when it expires"),
        ({name: value for name, value in CERTIFICATE.items() if name != "notAfter"}, "when it expires"),
        (
            CERTIFICATE | {"subjectAltName": (("URI", "spiffe://example/worker"), ("URI", "spiffe://example/b"))},
            "several",
        ),
    ],
)
async def test_a_certificate_that_does_not_admit(certificate: Any, words: str) -> None:
    verifier = MutualTls({"spiffe://example/worker": ["work"], "spiffe://example/b": []}, now=Clock())
    if not words:
        assert await verifier.verify("", over(certificate)) is None
        return
    with pytest.raises(TokenRefused, match=words):
        await verifier.verify("", over(certificate))


async def test_a_token_is_no_certificate() -> None:
    verifier = MutualTls({"spiffe://example/worker": []}, now=Clock())
    assert await verifier.verify("token", over(CERTIFICATE)) is None


@pytest.mark.parametrize("callers", [{}, None, ["a"], {"a": "scope"}, {"": []}])
def test_callers_that_cannot_be_right(callers: Any) -> None:
    with pytest.raises(LocalError, match="MutualTls: "):
        MutualTls(callers)


def test_a_kind_of_name_that_there_is_not() -> None:
    with pytest.raises(LocalError, match="name is 'uri' or"):
        MutualTls({"a": []}, name="ip")  # type: ignore[arg-type]
