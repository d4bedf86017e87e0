"""A receiver of OTLP over HTTP."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeVar

T = TypeVar("T")


@contextmanager
def receivers(
    requests: Mapping[str, type[Any]], arrived: Callable[[], object] = lambda: None
) -> Iterator[tuple[str, dict[str, list[Any]]]]:
    """Receive requests of these types at these paths: the URL above them, and what each was sent, decoded. `arrived`:
    called after each, in a thread."""
    got: dict[str, list[Any]] = {path: [] for path in requests}

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            decode: Any = requests[self.path]
            got[self.path].append(decode.FromString(self.rfile.read(int(self.headers["Content-Length"]))))
            arrived()
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None: ...

    with ExitStack() as ends:
        server = ends.enter_context(ThreadingHTTPServer(("127.0.0.1", 0), Handler))
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        ends.callback(thread.join)
        ends.callback(server.shutdown)
        yield f"http://127.0.0.1:{server.server_port}", got


@contextmanager
def receiver(request: type[T], path: str) -> Iterator[tuple[str, list[T]]]:
    """Receive requests of this type at this path: the URL, and what it was sent, decoded."""
    with receivers({path: request}) as (url, got):
        yield f"{url}{path}", got[path]
