"""Echoes, which do no JSON at all: of lines on TCP and Unix sockets, and of WebSocket's messages."""

from __future__ import annotations

import asyncio
from typing import cast


class Lines(asyncio.Protocol):
    """One connection. Each line is written when it was read, as line servers do."""

    rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        lines = (self.rest + data).split(b"\n") if self.rest else data.split(b"\n")
        self.rest = lines.pop()
        for line in lines:
            self.transport.write(line + b"\n")


class Gathered(Lines):
    """The same with one write a wake-up: no server can be cheaper, since it does nothing for a line but cut it off."""

    def data_received(self, data: bytes) -> None:
        lines = (self.rest + data).split(b"\n") if self.rest else data.split(b"\n")
        self.rest = lines.pop()
        out = [line + b"\n" for line in lines]
        if out:
            self.transport.write(b"".join(out))


async def lines(place: str, protocol: type[Lines] = Lines) -> None:
    """At a port or a path."""
    loop = asyncio.get_running_loop()
    server = await (
        loop.create_server(protocol, "127.0.0.1", int(place), backlog=1024)
        if place.isdigit()
        else loop.create_unix_server(protocol, place)
    )
    await server.serve_forever()


async def gather(place: str) -> None:
    await lines(place, Gathered)


async def streams(place: str) -> None:
    """As most people write it."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            writer.write(line)
            await writer.drain()
        writer.close()

    server = await (
        asyncio.start_server(echo, "127.0.0.1", int(place))
        if place.isdigit()
        else asyncio.start_unix_server(echo, place)
    )
    await server.serve_forever()


async def websocket(port: str) -> None:
    """websockets' own asyncio server, no compression."""
    from websockets.asyncio.server import ServerConnection, serve

    async def echo(wire: ServerConnection) -> None:
        async for message in wire:
            await wire.send(message)

    async with serve(echo, "127.0.0.1", int(port), compression=None) as server:
        await server.serve_forever()
