"""Free ports, for programs that are told where to listen.

They lie below those that the system gives to outgoing connections, so that none of these takes one before the program
listens there; and they are chosen by chance, so that runs beside each other do not choose the same.
"""

from __future__ import annotations

import secrets
import socket

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
        except OSError:
            continue
        _given.add(port)
        return port
