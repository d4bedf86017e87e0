"""A receiver of OTLP over HTTP."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, TypeVar

T = TypeVar("T")


@contextmanager
def receiver(request: type[T], path: str) -> Iterator[tuple[str, list[T]]]:
    """Receive requests of this type at this path: the URL, and what it was sent, decoded."""
    got: list[T] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.path == path
            decode: Any = request
            got.append(decode.FromString(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None: ...

    with ExitStack() as ends:
        server = ends.enter_context(HTTPServer(("127.0.0.1", 0), Handler))
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        ends.callback(thread.join)
        ends.callback(server.shutdown)
        yield f"http://127.0.0.1:{server.server_port}{path}", got
