"""A client of MCP at a server that asks for tokens: logins, more scopes, and what stays out of the log."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from dragoman import serve
from dragoman.auth import Bearer, ClientCredentials, Login, LoginNeeded, MemoryStore
from dragoman.auth.testing import LocalIssuer
from dragoman.channel import Identity
from dragoman.mcp import Client, Server
from dragoman.mcp.client import blocking
from dragoman.mcp.client.authorization import LONGEST, operation
from dragoman.mcp.client.http.refusals import HttpRefused
from tests.ports import free_port

from ...auth.client.test_whole import User
from ..scripted import initialized
from ..scripted_http import Seen, Talk, scripted

ERAS = ["2025-11-25", "2026-07-28"]


@pytest.fixture
def issuer() -> Iterator[LocalIssuer]:
    with LocalIssuer(scopes=["notes:read", "notes:write"]) as made:
        yield made


@asynccontextmanager
async def notes(issuer: LocalIssuer, **options: Any) -> AsyncIterator[str]:
    """A server of notes; its URL."""
    url = f"http://127.0.0.1:{free_port()}/mcp"
    server = Server("notes", auth=Bearer(issuer.url, resource=url, **options))

    @server.tool(scopes="notes:read")
    async def read(who: Identity) -> str:
        return who.subject

    @server.tool(scopes="notes:write")
    async def write(text: str) -> str:
        return text

    @server.tool(roles="admin")
    async def wipe() -> str:
        return "gone"

    async with serve(server, urls=url):
        yield url


@pytest.mark.parametrize("revision", ERAS)
async def test_scopes_are_asked_for_when_they_are_needed(issuer: LocalIssuer, revision: str) -> None:
    user = User()
    async with notes(issuer) as url:
        login = Login(on_url=user, store=MemoryStore(), scopes="notes:read")
        async with Client(url, auth=login, revision=revision) as client:
            assert await client.call_tool("read", result=str) == "alice"
            before = len(user.windows)
            assert await asyncio.gather(
                *(client.call_tool("write", {"text": str(n)}, result=str) for n in range(5))
            ) == [str(n) for n in range(5)]
            assert len(user.windows) == before + 1
            assert "notes%3Aread" in user.windows[-1]
            assert "notes%3Awrite" in user.windows[-1]
            assert await client.call_tool("read", result=str) == "alice"
            with pytest.raises(HttpRefused, match="403"):
                await client.call_tool("wipe")
            assert len(user.windows) == before + 1


async def test_a_program_whose_scopes_do_not_do(issuer: LocalIssuer) -> None:
    issuer.client("robot", "canary-7f3a-robot", grants=("client_credentials",), scopes=("notes:read",))
    async with notes(issuer) as url:
        robot = ClientCredentials("robot", secret="canary-7f3a-robot", scopes="notes:read")
        async with Client(url, auth=robot) as client:
            assert await client.call_tool("read", result=str) == "robot"
            with pytest.raises(ConnectionError):
                await client.call_tool("write", {"text": "x"})
            assert await client.call_tool("read", result=str) == "robot"


@pytest.mark.parametrize("nonces", [False, True])
async def test_tokens_bound_to_a_key(issuer: LocalIssuer, nonces: bool) -> None:
    user = User()
    async with notes(issuer, dpop="required", dpop_nonces=nonces) as url:
        store = MemoryStore()
        for _ in range(2):  # the key is kept with its tokens
            async with Client(url, auth=Login(on_url=user, store=store, dpop=True)) as client:
                assert await client.call_tool("read", result=str) == "alice"
    assert len(user.windows) == 1


async def test_a_token_that_has_ended_opens_no_window_at_the_end(issuer: LocalIssuer) -> None:
    """The session is deleted with the token that there is, or not at all."""

    async def script(seen: Seen, talk: Talk) -> None:
        if seen.target.startswith("/.well-known"):
            talk.say({"resource": server.url, "authorization_servers": [issuer.url]})
        elif "authorization" not in seen.headers or seen.method == "DELETE":
            talk.say(status="401 Unauthorized", headers={"WWW-Authenticate": "Bearer"})
        elif seen.method == "GET":
            talk.say(status="405 Method Not Allowed")
        elif "id" in seen.message:
            talk.result(seen, initialized().value, headers={"Mcp-Session-Id": "s"})
        else:
            talk.say(status="202 Accepted")

    user = User()
    async with scripted(script) as server:
        login = Login(on_url=user, store=MemoryStore())
        async with Client(server.url, auth=login, revision="2025-11-25"):
            pass
        assert [one.method for one in server.seen if "authorization" in one.headers][-1] == "DELETE"
    assert len(user.windows) == 1


async def test_nobody_is_there(issuer: LocalIssuer) -> None:
    async with notes(issuer) as url:
        with pytest.raises(LoginNeeded, match="dragoman login"):
            async with Client(url, auth=Login(interactive=False, store=MemoryStore())):
                pass


async def test_a_blocking_client(issuer: LocalIssuer) -> None:
    user = User()

    def call(url: str) -> str:
        with blocking.connect(url, auth=Login(on_url=user, store=MemoryStore())) as client:
            return client.call_tool("read", result=str)

    async with notes(issuer) as url:
        assert await asyncio.to_thread(call, url) == "alice"


async def test_no_secret_is_in_the_log(issuer: LocalIssuer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    store, user = MemoryStore(), User()
    async with notes(issuer) as url:
        login = Login(on_url=user, store=store)
        async with Client(url, auth=login) as client:
            await client.call_tool("read")
            shown = repr((login, login.terms, client, store))
    secrets = [one.value for key in await store.keys() if (one := await store.read(key)) is not None]
    tokens = [text for value in secrets for text in value.decode().split('"') if len(text) > 30 and "/" not in text]
    assert any(text.count(".") == 2 for text in tokens)
    for text in tokens:
        assert text not in caplog.text
        assert text not in shown


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b'{"method":"tools/call","params":{"name":"x"}}', "tools/call x"),
        (b'{"method":"resources/read","params":{"uri":"file:///x"}}', "resources/read file:///x"),
        (b'{"method":"tools/list"}', "tools/list"),
        (b'[{"method":"a"}]', "batch"),
        (b"{", "batch"),
    ],
)
def test_what_an_operation_is_called(body: bytes, text: str) -> None:
    assert operation(body) == text
    assert len(operation(b'{"method":"x","params":{"name":"' + b"n" * 1000 + b'"}}')) == LONGEST
