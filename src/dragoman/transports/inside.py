"""A server in this process as a client's channel, in the stateless era: the whole protocol without a wire.

Rules:

- Each message is an exchange, as over HTTP: bytes go in and come out. The stateful era needs a channel and uses one in
  memory.
- Messages are delivered in place, see `in_place`: an answer that is ready at once is there when `send` returns.
- Abandoning a call calls its exchange's `gone`.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from functools import partial

from msgspec import Struct

from ..channel import Caller, ChannelError, Closed, Outgoing, Receiver, Servable, again, exchanged
from ..jsonrpc.codec import AnyAnswer, FailedAnswer
from .in_place import in_place

_numbers = itertools.count(1)
"""The numbers of the channels of this process: `ctx.store` of an anonymous caller belongs to one of them."""


class InProcessChannel:
    """A `Channel` to a `Servable` of this process."""

    __slots__ = ("_in_place", "_open", "_receiver", "_take", "_why", "caller", "duplex", "served", "writable")

    def __init__(self, served: Servable) -> None:
        self.caller: Caller = Caller(scheme="memory", remote=f"memory:{served.name}/{next(_numbers)}")
        self.duplex: bool = False
        self.writable: bool = True
        self.served: Servable = served
        self._receiver: Receiver | None = None
        self._why: ChannelError | None = None
        self._open: set[_Exchange] = set()  # those without an answer, for which calls wait
        self._in_place = in_place()
        self._take = partial(exchanged, served)

    def open(self, receiver: Receiver) -> None:
        self._receiver = receiver

    def send(self, message: bytes, call: Outgoing | None = None) -> None:
        if self._why is not None:
            raise again(self._why)
        exchange = _Exchange(self, message, self.caller)
        if not self._in_place.deliver(self._take, exchange):
            asyncio.get_running_loop().call_soon(self._begin, exchange)
        if exchange.over:
            return
        self._open.add(exchange)
        if call is not None:
            call.abandon = exchange.abandon
        if self._why is not None:  # the channel has ended meanwhile
            exchange.abandon()

    def _begin(self, exchange: _Exchange) -> None:
        if not exchange.over:
            self._take(exchange)

    async def flush(self) -> None:
        if self._why is not None:
            raise again(self._why)

    async def close(self) -> None:
        self.abort(Closed(f"The channel to {self.caller.remote} was closed here: connect anew"))

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
        if receiver is not None and self._why is None:
            receiver.received(message)


class _Exchange(Struct, eq=False):
    """An `Exchange`: one message to the server and its answer."""

    _channel: InProcessChannel
    request: bytes
    caller: Caller
    gone: Callable[[], None] | None = None
    over: bool = False
    acknowledges: bool = True

    def respond(self, answer: AnyAnswer) -> None:
        if self.over:
            return
        self.over = True
        channel = self._channel
        channel._open.discard(self)
        if type(answer) is FailedAnswer:
            answer = answer.text
        if answer is not None:
            channel.deliver(answer)

    def stream(self, message: bytes) -> bool:
        if self.over:
            return False
        self._channel.deliver(message)
        return True

    def abandon(self) -> None:
        """End the exchange: its call does not wait for the answer any more."""
        if self.over:
            return
        self.over = True
        self._channel._open.discard(self)
        if self.gone is not None:
            self.gone()
