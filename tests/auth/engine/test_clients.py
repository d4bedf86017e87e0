"""Clients that describe themselves: by the document at their URL, and by registration."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dragoman import LocalError
from dragoman.auth.errors import AuthError
from dragoman.auth.server import Client

from .asking import REDIRECT, Asker, Page, answer, basic, body, header

ID = "https://app.example/client.json"
JSON = {"content-type": "application/json"}


def document(id: str = ID, **changes: Any) -> Page:
    """A client's document that is right but for these members; None leaves one out."""
    said = {"client_id": id, "client_name": "Notes", "redirect_uris": [REDIRECT]} | changes
    return Page(body=msgspec.json.encode({name: value for name, value in said.items() if value is not None}))


async def by_document(page: Page, id: str = ID, **changes: str) -> tuple[int, Asker]:
    """The status of the consent page for a client with this document."""
    asker = Asker()
    asker.web.pages[id] = page
    return (await asker.authorize(client_id=id, **changes)).status, asker


async def test_a_client_is_known_by_its_document() -> None:
    status, asker = await by_document(document())
    assert status == 200
    code = answer(await asker.consent(await asker.authorize(client_id=ID)))["code"]
    assert (await asker.redeem(code, client_id=ID)).status == 200
    assert asker.web.asked == [ID]  # once, then it is cached


WRONG_DOCUMENTS = {
    "no JSON": Page(body=b"<html>"),
    "no object": Page(body=b"[]"),
    "deep": Page(body=b"[" * 16_000),
    "no text": Page(body=b"\xff"),
    "empty": Page(body=b""),
    "not found": Page(404, body=document().body),
    "a redirect": Page(302, {"location": "https://evil.example"}, document().body),
    "another success": Page(203, body=document().body),
    "another id": document(client_id=ID + "/"),
    "no id": document(client_id=None),
    "no name": document(client_name=None),
    "an empty name": document(client_name=" "),
    "no redirect URIs": document(redirect_uris=None),
    "empty redirect URIs": document(redirect_uris=[]),
    "redirect URIs that are text": document(redirect_uris=REDIRECT),
    "a redirect URI that is a number": document(redirect_uris=[1]),
    "plain http": document(redirect_uris=["http://app.example/callback"]),
    "a script": document(redirect_uris=[REDIRECT, "javascript:alert(1)"]),
    "too many redirect URIs": document(redirect_uris=[f"{REDIRECT}/{each}" for each in range(21)]),
    "a secret": document(client_secret="x"),
    "a method with a secret": document(token_endpoint_auth_method="client_secret_basic"),
    "a method of HMAC": document(token_endpoint_auth_method="client_secret_jwt"),
    "a key without a key": document(token_endpoint_auth_method="private_key_jwt"),
    "keys over plain http": document(token_endpoint_auth_method="private_key_jwt", jwks_uri="http://app.example/k"),
    "grants of programs alone": document(grant_types=["client_credentials"]),
    "implicit": document(response_types=["token"]),
}


@pytest.mark.parametrize("page", WRONG_DOCUMENTS.values(), ids=WRONG_DOCUMENTS)
async def test_a_wrong_document_makes_a_page_and_is_asked_for_again(page: Page) -> None:
    status, asker = await by_document(page)
    assert status == 400
    asker.web.pages[ID] = document()
    assert (await asker.authorize(client_id=ID)).status == 200


@pytest.mark.parametrize(
    "id",
    [
        "http://app.example/client.json",
        "http://127.0.0.1/client.json",
        "https://app.example",
        "https://app.example/",
        "https://app.example/a/../client.json",
        "https://app.example/a/%2E%2e/client.json",
        "https://app.example/./client.json",
        "https://app.example/client.json#x",
        "https://user@app.example/client.json",
        "https://app.example:x/client.json",
        "https://app.example/cli ent.json",
        "https://app.example\\evil.example/client.json",
        "https:///client.json",
        "https://app.example/" + "x" * 2_000,
    ],
)
async def test_a_wrong_url_of_a_document_is_not_asked_for(id: str) -> None:
    status, asker = await by_document(document(id), id)
    assert (status, asker.web.asked) == (400, [])


async def test_on_loopback_a_document_may_be_there_too() -> None:
    asker = Asker("http://127.0.0.1:9000")
    id = "http://127.0.0.1:7000/client.json"
    asker.web.pages[id] = document(id)
    assert (await asker.authorize(client_id=id)).status == 200


async def test_a_document_that_cannot_be_fetched_says_why() -> None:
    async def refused(url: str, limit: int, trusted: bool) -> Page:
        raise AuthError("its address is private")

    page = await Asker(fetch=refused).authorize(client_id=ID)
    assert page.status == 400
    assert "its address is private" in page.body.decode()
    assert (await Asker(documents=False).authorize(client_id=ID)).status == 400


@pytest.mark.parametrize(
    ("control", "asked"), [("no-store", 2), ("max-age=0", 2), ("max-age=10", 2), ("max-age=1000", 1), ("", 1)]
)
async def test_a_document_is_kept_as_long_as_it_says(control: str, asked: int) -> None:
    page = document()
    page.headers = {"cache-control": control} if control else {}
    _, asker = await by_document(page)
    asker.clock.advance(20)
    assert (await asker.authorize(client_id=ID)).status == 200
    assert len(asker.web.asked) == asked


async def test_a_name_of_control_characters_is_cleaned() -> None:
    _, asker = await by_document(document(client_name="No\u202etes\x00\n" + "x" * 300))
    text = (await asker.authorize(client_id=ID)).body.decode()
    assert "\u202e" not in text
    assert "Notes" + "x" * 95 + " asks" in text


# -- registration


async def register(asker: Asker, headers: dict[str, str] = JSON, **changes: Any) -> Any:
    """A registration that is right but for these members."""
    said = {"redirect_uris": [REDIRECT], "token_endpoint_auth_method": "none"} | changes
    made = {name: value for name, value in said.items() if value is not None}
    return await asker.ask("POST", "/register", body=msgspec.json.encode(made), headers=headers)


async def test_a_client_registers_and_logs_in() -> None:
    asker = Asker(registration=True)
    made = await register(asker, client_name="Notes", grant_types=["authorization_code", "refresh_token"])
    assert made.status == 201
    assert header(made, "Cache-Control") == "no-store"
    id = body(made)["client_id"]
    assert body(made)["client_name"] == "Notes"
    assert "client_name" not in body(await register(asker))
    assert "client_secret" not in body(made)
    given = await asker.login(client_id=id)
    assert (await asker.refresh(given["refresh_token"], client_id=id)).status == 200


async def test_a_client_with_a_secret_gets_one_that_is_not_kept() -> None:
    asker = Asker(registration=True)
    made = body(await register(asker, token_endpoint_auth_method=None))
    assert made["token_endpoint_auth_method"] == "client_secret_basic"
    assert made["client_secret_expires_at"] == 0
    assert made["client_secret"] not in str(vars(asker.engine.records.engine))
    code = await asker.code(client_id=made["client_id"])
    form = {"grant_type": "authorization_code", "code": code, "code_verifier": "v" * 43}
    assert (await asker.token(basic(made["client_id"], made["client_secret"]), **form)).status == 200


async def test_a_client_cannot_give_itself_grants_without_a_user() -> None:
    asker = Asker(registration=True)
    wanted = ["authorization_code", "client_credentials", "urn:ietf:params:oauth:grant-type:token-exchange"]
    made = body(await register(asker, token_endpoint_auth_method="client_secret_basic", grant_types=wanted))
    assert made["grant_types"] == ["authorization_code"]
    sent = await asker.token(basic(made["client_id"], made["client_secret"]), grant_type="client_credentials")
    assert body(sent)["error"] == "unauthorized_client"


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"redirect_uris": None}, "invalid_redirect_uri"),
        ({"redirect_uris": ["http://app.example"]}, "invalid_redirect_uri"),
        ({"redirect_uris": [REDIRECT + "#x"]}, "invalid_redirect_uri"),
        ({"redirect_uris": {}}, "invalid_client_metadata"),
        ({"token_endpoint_auth_method": "tls_client_auth"}, "invalid_client_metadata"),
        ({"token_endpoint_auth_method": ["none"]}, "invalid_client_metadata"),
        ({"grant_types": ["password"]}, "invalid_client_metadata"),
        ({"grant_types": "authorization_code"}, "invalid_client_metadata"),
        ({"response_types": ["token"]}, "invalid_client_metadata"),
        ({"scope": ["a"]}, "invalid_client_metadata"),
        ({"jwks_uri": 7}, "invalid_client_metadata"),
    ],
    ids=str,
)
async def test_a_wrong_registration_is_refused(changes: dict[str, Any], error: str) -> None:
    made = await register(Asker(registration=True), **changes)
    assert (made.status, body(made)["error"]) == (400, error)


async def test_registration_is_off_unless_chosen() -> None:
    asker = Asker()
    assert (await register(asker)).status == 403
    metadata = body(await asker.ask("GET", "/.well-known/oauth-authorization-server"))
    assert "registration_endpoint" not in metadata
    metadata = body(await Asker(registration=True).ask("GET", "/.well-known/oauth-authorization-server"))
    assert metadata["registration_endpoint"].endswith("/register")


async def test_a_registration_that_is_not_used_is_forgotten() -> None:
    asker = Asker(registration=True)
    used, unused = [body(await register(asker))["client_id"] for _ in range(2)]
    assert await asker.login(client_id=used)
    asker.clock.advance(86_401)
    assert (await asker.authorize(client_id=unused)).status == 400
    asker.clock.advance(80 * 86_400)
    assert await asker.login(client_id=used)
    asker.clock.advance(80 * 86_400)
    assert (await asker.authorize(client_id=used)).status == 200
    asker.clock.advance(11 * 86_400)
    assert (await asker.authorize(client_id=used)).status == 400


async def test_a_registration_has_a_size() -> None:
    asker, start = (
        Asker(registration=True),
        b'{"redirect_uris":["https://app.example/callback"],"token_endpoint_auth_method":"none"',
    )
    for size, status in ((16_384, 201), (16_385, 413)):
        raw = start + b" " * (size - len(start) - 1) + b"}"
        assert (await asker.ask("POST", "/register", body=raw, headers=JSON)).status == status


def test_a_configured_client_that_cannot_work_is_refused_at_the_start() -> None:
    for wrong in (
        Client(id="a", redirect_uris=("http://app.example",)),
        Client(id="a", method="client_secret_basic"),
        Client(id="a", method="private_key_jwt"),
    ):
        with pytest.raises(LocalError, match="client 'a'"):
            Asker(clients=(wrong,))


@pytest.mark.parametrize(
    "id",
    [
        "https://127.0.0.1/client.json",
        "https://[::1]/client.json",
        "https://169.254.169.254/latest/meta-data",
        "https://[::ffff:127.0.0.1]/client.json",
        "https://[64:ff9b::7f00:1]/client.json",
        "https://10.0.0.1/client.json",
        "https://0x7f000001/client.json",
        "https://0177.0.0.1/client.json",
    ],
)
async def test_no_stranger_sends_the_server_into_a_private_network(id: str) -> None:
    page = await Asker(fetch=None).authorize(client_id=id)
    assert page.status == 400
    assert "cannot be fetched" in page.body.decode()
    assert "app.example" not in page.body.decode()
