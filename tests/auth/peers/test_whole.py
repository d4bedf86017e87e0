"""Our client and our server with npm's oidc-provider between them."""

from __future__ import annotations

import asyncio
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from http.cookiejar import CookieJar
from typing import Any

import pytest

from dragoman import serve
from dragoman.auth import Bearer, ClientCredentials, Login, MemoryStore
from dragoman.channel import Identity
from dragoman.mcp import Client, Server
from tests.npm import Node
from tests.ports import free_port

pytestmark = pytest.mark.slow


@pytest.fixture
def issuer(node: Node) -> str:
    """Its URL."""
    return f"http://127.0.0.1:{node.listen('oidc.cjs')}"


@pytest.fixture
async def server(issuer: str) -> AsyncIterator[str]:
    """An MCP server that takes its tokens; the URL."""
    url = f"http://127.0.0.1:{free_port()}/mcp"
    app = Server("notes", auth=Bearer(issuer, resource=url, dpop="accepted"))

    @app.tool(scopes="notes:read")
    async def read(who: Identity) -> str:
        return f"{who.subject} of {who.client_id}"

    @app.tool(scopes="notes:write")
    async def write(who: Identity) -> str:
        return f"written by {who.subject}, who may {' '.join(sorted(who.scopes))}"

    async with serve(app, urls=url):
        yield url


class Stay(urllib.request.HTTPRedirectHandler):
    """Follows redirects, except those to the client's listener."""

    def redirect_request(self, req: Any, fp: Any, code: Any, msg: Any, headers: Any, newurl: str) -> Any:
        return (
            None
            if "code=" in newurl or "error=" in newurl
            else super().redirect_request(req, fp, code, msg, headers, newurl)
        )


class User:
    """A user with a browser: gives the URL to which it is led in the end."""

    def __init__(self) -> None:
        self.windows: list[str] = []
        self._open = urllib.request.build_opener(Stay, urllib.request.HTTPCookieProcessor(CookieJar())).open

    def __call__(self, url: str) -> Any:
        self.windows.append(url)
        return asyncio.to_thread(self._follow, url)

    def _follow(self, url: str) -> str:
        with pytest.raises(urllib.error.HTTPError) as found:  # a redirect that is not followed
            self._open(url, timeout=30).close()
        with found.value as error:
            return str(error.headers["location"])


def text(result: Any) -> str:
    """What a tool said."""
    return str(result.content[0].text)


@pytest.mark.parametrize("dpop", [False, True])
async def test_a_user_logs_in_and_steps_up(server: str, dpop: bool) -> None:
    user = User()
    async with Client(server, auth=Login(on_url=user, store=MemoryStore(), dpop=dpop)) as client:
        assert text(await client.call_tool("read")).startswith("alice of ")
        assert "written by alice" in text(await client.call_tool("write"))
    assert 1 <= len(user.windows) <= 2


async def test_a_program_with_a_secret(server: str) -> None:
    job = ClientCredentials("job", secret="canary-7f3a-of-the-tests", scopes="notes:read")
    async with Client(server, auth=job) as client:
        assert text(await client.call_tool("read")) == "job of job"
