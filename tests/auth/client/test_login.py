"""The login of a person, as a flow: what is asked where, what is refused, and what is asked of the person."""

from __future__ import annotations

import base64
import hashlib
from typing import Any

import pytest
from msgspec import UNSET, structs

from dragoman.auth.challenge import Challenge
from dragoman.auth.client.discovery import DiscoveryOptions
from dragoman.auth.client.errors import AuthorizationFailed, LoginFailed, LoginNeeded
from dragoman.auth.client.grants import MOST_QUESTIONS
from dragoman.auth.client.login import Terms, TokenRequest, login
from dragoman.auth.client.registration import ClientOptions
from dragoman.auth.client.tokens import MOST_SCOPES, Grant, Registration
from dragoman.auth.errors import AuthError
from dragoman.auth.fetch import FetchFailed
from dragoman.auth.metadata import MetadataRefused, ServerMetadata

from .scripted import AS, ISSUER, OIDC, PRM, REDIRECT, RESOURCE, ROOT_PRM, ScriptedWorld, resource, server

OTHER = "https://other.example"


def terms(**given: Any) -> Terms:
    """What a user says who says nothing, but these."""
    wanted = DiscoveryOptions(issuer=given.pop("issuer", None), resource=given.pop("resource", UNSET))
    client = ClientOptions(
        **{name: given.pop(name) for name in ("client_id", "client_secret", "metadata_url") & given.keys()}
    )
    return Terms(wanted=wanted, client=client, **given)


def asked(challenge: Challenge | None = None, before: Grant | None = None) -> TokenRequest:
    return TokenRequest(url=RESOURCE, challenge=challenge, before=before, clock=lambda: 1_000.0)


def test_a_login() -> None:
    world = ScriptedWorld()
    grant = world.play(login(world, asked(), terms()))
    assert grant.tokens is not None
    assert grant.tokens.access_token == "token-1"
    assert world.gets == [PRM, AS]
    [registration] = world.posts("/register")
    assert registration.content["application_type"] == "native"
    assert registration.content["grant_types"] == ["authorization_code", "refresh_token"]
    assert registration.content["redirect_uris"] == [REDIRECT]
    [window] = world.windows
    [token] = world.posts("/token")
    assert window["resource"] == token.form["resource"] == RESOURCE
    assert window["code_challenge_method"] == "S256"
    digest = hashlib.sha256(token.form["code_verifier"].encode()).digest()
    assert base64.urlsafe_b64encode(digest).rstrip(b"=").decode() == window["code_challenge"]
    assert token.form["redirect_uri"] == window["redirect_uri"] == REDIRECT
    assert "scope" not in window
    assert "secret" not in repr(grant)


# -- discovery


def test_the_challenge_says_where_the_metadata_is() -> None:
    place = "https://mcp.example/custom.json"
    world = ScriptedWorld({place: resource(), AS: server(), PRM: resource(authorization_servers=[OTHER])})
    world.play(login(world, asked(Challenge("Bearer", {"resource_metadata": place})), terms()))
    assert world.gets[0] == place


def test_a_challenge_that_leads_nowhere_is_an_error_and_no_downgrade() -> None:
    world = ScriptedWorld({AS: server(), f"{'https://mcp.example'}/.well-known/oauth-authorization-server": server()})
    with pytest.raises(AuthorizationFailed, match="is not at"):
        world.play(login(world, asked(Challenge("Bearer", {"resource_metadata": "https://mcp.example/gone"})), terms()))


def test_a_resource_that_fails_is_no_older_one() -> None:
    """Its metadata may be there: what stands at the root without it is another authorization server, maybe."""
    root = "https://mcp.example/.well-known/oauth-authorization-server"
    world = ScriptedWorld({PRM: (503, {}), root: server(issuer="https://mcp.example"), AS: server()})
    with pytest.raises(FetchFailed, match="503"):
        world.play(login(world, asked(), terms()))
    assert world.gets == [PRM, ROOT_PRM]
    world.documents[ROOT_PRM] = resource()
    assert world.play(login(world, asked(), terms())).server.issuer == ISSUER


@pytest.mark.parametrize(
    "params", [{"resource_metadata": "https://[::1"}, {"scope": " ".join(str(n) for n in range(MOST_SCOPES + 1))}]
)
def test_a_challenge_that_makes_no_sense_is_the_servers_fault(params: dict[str, str]) -> None:
    world = ScriptedWorld()
    with pytest.raises(AuthError):
        world.play(login(world, asked(Challenge("Bearer", params)), terms()))


@pytest.mark.parametrize(
    ("documents", "gets"),
    [
        ({PRM: resource(), OIDC: server()}, [PRM, AS, OIDC]),
        ({ROOT_PRM: resource(resource="https://mcp.example"), AS: server()}, [PRM, ROOT_PRM, AS]),
    ],
)
def test_the_order_of_places(documents: dict[str, Any], gets: list[str]) -> None:
    world = ScriptedWorld(documents)
    world.play(login(world, asked(), terms()))
    assert world.gets == gets


@pytest.mark.parametrize(
    ("documents", "words"),
    [
        ({PRM: resource(resource="https://evil.example/mcp"), AS: server()}, "resource="),
        ({PRM: resource(), AS: server(issuer="https://attacker.example")}, "issuer="),
        ({PRM: resource(), AS: server(issuer=f"{ISSUER}/")}, "issuer="),
        ({PRM: resource(authorization_servers=[]), AS: server()}, "no authorization server"),
        ({PRM: resource()}, "no metadata"),
        ({PRM: resource(), AS: server(token_endpoint="javascript:alert(1)")}, "token_endpoint"),
        ({PRM: resource(), AS: server(authorization_endpoint="file:///etc/passwd")}, "authorization_endpoint"),
        ({PRM: resource(), AS: server(authorization_endpoint=None)}, "authorization_endpoint"),
        ({PRM: b"[]"}, "not the metadata"),
        ({PRM: resource(), AS: server(authorization_endpoint="http://as.example/authorize")}, "plain http"),
    ],
)
def test_what_is_not_trusted(documents: dict[str, Any], words: str) -> None:
    world = ScriptedWorld(documents)
    with pytest.raises((MetadataRefused, AuthorizationFailed, AuthError), match=words):
        world.play(login(world, asked(), terms()))
    assert not world.windows
    assert not world.posts("/token")


def test_a_pinned_issuer_and_resource() -> None:
    world = ScriptedWorld({PRM: resource(resource="api://app", authorization_servers=[OTHER]), AS: server()})
    world.play(login(world, asked(), terms(issuer=ISSUER, resource="api://mine")))
    assert world.windows[0]["resource"] == "api://mine"
    assert "pins" in world.said
    world = ScriptedWorld({PRM: resource(), AS: server()})
    world.play(login(world, asked(), terms(resource=None)))
    assert "resource" not in world.windows[0]
    assert "resource" not in world.posts("/token")[0].form


def test_a_server_of_2025_03_26_without_any_metadata() -> None:
    world = ScriptedWorld({})
    world.answers = {
        f"https://mcp.example/{path}": answers
        for path, answers in zip(("register", "token"), world.answers.values(), strict=True)
    }
    world.response = {"iss": None}
    world.play(login(world, asked(), terms()))
    assert "fixed paths" in world.said


# -- PKCE


@pytest.mark.parametrize("methods", [None, [], ["plain"]])
def test_no_login_without_s256(methods: list[str] | None) -> None:
    world = ScriptedWorld({PRM: resource(), AS: server(code_challenge_methods_supported=methods)})
    with pytest.raises(LoginFailed, match="PKCE"):
        world.play(login(world, asked(), terms()))
    assert not world.posts("/register")


def test_pkce_may_be_assumed_where_nothing_is_said_and_nowhere_else() -> None:
    world = ScriptedWorld({PRM: resource(), AS: server(code_challenge_methods_supported=None)})
    world.play(login(world, asked(), terms(assume_pkce=True)))
    assert world.windows[0]["code_challenge_method"] == "S256"
    world = ScriptedWorld({PRM: resource(), AS: server(code_challenge_methods_supported=["plain"])})
    with pytest.raises(LoginFailed, match="plain"):
        world.play(login(world, asked(), terms(assume_pkce=True)))


# -- the answer


@pytest.mark.parametrize(
    ("promised", "iss", "good"),
    [
        (True, ISSUER, True),
        (True, None, False),
        (None, ISSUER, True),
        (False, None, True),
        (None, None, True),
        (True, "https://evil.example", False),
        (None, "https://evil.example", False),
        (True, f"{ISSUER}/", False),
        (True, "https://AS.example", False),
        (True, f"{ISSUER}:443", False),
        (True, "", False),
    ],
)
@pytest.mark.parametrize("error", [None, "access_denied"])
def test_the_issuer_of_the_answer(promised: bool | None, iss: str | None, good: bool, error: str | None) -> None:
    world = ScriptedWorld({PRM: resource(), AS: server(authorization_response_iss_parameter_supported=promised)})
    world.response = {"iss": iss, "error": error, "error_description": error and "words of the server"}
    if good and error is None:
        world.play(login(world, asked(), terms()))
        return
    with pytest.raises(LoginFailed) as failed:
        world.play(login(world, asked(), terms()))
    # "on mismatch the client MUST NOT act on or display `error`, `error_description`, or `error_uri`"
    assert ("words of the server" in str(failed.value)) is good
    assert not world.posts("/token")


@pytest.mark.parametrize("response", [{"state": "other"}, {"state": None}, {"code": None}, {"code": ""}])
def test_an_answer_that_is_not_used(response: dict[str, str | None]) -> None:
    world = ScriptedWorld()
    world.response = response
    with pytest.raises(LoginFailed):
        world.play(login(world, asked(), terms()))
    assert not world.posts("/token")


def test_what_a_server_says_moves_no_cursor() -> None:
    world = ScriptedWorld()
    world.response = {"error": "bad\x1b[2J", "error_description": "\x1b]0;evil\x07 line\nnext"}
    with pytest.raises(LoginFailed) as failed:
        world.play(login(world, asked(), terms()))
    assert str(failed.value).isprintable()


def test_the_query_of_an_authorization_endpoint_is_kept() -> None:
    world = ScriptedWorld({PRM: resource(), AS: server(authorization_endpoint=f"{ISSUER}/authorize?tenant=a%20b")})
    world.play(login(world, asked(), terms()))
    assert world.windows[0]["tenant"] == "a b"
    world = ScriptedWorld({PRM: resource(), AS: server(authorization_endpoint=f"{ISSUER}/authorize?state=fixed")})
    with pytest.raises(LoginFailed, match="already has state"):
        world.play(login(world, asked(), terms()))


# -- scopes


def grant_before(**fields: Any) -> Grant:
    """What there was before."""
    made = Grant(
        url=RESOURCE,
        server=ServerMetadata(issuer=ISSUER),
        resource=RESOURCE,
        client=Registration(client_id="given-1"),
        requested=("read",),
    )
    return structs.replace(made, **fields)


@pytest.mark.parametrize(
    ("challenged", "listed", "supported", "before", "given", "scope"),
    [
        (None, None, None, None, None, None),
        ("a b", ["c"], None, None, None, "a b"),
        (None, ["c", "d"], None, None, None, "c d"),
        ("write", ["c"], None, grant_before(), None, "read write"),
        (None, ["c"], None, grant_before(), None, "read"),
        ("a", ["c"], ["a", "offline_access"], None, None, "a offline_access"),
        (None, None, ["offline_access"], None, None, None),
        ("a", ["c"], None, None, ("x", "y"), "x y"),
        ("a", ["c"], None, grant_before(), ("x",), "read x a"),
        ("write", None, None, grant_before(server=ServerMetadata(issuer=OTHER)), None, "write"),
    ],
)
def test_scopes(
    challenged: str | None,
    listed: list[str] | None,
    supported: list[str] | None,
    before: Grant | None,
    given: tuple[str, ...] | None,
    scope: str | None,
) -> None:
    world = ScriptedWorld({PRM: resource(scopes_supported=listed), AS: server(scopes_supported=supported)})
    challenge = None if challenged is None else Challenge("Bearer", {"scope": challenged})
    grant = world.play(login(world, asked(challenge, before), terms(scopes=given)))
    assert world.windows[0].get("scope") == scope
    assert " ".join(grant.requested) == (scope or "")


# -- who the client is


def test_a_given_client_is_not_registered() -> None:
    world = ScriptedWorld()
    world.play(login(world, asked(), terms(client_id="mine", client_secret="canary-7f3a-robot")))
    assert not world.posts("/register")
    assert world.posts("/token")[0].headers["authorization"].startswith("Basic ")
    assert "client_id" not in world.posts("/token")[0].form


def test_a_document_where_the_server_takes_one() -> None:
    url = "https://app.example/client.json"
    world = ScriptedWorld({PRM: resource(), AS: server(client_id_metadata_document_supported=True)})
    world.play(login(world, asked(), terms(metadata_url=url)))
    assert world.windows[0]["client_id"] == url
    world = ScriptedWorld()
    world.play(login(world, asked(), terms(metadata_url=url)))
    assert world.windows[0]["client_id"] == "client-1"


def test_without_registration_a_person_is_told_what_to_do() -> None:
    world = ScriptedWorld({PRM: resource(), AS: server(registration_endpoint=None)})
    with pytest.raises(LoginNeeded, match="client_id="):
        world.play(login(world, asked(), terms()))


def test_a_refused_redirect_uri_is_tried_by_the_other_name() -> None:
    world = ScriptedWorld()
    world.answers[f"{ISSUER}/register"] = [(400, {"error": "invalid_redirect_uri"}), (201, {"client_id": "c2"})]
    world.play(login(world, asked(), terms()))
    assert world.posts("/register")[1].content["redirect_uris"] == ["http://localhost:4711/callback"]
    assert world.windows[0]["redirect_uri"] == "http://localhost:4711/callback"


def test_a_refused_registration_says_why() -> None:
    world = ScriptedWorld()
    world.answers[f"{ISSUER}/register"] = [(403, {"error": "access_denied", "error_description": "ask your admin"})]
    with pytest.raises(AuthorizationFailed, match="ask your admin"):
        world.play(login(world, asked(), terms()))


def test_a_secret_may_expire_later_than_clocks_can_tell() -> None:
    world = ScriptedWorld()
    body = b'{"client_id": "c", "client_secret": "s", "client_secret_expires_at": 1%b}' % (b"0" * 400)
    world.answers[f"{ISSUER}/register"] = [(201, body)]
    assert not world.play(login(world, asked(), terms())).client.expired(2e9)


def stored(**fields: Any) -> Registration:
    return Registration(client_id="old", redirect_uri=REDIRECT, how="registered", **fields)


def test_a_registration_is_used_again_with_its_port() -> None:
    world = ScriptedWorld()
    world.known[ISSUER] = stored()
    world.play(login(world, asked(), terms()))
    assert world.windows[0]["client_id"] == "old"
    world.redirect = "http://127.0.0.1:4712/callback"  # the old port is taken
    world.play(login(world, asked(), terms()))
    assert world.windows[1]["client_id"] == "client-1"


def test_an_expired_secret_leads_to_a_new_registration() -> None:
    world = ScriptedWorld()
    world.known[ISSUER] = stored(client_secret="s", secret_expires_at=999.0)
    world.play(login(world, asked(), terms()))
    assert world.windows[0]["client_id"] == "client-1"
    assert "expired" in world.said


@pytest.mark.parametrize("where", ["token", "answer"])
def test_a_forgotten_registration_is_made_anew_once(where: str) -> None:
    world = ScriptedWorld()
    world.known[ISSUER] = stored()
    if where == "token":
        good = world.answers[f"{ISSUER}/token"][0]
        world.answers[f"{ISSUER}/token"] = [(401, {"error": "invalid_client"}), good]
        world.play(login(world, asked(), terms()))
        assert [window["client_id"] for window in world.windows] == ["old", "client-1"]
        assert "no longer knows" in world.said
    else:
        world.response = {"error": "unauthorized_client", "code": None}
        with pytest.raises(LoginFailed):
            world.play(login(world, asked(), terms()))
        assert [window["client_id"] for window in world.windows] == ["old", "client-1"]


def test_credentials_of_one_issuer_are_not_used_at_another() -> None:
    world = ScriptedWorld()
    before = grant_before(server=ServerMetadata(issuer=OTHER))
    with pytest.raises(AuthorizationFailed, match=OTHER):
        world.play(login(world, asked(before=before), terms(client_id="given-1")))
    world.play(login(world, asked(before=before), terms(client_id="given-1", issuer=ISSUER)))
    world.play(login(world, asked(before=before), terms()))
    assert [window["client_id"] for window in world.windows] == ["given-1", "client-1"]


@pytest.mark.parametrize(
    ("supported", "registered", "method"),
    [
        (None, None, "client_secret_basic"),
        (["client_secret_post"], None, "client_secret_post"),
        (["client_secret_post", "client_secret_basic"], None, "client_secret_basic"),
        (["client_secret_post", "client_secret_basic"], "client_secret_post", "client_secret_post"),
        (["none"], "client_secret_basic", "none"),
    ],
)
def test_how_the_client_authenticates(supported: list[str] | None, registered: str | None, method: str) -> None:
    world = ScriptedWorld({PRM: resource(), AS: server(token_endpoint_auth_methods_supported=supported)})
    answer = {"client_id": "c:1", "client_secret": "s%1", "token_endpoint_auth_method": registered}
    world.answers[f"{ISSUER}/register"] = [(201, answer)]
    world.play(login(world, asked(), terms()))
    [token] = world.posts("/token")
    if method == "client_secret_basic":
        assert base64.b64decode(token.headers["authorization"][6:]) == b"c%3A1:s%251"
    else:
        assert token.form["client_id"] == "c:1"
        assert token.form.get("client_secret") == ("s%1" if method == "client_secret_post" else None)


# -- by another device


def test_a_device() -> None:
    world = ScriptedWorld({PRM: resource(), AS: server(device_authorization_endpoint=f"{ISSUER}/device")})
    code = {"device_code": "d", "user_code": "ABCD", "verification_uri": f"{ISSUER}/enter", "interval": 2}
    world.answers[f"{ISSUER}/device"] = [code]
    good = world.answers[f"{ISSUER}/token"][0]
    pending, slow = (400, {"error": "authorization_pending"}), (400, {"error": "slow_down"})
    world.answers[f"{ISSUER}/token"] = [pending, slow, good]
    grant = world.play(login(world, asked(), terms(device=True)))
    assert grant.tokens is not None
    assert world.waited == 2 + 2 + 7
    assert not world.windows
    world.answers[f"{ISSUER}/device"] = [code | {"interval": 10**400, "expires_in": 600}]
    with pytest.raises(LoginFailed, match="in time"):  # and not after as many seconds
        world.play(login(world, asked(), terms(device=True)))
    assert world.waited == 2 + 2 + 7
    world.answers[f"{ISSUER}/device"] = [code | {"interval": 1}]
    world.answers[f"{ISSUER}/token"], before = [pending], len(world.posts("/token"))
    with pytest.raises(LoginFailed, match="in time"):  # by a clock that stands still
        world.play(login(world, asked(), terms(device=True)))
    assert len(world.posts("/token")) == before + MOST_QUESTIONS
    world.answers[f"{ISSUER}/device"] = [code]
    world.answers[f"{ISSUER}/token"] = [(400, {"error": "access_denied"})]
    with pytest.raises(LoginFailed, match="access_denied"):
        world.play(login(world, asked(), terms(device=True)))
    world.answers[f"{ISSUER}/device"] = [code | {"verification_uri": "javascript:alert(1)"}]
    with pytest.raises(MetadataRefused, match="verification_uri"):
        world.play(login(world, asked(), terms(device=True)))
