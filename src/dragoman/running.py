"""`app.run`, a method of Service and of the MCP server.

`serving` imports both, so it cannot be imported here: the package sets `serve_app` when it is imported.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

serve_app: Callable[..., None]
"""Serves an app until it is stopped: `serving.run`, imported at its first call."""


def run_app(
    self: Any,
    *urls: str,
    transport: str | None = None,
    host: str | None = None,
    port: int | None = None,
    path: str | None = None,
) -> None:
    """Serve at these URLs until the end of standard input (where that is the only wire), Ctrl-C or SIGTERM, then
    drain.

    Without URLs a Service is served at http://127.0.0.1:8000, an MCP server on standard input and output.
    `transport`: "stdio", "http" (or "streamable-http"), "tcp", "ws", ...; `host` and `port`: where it
    listens, by default http, 127.0.0.1 and 8000; `path`: of the endpoint on http and ws, by default / for
    a Service and /mcp for an MCP server. For further options write `asyncio.run(serve(app, urls=...))`.
    Raises LocalError for URLs together with these options, for a path on a wire without paths, and for what
    `serve` refuses.
    """
    serve_app(self, urls, transport=transport, host=host, port=port, path=path)  # noqa: F821  (the package sets it)
