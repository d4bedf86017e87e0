"""`dragoman.auth.testing`: an authorization server that really listens."""

from __future__ import annotations

import inspect
import json
import logging
import urllib.error
import urllib.request
from http.client import HTTPConnection
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest

from dragoman import LocalError
from dragoman.auth import Bearer, TokenRefused
from dragoman.auth.jose import KeySet, verify_jws
from dragoman.auth.server import AuthorizationServer, Client
from dragoman.auth.testing import ClientFields, IssuerOptions, LocalIssuer
from dragoman.channel import Handshake

from .engine.asking import CHALLENGE, VERIFIER

FORM = {"Content-Type": "application/x-www-form-urlencoded"}


def ask(
    issuer: LocalIssuer, method: str, url: str, body: str = "", headers: dict[str, str] | None = None
) -> tuple[int, dict[str, str], bytes]:
    """One request; redirects are not followed."""
    place = urlsplit(url if "://" in url else issuer.url + url)
    connection = HTTPConnection(place.netloc, timeout=20)
    try:
        target = place.path + (f"?{place.query}" if place.query else "")
        connection.request(method, target, body or None, headers or {})
        answer = connection.getresponse()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
    finally:
        connection.close()


def metadata(issuer: LocalIssuer) -> Any:
    """What clients read first."""
    place = urlsplit(issuer.url)
    url = f"{place.scheme}://{place.netloc}/.well-known/oauth-authorization-server{place.path}"
    return json.loads(ask(issuer, "GET", url)[2])


@pytest.mark.parametrize("path", ["", "/tenant"])
def test_a_whole_login_over_http(path: str) -> None:
    with LocalIssuer(path=path) as issuer:
        found = metadata(issuer)
        assert found["issuer"] == issuer.url
        made = json.dumps({"redirect_uris": ["http://127.0.0.1/cb"], "token_endpoint_auth_method": "none"})
        status, _, body = ask(
            issuer, "POST", found["registration_endpoint"], made, {"Content-Type": "application/json"}
        )
        assert status == 201
        id = json.loads(body)["client_id"]
        asked = {
            "response_type": "code",
            "client_id": id,
            "redirect_uri": "http://127.0.0.1:5555/cb",
            "code_challenge": CHALLENGE,
            "code_challenge_method": "S256",
        }
        status, headers, _ = ask(issuer, "GET", found["authorization_endpoint"] + "?" + urlencode(asked))
        assert status == 303
        sent = parse_qs(urlsplit(headers["location"]).query)
        assert sent["iss"] == [issuer.url]
        form = {"grant_type": "authorization_code", "code": sent["code"][0], "client_id": id, "code_verifier": VERIFIER}
        status, headers, body = ask(issuer, "POST", found["token_endpoint"], urlencode(form), FORM)
        assert (status, headers["cache-control"]) == (200, "no-store")
        keys = KeySet.from_json(ask(issuer, "GET", found["jwks_uri"])[2])
        assert verify_jws(json.loads(body)["access_token"], keys).claims["sub"] == "alice"


def test_tokens_are_minted_and_expired() -> None:
    with LocalIssuer(resources=["https://mcp.example/mcp"]) as issuer:
        keys = KeySet.from_json(issuer.server.engine.keys.public)
        good = verify_jws(issuer.token("carol", scopes="a b", claims={"roles": ["admin"]}), keys).claims
        assert (good["sub"], good["aud"], good["scope"], good["roles"]) == (
            "carol",
            "https://mcp.example/mcp",
            "a b",
            ["admin"],
        )
        old = verify_jws(issuer.expired(), keys).claims
        assert old["exp"] < good["iat"]


def test_its_clock_is_the_tests() -> None:
    with LocalIssuer() as issuer:
        before = verify_jws(issuer.token(), KeySet.from_json(issuer.server.engine.keys.public)).claims["iat"]
        issuer.clock.advance(-86_400)
        after = verify_jws(issuer.token(), KeySet.from_json(issuer.server.engine.keys.public)).claims["iat"]
        assert before - after >= 86_000


def test_a_client_with_a_secret_and_keys_that_turn() -> None:
    with LocalIssuer() as issuer:
        issuer.client("job", "s3cret", grants=("client_credentials",))
        form = {"grant_type": "client_credentials", "client_id": "job", "client_secret": "s3cret"}
        assert ask(issuer, "POST", "/token", urlencode(form), FORM)[0] == 200
        issuer.rotate_keys()
        assert len(json.loads(ask(issuer, "GET", "/jwks.json")[2])["keys"]) == 2


def test_a_page_of_another_origin_may_read_metadata() -> None:
    with LocalIssuer() as issuer:
        _, headers, _ = ask(issuer, "GET", "/jwks.json", headers={"Origin": "http://localhost:6274"})
        assert headers["access-control-allow-origin"] == "http://localhost:6274"


def test_head_and_other_methods() -> None:
    with LocalIssuer() as issuer:
        status, _, body = ask(issuer, "HEAD", "/jwks.json")
        assert (status, body) == (200, b"")
        assert ask(issuer, "PUT", "/token")[0] == 405
        assert ask(issuer, "GET", "/nothing")[0] == 404


def test_it_says_that_it_does_not_run() -> None:
    issuer = LocalIssuer()
    with pytest.raises(LocalError, match="does not run"):
        issuer.revoke_all(issuer.server.engine.families.token("A" * 22, 0))
    with pytest.raises(LocalError, match="was not issued here"):
        issuer.revoke_all("x")
    with pytest.raises(LocalError, match="none of the users"):
        LocalIssuer(automatic="carol")


def test_two_run_beside_each_other() -> None:
    with LocalIssuer() as one, LocalIssuer() as two:
        assert one.url != two.url
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen(one.url + "/nothing", timeout=20)


async def test_a_verifier_takes_its_tokens_and_refuses_the_others() -> None:
    resource = "https://notes.example/mcp"
    with LocalIssuer(resources=[resource]) as issuer:
        bearer = Bearer(issuer.url, resource=resource)

        async def verified(token: str) -> Any:
            pairs = [(b"authorization", f"Bearer {token}".encode())]
            return await bearer.verify(token, Handshake(scheme="https", method="POST", url=resource, headers=pairs))

        assert (await verified(issuer.token("carol", scopes="a b"))).scopes == {"a", "b"}
        issuer.rotate_keys()
        assert (await verified(issuer.token("dave"))).subject == "dave"
        for wrong in (
            issuer.expired(),
            issuer.token(resource=resource + "2"),
            issuer.token(claims={"cnf": {"jkt": "x"}}),
            issuer.token(claims={"iss": "https://evil.example"}),
        ):
            with pytest.raises(TokenRefused):
                await verified(wrong)


def test_no_secret_of_a_login_stands_in_a_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with LocalIssuer() as issuer:
        issuer.client("app", "canary-7f3a-of-the-client", redirect_uris=("http://127.0.0.1/cb",))
        asked = {
            "response_type": "code",
            "client_id": "app",
            "redirect_uri": "http://127.0.0.1:5555/cb",
            "code_challenge": CHALLENGE,
            "code_challenge_method": "S256",
        }
        _, headers, _ = ask(issuer, "GET", "/authorize?" + urlencode(asked))
        code = parse_qs(urlsplit(headers["location"]).query)["code"][0]
        secret = {"client_id": "app", "client_secret": "canary-7f3a-of-the-client"}
        form = {"grant_type": "authorization_code", "code": code, "code_verifier": VERIFIER, **secret}
        given = json.loads(ask(issuer, "POST", "/token", urlencode(form), FORM)[2])
        wrong = form | {"code_verifier": "canary" * 10}
        assert ask(issuer, "POST", "/token", urlencode(wrong), FORM)[0] == 400
        for path in ("/introspect", "/revoke"):
            assert ask(issuer, "POST", path, urlencode({"token": given["refresh_token"], **secret}), FORM)[0] == 200
        told = caplog.text + repr(issuer.server.engine.settings) + repr(issuer.server.users)
        for hidden in ("canary", code, VERIFIER, given["access_token"], given["refresh_token"]):
            assert hidden not in told


def test_the_options_are_those_of_the_server() -> None:
    given = inspect.signature(AuthorizationServer).parameters
    assert [*IssuerOptions.__annotations__] == [name for name in given if name != "issuer"]


def test_the_fields_are_those_of_a_client() -> None:
    assert ("id", *ClientFields.__annotations__) == Client.__struct_fields__
