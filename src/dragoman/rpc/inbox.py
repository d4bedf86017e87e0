"""What comes in on a channel: an `Inbox` takes each message, starts its call or hands on its answer.

It never waits for a handler or for a write. Answers are never dropped; progress is, when the far
end reads too slowly.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET, Raw

from ..channel import Broken, Caller, Channel, ChannelError, Closed, Ended
from ..jsonrpc.codec import Call, Leniency, failure, key, read
from ..jsonrpc.conversation import Conversation
from ..jsonrpc.errors import INVALID_REQUEST, BadAnswer, Dialect, Refusal, RpcError
from ..jsonrpc.limits import Limits
from ..jsonrpc.messages import NULL, Batch, Failure, Malformed, Notification, Request, Result, Single
from .gathering import Gathering
from .host import Host
from .outgoing import Pending
from .results import to_json
from .run import Deliver, Run, Speak

if TYPE_CHECKING:
    from .peer import Peer

logger = logging.getLogger("dragoman")

UNREAD = 10_000
"""Answers a far end may be sent while it reads none, before its channel is broken."""


class Inbox:
    """The `Receiver` of a peer's channel, and what the peer owes there."""

    __slots__ = (
        "_idle",
        "_leaving",
        "_pumping",
        "_unread",
        "channel",
        "conversation",
        "dialect",
        "dropped",
        "half_closed",
        "host",
        "lenient",
        "limits",
        "mute",
        "peer",
    )

    def __init__(self, peer: Peer, host: Host, *, limits: Limits, lenient: Leniency, dialect: Dialect) -> None:
        self.peer = peer
        self.host = host
        self.limits = limits
        self.lenient = lenient
        self.dialect = dialect
        self.conversation: Conversation[Run, Pending] = Conversation(limits)
        self.channel: Channel | None = None
        self.dropped = 0
        """Progress notifications that were not sent because the far end reads too slowly."""
        self.half_closed = False
        """The far end sends nothing more on this channel, no answer either."""
        self.mute = False
        """Nothing that came in is answered: for a protocol where this end only asks."""
        self._idle: asyncio.Future[None] | None = None
        self._pumping = False
        self._leaving = False
        self._unread = 0

    def open(self, channel: Channel) -> None:
        """Take what this channel delivers."""
        self.channel = channel
        self.half_closed = self._leaving = False
        self._unread = 0
        channel.open(self)

    @property
    def remote(self) -> str:
        """The far end's address, for logs."""
        return self.channel.caller.remote if self.channel is not None else "a lost channel"

    def idle(self) -> asyncio.Future[None]:
        """Done once nothing is owed and nothing runs."""
        if self._idle is None or self._idle.done():
            self._idle = self.peer.loop.create_future()
        self._settled()
        return self._idle

    # -- the channel's Receiver

    def received(self, raw: bytes) -> None:
        """One whole message."""
        conversation = self.conversation
        service = self.host.service
        if service.has_quick and not (conversation.owed or conversation.waiting) and self._calm:
            answer = service.at_once(raw)
            if answer is not None:
                self.answer(answer)
                return
        message = read(raw, self.limits, self.lenient)
        kind = type(message)
        if kind is Request:
            self._request(message, self.answer)  # type: ignore[arg-type]
        elif kind is Result or kind is Failure:
            self.peer.answered(message)  # type: ignore[arg-type]
        elif kind is Notification:
            self._notification(message)  # type: ignore[arg-type]
        elif kind is Batch:
            self._batch(message)  # type: ignore[arg-type]
        else:
            self.refused(message)  # type: ignore[arg-type]

    @property
    def _calm(self) -> bool:
        """Whether a quick method may run in place now."""
        channel = self.channel
        draining = self.conversation.draining or self.host.gate.draining
        return channel is not None and channel.writable and not draining

    def refused(self, malformed: Malformed) -> None:
        """What is no message: answered when it can be; a senseless response fails its call at once."""
        if malformed.kind == "too_large" and self.peer.alone:  # to him who dialled it is an answer, or part of his call
            self.peer.fail_the_only(BadAnswer(malformed.reason))
        if self.spoilt(malformed):
            return
        if malformed.answerable:
            self.answer(self.host.service.answers.malformed(malformed, self.dialect))
            return
        logger.debug("senseless response from %s: %s", self.remote, malformed.reason)
        error = BadAnswer(malformed.reason)
        pending = self.conversation.resolve(malformed.id)
        if pending is not None:
            pending.fail(error)
        elif nameless(malformed.id):
            self.peer.fail_the_only(error)

    def spoilt(self, malformed: Malformed) -> bool:
        """Fail the call of ours that this would have answered, could it be read; False where it shows none."""
        pending = self.conversation.resolve(malformed.spoils)
        if pending is not None:
            pending.fail(BadAnswer(malformed.reason))
        return pending is not None

    def resumed(self) -> None:
        """The wire takes more: start what waits."""
        self._unread = 0
        self._pump()

    def finished(self) -> None:
        """The far end sends nothing more: no call of ours gets an answer, but we still owe."""
        self.half_closed = True
        for pending in self.conversation.abandon():
            pending.fail(Ended("the far end closed its sending side before it answered"))
        for run in tuple(self.conversation.owed.values()):
            if run.method.stream:  # it has no end of its own, and nobody could cancel it any more
                self._end(run, None)
        self._settled()

    def ended(self, why: ChannelError) -> None:
        """The channel is over: nobody waits for what we owe on it."""
        if self._leaving and isinstance(why, Closed) and not self.peer.closing:
            why = Ended("the far end closed the channel")  # we only followed
        self.channel = None
        conversation = self.conversation
        for run in list(conversation.waiting):
            conversation.withdraw(run)
            self.host.gate.leave()
            run.drop()
        for run in list(conversation.owed.values()):
            run.drop()
        conversation.owed.clear()
        self.peer.lost(why)
        self._settled()

    # -- calls and notifications

    def take(self, message: Single, deliver: Deliver, via: Speak, caller: Caller) -> None:
        """A message that did not come on the channel: `deliver` takes its answer (None: there is none), `via` what
        its call sends ahead of that."""
        if isinstance(message, Request):
            self._request(message, deliver, via=via, caller=caller)
            return
        if isinstance(message, Notification):
            self._notification(message, via, caller)
        elif isinstance(message, Malformed):
            if message.answerable:
                self.spoilt(message)
                deliver(self.host.service.answers.malformed(message, self.dialect))
                return
            self.refused(message)
        else:
            self.peer.answered(message)
        deliver(None)

    def _request(
        self,
        message: Request,
        deliver: Deliver,
        taken: bool = False,
        via: Speak | None = None,
        caller: Caller | None = None,
    ) -> None:
        host = self.host
        conversation = self.conversation
        channel = self.channel
        caller = self.peer.caller if caller is None else caller
        try:
            method, message = host.service.route(message, caller, self.peer)  # type: ignore[assignment]
        except RpcError as error:
            deliver(host.service.answers.failed(message, error, self.dialect))
            return
        if method is None:
            deliver(host.service.answers.unknown(message))
            return
        if (
            method.in_place
            and self._calm
            and not conversation.waiting
            and not (conversation.owed and key(message.id) in conversation.owed)
        ):
            deliver(host.service.in_place(method, message, caller, self.peer, via))
            return
        id = key(message.id)

        def settled(answer: bytes | None) -> None:
            conversation.settle(id, run)
            deliver(answer)

        run = Run(
            host,
            method,
            message,
            caller,
            settled,
            peer=self.peer,
            release=self._released,
            dialect=self.dialect,
            via=via,
        )
        refusal = host.gate.full() if taken else host.gate.refusal()
        if refusal is not None:
            self._refuse(message, refusal, deliver)
            return
        paused = channel is None or not channel.writable
        verdict = conversation.accept(id, run, paused=paused, taken=taken)
        if verdict == "start":
            host.gate.enter()
            if method.in_place:
                settled(host.service.quick(method, message, run.context))
                host.gate.leave()
                self._released()
            else:
                run.start()
        elif verdict == "wait":
            host.gate.enter()
        elif verdict == "duplicate":
            reason = {"reason": "a call with this id is in flight", "id": message.id}
            deliver(failure(None, RpcError.of(INVALID_REQUEST, "Invalid Request", reason), message.version))
        else:
            self._refuse(message, self._full() if verdict == "busy" else _DRAINING, deliver)

    def _full(self) -> Refusal:
        limits = self.limits
        data = {
            "limit": "calls_per_channel",
            "allowed": limits.calls_per_channel,
            "waiting": limits.waiting_per_channel,
            "retry_after": 1,
        }
        text = f"Busy: {limits.calls_per_channel} calls run and {limits.waiting_per_channel} wait on this channel"
        return Refusal("busy", text, data)

    def _refuse(self, message: Request, refusal: Refusal, deliver: Deliver) -> None:
        deliver(failure(message.id, self.dialect.error(refusal), message.version))

    def _notification(self, message: Notification, via: Speak | None = None, caller: Caller | None = None) -> None:
        dialect = self.dialect
        if message.method == dialect.cancel and self._cancelled(message):
            return
        if message.method == dialect.progress and self.peer.progressed(message):
            return
        for listener in self.peer.listeners:
            listener.put(message)
        host = self.host
        caller = self.peer.caller if caller is None else caller
        try:
            method, message = host.service.route(message, caller, self.peer)  # type: ignore[assignment]
        except RpcError as error:
            logger.debug("notification %r from %s turned away: %s", message.method, self.remote, error)
            return
        if method is None:
            return
        channel = self.channel
        if method.quick and not self.conversation.waiting and not method.binding.wants_context:
            host.service.quick(method, message)
            return
        run = Run(
            host,
            method,
            message,
            caller,
            _nothing,
            peer=self.peer,
            release=self._released,
            dialect=dialect,
            via=via,
        )
        if host.gate.refusal() is not None:
            verdict = "busy"
        else:
            verdict = self.conversation.accept(None, run, paused=channel is None or not channel.writable)
        if verdict in ("start", "wait"):
            host.gate.enter()
            if verdict == "start":
                run.start()
        else:
            logger.warning("notification %r from %s dropped: %s", message.method, self.remote, verdict)

    def _batch(self, batch: Batch) -> None:
        if not self.dialect.batches:
            self.answer(self.host.service.answers.no_batch(self.dialect))
            return
        asked: list[Single] = []
        for message in batch.messages:
            if isinstance(message, Result | Failure):
                self.peer.answered(message)
            elif isinstance(message, Malformed) and not message.answerable:
                self.refused(message)
            else:
                asked.append(message)
        service = self.host.service
        taken = not (self.conversation.draining or self.host.gate.draining)

        def start(message: Single, deliver: Deliver) -> None:
            if isinstance(message, Request):
                self._request(message, deliver, taken)
            elif isinstance(message, Notification):
                self._notification(message)
                deliver(None)
            elif isinstance(message, Malformed):
                deliver(service.answers.malformed(message, self.dialect))

        def done(answers: list[bytes], size: int) -> None:
            if answers:
                self.answer(service.answers.batch(answers, size), len(answers))

        limits = self.limits.but(response_size=service.limits.response_size)
        Gathering(asked, start, limits, done).step()

    def answer(self, answer: bytes | None, count: int = 1) -> None:
        """Send an answer, when there is one and anybody to send it to; `count`: how many of a batch it holds."""
        channel = self.channel
        if answer is None or channel is None or self.mute or not channel.duplex:  # there the far end only answers
            return
        if not channel.writable:
            self._unread += count
            if self._unread > UNREAD:
                channel.abort(Broken(f"the far end was sent {UNREAD} answers and reads none"))
                return
        try:
            channel.send(answer)
        except ChannelError:
            logger.debug("an answer could not be sent: %s is over", self.remote)

    def _released(self) -> None:
        self.conversation.release()
        if self.conversation.waiting:
            self._pump()
        self._settled()

    def _pump(self) -> None:
        """Start waiting calls while there are places and the wire takes their answers."""
        if self._pumping:
            return
        self._pumping = True
        conversation = self.conversation
        while self.channel is not None and self.channel.writable and (run := conversation.next()) is not None:
            run.start()
        self._pumping = False

    def _settled(self) -> None:
        if not self.conversation.idle:
            return
        if self._idle is not None and not self._idle.done():
            self._idle.set_result(None)
        if self.half_closed and not self._leaving and self.channel is not None:
            self._leaving = True
            self.peer.later(self.channel.close())

    def turn_away(self, refusal: Refusal) -> None:
        """Answer what is owed with a refusal: what waits is never started, what runs is stopped."""
        conversation = self.conversation
        for run in (*conversation.waiting, *conversation.owed.values()):
            self._end(run, refusal)
        self._settled()

    def _end(self, run: Run, refusal: Refusal | None) -> None:
        if self.conversation.withdraw(run):
            self.host.gate.leave()
        run.end(refusal)

    def _cancelled(self, message: Notification) -> bool:
        """The far end takes a call of its back; one that waits is never started. False when it names none."""
        try:
            members = _members(message.params) if message.params is not UNSET else {}
        except (msgspec.DecodeError, RecursionError):
            return False
        id = members.get(self.dialect.cancel_key, NULL)
        text = bytes(id)
        run = self.conversation.owed.get(int(text) if text.isdigit() and len(text) < 400 else key(id))
        if run is None:
            return False
        if logger.isEnabledFor(logging.DEBUG):
            logger.debug(
                "call %r of %s was cancelled by it: %.200r", text, self.remote, bytes(members.get("reason", b""))
            )
        self._end(run, _CANCELLED if self.dialect.cancelled_answer else None)
        self._settled()
        return True

    def tell_progress(self, id: Any, value: Any) -> bool:
        """Tell the far end how far its call is; dropped, and counted, while it reads too slowly."""
        dialect = self.dialect
        if dialect.progress is None or dialect.progress_value is None:
            return False
        params = {dialect.progress_key: id, dialect.progress_value: value}
        return self.tell(to_json(Call(dialect.progress, params)))

    def tell(self, raw: bytes) -> bool:
        """Send what the far end can do without; dropped, and counted, while it reads too slowly."""
        channel = self.channel
        if channel is None or not channel.duplex:
            return False
        if not channel.writable:
            self.dropped += 1
            return False
        try:
            channel.send(raw)
        except ChannelError:
            return False
        return True


_members = msgspec.json.Decoder(dict[str, Raw]).decode
_CANCELLED = Refusal("cancelled", "Request cancelled")
_DRAINING = Refusal("draining", "Draining: this peer is closing and takes no new calls", {"retry_after": 1})


def nameless(id: Any) -> bool:
    """Whether an answer's id is null: it could not say which call it answers."""
    return isinstance(id, Raw) and bytes(id) == b"null"


def _nothing(answer: bytes | None) -> None:
    pass
