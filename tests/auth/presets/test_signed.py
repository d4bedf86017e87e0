"""Presets of issuers of signed tokens: fixtures of what each of them documents, and of what must not pass for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec import Struct

from dragoman.auth import Bearer, Issuer, IssuerAway, TokenRefused
from dragoman.auth.jose import new_key, sign_jws
from dragoman.auth.presets import auth0, cognito, entra, keycloak, okta, workos
from dragoman.jsonrpc.errors import LocalError
from tests.auth.issuing import NOW, PLAIN, RESOURCE, Clock, FakeIssuer, key_of, reply

N = int(NOW)
TENANT = "aaaabbbb-0000-cccc-1111-dddd2222eeee"
APP = "00001111-aaaa-2222-bbbb-3333cccc4444"
CALLER = "11112222-bbbb-3333-cccc-4444dddd5555"
TIMES = {"iat": N - 10, "nbf": N - 10, "exp": N + 3600}


class Quirk(Struct, frozen=True, kw_only=True):
    """A preset and a token as its issuer documents it."""

    preset: Callable[[], Issuer]
    claims: dict[str, Any]
    typ: str | None = "JWT"
    metadata: str = ""
    """Where the issuer's metadata are; "" where the preset names the keys themselves."""
    keys: str = "https://keys.example/jwks"
    subject: str = ""
    client: str | None = None
    scopes: frozenset[str] | set[str] = frozenset()
    roles: frozenset[str] | set[str] = frozenset()
    wrong: dict[str, tuple[dict[str, Any], str]] = {}
    """What makes a token that is refused of it, and the words."""


LOGIN = f"https://login.microsoftonline.com/{TENANT}"
ENTRA_2 = {
    **TIMES,
    "aud": APP,
    "iss": f"{LOGIN}/v2.0",
    "azp": CALLER,
    "azpacr": "0",
    "oid": "00000000-0000-0000-66f3-3332eca7ea81",
    "rh": "0.AXEAAA",
    "scp": "notes.read notes.write",
    "sub": "pairwise-subject",
    "tid": TENANT,
    "uti": "fqiBqXLPj0eQa82S-IYFAA",
    "ver": "2.0",
}
ENTRA_1 = {
    **TIMES,
    "aud": f"api://{APP}",
    "iss": f"https://sts.windows.net/{TENANT}/",
    "appid": CALLER,
    "appidacr": "1",
    "roles": ["Notes.ReadWrite.All"],
    "sub": "a-service",
    "tid": TENANT,
    "ver": "1.0",
}
AUTH0 = {
    "iss": "https://example.eu.auth0.com/",
    "sub": "auth0|123456",
    "aud": [RESOURCE, "https://example.eu.auth0.com/userinfo"],
    "azp": "my_client_id",
    "iat": N,
    "exp": N + 3600,
    "scope": "openid notes:read",
    "permissions": ["notes:read", "notes:delete"],
}
OKTA = {
    "ver": 1,
    "jti": "AT.0mP4JKAZX1iACIT4vbEDF7LpvDVjxypPMf0D7uX39RE",
    "iss": "https://example.okta.com/oauth2/default",
    "aud": "api://default",
    "sub": "ada@example.com",
    "iat": N,
    "exp": N + 3600,
    "cid": "0oa1client",
    "uid": "00uid4BxXw6I6TV4m0g3",
    "scp": ["openid", "notes.read"],
    "groups": ["staff"],
}
KEYCLOAK = {
    "iss": "https://sso.example/realms/main",
    "aud": [RESOURCE, "account"],
    "sub": "f:1:ada",
    "typ": "Bearer",
    "azp": "cli",
    "exp": N + 300,
    "iat": N,
    "jti": "onrtac:1",
    "realm_access": {"roles": ["offline_access", "editor"]},
    "resource_access": {"notes": {"roles": ["owner"]}, "account": {"roles": ["manage-account"]}},
    "scope": "email notes:read",
    "preferred_username": "ada",
}
COGNITO = {
    "sub": "aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee",
    "cognito:groups": ["testgroup"],
    "iss": "https://cognito-idp.us-west-2.amazonaws.com/us-west-2_example",
    "version": 2,
    "client_id": "xxxxxxxxxxxxexample",
    "token_use": "access",
    "scope": "aws.cognito.signin.user.admin notes/read",
    "auth_time": N,
    "exp": N + 3600,
    "iat": N,
    "jti": "aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeef",
    "username": "my-test-user",
}
WORKOS = {
    "iss": "https://example.authkit.app",
    "aud": RESOURCE,
    "sub": "user_01JQ0E27VT3MH79RY0FVA4QBP9",
    "org_id": "org_01HRDMC6CM357W30QMHMQ96Q0S",
    "sid": "app_consent_01JQ0E27WE4K1RCMH7Q094M1GJ",
    "jti": "01JQ0E27ZXE4XNHVP870S6PWYN",
    "role": "member",
    "permissions": ["notes:read"],
    "exp": N + 300,
    "iat": N,
}
OTHER = "https://other.example"

QUIRKS: dict[str, Quirk] = {
    "entra, version 2": Quirk(
        preset=lambda: entra(TENANT, client_id=APP),
        claims=ENTRA_2,
        metadata=f"{LOGIN}/v2.0/.well-known/openid-configuration",
        subject="pairwise-subject",
        client=CALLER,
        scopes={"notes.read", "notes.write"},
        wrong={
            "of another tenant": ({"tid": CALLER}, "tid"),
            "of another tenant by its issuer": ({"iss": f"https://login.microsoftonline.com/{CALLER}/v2.0"}, "issuer"),
            "for another application": ({"aud": CALLER}, "another service"),
            "for Microsoft Graph": ({"aud": "00000003-0000-0000-c000-000000000000"}, "another service"),
            "version 1": ({"ver": "1.0"}, "ver"),
            "an ID token, which has the same audience": ({"azp": None, "scp": None, "nonce": "n"}, "ID token"),
            "an ID token with roles and no nonce": ({"azp": None, "scp": None, "roles": ["Admin"]}, "azp"),
            "no expiry": ({"exp": None}, "exp"),
        },
    ),
    "entra, version 1": Quirk(
        preset=lambda: entra(TENANT, client_id=APP, version=1),
        claims=ENTRA_1,
        metadata=f"{LOGIN}/.well-known/openid-configuration",
        subject="a-service",
        client=CALLER,
        roles={"Notes.ReadWrite.All"},
        wrong={
            "version 2": (ENTRA_2, "issuer"),
            "no application": ({"appid": None}, "appid"),
            "for another": ({"aud": "https://graph.microsoft.com"}, "another service"),
        },
    ),
    "auth0": Quirk(
        preset=lambda: auth0("example.eu.auth0.com"),
        claims=AUTH0,
        metadata="https://example.eu.auth0.com/.well-known/openid-configuration",
        subject="auth0|123456",
        client="my_client_id",
        scopes={"openid", "notes:read"},
        roles={"notes:read", "notes:delete"},
        wrong={
            "iss without its slash": ({"iss": "https://example.eu.auth0.com"}, "issuer"),
            "an ID token": ({"aud": "my_client_id", "scope": None, "nonce": "n"}, "ID token"),
            "an ID token without nonce": ({"aud": "my_client_id", "scope": None}, "another service"),
            "for userinfo alone": ({"aud": ["https://example.eu.auth0.com/userinfo"]}, "another service"),
        },
    ),
    "auth0, RFC 9068 profile": Quirk(
        preset=lambda: auth0("login.example.com", audience="https://api.example"),
        claims=AUTH0
        | {"iss": "https://login.example.com/", "aud": "https://api.example", "client_id": "app", "azp": "x"},
        typ="at+jwt",
        metadata="https://login.example.com/.well-known/openid-configuration",
        subject="auth0|123456",
        client="app",
        scopes={"openid", "notes:read"},
        roles={"notes:read", "notes:delete"},
        wrong={"for the resource, not the API": ({"aud": RESOURCE}, "another service")},
    ),
    "okta": Quirk(
        preset=lambda: okta("example.okta.com", audience="api://default"),
        claims=OKTA,
        typ=None,
        metadata="https://example.okta.com/oauth2/default/.well-known/oauth-authorization-server",
        subject="ada@example.com",
        client="0oa1client",
        scopes={"openid", "notes.read"},
        roles={"staff"},
        wrong={
            "an ID token": ({"aud": "0oa1client", "scp": None, "cid": None, "nonce": "n"}, "ID token"),
            "an ID token by what it lacks": ({"scp": None, "cid": None}, "none of"),
            "no client": ({"cid": None}, "cid"),
            "of the organization's server": ({"iss": "https://example.okta.com"}, "issuer"),
            "for another server": ({"aud": "api://other"}, "another service"),
        },
    ),
    "keycloak": Quirk(
        preset=lambda: keycloak("https://sso.example", "main", roles_of="notes"),
        claims=KEYCLOAK,
        metadata="https://sso.example/realms/main/.well-known/openid-configuration",
        subject="f:1:ada",
        client="cli",
        scopes={"email", "notes:read"},
        roles={"offline_access", "editor", "owner"},
        wrong={
            "an ID token": ({"typ": "ID"}, "typ"),
            "a refresh token": ({"typ": "Refresh"}, "typ"),
            "an offline token": ({"typ": "Offline"}, "typ"),
            "a logout token": ({"typ": "Logout"}, "typ"),
            "without an audience mapper": ({"aud": "account"}, "another service"),
            "without any audience": ({"aud": None}, "for whom"),
            "of another realm": ({"iss": "https://sso.example/realms/master"}, "issuer"),
            "roles of a wrong kind": (
                {"realm_access": {"roles": "x y"}, "resource_access": {"notes": {"roles": 1}}},
                "neither",
            ),
        },
    ),
    "keycloak before 17": Quirk(
        preset=lambda: keycloak("https://sso.example/auth/", "main", audience="notes"),
        claims=KEYCLOAK | {"iss": "https://sso.example/auth/realms/main", "aud": "notes"},
        metadata="https://sso.example/auth/realms/main/.well-known/openid-configuration",
        subject="f:1:ada",
        client="cli",
        scopes={"email", "notes:read"},
        roles={"offline_access", "editor"},
    ),
    "cognito, by its clients": Quirk(
        preset=lambda: cognito("us-west-2", "us-west-2_example", clients=["xxxxxxxxxxxxexample"]),
        claims=COGNITO,
        typ=None,
        keys="https://cognito-idp.us-west-2.amazonaws.com/us-west-2_example/.well-known/jwks.json",
        subject="aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee",
        client="xxxxxxxxxxxxexample",
        scopes={"aws.cognito.signin.user.admin", "notes/read"},
        roles={"testgroup"},
        wrong={
            "an ID token": (
                {"token_use": "id", "aud": "xxxxxxxxxxxxexample", "client_id": None, "scope": None},
                "none of",
            ),
            "an ID token with a client": ({"token_use": "id"}, "token_use"),
            "no token_use": ({"token_use": None}, "token_use"),
            "of another client": ({"client_id": "another"}, "another service"),
            "no client": ({"client_id": None}, "for whom"),
            "of our client, for another resource": ({"aud": OTHER}, "another service"),
            "of our client, for no one": ({"aud": []}, "another service"),
            "of another pool": ({"iss": "https://cognito-idp.us-west-2.amazonaws.com/us-west-2_other"}, "issuer"),
        },
    ),
    "cognito, bound to the resource": Quirk(
        preset=lambda: cognito("us-west-2", "us-west-2_example"),
        claims=COGNITO | {"aud": RESOURCE},
        typ=None,
        keys="https://cognito-idp.us-west-2.amazonaws.com/us-west-2_example/.well-known/jwks.json",
        subject="aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee",
        client="xxxxxxxxxxxxexample",
        scopes={"aws.cognito.signin.user.admin", "notes/read"},
        roles={"testgroup"},
        wrong={"not bound": ({"aud": None}, "for whom"), "for another": ({"aud": OTHER}, "another service")},
    ),
    "workos": Quirk(
        preset=lambda: workos("example.authkit.app"),
        claims=WORKOS,
        typ=None,
        keys="https://example.authkit.app/oauth2/jwks",
        subject="user_01JQ0E27VT3MH79RY0FVA4QBP9",
        roles={"member", "notes:read"},
        wrong={
            "of a client that asked for no resource": ({"aud": "client_123456789"}, "another service"),
            "an ID token": ({"aud": "client_1", "nonce": "n", "jti": None, "sid": None}, "ID token"),
            "an ID token for a client of our URL": ({"jti": None, "sid": None}, "none of"),
            "of a machine, which has no audience": ({"aud": None, "sid": None}, "for whom"),
        },
    ),
}


def published(quirk: Quirk) -> FakeIssuer:
    key = key_of("RS256")
    fake = FakeIssuer(key)
    row = quirk.preset()
    fake.pages = {quirk.keys: reply({"keys": [key.public_jwk()]})}
    if quirk.metadata:
        fake.pages[quirk.metadata] = reply({"issuer": row.issuer, "jwks_uri": quirk.keys})
    return fake


def made(quirk: Quirk, **changes: Any) -> str:
    claims = {name: value for name, value in (quirk.claims | changes).items() if value is not None}
    return sign_jws(claims, key_of("RS256"), typ=quirk.typ)


@pytest.mark.parametrize("name", QUIRKS)
async def test_a_token_as_it_is_documented(name: str) -> None:
    quirk = QUIRKS[name]
    fake = published(quirk)
    verifier = Bearer(quirk.preset(), resource=RESOURCE, fetcher=fake, now=Clock())
    who = await verifier.verify(made(quirk), PLAIN)
    assert (who.subject, who.client_id, who.issuer) == (quirk.subject, quirk.client, quirk.claims["iss"])
    assert (who.scopes, who.roles) == (quirk.scopes, quirk.roles)
    assert dict(who.claims) == quirk.claims
    assert [one.url for one in fake.asked] == [one for one in (quirk.metadata, quirk.keys) if one]


@pytest.mark.parametrize(
    ("name", "changes", "words"),
    [
        pytest.param(name, *row, id=f"{name}: {what}")
        for name, quirk in QUIRKS.items()
        for what, row in {
            **quirk.wrong,
            "of no one": ({"sub": None, "azp": None, "appid": None, "client_id": None, "cid": None}, "The token"),
            "expired": ({"exp": N - 60}, "expired"),
            "to come": ({"nbf": N + 60}, "not valid yet"),
            "bound to a key": ({"cnf": {"jkt": "x" * 43}}, "no DPoP"),
        }.items()
    ],
)
async def test_what_must_not_pass_for_it(name: str, changes: dict[str, Any], words: str) -> None:
    quirk = QUIRKS[name]
    verifier = Bearer(quirk.preset(), resource=RESOURCE, fetcher=published(quirk), now=Clock())
    with pytest.raises(TokenRefused, match=words):
        await verifier.verify(made(quirk, **changes), PLAIN)


@pytest.mark.parametrize("name", QUIRKS)
@pytest.mark.parametrize(
    "typ", ["dpop+jwt", "oauth-id-jag+jwt", "logout+jwt", "id+jwt", "application/okta-internal-at+jwt"]
)
async def test_no_preset_takes_another_type(name: str, typ: str) -> None:
    quirk = QUIRKS[name]
    verifier = Bearer(quirk.preset(), resource=RESOURCE, fetcher=published(quirk), now=Clock())
    with pytest.raises(TokenRefused, match="by its type"):
        await verifier.verify(sign_jws(quirk.claims, key_of("RS256"), typ=typ), PLAIN)


@pytest.mark.parametrize("name", [name for name in QUIRKS if not name.startswith("keycloak")])
async def test_an_algorithm_that_the_issuer_does_not_use(name: str) -> None:
    quirk = QUIRKS[name]
    verifier = Bearer(quirk.preset(), resource=RESOURCE, fetcher=published(quirk), now=Clock())
    with pytest.raises(TokenRefused, match="algorithm"):
        await verifier.verify(sign_jws(quirk.claims, new_key("ES256"), typ=quirk.typ), PLAIN)


async def test_several_tenants_of_entra() -> None:
    other = "bbbbcccc-1111-dddd-2222-eeee3333ffff"
    quirk = QUIRKS["entra, version 2"]
    fake = published(quirk)
    base = f"https://login.microsoftonline.com/{other}/v2.0"
    fake.pages[f"{base}/.well-known/openid-configuration"] = reply({"issuer": base, "jwks_uri": quirk.keys})
    verifier = Bearer(
        [entra(each, client_id=APP) for each in (TENANT, other)], resource=RESOURCE, fetcher=fake, now=Clock()
    )
    for tenant in (TENANT, other):
        text = made(quirk, tid=tenant, iss=f"https://login.microsoftonline.com/{tenant}/v2.0")
        assert (await verifier.verify(text, PLAIN)).issuer.endswith(f"{tenant}/v2.0")  # type: ignore[union-attr]
    with pytest.raises(TokenRefused, match="tid"):
        await verifier.verify(made(quirk, tid=other), PLAIN)


async def test_metadata_of_another_tenant_are_not_used() -> None:
    quirk = QUIRKS["entra, version 2"]
    fake = published(quirk)
    template = "https://login.microsoftonline.com/{tenantid}/v2.0"  # what "common" answers
    fake.pages[quirk.metadata] = reply({"issuer": template, "jwks_uri": quirk.keys})
    verifier = Bearer(quirk.preset(), resource=RESOURCE, fetcher=fake, now=Clock())
    with pytest.raises(IssuerAway):
        await verifier.verify(made(quirk), PLAIN)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: entra("common", client_id=APP), "tenant is a GUID"),
        (lambda: entra("organizations", client_id=APP), "tenant is a GUID"),
        (lambda: entra("example.onmicrosoft.com", client_id=APP), "tenant is a GUID"),
        (lambda: entra(TENANT, client_id=""), "client_id is not empty"),
        (lambda: entra(TENANT, client_id=APP, host="https://x"), "without https"),
        (lambda: auth0("https://example.eu.auth0.com"), "without https"),
        (lambda: okta("example.okta.com/oauth2", audience="x"), "without https"),
        (lambda: okta("example.okta.com", audience=""), "audience is not empty"),
        (lambda: okta("example.okta.com", audience=[]), "audience is not empty"),
        (lambda: okta("example.okta.com", audience="x", server=""), "custom server"),
        (lambda: keycloak("https://sso.example", ""), "name the realm"),
        (lambda: cognito("us west", "x"), "a region and a pool"),
        (lambda: cognito("us-west-2", "a/b"), "a region and a pool"),
        (lambda: workos("https://example.authkit.app"), "without https"),
    ],
)
def test_what_cannot_be_right(make: Callable[[], Issuer], words: str) -> None:
    with pytest.raises(LocalError, match=words):
        make()
