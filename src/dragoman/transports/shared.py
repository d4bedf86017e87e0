"""Doors that several processes take callers from, and how they share them fairly.

Rules:

- One caller is taken at each wake-up and no more; every process wakes up, so whoever has less to do is quicker.
- A process that carries more channels than another gives way for a moment, lest a burst go to whoever wakes up first.
- Who cannot come (a handler blocks his loop) is not waited for long: patience is limited until something changes.
"""

from __future__ import annotations

import asyncio
import logging
import mmap
import socket
import ssl
from collections.abc import Callable

from .sockets import in_words

log = logging.getLogger("dragoman.wire")

MOMENT = 0.005
"""Seconds for others to take a caller."""
PATIENCE = 20
"""How many moments are given to others who do nothing with them."""
ABSENT = -1


class Crowd:
    """How many channels each of several processes carries, in memory that all of them see. `place`: our own line in
    it, from 0; ABSENT where nobody is."""

    def __init__(self, descriptor: int, place: int) -> None:
        self._memory = mmap.mmap(descriptor, 0)
        self._table = memoryview(self._memory).cast("q")
        self._place = place
        self._carried: list[Callable[[], int]] = []
        self._seen: list[int] = []
        self._patience = PATIENCE

    def join(self, carried: Callable[[], int]) -> None:
        """A door of ours is open; `carried` counts its channels."""
        self._carried.append(carried)
        self._tell()

    def leave(self, carried: Callable[[], int]) -> None:
        """It is closed. After the last one our line is no longer ours: it may be our successor's."""
        if carried in self._carried:
            self._carried.remove(carried)

    def gives_way(self) -> bool:
        """Should a caller be left to somebody who carries less?"""
        mine = self._tell()
        others = [count for at, count in enumerate(self._table) if at != self._place and count != ABSENT]
        if others != self._seen:
            self._seen, self._patience = others, PATIENCE
        if not others or min(others) >= mine or not self._patience:
            return False
        self._patience -= 1
        return True

    def _tell(self) -> int:
        mine = sum(carried() for carried in self._carried)
        self._table[self._place] = mine
        return mine


class SharedDoor:
    """A listening socket that other processes take callers from, too. It stands in for an `asyncio.Server`, whose loop
    takes all it can get. `carried`: how many channels that came in here are open."""

    def __init__(
        self,
        door: socket.socket,
        make: Callable[[], asyncio.BaseProtocol],
        carried: Callable[[], int],
        crowd: Crowd | None,
        *,
        tls: ssl.SSLContext | None = None,
        handshake: float | None = None,
    ) -> None:
        self._door = door
        self._make = make
        self._more = {} if tls is None else {"ssl": tls, "ssl_handshake_timeout": handshake}
        self._loop = asyncio.get_running_loop()
        self.arriving: set[asyncio.Task[None]] = set()
        """Those who were accepted and whose channel is being made."""
        self._again: asyncio.TimerHandle | None = None
        self._carried = carried
        self._crowd = crowd
        if crowd is not None:
            crowd.join(carried)
        self._loop.add_reader(door, self._knocked)

    def close(self) -> None:
        """Take nobody more; others may."""
        if self._again is not None:
            self._again.cancel()
        if self._crowd is not None:
            self._crowd.leave(self._carried)
        if self._door.fileno() >= 0:
            self._loop.remove_reader(self._door)
            self._door.close()

    async def wait_closed(self) -> None:
        """Wait for those who were on their way in."""
        if self.arriving:
            await asyncio.wait(self.arriving)

    def _knocked(self) -> None:
        if self._crowd is not None and self._crowd.gives_way():
            self._rest(MOMENT)
        else:
            self._take()

    def _rest(self, seconds: float) -> None:
        self._loop.remove_reader(self._door)
        self._again = self._loop.call_later(seconds, self._return)

    def _return(self) -> None:
        self._loop.add_reader(self._door, self._knocked)
        self._take()

    def _take(self) -> None:
        try:
            sock, _ = self._door.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return  # another was quicker
        except OSError as fault:  # no more descriptors: let others go first
            log.warning("cannot accept: %s; trying again in a second", in_words(fault))
            self._rest(1.0)
            return
        sock.setblocking(False)
        task = self._loop.create_task(self._arrive(sock))
        self.arriving.add(task)
        task.add_done_callback(self.arriving.discard)

    async def _arrive(self, sock: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(self._make, sock, **self._more)  # type: ignore[arg-type]
        except OSError as fault:
            log.debug("no handshake: %s", in_words(fault))
            sock.close()
