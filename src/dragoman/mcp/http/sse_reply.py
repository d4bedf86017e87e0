"""An HTTP response that is a stream of Server-Sent Events, with a comment now and then while nothing is sent."""

from __future__ import annotations

from typing import Final

from ...transports.http.messages import CommonLines, Reply
from ...transports.http.sse import comment
from ..session.backend import McpBackend

SSE_LINES: Final = CommonLines(
    ("Content-Type", "text/event-stream"),
    ("Cache-Control", "no-store"),
    # "servers SHOULD include the `X-Accel-Buffering: no` header" (2026's basic/transports/streamable-http)
    ("X-Accel-Buffering", "no"),
)


class SseReply:
    """A stream of events over an HTTP reply, which its constructor begins."""

    __slots__ = ("_clock", "_keep_alive", "_reply")

    def __init__(self, reply: Reply, server: McpBackend) -> None:
        self._reply = reply
        self._clock = server.host.clock
        self._keep_alive = server.options.keep_alive
        reply.doubted = self._comment
        reply.start(200, SSE_LINES)
        self._clock.set(self, self._keep_alive)

    def write(self, event: bytes) -> None:
        """Send one event."""
        self._reply.write(event)

    def finish(self, last: bytes = b"") -> None:
        """Send the last event, if there is one, and end the answer."""
        self.stop()
        self._reply.finish(last)

    def stop(self) -> None:
        """Send no more comments: the caller has gone."""
        self._clock.drop(self)

    def expired(self) -> None:
        """Send a comment, because the stream was quiet for a while; the clock calls it."""
        self._comment()
        self._clock.set(self, self._keep_alive)

    def _comment(self) -> None:
        if self._reply.writable:
            self._reply.write(comment())
