"""Doors that several processes take callers from: how they are opened, and how they are shared fairly.

Rules:

- One caller is taken at each wake-up and no more; every process wakes up, so the one that has less to do is quicker.
- A process that carries more channels than another gives way for a moment, lest a burst go to the one that wakes up
  first.
- A process that cannot come (a handler blocks its loop) is not waited for long: patience is limited until something
  changes.
"""

from __future__ import annotations

import asyncio
import logging
import mmap
import socket
import ssl
from collections.abc import Callable, Sequence

from ..jsonrpc.errors import LocalError
from .scheme import SCHEMES
from .sockets import bind, bind_unix, door_of, in_words, remote_name
from .urls import masked, parse, scheme_of

log = logging.getLogger("dragoman.wire")

MOMENT = 0.005
"""Seconds for others to take a caller."""
TLS_GOODBYE = 2.0
"""Seconds for the far end to answer our TLS close_notify."""
PATIENCE = 20
"""How many moments are given to others who do nothing with them."""
ABSENT = -1


class SharedSockets:
    """The sockets of several URLs, bound once for all processes that will take callers from them."""

    def __init__(self) -> None:
        self.sockets: dict[str, list[socket.socket]] = {}
        self._removals: list[Callable[[], None]] = []

    @classmethod
    async def open(cls, urls: Sequence[str], mode: int) -> SharedSockets:
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
        row = SCHEMES.get(scheme_of(url))
        if row is not None and row.alone:
            raise LocalError(f"{masked(url)} and several workers do not go together: {row.alone}")
        kind = "" if row is None else row.socket
        place = door_of(url)
        if place in self.sockets:
            raise LocalError(f"{masked(place)} stands twice; each URL needs an address of its own")
        if kind == "stream":
            self.sockets[place] = await bind(parse(url), socket.SOCK_STREAM)
        elif kind == "datagram":
            self.sockets[place] = await bind(parse(url), socket.SOCK_DGRAM)
        elif kind == "unix":
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


class LoadBoard:
    """How many channels each of several processes carries, in memory that all of them see. `place`: our own line in
    it, from 0; ABSENT where there is none."""

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
    """A listening socket that we accept from ourselves, in place of an `asyncio.Server`: because other processes take
    callers from it, too, and asyncio's loop takes all it can get; or because of TLS, since asyncio's neither counts nor
    reports handshakes.

    `carried`: how many channels that came in here are open. `full`: no further one may come; who is on its way in counts
    among them (`arriving`). `accepts`: how many are taken at one wake-up.
    """

    def __init__(
        self,
        door: socket.socket,
        make: Callable[[], asyncio.BaseProtocol],
        carried: Callable[[], int],
        crowd: LoadBoard | None,
        *,
        full: Callable[[], bool],
        url: str,
        tls: ssl.SSLContext | None = None,
        handshake: float | None = None,
        accepts: int = 1,
    ) -> None:
        self._door = door
        self._make = make
        self._full = full
        self._url = url
        self._accepts = accepts
        self._more = (
            {} if tls is None else {"ssl": tls, "ssl_handshake_timeout": handshake, "ssl_shutdown_timeout": TLS_GOODBYE}
        )
        self._loop = asyncio.get_running_loop()
        self.arriving: set[asyncio.Task[None]] = set()
        """Those who were accepted and whose channel is being made."""
        self._unbegun: set[socket.socket] = (
            set()
        )  # of tasks that have not run yet: who is cancelled then closes nothing
        self._again: asyncio.TimerHandle | None = None
        self._carried = carried
        self._crowd = crowd
        if crowd is not None:
            crowd.join(carried)
        self._loop.add_reader(door, self._knocked)

    def close(self, *, grace: bool = False) -> None:
        """Take no more callers; others may. `grace`: those on their way in may come in."""
        if self._again is not None:
            self._again.cancel()
        if self._crowd is not None:
            self._crowd.leave(self._carried)
        if self._door.fileno() >= 0:
            self._loop.remove_reader(self._door)
            self._door.close()
        if not grace:
            self._turn_back()

    def _turn_back(self) -> None:
        for task in tuple(self.arriving):
            task.cancel()

    async def wait_closed(self) -> None:
        """Wait for the end of those who were on their way in."""
        self._turn_back()
        if self.arriving:
            await asyncio.wait(self.arriving)
        for sock in self._unbegun:
            sock.close()

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
        for _ in range(self._accepts):
            try:
                sock, name = self._door.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return  # another was quicker
            except OSError as fault:  # no more descriptors: let others go first
                log.warning("%s: cannot accept: %s; trying again in a second", self._url, in_words(fault))
                self._rest(1.0)
                return
            remote = remote_name(name)
            if self._full():
                log.debug("%s: %s turned away: limits.channels", self._url, remote)
                sock.close()
                continue
            sock.setblocking(False)
            self._unbegun.add(sock)
            task = self._loop.create_task(self._arrive(sock, remote))
            self.arriving.add(task)
            task.add_done_callback(self.arriving.discard)

    async def _arrive(self, sock: socket.socket, remote: str) -> None:
        self._unbegun.discard(sock)
        try:
            await self._loop.connect_accepted_socket(self._make, sock, **self._more)  # type: ignore[arg-type]
        except OSError as fault:
            log.debug("%s: no handshake with %s: %s", self._url, remote, in_words(fault))
            sock.close()
