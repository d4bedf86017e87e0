"""The limit of WebSocket: an echo with websockets' own asyncio server, no compression. `PORT` is its argument."""

from __future__ import annotations

import asyncio
import sys

from websockets.asyncio.server import ServerConnection, serve


async def echo(wire: ServerConnection) -> None:
    """One connection."""
    async for message in wire:
        await wire.send(message)


async def main(port: int) -> None:
    """Listen until killed."""
    async with serve(echo, "127.0.0.1", port, compression=None) as server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
