"""The peer: one end of a channel, by which the far end is called, with single calls, notifications and batches.

What `connect` and serving make is a `ChannelPeer`, which takes calls too. This module imports neither what runs calls
nor a service, because a call's `Context`, on which these depend, names the peer that the call came in on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Generator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypeVar, overload
from weakref import WeakSet

from msgspec import UNSET, UnsetType

from ..channel import Caller, Channel, ChannelError, Closed, Ended, again
from ..jsonrpc.codec import CallMessage, join
from ..jsonrpc.conversation import Conversation
from ..jsonrpc.errors import CallTimeout, Dialect, LocalError
from ..jsonrpc.limits import Limits
from ..jsonrpc.options import CALL_TIME, check, only_async
from .binding.results import encode_call, to_json
from .deadlines import DeadlineClock
from .middleware import Call, Middleware, Next, chain
from .notifications import NotificationListener, Notifications
from .observing import Departure, ServiceWatch, Speak
from .outbound import BatchHandle, Notes, OutboundCall, decode_any, decoder_of, wrong_loop
from .proxy import Proxy, proxy

if TYPE_CHECKING:
    from .event_subscription import EventSubscription
    from .task_handle import TaskHandle
else:
    EventSubscription = TaskHandle = dict  # start-up: annotations resolve at run time, to no more than this

running_loop: Final = asyncio._get_running_loop
"""The running loop, or None; `asyncio.get_running_loop` raises where there is none, as under trio."""

T = TypeVar("T")

logger: logging.Logger = logging.getLogger("dragoman")

BROADCAST: Any = ("broadcast",)
"""The options of a broadcast notification on its way through middleware."""


class Peer:
    """One end of a channel: `connect` makes one, and handlers have that of their call as `ctx.peer`.

    Entered with `async with` it closes itself at the end of the block.
    """

    # together with those of `ChannelPeer` more than 30 attributes: a dict would share no keys and cost 1.2 KiB
    __slots__ = (
        "__weakref__", "_chain", "_channel", "_clock", "_conversation", "_dialect", "_limits", "_listeners", "_longest",
        "_loop", "_middleware", "_notes", "_number", "_on_lost", "_online", "_outside", "_runner", "_since", "_timeout", "_v1",
        "_why",
    )  # fmt: skip

    def __init__(
        self,
        runner: Any,
        limits: Limits,
        *,
        timeout: float | None,
        dialect: Dialect,
        middleware: Sequence[Middleware],
        v1: bool,
    ) -> None:
        self._runner: Any = runner
        """The `Runner` of the calls that come in, which is above this module; its service has the observers."""
        self._loop: asyncio.AbstractEventLoop = runner.loop
        self._clock: DeadlineClock = runner.clock
        self._limits: Limits = limits
        """The bounds on messages and calls."""
        self._timeout: float | None = timeout
        """Seconds for a call that names none; None: for ever."""
        self._longest: float | None = None
        """Seconds for which progress may extend a call of ours, counted from the first progress; None: any number."""
        self._dialect: Dialect = dialect
        """The far end's conventions for refusals, cancels and progress."""
        self._v1: bool = v1
        """Whether it writes JSON-RPC 1.0."""
        self._middleware: tuple[Middleware, ...] = tuple(middleware)
        self._chain = chain(self._middleware, self._send_past_middleware) if middleware else None
        """Makes a call or sends a notification through the middleware; None without any."""
        self._conversation: Conversation[Any, OutboundCall] = Conversation(limits)
        """The calls in flight; they belong to the peer, not to its channel."""
        self._channel: Channel | None = None
        """None before the first and during an outage."""
        self._number: int = 0
        """The number of its channel, for observers."""
        self._since: float = 0.0
        """When its channel was attached, in monotonic seconds."""
        self._why: ChannelError | None = None
        """Why the last channel is over; None while there is a channel, and before the first."""
        self._online: asyncio.Future[None] | None = None
        """Done when it has another channel; None while it sends on the one it has, and when no other will come."""
        self._on_lost: Callable[[ChannelError], bool] | None = None
        """Called when a channel is lost; returns whether another will be attached."""
        self._outside = False
        """Whether its channel leaves the process; then a call from another event loop is refused before it is sent."""
        self._listeners: WeakSet[NotificationListener] | tuple[()] = ()
        """What gets the far end's notifications."""
        self._notes: Notes | None = None
        """Keeps what came and named no call; None: nothing did."""

    @property
    def _session_name(self) -> str:
        """The name of the session whose messages the channel carries, for observers; "" without one."""
        return getattr(self._channel, "session_name", "")

    @property
    def caller(self) -> Caller:
        """The far end, as the wire knows it."""
        return self._channel.caller if self._channel is not None else Caller()

    @property
    def closed(self) -> bool:
        """Whether nothing more can ever be sent."""
        return self._channel is None and self._why is not None and self._online is None

    @property
    def ending(self) -> ChannelError | None:
        """Why the channel was lost; None while it lives, and after we closed it."""
        return None if isinstance(self._why, Closed) else self._why

    @property
    def _watch(self) -> ServiceWatch | None:
        """Notifies its observers; None without any."""
        watch: ServiceWatch | None = self._runner.service._watch
        return watch

    async def close(self, drain: float | None = None) -> None:
        """Refuse new calls, let those that came in end within `drain` seconds (default: the limits'
        `drain_timeout`), send what is queued, close. Our own calls still in flight fail with `Closed`.

        Inside a handler that this peer runs, closing only begins, because it waits for the handler's own answer.
        """
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        where = f"{self.caller.scheme}:{self.caller.remote}" if self._channel is not None else f"over: {self._why}"
        return f"<Peer {where}>"

    # -- calls

    @overload
    def call(
        self,
        method: str,
        params: Any = ...,
        *,
        result: type[T],
        timeout: float | UnsetType | None = ...,
        total: float | None = ...,
        on_progress: Callable[[Any], object] | None = ...,
        extra: object = ...,
        reply_stream: Speak | None = ...,
    ) -> Coroutine[Any, Any, T]: ...
    # mypy goes on to it where the result of the first is not what is awaited for, and would be content with the last
    @overload
    def call(  # type: ignore[overload-cannot-match]
        self,
        method: str,
        params: Any = ...,
        *,
        result: type[object],
        timeout: float | UnsetType | None = ...,
        total: float | None = ...,
        on_progress: Callable[[Any], object] | None = ...,
        extra: object = ...,
        reply_stream: Speak | None = ...,
    ) -> Coroutine[Any, Any, object]: ...
    @overload
    def call(
        self,
        method: str,
        params: Any = ...,
        *,
        result: Any = ...,
        timeout: float | UnsetType | None = ...,
        total: float | None = ...,
        on_progress: Callable[[Any], object] | None = ...,
        extra: object = ...,
        reply_stream: Speak | None = ...,
    ) -> Coroutine[Any, Any, Any]: ...
    def call(
        self,
        method: str,
        params: Any = UNSET,
        *,
        result: Any = Any,
        timeout: float | UnsetType | None = UNSET,
        total: float | None = None,
        on_progress: Callable[[Any], object] | None = None,
        extra: object = None,
        reply_stream: Speak | None = None,
    ) -> Coroutine[Any, Any, Any]:
        """Call a method of the far end: await it for the result, decoded as `result`.

        `params`: a list, a dict, or anything that encodes to an array or an object, or a function that takes the call's
        id and returns one of these. `timeout`: seconds without an answer or progress (None: for ever; default: the
        peer's); `total`: seconds in all, with or without progress. `on_progress` gets each progress value. `extra` is
        for the channel, which finds it on its `Outgoing`; `reply_stream` is tried before the channel. Cancelling the
        awaiting task sends the dialect's cancel message.

        Raises RpcError (the far end answered with an error), CallTimeout, BadAnswer (a reply that is invalid
        or does not fit `result`), ChannelError (Ended, Closed, Broken), LocalError (params that are not an
        array or object, or too large).
        """
        if self._chain is not None:
            options = (result, timeout, total, on_progress, extra, reply_stream)
            return self._chained(self._chain, Call(method, params, UNSET, self, options))
        watch = self._runner.service._watch
        if watch is not None:
            return self._watched(watch, method, params, result, timeout, total, on_progress, extra, reply_stream)
        return self._call(None, method, params, result, timeout, total, on_progress, extra, reply_stream)

    async def _chained(self, handler: Next, call: Call) -> Any:
        return await handler(call)

    async def _send_past_middleware(self, call: Call) -> Any:
        """Make a call or send a notification past the middleware. Raises what `call` and `notify` raise."""
        if call.options is None or call.options is BROADCAST:
            return await self._notify(call.method, call.params, call.options is BROADCAST)
        watch = self._watch
        if watch is not None:
            return await self._watched(watch, call.method, call.params, *call.options)
        return await self._call(None, call.method, call.params, *call.options)

    async def _watched(self, watch: ServiceWatch, method: str, *call: Any) -> Any:
        """Make a call, and notify observers of it, also if it cannot be sent."""
        with watch.calling(self, method) as seen:
            return await self._call(seen, method, *call)

    async def _call(
        self,
        seen: Departure | None,
        method: str,
        params: Any,
        result: Any,
        timeout: Any,
        total: float | None,
        on_progress: Any,
        extra: Any,
        reply_stream: Speak | None,
    ) -> Any:
        """Make a call, as `call` describes it. `seen`: notifies observers."""
        if timeout is UNSET:
            timeout = self._timeout
        elif type(timeout) is not float or not timeout > 0:
            check(method, {"timeout": CALL_TIME}, {"timeout": timeout})
        if self._outside and running_loop() is not self._loop:
            raise wrong_loop(method)
        pending = OutboundCall(
            self._conversation,
            self._clock,
            method,
            decode_any if result is Any else decoder_of(result),
            timeout,
            on_progress,
            extra,
            reply_stream,
        )
        if total is not None:
            pending.until = self._loop.time() + total
        channel = self._channel
        if channel is None or not channel.writable:
            await self._wait_until_writable(
                total if timeout is None or (total is not None and total < timeout) else timeout
            )
        if seen is not None:
            pending.seen, pending.extra = seen, seen.with_headers(extra)
        self._register(pending, params)
        if seen is not None:
            seen.goes(pending.message)
        try:
            self._transmit(pending.message, pending)
            if pending.result is not UNSET:
                return pending.result
            waiting, pending.give_up = pending.future, self._stop_waiting
            pending.wait(timeout)
            return await waiting
        except BaseException as error:  # after a result there is nothing to clean up
            if isinstance(error, asyncio.CancelledError):
                self._abandon(pending)
            self._conversation.forget(pending.id)
            self._clock.drop(pending)
            if type(error) is RuntimeError and running_loop() is not self._loop:
                raise wrong_loop(method) from None
            raise

    def _register(self, pending: OutboundCall, params: Any) -> None:
        """Give a call its id and its text. Raises LocalError for params that cannot be written as JSON."""
        pending.id = self._conversation.expect(pending)
        try:
            if callable(params):
                params = params(pending.id)
            if pending.seen is not None:
                pending.message = pending.seen.encoded(self._encode, params, pending.id)
            else:
                pending.message = encode_call(pending.method, params, pending.id, v1=self._v1, limits=self._limits)
        except BaseException:
            self._conversation.forget(pending.id)
            raise

    def _encode(self, method: str, params: Any, id: Any) -> bytes:
        """Return the text of a call, or of a notification if `id` is UNSET. Raises LocalError for params that cannot be
        written as JSON, or are too large."""
        return encode_call(method, params, id, v1=self._v1, limits=self._limits)

    def _transmit(self, raw: bytes, call: Any) -> None:
        """Send the text of a call, on its reply stream if it has one; `call`: None for a notification. Raises
        ChannelError without a channel."""
        if call is not None and call.reply_stream is not None and call.reply_stream(raw):
            return
        channel = self._channel
        if channel is None:
            raise self._channel_error()
        if call is None:
            self._conversation.notified = True
        elif self._conversation.half_closed:
            if self._online is not None:
                return
            raise Ended("the far end closed its sending side: it can answer nothing more").because("hung_up")
        try:
            channel.send(raw, call)
        except ChannelError:
            if self._on_lost is None or not channel.duplex or not isinstance(call, OutboundCall):
                raise
            call.untaken = True  # the channel is over, and `ended` is called next

    def _channel_error(self) -> ChannelError:
        """Return the error of what cannot be sent, because there is no channel."""
        return again(self._why) if self._why is not None else Closed("the peer has no channel")

    async def _wait_until_writable(self, timeout: float | None) -> Channel:
        """Wait until a channel is connected and takes more, and return it. Raises CallTimeout after `timeout` seconds
        (None: never), ChannelError if no channel will come."""
        try:
            async with asyncio.timeout(timeout):
                while self._channel is None or not self._channel.writable or self._online is not None:
                    if self._online is not None:
                        await asyncio.shield(self._online)
                    elif self._channel is None:
                        raise self._channel_error()
                    else:
                        await self._channel.flush()
        except TimeoutError:
            what = "not connected" if self._channel is None else "the far end does not read"
            raise CallTimeout(f"nothing could be sent within {timeout} s: {what}") from None
        return self._channel

    def _abandon(self, pending: OutboundCall) -> None:
        """Wait no more for the answer to a call, and cancel it at the far end if the dialect has a message for that. No
        effect if it is not in flight."""
        if not self._conversation.forget(pending.id):
            return
        if pending.abandon is not None:
            pending.abandon()
        channel = self._channel
        dialect = self._dialect
        if channel is None or not channel.duplex or dialect.cancel is None or self._v1:
            return
        if pending.method not in dialect.uncancellable:
            message = to_json(CallMessage(dialect.cancel, {dialect.cancel_key: pending.id}))
            sent = pending.reply_stream is not None and pending.reply_stream(message)
            if not sent:
                self._conversation.notified = True
                try:
                    channel.send(message)
                    sent = True
                except ChannelError:
                    logger.debug("a cancel could not be sent: %s is over", self.caller.remote)
            if (watch := self._watch) is not None:
                watch.notified(self, dialect.cancel, message, sent)

    def _stop_waiting(self, pending: OutboundCall) -> str:
        """Cancel a call at the far end, and return what came while it waited and named no call; "" for nothing."""
        self._abandon(pending)
        return self._meanwhile(pending)

    def _meanwhile(self, pending: OutboundCall) -> str:
        """Return what came while this call waited and named no call, for the text of its error; "" for nothing."""
        return "" if self._notes is None else self._notes.about(pending)

    # -- tasks

    @overload
    async def start(
        self,
        method: str,
        params: Any = ...,
        *,
        result: type[T],
        timeout: float | UnsetType | None = ...,
        notify: bool = ...,
    ) -> TaskHandle[T]: ...
    @overload
    async def start(
        self,
        method: str,
        params: Any = ...,
        *,
        result: Any = ...,
        timeout: float | UnsetType | None = ...,
        notify: bool = ...,
    ) -> TaskHandle[Any]: ...
    async def start(
        self,
        method: str,
        params: Any = UNSET,
        *,
        result: Any = Any,
        timeout: float | UnsetType | None = UNSET,
        notify: bool = False,
    ) -> TaskHandle[Any]:
        """Start a method of the far end as a task, which goes on when this connection or either process ends, and
        return its handle once the far end keeps it. The method has `task=` there.

        `result`: the type of its result. `timeout`: seconds for the start alone, as of `call`. `notify`: the
        notification `tasks.changed` comes with its status whenever that changes, on wires that carry notifications
        back. Raises what `call` raises."""
        from .task_handle import start_task  # noqa: PLC0415  (start-up: for callers that start tasks)

        return await start_task(self, method, params, result, timeout, notify)

    @overload
    def task(self, id: str, *, result: type[T]) -> TaskHandle[T]: ...
    @overload
    def task(self, id: str, *, result: Any = ...) -> TaskHandle[Any]: ...
    def task(self, id: str, *, result: Any = Any) -> TaskHandle[Any]:
        """Return the handle of a task by its id, which may have been started on another connection, before a restart or
        at another replica. Whether there is one shows when the handle is used."""
        from .task_handle import TaskHandle  # noqa: PLC0415  (start-up: for callers that start tasks)

        return TaskHandle(self, id, result)

    # -- events

    @overload
    def subscribe(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = ...,
        *,
        result: type[T],
        cursor: str | None = ...,
        max_age: float | None = ...,
    ) -> EventSubscription[T]: ...
    @overload
    def subscribe(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = ...,
        *,
        result: Any = ...,
        cursor: str | None = ...,
        max_age: float | None = ...,
    ) -> EventSubscription[Any]: ...
    def subscribe(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        result: Any = Any,
        cursor: str | None = None,
        max_age: float | None = None,
    ) -> EventSubscription[Any]:
        """Return an async iterator of the far end's events of a type: `async for event in
        peer.subscribe("order_shipped", {"carrier": "DHL"})`. The far end is a service with `events=`, on a wire that
        carries notifications back. It begins with the iteration, or with `async with`, which also ends it.

        `arguments`: the values by which events are chosen. `result`: the type of their `data`. `cursor`: that of an
        event before, after which they begin; default: now. `max_age`: seconds; older events do not come."""
        from .event_subscription import EventSubscription  # noqa: PLC0415  (start-up: for those who subscribe)

        return EventSubscription(self, name, arguments, result=result, cursor=cursor, max_age=max_age)

    # -- notifications, batches and proxies

    async def notify(self, method: str, params: Any = UNSET, *, broadcast: bool = False) -> None:
        """Send a notification, and return when the wire has taken it. `broadcast`: send it to all workers at the
        address, on wires that have several (brokers). Raises ChannelError, CallTimeout, LocalError."""
        if self._chain is not None:
            await self._chain(Call(method, params, UNSET, self, BROADCAST if broadcast else None))
        else:
            await self._notify(method, params, broadcast)

    async def _notify(self, method: str, params: Any, broadcast: bool = False) -> None:
        watch = self._watch
        if watch is None:
            await self._send_notification(method, params, broadcast, None)
            return
        with watch.notifying(self, method) as seen:
            await self._send_notification(method, params, broadcast, seen)

    async def _send_notification(self, method: str, params: Any, broadcast: bool, seen: Departure | None) -> None:
        """Send a notification, as `notify` describes it. `seen`: notifies observers."""
        if running_loop() is not self._loop:
            raise wrong_loop(method)
        if self._channel is None or not self._channel.writable or self._online is not None:
            await self._wait_until_writable(self._timeout)
        if seen is None:
            raw = self._encode(method, params, UNSET)
        else:
            raw = seen.encoded(self._encode, params, UNSET)
            seen.goes(raw)
        if not broadcast:
            self._transmit(raw, None)
        elif (send := getattr(self._channel, "broadcast", None)) is not None:
            send(raw)
        else:
            raise LocalError(f"{method}: {self.caller.scheme or 'this wire'} has one far end and no broadcast")
        if seen is not None:
            seen.end("notified")
        channel = self._channel
        if channel is not None and (not channel.writable or not channel.duplex):
            await channel.flush()

    def batch(self, *, timeout: float | UnsetType | None = UNSET) -> OutgoingBatch:
        """Return a batch, which sends several calls in one message:
        `async with peer.batch() as batch: total = batch.call("sum", [1, 2])`.

        It is sent at the end of the block, which waits for every answer; then `total.result()` or `await total`
        returns the result of that one call, or raises its error. `timeout`: seconds, as for `call`.
        """
        return OutgoingBatch(self, self._timeout if timeout is UNSET else timeout)

    @overload
    def proxy(self, protocol: Callable[..., T], *, prefix: str = "") -> T: ...  # type[T] refuses Protocols
    @overload
    def proxy(self, protocol: None = None, *, prefix: str = "") -> Proxy: ...
    def proxy(self, protocol: Any = None, *, prefix: str = "") -> Any:
        """Return the far end as an object: `peer.proxy(Calculator)` takes a Protocol class of `async def` methods, by
        which calls are typed and checked; without one any attribute is a method: `peer.proxy().math.add(1, 2)`
        calls `math.add`. `prefix`: begins the names of the methods that are called."""
        return proxy(self.call, protocol, prefix)

    def notifications(self, method: str | None = None) -> Notifications:
        """Return an async iterator of the far end's notifications from now on, of all methods or of one.

        It ends when the peer is closed, and raises ChannelError when the channel is lost.
        """
        made = Notifications(self._loop, self._listening(), method)
        if self.closed:
            made.end(self.ending)
        return made

    def _listening(self) -> WeakSet[NotificationListener]:
        """Return what gets the far end's notifications, to which another listener may be added."""
        if not self._listeners:
            self._listeners = WeakSet()
        assert isinstance(self._listeners, WeakSet)
        return self._listeners


class BatchResult(Generic[T]):
    """The outcome of one call of a batch: `await` it, or call `result()`, after the block.

    Raises LocalError inside the block, because the batch is sent at its end and waiting would never end.
    """

    __slots__ = ("_batch", "_future")

    def __init__(self, batch: OutgoingBatch, future: asyncio.Future[T]) -> None:
        self._batch = batch
        self._future = future

    def __await__(self) -> Generator[Any, None, T]:
        if not self._future.done() and self._batch.is_open_here:
            raise LocalError("a batch is sent at the end of its block: await its calls behind it")
        self._batch.noticed()
        return self._future.__await__()

    def result(self) -> T:
        """Return the call's result. Raises the call's error; LocalError before the call is over."""
        if not self._future.done():
            raise LocalError("a batch is sent at the end of its block: its calls have no results yet")
        self._batch.noticed()
        return self._future.result()

    def exception(self) -> BaseException | None:
        """Return the call's error; None if it has a result. Raises LocalError before the call is over."""
        if not self._future.done():
            raise LocalError("a batch is sent at the end of its block: its calls have no results yet")
        self._batch.noticed()
        return self._future.exception()

    def done(self) -> bool:
        """Return whether the call is over."""
        return self._future.done()

    def cancelled(self) -> bool:
        """Return whether the block was left by an exception, so that nothing was sent."""
        return self._future.cancelled()


class OutgoingBatch:
    """Several calls in one message (`Peer.batch`). With middleware each call has a task of its own, and the message
    waits until each has passed."""

    def __init__(self, peer: Peer, timeout: float | None) -> None:
        self._peer = peer
        self._timeout = timeout
        self._messages: list[bytes] = []
        self._pendings: list[OutboundCall] = []
        self._group = object()  # not the batch itself, which refers to its calls
        self._tasks: list[asyncio.Task[Any]] = []  # with middleware: those of its calls and notifications
        self._in_middleware: set[int] = set()  # indexes of tasks that have not passed their middleware yet
        self._all_passed: asyncio.Future[None] | None = None  # done when none is in its middleware any more
        self._sent = False
        self._seen = None if peer._watch is None else peer._watch.batching(peer)
        self._notifications: list[tuple[Departure, bytes]] = []  # its notifications, where there are observers
        self._block: asyncio.Task[Any] | None = None  # the task that is inside the block
        self._fault: asyncio.Future[Any] | None = None  # holds the first error, until one of the results is looked at

    @property
    def is_open_here(self) -> bool:
        """Whether the running task is inside the block."""
        return self._block is not None and self._block is asyncio.current_task()

    @overload
    def call(self, method: str, params: Any = ..., *, result: type[T]) -> BatchResult[T]: ...
    @overload
    def call(self, method: str, params: Any = ..., *, result: Any = ...) -> BatchResult[Any]: ...
    def call(self, method: str, params: Any = UNSET, *, result: Any = Any) -> BatchResult[Any]:
        """Add a call; its result is available after the block. Raises LocalError outside the block."""
        self._check_inside(method)
        if self._peer._middleware:
            options = (result, self._timeout, None, None, None, None)
            return BatchResult(self, self._run_middleware(Call(method, params, UNSET, self._peer, options)))
        return BatchResult(self, self._add(method, params, result).future)

    def notify(self, method: str, params: Any = UNSET) -> None:
        """Add a notification. Raises LocalError outside the block."""
        self._check_inside(method)
        if self._peer._middleware:
            self._run_middleware(Call(method, params, UNSET, self._peer))
        else:
            self._add_notification(method, params)

    def _check_inside(self, method: str) -> None:
        """Raise LocalError outside the block."""
        if self._block is None:
            raise LocalError(f"{method}: a batch is filled within its block: `async with peer.batch() as batch:`")

    def _add_notification(self, method: str, params: Any) -> None:
        """Add the text of a notification to the message."""
        peer = self._peer
        if self._seen is None or peer._watch is None:
            self._messages.append(peer._encode(method, params, UNSET))
            return
        seen = peer._watch.notifying(peer, method, self._seen.seen)
        raw = seen.encoded(peer._encode, params, UNSET)
        self._notifications.append((seen, raw))
        self._messages.append(raw)

    def _add(self, method: str, params: Any, result: Any) -> OutboundCall:
        """Add the text of a call to the message, and return the call."""
        peer, decoder = self._peer, decoder_of(result)
        pending = OutboundCall(peer._conversation, peer._clock, method, decoder, self._timeout, batch=self._group)
        if self._seen is not None and peer._watch is not None:
            pending.seen = peer._watch.calling(peer, method, self._seen.seen)
        peer._register(pending, params)
        peer._conversation.forget(pending.id)  # what happens to the channel before it is sent does not concern it
        self._pendings.append(pending)
        self._messages.append(pending.message)
        return pending

    def _run_middleware(self, call: Call) -> asyncio.Task[Any]:
        """Begin the middleware of a call or notification in a task, which adds it to the message, and return the
        task."""
        index = len(self._tasks)

        async def last(call: Call) -> Any:
            if self._sent:  # middleware tries again: this call goes alone
                return await self._peer._send_past_middleware(call)
            pending = None
            if call.options is None:
                self._add_notification(call.method, call.params)
            else:
                pending = self._add(call.method, call.params, call.options[0])
            self._passed(index)
            return None if pending is None else await pending.future

        async def run() -> Any:
            return await chain(self._peer._middleware, last)(call)

        task = self._peer._loop.create_task(run())
        self._tasks.append(task)
        self._in_middleware.add(index)
        task.add_done_callback(lambda _: self._passed(index))
        return task

    def _passed(self, index: int) -> None:
        """Note that a task has passed its middleware, or has ended in it."""
        self._in_middleware.discard(index)
        if not self._in_middleware and self._all_passed is not None and not self._all_passed.done():
            self._all_passed.set_result(None)

    if not TYPE_CHECKING:
        __enter__ = __exit__ = only_async("peer.batch()", "")

    async def __aenter__(self) -> OutgoingBatch:
        if asyncio.get_running_loop() is not self._peer._loop:
            raise wrong_loop("a batch")
        self._block = asyncio.current_task()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._block = None
        if kind is not None:
            await self._drop()
            return
        try:
            if self._in_middleware:
                self._all_passed = self._peer._loop.create_future()
                await self._all_passed
            if self._messages:
                await self._send()
            if self._tasks:
                await asyncio.wait(self._tasks)
            self._gather_faults()
        except BaseException as fault:
            for pending in self._pendings:
                pending.fail(fault if isinstance(fault, Exception) else Closed("the batch was cancelled"))
                pending.future.cancelled() or pending.future.exception()
            await self._drop()
            raise

    def _gather_faults(self) -> None:
        """Keep the first failure in `_fault`, for asyncio to log it if the program looks at no result. A program that
        looks at one of them has seen that the wire failed, and needs no traceback for each of the others."""
        futures: list[asyncio.Future[Any]] = [*self._tasks] or [pending.future for pending in self._pendings]
        faults = [fault for one in futures if not one.cancelled() and (fault := one.exception()) is not None]
        if faults:
            self._fault = self._peer._loop.create_future()
            self._fault.set_exception(faults[0])

    def noticed(self) -> None:
        """Note that the program looks at one of the results, so that no failure has to be logged."""
        fault, self._fault = self._fault, None
        if fault is not None:
            fault.exception()

    async def _drop(self) -> None:
        """Cancel all calls of a batch that is not sent, or failed."""
        for pending in self._pendings:
            pending.future.cancel()
        if self._seen is not None:
            notified = (seen for seen, _ in self._notifications)
            for seen in (*notified, *(one.seen for one in self._pendings), self._seen):
                if seen is not None:
                    seen.end("cancelled", "its block was left")
        if not self._tasks:
            return
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)
        for task in self._tasks:
            task.cancelled() or task.exception()

    async def _send(self) -> None:
        """Send the message, and wait for the answers to all calls."""
        peer = self._peer
        self._sent = True
        raw = join(self._messages)
        if len(raw) > peer._limits.response_size:
            raise LocalError(f"the batch has {len(raw)} bytes, response_size allows {peer._limits.response_size}")
        out = BatchHandle(self._pendings)
        if self._seen is not None:
            out.extra = self._seen.with_headers(None)
        try:
            if peer._channel is None or not peer._channel.writable:
                await peer._wait_until_writable(self._timeout)
            for pending in self._pendings:
                peer._conversation.outbound[pending.id] = pending
                pending.give_up = peer._stop_waiting
                pending.wait(self._timeout)
            if self._seen is not None:
                self._report_start(self._seen, raw)
            if len(self._messages) > len(self._pendings):
                peer._conversation.notified = True
            peer._transmit(raw, out if self._pendings else None)
            for seen, _ in self._notifications:
                seen.end("notified")
            if self._pendings:
                await asyncio.wait([pending.future for pending in self._pendings])
            elif peer._channel is not None:
                await peer._channel.flush()
            if out.abandon is not None and any(pending.late for pending in self._pendings):
                out.abandon()
            if self._seen is not None:
                self._seen.batch_over()
        except BaseException as error:
            if self._seen is not None:
                self._seen.failed(error)
                for seen, _ in self._notifications:
                    seen.failed(error)
            for pending in self._pendings:
                peer._abandon(pending)
            if out.abandon is not None:
                out.abandon()
            raise

    def _report_start(self, whole: Departure, raw: bytes) -> None:
        """Notify observers that the batch and its elements are sent."""
        whole.batch_goes(raw)
        for pending in self._pendings:
            if pending.seen is not None:
                pending.seen.goes(pending.message)
        for seen, text in self._notifications:
            seen.goes(text)
