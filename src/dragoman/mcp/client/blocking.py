"""The blocking form of the client, with the same names and options.

    with dragoman.mcp.client.blocking.connect("http://127.0.0.1:8000/mcp") as client:
        client.call_tool("add", {"a": 2, "b": 3}, result=int)

Rules:

- An asynchronous `Client` does the work on one loop in a daemon thread, which all blocking clients share. Any number of
  threads may call at once; Ctrl-C during a call cancels it, at the server too.
- Callbacks (`on_elicit`, `on_log`, `on_progress` ...) run on that loop, except plain functions that answer questions:
  they run in worker threads. A blocking call on the loop itself would wait for itself, so it raises LocalError.
- A client belongs to the process that opened it. A client left open is closed when the interpreter ends.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping
from functools import wraps
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, TypeVar

from ...doors import public_dir
from ...rpc.background import Portal, blocking, run
from ..protocol.params import SubscriptionFilter
from ..protocol.revisions import Revision
from ..protocol.types import Implementation, ServerCapabilities
from .client import Client, E
from .subscriptions import Changed, Subscription

__all__ = ["BlockingClient", "BlockingSubscription", "connect"]
__dir__: Callable[[], list[str]] = public_dir(__name__)

P = ParamSpec("P")
T = TypeVar("T")


def _blocked(
    method: Callable[Concatenate[Client, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[BlockingClient, P], T]:
    """Return a method of `Client` with its signature and docstring, blocking."""

    @wraps(method)
    def call(self: BlockingClient, /, *args: P.args, **options: P.kwargs) -> T:
        return self._portal.run(lambda: method(self._client, *args, **options))

    return call


class BlockingClient:
    """A client of one MCP server, blocking. Made by `connect`; a context manager that closes at its end.

    `call`, `call_tool`, `complete`, `discover`, `get_prompt`, `list_prompts`, `list_resource_templates`,
    `list_resources`, `list_tools`, `notify`, `ping`, `read_resource`, `request`, `set_log_level` and `set_roots` do and
    raise what the methods of `Client` with these names do, and raise LocalError on the loop's own thread and in a
    forked child.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        run(client.__aenter__)
        self._portal = Portal("client", client.close)

    def __repr__(self) -> str:
        return f"<blocking {self._client!r}>"

    def __enter__(self) -> BlockingClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End every subscription and the connection. In a forked child it does nothing."""
        self._portal.close(self._client.close)

    @property
    def revision(self) -> Revision:
        """The revision in use."""
        return self._client.revision

    @property
    def server(self) -> Implementation | None:
        """How the server names itself; for display and logs only."""
        return self._client.server

    @property
    def capabilities(self) -> ServerCapabilities:
        """What the server declared that it can do; what it did not declare is UNSET."""
        return self._client.capabilities

    @property
    def instructions(self) -> str | None:
        """How a model should use the server, as text; None where the server says nothing."""
        return self._client.instructions

    list_tools = _blocked(Client.list_tools)
    list_resources = _blocked(Client.list_resources)
    list_resource_templates = _blocked(Client.list_resource_templates)
    list_prompts = _blocked(Client.list_prompts)
    call_tool = _blocked(Client.call_tool)
    read_resource = _blocked(Client.read_resource)
    get_prompt = _blocked(Client.get_prompt)
    complete = _blocked(Client.complete)
    call = _blocked(Client.call)
    request = _blocked(Client.request)
    notify = _blocked(Client.notify)
    set_log_level = _blocked(Client.set_log_level)
    set_roots = _blocked(Client.set_roots)
    ping = _blocked(Client.ping)
    discover = _blocked(Client.discover)

    def subscribe(
        self,
        uris: Iterable[str] = (),
        *,
        tools: bool = False,
        prompts: bool = False,
        resources: bool = False,
        topics: Mapping[str, Any] | None = None,
        again: bool = False,
    ) -> BlockingSubscription:
        """Receive changes: `with client.subscribe(tools=True) as changes: for change in changes: ...`"""
        inner = self._client.subscribe(
            uris, tools=tools, prompts=prompts, resources=resources, topics=topics, again=again
        )
        return BlockingSubscription(self._portal, inner)

    def extension(self, kind: type[E]) -> E:
        """Return this client's extension of a class, as `Client.extension`; `run` and `each` call its functions."""
        return self._client.extension(kind)

    def run(self, function: Callable[P, Coroutine[Any, Any, T]], /, *args: P.args, **options: P.kwargs) -> T:
        """Call an async function that belongs to this client, such as one of an extension, and return its result:
        `client.run(tasks.start, "train", {"rows": 3})`. Raises what it raises."""
        return self._portal.run(lambda: function(*args, **options))

    def each(self, source: AsyncIterator[T]) -> Iterator[T]:
        """Iterate over what belongs to this client, such as `handle.follow()`."""
        while True:
            try:
                found = self._portal.take(source)
            except StopIteration:
                return
            yield found


class BlockingSubscription:
    """The changes that a client subscribed to. Any thread may take the next one."""

    def __init__(self, portal: Portal, inner: Subscription) -> None:
        self._portal = portal
        self._inner = inner

    def __repr__(self) -> str:
        return f"<blocking {self._inner!r}>"

    @property
    def granted(self) -> SubscriptionFilter:
        """The changes of which the server will notify."""
        return self._inner.granted

    @property
    def granted_topics(self) -> Mapping[str, Any]:
        """The values of the requested topics that the server acknowledged, by their members of the filter."""
        return self._inner.granted_topics

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
