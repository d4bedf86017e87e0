"""What the scripted brokers have in common: they listen, keep their connections, and can be waited for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Generic, Protocol, TypeVar

from tests.engines.wires import PATIENCE


class ScriptedLink(Protocol):
    """One connection."""

    ended: asyncio.Event

    def cut(self) -> None: ...


L = TypeVar("L", bound=ScriptedLink)


class ScriptedServer(Generic[L]):
    """A server. `links`: its connections; `changed`: set after everything that came, and every end."""

    patience = PATIENCE

    def __init__(self) -> None:
        self.links: list[L] = []
        self.changed = asyncio.Event()
        self.url = ""

    @property
    def last(self) -> L:
        """The connection that came last."""
        return self.links[-1]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a connection until its end."""
        raise NotImplementedError

    async def until(self, true: Callable[[], Any]) -> None:
        """Wait until it is so, looking after everything that came, and every end."""
        async with asyncio.timeout(self.patience):
            while not true():
                self.changed.clear()
                await self.changed.wait()


S = TypeVar("S", bound=ScriptedServer[Any])


@asynccontextmanager
async def listening(one: S, scheme: str) -> AsyncIterator[S]:
    """The server, which listens for the length of the block."""
    server = await asyncio.start_server(one.serve, "127.0.0.1", 0)
    one.url = f"{scheme}://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield one
    finally:
        server.close()
        for link in list(one.links):
            link.cut()
            await link.ended.wait()
