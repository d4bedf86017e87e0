"""Reports to a service manager such as systemd that this process is ready, reloads, ends, and is alive.

sd_notify(3): datagrams of `NAME=value` lines to the Unix socket that NOTIFY_SOCKET names ("@": an abstract one).
Without that variable nothing is sent. A watchdog (sd_watchdog_enabled(3)) is notified twice in each of its intervals,
by the event loop, so a loop that is stuck is noticed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import time
from collections.abc import AsyncIterator

from ..system.sockets import AF_UNIX

log: logging.Logger = logging.getLogger("dragoman.serve")

SOCKET = "NOTIFY_SOCKET"


def notify(*lines: str) -> bool:
    """Send these lines in one datagram; False where no manager listens. A failure is logged, not raised."""
    address = os.environ.get(SOCKET, "")
    if not address:
        return False
    if address[0] not in "@/":
        log.warning("%s=%s is neither a path nor an abstract socket: nothing is sent", SOCKET, address)
        return False
    address = "\0" + address[1:] if address[0] == "@" else address
    try:
        with socket.socket(AF_UNIX, socket.SOCK_DGRAM) as sending:
            sending.setblocking(False)
            sending.sendto("\n".join(lines).encode(), address)
    except OSError as fault:
        log.warning("the service manager at %s was not told %s: %s", address, " ".join(lines), fault)
        return False
    return True


def notify_reloading() -> bool:
    """Report that this process reloads, which `READY=1` ends; return as `notify`."""
    return notify("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")


def watchdog_interval() -> float | None:
    """Seconds within which this process must say that it is alive; None: no watchdog is set."""
    usec, pid = os.environ.get("WATCHDOG_USEC", ""), os.environ.get("WATCHDOG_PID", "")
    if not usec.isdigit() or not int(usec) or (pid and pid != str(os.getpid())):
        return None
    return int(usec) / 1_000_000


@contextlib.asynccontextmanager
async def managed() -> AsyncIterator[None]:
    """Report that this process is ready, is alive throughout the block, and stops at its end."""
    notify("READY=1", f"MAINPID={os.getpid()}")
    interval = watchdog_interval()
    beat = None if interval is None else asyncio.get_running_loop().create_task(_notify_watchdog(interval / 2))
    try:
        yield
    finally:
        notify("STOPPING=1")
        if beat is not None:
            beat.cancel()
            await asyncio.wait([beat])


async def _notify_watchdog(pause: float) -> None:
    while True:
        notify("WATCHDOG=1")
        await asyncio.sleep(pause)
