"""A login at an issuer in a private network is renewed, and ended, by programs that were not told of its hosts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest
from msgspec import structs

from dragoman.auth import Fetcher, Login, MemoryStore
from dragoman.auth.client.authorizer import Authorizer
from dragoman.auth.client.entries import end, entry_of
from dragoman.auth.client.login import TokenRequest, login
from dragoman.auth.client.tokens import Grant
from dragoman.auth.client.world import World
from dragoman.auth.errors import AuthError
from dragoman.auth.metadata import ServerMetadata

from .scripted import ScriptedWorld
from .test_authorizer import URL, granted
from .test_login import asked, terms

EVERYTHING = ("127.0.0.1", "localhost", "as.example", "other.example")


@asynccontextmanager
async def endpoint(told: list[bytes]) -> AsyncIterator[int]:
    """An issuer on loopback, which is to a server elsewhere what a private network is."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        told.append(head.partition(b" HTTP")[0])
        body = msgspec.json.encode({"access_token": "new", "token_type": "Bearer", "expires_in": 3600})
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n")
        writer.write(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def stored(port: int, private: tuple[str, ...]) -> MemoryStore:
    """A store with a login of an earlier program, whose token is over."""
    store, at = MemoryStore(), f"http://127.0.0.1:{port}"
    grant = structs.replace(
        granted("old", expires_at=500.0, renew_at=470.0),
        server=ServerMetadata(issuer=at, token_endpoint=f"{at}/token", revocation_endpoint=f"{at}/revoke"),
        private=private,
    )

    async def obtain(_: World, asked: TokenRequest) -> Grant:
        return grant

    await Authorizer(URL, obtain, World(URL, Fetcher(), store, None), store).log_in(None)
    return store


def later(store: MemoryStore) -> Authorizer:
    """Another program, which was told of no host."""
    return Login(store=store, interactive=False).authorizing(URL)


async def test_a_renewal_reaches_the_hosts_of_the_login() -> None:
    told: list[bytes] = []
    async with endpoint(told) as port:
        store = await stored(port, ("127.0.0.1",))
        fields = await later(store).begin("x").fields("POST", URL)
        assert fields == {"authorization": "Bearer new"}
        entry = await entry_of(store, URL)
        assert entry is not None
        assert entry.grant.private == ("127.0.0.1",)  # also for the renewal after this one
        await end(store, entry, Fetcher())
    assert told == [b"POST /token", b"POST /revoke"]


@pytest.mark.parametrize("private", [(), ("localhost",), ("as.example",)])
async def test_and_no_others(private: tuple[str, ...]) -> None:
    told: list[bytes] = []
    async with endpoint(told) as port:
        store = await stored(port, private)
        with pytest.raises(AuthError, match="allow_private"):
            await later(store).begin("x").fields("POST", URL)
    assert told == []


def test_a_login_keeps_the_hosts_of_its_issuer() -> None:
    world = ScriptedWorld()
    grant = world.play(login(world, asked(), terms(private=EVERYTHING)))
    assert grant.private == ("as.example",)
    assert world.play(login(world, asked(), terms())).private == ()
    assert Login(allow_private=["AS.example"], store=MemoryStore()).terms.private == ("as.example",)
