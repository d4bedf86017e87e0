"""One wire of the native HTTP front: HTTP/1.1 and 1.0 on `asyncio.Protocol`.

Rules:

- Requests are parsed on and started while earlier ones run; answers leave in the order of the
  requests, all of one wake-up in one write. At most `PIPELINE` run at once; then nothing more is
  read. Nothing is read either while the far end does not read.
- Heads that are too long (431) or too slow (408), bodies that are too long (413) or too slow (408)
  end the wire. What still comes in is read and dropped for a moment, lest a reset eat the answer.
- Heads repeat: clients send the same bytes before each body, but for its length. What llhttp and
  `App.judge` found out about a head is kept by its bytes, and by its bytes without the length, so
  that a known head costs one look-up, or two. Nothing in it depends on the moment: what is served
  decides about being busy or draining.
- A far end that closes its sending side still gets its answers. Whether it has gone altogether
  only shows when something is sent, so up to two interim responses ("100 Continue", which every
  client skips; RFC 9110, 15.2) ask, or in a begun answer what its endpoint has for that; then
  `gone` is called.
- What a far end can cause at will is logged in one line at debug level.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, cast

from ..channel import Caller
from .http import log
from .http_head import Answer, Head, HttpRequest, turned_away
from .http_reader import BETWEEN, BODY, HEAD, OVER, Reader, Stop, shaped
from .http_turns import Post, Told, Turn
from .room import room
from .urls import printable

if TYPE_CHECKING:
    from .http_server import HttpListener
    from .websocket import WebSocket

PIPELINE = 64
"""Requests of one wire that run at once."""
KNOWN_HEADS = 1024
"""Heads kept per listener; when there are more, all are forgotten."""
_BATCH = 256 * 1024
"""Bytes of answers that are written at once rather than at the end of the wake-up."""
LINGER = 2.0
"""How long what comes after a final answer is read and dropped, in seconds."""

# What a wire waits for, which says what its deadline means.
NOTHING, IDLE, IN_HEAD, IN_BODY, AT_WORK, UNREAD, LINGERING, PROBING, FLUSHING = range(9)

NEVER = float("inf")
_NO_LOOK_YET = 1 << 62
_PROBES = 2
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class Front(asyncio.BufferedProtocol):
    """One wire of the listener."""

    __slots__ = (
        "_busy",
        "_fault",
        "_into",
        "_out",
        "_out_size",
        "_owed",
        "_paused",
        "_probes",
        "_room",
        "_socket",
        "_unsent",
        "_waiting",
        "app",
        "deadline",
        "door",
        "eof",
        "full",
        "grace",
        "last",
        "reader",
        "remote",
        "retiring",
        "stage",
        "state",
        "transport",
    )

    def __init__(self, door: HttpListener) -> None:
        self.door = door
        self.app = door.app
        self.transport: asyncio.Transport | None = None
        self.remote = ""
        self.deadline = NEVER
        self.full = False
        """The far end does not read."""
        self.last = False
        """No further request is taken."""
        self.eof = False
        self.retiring = False
        """The listener is closing: whoever is idle goes at once, the others after their answers."""
        self.grace = False
        """While retiring: a request that may be on its way is waited for."""
        self.stage = NOTHING
        self._busy = self._paused = self._fault = False
        self._owed: list[Turn] = []
        """The turns in the order of their requests."""
        self._waiting: deque[tuple[Head, bytes]] | None = None
        self._out: list[bytes] = []
        self._out_size = self._unsent = self._probes = 0
        self._room = self.app.limits.message_size
        """How much more is read and dropped while lingering."""
        self.state = BETWEEN
        """Where in a request it is."""
        self.reader: Reader | None = None
        self._into = room()
        self._socket: WebSocket | None = None

    def caller(self, head: Head, scheme: str = "http") -> Caller:
        """Who sent a request."""
        return head.caller(scheme + "s" if self.door.tls else scheme, self.remote, self.door.tls)

    # -- the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)  # uvloop's are no subclass
        self.transport = transport
        peer = transport.get_extra_info("peername")
        self.remote = f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) else ""
        transport.set_write_buffer_limits(high=self.app.limits.send_queue)
        if self.door.admit(self):
            self._settle()
        else:
            self.refuse(turned_away(503, "Busy: limit channels is reached", (("Retry-After", "1"),)))

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._into

    def buffer_updated(self, nbytes: int) -> None:
        self._received(bytes(self._into[:nbytes]))

    def _received(self, data: bytes) -> None:
        if self.state == OVER:
            self._room -= len(data)
            if self._room < 0:
                self._close()
            return
        self._busy = True
        if self.state == BETWEEN:
            data = self._known(data)
        if data and not self.last:
            if self.reader is None:
                self.reader = Reader(self)
            self.reader.parse(data)
        self._busy = False
        self._settle()

    def eof_received(self) -> bool:
        self.eof = True
        if self.door.tls or self.transport is None or not (self._owed or self._waiting):
            return False
        self.last = True
        self.state = OVER  # what came in part will never be whole
        self._settle()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = self.reader = self._waiting = None
        self.state = OVER
        self.deadline = NEVER
        self.door.gone(self)
        owed, self._owed = self._owed, []
        for turn in owed:
            turn.over = True
            if turn.gone is not None:
                turn.gone()

    def pause_writing(self) -> None:
        self.full = True
        self._unsent = _NO_LOOK_YET
        if not self._busy:
            self._settle()

    def resume_writing(self) -> None:
        self.full = False
        self._resume()
        self._settle()

    def _resume(self) -> None:
        """Tell the endpoint whose turn it is that it may go on."""
        turn = self._owed[0] if self._owed else None
        if isinstance(turn, Told) and turn.resumed is not None and not self.full:
            turn.resumed()

    # -- reading

    def _known(self, data: bytes) -> bytes:
        """Take the requests at the beginning of `data` whose heads are known; what is left is for the parser."""
        heads = self.door.heads
        at, end = 0, data.find(b"\r\n\r\n")
        while end > at:
            raw = data[at:end]
            head = heads.get(raw)
            if head is not None:
                stop = end + 4 + head.length
            else:
                shape = shaped(raw)
                if shape is None or (head := self.door.shapes.get(shape[0])) is None:
                    break
                if not 0 < shape[1] <= self.app.limits.message_size:
                    break
                stop = end + 4 + shape[1]
            if stop > len(data):
                break
            self.take(head, data[end + 4 : stop])
            at = stop
            if at == len(data) or self.last:
                return b""
            end = data.find(b"\r\n\r\n", at)
        return data[at:] if at else data

    # -- upgrades

    def upgrade(self, head: Head, raw: bytes, rest: bytes) -> None:
        """Hand the transport over to a WebSocket; `raw` is its handshake, `rest` what came after it."""
        transport = self.transport
        if transport is None or head.socket is None:
            return
        if self._owed or self._waiting:
            self.refuse(turned_away(400, "A WebSocket begins after the answers to what was asked before"))
            return
        try:
            from .websocket import upgrade  # noqa: PLC0415 - an optional extra
        except ImportError:
            self.refuse(turned_away(501, "WebSocket needs the extra dragoman[websocket] on this server"))
            return
        made = upgrade(
            raw, self.caller(head, "ws"), self.app.options, self.door.gone, getattr(head.socket, "subprotocol", None)
        )
        if not isinstance(made, tuple):
            self.refuse(turned_away(made.status_code, bytes(made.body or b"").decode("utf-8", "replace").strip()))
            return
        self._flush()
        self._socket, accepted = made
        self.state = OVER
        self.transport, self.deadline = None, NEVER
        transport.write(accepted)
        transport.set_protocol(self._socket)
        self._socket.take(transport)
        self.door.became(self, self._socket)
        if rest:
            self._socket.take_bytes(rest)
        head.socket.attach(self._socket)

    def surplus(self, data: bytes) -> None:
        """What came behind the last request."""
        if self._socket is not None:
            self._socket.take_bytes(data)

    # -- requests

    def began(self) -> None:
        """The first byte of a request has come: its time begins now."""
        self.state = HEAD
        self.stage = NOTHING

    def refuse(self, answer: Answer, head: Head | None = None) -> Stop:
        """Answer what cannot be served, after the answers to what came before, and take nothing more."""
        log.debug("%s refused with %d: %s", self.remote, answer.status, printable(answer.body.decode("latin-1")))
        self._fault = True
        self.state = OVER
        method = "GET" if head is None else head.method
        extra = () if head is None else head.extra
        self.take(Head(method=method, answer=answer, extra=extra, keep=False), b"")
        if not self._busy:
            self._settle()
        return Stop()

    def take(self, head: Head, body: bytes) -> None:
        """A whole request."""
        if not head.keep:
            self.last = True
        if self._waiting or self.full or len(self._owed) >= PIPELINE:
            if self._waiting is None:
                self._waiting = deque()
            self._waiting.append((head, body))
        else:
            self._start(head, body)

    def _start(self, head: Head, body: bytes) -> None:
        self.stage = NOTHING  # whatever it waited for has come
        if head.served is not None:
            post = Post(self, head, body)
            self._owed.append(post)
            try:
                head.served.exchange(post)
            except Exception:
                log.exception("The exchange at %s raised", head.path)
                post.fail()
            return
        told = Told(self, head)
        self._owed.append(told)
        if head.answer is not None:
            told.respond(head.answer.status, head.answer.headers, head.answer.body)
        elif head.endpoint is not None:
            request = HttpRequest(head.method, head.path, head.query, body, self.caller(head), head)
            try:
                head.endpoint(request, told)
            except Exception:
                log.exception("The endpoint at %s raised", head.path)
                told.fail()

    def keeps(self, turn: Turn) -> bool:
        """May another request follow the answer to this one?"""
        if not turn.head.keep:
            return False
        if self.retiring and self.state in (BETWEEN, OVER) and not self._waiting and self._owed[-1] is turn:
            self.last = True
        return not (self.last and self._owed[-1] is turn and not self._waiting)

    def answered(self, turn: Turn) -> None:
        """A turn has something to say."""
        owed = self._owed
        if not owed or owed[0] is not turn:
            return
        while owed:
            turn = owed[0]
            if turn.out:
                self._out.append(turn.out)
                self._out_size += len(turn.out)
                if len(turn.out) > self.app.limits.send_queue and not turn.over:  # it waited for its turn, held back
                    asyncio.get_running_loop().call_soon(self._resume)
                turn.out = b""
            if not turn.over:
                break
            del owed[0]
        if not self._busy:
            self._settle()
        elif self._out_size > _BATCH:
            self._flush()

    # -- what comes next

    def _flush(self) -> None:
        """Hand the answers to the transport, unless it has too much already."""
        if self._out and not self.full and self.transport is not None:
            data = self._out[0] if len(self._out) == 1 else b"".join(self._out)
            self._out.clear()
            self._out_size = 0
            self.transport.write(data)

    def _settle(self) -> None:
        """The end of a wake-up: start what has been waiting, send the answers, see what to wait for."""
        if self.transport is None:
            return
        if self._waiting:
            self._busy = True
            while self._waiting and not self.full and len(self._owed) < PIPELINE:
                self._start(*self._waiting.popleft())
            self._busy = False
        reader = self.reader
        if reader is not None and reader.expecting and not (self._owed or self._waiting):
            reader.expecting = False
            if not reader.received:
                self._out.append(_CONTINUE)
        if self._out:
            self._busy = True  # the transport may call `pause_writing` from inside `write`
            self._flush()
            self._busy = False
        idle = not (self._owed or self._waiting or self._out)
        if idle and (self.last or (self.retiring and self.state == BETWEEN and not self.grace)):
            self._finish()
            return
        if self.full:
            stage = UNREAD
        elif self._waiting:
            stage = AT_WORK
        elif self.state == HEAD:
            stage = IN_HEAD
        elif self.state == BODY:
            stage = IN_BODY
        elif self._owed:
            stage = PROBING if self.eof and self._probes < _PROBES else AT_WORK
        else:
            stage = IDLE
        if stage != self.stage:
            self._await(stage)
        if (self.full or bool(self._waiting)) != self._paused and not self.eof:
            self._paused = not self._paused
            (self.transport.pause_reading if self._paused else self.transport.resume_reading)()

    def _await(self, stage: int) -> None:
        if stage == PROBING:
            self._probe()
        self.stage = stage
        self.deadline = self.door.now + self.door.waits[stage]

    def _probe(self) -> None:
        """Ask whether the far end has gone altogether: if so, the second one fails."""
        self._probes += 1
        turn = self._owed[0]
        if self.transport is None:
            return
        if not turn.begun and not turn.head.old:
            self.transport.write(_CONTINUE)
        elif isinstance(turn, Told) and turn.doubted is not None:
            turn.doubted()

    def _finish(self) -> None:
        """Everything is said: close, with patience for a far end that is still sending."""
        assert self.transport is not None
        self.state = OVER
        if self.stage in (LINGERING, FLUSHING):
            return
        if self.eof or not (self._fault or (self.retiring and self.last)):
            self._close()
            return
        if self._paused:
            self._paused = False
            self.transport.resume_reading()
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._await(LINGERING)

    def _close(self) -> None:
        if self.transport is not None and self.stage != FLUSHING:
            self._unsent = _NO_LOOK_YET
            self._await(FLUSHING)
            self.transport.close()

    def abort(self) -> None:
        """Cut it off."""
        if self.transport is not None:
            self.transport.abort()

    def retire(self, grace: bool = False) -> None:
        """The listener is closing. With `grace` one more request may come, until this is called again without."""
        self.retiring, self.grace = True, grace
        self._settle()

    def dismiss(self) -> None:
        """The listener waits for the end: what came in part is not waited for."""
        if self.state in (HEAD, BODY):
            self.refuse(turned_away(503, "Draining: this server is closing", (("Retry-After", "1"),)))

    def expired(self) -> None:
        """The deadline is past."""
        stage, transport = self.stage, self.transport
        if transport is None:
            return
        if stage == IN_HEAD:
            self.refuse(turned_away(408, "The head took longer than limit header_timeout allows"))
        elif stage == IN_BODY:
            self.refuse(turned_away(408, "The body took longer than limit body_timeout allows"))
        elif stage == PROBING:
            self._await(PROBING if self._probes < _PROBES else AT_WORK)
        elif stage in (IDLE, LINGERING):
            self._close()
        else:  # UNREAD, FLUSHING
            unsent = transport.get_write_buffer_size()
            if unsent >= self._unsent:
                log.debug("%s reads nothing: cut off", self.remote)
                transport.abort()
            else:
                self._unsent = unsent
                self._await(stage)
