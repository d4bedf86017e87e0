"""Takes requests from a stream of `wire`: reads and acknowledges them, and takes over from dead workers.

Rules:

- The claim on held entries is renewed every third of `idle` seconds. Settled entries are acknowledged together for
  one turn of the loop, and again if the server may not have received that.
- An entry that is held here, or was settled here and may still be pending, is never taken a second time.
- The blocking reads have a connection of their own; everything else uses the adapter's.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import uuid
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from ...bus.contract import BusLost
from ...net.reconnect import RECONNECT_GRACE, BackgroundTasks, OutageLog
from ...repeats import Repeats
from ...transports.broker.contract import BrokerMessage, Outcome, Take
from . import scripts
from .connection import Denied, RedisConnection, RedisEndpoint
from .messages import after, head_of, message_of

log: logging.Logger = logging.getLogger("dragoman.wire")
repeats: Repeats = Repeats(log)

AT_ONCE = 64
"""Entries taken by one read, so that one worker does not take entries that others could run now."""
BLOCK = 2_000
"""Milliseconds of a blocking read; below the patience of a `RedisConnection`."""
DEAD = 10_000
SECONDS_TO_LEAVE = 2.0


class RedisWorker:
    """One consumer of a stream's group. `connection`: the adapter's, for commands. `reads`: for the blocking reads; its
    owner opens it before `begin`."""

    def __init__(
        self,
        connection: RedisConnection,
        endpoint: RedisEndpoint,
        stream: str,
        group: str,
        idle: float,
        *,
        take: Take,
        prefetch: int,
        on_state: Callable[[bool, str], None],
    ) -> None:
        self.reads: RedisConnection = RedisConnection(endpoint, greet=self._greet, on_state=on_state)
        self._connection, self._stream, self._group, self._idle = connection, stream, group, idle
        self._take, self._prefetch = take, prefetch
        self._me = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:6]}"
        self._reader = 0  # our number at the server
        self._reading: asyncio.Task[None] | None = None
        self._keeping: asyncio.Task[None] | None = None
        self._paused = False
        self._held: dict[bytes, BrokerMessage] = {}
        self._room = asyncio.Event()
        self._done: list[bytes] = []  # settled, to be acknowledged
        self._unconfirmed: set[bytes] = set()  # settled, and the server may not know it
        self._claiming = asyncio.Lock()
        where = f"{endpoint.shown} {stream}"
        self._background = BackgroundTasks(where)
        self._refused = OutageLog(where)

    def begin(self) -> None:
        """Take requests from now on."""
        loop = asyncio.get_running_loop()
        self._reading = loop.create_task(self._read())
        self._keeping = loop.create_task(self._keep_alive())

    async def pause(self) -> None:
        """Take no more: end the waiting read."""
        self._paused = True
        self._room.set()
        while self._reading is not None and not self._reading.done() and self._connection.alive and self.reads.alive:
            with contextlib.suppress(Denied):
                await self._connection.ask("CLIENT", "UNBLOCK", self._reader)
            await asyncio.wait([self._reading], timeout=0.05)

    async def close(self) -> None:
        """Requeue held entries, and leave the group."""
        await self.pause()
        for id, message in tuple(self._held.items()):
            self._begin_in_background(id, self._requeue(id, message, 1))
        self._held.clear()
        await self._background.wait(SECONDS_TO_LEAVE)
        self.acknowledge()
        with contextlib.suppress(BusLost, Denied):
            await scripts.LEAVE.run(self._connection, [self._stream], self._group, self._me)
        tasks = [task for task in (self._reading, self._keeping) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._background.end()

    async def _greet(self) -> None:
        try:
            self._reader = await self.reads.ask("CLIENT", "ID")
            await self._make_group(self.reads)
        except Denied as why:
            raise BusLost(f"it does not let this user serve {self._stream}: {why}") from None

    async def _make_group(self, connection: RedisConnection) -> None:
        """Create the group, from the first entry on, so that requests older than the first worker wait for it."""
        try:
            await connection.ask("XGROUP", "CREATE", self._stream, self._group, 0, "MKSTREAM")
        except Denied as why:
            if "BUSYGROUP" not in str(why):
                raise

    # -- in ---------------------------------------------------------------------------------------

    async def _read(self) -> None:
        words = ("XREADGROUP", "GROUP", self._group, self._me, "COUNT")
        lost = False
        while not self._paused:
            room = self._prefetch - len(self._held)
            if room <= 0:
                self._room.clear()
                await self._room.wait()
                continue
            try:
                if lost:
                    await self._recover()
                    lost = False
                found = await self.reads.ask(*words, min(room, AT_ONCE), "BLOCK", BLOCK, "STREAMS", self._stream, ">")
            except BusLost:
                lost = True
                await self.reads.back()
                await self._connection.back()
            except Denied as why:
                await self._repair(why)
            else:
                if found:
                    self._deliver(found[0][1])

    async def _recover(self) -> None:
        """Take the entries that were sent to us and lost with the connection: they are pending for us, and no other
        worker has them."""
        cursor = "-"
        while cursor:
            async with self._claiming:
                words = (self._group, self._me, cursor, AT_ONCE)
                last, entries, counts = await scripts.RECOVER.run(self._connection, [self._stream], *words)
                self._deliver(entries, counts)
            cursor = after(last) if last else ""

    async def _repair(self, why: Denied) -> None:
        """Make the group again if the stream was flushed or deleted; else log the refusal and wait."""
        with contextlib.suppress(BusLost):
            try:
                if "NOGROUP" in str(why) or "UNBLOCKED" in str(why):
                    await self._make_group(self._connection)
                    return
            except Denied as again:
                why = again
            self._refused.report(f"Redis says no: {why}")
            await asyncio.sleep(1)

    def _deliver(self, entries: list[Any], counts: list[int] | None = None) -> None:
        for position, entry in enumerate(entries):
            id, fields = entry
            if id in self._held or id in self._unconfirmed:  # another worker took us for dead
                continue
            settle = partial(self._settle, id)
            found = message_of(fields, settle, 0 if counts is None else counts[position])
            if found is None:
                repeats.warning("%s: entry %s is not a message; it is set aside", self._stream, id.decode())
                self._held[id] = BrokerMessage(body=b"")
                settle("reject")
                continue
            self._held[id] = found
            if self._paused:
                settle("retry")
            else:
                self._take(found)

    # -- out --------------------------------------------------------------------------------------

    def _settle(self, id: bytes, outcome: Outcome) -> None:
        message = self._held.pop(id, None)
        self._room.set()
        if message is None:
            return
        self._unconfirmed.add(id)
        if outcome in ("answered", "nothing_owed"):
            if not self._done:
                asyncio.get_running_loop().call_soon(self.acknowledge)
            self._done.append(id)
        elif outcome == "retry":
            self._begin_in_background(id, self._requeue(id, message, 0))
        else:
            self._begin_in_background(id, self._reject(id))

    def acknowledge(self) -> None:
        """Acknowledge settled entries; no effect while the server is not connected."""
        if not self._done or not self._connection.alive:
            return
        done, self._done = self._done, []
        self._connection.ask("XACK", self._stream, self._group, *done).add_done_callback(
            partial(self._acknowledged, done)
        )
        self._connection.post("XDEL", self._stream, *done)

    def _acknowledged(self, done: list[bytes], answer: asyncio.Future[Any]) -> None:
        if not answer.cancelled() and isinstance(answer.exception(), BusLost):
            self._done += done  # again when it is back
        else:
            self._unconfirmed.difference_update(done)

    async def _requeue(self, id: bytes, message: BrokerMessage, more: int) -> None:
        """Add a copy at the end of the stream. A refused request was not begun, so it does not count as a delivery."""
        head = head_of(message, message.count + more)
        await scripts.REQUEUE.run(self._connection, [self._stream], self._group, self._me, id, head)

    async def _reject(self, id: bytes) -> None:
        await scripts.REJECT.run(self._connection, [self._stream, f"{self._stream}:dead"], self._group, id, DEAD)

    def _begin_in_background(self, id: bytes, work: Awaitable[None]) -> None:
        self._background.begin(self._try(id, work))

    async def _try(self, id: bytes, work: Awaitable[None]) -> None:
        """Await `work` for an entry. If it fails, the entry stays pending at the server, and another worker takes it
        later."""
        try:
            await work
        except (BusLost, Denied) as why:
            log.debug("%s: %s", self._stream, why)
        self._unconfirmed.discard(id)

    # -- liveness ---------------------------------------------------------------------------------

    async def _keep_alive(self) -> None:
        """Renew our claims, and take over from silent workers."""
        cursor = b"0-0"
        while True:
            try:
                await self._report_alive()
                if not self._paused and (room := self._prefetch - len(self._held)) > 0:
                    cursor = await self._take_over(cursor, min(room, AT_ONCE))
                await asyncio.sleep(self._idle / 3)
            except BusLost:
                await self._connection.back()
            except Denied as why:
                await self._repair(why)

    async def _report_alive(self) -> None:
        held = list(self._held)
        for start in range(0, len(held), 500):
            batch = held[start : start + 500]
            gone = await scripts.KEEP.run(self._connection, [self._stream], self._group, self._me, *batch)
            if lost := sum(id in self._held for id in gone):  # what was settled meanwhile is not pending at all
                log.warning("%s: %d entries went to another worker while they were at work here", self._stream, lost)

    async def _take_over(self, cursor: bytes, room: int) -> bytes:
        idle = self._idle
        if self._connection.keeper.young:
            idle += self._connection.keeper.gap + RECONNECT_GRACE  # workers could not renew their claims meanwhile
        words = (self._group, self._me, int(idle * 1000), cursor, room)
        async with self._claiming:
            cursor, entries, counts = await scripts.TAKE_OVER.run(self._connection, [self._stream], *words)
            self._deliver(entries, counts)
        return cursor
