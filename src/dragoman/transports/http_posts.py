"""Messages on their way to one HTTP endpoint, a POST each: whose turn it is, what became of notifications, the end.

What a POST says and what its reply means is the business of the channel that has these `Posts`; here stands what
all of them share:

- Messages go in lanes. A lane has at most `CONNECTIONS` POSTs under way; further ones wait in order.
- The task that does a POST begins with its turn. Who stops waiting for a call cuts its POST off.
- `flush` returns when the server has taken the notifications that the current task sent, and raises what became of
  one that was not taken.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from ..channel import Broken, ChannelError, Closed, Outgoing, Receiver
from ..jsonrpc.limits import Limits

log = logging.getLogger(__name__)

CONNECTIONS = 100
"""POSTs of one lane under way at once."""


class Post:
    """One message on its way: waiting for its turn (no task yet) or under way."""

    __slots__ = ("call", "how", "lane", "message", "posts", "sender", "taken", "task")

    def __init__(self, posts: Posts, lane: Lane, message: bytes, call: Outgoing | None, how: Any) -> None:
        self.how = how
        """What the channel wants to know when it is this message's turn."""
        self.posts = posts
        self.lane = lane
        self.message = message
        self.call = call
        self.task: asyncio.Task[None] | None = None
        self.sender: asyncio.Task[object] | None = None
        self.taken: asyncio.Future[Exception | None] | None = None
        """A notification's outcome, as a value: nobody may be there to take an exception."""

    def abandon(self) -> None:
        """Stop: the connection is closed, by which the server notices."""
        if self.task is not None:
            self.task.cancel()
        else:
            self.posts.forget(self)

    def over(self, _: object) -> None:
        self.posts.over(self)


class Lane:
    """POSTs that take turns with each other."""

    __slots__ = ("running", "waiting", "width")

    def __init__(self) -> None:
        self.width = CONNECTIONS
        self.running: set[Post] = set()
        self.waiting: dict[Post, None] = {}


class Posts:
    """The POSTs of one channel, which hands its part of `Channel` on to them.

    `run(post)` does one POST: it tells the call what became of it, and returns why a notification was not taken
    (None: it was). `writable(bool)` is told when that changes; `release()` lets go of the wire at the end.
    """

    def __init__(
        self,
        name: str,
        limits: Limits,
        lanes: tuple[Lane, ...],
        *,
        run: Callable[[Post], Awaitable[Exception | None]],
        writable: Callable[[bool], None],
        release: Callable[[], Awaitable[None]],
    ) -> None:
        self.name = name
        """The far end in words."""
        self.receiver: Receiver | None = None
        self.ending: ChannelError | None = None
        self._limits = limits
        self._lanes = lanes
        self._run = run
        self._writable = writable
        self._release = release
        self._loop = asyncio.get_running_loop()
        self._told = False
        self._closing: asyncio.Task[None] | None = None
        self._unsent = 0
        self._full = False
        self._notes: dict[asyncio.Task[object] | None, set[Post]] = {}
        self._watchers: list[asyncio.Future[None]] = []

    # -- the contract -----------------------------------------------------------------------------

    def send(self, message: bytes, call: Outgoing | None, lane: Lane, how: Any = None) -> None:
        """POST `message`, at once or when it is its turn. Raises the ending when the channel is over."""
        self.check()
        post = Post(self, lane, message, call, how)
        if call is None:
            post.sender = asyncio.current_task()
            post.taken = self._loop.create_future()
            self._notes.setdefault(post.sender, set()).add(post)
        else:
            call.abandon = post.abandon
        if len(lane.running) < lane.width:
            self._start(post)
        else:
            lane.waiting[post] = None
            self._unsent += len(message)
            if not self._full and self._unsent > self._limits.send_queue:
                self._full = True
                self._writable(False)

    async def flush(self) -> None:
        """Wait for room among the waiting, and until the server has taken the current task's notifications.

        Raises what became of one that was refused.
        """
        mine = [post.taken for post in self._notes.get(asyncio.current_task(), ()) if post.taken]
        while self._full:
            self.check()
            watcher = self._loop.create_future()
            self._watchers.append(watcher)
            await watcher
        if mine:
            await asyncio.wait(mine)
            for taken in mine:
                if (why := taken.result()) is not None:
                    raise why
        self.check()

    async def close(self) -> None:
        """Let the POSTs under way and waiting end (within `limits.write_timeout`), then release the wire."""
        if self._closing is None:
            self.ending = Closed(f"{self.name} was closed here")
            self._closing = self._loop.create_task(self._drain())
        await asyncio.shield(self._closing)

    def abort(self, why: ChannelError) -> None:
        """Cut off every POST and release the wire."""
        if self._closing is None:
            self.ending = why
            self._closing = self._loop.create_task(self._released())
            self._loop.call_soon(self._end)
        self._abandon_all()

    def check(self) -> None:
        """Raise the ending when the channel is over."""
        if self.ending is not None:
            raise type(self.ending)(str(self.ending))

    # -- its life ---------------------------------------------------------------------------------

    async def _drain(self) -> None:
        tasks = self._tasks()
        until = None if (limit := self._limits.write_timeout) is None else self._loop.time() + limit
        while tasks and (until is None or self._loop.time() < until):
            await asyncio.wait(tasks, timeout=None if until is None else until - self._loop.time())
            tasks = self._tasks()
        self._abandon_all()
        await self._released()
        self._end()

    def _abandon_all(self) -> None:
        for lane in self._lanes:
            for post in [*lane.waiting, *lane.running]:
                post.abandon()

    async def _released(self) -> None:
        if tasks := self._tasks():
            await asyncio.wait(tasks)
        await self._release()

    def _tasks(self) -> list[asyncio.Task[None]]:
        return [post.task for lane in self._lanes for post in lane.running if post.task is not None]

    def _end(self) -> None:
        if not self._told:
            self._told = True
            self._wake()
            if self.receiver is not None and self.ending is not None:
                self.receiver.ended(self.ending)

    def _wake(self) -> None:
        watchers, self._watchers = self._watchers, []
        for watcher in watchers:
            if not watcher.done():
                watcher.set_result(None)

    def _start(self, post: Post) -> None:
        post.lane.running.add(post)
        post.task = self._loop.create_task(self._go(post))
        post.task.add_done_callback(post.over)

    async def _go(self, post: Post) -> None:
        try:
            why = await self._run(post)
        except Exception as error:  # which is a fault of ours, and must not leave anybody waiting
            log.exception("%s: a POST failed", self.name)
            why = Broken(f"{self.name}: the POST failed: {error!r}")
            if post.call is not None:
                post.call.failed(why)
        if post.call is None:
            self._settle(post, why)

    def forget(self, post: Post) -> None:
        """Take a message out of the waiting ones; it is never sent."""
        if post in post.lane.waiting:
            self._unqueue(post)
            self._cut(post)

    def over(self, post: Post) -> None:
        """A POST has ended: the next waiting one has its turn."""
        lane = post.lane
        lane.running.discard(post)
        self._cut(post)
        if lane.waiting:
            following = next(iter(lane.waiting))
            self._unqueue(following)
            self._start(following)

    def _unqueue(self, post: Post) -> None:
        del post.lane.waiting[post]
        self._unsent -= len(post.message)
        if self._full and self._unsent <= self._limits.send_queue:
            self._full = False
            self._writable(True)
            self._wake()
            self._loop.call_soon(self._resumed)

    def _resumed(self) -> None:
        if not self._full and not self._told and self.receiver is not None:
            self.receiver.resumed()

    def _settle(self, post: Post, why: Exception | None) -> None:
        """Tell what became of a notification, unless that is known."""
        if post.taken is None or post.taken.done():
            return
        notes = self._notes[post.sender]
        notes.discard(post)
        if not notes:
            del self._notes[post.sender]
        post.taken.set_result(why)

    def _cut(self, post: Post) -> None:
        """The end of a POST; a notification without an outcome by now was cut off."""
        if post.taken is not None and not post.taken.done():
            self._settle(post, self.ending or Broken(f"{self.name}: the notification was cut off"))
