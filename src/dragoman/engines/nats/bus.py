"""`nats://[user:password@]host[:port][?prefix=dragoman&replicas=1]`: a bus and, on JetStream, a store. `natss://` for
TLS.

- A topic is the subject `<prefix>.bus.<topic>`: core NATS, no storage.
- A value is an entry of the key-value bucket `<prefix>`, which `nats kv` shows. Its time of expiry is in the header
  `Expires`; readers check it, and once in `SWEEP` seconds one of the users removes expired entries.
- A log is a subject of the stream `<prefix>-logs`. Each message knows its number and how many bytes receive before it,
  so the newest describes the whole log; "only if the newest is still that one" gives each its number without a lock.
- Times are times of day in milliseconds: the clocks of the machines must agree within what a `ttl` may be off.

A server without JetStream gives a bus whose `store` is None.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
import ssl
from collections.abc import Callable

from msgspec import MsgspecError

from ...bus.contract import EngineBus, call_subscriber, log
from ...jsonrpc.errors import LocalError
from ...net.reconnect import backoff
from ...net.urls import Url, parse, read_query
from .connection import Message, NatsConnection, NoResponders, SubjectSubscription, share_connection
from .logs import Logs
from .store import StreamStore

SWEEP = 60.0
"""Seconds between two removals of expired entries, by all users together."""
PAUSES = (0.05, 2.0)
"""The first and the longest pause in seconds between two tries to find JetStream."""
ANEW = (0.2, 0.6)
"""The shortest and the longest time, in seconds, before a stream that was deleted is made again; it gets no requests
until then. A server still removes the old stream's files after it has reported that there is none, and version 2.9
crashes when a stream is read while it is made."""
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]")


def _escaped(match: re.Match[str]) -> str:
    return "".join(f"={byte:02X}" for byte in match[0].encode())


def token(text: str) -> str:
    """Write a key or a topic as one part of a subject: letters, digits, - and _ as they are, other bytes as =XX."""
    return _UNSAFE.sub(_escaped, text)


class NatsStore:
    """A `Store` on JetStream."""

    def __init__(self, connection: NatsConnection, prefix: str, replicas: int) -> None:
        self._values = StreamStore(connection, f"KV_{prefix}", f"$KV.{prefix}", replicas, each=1)
        self._log_stream = StreamStore(connection, f"{prefix}-logs", f"{prefix}.logs", replicas, each=-1)
        self._logs = Logs(self._log_stream)

    async def open(self) -> bool:
        """Create what is missing; returns whether that was something. Raises NoResponders if the server has no
        JetStream."""
        created = [await one.open() for one in (self._values, self._log_stream)]
        if any(created):
            self._logs.forget()
        return any(created)

    def watch(self, missed: Callable[[str], object]) -> None:
        """Call `missed` with the reason when its bucket or its stream is gone."""
        self._values.missed = self._log_stream.missed = missed

    def suspend(self, why: str) -> None:
        """Raise BusLost instead of sending requests to JetStream, until this is called with an empty reason."""
        self._values.missing = self._log_stream.missing = why

    async def get(self, key: str) -> bytes | None:
        found = await self._values.last(token(key))
        return None if found is None or found.over else found.body

    async def put(self, key: str, value: bytes, *, ttl: float | None = None) -> None:
        await self._values.add(token(key), value, ttl)

    async def put_new(self, key: str, value: bytes, *, ttl: float | None = None) -> bool:
        name, after = token(key), 0
        while await self._values.add(name, value, ttl, after=after) is None:
            found = await self._values.last(name)
            if found is not None and not found.over:
                return False
            after = 0 if found is None else found.position
        return True

    async def delete(self, key: str) -> bool:
        name = token(key)
        return await self._values.drop(name) or await self._logs.drop(name)

    async def touch(self, key: str, ttl: float) -> bool:
        name = token(key)
        while (found := await self._values.last(name)) is not None and not found.over:
            if await self._values.add(name, found.body, ttl, after=found.position) is not None:
                return True
        return await self._logs.touch(name, ttl)

    async def append(
        self,
        log: str,
        message: bytes,
        *,
        ttl: float,
        messages: int = 1_000,
        size: int = 1_048_576,
        number: int | None = None,
    ) -> int:
        return await self._logs.append(token(log), message, ttl, max(1, messages), size, number)

    async def read(self, log: str, after: int = 0) -> list[tuple[int, bytes]]:
        return await self._logs.read(token(log), after)

    async def sweep(self) -> None:
        """Remove expired entries, if that was not done recently."""
        if await self.put_new("sweep", b"", ttl=SWEEP):
            await self._values.sweep()
            await self._log_stream.sweep()


class NatsBus(EngineBus):
    """A `Bus` over NATS."""

    def __init__(self, where: Url, tls: ssl.SSLContext | None = None) -> None:
        prefix = where.query.get("prefix", "dragoman")
        if not re.fullmatch(r"[A-Za-z0-9_-]{1,50}", prefix):
            raise LocalError(f"{where.shown}: ?prefix= is made of letters, digits, - and _")
        replicas = where.query.get("replicas", "1")
        if replicas not in ("1", "3", "5"):
            raise LocalError(f"{where.shown}: ?replicas= is 1, 3 or 5")
        super().__init__(f"{where.scheme}://{where.address}", "NATS")
        self._topics = f"{prefix}.bus."
        self._share = share_connection(where, "bus", tls)
        self._connection = self._share.connection
        self._store = NatsStore(self._connection, prefix, int(replicas))
        self.store: NatsStore | None = None
        self._sweeper: asyncio.Task[None] | None = None
        self._renewing: asyncio.Task[None] | None = None
        """Runs while the server is connected and it is not known yet whether it has what the store needs."""

    async def open(self) -> None:
        """Connect. Raises BusLost."""
        await self._share.open()
        self.alive = True
        self._share.watch(self._state)
        try:
            await self._store.open()
            self.store = self._store
            self._store.watch(self._missed)
            self._sweeper = asyncio.create_task(self._sweep())
        except NoResponders:
            log.warning("%s: a bus without a store: this server has no JetStream (nats-server -js)", self.url)
        except BaseException:
            await self.close()
            raise

    def _state(self, alive: bool, why: str) -> None:
        """Take the state of the connection: it is lost, or back."""
        if self._renewing is not None:
            self._renewing.cancel()
            self._renewing = None
        if alive and self.store is not None:
            self._renewing = asyncio.create_task(self._renew())
        else:
            self.change_state(alive, why)

    def _missed(self, why: str) -> None:
        """Take the bus for lost until the store's bucket and stream, which the server has lost, are made again."""
        if not self._connection.alive:
            return
        self._store.suspend(why)
        if self._renewing is None:
            self.change_state(False, why)
            self._renewing = asyncio.create_task(self._renew(random.uniform(*ANEW)))

    async def _renew(self, wait: float = 0.0) -> None:
        """Wait until the server has what the store needs, which is made if it is missing; then the bus is back."""
        await asyncio.sleep(wait)
        created = False
        for pause in backoff(*PAUSES):
            try:
                created |= await self._store.open()
                break
            except (ConnectionError, MsgspecError) as fault:
                self.change_state(False, str(fault))
            await asyncio.sleep(pause)
        self._renewing = None
        self._store.suspend("")
        if created:
            log.warning("%s: what the store had is lost; its bucket and its stream were made again", self.url)
        self.change_state(True, "")

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP * random.uniform(0.5, 1.5))
            with contextlib.suppress(ConnectionError):
                await self._store.sweep()

    async def publish(self, topic: str, message: bytes) -> None:
        await self._connection.publish(self._topics + token(topic), message)
        await self._connection.sync()
        self.published += 1

    async def subscribe(self, topic: str, take: Callable[[bytes], object]) -> SubjectSubscription:
        take = self.counted(take)

        def receive(message: Message) -> None:
            call_subscriber(take, topic, message.data)

        subscription = await self._connection.subscribe(self._topics + token(topic), receive)
        try:
            await self._connection.sync()
        except BaseException:  # or it would be restored after an outage, beside another that the caller makes then
            await subscription.close()
            raise
        return self._share.keep(subscription)

    async def close(self) -> None:
        self.alive, self.on_state = False, None
        for task in (self._sweeper, self._renewing):
            if task is not None:
                task.cancel()
                await asyncio.wait([task])
        await self._share.close()


async def open(url: str, tls: ssl.SSLContext | None = None) -> NatsBus:
    where = parse(url)
    read_query(where, "prefix", "replicas", "creds", "token")
    bus = NatsBus(where, tls)
    await bus.open()
    return bus
