"""UDP: one datagram is one message. A server takes exchanges; a client's channel only sends requests.

Rules:

- Delivery is not guaranteed: if a datagram is lost, the call ends in its time-out.
- The sender's address can be forged, so a server whose answers are much longer than requests can be used to flood a
  victim. Without `Options.amplify` an answer has at most three times the bytes of its request, the factor that QUIC
  allows (RFC 9000, 8.1), or 512 (RFC 1035's datagram) if that is more: enough for any error, and the most that a forged
  request of a few bytes can cause. With it, and for requests too, the limit is what a datagram holds: 65,507 bytes.
- An answer that does not fit is replaced by an error; if even that does not fit, nothing is sent.
- A client receives only from the address it dialled: the system drops datagrams from elsewhere, the peer drops late
  answers. When the system reports that no process listens there, the calls in flight fail at once, and the next may
  succeed.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Mapping
from typing import Any, cast

import msgspec
from msgspec import Raw, Struct

from ..channel import (
    Broken,
    Caller,
    Channel,
    ChannelError,
    Closed,
    Listener,
    Options,
    Outgoing,
    Receiver,
    Servable,
    again,
    exchanged,
)
from ..jsonrpc.codec import AnyAnswer, failure, text_of
from ..jsonrpc.dropped import overlong
from ..jsonrpc.errors import PLAIN, LocalError, Refusal, too_large
from ..jsonrpc.limits import Limits
from ..jsonrpc.messages import NULL
from ..net.sending import Waiters
from ..net.sockets import (
    bind,
    bound_url,
    cannot_dial,
    in_words,
    inherited_sockets,
    reason_of,
    remote_name,
    sole_service,
)
from ..net.urls import Url, parse
from ..observer import Rejection
from ..system.datagrams import bound_datagrams, connected_datagrams

log: logging.Logger = logging.getLogger("dragoman.wire")

LARGEST = 65_507
"""Bytes that one datagram over IPv4 can hold."""
_GOODBYE = 1.0
"""Seconds for what is unsent to leave once a socket is closed; then it is dropped."""
_FACTOR = 3
_LEAST = 512


class _Head(Struct, gc=False):
    """The id of a message."""

    id: Raw = NULL


_heads = msgspec.json.Decoder(_Head | list[_Head])


def _ids(message: bytes) -> list[bytes]:
    """The ids in a message, as they are written there; empty if there are none or it is not JSON."""
    try:
        found = _heads.decode(message)
    except (msgspec.DecodeError, RecursionError):
        return []
    return [bytes(head.id) for head in (found if isinstance(found, list) else [found])]


# -- the server -----------------------------------------------------------------------------------


class Datagram:
    """An `Exchange`: one datagram and its answer."""

    __slots__ = ("_address", "_answered", "_port", "caller", "gone", "request")

    def __init__(self, port: _Port, request: bytes, address: Any) -> None:
        self.request: bytes = request
        self.caller: Caller = Caller(scheme="udp", remote=remote_name(address))
        self.gone: Callable[[], None] | None = None  # never called on this wire
        self._port = port
        self._address = address
        self._answered = False

    def respond(self, answer: AnyAnswer) -> None:
        if self._answered:
            return
        text = text_of(answer)
        self._answered = True
        self._port.listener.left()
        if text is None:
            return
        allowed = self._port.allowed(len(self.request))
        if len(text) > allowed:
            log.debug(
                "%s: an answer of %d bytes for %s, allowed are %d", self._port, len(text), self.caller.remote, allowed
            )
            text = self._too_large(len(text), allowed)
        if text is not None:
            self._port.send(text, self._address)

    def stream(self, message: bytes) -> bool:
        """As `Exchange.stream`: not possible on this wire."""
        return False

    def _too_large(self, size: int, allowed: int) -> bytes | None:
        """Return the error that replaces an answer that does not fit; None if it does not fit either."""
        ids = _ids(self.request)
        id = Raw(ids[0]) if len(ids) == 1 and not self.request.lstrip().startswith(b"[") else NULL
        data = {"limit": "datagram", "allowed": allowed, "received": size}
        words = f"Too large: an answer to this datagram may have {allowed} bytes, it would have {size}"
        answer = failure(id, PLAIN.error(Refusal("too_large", words, data)))
        return answer if len(answer) <= allowed else None


class _Port(asyncio.DatagramProtocol):
    """One bound address of a listener."""

    def __init__(self, listener: UdpListener) -> None:
        self.listener: UdpListener = listener
        self._transport: asyncio.DatagramTransport | None = None
        self._full = False
        self._gone = asyncio.Event()

    def __str__(self) -> str:
        return self.listener.url

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.DatagramTransport, transport)
        # typeshed does not know it
        cast(Any, transport).set_write_buffer_limits(high=self.listener.limits.send_queue)

    def datagram_received(self, data: bytes, addr: Any) -> None:
        if not self.listener.open:
            return
        self.listener.entered()
        datagram = Datagram(self, data, addr)
        if len(data) > (most := self.listener.limits.message_size):
            refusal = too_large("message_size", most, len(data))
            if (rejected := self.listener.rejected) is not None:
                rejected(
                    Rejection(
                        kind="too_large",
                        reason=refusal.reason,
                        place=str(self),
                        caller=datagram.caller,
                        size=len(data),
                    )
                )
            dropped = overlong(data, refusal)
            datagram.respond(failure(dropped.id, PLAIN.error(refusal)) if dropped.answerable else None)
        else:
            exchanged(self.listener.served, datagram)

    def error_received(self, exc: Exception) -> None:
        log.debug("%s: an earlier answer did not arrive: %s", self, in_words(exc))

    def pause_writing(self) -> None:
        self._full = True

    def resume_writing(self) -> None:
        self._full = False

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._gone.set()

    def allowed(self, request: int) -> int:
        """Bytes that the answer to a request of that size may have."""
        return LARGEST if self.listener.amplify else min(LARGEST, max(_LEAST, _FACTOR * request))

    def send(self, answer: bytes, address: Any) -> None:
        """Send a datagram, or drop it if the network does not take it, as networks do."""
        if self._full:
            log.debug("%s: an answer was dropped, the network is full", self)
        elif self._transport is not None and not self._transport.is_closing():
            self._transport.sendto(answer, address)

    async def close(self) -> None:
        """Close the socket."""
        if (transport := self._transport) is None:
            return
        transport.close()
        try:
            async with asyncio.timeout(_GOODBYE):
                await self._gone.wait()
        except TimeoutError:
            transport.abort()
            await self._gone.wait()


class UdpListener:
    """A `Listener` for datagrams."""

    def __init__(self, url: str, served: Servable, options: Options) -> None:
        self.url = url
        self.served = served
        self.limits: Limits = options.limits
        self.amplify: bool = options.amplify
        self.rejected: Callable[[Any], object] | None = options.rejected
        self.open: bool = True
        self._ports: list[_Port] = []
        self._in_flight = 0
        self._left = Waiters()

    async def start(self, bound: list[socket.socket]) -> None:
        """Take datagrams on these sockets."""
        for sock in bound:
            port = _Port(self)
            await bound_datagrams(port, sock)
            self._ports.append(port)

    def entered(self) -> None:
        """Count an exchange that begins."""
        self._in_flight += 1

    def left(self) -> None:
        """Count an exchange no longer: it has ended."""
        self._in_flight -= 1
        self._left.wake()

    async def close(self) -> None:
        """As `Listener.close`. Later datagrams are dropped."""
        self.open = False

    async def closed(self) -> None:
        self.open = False
        while self._in_flight:
            await self._left.wait()
        for port in self._ports:
            await port.close()


async def listen(url: str, served: Mapping[str, Servable], options: Options) -> Listener:
    """As `channel.Listen`: `udp://`."""
    where = _where(url)
    what = sole_service(where, served)
    bound = inherited_sockets(url, options) or await bind(where, socket.SOCK_DGRAM)
    listener = UdpListener(bound_url(where, bound), what, options)
    await listener.start(bound)
    return listener


# -- the client -----------------------------------------------------------------------------------


class DatagramChannel(asyncio.DatagramProtocol):
    """A `Channel` that sends requests to one address, one datagram a message."""

    duplex = False

    def __init__(self, limits: Limits, caller: Caller) -> None:
        self.caller = caller
        self.writable: bool = True
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.DatagramTransport | None = None
        self._receiver: Receiver | None = None
        self._calls: dict[bytes, Outgoing] = {}  # by the id as it was sent
        self._why: ChannelError | None = None
        self._gone: asyncio.Future[None] = self._loop.create_future()
        self._room = asyncio.Event()
        self._room.set()

    def open(self, receiver: Receiver) -> None:
        self._receiver = receiver
        if self._gone.done() and self._why is not None:
            self._loop.call_soon(receiver.ended, self._why)

    def send(self, message: bytes, call: Outgoing | None = None) -> None:
        """As `Channel.send`. Raises LocalError for a message that does not fit into a datagram."""
        if self._why is not None or self._transport is None:
            raise again(self._why or Closed("The channel is closed"))
        if len(message) > LARGEST:
            raise LocalError(f"{len(message)} bytes do not fit into a datagram, which holds {LARGEST}")
        if call is not None:
            ids = _ids(message)
            for id in ids:
                self._calls[id] = call
            call.abandon = lambda: self._forget(ids)
        self._transport.sendto(message)

    async def flush(self) -> None:
        await self._room.wait()
        if self._why is not None:
            raise again(self._why)

    async def close(self) -> None:
        if self._why is None:
            self._why = Closed(f"The channel to {self.caller.remote} was closed here: connect anew")
            if self._transport is not None:
                self._transport.close()
        await asyncio.wait([self._gone], timeout=_GOODBYE)
        if not self._gone.done() and self._transport is not None:
            self._transport.abort()
            await asyncio.wait([self._gone])

    def abort(self, why: ChannelError) -> None:
        self._why = self._why or why
        if self._transport is not None:
            self._transport.abort()

    # -- asyncio.DatagramProtocol --

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.DatagramTransport, transport)
        cast(Any, transport).set_write_buffer_limits(high=self._limits.send_queue)  # typeshed does not know it

    def datagram_received(self, data: bytes, addr: Any) -> None:
        if self._receiver is None or self._why is not None:
            return
        self._forget(_ids(data))
        if len(data) > self._limits.message_size:
            refusal = too_large("message_size", self._limits.message_size, len(data))
            self._receiver.refused(overlong(data, refusal))
        else:
            self._receiver.received(data)

    def error_received(self, exc: Exception) -> None:
        """The system reports that a datagram did not arrive. It does not say which, so all calls in flight fail."""
        calls, self._calls = self._calls, {}
        words = f"{self.caller.remote} did not take the datagram: {in_words(exc)}"
        why = Broken(words).because(reason_of(exc))
        for call in {id(call): call for call in calls.values()}.values():
            call.failed(why)

    def pause_writing(self) -> None:
        self.writable = False
        self._room.clear()

    def resume_writing(self) -> None:
        self.writable = True
        self._room.set()
        if self._receiver is not None and self._why is None:
            self._receiver.resumed()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._calls.clear()
        if self._why is None:
            words = "it was closed" if exc is None else in_words(exc)
            self._why = Broken(f"The channel to {self.caller.remote} broke: {words}")
        self._room.set()
        if not self._gone.done():
            self._gone.set_result(None)
        if self._receiver is not None:
            self._receiver.ended(self._why)

    def _forget(self, ids: list[bytes]) -> None:
        for id in ids:
            self._calls.pop(id, None)


async def dial(url: str, options: Options) -> Channel:
    """As `channel.Dial`: `udp://`. Whether a process listens there shows only when something is sent."""
    where = _where(url)
    channel = DatagramChannel(options.limits, Caller(scheme="udp", remote=where.address))
    try:
        async with asyncio.timeout(options.limits.call_timeout):
            await connected_datagrams(channel, where.host or "localhost", where.port)
    except (OSError, UnicodeError) as fault:
        raise cannot_dial(where, fault) from fault
    return channel


def _where(url: str) -> Url:
    where = parse(url)
    if where.query:
        raise LocalError(f"{where.shown}: udp:// takes no query")
    return where
