"""HTTP+SSE, the transport of the oldest revision, beside the current endpoint.

GET `/sse` opens a stream, whose first event has the URL for POSTs. Each POST is answered with 202, and its JSON-RPC
answer comes on the stream, which is the channel of its peer (2024-11-05's basic/transports, "HTTP with SSE"). The URL
for POSTs contains the channel's secret. It is valid as long as the stream.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Final
from urllib.parse import parse_qs

from ...channel import Caller, ChannelError, Closed, Ended, Outgoing, Receiver, again
from ...jsonrpc.codec import read
from ...jsonrpc.messages import Malformed
from ...net.sending import Waiters
from ...rpc.channel_peer import ChannelPeer
from ...rpc.dispatch import MessageOrigin, forbidden_batch
from ...rpc.observing import Arrival
from ...transports.http.messages import Endpoint, HttpRequest, Reply
from ...transports.http.sse import event
from ..protocol.dialect import of
from ..protocol.revisions import R2024_11
from ..session.backend import McpBackend
from .authorization import Expiry, start_expiry
from .errors import MEDIA_TYPE, refuse, turn_away
from .head import read_head
from .sse_reply import SseReply

_PARAMETER: Final = "session"


def endpoints_2024(server: McpBackend, at: str) -> Mapping[str, Endpoint]:
    """Return the two endpoints, next to the path of the current endpoint."""
    parent = at.rpartition("/")[0]
    wire = OldWire(server)
    return {f"{parent}/sse": wire.listen, f"{parent}/messages": wire.post}


class OldWire:
    """The channels of this transport on one server, by their secrets."""

    def __init__(self, server: McpBackend) -> None:
        self.server = server
        self.channels: dict[str, OldChannel] = {}

    def listen(self, request: HttpRequest, reply: Reply) -> None:
        """Answer a GET: open a channel."""
        known = read_head(request.head, request.headers, self.server.offered.stateful)
        if request.method != "GET":
            refuse(reply, 405, "GET opens a stream here", lines=(("Allow", "GET"),))
        elif not known.sse:
            refuse(reply, 406, "Accept must list text/event-stream")
        elif self.server.call_limit.draining or len(self.channels) >= self.server.options.sessions:
            refuse(reply, 503, "Too many streams, or the server is closing", lines=(("Retry-After", "1"),))
        else:
            channel = OldChannel(self, request.caller, reply)
            peer = ChannelPeer(self.server.host, limits=self.server.limits, dialect=of(R2024_11))
            channel.principal = request.caller.principal
            channel.expiry = start_expiry(request.caller, peer.lapse)
            channel.peer = peer
            self.channels[channel.secret] = channel
            peer.attach(channel)
            if (watch := self.server.service._watch) is not None:
                channel.seen = watch.streaming(peer, request.caller, "messages")

    def post(self, request: HttpRequest, reply: Reply) -> None:
        """Answer a POST: receive one message of a channel."""
        known = read_head(request.head, request.headers, self.server.offered.stateful)
        if request.method != "POST":
            refuse(reply, 405, "POST a message here", lines=(("Allow", "POST"),))
            return
        if not (known.body or self.server.service._lenient.any_media_type):
            refuse(reply, 415, MEDIA_TYPE)
            return
        secret = parse_qs(request.query).get(_PARAMETER, [""])[-1]
        channel = self.channels.get(secret)
        if channel is None or channel.principal != request.caller.principal:
            refuse(reply, 404, "There is no such stream: GET opens one")
            return
        service = self.server.service
        message = read(request.body, service.limits, service._lenient)
        if type(message) is Malformed:
            refuse(reply, 400, message.reason, null=True)
            return
        peer = channel.peer
        if (refusal := forbidden_batch(message, peer, request.caller, request.body)) is not None:
            turn_away(reply, None, refusal, null=True)
            return
        reply.respond(202)
        peer.origin = MessageOrigin(
            request.caller, peer
        )  # with what its token allows now, and not when the stream was opened
        peer.received(request.body)


class OldChannel:
    """One stream and the messages POSTed for it: a `Channel`."""

    __slots__ = (
        "_reply",
        "_sse",
        "_waiters",
        "_why",
        "_wire",
        "caller",
        "expiry",
        "peer",
        "principal",
        "receiver",
        "secret",
        "seen",
        "writable",
    )

    duplex = True
    receiver: Receiver
    peer: ChannelPeer

    def __init__(self, wire: OldWire, caller: Caller, reply: Reply) -> None:
        self.caller: Caller = caller
        self.principal: str | None = None
        self.expiry: Expiry | None = None
        self.seen: Arrival | None = None
        """Notifies observers of the stream, where there are some."""
        self.secret: str = secrets.token_urlsafe(24)
        self._wire = wire
        self.writable: bool = True
        self._reply: Reply | None = reply
        self._sse: SseReply | None = None
        self._why: ChannelError | None = None
        self._waiters = Waiters()

    def open(self, receiver: Receiver) -> None:
        reply = self._reply
        assert reply is not None
        self.receiver = receiver
        reply.gone = self._gone
        reply.resumed = self._resumed
        self._sse = SseReply(reply, self._wire.server)
        # "the server MUST send an `endpoint` event containing a URI for the client to use for sending messages"; a
        # relative one is right wherever this is mounted
        self._sse.write(event(f"messages?{_PARAMETER}={self.secret}".encode(), event="endpoint"))

    def send(self, message: bytes, call: Outgoing | None = None) -> None:
        reply = self._reply
        if reply is None:
            raise again(self._why or Closed("the stream is over"))
        # "Server messages are sent as SSE `message` events"
        reply.write(event(message, event="message"))
        self.writable = reply.writable

    async def flush(self) -> None:
        while not self.writable and self._reply is not None:
            await self._waiters.wait()
        if self._why is not None:
            raise again(self._why)

    async def close(self) -> None:
        self.abort(Closed("the stream was closed"))

    def abort(self, why: ChannelError) -> None:
        reply, self._reply = self._reply, None
        if reply is not None:
            reply.finish()
            self._over(why)

    def _gone(self) -> None:
        self._reply = None
        self._over(Ended("the client closed the stream"))

    def _resumed(self) -> None:
        self.writable = True
        self._waiters.wake()
        self.receiver.resumed()

    def _over(self, why: ChannelError) -> None:
        self._why = why
        if self.seen is not None:
            self.seen.end("cancelled" if isinstance(why, Ended) else "notified", f"{why}")
        if self.expiry is not None:
            self.expiry.cancel()
        self._waiters.wake()
        self._wire.channels.pop(self.secret, None)
        if self._sse is not None:
            self._sse.stop()
        self.receiver.ended(why)
