"""The lifespan of a service or an MCP server: what it opens before the first call and closes after the last.

Rules:

- Each event loop has a lifespan of its own: what it opens (a pool of connections, a lock) belongs to its loop.
- It lasts as long as its users on that loop: `serve`, an ASGI lifespan, a client in this process. The last one that
  stops ends it. A call that comes in without any user (a mounted ASGI app) begins it.
- It has parts, entered in their order and left in the opposite one: the context manager that the user gave (its value
  is the state), dependencies with `scope="lifespan"`, the lifespans of what is included, and those of extensions, which
  may use all the others. A part that is added while it lasts is entered before the next call.
- It is entered and left in a task of its own. Once it has begun, it costs a call one comparison.
"""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from types import CodeType
from typing import Any, Final

from msgspec import Struct, field

from ..jsonrpc.errors import LocalError
from .binding.dependencies import Dependencies, entered
from .binding.signature import name_of, runs_as

logger: logging.Logger = logging.getLogger("dragoman")

Make = Callable[[Any], AbstractAsyncContextManager[Any]]
"""Makes the context manager of a lifespan that the user gave, for its app."""
Part = Callable[[Mapping[Any, Any]], AbstractAsyncContextManager[Any]]
"""Makes the context manager of a part, given the values of the parts before it."""

_EMPTY: Final[Mapping[Any, Any]] = {}


class _Span(Struct, eq=False):
    """The lifespan of one loop."""

    loop: asyncio.AbstractEventLoop
    waiting: asyncio.Future[None]
    """Done when every part has been entered, or one could not be."""
    change: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when parts were added, and when it is over."""
    over: bool = False
    """Whether it has to end, or has ended."""
    ready: int = -1
    """The number of changes (`Lifespan._changes`) of which all parts are entered; -1: it has not begun, or has
    ended."""
    users: int = 0
    """What has started it on this loop and has not stopped it."""
    held: dict[Any, Any] = {}
    """The values of its parts by key; under None the state."""
    task: asyncio.Task[None] | None = None
    """The task in which its parts are entered and left."""


class Lifespan:
    """The lifespan of one app, on every loop. `name`: the app's, for the log; `dependencies`: of its functions."""

    def __init__(self, name: str, dependencies: Dependencies) -> None:
        self._name = name
        self._dependencies = dependencies
        self._own: dict[Any, Part] = {}
        self._last_parts: dict[Any, Part] = {}
        """The parts that are entered last: those of extensions."""
        self._above: weakref.WeakSet[Lifespan] = weakref.WeakSet()
        """The lifespans that include this one."""
        self._changes = 0
        """How often parts were added, here or in what is included."""
        self._spans: dict[asyncio.AbstractEventLoop, _Span] = {}
        self._last: _Span | None = None
        """The span that was used last, which is found without a look at the others."""

    # -- its parts

    def around(self, make: Callable[[], AbstractAsyncContextManager[Any]]) -> None:
        """Add the context manager that the user gave, as the first part; its value is the state."""
        self._own[None] = lambda held: make()
        self.changed()

    def add_last(self, key: Any, make: Callable[[], AbstractAsyncContextManager[Any]]) -> None:
        """Add a part that is entered after all others, and left before them. `key`: distinguishes it from them."""
        self._last_parts[key] = lambda held: make()
        self.changed()

    @property
    def state(self) -> bool:
        """Whether the user gave a context manager, here or for what is included."""
        return None in self._own or any(one.state for one in self._included())

    def _included(self) -> list[Lifespan]:
        return [one.life for one in self._dependencies.included if one.life is not None]

    def changed(self) -> None:
        """Note that parts were added: they are entered before the next call, here and where this is included."""
        self._changes += 1
        for one in tuple(self._above):
            one.changed()

    def _parts(self) -> dict[Any, Part]:
        """Return all parts by key, in the order in which they are entered."""
        found = dict(self._own)
        for function, (step, steps) in self._dependencies.held().items():
            found[function] = lambda held, step=step, steps=steps: entered(step, held, steps)
        for one in self._included():
            one._above.add(self)
            found[one] = lambda held, one=one: _using(one)
        return found | self._last_parts

    # -- on a loop

    def here(self) -> _Span | None:
        """Return the span of the running loop, if all its parts are entered; else None."""
        last = self._last
        loop = asyncio.get_running_loop()
        if last is None or last.loop is not loop:
            last = self._last = self._spans.get(loop)
        return last if last is not None and last.ready == self._changes else None

    def held(self, loop: asyncio.AbstractEventLoop | None = None) -> Mapping[Any, Any]:
        """Return the values of its parts on a loop; by default on the running one, or where none runs on the only one
        that has a span. Empty if it has not begun."""
        if loop is None:
            loop = asyncio._get_running_loop()
            if loop is None:
                found = list(self._spans.values())
                return found[0].held if len(found) == 1 else _EMPTY
        last = self._last
        if last is None or last.loop is not loop:
            last = self._spans.get(loop)
        return _EMPTY if last is None else last.held

    async def start(self) -> None:
        """Count one more user on this loop, and return once it has begun. Raises what one of its parts raises."""
        span = await self.begin()
        span.users += 1

    async def begin(self) -> _Span:
        """Return the span of this loop once all its parts are entered, without counting a user: a call may come before
        there is one. Raises what one of its parts raises."""
        loop = asyncio.get_running_loop()
        while (span := self._spans.get(loop)) is None or span.ready != self._changes or span.over:
            if span is None:
                for gone in [one for one in self._spans if one.is_closed()]:
                    del self._spans[gone]
                span = self._spans[loop] = _Span(loop, loop.create_future())
                span.task = loop.create_task(self._live(span))
            elif span.over:
                assert span.task is not None
                await asyncio.wait([span.task])
                continue
            elif span.waiting.done():
                span.waiting = loop.create_future()
            span.change.set()
            await asyncio.shield(span.waiting)
        return span

    async def _live(self, span: _Span) -> None:
        """Enter the parts of a span, also those that are added later, and leave them once it is over."""
        try:
            async with AsyncExitStack() as stack:
                while not span.over:
                    span.change.clear()
                    seen = self._changes
                    try:
                        await self._enter(span, stack)
                    except BaseException as error:
                        if not span.waiting.done():
                            span.waiting.set_exception(error)
                            span.waiting.exception()  # the task that waited for it may have gone
                        assert span.task is not None
                        # nothing uses it yet: the next user tries again from the beginning; or the loop ends
                        span.over = span.ready < 0 or span.task.cancelling() > 0
                        if span.over:
                            return
                    else:
                        span.ready = seen
                        if not span.waiting.done():
                            span.waiting.set_result(None)
                    await span.change.wait()
        finally:
            if not span.waiting.done():  # who still waits, for a part that was added, begins a new span
                span.waiting.set_result(None)
            span.ready = -1
            self._spans.pop(span.loop, None)
            if self._last is span:
                self._last = None

    async def _enter(self, span: _Span, stack: AsyncExitStack) -> None:
        """Enter the parts that are not entered yet, also those that were added to what is included."""
        for key, part in self._parts().items():
            if key not in span.held:
                span.held[key] = await stack.enter_async_context(part(span.held))
        for one in self._included():
            await one.begin()

    async def stop(self) -> None:
        """Count one user less on this loop; the last one ends it, and waits until its parts are left."""
        span = self._spans.get(asyncio.get_running_loop())
        if span is None or span.task is None:
            return
        span.users -= 1
        if span.users > 0:
            return
        span.over = True
        span.change.set()
        await asyncio.wait([span.task])
        if not span.task.cancelled() and (error := span.task.exception()) is not None:
            logger.error("the lifespan of %s failed at its end", self._name, exc_info=error)


@asynccontextmanager
async def _using(other: Lifespan) -> AsyncIterator[None]:
    """Be a user of another lifespan, that of what is included."""
    await other.start()
    try:
        yield
    finally:
        await other.stop()


def managed(lifespan: Callable[..., Any], where: str) -> Make:
    """Return a function that makes the context manager of a lifespan as the user gave it, which may be a bare async
    generator function. Raises LocalError, with what to write, for what cannot be a lifespan. `where`: begins the
    error's text."""
    runs = runs_as(lifespan)
    name = name_of(lifespan)
    if runs in ("generator", "coroutine"):
        raise LocalError(
            f"{where}: {name} is not a lifespan: write `async def {name[:-2]}(app):` with one `yield` in it"
        )
    code = getattr(getattr(lifespan, "__wrapped__", lifespan), "__code__", None)
    if isinstance(code, CodeType) and not code.co_argcount and not code.co_flags & 0x04:  # no *args
        raise LocalError(f"{where}: a lifespan takes the app that it is of: write `async def {name[:-2]}(app):`")
    return asynccontextmanager(lifespan) if runs == "async generator" else lifespan
