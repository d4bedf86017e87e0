"""The receiving side of a peer: incoming messages are run, answered, or passed to our own calls.

It never waits for a handler or for a write. Answers are never dropped; progress is, when the far end reads too
slowly. The `Conversation` decides which calls are in flight, and when the channel may close."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any
from weakref import WeakSet

from msgspec import UNSET, Struct
from msgspec.structs import replace

from ...channel import Broken, Caller, Channel, ChannelError, Ended, Outgoing
from ...jsonrpc.codec import CallMessage, failure, key, read
from ...jsonrpc.conversation import Conversation, nameless
from ...jsonrpc.errors import INVALID_REQUEST, BadAnswer, Dialect, Refusal, RpcError
from ...jsonrpc.framing import NO_HEADER
from ...jsonrpc.leniency import Leniency
from ...jsonrpc.limits import Limits
from ...jsonrpc.messages import Batch, ErrorObject, Failure, Malformed, Message, Notification, Request, Result, Single
from ...net.strangers import recognise_stranger
from ...repeats import Repeats
from ..binding.results import to_json
from ..deadlines import DeadlineClock
from ..declared import UNDECLARED, ErrorRegistry
from ..dispatch import MessageOrigin
from ..method import Method
from ..notifications import Notifications
from ..observing import Arrival, Deliver, ServiceWatch, Speak, nothing, numbers
from ..outbound import IS_MCP, OutboundCall, of_mcp
from ..runner import InboundCall, Runner

logger: logging.Logger = logging.getLogger("dragoman")
repeats: Repeats = Repeats(logger)

UNREAD = 10_000
"""Answers that a far end may be sent while it reads none; then its channel is broken."""
PATIENCE = 1.0
"""Seconds in which the real answer may follow an error without an id that can be about nothing but the one call in
flight. Section 5.1 has a far end that could not read a request answer it so; then nothing else will come."""
GUESSED = frozenset(("tcp", "tls", "unix", "stdio"))
"""The wires on which another protocol may be at the far end: bytes that nothing has framed before us."""


class ChannelEnd:
    """The `Receiver` of a channel, and the `MessageAcceptor` of what comes in on it.

    `channel`: None before the first and during an outage; `limits`: the bounds on messages and calls; `lenient`: what
    is taken beyond the specification. `runner`, `loop`, `clock` and `conversation` are the library's.
    """

    # more attributes than 30 would cost each instance 1.2 KiB for a dict that shares no keys
    __slots__ = (
        "__weakref__", "_errors", "_idle", "_malformed_in_a_row", "_noted", "_older", "_pumping", "_tasks",
        "_understood", "_unread", "alone", "channel", "clock", "conversation", "dialect", "dropped", "lenient", "limits",
        "listeners", "longest", "loop", "mute", "number", "origin", "refusing", "runner",
    )  # fmt: skip

    def __init__(
        self, runner: Runner, limits: Limits, lenient: Leniency, dialect: Dialect, errors: Sequence[type[RpcError]]
    ) -> None:
        runner.bind()
        self.runner: Runner = runner
        self.loop: asyncio.AbstractEventLoop = runner.loop
        self.clock: DeadlineClock = runner.clock
        self.limits: Limits = limits
        self.lenient: Leniency = lenient
        self.dialect: Dialect = dialect
        """The far end's conventions for refusals, cancels and progress."""
        self.conversation: Conversation[InboundCall, OutboundCall] = Conversation(limits)
        self.channel: Channel | None = None
        self.number: int = 0
        """The number of its channel, for observers."""
        self.origin: MessageOrigin = MessageOrigin(Caller(), self)
        """The origin of messages on the channel."""
        self.listeners: WeakSet[Notifications] | tuple[()] = ()
        """The iterators that get the far end's notifications."""
        self.dropped: int = 0
        """Progress notifications that were not sent because the far end reads too slowly."""
        self.refusing: Refusal = _DRAINING
        """The refusal of calls that come while it drains."""
        self.mute: bool = False
        """No incoming message is answered: for a protocol in which this end only sends requests."""
        self.alone: bool = False
        """No other peer uses this one's runner, which is released with the peer."""
        self.longest: float | None = None
        """Most seconds from the first progress of a call of ours, which begins its time-out again; None: any number."""
        self._errors = ErrorRegistry(errors) if errors else UNDECLARED
        self._idle: asyncio.Future[None] | None = None
        self._older: OlderCalls | None = None
        self._tasks: set[asyncio.Task[Any]] | None = None
        self._pumping = False
        self._unread = 0
        self._malformed_in_a_row = 0
        self._understood = False  # a message has come on this channel: it speaks JSON-RPC
        self._noted: Note | None = None  # what named no call, while some were in flight

    acknowledges = True
    """On a channel nothing waits for a notification."""

    @property
    def caller(self) -> Caller:
        """The far end, as the wire knows it."""
        return self.channel.caller if self.channel is not None else Caller()

    @property
    def session_name(self) -> str:
        """The name of the session whose messages the channel carries, for observers; "" without one."""
        return getattr(self.channel, "session_name", "")

    @property
    def watch(self) -> ServiceWatch | None:
        """Its observers, where it has some."""
        return self.runner.service._watch

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
        self.origin = MessageOrigin(channel.caller, self)
        self.conversation.opened()
        self._unread = self._malformed_in_a_row = 0
        self._understood = False
        self._noted = None

    # -- the channel's Receiver

    def received(self, raw: bytes, call: Outgoing | None = None) -> None:
        """A complete message has come, in the exchange of `call` where it came in one. Raises nothing: a fault of ours
        becomes the answer."""
        service = self.runner.service
        wire = None
        try:
            if service._quick and call is None:
                owed, channel = self.conversation, self.channel
                calm = channel is not None and channel.writable and not owed.draining
                if calm and not (owed.inbound or owed.waiting):
                    found = service._answer_inline(raw, self.lenient)
                    if isinstance(found, bytes):
                        self._malformed_in_a_row = 0
                        self.answer(found)
                        return
                    wire = found
            message = read(raw, self.limits, self.lenient, wire)
            if call is not None:
                self._replied(message, call, raw)
            elif type(message) is Malformed:
                self._unreadable(message, raw)
            else:
                self._malformed_in_a_row = 0
                self._understood = True
                service._dispatcher.dispatch(message, self, self.origin, self.answer, raw)
        except Exception as error:
            if service._watch is not None:
                service._watch.faulty(self.caller.path, self.caller, raw, error)
            service._answers.faulty(raw, error, self.answer, self.dialect)

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
        origin = MessageOrigin(caller, self, reply_stream)
        self.runner.service._dispatcher.dispatch(message, self, origin, deliver, raw, batch)

    def resumed(self) -> None:
        """The wire takes more: start waiting calls."""
        self._unread = 0
        self._pump()

    def finished(self) -> None:
        """The far end sends nothing more: our calls get no answer, but we still owe answers."""
        self.conversation.half_closed = True
        self._fail_noted()
        for pending in self.conversation.abandon():
            why = f"the far end closed its sending side before it answered{self.noted(pending)}"
            pending.fail(Ended(why).because("hung_up"))
        self.end_standing(None)  # they could not be cancelled any more
        self._settled()

    @property
    def lapsed(self) -> bool:
        """Whether the admission of the far end has expired."""
        return self.refusing is LAPSED

    def _over(self, why: ChannelError) -> None:
        """The channel is over: what we owe on it is not waited for."""
        self.channel = None
        conversation = self.conversation
        for run in list(conversation.waiting):
            conversation.withdraw(run)
            self.runner.call_limit.leave(run.size)
            run.drop(f"{why}")
        for run in list(conversation.inbound.values()):
            run.drop(f"{why}")
        conversation.inbound.clear()

    # -- what is not a message

    def _unreadable(self, malformed: Malformed, raw: bytes) -> None:
        """A malformed message has come. Two peers that answer each other's errors with errors would do so for ever."""
        channel = self.channel
        if nameless(malformed.id) and malformed.spoils is None:
            guessing = self.alone and not self._understood and self.caller.scheme in GUESSED
            if (
                guessing
                and channel is not None
                and (other := recognise_stranger(raw[:200], self.caller.scheme)) is not None
            ):
                channel.abort(Broken(f"{self._remote} does not send JSON-RPC as it is expected here; {other}"))
                return
            self._malformed_in_a_row += 1
            words = "%s wrote what is not a message: %.200r (%s)"
            if self.alone and self.caller.scheme == "stdio":
                words = "%s wrote what is not a message to its standard output: %.200r (%s); print to stderr there"
                level = logging.WARNING
            else:
                level = logging.DEBUG
            repeats.log(level, words, self._remote, raw[:200].decode("utf-8", "backslashreplace"), malformed.reason)
            count, last = self._malformed_in_a_row, malformed.reason
            if self.alone and self.caller.scheme in ("http", "https"):  # events of a stream, which end nothing
                count = 0
            if count > self.limits.malformed_in_a_row and channel is not None:
                why = f"{count} messages in a row were not JSON-RPC (limit malformed_in_a_row); the last: {last}"
                channel.abort(Broken(why))
                return
        self.refused(malformed, raw)

    def refused(self, malformed: Malformed, raw: bytes = b"") -> None:
        """Answer what is not a message, where that can be; a senseless response fails its call at once."""
        answer = None
        if not self.malformed(malformed, raw):
            expected = malformed.kind == "too_large" or malformed.reason == NO_HEADER
            if expected and self.alone and nameless(malformed.id):
                # to the end that dialled it is an answer in all likelihood
                self._fail_only(BadAnswer(malformed.reason))
            answer = self.runner.service._answers.malformed(malformed, self.dialect)
        if (watch := self.watch) is not None:
            watch.refused(malformed, self, self.caller, answer, malformed.refusal, raw)
        if answer is not None:
            self.conversation.notified = True
        self.answer(answer)

    def spoilt(self, malformed: Malformed) -> bool:
        """Fail the outgoing call that an unreadable response was for, or those of a batch; False if it shows none."""
        return self._fail_answered(malformed.spoils, malformed)

    def _fail_answered(self, id: Any, malformed: Malformed) -> bool:
        conversation = self.conversation
        if malformed.batch:
            found = conversation.resolve_batch(id)
        else:
            pending = conversation.resolve(id)
            found = [] if pending is None else [pending]
        for one in found:
            one.fail(BadAnswer(malformed.reason))
        return bool(found)

    def malformed(self, malformed: Malformed, raw: bytes = b"") -> bool:
        """A malformed message has come. True when it is handled; False if it must be answered."""
        if self.spoilt(malformed):
            return True
        if malformed.answerable:
            if malformed.kind != "too_large" and nameless(malformed.id):  # it may have been meant for an answer
                text = f": {_shown(raw)}" if raw else ""
                self._note(Note(f"what could not be read came ({malformed.reason}){text}"))
            return False
        if malformed.id is UNSET:
            repeats.warning("a notification from %s was dropped: %s", self._remote, malformed.reason)
            return True
        logger.debug("senseless response from %s: %s", self._remote, malformed.reason)
        if self._fail_answered(malformed.id, malformed):
            pass
        elif nameless(malformed.id) and malformed.kind == "too_large":
            self._fail_only(BadAnswer(malformed.reason))
        elif nameless(malformed.id):
            self._note(Note(f"an answer without an id came ({malformed.reason})"), logging.WARNING)
        return True

    # -- what came in the exchange of one call

    def _replied(self, message: Message, call: Outgoing, raw: bytes) -> None:
        """Take what the exchange of a call brought: its answers belong to this call alone, and no fault of it to
        another."""
        service, kind = self.runner.service, type(message)
        elements = message.messages if isinstance(message, Batch) else (message,)
        kept = tuple(one for one in elements if self._of_exchange(one, call, raw))
        if not kept:
            return
        if kind is Batch:
            message = Batch(kept)
        service._dispatcher.dispatch(message, self, self.origin, self.answer, raw)

    def _of_exchange(self, message: Single, call: Outgoing, raw: bytes) -> bool:
        """Whether a message of an exchange is dispatched as one of a channel is."""
        if isinstance(message, Result | Failure):
            if not call.awaits(message.id):
                words = "an answer came that is not this call's"
                if isinstance(message, Failure) and nameless(message.id):
                    words = f"an error without an id came: {message.error.message}"
                self._note(Note(words, call=call))
                return False
            return True
        if not isinstance(message, Malformed):
            return True
        id = message.id if message.spoils is None else message.spoils
        if call.awaits(id):
            self.spoilt(replace(message, spoils=id))
        elif message.answerable and not nameless(message.id) and self.channel is not None and self.channel.duplex:
            return True  # a request, which gets its error
        else:
            self._note(Note(f"what makes no sense came ({message.reason}): {_shown(raw)}", call=call))
        if (watch := self.watch) is not None:
            watch.refused(message, self, self.caller, None, message.refusal, raw)
        return False

    # -- calls and notifications

    def takes_inline(self, message: Request | Notification) -> bool:
        """Whether a method that never waits may run in place now."""
        channel = self.channel
        if channel is None or not channel.writable or self.conversation.draining:
            return False
        return self.conversation.takes_inline(UNSET if type(message) is Notification else message.id)

    def start(
        self, origin: MessageOrigin, method: Method, message: Request | Notification, deliver: Deliver, size: int
    ) -> None:
        """Start a call, queue it, or refuse it."""
        channel, call_limit, conversation = self.channel, self.runner.call_limit, self.conversation
        id, is_notification = None, type(message) is Notification
        if not is_notification:
            id = message.id  # type: ignore[union-attr]
            if type(id) is not int:
                id = key(id)
        answers = deliver
        if is_notification:
            answers = deliver.work_alone() if type(deliver) is Arrival else nothing
        call = InboundCall(self.runner, method, message, self, origin, answers, size, id)
        # a conversation drains by itself, later than the exchanges of its server
        refusal = call_limit.enter(origin.already_accepted or not conversation.draining, size)
        if refusal is None:
            try:
                paused = channel is None or not channel.writable
                verdict = conversation.accept(id, call, paused=paused, already_accepted=origin.already_accepted)
            except BaseException:
                call_limit.leave(size)
                raise
            if verdict == "start" or verdict == "wait":
                if verdict == "start":
                    call.start()
                if is_notification:
                    deliver(None)
                return
            call_limit.leave(size)
            if verdict == "duplicate":
                reason = {"reason": "a call with this id is in flight", "id": message.id}  # type: ignore[union-attr]
                null = None if self.dialect.null_id else UNSET  # its own id would settle the first call at the caller
                deliver(failure(null, RpcError.of(INVALID_REQUEST, "Invalid Request", reason), message.version))
                return
            refusal = self._full() if verdict == "busy" else self.refusing
        if is_notification:
            if call.seen is not None:
                call.seen.over(None, refusal)
            # this end closes: that is expected
            level = logging.DEBUG if refusal.kind == "draining" else logging.WARNING
            repeats.log(level, "notification %r from %s dropped: %s", message.method, self._remote, refusal.kind)
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

    def consumes(self, message: Notification) -> bool:
        """A notification has come. True if it belongs to the protocol (a cancel, progress) and goes to no method."""
        dialect, conversation = self.dialect, self.conversation
        if message.method == dialect.cancel and (run := conversation.cancelled(message, dialect)) is not None:
            if logger.isEnabledFor(logging.DEBUG):
                logger.debug("a call of %s was cancelled by it: %.300r", self._remote, bytes(message.params))
            self._end(run, _CANCELLED if dialect.cancelled_answer else None)
            self._settled()
            return True
        if message.method == dialect.progress and (reported := conversation.progressed(message, dialect)) is not None:
            pending, value = reported
            pending.progressed(value)
            return True
        if message.method == dialect.closing:
            self.moving()
            return True
        for listener in self.listeners:
            listener.put(message)
        return False

    def moving(self) -> None:
        """The far end has answered all that it took and takes nothing more."""

    def put_back(self, pending: OutboundCall, error: ErrorObject) -> bool:
        """Whether a call that was refused waits for another channel."""
        return False

    def settle(self, call: InboundCall) -> None:
        """A call has its answer, which is delivered next."""
        if call.key is not None:
            self.conversation.settle(call.key, call)

    def release(self, call: InboundCall) -> None:
        """A call's work has ended, or is not counted: its slot is free."""
        self.runner.call_limit.leave(call.size)
        conversation = self.conversation
        conversation.release()
        if conversation.waiting:
            self._pump()
        if self._idle is not None or conversation.half_closed or self._older is not None:
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
        if self._older is not None:
            self._older.look(self)
        if self.channel is not None and self.conversation.leaves():
            self.later(self.channel.close())

    def turn_away(self, refusal: Refusal) -> None:
        """Refuse all calls that are owed an answer: waiting ones are never started, running ones are stopped."""
        conversation = self.conversation
        for run in (*conversation.waiting, *conversation.inbound.values()):
            self._end(run, refusal)
        self._settled()

    def end_standing(self, refusal: Refusal | None) -> None:
        """End the calls that have no end of their own; None: with no answer."""
        for run in [run for run in self.conversation.inbound.values() if run.method.stream]:
            self._end(run, refusal)

    def begin_again(self, of: Callable[[Request | Notification], bool], refusal: Refusal) -> None:
        """The far end begins anew on the same channel: its calls in flight for whose message `of` is true are refused,
        and ours, which it has forgotten, fail."""
        conversation = self.conversation
        for run in (*conversation.waiting, *conversation.inbound.values()):
            if of(run.message) and not run.is_here:
                self._end(run, refusal)
        for pending in conversation.abandon():
            pending.fail(Ended("the far end began anew on this channel before it answered").because("hung_up"))
        self._settled()

    def _end(self, run: InboundCall, refusal: Refusal | None) -> None:
        if self.conversation.withdraw(run):
            self.runner.call_limit.leave(run.size)
        run.end(refusal)

    def batched(self, origin: MessageOrigin) -> MessageOrigin:
        """The origin of the elements of a batch, which were accepted with it."""
        return MessageOrigin(origin.caller, self, origin.reply_stream, not self.conversation.draining)

    # -- answers to our calls

    def responded(self, message: Result | Failure) -> None:
        """A response has come. An exception that it causes ends its call."""
        pending = self.conversation.resolve(message.id)
        try:
            if type(message) is Result:
                if pending is not None:
                    pending.settle(message.result)
                elif nameless(message.id):
                    self._note(Note("an answer without an id came"), logging.WARNING)
                else:
                    logger.debug("an answer that no call waits for, from %s", self._remote)
                return
            error = self._errors.raised_by(message)
            if pending is not None:
                if not self.put_back(pending, message.error):
                    if self.alone and self.caller.scheme in ("http", "https") and of_mcp(error):
                        error.add_note(IS_MCP)
                    pending.fail(error)
            elif nameless(message.id):
                self._note(Note(f"an error without an id came: {error}", error), logging.WARNING)
        except Exception as error:
            if pending is None:
                raise
            pending.fail(error)

    def _note(self, note: Note, level: int = logging.DEBUG) -> None:
        """Keep what came that may be about a call in flight, and names none: the real answer is still waited for."""
        conversation = self.conversation
        waited = bool(conversation.outbound)
        logger.log(level if waited and self._noted is None else logging.DEBUG, "%s: %s", self._remote, note.words)
        if not waited:
            return
        self._noted = note = replace(note, after=conversation.last_id)
        if note.error is not None and note.call is None and not conversation.notified and conversation.single:
            self.loop.call_later(PATIENCE, self._unclaimed, note)

    def _unclaimed(self, note: Note) -> None:
        """Nothing else came within `PATIENCE`."""
        if note is self._noted and not self.conversation.notified:
            self._fail_noted()

    def _fail_noted(self) -> None:
        """An error without an id was for the one call, or the one batch, in flight: no other answer is to come."""
        note = self._noted
        if note is None or note.error is None or note.call is not None:
            return
        if all(id <= note.after for id in self.conversation.outbound):
            self._fail_only(note.error)

    def noted(self, pending: OutboundCall) -> str:
        """Return what came while this call waited and named no call, for its error; "" for nothing."""
        note = self._noted
        if note is None or pending.id > note.after or not (note.call is None or note.call.awaits(pending.id)):
            return ""
        return f"; meanwhile {note.words}"

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

    def deliver_batch(self, origin: MessageOrigin, answer: bytes | None, count: int, deliver: Deliver) -> None:
        """Deliver the answers to a batch, `count` in one text."""
        if answer is not None and origin.reply_stream is None:
            self.answer(answer, count=count)
        else:
            deliver(answer)

    def send_progress(self, id: Any, value: Any) -> bool:
        """Report the progress of a call to the far end; dropped, and counted, while it reads too slowly."""
        dialect = self.dialect
        if dialect.progress is None or dialect.progress_value is None:
            return False
        params = {dialect.progress_key: id, dialect.progress_value: value}
        return self.send_droppable(to_json(CallMessage(dialect.progress, params)), dialect.progress)

    def send_droppable(self, raw: bytes, method: str) -> bool:
        """Send a notification that the far end can do without; dropped, and counted, while it reads too slowly."""
        sent = self._sent(raw)
        if (watch := self.watch) is not None:
            watch.notified(self, method, raw, sent)
        return sent

    def _sent(self, raw: bytes) -> bool:
        channel = self.channel
        if channel is None or not channel.duplex:
            return False
        if not channel.writable:
            self.dropped += 1
            return False
        self.conversation.notified = True
        try:
            channel.send(raw)
        except ChannelError:
            return False
        return True


class OlderCalls:
    """The calls of a channel that were in flight at one moment; `over` is done when they have ended."""

    __slots__ = ("calls", "over")

    def __init__(self, calls: set[InboundCall], over: asyncio.Future[None]) -> None:
        self.calls: set[InboundCall] = calls
        self.over: asyncio.Future[None] = over

    def look(self, end: ChannelEnd) -> None:
        """Whether they have ended by now, or the channel is idle."""
        runs, waiting = end.runner.runs, end.conversation.waiting
        self.calls = {call for call in self.calls if call in runs or call in waiting}
        if not self.over.done() and (not self.calls or end.conversation.idle):
            self.over.set_result(None)


class Note(Struct, frozen=True):
    """A message of the far end that names no call."""

    words: str
    error: Exception | None = None
    """The error, where it was one."""
    call: Outgoing | None = None
    """The call in whose exchange it came; it is about no other."""
    after: int = 0
    """The id of the last call that had been sent."""


def _shown(raw: bytes) -> str:
    """The beginning of a far end's text, as one line that is safe to print."""
    return repr(raw[:100])[1:] + ("..." if len(raw) > 100 else "")


LAPSED: Refusal = Refusal("forbidden", "Forbidden: the admission has expired, connect anew", {"error": "invalid_token"})
"""With the error of RFC 6750 section 3.1: "The access token provided is expired, revoked, malformed, or invalid"."""
UNDONE: Refusal = Refusal("draining", "Draining: the peer closed before the call was done")
_CANCELLED = Refusal("cancelled", "Request cancelled")
_DRAINING = Refusal("draining", "Draining: this peer is closing and takes no new calls", {"retry_after": 1})
