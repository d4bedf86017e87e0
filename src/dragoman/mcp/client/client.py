"""The client: lets a program use a server's tools, resources and prompts, in either era.

    async with Client("http://127.0.0.1:8000/mcp") as client:
        result = await client.call_tool("forecast", {"city": "Beijing"})

Rules:

- One client is one server on one channel, at a URL, started by a command, or a `Server` object.
- A call is the same method in both eras: the given functions answer the questions that the server asks meanwhile.
- Errors are those of dragoman's core: RpcError, CallTimeout, BadAnswer, ChannelError, LocalError.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar, Unpack, overload

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from ...channel import Attachable, Options, Serves, servable
from ...credentials import Auth
from ...jsonrpc.errors import BadAnswer, LocalError, MethodNotFound
from ...jsonrpc.leniency import Leniency, chosen, without_v1
from ...jsonrpc.limits import CLIENT, Limits
from ...jsonrpc.options import among, check, nearest, nearest_name, only_async, strict
from ...net.urls import shown_target
from ...observer import Observer
from ...rpc.background import needs_asyncio
from ...rpc.binding.results import result_decoder, to_json
from ..protocol.entry_versions import asking
from ..protocol.errors import ToolError
from ..protocol.extension import Extension
from ..protocol.methods import Row
from ..protocol.params import (
    CallToolResult,
    CompleteResult,
    Completion,
    DiscoverResult,
    GetPromptResult,
    ListPromptsResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ListToolsResult,
    PromptReference,
    ReadResourceResult,
    ResourceTemplateReference,
)
from ..protocol.revisions import REVISIONS, Revision
from ..protocol.types import (
    Implementation,
    LoggingLevel,
    Prompt,
    Resource,
    ResourceTemplate,
    ServerCapabilities,
    Tool,
)
from ..protocol.uri import normal
from .cache import Cache, pages
from .calls import ClientCalls
from .extending import ClientExtension, check_extensions
from .extension_client import ClientFunctions, ExtensionClient
from .extension_functions import ExtensionFunctions
from .handlers import OWN_HANDLERS, AnswerOptions, OnElicit, OnSample, QuestionHandlers, RootsSource
from .multi_round_trip import ROUNDS, UrlElicitations, answer_questions, complete_result, read
from .negotiation import PROBE, ClientProfile
from .notifications import NotificationRouter, OnLog, OnNotification, progress_receiver
from .options import CLIENT_OPTIONS, HANDLER_OPTIONS, OnProgress, RequestOptions, VersionedOptions
from .session import ENDLESS_CALL, LONGEST, PLAIN_CALL, WITH_PROGRESS, CallPlan, ClientSession, SessionOptions
from .subscriptions import ClientSubscriptions, Subscription
from .tools import KnownTools, convert_result

if TYPE_CHECKING:
    from ssl import SSLContext

    from ...rpc.tracing import Hook
else:
    SSLContext = Hook = Any  # start-up: annotations resolve at run time, to no more than this

T = TypeVar("T")
E = TypeVar("E", bound=ClientExtension)
_TOKEN = "progressToken"
_LISTS: Final = {
    "tools/list": "tools",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
    "prompts/list": "prompts",
}
"""The member of the result of each list."""
_anything = result_decoder(Any)
_members = msgspec.json.Decoder(dict[str, Raw]).decode


class Client:
    """A client of one MCP server.

    `target`: a URL (http(s):, ws(s):, tcp:, unix:, stdio:), a command as a list or a string, or a `Server` in this
    process. `name`, `version`, `title`: this client's own. `revision`: speak only this one (its date, or a `Revision`).
    `timeout`: seconds per call without an answer or progress (None: for ever).

    `on_elicit`, `on_elicit_url`, `on_sample`, `roots`: functions that answer the server, see `handlers`; each declares
    its capability. `sample_tools`: whether `on_sample` handles tools. `extensions`: used if the server declares them
    too. `on_log`, `on_progress`, `on_notification`: plain or async functions, called on the loop with what the server
    sends.
    `cache`: keep lists and resources as long as the server allows. `restart`: connect again (start the command again)
    at the next call after the server was lost. `rounds`: how often a server may ask within one call. `probe`: seconds
    without an answer after which a server on a stream counts as one of the stateful era. `lenient=True`: accept
    messages beyond the specifications, such as null for absent members and words for the codes of errors; a
    `jsonrpc.Leniency` chooses some of these.

    The same as for `dragoman.connect`: `limits`, `trace`, `observers`, `tls`, `headers`, `auth`, `env`, `env_inherit`,
    `cwd` and `stderr`. Entering raises ChannelError, CallTimeout, RpcError or BadAnswer if there is no such server, or
    no common revision."""

    @strict("Client")
    def __init__(
        self,
        target: str | Sequence[str] | Serves | Attachable,
        *,
        name: str = "dragoman",
        version: str = "0.0.0",
        title: str | None = None,
        revision: Revision | str | None = None,
        timeout: float | None = 30.0,
        on_elicit: OnElicit | None = None,
        on_elicit_url: OnElicit | None = None,
        on_sample: OnSample | None = None,
        sample_tools: bool = False,
        roots: RootsSource | None = None,
        extensions: Sequence[Extension | ClientExtension] = (),
        on_log: OnLog | None = None,
        on_progress: OnProgress | None = None,
        on_notification: OnNotification | None = None,
        cache: bool = True,
        restart: bool = False,
        rounds: int = ROUNDS,
        probe: float = PROBE,
        lenient: Leniency | bool = False,
        limits: Limits | None = None,
        trace: Hook | None = None,
        observers: Sequence[Observer] = (),
        tls: SSLContext | None = None,
        headers: Mapping[str, str] | None = None,
        auth: Auth = None,
        env: Mapping[str, str] | None = None,
        env_inherit: bool = False,
        cwd: str | None = None,
        stderr: Callable[[str], None] | None = None,
    ) -> None:
        check("Client", CLIENT_OPTIONS, given := locals())
        leniency = without_v1("Client", chosen(lenient))
        self._answering = QuestionHandlers(
            among(AnswerOptions, given), questions=(limits or CLIENT).questions, lenient=leniency
        )
        self._limits = limits or CLIENT
        self._on_progress = on_progress
        self._cache = Cache(keeps=cache)
        self._extensions = check_extensions(extensions)
        known = self._tools = KnownTools(whole=bool(self._extensions.preparing))
        urls = UrlElicitations()
        info = Implementation(name, version, title=UNSET if title is None else title)
        wire = among(Options, given, limits=limits or CLIENT, client_tls=tls, headers=headers or {}, subprotocol="mcp")
        profile = ClientProfile(info, self._answering, self._extensions.declarations)
        terms = among(SessionOptions, given, wire=wire, revision=_revision(revision), lenient=leniency)
        self._named = shown_target(target)
        self._opened = AsyncExitStack()
        """The context managers of extensions."""
        session = self._session = ClientSession(servable(target), profile, terms)
        subscriptions = self._subscriptions = ClientSubscriptions(session)
        router = NotificationRouter(
            self._cache,
            known,
            subscriptions,
            urls,
            on_log,
            on_notification,
            leniency,
            self._extensions.declarations.methods,
        )
        self._assemble(router, urls, rounds)
        self._default_plan = PLAIN_CALL if timeout is None else WITH_PROGRESS
        """The plan of a call without options."""

    def _assemble(self, router: NotificationRouter, urls: UrlElicitations, rounds: int) -> None:
        """Make the part that makes calls, and link the parts that receive messages."""
        session = self._session
        used = ClientFunctions(
            session=session,
            call_tool=self.call_tool,
            request=self.request,
            request_raw=self.request_raw,
            tool_result=self._tool_result,
            stream=self._stream,
            notify=self.notify,
            subscribe=self.subscribe,
            answer=self._answer,
        )
        self._calls = ClientCalls(
            session,
            self._answering,
            urls,
            self._tools,
            self._extensions,
            rounds,
            self._refresh,
            lambda own: ExtensionClient(used, own),
        )
        self._extension_client = ExtensionClient(used)
        for one in self._extensions.functions:
            one.attach(self._extension_client)
        functions = ExtensionFunctions(self._extensions, self._extension_client, lambda: session.spoken)
        router.hear, router.progressed = functions.hear, self._calls.progressed
        session.answer_extension = functions.answer
        session.on_notification = router.route
        session.renewed = self._renewed
        session.lost = self._lost
        session.reauthorized = self._cache.clear

    def __repr__(self) -> str:
        return f"<mcp.Client {self._named}>"

    # -- life

    if not TYPE_CHECKING:
        __enter__ = __exit__ = only_async("Client(...)", "; mcp.client.blocking.connect(...) blocks")

    async def __aenter__(self) -> Client:
        needs_asyncio("Client(...)")
        await self._session.open()
        try:
            for one in self._extensions.opening:
                if (opened := one.connected(self._extension_client)) is not None:
                    await self._opened.enter_async_context(opened)
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """End every subscription and the channel; a command gets end of file, then SIGTERM, then SIGKILL."""
        try:
            await self._opened.aclose()
        finally:
            await self._subscriptions.close()
            await self._session.close()

    @property
    def revision(self) -> Revision:
        """The revision in use. Raises LocalError before the client is entered, as the next three properties do."""
        return self._session.era.revision

    @property
    def server(self) -> Implementation | None:
        """How the server names itself; for display and logs only."""
        return self._session.era.server

    @property
    def capabilities(self) -> ServerCapabilities:
        """What the server declared that it can do (basic/lifecycle); what it did not declare is UNSET."""
        return self._session.era.capabilities

    @property
    def instructions(self) -> str | None:
        """How a model should use the server, as text; None where the server says nothing."""
        return self._session.era.instructions

    # -- lists

    async def list_tools(self) -> list[Tool]:
        """Return all tools, from all pages (server/tools); from the cache as long as the server allows. Over HTTP tools
        whose `x-mcp-header` is invalid are left out. Raises what `call` raises; MethodNotFound from a server without
        this method."""
        found = await self._list("tools/list", ListToolsResult, lambda page: page.tools, self._learn)
        self._tools.complete(found)
        return found

    async def list_resources(self) -> list[Resource]:
        """Return all resources, from all pages (server/resources), as `list_tools`."""
        return await self._list("resources/list", ListResourcesResult, lambda page: page.resources)

    async def list_resource_templates(self) -> list[ResourceTemplate]:
        """Return all resource templates, from all pages, as `list_tools`; empty if the server has no such method."""
        method = "resources/templates/list"
        try:
            return await self._list(method, ListResourceTemplatesResult, lambda page: page.resource_templates)
        except MethodNotFound:  # servers of the SDK 1.x that have resources but no templates
            return []

    async def list_prompts(self) -> list[Prompt]:
        """Return all prompts, from all pages (server/prompts), as `list_tools`."""
        return await self._list("prompts/list", ListPromptsResult, lambda page: page.prompts)

    async def list_raw(self, method: str) -> list[Raw]:
        """Return all entries of a list, from all pages, each as the JSON text that came, with every member. `method`:
        "tools/list", "resources/list", "resources/templates/list" or "prompts/list". Nothing is left out, checked or
        cached. Raises what `list_tools` raises, LocalError for another method."""
        if method not in _LISTS:
            raise LocalError(f"{method!r} lists no entries; {nearest(method, _LISTS)}")

        async def page(cursor: str | None) -> tuple[list[Raw], str | None, int]:
            raw = await self.request_raw(method, None if cursor is None else {"cursor": cursor})
            try:
                found = _members(raw)
                items = msgspec.json.decode(found[_LISTS[method]], type=list[Raw])
                following: str | None = msgspec.json.decode(found.get("nextCursor", b"null"), type=str | None)
            except (KeyError, msgspec.DecodeError, RecursionError) as error:
                raise BadAnswer(f"{method}: the result does not fit: {error}") from error
            return [one.copy() for one in items], following, len(raw)

        return await pages(method, page, lambda: None, limits=self._limits)

    async def _refresh(self) -> None:
        self._cache.drop("tools/list")
        await self.list_tools()

    def _learn(self, tools: list[Tool]) -> list[Tool]:
        return self._tools.learn(tools, headers=self._session.http and self.revision.routing_headers)

    async def _list(
        self, method: str, kind: type[Any], items: Callable[[Any], list[T]], sift: Callable[[list[T]], list[T]] = list
    ) -> list[T]:
        async def page(cursor: str | None) -> tuple[list[T], str | None, int]:
            kept: tuple[list[T], str | None, int] | None = self._cache.get(method, cursor)
            if kept is not None:
                return kept
            changes = self._cache.changes(method)
            body = b"{}" if cursor is None else msgspec.json.encode({"cursor": cursor})
            raw = await self._session.call(method, body)
            found = complete_result(method, raw, kind)
            following = None if found.next_cursor is UNSET else found.next_cursor
            fresh = (sift(items(found)), following, len(raw))
            self._cache.put(method, cursor, fresh, found.ttl_ms, changes, len(raw))
            return fresh

        return await pages(method, page, lambda: self._cache.drop(method), limits=self._limits)

    # -- calls

    async def request(
        self,
        method: str,
        params: Struct | Mapping[str, Any] | None = None,
        **options: Unpack[RequestOptions],
    ) -> Any:
        """Call a method of the protocol, or of an extension of this client, by its name. The options are those of
        `call_tool`. Returns the result as the type of the method's row.

        Raises LocalError for a method that a client cannot call in the revision in use, and for params without the
        member that the row's method repeats in a header.
        """
        return await self._calls.request(*self._request("request", method, params, options))

    async def request_raw(
        self,
        method: str,
        params: Struct | Mapping[str, Any] | Raw | None = None,
        **options: Unpack[RequestOptions],
    ) -> Raw:
        """Call a method as `request` does, and return the complete result as the JSON text that came, with every
        member, after questions of the server were answered. `params` may be the JSON text of an object. The result is
        not checked, and not cached.

        Raises what `request` raises.
        """
        return await self._calls.request_raw(*self._request("request_raw", method, params, options))

    def _request(
        self, caller: str, method: str, params: Struct | Mapping[str, Any] | Raw | None, options: RequestOptions
    ) -> tuple[Row, bytes, str | None, CallPlan]:
        """Return the row of a method, the params without `_meta`, the name in them, and the plan of the call."""
        row = self._extensions.declarations.methods.get(method)
        if row is None or row.result is None or row.direction == "server" or not row.within(self.revision):
            raise self._unknown("method", method)
        body, meta = _split_meta(method, params, options.get("meta"))
        name = None if row.named is None else _named(method, row.named, body)
        return row, body, name, self._plan(caller, {**options, "meta": meta}, RequestOptions)

    async def _stream(
        self, method: str, params: Struct | Mapping[str, Any] | None, begun: Callable[[int], None]
    ) -> Any:
        """Make a call of an extension that lasts; `ExtensionClient.stream` describes it."""
        row, body, name, plan = self._request("request", method, params, {"timeout": None})
        assert row.result is not None
        endless = msgspec.structs.replace(ENDLESS_CALL, meta=plan.meta)
        raw = await self._session.call(row.name, body, name, endless, None, begun)
        return complete_result(row.name, raw, row.result)

    async def notify(self, method: str, params: Struct | Mapping[str, Any] | None = None) -> None:
        """Send a notification of an extension of this client. The `_meta` that the era requires is added.

        Raises LocalError for a notification that no extension declares for clients in the revision in use, and for
        those of the protocol, which this client sends by itself; ChannelError when the channel is lost, or over HTTP
        the server refuses it.
        """
        row = self._extensions.declarations.methods.get(method)
        if (
            row is None
            or row.result is not None
            or row.direction == "server"
            or not row.within(self.revision)
            or self._extensions.declarations.of_method(method) is None
        ):
            raise self._unknown("notification", method)
        body, meta = _split_meta(method, params, None)
        await self._session.notify(method, body, meta)

    def _unknown(self, what: str, method: str) -> LocalError:
        """Return the error for a method or notification that a client cannot send."""
        near = nearest_name(method, self._extensions.declarations.methods)
        whose = "this client and its extensions know" if what == "method" else "extensions of this client send"
        return LocalError(
            f"{method} is not a {what} of {self.revision.date} that {whose}"
            f"{(near and near != method and f'; did you mean {near}?') or ''}"
        )

    def extension(self, kind: type[E]) -> E:
        """Return this client's extension of a class, which has functions of its own, as in
        `client.extension(TasksClient).start("train")`. Raises LocalError if it has none."""
        for one in self._extensions.functions:
            if isinstance(one, kind):
                return one
        raise LocalError(f"this client has no {kind.__name__}: Client(..., extensions=[{kind.__name__}(...)])")

    async def _answer(self, requests: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Raw]:
        """Answer the questions that an extension got; `own`: the options of its call that answer them."""
        answering = self._answering.with_own(own) if own else self._answering
        return await answer_questions(requests, answering, self.revision)

    @overload
    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = ...,
        *,
        result: None = ...,
        **options: Unpack[VersionedOptions],
    ) -> CallToolResult: ...
    @overload
    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = ...,
        *,
        result: type[T],
        **options: Unpack[VersionedOptions],
    ) -> T: ...
    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        result: Any = None,
        **options: Unpack[VersionedOptions],
    ) -> Any:
        """Call a tool. `result`: the type of its structured content, which is returned then.

        `timeout` (default: the client's): seconds without an answer or progress; `total`: seconds of each round trip in
        all. `on_progress`: called with each `ProgressNotificationParams` (progress, total, message). `meta`: members
        for `_meta`. `version`: the tool's, where the server has several (by default the highest).

        `on_elicit`, `on_elicit_url`, `on_sample`, `on_roots`: functions that answer the server's questions in this
        call, in place of the client's. In stateless revisions they also declare their capability, for this call. In
        stateful ones the client must have declared it, else it is a LocalError; a question then belongs to the call on
        whose stream it comes over HTTP. On any other channel a question names no call: these functions answer it if it
        can belong to no other call than this one, and the client's if that is ambiguous, so calls that need answers of
        their own are made one at a time there.

        A tool that failed has `is_error` True; with `result=` it raises ToolError. Raises RpcError for an unknown tool,
        BadAnswer for a result that does not fit the tool's output schema or `result`, Declined if a question of the
        tool was declined here."""
        found, raw = await self._calls.call_tool(name, arguments, self._plan("call_tool", options))
        return found if result is None else _converted(result, raw, found)

    async def read_resource(
        self,
        uri: str,
        **options: Unpack[VersionedOptions],
    ) -> ReadResourceResult:
        """Read a resource (server/resources), from the cache as long as the server allows; the options are those of
        `call_tool`. Raises RpcError (-32602, or -32002 from older servers) if it does not exist, and what `call`
        raises."""
        method, plan = "resources/read", self._plan("read_resource", options)
        chosen = plan.meta is not None and "fastmcp" in plan.meta  # maybe another version than the cached one
        key = normal(uri)
        kept: tuple[str, ReadResourceResult] | None = None if chosen else self._cache.get(method, key)
        if kept is not None and kept[0] == uri:  # a server may distinguish spellings that ought to be the same
            return kept[1]
        changes = self._cache.changes(method)
        body = msgspec.json.encode({"uri": uri})
        found, had_questions = await self._calls.call_named(method, body, uri, ReadResourceResult, plan)
        # "Results produced by retrying a request MUST NOT be cached" (server/utilities/caching)
        if not had_questions and not chosen:
            self._cache.put(method, key, (uri, found), found.ttl_ms, changes, _size(found))
        return found

    async def get_prompt(
        self,
        name: str,
        arguments: Mapping[str, str] | None = None,
        **options: Unpack[VersionedOptions],
    ) -> GetPromptResult:
        """Get the messages of a prompt (server/prompts); the options are those of `call_tool`. Raises RpcError for an
        unknown prompt, or arguments that do not fit, and what `call` raises."""
        body = to_json({"name": name} if arguments is None else {"name": name, "arguments": arguments})
        plan = self._plan("get_prompt", options)
        found, _ = await self._calls.call_named("prompts/get", body, name, GetPromptResult, plan)
        return found

    async def complete(
        self,
        ref: str | PromptReference | ResourceTemplateReference,
        argument: str,
        value: str,
        context: Mapping[str, str] | None = None,
    ) -> Completion:
        """Propose values for an argument (server/utilities/completion). `ref`: a prompt's name, or a template's URI
        (with "://"); `value`: what is typed so far; `context`: the arguments that are already known. Raises what `call`
        raises."""
        if isinstance(ref, str):
            ref = ResourceTemplateReference(ref) if "://" in ref else PromptReference(ref)
        members: dict[str, Any] = {"ref": ref, "argument": {"name": argument, "value": value}}
        if context is not None:
            members["context"] = {"arguments": context}
        raw = await self._session.call("completion/complete", msgspec.json.encode(members))
        found: CompleteResult = complete_result("completion/complete", raw, CompleteResult)
        return found.completion

    async def call(
        self, method: str, params: Mapping[str, Any] | None = None, *, timeout: float | UnsetType | None = UNSET
    ) -> Any:
        """Call any method, such as an extension's, and return the result as JSON values. The `_meta` that the era
        requires is added.
        `timeout`: seconds without an answer or progress; None: for ever.

        Raises RpcError where the server answers with an error, CallTimeout, BadAnswer for an answer that does not fit,
        ChannelError when the channel is lost, and LocalError before the client is entered."""
        body, meta = _split_meta(method, params or {}, None)
        return _anything(
            await self._session.call(method, body, plan=self._plan("call", {"timeout": timeout, "meta": meta}))
        )

    async def set_log_level(self, level: LoggingLevel) -> None:
        """Receive log messages (`on_log`) of this level and above (server/utilities/logging): for the session, or with
        every call from now on. Raises what `call` raises."""
        session = self._session
        if self.revision.stateful:
            await session.call("logging/setLevel", msgspec.json.encode({"level": level}))
        session.level = level
        session.adopt(session.era)

    async def ping(self) -> None:
        """Check that the server answers (basic/utilities/ping; `server/discover` in an era without ping). Raises what
        `call` raises."""
        if self.revision.stateful:
            await self._session.call("ping", b"{}")
        else:
            await self._session.call("server/discover", b"{}")

    async def discover(self) -> DiscoverResult:
        """Return the server's revisions and capabilities; in an era without `server/discover`, those of the handshake.
        Raises what `call` raises."""
        era = self._session.era
        if era.revision.stateful:
            return DiscoverResult(
                supported_versions=[era.revision.date],
                capabilities=era.capabilities,
                instructions=UNSET if era.instructions is None else era.instructions,
            )
        method = "server/discover"
        kept: DiscoverResult | None = self._cache.get(method, None)
        if kept is not None:
            return kept
        changes = self._cache.changes(method)
        found: DiscoverResult = complete_result(method, await self._session.call(method, b"{}"), DiscoverResult)
        self._cache.put(method, None, found, found.ttl_ms, changes)
        return found

    def subscribe(
        self,
        uris: Iterable[str] = (),
        *,
        tools: bool = False,
        prompts: bool = False,
        resources: bool = False,
        topics: Mapping[str, Any] | None = None,
        again: bool = False,
    ) -> Subscription:
        """Receive changes: of these resources, and of the chosen lists; and notifications of extensions.

            async with client.subscribe(["file:///a"], tools=True) as changes:
                async for change in changes: ...

        Yields `subscriptions.Changed` (kind, uri); `changes.granted` has the changes of which the server will notify.
        It ends when the server ends it, as before a restart, and raises ChannelError when the channel is lost. With
        `again` it subscribes again instead, as long as the client has a channel; a lost one is opened again with the
        client's option `restart`.

        `topics`: the values to subscribe to, by the extensions' members of the filter, as {"taskIds": ["1"]};
        `changes.granted_topics` has what the server acknowledged of them. Their notifications go to
        `ClientExtension.heard`, and are not among the changes. In stateful revisions a server notifies of topics
        without a subscription, or not at all. Raises LocalError for a member that no extension of this client declares.
        """
        members = [topic.member for topic in self._extensions.declarations.topics.values()]
        for member in topics or ():
            if member not in members:
                has = ", ".join(members) or "none"
                raise LocalError(f"topics: no extension of this client has the member {member!r}: there are {has}")
        return Subscription(
            self._subscriptions,
            uris=uris,
            tools=tools,
            prompts=prompts,
            resources=resources,
            topics=topics,
            again=again,
        )

    async def set_roots(self, roots: RootsSource) -> None:
        """Use other roots from now on; a server of the stateful era is notified. Raises LocalError if no roots were
        declared."""
        if self._answering.roots is None:
            raise LocalError("roots are declared at the beginning: Client(..., roots=[...])")
        self._answering.roots = roots
        if self.revision.stateful:
            await self._session.notify("notifications/roots/list_changed")

    # -- one call

    def _tool_result(self, name: str | None, raw: Raw, result: Any) -> Any:
        """Read a tool's result that an extension got, as `call_tool` does."""
        found = read("tools/call", raw, CallToolResult)
        if name is not None:
            self._tools.verify(name, found)
        return found if result is None else _converted(result, raw, found)

    def _plan(
        self,
        method: str,
        options: RequestOptions | VersionedOptions,
        known: type[Any] = VersionedOptions,
    ) -> CallPlan:
        """Make the plan of a call. `known`: the class of the method's options. Raises TypeError for an unknown option,
        LocalError for options that exclude each other, and for answers to questions that the server cannot ask."""
        if not options and self._on_progress is None:
            return self._default_plan
        if unknown := options.keys() - known.__annotations__.keys():
            raise TypeError(f"Client.{method}() got an unexpected keyword argument {min(unknown)!r}")
        if options.keys() & OWN_HANDLERS.keys():
            others: Any = {name: value for name, value in options.items() if name not in OWN_HANDLERS}
            plan, given = self._plan(method, others, known), self._own_handlers(method, options)
            return (
                msgspec.structs.replace(plan, answering=self._answering.with_own(given), own=given) if given else plan
            )
        timeout, total, on_progress = options.get("timeout", UNSET), options.get("total"), options.get("on_progress")
        meta = options.get("meta")
        version: Any = options.get("version")
        if version is not None:
            meta = {**(meta or {}), **asking(version)}
        own = meta is not None and _TOKEN in meta
        if own and on_progress is not None:
            raise LocalError(
                f"meta has a {_TOKEN} of its own, whose progress on_progress does not get: leave one of them out"
            )
        receiver = None if own else on_progress or self._on_progress
        if receiver is None and timeout is UNSET and total is None and meta is None:
            return self._default_plan
        within = self._session.timeout if timeout is UNSET else timeout
        if receiver is None and (within is None or own):
            return CallPlan(timeout, total, None, meta)
        if total is None and within is None:
            total = LONGEST
        report = None if receiver is None else progress_receiver(receiver)
        return CallPlan(timeout, total, report, meta, True, receiver=receiver)

    def _own_handlers(self, method: str, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options of a call that answer its questions. Raises LocalError for those whose capability a
        stateful session has not declared."""
        own = {name: options[name] for name in OWN_HANDLERS if options.get(name) is not None}
        check(f"Client.{method}", {name: HANDLER_OPTIONS[name] for name in own}, own)
        if self.revision.server_calls and (name := self._answering.undeclared(own)) is not None:
            usual = "roots" if name == "on_roots" else name
            raise LocalError(
                f"Client.{method}: {name} answers nothing in {self.revision.date}, in which a client declares "
                f"{OWN_HANDLERS[name]} once for its session: give {usual} to Client(...) too"
            )
        return own

    # -- after the server was lost

    async def _renewed(self) -> None:
        self._cache.clear()
        self._tools.changed()
        await self._subscriptions.in_session.renewed()

    def _lost(self, why: Any) -> None:
        self._cache.clear()
        self._subscriptions.in_session.lost(why)


def _converted(kind: Any, raw: Raw, found: CallToolResult) -> Any:
    """Return a tool's result as `kind`. Raises ToolError for that of a tool that failed, BadAnswer if it does not
    fit."""
    if found.is_error is True:
        raise ToolError(found.text)
    return convert_result(kind, raw, found)


def _size(found: ReadResourceResult) -> int:
    """Return the bytes of a resource's contents, approximately."""
    texts = [part for one in found.contents for part in (one.text, one.blob) if isinstance(part, str)]
    return sum(map(len, texts))


def _split_meta(
    method: str, params: Struct | Mapping[str, Any] | Raw | None, meta: Mapping[str, Any] | None
) -> tuple[bytes, Any]:
    """Return the params of a call as JSON text without their `_meta`, and the members of that joined with `meta`: the
    revision adds others, and a message may have `_meta` only once. Raises LocalError for params, and a `_meta`, that
    are no object."""
    body = b"{}" if params is None else to_json(params)
    if isinstance(params, Raw):
        try:
            bytes(params).decode()  # msgspec does not check the members that it keeps as text
            body = to_json(_members(body))  # without spaces around the members, since others are added
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise LocalError(f"the params of {method} are the JSON text of an object: {error}") from None
    elif not body.startswith(b"{"):
        raise LocalError(f"the params of {method} are an object: a mapping or a Struct, and not {params!r:.100}")
    if b'"_meta"' not in body:
        return body, meta
    members = _members(body)
    own = members.pop("_meta", None)
    if own is None:
        return body, meta
    try:
        return to_json(members), {**_members(own), **(meta or {})}
    except msgspec.ValidationError:
        raise LocalError("_meta in the params of a call is an object") from None


def _named(method: str, member: str, body: bytes) -> str:
    """Return the value of a member of params that a header repeats. Raises LocalError if it is no text."""
    found = _members(body).get(member)
    try:
        return msgspec.json.decode(found, type=str) if found is not None else _missing(method, member)
    except msgspec.ValidationError:
        _missing(method, member)


def _missing(method: str, member: str) -> NoReturn:
    raise LocalError(f"the params of {method} have {member!r}, a text, which the header Mcp-Name repeats")


def _revision(revision: Revision | str | None) -> Revision | None:
    if not isinstance(revision, str):
        return revision
    if revision not in REVISIONS:
        near = nearest_name(revision, REVISIONS, 0.9)
        hint = f"did you mean {near}?" if near else f"there are {', '.join(REVISIONS)}"
        raise LocalError(f"there is no revision {revision!r}; {hint}")
    return REVISIONS[revision]
