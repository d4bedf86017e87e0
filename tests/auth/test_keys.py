"""The keys of an issuer: found, fetched once, renewed, and what happens while the issuer is away."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from dragoman.auth import Bearer, Issuer, IssuerAway, TokenRefused
from dragoman.auth.errors import UnknownKey
from dragoman.auth.keys import COOLDOWN, FRESH, FRESHEST, LIFE, METADATA_LIFE, IssuerKeys, fresh
from tests.auth.issuing import ISSUER, JWKS, METADATA, PLAIN, RESOURCE, Clock, FakeIssuer, Reply, key_of, reply, token

A, B, C = key_of("ES256", "a"), key_of("ES256", "b"), key_of("ES256", "c")


def keys_of(fake: FakeIssuer, clock: Clock, **row: Any) -> IssuerKeys:
    return IssuerKeys(Issuer(issuer=ISSUER, **row), lambda: fake, clock=clock)


def header(key: Any = A, **more: Any) -> dict[str, Any]:
    return {"alg": key.algorithm(), "kid": key.kid} | more


async def settled() -> None:
    """Let what runs in the background end."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    await asyncio.gather(*others, return_exceptions=True)


async def test_keys_are_fetched_once_and_renewed_in_the_background() -> None:
    fake, clock = FakeIssuer(A), Clock()
    keys = keys_of(fake, clock)
    for _ in range(3):
        assert [key.kid for key in await keys.find(header())] == [A.kid]
    assert fake.count() == 1
    clock.now += FRESH
    fake.gate = asyncio.Event()
    for _ in range(3):  # no one waits for it
        await keys.find(header())
    fake.gate.set()
    await settled()
    assert (fake.count(), fake.count(METADATA)) == (2, 1)
    clock.now += METADATA_LIFE
    await keys.find(header())
    assert (fake.count(), fake.count(METADATA)) == (3, 2)


async def test_after_long_silence_old_keys_do_not_serve_before_they_were_renewed() -> None:
    fake, clock = FakeIssuer(A), Clock()
    keys = keys_of(fake, clock)
    await keys.find(header())
    fake.keys = [B]
    clock.now += 2 * FRESH
    with pytest.raises(UnknownKey):
        await keys.find(header())


async def test_a_thousand_calls_during_a_rotation() -> None:
    fake, clock = FakeIssuer(A), Clock()
    verifier = Bearer(ISSUER, resource=RESOURCE, fetcher=fake, now=clock)

    async def call(each: int) -> str:
        key = (A, B, C)[each * 3 // 1000]
        if key not in fake.keys:
            fake.keys = [*fake.keys, key][-2:]
        return (await verifier.verify(token(key, jti=str(each)), PLAIN)).subject

    # 50 at a time, as they come in: the rotations lie within them
    for start in range(0, 1000, 50):
        assert set(await asyncio.gather(*(call(each) for each in range(start, start + 50)))) == {"ada"}
    assert fake.count() == 3  # the first, and one a rotation


async def test_the_new_key_of_a_rotation_is_fetched_once_for_all() -> None:
    fake, clock = FakeIssuer(A), Clock()
    keys = keys_of(fake, clock)
    await keys.find(header())
    fake.keys = [B]
    found = await asyncio.gather(*(keys.find(header(B)) for _ in range(1000)))
    assert {key.kid for each in found for key in each} == {B.kid}
    assert fake.count() == 2


async def test_a_flood_of_unknown_keys_is_one_fetch_a_cooldown() -> None:
    fake, clock = FakeIssuer(A), Clock()
    keys = keys_of(fake, clock)
    await keys.find(header())

    async def refused(name: str) -> type[Exception]:
        with pytest.raises((UnknownKey, IssuerAway)) as why:
            await keys.find(header(kid=name))
        return why.type

    for turn in range(1, 4):
        first, *others = await asyncio.gather(*(refused(f"{turn}.{each}") for each in range(1000)))
        assert first is UnknownKey, "it was looked for after the token came"
        assert set(others) == {IssuerAway}, "and the keys of these may be newer"
        for each in range(1000):
            assert await refused(f"one by one {each}") is IssuerAway
        assert fake.count() == 1 + turn
        clock.now += COOLDOWN
    assert await keys.find(header())  # and who has a key is not kept waiting


async def test_a_flood_keeps_no_new_key_out_for_longer_than_a_cooldown() -> None:
    fake, clock = FakeIssuer(A), Clock()
    keys = keys_of(fake, clock)
    await keys.find(header())
    with pytest.raises(UnknownKey):
        await keys.find(header(kid="invented"))
    fake.keys = [A, B]
    clock.now += 4
    with pytest.raises(IssuerAway, match="looked for again soon") as why:  # 503: it may be good, and it is
        await keys.find(header(B))
    assert why.value.retry_after == COOLDOWN - 4 + 1
    clock.now += COOLDOWN - 4
    assert await keys.find(header(B))


async def test_a_fetch_that_was_under_way_already_may_have_missed_the_key() -> None:
    fake, clock = FakeIssuer(A), Clock()
    keys = keys_of(fake, clock)
    await keys.find(header())
    clock.now += FRESH
    old = reply({"keys": [A.public_jwk()]})
    fake.pages[JWKS] = lambda _: old if fake.count() == 2 else reply({"keys": [A.public_jwk(), B.public_jwk()]})
    fake.gate = asyncio.Event()
    fake.was_asked.clear()
    await keys.find(header())  # begins the renewal
    await fake.was_asked.wait()
    call = asyncio.ensure_future(keys.find(header(B)))
    asyncio.get_running_loop().call_soon(fake.gate.set)  # after the first step of the call, which waits for the renewal
    assert [key.kid for key in await call] == [B.kid]
    assert fake.count() == 3


async def test_a_rotation_of_keys_without_names() -> None:
    def page(key: Any) -> Reply:
        return reply({"keys": [{name: value for name, value in key.public_jwk().items() if name != "kid"}]})

    fake, clock = FakeIssuer(A), Clock()
    fake.pages[JWKS] = page(A)
    verifier = Bearer(ISSUER, resource=RESOURCE, fetcher=fake, now=clock)

    async def call(key: Any, each: int) -> str:
        return (await verifier.verify(token(key, headers={"kid": None}, jti=str(each)), PLAIN)).subject

    await call(A, 0)
    fake.pages[JWKS] = page(B)
    assert set(await asyncio.gather(*(call(B, each) for each in range(100)))) == {"ada"}
    assert fake.count() == 2
    for each in range(100):  # and a flood of bad ones is one fetch
        with pytest.raises(TokenRefused if each == 0 else IssuerAway):
            await call(A, each + 1)
    assert fake.count() == 3


async def test_away_from_the_first() -> None:
    fake, clock = FakeIssuer(A), Clock()
    fake.away = True
    keys = keys_of(fake, clock)
    for _ in range(3):
        with pytest.raises(IssuerAway):
            await keys.find(header())
    assert len(fake.asked) == 2  # both places of metadata, once: then there is a pause
    fake.away = False
    with pytest.raises(IssuerAway) as caught:
        await keys.find(header())
    assert caught.value.retry_after == 2
    clock.now += 1
    assert await keys.find(header())


async def test_away_for_as_long_as_keys_live_and_then_nobody_can_say() -> None:
    fake, clock = FakeIssuer(A), Clock()
    keys = keys_of(fake, clock)
    await keys.find(header())
    fake.away = True
    while clock.now < Clock().now + LIFE - 60:
        clock.now += 60
        assert await keys.find(header())
        await settled()
    clock.now += 60
    with pytest.raises(IssuerAway) as caught:
        await keys.find(header())
    assert 1 <= caught.value.retry_after <= 31
    fake.away = False
    clock.now += 31
    assert await keys.find(header())


async def test_away_when_a_new_key_comes() -> None:
    fake, clock = FakeIssuer(A), Clock()
    keys = keys_of(fake, clock)
    await keys.find(header())
    fake.away = True
    with pytest.raises(IssuerAway):
        await keys.find(header(B))
    assert await keys.find(header())
    before = len(fake.asked)
    for _ in range(100):
        with pytest.raises(IssuerAway):
            await keys.find(header(B))
    assert len(fake.asked) == before
    fake.away, fake.keys = False, [A, B]
    clock.now += 1
    assert await keys.find(header(B))


async def test_an_issuer_that_withdraws_all_keys_has_none() -> None:
    fake, clock = FakeIssuer(A), Clock()
    keys = keys_of(fake, clock)
    await keys.find(header())
    fake.keys = []
    clock.now += 2 * FRESH
    with pytest.raises(UnknownKey):
        await keys.find(header())


@pytest.mark.parametrize(
    "page",
    [
        Reply(500),
        Reply(404),
        Reply(301),
        Reply(204),
        Reply(200, b""),
        Reply(200, b"<html>"),
        reply([]),
        reply({"keys": 1}),
    ],
    ids=lambda page: f"{page.status} {page.body.decode()}",
)
async def test_answers_that_are_no_keys(page: Reply) -> None:
    fake, clock = FakeIssuer(A), Clock()
    good = fake.pages[JWKS]
    keys = keys_of(fake, clock)
    await keys.find(header())
    fake.pages[JWKS] = page
    clock.now += 2 * FRESH
    assert await keys.find(header())  # the old ones serve
    with pytest.raises(IssuerAway):
        await keys.find(header(B))
    fake.pages[JWKS] = good
    clock.now += 2
    assert await keys.find(header())


METADATA_PAGES: list[tuple[str, dict[str, Reply], bool]] = [
    ("OpenID alone", {METADATA: Reply(404), ISSUER + "/.well-known/openid-configuration": reply({"issuer": ISSUER, "jwks_uri": JWKS})}, True),
    ("RFC 8414 broken, OpenID good", {METADATA: Reply(200, b"x"), ISSUER + "/.well-known/openid-configuration": reply({"issuer": ISSUER, "jwks_uri": JWKS})}, True),
    ("another issuer", {METADATA: reply({"issuer": "https://evil.example", "jwks_uri": JWKS})}, False),
    ("an issuer with a slash", {METADATA: reply({"issuer": ISSUER + "/", "jwks_uri": JWKS})}, False),
    ("no issuer", {METADATA: reply({"jwks_uri": JWKS})}, False),
    ("no jwks_uri", {METADATA: reply({"issuer": ISSUER})}, False),
    ("nothing", {METADATA: Reply(404)}, False),
    ("a wrong type", {METADATA: reply({"issuer": ISSUER, "jwks_uri": 7})}, False),
    ("deep", {METADATA: Reply(200, b'{"issuer":' + b"[" * 99_999)}, False),
]  # fmt: skip


@pytest.mark.parametrize(("pages", "good"), [pytest.param(*row[1:], id=row[0]) for row in METADATA_PAGES])
async def test_metadata(pages: dict[str, Reply], good: bool) -> None:
    fake = FakeIssuer(A)
    fake.pages.update(pages)
    keys = keys_of(fake, Clock())
    if good:
        assert await keys.find(header())
    else:
        with pytest.raises(IssuerAway):
            await keys.find(header())
        assert fake.count() == 0


async def test_an_issuer_with_a_path_is_looked_for_at_three_places() -> None:
    issuer = ISSUER + "/tenant"
    fake = FakeIssuer(A)
    places = [
        f"{ISSUER}/.well-known/oauth-authorization-server/tenant",
        f"{ISSUER}/.well-known/openid-configuration/tenant",
        f"{issuer}/.well-known/openid-configuration",
    ]
    fake.pages[places[2]] = reply({"issuer": issuer, "jwks_uri": JWKS})
    keys = IssuerKeys(Issuer(issuer=issuer), lambda: fake, clock=Clock())
    assert await keys.find(header())
    assert [one.url for one in fake.asked] == [*places, JWKS]


async def test_places_that_a_preset_knows() -> None:
    fake = FakeIssuer(A)
    assert await keys_of(fake, Clock(), jwks_uri=JWKS).find(header())
    assert [(one.url, one.by) for one in fake.asked] == [(JWKS, "operator")]
    fake = FakeIssuer(A)
    fake.pages["https://x.example/meta"] = reply({"issuer": "https://alias.example", "jwks_uri": JWKS})
    row = {"metadata_uri": "https://x.example/meta", "aliases": frozenset({"https://alias.example"})}
    assert await keys_of(fake, Clock(), **row).find(header())


@pytest.mark.parametrize(
    ("field", "seconds"),
    [
        ("", FRESH),
        ("no-store", FRESH),
        ("max-age=600", 600),
        ("public, max-age=1200, must-revalidate", 1200),
        ('MAX-AGE = "700"', 700),
        ("max-age=0", FRESHEST[0]),
        ("max-age=99999999", FRESHEST[1]),
        ("max-age=-5", FRESH),
        ("s-max-age=600", FRESH),
    ],
)
def test_how_long_keys_are_fresh(field: str, seconds: float) -> None:
    assert fresh({"cache-control": field} if field else {}) == seconds


async def test_the_log_says_why_keys_are_not_there(caplog: pytest.LogCaptureFixture) -> None:
    fake = FakeIssuer(A)
    fake.pages[METADATA] = reply({"issuer": "https://other.example", "jwks_uri": JWKS})
    with pytest.raises(IssuerAway):
        await keys_of(fake, Clock()).find(header())
    words = (
        f"the keys of {ISSUER} cannot be fetched: the metadata of the issuer '{ISSUER}' names another issuer, "
        "'https://other.example': it is not used. If you trust it, pin what it says: issuer='https://other.example'"
    )
    assert caplog.messages == [words]


async def test_an_issuer_away_is_no_word_about_the_token() -> None:
    """The whole way: 503 and not 401, for a token that nothing is wrong with."""
    fake = FakeIssuer(A)
    fake.away = True
    verifier = Bearer(ISSUER, resource=RESOURCE, fetcher=fake, now=Clock())
    with pytest.raises(IssuerAway) as caught:
        await verifier.verify(token(A), PLAIN)
    assert not isinstance(caught.value, TokenRefused)
    assert json.dumps(str(caught.value)).isascii()


def test_keys_outlive_a_loop() -> None:
    fake, clock = FakeIssuer(A), Clock()
    keys = keys_of(fake, clock)

    async def stopped() -> None:
        fake.gate = asyncio.Event()
        call = asyncio.ensure_future(keys.find(header()))
        await fake.was_asked.wait()
        call.cancel()

    asyncio.run(stopped())
    fake.gate = None
    assert asyncio.run(keys.find(header()))
