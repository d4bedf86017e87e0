"""Core NATS as a `BrokerAdapter`: requests to a queue group, answers to an inbox. `wire` has the rules."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from functools import partial

import msgspec

from ...bus.contract import BusLost
from ...jsonrpc.call_limit import busy
from ...jsonrpc.codec import decode, failure
from ...jsonrpc.errors import PLAIN, LocalError
from ...jsonrpc.messages import NULL, Notification, Request
from ...net.reconnect import RECONNECT_GRACE, BackgroundTasks
from ...net.sharing import ConnectionShare, OnState, ignore_state
from ...net.urls import printable
from ...repeats import Repeats
from ...transports.broker.contract import (
    AGAIN,
    CANCEL,
    KEY,
    KIND,
    UNROUTABLE,
    BrokerMessage,
    Denial,
    Mailboxes,
    Outcome,
    Refused,
    Take,
)
from .connection import (
    NO_RESPONDERS,
    Message,
    MessageTooLong,
    NatsConnection,
    SubjectForbidden,
    SubjectSubscription,
    is_no_responders,
)

log: logging.Logger = logging.getLogger("dragoman.wire")
repeats: Repeats = Repeats(log)

MESSAGE = 1024 * 1024
"""The default `max_payload` of a server, in bytes."""
HEADROOM = 2048
"""Bytes of a message reserved for its headers: the server counts them as share of it."""
SECONDS_TO_LEAVE = 2.0
CORRELATION, REPLY_TO = "correlation", "reply-to"


# -- broker messages and NATS messages ------------------------------------------------------------


def headers_of(message: BrokerMessage, **more: str) -> dict[str, str] | None:
    """Return a broker message's headers on the wire. Raises Refused if they are too long, or are control headers of the
    server."""
    headers, size = dict(more), 12
    for name, text in message.headers.items():
        if name in more or (name == KEY and text == message.correlation):
            continue
        if name[:5].lower() == "nats-":
            raise Refused(
                f"the header {printable(name)} would speak to the NATS server, not to the service that is called"
            )
        headers[name] = text
        size += len(name) + (len(text) if text.isascii() else len(text.encode())) + 4
    if size > HEADROOM - 512:  # the other 512 are for the correlation and the inbox
        raise Refused(f"the headers have {size} bytes; {HEADROOM - 512} are kept for them on NATS")
    return headers or None


def reply_address(to: str, correlation: str) -> str:
    """Return the address for the answer of one call: a subject below the caller's inbox."""
    return f"{to}.{correlation}" if correlation else to


def message_of(message: Message, settle: Callable[[Outcome], None]) -> BrokerMessage:
    """Return a request as it receive: the reply subject is the address of the answer, and its last share identifies the
    call."""
    to, dot, correlation = message.reply.rpartition(".")
    if not dot:
        to, correlation = message.reply, ""
    headers = message.headers or {}
    if correlation and KEY not in headers:
        headers = {**headers, KEY: correlation}
    return BrokerMessage(body=message.data, reply_to=to, correlation=correlation, headers=headers, settle=settle)


class NatsAdapter:
    """A `contract.BrokerAdapter` on core NATS. `room`: requests that may wait above `prefetch`."""

    name = "NATS"

    def __init__(
        self, share: ConnectionShare[NatsConnection], subject: str, group: str, room: int, mailboxes: Mailboxes
    ) -> None:
        self.share = share
        self.connection: NatsConnection = share.connection
        connection = self.connection
        self.subject = subject
        self.group = group
        self.limit: int = MESSAGE - HEADROOM
        self.durable = False
        self.on_state: OnState = ignore_state
        share.watch(self.state)
        connection.denials.append(self._denied)
        self._room = room
        self._mailboxes = mailboxes
        self._loop = asyncio.get_running_loop()
        self._take: Take | None = None
        self._mail: Take | None = None
        self._prefetch = 1
        self._held = 0
        self._waiting: deque[Message] = deque()
        self._full = False
        self._working: SubjectSubscription | None = None
        self._requests_in_grace: dict[str, BrokerMessage] | None = None
        self._grace_timer: asyncio.TimerHandle | None = None
        self._background = BackgroundTasks(connection.where.shown)

    async def open(self) -> None:
        try:
            await self.share.open()
        except BusLost:
            raise ConnectionError(self.connection.keeper.why) from None
        self.limit = self.connection.limit - HEADROOM

    def state(self, up: bool, why: str) -> None:
        """Take the state that the connection reports."""
        if self._grace_timer is not None:
            self._grace_timer.cancel()
        self._requests_in_grace = None
        if up:
            self.limit = self.connection.limit - HEADROOM
            self._requests_in_grace = {}
            self._grace_timer = self._loop.call_later(RECONNECT_GRACE, self._end_grace)
        self.on_state(up, why)

    def _end_grace(self) -> None:
        self._requests_in_grace = None

    # -- who serves -------------------------------------------------------------------------------

    async def work(self, take: Take, prefetch: int) -> None:
        self._take, self._prefetch = take, prefetch
        self._working = self.share.keep(await self.connection.subscribe(self.subject, self._receive, queue=self.group))
        await self.connection.sync()
        self.connection.check_permitted(self.subject, *self._controls)

    async def pause(self) -> None:
        if self._working is not None:
            await self._working.close(rest=True)
        while self._waiting:
            self._background.begin(self._give_back(self._waiting.popleft()))

    async def receive_control(self, take: Take) -> None:
        def receive(message: Message) -> None:
            headers = message.headers or {}
            to, correlation = headers.get(REPLY_TO, ""), headers.get(CORRELATION, "")
            take(BrokerMessage(body=message.data, reply_to=to, correlation=correlation, headers=headers))

        for subject in self._controls:
            self.share.keep(await self.connection.subscribe(subject, receive))

    @property
    def _controls(self) -> tuple[str, str]:
        """The subjects of cancels and of broadcasts."""
        return f"{self.subject}.control", f"{self.subject}.all"

    def _receive(self, message: Message) -> None:
        if self._held < self._prefetch:
            self._deliver(message)
        elif len(self._waiting) < self._room:
            self._waiting.append(message)
        else:
            self._refuse(message)

    def _deliver(self, message: Message) -> None:
        assert self._take is not None
        self._held += 1
        self._take(message_of(message, partial(self._settle, message)))

    def _settle(self, message: Message, outcome: Outcome) -> None:
        self._held -= 1
        if outcome == "retry":
            self._background.begin(self._give_back(message))
        if self._waiting:
            self._loop.call_soon(self._next)

    def _next(self) -> None:
        while self._waiting and self._held < self._prefetch:
            self._deliver(self._waiting.popleft())
        self._full = self._full and bool(self._waiting)

    async def _give_back(self, message: Message) -> None:
        """Return a request to another worker of the group; if there is none, answer the caller as the server would."""
        try:
            if not await self.connection.pass_on(self.subject, message) and self._mailboxes.may_hold(message.reply):
                await self.connection.publish(message.reply, headers=NO_RESPONDERS)
        except (ConnectionError, LocalError) as why:  # LocalError: headers that the library reads, and does not send
            repeats.warning("%s: a request could not be given back and is lost: %s", self.subject, why)

    def _refuse(self, message: Message) -> None:
        if not self._full:
            self._full = True
            repeats.warning("%s: %d requests run and %d wait; more are refused", self.subject, self._held, self._room)
        request = decode(message.data)
        if self._mailboxes.may_hold(message.reply) and not isinstance(request, Notification):
            id = request.id if isinstance(request, Request) else NULL
            answer = failure(id, PLAIN.error(busy("prefetch", self._prefetch)))
            self._background.begin(self._publish_answer(message.reply, answer))

    async def _publish_answer(self, to: str, answer: bytes) -> None:
        try:
            await self.connection.publish(to, answer)
        except ConnectionError as why:
            log.debug("%s: %s", self.subject, why)

    # -- the caller -------------------------------------------------------------------------------

    async def mailbox(self, take: Take) -> str:
        box = self.connection.new_inbox_address()
        start = len(box) + 1
        self._mail = take

        def receive(message: Message) -> None:
            correlation = message.subject[start:]
            headers = message.headers
            if headers is None:
                take(BrokerMessage(body=message.data, correlation=correlation))
            elif is_no_responders(message):
                if (
                    self._requests_in_grace is not None
                    and (request := self._requests_in_grace.get(correlation)) is not None
                ):
                    self._background.begin(self._once_more(request))
                    return
                take(BrokerMessage(body=b"", correlation=correlation, headers={KIND: UNROUTABLE}))
            else:
                take(BrokerMessage(body=message.data, correlation=correlation, headers=headers))

        self.share.keep(await self.connection.subscribe(f"{box}.*", receive))
        await self.connection.sync()
        return box

    def _denied(self, subject: str, why: SubjectForbidden) -> None:
        """Fail the calls in flight: the server does not let us publish requests, and reports that late, without naming
        one."""
        if subject == self.subject.lower() and self._mail is not None:
            self._mail(Denial(body=str(why).encode()))

    async def request(self, message: BrokerMessage, ttl: float | None) -> None:
        """Publish a request. Core NATS confirms nothing: it has been taken when the socket has it."""
        if self._requests_in_grace is not None:
            self._requests_in_grace[message.correlation] = message
        if AGAIN in message.headers:  # what failed before never left this process, see `NatsConnection`
            headers = {name: text for name, text in message.headers.items() if name != AGAIN}
            message = msgspec.structs.replace(message, headers=headers)
        to = reply_address(message.reply_to, message.correlation) if message.reply_to else ""
        await self.send(self.subject, message.body, to, headers_of(message) if message.headers else None)

    async def _once_more(self, message: BrokerMessage) -> None:
        """Publish again a request that no worker took: the workers may still be reconnecting."""
        await asyncio.sleep(0.05)
        try:
            await self.request(message, None)
        except ConnectionError as why:
            log.debug("%s: %s", self.subject, why)  # the connection is lost again, and with it the call

    async def send_control(self, message: BrokerMessage) -> None:
        more = {CORRELATION: message.correlation} if message.correlation else {}
        if message.reply_to:
            more[REPLY_TO] = message.reply_to
        kind = "control" if message.headers.get(KIND) == CANCEL else "all"
        await self.send(f"{self.subject}.{kind}", message.body, "", headers_of(message, **more))

    def answerable(self, message: BrokerMessage) -> bool:
        return self._mailboxes.may_hold(reply_address(message.reply_to, message.correlation))

    async def answer(self, to: str, message: BrokerMessage) -> None:
        """Publish an answer, at most once."""
        headers = headers_of(message) if message.headers else None
        await self.send(reply_address(to, message.correlation), message.body, "", headers)

    async def send(self, subject: str, body: bytes, reply: str, headers: dict[str, str] | None) -> None:
        """Publish. Raises Refused for a message that the server would not take."""
        try:
            await self.connection.publish(subject, body, reply=reply, headers=headers)
        except MessageTooLong as why:
            raise Refused(str(why)) from None

    async def close(self) -> None:
        self._requests_in_grace = self._mail = None
        if self._grace_timer is not None:
            self._grace_timer.cancel()
        while self._waiting:
            self._background.begin(self._give_back(self._waiting.popleft()))
        await self._background.wait(SECONDS_TO_LEAVE)
        if self._denied in self.connection.denials:
            self.connection.denials.remove(self._denied)
        await self.share.close()
