"""The proxy over HTTP: an MCP server with a proxy beside it, before an issuer that knows this server alone."""

from __future__ import annotations

import asyncio
import json
import re
import urllib.error
import urllib.request
from html import unescape
from http.cookiejar import CookieJar
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from dragoman import serve
from dragoman.auth import Bearer
from dragoman.auth.proxy import Proxy
from dragoman.auth.testing import LocalIssuer
from dragoman.channel import Identity
from dragoman.mcp import Client, Server
from tests.ports import free_port

from ..engine.asking import CHALLENGE, VERIFIER

CALLBACK = "http://localhost:1/callback"


class Stay(urllib.request.HTTPRedirectHandler):
    """Follows redirects up to the client's, where nothing listens."""

    def redirect_request(self, req: Any, fp: Any, code: Any, msg: Any, headers: Any, newurl: str) -> Any:
        return None if newurl.startswith(CALLBACK) else super().redirect_request(req, fp, code, msg, headers, newurl)


class Browser:
    """One browser, without scripts."""

    def __init__(self) -> None:
        self._open = urllib.request.build_opener(Stay, urllib.request.HTTPCookieProcessor(CookieJar())).open

    def ask(self, url: str, form: dict[str, str] | None = None, **headers: str) -> tuple[int, dict[str, str], bytes]:
        """One request with its redirects."""
        data = None if form is None else urlencode(form).encode()
        try:
            reply = self._open(urllib.request.Request(url, data, headers), timeout=30)
        except urllib.error.HTTPError as error:
            reply = error
        with reply:
            return reply.status, {name.lower(): value for name, value in reply.headers.items()}, reply.read()


def log_in(server: str) -> str:
    """From a 401 to a token, by what the server says alone."""
    browser = Browser()
    status, headers, _ = browser.ask(server, {}, **{"Content-Type": "application/json"})
    assert status == 401
    found = re.search(r'resource_metadata="([^"]+)"', headers["www-authenticate"])
    assert found is not None
    resource = json.loads(browser.ask(found[1])[2])
    issuer = resource["authorization_servers"][0]
    metadata = json.loads(browser.ask(issuer + "/.well-known/oauth-authorization-server")[2])
    wanted = json.dumps({"redirect_uris": [CALLBACK], "token_endpoint_auth_method": "none", "client_name": "Notes"})
    request = urllib.request.Request(
        metadata["registration_endpoint"], wanted.encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=30) as reply:
        client = json.load(reply)["client_id"]
    asked = {
        "response_type": "code",
        "client_id": client,
        "redirect_uri": CALLBACK,
        "code_challenge": CHALLENGE,
        "code_challenge_method": "S256",
        "scope": "notes:read",
        "resource": resource["resource"],
    }
    page = browser.ask(metadata["authorization_endpoint"] + "?" + urlencode(asked))[2].decode()
    pending = re.search(r'name="pending" value="([^"]*)"', page)
    assert pending is not None
    status, headers, _ = browser.ask(issuer + "/consent", {"pending": unescape(pending[1]), "answer": "allow"})
    assert status in (302, 303), status
    sent = parse_qs(urlsplit(headers["location"]).query)
    assert sent["iss"] == [issuer]
    form = {"grant_type": "authorization_code", "client_id": client, "code": sent["code"][0], "code_verifier": VERIFIER}
    token: str = json.loads(browser.ask(metadata["token_endpoint"], form)[2])["access_token"]
    return token


async def test_a_client_comes_from_a_401_to_a_tool_by_way_of_the_upstream() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    with LocalIssuer() as upstream:
        upstream.client("px", "canary-7f3a-px", redirect_uris=(url + "/callback",))
        proxy = Proxy(
            url, client_id="px", client_secret="canary-7f3a-px", scopes=["notes:read"], key=b"k" * 32, store="memory:"
        )
        server = Server("notes", auth=Bearer(upstream.url, resource=url + "/mcp", proxy=proxy))

        @server.tool(scopes="notes:read")
        async def whose(who: Identity) -> str:
            """Who is calling, and of whom the upstream's token is."""
            return f"{who.subject} {upstream.claims(await proxy.upstream_token(who))['sub']}"

        async with serve({"/mcp": server, "/login": proxy}, urls=url):
            token = await asyncio.to_thread(log_in, url + "/mcp")
            async with Client(url + "/mcp", auth=token) as client:
                result = await client.call_tool("whose")
        assert getattr(result.content[0], "text", "") == "alice alice"
