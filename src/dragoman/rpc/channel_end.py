"""The receiving side of a peer: incoming messages are run, answered, or passed to our own calls.

It never waits for a handler or for a write. Answers are never dropped; progress is, when the far end reads too slowly.
The `Conversation` decides which calls are in flight, and when the channel may close.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from typing import Any
from weakref import WeakSet

from msgspec import UNSET

from ..channel import Broken, Caller, Channel, ChannelError, Ended
from ..jsonrpc.codec import Call, Leniency, failure, key, read
from ..jsonrpc.conversation import Conversation, nameless
from ..jsonrpc.errors import INVALID_REQUEST, BadAnswer, Dialect, Refusal, RpcError
from ..jsonrpc.limits import Limits
from ..jsonrpc.messages import Failure, Malformed, Notification, Request, Result, Single
from .binding.results import to_json
from .call import InboundCall
from .declared import UNDECLARED, ErrorRegistry
from .dispatch import Origin, Speak
from .method import Method
from .notifications import Notifications
from .observing import Arrival, Deliver, Watch, nothing, numbers
from .outbound import OutboundCall
from .runner import Runner

logger = logging.getLogger("dragoman")

UNREAD = 10_000
"""Answers that a far end may be sent while it reads none; then its channel is broken."""


class ChannelEnd:
    """The `Receiver` of a channel, and the `Acceptor` of what comes in on it."""

    def __init__(
        self, runner: Runner, limits: Limits, lenient: Leniency, dialect: Dialect, errors: Sequence[type[RpcError]]
    ) -> None:
        runner.bind()
        self.runner = runner
        self.loop = runner.loop
        self.clock = runner.clock
        self.limits = limits
        self.lenient = lenient
        self.dialect = dialect
        """The far end's conventions for refusals, cancels and progress."""
        self.conversation: Conversation[InboundCall, OutboundCall] = Conversation(limits)
        self.channel: Channel | None = None
        self.number = 0
        """Of its channel, for observers."""
        self.origin = Origin(Caller(), self)
        """The origin of messages on the channel."""
        self.listeners: WeakSet[Notifications] | tuple[()] = ()
        """The iterators that get the far end's notifications."""
        self.dropped = 0
        """Progress notifications that were not sent because the far end reads too slowly."""
        self.mute = False
        """No incoming message is answered: for a protocol in which this end only sends requests."""
        self.alone = False
        """No other peer uses this one's runner, which is released with the peer."""
        self._errors = ErrorRegistry(errors) if errors else UNDECLARED
        self._idle: asyncio.Future[None] | None = None
        self._tasks: set[asyncio.Task[Any]] | None = None
        self._pumping = False
        self._unread = 0
        self._strays = 0

    @property
    def caller(self) -> Caller:
        """What the wire knows about the far end."""
        return self.channel.caller if self.channel is not None else Caller()

    @property
    def watch(self) -> Watch | None:
        """Its observers, where it has some."""
        return self.runner.service.watch

    def idle(self) -> asyncio.Future[None]:
        """Done when no answer is owed and no call runs."""
        if self._idle is None or self._idle.done():
            self._idle = self.loop.create_future()
        self._settled()
        return self._idle

    def later(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run a coroutine as a task; `close` waits for it."""
        if self._tasks is None:
            self._tasks = set()
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def open(self, channel: Channel) -> None:
        """Receive from this channel."""
        self.channel = channel
        self.number = next(numbers)
        self.origin = Origin(channel.caller, self)
        self.conversation.opened()
        self._unread = self._strays = 0

    # -- the channel's Receiver

    def received(self, raw: bytes) -> None:
        """A complete message has come. Raises nothing: a fault of ours becomes the answer."""
        service = self.runner.service
        try:
            owed, channel = self.conversation, self.channel
            calm = channel is not None and channel.writable and not (owed.draining or self.runner.gate.draining)
            if service.quick and calm and not (owed.inbound or owed.waiting):
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
                service.dispatcher.dispatch(message, self, self.origin, self.answer, raw)
        except Exception as error:
            service.answers.faulty(raw, error, self.answer, self.dialect)

    def take(
        self,
        message: Single,
        deliver: Deliver,
        reply_stream: Speak,
        caller: Caller,
        raw: bytes = b"",
        batch: Arrival | None = None,
    ) -> None:
        """A message that did not come on the channel: `deliver` takes its answer (None: there is none), `reply_stream`
        what its call sends ahead of that. For observers: `raw`, its text; `batch`, of which it is an element. Raises
        nothing, as `received`."""
        origin = Origin(caller, self, reply_stream)
        self.runner.service.dispatcher.dispatch(message, self, origin, deliver, raw, batch)

    def resumed(self) -> None:
        """The wire takes more: start waiting calls."""
        self._unread = 0
        self._pump()

    def finished(self) -> None:
        """The far end sends nothing more: our calls get no answer, but we still owe answers."""
        self.conversation.half_closed = True
        for pending in self.conversation.abandon():
            pending.fail(Ended("the far end closed its sending side before it answered"))
        for run in tuple(self.conversation.inbound.values()):
            if run.method.stream:  # it has no end of its own, and could not be cancelled any more
                self._end(run, None)
        self._settled()

    def _over(self, why: ChannelError) -> None:
        """The channel is over: what we owe on it is not waited for."""
        self.channel = None
        conversation = self.conversation
        for run in list(conversation.waiting):
            conversation.withdraw(run)
            self.runner.gate.leave()
            run.drop(f"{why}")
        for run in list(conversation.inbound.values()):
            run.drop(f"{why}")
        conversation.inbound.clear()

    # -- what is no message

    def _unreadable(self, malformed: Malformed, raw: bytes) -> None:
        """A malformed message has come. Two peers that answer each other's errors with errors would do so for ever."""
        channel = self.channel
        if nameless(malformed.id):
            self._strays += 1
            words = "%s wrote what is no message: %.200r (%s)"
            if self.alone and self.caller.scheme == "stdio":
                words = "%s wrote what is no message to its standard output: %.200r (%s); print to stderr there"
                level = logging.WARNING if self._strays == 1 else logging.DEBUG
            else:
                level = logging.DEBUG
            logger.log(level, words, self._remote, raw[:200].decode("utf-8", "backslashreplace"), malformed.reason)
            if self._strays > self.limits.strays and channel is not None:
                why = f"{self._strays} messages in a row were no JSON-RPC (limit strays); the last: {malformed.reason}"
                channel.abort(Broken(why))
                return
        self.refused(malformed, raw)

    def refused(self, malformed: Malformed, raw: bytes = b"") -> None:
        """What is no message: answered when it can be; a senseless response fails its call at once."""
        answer = None
        if not self.malformed(malformed):
            if malformed.kind == "too_large" and self.alone and nameless(malformed.id):
                # to the end that dialled it is an answer in all likelihood
                self._fail_only(BadAnswer(malformed.reason))
            answer = self.runner.service.answers.malformed(malformed, self.dialect)
        if (watch := self.watch) is not None:
            watch.refused(malformed, self, self.caller, answer, malformed.refusal, raw)
        self.answer(answer)

    def spoilt(self, malformed: Malformed) -> bool:
        """Fail the outgoing call that an unreadable response was for; False if it shows none."""
        pending = self.conversation.resolve(malformed.spoils)
        if pending is not None:
            pending.fail(BadAnswer(malformed.reason))
        return pending is not None

    def malformed(self, malformed: Malformed) -> bool:
        """A malformed message has come. True when it is handled; False if it must be answered."""
        if self.spoilt(malformed):
            return True
        if malformed.answerable:
            return False
        if malformed.id is UNSET:
            logger.warning("a notification from %s was dropped: %s", self._remote, malformed.reason)
            return True
        logger.debug("senseless response from %s: %s", self._remote, malformed.reason)
        error = BadAnswer(malformed.reason)
        pending = self.conversation.resolve(malformed.id)
        if pending is not None:
            pending.fail(error)
        elif nameless(malformed.id):
            self._fail_only(error)
        return True

    # -- calls and notifications

    def takes_inline(self, message: Request | Notification) -> bool:
        """Whether a method that never waits may run in place now."""
        channel = self.channel
        if channel is None or not channel.writable or self.runner.gate.draining:
            return False
        return self.conversation.takes_inline(UNSET if type(message) is Notification else message.id)

    def start(self, origin: Origin, method: Method, message: Request | Notification, deliver: Deliver) -> None:
        """Start a call, queue it, or refuse it."""
        channel, gate = self.channel, self.runner.gate
        id, told = None, type(message) is Notification
        if not told:
            id = message.id  # type: ignore[union-attr]
            if type(id) is not int:
                id = key(id)
        answers = deliver
        if told:
            answers = deliver.work_alone() if type(deliver) is Arrival else nothing
        call = InboundCall(self.runner, method, message, self, origin, answers, id)
        refusal = gate.enter(origin.taken)
        if refusal is None:
            paused = channel is None or not channel.writable
            verdict = self.conversation.accept(id, call, paused=paused, taken=origin.taken)
            if verdict == "start" or verdict == "wait":
                if verdict == "start":
                    call.start()
                if told:
                    deliver(None)
                return
            gate.leave()
            if verdict == "duplicate":
                reason = {"reason": "a call with this id is in flight", "id": message.id}  # type: ignore[union-attr]
                deliver(failure(None, RpcError.of(INVALID_REQUEST, "Invalid Request", reason), message.version))
                return
            refusal = self._full() if verdict == "busy" else _DRAINING
        if told:
            if call.seen is not None:
                call.seen.over(None, refusal)
            logger.warning("notification %r from %s dropped: %s", message.method, self._remote, refusal.kind)
        deliver(call.refused(refusal), refusal)

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
        """A notification has come. True if it belongs to the protocol (a cancel, progress) and goes to no method."""
        dialect, conversation = self.dialect, self.conversation
        if message.method == dialect.cancel and (run := conversation.cancelled(message, dialect)) is not None:
            if logger.isEnabledFor(logging.DEBUG):
                logger.debug("a call of %s was cancelled by it: %.300r", self._remote, bytes(message.params))
            self._end(run, _CANCELLED if dialect.cancelled_answer else None)
            self._settled()
            return True
        if message.method == dialect.progress and (told := conversation.progressed(message, dialect)) is not None:
            pending, value = told
            pending.progressed(value)
            return True
        for listener in self.listeners:
            listener.put(message)
        return False

    def settle(self, call: InboundCall) -> None:
        """A call has its answer, which is delivered next."""
        if call.key is not None:
            self.conversation.settle(call.key, call)

    def release(self, call: InboundCall) -> None:
        """A call's work has ended, or is not counted: its slot is free."""
        self.runner.gate.leave()
        conversation = self.conversation
        conversation.release()
        if conversation.waiting:
            self._pump()
        if self._idle is not None or conversation.half_closed:
            self._settled()

    def _pump(self) -> None:
        """Start waiting calls while there are slots and the wire takes their answers."""
        if self._pumping:
            return
        self._pumping = True
        conversation = self.conversation
        while self.channel is not None and self.channel.writable and (run := conversation.next()) is not None:
            run.start()
        self._pumping = False

    def _settled(self) -> None:
        """An answer was settled, or work has ended."""
        if self._idle is not None and not self._idle.done() and self.conversation.idle:
            self._idle.set_result(None)
        if self.channel is not None and self.conversation.leaves():
            self.later(self.channel.close())

    def turn_away(self, refusal: Refusal) -> None:
        """Refuse all calls that are owed an answer: waiting ones are never started, running ones are stopped."""
        conversation = self.conversation
        for run in (*conversation.waiting, *conversation.inbound.values()):
            self._end(run, refusal)
        self._settled()

    def _end(self, run: InboundCall, refusal: Refusal | None) -> None:
        if self.conversation.withdraw(run):
            self.runner.gate.leave()
        run.end(refusal)

    def batched(self, origin: Origin) -> Origin:
        """The origin of the elements of a batch, which were accepted with it."""
        taken = not (self.conversation.draining or self.runner.gate.draining)
        return Origin(origin.caller, self, origin.reply_stream, taken)

    # -- answers to our calls

    def responded(self, message: Result | Failure) -> None:
        """A response has come. An exception that it causes ends its call."""
        pending = self.conversation.resolve(message.id)
        try:
            if type(message) is Result:
                if pending is not None:
                    pending.settle(message.result)
                elif nameless(message.id):
                    self._fail_only(BadAnswer("an answer without an id: it must be that of the call"))
                else:
                    logger.debug("an answer that no call waits for, from %s", self._remote)
                return
            error = self._errors.raised_by(message)
            if pending is not None:
                pending.fail(error)
            elif nameless(message.id):
                self._fail_only(error)
        except Exception as error:
            if pending is None:
                raise
            pending.fail(error)

    def _fail_only(self, error: Exception) -> None:
        """A response without a readable id belongs to the one call, or the one batch, that is in flight."""
        found = self.conversation.resolve_only()
        for pending in found:
            pending.fail(error)
        if not found:
            logger.debug("an error without an id from %s: %s", self._remote, error)

    # -- what is sent

    @property
    def _remote(self) -> str:
        """The far end's address, for logs."""
        return self.channel.caller.remote if self.channel is not None else "a lost channel"

    def answer(self, answer: bytes | None, refusal: Refusal | None = None, /, *, count: int = 1) -> None:
        """Send an answer, if there is one and a far end; `count`: the number of a batch's answers in it."""
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
            logger.debug("an answer could not be sent: %s is over", self._remote)

    def deliver_batch(self, origin: Origin, answer: bytes | None, count: int, deliver: Deliver) -> None:
        """Deliver the answers to a batch, `count` in one text."""
        if answer is not None and origin.reply_stream is None:
            self.answer(answer, count=count)
        else:
            deliver(answer)

    def tell_progress(self, id: Any, value: Any) -> bool:
        """Report the progress of a call to the far end; dropped, and counted, while it reads too slowly."""
        dialect = self.dialect
        if dialect.progress is None or dialect.progress_value is None:
            return False
        params = {dialect.progress_key: id, dialect.progress_value: value}
        return self.tell(to_json(Call(dialect.progress, params)), dialect.progress)

    def tell(self, raw: bytes, method: str) -> bool:
        """Send a notification that the far end can do without; dropped, and counted, while it reads too slowly."""
        sent = self._sent(raw)
        if (watch := self.watch) is not None:
            watch.told(self, method, raw, sent)
        return sent

    def _sent(self, raw: bytes) -> bool:
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


_CANCELLED = Refusal("cancelled", "Request cancelled")
_DRAINING = Refusal("draining", "Draining: this peer is closing and takes no new calls", {"retry_after": 1})
