"""How what answers one POST leaves: as JSON, or, from the first message sent ahead of the answer on, as a stream.

`LonePost` is an exchange of the stateless era: its end is the answer, and the caller's going away
cancels it. `SessionPost` belongs to a session: its stream outlives its connection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import UNSET, Struct

from ..channel import Caller, Closed
from ..jsonrpc.codec import failure
from ..jsonrpc.errors import INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND, Refusal, RpcError
from ..transports.http_head import JSON_LINES, Lines, Reply
from ..transports.sse import comment, event
from .http_streams import SSE_LINES, Stream
from .methods import HEADER_MISMATCH, MISSING_CAPABILITY, UNSUPPORTED_VERSION

if TYPE_CHECKING:
    from collections.abc import Callable

    from .http_heads import Facts
    from .http_sessions import HttpSession, Sessions

SESSION: Final = "Mcp-Session-Id"
NO_SESSION: Final = "There is no such session: `initialize` begins a new one"
NO_STREAM: Final = "Last-Event-ID names no stream of this session that could be resumed"

_FAILED = b'{"jsonrpc":"2.0","error":'
_STATUS = {
    METHOD_NOT_FOUND: 404,  # "it MUST respond with 404 Not Found" (2026's basic/transports/streamable-http)
    HEADER_MISMATCH: 400,
    MISSING_CAPABILITY: 400,
    UNSUPPORTED_VERSION: 400,
}
"""Statuses of a request's errors; any other error is as good an answer as a result."""


class _Error(Struct):
    code: int


class _Failure(Struct):
    error: _Error


_code = msgspec.json.Decoder(_Failure).decode


def failed(answer: bytes) -> bool:
    """Whether an answer of ours is an error."""
    return answer.startswith(_FAILED)


def status_of(answer: bytes, refusal: Refusal | None) -> int:
    """The HTTP status of a stateless request's answer that is an error or a refusal."""
    if refusal is not None and refusal.kind in ("busy", "draining"):
        return 503
    if refusal is not None and refusal.kind == "too_large":
        return 413
    code = _code(answer).error.code
    if refusal is not None and code in (INVALID_PARAMS, INVALID_REQUEST):
        # "A request missing any required field is malformed; [...] On HTTP, the response status MUST be 400" (basic/index)
        return 400
    return _STATUS.get(code, 200)


def refuse(
    reply: Reply, status: int, error: RpcError | str, *, id: Any = UNSET, null: bool = False, lines: Lines = ()
) -> None:
    """An HTTP refusal as a JSON-RPC error; words alone are -32600. Without `id`: none could be read.

    `null`: revisions that knew no error without an id have null there.
    """
    if isinstance(error, str):
        error = RpcError.of(INVALID_REQUEST, error)
    reply.respond(status, (*JSON_LINES, *lines), failure(None if id is UNSET and null else id, error))


class LonePost:
    """The `Exchange` of one POST of the stateless era."""

    __slots__ = ("_facts", "_owed", "_place", "_reply", "_streams", "caller", "gone", "over", "request")

    def __init__(self, reply: Reply, request: bytes, caller: Caller, facts: Facts, place: Sessions, owed: bool) -> None:
        self.request = request
        self.caller = caller
        self.gone: Callable[[], None] | None = None
        self.over = False
        self._reply = reply
        self._facts = facts
        self._place = place
        self._owed = owed
        self._streams = False

    def respond(self, answer: bytes | None, refusal: Refusal | None = None) -> None:
        if self.over:
            return
        self.over = True
        if self._streams:
            self._place.host.clock.drop(self)
            # "The final JSON-RPC response SHOULD terminate the stream"
            self._reply.finish(b"" if answer is None else event(answer))
        elif answer is None:
            self._nothing(refusal)
        elif refusal is None and self._facts.json and not answer.startswith(_FAILED):
            self._reply.respond(200, JSON_LINES, answer)
        else:
            self._other(answer, refusal)

    def _nothing(self, refusal: Refusal | None) -> None:
        if self._owed:  # it was cancelled by somebody else than the caller
            self._reply.respond(204)
        elif refusal is None:
            # "If the server accepts it, the server MUST return HTTP status code 202 Accepted with no body"
            self._reply.respond(202)
        else:
            # "If the server cannot accept it, it MUST return an HTTP error status code"
            busy = refusal.kind in ("busy", "draining")
            refuse(self._reply, 503 if busy else 400, refusal.reason, lines=_after(refusal) if busy else ())

    def _other(self, answer: bytes, refusal: Refusal | None) -> None:
        status = 200 if refusal is None and not failed(answer) else status_of(answer, refusal)
        if status == 200 and not self._facts.json:
            self._reply.respond(200, SSE_LINES, event(answer))
        else:
            lines = _after(refusal) if status == 503 and refusal is not None else ()
            self._reply.respond(status, (*JSON_LINES, *lines) if lines else JSON_LINES, answer)

    def stream(self, message: bytes) -> bool:
        """Send a message ahead of the answer. False where the caller takes no stream, or reads too slowly."""
        if self.over or not self._facts.sse or not self._reply.writable:
            return False
        if not self._streams:
            self._streams = True
            self._reply.start(200, SSE_LINES)
            self._reply.doubted = self._comment
            self._place.host.clock.set(self, self._place.options.keep_alive)
        self._reply.write(event(message))
        return True

    def expired(self) -> None:
        """The stream has been quiet for a while."""
        self._comment()
        self._place.host.clock.set(self, self._place.options.keep_alive)

    def _comment(self) -> None:
        if self._reply.writable:
            self._reply.write(comment())

    def left(self) -> None:
        """The caller went away: "The server MUST treat a client disconnect as cancellation" (basic/patterns)."""
        self.over = True
        self._place.host.clock.drop(self)
        if self.gone is not None:
            self.gone()


def _after(refusal: Refusal) -> Lines:
    return (("Retry-After", str(refusal.data.get("retry_after", 1))),)


def unmoved() -> None:
    """The caller went away: "Disconnection SHOULD NOT be interpreted as the client cancelling its request"."""


class SessionPost:
    """One POST of a session. Called with a message it sends that ahead of the answer, on the POST's own stream."""

    __slots__ = ("_begins", "_facts", "_reply", "_stream", "over", "session")

    def __init__(self, reply: Reply, facts: Facts, session: HttpSession, *, begins: bool = False) -> None:
        self.session = session
        self.over = False
        self._reply = reply
        self._facts = facts
        self._begins = begins
        """It is the `initialize` that begins the session."""
        self._stream: Stream | None = None

    def __call__(self, message: bytes) -> bool:
        if self.over:
            return False
        if self._stream is None and not self._open():
            return self.session.say(message)
        assert self._stream is not None
        self._stream.append(message)
        return True

    def _open(self) -> bool:
        """Turn the answer into a stream; False where the caller takes none."""
        if not self._facts.sse:
            return False
        session = self.session
        self._stream = stream = session.stream(owed=True)
        revision = session.revision
        stream.attach(
            self._reply, primed=revision is not None and revision.primed, lines=(*SSE_LINES, *self._session_lines())
        )
        if session.posts is not None:
            session.posts.pop(self, None)  # from now on the stream stands for it
        return True

    def _session_lines(self) -> Lines:
        """The id of a session that begins."""
        if not self._begins:
            return ()
        self._begins = False
        return ((SESSION, self.session.table.keep(self.session)),)

    def disconnect(self, retry: float | None = None) -> bool:
        """Close the connection and not the stream, so that the client polls for the rest, `retry` seconds later.

        False where the revision does not know that ("server-initiated close", basic/transports).
        """
        revision = self.session.revision
        if self.over or revision is None or not revision.primed or (self._stream is None and not self._open()):
            return False
        assert self._stream is not None
        self._stream.pause(self.session.options.retry if retry is None else int(retry * 1000))
        return True

    def wait(self, *, owed: bool) -> None:
        """It is not answered yet."""
        if self._stream is not None:  # an eager handler has said something, and the stream knows who reads it
            return
        session = self.session
        if session.posts is None:
            session.posts = {}
        session.posts[self] = None
        self._reply.gone = unmoved
        if owed and not (session.options.json and self._facts.json):
            self._open()

    def deliver(self, answer: bytes | None) -> None:
        """The answer; None when nothing is owed, or the call was cancelled."""
        if self.over:
            return
        self.over = True
        session = self.session
        if session.posts is not None:
            session.posts.pop(self, None)
        stream = self._stream
        if stream is not None:
            stream.finish(answer)
        elif answer is None:
            self._reply.respond(200, SSE_LINES)  # cancelled: a stream without a response
        else:
            self._whole(answer)
        if self._begins:  # it was refused, which makes no session
            session.end(Closed("initialize was refused"))
        else:
            session.table.touch(session)

    def _whole(self, answer: bytes) -> None:
        lines: Lines = ()
        if self._begins and not failed(answer):
            lines = self._session_lines()
        if self._facts.json and (self.session.options.json or not self._facts.sse or failed(answer)):
            self._reply.respond(200, (*JSON_LINES, *lines) if lines else JSON_LINES, answer)
            return
        stream = self.session.stream(owed=True)
        body = b""
        revision = self.session.revision
        if revision is not None and revision.primed:
            body = stream.beginning(self.session.options.retry)
        body += stream.written(stream.log.append(answer), answer)
        self._reply.respond(200, (*SSE_LINES, *lines) if lines else SSE_LINES, body)
        stream.finish()

    def ended(self) -> None:
        """The session ended before the answer."""
        self.over = True
        refuse(self._reply, 404, "The session ended before the call was done")
