"""Servers for the tests of HTTP: the native front, and an ASGI server, each with the same app."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, cast

import uvicorn

from dragoman.channel import Channel, Document, Exchange, Options, Servable
from dragoman.rpc.servable import ServableService
from dragoman.transports.http.app import App, Endpoint
from dragoman.transports.http.listener import HttpListener, listen
from tests.behind import behind
from tests.calculator import calculator
from tests.servable import Idle
from tests.transports.ends import until

from .cases import PATIENCE


def served() -> dict[str, Servable]:
    """A calculator at the URL and another one below it."""
    return {"": ServableService(behind(calculator())), "/math": ServableService(behind(calculator()))}


class Scripted(Idle):
    """A Served that does with its exchanges, channels and requests what the test says."""

    def __init__(
        self,
        exchange: Callable[[Exchange], None] | None = None,
        *,
        attach: Callable[[Channel], None] | None = None,
        endpoints: Mapping[str, Endpoint] | None = None,
        documents: Mapping[str, Document] | None = None,
    ) -> None:
        super().__init__()
        self.name = "scripted"
        self.exchanges: asyncio.Queue[Exchange] = asyncio.Queue()
        self._exchange, self._attach = exchange, attach
        self._documents = documents or {}
        if endpoints is not None:
            self.http_endpoints = lambda at: {at.rstrip("/") + path or "/": one for path, one in endpoints.items()}

    def exchange(self, x: Exchange) -> None:
        self.exchanges.put_nowait(x)
        if self._exchange is not None:
            self._exchange(x)

    async def next(self) -> Any:
        """The next exchange."""
        async with asyncio.timeout(PATIENCE):
            return await self.exchanges.get()

    def attach(self, channel: Channel) -> None:
        assert self._attach is not None
        self._attach(channel)

    def routes(self) -> Mapping[str, Document]:
        return self._documents

    async def drain(self, timeout: float) -> None:
        self.call_limit.draining = True


@asynccontextmanager
async def native(
    what: Mapping[str, Servable], options: Options, url: str = "http://127.0.0.1:0"
) -> AsyncIterator[HttpListener]:
    """The native front."""
    listener = await listen(url, what, options)
    try:
        yield listener
    finally:
        await listener.close()
        for one in what.values():
            await one.drain(0)
        async with asyncio.timeout(PATIENCE):
            await listener.closed()


@asynccontextmanager
async def asgi(app: Any) -> AsyncIterator[int]:
    """An ASGI server; gives its port."""
    listening = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(
        app,
        http="httptools",
        ws="websockets-sansio",
        lifespan="on",
        log_config=None,
        timeout_graceful_shutdown=1,
        proxy_headers=False,  # what a proxy says is for the application to believe
    )
    server = uvicorn.Server(config)
    running = asyncio.create_task(server.serve(sockets=[listening]))
    await until(lambda: server.started)
    try:
        yield listening.getsockname()[1]
    finally:
        server.should_exit = True
        await running
        listening.close()


@asynccontextmanager
async def face(kind: str, what: Mapping[str, Servable], options: Options) -> AsyncIterator[int]:
    """Either face by its name; gives the port."""
    if kind == "native":
        async with native(what, options) as listener:
            yield int(listener.url.rpartition(":")[2])
    else:
        async with asgi(App(what, options)) as port:
            yield port


@asynccontextmanager
async def wire(port: int, *, narrow: bool = False) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A raw connection. `narrow`: the system holds little of what is not read yet, so that a test need not send
    much."""
    sock = socket.socket()
    sock.setblocking(False)
    if narrow:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
    reader, writer = await asyncio.open_connection(sock=sock, limit=1 << 20)
    try:
        yield reader, writer
    finally:
        writer.close()
        try:
            await writer.wait_closed()
        except ConnectionError:
            pass


@asynccontextmanager
async def asked(
    what: Servable, options: Options | None = None, url: str = "http://127.0.0.1:0", *, narrow: bool = False
) -> AsyncIterator[tuple[HttpListener, asyncio.StreamReader, asyncio.StreamWriter]]:
    """The native front, and a raw connection to it."""
    async with (
        native({"": what}, options or Options(), url) as listener,
        wire(port_of(listener), narrow=narrow) as (reader, writer),
    ):
        yield listener, reader, writer


def port_of(listener: HttpListener) -> int:
    """Where it really listens."""
    return int(listener.url.split("/")[2].rpartition(":")[2])


def reading(writer: asyncio.StreamWriter, on: bool) -> None:
    """Stop or go on reading what the far end sends."""
    transport = cast(asyncio.Transport, writer.transport)
    (transport.resume_reading if on else transport.pause_reading)()
