"""The ASGI `websocket` scope as a channel.

The server in front speaks the protocol (frames, pings, close handshakes); this class carries complete
messages. If the server takes nothing for `limits.write_timeout`, the
channel breaks. A message above `limits.message_size` is refused and the channel goes on, because the
server has read all of it; the server's own limit may close the wire before (uvicorn's is 16 MiB).
"""

from __future__ import annotations

import asyncio
import time
from collections import deque

from ...channel import (
    Admitted,
    Broken,
    Budget,
    Caller,
    ChannelError,
    Closed,
    Ended,
    Options,
    Outgoing,
    Receiver,
    Servable,
    again,
)
from ...jsonrpc.dropped import overlong
from ...jsonrpc.errors import too_large
from ...net.guarding import EXPIRED, LetsFinish
from ...net.sending import SendWatch, Waiters
from .asgi import Event, Receive, Scope, Send


async def run(
    served: Servable,
    caller: Caller,
    options: Options,
    scope: Scope,
    receive: Receive,
    send: Send,
    admitted: Admitted,
) -> None:
    """Accept the WebSocket and serve it until it ends, at the latest when its admission has expired and what runs by
    then is finished."""
    accepted: Event = {"type": "websocket.accept"}
    offer = options.subprotocol or served.subprotocol
    if offer is not None and offer in scope.get("subprotocols", ()):
        accepted["subprotocol"] = offer
    if admitted.headers:
        accepted["headers"] = [(name.lower().encode(), value.encode("latin-1")) for name, value in admitted.headers]
    await send(accepted)
    channel = AsgiSocket(caller, options, receive, send, served.call_limit.budget)
    served.attach(channel)
    timer = None
    if admitted.expires is not None:
        timer = asyncio.get_running_loop().call_later(max(0.0, admitted.expires - time.time()), channel.expired)
    try:
        await channel.run()
    finally:
        if timer is not None:
            timer.cancel()


class AsgiSocket:
    """A WebSocket that an ASGI server carries."""

    duplex = True

    def __init__(
        self, caller: Caller, options: Options, receive: Receive, send: Send, budget: Budget | None = None
    ) -> None:
        self.caller = caller
        self.writable: bool = True
        self._limits = options.limits
        self._receive, self._send = receive, send
        self._receiver: Receiver | None = None
        self._opened = asyncio.Event()
        self._queue: deque[bytes | None] = deque()
        """Messages to be sent; None: close."""
        self._size = 0
        self._wake = asyncio.Event()
        self._waiters = Waiters()
        self._unsent = SendWatch(options.limits, self._too_slow, budget=budget, owner=lambda: self.caller.owner)
        self._over = asyncio.Event()
        self._why: ChannelError | None = None
        self._close: Event = {"type": "websocket.close", "code": 1000}
        self._binary = False

    # -- the channel

    def open(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._opened.set()

    def send(self, message: bytes, call: Outgoing | None = None) -> None:
        if self._why is not None:
            raise again(self._why)
        self._queue.append(message)
        self._size += len(message)
        self._unsent.added(len(message))
        self._unsent.start(self)
        if self._size > self._limits.send_queue:
            self.writable = False
        self._wake.set()

    async def flush(self) -> None:
        while not self.writable and self._why is None:
            await self._waiters.wait()
        if self._why is not None:
            raise again(self._why)

    async def close(self) -> None:
        if self._why is None:
            self._why = Closed("closed here")
            self._queue.append(None)
            self._wake.set()
        await self._over.wait()

    def abort(self, why: ChannelError) -> None:
        self._queue.clear()
        self._queue.append(None)
        self._end(why)

    def expired(self) -> None:
        """The far end's admission has expired: close with 1008 (RFC 6455, 7.4.1) and the reason, once what runs is
        finished, if the receiver does that."""
        if self._why is not None:
            return
        self._close = {"type": "websocket.close", "code": 1008, "reason": EXPIRED.reason}
        if isinstance(self._receiver, LetsFinish):
            self._receiver.lapse()
        else:
            self._queue.append(None)
            self._end(Closed(EXPIRED.reason))

    def get_write_buffer_size(self) -> int:
        """As a transport's: bytes that the server has not taken."""
        return self._size

    def _too_slow(self, why: str) -> None:
        self.abort(Broken(f"the server in front {why}"))

    def _end(self, why: ChannelError) -> None:
        if self._why is None:
            self._why = why
        self._over.set()
        self._wake.set()
        self._waiters.wake()

    # -- what carries it

    async def run(self) -> None:
        """Read and write until the end."""
        reader = asyncio.ensure_future(self._read())
        writer = asyncio.ensure_future(self._write())
        over = asyncio.ensure_future(self._over.wait())
        tasks = (reader, writer, over)
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if self._why is None:
                self._why = Broken("the server in front ended the WebSocket")
            for task in (reader, over):
                task.cancel()
            self._queue.append(None)
            self._wake.set()
            gone = reader.done() and not reader.cancelled()
            if gone or isinstance(self._why, Broken):  # the far end does not read any more
                writer.cancel()
            await asyncio.wait(tasks, timeout=self._limits.write_timeout)
            writer.cancel()
            await asyncio.wait(tasks)
            for task in tasks:
                if not task.cancelled() and (why := task.exception()) is not None:
                    self._why = Broken(f"the WebSocket failed: {type(why).__name__}")
            self._unsent.end()
            self._end(self._why)
            if self._receiver is not None:
                self._receiver.ended(self._why)

    async def _read(self) -> None:
        await self._opened.wait()
        receiver = self._receiver
        assert receiver is not None
        while True:
            event = await self._receive()
            if event["type"] == "websocket.disconnect":
                code, reason = event.get("code", 1005), event.get("reason") or ""
                self._end(Ended(f"the far end closed the WebSocket: {code}{reason and ' '}{reason}"))
                return
            text = event.get("text")
            self._binary = text is None
            message: bytes = event.get("bytes", b"") if text is None else text.encode("utf-8", "surrogatepass")
            if self._why is not None:
                continue
            if len(message) > self._limits.message_size:
                refusal = too_large("message_size", self._limits.message_size, len(message))
                receiver.refused(overlong(message, refusal))
            else:
                receiver.received(message)

    async def _write(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._queue:
                message = self._queue.popleft()
                if message is None:
                    await self._send(self._close)
                    return
                if self._binary:
                    await self._send({"type": "websocket.send", "bytes": message})
                else:
                    await self._send({"type": "websocket.send", "text": message.decode()})
                self._size -= len(message)
                self._unsent.resumed()
                if not self.writable and self._size <= self._limits.send_queue:
                    self.writable = True
                    self._waiters.wake()
                    if self._receiver is not None and self._why is None:
                        self._receiver.resumed()
