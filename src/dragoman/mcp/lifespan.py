"""The lifespan of a server: an async context manager around its serving, entered before the first call."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any

from ..rpc.middleware import Call, Next

if TYPE_CHECKING:
    from .server import Server

logger = logging.getLogger("dragoman.mcp")


class Life:
    """A lifespan: entered once, in a task of its own, which leaves it too."""

    def __init__(self, server: Server, make: Callable[[Server], AbstractAsyncContextManager[Any]]) -> None:
        self._server = server
        self._make = make
        self.value: Any = None
        self._task: asyncio.Task[None] | None = None
        self._begun: asyncio.Future[None] | None = None
        self._over: asyncio.Event | None = None

    async def start(self) -> None:
        """Return once it has begun. Raises what it raised."""
        if self._begun is None:
            self._begun = asyncio.get_running_loop().create_future()
            self._over = asyncio.Event()
            self._task = asyncio.create_task(self._live(self._begun, self._over))
        await asyncio.shield(self._begun)

    async def _live(self, begun: asyncio.Future[None], over: asyncio.Event) -> None:
        try:
            async with self._make(self._server) as self.value:
                begun.set_result(None)
                await over.wait()
        except BaseException as error:
            if begun.done():
                raise
            begun.set_exception(error)
        finally:
            self.value = None

    async def stop(self) -> None:
        """Leave it."""
        task, self._task, self._begun = self._task, None, None
        if task is None or self._over is None:
            return
        self._over.set()
        await asyncio.wait([task])
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("the lifespan of %s failed at its end", self._server.name, exc_info=error)

    async def around(self, call: Call, next: Next) -> Any:
        """Middleware: no call before it has begun."""
        if self._begun is None or not self._begun.done():
            await self.start()
        return await next(call)
