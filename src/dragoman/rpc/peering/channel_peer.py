"""The peer of a channel: what `connect` and serving make, a `Peer` for those who use it.

`ChannelEnd` takes calls; this module makes them, and handles loss, reconnection and close. Pending calls belong to
the peer, not to its channel.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from types import TracebackType
from typing import Any, Final, Literal, TypeAlias, TypeVar

from msgspec import UNSET, Raw, UnsetType

from ...channel import LIMITS, Broken, Channel, ChannelError, Closed, Ended, again
from ...jsonrpc.codec import CallMessage
from ...jsonrpc.errors import LSP, CallTimeout, Dialect, LocalError, RpcError
from ...jsonrpc.leniency import Leniency
from ...jsonrpc.limits import Limits
from ...jsonrpc.messages import ErrorObject
from ...jsonrpc.options import CALL_TIME, CALLABLE, FLAG, NONE, check, instance, many
from ..binding.results import encode_call, to_json
from ..method import ERROR
from ..middleware import Call, Middleware, Next, chain
from ..notifications import Notifications
from ..observing import Departure, ServiceWatch, Speak
from ..outbound import OutboundCall, OutgoingBatch, decoder_of, of_other_loop
from ..peer import Peer
from ..proxy import proxy
from ..runner import InboundCall, Runner
from .channel_end import LAPSED, UNDONE, ChannelEnd, OlderCalls

running_loop: Final = asyncio._get_running_loop
"""The running loop, or None; `asyncio.get_running_loop` raises where there is none, as under trio."""

T = TypeVar("T")
State: TypeAlias = Literal["connected", "lost", "closed"]
OnState: TypeAlias = Callable[[State, ChannelError | None], object]

logger: logging.Logger = logging.getLogger("dragoman")

BROADCAST: Any = ("broadcast",)
"""The options of a broadcast notification on its way through middleware."""


PEER: Final = {
    "limits": LIMITS | NONE,
    "timeout": CALL_TIME,
    "dialect": instance(Dialect, "a Dialect"),
    "lenient": instance(Leniency, "a Leniency") | NONE,
    "errors": many(ERROR),
    "middleware": many(CALLABLE),
    "v1": FLAG,
}
"""The rules of the options of a Peer."""


class ChannelPeer(ChannelEnd):
    """A `Peer`, and in `dir` nothing but that. `connect` makes one, and serving one for each channel.

    `attach` gives it its channel. `timeout`: seconds for a call that names none; None: for ever. `v1`: it writes
    JSON-RPC 1.0. `middleware` is around each of its calls.
    After an outage the calls of `idempotent` methods are sent again. `on_state` receives "connected", "lost" and
    "closed". `on_lost` and `redialling` are the library's, for connecting again.
    """

    __slots__ = (
        "_chain",
        "_ending",
        "_online",
        "_outside",
        "_why",
        "idempotent",
        "middleware",
        "on_lost",
        "on_state",
        "parting",
        "redialling",
        "state",
        "timeout",
        "v1",
    )

    def __init__(
        self,
        runner: Runner,
        *,
        limits: Limits | None = None,
        timeout: float | None = None,
        dialect: Dialect = LSP,
        lenient: Leniency | None = None,
        errors: Sequence[type[RpcError]] = (),
        middleware: Sequence[Middleware] = (),
        v1: bool = False,
    ) -> None:
        check("Peer", PEER, locals())
        service = runner.service
        super().__init__(runner, limits or service.limits, lenient or service._lenient, dialect, errors)
        self.timeout: float | None = timeout if timeout is not None else self.limits.call_timeout
        self.v1: bool = v1
        self._why: ChannelError | None = None
        self.middleware: tuple[Middleware, ...] = tuple(middleware)
        self._chain = chain(self.middleware, self.unchained) if middleware else None
        self._ending: asyncio.Task[None] | None = None  # closing, once draining is over
        self.idempotent: frozenset[str] = frozenset()
        self.on_lost: Callable[[ChannelError], bool] | None = None
        self.on_state: OnState | None = None
        self.state: Any = None
        """For the maker of this peer: the state of a protocol on top."""
        self.redialling: asyncio.Task[Any] | None = None
        self._online: asyncio.Future[None] | None = None
        """Done when it has another channel; None while calls are taken on the one it has, and where none will come."""
        self._outside = (
            False  # its channel leaves the process: what comes from another loop is refused before it is sent
        )
        self.parting: bool = False
        """Whether it closes because its server drains."""

    # -- life

    @property
    def closed(self) -> bool:
        """True when nothing more can ever be sent."""
        return self.channel is None and self._why is not None and self._online is None

    @property
    def ending(self) -> ChannelError | None:
        """How the channel was lost; None when we closed it, or while it lives."""
        return None if isinstance(self._why, Closed) else self._why

    @property
    def closing(self) -> bool:
        """Whether we are closing it."""
        return self.conversation.closing

    def attach(self, channel: Channel) -> None:
        """Use a channel, also for the calls that wait for one."""
        self._why = None
        self._outside = channel.caller.scheme != "memory"
        self.runner.peers.add(self)
        self.open(channel)
        if self.runner.call_limit.draining:
            self.later(self.part(set(), 0))  # it was on its way in
        channel.open(self)
        self._say("connected", None)
        if self._online is not None:
            self._online.set_result(None)
            self._online = None
            for pending in list(self.conversation.outbound.values()):
                pending.untaken = False
                try:
                    self.transmit(pending.message, pending)
                except ChannelError:  # over already: its end is on its way
                    return

    def drain(self) -> None:
        """Refuse new calls from now on."""
        self.conversation.draining = True

    async def part(self, older: set[InboundCall], patience: float) -> None:
        """Close once this conversation is idle, without waiting for other channels: its server drains.

        While calls of before (`older`) are in flight, at most `patience` seconds, new ones are taken too: to the far
        end it is one channel still. After that they are refused, which does not last, as all that is in flight was sent
        by one who waits for nothing older."""
        conversation = self.conversation
        self.parting = True
        self.end_standing(self.refusing)
        older |= set(conversation.waiting)
        if older:
            self._older = OlderCalls(older, self.loop.create_future())
            await asyncio.wait([self._older.over], timeout=patience)
            self._older = None
        self.drain()
        self.end_standing(self.refusing)
        if self.channel is not None and not conversation.idle:
            await asyncio.wait([self.idle()])
        await self._close(0)

    def lapse(self) -> None:
        """The far end's admission has expired: end what stands (subscriptions), then `close`."""
        self.refusing = LAPSED
        self.drain()
        self.end_standing(LAPSED)
        self.later(self._close(None))

    async def close(self, drain: float | None = None) -> None:
        """Refuse new calls, let those that came in end within `drain` seconds, send what is queued, close."""
        self.drain()
        if any(run.is_here for run in self.runner.runs if run.peer is self):
            self.later(self._close(drain))
        else:
            await self._close(drain)

    async def _close(self, drain: float | None) -> None:
        """If several tasks close at once, each waits for its own time, and the first whose time is up ends the waiting
        for all."""
        if self._tasks is not None and (task := asyncio.current_task()) is not None:
            self._tasks.discard(task)  # what waits for the end is not waited for by it
        self.conversation.closing = True
        if self.redialling is not None:
            self.redialling.cancel()
        waited = self._online is not None and self.channel is None
        self._give_up(Closed("the peer was closed"))
        seconds = self.limits.drain_timeout if drain is None else drain
        if self._ending is None and self.channel is not None and not self.conversation.idle and seconds:
            await asyncio.wait([self.idle()], timeout=seconds)
        if self._ending is None or (self._ending.done() and self.channel is not None):  # it got another channel since
            self._ending = self.loop.create_task(self._closed(waited))
        await asyncio.shield(self._ending)

    async def _closed(self, waited: bool) -> None:
        channel = self.channel
        if channel is not None:
            self.turn_away(LAPSED if self.lapsed else UNDONE)
            for pending in list(self.conversation.outbound.values()):
                self.abandon(pending)
                pending.fail(Closed("the peer was closed"))
            if self.parting and self.dialect.closing is not None and channel.caller.scheme != "stdio":
                self._notify_closing(channel, self.dialect.closing)
            await channel.close()
        if self._why is None or self.channel is not None or waited:
            self.ended(Closed("the peer was closed"))
        for pending in self.conversation.abandon():
            pending.fail(Closed("the peer was closed"))
        if self._tasks:
            await asyncio.wait(self._tasks)
        if self.alone:
            self.runner.release()

    def _notify_closing(self, channel: Channel, method: str) -> None:
        """All calls that were taken are answered: what the far end has sent since is not taken, and may be sent to
        another."""
        try:
            channel.send(to_json(CallMessage(method, {})))
        except ChannelError:
            logger.debug("%s was gone before it was notified of the end", self.caller.remote)

    async def __aenter__(self) -> ChannelPeer:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __dir__(self) -> list[str]:
        return dir(Peer)

    def __repr__(self) -> str:
        where = f"{self.caller.scheme}:{self.caller.remote}" if self.channel is not None else f"over: {self._why}"
        return f"<Peer {where}>"

    def ended(self, why: ChannelError) -> None:
        """The channel is over: drop unanswered calls, and fail our own calls that used it."""
        if self.conversation.followed and isinstance(why, Closed):
            why = Ended("the far end closed the channel").because("hung_up")
        self._over(why)
        self._why = why
        moving = self._online is not None
        self._fail_noted()
        back = self.on_lost is not None and not isinstance(why, Closed) and self.on_lost(why)
        if back and not moving:
            self._online = self.loop.create_future()
        self._say("lost" if back else "closed", why)
        for pending in list(self.conversation.outbound.values()):
            if not (back and (moving or pending.untaken or pending.method in self.idempotent)):
                self.conversation.forget(pending.id)
                pending.fail(self._ending_of(pending, why))
        if not back:
            self.runner.peers.discard(self)
            for listener in tuple(self.listeners):
                listener.end(self.ending)
        self._settled()

    def moving(self) -> None:
        if self.on_lost is None or self._online is not None or self.channel is None:
            return
        self._online = self.loop.create_future()  # what was not answered waits for the next channel
        self.conversation.half_closed = self.conversation.departing = True
        self.later(self.channel.close())

    def finished(self) -> None:
        if self._online is None:
            super().finished()

    def put_back(self, pending: OutboundCall, error: ErrorObject) -> bool:
        if self.on_lost is None or not self._says_draining(error):
            return False
        pending.untaken = True
        self.conversation.outbound[pending.id] = pending
        return True

    def _says_draining(self, error: ErrorObject) -> bool:
        """Whether the error is dragoman's for a call that was not begun, since its server is closing."""
        if error.code != self.dialect.codes["draining"] or not isinstance(error.data, Raw):
            return False
        return error.message.startswith("Draining") and b'"retry_after"' in bytes(error.data)

    def _ending_of(self, pending: OutboundCall, why: ChannelError) -> ChannelError:
        """Why a call gets no answer, with what came that may have been one."""
        words = self.noted(pending)
        return type(why)(f"{why}{words}").because(why.reason) if words and type(why) in (Ended, Broken) else again(why)

    def given_up(self, why: ChannelError) -> None:
        """No other channel will come."""
        self._give_up(why)
        self.ended(why)

    def _give_up(self, why: ChannelError) -> None:
        """Fail the calls that wait for another channel."""
        self.on_lost = None
        online, self._online = self._online, None
        if online is not None and not online.done():
            online.set_exception(why)
            online.exception()

    def _say(self, state: State, why: ChannelError | None) -> None:
        if self.on_state is None:
            return
        try:
            self.on_state(state, why)
        except Exception:
            logger.exception("on_state failed")

    # -- what goes out

    def call(
        self,
        method: str,
        params: Any = UNSET,
        *,
        result: Any = Any,
        timeout: float | UnsetType | None = UNSET,
        total: float | None = None,
        on_progress: Callable[[Any], object] | None = None,
        extra: Any = None,
        reply_stream: Speak | None = None,
    ) -> Coroutine[Any, Any, Any]:
        """Call a method of the far end: await it for the result, decoded as `result`. `Peer.call` has the options."""
        if self._chain is not None:
            options = (result, timeout, total, on_progress, extra, reply_stream)
            return self._chained(self._chain, Call(method, params, UNSET, self, options))
        watch = self.runner.service._watch
        if watch is not None:
            return self._watched(watch, method, params, result, timeout, total, on_progress, extra, reply_stream)
        return self._call(None, method, params, result, timeout, total, on_progress, extra, reply_stream)

    async def _chained(self, handler: Next, call: Call) -> Any:
        return await handler(call)

    async def unchained(self, call: Call) -> Any:
        """Make a call or send a notification past the middleware. Raises what `call` and `notify` raise."""
        if call.options is None or call.options is BROADCAST:
            return await self._notify(call.method, call.params, call.options is BROADCAST)
        watch = self.runner.service._watch
        if watch is not None:
            return await self._watched(watch, call.method, call.params, *call.options)
        return await self._call(None, call.method, call.params, *call.options)

    async def _watched(self, watch: ServiceWatch, method: str, *call: Any) -> Any:
        """Make a call of which observers are notified, also where something keeps it from being sent."""
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
        if timeout is UNSET:
            timeout = self.timeout
        elif type(timeout) is not float or not timeout > 0:
            check(method, {"timeout": CALL_TIME}, {"timeout": timeout})
        if self._outside and running_loop() is not self.loop:
            raise of_other_loop(method)
        pending = OutboundCall(self, method, decoder_of(result), timeout, on_progress, extra, reply_stream)
        if total is not None:
            pending.until = self.loop.time() + total
        channel = self.channel
        if channel is None or not channel.writable:
            await self.ready(total if timeout is None or (total is not None and total < timeout) else timeout)
        if seen is not None:
            pending.seen, pending.extra = seen, seen.with_headers(extra)
        self.register(pending, params)
        if seen is not None:
            seen.goes(pending.message)
        try:
            self.transmit(pending.message, pending)
            if pending.result is not UNSET:
                return pending.result
            waiting = pending.future
            pending.wait(timeout)
            return await waiting
        except BaseException as error:  # after a result there is nothing to clean up
            if isinstance(error, asyncio.CancelledError):
                self.abandon(pending)
            self.conversation.forget(pending.id)
            self.clock.drop(pending)
            if type(error) is RuntimeError and running_loop() is not self.loop:
                raise of_other_loop(method) from None
            raise

    def register(self, pending: OutboundCall, params: Any) -> None:
        """Give a call its id and its text. Raises LocalError for params that are not JSON."""
        pending.id = self.conversation.expect(pending)
        try:
            if callable(params):
                params = params(pending.id)
            if pending.seen is not None:
                pending.message = pending.seen.encoded(self.encode, params, pending.id)
            else:
                pending.message = encode_call(pending.method, params, pending.id, v1=self.v1, limits=self.limits)
        except BaseException:
            self.conversation.forget(pending.id)
            raise

    def encode(self, method: str, params: Any, id: Any) -> bytes:
        """The text of a call, or of a notification where `id` is UNSET. Raises LocalError."""
        return encode_call(method, params, id, v1=self.v1, limits=self.limits)

    def transmit(self, raw: bytes, call: Any) -> None:
        """Send the text of a call, on its reply stream where it has one. Raises ChannelError without a channel."""
        if call is not None and call.reply_stream is not None and call.reply_stream(raw):
            return
        channel = self.channel
        if channel is None:
            raise self._gone()
        if call is None:
            self.conversation.notified = True
        elif self.conversation.half_closed:
            if self._online is not None:
                return
            raise Ended("the far end closed its sending side: it can answer nothing more").because("hung_up")
        try:
            channel.send(raw, call)
        except ChannelError:
            if self.on_lost is None or not channel.duplex or not isinstance(call, OutboundCall):
                raise
            call.untaken = True  # it is over, and `ended` is called next

    def _gone(self) -> ChannelError:
        return again(self._why) if self._why is not None else Closed("the peer has no channel")

    async def ready(self, timeout: float | None) -> Channel:
        """The channel, once it is connected and takes more."""
        try:
            async with asyncio.timeout(timeout):
                while self.channel is None or not self.channel.writable or self._online is not None:
                    if self._online is not None:
                        await asyncio.shield(self._online)
                    elif self.channel is None:
                        raise self._gone()
                    else:
                        await self.channel.flush()
        except TimeoutError:
            what = "not connected" if self.channel is None else "the far end does not read"
            raise CallTimeout(f"nothing could be sent within {timeout} s: {what}") from None
        return self.channel

    def abandon(self, pending: OutboundCall) -> None:
        """Tell the far end that the call does not wait for its answer any more."""
        if not self.conversation.forget(pending.id):
            return
        if pending.abandon is not None:
            pending.abandon()
        channel = self.channel
        dialect = self.dialect
        if channel is None or not channel.duplex or dialect.cancel is None or self.v1:
            return
        if pending.method not in dialect.uncancellable:
            message = to_json(CallMessage(dialect.cancel, {dialect.cancel_key: pending.id}))
            sent = pending.reply_stream is not None and pending.reply_stream(message)
            if not sent:
                self.conversation.notified = True
                try:
                    channel.send(message)
                    sent = True
                except ChannelError:
                    logger.debug("a cancel could not be sent: %s is over", self.caller.remote)
            if (watch := self.watch) is not None:
                watch.notified(self, dialect.cancel, message, sent)

    async def notify(self, method: str, params: Any = UNSET, *, broadcast: bool = False) -> None:
        """Send a notification; returns when the wire has taken it."""
        if self._chain is not None:
            await self._chain(Call(method, params, UNSET, self, BROADCAST if broadcast else None))
        else:
            await self._notify(method, params, broadcast)

    async def _notify(self, method: str, params: Any, broadcast: bool = False) -> None:
        watch = self.watch
        if watch is None:
            await self._send_note(method, params, broadcast, None)
            return
        with watch.notifying(self, method) as seen:
            await self._send_note(method, params, broadcast, seen)

    async def _send_note(self, method: str, params: Any, broadcast: bool, seen: Departure | None) -> None:
        if running_loop() is not self.loop:
            raise of_other_loop(method)
        if self.channel is None or not self.channel.writable or self._online is not None:
            await self.ready(self.timeout)
        if seen is None:
            raw = self.encode(method, params, UNSET)
        else:
            raw = seen.encoded(self.encode, params, UNSET)
            seen.goes(raw)
        if not broadcast:
            self.transmit(raw, None)
        elif (send := getattr(self.channel, "broadcast", None)) is not None:
            send(raw)
        else:
            raise LocalError(f"{method}: {self.caller.scheme or 'this wire'} has one far end and no broadcast")
        if seen is not None:
            seen.end("notified")
        channel = self.channel
        if channel is not None and (not channel.writable or not channel.duplex):
            await channel.flush()

    def batch(self, *, timeout: float | UnsetType | None = UNSET) -> OutgoingBatch:
        """Return a batch, which sends several calls in one message."""
        return OutgoingBatch(self, self.timeout if timeout is UNSET else timeout)

    def proxy(self, protocol: Any = None, *, prefix: str = "") -> Any:
        """Return the far end as an object whose attributes are methods."""
        return proxy(self.call, protocol, prefix)

    def notifications(self, method: str | None = None) -> Notifications:
        """Return an iterator over the far end's notifications from now on."""
        return Notifications(self, method)
