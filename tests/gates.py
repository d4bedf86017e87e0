"""A gate for programs that a test starts: they wait until the test opens it."""

from __future__ import annotations

import socket


class Gate:
    """Closed until `close`, which opens it. A program waits by a connection to the address `name`, HOST:PORT, and
    a read, which ends when nobody listens any more."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.name: str = f"127.0.0.1:{self._listening.getsockname()[1]}"

    def close(self) -> None:
        """Let them go on: connections that nobody has accepted end."""
        self._listening.close()
