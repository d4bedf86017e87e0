"""The authorization endpoint and the consent page: what is shown, where an answer goes, and what is never answered."""

from __future__ import annotations

from urllib.parse import urlencode

import msgspec
import pytest

from dragoman.auth.engine.messages import EndpointRequest
from dragoman.auth.engine.redirects import fault, matches
from dragoman.auth.server import Client

from .asking import ISSUER, LOOPBACK, REDIRECT, RESOURCE, Asker, Page, answer, body, header, pending


async def test_the_page_shows_client_scopes_resource_and_host() -> None:
    page = await Asker().authorize()
    text = page.body.decode()
    assert page.status == 200
    for shown in ("The app", "notes:read, notes:write", RESOURCE, "<dd>app.example</dd>", "not for production"):
        assert shown in text
    assert "program on this computer" not in text


async def test_a_loopback_redirect_is_warned_of() -> None:
    text = (await Asker().authorize(redirect_uri="http://127.0.0.1:7777/callback")).body.decode()
    assert "<dd>127.0.0.1:7777</dd>" in text
    assert "The answer goes to a program on this computer" in text


async def test_what_a_client_says_is_escaped() -> None:
    evil = "<script>alert(1)</script>\"'&\u202egnp.exe"
    asker = Asker(clients=(Client(id="app", name=evil, redirect_uris=(REDIRECT,)),))
    page = await asker.authorize(scope="<b>x</b>", resource="https://mcp.example/'<i>")
    text = page.body.decode()
    assert "<script>" not in text
    assert "<b>" not in text
    assert "<i>" not in text
    assert "&lt;script&gt;" in text


async def test_no_page_may_be_framed_cached_or_scripted() -> None:
    asker = Asker()
    for page in (
        await asker.authorize(),
        await asker.authorize(client_id="unknown"),
        await asker.ask("GET", "/device"),
        await asker.consent(await asker.authorize(), user="alice", password="wrong"),
    ):
        policy = header(page, "Content-Security-Policy")
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "base-uri 'none'" in policy
        assert "script" not in policy
        assert header(page, "X-Frame-Options") == "DENY"
        assert header(page, "Cache-Control") == "no-store"
        assert header(page, "X-Content-Type-Options") == "nosniff"


async def test_the_form_may_lead_away_only_where_a_login_does() -> None:
    asker = Asker()
    assert "form-action" not in header(await asker.authorize(), "Content-Security-Policy")
    for page in (await asker.ask("GET", "/device"), await asker.authorize(client_id="unknown")):
        assert "form-action 'self';" in header(page, "Content-Security-Policy")


NEVER_REDIRECTED = {
    "no client": {"client_id": None},
    "an unknown client": {"client_id": "unknown"},
    "no redirect of several": {"redirect_uri": None},
    "another host": {"redirect_uri": "https://evil.example/callback"},
    "a path below": {"redirect_uri": REDIRECT + "/more"},
    "a slash more": {"redirect_uri": REDIRECT + "/"},
    "a query more": {"redirect_uri": REDIRECT + "?x=1"},
    "a fragment": {"redirect_uri": REDIRECT + "#x"},
    "another scheme": {"redirect_uri": "http://app.example/callback"},
    "the host as a user": {"redirect_uri": "https://app.example@evil.example/callback"},
    "the host as a prefix": {"redirect_uri": "https://app.example.evil.example/callback"},
    "a backslash": {"redirect_uri": "https://evil.example\\app.example/callback"},
    "upper case": {"redirect_uri": "https://APP.example/callback"},
    "dot segments": {"redirect_uri": "https://app.example/x/../callback"},
    "a script": {"redirect_uri": "javascript:alert(1)//https://app.example/callback"},
    "data": {"redirect_uri": "data:text/html,x"},
    "a port": {"redirect_uri": "https://app.example:8443/callback"},
    "another loopback path": {"redirect_uri": "http://127.0.0.1:7777/other"},
    "another loopback host": {"redirect_uri": "http://127.0.0.2:7777/callback"},
    "localhost for 127.0.0.1": {"redirect_uri": "http://localhost:7777/callback"},
    "a loopback of another host": {"redirect_uri": "http://127.0.0.1.evil.example/callback"},
    "loopback as a user": {"redirect_uri": "http://127.0.0.1:80@evil.example/callback"},
    "a line end": {"redirect_uri": REDIRECT + "\r\nSet-Cookie: x=1"},
}


@pytest.mark.parametrize("changes", NEVER_REDIRECTED.values(), ids=NEVER_REDIRECTED)
async def test_no_redirect_leads_where_the_client_is_not(changes: dict[str, str | None]) -> None:
    page = await Asker().authorize(**changes)
    assert page.status == 400
    assert header(page, "Location") == ""
    assert header(page, "Content-Type").startswith("text/html")


TOLD_TO_THE_CLIENT = {
    "no response type": ({"response_type": None}, "invalid_request"),
    "implicit": ({"response_type": "token"}, "unsupported_response_type"),
    "hybrid": ({"response_type": "code id_token"}, "unsupported_response_type"),
    "no challenge": ({"code_challenge": None}, "invalid_request"),
    "no method, which is plain": ({"code_challenge_method": None}, "invalid_request"),
    "plain": ({"code_challenge_method": "plain"}, "invalid_request"),
    "a short challenge": ({"code_challenge": "x" * 42}, "invalid_request"),
    "a long challenge": ({"code_challenge": "x" * 44}, "invalid_request"),
    "no base64url": ({"code_challenge": "+" * 43}, "invalid_request"),
    "fragment mode": ({"response_mode": "fragment"}, "invalid_request"),
    "form_post": ({"response_mode": "form_post"}, "invalid_request"),
    "a request object": ({"request": "x.y.z"}, "request_not_supported"),
    "a request URI": ({"request_uri": "https://evil.example"}, "request_uri_not_supported"),
    "scopes with two spaces": ({"scope": "a  b"}, "invalid_scope"),
    "a scope with a quote": ({"scope": 'a"b'}, "invalid_scope"),
    "a resource with a fragment": ({"resource": RESOURCE + "#x"}, "invalid_target"),
    "a relative resource": ({"resource": "/mcp"}, "invalid_target"),
    "a resource with spaces": ({"resource": "https://mcp example"}, "invalid_target"),
    "no thumbprint": ({"dpop_jkt": "x"}, "invalid_request"),
    "a login without a page": ({"prompt": "none"}, "login_required"),
    "a huge nonce": ({"nonce": "n" * 2_001}, "invalid_request"),
}


@pytest.mark.parametrize(("changes", "error"), TOLD_TO_THE_CLIENT.values(), ids=TOLD_TO_THE_CLIENT)
async def test_other_errors_go_to_the_client_with_state_and_issuer(changes: dict[str, str | None], error: str) -> None:
    sent = await Asker().authorize(**changes)
    assert header(sent, "Location").startswith(REDIRECT + "?")
    found = answer(sent)
    assert (found["error"], found["state"], found["iss"]) == (error, "st", ISSUER)
    assert "code" not in found


async def test_what_is_given_twice_is_a_page_and_no_redirect() -> None:
    asker = Asker()
    for name in ("client_id", "redirect_uri", "state", "scope"):
        query = urlencode({"client_id": "app", "redirect_uri": REDIRECT, "state": "s", "scope": "a"}) + f"&{name}=x"
        assert (await asker.ask("GET", "/authorize", query)).status == 400


async def test_limits_of_scopes_and_resources_hold() -> None:
    asker = Asker(scopes=["notes:read"], resources=[RESOURCE])
    assert answer(await asker.authorize())["error"] == "invalid_scope"
    assert answer(await asker.authorize(scope="notes:read", resource=RESOURCE + "2"))["error"] == "invalid_target"
    assert (await asker.authorize(scope="notes:read")).status == 200


async def test_denying_tells_the_client() -> None:
    asker = Asker()
    found = answer(await asker.consent(await asker.authorize(), answer="deny", user="", password=""))
    assert (found["error"], found["state"], found["iss"]) == ("access_denied", "st", ISSUER)


async def test_a_wrong_password_shows_the_page_again_and_five_make_a_pause() -> None:
    asker = Asker()
    page = await asker.authorize()
    for _ in range(5):
        page = await asker.consent(page, password="wrong")
        assert page.status == 200
        assert "The user or the password is wrong" in page.body.decode()
    page = await asker.consent(page)
    assert "Too many wrong passwords" in page.body.decode()
    asker.clock.advance(61)
    assert "code" in answer(await asker.consent(page))


# -- CSRF


async def test_a_form_without_the_cookie_is_refused() -> None:
    victim, attacker = Asker(), Asker()
    attacker.server, attacker.engine = victim.server, victim.engine
    page = await attacker.authorize()
    assert (await victim.consent(page)).status == 403
    assert "code" in answer(await attacker.consent(page))


async def test_a_cookie_of_another_page_is_refused() -> None:
    asker = Asker()
    one, two = await asker.authorize(), await asker.authorize()
    names = sorted(asker.cookies)
    asker.cookies = {names[0]: asker.cookies[names[1]], names[1]: asker.cookies[names[0]]}
    assert (await asker.consent(one)).status == 403
    assert (await asker.consent(two)).status == 403


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
    ids=str,
)
async def test_a_form_of_another_site_is_refused(headers: dict[str, str]) -> None:
    asker = Asker()
    assert (await asker.consent(await asker.authorize(), headers)).status == 403
    assert (await asker.post("/device", {"user_code": "BCDF-GHJK"}, headers)).status == 403


async def test_a_form_of_our_own_is_taken() -> None:
    asker = Asker()
    sent = await asker.consent(await asker.authorize(), {"origin": ISSUER, "sec-fetch-site": "same-origin"})
    assert "code" in answer(sent)


async def test_the_cookie_is_for_this_host_and_no_script() -> None:
    cookie = header(await Asker().authorize(), "Set-Cookie")
    assert cookie.startswith("__Host-dragoman-")
    for part in ("Path=/", "HttpOnly", "SameSite=Strict", "Secure", "Max-Age=600"):
        assert part in cookie.split("; ")
    assert "Domain" not in cookie


async def test_a_page_that_was_changed_or_is_old_is_refused() -> None:
    asker = Asker()
    page = await asker.authorize()
    text = pending(page)
    value, _, mark = text.partition(".")
    for wrong in ("", "x", value, f"{value}.", f"{value[:-2]}AA.{mark}", f"{value}.{mark[:-1]}", "é.é", "." + mark):
        assert (await asker.consent(page, pending=wrong)).status == 400
    asker.clock.advance(600)
    assert (await asker.consent(page)).status == 400


async def test_a_page_is_good_to_its_last_second_and_its_code_has_256_bits() -> None:
    asker = Asker()
    page = await asker.authorize(state="s" * 2_000, nonce="n" * 2_000)
    asker.clock.advance(599)
    assert len(answer(await asker.consent(page))["code"]) == 43


async def test_a_registration_lives_from_the_consent_on_and_not_beyond_its_end() -> None:
    said = {"redirect_uris": [REDIRECT], "token_endpoint_auth_method": "none"}
    made = EndpointRequest(
        method="POST", path="/register", body=msgspec.json.encode(said), headers={"content-type": "application/json"}
    )
    asker = Asker(registration=True)
    late, used = [body(await asker.engine.answer(made))["client_id"] for _ in range(2)]
    asker.clock.advance(86_390)  # seconds before both are forgotten
    page = await asker.authorize(client_id=late)
    code = await asker.code(client_id=used)
    asker.clock.advance(20)
    assert (await asker.redeem(code, client_id=used)).status == 200
    sent = await asker.consent(page)
    assert (sent.status, header(sent, "Location")) == (400, "")
    assert b"The client is gone" in sent.body


async def test_a_page_is_answered_once() -> None:
    asker = Asker()
    page = await asker.authorize()
    cookies = dict(asker.cookies)
    assert "code" in answer(await asker.consent(page))
    asker.cookies = cookies
    again = await asker.consent(page)
    assert (again.status, header(again, "Location")) == (400, "")


# -- redirect URIs


@pytest.mark.parametrize(
    ("asked", "registered", "same"),
    [
        (LOOPBACK, LOOPBACK, True),
        ("http://127.0.0.1:1/callback", LOOPBACK, True),
        ("http://127.0.0.1:65535/callback", "http://127.0.0.1:80/callback", True),
        ("http://[::1]:7777/callback", "http://[::1]/callback", True),
        ("http://localhost:7777/callback", "http://localhost/callback", True),
        ("http://127.0.0.1:7777/callback?a=1", "http://127.0.0.1/callback?a=1", True),
        ("http://127.0.0.1:7777/callback?a=2", "http://127.0.0.1/callback?a=1", False),
        ("http://127.0.0.1:99999/callback", LOOPBACK, False),
        ("http://[::1]:7777/callback", LOOPBACK, False),
        ("http://LOCALHOST:7777/callback", "http://localhost/callback", False),
        ("https://127.0.0.1:7777/callback", "https://127.0.0.1/callback", False),
        ("com.example.app:/callback", "com.example.app:/callback", True),
        ("com.example.app:/other", "com.example.app:/callback", False),
    ],
)
def test_loopback_takes_any_port_and_all_else_is_exact(asked: str, registered: str, same: bool) -> None:
    assert matches(asked, [registered]) is same


@pytest.mark.parametrize(
    ("uri", "good"),
    [
        ("https://app.example/cb", True),
        ("http://localhost/cb", True),
        ("com.example.app:/cb", True),
        ("http://app.example/cb", False),
        ("javascript:alert(1)", False),
        ("data:text/html,x", False),
        ("file:///etc/passwd", False),
        ("app:/cb", False),
        ("https://", False),
        ("https:///cb", False),
        ("/cb", False),
        ("", False),
        ("https://app.example/cb#", False),
        ("https://a@app.example/cb", False),
        ("https://app.example/c b", False),
        ("https://app.example:x/cb", False),
        ("https://app.example/" + "x" * 2_000, False),
        ("https://[::1/cb", False),
    ],
)
def test_which_redirect_uris_a_client_may_have(uri: str, good: bool) -> None:
    assert (fault(uri) == "") is good


async def test_the_only_redirect_uri_may_be_left_out() -> None:
    asker = Asker()
    page = await asker.authorize(client_id="other", redirect_uri=None)
    assert header(await asker.consent(page), "Location").startswith(REDIRECT)


async def test_a_client_without_the_grant_is_told_so() -> None:
    asker = Asker(clients=(Client(id="app", redirect_uris=(REDIRECT,), grants=("client_credentials",)),))
    assert answer(await asker.authorize())["error"] == "unauthorized_client"


async def test_automatic_consent_needs_no_page() -> None:
    asker = Asker(automatic="bob")
    code = answer(await asker.authorize())["code"]
    given = body(await asker.redeem(code))
    assert (await asker.introspect(given["access_token"]))["sub"] == "bob"


# -- errors of clients that anyone can make


MALFORMED: dict[str, dict[str, str | None]] = {
    "another response_type": {"response_type": "token"},
    "no challenge": {"code_challenge": None},
    "a challenge as it is": {"code_challenge_method": "plain"},
    "an unknown scope": {"scope": "notes:none"},
    "without a page": {"prompt": "none"},
    "a request object": {"request": "x"},
    "another response_mode": {"response_mode": "form_post"},
    "another resource": {"resource": "no url"},
}


@pytest.mark.parametrize("name", MALFORMED)
@pytest.mark.parametrize("kind", ["registered", "by its document"])
async def test_an_error_of_a_client_that_the_operator_does_not_know_is_a_page(name: str, kind: str) -> None:
    """RFC 9700, 4.11.2: or anyone could make links to this server that lead to a site of their own at once."""
    asker = Asker(registration=True, scopes=("notes:read", "notes:write"))
    evil = "https://evil.example/callback"
    if kind == "registered":
        sent = msgspec.json.encode({"redirect_uris": [evil], "token_endpoint_auth_method": "none"})
        made = await asker.ask("POST", "/register", body=sent, headers={"content-type": "application/json"})
        client = body(made)["client_id"]
    else:
        client = "https://evil.example/client"
        document = {"client_id": client, "redirect_uris": [evil], "client_name": "Free gifts"}
        asker.web.pages[client] = Page(body=msgspec.json.encode(document))
    stranger: dict[str, str | None] = {"client_id": client, "redirect_uri": evil}
    assert (await asker.authorize(**stranger)).status == 200, "what is right is asked"
    refused = await asker.authorize(**stranger | MALFORMED[name])
    assert (refused.status, header(refused, "Location")) == (400, "")
    assert b"evil.example" not in refused.body
    told = await asker.authorize(**MALFORMED[name])  # of one that the operator knows
    assert header(told, "Location").startswith(REDIRECT + "?error=")
