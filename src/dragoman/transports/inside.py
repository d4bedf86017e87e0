"""A server in this process as a client's channel, in the stateless era: the whole protocol without a wire.

Rules:

- Each message is an exchange, as over HTTP: bytes go in and come out. The stateful era needs a channel and uses one in
  memory.
- The receiver is a peer that has registered its call before it sends. So an answer that is ready at once is delivered
  at once, which other wires must not do; after a number of such answers the loop runs first, so that calls in a row do
  not starve it.
- Abandoning a call calls its exchange's `gone`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ..channel import Caller, ChannelError, Closed, Outgoing, Receiver, Servable, again
from ..jsonrpc.errors import Refusal

_BURST = 64
"""Answers in a row that are delivered at once."""


class InProcessChannel:
    """A `Channel` to a `Servable` of this process."""

    __slots__ = ("_burst", "_open", "_receiver", "_why", "caller", "duplex", "served", "writable")

    def __init__(self, served: Servable) -> None:
        self.caller = Caller(scheme="memory", remote=f"memory:{served.name}")
        self.duplex = False
        self.writable = True
        self.served = served
        self._receiver: Receiver | None = None
        self._why: ChannelError | None = None
        self._open: set[_Exchange] = set()
        self._burst = 0

    def open(self, receiver: Receiver) -> None:
        self._receiver = receiver

    def send(self, message: bytes, call: Outgoing | None = None) -> None:
        if self._why is not None:
            raise again(self._why)
        exchange = _Exchange(self, message, self.caller)
        self._open.add(exchange)
        if call is not None:
            call.abandon = exchange.abandon
        self.served.exchange(exchange)

    async def flush(self) -> None:
        if self._why is not None:
            raise again(self._why)

    async def close(self) -> None:
        self.abort(Closed(f"The channel to {self.caller.remote} was closed here"))

    def abort(self, why: ChannelError) -> None:
        if self._why is not None:
            return
        self._why = why
        for exchange in tuple(self._open):
            exchange.abandon()
        if self._receiver is not None:
            self._receiver.ended(why)

    # -- for its exchanges

    def deliver(self, message: bytes) -> None:
        """Deliver a message of the server."""
        receiver = self._receiver
        if receiver is None or self._why is not None:
            return
        self._burst += 1
        if self._burst < _BURST:
            receiver.received(message)
        else:
            self._burst = 0
            asyncio.get_running_loop().call_soon(receiver.received, message)

    def over(self, exchange: _Exchange) -> None:
        """An exchange has its answer, or the call does not wait for it any more."""
        self._open.discard(exchange)


class _Exchange:
    """An `Exchange`: one message to the server and its answer."""

    __slots__ = ("_channel", "_over", "caller", "gone", "request")

    def __init__(self, channel: InProcessChannel, request: bytes, caller: Caller) -> None:
        self.request = request
        self.caller = caller
        self.gone: Callable[[], None] | None = None
        self._channel = channel
        self._over = False

    def respond(self, answer: bytes | None, refusal: Refusal | None = None) -> None:
        if self._over:
            return
        self._over = True
        self._channel.over(self)
        if answer is not None:
            self._channel.deliver(answer)

    def stream(self, message: bytes) -> bool:
        if self._over:
            return False
        self._channel.deliver(message)
        return True

    def abandon(self) -> None:
        """The call does not wait for the answer any more."""
        if self._over:
            return
        self._over = True
        self._channel.over(self)
        if self.gone is not None:
            self.gone()
