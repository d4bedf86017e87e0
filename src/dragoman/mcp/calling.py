"""The three calls in which a server may ask, from the first round trip to the result.

Rules:

- Most results are there after one round trip, and are decoded once, straight into their type.
- A call whose headers the server found wrong is made again with the tools it has now; one that sends the user to a
  URL first, when he has been there.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, Raw, Struct

from ..jsonrpc.errors import BadAnswer, RpcError
from ..rpc.results import to_json
from .answering import Answering
from .encoding import decode
from .far import PATIENCE, Far, How
from .headers import mirror
from .known_tools import KnownTools
from .methods import HEADER_MISMATCH, URL_ELICITATION_REQUIRED
from .params import COMPLETE, CallToolResult
from .rounds import Errands, answered, read

logger = logging.getLogger("dragoman.mcp")

T = TypeVar("T")
TOOL = "tools/call"


class _Tool(Struct, omit_defaults=True):
    name: str
    arguments: Mapping[str, Any] | None = None


class Calls:
    """Calls of one client. `refresh`: list the tools anew."""

    def __init__(
        self,
        far: Far,
        answering: Answering,
        errands: Errands,
        tools: KnownTools,
        *,
        rounds: int,
        refresh: Callable[[], Awaitable[None]],
    ) -> None:
        self._far = far
        self._answering = answering
        self._errands = errands
        self._tools = tools
        self._rounds = rounds
        self._refresh = refresh

    async def tool(self, name: str, arguments: Mapping[str, Any] | None, how: How) -> tuple[CallToolResult, Raw]:
        """A tool's result, checked against its output schema, and its JSON text."""
        body = to_json(_Tool(name, arguments))
        known = self._tools.get(name)
        headers = mirror(known.marked, arguments) if known is not None and known.marked else None
        try:
            raw = await self._far.call(TOOL, body, name, how, headers)
        except RpcError as error:
            await self._helped(error)
            raw = await self._far.call(TOOL, body, name, how, self._tools.headers(name, arguments))
        at_once = self._at_once(raw, CallToolResult)
        if at_once is not None:
            found = at_once
        else:

            async def trip(body: bytes) -> Raw:
                return await self._far.call(TOOL, body, name, how, self._tools.headers(name, arguments))

            found, raw = await self._settled(TOOL, raw, body, CallToolResult, trip)
        if known is None and found.structured_content is not UNSET and not self._tools.listed:
            await self._schemas()
        self._tools.verify(name, found)
        return found, raw

    async def named(self, method: str, body: bytes, name: str, kind: type[T], how: How) -> tuple[T, bool]:
        """The result of another call by name, and whether the server asked on the way."""

        async def trip(body: bytes) -> Raw:
            return await self._far.call(method, body, name, how)

        try:
            raw = await trip(body)
        except RpcError as error:
            await self._helped(error)
            raw = await trip(body)
        at_once = self._at_once(raw, kind)
        if at_once is not None:
            return at_once, False
        found, whole = await self._settled(method, raw, body, kind, trip)
        return found, whole is not raw

    async def _helped(self, error: RpcError) -> None:
        """Do what helps against a refusal. Raises it where nothing does."""
        if error.code == HEADER_MISMATCH and self._far.http:
            # "the client SHOULD call `tools/list` to check for changes to the tool's `inputSchema`, then retry the
            # original request" (basic/transports/streamable-http)
            await self._refresh()
            return
        revision = self._far.era.revision
        urls = error.code == URL_ELICITATION_REQUIRED and revision.url_elicitation_error
        if not (urls and await self._errands.run(error, self._answering, revision, PATIENCE)):
            raise error

    async def _schemas(self) -> None:
        """Learn the output schemas, once; a server that does not list its tools has none."""
        try:
            await self._refresh()
        except (RpcError, BadAnswer) as error:
            logger.debug("tools/list: %s", error)
            self._tools.listed = True

    def _at_once(self, raw: Raw, kind: type[T]) -> T | None:
        """A result that is one already, which is what most are."""
        try:
            found: Any = decode(raw, kind)
        except (msgspec.DecodeError, RecursionError):
            return None
        return found if found.result_type == COMPLETE or self._far.era.revision.server_calls else None

    async def _settled(
        self, method: str, raw: Raw, body: bytes, kind: type[T], trip: Callable[[bytes], Awaitable[Raw]]
    ) -> tuple[T, Raw]:
        """A result, after the rounds that it takes, and its text."""
        revision = self._far.era.revision
        if not revision.server_calls:
            raw, _ = await answered(method, raw, body, trip, self._answering, revision, self._rounds)
        return read(method, raw, kind), raw
