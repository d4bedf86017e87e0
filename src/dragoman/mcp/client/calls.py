"""The calls in which a server may ask questions, from the first round trip to the result.

Rules:

- Most results come after one round trip, and are decoded once, straight into their type.
- If the server refuses the headers of a call, the tools are listed and the call is made again; if it sends the user to
  a URL first, the call is made again after the URL was opened.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from time import monotonic
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, Raw, Struct

from ...jsonrpc.errors import BadAnswer, CallTimeout, RpcError
from ...rpc.binding.results import to_json
from ..protocol.encoding import READERS, decode, fit
from ..protocol.headers import mirror
from ..protocol.methods import HEADER_MISMATCH, URL_ELICITATION_REQUIRED, Row
from ..protocol.params import COMPLETE, INPUT_REQUIRED, CallToolResult
from .extending import ClientExtensions, ExtensionClient, PendingResult
from .handlers import QuestionHandlers
from .multi_round_trip import UrlElicitations, head, read, run_rounds
from .session import PATIENCE, CallPlan, ClientSession
from .tools import KnownTools

logger: logging.Logger = logging.getLogger("dragoman.mcp")

T = TypeVar("T")
TOOL = "tools/call"


class _Tool(Struct, omit_defaults=True):
    name: str
    arguments: Mapping[str, Any] | None = None


class _Arguments(Struct):
    arguments: dict[str, Any] | None = None


class ClientCalls:
    """The calls of one client. `rounds`: how often the server may ask within one; `refresh`: lists the tools anew;
    `client`: the client, for extensions."""

    def __init__(
        self,
        session: ClientSession,
        answering: QuestionHandlers,
        url_elicitations: UrlElicitations,
        tools: KnownTools,
        extensions: ClientExtensions,
        rounds: int,
        refresh: Callable[[], Awaitable[None]],
        client: ExtensionClient,
    ) -> None:
        self._session = session
        self._answering = answering
        self._url_elicitations = url_elicitations
        self._tools = tools
        self._rounds = rounds
        self._refresh = refresh
        self._extensions = extensions
        self._client = client

    async def call_tool(
        self, name: str, arguments: Mapping[str, Any] | None, plan: CallPlan
    ) -> tuple[CallToolResult, Raw]:
        """Return a tool's result, checked against its output schema, and its JSON text."""
        body = to_json(_Tool(name, arguments))
        known = self._tools.get(name)
        headers = mirror(known.marked, arguments) if known is not None and known.marked else None
        began = 0.0 if plan.total is None else monotonic()
        try:
            raw = await self._session.call(TOOL, body, name, plan, headers)
        except RpcError as error:
            plan = await self._resolve_refusal(TOOL, error, plan, began)
            raw = await self._tool_again(name, arguments, plan, body)
        at_once = self._at_once(raw, CallToolResult)
        if at_once is not None:
            found = at_once
        else:
            trip = partial(self._tool_again, name, arguments, plan)
            found, raw = await self._settle(TOOL, raw, body, CallToolResult, trip)
        if known is None and found.structured_content is not UNSET and not self._tools.listed:
            await self._list_schemas()
        if plan.meta is None or "fastmcp" not in plan.meta:  # another version may have another output schema
            self._tools.verify(name, found)
        return found, raw

    async def _tool_again(self, name: str, arguments: Mapping[str, Any] | None, plan: CallPlan, body: bytes) -> Raw:
        """Make a further round trip of a tool's call."""
        return await self._session.call(TOOL, body, name, plan, self._tools.headers(name, arguments))

    async def call_named(self, method: str, body: bytes, name: str, kind: type[T], plan: CallPlan) -> tuple[T, bool]:
        """Return the result of a prompt or resource, and whether the server asked questions before. `name`: the name or
        URI, for the HTTP headers."""

        async def trip(body: bytes) -> Raw:
            return await self._session.call(method, body, name, plan)

        began = 0.0 if plan.total is None else monotonic()
        try:
            raw = await trip(body)
        except RpcError as error:
            plan = await self._resolve_refusal(method, error, plan, began)
            raw = await trip(body)
        at_once = self._at_once(raw, kind)
        if at_once is not None:
            return at_once, False
        found, whole = await self._settle(method, raw, body, kind, trip)
        return found, whole is not raw

    async def _resolve_refusal(self, method: str, error: RpcError, plan: CallPlan, began: float) -> CallPlan:
        """Do what a refusal demands, and return the plan with which to call again. Raises the refusal if that is not
        possible, CallTimeout if the call's `total` is over meanwhile."""
        try:
            async with asyncio.timeout(None if plan.total is None else began + plan.total - monotonic()) as clock:
                await self._do_as_refused(error, plan)
        except TimeoutError:
            if not clock.expired():
                raise
            raise CallTimeout(f"{method}: no result within {plan.total} s in all") from error
        if plan.total is None:
            return plan
        return msgspec.structs.replace(plan, total=max(began + plan.total - monotonic(), 0.001))

    async def _do_as_refused(self, error: RpcError, plan: CallPlan) -> None:
        if error.code == HEADER_MISMATCH and self._session.http:
            # "the client SHOULD call `tools/list` to check for changes to the tool's `inputSchema`, then retry the
            # original request" (basic/transports/streamable-http)
            await self._refresh()
            return
        revision = self._session.era.revision
        urls = error.code == URL_ELICITATION_REQUIRED and revision.url_elicitation_error
        timeout = self._session.timeout if plan.timeout is UNSET else plan.timeout
        patience = PATIENCE if timeout is None else timeout
        if not (urls and await self._url_elicitations.run(error, self._answering, revision, patience)):
            raise error

    async def _list_schemas(self) -> None:
        """List the tools once, for their output schemas; a server that does not list its tools has none."""
        try:
            await self._refresh()
        except (RpcError, BadAnswer) as error:
            logger.debug("tools/list: %s", error)
            self._tools.listed = True

    def _at_once(self, raw: Raw, kind: type[T]) -> T | None:
        """Return a result that is complete after one round trip, as most are; None for others."""
        try:
            found: Any = READERS[kind](raw)
        except (msgspec.DecodeError, RecursionError):
            return None
        return found if found.result_type == COMPLETE or self._session.era.revision.server_calls else None

    async def _settle(
        self, method: str, raw: Raw, body: bytes, kind: type[T], trip: Callable[[bytes], Awaitable[Raw]]
    ) -> tuple[T, Raw]:
        """Return the result after all rounds, and its JSON text."""
        revision = self._session.era.revision
        if not revision.server_calls:
            known = self._extensions.those.results
            raw, ended = await run_rounds(method, raw, body, trip, self._answering, revision, self._rounds, known)
            raw = await self._complete(method, raw, ended)
        return read(method, raw, kind), raw

    async def _complete(self, method: str, raw: Raw, ended: str) -> Raw:
        """Return the complete result; if the call ended in an extension's result, the extension settles it."""
        if ended == COMPLETE:
            return raw
        result = read(method, raw, self._extensions.those.results[ended].type)
        pending = PendingResult(method, result, self._client)
        return Raw(to_json(fit(await self._extensions.settlers[ended].settle(pending), self._session.era.revision)))

    async def request(self, row: Row, body: bytes, name: str | None, plan: CallPlan) -> Any:
        """Return the result of any method, as the type of its row."""

        async def trip(body: bytes) -> Raw:
            return await self._session.call(row.name, body, name, plan)

        assert row.result is not None
        raw = await trip(body)
        if row.ask:
            return (await self._settle(row.name, raw, body, row.result, trip))[0]
        ended = head(row.name, raw, self._extensions.those.results).result_type
        if ended == INPUT_REQUIRED:
            raise BadAnswer(f"{row.name}: the server must not ask here")
        return read(row.name, await self._complete(row.name, raw, ended), row.result)

    async def request_raw(self, row: Row, body: bytes, name: str | None, plan: CallPlan) -> Raw:
        """Return the complete result of any method as the JSON text that came, after all rounds."""
        headers = None
        if row.name == TOOL and name is not None and (known := self._tools.get(name)) is not None and known.marked:
            headers = self._tools.headers(name, decode(body, _Arguments).arguments)

        async def trip(body: bytes) -> Raw:
            return await self._session.call(row.name, body, name, plan, headers)

        raw, revision, types = await trip(body), self._session.era.revision, self._extensions.those.results
        if row.ask and not revision.server_calls:
            raw, ended = await run_rounds(row.name, raw, body, trip, self._answering, revision, self._rounds, types)
        elif (ended := head(row.name, raw, types).result_type) == INPUT_REQUIRED:
            raise BadAnswer(f"{row.name}: the server must not ask here")
        return await self._complete(row.name, raw, ended)
