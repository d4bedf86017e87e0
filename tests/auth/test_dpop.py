"""DPoP proofs (RFC 9449 section 4.3): each claim wrong, each use twice."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.allowance import Owner
from dragoman.auth.dpop import Nonces, ProofChecker, normal, proof, token_hash
from dragoman.auth.errors import IssuerAway, TokenRefused
from dragoman.auth.jose import Key, new_key, sign_jws, thumbprint
from dragoman.auth.limits import AuthLimits
from dragoman.bus.memory import MemoryBus

URL = "https://mcp.example/mcp"
TOKEN = "an.access.token"
KEY = new_key("ES256")
JKT = thumbprint(KEY.public_jwk())
NOW = 1_800_000_000.0


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        return self.now


def made(key: Key = KEY, *, headers: dict[str, Any] | None = None, drop: str = "", **claims: Any) -> str:
    """A proof with these claims and headers instead of the right ones."""
    right = {"jti": "one", "htm": "POST", "htu": URL, "iat": int(NOW), "ath": token_hash(TOKEN)} | claims
    right.pop(drop, None)
    jwk = {name: value for name, value in key.public_jwk().items() if name not in ("kid", "use", "alg")}
    typed: dict[str, Any] = {"typ": "dpop+jwt", "jwk": jwk, "kid": None} | (headers or {})
    return sign_jws(right, key, headers=typed)


def checked(text: str, checker: ProofChecker | None = None, **changes: Any) -> str:
    given = {"method": "POST", "url": URL, "token": TOKEN, "thumbprint": JKT} | changes
    return (checker or ProofChecker(now=Clock())).check(text, **given)


@pytest.mark.parametrize("name", ["ES256", "ES384", "ES512", "RS256", "PS256", "EdDSA", "Ed25519"])
def test_a_proof_of_ours_is_taken(name: str) -> None:
    key = new_key(name)
    text = proof(key, "POST", URL + "?a=1#b", token=TOKEN, now=Clock())
    assert checked(text, thumbprint=thumbprint(key.public_jwk())) == thumbprint(key.public_jwk())


def test_without_a_token_the_key_is_told() -> None:
    assert checked(proof(KEY, "POST", URL, now=Clock()), token=None, thumbprint=None) == JKT


WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("no jti", {"drop": "jti"}, "needs a jti"),
    ("empty jti", {"jti": ""}, "needs a jti"),
    ("jti a number", {"jti": 7}, "needs a jti"),
    ("long jti", {"jti": "j" * 513}, "needs a jti"),
    ("no htm", {"drop": "htm"}, "another HTTP method"),
    ("another method", {"htm": "GET"}, "another HTTP method"),
    ("method in lower case", {"htm": "post"}, "another HTTP method"),
    ("no htu", {"drop": "htu"}, "another URL"),
    ("another host", {"htu": "https://evil.example/mcp"}, "another URL"),
    ("another path", {"htu": URL + "2"}, "another URL"),
    ("another port", {"htu": "https://mcp.example:8443/mcp"}, "another URL"),
    ("another scheme", {"htu": "http://mcp.example/mcp"}, "another URL"),
    ("a relative URL", {"htu": "/mcp"}, "another URL"),
    ("no URL", {"htu": "https://[/mcp"}, "another URL"),
    ("a port out of range", {"htu": "https://mcp.example:99999/mcp"}, "another URL"),
    ("htu a list", {"htu": [URL]}, "another URL"),
    ("no iat", {"drop": "iat"}, "within 300 s"),
    ("old", {"iat": NOW - 301}, "within 300 s"),
    ("of the future", {"iat": NOW + 301}, "within 300 s"),
    ("iat a string", {"iat": str(int(NOW))}, "within 300 s"),
    ("no ath", {"drop": "ath"}, "another token"),
    ("another ath", {"ath": token_hash("other")}, "another token"),
    ("ath not ASCII", {"ath": "é"}, "another token"),
    ("ath a number", {"ath": 1}, "another token"),
    ("typ of a token", {"headers": {"typ": "at+jwt"}}, "has jwk"),
    ("no typ", {"headers": {"typ": None}}, "has jwk"),
    ("no jwk", {"headers": {"jwk": None}}, "no jwk"),
    ("jwk a string", {"headers": {"jwk": "x"}}, "no jwk"),
    ("jwk of nothing", {"headers": {"jwk": {}}}, "cannot be read"),
    ("jwk of a secret", {"headers": {"jwk": {"kty": "oct", "k": "AAAA"}}}, "private key"),
    ("a private key", {"headers": {"jwk": KEY.private_jwk()}}, "private key"),
    ("the key of another", {"headers": {"jwk": new_key("ES256").public_jwk()}}, "another key"),
    ("made by another key", {"key": new_key("ES256")}, "another key"),
    ("crit", {"headers": {"crit": ["exp"]}}, "crit"),
]


@pytest.mark.parametrize(("how", "why"), [pytest.param(how, why, id=name) for name, how, why in WRONG])
def test_a_wrong_proof_is_refused(how: dict[str, Any], why: str) -> None:
    with pytest.raises(TokenRefused, match=why) as caught:
        checked(made(**how))
    assert (caught.value.error, caught.value.scheme) == ("invalid_dpop_proof", "DPoP")


@pytest.mark.parametrize(
    "text", ["", "a.b", "x" * 9000, "é.é.é", made().rpartition(".")[0] + "." + "A" * 86, made() + "A"]
)
def test_no_proof_at_all(text: str) -> None:
    with pytest.raises(TokenRefused, match="DPoP proof") as caught:
        checked(text)
    assert caught.value.error == "invalid_dpop_proof"


def test_a_proof_is_good_once() -> None:
    clock = Clock()
    checker = ProofChecker(now=clock)
    text = made()
    checked(text, checker)
    with pytest.raises(TokenRefused, match="used before"):
        checked(text, checker)
    with pytest.raises(TokenRefused, match="used before"):
        checked(made(iat=NOW + 1), checker)  # the same jti, made again
    checked(made(jti="two"), checker)
    # as long as its time is good it stays remembered, whatever came meanwhile
    late = made(jti="three", iat=NOW + 299)
    checked(late, checker)
    for clock.now in (NOW + 300, NOW + 598):
        with pytest.raises(TokenRefused, match="used before"):
            checked(late, checker)
    clock.now = NOW + 600
    with pytest.raises(TokenRefused, match="within 300 s"):
        checked(late, checker)


def test_a_damaged_proof_does_not_use_up_its_jti() -> None:
    checker = ProofChecker(now=Clock())
    with pytest.raises(TokenRefused, match="another URL"):
        checked(made(), checker, url=URL + "/other")
    checked(made(), checker)


def test_what_is_remembered_is_bounded() -> None:
    clock = Clock()
    checker = ProofChecker(now=clock, limits=AuthLimits(proofs=2))
    checked(made(jti="1"), checker)
    with pytest.raises(IssuerAway, match=r"AuthLimits\.proofs") as caught:
        checked(made(jti="3"), checker)
    assert caught.value.retry_after == 1200
    clock.now += 600
    with pytest.raises(IssuerAway) as caught:
        checked(made(jti="3", iat=clock.now), checker)
    assert caught.value.retry_after == 600
    clock.now -= 600
    clock.now += 1300
    checked(made(jti="4", iat=clock.now), checker)


def test_proofs_of_one_caller_shut_no_other_out() -> None:
    clock = Clock()
    checker = ProofChecker(now=clock, limits=AuthLimits(proofs=40))
    flood, ann = Owner("flood", known=True), Owner("ann", known=True)

    def take(number: int, owner: Owner | None) -> bool:
        try:
            checker.check(made(jti=f"{number}"), "POST", URL, token=TOKEN, thumbprint=JKT, owner=owner)
        except IssuerAway:
            return False
        return True

    assert [take(number, flood) for number in range(30)] == [True] * 20 + [False] * 10
    assert [take(number, ann) for number in range(100, 106)] == [True] * 4 + [False] * 2
    assert [take(number, Owner("192.0.2.1")) for number in range(200, 206)] == [True] * 4 + [False] * 2
    assert take(300, None), "without an owner the key has a share"
    with pytest.raises(TokenRefused, match="used before"):
        checker.check(made(jti="0"), "POST", URL, token=TOKEN, thumbprint=JKT, owner=ann)


def test_the_window_to_the_second() -> None:
    checker = ProofChecker(now=Clock())
    for each, iat in enumerate((NOW - 300, NOW + 300)):
        checked(made(jti=str(each), iat=iat), checker)
    for iat in (NOW - 300.5, NOW + 300.5):
        with pytest.raises(TokenRefused, match="within 300 s"):
            checked(made(jti="x", iat=iat), checker)


def test_with_nonces_proofs_are_remembered_for_as_long_as_one_is_good() -> None:
    clock = Clock()
    checker = ProofChecker(now=clock, limits=AuthLimits(proofs=1), nonces=Nonces(now=clock, life=60))
    assert checker.nonces is not None
    checked(made(nonce=checker.nonces.current()), checker)
    with pytest.raises(IssuerAway) as caught:
        checked(made(jti="2", nonce=checker.nonces.current()), checker)
    assert caught.value.retry_after == 240


def test_nonces() -> None:
    clock = Clock()
    nonces = Nonces(b"k" * 32, now=clock)
    checker = ProofChecker(nonces=nonces, now=clock)
    with pytest.raises(TokenRefused) as caught:
        checked(made(), checker)
    assert (caught.value.error, caught.value.scheme) == ("use_dpop_nonce", "DPoP")
    [(name, nonce)] = caught.value.headers
    assert (name, nonce) == ("DPoP-Nonce", nonces.current())
    assert nonce == Nonces(b"k" * 32, now=clock).current()  # a replica's
    checked(made(nonce=nonce), checker)
    clock.now += nonces.life
    checked(made(nonce=nonce, jti="2"), checker)
    clock.now += nonces.life
    for old in (nonce, Nonces(b"x" * 32, now=clock).current(), "", "é", 7, None):
        with pytest.raises(TokenRefused) as caught:
            checked(made(nonce=old, jti="3", iat=clock.now), checker)
        assert caught.value.error == "use_dpop_nonce"


@pytest.mark.parametrize(
    "url",
    ["https://MCP.example/mcp", "HTTPS://mcp.example:443/mcp", URL + "?x=1", URL + "#y", "https://mcp.example/mcp"],
)
def test_urls_are_compared_by_what_they_mean(url: str) -> None:
    checked(made(htu=url))
    assert normal(url) == URL


@pytest.mark.parametrize(
    "url", ["", "/mcp", "//mcp.example/mcp", "https:///mcp", "https:", "mailto:a@b", "https://h:x/"]
)
def test_urls_that_are_not_absolute(url: str) -> None:
    with pytest.raises(ValueError):
        normal(url)
    with pytest.raises(TokenRefused, match="htu"):
        checked(made(htu=url))


# -- what several processes remember --------------------------------------------------------------


async def test_a_proof_is_good_once_among_all_that_share_a_store() -> None:
    bus = MemoryBus("proofs")
    assert bus.store is not None
    one, other, alone = (ProofChecker(now=Clock()) for _ in range(3))
    end = one.share(bus.store)
    other.share(bus.store)
    given: dict[str, Any] = {"token": TOKEN, "thumbprint": JKT}
    for name, first, second in (("a", one, other), ("b", other, one)):
        assert await first.check_shared(made(jti=name), "POST", URL, **given) == JKT
        for again in (second, first):
            with pytest.raises(TokenRefused, match="used before"):
                await again.check_shared(made(jti=name), "POST", URL, **given)
    assert await alone.check_shared(made(jti="a"), "POST", URL, **given) == JKT
    end()
    assert await one.check_shared(made(jti="c"), "POST", URL, **given) == JKT
    assert await other.check_shared(made(jti="c"), "POST", URL, **given) == JKT
    await bus.close()


async def test_a_store_that_is_away_takes_no_proof() -> None:
    bus = MemoryBus("away-proofs")
    assert bus.store is not None
    checker = ProofChecker(now=Clock())
    checker.share(bus.store)
    bus.disconnect()
    given: dict[str, Any] = {"token": TOKEN, "thumbprint": JKT}
    with pytest.raises(IssuerAway, match="cannot be reached"):
        await checker.check_shared(made(), "POST", URL, **given)
    with pytest.raises(TokenRefused, match="another URL"):  # what is wrong is told, whatever is away
        await checker.check_shared(made(htu="https://evil.example/"), "POST", URL, **given)
    bus.connect_again()
    assert await checker.check_shared(made(jti="fresh"), "POST", URL, **given) == JKT
    await bus.close()


async def test_what_is_shared_is_kept_for_as_long_as_it_could_be_used() -> None:
    clock = Clock()
    bus = MemoryBus("kept-proofs", clock=clock)
    assert bus.store is not None
    one, other = (ProofChecker(now=clock) for _ in range(2))
    one.share(bus.store)
    other.share(bus.store)
    given: dict[str, Any] = {"token": TOKEN, "thumbprint": JKT}
    early: dict[str, Any] = {"jti": "x", "iat": NOW + 300}  # the most of the future that is taken, so good for 600 s
    await one.check_shared(made(**early), "POST", URL, **given)
    clock.now += 600
    with pytest.raises(TokenRefused, match="used before"):
        await other.check_shared(made(**early), "POST", URL, **given)
    await bus.close()
