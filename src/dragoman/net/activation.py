"""Sockets that a service manager has opened for this process: sd_listen_fds(3), systemd's socket activation.

Rules:

- They are the descriptors from 3 on, LISTEN_FDS of them, where LISTEN_PID is this process. The variables are taken out
  of the environment, so that child processes do not take the sockets for theirs.
- A URL gets the socket that is bound to its address, each once; the names of LISTEN_FDNAMES are not needed for that. An
  IPv6 socket for all addresses serves IPv4 as well, unless it was opened for IPv6 alone.
- The manager made the file of a Unix socket, and with its own permissions, so it is not removed here.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import MutableMapping

from ..system.sockets import AF_UNIX, UNIX

log: logging.Logger = logging.getLogger("dragoman.serve")

FIRST = 3
"""SD_LISTEN_FDS_START."""
MOST = 1_000
"""Sockets; a number above is a mistake in the environment."""
VARIABLES = ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES")


class Activation:
    """The sockets of the service manager that no URL has taken yet."""

    def __init__(self, environment: MutableMapping[str, str]) -> None:
        pid, count, _ = (environment.get(name, "") for name in VARIABLES)
        self._open: list[socket.socket] = []
        if pid != str(os.getpid()) or not (count.isascii() and count.isdigit()) or int(count) > MOST:
            return
        for name in VARIABLES:
            environment.pop(name, None)
        if not UNIX:
            log.warning(
                "LISTEN_FDS is set, and there are no sockets of a service manager on Windows: they are not used"
            )
            return
        for number in range(FIRST, FIRST + int(count)):
            try:
                one = socket.socket(fileno=number)
            except OSError:  # not a socket: a file or a FIFO that the unit has as well
                continue
            one.set_inheritable(False)
            one.setblocking(False)
            self._open.append(one)

    def take(self, family: int, kind: int, address: object) -> socket.socket | None:
        """Take the socket of an address: (host, port, ...) or a path. None if there is none, or none that listens."""
        for one in self._open:
            if one.type == kind and serves(one, family, address) and (kind != socket.SOCK_STREAM or _listens(one)):
                self._open.remove(one)
                return one
        return None

    @property
    def untaken(self) -> bool:
        """Whether there are sockets that are not taken."""
        return bool(self._open)

    def holder(self, port: int, kind: int) -> str:
        """Return the address of a socket that is not taken and has this port, so that no other socket can be bound to
        it; "" if there is none."""
        for one in self._open:
            if one.family in _ALL and one.type == kind and one.getsockname()[1] == port:
                return _shown(one.getsockname())
        return ""

    def warn(self) -> None:
        """Log the sockets that no URL names; called when everything listens."""
        for one in self._open:
            address = _shown(one.getsockname())
            log.warning("the service manager opened a socket at %s, which no URL of what is served names", address)


_ALL = {socket.AF_INET: "0.0.0.0", socket.AF_INET6: "::"}
"""The address that means every address of this machine, by family."""


def serves(one: socket.socket, family: int, address: object) -> bool:
    """Whether a bound socket gets what is sent to an address: (host, port, ...), or a path, which may lead through
    symbolic links (`/var/run` is one to `/run`)."""
    if not isinstance(address, tuple):
        path = one.getsockname() if one.family == family == AF_UNIX else None
        return isinstance(path, str) and os.path.realpath(path) == os.path.realpath(str(address))
    if one.family not in _ALL:
        return False
    host, port = one.getsockname()[:2]
    if port != address[1]:
        return False
    if one.family == family:
        return bool(host == address[0])
    both = one.family == socket.AF_INET6 and not one.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY)
    return both and host == "::" and address[0] == _ALL[socket.AF_INET]


def _listens(one: socket.socket) -> bool:
    """Return whether a socket listens; a connection, which systemd passes with Accept=yes, does not."""
    return bool(one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))


def _shown(name: object) -> str:
    if isinstance(name, tuple):
        return f"[{name[0]}]:{name[1]}" if ":" in str(name[0]) else f"{name[0]}:{name[1]}"
    return os.fsdecode(name) if isinstance(name, bytes) else str(name)


_activation: Activation | None = None


def activation() -> Activation:
    """Return this process's sockets, read from the environment at the first use."""
    global _activation
    if _activation is None:
        _activation = Activation(os.environ)
    return _activation
