"""The pages in a real browser: what it lets through, shows, and keeps out of a frame."""

from __future__ import annotations

import asyncio
import json
import threading
import urllib.request
from collections.abc import AsyncIterator, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest

from dragoman import serve
from dragoman.auth import Bearer
from dragoman.auth.proxy import Proxy
from dragoman.auth.server import Client, User
from dragoman.auth.testing import LocalIssuer
from dragoman.mcp import Server
from tests.ports import free_port
from tests.web.browsing import browser

from .asking import CHALLENGE, RESOURCE

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser")]


class Site:
    """A site of another origin: the client's, and an attacker's page. `asked`: the paths that were asked for;
    `redirects`: where some of them lead."""

    def __init__(self) -> None:
        asked: list[str] = []
        pages: dict[str, str] = {}
        redirects: dict[str, str] = {}

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                asked.append(self.path)
                if (place := redirects.get(self.path.partition("?")[0])) is not None:
                    self.send_response(302)
                    self.send_header("Location", place)
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    return
                body = pages.get(self.path.partition("?")[0], "<p>here</p>").encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/html")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *words: object) -> None:
                """Nothing is logged."""

        self.asked, self.pages, self.redirects = asked, pages, redirects
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://localhost:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def close(self) -> None:
        """End it."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def site() -> Iterator[Site]:
    made = Site()
    yield made
    made.close()


@pytest.fixture
def issuer() -> Iterator[LocalIssuer]:
    known = Client(id="app", name="Notes <b>app</b>", redirect_uris=("http://localhost/callback",))
    users = [User(name="alice", password="canary-7f3a-wonder")]
    with LocalIssuer(automatic=None, clients=[known], users=users) as running:
        yield running


@pytest.fixture
async def page() -> AsyncIterator[Any]:
    async with browser() as running:
        yield await running.new_page()


def request(issuer: LocalIssuer, site: Site) -> str:
    """The URL to which a client sends its user."""
    asked = {
        "response_type": "code",
        "client_id": "app",
        "redirect_uri": site.url + "/callback",
        "state": "st",
        "code_challenge": CHALLENGE,
        "code_challenge_method": "S256",
        "scope": "notes:read",
        "resource": RESOURCE,
    }
    return f"{issuer.url}/authorize?{urlencode(asked)}"


async def test_a_user_reads_logs_in_and_comes_back_to_the_client(page: Any, issuer: LocalIssuer, site: Site) -> None:
    await page.goto(request(issuer, site))
    shown = await page.inner_text("main")
    for words in ("Notes <b>app</b>", "notes:read", RESOURCE, site.url.removeprefix("http://"), "this computer"):
        assert words in shown
    await page.fill("input[name=user]", "alice")
    await page.fill("input[name=password]", "wrong")
    await page.click("button[value=allow]")
    assert "wrong" in await page.inner_text("[role=alert]")
    await page.fill("input[name=user]", "alice")
    await page.fill("input[name=password]", "canary-7f3a-wonder")
    await page.click("button[value=allow]")
    await page.wait_for_url(site.url + "/callback?*")
    found = parse_qs(urlsplit(page.url).query)
    assert (found["state"], found["iss"]) == (["st"], [issuer.url])
    assert found["code"]


@pytest.mark.parametrize("asks", [False, True], ids=["at once", "on its page"])
async def test_a_login_behind_a_proxy_comes_back_where_redirects_redirect_on(page: Any, site: Site, asks: bool) -> None:
    """Chromium holds all redirects after a form to its page's `form-action`: that of the proxy's page, and of the
    upstream's, which knows nothing of the proxy's clients."""
    url = f"http://localhost:{free_port()}"
    known = Client(id="app", redirect_uris=("http://localhost/callback",))
    last = Site()
    site.redirects["/callback"] = last.url.replace("localhost", "127.0.0.1") + "/landed"
    with LocalIssuer(automatic=None if asks else "alice", users=[User(name="alice")]) as upstream:
        upstream.client("px", "canary-7f3a-px", redirect_uris=(url + "/callback",))
        proxy = Proxy(
            url, client_id="px", client_secret="canary-7f3a-px", clients=[known], key=b"k" * 32, store="memory:"
        )
        server = Server("notes", auth=Bearer(upstream.url, resource=url + "/mcp", proxy=proxy))
        async with serve({"/mcp": server, "/login": proxy}, urls=url):
            asked = {
                "response_type": "code",
                "client_id": "app",
                "redirect_uri": site.url + "/callback",
                "code_challenge": CHALLENGE,
                "code_challenge_method": "S256",
            }
            await page.goto(f"{url}/authorize?{urlencode(asked)}")
            await page.click("button[value=allow]")
            if asks:
                await page.wait_for_url(upstream.url + "/authorize?*")
                await page.click("button[value=allow]")
            await page.wait_for_url("**/landed")
    last.close()
    [came] = [path for path in site.asked if path.startswith("/callback")]
    assert parse_qs(urlsplit(came).query)["code"]


async def test_a_user_who_denies_needs_no_password(page: Any, issuer: LocalIssuer, site: Site) -> None:
    await page.goto(request(issuer, site))
    await page.click("button[value=deny]")
    await page.wait_for_url(site.url + "/callback?*")
    assert parse_qs(urlsplit(page.url).query)["error"] == ["access_denied"]


async def test_the_page_does_not_show_in_a_frame(page: Any, issuer: LocalIssuer, site: Site) -> None:
    site.pages["/frame"] = f"<iframe src='{request(issuer, site)}'></iframe>"
    await page.goto(site.url + "/frame")
    frame = page.frames[1]
    assert await frame.query_selector("form") is None


async def test_a_form_of_another_site_gets_nothing(page: Any, issuer: LocalIssuer, site: Site) -> None:
    await page.goto(request(issuer, site))
    pending = await page.get_attribute("input[name=pending]", "value")
    fields = {"pending": pending, "user": "alice", "password": "canary-7f3a-wonder", "answer": "allow"}
    inputs = "".join(f"<input name={name} value='{value}'>" for name, value in fields.items())
    site.pages["/attack"] = f"<form method=post action='{issuer.url}/consent'>{inputs}<button>go</button></form>"
    await page.goto(site.url + "/attack")
    await page.click("button")
    await page.wait_for_url(issuer.url + "/consent")
    assert not [path for path in site.asked if path.startswith("/callback")]


def connecting(issuer: LocalIssuer) -> Any:
    """What a device is told."""
    asked = urllib.request.Request(issuer.url + "/device_authorization", urlencode({"client_id": "tv"}).encode())
    with urllib.request.urlopen(asked, timeout=30) as reply:
        return json.load(reply)


async def test_a_device_is_connected(page: Any, issuer: LocalIssuer) -> None:
    issuer.client("tv", grants=("urn:ietf:params:oauth:grant-type:device_code",))
    device = await asyncio.to_thread(connecting, issuer)
    await page.goto(device["verification_uri_complete"])
    await page.click("button[value=next]")
    assert device["user_code"] in await page.inner_text("main")
    await page.fill("input[name=user]", "alice")
    await page.fill("input[name=password]", "canary-7f3a-wonder")
    await page.click("button[value=allow]")
    assert "The device goes on" in await page.inner_text("main")
