"""The echo of lines as most people write it: `asyncio.start_server`, `readline`, `write`. Arguments: `tcp PORT` or
`unix PATH`."""

from __future__ import annotations

import asyncio
import sys


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """One connection."""
    while line := await reader.readline():
        writer.write(line)
        await writer.drain()
    writer.close()


async def main(wire: str, where: str) -> None:
    """Listen until killed."""
    if wire == "unix":
        server = await asyncio.start_unix_server(echo, where)
    else:
        server = await asyncio.start_server(echo, "127.0.0.1", int(where))
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
