"""Tokens that are refused, in one table: what is wrong with each, and what its bearer is told."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from dragoman.auth import Bearer, Issuer, TokenRefused
from dragoman.auth.jose import encode_base64url, new_key, sign_jws
from dragoman.auth.limits import AuthLimits
from dragoman.auth.tokens import UNTYPED
from tests.auth.issuing import CLAIMS, ISSUER, JWKS, NOW, PLAIN, RESOURCE, Clock, FakeIssuer, key_of, reply, token

N = int(NOW)
ES, RS, ED = key_of("ES256"), key_of("RS256"), key_of("EdDSA")
STRANGER = new_key("ES256", kid=ES.kid)
"""A key of another that has our key's name."""


def parts(text: str) -> list[str]:
    return text.split(".")


def raw(header: Any, claims: Any = CLAIMS, signature: bytes = b"x" * 64) -> str:
    """A token of any parts, signed by no one; bytes stand as they are."""
    texts = [part if isinstance(part, bytes) else json.dumps(part).encode() for part in (header, claims)]
    return ".".join(encode_base64url(part) for part in (*texts, signature))


def resigned(claims: bytes, header: dict[str, Any] | None = None) -> str:
    """A token whose claims are these bytes, signed by the issuer."""
    head = {"alg": "ES256", "typ": "at+jwt", "kid": ES.kid} | (header or {})
    text = f"{encode_base64url(json.dumps(head).encode())}.{encode_base64url(claims)}"
    return f"{text}.{encode_base64url(ES.signature(text.encode()))}"


def with_payload(**changes: Any) -> str:
    """Claims that were changed after they were signed."""
    head, _, signature = parts(token())
    return f"{head}.{encode_base64url(json.dumps(CLAIMS | changes).encode())}.{signature}"


def flipped(place: int) -> str:
    """A token with one letter of its signature changed."""
    head, payload, signature = parts(token())
    letter = "A" if signature[place] != "A" else "B"
    return f"{head}.{payload}.{signature[:place]}{letter}{signature[place + 1 :]}"


def signature_of(data: bytes) -> str:
    head, payload, _ = parts(token())
    return f"{head}.{payload}.{encode_base64url(data)}"


def replaced(place: int, letter: str) -> str:
    """A token with another letter there."""
    text = token()
    return f"{text[:place]}{letter}{text[place + 1 :]}"


def stuffed(letters: str) -> str:
    """A token with these letters within its signature, which a lenient decoder leaves out."""
    text = token()
    return f"{text[:-40]}{letters}{text[-40:]}"


DER = bytes.fromhex("3044022000") + b"\1" * 60
ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
FORM = "not a signed JWT"
HEADER_OBJECT = "header is not a JSON object"
HS = {"typ": "at+jwt", "kid": ES.kid}

Row = tuple[str, Callable[[], str], str]

# -- not a token -----------------------------------------------------------------------------------

SHAPES: list[Row] = [
    ("nothing", lambda: "", FORM),
    ("a word", lambda: "token", FORM),
    ("two parts", lambda: ".".join(parts(token())[:2]), FORM),
    ("four parts", lambda: token() + ".x", FORM),
    ("five parts, encrypted", lambda: "a.b.c.d.e", FORM),
    ("dots", lambda: "..", FORM),
    ("no header", lambda: "." + ".".join(parts(token())[1:]), FORM),
    ("padding", lambda: token() + "==", FORM),
    ("base64 with +", lambda: replaced(-10, "+"), FORM),
    ("base64 with /", lambda: "/" + token()[1:], FORM),
    ("a space before", lambda: " " + token(), FORM),
    ("a space after", lambda: token() + " ", FORM),
    ("a line break", lambda: token() + "\n", FORM),
    ("a null byte", lambda: token() + "\0", FORM),
    ("a letter beyond ASCII", lambda: "é" + token(), FORM),
    ("a lone surrogate", lambda: "\ud800" + token(), FORM),
    ("full-width letters", lambda: "ｅ" + token()[1:], FORM),
    ("a length that no base64 has", lambda: token() + "AAA", FORM),
    ("four signs of padding within", lambda: stuffed("===="), FORM),
    ("four letters of base64 within", lambda: stuffed("+/+/"), FORM),
    ("four line breaks within", lambda: stuffed("\n" * 4), FORM),
    ("four spaces within", lambda: stuffed(" " * 4), FORM),
    ("four other letters within", lambda: stuffed("!*(~"), FORM),
    ("bits after the end", lambda: signature_of(ES.signature(b"x"))[:-1] + "B", FORM),
    ("too long", lambda: "a" * 20_000, "16384 are taken"),
    ("too long, in three parts", lambda: token(x="y" * 13_000), "16384 are taken"),
    ("a JSON token", lambda: json.dumps({"payload": "x", "signatures": []}), FORM),
]

# -- the header ------------------------------------------------------------------------------------

HEADERS: list[Row] = [
    ("no JSON", lambda: raw(b"{"), HEADER_OBJECT),
    ("a list", lambda: raw([]), HEADER_OBJECT),
    ("a number", lambda: raw(1), HEADER_OBJECT),
    ("not UTF-8", lambda: raw(b'{"alg":"ES256","x":"\xff"}'), HEADER_OBJECT),
    ("a byte order mark", lambda: raw(b'\xef\xbb\xbf{"alg":"ES256"}'), HEADER_OBJECT),
    ("nothing after it", lambda: raw(b'{"alg":"ES256"} {}'), HEADER_OBJECT),
    ("deep", lambda: raw(b'{"alg":"ES256","x":' + b"[" * 60 + b"]" * 60 + b"}"), "nested more than 32"),
    ("no alg", lambda: raw({"typ": "at+jwt"}), "algorithm"),
    ("alg null", lambda: raw(HS | {"alg": None}), "algorithm"),
    ("alg a number", lambda: raw(HS | {"alg": 256}), "algorithm"),
    ("alg a list", lambda: raw(HS | {"alg": ["ES256"]}), "algorithm"),
    ("alg none", lambda: raw(HS | {"alg": "none"}, signature=b""), "algorithm"),
    ("alg None", lambda: raw(HS | {"alg": "None"}, signature=b""), "algorithm"),
    ("alg NONE", lambda: raw(HS | {"alg": "NONE"}), "algorithm"),
    ("alg nOnE, signed", lambda: raw(HS | {"alg": "nOnE"}), "algorithm"),
    ("alg empty", lambda: raw(HS | {"alg": ""}), "algorithm"),
    ("alg HS256", lambda: raw(HS | {"alg": "HS256"}), "algorithm"),
    ("alg HS384", lambda: raw(HS | {"alg": "HS384"}), "algorithm"),
    ("alg HS512", lambda: raw(HS | {"alg": "HS512"}), "algorithm"),
    ("alg RSA1_5", lambda: raw(HS | {"alg": "RSA1_5"}), "algorithm"),
    ("alg dir", lambda: raw(HS | {"alg": "dir", "enc": "A128GCM"}), "algorithm"),
    ("alg ES256K", lambda: raw(HS | {"alg": "ES256K"}), "algorithm"),
    ("alg Ed448", lambda: raw(HS | {"alg": "Ed448"}), "algorithm"),
    ("alg in lower case", lambda: raw(HS | {"alg": "es256"}), "algorithm"),
    ("alg with a space", lambda: raw(HS | {"alg": "ES256 "}), "algorithm"),
    ("crit", lambda: token(headers={"crit": ["exp"]}), "has crit"),
    ("crit empty", lambda: token(headers={"crit": []}), "has crit"),
    ("crit of nothing", lambda: token(headers={"crit": ["x"], "x": 1}), "has crit"),
    ("crit b64", lambda: token(headers={"crit": ["b64"], "b64": False}), "has crit"),
    ("b64", lambda: token(headers={"b64": False}), "has b64"),
    ("jku", lambda: token(headers={"jku": ISSUER + "/keys"}), "has jku"),
    ("jku of another", lambda: token(STRANGER, headers={"jku": "https://evil.example/keys"}), "has jku"),
    ("x5u", lambda: token(headers={"x5u": "https://evil.example/x"}), "has x5u"),
    ("x5c", lambda: token(headers={"x5c": ["AAAA"]}), "has x5c"),
    ("jwk", lambda: token(STRANGER, headers={"jwk": STRANGER.public_jwk()}), "has jwk"),
    ("jwk of the issuer", lambda: token(headers={"jwk": ES.public_jwk()}), "has jwk"),
    ("zip", lambda: token(headers={"zip": "DEF"}), "has zip"),
    ("enc", lambda: token(headers={"enc": "A128GCM"}), "has enc"),
    ("kid a number", lambda: token(headers={"kid": 1}), "kid is a string"),
    ("kid a list", lambda: token(headers={"kid": [ES.kid]}), "kid is a string"),
    ("kid an object", lambda: token(headers={"kid": {}}), "kid is a string"),
    ("kid too long", lambda: token(headers={"kid": "k" * 513}), "kid is a string of at most 512"),
    ("kid unknown", lambda: token(headers={"kid": "other"}), "does not publish"),
    ("kid empty", lambda: token(headers={"kid": ""}), "does not publish"),
    ("kid a path", lambda: token(headers={"kid": "../../../dev/null"}), "does not publish"),
    ("kid SQL", lambda: token(headers={"kid": "x' UNION SELECT 'key"}), "does not publish"),
    ("kid a URL", lambda: token(headers={"kid": "https://evil.example/key"}), "does not publish"),
    ("kid with a null byte", lambda: token(headers={"kid": ES.kid + "\0"}), "does not publish"),
    ("kid in another case", lambda: token(headers={"kid": ES.kid.lower()}), "does not publish"),
    ("kid of another algorithm", lambda: token(headers={"kid": RS.kid}), "another algorithm"),
    ("kid of another algorithm, the other way", lambda: token(RS, headers={"kid": ES.kid}), "another algorithm"),
    ("kid of a key bound to RS256", lambda: token(RS, headers={"alg": "RS512"}), "another algorithm"),
    ("kid of a key bound to RS256, PSS", lambda: token(RS, headers={"alg": "PS256"}), "another algorithm"),
    ("kid of a key to encrypt with", lambda: token(key_of("ES256", "enc")), "does not publish"),
    ("kid of a key that may not verify", lambda: token(key_of("ES256", "ops")), "does not publish"),
    ("kid of a symmetric key", lambda: token(headers={"kid": "oct"}), "does not publish"),
    ("kid of a weak RSA key", lambda: token(headers={"kid": "weak"}), "does not publish"),
    ("kid of a key on secp256k1", lambda: token(headers={"kid": "koblitz"}), "does not publish"),
    ("kid of a key off its curve", lambda: token(headers={"kid": "off"}), "does not publish"),
    ("no kid, a key of no one", lambda: token(STRANGER, headers={"kid": None}), "signature|does not publish"),
    ("no kid, of no such algorithm", lambda: token(key_of("ES384"), headers={"kid": None}), "does not publish"),
    ("typ a number", lambda: token(headers={"typ": 1}), "typ is not a string"),
    ("typ a list", lambda: token(headers={"typ": ["at+jwt"]}), "typ is not a string"),
]

# -- the type --------------------------------------------------------------------------------------

TYPES: list[Row] = [
    (f"typ {typ!r}", lambda typ=typ: token(typ=typ), "by its type")  # type: ignore[misc]
    for typ in [
        None, "", "JWT", "jwt", "id+jwt", "dpop+jwt", "DPOP+JWT", "oauth-id-jag+jwt", "logout+jwt", "secevent+jwt",
        "token-introspection+jwt", "rt+jwt", "application/jwt", "at+jwt ", "at +jwt", "x-at+jwt", "at+jwt+x",
        "application/application/at+jwt", "okta-internal-at+jwt", "application/okta-internal-at+jwt", "at+JWTs", "atjwt",
    ]
]  # fmt: skip

# -- the signature ---------------------------------------------------------------------------------

SIGNATURES: list[Row] = [
    ("none", lambda: ".".join(parts(token())[:2]) + ".", "signature"),
    ("of another key with the same kid", lambda: token(STRANGER), "signature"),
    ("first letter changed", lambda: flipped(0), "signature"),
    ("a letter in the middle changed", lambda: flipped(40), "signature"),
    ("of another token", lambda: ".".join([*parts(token())[:2], parts(token(sub="eve"))[2]]), "signature"),
    ("another subject", lambda: with_payload(sub="eve"), "signature"),
    ("another scope", lambda: with_payload(scope="admin"), "signature"),
    ("another expiry", lambda: with_payload(exp=N + 10**6), "signature"),
    (
        "another header",
        lambda: raw({"alg": "ES256", "typ": "at+jwt", "kid": ES.kid, "x": 1}, signature=b"1" * 64),
        "sig",
    ),
    ("r and s zero", lambda: signature_of(bytes(64)), "signature"),
    ("r zero", lambda: signature_of(bytes(32) + b"\1" * 32), "signature"),
    ("s zero", lambda: signature_of(b"\1" * 32 + bytes(32)), "signature"),
    ("r the order", lambda: signature_of(ORDER.to_bytes(32, "big") * 2), "signature"),
    ("r and s all ones", lambda: signature_of(b"\xff" * 64), "signature"),
    ("r and s 1", lambda: signature_of((b"\0" * 31 + b"\1") * 2), "signature"),
    ("as DER", lambda: signature_of(DER), "signature"),
    ("too short", lambda: signature_of(ES.signature(b"x")[:63]), "signature"),
    ("too long", lambda: signature_of(ES.signature(b"x") + b"\0"), "signature"),
    ("one byte", lambda: signature_of(b"\0"), "signature"),
    ("very long", lambda: signature_of(b"\1" * 4000), "signature"),
    ("RSA zero", lambda: ".".join([*parts(token(RS))[:2], encode_base64url(bytes(256))]), "signature"),
    ("RSA one", lambda: ".".join([*parts(token(RS))[:2], encode_base64url(bytes(255) + b"\1")]), "signature"),
    ("RSA above its modulus", lambda: ".".join([*parts(token(RS))[:2], encode_base64url(b"\xff" * 256)]), "signature"),
    ("RSA too short", lambda: ".".join([*parts(token(RS))[:2], encode_base64url(b"\1" * 255)]), "signature"),
    ("Ed25519 zero", lambda: ".".join([*parts(token(ED))[:2], encode_base64url(bytes(64))]), "signature"),
    (
        "Ed25519 the neutral point",
        lambda: ".".join([*parts(token(ED))[:2], encode_base64url(b"\1" + bytes(63))]),
        "signature",
    ),
    ("of the parts swapped", lambda: ".".join([parts(token())[1], parts(token())[0], parts(token())[2]]), "algorithm"),
]

# -- the claims ------------------------------------------------------------------------------------

BODIES: list[Row] = [
    ("no JSON", lambda: resigned(b"{"), "not a JSON object"),
    ("empty", lambda: resigned(b""), "not a JSON object"),
    ("a list", lambda: resigned(b"[]"), "not a JSON object"),
    ("a text", lambda: resigned(b'"x"'), "not a JSON object"),
    ("null", lambda: resigned(b"null"), "not a JSON object"),
    ("not UTF-8", lambda: resigned(b'{"sub":"\xff"}'), "not a JSON object"),
    ("UTF-16", lambda: resigned('{"sub":"ada"}'.encode("utf-16")), "not a JSON object"),
    ("NaN", lambda: resigned(b'{"exp":NaN}'), "not a JSON object"),
    ("Infinity", lambda: resigned(b'{"exp":Infinity}'), "not a JSON object"),
    ("two objects", lambda: resigned(b"{}{}"), "not a JSON object"),
    ("a lone surrogate", lambda: resigned(b'{"sub":"\xed\xa0\x80"}'), "not a JSON object"),
    ("33 levels", lambda: resigned(b'{"x":' + b"[" * 33 + b"]" * 33 + b"}"), "nested more than 32"),
    ("3,000 levels", lambda: resigned(b'{"x":' + b"[" * 3000 + b"]" * 3000 + b"}"), "nested more than 32"),
    ("6,000 levels, open", lambda: resigned(b'{"x":' + b"[" * 6000), "nested more than 32"),
    ("objects in objects", lambda: resigned(b'{"x":' * 40 + b"1" + b"}" * 40), "nested more than 32"),
    ("nothing", lambda: resigned(b"{}"), "an issuer that this server"),
]

CLAIMED: list[tuple[str, dict[str, Any], str]] = [
    ("no iss", {"drop": "iss"}, "an issuer that this server"),
    ("iss null", {"iss": None}, "an issuer that this server"),
    ("iss a list", {"iss": [ISSUER]}, "an issuer that this server"),
    ("iss an object", {"iss": {}}, "an issuer that this server"),
    ("iss a number", {"iss": 1}, "an issuer that this server"),
    ("iss empty", {"iss": ""}, "an issuer that this server"),
    ("iss of another", {"iss": "https://evil.example"}, "an issuer that this server"),
    ("iss with a slash", {"iss": ISSUER + "/"}, "an issuer that this server"),
    ("iss in capitals", {"iss": "https://AS.example"}, "an issuer that this server"),
    ("iss with its port", {"iss": "https://as.example:443"}, "an issuer that this server"),
    ("iss with http", {"iss": "http://as.example"}, "an issuer that this server"),
    ("iss with a path", {"iss": ISSUER + "/x"}, "an issuer that this server"),
    ("iss as a prefix", {"iss": ISSUER + ".evil.example"}, "an issuer that this server"),
    ("iss with a space", {"iss": " " + ISSUER}, "an issuer that this server"),
    ("no aud", {"drop": "aud"}, "for whom it is"),
    ("aud null", {"aud": None}, "for whom it is"),
    ("aud a number", {"aud": 1}, "for whom it is"),
    ("aud an object", {"aud": {RESOURCE: True}}, "for whom it is"),
    ("aud a list with a number", {"aud": [RESOURCE, 1]}, "for whom it is"),
    ("aud a list in a list", {"aud": [[RESOURCE]]}, "for whom it is"),
    ("aud empty", {"aud": ""}, "another service"),
    ("aud no one", {"aud": []}, "another service"),
    ("aud of another", {"aud": "https://other.example/mcp"}, "another service"),
    ("aud of others", {"aud": ["https://other.example", "api"]}, "another service"),
    ("aud the origin", {"aud": "https://mcp.example"}, "another service"),
    ("aud longer", {"aud": RESOURCE + "2"}, "another service"),
    ("aud with a slash", {"aud": RESOURCE + "/"}, "another service"),
    ("aud below", {"aud": RESOURCE + "/x"}, "another service"),
    ("aud shorter", {"aud": RESOURCE[:-1]}, "another service"),
    ("aud with a query", {"aud": RESOURCE + "?x"}, "another service"),
    ("aud with http", {"aud": RESOURCE.replace("https", "http")}, "another service"),
    ("aud in capitals", {"aud": RESOURCE.upper()}, "another service"),
    ("aud the client", {"aud": "app"}, "another service"),
    ("aud the issuer", {"aud": ISSUER}, "another service"),
    ("aud several in one text", {"aud": f"{RESOURCE} x"}, "another service"),
    ("no exp", {"drop": "exp"}, "does not say when it expires"),
    ("exp null", {"exp": None}, "exp is not a time"),
    ("exp a text", {"exp": str(N + 600)}, "exp is not a time"),
    ("exp true", {"exp": True}, "exp is not a time"),
    ("exp a list", {"exp": [N]}, "exp is not a time"),
    ("exp negative", {"exp": -1}, "exp is not a time"),
    ("exp in milliseconds", {"exp": (N + 600) * 1000}, "exp is not a time"),
    ("exp beyond all floats", {"exp": 10**400}, "exp is not a time|not a JSON object"),
    ("exp huge", {"exp": 1e300}, "exp is not a time"),
    ("exp zero", {"exp": 0}, "expired"),
    ("exp past", {"exp": N - 31}, "expired"),
    ("exp just past the leeway", {"exp": N - 30}, "expired"),
    ("exp past by a fraction", {"exp": N - 30.5}, "expired"),
    ("nbf to come", {"nbf": N + 31}, "not valid yet"),
    ("nbf to come by a fraction", {"nbf": N + 30.5}, "not valid yet"),
    ("nbf a text", {"nbf": "0"}, "nbf is not a time"),
    ("nbf null", {"nbf": None}, "nbf is not a time"),
    ("nbf huge", {"nbf": 1e300}, "nbf is not a time"),
    ("nbf true", {"nbf": True}, "nbf is not a time"),
    ("iat to come", {"iat": N + 31}, "issued in the future"),
    ("iat a text", {"iat": "now"}, "iat is not a time"),
    ("iat null", {"iat": None}, "iat is not a time"),
    ("iat negative", {"iat": -5}, "iat is not a time"),
    ("neither sub nor client", {"drop": "sub client_id"}, "neither a subject"),
    ("sub empty", {"sub": ""}, "sub is not text"),
    ("sub a number", {"sub": 7}, "sub is not text"),
    ("sub a list", {"sub": ["ada"]}, "sub is not text"),
    ("sub false", {"sub": False}, "sub is not text"),
    ("sub too long", {"sub": "s" * 1025}, "sub is not text"),
    ("client_id a number", {"client_id": 7}, "client_id is not text"),
    ("client_id empty", {"client_id": ""}, "client_id is not text"),
    ("client_id a list", {"client_id": ["app"]}, "client_id is not text"),
    ("azp a number", {"drop": "client_id", "azp": 7}, "azp is not text"),
    ("scope a number", {"scope": 7}, "scope is neither"),
    ("scope an object", {"scope": {"notes:write": True}}, "scope is neither"),
    ("scope a list of numbers", {"scope": [1]}, "scope is neither"),
    ("scope true", {"scope": True}, "scope is neither"),
    ("scp a number", {"scp": 7}, "scp is neither"),
    ("roles a number", {"roles": 7}, "roles is neither"),
    ("roles an object", {"roles": {"admin": 1}}, "roles is neither"),
    ("roles with a null", {"roles": ["admin", None]}, "roles is neither"),
    ("cnf of a DPoP key", {"cnf": {"jkt": "x" * 43}}, "takes no DPoP"),
    ("cnf of a certificate", {"cnf": {"x5t#S256": "x" * 43}}, "this connection showed none"),
    ("cnf of a certificate, too short", {"cnf": {"x5t#S256": "x" * 42}}, "cannot be checked"),
    ("cnf of a certificate, with padding", {"cnf": {"x5t#S256": "x" * 43 + "="}}, "cannot be checked"),
    ("cnf of a certificate, a line break", {"cnf": {"x5t#S256": "x" * 43 + "\n"}}, "cannot be checked"),
    ("cnf of a certificate, in hex", {"cnf": {"x5t#S256": "ab" * 32}}, "cannot be checked"),
    ("cnf of a certificate, a number", {"cnf": {"x5t#S256": 1}}, "cannot be checked"),
    ("cnf of a certificate by SHA-1", {"cnf": {"x5t": "x" * 27}}, "cannot be checked"),
    ("cnf of both", {"cnf": {"jkt": "x", "x5t#S256": "y"}}, "cannot be checked"),
    ("cnf of a whole key", {"cnf": {"jwk": ES.public_jwk()}}, "cannot be checked"),
    ("cnf of a kid", {"cnf": {"kid": "x"}}, "cannot be checked"),
    ("cnf empty", {"cnf": {}}, "cannot be checked"),
    ("cnf null", {"cnf": None}, "cannot be checked"),
    ("cnf a text", {"cnf": "x"}, "cannot be checked"),
    ("cnf jkt a number", {"cnf": {"jkt": 1}}, "cannot be checked"),
    ("cnf jkt beyond ASCII", {"cnf": {"jkt": "é"}}, "cannot be checked"),
]

# -- tokens of an issuer whose access tokens have no type ------------------------------------------

UNTYPED_ROWS: list[tuple[str, dict[str, Any], str]] = [
    ("an ID token by its nonce", {"nonce": "n"}, "is an ID token"),
    ("an ID token by at_hash", {"at_hash": "h"}, "is an ID token"),
    ("an ID token by c_hash", {"c_hash": "h"}, "is an ID token"),
    ("an ID token by what it lacks", {"drop": "scope client_id"}, "has none of azp, client_id, roles, scope, scp"),
    ("nonce null", {"nonce": None}, "is an ID token"),
    ("a logout token", {"typ": "logout+jwt"}, "by its type"),
    ("a proof", {"typ": "dpop+jwt"}, "by its type"),
    ("an ID-JAG", {"typ": "oauth-id-jag+jwt"}, "by its type"),
    ("another type", {"typ": "x"}, "by its type"),
]

TABLE = [
    *(("form", *row) for row in SHAPES),
    *(("header", *row) for row in HEADERS),
    *(("type", *row) for row in TYPES),
    *(("signature", *row) for row in SIGNATURES),
    *(("body", *row) for row in BODIES),
    *(("claims", name, lambda how=how: token(**how), words) for name, how, words in CLAIMED),
]


def published() -> FakeIssuer:
    """An issuer whose key set has keys of every kind that must not be used, too."""
    fake = FakeIssuer()
    good = [key.public_jwk() for key in (ES, RS, ED)]
    weak = json.loads((WEAK).decode())
    odd = [
        key_of("ES256", "enc").public_jwk() | {"use": "enc"},
        key_of("ES256", "ops").public_jwk() | {"key_ops": ["deriveBits"], "use": "sig"},
        {"kty": "oct", "k": encode_base64url(b"k" * 32), "kid": "oct"},
        weak,
        {"kty": "EC", "crv": "secp256k1", "x": ES.public_jwk()["x"], "y": ES.public_jwk()["y"], "kid": "koblitz"},
        {
            "kty": "EC",
            "crv": "P-256",
            "x": encode_base64url(b"\1" * 32),
            "y": encode_base64url(b"\1" * 32),
            "kid": "off",
        },
    ]
    fake.pages[JWKS] = reply({"keys": good + odd})
    return fake


def _weak() -> bytes:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicNumbers

    n = RSAPublicNumbers(65537, (1 << 1023) | (1 << 512) | 1).n
    return json.dumps(
        {"kty": "RSA", "kid": "weak", "e": "AQAB", "n": encode_base64url(n.to_bytes(128, "big"))}
    ).encode()


WEAK = _weak()


def test_the_table_is_long() -> None:
    names = [f"{group}: {name}" for group, name, _, _ in TABLE]
    assert len(names) == len(set(names))
    assert len(names) + len(UNTYPED_ROWS) >= 200


@pytest.mark.parametrize(("make", "words"), [pytest.param(*row[2:], id=f"{row[0]}: {row[1]}") for row in TABLE])
async def test_a_refused_token(make: Callable[[], str], words: str) -> None:
    verifier = Bearer(ISSUER, resource=RESOURCE, fetcher=published(), now=Clock())
    text = make()
    with pytest.raises(TokenRefused, match=words) as caught:
        await verifier.verify(text, PLAIN)
    assert (caught.value.error, caught.value.scheme) == ("invalid_token", "Bearer")
    assert verifier.known(text.encode("utf-8", "surrogatepass")) is None
    # nothing that a stranger chose stands in the words
    assert caught.value.description.isascii()
    assert "evil" not in caught.value.description


@pytest.mark.parametrize(("how", "words"), [pytest.param(*row[1:], id=row[0]) for row in UNTYPED_ROWS])
@pytest.mark.parametrize("typ", ["JWT", None])
async def test_a_token_without_a_type_must_look_like_one(typ: str | None, how: dict[str, Any], words: str) -> None:
    row = Issuer(issuer=ISSUER, types=UNTYPED)
    verifier = Bearer(row, resource=RESOURCE, fetcher=published(), now=Clock())
    with pytest.raises(TokenRefused, match=words):
        await verifier.verify(token(**({"typ": typ} | how)), PLAIN)
    assert (await verifier.verify(token(typ=typ), PLAIN)).subject == "ada"


GOOD: list[tuple[str, dict[str, Any]]] = [
    ("typ in capitals", {"typ": "AT+JWT"}),
    ("typ whole", {"typ": "application/at+jwt"}),
    ("aud a list", {"aud": ["x", RESOURCE]}),
    ("exp within the leeway", {"exp": N - 29}),
    ("exp a fraction", {"exp": N + 0.5}),
    ("nbf within the leeway", {"nbf": N + 30}),
    ("iat within the leeway", {"iat": N + 30}),
    ("no iat", {"drop": "iat"}),
    ("no scope", {"drop": "scope"}),
    ("scope empty", {"scope": ""}),
    ("scope a list", {"scope": ["a", "b"]}),
    ("no sub", {"drop": "sub"}),
    ("sub null", {"sub": None}),
    ("no client", {"drop": "client_id"}),
    ("a long client", {"client_id": "c" * 1024}),
    ("32 levels", {"x": json.loads("[" * 31 + "]" * 31)}),
    ("many brackets, none deep", {"x": [[] for _ in range(50)], "y": "[" * 99}),
    ("unknown header", {"headers": {"x5t": "abc", "x": 1}}),
    ("no kid", {"headers": {"kid": None}}),
]


@pytest.mark.parametrize("how", [pytest.param(how, id=name) for name, how in GOOD])
async def test_a_token_that_is_good(how: dict[str, Any]) -> None:
    """What the table refuses, it refuses for the reason that it gives: these are as near to it."""
    verifier = Bearer(ISSUER, resource=RESOURCE, fetcher=published(), now=Clock())
    who = await verifier.verify(token(**how), PLAIN)
    assert who.subject == ("app" if how in ({"drop": "sub"}, {"sub": None}) else "ada")


async def test_the_limits_are_those_that_are_given() -> None:
    limits = AuthLimits(token=400, depth=2)
    verifier = Bearer(ISSUER, resource=RESOURCE, fetcher=published(), now=Clock(), limits=limits)
    with pytest.raises(TokenRefused, match="400 are taken"):
        await verifier.verify(token(x="y" * 300), PLAIN)
    small = sign_jws({"iss": ISSUER, "x": [[1]]}, ES, typ="at+jwt")
    with pytest.raises(TokenRefused, match="more than 2 levels"):
        await verifier.verify(small, PLAIN)
