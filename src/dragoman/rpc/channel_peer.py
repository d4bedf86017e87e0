"""The peer of a channel: what `connect` and serving make, a `Peer` that takes calls too.

What comes in is run, answered, or passed to our own calls; this never waits for a handler or for a write. Answers are
never dropped; progress is, when the far end reads too slowly. The `Conversation` decides which calls are in flight, and
when the channel may close. Pending calls belong to the peer, not to its channel, which may be lost and made anew.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from time import monotonic
from typing import Any, Final, Literal, TypeAlias

from msgspec import UNSET, Raw

from ..channel import LIMITS, Broken, Caller, Channel, ChannelError, Closed, Ended, Outgoing, again
from ..jsonrpc.codec import AnyAnswer, CallMessage, FailedAnswer, PlainMessage, failed_answer, key, read
from ..jsonrpc.conversation import nameless
from ..jsonrpc.errors import INVALID_REQUEST, LSP, BadAnswer, Dialect, Refusal, RpcError
from ..jsonrpc.framing import NO_HEADER
from ..jsonrpc.leniency import Leniency
from ..jsonrpc.limits import Limits
from ..jsonrpc.messages import Batch, ErrorObject, Failure, Malformed, Message, Notification, Request, Result, Single
from ..jsonrpc.options import CALL_TIME, CALLABLE, FLAG, NONE, check, instance, many
from ..net.strangers import recognise_stranger
from ..repeats import Repeats
from .binding.results import to_json
from .declared import UNDECLARED, ErrorRegistry
from .dispatch import MessageOrigin
from .inbound import InboundCall
from .method import ERROR, Method
from .middleware import Middleware
from .observing import Arrival, Deliver, Speak, nothing, numbers
from .outbound import MCP_NOTE, Note, Notes, OutboundCall, fail_only, is_mcp_error
from .peer import Peer
from .runner import Runner

State: TypeAlias = Literal["connected", "lost", "closed"]
OnState: TypeAlias = Callable[[State, ChannelError | None], object]

logger: logging.Logger = logging.getLogger("dragoman")
repeats: Repeats = Repeats(logger)

UNREAD = 10_000
"""Answers that may wait for a far end that reads none; with more its channel is broken off."""
UNFRAMED = frozenset(("tcp", "tls", "unix", "stdio"))
"""The schemes of wires on which the far end may speak another protocol, because nothing has framed its bytes before."""

PEER: Final = {
    "limits": LIMITS | NONE,
    "timeout": CALL_TIME,
    "dialect": instance(Dialect, "a Dialect"),
    "lenient": instance(Leniency, "a Leniency") | NONE,
    "errors": many(ERROR),
    "middleware": many(CALLABLE),
    "v1": FLAG,
}
"""The rules of the options of a Peer."""


class ChannelPeer(Peer):
    """The `Peer` that `connect` makes, and serving for each channel; `dir` shows only what a `Peer` has.

    It is the `Receiver` of its channel, which `attach` gives it, and the `MessageAcceptor` of what comes in on it.
    `timeout`: seconds for a call that names none; None: the limits' `call_timeout`. `v1`: it writes JSON-RPC 1.0.
    `middleware` is around each of its calls. `lenient`: which deviations from the specification are accepted.
    After an outage the calls of `idempotent` methods are sent again. `on_state` receives "connected", "lost" and
    "closed". `redialling` is the task that connects again.
    """

    __slots__ = (
        "_ending", "_errors", "_idle", "_malformed_in_a_row", "_older", "_pumping", "_tasks", "_understood", "_unread",
        "alone", "dropped", "idempotent", "lenient", "mute", "on_state", "origin", "parting", "redialling", "refusing",
        "state",
    )  # fmt: skip
    _runner: Runner

    def __init__(
        self,
        runner: Runner,
        *,
        limits: Limits | None = None,
        timeout: float | None = None,
        dialect: Dialect = LSP,
        lenient: Leniency | None = None,
        errors: Sequence[type[RpcError]] = (),
        middleware: Sequence[Middleware] = (),
        v1: bool = False,
    ) -> None:
        check("Peer", PEER, locals())
        service = runner.service
        limits = limits or service.limits
        runner.bind()
        timeout = limits.call_timeout if timeout is None else timeout
        super().__init__(runner, limits, timeout=timeout, dialect=dialect, middleware=middleware, v1=v1)
        self.lenient: Leniency = lenient or service._lenient
        self.origin: MessageOrigin = MessageOrigin(Caller(), self)
        """The origin of messages on the channel."""
        self.idempotent: frozenset[str] = frozenset()
        self.on_state: OnState | None = None
        self.state: Any = None
        """The state of a protocol on top, which the maker of this peer sets."""
        self.redialling: asyncio.Task[Any] | None = None
        self.dropped: int = 0
        """Notifications that were not sent because the far end reads too slowly (`send_droppable`)."""
        self.refusing: Refusal = _DRAINING
        """The refusal of calls that come while it drains."""
        self.mute: bool = False
        """Whether no incoming message is answered: for a protocol in which this end only sends requests."""
        self.alone: bool = False
        """Whether no other peer uses this one's runner, which is then released with the peer."""
        self.parting: bool = False
        """Whether it closes because its server drains."""
        self._errors = ErrorRegistry(errors) if errors else UNDECLARED
        self._ending: asyncio.Task[None] | None = None  # closes the channel, once draining is over
        self._idle: asyncio.Future[None] | None = None  # see `idle`
        self._older: OlderCalls | None = None  # see `part`
        self._tasks: set[asyncio.Task[Any]] | None = None  # those of `later`
        self._pumping = False  # whether `_pump` runs, which starting a call may call again
        self._unread = 0  # answers that were sent while the channel was not writable
        self._malformed_in_a_row = 0
        self._understood = False  # whether a message has come on this channel, so that it speaks JSON-RPC

    def __dir__(self) -> list[str]:
        return dir(Peer)

    acknowledges = True
    """The answers to a batch do not wait for its notifications."""

    # -- the channel's Receiver

    def received(self, raw: bytes, call: Outgoing | None = None) -> None:
        """Take a complete message that has come. `call`: the call in whose exchange it came; None: it came on the
        channel. Raises nothing: an exception of our own code becomes the answer."""
        service = self._runner.service
        wire = None
        try:
            if service._quick and call is None:
                owed, channel = self._conversation, self._channel
                calm = channel is not None and channel.writable and not owed.draining
                if calm and not (owed.inbound or owed.waiting):
                    found = service._answer_inline(raw, self.lenient, self, self.origin.caller)
                    if found is not None and type(found) is not PlainMessage:
                        self._malformed_in_a_row = 0
                        self.answer(found)
                        return
                    wire = found
            message = read(raw, self._limits, self.lenient, wire)
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
            service._answers.faulty(raw, error, self.answer, self._dialect)

    def take(
        self,
        message: Single,
        deliver: Deliver,
        reply_stream: Speak,
        caller: Caller,
        raw: bytes = b"",
        batch: Arrival | None = None,
    ) -> None:
        """Take a message that did not come on the channel. `deliver` gets its answer (None: there is none),
        `reply_stream` what its call sends ahead of that. For observers: `raw`, its text; `batch`, of which it is an
        element. Raises nothing, as `received`."""
        origin = MessageOrigin(caller, self, reply_stream)
        self._runner.service._dispatcher.dispatch(message, self, origin, deliver, raw, batch)

    def resumed(self) -> None:
        """Start waiting calls, because the wire takes more."""
        self._unread = 0
        self._pump()

    def finished(self) -> None:
        """Fail our calls, because the far end sends nothing more; its own calls are still answered."""
        if self._online is not None:  # the far end moves to another channel, and our calls wait for that
            return
        self._conversation.half_closed = True
        if self._notes is not None:
            self._notes.claim()
        for pending in self._conversation.abandon():
            why = f"the far end closed its sending side before it answered{self._meanwhile(pending)}"
            pending.fail(Ended(why).because("hung_up"))
        self.end_standing(None)  # the far end cannot cancel them any more
        self._check_idle()

    # -- what is not a message

    def _unreadable(self, malformed: Malformed, raw: bytes) -> None:
        """Refuse a malformed message that came on the channel. Break the channel off if the far end seems to speak
        another protocol, or after `limits.malformed_in_a_row` such messages: two peers that answer each other's errors
        with errors would do so for ever."""
        channel = self._channel
        if nameless(malformed.id) and malformed.spoils is None:
            guessing = self.alone and not self._understood and self.caller.scheme in UNFRAMED
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
            if count > self._limits.malformed_in_a_row and channel is not None:
                why = f"{count} messages in a row were not JSON-RPC (limit malformed_in_a_row); the last: {last}"
                channel.abort(Broken(why))
                return
        self.refused(malformed, raw)

    def refused(self, malformed: Malformed, raw: bytes = b"") -> None:
        """Answer what is not a message, if it can be answered; a senseless response fails its call at once."""
        answer = None
        if not self.malformed(malformed, raw):
            expected = malformed.kind == "too_large" or malformed.reason == NO_HEADER
            if expected and self.alone and nameless(malformed.id):
                # the end that dialled has most likely got an answer
                fail_only(self._conversation, BadAnswer(malformed.reason), self._remote)
            answer = self._runner.service._answers.malformed(malformed, self._dialect)
        if (watch := self._watch) is not None:
            watch.refused(malformed, self, self.caller, answer, malformed.refusal, raw)
        if answer is not None and answer.text is not None:
            self._conversation.notified = True
        self.answer(answer)

    def _fail_answered(self, id: Any, malformed: Malformed) -> bool:
        """Fail the call that an unreadable response with this id was for, or those of a batch; return False if it was
        for none."""
        conversation = self._conversation
        if malformed.batch:
            found = conversation.resolve_batch(id)
        else:
            pending = conversation.resolve(id)
            found = [] if pending is None else [pending]
        for one in found:
            one.fail(BadAnswer(malformed.reason))
        return bool(found)

    def malformed(self, malformed: Malformed, raw: bytes = b"") -> bool:
        """Handle a malformed message that is not answered, and return True; return False if it must be answered."""
        if self._fail_answered(malformed.spoils, malformed):
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
            fail_only(self._conversation, BadAnswer(malformed.reason), self._remote)
        elif nameless(malformed.id):
            self._note(Note(f"an answer without an id came ({malformed.reason})"), logging.WARNING)
        return True

    # -- what came in the exchange of one call

    def _replied(self, message: Message, call: Outgoing, raw: bytes) -> None:
        """Take a message that came in the exchange of a call. Answers in it are for this call alone, and a fault in it
        ends no other call."""
        service, kind = self._runner.service, type(message)
        elements = message.messages if isinstance(message, Batch) else (message,)
        kept = tuple(one for one in elements if self._of_exchange(one, call, raw))
        if not kept:
            return
        if kind is Batch:
            message = Batch(kept)
        service._dispatcher.dispatch(message, self, self.origin, self.answer, raw)

    def _of_exchange(self, message: Single, call: Outgoing, raw: bytes) -> bool:
        """Return whether to dispatch a message that came in the exchange of a call as one that came on the channel. Any
        other is handled here, and False returned."""
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
            self._fail_answered(id, message)
        elif message.answerable and not nameless(message.id) and self._channel is not None and self._channel.duplex:
            return True  # a request, which gets its error
        else:
            self._note(Note(f"what makes no sense came ({message.reason}): {_shown(raw)}", call=call))
        if (watch := self._watch) is not None:
            watch.refused(message, self, self.caller, None, message.refusal, raw)
        return False

    # -- calls and notifications

    def takes_inline(self, message: Request | Notification) -> bool:
        """Return whether a method that never waits may run in place now."""
        channel = self._channel
        if channel is None or not channel.writable or self._conversation.draining:
            return False
        return self._conversation.takes_inline(UNSET if type(message) is Notification else message.id)

    def start_call(
        self, origin: MessageOrigin, method: Method, message: Request | Notification, deliver: Deliver, size: int
    ) -> None:
        """Start a call, queue it, or refuse it."""
        channel, call_limit, conversation = self._channel, self._runner.call_limit, self._conversation
        id, is_notification = None, type(message) is Notification
        if not is_notification:
            id = message.id  # type: ignore[union-attr]
            if type(id) is not int:
                id = key(id)
        answers = deliver
        if is_notification:
            answers = deliver.work_alone() if type(deliver) is Arrival else nothing
        call = InboundCall(self._runner, method, message, self, origin, answers, size, id)
        # each conversation has its own drain, later than that of its server's exchanges
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
                null = None if self._dialect.null_id else UNSET  # its own id would settle the first call at the caller
                deliver(failed_answer(null, RpcError.of(INVALID_REQUEST, "Invalid Request", reason), message.version))
                return
            refusal = self._full() if verdict == "busy" else self.refusing
        if is_notification:
            if call.seen is not None:
                call.seen.over(None, refusal)
            # this end closes: that is expected
            level = logging.DEBUG if refusal.kind == "draining" else logging.WARNING
            repeats.log(level, "notification %r from %s dropped: %s", message.method, self._remote, refusal.kind)
        deliver(call.refused(refusal))

    def _full(self) -> Refusal:
        """Return the refusal of a call for which this channel has no room."""
        limits = self._limits
        data = {
            "limit": "calls_per_channel",
            "allowed": limits.calls_per_channel,
            "waiting": limits.waiting_per_channel,
            "retry_after": 1,
        }
        text = f"Busy: {limits.calls_per_channel} calls run and {limits.waiting_per_channel} wait on this channel"
        return Refusal("busy", text, data)

    def consumes(self, message: Notification) -> bool:
        """Handle a notification of the protocol itself (a cancel, progress), and return True; pass any other to the
        iterators of `notifications`, and return False: a method may take it."""
        dialect, conversation = self._dialect, self._conversation
        if message.method == dialect.cancel and (run := conversation.cancelled(message, dialect)) is not None:
            if logger.isEnabledFor(logging.DEBUG):
                logger.debug("a call of %s was cancelled by it: %.300r", self._remote, bytes(message.params))
            self._end(run, _CANCELLED if dialect.cancelled_answer else None)
            self._check_idle()
            return True
        if message.method == dialect.progress and (reported := conversation.progressed(message, dialect)) is not None:
            pending, value = reported
            pending.progressed(value, self._longest)
            return True
        if message.method == dialect.closing:
            self._move()
            return True
        for listener in self._listeners:
            listener.put(message)
        return False

    def settle(self, call: InboundCall) -> None:
        """Note that a call has its answer, which is delivered next."""
        if call.key is not None:
            self._conversation.settle(call.key, call)

    def release(self, call: InboundCall) -> None:
        """Free the slot of a call whose work has ended, or is not counted."""
        self._runner.call_limit.leave(call.size)
        conversation = self._conversation
        conversation.release()
        if conversation.waiting:
            self._pump()
        if self._idle is not None or conversation.half_closed or self._older is not None:
            self._check_idle()

    def _pump(self) -> None:
        """Start waiting calls while there are slots and the wire takes their answers."""
        if self._pumping:
            return
        self._pumping = True
        conversation = self._conversation
        while self._channel is not None and self._channel.writable and (run := conversation.next()) is not None:
            run.start()
        self._pumping = False

    def _check_idle(self) -> None:
        """Check, after an answer or the end of work, whether nothing is owed any more, whether the older calls have
        ended, and whether the channel can be closed."""
        if self._idle is not None and not self._idle.done() and self._conversation.idle:
            self._idle.set_result(None)
        if self._older is not None:
            self._older.check(self)
        if self._channel is not None and self._conversation.leaves():
            self.later(self._channel.close())

    def turn_away(self, refusal: Refusal) -> None:
        """Refuse all calls that are owed an answer: waiting ones are never started, running ones are stopped."""
        conversation = self._conversation
        for run in (*conversation.waiting, *conversation.inbound.values()):
            self._end(run, refusal)
        self._check_idle()

    def end_standing(self, refusal: Refusal | None) -> None:
        """End the long-lived calls (subscriptions) with this refusal; None: without an answer."""
        for run in [run for run in self._conversation.inbound.values() if run.method.stream]:
            self._end(run, refusal)

    def begin_again(self, of: Callable[[Request | Notification], bool], refusal: Refusal) -> None:
        """Refuse the far end's calls in flight for whose message `of` returns True, and fail ours, because the far end
        begins anew on the same channel and has forgotten them."""
        conversation = self._conversation
        for run in (*conversation.waiting, *conversation.inbound.values()):
            if of(run.message) and not run.is_here:
                self._end(run, refusal)
        for pending in conversation.abandon():
            pending.fail(Ended("the far end began anew on this channel before it answered").because("hung_up"))
        self._check_idle()

    def _end(self, run: InboundCall, refusal: Refusal | None) -> None:
        """End a call that waits or runs, with this refusal; None: without an answer."""
        if self._conversation.withdraw(run):
            self._runner.call_limit.leave(run.size)
        run.end(refusal)

    def batched(self, origin: MessageOrigin) -> MessageOrigin:
        """Return the origin of the elements of a batch, which are accepted with it."""
        return MessageOrigin(origin.caller, self, origin.reply_stream, not self._conversation.draining)

    # -- answers to our calls

    def responded(self, message: Result | Failure) -> None:
        """Take a response, and end its call by it. An exception of our own code ends the call, too."""
        pending = self._conversation.resolve(message.id)
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
                if not self._put_back(pending, message.error):
                    if self.alone and self.caller.scheme in ("http", "https") and is_mcp_error(error):
                        error.add_note(MCP_NOTE)
                    pending.fail(error)
            elif nameless(message.id):
                self._note(Note(f"an error without an id came: {error}", error), logging.WARNING)
        except Exception as error:
            if pending is None:
                raise
            pending.fail(error)

    def _note(self, note: Note, level: int = logging.DEBUG) -> None:
        """Keep a message that names no call but may be about one in flight. `level`: of its line in the log."""
        if self._notes is None:
            self._notes = Notes(self._conversation, self._loop)
        self._notes.keep(note, level, self._remote)

    # -- what is sent

    @property
    def _remote(self) -> str:
        """The far end's address, for logs."""
        return self._channel.caller.remote if self._channel is not None else "a lost channel"

    def answer(self, answer: AnyAnswer, /, *, count: int = 1) -> None:
        """Send an answer, if there is one and the channel carries answers. `count`: the number of a batch's answers in
        it."""
        channel = self._channel
        if type(answer) is FailedAnswer:
            answer = answer.text
        # where the channel is not duplex, the far end only answers
        if answer is None or channel is None or self.mute or not channel.duplex:
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

    def deliver_batch(self, origin: MessageOrigin, answer: AnyAnswer, count: int, deliver: Deliver) -> None:
        """Deliver the answers to a batch, `count` in one text."""
        if answer is not None and origin.reply_stream is None:
            self.answer(answer, count=count)
        else:
            deliver(answer)

    def send_progress(self, id: Any, value: Any) -> bool:
        """Report the progress of a call to the far end, and return whether it was sent. It is dropped, and counted,
        while the far end reads too slowly."""
        dialect = self._dialect
        if dialect.progress is None or dialect.progress_value is None:
            return False
        params = {dialect.progress_key: id, dialect.progress_value: value}
        return self.send_droppable(to_json(CallMessage(dialect.progress, params)), dialect.progress)

    def send_droppable(self, raw: bytes, method: str) -> bool:
        """Send a notification that the far end can do without, and return whether it was sent. It is dropped, and
        counted, while the far end reads too slowly. `method`: for observers."""
        sent = self._send_if_writable(raw)
        if (watch := self._watch) is not None:
            watch.notified(self, method, raw, sent)
        return sent

    def _send_if_writable(self, raw: bytes) -> bool:
        """Send a message if the channel takes it now, and return whether it did; count one that it does not take."""
        channel = self._channel
        if channel is None or not channel.duplex:
            return False
        if not channel.writable:
            self.dropped += 1
            return False
        self._conversation.notified = True
        try:
            channel.send(raw)
        except ChannelError:
            return False
        return True

    # -- its life

    @property
    def closing(self) -> bool:
        """Whether this end is closing it."""
        return self._conversation.closing

    def attach(self, channel: Channel) -> None:
        """Use a channel from now on, and send the calls that waited for one."""
        self._why = None
        self._outside = channel.caller.scheme != "memory"
        self._runner.peers.add(self)
        self._channel = channel
        self._number, self._since = next(numbers), monotonic()
        self.origin = MessageOrigin(channel.caller, self)
        self._conversation.opened()
        self._unread = self._malformed_in_a_row = 0
        self._understood = False
        if self._notes is not None:
            self._notes.clear()
        if self._runner.call_limit.draining:
            self.later(self.part(set(), 0))  # its server began to drain while it was being accepted
        channel.open(self)
        self._report_state("connected", None)
        if self._online is not None:
            self._online.set_result(None)
            self._online = None
            for pending in list(self._conversation.outbound.values()):
                pending.untaken = False
                try:
                    self._transmit(pending.message, pending)
                except ChannelError:  # the channel is over already, and `ended` is called next
                    return

    def idle(self) -> asyncio.Future[None]:
        """Return a future that is done when no answer is owed and no call runs."""
        if self._idle is None or self._idle.done():
            self._idle = self._loop.create_future()
        self._check_idle()
        return self._idle

    def later(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run a coroutine as a task; `close` waits for it."""
        if self._tasks is None:
            self._tasks = set()
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def drain(self) -> None:
        """Refuse new calls from now on."""
        self._conversation.draining = True

    async def part(self, older: set[InboundCall], patience: float) -> None:
        """Close once this conversation is idle, without waiting for other channels: its server drains.

        While the `older` calls are in flight, for at most `patience` seconds, new calls are taken too, because the far
        end would otherwise get refusals for as long as the older ones run. After that new calls are refused, and the
        channel is closed as soon as those in flight have ended."""
        conversation = self._conversation
        self.parting = True
        self.end_standing(self.refusing)
        older |= set(conversation.waiting)
        if older:
            self._older = OlderCalls(older, self._loop.create_future())
            await asyncio.wait([self._older.over], timeout=patience)
            self._older = None
        self.drain()
        self.end_standing(self.refusing)
        if self._channel is not None and not conversation.idle:
            await asyncio.wait([self.idle()])
        await self._close(0)

    @property
    def lapsed(self) -> bool:
        """Whether the admission of the far end has expired."""
        return self.refusing is LAPSED

    def lapse(self) -> None:
        """End the subscriptions and close, because the far end's admission has expired."""
        self.refusing = LAPSED
        self.drain()
        self.end_standing(LAPSED)
        self.later(self._close(None))

    async def close(self, drain: float | None = None) -> None:
        """Refuse new calls, let those that came in end within `drain` seconds (None: the limits' `drain_timeout`), send
        what is queued, and close. Inside a handler that this peer runs, closing only begins."""
        self.drain()
        if any(run.is_here for run in self._runner.runs if run.peer is self):
            self.later(self._close(drain))
        else:
            await self._close(drain)

    async def _close(self, drain: float | None) -> None:
        """Close as `close` does, and wait for the end. If several tasks close at once with times of their own, the
        shortest time counts for all."""
        if self._tasks is not None and (task := asyncio.current_task()) is not None:
            self._tasks.discard(task)  # this task waits for the end, which must not wait for this task
        self._conversation.closing = True
        if self.redialling is not None:
            self.redialling.cancel()
        waited = self._online is not None and self._channel is None
        self._give_up(Closed("the peer was closed"))
        seconds = self._limits.drain_timeout if drain is None else drain
        if self._ending is None and self._channel is not None and not self._conversation.idle and seconds:
            await asyncio.wait([self.idle()], timeout=seconds)
        # after one closing it may have got another channel
        if self._ending is None or (self._ending.done() and self._channel is not None):
            self._ending = self._loop.create_task(self._finish_closing(waited))
        await asyncio.shield(self._ending)

    async def _finish_closing(self, waited: bool) -> None:
        """Refuse what is still in flight, fail our own calls, and close the channel. `waited`: whether it had none, and
        was waiting for one."""
        channel = self._channel
        if channel is not None:
            self.turn_away(LAPSED if self.lapsed else UNDONE)
            for pending in list(self._conversation.outbound.values()):
                self._abandon(pending)
                pending.fail(Closed("the peer was closed"))
            if self.parting and self._dialect.closing is not None and channel.caller.scheme != "stdio":
                self._notify_closing(channel, self._dialect.closing)
            await channel.close()
        if self._why is None or self._channel is not None or waited:
            self.ended(Closed("the peer was closed"))
        for pending in self._conversation.abandon():
            pending.fail(Closed("the peer was closed"))
        if self._tasks:
            await asyncio.wait(self._tasks)
        if self.alone:
            self._runner.release()

    def _notify_closing(self, channel: Channel, method: str) -> None:
        """Notify the far end that the channel is closing: all calls that were taken are answered, and what it has sent
        since was not taken, so it may send that to another."""
        try:
            channel.send(to_json(CallMessage(method, {})))
        except ChannelError:
            logger.debug("%s was gone before it was notified of the end", self.caller.remote)

    def ended(self, why: ChannelError) -> None:
        """Drop the calls that came in and fail our own, because the channel is over. Those of ours that may be sent
        again wait for another channel, if one will come."""
        conversation = self._conversation
        if conversation.followed and isinstance(why, Closed):
            why = Ended("the far end closed the channel").because("hung_up")
        self._why, self._channel = why, None
        for run in list(conversation.waiting):
            conversation.withdraw(run)
            self._runner.call_limit.leave(run.size)
            run.drop(f"{why}")
        for run in list(conversation.inbound.values()):
            run.drop(f"{why}")
        conversation.inbound.clear()
        moving = self._online is not None
        if self._notes is not None:
            self._notes.claim()
        back = self._on_lost is not None and not isinstance(why, Closed) and self._on_lost(why)
        if back and not moving:
            self._online = self._loop.create_future()
        self._report_state("lost" if back else "closed", why)
        for pending in list(conversation.outbound.values()):
            if not (back and (moving or pending.untaken or pending.method in self.idempotent)):
                conversation.forget(pending.id)
                pending.fail(self._ending_of(pending, why))
        if not back:
            self._runner.peers.discard(self)
            for listener in tuple(self._listeners):
                listener.end(self.ending)
        self._check_idle()

    def _move(self) -> None:
        """Go on with the next channel, because the far end has answered all that it took, and takes nothing more."""
        if self._on_lost is None or self._online is not None or self._channel is None:
            return
        self._online = self._loop.create_future()  # what was not answered waits for the next channel
        self._conversation.half_closed = self._conversation.departing = True
        self.later(self._channel.close())

    def _put_back(self, pending: OutboundCall, error: ErrorObject) -> bool:
        """Let a call wait for another channel, if the far end refused it because it is closing; return whether it
        waits."""
        if self._on_lost is None or not self._says_draining(error):
            return False
        pending.untaken = True
        self._conversation.outbound[pending.id] = pending
        return True

    def _says_draining(self, error: ErrorObject) -> bool:
        """Return whether an error is that of dragoman for a call that was not begun because its server is closing."""
        if error.code != self._dialect.codes["draining"] or not isinstance(error.data, Raw):
            return False
        return error.message.startswith("Draining") and b'"retry_after"' in bytes(error.data)

    def _ending_of(self, pending: OutboundCall, why: ChannelError) -> ChannelError:
        """Return the error of a call that gets no answer, with what came meanwhile that may have been one."""
        words = self._meanwhile(pending)
        return type(why)(f"{why}{words}").because(why.reason) if words and type(why) in (Ended, Broken) else again(why)

    def given_up(self, why: ChannelError) -> None:
        """Fail the calls that wait for another channel, and end: no other will come."""
        self._give_up(why)
        self.ended(why)

    def _give_up(self, why: ChannelError) -> None:
        """Let nothing wait for another channel any more."""
        self._on_lost = None
        online, self._online = self._online, None
        if online is not None and not online.done():
            online.set_exception(why)
            online.exception()

    def _report_state(self, state: State, why: ChannelError | None) -> None:
        """Call `on_state`; what it raises is logged."""
        if self.on_state is None:
            return
        try:
            self.on_state(state, why)
        except Exception:
            logger.exception("on_state failed")


class OlderCalls:
    """The calls of a channel that were in flight at one moment; `over` is done when they have ended."""

    __slots__ = ("calls", "over")

    def __init__(self, calls: set[InboundCall], over: asyncio.Future[None]) -> None:
        self.calls: set[InboundCall] = calls
        self.over: asyncio.Future[None] = over

    def check(self, peer: ChannelPeer) -> None:
        """Settle `over` if they have ended by now, or the channel is idle."""
        runs, waiting = peer._runner.runs, peer._conversation.waiting
        self.calls = {call for call in self.calls if call in runs or call in waiting}
        if not self.over.done() and (not self.calls or peer._conversation.idle):
            self.over.set_result(None)


def _shown(raw: bytes) -> str:
    """Return the beginning of a far end's text, as one line that is safe to print."""
    return repr(raw[:100])[1:] + ("..." if len(raw) > 100 else "")


LAPSED: Refusal = Refusal("forbidden", "Forbidden: the admission has expired, connect anew", {"error": "invalid_token"})
"""With the error of RFC 6750 section 3.1: "The access token provided is expired, revoked, malformed, or invalid"."""
UNDONE: Refusal = Refusal("draining", "Draining: the peer closed before the call was done")
_CANCELLED = Refusal("cancelled", "Request cancelled")
_DRAINING = Refusal("draining", "Draining: this peer is closing and takes no new calls", {"retry_after": 1})
