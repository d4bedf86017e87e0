"""The HTTP responses that carry a session's messages: one answer as JSON, or a stream as Server-Sent Events.

A quiet stream carries a comment now and then. Statuses and header fields are decided here, and nowhere in the session.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec
from msgspec import UNSET

from ...channel import Caller
from ...jsonrpc.errors import Refusal
from ...jsonrpc.messages import Malformed
from ...rpc.responses import Answers
from ...transports.http.messages import JSON_LINES, CommonLines, Lines, Reply
from ...transports.http.sse import comment, event
from ..protocol import dialect
from ..session.responder import FAILED, NO_STREAM, Refused
from .authorization import Expiry, expiry_of
from .errors import refuse, refused, status_in_session, turned_away
from .head import RequestHead
from .serving import Serving

SESSION: Final = "Mcp-Session-Id"
SSE: Final = "text/event-stream"
SSE_LINES: Final = CommonLines(
    ("Content-Type", SSE),
    ("Cache-Control", "no-store"),
    # "servers SHOULD include the `X-Accel-Buffering: no` header" (2026's basic/transports/streamable-http)
    ("X-Accel-Buffering", "no"),
)


class HttpReader:
    """One HTTP response of a session: an `Answering`."""

    __slots__ = ("_expiry", "_left", "_null", "_reply", "_server", "gone", "resumed", "streams", "whole")

    def __init__(
        self,
        reply: Reply,
        known: RequestHead,
        null: bool,
        server: Serving,
    ) -> None:
        """`null`: whether an error without an id has `"id": null`."""
        self.whole: bool = known.json
        self.streams: bool = known.sse
        self.gone: Callable[[], None] | None = None
        self.resumed: Callable[[], None] | None = None
        self._reply = reply
        self._server = server
        self._null = null
        self._left = False
        self._expiry: Expiry | None = None
        reply.gone = self._gone

    def standing(self, caller: Caller) -> None:
        """It is open for as long as its caller is admitted."""
        self._expiry = expiry_of(caller, self._expired)

    def _expired(self) -> None:
        if not self._left:
            self._end(b"")
            self._gone()

    # -- the whole answer

    def answer(self, answer: bytes, session: str = "") -> None:
        lines: Lines = ((SESSION, session),) if session else ()
        if self.whole:
            status = status_in_session(answer) if answer.startswith(FAILED) else 200
            self._reply.respond(status, (*JSON_LINES, *lines) if lines else JSON_LINES, answer)
        else:
            self._reply.respond(200, (*SSE_LINES, *lines), event(answer))

    def turned_away(self, answer: bytes | None, refusal: Refusal) -> None:
        turned_away(self._reply, answer, refusal, null=self._null)

    def accepted(self) -> None:
        """ "If the server accepts the input, the server MUST return HTTP status code 202 Accepted with no body"."""
        self._reply.respond(202)

    def nothing(self) -> None:
        """End the stream without a response."""
        self._reply.respond(200, SSE_LINES)

    def refused(self, refusal: Refused, id: Any = UNSET) -> None:
        refused(self._reply, refusal, id=id, null=self._null)

    def unfit(self, message: Malformed) -> None:
        unfit(self._reply, message, self._server.host.service.answers, null=self._null)

    # -- a stream

    @property
    def writable(self) -> bool:
        return self._reply.writable

    def begin(self, id: str | None = None) -> None:
        """Begin the stream. "The server SHOULD immediately send an SSE event consisting of an event ID and an empty
        `data` field in order to prime the client to reconnect" (basic/transports)."""
        if self._left:
            self._gone()
            return
        reply = self._reply
        reply.resumed = self._resumed
        reply.doubted = self._comment
        reply.start(200, SSE_LINES)
        if id is not None:
            reply.write(event(b"", id=id, retry=self._server.options.retry))
        self._server.host.clock.set(self, self._server.options.keep_alive)

    def send(self, message: bytes, id: str | None) -> None:
        self._reply.write(event(message, id=id))

    def pause(self, id: str | None, retry: int) -> None:
        self._end(event(b"", id=id, retry=retry))

    def finish(self, message: bytes = b"", id: str | None = None) -> None:
        self._end(event(message, id=id) if message else b"")

    def complete(self, message: bytes, id: str | None, first: str | None) -> None:
        if self._left:  # who returns for it gets it from the log
            return
        begun = b"" if first is None else event(b"", id=first, retry=self._server.options.retry)
        self._reply.respond(200, SSE_LINES, begun + event(message, id=id))

    def missing(self) -> None:
        self.refused(NO_STREAM)

    def _end(self, last: bytes) -> None:
        self._over()
        self._server.host.clock.drop(self)
        self._reply.finish(last)

    def _gone(self) -> None:
        self._left = True
        self._over()
        self._server.host.clock.drop(self)
        if self.gone is not None:
            self.gone()

    def _over(self) -> None:
        if self._expiry is not None:
            self._expiry.cancel()

    def _resumed(self) -> None:
        if self.resumed is not None:
            self.resumed()

    def expired(self) -> None:
        """The stream was quiet for a while: send a comment."""
        self._comment()
        self._server.host.clock.set(self, self._server.options.keep_alive)

    def _comment(self) -> None:
        if self._reply.writable:
            self._reply.write(comment())


def unfit(reply: Reply, message: Malformed, answers: Answers, *, null: bool = False) -> None:
    """400 for a body that is not a message."""
    if message.answerable:
        spoken = msgspec.structs.replace(dialect.MCP, null_id=null)
        reply.reject(400, message.reason)
        reply.respond(400, JSON_LINES, answers.malformed(message, spoken) or b"")
    else:
        refuse(reply, 400, message.reason, null=null)
