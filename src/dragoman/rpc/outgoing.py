"""Calls that went out: a `Pending` each, until their answer, their time-out or their channel's end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET

from ..channel import ChannelError, Closed
from ..jsonrpc.codec import join
from ..jsonrpc.errors import BadAnswer, CallTimeout, LocalError
from .middleware import Call, chain
from .results import result_decoder

if TYPE_CHECKING:
    from .peer import Peer
    from .run import Speak

logger = logging.getLogger("dragoman")

_anything = msgspec.json.Decoder().decode


class Pending:
    """One call that went out. It is the `Outgoing` of its message."""

    __slots__ = (
        "abandon",
        "decoder",
        "extra",
        "future",
        "group",
        "id",
        "message",
        "method",
        "on_progress",
        "peer",
        "timeout",
        "until",
        "via",
    )

    def __init__(self, peer: Peer, method: str, result: Any, timeout: float | None, group: object = None) -> None:
        self.peer = peer
        self.method = method
        self.decoder = result_decoder(result) if result is not Any else _anything
        self.timeout = timeout
        self.until: float | None = None
        self.on_progress: Callable[[Any], object] | None = None
        self.abandon: Callable[[], None] | None = None
        self.extra: Any = None
        self.via: Speak | None = None
        self.message = b""
        self.id = 0
        self.group = self if group is None else group
        self.future: asyncio.Future[Any] = peer.loop.create_future()

    @property
    def left(self) -> float | None:
        """Seconds until its time is up."""
        left = self.peer.host.clock.left(self)
        return None if left is None else max(left, 0.0)

    @property
    def settled(self) -> bool:
        """Nobody waits for an answer."""
        return self.future.done()

    @property
    def late(self) -> bool:
        """Whether it timed out."""
        done = self.future.done() and not self.future.cancelled()
        return done and isinstance(self.future.exception(), CallTimeout)

    def settle(self, raw: Any) -> None:
        """The result came."""
        if self.future.done():
            return
        try:
            self.future.set_result(self.decoder(raw))
        except BadAnswer as error:
            self.future.set_exception(error)
        except (msgspec.DecodeError, RecursionError) as error:
            self.future.set_exception(BadAnswer(f"{self.method}: the result does not fit: {error}"))

    def failed(self, why: Exception) -> None:
        """No result will come."""
        self.peer.conversation.forget(self.id)
        self.fail(why)

    def fail(self, why: Exception) -> None:
        self.peer.host.clock.drop(self)
        if not self.future.done():
            self.future.set_exception(why)

    # -- its time

    def wait(self, seconds: float | None) -> None:
        """Its time begins now: so many seconds (None: any number), and in all no longer than until `until`."""
        if self.until is not None:
            left = max(self.until - self.peer.loop.time(), 0)
            seconds = left if seconds is None else min(seconds, left)
        if seconds is not None:
            self.peer.host.clock.set(self, seconds)

    def progressed(self, value: Any) -> None:
        """The far end says how far it is."""
        if self.timeout is not None:
            self.wait(self.timeout)
        if self.on_progress is not None:
            try:
                self.on_progress(value)
            except Exception:
                logger.exception("on_progress of %r failed", self.method)

    def expired(self) -> None:
        """Time is up, unless the far end has asked us something since, which may be about this call: people are slow.

        What it asked before does not count: that may be what waits for this very call.
        """
        now = self.peer.loop.time()
        newest = next(reversed(self.peer.conversation.owed.values()), None)
        asked = newest is not None and newest.after >= self.id
        if (self.until is None or now < self.until) and asked and self.timeout is not None:
            self.wait(self.timeout)
            return
        self.peer._abandon(self)
        allowed = self.timeout if self.until is None or now < self.until - 0.01 else "its total time"
        text = f"{allowed} s" if isinstance(allowed, int | float) else allowed
        self.fail(CallTimeout(f"{self.method}: no answer within {text}"))


class Outbatch:
    """The calls of one batch, as the `Outgoing` of their one message."""

    __slots__ = ("abandon", "extra", "pendings", "via")

    def __init__(self, pendings: list[Pending]) -> None:
        self.abandon: Callable[[], None] | None = None
        self.extra: Any = None
        self.via: Speak | None = None
        self.pendings = pendings

    @property
    def left(self) -> float | None:
        """The time of one is that of all."""
        return self.pendings[0].left

    @property
    def settled(self) -> bool:
        """None of them waits for an answer."""
        return all(pending.settled for pending in self.pendings)

    def failed(self, why: Exception) -> None:
        for pending in self.pendings:
            pending.failed(why)


class OutgoingBatch:
    """See `Peer.batch`. With middleware each call has a task of its own, and the message waits until each is through."""

    def __init__(self, peer: Peer, timeout: float | None) -> None:
        self._peer = peer
        self._timeout = timeout
        self._messages: list[bytes] = []
        self._pendings: list[Pending] = []
        self._tasks: list[asyncio.Task[Any]] = []
        self._missing: set[int] = set()  # tasks that are still in their middleware, on the way out
        self._through: asyncio.Future[None] | None = None
        self._gone = False

    def call(self, method: str, params: Any = UNSET, *, result: Any = Any) -> asyncio.Future[Any]:
        """Add a call; its future is done when the block has ended."""
        if self._peer.middleware:
            return self._surrounded(
                Call(method, params, UNSET, self._peer, (result, self._timeout, None, None, None, None))
            )
        return self._add(method, params, result).future

    def notify(self, method: str, params: Any = UNSET) -> None:
        """Add a notification."""
        if self._peer.middleware:
            self._surrounded(Call(method, params, UNSET, self._peer))
        else:
            self._messages.append(self._peer._encode(method, params, UNSET))

    def _add(self, method: str, params: Any, result: Any) -> Pending:
        pending = Pending(self._peer, method, result, self._timeout, group=self)
        self._peer._send_call(pending, params)
        self._peer.conversation.forget(pending.id)  # until it is sent, nothing that happens to the channel concerns it
        self._pendings.append(pending)
        self._messages.append(pending.message)
        return pending

    def _surrounded(self, call: Call) -> asyncio.Task[Any]:
        place = len(self._tasks)

        async def last(call: Call) -> Any:
            if self._gone:  # a second try
                return await self._peer._last(call)
            pending = None
            if call.options is None:
                self._messages.append(self._peer._encode(call.method, call.params, UNSET))
            else:
                pending = self._add(call.method, call.params, call.options[0])
            self._arrived(place)
            return None if pending is None else await pending.future

        async def run() -> Any:
            return await chain(self._peer.middleware, last)(call)

        task = self._peer.loop.create_task(run())
        self._tasks.append(task)
        self._missing.add(place)
        task.add_done_callback(lambda _: self._arrived(place))
        return task

    def _arrived(self, place: int) -> None:
        self._missing.discard(place)
        if not self._missing and self._through is not None and not self._through.done():
            self._through.set_result(None)

    async def __aenter__(self) -> OutgoingBatch:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
        except BaseException as fault:
            for pending in self._pendings:
                pending.fail(fault if isinstance(fault, Exception) else Closed("the batch was cancelled"))
                pending.future.cancelled() or pending.future.exception()
            await self._dropped()
            raise

    async def _dropped(self) -> None:
        for pending in self._pendings:
            pending.future.cancel()
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
        out = Outbatch(self._pendings)
        try:
            if peer.channel is None or not peer.channel.writable:
                await peer._ready(self._timeout)
            for pending in self._pendings:
                peer.conversation.awaited[pending.id] = pending
                pending.wait(self._timeout)
            peer._transmit(raw, out if self._pendings else None)
            if self._pendings:
                await asyncio.wait([pending.future for pending in self._pendings])
            elif peer.channel is not None:
                await peer.channel.flush()
            if out.abandon is not None and any(pending.late for pending in self._pendings):
                out.abandon()
        except BaseException:
            for pending in self._pendings:
                peer._abandon(pending)
            if out.abandon is not None:
                out.abandon()
            raise


def again(why: ChannelError) -> ChannelError:
    """The same ending as a fresh exception, so that tracebacks do not pile up on one."""
    return type(why)(*why.args)
