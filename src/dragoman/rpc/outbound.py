"""Outgoing calls, each an `OutboundCall` until its answer, its time-out or the end of its channel; and what the far end
sends meanwhile that names none of them.

They know their conversation and their clock, but no peer, because `peer` imports this module."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import UNSET, Raw, Struct
from msgspec.structs import replace

from ..channel import Outgoing
from ..jsonrpc.codec import key
from ..jsonrpc.conversation import Conversation
from ..jsonrpc.errors import BadAnswer, CallTimeout, LocalError, MethodNotFound, RpcError
from ..repeats import Repeats
from .binding.results import result_decoder
from .deadlines import DeadlineClock
from .observing import Departure, Speak

logger: logging.Logger = logging.getLogger("dragoman")
repeats: Repeats = Repeats(logger)

PATIENCE = 1.0
"""Seconds to wait for the real answer after an error without an id that can only be about the one call in flight. A far
end that could not read a request answers it by such an error (section 5.1), and by nothing else."""

decode_any: Callable[[Raw], Any] = msgspec.json.Decoder().decode
"""Decodes a result to plain Python values."""


def decoder_of(result: Any) -> Callable[[Raw], Any] | None:
    """Return the decoder for results of this type; None for Raw, which is not decoded. Raises LocalError for a type
    that no JSON can be decoded to."""
    return None if result is Raw else decode_any if result is Any else result_decoder(result)


OutboundCalls: TypeAlias = "Conversation[Any, OutboundCall]"


MCP_NOTE: Final = (
    "this is an MCP server: dragoman.mcp.Client speaks to it; on the command dragoman tools and dragoman tool do"
)
"""The note on an error that only MCP servers send."""


def is_mcp_error(error: Exception) -> bool:
    """Return whether an error that came over HTTP is one that only MCP servers send: it demands a session, or has a
    code of MCP."""
    if not isinstance(error, RpcError):
        return False
    return error.code in (-32020, -32021, -32022) or _SESSION.search(error.message[:200]) is not None


_SESSION: Final = re.compile(
    r"(?i)missing\W+(?:mcp.)?session|mcp-session-id\b.*(?:missing|required)|no valid session id"
)
"""Matches the message of an error that demands a session."""


def wrong_loop(method: str) -> LocalError:
    """Return the error for what is sent from another event loop than its peer's."""
    return LocalError(
        f"{method}: this peer belongs to another event loop, on which it was connected: connect one on this loop; from "
        "another thread use asyncio.run_coroutine_threadsafe(peer.call(...), loop) or loop.call_soon_threadsafe, or a "
        "peer of dragoman.sync.connect(...), which any thread may use"
    )


def _nothing_came(call: OutboundCall) -> str:
    return ""


class OutboundCall(Struct, eq=False):
    """One outgoing call. It is the `Outgoing` of its message."""

    conversation: OutboundCalls
    """The calls in flight, of which it is one."""
    clock: DeadlineClock
    method: str
    decoder: Callable[[Raw], Any] | None
    """Decodes its result; None: it is wanted as JSON text, which was checked with its answer."""
    timeout: float | None
    """Seconds without an answer or progress; None: for ever."""
    on_progress: Callable[[Any], object] | None = None
    """Gets each value of progress."""
    extra: Any = None
    """What its caller gives to the channel alone."""
    reply_stream: Speak | None = None
    """Sends its message, where it can, in place of the channel."""
    give_up: Callable[[OutboundCall], str] = _nothing_came
    """Cancels it at the far end, and returns what came meanwhile and named no call, for the text of its error; "" for
    nothing. Set before its time begins."""
    batch: object = None
    """Equal for the calls of one batch; None: the call is in none."""
    id: int = 0
    """Its id, once it is registered."""
    message: bytes = b""
    """Its text, once it is registered."""
    until: float | None = None
    """When it ends at the latest, on the loop's clock; None: progress may extend it for ever."""
    abandon: Callable[[], None] | None = None
    """Set by the channel: called when its answer is not waited for any more."""
    seen: Departure | None = None
    """Notifies observers, where there are some."""
    untaken: bool = False
    """Whether the far end has refused to begin it, since it is closing the channel: it may be sent to another."""
    result: Any = UNSET
    """Its result, once it has succeeded."""
    _error: Exception | None = None
    _future: asyncio.Future[Any] | None = None
    """Its outcome, for one who waits; None: nobody has waited, so it has no time-out either."""

    @property
    def group(self) -> object:
        """Equal for the calls of one batch."""
        return self if self.batch is None else self.batch  # a reference to itself would be the collector's work

    @property
    def left(self) -> float | None:
        """Seconds until its time is up; None: it has no time-out. Before it is awaited its whole time is left."""
        left = self._shortened(self.timeout) if self._future is None else self.clock.left(self)
        return None if left is None else max(left, 0.0)

    @property
    def future(self) -> asyncio.Future[Any]:
        """Its outcome: the result, or the error."""
        future = self._future
        if future is None:
            future = self._future = self.clock.loop.create_future()
            if self._error is not None:
                future.set_exception(self._error)
            elif self.result is not UNSET:
                future.set_result(self.result)
        return future

    @property
    def settled(self) -> bool:
        """Whether the call waits for no answer any more."""
        future = self._future
        return self.result is not UNSET or self._error is not None or (future is not None and future.done())

    @property
    def late(self) -> bool:
        """Whether it timed out."""
        return isinstance(self._error, CallTimeout)

    def awaits(self, id: Any) -> bool:
        """Return whether an answer with this id is its own."""
        return self.id == (id if type(id) is int else key(id))

    def settle(self, raw: Any) -> None:
        """Take its result, and decode it; a result that does not fit fails it with BadAnswer."""
        decode, future = self.decoder, self._future
        if future is not None:
            self.clock.drop(self)
        if self.result is not UNSET or self._error is not None or (future is not None and future.done()):
            return
        try:
            value = raw if decode is None else decode(raw)
        except BadAnswer as error:
            self.fail(BadAnswer(f"{self.method}: {error}"))
            return
        except (msgspec.DecodeError, RecursionError) as error:
            self.fail(BadAnswer(f"{self.method}: the result does not fit: {error}"))
            return
        self.result = value
        if future is not None:
            future.set_result(value)
        if self.seen is not None:
            self.seen.end("result")

    def failed(self, why: Exception) -> None:
        """Fail it, and remove it from the calls in flight: no answer will come."""
        self.conversation.forget(self.id)
        self.fail(why)

    def fail(self, why: Exception) -> None:
        """End it with an error; no effect once it has ended."""
        if isinstance(why, MethodNotFound):
            why.method = self.method
        self.clock.drop(self)
        if not self.settled:
            self._error = why
            if self._future is not None:
                self._future.set_exception(why)
            if self.seen is not None:
                self.seen.failed(why)

    # -- its time

    def hold(self) -> None:
        """Stop its time-out for now; `until` does not change."""
        self.clock.drop(self)

    def resume(self) -> None:
        """Begin its time-out anew."""
        if not self.settled:
            self.wait(self.timeout)

    def wait(self, seconds: float | None) -> None:
        """Begin its time-out: it ends after this many seconds (None: never), and at `until` at the latest."""
        if self.until is not None:
            seconds = self._shortened(seconds)
        if seconds is not None:
            self.clock.set(self, seconds)

    def _shortened(self, seconds: float | None) -> float | None:
        """Return these seconds, or those until `until` if they are fewer. None: any number."""
        if self.until is None:
            return seconds
        left = max(self.until - self.clock.now(), 0)
        return left if seconds is None else min(seconds, left)

    def progressed(self, value: Any, longest: float | None) -> None:
        """Take progress of the far end: begin the time-out again, for at most `longest` seconds from the first progress
        (None: any number), and report the value."""
        if self.timeout is not None and self._future is not None:
            if self.until is None and longest is not None:
                self.until = self.clock.now() + max(longest, self.timeout)
            self.wait(self.timeout)
        if self.on_progress is not None:
            try:
                self.on_progress(value)
            except Exception:
                repeats.error("on_progress of %r failed", self.method, exc_info=True)

    def expired(self) -> None:
        """Fail it with CallTimeout, because its time is up. But begin the time-out again if a call of the far end is in
        flight that came after this one was sent: it may be a question about this one, and users are slow.

        Calls that came earlier do not count, because their handlers may wait for this one.
        """
        now = self.clock.now()
        newest = next(reversed(self.conversation.inbound.values()), None)
        questioned = newest is not None and newest.after >= self.id
        if (self.until is None or now < self.until) and questioned and self.timeout is not None:
            self.wait(self.timeout)
            return
        meanwhile = self.give_up(self)
        allowed = self.timeout if self.until is None or now < self.until - 0.01 else "its total time"
        within = allowed if isinstance(allowed, str) else f"{allowed} s"
        self.fail(CallTimeout(f"{self.method}: no answer within {within}{meanwhile}"))


class BatchHandle:
    """The calls of one batch, as the `Outgoing` of their one message."""

    __slots__ = ("abandon", "extra", "pendings", "reply_stream")

    def __init__(self, pendings: list[OutboundCall]) -> None:
        self.abandon: Callable[[], None] | None = None
        self.extra: Any = None
        self.reply_stream: Speak | None = None
        self.pendings: list[OutboundCall] = pendings

    @property
    def left(self) -> float | None:
        """Seconds until their time is up, which is the same for all; None: they have no time-out."""
        return self.pendings[0].left

    @property
    def settled(self) -> bool:
        """Whether none of them waits for an answer any more."""
        return all(pending.settled for pending in self.pendings)

    def awaits(self, id: Any) -> bool:
        """Return whether an answer with this id is that of one of them."""
        return any(pending.awaits(id) for pending in self.pendings)

    def failed(self, why: Exception) -> None:
        """Fail all of them."""
        for pending in self.pendings:
            pending.failed(why)

    def hold(self) -> None:
        """Stop the time-outs of all for now."""
        for pending in self.pendings:
            pending.hold()

    def resume(self) -> None:
        """Begin the time-outs of all anew."""
        for pending in self.pendings:
            pending.resume()


class Note(Struct, frozen=True):
    """A message of the far end that names no call."""

    words: str
    """What came, for the text of an error."""
    error: Exception | None = None
    """The error, if it was one."""
    call: Outgoing | None = None
    """The call in whose exchange it came, and about which alone it can be; None: it came on the channel."""
    after: int = 0
    """The id of the last call that had been sent."""


class Notes:
    """Keeps the last message of the far end that came while calls were in flight and named none of them."""

    __slots__ = ("_conversation", "_last", "_loop", "_remote")

    def __init__(self, conversation: OutboundCalls, loop: asyncio.AbstractEventLoop) -> None:
        self._conversation = conversation
        self._loop = loop
        self._last: Note | None = None
        self._remote = ""

    def keep(self, note: Note, level: int, remote: str) -> None:
        """Keep a message that may be about a call in flight, and go on waiting for the real answer. `level`: of its
        line in the log, if it is the first."""
        conversation = self._conversation
        waited = bool(conversation.outbound)
        logger.log(level if waited and self._last is None else logging.DEBUG, "%s: %s", remote, note.words)
        if not waited:
            return
        self._last = note = replace(note, after=conversation.last_id)
        self._remote = remote
        if note.error is not None and note.call is None and not conversation.notified and conversation.single:
            self._loop.call_later(PATIENCE, self._unclaimed, note)

    def clear(self) -> None:
        """Forget the message: another channel begins."""
        self._last = None

    def about(self, pending: OutboundCall) -> str:
        """Return what came while this call waited, for the text of its error; "" for nothing."""
        note = self._last
        if note is None or pending.id > note.after or not (note.call is None or note.call.awaits(pending.id)):
            return ""
        return f"; meanwhile {note.words}"

    def claim(self) -> None:
        """Fail the one call, or the one batch, in flight with the error without an id that came, if one did: no other
        answer is to come."""
        note = self._last
        if note is None or note.error is None or note.call is not None:
            return
        if all(id <= note.after for id in self._conversation.outbound):
            fail_only(self._conversation, note.error, self._remote)

    def _unclaimed(self, note: Note) -> None:
        """Let the error be the answer, because nothing else came within `PATIENCE`."""
        if note is self._last and not self._conversation.notified:
            self.claim()


def fail_only(conversation: OutboundCalls, error: Exception, remote: str) -> None:
    """Fail the one call, or the one batch, that is in flight: a response without a readable id belongs to it."""
    found = conversation.resolve_only()
    for pending in found:
        pending.fail(error)
    if not found:
        logger.debug("an error without an id from %s: %s", remote, error)
