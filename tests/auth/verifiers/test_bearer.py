"""`Bearer`: signed tokens of issuers, cached, with and without DPoP."""

from __future__ import annotations

import asyncio
import copy
import pickle
from typing import Any

import msgspec
import pytest

from dragoman.auth import Bearer, Issuer, IssuerAway, TokenRefused
from dragoman.auth.dpop import proof
from dragoman.auth.errors import NotYet
from dragoman.auth.jose import Key, thumbprint
from dragoman.auth.limits import AuthLimits
from dragoman.auth.verifiers.bearer import audiences
from dragoman.channel import Handshake, Identity
from dragoman.jsonrpc.errors import LocalError
from tests.auth.issuing import (
    CLAIMS,
    ISSUER,
    JWKS,
    NOW,
    PLAIN,
    RESOURCE,
    Clock,
    FakeIssuer,
    key_of,
    reply,
    shown,
    token,
)


def bearer(fake: FakeIssuer, clock: Clock | None = None, **options: Any) -> Bearer:
    given: dict[str, Any] = {"resource": RESOURCE, "fetcher": fake, "now": clock or Clock()}
    return Bearer(ISSUER, **given | options)


async def test_who_a_token_names() -> None:
    fake = FakeIssuer()
    who = await bearer(fake).verify(text := token(roles=["admin"]), shown(text))
    assert (who.subject, who.client_id, who.issuer) == ("ada", "app", ISSUER)
    assert who.scopes == {"notes:read", "notes:write"}
    assert who.roles == {"admin"}
    assert who.expires_at == CLAIMS["exp"] + 30
    assert dict(who.claims) == CLAIMS | {"roles": ["admin"]}
    assert [one.url for one in fake.asked] == [ISSUER + "/.well-known/oauth-authorization-server", JWKS]
    assert [one.by for one in fake.asked] == ["operator", "document"]


@pytest.mark.parametrize("name", ["ES256", "ES384", "ES512", "RS256", "RS512", "PS256", "EdDSA", "Ed25519"])
async def test_each_algorithm(name: str) -> None:
    key = key_of(name)
    assert (await bearer(FakeIssuer(key)).verify(token(key), PLAIN)).subject == "ada"


async def test_an_algorithm_of_another_issuer_is_none_of_this_one() -> None:
    """Although its keys would fit."""
    fake = FakeIssuer(key_of("ES256"), key_of("RS256"))
    mine = Issuer(issuer=ISSUER, algorithms=frozenset({"ES256"}))
    other = Issuer(issuer="https://other.example", algorithms=frozenset({"RS256"}))
    verifier = Bearer([mine, other], resource=RESOURCE, fetcher=fake, now=Clock())
    assert (await verifier.verify(token(key_of("ES256")), PLAIN)).subject == "ada"
    with pytest.raises(TokenRefused, match="an algorithm that its issuer does not use"):
        await verifier.verify(token(key_of("RS256")), PLAIN)


async def test_the_second_time_nothing_is_computed_or_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeIssuer()
    verifier = bearer(fake)
    first = await verifier.verify(text := token(), PLAIN)
    monkeypatch.setattr(Key, "verifies", None)
    fake.away = True
    assert await verifier.verify(text, PLAIN) is first
    assert verifier.known(text.encode()) is first
    assert verifier.known(token(jti="2").encode()) is None


async def test_a_cached_token_dies_at_its_expiry() -> None:
    clock = Clock()
    verifier = bearer(FakeIssuer(), clock, leeway=0)
    text = token(exp=int(NOW) + 60)
    await verifier.verify(text, PLAIN)
    clock.now = NOW + 59.9
    assert verifier.known(text.encode()) is not None
    clock.now = NOW + 60
    assert verifier.known(text.encode()) is None
    with pytest.raises(TokenRefused, match="expired"):
        await verifier.verify(text, PLAIN)


async def test_a_cached_token_is_verified_anew_after_its_time() -> None:
    clock, fake = Clock(), FakeIssuer()
    verifier = bearer(fake, clock, cache_seconds=50)
    first = await verifier.verify(text := token(), PLAIN)
    clock.now += 50
    assert verifier.known(text.encode()) is None
    second = await verifier.verify(text, PLAIN)
    assert second is not first
    assert second.principal == first.principal


async def test_a_key_that_is_withdrawn_takes_its_tokens_along(monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = key_of("ES256", "old"), key_of("ES256", "new")
    fake = FakeIssuer(old)
    verifier = bearer(fake)
    await verifier.verify(text := token(old), PLAIN)
    fake.keys = [old, new]
    await verifier.verify(token(new), PLAIN)
    assert verifier.known(text.encode()) is not None  # a key more changes nothing
    fake.keys = [key_of("ES256", "newest")]
    await verifier.verify(token(key_of("ES256", "newest")), PLAIN)
    assert verifier.known(text.encode()) is None
    with pytest.raises(TokenRefused, match="does not publish"):
        await verifier.verify(text, PLAIN)


async def test_bad_tokens_push_no_good_one_out() -> None:
    verifier = bearer(FakeIssuer(), limits=AuthLimits(cached_tokens=2, cached_refusals=3))
    good = [token(jti=str(each)) for each in range(2)]
    for text in good:
        await verifier.verify(text, PLAIN)
    for each in range(20):
        with pytest.raises(TokenRefused):
            await verifier.verify(token(jti=str(each), aud="other"), PLAIN)
    assert all(verifier.known(text.encode()) for text in good)
    await verifier.verify(token(jti="new"), PLAIN)
    assert [verifier.known(text.encode()) is not None for text in good] == [False, True]


async def test_a_refusal_is_kept_for_a_while_but_none_that_time_heals(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    verifier = bearer(FakeIssuer(), clock, leeway=0)
    early, wrong = token(nbf=int(NOW) + 5), token(aud="other")
    with pytest.raises(NotYet):
        await verifier.verify(early, PLAIN)
    with pytest.raises(TokenRefused, match="another service"):
        await verifier.verify(wrong, PLAIN)
    clock.now += 5
    assert (await verifier.verify(early, PLAIN)).subject == "ada"
    monkeypatch.setattr(Key, "verifies", None)
    with pytest.raises(TokenRefused, match="another service"):
        await verifier.verify(wrong, PLAIN)
    clock.now += 5
    with pytest.raises(TypeError):  # it is looked at again
        await verifier.verify(wrong, PLAIN)


async def test_several_issuers_have_keys_of_their_own() -> None:
    other = "https://other.example"
    fake = FakeIssuer()
    fake.pages[other + "/jwks"] = reply({"keys": [key_of("ES256", "other").public_jwk()]})
    row = Issuer(issuer=other, jwks_uri=other + "/jwks", types=frozenset({"jwt"}))
    verifier = Bearer([ISSUER, row], resource=RESOURCE, fetcher=fake, now=Clock())
    assert verifier.issuers == (ISSUER, other)
    assert (await verifier.verify(token(), PLAIN)).issuer == ISSUER
    mine = token(key_of("ES256", "other"), typ="JWT", iss=other)
    assert (await verifier.verify(mine, PLAIN)).issuer == other
    with pytest.raises(TokenRefused, match="does not publish"):  # the one's key under the other's name
        await verifier.verify(token(key_of("ES256", "other")), PLAIN)
    with pytest.raises(TokenRefused, match="type"):  # and the one's rules are not the other's
        await verifier.verify(token(typ="JWT"), PLAIN)


async def test_implied_scopes() -> None:
    implies = {"admin": ["write"], "write": ["read"], "loop": ["loop", "admin"]}
    verifier = bearer(FakeIssuer(), implies=implies)
    assert (await verifier.verify(token(scope="admin x"), PLAIN)).scopes == {"admin", "write", "read", "x"}
    assert (await verifier.verify(token(scope="loop"), PLAIN)).scopes == {"loop", "admin", "write", "read"}
    first = await verifier.verify(token(scope="b a", jti="8"), PLAIN)
    second = await verifier.verify(token(scope="a  b", jti="9"), PLAIN)
    assert first.scopes is second.scopes  # kept once


@pytest.mark.parametrize(
    ("resource", "audience", "found"),
    [
        ("https://a.example", None, {"https://a.example", "https://a.example/"}),
        ("https://a.example/", None, {"https://a.example", "https://a.example/"}),
        ("https://a.example/mcp", None, {"https://a.example/mcp"}),
        ("https://a.example/mcp/", None, {"https://a.example/mcp/"}),
        ("https://a.example", "https://b.example", {"https://b.example"}),
        ("https://a.example", ["x", "y"], {"x", "y"}),
    ],
)
def test_what_an_audience_may_be(resource: str, audience: Any, found: set[str]) -> None:
    assert audiences(resource, audience) == found


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"resource": "mcp.example"}, "resource is this server's URL"),
        ({"resource": "https://mcp.example/#a"}, "resource is this server's URL"),
        ({"resource": "https://u@mcp.example/"}, "resource is this server's URL"),
        ({"resource": 7}, "resource is this server's URL"),
        ({"audience": ""}, "audience is text that is not empty"),
        ({"audience": []}, "without an audience"),
        ({"audience": [""]}, "without an audience"),
        ({"dpop": "on"}, "dpop is 'off' or 'accepted' or 'required'"),
        ({"dpop_nonces": b"short"}, "at least 32 bytes"),
        ({"leeway": -1}, "leeway is a number of seconds"),
        ({"leeway": 1e9}, "leeway is a number of seconds"),
        ({"implies": {"a": "b"}}, "implies is a dict"),
        ({"fetcher": 7}, "fetcher is a Fetcher"),
        ({"issuer": []}, "there is no issuer"),
        ({"issuer": "as.example"}, "an issuer is an https URL"),
        ({"issuer": "https://as.example/?a"}, "an issuer is an https URL"),
        ({"issuer": "https://as.example/?"}, "an issuer is an https URL"),
        ({"issuer": "https://u@as.example"}, "an issuer is an https URL"),
        ({"issuer": [7]}, "issuer is the URL of one"),
        ({"issuer": [ISSUER, ISSUER]}, "there twice"),
    ],
)
def test_what_cannot_be_right(options: dict[str, Any], words: str) -> None:
    with pytest.raises(LocalError, match=words):
        Bearer(**({"issuer": ISSUER, "resource": RESOURCE} | options))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"types": frozenset({"dpop+jwt"})}, "not the type of an access token"),
        ({"types": frozenset({"jwt", "oauth-id-jag+jwt"})}, "not the type of an access token"),
        ({"algorithms": frozenset({"HS256"})}, "algorithms are some of"),
        ({"algorithms": frozenset({"none", "ES256"})}, "algorithms are some of"),
        ({"algorithms": frozenset()}, "algorithms are some of"),
    ],
)
def test_no_preset_can_open_what_is_closed(options: dict[str, Any], words: str) -> None:
    with pytest.raises(LocalError, match=words):
        Issuer(issuer=ISSUER, **options)


async def test_the_token_is_shown_nowhere() -> None:
    who = await bearer(FakeIssuer()).verify(text := token(), PLAIN)
    parts = [part for part in text.split(".") if len(part) > 20]
    for shown_text in (repr(who), str(who), repr(who.credential), repr(who.claims), f"{who!r:.5000}"):
        assert not any(part in shown_text for part in parts)
    assert who.credential is not None
    assert who.credential.reveal() == text
    for leak, what in ((msgspec.json.encode, who), (pickle.dumps, who), (pickle.dumps, who.claims)):
        with pytest.raises((TypeError, LocalError)):
            leak(what)
    assert copy.deepcopy(who) == copy.copy(who) == who
    assert copy.deepcopy(who).claims["iss"] == who.claims["iss"]
    assert copy.deepcopy(who.credential) is copy.copy(who.credential) is who.credential
    with pytest.raises(LocalError, match="exchange=Exchange"):
        await who.exchange(audience="x")
    with pytest.raises(LocalError, match="showed no token"):
        await Identity(subject="ada").exchange(audience="x")


async def test_no_error_holds_the_token() -> None:
    verifier = bearer(FakeIssuer())
    for text in (
        token(aud="other"),
        token(headers={"kid": "x"}),
        token()[:-4] + "AAAA",
        "no-token-at-all-" * 4,
        "é" * 40,
    ):
        with pytest.raises(TokenRefused) as caught:
            await verifier.verify(text, PLAIN)
        assert text[:30] not in f"{caught.value} {caught.value!r} {caught.value.args}"


async def test_claims_are_read_when_they_are_asked_for() -> None:
    who = await bearer(FakeIssuer()).verify(token(deep={"a": [1]}), PLAIN)
    assert who.claims["deep"] == {"a": [1]}
    assert "absent" not in who.claims
    assert who.claims.get("absent") is None
    assert len(who.claims) == len(list(who.claims)) == len(CLAIMS) + 1


# -- DPoP -------------------------------------------------------------------------------------------------------------

HOLDER = key_of("ES256", "holder")
BOUND: dict[str, Any] = {"cnf": {"jkt": thumbprint(HOLDER.public_jwk())}}


def with_proof(text: str, clock: Clock, *, url: str = RESOURCE, key: Key = HOLDER, **options: Any) -> Handshake:
    made = proof(key, "POST", url, token=text, now=clock, **options)
    return shown(text, scheme="DPoP", proofs=(made,))


async def test_a_bound_token_with_its_proof() -> None:
    clock = Clock()
    text = token(**BOUND)
    for policy in ("accepted", "required"):
        verifier = bearer(FakeIssuer(), clock, dpop=policy)
        for _ in range(2):  # verified, then cached: the proof is checked each time
            assert (await verifier.verify(text, with_proof(text, clock))).subject == "ada"
        assert verifier.known(text.encode()) is None
        once = with_proof(text, clock)
        await verifier.verify(text, once)
        with pytest.raises(TokenRefused, match="used before"):
            await verifier.verify(text, once)


CERTIFIED: dict[str, Any] = {"cnf": {"x5t#S256": "x" * 43}}
BINDING: list[tuple[str, str, dict[str, Any], dict[str, Any], str, str]] = [
    ("bound, as Bearer", "accepted", BOUND, {"scheme": "Bearer"}, "invalid_token", "sent as DPoP"),
    ("bound, as Bearer, required", "required", BOUND, {"scheme": "Bearer"}, "invalid_token", "sent as DPoP"),
    ("bound, off", "off", BOUND, {"scheme": "DPoP"}, "invalid_token", "takes no DPoP"),
    ("bound, off, as Bearer", "off", BOUND, {"scheme": "Bearer"}, "invalid_token", "takes no DPoP"),
    ("bound, no proof", "accepted", BOUND, {"proofs": ()}, "invalid_dpop_proof", "not 0"),
    ("bound, two proofs", "accepted", BOUND, {"proofs": ("a.b.c", "a.b.c")}, "invalid_dpop_proof", "not 2"),
    ("bound, no proof at all", "accepted", BOUND, {"proofs": ("x",)}, "invalid_dpop_proof", "cannot be read"),
    ("bound, another path", "accepted", BOUND, {"path": "/other"}, "invalid_dpop_proof", "another URL"),
    ("bound, a path like a host", "accepted", BOUND, {"path": "//other/mcp"}, "invalid_dpop_proof", "another URL"),
    ("bound, another method", "accepted", BOUND, {"method": "GET"}, "invalid_dpop_proof", "another HTTP method"),
    ("unbound, as DPoP", "accepted", {}, {"scheme": "DPoP"}, "invalid_token", "not bound"),
    ("unbound, as DPoP, off", "off", {}, {"scheme": "DPoP"}, "invalid_token", "not bound"),
    ("a certificate, not shown", "accepted", CERTIFIED, {"scheme": "Bearer"}, "invalid_token", "showed none"),
    ("a certificate, not shown, off", "off", CERTIFIED, {"scheme": "Bearer"}, "invalid_token", "showed none"),
    ("a certificate, as DPoP", "accepted", CERTIFIED, {}, "invalid_token", "not bound to a key"),
    ("a certificate, required", "required", CERTIFIED, {"scheme": "Bearer"}, "invalid_token", "bound to a key"),
    ("unbound, required", "required", {}, {"scheme": "Bearer"}, "invalid_token", "only tokens that are bound"),
    ("unbound, as DPoP, required", "required", {}, {"scheme": "DPoP"}, "invalid_token", "only tokens that are bound"),
]


@pytest.mark.parametrize(
    ("policy", "claims", "sent", "error", "words"), [pytest.param(*row[1:], id=row[0]) for row in BINDING]
)
async def test_a_token_that_came_in_another_way(
    policy: Any, claims: dict[str, Any], sent: dict[str, Any], error: str, words: str
) -> None:
    clock = Clock()
    verifier = bearer(FakeIssuer(), clock, dpop=policy)
    text = token(**claims)
    given = {"scheme": "DPoP", "proofs": (proof(HOLDER, "POST", RESOURCE, token=text, now=clock),)} | sent
    for _ in range(2):  # a token that is cached is no less bound
        with pytest.raises(TokenRefused, match=words) as caught:
            await verifier.verify(text, shown(text, **given))
        assert caught.value.error == error
    assert policy != "required" or verifier.known(text.encode()) is None


async def test_an_unbound_token_is_taken_where_dpop_is_accepted() -> None:
    verifier = bearer(FakeIssuer(), dpop="accepted")
    who = await verifier.verify(text := token(), shown(text))
    assert verifier.known(text.encode()) is who


async def test_a_proof_of_another_key_or_token() -> None:
    clock = Clock()
    verifier = bearer(FakeIssuer(), clock, dpop="required")
    text = token(**BOUND)
    with pytest.raises(TokenRefused, match="another key"):
        await verifier.verify(text, with_proof(text, clock, key=key_of("ES256", "thief")))
    other = with_proof(token(jti="2", **BOUND), clock)
    with pytest.raises(TokenRefused, match="another token"):
        await verifier.verify(text, other)


@pytest.mark.parametrize("url", ["/mcp", "/mcp?a=1", "http://10.0.0.1:8000/mcp?a=1", "https://mcp.example/mcp"])
async def test_the_host_of_a_request_is_not_what_a_proof_is_for(url: str) -> None:
    clock = Clock()
    verifier = bearer(FakeIssuer(), clock, dpop="required")
    text = token(**BOUND)
    made = proof(HOLDER, "POST", RESOURCE, token=text, now=clock)
    assert (await verifier.verify(text, shown(text, scheme="DPoP", path=url, proofs=(made,)))).subject == "ada"


async def test_nonces_are_asked_for() -> None:
    clock = Clock()
    verifier = bearer(FakeIssuer(), clock, dpop="required", dpop_nonces=b"s" * 32)
    text = token(**BOUND)
    with pytest.raises(TokenRefused) as caught:
        await verifier.verify(text, with_proof(text, clock))
    assert caught.value.error == "use_dpop_nonce"
    nonce = dict(caught.value.headers)["DPoP-Nonce"]
    replica = bearer(FakeIssuer(), clock, dpop="required", dpop_nonces=b"s" * 32)
    for each in (verifier, replica):
        assert (await each.verify(text, with_proof(text, clock, nonce=nonce))).subject == "ada"


# -- the issuer is away -----------------------------------------------------------------------------------------------


async def test_an_issuer_that_is_away_says_nothing_of_a_token() -> None:
    fake = FakeIssuer()
    fake.away = True
    verifier = bearer(fake)
    with pytest.raises(IssuerAway) as caught:
        await verifier.verify(token(), PLAIN)
    assert caught.value.retry_after >= 1
    with pytest.raises(TokenRefused):  # what is refused without its keys stays refused
        await verifier.verify(token(iss="https://other.example"), PLAIN)


async def test_one_fetch_for_all_who_wait() -> None:
    fake = FakeIssuer()
    fake.gate = asyncio.Event()
    verifier = bearer(fake)
    calls = [asyncio.ensure_future(verifier.verify(token(jti=str(each)), PLAIN)) for each in range(50)]
    await fake.was_asked.wait()
    calls[0].cancel()  # a caller that waits may go
    fake.gate.set()
    found = await asyncio.gather(*calls[1:])
    assert {one.subject for one in found} == {"ada"}
    assert fake.count() == 1
