"""The methods that a server answers itself: the handshake, lists, log levels, subscriptions.

Each is a `Method` like any other, whose function takes `(admitted, context)` and returns a result as
JSON text. Tools, resources, prompts and completions have methods of their own, see `handlers`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal, Protocol

from msgspec import UNSET, Raw, UnsetType

from ...channel import Caller
from ...jsonrpc.errors import INVALID_REQUEST, InvalidParams, MethodNotFound, Refusal, RpcError
from ...rpc.context import Context
from ...rpc.method import Method, Passed
from ..protocol import dialect
from ..protocol.admission import LEVELS, Admitted, Offer, begun
from ..protocol.params import CacheScope, CompleteResult, Completion, DiscoverResult, EmptyResult, InitializeResult
from ..protocol.results import Stamp, finish
from ..protocol.revisions import NEWEST_STATEFUL, Revision
from ..protocol.types import Implementation, ServerCapabilities
from ..session.client_info import keep_client
from .listing import Listing
from .subscriptions import Subscriptions


class Pages(Protocol):
    """Gives the pages of lists."""

    def page(self, listing: Listing, revision: Revision, caller: Caller, cursor: str | UnsetType = UNSET) -> Raw:
        """The result of a list method. Raises InvalidParams for a cursor that the server did not give."""


class Answering(Protocol):
    """The part of a server that these methods use."""

    @property
    def info(self) -> Implementation: ...
    @property
    def instructions(self) -> str | None: ...
    @property
    def stamp(self) -> Stamp: ...
    @property
    def offered(self) -> Offer: ...
    @property
    def ttl(self) -> float: ...
    @property
    def cache_scope(self) -> CacheScope: ...
    @property
    def catalog(self) -> Pages: ...
    @property
    def subscriptions(self) -> Subscriptions: ...
    def capabilities(self) -> ServerCapabilities: ...
    def stateless_capabilities(self) -> ServerCapabilities: ...


def method(
    name: str,
    function: Callable[[Admitted, Context], Any],
    *,
    kind: Literal["inline", "async", "thread"] = "inline",
    **more: Any,
) -> Method:
    """A method of the server's own."""
    passed = Passed(function, "async" if kind == "async" else "plain", shallow=True)
    quick = kind == "inline"
    return Method(name, passed, kind, quick=quick, runs_inline=quick, **more)


def raising(name: str, error: RpcError) -> Method:
    """A method of that name that answers with this error."""

    def fail(admitted: Admitted, context: Context) -> Any:
        raise error

    return method(name, fail)


_REPLACED: Final = Refusal("cancelled", "Request cancelled: `initialize` began a new session on this channel")


class _Builtin:
    """What the server's own methods do."""

    def __init__(self, server: Answering) -> None:
        self._server = server

    def _empty(self, admitted: Admitted) -> Raw:
        return finish(EmptyResult(), admitted.revision, self._server.stamp)

    def initialize(self, admitted: Admitted, context: Context) -> Raw:
        peer: Any = context.peer
        if peer is None:
            raise RpcError.of(INVALID_REQUEST, "Invalid Request: this wire carries single messages and no session")
        if peer.state is not None:
            self._begin_again(peer)
        session = begun(admitted)
        if not getattr(peer.channel, "counts", False):
            budget, limits = peer.runner.call_limit.budget, peer.limits
            if (refusal := keep_client(session, context.caller.owner, budget, limits)) is not None:
                raise dialect.MCP.error(refusal)
        peer.state = session
        peer.dialect = dialect.of(session.revision)
        result = InitializeResult(
            protocol_version=session.revision.date,
            capabilities=self._server.capabilities(),
            server_info=self._server.info,
            instructions=UNSET if self._server.instructions is None else self._server.instructions,
        )
        return finish(result, session.revision, self._server.stamp)

    def _begin_again(self, peer: Any) -> None:
        """The client of a channel begins anew, as behind a bridge that keeps one server for many clients: nothing of
        the session before is left, and who waits for something of it is told."""
        before = peer.state
        self._server.subscriptions.leave(peer)
        peer.begin_again(lambda message: getattr(message.params, "session", None) is before, _REPLACED)

    def initialized(self, admitted: Admitted, context: Context) -> None:
        if admitted.session is not None:
            self._server.subscriptions.join(context.peer)

    def discover(self, admitted: Admitted, context: Context) -> Raw:
        result = DiscoverResult(
            supported_versions=self._server.offered.dates,
            capabilities=self._server.stateless_capabilities(),
            instructions=UNSET if self._server.instructions is None else self._server.instructions,
            ttl_ms=int(self._server.ttl * 1000),
            cache_scope=self._server.cache_scope,
        )
        return finish(result, admitted.revision, self._server.stamp)

    def listing(self, kind: Listing) -> Callable[[Admitted, Context], Raw]:
        return lambda admitted, context: self._server.catalog.page(
            kind, admitted.revision, context.caller, admitted.params.cursor
        )

    def set_level(self, admitted: Admitted, context: Context) -> Raw:
        level = admitted.params.level
        if level not in LEVELS:
            text = f"Invalid params: there is no log level {level!r:.40}; the levels are {', '.join(LEVELS)}"
            raise InvalidParams(text)
        if admitted.session is not None:
            admitted.session.log_level = level
        return self._empty(admitted)

    def subscribe(self, admitted: Admitted, context: Context) -> Raw:
        self._server.subscriptions.subscribe(admitted, context.peer, admitted.params.uri, context.caller)
        return self._empty(admitted)

    def unsubscribe(self, admitted: Admitted, context: Context) -> Raw:
        self._server.subscriptions.unsubscribe(admitted, context.peer, admitted.params.uri)
        return self._empty(admitted)

    def nothing_to_complete(self, admitted: Admitted, context: Context) -> Raw:
        if self._server.capabilities().completions is UNSET:
            # "Method not found: `-32601` (Capability not supported)" (server/utilities/completion)
            raise MethodNotFound
        return finish(CompleteResult(completion=Completion([])), admitted.revision, self._server.stamp)

    async def listen(self, admitted: Admitted, context: Context) -> Raw:
        return await self._server.subscriptions.listen(admitted, context)


def methods(server: Answering) -> dict[str, Method]:
    """The server's own methods by name."""
    pong = finish(EmptyResult(), NEWEST_STATEFUL, server.stamp)
    own = _Builtin(server)
    found = (
        method("initialize", own.initialize),
        method("notifications/initialized", own.initialized),
        method("ping", lambda admitted, context: pong),
        method("server/discover", own.discover),
        method("tools/list", own.listing("tools")),
        method("resources/list", own.listing("resources")),
        method("resources/templates/list", own.listing("templates")),
        method("prompts/list", own.listing("prompts")),
        method("resources/subscribe", own.subscribe),
        method("resources/unsubscribe", own.unsubscribe),
        method("completion/complete", own.nothing_to_complete),
        method("logging/setLevel", own.set_level),
        method("notifications/roots/list_changed", lambda admitted, context: None),
        method("subscriptions/listen", own.listen, kind="async", timeout=None, stream=True),
    )
    return {one.name: one for one in found}
