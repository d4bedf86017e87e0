"""Outgoing calls: an `OutboundCall` each, until their answer, their time-out or the end of their channel."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Generator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar, overload

import msgspec
from msgspec import UNSET, Raw, Struct

from ..channel import Channel, Closed
from ..jsonrpc.codec import join, key
from ..jsonrpc.conversation import Conversation
from ..jsonrpc.errors import BadAnswer, CallTimeout, LocalError, MethodNotFound, RpcError
from ..jsonrpc.limits import Limits
from ..jsonrpc.options import only_async
from ..repeats import Repeats
from .binding.results import result_decoder
from .deadlines import DeadlineClock
from .middleware import Call, Middleware, chain
from .observing import Departure, FarEndpoint, ServiceWatch, Speak

T = TypeVar("T")
logger: logging.Logger = logging.getLogger("dragoman")
repeats: Repeats = Repeats(logger)

_anything = msgspec.json.Decoder().decode


class CallSender(FarEndpoint, Protocol):
    """A peer, as what goes out sees it."""

    conversation: Conversation[Any, Any]
    channel: Channel | None
    limits: Limits
    middleware: tuple[Middleware, ...]
    longest: float | None
    """Most seconds from the first progress of a call; None: any number."""

    @property
    def watch(self) -> ServiceWatch | None:
        """Its observers, where it has some."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop."""

    @property
    def clock(self) -> DeadlineClock:
        """The deadlines."""

    def abandon(self, pending: OutboundCall) -> None:
        """Tell the far end that the call does not wait for its answer any more."""

    def noted(self, pending: OutboundCall) -> str:
        """Return what came while this call waited and named no call, for its error; "" for nothing."""

    def encode(self, method: str, params: Any, id: Any) -> bytes:
        """The text of a call. Raises LocalError."""

    def register(self, pending: OutboundCall, params: Any) -> None:
        """Give a call its id and its text."""

    async def unchained(self, call: Call) -> Any:
        """Send a call that has passed its middleware."""

    async def ready(self, timeout: float | None) -> Channel:
        """The channel, once it is there and takes more."""

    def transmit(self, raw: bytes, call: Any) -> None:
        """Send a text. Raises ChannelError."""


def decoder_of(result: Any) -> Callable[[Raw], Any] | None:
    """Return the decoder for results of this type. Raises LocalError for a type that no JSON can be decoded to."""
    return None if result is Raw else _anything if result is Any else result_decoder(result)


IS_MCP: Final = (
    "this is an MCP server: dragoman.mcp.Client speaks to it; on the command dragoman tools and dragoman tool do"
)


def of_mcp(error: Exception) -> bool:
    """Whether an error that came over HTTP is one with which MCP servers alone answer: it misses a session, or has a
    code of MCP."""
    if not isinstance(error, RpcError):
        return False
    return error.code in (-32020, -32021, -32022) or _SESSION.search(error.message[:200]) is not None


_SESSION: Final = re.compile(
    r"(?i)missing\W+(?:mcp.)?session|mcp-session-id\b.*(?:missing|required)|no valid session id"
)


def of_other_loop(method: str) -> LocalError:
    """The error of what is sent from another event loop than that of its peer."""
    return LocalError(
        f"{method}: this peer belongs to another event loop, on which it was connected: connect one on this loop; from "
        "another thread use asyncio.run_coroutine_threadsafe(peer.call(...), loop) or loop.call_soon_threadsafe, or a "
        "peer of dragoman.sync.connect(...), which any thread may use"
    )


class OutboundCall(Struct, eq=False):
    """One outgoing call. The `Outgoing` of its message."""

    peer: CallSender
    method: str
    decoder: Callable[[Raw], Any] | None
    """None: the result is wanted as JSON text, which was checked with its answer."""
    timeout: float | None
    on_progress: Callable[[Any], object] | None = None
    extra: Any = None
    reply_stream: Speak | None = None
    batch: object = None
    """Equal for the calls of one batch; None: the call is in none."""
    id: int = 0
    message: bytes = b""
    until: float | None = None
    abandon: Callable[[], None] | None = None
    seen: Departure | None = None
    """Notifies observers, where there are some."""
    untaken: bool = False
    """Whether the far end has refused to begin it, since it is closing the channel: it may be sent to another."""
    result: Any = UNSET
    """Its result, once it has succeeded."""
    _error: Exception | None = None
    _future: asyncio.Future[Any] | None = None
    """None where the answer came at once, which needs no time-out either."""

    @property
    def group(self) -> object:
        """Equal for the calls of one batch."""
        return self if self.batch is None else self.batch  # a reference to itself would be the collector's work

    @property
    def left(self) -> float | None:
        """Seconds until its time is up. Before it is awaited its whole time is left."""
        left = self._span(self.timeout) if self._future is None else self.peer.clock.left(self)
        return None if left is None else max(left, 0.0)

    @property
    def future(self) -> asyncio.Future[Any]:
        """Its outcome."""
        future = self._future
        if future is None:
            future = self._future = self.peer.loop.create_future()
            if self._error is not None:
                future.set_exception(self._error)
            elif self.result is not UNSET:
                future.set_result(self.result)
        return future

    @property
    def settled(self) -> bool:
        """Whether the call does not wait for an answer."""
        future = self._future
        return self.result is not UNSET or self._error is not None or (future is not None and future.done())

    @property
    def late(self) -> bool:
        """Whether it timed out."""
        return isinstance(self._error, CallTimeout)

    def awaits(self, id: Any) -> bool:
        """Whether an answer with this id is its own."""
        return self.id == (id if type(id) is int else key(id))

    def settle(self, raw: Any) -> None:
        """The result has come."""
        decode, future = self.decoder, self._future
        if future is not None:
            self.peer.clock.drop(self)
        if self.result is not UNSET or self._error is not None or (future is not None and future.done()):
            return
        try:
            value = raw if decode is None else decode(raw)
        except BadAnswer as error:
            self.fail(BadAnswer(f"{self.method}: {error}"))
            return
        except (msgspec.DecodeError, RecursionError) as error:
            self.fail(BadAnswer(f"{self.method}: the result does not fit: {error}"))
            return
        self.result = value
        if future is not None:
            future.set_result(value)
        if self.seen is not None:
            self.seen.end("result")

    def failed(self, why: Exception) -> None:
        """No result will come."""
        self.peer.conversation.forget(self.id)
        self.fail(why)

    def fail(self, why: Exception) -> None:
        if isinstance(why, MethodNotFound):
            why.method = self.method
        self.peer.clock.drop(self)
        if not self.settled:
            self._error = why
            if self._future is not None:
                self._future.set_exception(why)
            if self.seen is not None:
                self.seen.failed(why)

    # -- its time

    def hold(self) -> None:
        """Its time stands still; `until` does not move."""
        self.peer.clock.drop(self)

    def resume(self) -> None:
        """Its time begins anew."""
        if not self.settled:
            self.wait(self.timeout)

    def wait(self, seconds: float | None) -> None:
        """Its time begins now: this many seconds (None: any number), but not beyond `until`."""
        seconds = self._span(seconds)
        if seconds is not None:
            self.peer.clock.set(self, seconds)

    def _span(self, seconds: float | None) -> float | None:
        if self.until is None:
            return seconds
        left = max(self.until - self.peer.loop.time(), 0)
        return left if seconds is None else min(seconds, left)

    def progressed(self, value: Any) -> None:
        """The far end reports progress."""
        if self.timeout is not None and self._future is not None:
            if self.until is None and self.peer.longest is not None:
                self.until = self.peer.loop.time() + max(self.peer.longest, self.timeout)
            self.wait(self.timeout)
        if self.on_progress is not None:
            try:
                self.on_progress(value)
            except Exception:
                repeats.error("on_progress of %r failed", self.method, exc_info=True)

    def expired(self) -> None:
        """Time is up, unless the far end has called us since, which may be about this call: users are slow.

        Earlier questions do not count: their handlers may be waiting for this very call.
        """
        now = self.peer.loop.time()
        newest = next(reversed(self.peer.conversation.inbound.values()), None)
        questioned = newest is not None and newest.after >= self.id
        if (self.until is None or now < self.until) and questioned and self.timeout is not None:
            self.wait(self.timeout)
            return
        self.peer.abandon(self)
        allowed = self.timeout if self.until is None or now < self.until - 0.01 else "its total time"
        within = allowed if isinstance(allowed, str) else f"{allowed} s"
        self.fail(CallTimeout(f"{self.method}: no answer within {within}{self.peer.noted(self)}"))


class BatchHandle:
    """The calls of one batch, as the `Outgoing` of their one message."""

    __slots__ = ("abandon", "extra", "pendings", "reply_stream")

    def __init__(self, pendings: list[OutboundCall]) -> None:
        self.abandon: Callable[[], None] | None = None
        self.extra: Any = None
        self.reply_stream: Speak | None = None
        self.pendings: list[OutboundCall] = pendings

    @property
    def left(self) -> float | None:
        """The time of one is that of all."""
        return self.pendings[0].left

    @property
    def settled(self) -> bool:
        """Whether none of them waits for an answer."""
        return all(pending.settled for pending in self.pendings)

    def awaits(self, id: Any) -> bool:
        """Whether an answer with this id is that of one of them."""
        return any(pending.awaits(id) for pending in self.pendings)

    def failed(self, why: Exception) -> None:
        for pending in self.pendings:
            pending.failed(why)

    def hold(self) -> None:
        for pending in self.pendings:
            pending.hold()

    def resume(self) -> None:
        for pending in self.pendings:
            pending.resume()


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
        """The result. Raises the call's error; LocalError before the call is over."""
        if not self._future.done():
            raise LocalError("a batch is sent at the end of its block: its calls have no results yet")
        self._batch.noticed()
        return self._future.result()

    def exception(self) -> BaseException | None:
        """The call's error, None if it has a result. Raises LocalError before the call is over."""
        if not self._future.done():
            raise LocalError("a batch is sent at the end of its block: its calls have no results yet")
        self._batch.noticed()
        return self._future.exception()

    def done(self) -> bool:
        """Whether the call is over."""
        return self._future.done()

    def cancelled(self) -> bool:
        """Whether the block was left by an exception, so that nothing was sent."""
        return self._future.cancelled()


class OutgoingBatch:
    """Several calls in one message (`Peer.batch`). With middleware each call has a task of its own, and the message
    waits until each has passed."""

    def __init__(self, peer: CallSender, timeout: float | None) -> None:
        self._peer = peer
        self._timeout = timeout
        self._messages: list[bytes] = []
        self._pendings: list[OutboundCall] = []
        self._group = object()  # not the batch itself, which refers to its calls
        self._tasks: list[asyncio.Task[Any]] = []
        self._missing: set[int] = set()  # tasks that are still in their middleware, on the way out
        self._through: asyncio.Future[None] | None = None
        self._gone = False
        self._seen = None if peer.watch is None else peer.watch.batching(peer)
        self._notes: list[tuple[Departure, bytes]] = []  # its notifications, where there are observers
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
        self._inside(method)
        if self._peer.middleware:
            options = (result, self._timeout, None, None, None, None)
            return BatchResult(self, self._surrounded(Call(method, params, UNSET, self._peer, options)))
        return BatchResult(self, self._add(method, params, result).future)

    def notify(self, method: str, params: Any = UNSET) -> None:
        """Add a notification. Raises LocalError outside the block."""
        self._inside(method)
        if self._peer.middleware:
            self._surrounded(Call(method, params, UNSET, self._peer))
        else:
            self._note(method, params)

    def _inside(self, method: str) -> None:
        if self._block is None:
            raise LocalError(f"{method}: a batch is filled within its block: `async with peer.batch() as batch:`")

    def _note(self, method: str, params: Any) -> None:
        peer = self._peer
        if self._seen is None or peer.watch is None:
            self._messages.append(peer.encode(method, params, UNSET))
            return
        seen = peer.watch.notifying(peer, method, self._seen.seen)
        raw = seen.encoded(peer.encode, params, UNSET)
        self._notes.append((seen, raw))
        self._messages.append(raw)

    def _add(self, method: str, params: Any, result: Any) -> OutboundCall:
        pending = OutboundCall(self._peer, method, decoder_of(result), self._timeout, batch=self._group)
        if self._seen is not None and self._peer.watch is not None:
            pending.seen = self._peer.watch.calling(self._peer, method, self._seen.seen)
        self._peer.register(pending, params)
        self._peer.conversation.forget(pending.id)  # until it is sent, nothing that happens to the channel concerns it
        self._pendings.append(pending)
        self._messages.append(pending.message)
        return pending

    def _surrounded(self, call: Call) -> asyncio.Task[Any]:
        index = len(self._tasks)

        async def last(call: Call) -> Any:
            if self._gone:  # a second try
                return await self._peer.unchained(call)
            pending = None
            if call.options is None:
                self._note(call.method, call.params)
            else:
                pending = self._add(call.method, call.params, call.options[0])
            self._arrived(index)
            return None if pending is None else await pending.future

        async def run() -> Any:
            return await chain(self._peer.middleware, last)(call)

        task = self._peer.loop.create_task(run())
        self._tasks.append(task)
        self._missing.add(index)
        task.add_done_callback(lambda _: self._arrived(index))
        return task

    def _arrived(self, index: int) -> None:
        self._missing.discard(index)
        if not self._missing and self._through is not None and not self._through.done():
            self._through.set_result(None)

    if not TYPE_CHECKING:
        __enter__ = __exit__ = only_async("peer.batch()", "")

    async def __aenter__(self) -> OutgoingBatch:
        if asyncio.get_running_loop() is not self._peer.loop:
            raise of_other_loop("a batch")
        self._block = asyncio.current_task()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._block = None
        if kind is not None:
            await self._dropped()
            return
        try:
            if self._missing:
                self._through = self._peer.loop.create_future()
                await self._through
            if self._messages:
                await self._send()
            if self._tasks:
                await asyncio.wait(self._tasks)
            self._gather_faults()
        except BaseException as fault:
            for pending in self._pendings:
                pending.fail(fault if isinstance(fault, Exception) else Closed("the batch was cancelled"))
                pending.future.cancelled() or pending.future.exception()
            await self._dropped()
            raise

    def _gather_faults(self) -> None:
        """A failure of a batch is logged once, not for each call: a program that has looked at any of the results
        has seen that the wire failed, and asyncio would write a traceback for each of the others."""
        futures: list[asyncio.Future[Any]] = [*self._tasks] or [pending.future for pending in self._pendings]
        faults = [fault for one in futures if not one.cancelled() and (fault := one.exception()) is not None]
        if faults:
            self._fault = self._peer.loop.create_future()
            self._fault.set_exception(faults[0])

    def noticed(self) -> None:
        """The program looks at one of the results."""
        fault, self._fault = self._fault, None
        if fault is not None:
            fault.exception()

    async def _dropped(self) -> None:
        for pending in self._pendings:
            pending.future.cancel()
        if self._seen is not None:
            for seen in (*(seen for seen, _ in self._notes), *(one.seen for one in self._pendings), self._seen):
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
        peer = self._peer
        self._gone = True
        raw = join(self._messages)
        if len(raw) > peer.limits.response_size:
            raise LocalError(f"the batch has {len(raw)} bytes, response_size allows {peer.limits.response_size}")
        out = BatchHandle(self._pendings)
        if self._seen is not None:
            out.extra = self._seen.with_headers(None)
        try:
            if peer.channel is None or not peer.channel.writable:
                await peer.ready(self._timeout)
            for pending in self._pendings:
                peer.conversation.outbound[pending.id] = pending
                pending.wait(self._timeout)
            if self._seen is not None:
                self._starts(self._seen, raw)
            if len(self._messages) > len(self._pendings):
                peer.conversation.notified = True
            peer.transmit(raw, out if self._pendings else None)
            for seen, _ in self._notes:
                seen.end("notified")
            if self._pendings:
                await asyncio.wait([pending.future for pending in self._pendings])
            elif peer.channel is not None:
                await peer.channel.flush()
            if out.abandon is not None and any(pending.late for pending in self._pendings):
                out.abandon()
            if self._seen is not None:
                self._seen.batch_over()
        except BaseException as error:
            if self._seen is not None:
                self._seen.failed(error)
                for seen, _ in self._notes:
                    seen.failed(error)
            for pending in self._pendings:
                peer.abandon(pending)
            if out.abandon is not None:
                out.abandon()
            raise

    def _starts(self, whole: Departure, raw: bytes) -> None:
        whole.batch_goes(raw)
        for pending in self._pendings:
            if pending.seen is not None:
                pending.seen.goes(pending.message)
        for seen, note in self._notes:
            seen.goes(note)
