"""Follows the events of one type, by a stream or by polling, across lost connections and restarts of the server.

Rules:

- The position is that of the last event that was taken, or one that the server told after it: what was not taken comes
  again after a loss.
- Events that were taken already are recognised by their ids, and left out.
- A server that stops telling that it lives has lost the stream, and a reader that is far behind gives it up; both go on
  at the position, which costs the server nothing meanwhile.
- A poll comes when the server wants it, and at once where it has more.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from types import TracebackType
from typing import Any, Final, Literal, TypeAlias

import msgspec
from msgspec import UNSET

from ....channel import ChannelError
from ....jsonrpc.errors import BadAnswer, CallTimeout, LocalError, MethodNotFound, RpcError
from ....net.reconnect import backoff
from ....repeats import Repeats
from .client_home import ClientHome, pause_after
from .model import (
    CODES,
    SEP_CODES,
    ActiveParams,
    EventOccurrence,
    PollEventsParams,
    PollEventsResult,
    StreamEventsParams,
)
from .received import ReceivedEvent, received
from .stream_call import StreamCall

logger: logging.Logger = logging.getLogger("dragoman.mcp")
repeats: Repeats = Repeats(logger)

ListenMode: TypeAlias = Literal["push", "poll"]

PAUSES: Final = (0.1, 30.0)
"""The first and the longest pause before a lost stream is begun again, or a failed poll is made again, in seconds."""
WAIT: Final = 20.0
"""Seconds that a server may hold a poll: below the thirty after which a proxy or a client's time-out would end it."""
ANSWER: Final = 30.0
"""Seconds for the answer to a poll, beside those."""
MAX_POLL: Final = 3600.0
"""Seconds between two polls at most, whatever the server says: beyond that nobody would know that it is gone."""
DEFAULT_POLL: Final = 30.0
"""Seconds between two polls where the server does not say."""
EVENT_ID: Final = 1_024
"""Characters of the id of an event; that many are remembered of each."""
REMEMBERED: Final = 1_000
"""Ids of events that were taken, by which they are recognised when they come again."""

_LOST = (ChannelError, CallTimeout)


class Listening:
    """The events of one type: an async iterator of `ReceivedEvent`, and an async context manager, which ends it. Made
    by `EventsClient.listen`, which has the options.

    It ends only by what it raises: RpcError if the server refuses or ends it, LocalError if the event type is not
    delivered in this way, ChannelError if the server is lost and does not come back.
    """

    def __init__(
        self,
        home: ClientHome,
        name: str,
        arguments: Mapping[str, Any] | None,
        mode: ListenMode | None,
        cursor: str | None,
        max_age: float | None,
    ) -> None:
        self.name: str = name
        """The event type."""
        self.mode: ListenMode | None = mode
        """How they come: by a stream ("push") or by polling; None before the server was asked what it has."""
        self.cursor: str | None = cursor
        """The position after the events that were taken: keep it, and give it to `listen` to go on there. None: there
        is none yet, or the event type has none."""
        self.gaps = 0
        """How often events were skipped."""
        self._home = home
        self._arguments = dict(arguments) if arguments is not None else {}
        self._max_age = max_age
        self._taken: OrderedDict[str, None] = OrderedDict()
        self._truncated = False
        """Whether events were skipped before the next one."""
        self._begun = False
        self._iterator: AsyncGenerator[ReceivedEvent, None] = self._follow()
        self._next: asyncio.Task[ReceivedEvent] | None = None
        """What brings the next event. It goes on when the reader gives up waiting."""
        self._reading = asyncio.Lock()
        self._closing = asyncio.Lock()
        self._closed = False

    def __repr__(self) -> str:
        return f"<Listening {self.name}{'' if self.mode is None else f', {self.mode}'}>"

    async def __aenter__(self) -> Listening:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __aiter__(self) -> AsyncIterator[ReceivedEvent]:
        return self

    async def __anext__(self) -> ReceivedEvent:
        """Return the next event. A task that gives up waiting, as by a time-out, loses none."""
        async with self._reading:
            if self._closed:
                raise StopAsyncIteration
            if self._next is None:
                self._home.listening.add(self)
                self._next = asyncio.get_running_loop().create_task(self._advance())
            await asyncio.wait([self._next])
            if self._closed or self._next is None:
                raise StopAsyncIteration
            task, self._next = self._next, None
            return task.result()

    async def _advance(self) -> ReceivedEvent:
        return await anext(self._iterator)

    async def close(self) -> None:
        """End it; a task that waits for the next event gets the end of the iteration."""
        self._closed = True
        async with self._closing:  # its reader may leave its block because the client is closing it
            task, self._next = self._next, None
            if task is not None:
                task.cancel()
                await asyncio.wait([task])
                if not task.cancelled():
                    task.exception()  # nobody waits for it any more
            await self._iterator.aclose()

    # -- modes

    async def _follow(self) -> AsyncGenerator[ReceivedEvent, None]:
        can_poll = False
        if self.mode is None:
            self.mode, can_poll = await self._choose()
        if self.mode == "push":
            try:
                async with aclosing(self._stream()) as found:
                    async for event in found:
                        yield event
            except RpcError as error:
                unsupported = error.code in (CODES.unsupported, SEP_CODES.unsupported, MethodNotFound.code)
                if self._begun or not (can_poll and unsupported):
                    raise
                logger.debug("%s has no stream here, and is polled: %s", self.name, error)
                self.mode = "poll"
        async with aclosing(self._poll()) as found:
            async for event in found:
                yield event

    async def _choose(self) -> tuple[ListenMode, bool]:
        """Return the best mode in which the server delivers the event type, and whether it can be polled. Raises
        LocalError if there is none, and for an unknown type; what `EventsClient.list` raises."""
        types = {one.name: one for one in await self._home.types()}
        found = types.get(self.name)
        if found is None:
            raise LocalError(f"the server has no events {self.name!r}; there are {', '.join(types) or 'none'}")
        if "push" in found.delivery:
            return "push", "poll" in found.delivery
        if "poll" in found.delivery:
            return "poll", True
        raise LocalError(f"{self.name} is delivered by {' or '.join(found.delivery)} alone: use subscribe")

    @property
    def _max_age_ms(self) -> Any:
        """The bound for what comes from before the beginning; later it would skip what happens between two polls."""
        return UNSET if self._max_age is None or self._begun else round(self._max_age * 1000)

    # -- what comes

    def _take(self, event: EventOccurrence, cursor: str | None = None) -> ReceivedEvent | None:
        """Return an event for the reader; None if it was taken already. `cursor`: the position after it, where it has
        none of its own. Raises BadAnswer if it cannot be read."""
        if len(event.event_id) > EVENT_ID:
            raise BadAnswer(f"an event {self.name} has an id of more than {EVENT_ID} characters")
        if event.event_id in self._taken:
            self._taken.move_to_end(event.event_id)
            return None
        try:
            found = received(event, truncated=self._truncated, cursor=cursor)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise BadAnswer(f"an event {self.name} cannot be read: {error}") from error
        self._truncated = False
        self._taken[event.event_id] = None
        if len(self._taken) > REMEMBERED:
            self._taken.popitem(last=False)
        return found

    def _skipped(self, what: str) -> None:
        self.gaps += 1
        self._truncated = True
        logger.debug("Events %s were skipped: %s", self.name, what)

    async def _wait_or_raise(self, error: Exception, pause: float) -> None:
        """Wait until a call may be made again after an error. Raises the error if that makes no sense: it is a refusal,
        it has never worked, or the server does not come back."""
        later = pause_after(error)
        lost = not isinstance(error, RpcError)
        if later is None or (lost and not self._home.client.comes_back) or not (lost or later or self._begun):
            raise error
        pause = max(pause, later)
        repeats.warning("Events %s: lost, and tried again in %.1f s: %s", self.name, pause, error)
        await asyncio.sleep(pause)

    # -- by polling

    async def _poll(self) -> AsyncGenerator[ReceivedEvent, None]:
        pauses = backoff(*PAUSES)
        while True:
            try:
                found = await self._poll_once()
            except (*_LOST, RpcError) as error:
                await self._wait_or_raise(error, next(pauses))
                continue
            pauses = backoff(*PAUSES)
            self._begun = True
            if found.truncated:
                self._skipped("the server's answer begins later than the position")
            cursor = found.cursor if isinstance(found.cursor, str) else None
            fresh = False  # a server that has more of what was taken already is not asked at once
            for index, one in enumerate(found.events):
                last = index == len(found.events) - 1
                if (event := self._take(one, cursor if last else None)) is not None:
                    fresh = True
                    yield event
            self.cursor = cursor
            if not (found.has_more and fresh):
                await asyncio.sleep(self._pause(found))

    async def _poll_once(self) -> PollEventsResult:
        params = PollEventsParams(
            name=self.name,
            arguments=self._arguments,
            cursor=self.cursor,
            max_age_ms=self._max_age_ms,
            timeout_ms=round(WAIT * 1000),
        )
        found = await self._home.client.request("events/poll", params, timeout=WAIT + ANSWER)
        assert isinstance(found, PollEventsResult)
        return found

    def _pause(self, found: PollEventsResult) -> float:
        """Return the seconds until the next poll."""
        wanted = DEFAULT_POLL if isinstance(found.next_poll_ms, msgspec.UnsetType) else found.next_poll_ms / 1000
        return min(max(wanted, self._home.min_poll), MAX_POLL)

    # -- by a stream

    async def _stream(self) -> AsyncGenerator[ReceivedEvent, None]:
        pauses, clock = backoff(*PAUSES), asyncio.get_running_loop().time
        while True:
            since = clock()
            call = StreamCall(self._home.streams, self._home.client, self._params)
            fault: Exception | None = None
            try:
                async with aclosing(self._messages(call)) as found:
                    async for event in found:
                        yield event
            except (*_LOST, RpcError) as error:
                fault = error
            finally:
                await call.end()
            if call.terminated is not None:
                raise call.terminated
            if self._begun and self.cursor is None:
                self._skipped("the stream was lost, and has no position")
            if call.behind:
                continue
            if clock() - since > PAUSES[1]:
                pauses = backoff(*PAUSES)
            if fault is not None:
                await self._wait_or_raise(fault, next(pauses))
            else:
                logger.debug("Events %s: the stream was ended by the server, and is begun again", self.name)
                await asyncio.sleep(next(pauses))

    @property
    def _params(self) -> StreamEventsParams:
        return StreamEventsParams(
            name=self.name, arguments=self._arguments, cursor=self.cursor, max_age_ms=self._max_age_ms
        )

    async def _messages(self, call: StreamCall) -> AsyncGenerator[ReceivedEvent, None]:
        """Yield the events of one call, up to its end. Raises what the call raises."""
        while (message := await call.next()) is not None:
            if isinstance(message, EventOccurrence):
                if (event := self._take(message)) is not None:
                    yield event
            else:
                self._begun = True
                if isinstance(message, ActiveParams) and message.truncated and message.cursor is not None:
                    self._skipped("the stream begins later than the position")
            if isinstance(message.cursor, str):
                self.cursor = message.cursor
