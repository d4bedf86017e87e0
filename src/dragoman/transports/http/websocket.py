"""WebSocket (RFC 6455) as a channel, for both ends: websockets' sans-I/O protocol on an asyncio transport.

Rules:

- One message is one text or binary frame, whole or in fragments; we send text until the far end
  sends binary. Text must be UTF-8 (else close code 1007), a message fits `limits.message_size`
  (else 1009). No compression.
- What comes in one wake-up is answered in one write. A ping is answered, but not to a far end that
  does not read: pongs are dropped then, answers never.
- A close frame ends both directions, so there is no half-close: `Ended` has code and reason
  as text; a wire lost without one, and a far end that breaks the protocol, are `Broken`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from typing import cast

from websockets.client import ClientProtocol
from websockets.exceptions import InvalidHandshake, InvalidState, InvalidStatus, ProtocolError
from websockets.frames import CLOSE_CODE_EXPLANATIONS, Close, CloseCode, Frame, Opcode
from websockets.http11 import Request, Response
from websockets.protocol import State
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol
from websockets.uri import WebSocketURI

from ...channel import Broken, Budget, Caller, ChannelError, Closed, Ended, Options, Outgoing, Reason, Receiver, again
from ...jsonrpc.errors import LocalError
from ...net import urls
from ...net.fields import fields
from ...net.guarding import EXPIRED, LetsFinish
from ...net.read_buffer import read_buffer, take_turns
from ...net.sending import PIECE, SendWatch, Waiters, end_writing
from ...net.sockets import cannot_dial, open_connection, remote_name
from ...net.urls import Url, printable

_CLOSE_TIMEOUT = 10.0
"""Seconds for the far end's part of the closing handshake."""
_FAILED_TIMEOUT = 1.0
"""Seconds for the closing handshake where the far end broke a rule or a limit."""
SLICE = 16 * 1024
"""Bytes between two looks at how many frames this turn of the loop has had."""
FRAMES = 1_000
"""Frames of one turn of the loop; what is behind them waits for the next. A frame of two bytes costs as much time as
one of a kilobyte."""
FRAGMENTS = 1_024
"""Fragments that a message may have however short they are; each further one needs `FRAGMENT` bytes of the message."""
FRAGMENT = 64
"""Bytes of the message for each further fragment."""
_BATCH = 64 * 1024
"""Queued bytes that are written at once rather than at the end of the wake-up."""
_PONG = b"\x8a"
"""The first byte of a pong frame."""

_silent = logging.Logger("dragoman.websocket.frames", logging.CRITICAL + 1)
"""The library's own log, off: it logs at `info` what peers can cause at will."""


class WebSocket(asyncio.BufferedProtocol):
    """One WebSocket, of either role, once its handshake is done."""

    duplex = True

    def __init__(
        self,
        wire: ServerProtocol | ClientProtocol,
        caller: Caller,
        options: Options,
        lost: Callable[[WebSocket], None] | None = None,
        kept: Callable[[WebSocket, int, int], None] | None = None,
        budget: Budget | None = None,
    ) -> None:
        """`kept` is called with the number of bytes kept of an incomplete message, and the message's number. `budget`:
        of the server."""
        self.caller = caller
        self.writable: bool = True
        self._protocol = wire
        self._limits = options.limits
        self._lost = lost
        self._kept = kept
        self._held = self._messages = 0
        self._transport: asyncio.Transport | None = None
        self._receiver: Receiver | None = None
        self._begun = False
        self._early: list[bytes] = []
        """Bytes that came before the receiver could take them."""
        self._parts: bytearray | None = None
        """The fragments of a message so far."""
        self._fragments = 0
        self._frames = 0
        self._rest = b""
        self._parts_binary = self._binary = False
        self._reading = self._scheduled = False
        self._queued = 0
        self._why: ChannelError | None = None
        self._goodbye = (CloseCode.NORMAL_CLOSURE, "")
        self._end_reported = False
        self._below = Waiters()
        self._over: asyncio.Future[None] | None = None
        self._unsent = SendWatch(self._limits, self._too_slow, budget=budget, owner=self._owner)
        self._end: asyncio.TimerHandle | None = None
        self._expiry: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._into = read_buffer()

    # -- the channel

    def open(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._loop.call_soon(self._begin)

    def _begin(self) -> None:
        """Deliver what came with the handshake and since, then go on reading."""
        self._begun = True
        early, self._early = self._early, []
        self._deliver()
        self._count()
        if early:
            self.take_bytes(b"".join(early))
        self._read_on()
        if self._transport is None:
            self.connection_lost(None)

    def send(self, message: bytes, call: Outgoing | None = None) -> None:
        if self._why is not None:
            raise again(self._why)
        try:
            if self._binary:
                self._protocol.send_binary(message)
            else:
                self._protocol.send_text(message)
        except InvalidState:  # a close frame came in this very wake-up
            raise self._ending() from None
        self._queued += len(message)
        if self._queued > _BATCH:
            self._write()
        elif not self._reading and not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._write)

    async def flush(self) -> None:
        self._write()
        if self._why is None and not self.writable:
            await self._below.wait()
        if self._why is not None:
            raise again(self._why)

    async def close(self) -> None:
        if self._why is None:
            self._close(Closed("closed here"))
        if self._transport is not None:
            if self._over is None:
                self._over = self._loop.create_future()
            await asyncio.wait((self._over,))

    def abort(self, why: ChannelError) -> None:
        if self._why is None:
            self._why = why
        if self._transport is not None:
            self._transport.abort()

    # -- the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._start(cast(asyncio.Transport, transport))

    def take_over(self, transport: asyncio.Transport) -> None:
        """Start on the transport of another protocol."""
        transport.set_protocol(self)
        self._start(transport)

    def _start(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        transport.set_write_buffer_limits(high=1, low=0)  # reports when anything stays behind, and when all is sent

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._into

    def buffer_updated(self, nbytes: int) -> None:
        self.take_bytes(bytes(self._into[:nbytes]))

    def take_bytes(self, data: bytes) -> None:
        """Take bytes, however they were read."""
        if not self._begun:
            self._early.append(data)
            if self._transport is not None:
                self._transport.pause_reading()
            return
        if self._rest:
            self._rest += data
            return
        self._work(data)
        take_turns(self._transport, len(data), self._read_on)

    def _work(self, data: bytes) -> None:
        """Take bytes until this turn of the loop has had its frames; the rest waits for the next."""
        self._frames = 0
        if len(data) <= SLICE:
            self._protocol.receive_data(data)
            self._deliver()
        else:
            for at in range(0, len(data), SLICE):
                if self._frames > FRAMES:
                    self._rest = data[at:]
                    if self._transport is not None:
                        self._transport.pause_reading()
                    self._loop.call_soon(self._take_rest)
                    break
                self._protocol.receive_data(data[at : at + SLICE])
                self._deliver()
        self._count()

    def _take_rest(self) -> None:
        """Take the bytes that were left for this turn of the loop."""
        rest, self._rest = self._rest, b""
        if rest:
            self._work(rest)
        self._read_on()

    def _read_on(self) -> None:
        """Read again, where nothing else is to be done first."""
        if self._transport is not None and not self._rest and not self._transport.is_closing():
            self._transport.resume_reading()

    def _count(self) -> None:
        """Report how much is kept of an incomplete message."""
        if self._kept is None or self._transport is None:
            return
        held = len(self._protocol.reader.buffer) + (0 if self._parts is None else len(self._parts))
        if held or self._held:
            self._held = held
            self._kept(self, held, self._messages)

    def cut_off(self, why: str) -> None:
        self.abort(Broken(f"the WebSocket was cut off: {why}"))

    def _deliver(self) -> None:
        """Deliver every complete message, and write the replies."""
        self._reading = True
        try:
            for event in self._protocol.events_received():
                if isinstance(event, Frame):
                    self._frames += 1
                    self._frame(event)
        finally:
            self._reading = False
        self._write()
        if self._protocol.state is not State.OPEN:
            if self._why is None:
                self._why = self._ending()
            self._expect_end(_CLOSE_TIMEOUT if self._protocol.parser_exc is None else _FAILED_TIMEOUT)
            if not isinstance(self._why, Closed):
                self._report_end()

    def _frame(self, frame: Frame) -> None:
        """Deliver what a frame completes."""
        opcode = frame.opcode
        if opcode is Opcode.TEXT or opcode is Opcode.BINARY:
            binary = opcode is Opcode.BINARY
            if not frame.fin:
                self._parts, self._parts_binary, self._fragments = bytearray(frame.data), binary, 1
                return
            message = bytes(frame.data)
        elif opcode is Opcode.CONT and self._parts is not None:
            self._parts += frame.data
            self._fragments += 1
            if (self._fragments - FRAGMENTS) * FRAGMENT > len(self._parts):
                self._fail_fragmented(len(self._parts))
                return
            if not frame.fin:
                return
            message, self._parts, binary = bytes(self._parts), None, self._parts_binary
        else:
            return
        self._messages += 1
        if self._why is not None or self._receiver is None:
            return
        if not binary and not message.isascii():
            try:
                message.decode()
            except UnicodeDecodeError as fault:
                self._protocol.fail(CloseCode.INVALID_DATA, f"{fault.reason} at position {fault.start}")
                self._protocol.parser_exc = fault
                self._why = self._ending()
                return
        self._binary = binary
        self._receiver.received(message)

    def _fail_fragmented(self, size: int) -> None:
        """Fail the connection: a message comes in more fragments than its bytes are worth."""
        words = f"a message of {size} bytes so far came in {self._fragments} fragments"
        self._parts = None
        self._protocol.fail(CloseCode.POLICY_VIOLATION, words)
        self._protocol.parser_exc = ProtocolError(words)
        if self._why is None:
            self._why = Broken(f"{words}: {FRAGMENTS} are free, each further one needs {FRAGMENT} bytes")

    def _write(self) -> None:
        """Write everything queued to the transport at once."""
        self._scheduled = False
        self._queued = 0
        writes = self._protocol.data_to_send()
        transport = self._transport
        if not writes or transport is None:
            return
        end = not writes[-1]  # an empty write of the library means that nothing follows
        if not self.writable:
            writes = [one for one in writes if one[:1] != _PONG]
        data = writes[0] if len(writes) == 1 else b"".join(writes)
        unsent = self._unsent
        if unsent.on or len(data) > PIECE:
            unsent.write(transport, data, tls=self.caller.tls)
            self._fill()
        elif data:
            transport.write(data)
        if end and not transport.is_closing() and not end_writing(transport):
            transport.close()

    def _fill(self) -> None:
        if self._unsent.full:
            self.writable = False

    def _owner(self) -> str:
        return self.caller.owner

    def _too_slow(self, why: str) -> None:
        self.abort(Broken(f"the far end {why}"))

    def expires(self, moment: float) -> None:
        """Begin to end at this Unix time, when the far end's admission expires."""
        self._expiry = self._loop.call_later(max(0.0, moment - time.time()), self._expired)

    def _expired(self) -> None:
        """Close with 1008 (RFC 6455, 7.4.1) and the reason, once what runs is finished, if the receiver does that."""
        if self._why is not None:
            return
        self._goodbye = (CloseCode.POLICY_VIOLATION, EXPIRED.reason)
        if isinstance(self._receiver, LetsFinish):
            self._receiver.lapse()
        else:
            self._close(Closed(EXPIRED.reason))
            self._report_end()

    def _close(self, why: ChannelError) -> None:
        """Send the close frame. What is queued before still goes out, and what the far end sends is dropped."""
        self._why = why
        if self._protocol.state is State.OPEN:
            self._protocol.send_close(*self._goodbye)
        self._write()
        self._expect_end()

    def pause_writing(self) -> None:
        if self._transport is not None:
            self._unsent.start(self._transport)
            self._fill()

    def resume_writing(self) -> None:
        self._unsent.resumed()
        if not self.writable and not self._unsent.full:
            self.writable = True
            self._below.wake()
            if self._receiver is not None and self._why is None:
                self._receiver.resumed()

    def _expect_end(self, seconds: float = _CLOSE_TIMEOUT) -> None:
        """A close frame was sent: the wire must end soon, or is closed."""
        if self._end is not None and self._end.when() > self._loop.time() + seconds:
            self._end.cancel()
            self._end = None
        if self._end is None and self._transport is not None:
            self._end = self._loop.call_later(seconds, self._transport.abort)

    def _ending(self) -> ChannelError:
        """Return the ending that the close frames, or a broken rule, give."""
        sent, came = self._protocol.close_sent, self._protocol.close_rcvd
        if came is not None:
            return Ended(f"the far end closed the WebSocket: {in_words(came)}")
        if self._protocol.parser_exc is not None and sent is not None:
            return Broken(f"the far end broke the protocol: {in_words(sent)}")
        return Broken("the WebSocket was lost without a close frame (1006)")

    def _report_end(self) -> None:
        """Report the end to the receiver, once."""
        if self._why is not None and self._receiver is not None and not self._end_reported:
            self._end_reported = True
            self._below.wake()
            self._receiver.ended(self._why)

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._rest and self._begun:  # what came before the end
            rest, self._rest = self._rest, b""
            self._protocol.receive_data(rest)
            self._deliver()
        self._unsent.end()
        for timer in (self._end, self._expiry):
            if timer is not None:
                timer.cancel()
        if self._over is not None and not self._over.done():
            self._over.set_result(None)
        if self._lost is not None:
            self._lost(self)
            self._lost = None
        if not self._begun:
            return
        if self._why is None:
            self._why = Broken(f"the WebSocket failed: {exc}") if exc is not None else self._ending()
        self._below.wake()
        self._report_end()


def in_words(close: Close) -> str:
    """A close code and reason, e.g. "1001 going away: restart"."""
    words = CLOSE_CODE_EXPLANATIONS.get(close.code, "a code of its own")
    reason = f": {printable(close.reason)}" if close.reason else ""
    return f"{int(close.code)} {words.removesuffix(' [internal]')}{reason}"


# -- the serving end: the native server's upgrade --------------------------------------------------


def upgrade(
    head: bytes,
    caller: Caller,
    options: Options,
    lost: Callable[[WebSocket], None],
    kept: Callable[[WebSocket, int, int], None],
    subprotocol: str | None = None,
    headers: Sequence[tuple[str, str]] = (),
    budget: Budget | None = None,
) -> tuple[WebSocket, bytes] | Response:
    """Answer the handshake whose request head is `head`: the channel and the accepting bytes, or the refusal."""
    offer = options.subprotocol or subprotocol

    def select(wire: ServerProtocol, offered: Sequence[Subprotocol]) -> Subprotocol | None:
        return next((one for one in offered if one == offer), None)

    wire = ServerProtocol(select_subprotocol=select, max_size=options.limits.message_size, logger=_silent)
    wire.receive_data(head)
    for event in wire.events_received():
        if isinstance(event, Request):
            response = wire.accept(event)
            if response.status_code != 101:
                return response
            del response.headers["Date"]
            for name, value in headers:
                response.headers[name] = value
            wire.send_response(response)
            return WebSocket(wire, caller, options, lost, kept, budget), b"".join(wire.data_to_send())
    return wire.reject(400, "This is not a WebSocket handshake")


# -- the calling end -------------------------------------------------------------------------------


class _Handshake(asyncio.Protocol):
    """Sends the request and waits for the response; then the `WebSocket` takes over."""

    def __init__(self, wire: ClientProtocol, request: Request) -> None:
        self.wire = wire
        self.request = request
        self.transport: asyncio.Transport | None = None
        self.answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)  # uvloop's are not a subclass
        self.transport = transport
        self.wire.send_request(self.request)
        transport.write(b"".join(self.wire.data_to_send()))

    def data_received(self, data: bytes) -> None:
        self.wire.receive_data(data)
        if self.wire.state is not State.CONNECTING or self.wire.handshake_exc is not None:
            if self.transport is not None:
                self.transport.pause_reading()
            self._done()

    def eof_received(self) -> None:
        self.wire.receive_eof()
        self._done()

    def connection_lost(self, exc: Exception | None) -> None:
        self._done()

    def _done(self) -> None:
        if not self.answered.done():
            self.answered.set_result(None)


async def dial(url: str, options: Options) -> WebSocket:
    """Connect to a `ws://` or `wss://` URL. Raises Broken when the handshake fails; it may take `limits.header_timeout`
    in all. Redirects and proxies are not followed."""
    where = urls.parse(url)
    if where.plain != "ws":
        raise LocalError(f"{where}: a WebSocket's URL begins with ws:// or wss://")
    path, _, query = where.target.partition("?")
    wire = ClientProtocol(
        WebSocketURI(where.tls, where.host, where.port, path, query),
        subprotocols=None if options.subprotocol is None else [Subprotocol(options.subprotocol)],
        max_size=options.limits.message_size,
        logger=_silent,
    )
    request = wire.connect()
    for name, value in fields(where, options).items():
        if name in request.headers:
            del request.headers[name]
        request.headers[name] = value
    handshake = _Handshake(wire, request)
    try:
        async with asyncio.timeout(options.limits.header_timeout):
            await open_connection(lambda: handshake, where, options.client_tls)
            await handshake.answered
    except BaseException as fault:
        _drop(handshake)
        if isinstance(fault, OSError | UnicodeError):  # TimeoutError is an OSError
            raise cannot_dial(where, fault) from fault
        raise
    transport = handshake.transport
    if wire.state is State.CONNECTING or wire.handshake_exc is not None or transport is None:
        _drop(handshake)
        raise Broken(f"Cannot connect to {where}: {_refused(wire)}").because(_reason(wire)) from wire.handshake_exc
    channel = WebSocket(wire, _far_end(where, transport), options)
    channel.take_over(transport)
    if transport.is_closing():  # closed before it began
        channel.connection_lost(None)
    return channel


def _drop(handshake: _Handshake) -> None:
    if handshake.transport is not None:
        handshake.transport.abort()


def _refused(wire: ClientProtocol) -> str:
    """Why the handshake failed."""
    fault = wire.handshake_exc
    if isinstance(fault, InvalidStatus):
        response = fault.response
        body = printable(bytes(response.body or b"").decode("utf-8", "replace").strip())
        return f"HTTP {response.status_code} {printable(response.reason_phrase)}{body and ': '}{body}"
    if isinstance(fault, InvalidHandshake):
        return f"the far end speaks no WebSocket there: {printable(str(fault))}"
    return "the far end closed before the handshake was done"


def _reason(wire: ClientProtocol) -> Reason:
    fault = wire.handshake_exc
    if isinstance(fault, InvalidStatus):
        return "other"
    return "not_websocket" if isinstance(fault, InvalidHandshake) else "hung_up"


def _far_end(where: Url, transport: asyncio.Transport) -> Caller:
    peer = transport.get_extra_info("peername")
    remote = remote_name(peer) if isinstance(peer, tuple) else where.address
    return Caller(scheme=where.scheme, remote=remote, path=where.path, tls=where.tls)
