"""Accepting connections, also from sockets that several processes share: how these are opened, and how the load is
shared fairly.

Rules:

- A caller that has connected before a socket closes is served: connections that wait in the kernel's queue are accepted
  first, unless another process accepts them.
- From a shared socket one caller is taken at each wake-up and no more; every process wakes up, so the one that has less
  to do is quicker.
- A process that carries more channels than another gives way for a moment, lest a burst go to the one that wakes up
  first.
- A process that cannot accept (a handler blocks its loop) is not waited for long: after `PATIENCE` moments the others
  accept, until a number on the board changes.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import mmap
import socket
import ssl
from collections.abc import Callable, Iterable, Sequence

from ..jsonrpc.errors import LocalError
from ..system.watching import add_reader, remove_reader
from .scheme import SCHEMES
from .sockets import BACKLOG, TLS_GOODBYE, bind, bind_unix, in_words, listening_address, remote_name
from .urls import mask_url, parse, scheme_of

log: logging.Logger = logging.getLogger("dragoman.wire")

MOMENT = 0.005
"""Seconds that other processes have to accept a connection."""
ON_ITS_WAY = 2.0
"""Seconds in which a request arrives that was sent before its sender could know that we are closing; on a busy machine
a sender may wait as long for its turn."""
ACCEPTS = 16
"""Connections accepted at one wake-up from a socket of this process alone."""
PATIENCE = 20
"""How many times this process waits a `MOMENT` for others that do not accept."""
ABSENT = -1
"""In place of the number of a process that does not accept."""


def check_shared(urls: Sequence[str]) -> None:
    """Raise LocalError for URLs that several processes cannot serve together."""
    addresses = set()
    for url in urls:
        row = SCHEMES.get(scheme_of(url))
        if row is not None and row.alone:
            raise LocalError(f"{mask_url(url)} and several workers do not go together: {row.alone}")
        if row is not None and row.socket:
            address = listening_address(url)
            if address in addresses:
                raise LocalError(f"{mask_url(address)} stands twice; each URL needs an address of its own")
            addresses.add(address)


class SharedSockets:
    """The sockets of several URLs, bound once for all processes that accept from them."""

    def __init__(self) -> None:
        self.sockets: dict[str, list[socket.socket]] = {}
        self._removals: list[Callable[[], None]] = []

    @classmethod
    async def open(cls, urls: Sequence[str], mode: int) -> SharedSockets:
        """Bind every URL that needs a socket; wires to a broker need none. `mode`: the permissions of Unix sockets.
        Raises LocalError for a URL that cannot be listened on, or not by several processes."""
        check_shared(urls)
        shared = cls()
        try:
            for url in urls:
                await shared._bind(url, mode)
        except BaseException:
            shared.close()
            raise
        return shared

    async def _bind(self, url: str, mode: int) -> None:
        row = SCHEMES.get(scheme_of(url))
        kind = "" if row is None else row.socket
        address = listening_address(url)
        if kind == "stream":
            self.sockets[address] = await bind(parse(url), socket.SOCK_STREAM)
        elif kind == "datagram":
            self.sockets[address] = await bind(parse(url), socket.SOCK_DGRAM)
        elif kind == "unix":
            listening, remove = bind_unix(parse(url), mode)
            self.sockets[address] = [listening]
            self._removals.append(remove)

    def numbers(self) -> dict[str, list[int]]:
        """Return their file descriptors by URL, as in `Options.sockets`."""
        return {url: [one.fileno() for one in sockets] for url, sockets in self.sockets.items()}

    def close(self) -> None:
        """Close the sockets, so that no connection waits in a queue from which no process accepts."""
        for remove in self._removals:
            remove()
        self._removals.clear()
        for sockets in self.sockets.values():
            for one in sockets:
                one.close()
        self.sockets.clear()


class LoadBoard:
    """The number of channels of each of several processes, in shared memory. `slot`: this process's entry, from 0;
    ABSENT if it has none."""

    def __init__(self, descriptor: int, slot: int) -> None:
        self._memory = mmap.mmap(descriptor, 0)
        self._table = memoryview(self._memory).cast("q")
        self._slot = slot
        self._carried: list[Callable[[], int]] = []
        self._seen: list[int] = []
        self._patience = PATIENCE

    def join(self, carried: Callable[[], int]) -> None:
        """Add a listener of this process that has opened; `carried` counts its channels."""
        self._carried.append(carried)
        self._update()

    def leave(self, carried: Callable[[], int]) -> None:
        """Remove a listener that has closed. After the last one the entry is no longer ours: it may belong to the
        worker that replaces this one."""
        if carried in self._carried:
            self._carried.remove(carried)

    def gives_way(self) -> bool:
        """Return whether to let a process with fewer channels accept a connection."""
        mine = self._update()
        others = [count for at, count in enumerate(self._table) if at != self._slot and count != ABSENT]
        if others != self._seen:
            self._seen, self._patience = others, PATIENCE
        if not others or min(others) >= mine or not self._patience:
            return False
        self._patience -= 1
        return True

    def _update(self) -> int:
        mine = sum(carried() for carried in self._carried)
        self._table[self._slot] = mine
        return mine


class SocketAcceptor:
    """A listening socket whose accepting we do ourselves instead of an `asyncio.Server`, which at its end resets the
    connections in the socket's queue, takes as many as it can where other processes accept too, and neither counts nor
    reports TLS handshakes.

    `carried`: how many channels that came in here are open. `full`: whether no further one may come; those on their
    way in (`arriving`) count too. `shared`: other processes accept from the socket.
    """

    def __init__(
        self,
        listening: socket.socket,
        make: Callable[[], asyncio.BaseProtocol],
        carried: Callable[[], int],
        load_board: LoadBoard | None,
        *,
        full: Callable[[], bool],
        url: str,
        tls: ssl.SSLContext | None = None,
        handshake: float | None = None,
        shared: bool = False,
    ) -> None:
        self._listening = listening
        self._make = make
        self._full = full
        self._url = url
        self._shared = shared
        self._more = (
            {} if tls is None else {"ssl": tls, "ssl_handshake_timeout": handshake, "ssl_shutdown_timeout": TLS_GOODBYE}
        )
        self._loop = asyncio.get_running_loop()
        self.arriving: set[asyncio.Task[None]] = set()
        """Connections that are accepted and whose channels are being made."""
        self._unbegun: set[socket.socket] = (
            set()
        )  # their tasks have not run yet: one that is cancelled now does not close its socket
        self._again: asyncio.TimerHandle | None = None
        self._carried = carried
        self._load_board = load_board
        if load_board is not None:
            load_board.join(carried)
        add_reader(self._loop, listening, self._readable)

    def close(self) -> None:
        """Accept the connections that wait, and no more; of a shared socket other processes accept. Those on their way
        in arrive until `wait_closed`."""
        if self._again is not None:
            self._again.cancel()
        if self._load_board is not None:
            self._load_board.leave(self._carried)
        if self._listening.fileno() >= 0:
            remove_reader(self._loop, self._listening)
            if not self._shared:
                self._take(BACKLOG + 1)  # as many as the system lets wait
            self._listening.close()

    async def wait_closed(self) -> None:
        """Wait for the end of the connections that were being accepted."""
        for task in tuple(self.arriving):
            task.cancel()
        if self.arriving:
            await asyncio.wait(self.arriving)
        for sock in self._unbegun:
            sock.close()

    def _readable(self) -> None:
        if self._load_board is not None and self._load_board.gives_way():
            self._rest(MOMENT)
        else:
            self._accept()

    def _rest(self, seconds: float) -> None:
        remove_reader(self._loop, self._listening)
        self._again = self._loop.call_later(seconds, self._return)

    def _return(self) -> None:
        add_reader(self._loop, self._listening, self._readable)
        self._accept()

    def _accept(self) -> None:
        fault = self._take(1 if self._shared else ACCEPTS)
        if fault is not None:
            log.warning("%s: cannot accept: %s; trying again in a second", self._url, in_words(fault))
            self._rest(1.0)

    def _take(self, most: int) -> OSError | None:
        """Accept the connections that wait, at most `most`. Return the error if we cannot: no descriptors are left."""
        for _ in range(most):
            try:
                sock, name = self._listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionError):
                break  # none is left, another process has accepted it, or its far end has gone
            except OSError as fault:
                if fault.errno == errno.ENOTCONN:  # the same, on Windows
                    break
                return fault
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
        return None

    async def _arrive(self, sock: socket.socket, remote: str) -> None:
        self._unbegun.discard(sock)
        try:
            await self._loop.connect_accepted_socket(self._make, sock, **self._more)  # type: ignore[arg-type]
        except OSError as fault:
            log.debug("%s: no handshake with %s: %s", self._url, remote, in_words(fault))
            sock.close()


async def wait_for_arrivals(acceptors: Iterable[SocketAcceptor], seconds: float) -> None:
    """Wait until all accepted connections have arrived, at most so long, and no longer than `ON_ITS_WAY`."""
    if tasks := [task for acceptor in acceptors for task in acceptor.arriving]:
        await asyncio.wait(tasks, timeout=min(ON_ITS_WAY, seconds))
