"""`redis://host[:port]/[db/]calculator`, `rediss://` for TLS: requests in a stream, answers in a stream per caller.

The queue `calculator` is these keys and channels of one database:

- `calculator`, a stream with the consumer group `workers`. An entry is a request: `head` is a JSON object
  `{"to": mailbox, "id": correlation, "headers": {...}, "count": deliveries before}`, `body` the message.
- `calculator:to:...`, a stream per caller: its mailbox. It lives a minute longer than its caller, and answers
  to a caller that is gone are dropped. A worker writes to no other key that a request names, unless
  `?reply_to=` allows it.
- `calculator:dead`, a stream: dead letters, the newest 10,000.
- `calculator:control@0`, published messages that every worker of database 0 receives: a head, a newline, a body.

Rules:

- The stream is made by the first worker and stays: without it a call fails at once (`Unroutable`), with it and
  without a worker calls wait. A stream with `?max=` entries takes no more (`Refused`); nothing is trimmed.
- A worker takes an entry, answers, and then acknowledges and deletes it. While it works, it renews its claim every
  third of `?idle=` seconds; the entries of a worker that was silent for `idle` seconds go to another (XAUTOCLAIM), with
  one delivery more on their count.
- A caller that may not run scripts, or not read the queue, reads its length and adds to it in two steps, so that the
  queue may hold as many more as callers do so at once; a request that may be in it already is then added again, marked.
- Blocking reads have connections of their own. Everything else of an adapter goes over one, pipelined.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Any

from ...bus.contract import BusLost
from ...channel import Options
from ...net.reconnect import OutageLog
from ...net.sharing import ConnectionShare, OnState, ignore_state
from ...net.urls import Url, address, number, read_query
from ...transports.broker.contract import (
    BrokerMessage,
    Mailboxes,
    NotTaken,
    Refused,
    Take,
    Unroutable,
    mailbox_parts,
)
from ...transports.broker.ends import ends
from . import scripts
from .connection import (
    Denied,
    NoPermission,
    PubSubConnection,
    RedisConnection,
    RedisEndpoint,
    endpoint_of,
    share_commands,
    share_pubsub,
)
from .messages import after, head_of, message_of
from .worker import BLOCK, RedisWorker

log: logging.Logger = logging.getLogger("dragoman.wire")

GROUP = "workers"
IDLE = 4
"""Seconds after which the entries of a silent worker go to another: several times within a call's 30."""
MAX = 10_000
"""Entries that a request stream may hold."""
MAILBOX_LIFE = 60_000
"""Milliseconds that a mailbox outlives its caller."""
TRIM = 32
"""Answers that were read and stay until they are trimmed together; a pause of `BLOCK` trims them too."""
BULK = 512 * 1024 * 1024
"""`proto-max-bulk-len` if the server does not report it."""


def adapter_at(where: Url, options: Options) -> RedisAdapter:
    """Return the adapter for a URL; it is not open yet."""
    query = read_query(where, "queue", "group", "idle", "max", "deliveries", "prefetch", "reply_to", "mailbox")
    name, before = address(where)
    database = endpoint_of(where, before, options.client_tls)
    idle = number(where, "idle", IDLE)
    group, mailboxes = query.get("group", GROUP), Mailboxes(where, f"{name}:to:*")
    most, mailbox = number(where, "max", MAX), ":".join((f"{name}:to", *mailbox_parts(where)))
    return RedisAdapter(database, name, group, idle=idle, most=most, mailboxes=mailboxes, mailbox=mailbox)


# -- the adapter ----------------------------------------------------------------------------------


class RedisAdapter:
    """A `contract.BrokerAdapter` on Redis."""

    name = "Redis"

    def __init__(
        self,
        endpoint: RedisEndpoint,
        stream: str,
        group: str,
        *,
        idle: float,
        most: int,
        mailboxes: Mailboxes,
        mailbox: str,
    ) -> None:
        self.limit: int = BULK
        self.durable: bool = True
        self.on_state: OnState = ignore_state
        self.stream = stream
        self._commands = share_commands(endpoint, "wire")
        self._commands.watch(self._state)
        self.connection: RedisConnection = self._commands.connection
        self._endpoint, self._group, self._idle, self._most = endpoint, group, idle, most
        self._mailboxes = mailboxes
        self._control = f"{stream}:control@{endpoint.db}"
        self._connections: list[RedisConnection] = []
        self._collector: asyncio.Task[None] | None = None
        self._alive = True
        self._scripted = True
        self._published: ConnectionShare[PubSubConnection] | None = None
        self._closed = False
        self._worker: RedisWorker | None = None
        self._refused = OutageLog(f"{endpoint.shown} {stream}")
        self._doubtful: dict[str, float] = {}  # requests that may be in the stream already, and when they were sent
        self._mailbox_connection: RedisConnection | None = None
        self._mailbox = mailbox
        self._last = b""  # the last entry that was read; b"" before the mailbox was made
        self._emptied = False

    async def open(self) -> None:
        await self._open_connection(self.connection, self._commands)
        with contextlib.suppress(Denied):
            found = await self.connection.ask("CONFIG", "GET", "proto-max-bulk-len")
            self.limit = int(found[1]) if len(found) == 2 else BULK

    async def _open_connection(self, connection: RedisConnection, share: ConnectionShare[Any] | None = None) -> None:
        try:
            await (connection if share is None else share).open()
        except BusLost:
            raise ConnectionError(connection.keeper.why) from None
        self._connections.append(connection)

    def _state(self, alive: bool, why: str) -> None:
        now = all(connection.alive for connection in self._connections)
        if now and self._worker is not None:
            self._worker.acknowledge()
        if (
            self._closed or (now and self._alive) or (alive and not now)
        ):  # not all connections are back, or all were before
            return
        self._alive = now
        if now and self._emptied:
            self._report_emptied()
        else:
            self.on_state(now, why)

    # -- who serves -------------------------------------------------------------------------------

    async def work(self, take: Take, prefetch: int) -> None:
        self._worker = RedisWorker(
            self.connection,
            self._endpoint,
            self.stream,
            self._group,
            self._idle,
            take=take,
            prefetch=prefetch,
            on_state=self._state,
        )
        await self._open_connection(self._worker.reads)
        self._worker.begin()

    async def pause(self) -> None:
        if self._worker is not None:
            await self._worker.pause()

    # -- control ----------------------------------------------------------------------------------

    async def receive_control(self, take: Take) -> None:
        self._published = share = share_pubsub(self._endpoint, "wire")
        share.watch(self._state)
        await self._open_connection(share.connection.connection, share)

        def receive(message: bytes) -> None:
            head, _, body = message.partition(b"\n")
            if (found := message_of([b"head", head, b"body", body])) is not None:
                take(found)

        share.keep(await share.connection.subscribe(self._control, receive))

    async def send_control(self, message: BrokerMessage) -> None:
        try:
            await self.connection.ask("PUBLISH", self._control, head_of(message) + b"\n" + message.body)
        except Denied as why:
            raise Refused(f"Redis at {self._endpoint.shown} does not take it: {why}") from None

    # -- requests and answers, as a caller --------------------------------------------------------

    async def request(self, message: BrokerMessage, ttl: float | None) -> None:
        if not self.connection.alive:
            raise NotTaken(f"Redis at {self._endpoint.shown} is away")
        name, now = message.correlation, asyncio.get_running_loop().time()
        try:
            size = await self._add(message, now)
            self._doubtful.pop(name, None)
        except BusLost:
            if len(self._doubtful) < self._most:
                self._doubtful.setdefault(name, now)
            raise
        except Denied as why:
            raise Refused(
                f"Redis at {self._endpoint.shown} does not take it: {why} (XLEN and XADD {self.stream})"
            ) from None
        if size > 0:
            return
        if size < 0:
            raise Refused(f"the queue {self.stream} at {self._endpoint.shown} is full: it holds {-size} requests")
        if self.connection.keeper.young:
            raise NotTaken(f"the queue {self.stream} is not there again yet")
        raise Unroutable(f"no worker serves {self.stream} at {self._endpoint.shown}: there is no such stream")

    async def _add(self, message: BrokerMessage, now: float) -> int:
        """Add a request to the stream. Returns the size with it; 0 if there is no stream; the negative size of a full
        one."""
        first = self._doubtful.get(message.correlation)
        head = head_of(message, int(first is not None))
        words = (self._most, head, message.body)
        if self._scripted:
            try:
                if first is None:
                    return int(await scripts.REQUEST.run(self.connection, [self.stream], *words))
                age = int((now - first) * 1000) + 1_000
                found = (f'"id":"{message.correlation}"', age)
                return int(await scripts.AGAIN.run(self.connection, [self.stream], *words, *found))
            except Denied as why:
                if not isinstance(why, NoPermission) and "ACL failure" not in str(why):
                    raise
                self._scripted = False
        size = await self.connection.ask("XLEN", self.stream)
        if size >= self._most:
            return -int(size)
        added = await self.connection.ask("XADD", self.stream, "NOMKSTREAM", "*", "head", head, "body", message.body)
        return 0 if added is None else int(size) + 1

    async def mailbox(self, take: Take) -> str:
        self._mailbox_connection = RedisConnection(self._endpoint, greet=self._greet_box, on_state=self._state)
        await self._open_connection(self._mailbox_connection)
        self._collector = asyncio.create_task(self._collect(self._mailbox_connection, take))
        return self._mailbox

    async def _greet_box(self) -> None:
        assert self._mailbox_connection is not None
        try:
            await self._keep_mailbox(self._mailbox_connection)
        except Denied as why:
            raise BusLost(f"it does not let this user keep the mailbox {self._mailbox}: {why}") from None

    async def _keep_mailbox(self, connection: RedisConnection) -> None:
        """Extend the life of the mailbox; create it if it is missing."""
        if await connection.ask("PEXPIRE", self._mailbox, MAILBOX_LIFE):
            return
        made = connection.ask("XADD", self._mailbox, "MAXLEN", 0, "*", "made", "")
        await asyncio.gather(made, connection.ask("PEXPIRE", self._mailbox, MAILBOX_LIFE))
        self._emptied = bool(self._last)
        self._last = b"0-0"
        if self._emptied and self._alive:
            self._report_emptied()

    def _report_emptied(self) -> None:
        """Redis has lost its data, so the calls in flight will not be answered: fail them."""
        self._emptied = False
        log.warning("%s has lost what it held", self._endpoint.shown)
        self.durable = False
        self.on_state(False, "it has lost what it held")
        self.durable = True
        self.on_state(True, "")

    async def _collect(self, connection: RedisConnection, take: Take) -> None:
        loop = asyncio.get_running_loop()
        stale = 0  # entries that were read and are still there
        kept = loop.time()
        while True:
            try:
                found = await connection.ask(
                    "XREAD", "COUNT", 256, "BLOCK", BLOCK, "STREAMS", self._mailbox, self._last
                )
                if found:
                    entries = found[0][1]
                    self._last = entries[-1][0]
                    stale += len(entries)
                    for _, fields in entries:
                        if (message := message_of(fields)) is not None:
                            take(message)
                if stale >= TRIM or (stale and not found):
                    connection.post("XTRIM", self._mailbox, "MINID", after(self._last))
                    stale = 0
                if not found or loop.time() - kept > MAILBOX_LIFE / 3000:
                    kept = loop.time()
                    await self._keep_mailbox(connection)
            except BusLost:
                if self._closed:
                    return
                await connection.back()
            except Denied as why:
                self._refused.report(f"Redis does not let us read answers: {why}")
                await asyncio.sleep(1)

    def answerable(self, message: BrokerMessage) -> bool:
        return self._mailboxes.hold(message.reply_to)

    async def answer(self, to: str, message: BrokerMessage) -> None:
        try:
            words = ("XADD", to, "NOMKSTREAM", "*", "head", head_of(message), "body", message.body)
            if await self.connection.ask(*words) is None:
                log.debug("%s: the mailbox of an answer is gone", self.stream)
        except Denied as why:
            self._refused.report(f"Redis does not take answers: {why}")

    # -- the end ----------------------------------------------------------------------------------

    async def close(self) -> None:
        if self._closed:
            return
        if self._worker is not None:
            await self._worker.close()
        self._closed = True
        if self._mailbox_connection is not None:
            with contextlib.suppress(BusLost, Denied):
                await self.connection.ask("DEL", self._mailbox)
        if self._collector is not None:
            self._collector.cancel()
            await asyncio.gather(self._collector, return_exceptions=True)
        if self._published is not None:
            await self._published.close()
        if self._worker is not None:
            await self._worker.reads.close(flush=False)
        if self._mailbox_connection is not None:
            await self._mailbox_connection.close(flush=False)
        await self._commands.close()


dial, listen = ends(lambda where, options, serving: adapter_at(where, options), lambda adapter: adapter.stream)
