"""Free ports, for programs that are told where to listen.

They lie below those that the system gives to outgoing connections, so that none of these takes one before the program
listens there. Runs beside each other do not give the same one: a port that is given is held by a name of an abstract
Unix socket (Linux) until the process of the tests ends.
"""

from __future__ import annotations

import secrets
import socket
import sys

FIRST, COUNT = 20_000, 12_000
_given: set[int] = set()


def free_port() -> int:
    """A port on which no process listens, of TCP or UDP; another one each time."""
    while True:
        port = FIRST + secrets.randbelow(COUNT)
        if port in _given:
            continue
        try:
            for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
                with socket.socket(socket.AF_INET, kind) as probe:
                    probe.bind(("127.0.0.1", port))
            _hold(port)
        except OSError:
            continue
        _given.add(port)
        return port


def _hold(port: int) -> None:
    """Raises OSError where another process has been given this port."""
    if sys.platform == "linux":
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as held:
            held.bind(f"\0dragoman-tests-port-{port}")
            held.detach()
