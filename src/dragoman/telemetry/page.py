"""What serves `/metrics`: a `Servable` for an HTTP address of its own, so that no caller of the service sees it."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping

from ..transports.http.alone import HttpAlone
from ..transports.http.messages import HttpRequest, Reply
from .figures import MEDIA_TYPE

log: logging.Logger = logging.getLogger("dragoman.telemetry")

PATH = "/metrics"


class MetricsPage(HttpAlone):
    """Serves a text at `/metrics` below its URL: `serve(MetricsPage(metrics.text), urls="http://127.0.0.1:9090")`.

    `text`: makes Prometheus' text format, at each GET; a function, or a coroutine function.
    """

    def __init__(self, text: Callable[[], bytes] | Callable[[], Awaitable[bytes]]) -> None:
        super().__init__("metrics", "This serves metrics alone, at GET /metrics")
        self._text = text

    def http_endpoints(self, at: str) -> Mapping[str, Callable[[HttpRequest, Reply], None]]:
        """Return the endpoint at `/metrics`."""
        return {at.rstrip("/") + PATH: self._get}

    def _get(self, request: HttpRequest, reply: Reply) -> None:
        if request.method not in ("GET", "HEAD"):
            reply.respond(405, (("Allow", "GET, HEAD"),))
            return
        self._begin(self._answer(reply))

    async def _answer(self, reply: Reply) -> None:
        try:
            made = self._text()
            text = made if isinstance(made, bytes) else await made
        except Exception:
            log.exception("the text of the metrics could not be made")
            reply.respond(500)
            return
        reply.respond(200, (("Content-Type", MEDIA_TYPE),), text)
