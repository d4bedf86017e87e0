"""Both ends of a WebSocket for tests: ours, the library's, and the raw handshake."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from websockets.asyncio.client import connect as library_connect
from websockets.asyncio.server import ServerConnection
from websockets.asyncio.server import serve as library_serve

from dragoman.channel import Options, Servable
from dragoman.transports.http.listener import HttpListener
from dragoman.transports.http.websocket import dial
from tests.transports.ends import Recorder

from .ends import native


@asynccontextmanager
async def serving(what: Servable, with_options: Options | None = None) -> AsyncIterator[tuple[HttpListener, str]]:
    """What is served on WebSocket alone, and its URL."""
    async with native({"": what, "/below": what}, with_options or Options(), "ws://127.0.0.1:0") as listener:
        yield listener, listener.url


@asynccontextmanager
async def dialled(url: str, with_options: Options | None = None) -> AsyncIterator[Recorder]:
    """Our calling end."""
    end = Recorder(await dial(url, with_options or Options()))
    try:
        yield end
    finally:
        await end.channel.close()


def library(url: str) -> library_connect:
    """The library's calling end."""
    return library_connect(url, compression=None, proxy=None)


@asynccontextmanager
async def library_server(handler: Callable[[ServerConnection], Awaitable[None]]) -> AsyncIterator[str]:
    """The library's serving end."""
    async with library_serve(handler, "127.0.0.1", 0, compression=None) as server:
        yield f"ws://127.0.0.1:{next(iter(server.sockets)).getsockname()[1]}"


async def echoing(far: ServerConnection) -> None:
    async for message in far:
        await far.send(message)


def handshake(
    *, path: str = "/", more: str = "", key: str = "dGhlIHNhbXBsZSBub25jZQ==", host: str = "localhost"
) -> bytes:
    """The request of RFC 6455, 1.3."""
    return (
        f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\n{more}"
        f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n"
    ).encode()
