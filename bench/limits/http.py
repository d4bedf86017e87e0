"""The limit of HTTP: a bare `asyncio.Protocol`, httptools as the parser, msgspec for the work. Arguments: `PORT`, then
perhaps `uvloop`."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import cast

import httptools

from bench.limits.loops import run
from bench.limits.rpc import answer


class Front(asyncio.Protocol):
    """One connection."""

    def __init__(self, answer: Callable[[bytes], bytes]) -> None:
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


async def listen(port: int, answer: Callable[[bytes], bytes]) -> None:
    """Until killed."""
    await serve(port, lambda: Front(answer))


async def serve(port: int, front: Callable[[], Front]) -> None:
    """The same with connections of another kind."""
    server = await asyncio.get_running_loop().create_server(front, "127.0.0.1", port, backlog=1024)
    await server.serve_forever()


if __name__ == "__main__":
    run(listen(int(sys.argv[1]), answer), uvloop=sys.argv[2:] == ["uvloop"])
