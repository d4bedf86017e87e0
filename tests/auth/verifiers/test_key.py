"""`Bearer` with the one key of its issuer: a public key as PEM text, or a shared secret. Tokens are made by PyJWT."""

from __future__ import annotations

import base64
import hmac
from typing import Any

import jwt
import msgspec
import pytest
import trustme
from cryptography.hazmat.primitives.asymmetric import dsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from dragoman.auth import Bearer, Issuer, Proxy, TokenRefused
from dragoman.auth.guard import TokenGuard
from dragoman.auth.jose import encode_base64url
from dragoman.channel import Denied, Identity
from dragoman.jsonrpc.errors import LocalError
from tests.auth.issuing import CLAIMS, ISSUER, PLAIN, RESOURCE, Clock, FakeIssuer, key_of, shown

SECRET = "0123456789abcdef0123456789abcdef"
SPKI = (Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def native(algorithm: str) -> Any:
    return key_of(algorithm)._native.raw_value


def public(algorithm: str) -> str:
    text: bytes = native(algorithm).public_key().public_bytes(*SPKI)
    return text.decode()


def private(algorithm: str) -> str:
    text: bytes = native(algorithm).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return text.decode()


def signed(key: Any, algorithm: str, **headers: Any) -> str:
    return jwt.encode(CLAIMS, key, algorithm=algorithm, headers={"typ": "at+jwt"} | headers)


def by_hand(secret: bytes, algorithm: str) -> str:
    """What PyJWT refuses to sign: HMAC with the text of a public key."""
    text = ".".join(
        encode_base64url(msgspec.json.encode(each)) for each in ({"alg": algorithm, "typ": "at+jwt"}, CLAIMS)
    )
    return f"{text}.{encode_base64url(hmac.digest(secret, text.encode(), 'sha' + algorithm[2:]))}"


def bearer(issuer: str | Issuer = ISSUER, **options: Any) -> Bearer:
    fake = FakeIssuer()
    fake.away = True  # nothing is fetched
    given: dict[str, Any] = {"resource": RESOURCE, "fetcher": fake, "now": Clock()}
    return Bearer(issuer, **given | options)


async def who(verifier: Bearer, token: str) -> Identity:
    return await verifier.verify(token, PLAIN)


@pytest.mark.parametrize("algorithm", ["ES256", "ES384", "ES512", "RS256", "EdDSA"])
@pytest.mark.parametrize("form", [str, str.encode])
async def test_a_public_key(algorithm: str, form: Any) -> None:
    verifier = bearer(public_key=form(public(algorithm)))
    # a `kid` of the signer's own is no matter: there is one key
    assert (await who(verifier, signed(private(algorithm), algorithm, kid="of 2024"))).subject == "ada"
    other = jwt.encode(CLAIMS | {"sub": "eve"}, private("RS512"), algorithm="RS512", headers={"typ": "at+jwt"})
    with pytest.raises(TokenRefused, match="algorithm"):
        await who(verifier, other)


@pytest.mark.parametrize(("algorithm", "length"), [("HS256", 32), ("HS384", 48), ("HS512", 64)])
async def test_a_secret(algorithm: str, length: int) -> None:
    secret = (SECRET * 2)[:length]
    for given in (secret, secret.encode()):
        verifier = bearer(secret=given, algorithm=algorithm)
        assert (await who(verifier, signed(secret, algorithm))).subject == "ada"
        with pytest.raises(TokenRefused, match="signature"):
            await who(verifier, signed(secret[::-1], algorithm))
    with pytest.raises(LocalError, match=rf"at least {length} bytes, this one {length - 1}") as told:
        bearer(secret=secret[1:], algorithm=algorithm)
    assert secret[1:9] not in str(told.value)


async def test_the_token_does_not_choose_the_algorithm() -> None:
    """RFC 8725 sections 2.1 and 3.1: a public key is no secret for HMAC, and a key has one algorithm."""
    text = public("RS256")
    for verifier in (bearer(public_key=text), bearer(public_key=text, algorithm="RS512")):
        for algorithm in ("HS256", "HS384", "HS512"):
            with pytest.raises(TokenRefused, match="algorithm"):
                await who(verifier, by_hand(text.encode(), algorithm))
    # each key has one algorithm, also among those that would fit
    with pytest.raises(TokenRefused, match="algorithm"):
        await who(bearer(public_key=text), signed(private("RS256"), "PS256"))
    assert (await who(bearer(public_key=text, algorithm="PS256"), signed(private("RS256"), "PS256"))).subject == "ada"
    own = bearer(Issuer(issuer=ISSUER, algorithms=frozenset({"PS256"})), public_key=text)
    assert (await who(own, signed(private("RS256"), "PS256"))).subject == "ada"
    with pytest.raises(TokenRefused, match="algorithm"):
        await who(bearer(secret=SECRET * 2), signed(SECRET * 2, "HS512"))
    with pytest.raises(TokenRefused, match="algorithm"):
        await who(bearer(secret=SECRET), signed(private("ES256"), "ES256"))
    none = jwt.encode(CLAIMS, "", algorithm="none", headers={"typ": "at+jwt"})
    with pytest.raises(TokenRefused):
        await who(bearer(secret=SECRET), none)


def _certificate() -> str:
    return trustme.CA().cert_pem.bytes().decode()


def _dsa() -> str:
    return dsa.generate_private_key(2048).public_key().public_bytes(*SPKI).decode()


PEM = public("ES256")
DER = native("ES256").public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
SSH = native("ES256").public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
JWK = msgspec.json.encode(key_of("ES256").public_jwk())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"public_key": private("ES256")}, "a private key.*openssl pkey"),
        ({"public_key": public("ES256") + public("RS256")}, "is one key, and here are several"),
        ({"public_key": _certificate()}, "a certificate.*openssl x509"),
        ({"public_key": "key.pem"}, "the PEM text.*read_text"),
        ({"public_key": SECRET}, "a shared secret: secret="),
        ({"public_key": _dsa()}, "no RSA, EC or Ed25519 key"),
        ({"public_key": PEM.replace("M", "A")}, "not the PEM text of a key"),
        ({"public_key": PEM, "secret": SECRET}, "and not both"),
        ({"public_key": PEM, "algorithm": "HS256"}, "algorithm is ES256 for a key of type EC P-256, not 'HS256'"),
        ({"public_key": public("RS256"), "algorithm": "ES256"}, "RS256 or RS384 or .* for a key of type RSA, not"),
        ({"secret": PEM}, "everyone could sign.*public_key="),
        ({"secret": DER}, "everyone could sign"),
        ({"secret": SSH}, "everyone could sign"),
        ({"secret": JWK}, "everyone could sign"),
        ({"secret": str(key_of("ES256").public_jwk())}, "everyone could sign"),
        ({"secret": PEM.encode("utf-16")}, "everyone could sign"),
        ({"secret": base64.b64encode(DER)}, "everyone could sign"),
        ({"secret": base64.urlsafe_b64encode(DER).rstrip(b"=")}, "everyone could sign"),
        ({"secret": "".join(PEM.splitlines(keepends=True)[1:-1])}, "everyone could sign"),
        ({"secret": "".join(_certificate().splitlines(keepends=True)[1:-1])}, "everyone could sign"),
        ({"secret": private("RS256")}, "everyone could sign"),
        ({"secret": ""}, "at least 32 bytes, this one 0"),
        ({"secret": SECRET, "algorithm": "RS256"}, "HS256 or HS384 or HS512 for a secret, not 'RS256'"),
        ({"secret": SECRET, "algorithm": "none"}, "for a secret, not 'none'"),
        ({"algorithm": "RS256"}, "goes with public_key= or secret="),
        ({"public_key": PEM, "issuer": [ISSUER, "https://b.example"]}, "one issuer; for others"),
        ({"public_key": PEM, "issuer": ""}, "text that is not empty"),
        (
            {"secret": SECRET, "issuer": Issuer(issuer=ISSUER, algorithms=frozenset({"RS256"}))},
            "signs with RS256, and this key is for HS256",
        ),
        ({"public_key": PEM, "proxy": Proxy("https://p.example", client_id="a", client_secret="b")}, "a proxy signs"),
    ],
)
def test_what_is_no_key(options: dict[str, Any], words: str) -> None:
    with pytest.raises(LocalError, match=words):
        Bearer(**{"issuer": ISSUER, "resource": RESOURCE} | options)


async def test_a_name_is_no_place_to_log_in() -> None:
    """Tokens that a program makes for its own servers have no issuer that clients could go to."""
    verifier = bearer("build", secret=SECRET)
    token = jwt.encode(CLAIMS | {"iss": "build"}, SECRET, headers={"typ": "at+jwt"})
    assert (await who(verifier, token)).issuer == "build"
    denied = await TokenGuard(verifier)(shown("x.y.z"))
    assert isinstance(denied, Denied)
    assert "resource_metadata" not in dict(denied.headers)["WWW-Authenticate"]


async def test_the_secret_is_shown_nowhere() -> None:
    verifier = bearer(secret=SECRET)
    source = verifier._sources[ISSUER]
    assert SECRET not in repr(verifier) + repr(source) + repr(source.keys._given)
