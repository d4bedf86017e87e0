"""The trace hook: what every message of both directions became, for a file, a screen or a test.

`connecting.connect` and `connecting.serve` wrap the channels and served objects they make when `trace=` is given; where it is
not, nothing of this module runs.

Rules:

- One `Event` when a call passes ("started") and one when its answer passes ("complete") or can no longer come
  ("failed"). A notification and an answer that is not waited for are "complete" at once; what is no message is
  "failed".
- A batch is one message: it starts once, and is complete with the answer that leaves none of its calls open.
- The hook runs on the event loop, in the order of the wire, and must be quick. One that raises is logged once (per
  channel that connects, per served object) and goes on being called: it never harms the wire.
- Bounded: a channel remembers at most `OPEN` open calls and `HELD` bytes of them; the oldest beyond that are
  reported as failed. The end of the channel ends them all.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping
from itertools import count

import msgspec
from msgspec import Raw, Struct

from ..channel import Caller, CallLimit, Channel, ChannelError, Document, Exchange, Outgoing, Receiver, Servable
from ..jsonrpc.errors import Refusal
from ..jsonrpc.limits import KIB
from ..jsonrpc.messages import Malformed
from .trace_ledger import HELD, OPEN, Event, Hook, Ledger, Open, Tap, parse, verdict

__all__ = ["HELD", "OPEN", "SECRETS", "Event", "Hook", "json_lines", "traced_channel", "traced_served"]

log = logging.getLogger(__name__)
_numbers = count(1)


def traced_channel(channel: Channel, hook: Hook) -> Channel:
    """The same channel, whose messages are reported to `hook`."""
    return _TracedChannel(channel, hook)


def traced_served(served: Servable, hook: Hook) -> Servable:
    """The same served object; the messages of all its channels and exchanges are reported to `hook`."""
    return _TracedServed(served, _guarded(hook))


def _guarded(hook: Hook) -> Hook:
    """`hook` that raises nothing; its first exception is logged."""
    if isinstance(hook, _Guarded):
        return hook
    return _Guarded(hook)


class _Guarded:
    __slots__ = ("hook", "told")

    def __init__(self, hook: Hook) -> None:
        self.hook = hook
        self.told = False

    def __call__(self, event: Event) -> None:
        try:
            self.hook(event)
        except Exception:
            if not self.told:
                self.told = True
                log.exception("the trace hook %r raised; this is logged once", self.hook)


def _name(caller: Caller) -> str:
    return f"{caller.scheme}:{caller.remote}#{next(_numbers)}"


# -- channels -------------------------------------------------------------------------------------


class _TracedChannel:
    """A channel, and the receiver of the channel it wraps."""

    def __init__(self, channel: Channel, hook: Hook) -> None:
        self.caller = channel.caller
        self._channel = channel
        self._tap = Tap(_name(channel.caller), _guarded(hook))
        self._receiver: Receiver | None = None
        if hasattr(channel, "broadcast"):  # what only some have
            self.broadcast = self._broadcast

    @property
    def duplex(self) -> bool:
        """As the wrapped channel says."""
        return self._channel.duplex

    @duplex.setter
    def duplex(self, value: bool) -> None:
        self._channel.duplex = value

    @property
    def writable(self) -> bool:
        """As the wrapped channel says."""
        return self._channel.writable

    @writable.setter
    def writable(self, value: bool) -> None:
        self._channel.writable = value

    def open(self, receiver: Receiver) -> None:
        """Start delivering to `receiver`."""
        self._receiver = receiver
        self._channel.open(self)

    def send(self, message: bytes, call: Outgoing | None = None) -> None:
        """Report what starts, send, then report the rest; what cannot be sent has failed.

        The answer may come within `send`, so a call is told before it is sent.
        """
        if call is None:
            with self._tap.sending(message):
                self._channel.send(message)
            return
        traced = _TracedCall(call, self._tap.outward)
        with self._tap.sending(message) as traced.opened:
            self._channel.send(message, traced)
        call.abandon = traced.stop if traced.abandon is not None else None

    def _broadcast(self, message: bytes) -> None:
        with self._tap.sending(message):
            self._channel.broadcast(message)  # type: ignore[attr-defined]

    async def flush(self) -> None:
        """As the wrapped channel does."""
        await self._channel.flush()

    async def close(self) -> None:
        """As the wrapped channel does."""
        await self._channel.close()

    def abort(self, why: ChannelError) -> None:
        """As the wrapped channel does."""
        self._channel.abort(why)

    def received(self, message: bytes) -> None:
        """Report and pass on."""
        self._tap.passed("in", message)
        if self._receiver is not None:
            self._receiver.received(message)

    def refused(self, malformed: Malformed) -> None:
        """Report and pass on."""
        self._tap.inward.event("failed", b"", malformed, malformed.reason)
        if self._receiver is not None:
            self._receiver.refused(malformed)

    def resumed(self) -> None:
        """Pass on."""
        if self._receiver is not None:
            self._receiver.resumed()

    def finished(self) -> None:
        """Pass on."""
        if self._receiver is not None:
            self._receiver.finished()

    def ended(self, why: ChannelError) -> None:
        """Every open call has failed; then pass on."""
        self._tap.end(f"ended: {why}")
        if self._receiver is not None:
            self._receiver.ended(why)


class _TracedCall:
    """A call over a wire of exchanges, which can fail alone."""

    __slots__ = ("abandon", "call", "extra", "ledger", "opened")

    def __init__(self, call: Outgoing, ledger: Ledger) -> None:
        self.abandon: Callable[[], None] | None = None
        self.extra = call.extra
        self.call = call
        self.ledger = ledger
        self.opened: Open | None = None

    @property
    def left(self) -> float | None:
        """As the call."""
        return self.call.left

    @property
    def settled(self) -> bool:
        """As the call."""
        return self.call.settled

    def failed(self, why: Exception) -> None:
        """Report, unless it has been answered, and pass on."""
        if self.opened is not None:
            self.ledger.close(self.opened, "failed", f"failed: {why}")
        self.call.failed(why)

    def stop(self) -> None:
        """The caller gave up."""
        if self.opened is not None:
            self.ledger.close(self.opened, "failed", "cancelled")
        if self.abandon is not None:
            self.abandon()


# -- what is served -------------------------------------------------------------------------------


class _TracedServed:
    """A served object whose channels and exchanges are traced."""

    def __init__(self, served: Servable, hook: Hook) -> None:
        self.name = served.name
        self.gate: CallLimit = served.gate
        self._served = served
        self._hook = hook
        self.limits, self.subprotocol = served.limits, served.subprotocol
        self.restrict, self.start, self.stop = served.restrict, served.start, served.stop
        if (
            endpoints := getattr(served, "http_endpoints", None)
        ) is not None:  # of `transports`, which rpc does not know
            self.http_endpoints = endpoints

    def exchange(self, x: Exchange) -> None:
        """Pass on, traced."""
        self._served.exchange(_TracedExchange(x, self._hook))

    def attach(self, channel: Channel) -> None:
        """Pass on, traced."""
        self._served.attach(_TracedChannel(channel, self._hook))

    def routes(self) -> Mapping[str, Document]:
        """As the wrapped one."""
        return self._served.routes()

    async def drain(self, timeout: float) -> None:
        """As the wrapped one."""
        await self._served.drain(timeout)


class _TracedExchange:
    """One message in and its answer out: here the answer belongs to the message, whatever its id says."""

    def __init__(self, x: Exchange, hook: Hook) -> None:
        self.request = x.request
        self.caller = x.caller
        self.gone: Callable[[], None] | None = None
        self._x = x
        self._tap = Tap(_name(x.caller), hook)
        parsed = parse(x.request)
        self._malformed = parsed if isinstance(parsed, Malformed) else None
        self._opened = None if self._malformed else self._tap.inward.passed(x.request, parsed)
        self._reach: Callable[[bytes], bool] | None = getattr(x, "tell", None)
        self.tell = None if self._reach is None else self._tell
        x.gone = self._gone

    def respond(self, answer: bytes | None, refusal: Refusal | None = None) -> None:
        """Report and pass on."""
        if self._malformed is not None:
            self._tap.inward.event("failed", self.request, self._malformed, self._malformed.reason, answer)
            self._malformed = None
        elif self._opened is not None:
            if answer is None:
                self._tap.inward.close(self._opened, "failed", "failed: no answer was given")
            else:
                self._tap.inward.close(self._opened, "complete", verdict(parse(answer)), answer)
        self._x.respond(answer, refusal)

    def stream(self, message: bytes) -> bool:
        """Pass on, and report what was sent."""
        return self._reported(self._x.stream, message)

    def _tell(self, message: bytes) -> bool:
        """Likewise, at any time: see `Exchange`."""
        return self._reach is not None and self._reported(self._reach, message)

    def _reported(self, send: Callable[[bytes], bool], message: bytes) -> bool:
        sent = send(message)
        if sent:
            self._tap.passed("out", message)
        return sent

    def _gone(self) -> None:
        if self._opened is not None:
            self._tap.inward.close(self._opened, "failed", "ended: the caller went away")
        self._malformed = None
        if self.gone is not None:
            self.gone()


# -- JSON Lines -----------------------------------------------------------------------------------

SECRETS = (
    "password",
    "passwd",
    "secret",
    "token",
    "apikey",
    "authorization",
    "cookie",
    "credential",
    "privatekey",
)
"""Parts of names whose values are not written down; case, "-" and "_" do not count."""
SHOWN = 4 * KIB
"""Characters of a message that are written down."""


class _Line(Struct):
    time: float
    channel: str
    direction: str
    kind: str
    method: str | None
    id: Raw | None
    bytes: int
    message: str
    answer: str | None
    outcome: str | None
    ms: float | None


def json_lines(write: Callable[[str], object], *, mask: Iterable[str] = SECRETS) -> Hook:
    """A hook that gives `write` one line of JSON for each event, with its line end.

    Members: time, channel, direction, kind, method, id, bytes (of the message), message, answer, outcome, ms.
    Values of members whose names hold a word of `mask` are written as "***", at any depth of params, results
    and error data; but a number under a name with "token" is a count or a progress token and is shown. Text
    that is no JSON is cut off after the first such word. Positional params have no names and are shown.
    """
    words = tuple(flat for word in mask if (flat := _flat(word)))
    likely = re.compile("|".join("[-_]*".join(map(re.escape, word)) for word in words) or r"(?!)", re.IGNORECASE)

    def secret(name: str, value: object) -> bool:
        found = [word for word in words if word in _flat(name)]
        if isinstance(value, int | float):
            found = [word for word in found if word != "token"]
        return bool(found) and value is not None

    def text(raw: bytes) -> str:
        shown = raw.decode("utf-8", "replace")
        flat = _flat(shown)
        if "\\u" in shown or any(word in flat for word in words):
            try:
                value = msgspec.json.decode(raw)
                if _hide(value, secret):
                    shown = msgspec.json.encode(value).decode()
            except (msgspec.DecodeError, UnicodeError, RecursionError, ValueError):
                if (first := likely.search(shown[:SHOWN])) is not None:
                    shown = f"{shown[: first.end()]}***"
        return shown if len(shown) <= SHOWN else f"{shown[:SHOWN]}... ({len(raw)} bytes in all)"

    def hook(event: Event) -> None:
        line = _Line(
            time=round(event.time, 6),
            channel=event.channel,
            direction=event.direction,
            kind=event.kind,
            method=event.method,
            id=None if event.id is None else Raw(event.id.encode()),
            bytes=len(event.message),
            message=text(event.message),
            answer=None if event.answer is None else text(event.answer),
            outcome=event.outcome,
            ms=None if event.seconds is None else round(event.seconds * 1000, 3),
        )
        write(msgspec.json.encode(line).decode() + "\n")

    return hook


def _flat(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")


def _hide(value: object, secret: Callable[[str, object], bool]) -> bool:
    """Replace the secret values within `value`; whether there were any. No recursion: depth is the sender's choice."""
    hidden = False
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, list):
            pending.extend(item)
        elif isinstance(item, dict):
            for name, inner in item.items():
                if secret(name, inner):
                    item[name] = "***"
                    hidden = True
                else:
                    pending.append(inner)
    return hidden
