"""One event stream of a server, over as many connections as it needs: its last event id, and when to reconnect.

The stateful era's basic/transports, "Resumability and Redelivery": resumption is always a GET with `Last-Event-ID`.
`stay` reads the home stream, a GET from the beginning.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from ....channel import Broken
from ....jsonrpc.errors import BadAnswer
from ....repeats import Repeats
from ....transports.http.client.connection import ClientReply
from ....transports.http.sse import EventTooLong, Parser

RETRY = 1.0
"""Seconds before a stream is resumed, unless the server says otherwise."""
SHORTEST_PAUSE = 0.1
"""Seconds between attempts at least, also if the server asks for less: with `retry: 0` a server that ends each stream
at once, or is gone, would get thousands of requests a second."""
LONGEST_PAUSE = 30.0
"""Seconds between failed attempts at most, unless the server asks for more."""

log: logging.Logger = logging.getLogger(__name__)
repeats: Repeats = Repeats(log)


class Events:
    """The state of one stream. `misses`: how many connections in a row brought no event."""

    __slots__ = ("_limit", "last_id", "misses", "retry")

    def __init__(self, limit: int) -> None:
        """`limit`: bytes of one event."""
        self._limit = limit
        self.last_id: str = ""
        self.misses: int = 0
        self.retry: float | None = None
        """Seconds to wait, as set by the server; None: it has set none."""

    async def read(self, reply: ClientReply, take: Callable[[bytes | EventTooLong], bool]) -> bool:
        """Call `take` with each message of this connection, until it returns True or the connection ends. Return
        whether `take` returned True.

        Raises Broken if the connection breaks.
        """
        parser = Parser(self._limit, self.last_id)
        enough = False
        try:
            while not enough and (chunk := await reply.chunk()):
                for event in parser.feed(chunk):
                    if isinstance(event, EventTooLong):
                        enough = take(event) or enough
                    elif event.data and event.event == "message":  # without data it only primes
                        enough = take(event.data) or enough
                self.misses = 0
        finally:
            self.last_id = parser.last_id
            if parser.retry is not None:
                self.retry = parser.retry / 1000
        return enough

    def pause(self) -> float:
        """Return the seconds to wait before the next connection, which counts as a miss until it brings an event."""
        # "The client MUST respect the `retry` field, waiting the given number of milliseconds"
        shortest = RETRY if self.retry is None else max(self.retry, SHORTEST_PAUSE)
        grown = min(shortest * 2**self.misses, LONGEST_PAUSE) if self.misses else shortest
        self.misses = min(self.misses + 1, 10)
        return max(shortest, grown)


async def stay(
    name: str,
    events: Events,
    *,
    get: Callable[[str], Awaitable[ClientReply]],
    take: Callable[[bytes | EventTooLong], bool],
    lost: Callable[[], object],
) -> None:
    """Read the home stream, and reconnect to it, until the server refuses it.

    `get(last_id)` opens it; `take` is called with each message, `lost` when the session is over.
    """
    while True:
        try:
            reply = await get(events.last_id)
            try:
                if is_stream(reply):
                    await events.read(reply, take)
                elif reply.status == 404:
                    lost()
                    return
                elif events.last_id and reply.status == 400:
                    events.last_id = ""  # too old to go on from
                elif not is_temporary(reply.status):
                    # "or else return HTTP 405 Method Not Allowed, indicating that the server does not offer an SSE
                    # stream at this endpoint"
                    if reply.status != 405:
                        repeats.warning("%s: no home stream: %s", name, reply.line)
                    return
            finally:
                reply.close()
        except (Broken, BadAnswer) as error:
            log.debug("%s: the home stream broke: %s", name, error)
        await asyncio.sleep(events.pause())


def is_stream(reply: ClientReply) -> bool:
    """Return whether the response is an event stream, as requested."""
    return reply.kind == "text/event-stream" and 200 <= reply.status < 300


def is_temporary(status: int) -> bool:
    """Return whether a refusal may be temporary."""
    return status == 429 or (status >= 500 and status != 501)
