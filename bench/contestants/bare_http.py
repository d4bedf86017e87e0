"""HTTP with nothing around it: a bare `asyncio.Protocol` with httptools as the parser, and a raw ASGI app on uvicorn."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeAlias, cast

import httptools

Event = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Event]]
Send: TypeAlias = Callable[[Event], Awaitable[None]]
Answer = Callable[[bytes], bytes]


class Front(asyncio.Protocol):
    """One connection."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.parser = httptools.HttpRequestParser(self)
        self.body: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self.parser.feed_data(data)

    def on_body(self, body: bytes) -> None:
        """httptools: a part of the body."""
        self.body.append(body)

    def on_message_complete(self) -> None:
        """httptools: the request is whole."""
        out = self.answer(b"".join(self.body))
        self.body.clear()
        self.transport.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(out), out)
        )


async def listen(port: str, front: Callable[[], Front]) -> None:
    """Until killed."""
    server = await asyncio.get_running_loop().create_server(front, "127.0.0.1", int(port), backlog=1024)
    await server.serve_forever()


def application(answer: Answer) -> Callable[[Event, Receive, Send], Awaitable[None]]:
    """A raw app: read the body, answer it."""

    async def app(scope: Event, receive: Receive, send: Send) -> None:
        body, more = b"", True
        while more:
            event = await receive()
            body += event.get("body", b"")
            more = event.get("more_body", False)
        out = answer(body)
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(out))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": out})

    return app


def uvicorn_run(app: Any, port: str) -> None:
    """uvicorn as every contestant of a row runs it."""
    import uvicorn

    uvicorn.run(
        app,
        host="127.0.0.1",
        port=int(port),
        loop="uvloop",
        http="httptools",
        log_level="warning",
        access_log=False,
        lifespan="off",
        timeout_keep_alive=120,
    )
