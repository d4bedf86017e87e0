"""One connection of an HTTP client: sends a request, reads its reply, and repeats.

llhttp parses strictly (bad lengths, bad chunks, folded lines are refused). This module adds what llhttp leaves to its
caller: the size of the head, bodies that end with the connection, bytes that belong to no request.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable, Mapping
from typing import Any

import httptools

from ....channel import Broken, Reason, again
from ....jsonrpc.errors import BadAnswer, too_large
from ....net.read_buffer import read_buffer, take_turns
from ....net.sockets import reason_of
from ....net.strangers import recognise_stranger
from ....net.urls import printable

HIGH = 256 * 1024
"""Bytes of a body that are kept unread before reading pauses."""
_INFLATED = 256 * 1024
_EITHER = 32 + zlib.MAX_WBITS
"""For zlib: detect gzip or deflate from the head."""
_CODINGS = frozenset(("gzip", "x-gzip", "deflate"))


class ClientConnection(asyncio.BufferedProtocol):
    """A connection. `free` is called when it can be used again, `lost` when it has ended."""

    def __init__(
        self,
        where: str,
        head_limit: int,
        free: Callable[[ClientConnection], None],
        lost: Callable[[ClientConnection], None],
        *,
        unknown: bool = True,
    ) -> None:
        """`unknown`: nothing has come from the far end yet, which may not speak HTTP."""
        self.where = where
        """The far end's address as text."""
        self.usable: bool = False
        """Whether it is idle and can take another request."""
        self._unknown = unknown
        self._head_limit = head_limit
        self._free = free
        self._lost = lost
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._waiter: asyncio.Future[ClientReply] | None = None
        self._reply: ClientReply | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._headers: dict[str, str] = {}
        self._reason = b""
        self._fed = 0
        """Bytes since the request, until the reply has a head."""
        self._size = 0
        """Bytes of header fields."""
        self._interim = False

    async def ask(self, head: bytes, body: bytes, timeout: float | None) -> ClientReply:
        """Send a request and return its reply, whose body is still to come. Raises Broken, BadAnswer."""
        transport = self._transport
        self.usable = False
        self._fed = 0
        if transport is None or transport.is_closing():
            raise Broken(f"{self.where} closed the connection without an answer").because("hung_up")
        self._waiter = self._loop.create_future()
        if timeout is not None:
            self._timer = self._loop.call_later(timeout, self._late, timeout)
        if len(body) < HIGH:
            transport.write(head + body)
        else:
            transport.write(head)
            transport.write(body)
        try:
            return await self._waiter
        except BaseException:
            self.abort()
            raise

    def abort(self) -> None:
        """Abort the current request."""
        self.usable = False
        if self._transport is not None:
            self._transport.abort()

    def hold(self) -> None:
        """Pause reading."""
        if self._transport is not None:
            self._transport.pause_reading()

    def go_on(self) -> None:
        """Resume reading."""
        if self._transport is not None:
            self._transport.resume_reading()

    def _late(self, timeout: float) -> None:
        self._fail(Broken(f"{self.where} did not answer within {timeout:g} s"))

    def _fail(self, why: Broken | BadAnswer) -> None:
        """Fail the current request and close the connection."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(why)
        elif self._reply is not None:
            self._reply.failed(why)
        self.abort()

    # -- the protocol -----------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        self.usable = True

    def get_buffer(self, sizehint: int) -> memoryview:
        return read_buffer()

    def buffer_updated(self, count: int) -> None:
        if self._waiter is None and self._reply is None:  # no request was sent
            self.abort()
            return
        self._fed += count
        try:
            self._parser.feed_data(read_buffer()[:count])
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._fail_parsing(error, bytes(read_buffer()[: min(count, 200)]))
            return
        if self._reply is None and self._waiter is not None and self._fed > self._head_limit:
            self._fail(self._head_too_large())
        take_turns(self._transport, count, self._read_on)

    def _read_on(self) -> None:
        """Read on after the others had their turn, unless the reply holds the reading."""
        held = self._reply is not None and self._reply.held
        if self._transport is not None and not held and not self._transport.is_closing():
            self._transport.resume_reading()

    def _head_too_large(self) -> BadAnswer:
        refusal = too_large("header_size", self._head_limit, None)
        return BadAnswer(f"the head of what {self.where} answers: {refusal.reason}")

    def _fail_parsing(self, error: Exception, came: bytes) -> None:
        fault = error.__context__ if isinstance(error, httptools.HttpParserCallbackError) else error
        if self._reply is not None:
            self._fail(Broken(printable(f"the answer of {self.where} broke off: {fault}")))
        elif isinstance(fault, BadAnswer):
            self._fail(fault)
        else:
            guess = recognise_stranger(came, "http") if self._unknown else None
            why = guess or f"{fault}; the server, or a proxy before it, must send a head as RFC 9112 has it"
            self._fail(BadAnswer(printable(f"what {self.where} answers is not HTTP: {why}")))

    def eof_received(self) -> bool:
        self.usable = False  # the transport closes now, and reports it a turn of the loop later
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self.usable = False
        self._transport = None
        if self._timer is not None:
            self._timer.cancel()
        reply = self._reply
        if reply is not None and reply.until_end and error is None:
            reply.finished()
        else:
            how = f": {error}" if error is not None else ""
            if reply is not None:
                why = Broken(printable(f"the answer of {self.where} broke off{how}"))
            else:
                words = f"{self.where} closed the connection without an answer{how}"
                why = Broken(printable(words)).because(_reason(error))
            self._fail(why)
        self._lost(self)

    # -- the parser's callbacks -------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._headers = {}
        self._reason = b""
        self._size = 0
        if self._waiter is None or self._waiter.done():
            raise BadAnswer("more than one answer to a request")

    def on_status(self, reason: bytes) -> None:
        self._reason = reason

    def on_header(self, name: bytes, value: bytes) -> None:
        key = name.decode("latin-1").lower()
        text = value.decode("latin-1").strip()
        self._size += len(name) + len(value) + 4  # ": " and the line
        if self._size > self._head_limit:
            raise self._head_too_large()
        self._headers[key] = f"{self._headers[key]}, {text}" if key in self._headers else text

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        self._interim = 100 <= status < 200
        if self._interim or self._waiter is None:
            return
        headers = self._headers
        until_end = "content-length" not in headers and "chunked" not in headers.get("transfer-encoding", "").lower()
        self._unknown = False
        self._reply = ClientReply(self, status, self._reason, headers, until_end)
        if not self._waiter.done():
            self._waiter.set_result(self._reply)

    def on_body(self, data: bytes) -> None:
        if self._reply is not None:
            self._reply.more(data)

    def on_message_complete(self) -> None:
        reply = self._reply
        if self._interim or reply is None:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        transport = self._transport
        self._reply = self._waiter = None
        reply.finished()
        if transport is None or transport.is_closing():
            return
        if transport.get_write_buffer_size():  # answered before the request was sent
            transport.abort()
            return
        if not self._parser.should_keep_alive():
            transport.close()
            return
        self.usable = True
        self._free(self)


class ClientReply:
    """A reply: the head, and the body as it comes."""

    __slots__ = (
        "_chunks",
        "_held",
        "_inflate",
        "_over",
        "_reason",
        "_size",
        "_waiter",
        "_why",
        "_wire",
        "headers",
        "kind",
        "status",
        "until_end",
    )

    def __init__(
        self, wire: ClientConnection, status: int, reason: bytes, headers: Mapping[str, str], until_end: bool
    ) -> None:
        self.status: int = status
        self.headers: Mapping[str, str] = headers
        """Names in lower case; equal names joined by ", "."""
        self.kind: str = headers.get("content-type", "").partition(";")[0].strip().lower()
        """The media type in lower case, without parameters."""
        self.until_end: bool = until_end
        """Whether the body ends with the connection."""
        self._wire = wire
        self._reason = reason
        self._chunks: list[bytes] = []
        self._size = 0
        self._held = False
        self._over = False
        self._why: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None
        coded = headers.get("content-encoding", "").lower() in _CODINGS
        self._inflate = zlib.decompressobj(_EITHER) if coded else None

    @property
    def line(self) -> str:
        """The status line as text, for errors."""
        return printable(f"HTTP {self.status} {self._reason.decode('latin-1')}".rstrip())

    @property
    def held(self) -> bool:
        """Whether reading is paused until more of the body was read."""
        return self._held

    @property
    def ended(self) -> bool:
        """Whether the whole body has come and was read."""
        return self._over and not self._chunks and self._why is None

    async def chunk(self) -> bytes:
        """The next bytes of the body as they come, b"" at its end. Raises Broken, BadAnswer."""
        while True:
            while not self._chunks:
                if self._why is not None:
                    raise again(self._why)
                if self._over:
                    return b""
                self._waiter = asyncio.get_running_loop().create_future()
                await self._waiter
            chunks = self._chunks
            data = chunks[0] if len(chunks) == 1 else b"".join(chunks)
            self._chunks = []
            self._size = 0
            if self._held and not self._over:
                self._held = False
                self._wire.go_on()
            if self._inflate is None:
                return data
            if text := self._inflated(data, self._inflate):  # the first compressed bytes may give no output
                return text

    def _inflated(self, data: bytes, inflate: Any) -> bytes:
        try:
            text: bytes = inflate.decompress(data, _INFLATED)
        except zlib.error as error:
            raise Broken(printable(f"the answer of {self._wire.where} broke off: {error}")) from error
        if rest := inflate.unconsumed_tail:
            self._chunks.insert(0, rest)
        return text

    async def body(self, limit: int) -> bytes:
        """The whole body. Raises BadAnswer as soon as it is longer than `limit` bytes."""
        declared = self.headers.get("content-length", "")
        if declared.isdigit() and int(declared) > limit and self._inflate is None:
            raise BadAnswer(f"{self.line}: {too_large('message_size', limit, int(declared)).reason}")
        body = await self.chunk()
        if self.ended and len(body) <= limit:
            return body
        chunks = [body]
        size = len(body)
        while size <= limit and (chunk := await self.chunk()):
            chunks.append(chunk)
            size += len(chunk)
        if size > limit:
            raise BadAnswer(f"{self.line}: {too_large('message_size', limit, None).reason}")
        return b"".join(chunks)

    def close(self) -> None:
        """Give up the rest of the body: the connection is closed, unless the body has ended."""
        if not self._over:
            self._over = True
            self._wire.abort()

    # -- called by the connection -------------------------------------------------------------------------

    def more(self, data: bytes) -> None:
        self._chunks.append(data)
        self._size += len(data)
        if self._size > HIGH and not self._held and not self._over:
            self._held = True
            self._wire.hold()
        if self._waiter is not None:
            self._wake()

    def finished(self) -> None:
        self._over = True
        if self._held:
            self._held = False
            self._wire.go_on()
        if self._waiter is not None:
            self._wake()

    def failed(self, why: Exception) -> None:
        if not self._over:
            self._over = True
            self._why = why
            self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def _reason(error: Exception | None) -> Reason:
    """Return why a connection was closed before the answer."""
    return "certificate_wanted" if error is not None and reason_of(error) == "certificate_wanted" else "hung_up"
