"""Events of the far end, as an async iterator: `Peer.subscribe` returns one.

Rules:

- The position moves when the reader asks for the next event. So an event on which it worked when it was cancelled comes
  again to who goes on at `cursor`.
- After an outage, where the peer connects again, and after a refusal that does not last, it goes on at its position. A
  far end that ends it again and again is asked after pauses, and given up after a while, whether or not it accepts it.
- What comes while its reader is busy is kept, up to `WAITING` messages of `WAITING_SIZE` bytes; beyond that the call is
  cancelled, and begun again at the position once the reader has got so far: the server keeps the events.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Final, Generic, Self, TypeVar

import msgspec
from msgspec import Raw, Struct

from ..channel import ChannelError
from ..events.messages import EVENT, EventMessage
from ..jsonrpc.errors import LSP, BadAnswer, CallTimeout, LocalError, RpcError
from ..jsonrpc.messages import Notification
from ..jsonrpc.options import NONE, SECONDS, TEXT, check
from ..net.reconnect import backoff
from .event_messages import ACTIVE, HEARTBEAT, SUBSCRIBE, ActiveMessage
from .outbound import decoder_of

T = TypeVar("T")

WAITING: Final = 1_000
"""Messages that wait for the reader."""
WAITING_SIZE: Final = 8 * 1024 * 1024
"""Bytes of them, beyond which no more are taken."""
SILENCE: Final = 3 * HEARTBEAT
"""Seconds without a message after which a subscription is lost."""
GIVE_UP: Final = 60.0
"""Seconds for which it is begun again at a far end that refuses it for now, or ends it soon."""
PAUSES: Final = (0.25, 4.0)
"""Seconds until it is begun again: after the first failure, and at most. One that lives longer has not failed."""
_PASSING: Final = frozenset({LSP.codes["busy"], LSP.codes["draining"]})
"""The codes of refusals that do not last."""
_OPTIONS: Final = {"name": TEXT, "cursor": TEXT | NONE, "max_age": SECONDS | NONE}


class PeerEvent(Struct, Generic[T], frozen=True):
    """An event of the far end."""

    id: str
    """The same however often it comes."""
    name: str
    """The event type."""
    timestamp: float
    """When it happened, in Unix seconds."""
    data: T
    """The payload."""
    cursor: str | None = None
    """The position after it, which may be kept: `Peer.subscribe(cursor=)` goes on there."""


class _About(Struct):
    """The member by which a notification is recognised."""

    subscription: str = ""


_about = msgspec.json.Decoder(_About).decode


class _Ended(CallTimeout):
    """The far end has answered the call that lasts, though nobody cancelled it."""


class _Inbox:
    """What came for one subscription: a listener of the peer."""

    def __init__(self, id: str) -> None:
        self.id = id
        self.messages: deque[tuple[EventMessage | ActiveMessage, int]] = deque()
        """With the bytes of each."""
        self.full = False
        """Whether more came than may wait."""
        self.came = asyncio.Event()
        self.call: asyncio.Task[Any] | None = None
        """The call that lasts, which is cancelled when more has come than may wait."""
        self._size = 0

    def put(self, message: Notification) -> None:
        if message.method not in (EVENT, ACTIVE) or not isinstance(message.params, Raw) or self.full:
            return
        kind: Any = EventMessage if message.method == EVENT else ActiveMessage
        try:
            if _about(message.params).subscription != self.id:
                return
            found = msgspec.json.decode(message.params, type=kind)
        except (msgspec.DecodeError, RecursionError):
            return  # it is of somebody else, whose notifications have this name
        if isinstance(found, EventMessage):
            found = msgspec.structs.replace(found, data=found.data.copy())
        self.full = len(self.messages) >= WAITING or self._size >= WAITING_SIZE
        if not self.full:
            self.messages.append((found, len(message.params)))
            self._size += len(message.params)
        elif self.call is not None:
            self.call.cancel()
        self.came.set()

    def take(self) -> EventMessage | ActiveMessage:
        found, size = self.messages.popleft()
        self._size -= size
        return found

    def end(self, why: ChannelError | None) -> None:
        """The channel is lost: so is the call, which says why."""


class EventSubscription(Generic[T]):
    """The events of a type at the far end, from now on or from a position: an async iterator of `PeerEvent`, and a
    context manager, which begins it at once and ends it. It raises what `Peer.call` raises: InvalidParams for an
    unknown event type and for wrong arguments, ChannelError when the channel is lost and the peer does not connect
    again."""

    def __init__(
        self,
        peer: Any,
        name: str,
        arguments: Mapping[str, Any] | None,
        *,
        result: Any,
        cursor: str | None,
        max_age: float | None,
    ) -> None:
        check("subscribe", _OPTIONS, {"name": name, "cursor": cursor, "max_age": max_age})
        self.name: str = name
        """The event type."""
        self.arguments: Mapping[str, Any] = dict(arguments or {})
        """The values by which its events are chosen."""
        self.cursor: str | None = cursor
        """The position up to which the reader has got everything; None: it has not begun."""
        self.gaps: int = 0
        """How often events were skipped, because the far end did not keep them so long."""
        self._peer = peer
        self._max_age = max_age
        self._decode = decoder_of(result)
        self._next_cursor: str | None = None
        """The position after the event that the reader works on."""
        self._inbox: _Inbox | None = None
        self._call: asyncio.Task[Any] | None = None
        self._closed = False
        self._since = 0.0
        """When the channel was attached on which it was begun."""
        self._begun = 0.0
        """When the far end accepted it last."""
        self._failing: float | None = None
        """Since when the far end refuses it, or ends it soon."""
        self._pauses = backoff(*PAUSES)

    def __repr__(self) -> str:
        return f"<EventSubscription {self.name}>"

    async def __aenter__(self) -> Self:
        if self._call is None:
            await self._begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> PeerEvent[T]:
        if self._next_cursor is not None:
            self.cursor, self._next_cursor = self._next_cursor, None
        while True:
            message = await self._message()
            if isinstance(message, ActiveMessage):
                self._active(message)
                continue
            try:
                data: Any = message.data if self._decode is None else self._decode(message.data)
            except (msgspec.DecodeError, RecursionError, ValueError) as error:
                raise BadAnswer(f"{EVENT}: the data of {self.name} does not fit: {error}") from error
            cursor = message.cursor if isinstance(message.cursor, str) else None
            self._next_cursor = cursor
            return PeerEvent(message.id, message.name, message.timestamp, data, cursor)

    async def close(self) -> None:
        """End it; the iteration ends, too."""
        self._closed = True
        await self._end()

    # -- its calls

    def _active(self, message: ActiveMessage) -> None:
        self.gaps += message.truncated
        self.cursor = message.cursor

    async def _begin(self) -> None:
        """Subscribe at the position, and return once the far end has accepted it. Raises what that refuses."""
        while True:
            self._start()
            try:
                message = await self._wait()
                if not isinstance(message, ActiveMessage):
                    raise BadAnswer(
                        f"{EVENT}: an event of {self.name} came before {ACTIVE}, which begins a subscription"
                    )
                self._active(message)
                self._begun = asyncio.get_running_loop().time()
                return
            except (RpcError, ChannelError, CallTimeout) as error:
                await self._end()
                self._raise_unless_passing(error)
                await self._pause(error)
            except BaseException:
                await self._end()
                raise

    async def _pause(self, error: Exception) -> None:
        """Wait before it is begun again. Raises the error once the far end has failed for too long."""
        now = asyncio.get_running_loop().time()
        if not isinstance(error, RpcError | _Ended):
            self._failing = None  # an outage, for which the peer has bounds of its own
        elif self._failing is None:
            self._failing = now
        elif now - self._failing > GIVE_UP:
            self._failing = None  # who iterates further tries anew
            raise error
        await asyncio.sleep(next(self._pauses))

    def _start(self) -> None:
        peer = self._peer
        inbox = self._inbox = _Inbox(secrets.token_hex(8))
        params: dict[str, Any] = {"name": self.name, "subscription": inbox.id}
        if self.arguments:
            params["arguments"] = self.arguments
        if self.cursor is not None:
            params["cursor"] = self.cursor
        if self._max_age is not None:
            params["max_age"] = self._max_age
        self._since = peer._since
        peer._listening().add(inbox)
        self._call = inbox.call = asyncio.ensure_future(peer.call(SUBSCRIBE, params, timeout=None))
        self._call.add_done_callback(lambda _: inbox.came.set())

    async def _message(self) -> EventMessage | ActiveMessage:
        """Return the next message; begin again after what passes."""
        while True:
            if self._closed:
                raise StopAsyncIteration
            if self._call is None:
                await self._begin()
            try:
                return await self._wait()
            except (RpcError, ChannelError, CallTimeout) as error:
                await self._end()
                if self._closed:
                    raise StopAsyncIteration from None
                self._raise_unless_passing(error)
                if asyncio.get_running_loop().time() - self._begun > PAUSES[1]:
                    self._failing, self._pauses = None, backoff(*PAUSES)
                elif isinstance(error, RpcError | _Ended):
                    await self._pause(error)

    def _raise_unless_passing(self, error: Exception) -> None:
        if isinstance(error, RpcError) and error.code not in _PASSING:
            raise error
        if self._peer.closed:
            raise error

    async def _wait(self) -> EventMessage | ActiveMessage:
        """Return the next message of the call that lasts. Raises what that raised; CallTimeout where it is over."""
        inbox, call = self._inbox, self._call
        assert inbox is not None
        while call is not None:
            if self._peer._since != self._since:  # the peer has sent the call again, as it was: at an old position
                raise CallTimeout(f"{self.name}: the channel is another one")
            if inbox.messages:
                return inbox.take()
            if inbox.full:
                raise CallTimeout(f"{self.name}: this reader was {WAITING} events behind")  # it is begun again
            if self._closed:
                raise StopAsyncIteration
            if call.done():
                if call.cancelled():
                    break
                call.result()
                raise _Ended(f"{SUBSCRIBE}: the far end ended it")
            inbox.came.clear()
            try:
                async with asyncio.timeout(SILENCE):
                    await inbox.came.wait()
            except TimeoutError:
                if not call.done() and not inbox.messages and self._peer._online is None:
                    raise CallTimeout(f"{SUBSCRIBE}: nothing came for {SILENCE:g} s") from None
        raise LocalError(f"{self.name}: the subscription was ended by another task")

    async def _end(self) -> None:
        """End the call, if it goes on."""
        call, self._call = self._call, None
        inbox, self._inbox = self._inbox, None
        if inbox is not None:
            self._peer._listeners.discard(inbox)
            inbox.came.set()
        if call is not None:
            call.cancel()
            await asyncio.wait([call])
            if not call.cancelled():
                call.exception()  # it was raised to the reader, or is of no interest any more
