"""A browser at a console's feed: `URL reading|hung`, until its stdin or the feed ends. A hung one never reads."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from urllib.parse import urlsplit

SMALL = 4_096
"""The bytes that a hung one lets the system take for it, or the system would read for it all the while."""


def leave_core() -> None:
    """Go to other cores than that of the server, which has started this process."""
    if hasattr(os, "sched_getaffinity"):
        others = set(range(os.cpu_count() or 1)) - os.sched_getaffinity(0)
        with contextlib.suppress(OSError):  # it has the only one
            os.sched_setaffinity(0, others)


def main(url: str, manner: str) -> None:
    """Open the feed, and read it or not."""
    leave_core()
    parts = urlsplit(url)
    wire = socket.socket()
    if manner == "hung":
        wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL)
    wire.connect((parts.hostname, parts.port))
    lines = f"GET /api/feed HTTP/1.1\r\nHost: {parts.netloc}\r\nAuthorization: Bearer {parts.fragment}\r\n\r\n"
    wire.sendall(lines.encode())
    if not wire.recv(16).startswith(b"HTTP/1.1 200"):
        raise SystemExit("the console has refused its feed")
    if manner == "hung":
        sys.stdin.read()
    while wire.recv(65_536):
        pass


if __name__ == "__main__":
    main(*sys.argv[1:])
