"""The calls in which a server may ask questions, from the first round trip to the result.

Rules:

- Most results come after one round trip, and are decoded once, straight into their type.
- If the server refuses the headers of a call, the tools are listed and the call is made again; if it demands that the
  user opens a URL first, the call is made again after that.
- A result of an extension is settled by the extension, within the call's total time. In stateless revisions it is
  recognised by its `resultType`, in stateful ones by a member.
- What is requested in order to settle a result may end in a result of an extension, too, `NESTED` levels deep.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from functools import partial
from time import monotonic
from typing import Any, Final, Generic, TypeVar

import msgspec
from msgspec import UNSET, Raw, Struct

from ...jsonrpc.errors import BadAnswer, CallTimeout, LocalError, RpcError
from ...rpc.binding.results import to_json
from ..protocol.encoding import READERS, decode, fit, members_of
from ..protocol.headers import mirror
from ..protocol.methods import HEADER_MISMATCH, URL_ELICITATION_REQUIRED, Row
from ..protocol.params import COMPLETE, INPUT_REQUIRED, CallToolResult
from .extending import ClientExtension, ClientExtensions, OutgoingCall, PendingResult
from .extension_client import ExtensionClient
from .handlers import QuestionHandlers
from .multi_round_trip import UrlElicitations, head, read, run_rounds
from .notifications import call_function
from .session import PATIENCE, CallPlan, ClientSession
from .tools import KnownTools

logger: logging.Logger = logging.getLogger("dragoman.mcp")

T = TypeVar("T")
TOOL = "tools/call"
NESTED: Final = 8
"""Results of extensions at most that are settled within each other: a server could answer each request of `settle` with
one more, without end."""
_nested: ContextVar[int] = ContextVar("dragoman.settling", default=0)
"""How many results are being settled around this code."""


class _ToolParams(Struct, omit_defaults=True):
    """The params of `tools/call`."""

    name: str
    arguments: Mapping[str, Any] | None = None


class _Call(Struct, Generic[T]):
    """One call whose result was not complete after one round trip. `kind`: the type of its usual result; `name`: that
    of the tool or prompt, or the URI."""

    method: str
    name: str | None
    kind: type[T]
    plan: CallPlan
    began: float
    """When its last round trip began, on the monotonic clock; 0 without a `total`."""
    tokens: list[int] | None
    """The progress tokens of its round trips; None: nobody needs them."""
    ask: bool = True
    """Whether the server may ask questions in it."""


class _Arguments(Struct):
    """The arguments in the params of `tools/call`."""

    arguments: dict[str, Any] | None = None


class ClientCalls:
    """Makes the calls of one client. `rounds`: how often the server may ask within one; `refresh`: lists the tools
    anew; `client_of(own)`: returns the client for an extension, with the functions of a call that answer questions."""

    def __init__(
        self,
        session: ClientSession,
        answering: QuestionHandlers,
        url_elicitations: UrlElicitations,
        tools: KnownTools,
        extensions: ClientExtensions,
        rounds: int,
        refresh: Callable[[], Awaitable[None]],
        client_of: Callable[[Mapping[str, Any] | None], ExtensionClient],
    ) -> None:
        self._session = session
        self._answering = answering
        self._url_elicitations = url_elicitations
        self._tools = tools
        self._rounds = rounds
        self._refresh = refresh
        self._extensions = extensions
        self._client_of = client_of
        self._preparing = extensions.preparing
        self._forms = [(b'"%b"' % form.member.encode(), kind, form) for kind, form in extensions.forms.items()]
        self._reports: dict[str | int, Callable[[Any], object]] = {}
        """The functions that get the progress of calls that extensions are settling, by the calls' tokens."""

    async def call_tool(
        self, name: str, arguments: Mapping[str, Any] | None, plan: CallPlan
    ) -> tuple[CallToolResult, Raw]:
        """Return a tool's result, checked against its output schema, and its JSON text."""
        body = to_json(_ToolParams(name, arguments))
        if self._preparing:
            body, plan = await self._prepare(TOOL, name, body, plan)
        known = self._tools.get(name)
        headers = mirror(known.marked, arguments) if known is not None and known.marked else None
        began = 0.0 if plan.total is None else monotonic()
        tokens, begun = self._tokens(plan)
        try:
            raw = await self._session.call(TOOL, body, name, plan, headers, begun)
        except RpcError as error:
            plan = await self._resolve_refusal(TOOL, error, plan, began)
            began = 0.0 if plan.total is None else monotonic()
            raw = await self._tool_again(name, arguments, plan, begun, body)
        complete = self._read_complete(raw, CallToolResult)
        if complete is not None:
            found = complete
        else:
            call = _Call(TOOL, name, CallToolResult, plan, began, tokens)
            trip = partial(self._tool_again, name, arguments, plan, begun)
            found, raw = await self._complete_and_read(call, raw, body, trip)
        if known is None and found.structured_content is not UNSET and not self._tools.listed:
            await self._list_schemas()
        if plan.meta is None or "fastmcp" not in plan.meta:  # another version may have another output schema
            self._tools.verify(name, found)
        return found, raw

    async def _tool_again(
        self,
        name: str,
        arguments: Mapping[str, Any] | None,
        plan: CallPlan,
        begun: Callable[[int], None] | None,
        body: bytes,
    ) -> Raw:
        """Make a further round trip of a tool's call."""
        return await self._session.call(TOOL, body, name, plan, self._tools.headers(name, arguments), begun)

    async def call_named(self, method: str, body: bytes, name: str, kind: type[T], plan: CallPlan) -> tuple[T, bool]:
        """Return the result of a prompt or resource, and whether it must not be cached, because the server asked
        questions before, or an extension settled it. `name`: the name or URI, for the HTTP headers."""
        if self._preparing:
            body, plan = await self._prepare(method, name, body, plan)
        tokens, begun = self._tokens(plan)

        async def trip(body: bytes) -> Raw:
            return await self._session.call(method, body, name, plan, None, begun)

        began = 0.0 if plan.total is None else monotonic()
        try:
            raw = await trip(body)
        except RpcError as error:
            plan = await self._resolve_refusal(method, error, plan, began)
            began = 0.0 if plan.total is None else monotonic()
            raw = await trip(body)
        complete = self._read_complete(raw, kind)
        if complete is not None:
            return complete, False
        found, whole = await self._complete_and_read(_Call(method, name, kind, plan, began, tokens), raw, body, trip)
        return found, whole is not raw

    async def _resolve_refusal(self, method: str, error: RpcError, plan: CallPlan, began: float) -> CallPlan:
        """Do what a refusal demands before the call is made again, and return the plan for that. Raises the refusal if
        it cannot be done, CallTimeout if the call's `total` is over meanwhile."""
        try:
            async with asyncio.timeout(None if plan.total is None else began + plan.total - monotonic()) as clock:
                await self._do_as_demanded(error, plan)
        except TimeoutError:
            if not clock.expired():
                raise
            raise CallTimeout(f"{method}: no result within {plan.total} s in all") from error
        if plan.total is None:
            return plan
        return msgspec.structs.replace(plan, total=max(began + plan.total - monotonic(), 0.001))

    async def _do_as_demanded(self, error: RpcError, plan: CallPlan) -> None:
        """List the tools for headers that were refused, or let the user open URLs. Raises any other refusal."""
        if error.code == HEADER_MISMATCH and self._session.http:
            # "the client SHOULD call `tools/list` to check for changes to the tool's `inputSchema`, then retry the
            # original request" (basic/transports/streamable-http)
            await self._refresh()
            return
        revision = self._session.era.revision
        urls = error.code == URL_ELICITATION_REQUIRED and revision.url_elicitation_error
        timeout = self._session.timeout if plan.timeout is UNSET else plan.timeout
        patience = PATIENCE if timeout is None else timeout
        answering = plan.answering or self._answering
        if not (urls and await self._url_elicitations.run(error, answering, revision, patience)):
            raise error

    async def _list_schemas(self) -> None:
        """List the tools once, for what is to be known of them; of a server that does not list them, nothing is."""
        try:
            await self._refresh()
        except (RpcError, BadAnswer) as error:
            logger.debug("tools/list: %s", error)
            self._tools.listed = True

    def _read_complete(self, raw: Raw, kind: type[T]) -> T | None:
        """Return the decoded result if it is complete, as most are after one round trip; None for others."""
        revision = self._session.era.revision
        if self._forms and revision.stateful and self._stateful_form(raw, kind) is not None:
            return None
        try:
            found: Any = READERS[kind](raw)
        except (msgspec.DecodeError, RecursionError):
            return None
        return found if found.result_type == COMPLETE or revision.server_calls else None

    async def request(self, row: Row, body: bytes, name: str | None, plan: CallPlan) -> Any:
        """Return the complete result of any method, as the type of its row."""
        assert row.result is not None
        return read(row.name, await self.request_raw(row, body, name, plan), row.result)

    async def request_raw(self, row: Row, body: bytes, name: str | None, plan: CallPlan) -> Raw:
        """Return the complete result of any method as the JSON text that came, after all rounds."""
        if self._preparing:
            body, plan = await self._prepare(row.name, name, body, plan)
        tokens, begun = self._tokens(plan)
        headers = None
        if row.name == TOOL and name is not None and (known := self._tools.get(name)) is not None and known.marked:
            headers = self._tools.headers(name, decode(body, _Arguments).arguments)

        async def trip(body: bytes) -> Raw:
            return await self._session.call(row.name, body, name, plan, headers, begun)

        assert row.result is not None
        began = 0.0 if plan.total is None else monotonic()
        raw = await trip(body)
        return await self._complete(_Call(row.name, name, row.result, plan, began, tokens, row.ask), raw, body, trip)

    # -- results that are not complete at once

    async def _complete_and_read(
        self, call: _Call[T], raw: Raw, body: bytes, trip: Callable[[bytes], Awaitable[Raw]]
    ) -> tuple[T, Raw]:
        """Return the complete result, and its JSON text. `raw`: the result of the first round trip; `body`: the params;
        `trip`: makes a further round trip with these params."""
        raw = await self._complete(call, raw, body, trip)
        return read(call.method, raw, call.kind), raw

    async def _complete(self, call: _Call[Any], raw: Raw, body: bytes, trip: Callable[[bytes], Awaitable[Raw]]) -> Raw:
        """Return the JSON text of the result after all rounds, and after an extension has settled it if need be; for
        the parameters see `_complete_and_read`."""
        revision, method, known = self._session.era.revision, call.method, self._extensions.declarations.results
        ended, kind = COMPLETE, None
        if not revision.server_calls:

            async def again(body: bytes) -> Raw:
                call.began = 0.0 if call.plan.total is None else monotonic()
                return await trip(body)

            if call.ask:
                answering = call.plan.answering or self._answering
                raw, ended = await run_rounds(method, raw, body, again, answering, revision, self._rounds, known)
            else:
                ended = head(method, raw, known).result_type
                if ended == INPUT_REQUIRED:
                    raise BadAnswer(f"{method}: the server must not ask here")
            if ended != COMPLETE:
                kind = known[ended].type
        elif self._forms and (form := self._stateful_form(raw, call.kind)) is not None:
            ended, kind = form
        if kind is not None:
            return await self._settle_by(self._extensions.settlers[ended], call, read(method, raw, kind))
        return raw

    def _stateful_form(self, raw: Raw, usual: Any) -> tuple[str, type[Struct]] | None:
        """Return the `resultType` and the type of a result of an extension in a stateful revision; None: it is the
        method's usual result.

        It is an extension's if it has the form's member, the usual type has no such member, and no member is there that
        the usual type requires."""
        text, revision = bytes(raw), self._session.era.revision
        for quoted, kind, form in self._forms:
            if quoted not in text or not form.within(revision) or form.member in members_of(usual):
                continue
            try:
                members = decode(raw, dict[str, Raw])
            except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
                return None
            if form.member in members and not any(
                field.required and field.encode_name in members for field in msgspec.structs.fields(usual)
            ):
                return kind, form.type
        return None

    async def _settle_by(self, settler: ClientExtension, call: _Call[Any], result: Struct) -> Raw:
        """Return the result that an extension's `settle` returns for one of its results, as JSON text. Raises what
        `settle` raises, CallTimeout at the end of the call's `total`, and BadAnswer for a result that is nested too
        deep."""
        nested = _nested.get()
        if nested >= NESTED:
            raise BadAnswer(f"{call.method}: a result of an extension again, while {nested} others are settled")
        plan, token = call.plan, call.tokens[-1] if call.tokens else None
        left = None if plan.total is None else max(call.began + plan.total - monotonic(), 0.001)
        pending = PendingResult(
            method=call.method,
            name=call.name,
            result=result,
            client=self._client_of(plan.own),
            total=left,
            on_progress=None if plan.receiver is None else partial(call_function, plan.receiver),
        )
        if token is not None and plan.on_progress is not None:
            self._reports[token] = plan.on_progress
        _nested.set(nested + 1)
        try:
            with self._session.settling(plan):
                async with asyncio.timeout(left) as clock:
                    found = await settler.settle(pending)
        except TimeoutError:
            if not clock.expired():
                raise
            raise CallTimeout(f"{call.method}: no result within {plan.total} s in all") from None
        finally:
            _nested.set(nested)
            if token is not None:
                self._reports.pop(token, None)
        return Raw(to_json(fit(found, self._session.era.revision)))

    def progressed(self, params: Raw) -> bool:
        """Report progress that came to the call that an extension is settling under its token; return False if there is
        none."""
        if not self._reports:
            return False
        progress = decode(params, dict[str, Any])
        token = progress.get("progressToken")
        report = self._reports.get(token) if isinstance(token, str | int) else None
        if report is None:
            return False
        report(progress)
        return True

    def _tokens(self, plan: CallPlan) -> tuple[list[int], Callable[[int], None]] | tuple[None, None]:
        """Return a list for the progress tokens of a call's round trips, and the function that adds one to it; None for
        both if no extension could need them."""
        if not self._extensions.settlers or plan.on_progress is None:
            return None, None
        tokens: list[int] = []
        return tokens, tokens.append

    # -- what extensions add

    async def _prepare(self, method: str, name: str | None, body: bytes, plan: CallPlan) -> tuple[bytes, CallPlan]:
        """Return the params of a call with the members that extensions add, and its plan with their members of
        `_meta`. Raises LocalError for what `prepare` returned in place of members, CallTimeout if the call's `total` is
        over while the tools are listed."""
        call = self._outgoing(method, name)
        if (
            method == TOOL
            and call.tool is None
            and not self._tools.listed
            and any(one.needs_tool(call) for one in self._preparing)
        ):
            try:
                async with asyncio.timeout(plan.total) as clock:
                    await self._list_schemas()
            except TimeoutError:
                if not clock.expired():
                    raise
                raise CallTimeout(f"{method}: no result within {plan.total} s in all") from None
            call = self._outgoing(method, name)
        added: dict[str, Any] = {}
        meta: dict[str, Any] = {}
        for one in self._preparing:
            given = one.prepare(call)
            if not isinstance(given, Mapping) or not isinstance(given.get("_meta") or {}, Mapping):
                where = f"{type(one).__name__}.prepare"
                raise LocalError(f"{where} returns the members to add, and `_meta` as a dict, not {given!r:.100}")
            members = dict(given)
            meta |= {key: value for key, value in (members.pop("_meta", None) or {}).items() if key != "progressToken"}
            added |= members
        if meta:
            plan = msgspec.structs.replace(plan, meta={**meta, **(plan.meta or {})})
        if added:
            body = to_json({**added, **decode(body, dict[str, Raw])})
        return body, plan

    def _outgoing(self, method: str, name: str | None) -> OutgoingCall:
        """Return a call as extensions see it before it is made."""
        era = self._session.era
        known = self._tools.get(name) if method == TOOL and name is not None else None
        tool = None if known is None else known.tool
        return OutgoingCall(method=method, name=name, revision=era.revision, capabilities=era.capabilities, tool=tool)
