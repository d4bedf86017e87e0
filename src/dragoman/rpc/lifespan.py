"""The lifespan of a server: an async context manager around its serving, entered before the first call.

Rules:

- Each event loop has a lifespan of its own: what it opens (a pool of connections, a lock) belongs to its loop.
- It lasts as long as its users on that loop: `serve`, an ASGI lifespan, a client in this process. The last one that
  stops ends it. A call that comes in without any user (a mounted ASGI app) begins it.
- It is entered and left in a task of its own. Once it has begun, it costs a call one comparison.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

logger = logging.getLogger("dragoman.mcp")

Make = Callable[[], AbstractAsyncContextManager[Any]]


class _Span:
    """The lifespan of one loop."""

    __slots__ = ("begun", "loop", "over", "ready", "task", "users", "value")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.begun: asyncio.Future[None] = loop.create_future()
        self.over = asyncio.Event()
        self.ready = False
        self.users = 0
        self.value: Any = None
        self.task: asyncio.Task[None] | None = None


class Lifespan:
    """A server's lifespan, on every loop. `make`: the context manager; `name`: the server's, for the log."""

    def __init__(self, name: str, make: Make) -> None:
        self._name = name
        self._make = make
        self._spans: dict[asyncio.AbstractEventLoop, _Span] = {}
        self._last: _Span | None = None

    def here(self) -> _Span | None:
        """The span of the running loop, if it has begun."""
        last = self._last
        loop = asyncio.get_running_loop()
        if last is None or last.loop is not loop:
            last = self._last = self._spans.get(loop)
        return last if last is not None and last.ready else None

    @property
    def value(self) -> Any:
        """Its value on the running loop; outside of any loop, that of the only loop. Otherwise None."""
        try:
            found = self.here()
        except RuntimeError:
            ready = [span for span in self._spans.values() if span.ready]
            found = ready[0] if len(ready) == 1 else None
        return None if found is None else found.value

    async def start(self) -> None:
        """Count one more user on this loop; returns once it has begun. Raises what it raised."""
        span = await self.begin()
        span.users += 1

    async def begin(self) -> _Span:
        """The span of this loop, begun; for a call that comes before any user. Raises what it raised."""
        loop = asyncio.get_running_loop()
        while (span := self._spans.get(loop)) is not None and span.over.is_set():
            assert span.task is not None
            await asyncio.wait([span.task])
        if span is None:
            for gone in [one for one in self._spans if one.is_closed()]:
                del self._spans[gone]
            span = self._spans[loop] = _Span(loop)
            span.task = loop.create_task(self._live(span))
        await asyncio.shield(span.begun)
        return span

    async def _live(self, span: _Span) -> None:
        try:
            async with self._make() as span.value:
                span.ready = True
                span.begun.set_result(None)
                await span.over.wait()
        except BaseException as error:
            if span.begun.done():
                raise
            span.begun.set_exception(error)
            span.begun.exception()  # the task that waited for it may have gone
        finally:
            span.ready = False
            self._spans.pop(span.loop, None)
            if self._last is span:
                self._last = None

    async def stop(self) -> None:
        """Count one user less on this loop; the last one ends it, and waits for its end."""
        span = self._spans.get(asyncio.get_running_loop())
        if span is None or span.task is None:
            return
        span.users -= 1
        if span.users > 0:
            return
        span.over.set()
        await asyncio.wait([span.task])
        if not span.task.cancelled() and (error := span.task.exception()) is not None:
            logger.error("the lifespan of %s failed at its end", self._name, exc_info=error)
