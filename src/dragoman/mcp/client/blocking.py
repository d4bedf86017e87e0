"""The blocking face of the client, with its names and options.

    with dragoman.mcp.client.blocking.connect("http://127.0.0.1:8000/mcp") as client:
        client.call_tool("add", {"a": 2, "b": 3}, result=int)

Rules:

- The work is done by an asynchronous `Client` on one loop in a daemon thread, which all share. Any number of threads
  may call at once; Ctrl-C during a call cancels it, at the server too.
- What is called back (`on_elicit`, `on_log`, `on_progress` ...) runs on that loop, the plain functions that answer
  questions in worker threads. On the loop itself a blocking call would wait for itself: that is a LocalError.
- A client belongs to the process that opened it. One that is left open is closed when the interpreter ends.
"""

from __future__ import annotations

import asyncio
import atexit
import functools
import inspect
import os
import threading
import weakref
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any, ParamSpec, TypeVar, overload

from msgspec import UNSET, UnsetType

from ...jsonrpc.errors import LocalError
from ...rpc import background
from ..protocol.params import (
    CallToolResult,
    Completion,
    DiscoverResult,
    GetPromptResult,
    PromptReference,
    ReadResourceResult,
    ResourceTemplateReference,
    SubscriptionFilter,
)
from ..protocol.revisions import Revision
from ..protocol.types import Implementation, LoggingLevel, Prompt, Resource, ResourceTemplate, ServerCapabilities, Tool
from .client import Client
from .handlers import RootsSource
from .notifications import OnProgress
from .subscriptions import Changed, Subscription

__all__ = ["BlockingClient", "BlockingSubscription", "connect"]

P = ParamSpec("P")
T = TypeVar("T")

AT_EXIT = 6.0
"""Seconds in which the clients left open may close when the interpreter ends: enough to end a command by force."""


class BlockingClient:
    """A client of one MCP server, blocking. Made by `connect`; a context manager that closes at its end.

    Every method does, and raises, what its namesake of `Client` does; LocalError on the loop's own thread and in a
    forked child.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._pid = os.getpid()
        _run(client.__aenter__)
        _left_open.add(self)

    def __enter__(self) -> BlockingClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """As `Client.close`. In a forked child it does nothing."""
        if self._pid == os.getpid():
            self._run(self._client.close)
            _left_open.discard(self)

    def _run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        if self._pid != os.getpid():
            raise LocalError("this client was opened before os.fork; connect again in the child")
        return _run(work)

    @property
    def revision(self) -> Revision:
        return self._client.revision

    @property
    def server(self) -> Implementation | None:
        return self._client.server

    @property
    def capabilities(self) -> ServerCapabilities:
        return self._client.capabilities

    @property
    def instructions(self) -> str | None:
        return self._client.instructions

    def list_tools(self) -> list[Tool]:
        return self._run(self._client.list_tools)

    def list_resources(self) -> list[Resource]:
        return self._run(self._client.list_resources)

    def list_resource_templates(self) -> list[ResourceTemplate]:
        return self._run(self._client.list_resource_templates)

    def list_prompts(self) -> list[Prompt]:
        return self._run(self._client.list_prompts)

    @overload
    def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = ...,
        *,
        result: None = ...,
        timeout: float | UnsetType | None = ...,
        total: float | None = ...,
        on_progress: OnProgress | None = ...,
        meta: Mapping[str, Any] | None = ...,
    ) -> CallToolResult: ...
    @overload
    def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = ...,
        *,
        result: type[T],
        timeout: float | UnsetType | None = ...,
        total: float | None = ...,
        on_progress: OnProgress | None = ...,
        meta: Mapping[str, Any] | None = ...,
    ) -> T: ...
    def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        result: Any = None,
        timeout: float | UnsetType | None = UNSET,
        total: float | None = None,
        on_progress: OnProgress | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> Any:
        return self._run(
            lambda: self._client.call_tool(
                name, arguments, result=result, timeout=timeout, total=total, on_progress=on_progress, meta=meta
            )
        )

    def read_resource(
        self,
        uri: str,
        *,
        timeout: float | UnsetType | None = UNSET,
        total: float | None = None,
        on_progress: OnProgress | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> ReadResourceResult:
        return self._run(
            lambda: self._client.read_resource(uri, timeout=timeout, total=total, on_progress=on_progress, meta=meta)
        )

    def get_prompt(
        self,
        name: str,
        arguments: Mapping[str, str] | None = None,
        *,
        timeout: float | UnsetType | None = UNSET,
        total: float | None = None,
        on_progress: OnProgress | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> GetPromptResult:
        return self._run(
            lambda: self._client.get_prompt(
                name, arguments, timeout=timeout, total=total, on_progress=on_progress, meta=meta
            )
        )

    def complete(
        self,
        ref: str | PromptReference | ResourceTemplateReference,
        argument: str,
        value: str,
        context: Mapping[str, str] | None = None,
    ) -> Completion:
        return self._run(lambda: self._client.complete(ref, argument, value, context))

    def call(
        self, method: str, params: Mapping[str, Any] | None = None, *, timeout: float | UnsetType | None = UNSET
    ) -> Any:
        return self._run(lambda: self._client.call(method, params, timeout=timeout))

    def set_log_level(self, level: LoggingLevel) -> None:
        self._run(lambda: self._client.set_log_level(level))

    def set_roots(self, roots: RootsSource) -> None:
        self._run(lambda: self._client.set_roots(roots))

    def ping(self) -> None:
        self._run(self._client.ping)

    def discover(self) -> DiscoverResult:
        return self._run(self._client.discover)

    def subscribe(
        self,
        uris: Iterable[str] = (),
        *,
        tools: bool = False,
        prompts: bool = False,
        resources: bool = False,
        again: bool = False,
    ) -> BlockingSubscription:
        """As `Client.subscribe`: `with client.subscribe(tools=True) as changes: for change in changes: ...`"""
        inner = self._client.subscribe(uris, tools=tools, prompts=prompts, resources=resources, again=again)
        return BlockingSubscription(self, inner)


class BlockingSubscription:
    """As `BlockingClient.subscribe`. Any thread may take the next change."""

    def __init__(self, owner: BlockingClient, inner: Subscription) -> None:
        self._owner = owner
        self._inner = inner
        self._turn = threading.Lock()

    @property
    def granted(self) -> SubscriptionFilter:
        """What the server will tell."""
        return self._inner.granted

    def __enter__(self) -> BlockingSubscription:
        self._owner._run(self._inner.__aenter__)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> Iterator[Changed]:
        return self

    def __next__(self) -> Changed:
        with self._turn:
            try:
                return self._owner._run(self._inner.__anext__)
            except StopAsyncIteration:
                raise StopIteration from None

    def close(self) -> None:
        """Hear no more; a task that waits for the next change is at the end."""
        self._owner._run(self._inner.close)


def _blocking(make: Callable[P, Client]) -> Callable[P, BlockingClient]:
    """`make` with the same parameters, but what it makes is open and blocks."""

    @functools.wraps(make, updated=())
    def connect(*args: P.args, **kwargs: P.kwargs) -> BlockingClient:
        return BlockingClient(make(*args, **kwargs))

    connect.__doc__ = (
        "A client of one MCP server, open: `with connect(...) as client`, or `client = connect(...)`.\n\n"
        "    Blocks until the server is reached and its era known. Options, and what is raised, as with `Client`.\n    "
    )
    signature = inspect.signature(make).replace(return_annotation="BlockingClient")
    connect.__signature__ = signature  # type: ignore[attr-defined]
    connect.__module__, connect.__name__, connect.__qualname__ = __name__, "connect", "connect"
    return connect


connect = _blocking(Client)

_left_open: weakref.WeakSet[BlockingClient] = weakref.WeakSet()


def _run(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Do `work` on the loop and wait for it."""
    try:
        running: asyncio.AbstractEventLoop | None = asyncio.get_running_loop()
    except RuntimeError:
        running = None
    if running is background.loop():
        raise LocalError(
            "this is the thread of dragoman's own loop, where a blocking call would wait for itself; "
            "use the asynchronous `Client` there"
        )
    return background.run(work)


def _close_all() -> None:
    """The interpreter ends: close what was left open."""
    mine = [one for one in list(_left_open) if one._pid == os.getpid()]
    if not mine:
        return

    async def close() -> None:
        await asyncio.wait([asyncio.ensure_future(one._client.close()) for one in mine], timeout=AT_EXIT)

    closing = asyncio.run_coroutine_threadsafe(close(), background.loop())
    try:
        closing.result(AT_EXIT + 1)
    except Exception:  # the interpreter ends anyway
        closing.cancel()


atexit.register(_close_all)
