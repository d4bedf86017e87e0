"""The HTTP responses that carry a session's messages: one answer as JSON, or a stream as Server-Sent Events.

Statuses and header fields are decided here: a session does not know of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec
from msgspec import UNSET, Struct

from ...channel import Caller, Ended
from ...jsonrpc.codec import FailedAnswer
from ...jsonrpc.errors import Refusal
from ...jsonrpc.messages import Malformed
from ...rpc.observing import Arrival
from ...rpc.responses import ErrorAnswers
from ...transports.http.messages import JSON_LINES, Lines, Reply
from ...transports.http.sse import event
from ..protocol import dialect
from ..session.backend import McpBackend
from ..session.refusals import NO_STREAM, SessionRefusal
from ..session.session import Session
from .authorization import Expiry, start_expiry
from .errors import refuse, send_refusal, status_in_session, turn_away
from .sse_reply import SSE_LINES, SseReply

SESSION: Final = "Mcp-Session-Id"


class HttpReader(Struct, eq=False):
    """One HTTP response of a session: a `SessionReply`."""

    reply: Reply
    whole: bool
    streams: bool
    null: bool
    """Whether an error without an id has `"id": null`."""
    server: McpBackend
    gone: Callable[[], None] | None = None
    resumed: Callable[[], None] | None = None
    left: bool = False
    """Whether the far end has gone."""
    standing: Caller | None = None
    """The caller of a long-lived stream, which is closed when the caller's token expires; None for others."""
    session: Session | None = None
    """The session of a long-lived stream; None for others."""
    about: str = ""
    """What a long-lived stream carries, for observers."""
    seen: Arrival | None = None
    """Notifies observers of a long-lived stream, where there are some."""
    expiry: Expiry | None = None
    sse: SseReply | None = None

    def wait(self) -> None:
        """Watch for the far end to go, because the answer is not ready."""
        self.reply.gone = self._gone

    def _expired(self) -> None:
        if not self.left:
            if self.seen is not None:
                self.seen.end("lost", "the caller's admission has expired")
            self._end(b"")
            self._gone()

    # -- the whole answer

    def answer(self, answer: bytes | FailedAnswer, session: str = "") -> None:
        lines: Lines = ((SESSION, session),) if session else ()
        status = 200
        if type(answer) is FailedAnswer:
            status = status_in_session(answer)
            answer = answer.text or b""
        if self.whole:
            self.reply.respond(status, (*JSON_LINES, *lines) if lines else JSON_LINES, answer)
        else:
            self.reply.respond(200, (*SSE_LINES, *lines), event(answer))

    def turn_away(self, answer: bytes | None, refusal: Refusal) -> None:
        turn_away(self.reply, answer, refusal, null=self.null)

    def accept(self) -> None:
        """Answer with 202: "If the server accepts the input, the server MUST return HTTP status code 202 Accepted with
        no body"."""
        self.reply.respond(202)

    def end_unanswered(self) -> None:
        """End the stream without a response."""
        self.reply.respond(200, SSE_LINES)

    def send_refusal(self, refusal: SessionRefusal, id: Any = UNSET) -> None:
        send_refusal(self.reply, refusal, id=id, null=self.null)

    def refuse_malformed(self, message: Malformed) -> None:
        refuse_malformed(self.reply, message, self.server.host.service._answers, null=self.null)

    # -- a stream

    @property
    def writable(self) -> bool:
        return self.reply.writable

    def begin(self, id: str | None = None) -> None:
        """Begin the stream. "The server SHOULD immediately send an SSE event consisting of an event ID and an empty
        `data` field in order to prime the client to reconnect" (basic/transports)."""
        if self.left:
            self._gone()
            return
        reply = self.reply
        reply.gone, reply.resumed = self._gone, self._resumed
        self.sse = SseReply(reply, self.server)
        if id is not None:
            self.sse.write(event(b"", id=id, retry=self.server.options.retry))
        if self.standing is not None:  # only now: a refused stream has nothing to end
            self.expiry = start_expiry(self.standing, self._expired)
            watch = self.server.service._watch
            if watch is not None and self.session is not None:
                self.seen = watch.streaming(self.session.peer, self.standing, self.about)

    def send(self, message: bytes, id: str | None) -> None:
        self.reply.write(event(message, id=id))

    def pause(self, id: str | None, retry: int) -> None:
        self._end(event(b"", id=id, retry=retry))

    def finish(self, message: bytes = b"", id: str | None = None) -> None:
        self._end(event(message, id=id) if message else b"")

    def complete(self, message: bytes, id: str | None, first: str | None) -> None:
        if self.left:  # a client that returns for it gets it from the log
            return
        begun = b"" if first is None else event(b"", id=first, retry=self.server.options.retry)
        self.reply.respond(200, SSE_LINES, begun + event(message, id=id))

    def refuse_unknown_stream(self) -> None:
        self.send_refusal(NO_STREAM)

    def _end(self, last: bytes) -> None:
        if self.seen is not None:
            # "cancelled", too, where a client's DELETE comes before the end of its stream's connection
            why = None if self.session is None else self.session.why
            self.seen.end("cancelled" if isinstance(why, Ended) else "notified", "" if why is None else f"{why}")
        self._over()
        self.reply.finish(last) if self.sse is None else self.sse.finish(last)

    def _gone(self) -> None:
        self.left = True
        if self.seen is not None:
            self.seen.end("cancelled", "the client closed it")
        self._over()
        if self.sse is not None:
            self.sse.stop()
        if self.gone is not None:
            self.gone()

    def _over(self) -> None:
        if self.expiry is not None:
            self.expiry.cancel()

    def _resumed(self) -> None:
        if self.resumed is not None:
            self.resumed()


def refuse_malformed(reply: Reply, message: Malformed, answers: ErrorAnswers, *, null: bool = False) -> None:
    """Answer a body that is not a message with 400."""
    if message.answerable:
        spoken = msgspec.structs.replace(dialect.MCP, null_id=null)
        reply.reject(400, message.reason)
        reply.respond(400, JSON_LINES, answers.malformed(message, spoken).text or b"")
    else:
        refuse(reply, 400, message.reason, null=null)
