"""One connection of the native HTTP server: HTTP/1.1 and 1.0 on `asyncio.Protocol`.

Rules:

- Requests are parsed on and started while earlier ones run; answers are sent in the order of the
  requests, all of one wake-up in one write. At most `PIPELINE` run at once; then reading stops.
  It also stops while the far end does not read.
- Heads that are too long (431) or too slow (408), bodies that are too long (413) or too slow (408)
  end the connection. Incoming bytes are read and dropped for a moment, because a reset could destroy the answer.
- Heads repeat, so what llhttp and `App.route` found out about a head is cached: see `known_heads`.
- With a guard, requests are started one after another as it admits them. While it decides nothing is read, so
  a body that has not come by then is only requested ("100 Continue") and read once its request is admitted.
- What it waits for is a stage: `stage_times` has the seconds of each, `expired` what happens then.
- A far end that closes its sending side still gets its answers. Whether it has closed the other side as well
  only shows when something is sent. So it is probed up to twice: by an interim response ("100 Continue", which every
  client skips; RFC 9110, 15.2), or, within a begun answer, by what its endpoint writes (`doubted`). When a probe
  fails, `gone` is called.
- What a far end can cause at will is logged in one line at debug level.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar, Protocol, TypeAlias, cast

from msgspec import Struct

from ...channel import Admitted, Caller, Identity, exchanged
from ...jsonrpc.codec import AnyAnswer, FailedAnswer
from ...net.read_buffer import read_buffer, take_turns
from ...net.sending import PIECE, SendWatch, end_writing
from ...net.sockets import remote_name
from ...net.urls import printable
from .admission import PendingAdmission, handshake
from .app import log
from .messages import JSON_LINES, Answer, CommonLines, Head, HttpRequest, Lines, collect, texts
from .parse import BETWEEN, BODY, HEAD, OVER, IncomingRequest, RefusedRequest, RequestParser
from .refusals import failure, plain_refusal, rpc_answer, rpc_refusal
from .request_queue import RequestQueue
from .responses import compose
from .stages import (
    AT_WORK,
    CONTINUE,
    FLUSHING,
    IDLE,
    IN_BODY,
    IN_HEAD,
    LINGERING,
    NEVER,
    NO_LOOK_YET,
    NOTHING,
    PROBES,
    PROBING,
    UNREAD,
)  # fmt: skip

if TYPE_CHECKING:
    from ...net.forwarded import TrustedProxies
    from ..partial import PartialMessages
    from .app import App
    from .known_heads import KnownHeads
    from .websocket import WebSocket

PIPELINE = 64
"""Requests of one connection that run at once."""
_FEW = 4 * 1024
"""Bytes that wait beside the transport and are not counted."""
_BATCH = 256 * 1024
"""Bytes of answers that are written at once rather than at the end of the wake-up."""


class ConnectionOwner(Protocol):
    """The listener of a connection. A Protocol, because the listener makes its connections."""

    app: App
    tls: bool
    loopback: bool
    heads: KnownHeads
    heads_behind: KnownHeads
    partial: PartialMessages
    now: float
    """The time of its last check of the deadlines."""
    waits: Sequence[float]
    """Seconds for each stage."""

    def admit(self, connection: ServerConnection) -> bool: ...
    def became(self, connection: ServerConnection, socket: WebSocket) -> None: ...
    def gone(self, wire: ServerConnection | WebSocket) -> None: ...


class ServerConnection(asyncio.BufferedProtocol):
    """One connection of the listener."""

    __slots__ = (
        "_busy", "_fault", "_held", "_into", "_out", "_out_size", "_over", "_paused", "_room", "app", "deadline",
        "eof", "full", "grace", "heads", "last", "owed", "owner", "parser", "probes", "proxies", "remote", "retiring", "stage",
        "transport", "unsent", "waiting", "watch", "who",
    )  # fmt: skip

    def __init__(self, owner: ConnectionOwner) -> None:
        self.owner: ConnectionOwner = owner
        self.app: App = owner.app
        self.transport: asyncio.Transport | None = None
        self.remote: str = ""
        """The address of the far end, be it a caller or a proxy."""
        self.proxies: TrustedProxies | None = None
        """The far end is one of these."""
        self.heads: KnownHeads = owner.heads
        self.deadline: float = NEVER
        self.full: bool = False
        """The far end does not read."""
        self.last: bool = False
        """No further request is accepted."""
        self.eof: bool = False
        self.retiring: bool = False
        """The listener is closing: idle connections close at once, the others after their answers."""
        self.grace: bool = True
        """While retiring: a request may be on its way, and is waited for. Before: nothing has come yet."""
        self.stage: int = NOTHING
        self._busy = self._paused = self._fault = self._over = False
        self.owed: list[PipelinedResponse] = []
        """The responses in the order of their requests."""
        self.waiting: RequestQueue | None = None
        self._out: list[bytes] = []
        self._out_size = self._held = self.probes = 0
        self.unsent: int = 0
        self.watch: SendWatch | None = None
        """Made when the far end first leaves something unread."""
        self.who: Identity | None = None
        """The caller of the last request that a guard admitted."""
        self._room = self.app.limits.message_size
        """How many more bytes are read and dropped while lingering; what comes then waits in the kernel."""
        self.parser: RequestParser | None = None
        self._into = read_buffer()

    @property
    def state(self) -> int:
        """The position within a request."""
        return OVER if self._over else BETWEEN if self.parser is None else self.parser.state

    def caller(self, head: Head, length: int, incoming: IncomingRequest | None = None, scheme: str = "http") -> Caller:
        """The caller of a request with a body of this length."""
        identity = None if incoming is None or incoming.admitted is None else incoming.admitted.identity
        known = None if incoming is None else incoming.known
        texts = head.header_texts(length) if known is None else known.header_texts()
        remote, tls = self.remote, self.owner.tls
        if self.proxies is not None:
            remote, tls = self.origin(head, incoming)
            if host := self.proxies.origin_of(texts).host:
                texts = texts | {"host": host}
        scheme += "s" * tls
        return Caller(scheme=scheme, remote=remote, path=head.path, headers=texts, tls=tls, identity=identity)

    def origin(self, head: Head, incoming: IncomingRequest | None = None) -> tuple[str, bool]:
        """The address of a request's caller, and whether the caller sent it by TLS."""
        if self.proxies is None:
            return self.remote, self.owner.tls
        known = None if incoming is None else incoming.known
        found = self.proxies.origin_of(head.header_texts() if known is None else known.header_texts())
        return found.remote or self.remote, found.scheme == "https" if found.scheme else self.owner.tls

    # -- the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)  # uvloop's transports are not a subclass
        self.transport = transport
        peer = transport.get_extra_info("peername")
        self.remote = remote_name(peer) if isinstance(peer, tuple) else ""
        if (proxies := self.app.proxies) is not None and isinstance(peer, tuple) and proxies.trusts(str(peer[0])):
            self.proxies, self.heads = proxies, self.owner.heads_behind
        transport.set_write_buffer_limits(high=1, low=0)  # reports when anything stays behind, and when all is sent
        if self.owner.admit(self):
            self._settle()
        else:
            self.refuse(plain_refusal(503, "Busy: limit channels is reached", (("Retry-After", "1"),)))

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._into

    def buffer_updated(self, nbytes: int) -> None:
        data = self._into[:nbytes].tobytes()
        self.grace = self.grace and self.retiring
        parser = self.parser
        if self._over or (parser is not None and parser.state == OVER):
            self._surplus(data)
            return
        self._busy = True
        if parser is None or parser.state == BETWEEN:
            data = self._known(data)
        if data and not self.last:
            if parser is None:
                loopback = self.owner.loopback
                parser = self.parser = RequestParser(self.app, self.heads, loopback=loopback, proxies=self.proxies)
            self._handle(parser, data)
        self._busy = False
        self._settle()
        take_turns(self.transport, nbytes, self._read_on)

    def _read_on(self) -> None:
        """Read on after the others had their turn, unless reading is paused."""
        if self.transport is not None and not self._paused and not self.transport.is_closing():
            self.transport.resume_reading()

    def _handle(self, parser: RequestParser, data: bytes) -> None:
        """Handle what these bytes completed."""
        for event in parser.feed(data):
            if self.last or self._over:
                break
            if isinstance(event, RefusedRequest):
                self.refuse(event.answer, event.head)
            elif event.upgrade is not None and not event.head.guarded:
                self._upgrade(event, *event.upgrade)
            elif event.head.guarded:
                self._wait(event)
            else:
                self.take(event.head, event.body or b"")
        if parser.last:
            self.last = True
        if parser.held or self._held:
            self._held = 0 if self._over else parser.held
            self.owner.partial.kept(self, self._held, None)

    def _surplus(self, data: bytes) -> None:
        """Bytes behind the last request: those of a WebSocket that is not admitted yet, or to be dropped."""
        if self.waiting and self.waiting.surplus(data):
            return
        self._room -= len(data)
        if self._room < 0 and not self._paused and self.transport is not None:
            self._paused = True  # closing now would reset, and destroy an answer that the far end has not read
            self.transport.pause_reading()

    def eof_received(self) -> bool:
        self.eof = True
        if self.waiting:
            self.waiting.drop_part()
        if self.owner.tls or self.transport is None or not (self.owed or self.waiting):
            return False
        self.last = self._over = True  # an incomplete request will never be completed
        self._settle()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        waiting, self.waiting = self.waiting, None
        self.transport = self.parser = None
        self._over, self.deadline = True, NEVER
        if self.watch is not None:
            self.watch.end()
        if waiting:
            waiting.drop_all()
        self.owner.gone(self)
        owed, self.owed = self.owed, []
        for response in owed:
            response.over = True
            if response.gone is not None:
                response.gone()

    def pause_writing(self) -> None:
        if self.transport is not None:
            self._watched().start(self.transport)
            self._fill()

    def resume_writing(self) -> None:
        if self.watch is not None:
            self.watch.resumed()
            if self.full and not self.watch.full:
                self.full = False
                self._resume()
                self._settle()

    def _watched(self) -> SendWatch:
        if self.watch is None:
            self.watch = SendWatch(self.app.limits, self._too_slow, budget=self.app.budget, owner=self._owner)
        return self.watch

    def _fill(self) -> None:
        """Stop reading from the far end while it leaves too many bytes unread."""
        if self.watch is not None and self.watch.full and not self.full:
            self.full = True
            if not self._busy:
                self._settle()

    def _owner(self) -> str:
        """Return the owner of the bytes that are unsent, for the budget."""
        response = self.owed[0] if self.owed else None
        remote = self.remote if response is None else self.origin(response.head, response.incoming)[0]
        return Caller(remote=remote, identity=self.who).owner

    def _too_slow(self, why: str) -> None:
        log.debug("%s %s", self.remote, why)
        self.abort()

    def _hold(self) -> None:
        """Count what the transport cannot be given yet: responses that wait for an earlier one or for the far end to
        read, and requests that wait for these."""
        held = (
            self._out_size
            + sum([len(response.out) for response in self.owed])
            + (self.waiting.size if self.waiting else 0)
        )
        if held < _FEW:  # a usual request that waits for the guard does not show how its caller reads
            held = 0
        if held or self.watch is not None:
            watch = self._watched()
            watch.beside = held
            watch.count()

    def _resume(self) -> None:
        """Let the endpoint of the first response go on."""
        response = self.owed[0] if self.owed else None
        if isinstance(response, ResponseWriter) and response.resumed is not None and not self.full:
            response.resumed()

    def _known(self, data: bytes) -> bytes:
        """Take the requests at the beginning of `data` whose heads are cached; the parser takes the rest."""
        known = self.heads
        at, end = 0, data.find(b"\r\n\r\n")
        while end > at:
            raw = data[at:end]
            found = known.exact.get(raw) or known.similar(raw)
            if found is None:
                break
            stop = end + 4 + found.length
            if stop > len(data):
                break
            head, body = found.head, data[end + 4 : stop]
            if head.guarded or found.varied is not None:
                self.take(head, body, IncomingRequest(head, body, None if found.varied is None else raw, found))
            else:
                self.take(head, body)
            at = stop
            if at == len(data) or self.last:
                return b""
            end = data.find(b"\r\n\r\n", at)
        return data[at:] if at else data

    def _upgrade(self, incoming: IncomingRequest, raw: bytes, rest: bytes) -> None:
        """Hand the transport over to a WebSocket; `raw` is its handshake, `rest` the bytes after it."""
        transport, head = self.transport, incoming.head
        if transport is None or head.socket is None:
            return
        if self.owed or self.waiting:
            self.refuse(plain_refusal(400, "A WebSocket begins after the answers to what was asked before"))
            return
        try:
            from .websocket import upgrade  # noqa: PLC0415 - an optional extra
        except ImportError:
            self.refuse(plain_refusal(501, "WebSocket needs the extra dragoman[websocket] on this server"))
            return
        owner, subprotocol = self.owner, head.socket.subprotocol
        caller = self.caller(head, 0, incoming, "ws")
        more, budget = incoming.more, head.socket.call_limit.budget
        made = upgrade(raw, caller, self.app.options, owner.gone, owner.partial.kept, subprotocol, more, budget)
        if not isinstance(made, tuple):
            self.refuse(plain_refusal(made.status_code, bytes(made.body or b"").decode("utf-8", "replace").strip()))
            return
        self._flush()
        socket, accepted = made
        self._over = True
        self.transport, self.deadline = None, NEVER
        transport.write(accepted)
        socket.take_over(transport)
        owner.became(self, socket)
        if rest:
            socket.take_bytes(rest)
        if incoming.admitted is not None and incoming.admitted.expires is not None:
            socket.expires(incoming.admitted.expires)
        head.socket.attach(socket)

    # -- requests

    def refuse(self, answer: Answer, head: Head | None = None) -> None:
        """Answer a request that cannot be served, after the answers to the requests before it, and accept no further
        request."""
        if answer.plain and head is not None and head.speaks_rpc:
            answer = rpc_refusal(answer)
        log.debug("%s refused with %d: %s", self.remote, answer.status, printable(answer.body.decode("latin-1")))
        if self.waiting:
            self.waiting.drop_part()
        self._fault = self._over = True
        if self.parser is not None:
            self.parser.stop()
        head = head or Head()
        headers = {} if self.proxies is None else head.headers
        refused = Head(method=head.method, path=head.path, headers=headers, length=head.length, socket=head.socket)
        refused.answer, refused.extra, refused.keep = answer, head.extra, False
        self.take(refused, b"")
        if not self._busy:
            self._settle()

    def take(self, head: Head, body: bytes, incoming: IncomingRequest | None = None) -> None:
        """Start a complete request, or queue it. `incoming`: the request itself, if it is more than head and body."""
        if not head.keep:
            self.last = True
        if head.guarded:
            incoming = incoming or IncomingRequest(head, body)
        if self.waiting or self.full or len(self.owed) >= PIPELINE:
            self._wait(incoming or IncomingRequest(head, body))
        elif incoming is None or incoming.decide():
            self._start(head, body, incoming)
        elif incoming.denied is not None:
            self._deny(incoming, incoming.denied)
        else:
            self._wait(incoming)

    def _wait(self, request: IncomingRequest) -> None:
        if self.waiting is None:
            self.waiting = RequestQueue(self._ask)
        self.waiting.add(request)
        self._hold()

    def _start(self, head: Head, body: bytes, incoming: IncomingRequest | None) -> None:
        self.stage = NOTHING  # the stage's event has come
        if incoming is not None and incoming.admitted is not None:
            self.who = incoming.admitted.identity
        more = () if incoming is None else incoming.more
        if head.served is not None:
            exchange = RpcExchange(self, head, body, incoming, more)
            self.owed.append(exchange)
            exchanged(head.served, exchange)
            return
        response = ResponseWriter(self, head, more, incoming)
        self.owed.append(response)
        if head.answer is not None:
            self._turn_away(response, head.answer)
        elif head.endpoint is not None:
            caller = self.caller(head, len(body), incoming)
            request = HttpRequest(head.method, head.path, head.query, body, caller, head)
            try:
                head.endpoint(request, response)
            except Exception:
                log.exception("The endpoint at %s raised", head.path)
                response.fail()

    def _start_waiting(self, waiting: RequestQueue) -> None:
        """Start the waiting requests that may start and that the guard has admitted."""
        while not self.full and len(self.owed) < PIPELINE and (found := waiting.next()) is not None:
            request, denied = found
            if denied is not None:
                self._deny(request, denied)
            elif request.upgrade is not None:
                self._upgrade(request, *request.upgrade)
            else:
                self._start(request.head, request.body or b"", request)

    def _ask(self, request: IncomingRequest) -> PendingAdmission:
        """Ask the guard about a request."""
        head, limits, guard = request.head, self.app.limits, request.head.guard
        assert guard is not None  # it is guarded
        fields = request.fields
        (remote, tls), host, transport = self.origin(head, request), head.headers.get(b"host", b""), self.transport
        if self.proxies is not None:
            host = self.proxies.origin_of(texts(collect(fields))).host.encode() or host
            transport = transport if remote == self.remote else None  # the certificate is the proxy's
        scheme = ("ws" if head.socket is not None else "http") + "s" * tls
        seen = handshake(head, scheme, host, fields, remote, transport)

        def decided(verdict: Admitted | Answer) -> None:
            request.decided(verdict)
            self._settle()

        return PendingAdmission(guard, seen, head, limits.guard_timeout, decided)

    def _deny(self, request: IncomingRequest, answer: Answer) -> None:
        """Answer a request that the guard denies; a body that has not come is not read."""
        if request.body is None or request.upgrade is not None:
            self.refuse(answer, request.head)
            return
        self.stage = NOTHING  # the stage's event has come
        response = ResponseWriter(self, request.head, (), request)
        self.owed.append(response)
        self._turn_away(response, answer)

    def _turn_away(self, response: ResponseWriter, answer: Answer) -> None:
        self.app.reject_with(response.head, answer, *self.origin(response.head, response.incoming))
        response.respond(answer.status, self.app.lines_of(response.head, answer), answer.body)

    def keeps(self, response: PipelinedResponse) -> bool:
        """Whether another request may follow this response."""
        if not response.head.keep:
            return False
        if self.retiring and self.state in (BETWEEN, OVER) and not self.waiting and self.owed[-1] is response:
            self.last = True
        return not (self.last and self.owed[-1] is response and not self.waiting)

    def answered(self, response: PipelinedResponse) -> None:
        """Take the bytes that a response has to send, in the order of the requests."""
        owed = self.owed
        if not owed or owed[0] is not response:
            if isinstance(response, RpcExchange):
                response.queued()
            self._hold()
            return
        while owed:
            response = owed[0]
            if out := response.out:
                self._out.append(out)
                self._out_size += len(out)
                response.out = b""
            if not response.over:
                if len(out) > self.app.limits.send_queue:  # it had to wait for earlier responses
                    asyncio.get_running_loop().call_soon(self._resume)
                break
            del owed[0]
        if not self._busy:
            self._settle()
        elif self._out_size > _BATCH:
            self._flush()

    # -- what comes next

    def _flush(self) -> None:
        """Write the responses to the transport, unless its buffer is full."""
        if self._out and not self.full and self.transport is not None:
            data = self._out[0] if len(self._out) == 1 else b"".join(self._out)
            self._out.clear()
            self._out_size = 0
            watch = self.watch
            if (watch is not None and (watch.on or watch.beside)) or len(data) > PIECE:
                self._watched().write(self.transport, data, tls=self.owner.tls)
                self._hold()
                self._fill()
            else:
                self.transport.write(data)
        elif self._out and self.full:
            self._hold()

    def _settle(self) -> None:
        """The end of a wake-up: start waiting requests, send responses, choose the next stage."""
        if self.transport is None:
            return
        if self.waiting:
            self._busy = True
            self._start_waiting(self.waiting)
            self._busy = False
            if not self.waiting:
                self.waiting = None
            if self.transport is None:  # it belongs to a WebSocket now
                return
        parser, first = self.parser, not (self.owed or (self.waiting and not self.waiting.wants_body))
        if parser is not None and parser.expecting and first:
            parser.expecting = False
            if not parser.received:
                self._out.append(CONTINUE)
        if self._out:
            self._busy = True  # the transport may call `pause_writing` from inside `write`
            self._flush()
            self._busy = False
        idle = not (self.owed or self.waiting or self._out)
        if idle and (self.last or (self.retiring and self.state == BETWEEN and not self.grace)):
            self._finish()
            return
        if idle and not self.full and (parser is None or parser.state == BETWEEN):
            if self.stage != IDLE:  # nearly every wake-up ends so
                self.stage = IDLE
                self.deadline = self.owner.now + self.owner.waits[IDLE]
        elif (stage := self._stage()) != self.stage:
            self.enter(stage)
        waiting = self.waiting
        held_back = self.full or (waiting is not None and len(waiting) > 0 and not waiting.reads_on)
        if held_back != self._paused and not self.eof:
            self._paused = held_back
            (self.transport.pause_reading if held_back else self.transport.resume_reading)()

    def _stage(self) -> int:
        """The stage at the end of a wake-up."""
        if self.full:
            return UNREAD
        state, waiting = self.state, self.waiting
        if waiting:
            if state == BODY and waiting.wants_body:
                return IN_BODY
        elif state == HEAD:
            return IN_HEAD
        elif state == BODY:
            return IN_BODY
        if self.owed or waiting:
            return PROBING if self.eof and self.probes < PROBES else AT_WORK
        return IDLE

    def _probe(self) -> None:
        """Find out whether the far end has closed both sides: then the second probe fails."""
        self.probes += 1
        response = self.owed[0] if self.owed else None
        if self.transport is None or not (response or self.waiting):
            return
        head = response.head if response is not None else cast(RequestQueue, self.waiting).first.head
        if not head.old and (response is None or not response.begun):
            self.transport.write(CONTINUE)
        elif isinstance(response, ResponseWriter) and response.doubted is not None:
            response.doubted()

    def enter(self, stage: int) -> None:
        """Enter a stage."""
        if stage == PROBING:
            self._probe()
        self.stage = stage
        self.deadline = self.owner.now + self.owner.waits[stage]

    def _finish(self) -> None:
        """All is sent: close, but first wait a moment for a far end that is still sending."""
        assert self.transport is not None
        self._over = True
        if self.stage in (LINGERING, FLUSHING):
            return
        if self.eof or not (self._fault or (self.retiring and self.last)):
            self.close()
            return
        if self._paused:
            self._paused = False
            self.transport.resume_reading()
        end_writing(self.transport)
        self.enter(LINGERING)

    def close(self) -> None:
        if self.transport is not None and self.stage != FLUSHING:
            self.unsent = NO_LOOK_YET
            self.enter(FLUSHING)
            self.transport.close()

    def abort(self) -> None:
        """Close at once."""
        if self.transport is not None:
            self.transport.abort()

    def cut_off(self, why: str) -> None:
        self.refuse(plain_refusal(503, f"Busy: {why}", (("Retry-After", "1"),)))

    def retire(self, grace: bool = False) -> None:
        """Close after the answers that are owed. With `grace` one more request may come, until this is called
        without."""
        self.retiring, self.grace = True, grace
        self._settle()

    def dismiss(self) -> None:
        """Refuse an incomplete request: the listener waits for the end of the others only."""
        if self.state in (HEAD, BODY):
            self.refuse(plain_refusal(503, "Draining: this server is closing", (("Retry-After", "1"),)))

    def expired(self) -> None:
        """End the stage, whose deadline has passed."""
        stage, transport = self.stage, self.transport
        if transport is None:
            return
        if stage in (IDLE, LINGERING):
            self.close()
        elif stage == IN_HEAD:
            self.refuse(plain_refusal(408, "The head took longer than limit header_timeout allows"))
        elif stage == IN_BODY:
            head = None if self.parser is None else self.parser.under_way
            self.refuse(plain_refusal(408, "The body took longer than limit body_timeout allows"), head)
        elif stage == PROBING:
            self.enter(PROBING if self.probes < PROBES else AT_WORK)
        elif stage == FLUSHING:
            if (unsent := transport.get_write_buffer_size()) >= self.unsent:
                log.debug("%s reads nothing: cut off", self.remote)
                transport.abort()
                return
            self.unsent = unsent
            self.enter(FLUSHING)


class RpcExchange(Struct, eq=False):
    """The exchange of one POST, and its position in the order of the answers."""

    connection: ServerConnection
    head: Head
    request: bytes
    incoming: IncomingRequest | None = None
    """What is known of this request beside its head."""
    more: Lines = ()
    """Header fields with which the guard admits the request."""
    gone: Callable[[], None] | None = None
    out: bytes = b""
    over: bool = False
    made: Caller | None = None
    """Its caller, after its first use."""
    begun: ClassVar[bool] = False
    """False: nothing is sent before the whole answer."""

    @property
    def caller(self) -> Caller:
        """Made on first use: most handlers never use it."""
        if self.made is None:
            self.made = self.connection.caller(self.head, len(self.request), self.incoming)
        return self.made

    @caller.setter
    def caller(self, caller: Caller) -> None:
        self.made = caller

    @property
    def acknowledges(self) -> bool:
        """Whether a notification is answered when it was accepted."""
        return not self.connection.app.options.await_notifications

    def respond(self, answer: AnyAnswer) -> None:
        if self.over:
            return
        connection, head, refusal = self.connection, self.head, None
        if type(answer) is FailedAnswer:
            refusal, answer = answer.refusal, answer.text
        if refusal is None and head.plain and not connection.retiring and not self.more:
            self.out = connection.app.nothing if answer is None else JSON_LINES.ok % (len(answer), answer)
        else:
            whole = rpc_answer(answer, refusal, connection.app.options.empty_status)
            self.out = compose(head, self.more, whole, keep=connection.keeps(self), length=len(whole.body)) + whole.body
        self.over = True
        connection.answered(self)

    def queued(self) -> None:
        """Drop the request, which no limit counts any more, while its answer waits for earlier ones."""
        self.request, self.gone = b"", None
        if self.incoming is not None:
            self.incoming.body = b""

    def stream(self, message: bytes) -> bool:
        """False: an answer in JSON cannot have messages ahead of it."""
        return False


class ResponseWriter(Struct, eq=False):
    """The reply of any other endpoint, and its position in the order of the answers."""

    connection: ServerConnection
    head: Head
    more: Lines = ()
    """Header fields with which the guard admits the request."""
    incoming: IncomingRequest | None = None
    """What is known of this request beside its head."""
    gone: Callable[[], None] | None = None
    resumed: Callable[[], None] | None = None
    doubted: Callable[[], None] | None = None
    out: bytes = b""
    over: bool = False
    begun: bool = False
    chunked: bool = False

    @property
    def writable(self) -> bool:
        connection = self.connection
        return (
            connection.transport is not None
            and not connection.full
            and len(self.out) <= connection.app.limits.send_queue
        )

    def reject(self, status: int, reason: str) -> None:
        """Report to observers that the request is turned away."""
        self.connection.app.reject(self.head, status, reason, *self.connection.origin(self.head, self.incoming))

    def respond(self, status: int, headers: Lines = (), body: bytes = b"") -> None:
        if self.over:
            return
        if self.begun:
            self.finish(body)
            return
        connection, head = self.connection, self.head
        if status == 200 and type(headers) is CommonLines and head.plain and not (connection.retiring or self.more):
            self.out = headers.ok % (len(body), body)
        else:
            self.out = compose(head, self.more, Answer(status, headers), keep=connection.keeps(self), length=len(body))
            if head.method != "HEAD":
                self.out += body
        self.over = True
        self.gone = None
        connection.answered(self)

    def start(self, status: int, headers: Lines = ()) -> None:
        if self.begun or self.over:
            return
        bodiless = status in (204, 304)
        self.chunked = not self.head.old and not bodiless
        if not self.chunked and not bodiless:
            self.head.keep = False  # without chunks only the end of the connection ends the body
            self.connection.last = True
        keep = self.connection.keeps(self)
        self.out = compose(self.head, self.more, Answer(status, headers), keep=keep, chunked=self.chunked)
        self.begun = True
        self.connection.answered(self)

    def write(self, chunk: bytes) -> None:
        if chunk and not self.over and self.head.method != "HEAD":
            self.out += b"%x\r\n%b\r\n" % (len(chunk), chunk) if self.chunked else chunk
            self.connection.answered(self)

    def finish(self, chunk: bytes = b"") -> None:
        if self.over:
            return
        if self.head.method != "HEAD":
            if chunk:
                self.out += b"%x\r\n%b\r\n" % (len(chunk), chunk) if self.chunked else chunk
            if self.chunked:
                self.out += b"0\r\n\r\n"
        self.over = True
        self.gone = self.resumed = self.doubted = None
        self.connection.answered(self)

    def fail(self) -> None:
        """The endpoint raised: 500, or if an answer has begun, the end of the connection."""
        if self.begun or self.over:
            self.connection.abort()
        else:
            answer = failure()
            self.respond(answer.status, answer.headers, answer.body)


PipelinedResponse: TypeAlias = RpcExchange | ResponseWriter
