"""The limit of TCP and Unix sockets: an asyncio echo of lines. Arguments: `tcp PORT` or `unix PATH`, then perhaps
`gather`.

Each line is written when it was read, as line servers do. With `gather` what one wake-up brought goes back in one
write: no server can be cheaper, since it does nothing at all for a line but cut it off.
"""

from __future__ import annotations

import asyncio
import sys
from typing import cast


class Echo(asyncio.Protocol):
    """One connection."""

    rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        lines = (self.rest + data).split(b"\n") if self.rest else data.split(b"\n")
        self.rest = lines.pop()
        for line in lines:
            self.transport.write(line + b"\n")


class Gather(Echo):
    """The same, one write a wake-up."""

    def data_received(self, data: bytes) -> None:
        lines = (self.rest + data).split(b"\n") if self.rest else data.split(b"\n")
        self.rest = lines.pop()
        out = [line + b"\n" for line in lines]
        if out:
            self.transport.write(b"".join(out))


async def main(wire: str, where: str, protocol: type[Echo]) -> None:
    """Listen until killed."""
    loop = asyncio.get_running_loop()
    if wire == "unix":
        server: asyncio.Server = await loop.create_unix_server(protocol, where)
    else:
        server = await loop.create_server(protocol, "127.0.0.1", int(where), backlog=1024)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], Gather if sys.argv[3:] else Echo))
