"""Connections to Redis, for the bus in `engines.redis.bus` and the wire in `engines.redis.wire`. The one file with the
library.

- A `RedisConnection` is one connection. Commands of one turn of the loop go out in one write, answers come back in
  order. It reconnects by itself, with pauses that grow to two seconds. Commands without an answer when it
  was lost end in `BusLost`, because it is not known whether they ran. A server that is silent for `PATIENCE`
  seconds counts as lost too (a half-open connection).
- A `PubSubConnection` is a connection of its own for published messages; its topics are subscribed again after a loss.
- A `Script` is Lua that the server runs in one step.

Redis 6.2 or newer, one server or the address of the primary; no Redis Cluster.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import ssl
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

from msgspec import Struct
from redis.asyncio.connection import Connection, SSLConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import NoPermissionError, ReadOnlyError, RedisError, ResponseError

from ...bus.contract import BusLost, log
from ...bus.topics import Subscriber, Take, Topics
from ...jsonrpc.errors import LocalError
from ...net import sockets
from ...net.reconnect import BackgroundTasks, Keeper
from ...net.sharing import ConnectionShare, OnState, Sharing
from ...net.urls import Url, credentials

PATIENCE = 5.0
"""Seconds of silence after which the server is sent a ping, and again that long until it is lost."""
PAUSES = (0.05, 2.0)
"""The first and the longest pause between two tries to connect."""

Word: TypeAlias = bytes | str | int
Denied = ResponseError
"""The server refused a command; its text begins with a code, e.g. NOGROUP."""
NoPermission = NoPermissionError
"""The server refused a command because this user lacks the permission (NOPERM)."""


# -- endpoints-------------------------------------------------------------------------------------


class RedisEndpoint(Struct, frozen=True, kw_only=True):
    """One database of a Redis server."""

    host: str
    port: int
    db: int = 0
    user: str | None = None
    password: str | None = None
    tls: bool = False
    context: ssl.SSLContext | None = None

    @property
    def shown(self) -> str:
        """The URL without credentials."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'rediss' if self.tls else 'redis'}://{host}:{self.port}{f'/{self.db}' if self.db else ''}"

    def __repr__(self) -> str:
        return f"RedisEndpoint({self.shown!r})"

    def connection(self) -> Any:
        """Return a connection of the library that is not open yet."""
        common: dict[str, Any] = {
            "host": self.host,
            "port": self.port,
            "db": self.db,
            "username": self.user,
            "password": self.password,
            "protocol": 2,
            "socket_timeout": None,
            "socket_connect_timeout": PATIENCE,
            "socket_keepalive": True,
            "retry": Retry(NoBackoff(), 0),  # we try again ourselves; the library's own tries take 7 s to say "refused"
        }
        if not self.tls:
            return Connection(**common)
        made = SSLConnection(**common)
        made.ssl_context = _FixedContext(self.context or ssl.create_default_context())  # type: ignore[assignment]
        return made


class _FixedContext:
    """Keeps the library from making a TLS context of its own, which in some versions checks no host name."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._context = context
        self.check_hostname = context.check_hostname

    def get(self) -> ssl.SSLContext:
        return self._context


def endpoint_of(where: Url, db: str, tls: ssl.SSLContext | None = None) -> RedisEndpoint:
    """Return the database of the server that a URL names, with the URL's credentials or the environment's. Raises
    LocalError."""
    if not where.host:
        raise LocalError(f"{where.shown}: name the server, as in {where.scheme}://host:6379")
    if db and not (db.isascii() and db.isdigit() and len(db) < 10):
        raise LocalError(f"{where.shown}: a database is named by its number, as in {where.scheme}://host:6379/0")
    user, password = credentials(where) or (None, None)
    return RedisEndpoint(
        host=where.host,
        port=where.port,
        db=int(db or 0),
        user=user or None,
        password=password or None,
        tls=where.tls,
        context=tls,
    )


# -- one connection -------------------------------------------------------------------------------


class RedisConnection:
    """One connection that reconnects by itself. `greet` runs on every new connection before it is reported as
    connected. `push` takes everything that comes in, on a connection that has subscribed. `on_state` is the first of
    `states`."""

    def __init__(
        self,
        where: RedisEndpoint,
        *,
        greet: Callable[[], Awaitable[None]] | None = None,
        push: Callable[[Any], None] | None = None,
        on_state: OnState | None = None,
    ) -> None:
        self.where = where
        self.keeper: Keeper = Keeper(self._connect, self._watch, PAUSES, in_words=in_words, faults=(Exception,))
        self.states: list[OnState] = self.keeper.states
        if on_state is not None:
            self.states.append(on_state)
        self._greet, self._push = greet, push
        self._up = False
        self._out: list[bytes] = []
        self._due = asyncio.Event()
        self._owed: deque[asyncio.Future[Any] | None] = deque()
        self._fresh = False
        self._connection: Any = None
        self._tasks: list[asyncio.Task[None]] = []  # which read the connection, write it and detect its silence
        self._endings = BackgroundTasks(where.shown)

    @property
    def alive(self) -> bool:
        """Whether it is connected."""
        return self._up and self.keeper.alive

    async def open(self) -> None:
        """Connect. Raises BusLost when the first try fails."""
        try:
            await self.keeper.open()
        except BaseException as fault:
            await self._endings.wait(None)
            if isinstance(fault, Exception):
                raise self.lost() from None
            raise

    def ask(self, *words: Word) -> asyncio.Future[Any]:
        """Send a command; return a future of its answer in bytes, numbers and lists. Raises BusLost at once while there
        is no connection, and from the future when it was lost before the answer; Denied when the server refuses."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._send(words, answer)
        return answer

    def post(self, *words: Word) -> None:
        """Send a command whose answer is not needed."""
        self._send(words, None)

    async def back(self) -> None:
        """Wait for the connection, without a time-out. Raises BusLost when it was closed here."""
        while not self.alive:  # a loop, since the connection may be lost again before the waiting task runs
            if self.keeper.closed:
                raise self.lost()
            await self.keeper.connected.wait()

    def lost(self, why: str = "") -> BusLost:
        """The exception to raise while it is not connected. `why`: known before the keeper knows it."""
        return BusLost(f"{self.where.shown} is away: {why or self.keeper.why}")

    async def close(self, *, flush: bool = True) -> None:
        """Disconnect; `flush`: after all commands are answered, or a second."""
        if flush and self.alive and self._push is None:
            with contextlib.suppress(BusLost, Denied, TimeoutError):
                async with asyncio.timeout(1):
                    await self.ask("PING")
        await self.keeper.close()
        self._drop(self.keeper.why)
        await self._endings.wait(None)

    def _send(self, words: tuple[Word, ...], answer: asyncio.Future[Any] | None) -> None:
        if not self._up:
            raise self.lost()
        self._out.append(_pack(words))
        self._due.set()
        if self._push is None:
            self._owed.append(answer)

    async def _connect(self) -> str:
        """Make a new connection, and greet the server on it."""
        connection = self._connection = self.where.connection()
        try:
            async with asyncio.timeout(2 * PATIENCE):
                await connection.connect()
            self._up = True
            work = (self._read(connection), self._write(connection), self._detect_silence())
            self._tasks = [asyncio.create_task(one) for one in work]
            if self._greet is not None:
                await self._run_greet(self._greet)
        except BaseException as fault:
            self._drop(self._reason(fault))
            raise
        return ""

    async def _run_greet(self, greet: Callable[[], Awaitable[None]]) -> None:
        """Greet the server, or raise what ends the connection meanwhile."""
        greeted = asyncio.ensure_future(greet())
        try:
            done, _ = await asyncio.wait([*self._tasks, greeted], return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            greeted.cancel()
            await asyncio.gather(greeted, return_exceptions=True)

    async def _watch(self) -> str:
        """Wait until the connection is lost; return why, after all that waited on it has failed."""
        done, _ = await asyncio.wait(self._tasks, return_when=asyncio.FIRST_EXCEPTION)
        why = next(self._reason(fault) for task in done if (fault := task.exception()) is not None)
        self._drop(why)
        return why

    def _reason(self, fault: BaseException) -> str:
        if isinstance(fault, Exception) and not isinstance(fault, OSError | RedisError):  # BusLost is an OSError
            log.error("%s: a fault of ours or of the library", self.where.shown, exc_info=fault)
        return in_words(fault)

    async def _read(self, connection: Any) -> None:
        read, owed, push = connection.read_response, self._owed, self._push
        while True:
            try:
                reply = await read(disable_decoding=True)
            except ReadOnlyError:  # another server is the primary now: the next one that answers at this address
                raise BusLost("it is a replica and takes nothing") from None
            except Denied as fault:
                reply = fault
            self._fresh = True
            if push is not None:
                push(reply)
                continue
            waiting = owed.popleft()
            if waiting is None:
                if isinstance(reply, Denied):
                    log.debug("%s: %s", self.where.shown, reply)
            elif not waiting.done():
                if isinstance(reply, Denied):
                    waiting.set_exception(reply)
                else:
                    waiting.set_result(reply)

    async def _write(self, connection: Any) -> None:
        while True:
            await self._due.wait()
            self._due.clear()
            out, self._out = self._out, []
            await connection.send_packed_command(out, check_health=False)

    async def _detect_silence(self) -> None:
        """Raise BusLost once the server, though connected, has not answered a ping."""
        while True:
            self._fresh = False
            await asyncio.sleep(PATIENCE)
            if self._fresh:
                continue
            self.post("PING")
            await asyncio.sleep(PATIENCE)
            if not self._fresh:
                raise BusLost(f"it said nothing for {2 * PATIENCE:g} s")

    def _drop(self, why: str) -> None:
        """Give up the connection: fail all that wait on it at once, and close it in the background."""
        self._up = False
        self._out.clear()
        owed, self._owed = self._owed, deque()
        for waiting in owed:
            if waiting is not None and not waiting.done():
                waiting.set_exception(self.lost(why))
                waiting.exception()  # the task that waited may have been cancelled
        connection, self._connection = self._connection, None
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        if connection is not None:
            self._endings.begin(self._end(connection, tasks))

    async def _end(self, connection: Any, tasks: list[asyncio.Task[None]]) -> None:
        await asyncio.gather(*tasks, return_exceptions=True)
        with contextlib.suppress(Exception):
            await connection.disconnect(nowait=True)


def _pack(words: Sequence[Word]) -> bytes:
    """Write a command in the form of the wire."""
    parts = [b"*%d\r\n" % len(words)]
    for word in words:
        data = word if isinstance(word, bytes) else str(word).encode()
        parts.append(b"$%d\r\n%b\r\n" % (len(data), data))
    return b"".join(parts)


def in_words(fault: BaseException) -> str:
    """Return a fault in one line: the system's own text if the library's exception has one."""
    cause: BaseException | None = fault
    while cause is not None and not (isinstance(cause, OSError) and cause.errno is not None):
        cause = cause.__cause__ or cause.__context__
    return sockets.in_words(cause or fault)


class Script:
    """A Lua script, sent whole once and named by its hash from then on."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._sha = hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()

    async def run(self, connection: RedisConnection, keys: Sequence[Word], *words: Word) -> Any:
        """Run it; returns its result. Errors as for `RedisConnection.ask`."""
        try:
            return await connection.ask("EVALSHA", self._sha, len(keys), *keys, *words)
        except Denied as fault:
            if "NOSCRIPT" not in _code(fault):
                raise
        return await connection.ask("EVAL", self._source, len(keys), *keys, *words)


def _code(fault: Denied) -> str:
    """Return the code and the text of a refusal: the library makes classes of some codes, and removes them."""
    return f"{type(fault).__name__.upper().removesuffix('ERROR')} {fault}"


# -- published messages--------------------------------------------------------------------------


class PubSubConnection:
    """A connection that receives published messages."""

    def __init__(self, where: RedisEndpoint) -> None:
        self.connection: RedisConnection = RedisConnection(
            where, greet=self._subscribe_again, push=self._receive, on_state=self._on_state
        )
        self.states: list[OnState] = []
        self._topics = Topics(self._unsubscribe)
        self._pending: dict[str, list[asyncio.Future[None]]] = {}

    @property
    def alive(self) -> bool:
        """Whether it is connected."""
        return self.connection.alive

    def lost(self) -> BusLost:
        """The exception to raise while it is not connected."""
        return self.connection.lost()

    async def open(self) -> None:
        """Connect. Raises BusLost when the first try fails."""
        await self.connection.open()

    async def subscribe(self, topic: str, take: Take) -> Subscriber:
        """Call `take` with each message; returns when the server has the subscription. Raises BusLost."""
        if not self.connection.alive:
            raise self.connection.lost()
        one = self._topics.add(topic, take)
        try:
            if len(self._topics.of(topic)) == 1 or topic in self._pending:
                await self._request_topics([topic])
        except BaseException:
            await one.close()
            raise
        return one

    async def _unsubscribe(self, topic: str) -> None:
        if self.connection.alive:
            self.connection.post("UNSUBSCRIBE", topic)

    async def _request_topics(self, topics: Sequence[str]) -> None:
        loop = asyncio.get_running_loop()
        waiting = []
        for topic in topics:
            known: asyncio.Future[None] = loop.create_future()
            self._pending.setdefault(topic, []).append(known)
            waiting.append(known)
        self.connection.post("SUBSCRIBE", *topics)
        await asyncio.gather(*waiting)

    async def _subscribe_again(self) -> None:
        self._fail(self.connection.lost())  # the requests of the former connection
        if topics := list(self._topics):
            await self._request_topics(topics)

    def _receive(self, reply: Any) -> None:
        if isinstance(reply, Denied):
            self._fail(BusLost(f"{self.connection.where.shown}: {in_words(reply)}"))
            return
        if not isinstance(reply, list) or len(reply) < 3:
            return
        kind, topic, message = reply[0], reply[1].decode(), reply[2]
        if kind == b"message":
            self._topics.deliver(topic, message)
        elif kind == b"subscribe":
            waiting = self._pending.get(topic)
            if waiting:
                known = waiting.pop(0)
                if not known.done():
                    known.set_result(None)
                if not waiting:
                    del self._pending[topic]

    def _on_state(self, alive: bool, why: str) -> None:
        if not alive:
            self._fail(self.connection.lost())
        for on_state in tuple(self.states):
            on_state(alive, why)

    def _fail(self, why: BusLost) -> None:
        pending, self._pending = self._pending, {}
        for waiting in pending.values():
            for known in waiting:
                if not known.done():
                    known.set_exception(why)

    async def close(self) -> None:
        """Disconnect, which ends all subscriptions."""
        await self.connection.close()
        self._fail(self.connection.lost())


# -- shared by a wire and a bus --------------------------------------------------------------------

_COMMANDS: Sharing[RedisConnection] = Sharing()
_PUBLISHED: Sharing[PubSubConnection] = Sharing()


def share_commands(where: RedisEndpoint, role: str) -> ConnectionShare[RedisConnection]:
    """Share a connection for commands that the server answers at once; it is not open yet."""
    return _COMMANDS.share(where, role, lambda: RedisConnection(where))


def share_pubsub(where: RedisEndpoint, role: str) -> ConnectionShare[PubSubConnection]:
    """Share a connection that receives published messages; it is not open yet."""
    return _PUBLISHED.share(where, role, lambda: PubSubConnection(where))
