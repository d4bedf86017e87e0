"""The client's end of HTTP+SSE, the oldest transport over HTTP: one stream of events receives everything, POSTs send
everything.

Rules, of the oldest revision's basic/transports, "HTTP with SSE", and of our own:

- The first event is `endpoint`; every message is sent to its URI, at the same origin. Every answer comes on the stream.
- A stream cannot be resumed: when it ends the channel is over.
- A POST that the server refuses fails its call at once.
"""

from __future__ import annotations

import asyncio
import logging
from urllib.parse import urljoin

from ....channel import Broken, Caller, ChannelError, Ended, Options, Outgoing, Receiver
from ....jsonrpc.codec import decode
from ....jsonrpc.errors import BadAnswer, LocalError, too_large
from ....jsonrpc.limits import Limits
from ....jsonrpc.messages import NULL, Malformed
from ....net.replies import excerpt
from ....net.urls import Url, parse, printable
from ....repeats import Repeats
from ....transports.http.client.authorized import RequestSender, requests_to
from ....transports.http.client.connection import ClientReply
from ....transports.http.client.posts import Lane, PendingPost, Posts
from ....transports.http.sse import EventTooLong, Parser, SseEvent
from ..authorization import operation
from .events import is_stream
from .posts import EVENTS
from .refusals import HttpRefused, peek

log: logging.Logger = logging.getLogger(__name__)
repeats: Repeats = Repeats(log)


async def dial_2024(url: str, options: Options) -> HttpSse:
    """Open a channel to a server of HTTP+SSE whose event stream is at `url`.

    Returns once the server has named its endpoint. Raises HttpRefused for an HTTP error (404 and 405 mean that there is
    no such server), BadAnswer for a response that is no event stream or names no endpoint of its own origin, Broken,
    LocalError.
    """
    server_url = parse(url)
    pool = requests_to(server_url, options, EVENTS, operation)
    limits = options.limits
    reply: ClientReply | None = None
    try:
        async with asyncio.timeout(limits.call_timeout):
            reply = await pool.ask("GET")
            parser, found = await _begin(server_url, reply, limits)
        return HttpSse(server_url, limits, pool, _endpoint(server_url, found[0]), reply, parser, found[1:])
    except BaseException as error:
        if reply is not None:
            reply.close()
        await pool.close()
        if isinstance(error, TimeoutError):
            raise Broken(f"{server_url} named no endpoint within {limits.call_timeout:g} s") from None
        raise


async def _begin(server_url: Url, reply: ClientReply, limits: Limits) -> tuple[Parser, list[SseEvent | EventTooLong]]:
    """Read the stream up to its first event. Return its parser, and the events so far. Raises HttpRefused, BadAnswer,
    Broken."""
    if not is_stream(reply):
        body = b"" if reply.kind == EVENTS else await reply.body(limits.message_size)
        if not 200 <= reply.status < 300:
            raise HttpRefused(reply.status, body, reply.headers, f"GET {server_url}")
        raise BadAnswer(f"{reply.line} with {printable(reply.kind)}, which is not an event stream: {excerpt(body)}")
    parser = Parser(limits.message_size)
    while chunk := await reply.chunk():
        if found := parser.feed(chunk):
            return parser, found
    raise BadAnswer(f"{server_url}: the event stream ended before it named an endpoint")


def _endpoint(server_url: Url, first: SseEvent | EventTooLong) -> str:
    """Return the path and query to POST to. Raises BadAnswer."""
    # "the server MUST send an `endpoint` event containing a URI for the client to use for sending messages"
    if isinstance(first, EventTooLong) or first.event != "endpoint":
        raise BadAnswer(f"{server_url}: the first event is not an endpoint")
    uri = first.data.decode("utf-8", "replace")
    try:
        endpoint = parse(urljoin(f"{server_url.scheme}://{server_url.address}{server_url.target}", uri))
    except (LocalError, ValueError):
        raise BadAnswer(f"{server_url}: the endpoint {printable(uri)!r} is not a URI") from None
    if not uri or (endpoint.scheme, endpoint.address) != (server_url.scheme, server_url.address):
        raise BadAnswer(f"{server_url}: the endpoint {printable(uri)!r} is at another origin, which gets nothing")
    return endpoint.target


class HttpSse:
    """A `Channel` over HTTP+SSE."""

    def __init__(
        self,
        server_url: Url,
        limits: Limits,
        pool: RequestSender,
        target: str,
        reply: ClientReply,
        parser: Parser,
        early: list[SseEvent | EventTooLong],
    ) -> None:
        self.caller: Caller = Caller(
            scheme=server_url.scheme, remote=server_url.address, path=server_url.path, tls=server_url.tls
        )
        self.duplex = True
        self.writable: bool = True
        self._url = server_url
        self._limits = limits
        self._pool = pool
        self._target = target
        self._reply = reply
        self._parser = parser
        self._early = early
        self._reading: asyncio.Task[None] | None = None
        most = limits.connections - 2  # the others are the stream's, and one for a message of an idle lane
        self._notes, self._calls = Lane(most), Lane(most)
        lanes = (self._notes, self._calls)
        self._posts = Posts(
            str(server_url), limits, lanes, run=self._run, writable=self._set_writable, release=self._release
        )

    # -- the contract -----------------------------------------------------------------------------

    def open(self, receiver: Receiver) -> None:
        """Start delivering to `receiver`."""
        self._posts.receiver = receiver
        self._reading = asyncio.get_running_loop().create_task(self._read(receiver))

    def send(self, message: bytes, call: Outgoing | None = None) -> None:
        """POST `message`, at once or when it may run."""
        self._posts.send(message, call, self._notes if call is None else self._calls)

    async def flush(self) -> None:
        """Wait for space in the queue, and until the server has accepted the current task's notifications."""
        await self._posts.flush()

    async def close(self) -> None:
        """Let running POSTs end (within `limits.write_timeout`), then close the stream and the pool."""
        await self._posts.close()

    def abort(self, why: ChannelError) -> None:
        """Abort everything."""
        self._posts.abort(why)

    # -- in ---------------------------------------------------------------------------------------

    async def _read(self, receiver: Receiver) -> None:
        why: ChannelError = Ended(f"{self._url} ended its event stream")
        try:
            self._take(self._early, receiver)
            while chunk := await self._reply.chunk():
                self._take(self._parser.feed(chunk), receiver)
        except Broken as error:
            why = error
        except BadAnswer as error:
            why = Broken(str(error))
        self._posts.abort(why)

    def _take(self, events: list[SseEvent | EventTooLong], receiver: Receiver) -> None:
        for event in events:
            if isinstance(event, EventTooLong):
                refusal = too_large("message_size", event.allowed, None)
                receiver.refused(Malformed("too_large", refusal.reason, NULL, refusal=refusal, answerable=False))
            elif event.event != "message" or not event.data:
                continue
            elif peek(event.data) is None:
                reason = f"an event that is not JSON-RPC: {excerpt(event.data)}"
                repeats.warning("%s: %s", self._url, reason)
                found = decode(event.data)
                spoils = found.spoils if isinstance(found, Malformed) else None
                receiver.refused(Malformed("invalid", reason, NULL, answerable=False, spoils=spoils))
            else:
                receiver.received(event.data)

    # -- out --------------------------------------------------------------------------------------

    async def _run(self, post: PendingPost) -> Exception | None:
        call = post.call
        try:
            why = await self._exchange(post.message)
        except (Broken, BadAnswer) as error:
            why = error
        if call is not None:
            call.abandon = None
            if why is not None:
                call.failed(why)
        elif why is not None:
            log.debug("%s: a message was not taken: %s", self._url, why)
        return why

    async def _exchange(self, message: bytes) -> Exception | None:
        """POST a message; return why it was refused, or None: then its answer comes on the stream."""
        reply = await self._pool.ask("POST", message, target=self._target, timeout=self._limits.call_timeout)
        try:
            body = b"" if reply.kind == EVENTS else await reply.body(self._limits.message_size)
        finally:
            reply.close()
        if 200 <= reply.status < 300:
            return None
        refused = HttpRefused(reply.status, body, reply.headers, f"POST {self._url}")
        return refused if refused.error is None or reply.status in (401, 403) else refused.error

    def _set_writable(self, writable: bool) -> None:
        self.writable = writable

    async def _release(self) -> None:
        if self._reading is not None and self._reading is not asyncio.current_task():
            self._reading.cancel()
            await asyncio.wait([self._reading])
        self._reply.close()
        await self._pool.close()
