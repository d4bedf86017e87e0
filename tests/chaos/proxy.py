"""A wire that can go dead: a TCP proxy before a broker that stops carrying bytes while its sockets stay open."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.engines.brokers import Engine

SIZE = 64 * 1024


class Proxy:
    """In `freeze` nothing comes through, either way, and neither end is told. `thaw` lets everything go on, also what
    was sent meanwhile; `cut` ends what goes through it."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._flows = asyncio.Event()
        self._flows.set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def begin(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)

    @property
    def url(self) -> str:
        """The broker's URL, by way of this."""
        assert self._server is not None
        here = self._server.sockets[0].getsockname()[1]
        return self._engine.url.replace(f":{self._engine.address[1]}", f":{here}")

    def freeze(self) -> None:
        self._flows.clear()

    def thaw(self) -> None:
        self._flows.set()

    def cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def end(self) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, thither = await asyncio.open_connection(*self._engine.address)
        except OSError:
            writer.transport.abort()
            return
        for source, sink in ((reader, thither), (there, writer)):
            self._writers.add(sink)
            task = asyncio.create_task(self._carry(source, sink))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _carry(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            while some := await source.read(SIZE):
                await self._flows.wait()
                sink.write(some)
                await sink.drain()
            await self._flows.wait()  # a dead wire does not carry an end either
        except OSError:
            pass
        finally:
            self._writers.discard(sink)
            sink.transport.abort()


@asynccontextmanager
async def proxy(engine: Engine) -> AsyncIterator[Proxy]:
    """A proxy before a broker."""
    one = Proxy(engine)
    await one.begin()
    try:
        yield one
    finally:
        await one.end()
