"""The public type of one end of a channel, which makes calls and takes calls.

`connect` and serving make the peers: `ChannelPeer`.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Protocol, TypeVar, overload, runtime_checkable

from msgspec import UNSET, UnsetType

from ..channel import Caller, ChannelError
from .notifications import Notifications
from .observing import Speak
from .outbound import OutgoingBatch
from .proxy import Proxy

T = TypeVar("T")


@runtime_checkable
class Peer(Protocol):
    """One end of a channel: `connect` makes one, and handlers have that of their call as `ctx.peer`.

    Entered with `async with` it closes itself at the end of the block.
    """

    @property
    def caller(self) -> Caller:
        """The far end, as the wire knows it."""

    @property
    def closed(self) -> bool:
        """True when nothing more can ever be sent."""

    @property
    def ending(self) -> ChannelError | None:
        """How the channel was lost; None when we closed it, or while it lives."""

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

    async def notify(self, method: str, params: Any = UNSET, *, broadcast: bool = False) -> None:
        """Send a notification; returns when the wire has taken it. `broadcast`: to all workers at the address, on wires
        that have several (brokers). Raises ChannelError, CallTimeout, LocalError."""

    def batch(self, *, timeout: float | UnsetType | None = UNSET) -> OutgoingBatch:
        """Several calls in one message: `async with peer.batch() as batch: total = batch.call("sum", [1, 2])`.

        It is sent at the end of the block, which waits for every answer; then `total.result()` or
        `await total` gives the result or raises the error of that one call.
        """

    @overload
    def proxy(self, protocol: Callable[..., T], *, prefix: str = "") -> T: ...  # type[T] refuses Protocols
    @overload
    def proxy(self, protocol: None = None, *, prefix: str = "") -> Proxy: ...
    def proxy(self, protocol: Any = None, *, prefix: str = "") -> Any:
        """The far end as an object: `peer.proxy(Calculator)` with a Protocol class of `async def` methods, typed
        and checked by it; without one any attribute is a method, `peer.proxy().math.add(1, 2)` calls `math.add`."""

    def notifications(self, method: str | None = None) -> Notifications:
        """The far end's notifications from now on, of all methods or of one, as an async iterator.

        It ends when the peer is closed and raises the channel's ending when it is lost.
        """

    async def close(self, drain: float | None = None) -> None:
        """Refuse new calls, let those that came in end within `drain` seconds (default: the limits'
        `drain_timeout`), send what is queued, close. Our own calls still in flight fail with `Closed`.

        Inside a handler that this peer runs, closing only begins, because it waits for the handler's own answer.
        """

    async def __aenter__(self) -> Peer: ...
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
