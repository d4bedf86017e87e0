"""Calls that went out: a `Pending` each, until their answer, their time-out or their channel's end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET

from ..channel import ChannelError, Closed
from ..jsonrpc.codec import join
from ..jsonrpc.errors import BadAnswer, CallTimeout
from .binding import result_decoder

if TYPE_CHECKING:
    from .peer import Peer

_anything = msgspec.json.Decoder().decode


class Pending:
    """One call that went out. It is the `Outgoing` of its message."""

    __slots__ = (
        "abandon",
        "decoder",
        "future",
        "group",
        "id",
        "message",
        "method",
        "on_progress",
        "peer",
        "timeout",
        "until",
    )

    def __init__(self, peer: Peer, method: str, result: Any, timeout: float | None, group: object = None) -> None:
        self.peer = peer
        self.method = method
        self.decoder = result_decoder(result) if result is not Any else _anything
        self.timeout = timeout
        self.until: float | None = None
        self.on_progress: Callable[[Any], object] | None = None
        self.abandon: Callable[[], None] | None = None
        self.message = b""
        self.id = 0
        self.group = self if group is None else group
        self.future: asyncio.Future[Any] = peer.loop.create_future()

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

    def expired(self) -> None:
        self.peer._overdue(self)


class Outbatch:
    """The calls of one batch, as the `Outgoing` of their one message."""

    __slots__ = ("abandon", "pendings")

    def __init__(self, pendings: list[Pending]) -> None:
        self.abandon: Callable[[], None] | None = None
        self.pendings = pendings

    def failed(self, why: Exception) -> None:
        for pending in self.pendings:
            pending.failed(why)


class OutgoingBatch:
    """See `Peer.batch`."""

    def __init__(self, peer: Peer, timeout: float | None) -> None:
        self._peer = peer
        self._timeout = timeout
        self._messages: list[bytes] = []
        self._pendings: list[Pending] = []

    def call(self, method: str, params: Any = UNSET, *, result: Any = Any) -> asyncio.Future[Any]:
        """Add a call; its future is done when the block has ended."""
        pending = Pending(self._peer, method, result, self._timeout, group=self)
        self._peer._send_call(pending, params)
        self._pendings.append(pending)
        self._messages.append(pending.message)
        return pending.future

    def notify(self, method: str, params: Any = UNSET) -> None:
        """Add a notification."""
        self._messages.append(self._peer._encode(method, params, UNSET))

    async def __aenter__(self) -> OutgoingBatch:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None or not self._messages:
            for pending in self._pendings:
                self._peer.conversation.forget(pending.id)
                pending.future.cancel()
            return
        await self._send()

    async def _send(self) -> None:
        peer = self._peer
        out = Outbatch(self._pendings)
        try:
            if peer.channel is None or not peer.channel.writable:
                await peer._ready(self._timeout)
            for pending in self._pendings:
                peer._rearm(pending, self._timeout)
            peer._transmit(join(self._messages), out if self._pendings else None)
            if self._pendings:
                await asyncio.wait([pending.future for pending in self._pendings])
            elif peer.channel is not None:
                await peer.channel.flush()
            if out.abandon is not None and any(pending.late for pending in self._pendings):
                out.abandon()
        except BaseException as error:
            for pending in self._pendings:
                peer._abandon(pending)
                pending.fail(error if isinstance(error, Exception) else Closed("the batch was cancelled"))
                pending.future.cancelled() or pending.future.exception()
            if out.abandon is not None:
                out.abandon()
            raise


def again(why: ChannelError) -> ChannelError:
    """The same ending as a fresh exception, so that tracebacks do not pile up on one."""
    return type(why)(*why.args)
