"""The exchange of one POST of the stateless era: it ends with the answer, and is cancelled when the caller leaves."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from msgspec import Struct

from ...channel import Caller
from ...jsonrpc.codec import AnyAnswer, FailedAnswer
from ...jsonrpc.errors import Refusal
from ...transports.http.messages import JSON_LINES, STATUSES, Reply, retry_after
from ...transports.http.sse import event
from ..session.backend import McpBackend
from .authorization import Expiry, start_expiry
from .errors import status_of, turn_away
from .head import RequestHead
from .sse_reply import SSE_LINES, SseReply


class StatelessExchange(Struct, eq=False):
    """The `Exchange` of one POST."""

    reply: Reply
    request: bytes
    caller: Caller
    known: RequestHead
    server: McpBackend
    owed: bool
    """Whether the message is a request, which is owed an answer."""
    gone: Callable[[], None] | None = None
    over: bool = False
    sse: SseReply | None = None
    """The stream, once messages were sent ahead of the answer."""
    expiry: Expiry | None = None
    acknowledges: ClassVar[bool] = True
    """ "If the server accepts it, the server MUST return HTTP status code 202 Accepted with no body"."""

    def standing(self, caller: Caller) -> None:
        """Close the exchange when its caller's token expires; for subscriptions."""
        self.expiry = start_expiry(caller, self._expired)

    def _expired(self) -> None:
        if not self.over:
            self.reply.finish() if self.sse is None else self.sse.finish()
            self.left()

    def respond(self, answer: AnyAnswer) -> None:
        if self.over:
            return
        self.over = True
        if self.expiry is not None:
            self.expiry.cancel()
        text = answer.text if type(answer) is FailedAnswer else answer
        if self.sse is not None:
            # "The final JSON-RPC response SHOULD terminate the stream"
            self.sse.finish(b"" if text is None else event(text))
        elif text is None:
            self._respond_without_answer(answer.refusal if type(answer) is FailedAnswer else None)
        elif type(answer) is FailedAnswer:
            self._respond_error(answer, text)
        elif self.known.json:
            self.reply.respond(200, JSON_LINES, text)
        else:
            self.reply.respond(200, SSE_LINES, event(text))

    def _respond_without_answer(self, refusal: Refusal | None) -> None:
        if self.owed:  # it was cancelled, but not by its caller
            self.reply.respond(204)
        elif refusal is None:
            # "If the server accepts it, the server MUST return HTTP status code 202 Accepted with no body"
            self.reply.respond(202)
        else:
            turn_away(self.reply, None, refusal)

    def _respond_error(self, answer: FailedAnswer, text: bytes) -> None:
        status, refusal = status_of(answer), answer.refusal
        if status == 200 and not self.known.json:
            self.reply.respond(200, SSE_LINES, event(text))
        else:
            lines = retry_after(refusal) if refusal is not None and refusal.kind in STATUSES else ()
            self.reply.respond(status, (*JSON_LINES, *lines) if lines else JSON_LINES, text)

    def stream(self, message: bytes) -> bool:
        """Send a message ahead of the answer. False if the caller accepts no stream, or reads too slowly."""
        if self.over or not self.known.sse or not self.reply.writable:
            return False
        if self.sse is None:
            self.sse = SseReply(self.reply, self.server)
        self.sse.write(event(message))
        return True

    def left(self) -> None:
        """Cancel the call, because its caller left: "The server MUST treat a client disconnect as cancellation"
        (basic/patterns)."""
        self.over = True
        if self.expiry is not None:
            self.expiry.cancel()
        if self.sse is not None:
            self.sse.stop()
        if self.gone is not None:
            self.gone()
