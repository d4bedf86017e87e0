"""What comes in on a channel: an `Inbox` takes each message, starts its call or hands on its answer.

It never waits for a handler or for a write. Answers are never dropped; progress is, when the far
end reads too slowly.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterable
from typing import Any, Protocol

import msgspec
from msgspec import UNSET, Raw

from ..channel import Broken, Caller, Channel, ChannelError, Closed, Ended
from ..jsonrpc.codec import Call, Leniency, failure, key, read
from ..jsonrpc.conversation import Conversation
from ..jsonrpc.errors import INVALID_REQUEST, BadAnswer, Dialect, Refusal, RpcError
from ..jsonrpc.limits import Limits
from ..jsonrpc.messages import NULL, Failure, Malformed, Notification, Request, Result, Single
from .binding.results import to_json
from .call import InboundCall, _nothing
from .dispatch import Deliver, Speak
from .method import Method
from .outbound import OutboundCall
from .runner import Runner

logger = logging.getLogger("dragoman")

UNREAD = 10_000
"""Answers a far end may be sent while it reads none, before its channel is broken."""


class ReceivingPeer(Protocol):
    """A peer, as what comes in sees it."""

    alone: bool
    closing: bool

    @property
    def listeners(self) -> Iterable[Any]:
        """Who gets its notifications."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop."""

    @property
    def caller(self) -> Caller:
        """What the wire knows about the far end."""

    def answered(self, message: Result | Failure) -> None:
        """An answer came."""

    def fail_the_only(self, error: Exception) -> None:
        """Fail the one call, or batch, that is out."""

    def progressed(self, message: Notification) -> bool:
        """Progress of a call of ours; False when it is of none."""

    def lost(self, why: ChannelError) -> None:
        """The channel is over."""

    def later(self, work: Coroutine[Any, Any, Any]) -> object:
        """Run a coroutine beside the channel."""


class Inbox:
    """The `Receiver` of a peer's channel, and what the peer owes there."""

    __slots__ = (
        "_idle",
        "_leaving",
        "_pumping",
        "_strays",
        "_unread",
        "channel",
        "conversation",
        "dialect",
        "dropped",
        "half_closed",
        "lenient",
        "limits",
        "mute",
        "origin",
        "peer",
        "runner",
    )

    def __init__(
        self, peer: ReceivingPeer, runner: Runner, *, limits: Limits, lenient: Leniency, dialect: Dialect
    ) -> None:
        self.peer = peer
        self.runner = runner
        self.limits = limits
        self.lenient = lenient
        self.dialect = dialect
        self.conversation: Conversation[InboundCall, OutboundCall] = Conversation(limits)
        self.channel: Channel | None = None
        self.dropped = 0
        """Progress notifications that were not sent because the far end reads too slowly."""
        self.half_closed = False
        """The far end sends nothing more on this channel, no answer either."""
        self.mute = False
        """Nothing that came in is answered: for a protocol where this end only asks."""
        self.origin = PeerOrigin(self, Caller())
        self._idle: asyncio.Future[None] | None = None
        self._pumping = False
        self._leaving = False
        self._unread = 0
        self._strays = 0

    def open(self, channel: Channel) -> None:
        """Take what this channel delivers."""
        self.channel = channel
        self.origin = PeerOrigin(self, channel.caller)
        self.half_closed = self._leaving = False
        self._unread = self._strays = 0
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
        """One whole message. Raises nothing: a fault of ours is the answer to what it asks."""
        service = self.runner.service
        try:
            conversation = self.conversation
            if service.has_quick and not (conversation.inbound or conversation.waiting) and self._calm:
                answer = service.answer_inline(raw)
                if answer is not None:
                    self._strays = 0
                    self.answer(answer)
                    return
            message = read(raw, self.limits, self.lenient)
            if type(message) is Malformed:
                self._unreadable(message, raw)
            else:
                self._strays = 0
                service.dispatcher.dispatch(message, self.origin, self.answer)
        except Exception as error:
            service.answers.faulty(raw, error, self.answer, self.dialect)

    def _unreadable(self, malformed: Malformed, raw: bytes) -> None:
        """What is no message came. Two peers that answer each other's errors with errors would do it for ever."""
        if nameless(malformed.id):
            self._strays += 1
            words = "%s wrote what is no message: %.200r (%s)"
            if self.peer.alone and self.channel is not None and self.channel.caller.scheme == "stdio":
                words = "%s wrote what is no message to its standard output: %.200r (%s); print to stderr there"
                level = logging.WARNING if self._strays == 1 else logging.DEBUG
            else:
                level = logging.DEBUG
            logger.log(level, words, self.remote, raw[:200].decode("utf-8", "backslashreplace"), malformed.reason)
            if self._strays > self.limits.strays and self.channel is not None:
                why = f"{self._strays} messages in a row were no JSON-RPC (limit strays); the last: {malformed.reason}"
                self.channel.abort(Broken(why))
                return
        self.refused(malformed)

    @property
    def _calm(self) -> bool:
        """Whether a quick method may run in place now."""
        channel = self.channel
        draining = self.conversation.draining or self.runner.gate.draining
        return channel is not None and channel.writable and not draining

    def refused(self, malformed: Malformed) -> None:
        """What is no message: answered when it can be; a senseless response fails its call at once."""
        if not self.malformed(malformed):
            if malformed.kind == "too_large" and self.peer.alone and nameless(malformed.id):
                # to the end that dialled it is an answer in all likelihood
                self.peer.fail_the_only(BadAnswer(malformed.reason))
            self.answer(self.runner.service.answers.malformed(malformed, self.dialect))

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
        for run in tuple(self.conversation.inbound.values()):
            if run.method.stream:  # it has no end of its own, and could not be cancelled any more
                self._end(run, None)
        self._settled()

    def ended(self, why: ChannelError) -> None:
        """The channel is over: what we owe on it is not waited for."""
        if self._leaving and isinstance(why, Closed) and not self.peer.closing:
            why = Ended("the far end closed the channel")  # we only followed
        self.channel = None
        conversation = self.conversation
        for run in list(conversation.waiting):
            conversation.withdraw(run)
            self.runner.gate.leave()
            run.drop()
        for run in list(conversation.inbound.values()):
            run.drop()
        conversation.inbound.clear()
        self.peer.lost(why)
        self._settled()

    # -- calls and notifications

    def take(self, message: Single, deliver: Deliver, reply_stream: Speak, caller: Caller) -> None:
        """A message that did not come on the channel: `deliver` takes its answer (None: there is none), `reply_stream`
        what its call sends ahead of that. Raises nothing, as `received`."""
        self.runner.service.dispatcher.dispatch(message, PeerOrigin(self, caller, reply_stream), deliver)

    def takes_inline(self, message: Request | Notification) -> bool:
        """Whether a method that never waits may run in place now: nothing overtakes what waits, no id is there twice."""
        conversation = self.conversation
        if conversation.waiting or not self._calm:
            return False
        return type(message) is Notification or not conversation.inbound or key(message.id) not in conversation.inbound

    def start(
        self, origin: PeerOrigin, method: Method, message: Request | Notification, deliver: Deliver, batched: bool
    ) -> None:
        """Take on a call, or say why not."""
        channel = self.channel
        paused = channel is None or not channel.writable
        if isinstance(message, Notification):
            deliver(None, self._start_notification(InboundCall(self.runner, method, message, origin, _nothing), paused))
            return
        gate = self.runner.gate
        call = InboundCall(self.runner, method, message, origin, deliver, key(message.id))
        refusal = gate.full() if batched else gate.refusal()
        if refusal is None:
            verdict = self.conversation.accept(call.key, call, paused=paused, taken=batched)
            if verdict == "start" or verdict == "wait":
                gate.enter()
                if verdict == "start":
                    call.start()
                return
            if verdict == "duplicate":
                reason = {"reason": "a call with this id is in flight", "id": message.id}
                deliver(failure(None, RpcError.of(INVALID_REQUEST, "Invalid Request", reason), message.version))
                return
            refusal = self._full() if verdict == "busy" else _DRAINING
        deliver(call.refused(refusal), refusal)

    def _start_notification(self, call: InboundCall, paused: bool) -> Refusal | None:
        gate = self.runner.gate
        refusal = gate.refusal()
        if refusal is None:
            verdict = self.conversation.accept(None, call, paused=paused)
            if verdict == "start" or verdict == "wait":
                gate.enter()
                if verdict == "start":
                    call.start()
                return None
            refusal = self._full() if verdict == "busy" else _DRAINING
        logger.warning("notification %r from %s dropped: %s", call.message.method, self.remote, refusal.kind)
        return refusal

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

    def heard(self, message: Notification) -> bool:
        """A notification came. True when it is the protocol's own (a cancel, progress): no method gets it."""
        dialect = self.dialect
        if message.method == dialect.cancel and self._cancelled(message):
            return True
        if message.method == dialect.progress and self.peer.progressed(message):
            return True
        for listener in self.peer.listeners:
            listener.put(message)
        return False

    def malformed(self, malformed: Malformed) -> bool:
        """What is no message came. True when it is dealt with; else it is answered."""
        if self.spoilt(malformed):
            return True
        if malformed.answerable:
            return False
        if malformed.id is UNSET:
            logger.warning("a notification from %s was dropped: %s", self.remote, malformed.reason)
            return True
        logger.debug("senseless response from %s: %s", self.remote, malformed.reason)
        error = BadAnswer(malformed.reason)
        pending = self.conversation.resolve(malformed.id)
        if pending is not None:
            pending.fail(error)
        elif nameless(malformed.id):
            self.peer.fail_the_only(error)
        return True

    def answer(self, answer: bytes | None, refusal: Refusal | None = None, /, *, count: int = 1) -> None:
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

    def released(self) -> None:
        """A call's work has ended."""
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
        for run in (*conversation.waiting, *conversation.inbound.values()):
            self._end(run, refusal)
        self._settled()

    def _end(self, run: InboundCall, refusal: Refusal | None) -> None:
        if self.conversation.withdraw(run):
            self.runner.gate.leave()
        run.end(refusal)

    def _cancelled(self, message: Notification) -> bool:
        """The far end takes a call of its back; one that waits is never started. False when it names none."""
        try:
            members = _members(message.params) if message.params is not UNSET else {}
        except (msgspec.DecodeError, RecursionError):
            return False
        id = members.get(self.dialect.cancel_key, NULL)
        text = bytes(id)
        run = self.conversation.inbound.get(int(text) if text.isdigit() and len(text) < 400 else key(id))
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


class PeerOrigin:
    """The origin of what comes in on a peer's channel, or for its conversation by another way."""

    __slots__ = ("_batched", "_inbox", "caller", "peer", "reply_stream")

    def __init__(
        self, inbox: Inbox, caller: Caller | None = None, reply_stream: Speak | None = None, batched: bool = False
    ) -> None:
        self._inbox = inbox
        self.peer: Any = inbox.peer
        self.caller = caller or inbox.peer.caller
        self.reply_stream = reply_stream
        self._batched = batched
        """It is part of a batch that was taken on before draining began."""

    @property
    def dialect(self) -> Dialect:
        return self._inbox.dialect

    @property
    def limits(self) -> Limits:
        return self._inbox.limits

    def takes_inline(self, message: Request | Notification) -> bool:
        return self._inbox.takes_inline(message)

    def heard(self, message: Notification) -> bool:
        return self._inbox.heard(message)

    def start(self, method: Method, message: Request | Notification, deliver: Deliver) -> None:
        self._inbox.start(self, method, message, deliver, self._batched)

    def settle(self, call: InboundCall) -> None:
        if call.key is not None:
            self._inbox.conversation.settle(call.key, call)

    def release(self, call: InboundCall) -> None:
        self._inbox.runner.gate.leave()
        self._inbox.released()

    def responded(self, message: Result | Failure) -> None:
        self._inbox.peer.answered(message)

    def malformed(self, message: Malformed) -> bool:
        return self._inbox.malformed(message)

    def batch(self) -> PeerOrigin:
        inbox = self._inbox
        taken = not (inbox.conversation.draining or inbox.runner.gate.draining)
        return PeerOrigin(inbox, self.caller, self.reply_stream, taken)

    def deliver_batch(self, answer: bytes | None, count: int, deliver: Deliver) -> None:
        if answer is not None and self.reply_stream is None:
            self._inbox.answer(answer, count=count)
        else:
            deliver(answer)


_members = msgspec.json.Decoder(dict[str, Raw]).decode
_CANCELLED = Refusal("cancelled", "Request cancelled")
_DRAINING = Refusal("draining", "Draining: this peer is closing and takes no new calls", {"retry_after": 1})


def nameless(id: Any) -> bool:
    """Whether an answer's id is null: it could not say which call it answers."""
    return isinstance(id, Raw) and bytes(id) == b"null"
