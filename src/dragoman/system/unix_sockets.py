"""Unix sockets on an event loop, where there are any."""

from __future__ import annotations

import asyncio
import errno
import os
import sys
from collections.abc import Awaitable, Callable
from typing import TypeVar

from .sockets import NO_UNIX

P = TypeVar("P", bound=asyncio.BaseProtocol)

if sys.platform == "win32":

    async def connect_unix(make: Callable[[], P], path: str) -> P:
        """Connect to a Unix socket. Raises OSError."""
        raise OSError(errno.EAFNOSUPPORT, NO_UNIX, path)

    async def open_unix(path: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to a Unix socket. Raises OSError."""
        raise OSError(errno.EAFNOSUPPORT, NO_UNIX, path)

else:

    async def connect_unix(make: Callable[[], P], path: str) -> P:
        """Connect to a Unix socket. Raises OSError."""
        _, made = await asyncio.get_running_loop().create_unix_connection(make, path)
        return made

    async def open_unix(path: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to a Unix socket. Raises OSError."""
        return await asyncio.open_unix_connection(path)


async def local_server(
    connected: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]], folder: str
) -> tuple[asyncio.Server, str]:
    """Serve programs of this machine, with a URL of ours: on a Unix socket in a folder, which says who may come; on
    loopback where there are none."""
    if sys.platform != "win32":
        path = os.path.join(folder, "s")
        return await asyncio.start_unix_server(connected, path), f"unix:{path}"
    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    return server, f"tcp://127.0.0.1:{server.sockets[0].getsockname()[1]}"
