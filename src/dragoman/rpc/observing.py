"""Notifies the observers of a service of messages: at the points of the one way in, and of its mirror out.

A `ServiceWatch` is a service's observers. `came_in` wraps what takes an answer (`Deliver`) into an `Arrival`, which
notifies them before it passes the answer on; a call that goes out has a `Departure`. Where a service has no observers
its `watch` is None, and that is all that the way in and out looks at."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import Context, ContextVar
from itertools import count
from time import perf_counter
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

import msgspec
from msgspec import UNSET, Raw, Struct

from ..channel import Caller, ChannelError
from ..jsonrpc.codec import AnyAnswer, FailedAnswer
from ..jsonrpc.errors import INTERNAL_ERROR, CallTimeout, Dialect, Refusal, RpcError
from ..jsonrpc.messages import Batch, Failure, Malformed, Message, Notification, Request, Result
from ..observer import Additions, Kind, Observation, Observer, Outcome, Rejection, SeesRemovals
from .binding.results import to_json

if TYPE_CHECKING:
    from .tracing import Hook

T = TypeVar("T")

log: logging.Logger = logging.getLogger("dragoman.observers")

_current: ContextVar[Observation | None] = ContextVar("dragoman.observed", default=None)
"""The call whose handler runs."""
numbers: count[int] = count(1)
"""The numbers of channels and exchanges, for observers."""

_KINDS: dict[type, Kind] = {
    Request: "request",
    Notification: "notification",
    Batch: "batch",
    Malformed: "malformed",
    Result: "response",
    Failure: "response",
}
_REFUSALS: dict[str, Outcome] = {"cancelled": "cancelled", "timed_out": "timed_out"}


Speak: TypeAlias = Callable[[bytes], bool]
"""Sends one message ahead of an answer; False when it was dropped."""


Deliver: TypeAlias = Callable[[AnyAnswer], object]
"""Takes the answer to one message."""


class MessageEndpoint(Protocol):
    """The channel or exchange on which a message came in, or goes out: an acceptor."""

    @property
    def _dialect(self) -> Dialect:
        """The far end's conventions for refusals, cancels and progress."""

    @property
    def _number(self) -> int:
        """The number of the channel or exchange, for observers."""

    @property
    def _session_name(self) -> str:
        """The name of the session that it belongs to, for observers; "" without one."""


class FarEndpoint(MessageEndpoint, Protocol):
    """A channel with its far end: a peer."""

    @property
    def caller(self) -> Caller:
        """The far end."""


class ServiceWatch:
    """The observers of one service."""

    __slots__ = ("_came_in", "_ended", "_outbound", "_raised", "_rejected", "_removed", "_started", "name")

    def __init__(self, name: str, observers: Sequence[Observer]) -> None:
        self.name: str = name
        self._came_in = [(one, one.came_in) for one in observers]
        self._outbound = [(one, one.outbound) for one in observers]
        self._started = [(one, one.started) for one in observers]
        self._ended = [(one, one.ended) for one in observers]
        self._rejected = [(one, one.rejected) for one in observers]
        self._removed = [(one, one.removed) for one in observers if isinstance(one, SeesRemovals)]
        self._raised: list[Observer] = []  # of which that was logged

    # -- the way in

    def came_in(
        self,
        message: Message,
        endpoint: MessageEndpoint,
        caller: Caller,
        deliver: Deliver,
        raw: bytes = b"",
        batch: Observation | None = None,
    ) -> Arrival:
        """Report a message that came in, or an element of this batch; returns what takes its answer from now on."""
        seen = Observation(
            direction="in",
            kind=_KINDS[type(message)],
            service=self.name,
            protocol=endpoint._dialect.name,
            caller=caller,
            channel=endpoint._number,
            session=endpoint._session_name,
            message=raw,
            batch=batch,
        )
        if type(message) is Request:  # first, since nearly all are
            seen.method, seen.params, seen.id = message.method, message.params, message.id
        elif type(message) is Notification:
            seen.method, seen.params = message.method, message.params
        elif type(message) is not Batch:
            seen.id = message.id
            seen.reason = message.reason if type(message) is Malformed else ""
        else:
            seen.methods = [one.method for one in message.messages if isinstance(one, Request | Notification)]
            seen.calls = sum(type(one) is Request for one in message.messages)
        if batch is not None:
            batch.elements.append(seen)
        return Arrival(self, seen, deliver, self._begin(seen))

    def detached(
        self,
        message: Request | Notification,
        endpoint: MessageEndpoint,
        caller: Caller,
        deliver: Deliver,
        parent: Observation | None,
        about: str,
        params: Any,
    ) -> Arrival:
        """Report that the work of a call goes on beyond its request; returns what takes its answer. `parent`: the
        observation of the request; None: it was not observed. `params`: of the call, as JSON text."""
        seen = self._long_lived("detached", endpoint, caller, about)
        seen.method, seen.params, seen.parent = message.method, params, parent
        if type(message) is Request:
            seen.id = message.id
        if parent is not None:
            seen.target = parent.target
        return Arrival(self, seen, deliver, self._begin(seen))

    def streaming(self, endpoint: MessageEndpoint, caller: Caller, about: str) -> Arrival:
        """Report that a long-lived stream was opened to this caller, on which messages are sent; returns what is told
        of its end. `about`: what it carries."""
        seen = self._long_lived("stream", endpoint, caller, about)
        arrival = Arrival(self, seen, nothing, self._begin(seen))
        arrival.start()
        return arrival

    def _long_lived(self, kind: Kind, endpoint: MessageEndpoint, caller: Caller, about: str) -> Observation:
        return Observation(
            direction="in",
            kind=kind,
            service=self.name,
            protocol=endpoint._dialect.name,
            caller=caller,
            channel=endpoint._number,
            session=endpoint._session_name,
            about=about,
        )

    def _begin(self, seen: Observation) -> Context | None:
        context: Context | None = None
        for observer, came_in in self._came_in:
            try:
                given = came_in(seen) if context is None else context.run(came_in, seen)
                if given is not None:
                    context = given.copy()  # one that is entered already, or is given twice, could not be entered
            except Exception:
                self._failed(observer)
        return context

    def refused(
        self,
        message: Message,
        endpoint: MessageEndpoint,
        caller: Caller,
        answer: AnyAnswer,
        refusal: Refusal | None,
        raw: bytes = b"",
    ) -> None:
        """Report a message that came in and went no further. `refusal`: why, if it is not answered with that."""
        self.came_in(message, endpoint, caller, nothing, raw).over(answer, refusal)

    def responded(
        self, message: Result | Failure, endpoint: MessageEndpoint, caller: Caller, conversation: Any, raw: bytes
    ) -> None:
        """Report a response that came; `conversation` knows the calls that went out, None where none can."""
        pending = None if conversation is None else conversation.awaited(message.id)
        if pending is None:
            self.came_in(message, endpoint, caller, nothing, raw).end("ignored")
        elif pending.seen is not None:
            pending.seen.answered(raw)

    # -- the way out

    def calling(self, endpoint: FarEndpoint, method: str, batch: Observation | None = None) -> Departure:
        """Report a call that goes out."""
        return self._out(endpoint, "request", method, batch)

    def notifying(self, endpoint: FarEndpoint, method: str, batch: Observation | None = None) -> Departure:
        """Report a notification that goes out."""
        return self._out(endpoint, "notification", method, batch)

    def batching(self, endpoint: FarEndpoint) -> Departure:
        """Report the beginning of a batch that is to go out."""
        return self._out(endpoint, "batch", "", None)

    def _out(self, endpoint: FarEndpoint, kind: Kind, method: str, batch: Observation | None) -> Departure:
        seen = Observation(
            direction="out",
            kind=kind,
            service=self.name,
            protocol=endpoint._dialect.name,
            caller=endpoint.caller,
            channel=endpoint._number,
            session=endpoint._session_name,
            method=method,
            batch=batch,
            parent=_current.get(),
        )
        if batch is not None:
            batch.elements.append(seen)
        meta: dict[str, Any] = {}
        headers: dict[str, str] = {}
        for observer, outbound in self._outbound:
            try:
                added = outbound(seen)
                if added is not None:
                    wanted = {name: Raw(to_json(value)) for name, value in added.meta.items()}
                    headers |= _sendable(added)
                    meta |= wanted
            except Exception:
                self._failed(observer)
        return Departure(self, seen, meta if endpoint._dialect.meta else {}, headers)

    def notified(self, endpoint: FarEndpoint, method: str, raw: bytes, sent: bool) -> None:
        """Report a notification that was text already: it went out, or was dropped."""
        departure = self.notifying(endpoint, method)
        departure.goes(raw)
        departure.end("notified" if sent else "dropped")

    # -- notifying

    def start(self, seen: Observation) -> None:
        """Report that it starts."""
        if seen.started is not None:
            return
        seen.started = perf_counter()
        for observer, started in self._started:
            try:
                started(seen)
            except Exception:
                self._failed(observer)

    def end(self, seen: Observation, outcome: Outcome) -> None:
        """Report that it is over, once."""
        if seen.outcome is not None:
            return
        seen.outcome = outcome
        seen.stop = seen.work = None
        seen.ended = perf_counter()
        for observer, ended in self._ended:
            try:
                ended(seen)
            except Exception:
                self._failed(observer)

    def rejected(self, seen: Rejection) -> None:
        """Report that something was turned away."""
        for observer, rejected in self._rejected:
            try:
                rejected(seen)
            except Exception:
                self._failed(observer)

    def removed(self, method: str, target: str = "") -> None:
        """Report that a method, or what it finds by this name, was removed. From any thread."""
        for observer, removed in self._removed:
            try:
                removed(self.name, method, target)
            except Exception:
                self._failed(observer)

    def faulty(self, place: str, caller: Caller, raw: bytes, error: Exception) -> None:
        """Report that our own code raised before a message was read."""
        reason = f"a fault of this end: {type(error).__name__}"
        self.rejected(Rejection(kind="failed", reason=reason, place=place, caller=caller, size=len(raw)))

    def _failed(self, observer: Observer) -> None:
        if not any(one is observer for one in self._raised):
            self._raised.append(observer)
            log.exception("the observer %r raised; this is logged once", observer)


class Arrival(Struct, eq=False):
    """Takes the answer to a message that came in: notifies the observers, then passes it on."""

    watch: ServiceWatch
    seen: Observation
    deliver: Deliver
    context: Context | None
    """The context variables with which the handler runs; None: those of the running code."""
    _alone: bool = False

    def __call__(self, answer: AnyAnswer, /) -> None:
        self.over(answer)
        self.deliver(answer)

    def found(self, name: str) -> None:
        """Record the name of the method that does the work."""
        if name != self.seen.method:
            self.seen.target = name

    def start(self) -> None:
        """Report that its handler runs now."""
        self.watch.start(self.seen)

    def enter(self) -> None:
        """Report that its handler runs now, in this task: what goes out from there belongs to it."""
        self.watch.start(self.seen)
        _current.set(self.seen)

    def run(self, work: Callable[..., T], *arguments: Any) -> T:
        """Run its handler in place."""
        self.watch.start(self.seen)
        if self.context is not None:
            return self.context.run(self.within, work, *arguments)
        token = _current.set(self.seen)  # as `within` does, which would cost every call one more
        try:
            return work(*arguments)
        finally:
            _current.reset(token)

    def within(self, work: Callable[..., T], *arguments: Any) -> T:
        """Call a function, such that what it sends belongs to this call."""
        token = _current.set(self.seen)
        try:
            return work(*arguments)
        finally:
            _current.reset(token)

    def raised(self, error: BaseException) -> None:
        """Record what its handler raised."""
        self.seen.error = error

    def over(self, answer: AnyAnswer, refusal: Refusal | None = None) -> None:
        """Report that it is answered, or that nothing is owed. `refusal`: why, if it is not answered with that."""
        seen = self.seen
        if seen.outcome is not None or self._alone:
            return
        if type(answer) is FailedAnswer:
            refusal = refusal or answer.refusal or (answer.ended if seen.error is None else None)
            if answer.text is not None:
                seen.code = answer.error.code
            answer = answer.text
        seen.answer = answer
        if refusal is not None:
            seen.reason = seen.reason or refusal.reason
            self.end(_REFUSALS.get(refusal.kind, "refused"))
        elif seen.kind == "malformed":
            self.end("refused")
        elif answer is not None:
            self.watch.end(seen, "result" if seen.code is None else "error")
        elif seen.kind == "request":
            self.end("cancelled")
        elif seen.error is not None:
            seen.code = seen.error.code if isinstance(seen.error, RpcError) else INTERNAL_ERROR
            self.end("error")
        else:
            self.end("notified")

    def end(self, outcome: Outcome, reason: str = "") -> None:
        """Report that it is over in another way, if it is not over yet."""
        seen = self.seen
        if seen.outcome is not None:
            return
        seen.reason = seen.reason or reason
        self.watch.end(seen, outcome)
        if outcome == "lost" and seen.batch is not None:  # the others' answers have nowhere to go either
            seen.batch.reason = seen.batch.reason or seen.reason
            self.watch.end(seen.batch, outcome)

    def work_alone(self) -> Arrival:
        """Return an Arrival for the work of a notification, which is not waited for: this one only passes on from now
        on."""
        self._alone = True
        return Arrival(self.watch, self.seen, nothing, self.context)


class Departure(Struct, eq=False):
    """A message that goes out, as observers see it."""

    _watch: ServiceWatch
    seen: Observation
    meta: Mapping[str, Any]
    headers: Mapping[str, str]

    def __enter__(self) -> Departure:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if error is not None:
            self.failed(error)

    def joined(self, params: Any) -> Any:
        """Return the params with the members of `_meta` that observers add; existing ones stay."""
        if not self.meta:
            return params
        if params is UNSET:
            return {"_meta": self.meta}
        if not isinstance(params, Raw | dict):
            params = Raw(to_json(params))
        if isinstance(params, Raw):
            if bytes(params[:1] if isinstance(params, bytes) else memoryview(params)[:1]) != b"{":
                return params
            params = _raw_members(params)
        given = params.get("_meta")
        if isinstance(given, Raw):
            given = msgspec.json.decode(given)
        if given is not None and not isinstance(given, Mapping):
            return params
        return params | {"_meta": {**self.meta, **(given or {})}}

    def encoded(self, encode: Callable[[str, Any, Any], bytes], params: Any, id: Any) -> bytes:
        """Return its text; what cannot be encoded has failed. Raises LocalError."""
        self.seen.id = id
        try:
            return encode(self.seen.method, self.joined(params), id)
        except BaseException as error:
            self.failed(error)
            raise

    def with_headers(self, extra: Any) -> Any:
        """Return what the caller gave for the channel, with the header fields that observers add."""
        if not self.headers or not (extra is None or isinstance(extra, Mapping)):
            return extra
        return {**self.headers, **(extra or {})}

    def goes(self, message: bytes) -> None:
        """Record its text, which is sent next, and report that it starts."""
        self.seen.message = message
        self._watch.start(self.seen)

    def answered(self, raw: bytes) -> None:
        """Record an answer; what becomes of it is reported when it is known."""
        self.seen.answer = raw

    def end(self, outcome: Outcome, reason: str = "") -> None:
        """Report that it is over."""
        self.seen.reason = self.seen.reason or reason
        self._watch.end(self.seen, outcome)

    def batch_goes(self, message: bytes) -> None:
        """Record the text of a whole batch, which is sent next."""
        seen = self.seen
        seen.methods = [one.method for one in seen.elements]
        seen.calls = sum(one.kind == "request" for one in seen.elements)
        self.goes(message)

    def batch_over(self) -> None:
        """Report that a batch is over, with the last of its calls."""
        seen = self.seen
        calls = [one for one in seen.elements if one.kind == "request"]
        silent = next((one for one in calls if one.answer is None), None)
        if not calls:
            self.end("notified")
        elif silent is not None:
            seen.error = silent.error
            self.end(silent.outcome or "lost", silent.reason)
        else:
            seen.answer = calls[0].answer
            self.end("result")

    def failed(self, error: BaseException) -> None:
        """Report that it is over: this is raised in its caller."""
        seen = self.seen
        if seen.outcome is not None:
            return
        seen.error = error
        seen.reason = f"{error}"
        if isinstance(error, RpcError):
            seen.code = error.code
            self.end("error")
        elif isinstance(error, CallTimeout):
            self.end("timed_out")
        elif isinstance(error, ChannelError):
            self.end("lost")
        elif isinstance(error, Exception):
            self.end("failed")
        else:
            self.end("cancelled", "its caller gave up")


def _sendable(added: Additions) -> dict[str, str]:
    """Return its header fields, names in lower case. ValueError for one that no wire can send: it must not fail the
    call."""
    for name, value in added.headers.items():
        if not (name.isascii() and name.replace("-", "").isalnum() and value.isascii() and value.isprintable()):
            raise ValueError(f"Additions.headers: {name!r} cannot be sent as a header field")
    return {name.lower(): value for name, value in added.headers.items()}


def answers_only(message: Message) -> bool:
    """Whether a message requests nothing: it belongs to the calls that it answers."""
    if type(message) is Batch:
        return all(isinstance(one, Result | Failure) for one in message.messages)
    return isinstance(message, Result | Failure)


def with_trace(trace: Hook | None, observers: Iterable[Observer]) -> tuple[Observer, ...]:
    """The observers that options name."""
    if trace is None:
        return tuple(observers)
    from .tracing import Trace  # noqa: PLC0415  (a trace that is not taken costs nothing)

    return (Trace(trace), *observers)


def rejecting(observers: Sequence[Observer]) -> Callable[[Rejection], None] | None:
    """Return the function that takes what wires turn away, for `Options.rejected`; None where there are no
    observers."""
    return ServiceWatch("", observers).rejected if observers else None


def nothing(answer: AnyAnswer, /) -> None:
    """No answer is waited for."""


def speak(origin: Any, raw: bytes, method: str, watch: ServiceWatch | None) -> bool:
    """Send a message of this method ahead of an answer, on the stream of its call. False: it was dropped."""
    if origin.reply_stream is None:
        return origin.peer is not None and bool(origin.peer.send_droppable(raw, method))
    sent = bool(origin.reply_stream(raw))
    if watch is not None:
        endpoint: Any = origin if origin.peer is None else origin.peer  # an exchange's origin is its acceptor too
        watch.notified(endpoint, method, raw, sent)
    return sent


_raw_members = msgspec.json.Decoder(dict[str, Raw]).decode
