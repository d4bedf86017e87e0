"""The methods that a server answers itself: the handshake, lists, log levels, subscriptions.

Each is a `Method` like any other, whose function takes `(admitted, context)` and returns a result as
JSON text. Tools, resources, prompts and completions have methods of their own, see `functions`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol

from msgspec import UNSET, Raw, UnsetType

from ...channel import Caller
from ...jsonrpc.errors import INVALID_REQUEST, InvalidParams, RpcError
from ...rpc.context import Context
from ...rpc.method import Method, Passed
from ..protocol import dialect
from ..protocol.admission import LEVELS, Admitted, Offer, begun
from ..protocol.params import CacheScope, CompleteResult, Completion, DiscoverResult, EmptyResult, InitializeResult
from ..protocol.results import Stamp, finish
from ..protocol.revisions import NEWEST_STATEFUL, Revision
from ..protocol.types import Implementation, ServerCapabilities
from .listing import Listing
from .subscriptions import Subscriptions

logger = logging.getLogger("dragoman.mcp")


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
    @property
    def on_roots_changed(self) -> Sequence[Callable[[Any], Any]]: ...
    def capabilities(self, revision: Revision) -> ServerCapabilities: ...


def method(
    name: str,
    function: Callable[[Admitted, Context], Any],
    *,
    kind: Literal["inline", "async", "thread"] = "inline",
    **more: Any,
) -> Method:
    """A method of the server's own."""
    passed = Passed(function, "async" if kind == "async" else "plain")
    quick = kind == "inline"
    return Method(name, passed, kind, quick=quick, runs_inline=quick, **more)


def raising(error: RpcError) -> Method:
    """A method that answers with this error."""

    def fail(admitted: Admitted, context: Context) -> Any:
        raise error

    return method("unknown", fail)


def methods(server: Answering) -> dict[str, Method]:
    """The server's own methods by name."""

    def empty(admitted: Admitted) -> Raw:
        return finish(EmptyResult(), admitted.revision, server.stamp)

    def initialize(admitted: Admitted, context: Context) -> Raw:
        peer = context.peer
        if peer is None:
            raise RpcError.of(INVALID_REQUEST, "Invalid Request: this wire carries single messages and no session")
        if peer.state is not None:
            raise RpcError.of(INVALID_REQUEST, "Invalid Request: `initialize` was answered already")
        session = begun(admitted)
        peer.state = session
        peer.dialect = dialect.of(session.revision)
        result = InitializeResult(
            protocol_version=session.revision.date,
            capabilities=server.capabilities(session.revision),
            server_info=server.info,
            instructions=UNSET if server.instructions is None else server.instructions,
        )
        return finish(result, session.revision, server.stamp)

    def initialized(admitted: Admitted, context: Context) -> None:
        if admitted.session is not None:
            server.subscriptions.join(context.peer)

    def discover(admitted: Admitted, context: Context) -> Raw:
        result = DiscoverResult(
            supported_versions=server.offered.dates,
            capabilities=server.capabilities(admitted.revision),
            instructions=UNSET if server.instructions is None else server.instructions,
            ttl_ms=int(server.ttl * 1000),
            cache_scope=server.cache_scope,
        )
        return finish(result, admitted.revision, server.stamp)

    def listing(kind: Listing) -> Callable[[Admitted, Context], Raw]:
        return lambda admitted, context: server.catalog.page(
            kind, admitted.revision, context.caller, admitted.params.cursor
        )

    def set_level(admitted: Admitted, context: Context) -> Raw:
        level = admitted.params.level
        if level not in LEVELS:
            text = f"Invalid params: there is no log level {level!r:.40}; the levels are {', '.join(LEVELS)}"
            raise InvalidParams(text)
        if admitted.session is not None:
            admitted.session.log_level = level
        return empty(admitted)

    def subscribe(admitted: Admitted, context: Context) -> Raw:
        server.subscriptions.subscribe(admitted, context.peer, admitted.params.uri, context.caller)
        return empty(admitted)

    def unsubscribe(admitted: Admitted, context: Context) -> Raw:
        server.subscriptions.unsubscribe(admitted, context.peer, admitted.params.uri)
        return empty(admitted)

    def nothing_to_complete(admitted: Admitted, context: Context) -> Raw:
        return finish(CompleteResult(completion=Completion([])), admitted.revision, server.stamp)

    def roots_changed(admitted: Admitted, context: Context) -> None:
        for listener in server.on_roots_changed:
            try:
                listener(context.peer)
            except Exception:
                logger.exception("on_roots_changed failed")

    async def listen(admitted: Admitted, context: Context) -> Raw:
        return await server.subscriptions.listen(admitted, context)

    pong = finish(EmptyResult(), NEWEST_STATEFUL, server.stamp)
    found = (
        method("initialize", initialize),
        method("notifications/initialized", initialized),
        method("ping", lambda admitted, context: pong),
        method("server/discover", discover),
        method("tools/list", listing("tools")),
        method("resources/list", listing("resources")),
        method("resources/templates/list", listing("templates")),
        method("prompts/list", listing("prompts")),
        method("resources/subscribe", subscribe),
        method("resources/unsubscribe", unsubscribe),
        method("completion/complete", nothing_to_complete),
        method("logging/setLevel", set_level),
        method("notifications/roots/list_changed", roots_changed),
        method("subscriptions/listen", listen, kind="async", timeout=None, stream=True),
    )
    return {one.name: one for one in found}
