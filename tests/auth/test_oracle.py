"""Whole verification beside PyJWT: what we accept of any claims, it accepts; what we refuse beyond it is named here."""

from __future__ import annotations

import asyncio
import hashlib
from typing import Any

import jwt
import msgspec
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from dragoman.auth import Bearer, TokenRefused
from dragoman.auth.jose import encode_base64url, sign_jws
from tests.auth.issuing import CLAIMS, ISSUER, NOW, PLAIN, RESOURCE, Clock, FakeIssuer, key_of

N = int(NOW)
KEY = key_of("EdDSA")
PUBLIC = jwt.PyJWK(KEY.public_jwk()).key
VERIFIER = Bearer(ISSUER, resource=RESOURCE, fetcher=FakeIssuer(KEY), now=Clock(), leeway=10, cache_seconds=0)

ODD: st.SearchStrategy[Any] = (
    st.none() | st.booleans() | st.text(max_size=3) | st.lists(st.integers(), max_size=2) | st.just({})
)
TIMES = (
    st.integers(N - 20, N + 20)
    | st.floats(N - 20, N + 20)
    | st.integers(-(2**40), 2**60)
    | st.floats(allow_nan=False, allow_infinity=False)
    | ODD
)
NAMES = st.sampled_from([RESOURCE, RESOURCE + "/", "https://mcp.example", "x", ""])
DER = b"what the connection showed"
OWN = {"x5t#S256": encode_base64url(hashlib.sha256(DER).digest())}
CONFIRMATIONS: st.SearchStrategy[Any] = st.sampled_from(
    [OWN, {"x5t#S256": "x" * 43}, {"x5t#S256": OWN["x5t#S256"] + "="}, {"jkt": "x" * 43}, OWN | {"jkt": "x"}, {"x": 1}]
)
SHOWN = msgspec.structs.replace(PLAIN, certificate={"version": 3}, certificate_der=DER)
GIVEN = st.fixed_dictionaries(
    {},
    optional={
        "iss": st.sampled_from([ISSUER, ISSUER, ISSUER + "/", "x"]) | ODD,
        "aud": NAMES | st.lists(NAMES | ODD, max_size=3) | ODD,
        "exp": TIMES,
        "nbf": TIMES,
        "iat": TIMES,
        "sub": st.sampled_from(["ada", ""]) | ODD,
        "client_id": st.just("app") | ODD,
        "scope": st.text("ab ", max_size=5) | ODD,
        "cnf": CONFIRMATIONS | ODD,
    },
)
DROPPED = st.sets(st.sampled_from(["iss", "aud", "exp", "sub", "client_id", "iat", "jti", "scope"]), max_size=2)


def by_pyjwt(token: str, monkey: Any) -> dict[str, Any] | None:
    """The claims as PyJWT reads and judges them, by our clock; None where it refuses."""
    must: Any = {"require": ["exp", "iss", "aud"], "verify_sub": False, "verify_jti": False}
    with monkey.context() as patched:
        patched.setattr("jwt.api_jwt.datetime", _Frozen)
        try:
            return dict(jwt.decode(token, PUBLIC, ["EdDSA"], must, audience=RESOURCE, issuer=ISSUER, leeway=10))
        except (jwt.PyJWTError, OverflowError, TypeError, ValueError):
            return None


class _Frozen:
    """`datetime.datetime` at the time of these tests."""

    @staticmethod
    def now(tz: Any = None) -> Any:
        from datetime import datetime

        return datetime.fromtimestamp(NOW, tz)


def by_us(token: str) -> Any:
    try:
        return asyncio.run(VERIFIER.verify(token, SHOWN))
    except TokenRefused as refused:
        return refused


STRICTER = (
    "names neither a subject",  # RFC 9068 wants both
    "is not text of",
    "is not a time",  # texts and truths that can be taken for numbers, times after 9999
    "is neither a text nor a list",
    "does not say for whom",
    "an issuer that this server",
    "(cnf)",  # PyJWT leaves it to its users whether a bound token is used by its owner
)
"""What we refuse and PyJWT may take."""


@settings(
    max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
@given(GIVEN, DROPPED)
@example({}, set())
@example({"exp": N - 10}, set())
@example({"cnf": OWN}, set())
@example({"cnf": {"x5t#S256": "x" * 43}}, set())
@example({"exp": N - 9}, set())
@example({"nbf": N + 10}, set())
@example({"nbf": N + 11}, set())
@example({"iat": N + 11}, set())
@example({"aud": ["x", RESOURCE]}, {"sub"})
def test_any_claims(monkeypatch: Any, changes: dict[str, Any], dropped: set[str]) -> None:
    # PyJWT cuts the fractions of times, so within the last second of a time the two differ
    for name, edge in (("exp", N - 10), ("nbf", N + 10), ("iat", N + 10)):
        value = changes.get(name)
        assume(not isinstance(value, float) or value.is_integer() or abs(value - edge) > 1)
    claims = {name: value for name, value in (CLAIMS | changes).items() if name not in dropped}
    text = sign_jws(claims, KEY, typ="at+jwt")
    ours, theirs = by_us(text), by_pyjwt(text, monkeypatch)
    if isinstance(ours, TokenRefused):
        assert theirs is None or any(words in ours.description for words in STRICTER), (ours, claims)
    else:
        assert theirs is not None, claims
        assert claims.get("cnf", OWN) == OWN
        assert dict(ours.claims) == theirs == claims
        assert (ours.subject, ours.issuer) == (claims.get("sub") or claims["client_id"], ISSUER)
