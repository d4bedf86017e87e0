"""JOSE: keys, key sets and signed tokens, beside PyJWT as a second opinion."""

from __future__ import annotations

import json
from typing import Any

import jwt
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dragoman.auth.errors import TokenRefused, UnknownKey
from dragoman.auth.jose import (
    ASYMMETRIC,
    FITS,
    Key,
    KeyRefused,
    KeySet,
    deeper,
    encode_base64url,
    new_key,
    sign_jws,
    thumbprint,
    verify_jws,
)
from dragoman.auth.limits import AuthLimits
from dragoman.jsonrpc.errors import LocalError

KEYS = {name: new_key(name) for name in FITS}
PUBLISHED = KeySet.from_json({"keys": [key.public_jwk() for key in KEYS.values()]})


@pytest.mark.parametrize("name", sorted(FITS))
def test_what_is_signed_is_verified(name: str) -> None:
    token = verify_jws(sign_jws({"sub": "ada"}, KEYS[name], typ="at+jwt"), PUBLISHED)
    assert token.claims == {"sub": "ada"}
    assert token.header == {"alg": name, "typ": "at+jwt", "kid": KEYS[name].kid}
    assert json.loads(token.raw) == token.claims


@pytest.mark.parametrize("name", sorted(FITS))
def test_a_key_goes_through_its_jwk(name: str) -> None:
    again = Key.from_jwk(KEYS[name].private_jwk())
    assert (again.kid, again.private, again.algorithm()) == (KEYS[name].kid, True, name)
    assert verify_jws(sign_jws({}, again), PUBLISHED).claims == {}
    public = Key.from_jwk(KEYS[name].public_jwk())
    assert not public.private
    assert "d" not in public.public_jwk()
    with pytest.raises(LocalError, match="cannot sign"):
        sign_jws({}, public)
    with pytest.raises(LocalError, match="no private part"):
        public.private_jwk()


def test_the_thumbprint_of_rfc_7638() -> None:
    # RFC 7638 section 3.1
    n = (
        "0vx7agoebGcQSuuPiLJXZptN9nndrQmbXEps2aiAFbWhM78LhWx4cbbfAAtVT86zwu1RK7aPFFxuhDR1L6tSoc_BJECPebWKRXjBZCiFV4n3"
        "oknjhMstn64tZ_2W-5JsGY4Hc5n9yBXArwl93lqt7_RN5w6Cf0h4QyQ5v-65YGjQR0_FDW2QvzqY368QQMicAtaSqzs8KJZgnYb9c7d0zgdA"
        "ZHzu6qMQvRL5hajrn1n91CbOpbISD08qNLyrdkt-bFTWhAI4vMQFh6WeZu0fM4lFd2NcRwr3XPksINHaQ-G_xBniIqbw0Ls1jF44-csFCur-"
        "kEgU8awapJzKnqDKgw"
    )
    jwk = {"kty": "RSA", "n": n, "e": "AQAB", "alg": "RS256", "kid": "2011-04-29"}
    assert thumbprint(jwk) == "NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs"
    assert Key.from_jwk(jwk).kid == "2011-04-29"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"kty": "oct"}, "kty is RSA, EC or OKP"),
        ({"kty": 1}, "kty is RSA, EC or OKP"),
        ({"use": "enc"}, 'use is not "sig"'),
        ({"key_ops": ["encrypt"]}, "key_ops lack"),
        ({"key_ops": "verify"}, "key_ops lack"),
        ({"kid": 7}, "kid is a short string"),
        ({"kid": "k" * 513}, "kid is a short string"),
        ({"alg": "RS256"}, "does not fit its alg"),
        ({"crv": "secp256k1"}, "cannot be read"),
        ({"x": "AAAA"}, "cannot be read"),
        ({"x": 7}, "members are strings"),
    ],
)
def test_a_jwk_that_is_not_taken(change: dict[str, Any], why: str) -> None:
    with pytest.raises(KeyRefused, match=why):
        Key.from_jwk(KEYS["ES256"].public_jwk() | change)


def test_a_private_jwk_is_for_signing() -> None:
    private = KEYS["ES256"].private_jwk()
    assert Key.from_jwk(private | {"key_ops": ["sign"]}).private_jwk()["d"] == private["d"]
    with pytest.raises(KeyRefused, match="key_ops lack sign"):
        Key.from_jwk(private | {"key_ops": ["verify"]})


def test_a_key_set_keeps_what_it_still_has() -> None:
    one, two = (KeySet((KEYS[name],)) for name in ("ES256", "RS256"))
    both = KeySet((KEYS["ES256"], KEYS["RS256"]))
    assert [both.keeps(one), both.keeps(both), one.keeps(both), one.keeps(two)] == [True, True, False, False]


@pytest.mark.parametrize(("text", "depth"), [(b"[]", 1), (b'{"a":[{}],"b":[]}', 3), (b'["[[[", "\\"[[", {}]', 2)])
def test_how_deep_json_is(text: bytes, depth: int) -> None:
    assert [deeper(text, limit) for limit in (depth - 1, depth, depth + 1)] == [True, False, False]


def test_a_key_set_leaves_out_what_it_cannot_use() -> None:
    good = KEYS["ES256"].public_jwk()
    found = KeySet.from_json(
        json.dumps({"keys": [{"kty": "oct", "k": "AAAA"}, 7, good, good | {"use": "enc"}]}).encode()
    )
    assert [key.kid for key in found.keys] == [good["kid"]]
    assert [line.partition(":")[0] for line in found.skipped] == ["keys[0]", "keys[1]", "keys[3]"]


@pytest.mark.parametrize("text", [b"[]", b"{}", b'{"keys":{}}', b"\xff", b'{"keys":' + b"[" * 100_000, b"x" * 600_000])
def test_no_key_set(text: bytes) -> None:
    with pytest.raises(KeyRefused, match="JWK set"):
        KeySet.from_json(text)


def test_a_key_set_is_read_up_to_its_limit() -> None:
    jwks = {"keys": [KEYS["ES256"].public_jwk() | {"kid": str(each)} for each in range(5)]}
    assert len(KeySet.from_json(jwks, limits=AuthLimits(keys=3)).keys) == 3


def test_a_key_set_has_a_size() -> None:
    text = json.dumps({"keys": [KEYS["ES256"].public_jwk()]}).encode()
    assert len(KeySet.from_json(text, limits=AuthLimits(key_set=len(text))).keys) == 1
    with pytest.raises(KeyRefused, match=r"AuthLimits\.key_set allows"):
        KeySet.from_json(text + b" ", limits=AuthLimits(key_set=len(text)))


@pytest.mark.parametrize("name", sorted(FITS))
def test_a_new_key_serves_its_algorithm_alone(name: str) -> None:
    assert new_key(name, kid="a").public_jwk()["alg"] == name
    others = [other for other in FITS if other != name]
    assert not any(KEYS[name].verifies(other, b"x", KEYS[name].signature(b"x")) for other in others)
    assert KEYS[name].verifies(name, b"x", KEYS[name].signature(b"x"))
    with pytest.raises(LocalError, match="there is no algorithm"):
        new_key("HS256")


def test_a_token_without_kid_is_tried_with_few_keys() -> None:
    ours = [new_key("ES256") for _ in range(5)]
    token = sign_jws({}, ours[3], headers={"kid": None})
    assert verify_jws(token, KeySet(tuple(ours[:4]))).claims == {}
    with pytest.raises(TokenRefused, match="too many to try"):
        verify_jws(token, KeySet(tuple(ours)))


def test_an_unknown_kid_is_told_from_a_bad_signature() -> None:
    with pytest.raises(UnknownKey):
        verify_jws(sign_jws({}, KEYS["ES256"], headers={"kid": "other"}), PUBLISHED)
    with pytest.raises(TokenRefused, match="another algorithm"):
        verify_jws(sign_jws({}, KEYS["ES256"], headers={"kid": KEYS["RS256"].kid}), PUBLISHED)


def test_keys_come_from_pem() -> None:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

    for name in ("ES256", "RS256", "EdDSA"):
        native: Any = KEYS[name]._native.raw_value
        private = Key.from_pem(native.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()), kid="a")
        public = native.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
        assert verify_jws(sign_jws({}, private), KeySet((Key.from_pem(public, kid="a"),))).claims == {}
    for wrong in ("", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----"):
        with pytest.raises(KeyRefused, match="not the PEM text"):
            Key.from_pem(wrong)


def test_no_secret_is_shown() -> None:
    key = KEYS["ES256"]
    assert key.private_jwk()["d"] not in repr(key) + str(key) + repr(KeySet((key,)))


# -- beside PyJWT -----------------------------------------------------------------------------------------------------

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
CHEAP = ("ES256", "RS256", "PS256", "EdDSA")


def by_pyjwt(token: str, name: str) -> dict[str, Any] | None:
    """The claims as PyJWT reads them, no time or audience judged; None where it refuses."""
    off: Any = {f"verify_{claim}": False for claim in ("exp", "nbf", "iat", "aud", "iss", "sub", "jti")}
    try:
        key = jwt.PyJWK(KEYS[name].public_jwk() | {"alg": name}).key
        return dict(jwt.decode(token, key, algorithms=[name], options=off))
    except jwt.PyJWTError:
        return None


def by_us(token: str, name: str) -> dict[str, Any] | None:
    """The claims as we read them; None where we refuse."""
    try:
        return verify_jws(token, PUBLISHED, frozenset({name})).claims
    except TokenRefused:
        return None


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(CHEAP), st.dictionaries(st.text(), JSON, max_size=5))
def test_we_read_what_pyjwt_reads_and_signs(name: str, claims: dict[str, Any]) -> None:
    ours = sign_jws(claims, KEYS[name], typ="at+jwt")
    assert by_us(ours, name) == by_pyjwt(ours, name) == claims
    private = jwt.PyJWK(KEYS[name].private_jwk() | {"alg": name}).key
    theirs = jwt.encode(claims, private, algorithm=name, headers={"kid": KEYS[name].kid})
    assert by_us(theirs, name) == claims


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(CHEAP), st.data())
def test_what_we_take_of_a_damaged_token_pyjwt_takes(name: str, data: st.DataObject) -> None:
    token = sign_jws({"sub": "ada", "n": [1, {"a": "b"}]}, KEYS[name], typ="at+jwt")
    at = data.draw(st.integers(0, len(token) - 1))
    kind = data.draw(st.sampled_from(("put", "drop", "add", "swap")))
    letter = data.draw(st.sampled_from("AQgw-_+/=. zé9\n"))
    damaged = {
        "put": token[:at] + letter + token[at + 1 :],
        "drop": token[:at] + token[at + 1 :],
        "add": token[:at] + letter + token[at:],
        "swap": ".".join(data.draw(st.permutations(token.split(".")))),
    }[kind]
    found = by_us(damaged, name)
    # we are the stricter: padding, other alphabets and bits that no decoder looks at are refused here
    assert found is None or found == by_pyjwt(damaged, name)
    assert damaged == token or found is None


def test_what_pyjwt_signs_with_other_algorithms_is_refused() -> None:
    for algorithm in ("HS256", "HS384", "HS512"):
        with pytest.raises(TokenRefused, match="algorithm"):
            verify_jws(jwt.encode({}, "a secret of some length" * 4, algorithm=algorithm), PUBLISHED, ASYMMETRIC)
    none = f"{encode_base64url(json.dumps({'alg': 'none'}).encode())}.{encode_base64url(json.dumps({}).encode())}."
    with pytest.raises(TokenRefused, match="algorithm"):
        verify_jws(none, PUBLISHED, ASYMMETRIC | {"none"})
