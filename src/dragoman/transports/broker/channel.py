"""A caller over a broker: a `Channel` that sends requests to one address and takes answers from a mailbox of its own.

Rules:

- Every message is one broker message. `flush` returns when the broker has confirmed the notifications that the current
  task sent, and raises the error of one that the broker did not take.
- While the broker is away messages wait, up to `limits.send_queue` bytes; then `writable` is False. A message that was
  not confirmed is sent again, with the same key, when the broker is back. A confirmed request waits for its answer if
  the broker stores messages (`BrokerAdapter.durable`), and fails at once if it does not.
- An outage is logged, and so is a message that the broker does not confirm although it is connected.
- A caller that stops waiting sends a cancel to the control address, because the queue would pass it to another worker.
- A late or second answer is dropped. A message that is not an answer (`ahead`) goes to the receiver.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable, Mapping
from typing import cast

from msgspec.structs import replace

from ...channel import Broken, Caller, Channel, ChannelError, Closed, Options, Outgoing, Receiver, again
from ...jsonrpc.errors import BadAnswer, LocalError
from ...jsonrpc.limits import Limits
from ...net.reconnect import BackgroundTasks, OutageLog, backoff
from ...net.replies import no_answer_error
from ...net.sending import Waiters
from ...net.sockets import cannot_dial
from ...net.urls import Url
from ...repeats import Repeats
from . import contract
from .contract import (
    AGAIN,
    AHEAD,
    BROADCAST,
    CANCEL,
    DEADLINE,
    DELIVERED,
    KEY,
    KIND,
    UNROUTABLE,
    BrokerAdapter,
    BrokerMessage,
    Denial,
    NotTaken,
    Refused,
    Unroutable,
)

log: logging.Logger = logging.getLogger("dragoman.wire")
repeats: Repeats = Repeats(log)

PAUSES = (0.02, 1.0)
"""The first and the longest pause before a message is sent again to a broker whose loss was not reported."""
UNCONFIRMED = 5.0
"""Seconds that a broker may take to confirm a message before this is logged."""
SECONDS_FOR_CANCELS = 2.0
"""Seconds that closing waits for cancels to be sent; they may be lost anyway."""


_OURS = frozenset({KIND, DEADLINE, AGAIN, DELIVERED})
"""Headers that a caller cannot set."""


async def reach(adapter: BrokerAdapter, where: Url, options: Options) -> Channel:
    """Open an adapter, make its mailbox, and return its channel. Raises Broken; then the adapter is closed."""
    try:
        await adapter.open()
        channel = BrokerChannel(adapter, where, options.limits, options.headers)
        await channel.begin()
    except BaseException as fault:
        await adapter.close()
        if isinstance(fault, OSError | ValueError) and not isinstance(fault, ChannelError):
            raise cannot_dial(where, fault) from None
        raise
    return channel


class _Sent:
    """One message being sent, or its call waiting for the answer."""

    __slots__ = ("call", "channel", "confirmed", "message", "posted_at", "sender", "task", "ttl", "way")

    def __init__(
        self, channel: BrokerChannel, message: BrokerMessage, call: Outgoing | None, ttl: float | None
    ) -> None:
        self.channel: BrokerChannel = channel
        self.message: BrokerMessage = message
        self.call: Outgoing | None = call
        self.ttl: float | None = ttl
        self.posted_at: float | None = None
        """The time since which the broker may have it."""
        self.confirmed: bool = False
        self.task: asyncio.Task[None] | None = None
        self.sender: asyncio.Task[object] | None = None
        self.way: Callable[[BrokerMessage], Awaitable[None]] | None = None
        """The function that sends it, if not that of requests."""

    def mark_again(self) -> None:
        """Mark the message as one that the broker may have already."""
        count = int(self.message.headers.get(AGAIN, "0")) + 1
        self.message = replace(self.message, headers={**self.message.headers, AGAIN: str(count)})

    def abandon(self) -> None:
        self.channel.abandon(self)

    def over(self, task: asyncio.Task[None]) -> None:
        self.channel.over(self, task)


class BrokerChannel:
    """The calling end of a broker's wire."""

    duplex = False

    def __init__(
        self, adapter: BrokerAdapter, where: Url, limits: Limits, headers: Mapping[str, str] | None = None
    ) -> None:
        """`headers`: sent with every message but cancels, such as a token for the workers' guard."""
        self.caller: Caller = Caller(scheme=where.scheme, remote=where.address, path=where.path, tls=where.tls)
        self.writable: bool = True
        self._adapter = adapter
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._receiver: Receiver | None = None
        self._ending: ChannelError | None = None
        self._over = False
        self._mailbox = ""
        self._headers = {name: text for name, text in (headers or {}).items() if name not in (*_OURS, KEY)}
        self._names = uuid.uuid4().hex
        self._count = 0
        self._online: asyncio.Future[None] | None = None  # set while the broker is away
        self._out: dict[str, _Sent] = {}  # calls without an answer
        self._unsent: dict[_Sent, None] = {}  # messages that the broker has not confirmed
        self._notes: dict[asyncio.Task[object] | None, list[asyncio.Task[None]]] = {}
        self._background = BackgroundTasks(where.shown)
        self._away = OutageLog(where.shown)
        self._slow = OutageLog(where.shown)
        self._looking: asyncio.TimerHandle | None = None
        self._bytes = 0
        self._waiters = Waiters()
        self._closing: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """Make the mailbox."""
        self._adapter.on_state = self._state
        self._mailbox = await self._adapter.mailbox(self._take)

    # -- the contract -----------------------------------------------------------------------------

    def open(self, receiver: Receiver) -> None:
        self._receiver = receiver

    def send(self, message: bytes, call: Outgoing | None = None) -> None:
        """As `Channel.send`. Raises LocalError for a message that is too long for the broker. If `call.extra` is a
        mapping it is sent in the headers; `{"key": ...}` is the idempotency key."""
        self._check(message)
        ttl = None if call is None else call.left
        headers = dict(self._headers)
        if call is not None:
            headers |= _headers(call, ttl)
        sent = _Sent(self, self._message(message, headers), call, ttl)
        if call is not None:
            self._out[sent.message.correlation] = sent
            call.abandon = sent.abandon
        self._start(sent)

    def broadcast(self, message: bytes) -> None:
        """Send a notification to every worker at the address. At most once."""
        self._check(message)
        sent = _Sent(self, self._message(message, {**self._headers, KIND: BROADCAST}), None, None)
        sent.way = self._adapter.send_control
        self._start(sent)

    async def flush(self) -> None:
        """As `Channel.flush`; and wait until the broker has the current task's notifications."""
        while not self.writable and self._ending is None:
            await self._waiters.wait()
        mine = self._notes.get(asyncio.current_task())
        if mine:
            mine = list(mine)
            await asyncio.wait(mine)
            for task in mine:
                if not task.cancelled() and (why := task.exception()) is not None:
                    raise cast(Exception, why).with_traceback(None)
        if self._ending is not None:
            raise self._again()

    async def close(self) -> None:
        if self._closing is None:
            self._ending = Closed(f"The channel to {self.caller.remote} was closed here: connect anew")
            self._closing = self._loop.create_task(self._leave(self._limits.write_timeout))
        await asyncio.shield(self._closing)

    def abort(self, why: ChannelError) -> None:
        if self._closing is None:
            self._ending = why
            self._closing = self._loop.create_task(self._leave(0))

    # -- messages out -----------------------------------------------------------------------------

    def _check(self, message: bytes) -> None:
        if self._ending is not None:
            raise self._again()
        if len(message) > self._adapter.limit:
            raise LocalError(
                f"the message has {len(message)} bytes; {self._adapter.name} takes {self._adapter.limit} at {self.caller.remote}"
            )

    def _again(self) -> ChannelError:
        assert self._ending is not None
        return again(self._ending)

    def _message(self, message: bytes, headers: dict[str, str]) -> BrokerMessage:
        self._count += 1
        correlation = f"{self._names}-{self._count}"
        headers.setdefault(KEY, correlation)
        return BrokerMessage(body=message, reply_to=self._mailbox, correlation=correlation, headers=headers)

    def _start(self, sent: _Sent) -> None:
        self._unsent[sent] = None
        self._bytes += len(sent.message.body)
        if self.writable and self._bytes > self._limits.send_queue:
            self.writable = False
        sent.task = self._loop.create_task(self._send(sent))
        sent.task.add_done_callback(sent.over)
        if self._looking is None:
            self._looking = self._loop.call_later(UNCONFIRMED, self._look)
        if sent.call is None:
            sent.sender = asyncio.current_task()
            self._notes.setdefault(sent.sender, []).append(sent.task)

    async def _send(self, sent: _Sent) -> None:
        """Send until the broker confirms or refuses."""
        waits = None
        while True:
            if self._online is not None:
                await asyncio.shield(self._online)
            if sent.confirmed:  # by its answer, which came before the broker was lost
                return
            sent.posted_at = self._loop.time()
            try:
                if sent.way is None:
                    await self._adapter.request(sent.message, sent.ttl)
                else:
                    await sent.way(sent.message)
            except Broken:  # Unroutable, Refused: another try would not help
                raise
            except ConnectionError as why:
                if not isinstance(why, NotTaken):
                    sent.mark_again()
                if self._online is None:  # lost, but not yet reported
                    waits = waits or backoff(*PAUSES)
                    await asyncio.sleep(next(waits))
                continue
            sent.confirmed = True
            return

    def _look(self) -> None:
        """Log the messages that the broker does not confirm although it is connected."""
        self._looking = None
        if self._ending is not None:
            return
        waiting = [sent.posted_at for sent in self._unsent if sent.posted_at is not None]
        longest = self._loop.time() - min(waiting) if waiting and self._online is None else 0.0
        if longest >= UNCONFIRMED:
            what = f"{self._adapter.name} does not confirm what is sent to {self.caller.path.strip('/')}"
            self._slow.report(f"{what}: {len(waiting)} messages wait, the first for {longest:.0f} s")
        if self._unsent:
            self._looking = self._loop.call_later(UNCONFIRMED, self._look)

    def over(self, sent: _Sent, task: asyncio.Task[None]) -> None:
        """Handle the end of the sending of a message."""
        if sent.task is task:  # not after it was confirmed and is sent again
            self._unsent.pop(sent, None)
        self._bytes -= len(sent.message.body)
        if not self.writable and self._bytes <= self._limits.send_queue:
            self.writable = True
            self._waiters.wake()
            self._loop.call_soon(self._resumed)
        if sent.call is None:
            self._loop.call_soon(self._forget_note, sent, task)
        if task.cancelled():
            return
        why = task.exception()
        if why is None:
            return
        if not isinstance(why, ChannelError):
            log.error("%s: a message could not be sent", self.caller.remote, exc_info=why)
            why = Broken(f"{self._adapter.name} at {self.caller.remote}: the message could not be sent: {why!r}")
        ending: ChannelError = why
        if sent.message.count and isinstance(why, Refused):  # the broker took it once: a worker may be running it
            log.debug("%s: a request could not be sent again: %s", self.caller.remote, why)
            sent.confirmed = True
            return
        if sent.call is not None and self._out.pop(sent.message.correlation, None) is not None:
            sent.call.abandon = None
            sent.call.failed(ending.with_traceback(None))

    def _forget_note(self, sent: _Sent, task: asyncio.Task[None]) -> None:
        notes = self._notes.get(sent.sender)
        if notes is not None and task in notes:
            notes.remove(task)
            if not notes:
                del self._notes[sent.sender]

    def _resumed(self) -> None:
        if self.writable and self._receiver is not None and self._ending is None:
            self._receiver.resumed()

    def abandon(self, sent: _Sent) -> None:
        """Forget a call that does not wait for its answer any more, and send a cancel to the worker that may run it."""
        if self._out.pop(sent.message.correlation, None) is None:
            return
        if sent.task is not None and not sent.task.done():
            sent.task.cancel()
        if sent.posted_at is not None and self._online is None and self._over is False:
            self._background.begin(self._cancel(sent.message.correlation))

    async def _cancel(self, correlation: str) -> None:
        try:
            await self._adapter.send_control(BrokerMessage(body=b"", correlation=correlation, headers={KIND: CANCEL}))
        except ConnectionError as why:
            log.debug("%s: a cancel could not be sent: %s", self.caller.remote, why)

    # -- messages in ------------------------------------------------------------------------------

    def _take(self, message: BrokerMessage) -> None:
        if self._over:
            return
        if message.headers and message.headers.get(KIND) == AHEAD:
            if len(message.body) > self._limits.message_size:
                repeats.warning(
                    "%s: a message of %d bytes came ahead and is dropped", self.caller.remote, len(message.body)
                )
            elif self._receiver is not None:
                self._receiver.received(message.body)
        elif (sent := self._out.pop(message.correlation, None)) is None:
            if isinstance(message, Denial):
                self._denied(message.body.decode())
            log.debug("%s: an answer that no call waits for", self.caller.remote)
        else:
            if sent.task is not None and not sent.task.done():  # the answer came before the confirmation
                sent.confirmed = True
            call = cast(Outgoing, sent.call)
            call.abandon = None
            if message.headers and message.headers.get(KIND) == UNROUTABLE:
                call.failed(Unroutable(f"no worker serves {self.caller.path.strip('/')} at {self.caller.remote}"))
                message.settle("answered")
                return
            if len(message.body) > self._limits.message_size:
                size, allowed = len(message.body), self._limits.message_size
                call.failed(BadAnswer(f"the answer has {size} bytes, message_size allows {allowed}"))
            elif self._receiver is not None:
                self._receiver.received(message.body, call)
            if not call.settled:
                call.failed(no_answer_error(message.body))
        message.settle("answered")

    def _denied(self, why: str) -> None:
        """Fail all open calls: the broker does not let us send requests."""
        for sent in [sent for sent in self._out.values() if sent.posted_at is not None]:
            del self._out[sent.message.correlation]
            call = cast(Outgoing, sent.call)
            call.abandon = None
            call.failed(Refused(f"{self._adapter.name} at {self.caller.remote}: {why}"))

    # -- the broker goes and comes ----------------------------------------------------------------

    def _state(self, online: bool, why: str) -> None:
        self._away.log_state(online, self._adapter.name, why)
        if online:
            waiting, self._online = self._online, None
            if waiting is not None and not waiting.done():
                waiting.set_result(None)
            if why:
                self._send_again()
            return
        if self._online is None:
            self._online = self._loop.create_future()
        if not self._adapter.durable:
            for sent in [sent for sent in self._out.values() if sent.confirmed]:
                del self._out[sent.message.correlation]
                call = cast(Outgoing, sent.call)
                call.abandon = None
                call.failed(Broken(f"{self._adapter.name} at {self.caller.remote} was lost during the call: {why}"))

    def _send_again(self) -> None:
        """Send the requests of open calls again: the broker may have lost them, or their answers."""
        for sent in [sent for sent in self._out.values() if sent.confirmed]:
            sent.mark_again()
            sent.message = replace(sent.message, count=sent.message.count + 1)
            sent.confirmed, sent.ttl = False, cast(Outgoing, sent.call).left
            self._start(sent)

    # -- the end ----------------------------------------------------------------------------------

    async def _leave(self, patience: float | None) -> None:
        tasks = [sent.task for sent in self._unsent if sent.task is not None]
        if patience and tasks and self._online is None:
            await asyncio.wait(tasks, timeout=patience)
        await self._background.end(SECONDS_FOR_CANCELS if patience else 0)
        rest = [sent.task for sent in self._unsent if sent.task is not None and not sent.task.done()]
        for task in rest:
            task.cancel()
        if rest:
            await asyncio.wait(rest)
        if self._looking is not None:
            self._looking.cancel()
        await self._adapter.close()
        self._over = True
        self._waiters.wake()
        why = self._again()
        out, self._out = self._out, {}
        for sent in out.values():
            cast(Outgoing, sent.call).failed(why)
        if self._receiver is not None:
            self._receiver.ended(why)


def _headers(call: Outgoing, ttl: float | None) -> dict[str, str]:
    headers: dict[str, str] = {}
    if isinstance(call.extra, Mapping):
        headers = {str(name): str(value) for name, value in call.extra.items() if name not in _OURS}
    if ttl is not None:
        headers[DEADLINE] = str(int((contract.now() + ttl) * 1000))
    return headers
