"""Every endpoint with requests that are malformed: each has an answer, and none is a fault of the server."""

from __future__ import annotations

import itertools
import logging

import pytest

from dragoman import LocalError
from dragoman.auth.engine.messages import FORM
from dragoman.auth.engine.records import Records
from dragoman.auth.server import AuthorizationServer
from dragoman.store.memory import InMemoryStore

from .asking import BASIC, ISSUER, Asker, body, header

POSTS = ("/token", "/revoke", "/introspect", "/device_authorization", "/register", "/consent", "/device")
GETS = ("/authorize", "/device", "/jwks.json", "/.well-known/oauth-authorization-server")
JSON = "application/json"

BODIES: dict[str, tuple[str, bytes]] = {
    "nothing": ("", b""),
    "an empty form": (FORM, b""),
    "another media type": ("text/plain", b"grant_type=refresh_token"),
    "JSON for a form": (JSON, b"{}"),
    "a form for JSON": (FORM, b"{}"),
    "an array": (JSON, b"[]"),
    "a text": (JSON, b'"x"'),
    "null": (JSON, b"null"),
    "half JSON": (JSON, b'{"redirect_uris":['),
    "deep JSON": (JSON, b"[" * 10_000),
    "no UTF-8": (JSON, b'{"client_name":"\xff"}'),
    "bytes in a form": (FORM, b"grant_type=\xff\xfe"),
    "escaped bytes in a form": (FORM, b"grant_type=%ff%fe"),
    "half an escape": (FORM, b"grant_type=%"),
    "a NUL": (FORM, b"grant_type=refresh_token&refresh_token=%00&client_id=app"),
    "twice the grant": (FORM, b"grant_type=a&grant_type=b"),
    "twice the client": (FORM, b"client_id=app&client_id=shop&token=x"),
    "many parameters": (FORM, b"&".join(b"p%d=x" % each for each in range(100))),
    "only separators": (FORM, b"&&&==&=&"),
    "no value": (FORM, b"grant_type&client_id"),
    "a grant that is none": (FORM, b"grant_type=password&username=a&password=b&client_id=app"),
    "implicit": (FORM, b"grant_type=implicit&client_id=app"),
    "a code that is none": (FORM, b"grant_type=authorization_code&code=x&client_id=app&code_verifier=" + b"v" * 43),
    "no verifier": (FORM, b"grant_type=authorization_code&code=x&client_id=app"),
    "a huge code": (FORM, b"grant_type=authorization_code&client_id=app&code_verifier=x&code=" + b"x" * 100_000),
    "a surrogate": (FORM, b"token=x&client_id=%ED%A0%80"),
    "a huge client": (FORM, b"token=x&grant_type=refresh_token&client_id=" + b"x" * 100_000),
    "a client that is a path": (FORM, b"token=x&grant_type=refresh_token&client_id=../../etc/passwd"),
    "a client that is a URL": (FORM, b"token=x&grant_type=refresh_token&client_id=https://[::1"),
    "a page that was made up": (FORM, b"pending=x.y&answer=allow&user=alice&password=canary-7f3a-wonder"),
    "a device that was made up": (FORM, b"user_code=%F0%9F%98%80&answer=allow"),
}
HEADERS: dict[str, dict[str, str]] = {
    "none": {},
    "Basic": BASIC,
    "DPoP that is none": BASIC | {"dpop": "x.y.z"},
    "DPoP twice": BASIC | {"dpop": "x, y"},
    "cookies that are none": {"cookie": ";;=;\x7f=é; dragoman-=x"},
}


@pytest.mark.parametrize(("kind", "sent"), BODIES.values(), ids=BODIES)
async def test_a_malformed_post_is_refused(kind: str, sent: bytes, caplog: pytest.LogCaptureFixture) -> None:
    asker = Asker(registration=True)
    for path, headers in itertools.product(POSTS, HEADERS.values()):
        made = await asker.ask("POST", path, body=sent, headers={"content-type": kind, **headers})
        told = (path, headers, made)
        if path in ("/consent", "/device"):
            assert header(made, "Content-Type").startswith("text/html"), told
            assert made.status in (200, 400, 403, 429), told
        elif path == "/revoke" and made.status == 200:
            assert sent.startswith(b"token="), told  # RFC 7009, 2.2: an invalid token is not an error
        elif path == "/introspect" and made.status == 200:
            assert body(made) == {"active": False}, told
        elif path == "/device_authorization":
            # a client that proves itself need not say anything else
            assert made.status in (400, 401) or "authorization" in headers, told
            assert made.status < 500, told
        else:
            assert made.status in (400, 401), told
            assert body(made)["error"], told
            assert header(made, "Cache-Control") == "no-store", told
        assert not header(made, "Location"), told
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


@pytest.mark.parametrize(
    "query",
    [
        "",
        "&",
        "%",
        "client_id=%ff",
        "client_id",
        "client_id=app&client_id=app",
        "x=" * 100,
        "user_code=" + "<" * 500,
        "client_id=app&redirect_uri=%00",
        "client_id=%F0%9F%98%80",
        "&".join(f"p{n}=x" for n in range(100)),
    ],
)
async def test_a_malformed_get_is_answered(query: str, caplog: pytest.LogCaptureFixture) -> None:
    asker = Asker()
    for path in GETS:
        made = await asker.ask("GET", path, query)
        assert made.status in (200, 400), (path, made)
        assert not header(made, "Location")
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


@pytest.mark.parametrize("path", sorted({*POSTS, *GETS}))
@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE", "PATCH", "TRACE", "X"])
async def test_other_methods_are_405_and_name_the_right_ones(path: str, method: str) -> None:
    allowed = {"GET": path in GETS, "POST": path in POSTS}.get(method, False)
    made = await Asker().ask(method, path)
    assert (made.status == 405) is not allowed
    assert bool(header(made, "Allow")) is not allowed


async def test_what_stands_in_the_url_of_a_token_request_is_refused() -> None:
    asker = Asker()
    sent = b"grant_type=client_credentials"
    made = await asker.ask("POST", "/token", "client_secret=x", sent, {"content-type": FORM, **BASIC})
    assert (made.status, body(made)["error"]) == (400, "invalid_request")


async def test_other_paths_are_404() -> None:
    for path in ("/", "/token/", "/Token", "/admin", "/.well-known/openid-configuration/x"):
        assert (await Asker().ask("GET", path)).status == 404


async def test_metadata_is_at_every_well_known_place() -> None:
    asker = Asker("https://as.example/tenant")
    places = (
        "/.well-known/oauth-authorization-server/tenant",
        "/.well-known/openid-configuration/tenant",
        "/tenant/.well-known/openid-configuration",
    )
    for place in places:
        found = body(await asker.ask("GET", place))
        assert found["issuer"] == "https://as.example/tenant"
        assert found["token_endpoint"] == "https://as.example/tenant/token"
        assert found["code_challenge_methods_supported"] == ["S256"]
        assert found["authorization_response_iss_parameter_supported"] is True
    assert (await asker.ask("GET", "/.well-known/oauth-authorization-server")).status == 404
    keys = body(await asker.ask("GET", "/tenant/jwks.json"))["keys"]
    assert [key["alg"] for key in keys] == ["ES256"]
    assert not {"d", "p", "q"} & {*keys[0]}


@pytest.mark.parametrize(
    "issuer",
    [
        "http://as.example",
        "http://10.0.0.1:9000",
        "http://127.0.0.1.evil.example",
        "https://as.example/",
        "as.example",
        "ftp://as.example",
        "https://as.example?x",
        "https://as.example#x",
        "https://user@as.example",
        "https://",
    ],
)
def test_an_issuer_that_is_none_or_plain_http_is_refused_at_the_start(issuer: str) -> None:
    with pytest.raises(LocalError, match="the issuer"):
        AuthorizationServer(issuer)


async def test_a_full_store_is_503_and_loses_nothing() -> None:
    asker = Asker()
    records = asker.engine.records
    token = (await asker.login())["refresh_token"]
    page = await asker.authorize()
    engine = records.engine
    assert isinstance(engine, InMemoryStore)
    engine._owners = len(engine)
    made = await asker.consent(page)
    assert (made.status, header(made, "Content-Type")) == (503, "text/html; charset=utf-8")
    made = await asker.post("/device_authorization", {"client_id": "other"})
    assert (made.status, body(made)["error"], header(made, "Retry-After")) == (503, "temporarily_unavailable", "5")
    assert (await asker.refresh(token)).status == 200


async def test_a_fault_of_our_own_is_500_and_says_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(*_: object) -> None:
        raise ZeroDivisionError("a secret")

    asker = Asker()
    monkeypatch.setattr(Records, "get", broken)
    made = await asker.token(grant_type="refresh_token", refresh_token="x", client_id="unknown")
    assert (made.status, body(made)["error"]) == (500, "server_error")
    assert b"a secret" not in made.body
    assert "failed" in caplog.text


async def test_keys_turn_and_tokens_of_the_last_one_stay_good() -> None:
    asker = Asker()
    token = (await asker.login())["access_token"]
    asker.engine.keys.rotate()
    assert (await asker.introspect(token))["active"] is True
    assert len(body(await asker.ask("GET", "/jwks.json"))["keys"]) == 2
    for _ in range(4):
        asker.engine.keys.rotate()
    assert (await asker.introspect(token))["active"] is False


def test_no_secret_stands_in_a_repr() -> None:
    asker = Asker()
    assert "canary-7f3a-wonder" not in repr(asker.server.users)
    assert ISSUER in repr(asker.engine.settings)
