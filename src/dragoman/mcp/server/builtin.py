"""The methods that a server answers itself: the handshake, lists, log levels, subscriptions.

Each is a `Method` like any other, whose function takes `(admitted, context)` and returns a result as JSON text. Tools,
resources, prompts and completions have methods of their own (`handlers`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal

from msgspec import UNSET, Raw

from ...jsonrpc.errors import INVALID_REQUEST, InvalidParams, MethodNotFound, Refusal, RpcError
from ...rpc.context import Context
from ...rpc.method import Method, Passed
from ..protocol import dialect
from ..protocol.admission import LEVELS, Admitted, begun
from ..protocol.params import CompleteResult, Completion, DiscoverResult, EmptyResult, InitializeResult
from ..protocol.results import finish
from ..protocol.revisions import NEWEST_STATEFUL
from ..session.client_info import keep_client
from .capabilities import Capabilities
from .listing import Listing
from .registry import Registry
from .subscriptions import Subscriptions
from .surroundings import Surroundings


def method(
    name: str,
    function: Callable[[Admitted, Context], Any],
    *,
    kind: Literal["inline", "async", "thread"] = "inline",
    **more: Any,
) -> Method:
    """Return one of the server's own methods. `more`: further fields of `Method`."""
    passed = Passed(function, "async" if kind == "async" else "plain", shallow=True)
    quick = kind == "inline"
    return Method(name, passed, kind, quick=quick, runs_inline=quick, **more)


def error_method(name: str, error: RpcError) -> Method:
    """Return a method of this name that answers with this error."""

    def fail(admitted: Admitted, context: Context) -> Any:
        raise error

    return method(name, fail)


_NEW_SESSION: Final = Refusal("cancelled", "Request cancelled: `initialize` began a new session on this channel")


class _Builtin:
    """The functions of the server's own methods."""

    def __init__(
        self,
        surroundings: Surroundings,
        registry: Registry,
        subscriptions: Subscriptions,
        capabilities: Capabilities,
    ) -> None:
        self._options, self._stamp = surroundings.options, surroundings.stamp
        self._registry = registry
        self._subscriptions = subscriptions
        self._capabilities = capabilities
        self._instructions = UNSET if self._options.instructions is None else self._options.instructions

    def _empty(self, admitted: Admitted) -> Raw:
        return finish(EmptyResult(), admitted.revision, self._stamp)

    def initialize(self, admitted: Admitted, context: Context) -> Raw:
        peer: Any = context.peer
        if peer is None:
            raise RpcError.of(INVALID_REQUEST, "Invalid Request: this wire carries single messages and no session")
        if peer.state is not None:
            self._begin_again(peer)
        session = begun(admitted)
        if not getattr(peer._channel, "counts", False):
            budget, limits = peer._runner.call_limit.budget, peer._limits
            if (refusal := keep_client(session, context.caller.owner, budget, limits)) is not None:
                raise dialect.MCP.error(refusal)
        peer.state = session
        peer._dialect = dialect.of(session.revision)
        result = InitializeResult(
            protocol_version=session.revision.date,
            capabilities=self._capabilities.written_for(session.revision),
            server_info=self._stamp.info,
            instructions=self._instructions,
        )
        return finish(result, session.revision, self._stamp)

    def _begin_again(self, peer: Any) -> None:
        """Forget the earlier session of a channel whose client begins anew, as behind a bridge that keeps one server
        for many clients. Calls that still run in it are answered with a refusal."""
        before = peer.state
        self._subscriptions.leave(peer)
        peer.begin_again(lambda message: getattr(message.params, "session", None) is before, _NEW_SESSION)

    def initialized(self, admitted: Admitted, context: Context) -> None:
        if admitted.session is not None:
            self._subscriptions.join(context.peer)

    def discover(self, admitted: Admitted, context: Context) -> Raw:
        result = DiscoverResult(
            supported_versions=self._options.offered.dates,
            capabilities=self._capabilities.written_for(admitted.revision),
            instructions=self._instructions,
            ttl_ms=int(self._options.ttl * 1000),
            cache_scope=self._options.cache_scope,
        )
        return finish(result, admitted.revision, self._stamp)

    def listing(self, kind: Listing) -> Callable[[Admitted, Context], Raw]:
        return lambda admitted, context: self._registry.page(
            kind, admitted.revision, context.caller, admitted.params.cursor, admitted.capabilities
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
        self._subscriptions.subscribe(admitted, context.peer, admitted.params.uri, context.caller)
        return self._empty(admitted)

    def unsubscribe(self, admitted: Admitted, context: Context) -> Raw:
        self._subscriptions.unsubscribe(admitted, context.peer, admitted.params.uri)
        return self._empty(admitted)

    def nothing_to_complete(self, admitted: Admitted, context: Context) -> Raw:
        if self._capabilities.stateful().completions is UNSET:
            # "Method not found: `-32601` (Capability not supported)" (server/utilities/completion)
            raise MethodNotFound
        return finish(CompleteResult(completion=Completion([])), admitted.revision, self._stamp)

    async def listen(self, admitted: Admitted, context: Context) -> Raw:
        return await self._subscriptions.listen(admitted, context)


def methods(
    surroundings: Surroundings,
    registry: Registry,
    subscriptions: Subscriptions,
    capabilities: Capabilities,
) -> dict[str, Method]:
    """Return the server's own methods by name."""
    pong = finish(EmptyResult(), NEWEST_STATEFUL, surroundings.stamp)
    own = _Builtin(surroundings, registry, subscriptions, capabilities)
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
