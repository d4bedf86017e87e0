"""The HTTP responses that carry a session's messages: one answer as JSON, or a stream as Server-Sent Events.

A quiet stream carries a comment now and then. Statuses and header fields are decided here, and nowhere in the session.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec
from msgspec import UNSET, Struct

from ...channel import Caller
from ...jsonrpc.errors import Refusal
from ...jsonrpc.messages import Malformed
from ...rpc.responses import ErrorAnswers
from ...transports.http.messages import JSON_LINES, CommonLines, Lines, Reply
from ...transports.http.sse import comment, event
from ..protocol import dialect
from ..session.responder import FAILED, NO_STREAM, Refused
from .authorization import Expiry, expiry_of
from .errors import refuse, refused, status_in_session, turned_away
from .serving import Serving

SESSION: Final = "Mcp-Session-Id"
SSE: Final = "text/event-stream"
SSE_LINES: Final = CommonLines(
    ("Content-Type", SSE),
    ("Cache-Control", "no-store"),
    # "servers SHOULD include the `X-Accel-Buffering: no` header" (2026's basic/transports/streamable-http)
    ("X-Accel-Buffering", "no"),
)


class HttpReader(Struct, eq=False):
    """One HTTP response of a session: an `Answering`."""

    reply: Reply
    whole: bool
    streams: bool
    null: bool
    """Whether an error without an id has `"id": null`."""
    server: Serving
    gone: Callable[[], None] | None = None
    resumed: Callable[[], None] | None = None
    left: bool = False
    """The far end has gone."""
    standing: Caller | None = None
    """For a stream that is open for as long as this caller is admitted."""
    expiry: Expiry | None = None

    def wait(self) -> None:
        """The answer is not ready: notice it if the far end goes."""
        self.reply.gone = self._gone

    def _expired(self) -> None:
        if not self.left:
            self._end(b"")
            self._gone()

    # -- the whole answer

    def answer(self, answer: bytes, session: str = "") -> None:
        lines: Lines = ((SESSION, session),) if session else ()
        if self.whole:
            status = status_in_session(answer) if answer.startswith(FAILED) else 200
            self.reply.respond(status, (*JSON_LINES, *lines) if lines else JSON_LINES, answer)
        else:
            self.reply.respond(200, (*SSE_LINES, *lines), event(answer))

    def turned_away(self, answer: bytes | None, refusal: Refusal) -> None:
        turned_away(self.reply, answer, refusal, null=self.null)

    def accepted(self) -> None:
        """ "If the server accepts the input, the server MUST return HTTP status code 202 Accepted with no body"."""
        self.reply.respond(202)

    def nothing(self) -> None:
        """End the stream without a response."""
        self.reply.respond(200, SSE_LINES)

    def refused(self, refusal: Refused, id: Any = UNSET) -> None:
        refused(self.reply, refusal, id=id, null=self.null)

    def unfit(self, message: Malformed) -> None:
        unfit(self.reply, message, self.server.host.service._answers, null=self.null)

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
        reply.doubted = self._comment
        reply.start(200, SSE_LINES)
        if id is not None:
            reply.write(event(b"", id=id, retry=self.server.options.retry))
        if self.standing is not None:  # from here on: what is refused before has nothing to end
            self.expiry = expiry_of(self.standing, self._expired)
        self.server.host.clock.set(self, self.server.options.keep_alive)

    def send(self, message: bytes, id: str | None) -> None:
        self.reply.write(event(message, id=id))

    def pause(self, id: str | None, retry: int) -> None:
        self._end(event(b"", id=id, retry=retry))

    def finish(self, message: bytes = b"", id: str | None = None) -> None:
        self._end(event(message, id=id) if message else b"")

    def complete(self, message: bytes, id: str | None, first: str | None) -> None:
        if self.left:  # who returns for it gets it from the log
            return
        begun = b"" if first is None else event(b"", id=first, retry=self.server.options.retry)
        self.reply.respond(200, SSE_LINES, begun + event(message, id=id))

    def missing(self) -> None:
        self.refused(NO_STREAM)

    def _end(self, last: bytes) -> None:
        self._over()
        self.server.host.clock.drop(self)
        self.reply.finish(last)

    def _gone(self) -> None:
        self.left = True
        self._over()
        self.server.host.clock.drop(self)
        if self.gone is not None:
            self.gone()

    def _over(self) -> None:
        if self.expiry is not None:
            self.expiry.cancel()

    def _resumed(self) -> None:
        if self.resumed is not None:
            self.resumed()

    def expired(self) -> None:
        """The stream was quiet for a while: send a comment."""
        self._comment()
        self.server.host.clock.set(self, self.server.options.keep_alive)

    def _comment(self) -> None:
        if self.reply.writable:
            self.reply.write(comment())


def unfit(reply: Reply, message: Malformed, answers: ErrorAnswers, *, null: bool = False) -> None:
    """400 for a body that is not a message."""
    if message.answerable:
        spoken = msgspec.structs.replace(dialect.MCP, null_id=null)
        reply.reject(400, message.reason)
        reply.respond(400, JSON_LINES, answers.malformed(message, spoken) or b"")
    else:
        refuse(reply, 400, message.reason, null=null)
