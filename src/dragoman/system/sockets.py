"""What sockets know of each system alone: Unix sockets, who is at their far end, what has not left."""

from __future__ import annotations

import errno
import os
import socket
import struct
import sys
from contextlib import suppress
from typing import Final

UNIX: Final = hasattr(socket, "AF_UNIX")
"""Whether there are Unix sockets; Python on Windows has none."""
NO_UNIX: Final = "this system has no Unix sockets in Python: write tcp://127.0.0.1:PORT or http://127.0.0.1:PORT"
"""Why there are none, in words."""
AF_UNIX: Final = getattr(socket, "AF_UNIX", -1)
"""The family of Unix sockets, which is that of no socket where there are none."""
LONGEST_PATH: Final = 103 if sys.platform == "darwin" else 107
"""Longest path of a socket in bytes: `sun_path` has 104 on macOS and 108 elsewhere, one of which is the final NUL."""

LOOKUP: Final = "getent hosts" if sys.platform == "linux" else "nslookup"
"""The command that asks for the addresses of a name."""

if sys.platform == "win32":
    REUSE: Final = getattr(socket, "SO_EXCLUSIVEADDRUSE", None)
    """The option of a listening socket that is to be bound again soon after another. Windows needs none for that, and
    its SO_REUSEADDR lets any program take the address away."""

    _ERRORS: Final = {
        64: errno.ECONNRESET,  # ERROR_NETNAME_DELETED
        121: errno.ETIMEDOUT,  # ERROR_SEM_TIMEOUT
        995: errno.ECONNRESET,  # ERROR_OPERATION_ABORTED
        1225: errno.ECONNREFUSED,  # ERROR_CONNECTION_REFUSED
        1231: errno.ENETUNREACH,  # ERROR_NETWORK_UNREACHABLE
        1232: errno.EHOSTUNREACH,  # ERROR_HOST_UNREACHABLE
        1234: errno.ECONNREFUSED,  # ERROR_PORT_UNREACHABLE
        1236: errno.ECONNRESET,  # ERROR_CONNECTION_ABORTED
    }

    def number_of(system: int) -> int | None:
        """Return the number in `errno` for one that only Windows has, as the proactor loop reports them."""
        return _ERRORS.get(system)

    def unsent(sock: socket.socket) -> int:
        """Return how many bytes the system has not sent; 0: Windows does not say."""
        return 0

    def user_id() -> int | None:
        """Return the number of the user as whom this process runs; None where users have none."""
        return None

else:
    import fcntl
    import termios

    REUSE: Final = socket.SO_REUSEADDR
    """The option of a listening socket that is to be bound again soon after another."""

    def number_of(system: int) -> int | None:
        """Return None: there are no numbers but those in `errno`."""
        return None

    _UNSENT: Final = getattr(termios, "TIOCOUTQ", None)

    def unsent(sock: socket.socket) -> int:
        """Return how many bytes the system has not sent, or whose arrival is not confirmed; 0 where it does not say."""
        if _UNSENT is not None:
            with suppress(OSError, ValueError):
                return int.from_bytes(fcntl.ioctl(sock.fileno(), _UNSENT, bytes(4)), sys.byteorder)
        return 0

    def user_id() -> int | None:
        """Return the number of the user as whom this process runs; None where users have none."""
        return os.geteuid()


def peer_process(sock: socket.socket) -> tuple[int, int, int] | None:
    """Return the process, the user and the group at the far end of a Unix socket; None where the system does not name
    them. Raises OSError."""
    if sys.platform == "darwin":  # unix(4): struct xucred, whose first group is the effective one
        about = sock.getsockopt(_SOL_LOCAL, _LOCAL_PEERCRED, _XUCRED.size)
        version, user, count, *groups = _XUCRED.unpack(about)
        if version or not count:
            return None
        (process,) = struct.unpack("i", sock.getsockopt(_SOL_LOCAL, _LOCAL_PEERPID, 4))
        return process, user, groups[0]
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        return None
    process, user, group = _UCRED.unpack(sock.getsockopt(socket.SOL_SOCKET, option, _UCRED.size))
    return process, user, group


_UCRED: Final = struct.Struct("iII")  # struct ucred of unix(7)
_XUCRED: Final = struct.Struct("IIh2x16I")
_SOL_LOCAL: Final = 0
_LOCAL_PEERCRED: Final = 1
_LOCAL_PEERPID: Final = 2
