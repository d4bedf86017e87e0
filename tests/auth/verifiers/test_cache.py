"""The cache of verified tokens: its bounds and its times."""

from __future__ import annotations

import pytest

from dragoman.auth import AuthLimits, TokenRefused
from dragoman.auth.tokens import TokenBinding
from dragoman.auth.verifiers.cache import REFUSED, TokenCache
from dragoman.channel import Identity
from tests.auth.issuing import NOW, Clock


def test_good_and_refused_tokens_have_bounds_of_their_own() -> None:
    cache = TokenCache(limits=AuthLimits(cached_tokens=3, cached_refusals=2), now=Clock())
    for each in range(10):
        cache.keep(b"good %d" % each, Identity(subject=str(each)))
        cache.refuse(b"bad %d" % each, TokenRefused("no"))
    assert [cache.find(b"good %d" % each) is not None for each in range(10)] == [False] * 7 + [True] * 3
    assert (len(cache), len(cache._refused)) == (3, 2)
    cache.check_refused(b"bad 7")
    for each in (8, 9):
        with pytest.raises(TokenRefused):
            cache.check_refused(b"bad %d" % each)
    cache.clear()
    assert len(cache) == 0
    cache.check_refused(b"bad 9")


def test_one_that_is_verified_anew_is_not_the_next_to_go() -> None:
    cache = TokenCache(limits=AuthLimits(cached_tokens=2), now=Clock())
    for name in (b"a", b"b", b"a", b"c"):
        cache.keep(name, Identity(subject="x"))
    assert [cache.find(name) is not None for name in (b"a", b"b", b"c")] == [True, False, True]


@pytest.mark.parametrize(
    ("seconds", "ends", "until"), [(300, None, 300), (300, 100, 100), (300, 900, 300), (60, None, 60)]
)
def test_how_long_a_token_is_believed(seconds: float, ends: float | None, until: float) -> None:
    clock = Clock()
    cache = TokenCache(seconds=seconds, now=clock)
    bound = TokenBinding("jkt", "key")
    expires = None if ends is None else NOW + ends
    cache.keep(b"a", Identity(subject="x", expires_at=expires), bound)
    clock.now = NOW + until - 0.5
    found = cache.find(b"a")
    assert found is not None
    assert found[1:] == (Identity(subject="x", expires_at=expires), bound)
    clock.now = NOW + until
    assert cache.find(b"a") is None


def test_a_refusal_says_the_same_again_for_a_while() -> None:
    clock = Clock()
    cache = TokenCache(now=clock)
    cache.refuse(b"a", TokenRefused("why", error="invalid_dpop_proof", scheme="DPoP"))
    clock.now += REFUSED - 0.5
    with pytest.raises(TokenRefused, match="why") as caught:
        cache.check_refused(b"a")
    assert (caught.value.error, caught.value.scheme) == ("invalid_dpop_proof", "DPoP")
    clock.now += 0.5
    cache.check_refused(b"a")
