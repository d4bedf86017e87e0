"""`redis://host[:port]/[db/]calculator`, `rediss://` for TLS: requests in a stream, answers in a stream per caller.

The queue `calculator` is these keys and channels of one database:

- `calculator`, a stream with the consumer group `workers`. An entry is a request: `head` is a JSON object
  `{"to": mailbox, "id": correlation, "headers": {...}, "count": deliveries before}`, `body` the message.
- `calculator:to:...`, a stream per caller: its mailbox. It lives a minute longer than its caller, and what is
  answered to one that is gone is dropped. A worker writes to no other key, whatever a request asks for.
- `calculator:dead`, a stream: what was set aside, the newest 10,000.
- `calculator:control@0`, published messages that every worker of database 0 hears: a head, a newline, a body.

Rules:

- The stream is made by the first worker and stays: without it a call fails at once (`Unroutable`), with it and
  without a worker calls wait. A stream with `?max=` entries takes no more (`Refused`); nothing is trimmed.
- A worker takes an entry, answers, and then acknowledges and deletes it. While it works it says so every third of
  `?idle=` seconds; the entries of one that has said nothing for `idle` seconds go to another (XAUTOCLAIM), with one
  delivery more on their count.
- Blocking reads have connections of their own. All else of a post goes over one, pipelined.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import uuid
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

import msgspec

from ..bus import BusLost
from ..bus.redis_line import Denied, Ear, Line, Place
from ..channel import Broken, Channel, Listener, Options, Served
from ..jsonrpc.errors import LocalError
from . import broker_channel, broker_listener
from . import redis_scripts as scripts
from .broker import Letter, NotTaken, Outcome, Refused, Take, Unroutable, address, asked, credentials, number
from .redis_letters import after, head_of, letter_of
from .sockets import cannot_listen, sole
from .urls import Url, parse

log = logging.getLogger("dragoman.wire")

GROUP = "workers"
IDLE = 4
"""Seconds after which the entries of a worker that says nothing go to another: several times within a call's 30."""
MAX = 10_000
"""Entries that a request stream may hold."""
AT_ONCE = 64
"""Entries taken by one read, so that one worker does not take what others could do now."""
BLOCK = 2_000
"""Milliseconds of a blocking read; below the patience of a `Line`."""
MAILBOX_LIFE = 60_000
"""Milliseconds that a mailbox outlives its caller."""
TRIM = 32
"""Answers that were read and stay until they are cut off together; a pause of `BLOCK` cuts them off too."""
DEAD = 10_000
YOUNG = 5.0
"""Seconds after a reconnection in which a stream that is not there may still be made again by its workers."""
COMING_BACK = 2.5
"""Seconds that a live worker needs at most to be back after Redis is: a little more than the longest pause."""
BULK = 512 * 1024 * 1024
"""`proto-max-bulk-len` where the server does not tell."""


# -- the two ends ---------------------------------------------------------------------------------


async def dial(url: str, options: Options) -> Channel:
    """A channel whose requests go to a stream. Broken when Redis does not answer, LocalError for a wrong URL."""
    where = parse(url)
    post = _post(where, options)
    try:
        await post.open()
    except BusLost:
        raise Broken(f"Cannot connect to {where.shown}: {post.why}") from None
    return await broker_channel.reach(post, where, options)


async def listen(url: str, served: Mapping[str, Served], options: Options) -> Listener:
    """A listener that takes requests from a stream. LocalError when Redis does not answer or the URL is wrong."""
    where = parse(url)
    one = sole(where, served)
    post = _post(where, options)
    try:
        await post.open()
        return await broker_listener.begin(post, where, one, options, name=post.stream)
    except BusLost:
        raise cannot_listen(where, post.why) from None
    except Denied as why:
        raise cannot_listen(where, str(why)) from None


def _post(where: Url, options: Options) -> RedisPost:
    query = asked(where, "queue", "group", "idle", "max", "deliveries", "prefetch")
    name, before = address(where)
    if before and not (before.isascii() and before.isdigit() and len(before) < 10):
        raise LocalError(f"{where.shown}: the path is a database's number and a name, as in /0/calculator")
    user, password = credentials(where) or (None, None)
    place = Place(
        host=where.host,
        port=where.port,
        db=int(before or 0),
        user=user or None,
        password=password or None,
        tls=where.scheme == "rediss",
        context=options.tls,
    )
    idle = number(where, "idle", IDLE)
    return RedisPost(place, name, query.get("group", GROUP), idle=idle, most=number(where, "max", MAX))


# -- the post -------------------------------------------------------------------------------------


class RedisPost:
    """A `broker.Post` on Redis."""

    name = "Redis"

    def __init__(self, place: Place, stream: str, group: str, *, idle: float, most: int) -> None:
        self.limit = BULK
        self.durable = True
        self.on_state: Callable[[bool, str], None] | None = None
        self.stream = stream
        self.line = Line(place, on_state=self._state)
        self.why = ""
        """Why it could not begin."""
        self._place, self._group, self._idle, self._most = place, group, idle, most
        self._me = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:6]}"
        self._control = f"{stream}:control@{place.db}"
        self._lines: list[Line] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._alive = True
        self._ear: Ear | None = None
        self._closed = False
        # who works
        self._reads: Line | None = None
        self._reader = 0  # its number at the server
        self._reading_task: asyncio.Task[None] | None = None
        self._paused = False
        self._held: dict[bytes, Letter] = {}
        self._room = asyncio.Event()
        self._done: list[bytes] = []  # settled, to be acknowledged
        self._unconfirmed: set[bytes] = set()  # settled, and the server may not know it
        self._claiming = asyncio.Lock()
        self._asides: set[asyncio.Task[None]] = set()
        # who calls
        self._doubtful: dict[str, float] = {}  # requests that may be there already, and when they were sent
        self._box: Line | None = None
        self._mailbox = f"{stream}:to:{uuid.uuid4().hex}"
        self._last = b""  # the last entry that was read; b"" before the mailbox was made
        self._emptied = False

    async def open(self) -> None:
        """Connect. BusLost."""
        await self._open_line(self.line)
        with contextlib.suppress(Denied):
            found = await self.line.ask("CONFIG", "GET", "proto-max-bulk-len")
            self.limit = int(found[1]) if len(found) == 2 else BULK

    async def _open_line(self, line: Line) -> None:
        try:
            await line.open()
        except BusLost:
            self.why = line.why
            raise
        self._lines.append(line)

    def _state(self, alive: bool, why: str) -> None:
        now = all(line.alive for line in self._lines)
        if now:
            self._acknowledge()
        if now == self._alive or self._closed:
            return
        self._alive = now
        if now and self._emptied:
            self._came_back_empty()
        elif self.on_state is not None:
            self.on_state(now, why)

    # -- requests, as a worker --------------------------------------------------------------------

    async def work(self, take: Take, prefetch: int) -> None:
        """See `Post.work`."""
        self._reads = Line(self._place, greet=self._greet_reads, on_state=self._state)
        await self._open_line(self._reads)
        self._reading_task = asyncio.create_task(self._reading(self._reads, take, prefetch))
        self._tasks.append(self._reading_task)
        self._tasks.append(asyncio.create_task(self._minding(take, prefetch)))

    async def _greet_reads(self) -> None:
        assert self._reads is not None
        self._reader = await self._reads.ask("CLIENT", "ID")
        await self._make_group(self._reads)

    async def _make_group(self, line: Line) -> None:
        """From the first entry on: what came before the first worker waits for it."""
        try:
            await line.ask("XGROUP", "CREATE", self.stream, self._group, 0, "MKSTREAM")
        except Denied as why:
            if "BUSYGROUP" not in str(why):
                raise

    async def _reading(self, line: Line, take: Take, prefetch: int) -> None:
        words = ("XREADGROUP", "GROUP", self._group, self._me, "COUNT")
        lost = False
        while not self._paused:
            room = prefetch - len(self._held)
            if room <= 0:
                self._room.clear()
                await self._room.wait()
                continue
            try:
                if lost:
                    await self._recover(take)
                    lost = False
                found = await line.ask(*words, min(room, AT_ONCE), "BLOCK", BLOCK, "STREAMS", self.stream, ">")
            except BusLost:
                if self._closed:
                    return
                lost = True
                await line.back(None)
                await self.line.back(None)
            except Denied as why:
                await self._repair(why)
            else:
                if found:
                    self._deliver(take, found[0][1])

    async def _recover(self, take: Take) -> None:
        """What was sent to us and lost with the connection: it is pending for us, and nobody has it."""
        async with self._claiming:
            for id, _, _, times in await self.line.ask(
                "XPENDING", self.stream, self._group, "-", "+", 10_000, self._me
            ):
                if id not in self._held and id not in self._unconfirmed:
                    self._deliver(take, await self.line.ask("XRANGE", self.stream, id, id), [times])

    async def _repair(self, why: Denied) -> None:
        """The stream was flushed or deleted, or the server will not do it now."""
        with contextlib.suppress(BusLost):
            try:
                if "NOGROUP" in str(why) or "UNBLOCKED" in str(why):
                    await self._make_group(self.line)
                    return
            except Denied as again:
                why = again
            log.warning("%s: %s", self._place.shown, why)
            await asyncio.sleep(1)

    def _deliver(self, take: Take, entries: list[Any], counts: list[int] | None = None) -> None:
        for position, entry in enumerate(entries):
            id, fields = entry
            if id in self._held or id in self._unconfirmed:  # we were thought dead
                continue
            settle = partial(self._settle, id)
            found = letter_of(fields, settle, 0 if counts is None else counts[position])
            if found is None:
                log.warning("%s: entry %s is no letter; it is set aside", self.stream, id.decode())
                self._held[id] = Letter(body=b"")
                settle("reject")
                continue
            if not found.reply_to.startswith(f"{self.stream}:to:"):
                found = msgspec.structs.replace(found, reply_to="")
            self._held[id] = found
            if self._paused:
                settle("retry")
            else:
                self._hand(take, found)

    def _hand(self, take: Take, letter: Letter) -> None:
        try:
            take(letter)
        except Exception:  # the next letter is no worse for it
            log.exception("%s: a letter could not be taken", self.stream)

    def _settle(self, id: bytes, outcome: Outcome) -> None:
        letter = self._held.pop(id, None)
        self._room.set()
        if letter is None:
            return
        self._unconfirmed.add(id)
        if outcome in ("answered", "nothing_owed"):
            if not self._done:
                asyncio.get_running_loop().call_soon(self._acknowledge)
            self._done.append(id)
        elif outcome == "retry":
            self._aside(id, self._requeue(id, letter, 0))
        else:
            self._aside(id, self._reject(id))

    def _acknowledge(self) -> None:
        """What was settled in one turn of the loop, in one go."""
        if not self._done or not self.line.alive:
            return
        done, self._done = self._done, []
        self.line.ask("XACK", self.stream, self._group, *done).add_done_callback(partial(self._acknowledged, done))
        self.line.tell("XDEL", self.stream, *done)

    def _acknowledged(self, done: list[bytes], answer: asyncio.Future[Any]) -> None:
        if not answer.cancelled() and isinstance(answer.exception(), BusLost):
            self._done += done  # again when it is back
        else:
            self._unconfirmed.difference_update(done)

    async def _requeue(self, id: bytes, letter: Letter, more: int) -> None:
        """A copy at the end of the stream. What was refused was not begun, so it does not count as a delivery."""
        head = head_of(letter, letter.count + more)
        await scripts.REQUEUE.run(self.line, [self.stream], self._group, self._me, id, head)

    async def _reject(self, id: bytes) -> None:
        await scripts.REJECT.run(self.line, [self.stream, f"{self.stream}:dead"], self._group, id, DEAD)

    def _aside(self, id: bytes, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(self._tried(id, work))
        self._asides.add(task)
        task.add_done_callback(self._asides.discard)

    async def _tried(self, id: bytes, work: Awaitable[None]) -> None:
        """What fails here is still pending at the server, and somebody's later."""
        try:
            await work
        except (BusLost, Denied) as why:
            log.debug("%s: %s", self._place.shown, why)
        self._unconfirmed.discard(id)

    async def _minding(self, take: Take, prefetch: int) -> None:
        """Say that we live, and take over from who does not."""
        cursor = b"0-0"
        while True:
            try:
                await self._say_alive()
                if not self._paused and (room := prefetch - len(self._held)) > 0:
                    cursor = await self._take_over(take, cursor, min(room, AT_ONCE))
                await asyncio.sleep(self._idle / 3)
            except BusLost:
                if self._closed:
                    return
                await self.line.back(None)
            except Denied as why:
                await self._repair(why)

    async def _say_alive(self) -> None:
        held = list(self._held)
        for start in range(0, len(held), 500):
            part = held[start : start + 500]
            lost = await scripts.KEEP.run(self.line, [self.stream], self._group, self._me, *part)
            if lost:
                log.warning("%s: %d entries went to another worker while they were at work here", self.stream, lost)

    async def _take_over(self, take: Take, cursor: bytes, room: int) -> bytes:
        idle = self._idle
        if self.line.gap and asyncio.get_running_loop().time() < self.line.since + COMING_BACK:
            idle += self.line.gap + COMING_BACK  # nobody could say that he lives
        words = (self._group, self._me, int(idle * 1000), cursor, room)
        async with self._claiming:
            cursor, entries, counts = await scripts.TAKE_OVER.run(self.line, [self.stream], *words)
            self._deliver(take, entries, counts)
        return cursor

    async def pause(self) -> None:
        """See `Post.pause`."""
        self._paused = True
        self._room.set()
        reading = self._reading_task
        while self._reads is not None and reading is not None and not reading.done():
            if not (self.line.alive and self._reads.alive):
                return
            with contextlib.suppress(Denied):
                await self.line.ask("CLIENT", "UNBLOCK", self._reader)
            await asyncio.wait([reading], timeout=0.05)

    # -- control ----------------------------------------------------------------------------------

    async def hear(self, take: Take) -> None:
        """See `Post.hear`."""
        self._ear = Ear(self._place, on_state=self._state)
        await self._open_line(self._ear.line)

        def heard(message: bytes) -> None:
            head, _, body = message.partition(b"\n")
            if (found := letter_of([b"head", head, b"body", body])) is not None:
                take(found)

        await self._ear.subscribe(self._control, heard)

    async def tell(self, letter: Letter) -> None:
        """See `Post.tell`."""
        try:
            await self.line.ask("PUBLISH", self._control, head_of(letter) + b"\n" + letter.body)
        except Denied as why:
            raise Refused(f"Redis at {self._place.shown} does not take it: {why}") from None

    # -- requests and answers, as a caller --------------------------------------------------------

    async def request(self, letter: Letter, ttl: float | None) -> None:
        """See `Post.request`."""
        if not self.line.alive:
            raise NotTaken(f"Redis at {self._place.shown} is away")
        name, sending, now = letter.correlation, self.line.alive, asyncio.get_running_loop().time()
        words = (self._most, head_of(letter, int(name in self._doubtful)), letter.body)
        try:
            if (first := self._doubtful.get(name)) is None:
                size = await scripts.REQUEST.run(self.line, [self.stream], *words)
            else:
                age = int((now - first) * 1000) + 1_000
                size = await scripts.AGAIN.run(self.line, [self.stream], *words, f'"id":"{name}"', age)
                del self._doubtful[name]
        except BusLost:
            if sending and len(self._doubtful) < self._most:
                self._doubtful.setdefault(name, now)
            raise
        except Denied as why:
            raise Refused(f"Redis at {self._place.shown} does not take it: {why}") from None
        if size > 0:
            return
        if size < 0:
            raise Refused(f"the queue {self.stream} at {self._place.shown} is full: it holds {-size} requests")
        if self.line.gap and asyncio.get_running_loop().time() - self.line.since < YOUNG:
            raise NotTaken(f"the queue {self.stream} is not there again yet")
        raise Unroutable(f"nobody serves {self.stream} at {self._place.shown}: there is no such stream")

    async def mailbox(self, take: Take) -> str:
        """See `Post.mailbox`."""
        self._box = Line(self._place, greet=self._greet_box, on_state=self._state)
        try:
            await self._open_line(self._box)
        except BusLost as why:
            raise Broken(f"Cannot connect to {why}") from None
        self._tasks.append(asyncio.create_task(self._collecting(self._box, take)))
        return self._mailbox

    async def _greet_box(self) -> None:
        assert self._box is not None
        await self._keep_mailbox(self._box)

    async def _keep_mailbox(self, line: Line) -> None:
        """Let it live; make it where it is not there."""
        if await line.ask("PEXPIRE", self._mailbox, MAILBOX_LIFE):
            return
        made = line.ask("XADD", self._mailbox, "MAXLEN", 0, "*", "made", "")
        await asyncio.gather(made, line.ask("PEXPIRE", self._mailbox, MAILBOX_LIFE))
        self._emptied = bool(self._last)
        self._last = b"0-0"
        if self._emptied and self._alive:
            self._came_back_empty()

    def _came_back_empty(self) -> None:
        """Redis has lost what it held, so the calls that are out will not be answered."""
        self._emptied = False
        log.warning("%s has lost what it held", self._place.shown)
        if self.on_state is not None:
            self.durable = False
            self.on_state(False, "it has lost what it held")
            self.durable = True
            self.on_state(True, "")

    async def _collecting(self, line: Line, take: Take) -> None:
        loop = asyncio.get_running_loop()
        stale = 0  # entries that were read and are still there
        kept = loop.time()
        while True:
            try:
                found = await line.ask("XREAD", "COUNT", 256, "BLOCK", BLOCK, "STREAMS", self._mailbox, self._last)
                if found:
                    entries = found[0][1]
                    self._last = entries[-1][0]
                    stale += len(entries)
                    for _, fields in entries:
                        if (letter := letter_of(fields)) is not None:
                            self._hand(take, letter)
                if stale >= TRIM or (stale and not found):
                    line.tell("XTRIM", self._mailbox, "MINID", after(self._last))
                    stale = 0
                if not found or loop.time() - kept > MAILBOX_LIFE / 3000:
                    kept = loop.time()
                    await self._keep_mailbox(line)
            except BusLost:
                if self._closed:
                    return
                await line.back(None)
            except Denied as why:
                log.warning("%s: %s", self._place.shown, why)
                await asyncio.sleep(1)

    async def answer(self, to: str, letter: Letter) -> None:
        """See `Post.answer`."""
        try:
            words = ("XADD", to, "NOMKSTREAM", "*", "head", head_of(letter), "body", letter.body)
            if await self.line.ask(*words) is None:
                log.debug("%s: the mailbox of an answer is gone", self.stream)
        except Denied as why:
            log.warning("%s: Redis does not take an answer: %s", self._place.shown, why)

    # -- the end ----------------------------------------------------------------------------------

    async def close(self) -> None:
        """See `Post.close`."""
        if self._closed:
            return
        await self.pause()
        for id, letter in tuple(self._held.items()):
            self._aside(id, self._requeue(id, letter, 1))
        self._held.clear()
        if self._asides:
            await asyncio.wait(tuple(self._asides), timeout=2)
        self._closed = True
        if self.line.alive:
            self._acknowledge()
            with contextlib.suppress(BusLost, Denied):
                if self._reads is not None:
                    await scripts.LEAVE.run(self.line, [self.stream], self._group, self._me)
                if self._box is not None:
                    await self.line.ask("DEL", self._mailbox)
        for task in (*self._tasks, *self._asides):
            task.cancel()
        await asyncio.gather(*self._tasks, *self._asides, return_exceptions=True)
        if self._ear is not None:
            await self._ear.close()
        for line in reversed(self._lines):
            await line.close(flush=line is self.line)
