"""The part of a client that its extensions may use, for the client or for one of its calls."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Unpack

from msgspec import UNSET, Raw, Struct, UnsetType

from ..protocol.revisions import Revision
from ..protocol.types import ServerCapabilities
from .session import ClientSession
from .subscriptions import Subscription

if TYPE_CHECKING:
    from ..protocol.params import CallToolResult
    from .options import OnProgress, VersionedOptions


class ClientFunctions(Struct, frozen=True, kw_only=True):
    """The functions of a client that its extensions may call: those of `Client` with the same names;
    `stream(method, params, begun)`, which makes a call that lasts; `answer(requests, own)`, which answers the server's
    questions by the functions `own` of a call, else by the client's; and `tool_result(name, raw, result)`, which reads
    a tool's result as `call_tool` does."""

    session: ClientSession
    call_tool: Callable[..., Awaitable[Any]]
    request: Callable[..., Awaitable[Any]]
    request_raw: Callable[..., Awaitable[Raw]]
    tool_result: Callable[[str | None, Raw, Any], Any]
    stream: Callable[[str, Any, Callable[[int], None]], Awaitable[Any]]
    notify: Callable[..., Awaitable[None]]
    subscribe: Callable[..., Subscription]
    answer: Callable[[Mapping[str, Any], Mapping[str, Any]], Awaitable[dict[str, Raw]]]


class ExtensionClient:
    """The part of a client that an extension may use. `own`: the functions of one call that answer the server's
    questions, by the names of their options. They also answer what the server asks within `request`."""

    def __init__(self, client: ClientFunctions, own: Mapping[str, Any] | None = None) -> None:
        self._client = client
        self._own: Mapping[str, Any] = own or {}

    @property
    def revision(self) -> Revision:
        """The revision in use. Raises LocalError before the client is entered, as `capabilities` does."""
        return self._client.session.era.revision

    @property
    def capabilities(self) -> ServerCapabilities:
        """What the server declared that it can do."""
        return self._client.session.era.capabilities

    @property
    def comes_back(self) -> bool:
        """Whether a request that failed for want of a connection may succeed later: there is a channel, or it may be
        opened again."""
        return self._client.session.comes_back

    async def request(
        self,
        method: str,
        params: Struct | Mapping[str, Any] | None = None,
        *,
        timeout: float | UnsetType | None = UNSET,
        total: float | None = None,
        on_progress: OnProgress | None = None,
    ) -> Any:
        """Call a method and return its result; `Client.request` describes the options, the result and the errors."""
        options: dict[str, Any] = {"timeout": timeout, "total": total, "on_progress": on_progress, **self._own}
        return await self._client.request(method, params, **options)

    async def request_raw(
        self,
        method: str,
        params: Struct | Mapping[str, Any] | None = None,
        *,
        timeout: float | UnsetType | None = UNSET,
        total: float | None = None,
    ) -> Raw:
        """Call a method and return the JSON text of its result, as `Client.request_raw` does."""
        return await self._client.request_raw(method, params, timeout=timeout, total=total, **self._own)

    async def call_tool(
        self, name: str, arguments: Mapping[str, Any] | None = None, **options: Unpack[VersionedOptions]
    ) -> CallToolResult:
        """Call a tool; `Client.call_tool` describes the options, the result and the errors."""
        found: CallToolResult = await self._client.call_tool(name, arguments, **{**self._own, **options})
        return found

    def tool_result(self, name: str | None, raw: Raw, result: Any = None) -> Any:
        """Return the result of a tool as `Client.call_tool` does: checked against the output schema, and as `result`.
        `name`: the tool's; None: it is not known, and not checked. Raises BadAnswer, ToolError."""
        return self._client.tool_result(name, raw, result)

    async def stream(
        self, method: str, params: Struct | Mapping[str, Any] | None = None, *, begun: Callable[[int], None]
    ) -> Any:
        """Make a call that lasts, without a time-out, and return its result. `begun`: called with the call's id before
        it is sent, and again if it is sent again in a new session; the notifications that come ahead of the result have
        the id in `_meta`, and go to `ClientExtension.heard`. The call ends when it is cancelled. Raises what `request`
        raises."""
        return await self._client.stream(method, params, begun)

    async def notify(self, method: str, params: Struct | Mapping[str, Any] | None = None) -> None:
        """Send a notification of an extension, as `Client.notify` does."""
        await self._client.notify(method, params)

    def subscribe(self, topics: Mapping[str, Any], *, again: bool = False) -> Subscription:
        """Subscribe to topics of extensions, as `Client.subscribe` does."""
        return self._client.subscribe(topics=topics, again=again)

    async def answer(self, requests: Mapping[str, Any]) -> dict[str, Raw]:
        """Answer questions of the server, by the functions of the call or of the client, and return the answers as JSON
        text, by the same keys. `requests`: JSON values or text, as in `inputRequests` (2026-07-28's
        basic/patterns/mrtr).

        Raises BadAnswer for questions that the server must not ask, or more than `limits.questions`; Declined if one
        was declined.
        """
        return await self._client.answer(requests, self._own)
