"""A client's session with its server: the channel, the era, and one round trip of any call.

Rules:

- Every request of the stateless era carries `_meta`, made once per revision, and over HTTP the headers that mirror
  its body; in the stateful era the handshake has exchanged this.
- After a refused revision, an ended HTTP session or a dead process the client recovers once: the call is sent again
  only if the server cannot have run it.
- Requests of the server go to `QuestionHandlers`, its notifications to the router.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from ...channel import Attachable, Caller, Channel, ChannelError, Closed, Options, Servable
from ...connecting import pair
from ...jsonrpc.errors import BadAnswer, CallTimeout, InternalError, LocalError, MethodNotFound, RpcError
from ...jsonrpc.leniency import Leniency
from ...jsonrpc.messages import Notification, Request
from ...observer import Observer
from ...repeats import Repeats
from ...rpc.binding.results import to_json
from ...rpc.channel_peer import ChannelPeer
from ...rpc.method import Method, Passed
from ...rpc.observing import with_trace
from ...rpc.runner import Runner
from ...rpc.service import Service
from ...schemes import dial
from ...transports.inside import InProcessChannel
from ..protocol.dialect import MCP, of
from ..protocol.methods import UNSUPPORTED_VERSION
from ..protocol.revisions import Revision
from .connection import McpConnection
from .handlers import Declined, QuestionHandlers, declined_error
from .http.refusals import SessionLost
from .negotiation import (
    ClientProfile,
    Negotiation,
    ServerKey,
    ServerProfile,
    handshake,
    newest,
    server_key_of,
    supported,
)

if TYPE_CHECKING:
    from ...rpc.tracing import Hook
    from .http.posts import StreamableHttp

logger: logging.Logger = logging.getLogger("dragoman.mcp")
repeats: Repeats = Repeats(logger)

PATIENCE = 600.0
"""Seconds that a server's question may take: users are slow."""

LONGEST = 3600.0
"""Seconds of a call that reports progress, at most: "implementations SHOULD always enforce a maximum timeout,
regardless of progress notifications" (basic/patterns/cancellation)."""

Target: TypeAlias = "str | Sequence[str] | Attachable"


class CallPlan(Struct, frozen=True):
    """The options of one call. `timeout`, `total`: seconds; `on_progress`: called with the params of each progress
    notification; `progress`: whether to ask the server for these, each of which restarts the time-out."""

    timeout: float | UnsetType | None = UNSET
    total: float | None = None
    on_progress: Callable[[Any], object] | None = None
    meta: Mapping[str, Any] | None = None
    progress: bool = False
    answering: QuestionHandlers | None = None
    """The functions that answer the questions of this call; None: those of the client."""
    own: Mapping[str, Any] | None = None
    """The options of the call from which `answering` was made."""
    receiver: Callable[[Any], object] | None = None
    """The user's function that `on_progress` calls."""


PLAIN_CALL = CallPlan()
WITH_PROGRESS = CallPlan(progress=True)
"""The plan of a call with a time-out: progress restarts it, also if no function receives the progress."""
ENDLESS_CALL = CallPlan(timeout=None)


class SessionOptions(Struct, frozen=True, kw_only=True):
    """The options of `Client` that a session needs. `wire`: those that the wire needs."""

    wire: Options
    revision: Revision | None
    timeout: float | None
    restart: bool
    probe: float
    lenient: Leniency
    trace: Hook | None
    observers: Sequence[Observer]


class ClientSession:
    """A client's session. `on_notification(method, params)` is called with every notification, in order; `renewed` is
    awaited after a new handshake with the same server; `lost` is called when the channel is over (None: we closed it),
    or no new session can be begun; `reauthorized` before a request with another token. `answer_extension` answers the
    requests of a server that are methods of extensions, as JSON text."""

    on_notification: Callable[[str, Raw | UnsetType], None]
    renewed: Callable[[], Awaitable[None]]
    lost: Callable[[Exception | None], None]
    reauthorized: Callable[[], None]
    answer_extension: Callable[[str, Raw | UnsetType, Revision], Awaitable[bytes]]

    def __init__(self, target: Target, profile: ClientProfile, options: SessionOptions) -> None:
        self.target = target
        self.server_key: ServerKey = server_key_of(target)
        self.http: bool = isinstance(target, str) and target.partition(":")[0].lower() in ("http", "https")
        self.timeout: float | None = options.timeout
        self.level: str | None = None
        self._profile = profile
        self._options = options
        self._opening = Negotiation(
            self._open_channel,
            profile,
            server_key=self.server_key,
            revision=options.revision,
            timeout=options.timeout,
            probe=options.probe,
        )
        self._lock = asyncio.Lock()
        self._connection: McpConnection | None = None
        self._era: ServerProfile | None = None
        self._handshakes = 0
        self._questions = 0
        self._complete = True
        """Whether the session is complete; False from its loss over HTTP, or a failure to restore it, until there is a
        new one."""
        self._head = b""
        self._head_with_progress = b""
        """The beginning of the params of a request that asks for progress, up to its token."""
        self._reserved = frozenset[str]()
        """The names of the members of `_meta` that only we set."""
        self._closing = False
        self._using: Servable | None = None
        self._service = self._make_service()
        for observer in with_trace(options.trace, options.observers):
            self._service.observe(observer)

    # -- life

    @property
    def spoken(self) -> Revision | None:
        """The revision in use; None before the handshake is complete."""
        return None if self._era is None else self._era.revision

    @property
    def era(self) -> ServerProfile:
        """The profile of the server, with the revision in use. Raises LocalError before the client is entered."""
        if self._era is None:
            raise LocalError("the client is not connected yet: enter it first, `async with Client(...) as client`")
        return self._era

    @property
    def entered(self) -> bool:
        """Whether there is a channel for calls."""
        return self._connection is not None and self._connection.peer._channel is not None

    @property
    def comes_back(self) -> bool:
        """Whether a lost session can come back: there is a channel, or it may be opened again."""
        return self._options.restart or self.entered

    @property
    def peer(self) -> ChannelPeer:
        """Our end of the channel. Raises LocalError before the client is entered."""
        if self._connection is None:
            raise LocalError("the client is not entered yet: `async with Client(...) as client`")
        return self._connection.peer

    async def open(self) -> None:
        """Connect, and find out which revision the server speaks. Raises what `Negotiation.open` raises, and LocalError
        if it is connected already."""
        if self.entered:
            raise LocalError("this client is entered already: one client is one channel")
        self._closing = False
        await self._connect()

    async def _connect(self) -> None:
        await self._use()
        try:
            connection, era = await self._opening.open()
            if self._closing:
                await connection.peer.close(0)
                raise Closed("the client was closed while it connected again")
        except BaseException:
            await self._unuse()
            raise
        self._connection, self._complete = connection, True
        self.adopt(era)

    async def _use(self) -> None:
        """Start the target if it is a server in this process; `_unuse` stops it."""
        if isinstance(self.target, Servable) and self._using is None:
            await self.target.start()
            self._using = self.target

    async def _unuse(self) -> None:
        using, self._using = self._using, None
        if using is not None:
            await using.stop()

    def adopt(self, era: ServerProfile) -> None:
        """Use the revision of this profile from now on."""
        self._era = era
        connection = self._connection
        assert connection is not None
        connection.turn(stateless=not era.revision.stateful)
        if connection.streamable is not None and era.revision.routing_headers:
            connection.streamable.version = era.revision.date
        connection.peer.state = era.revision
        connection.peer._dialect = of(era.revision)
        # "The client MUST NOT write JSON-RPC responses" (2026's basic/transports/stdio)
        connection.peer.mute = not era.revision.server_calls
        members = self._profile.meta(era.revision, self.level)
        self._head = b'{"_meta":{' + members + b"}," if members else b""
        self._members = members
        self._reserved = frozenset(msgspec.json.decode(b"{" + members + b"}"))
        self._head_with_progress = b'{"_meta":{%b%b"progressToken":' % (members, b"," if members else b"")

    async def close(self) -> None:
        """End the channel; a child process gets time to end, then signals."""
        self._closing = True
        if self._connection is not None:
            await self._connection.peer.close(0)
        await self._unuse()

    async def _open_channel(self, sse: bool) -> McpConnection:
        """Open a new channel, with our peer on it. `sse`: over HTTP+SSE."""
        channel, http = await self._dial(sse)
        served = channel.served if isinstance(channel, InProcessChannel) else None
        peer = ChannelPeer(
            Runner(self._service),
            limits=self._options.wire.limits,
            timeout=self.timeout,
            dialect=MCP,
            lenient=self._options.lenient,
        )
        if self.timeout is None:
            peer._timeout = None
        peer.alone = True
        peer._longest = LONGEST
        peer.on_state = lambda state, why: self._state(peer, state, why)
        if http is not None:
            http.on_session_lost = self._session_lost
            if http.authorized is not None:
                http.authorized.on_token = self.reauthorized
        peer.attach(channel)
        return McpConnection(peer, channel, http, self.http, served)

    async def _dial(self, sse: bool) -> tuple[Channel, StreamableHttp | None]:
        if sse:
            from .http.legacy_2024 import dial_2024  # noqa: PLC0415  (a wire, imported when used)

            return await dial_2024(str(self.target), self._options.wire), None
        if self.http:
            from .http.posts import dial_mcp  # noqa: PLC0415  (a wire, imported when used)

            channel = await dial_mcp(str(self.target), self._options.wire)
            return channel, channel
        if isinstance(self.target, str | Sequence):
            return await dial(self.target, self._options.wire), None
        if isinstance(self.target, Servable):
            return InProcessChannel(self.target), None
        near, far = pair(self._options.wire.limits)
        self.target.attach(far)
        return near, None

    # -- calls

    async def call(
        self,
        method: str,
        body: bytes,
        name: str | None = None,
        plan: CallPlan = PLAIN_CALL,
        extra: Mapping[str, str] | None = None,
        begun: Callable[[int], None] | None = None,
    ) -> Raw:
        """Make one round trip, and return the result's JSON text. `body`: the params as a JSON object, without `_meta`.

        Raises what `Peer.call` raises. `name` and `extra` become HTTP headers if the era has them; `begun` is called
        with the call's id before it is sent.
        """
        connection = self._connection
        if connection is None or connection.peer._channel is None:
            connection = await self.alive()
        if not (self._complete or self._closing):  # without a session the server would refuse every call
            await self._renew(self._handshakes, SessionLost("the session was lost"))
        handshakes = self._handshakes
        try:
            return await self._send(connection, method, body, name, plan, extra, begun)
        except RpcError as error:
            if error.code != UNSUPPORTED_VERSION or not self._other_revision(error):
                raise
        except SessionLost as error:
            # "it MUST start a new session by sending a new `InitializeRequest`" (basic/transports); a call that was
            # refused in this way was not run
            await self._renew(handshakes, error)
        return await self._send(connection, method, body, name, plan, extra, begun)

    async def once(self, method: str, body: bytes) -> Raw:
        """Make one round trip without a recovery: for calls that are part of one."""
        connection = self._connection
        assert connection is not None
        return await self._send(connection, method, body, None, PLAIN_CALL, None, None)

    def _send(
        self,
        connection: McpConnection,
        method: str,
        body: bytes,
        name: str | None,
        plan: CallPlan,
        extra: Mapping[str, str] | None,
        begun: Callable[[int], None] | None,
    ) -> Awaitable[Raw]:
        revision = self.era.revision
        headers = None if connection.streamable is None else connection.headers(method, revision, name, extra)
        token, own = plan.progress, plan.answering
        params: Any
        if own is not None and revision.server_calls:
            return self._send_with_handlers(connection, method, body, name, plan, extra, begun, own)
        if own is not None:
            members = self._profile.meta(revision, self.level, own)
            params = self._with_id(body, plan.meta, token, begun, members)
        elif begun is not None or plan.meta is not None:
            params = self._with_id(body, plan.meta, token, begun, self._members)
        elif token:
            start, rest = self._head_with_progress, b"}," + body[1:] if len(body) > 2 else b"}}"
            params = lambda id: Raw(b"%b%d%b" % (start, id, rest))  # noqa: E731  (it is made for each call)
        else:
            params = self.params(body)
        return connection.peer.call(
            method,
            params,
            result=Raw,
            timeout=plan.timeout,
            total=plan.total,
            on_progress=plan.on_progress,
            extra=headers,
        )

    async def _send_with_handlers(
        self,
        connection: McpConnection,
        method: str,
        body: bytes,
        name: str | None,
        plan: CallPlan,
        extra: Mapping[str, str] | None,
        begun: Callable[[int], None] | None,
        own: QuestionHandlers,
    ) -> Raw:
        """Make a round trip during which questions of its call are answered by `own`."""
        ids: list[int] = []

        def note(id: int) -> None:
            ids.append(id)
            connection.handlers[id] = own
            if begun is not None:
                begun(id)

        plan = msgspec.structs.replace(plan, answering=None)
        try:
            return await self._send(connection, method, body, name, plan, extra, note)
        finally:
            for id in ids:
                connection.handlers.pop(id, None)

    def settling(self, plan: CallPlan) -> AbstractContextManager[None]:
        """Return a context manager within which an extension settles the call of this plan."""
        connection = self._connection
        if connection is None or not self.era.revision.server_calls:
            return nullcontext()
        return connection.settling(plan.answering or self._profile.answering)

    def _with_id(
        self,
        body: bytes,
        meta: Mapping[str, Any] | None,
        token: bool,
        begun: Callable[[int], None] | None,
        members: bytes,
    ) -> Callable[[int], Raw]:
        own = {name: value for name, value in meta.items() if name not in self._reserved} if meta else None
        given = to_json(own)[1:-1] if own else b""

        def params(id: int) -> Raw:
            if begun is not None:
                begun(id)
            return self.params(body, given, id if token else None, members)

        return params

    def params(self, body: bytes, meta: bytes = b"", token: int | None = None, members: bytes | None = None) -> Raw:
        """Return a request's params: its members, and `_meta` with the members for the revision (`members`; None: those
        of the client), those of the user (`meta`) and the progress `token`."""
        head = self._head
        if meta or token is not None or members is not None:
            parts = [
                meta,
                self._members if members is None else members,
                b"" if token is None else b'"progressToken":%d' % token,
            ]
            inside = b",".join(part for part in parts if part)
            head = b'{"_meta":{' + inside + b"}," if inside else b""
        if not head:
            return Raw(body)
        return Raw(head + body[1:] if len(body) > 2 else head[:-1] + b"}")

    async def notify(self, method: str, body: bytes = b"{}", meta: Mapping[str, Any] | None = None) -> None:
        """Send the server a notification. `body`: the params as a JSON object, without `_meta`; `meta`: other members
        for that. Raises ChannelError, HttpRefused if the server refuses it."""
        connection = self._connection
        if connection is None or connection.peer._channel is None:
            connection = await self.alive()
        params = self._with_id(body, meta, False, None, self._members)(0)
        await connection.peer.notify(method, UNSET if bytes(params) == b"{}" else params)

    def _other_revision(self, error: RpcError) -> bool:
        """Return whether the server lists a stateless revision that this client speaks too; it is used from now on."""
        era = self.era
        found = newest(supported(error))
        if era.revision.stateful or found is None or found.stateful:
            return False
        self.adopt(msgspec.structs.replace(era, revision=found))
        return True

    # -- recovery

    async def alive(self) -> McpConnection:
        """Return the connection; it is opened again if it is over and `restart` is set."""
        connection = self._connection
        if connection is None:
            raise LocalError("the client is not entered yet: `async with Client(...) as client`")
        if self._closing or not self._options.restart:
            return connection  # its peer raises how it ended
        async with self._lock:
            if self._connection is connection and connection.peer._channel is None and not self._closing:
                # "If the server process exits unexpectedly, the client SHOULD restart it" (basic/transports/stdio)
                await connection.peer.close(0)
                await self._connect()
                await self._restore()
            assert self._connection is not None
            return self._connection

    async def revive(self) -> None:
        """Connect again, or begin a new session, if that is needed. Raises ChannelError if it is lost meanwhile."""
        await self.alive()
        if not self._complete:
            await self._renew(self._handshakes, SessionLost("the session was lost"))
        if not self.entered:
            raise Closed("the channel was lost again")

    async def _renew(self, handshakes: int, lost: SessionLost) -> None:
        """Make a new handshake on the same channel, unless another task has made one meanwhile."""
        async with self._lock:
            connection = self._connection
            if self._closing or connection is None:
                raise lost
            if handshakes == self._handshakes:
                try:
                    self.adopt(await handshake(connection, self._profile, self.era.revision, timeout=self.timeout))
                    self._complete = True
                    await self._restore()
                except BaseException as error:
                    self._complete = False
                    self.lost(error if isinstance(error, Exception) else lost)
                    raise
                self._handshakes += 1

    async def _restore(self) -> None:
        """Restore in a new session what the lost one had: the log level, and the subscriptions. Raises SessionLost if
        the new one is lost meanwhile."""
        if self.level is not None and self.era.revision.stateful:
            try:
                await self.once("logging/setLevel", msgspec.json.encode({"level": self.level}))
            except (RpcError, CallTimeout, BadAnswer) as error:
                repeats.warning("the level of log messages is lost with the old session: %s", error)
        await self.renewed()
        if not self._complete:  # the home stream reported it, and no call
            raise SessionLost("the new session was lost while it was restored")

    def _state(self, peer: ChannelPeer, state: str, why: ChannelError | None) -> None:
        if state == "closed" and self._connection is not None and self._connection.peer is peer:
            self.lost(None if self._closing else why)

    def _session_lost(self, why: SessionLost) -> None:
        connection = self._connection
        self._complete = False
        # a session that is lost during its renewal is not renewed at once: the renewal fails
        if connection is not None and not self._closing and not self._lock.locked():
            connection.peer.later(self._renewed_quietly(self._handshakes, why))

    async def _renewed_quietly(self, handshakes: int, why: SessionLost) -> None:
        try:
            await self._renew(handshakes, why)
        except Exception as error:  # the next call will meet the fault and raise it
            logger.debug("no new session: %s", error)

    # -- the server's requests and notifications

    def _make_service(self) -> Service:
        service = Service("mcp client", discover=False, limits=self._options.wire.limits)
        on_notification = _method("notification", "inline", self._take)
        question = _method("question", "async", self._ask, timeout=PATIENCE)
        ping = _method("ping", "inline", lambda message, context: {})

        def route(
            message: Request | Notification, caller: Caller, peer: Any
        ) -> tuple[Method | None, Request | Notification]:
            if isinstance(message, Notification):
                return on_notification, Notification(message.method, message)
            revision: Revision | None = peer.state
            if message.method == "ping":
                return ping, msgspec.structs.replace(message, params=message)
            row = self._profile.extensions.methods.get(message.method)
            asked = row is not None and row.result is not None and row.direction != "client"
            if revision is None or row is None or not (asked and revision.server_calls and row.within(revision)):
                raise MethodNotFound(data={"method": message.method})
            handlers = self._handlers_of_question(peer)
            return question, msgspec.structs.replace(message, params=(message, revision, handlers))

        service._router = route
        return service

    def _take(self, message: Notification, context: None) -> None:
        self.on_notification(message.method, message.params)

    def _handlers_of_question(self, peer: Any) -> QuestionHandlers:
        """Return the functions that answer the question which this peer delivers now."""
        connection, usual = self._connection, self._profile.answering
        if connection is None or connection.peer is not peer:
            return usual
        methods = self._profile.extensions.methods
        return connection.handlers_of_question(usual, lambda method: method in methods and methods[method].ask)

    async def _ask(self, question: tuple[Request, Revision, QuestionHandlers], context: None) -> Raw:
        message, revision, handlers = question
        allowed = self._options.wire.limits.questions
        if self._questions >= allowed:
            data = {"limit": "questions", "allowed": allowed, "retry_after": 1}
            raise InternalError(f"Busy: questions allows {allowed} at once", data)
        self._questions += 1
        try:
            if self._profile.extensions.of_method(message.method) is not None:
                answer = await self.answer_extension(message.method, message.params, revision)
            else:
                answer = await handlers.answer(message.method, message.params, revision)
        except Declined as error:
            raise declined_error(error) from error
        finally:
            self._questions -= 1
        return Raw(answer)


def _method(
    name: str, kind: Literal["inline", "async"], function: Callable[[Any, Any], Any], timeout: float | None = None
) -> Method:
    """Return a method whose function gets the whole message, which the router puts in place of its params."""
    passed = Passed(function, "async" if kind == "async" else "plain", wants_context=False)
    # in place: a burst of notifications would fill the slots of calls, and what has none is dropped
    quick = kind == "inline"
    return Method(name, passed, kind, timeout=timeout, quick=quick, runs_inline=quick)
