"""Doors that several processes take callers from: how they are opened, and how they are shared fairly.

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
from collections.abc import Callable, Sequence

from ..jsonrpc.errors import LocalError
from .sockets import bind, bind_unix, door_of, in_words
from .urls import masked, parse, scheme_of

log = logging.getLogger("dragoman.wire")

MOMENT = 0.005
"""Seconds for others to take a caller."""
PATIENCE = 20
"""How many moments are given to others who do nothing with them."""
ABSENT = -1

_STREAMS = ("http", "https", "ws", "wss", "tcp", "tls")
_NOT_SHARED = {
    "stdio": "a process has one standard input, which workers cannot share",
    "memory": "what is in one process's memory cannot be shared by several",
}


class Doors:
    """The sockets of several URLs, bound once for all processes that will take callers from them."""

    def __init__(self) -> None:
        self.sockets: dict[str, list[socket.socket]] = {}
        self._removals: list[Callable[[], None]] = []

    @classmethod
    async def open(cls, urls: Sequence[str], mode: int) -> Doors:
        """Bind what can be bound; wires to a broker need no socket. `mode`: the permissions of Unix sockets. LocalError
        for a URL that cannot be listened on, or not by several processes."""
        doors = cls()
        try:
            for url in urls:
                await doors._bind(url, mode)
        except BaseException:
            doors.close()
            raise
        return doors

    async def _bind(self, url: str, mode: int) -> None:
        scheme = scheme_of(url)
        if scheme in _NOT_SHARED:
            raise LocalError(f"{masked(url)} and several workers do not go together: {_NOT_SHARED[scheme]}")
        place = door_of(url)
        if place in self.sockets:
            raise LocalError(f"{masked(place)} stands twice; each URL needs an address of its own")
        if scheme in _STREAMS:
            self.sockets[place] = await bind(parse(url), socket.SOCK_STREAM)
        elif scheme == "udp":
            self.sockets[place] = await bind(parse(url), socket.SOCK_DGRAM)
        elif scheme == "unix":
            door, remove = bind_unix(parse(url), mode)
            self.sockets[place] = [door]
            self._removals.append(remove)

    def numbers(self) -> dict[str, list[int]]:
        """Their descriptors, by URL: see `Options.sockets`."""
        return {url: [door.fileno() for door in doors] for url, doors in self.sockets.items()}

    def close(self) -> None:
        """Keep the machine's queue open no longer than there is somebody to take callers from it."""
        for remove in self._removals:
            remove()
        self._removals.clear()
        for doors in self.sockets.values():
            for door in doors:
                door.close()
        self.sockets.clear()


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
