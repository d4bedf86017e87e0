"""The blocking form of the client, with the same names and options.

    with dragoman.mcp.client.blocking.connect("http://127.0.0.1:8000/mcp") as client:
        client.call_tool("add", {"a": 2, "b": 3}, result=int)

Rules:

- An asynchronous `Client` does the work on one loop in a daemon thread, which all share. Any number of threads
  may call at once; Ctrl-C during a call cancels it, at the server too.
- Callbacks (`on_elicit`, `on_log`, `on_progress` ...) run on that loop, plain functions that answer
  questions in worker threads. A blocking call on the loop itself would wait for itself, so it is a LocalError.
- A client belongs to the process that opened it. A client left open is closed when the interpreter ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any, TypeVar, overload

from msgspec import UNSET, UnsetType

from ...doors import listed
from ...rpc.background import Portal, blocking, run
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
__dir__: Callable[[], list[str]] = listed(__name__)

T = TypeVar("T")


class BlockingClient:
    """A client of one MCP server, blocking. Made by `connect`; a context manager that closes at its end.

    Every method does, and raises, what the same method of `Client` does; LocalError on the loop's own thread and in a
    forked child.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        run(client.__aenter__)
        self._portal = Portal("client", client.close)

    def __enter__(self) -> BlockingClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """As `Client.close`. In a forked child it does nothing."""
        self._portal.close(self._client.close)

    @property
    def revision(self) -> Revision:
        """As `Client.revision`."""
        return self._client.revision

    @property
    def server(self) -> Implementation | None:
        """As `Client.server`."""
        return self._client.server

    @property
    def capabilities(self) -> ServerCapabilities:
        """As `Client.capabilities`."""
        return self._client.capabilities

    @property
    def instructions(self) -> str | None:
        """As `Client.instructions`."""
        return self._client.instructions

    def list_tools(self) -> list[Tool]:
        """As `Client.list_tools`."""
        return self._portal.run(self._client.list_tools)

    def list_resources(self) -> list[Resource]:
        """As `Client.list_resources`."""
        return self._portal.run(self._client.list_resources)

    def list_resource_templates(self) -> list[ResourceTemplate]:
        """As `Client.list_resource_templates`."""
        return self._portal.run(self._client.list_resource_templates)

    def list_prompts(self) -> list[Prompt]:
        """As `Client.list_prompts`."""
        return self._portal.run(self._client.list_prompts)

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
        version: str | None = ...,
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
        version: str | None = ...,
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
        version: str | None = None,
    ) -> Any:
        """As `Client.call_tool`."""
        return self._portal.run(
            lambda: self._client.call_tool(
                name,
                arguments,
                result=result,
                timeout=timeout,
                total=total,
                on_progress=on_progress,
                meta=meta,
                version=version,
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
        version: str | None = None,
    ) -> ReadResourceResult:
        """As `Client.read_resource`."""
        return self._portal.run(
            lambda: self._client.read_resource(
                uri, timeout=timeout, total=total, on_progress=on_progress, meta=meta, version=version
            )
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
        version: str | None = None,
    ) -> GetPromptResult:
        """As `Client.get_prompt`."""
        return self._portal.run(
            lambda: self._client.get_prompt(
                name, arguments, timeout=timeout, total=total, on_progress=on_progress, meta=meta, version=version
            )
        )

    def complete(
        self,
        ref: str | PromptReference | ResourceTemplateReference,
        argument: str,
        value: str,
        context: Mapping[str, str] | None = None,
    ) -> Completion:
        """As `Client.complete`."""
        return self._portal.run(lambda: self._client.complete(ref, argument, value, context))

    def call(
        self, method: str, params: Mapping[str, Any] | None = None, *, timeout: float | UnsetType | None = UNSET
    ) -> Any:
        """As `Client.call`."""
        return self._portal.run(lambda: self._client.call(method, params, timeout=timeout))

    def set_log_level(self, level: LoggingLevel) -> None:
        """As `Client.set_log_level`."""
        self._portal.run(lambda: self._client.set_log_level(level))

    def set_roots(self, roots: RootsSource) -> None:
        """As `Client.set_roots`."""
        self._portal.run(lambda: self._client.set_roots(roots))

    def ping(self) -> None:
        """As `Client.ping`."""
        self._portal.run(self._client.ping)

    def discover(self) -> DiscoverResult:
        """As `Client.discover`."""
        return self._portal.run(self._client.discover)

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
        return BlockingSubscription(self._portal, inner)


class BlockingSubscription:
    """As `BlockingClient.subscribe`. Any thread may take the next change."""

    def __init__(self, portal: Portal, inner: Subscription) -> None:
        self._portal = portal
        self._inner = inner

    @property
    def granted(self) -> SubscriptionFilter:
        """What the server has agreed to notify about."""
        return self._inner.granted

    def __enter__(self) -> BlockingSubscription:
        self._portal.run(self._inner.__aenter__)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> Iterator[Changed]:
        return self

    def __next__(self) -> Changed:
        return self._portal.take(self._inner)

    def close(self) -> None:
        """Unsubscribe; a thread that waits for the next change gets the end of the iteration."""
        self._portal.run(self._inner.close)


connect = blocking(
    Client,
    BlockingClient,
    "A client of one MCP server, open: `with connect(...) as client`, or `client = connect(...)`.\n\n"
    "    Blocks until the server has answered and its era is known. Options and errors as for `Client`.\n    ",
)
