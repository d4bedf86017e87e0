"""Sends messages to one HTTP endpoint, a POST each: their order, the outcome of notifications, and closing.

The channel that owns these `Posts` decides what a POST contains and what its reply means. This module has what
all channels share:

- Messages are in lanes. All lanes together run at most `limits.connections` POSTs; further ones wait in order,
  each lane for itself, and time-outs run meanwhile. Each lane may always run one POST, so that an answer for which
  a call waits never waits for that call.
- The task of a POST begins when the POST may run. If the caller stops waiting for a call, its POST is aborted.
- `flush` returns when the server has accepted the notifications that the current task sent, and raises the error of
  one that was not accepted.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from ....channel import Broken, ChannelError, Closed, Outgoing, Receiver, again
from ....jsonrpc.limits import Limits
from ....net.sending import Waiters

log: logging.Logger = logging.getLogger(__name__)


class PendingPost:
    """One message that is sent: waiting (no task yet) or running."""

    __slots__ = ("call", "how", "lane", "message", "posts", "sender", "taken", "task", "until")

    def __init__(self, posts: Posts, lane: Lane, message: bytes, call: Outgoing | None, how: Any) -> None:
        self.how: Any = how
        """What the channel needs to know when this message is sent."""
        self.posts: Posts = posts
        self.lane: Lane = lane
        self.message: bytes = message
        self.call: Outgoing | None = call
        self.task: asyncio.Task[None] | None = None
        self.sender: asyncio.Task[object] | None = None
        self.taken: asyncio.Future[Exception | None] | None = None
        """A notification's outcome, as a value: there may be no task to take an exception."""
        self.until: asyncio.TimerHandle | None = None
        """The time until which a notification waits to be sent."""

    def abandon(self) -> None:
        """Stop it: its connection is closed, so that the server notices."""
        if self.task is not None:
            self.task.cancel()
        else:
            self.posts.forget(self)

    def over(self, _: object) -> None:
        self.posts.over(self)


class Lane:
    """POSTs that wait for each other. `most`: one starts while fewer run in all lanes; `share`: at most this many run
    of this lane."""

    __slots__ = ("most", "running", "share", "waiting")

    def __init__(self, most: int, share: int | None = None) -> None:
        self.most: int = most
        self.share: int = most if share is None else share
        self.running: set[PendingPost] = set()
        self.waiting: dict[PendingPost, None] = {}


class Posts:
    """The POSTs of one channel, which delegates its part of `Channel` to them.

    `run(post)` does one POST: it settles the call, and returns why a notification was not accepted
    (None: it was). `lanes`: in order of precedence. `writable(bool)` is called when that changes; `release()` closes
    the wire at the end.
    """

    def __init__(
        self,
        name: str,
        limits: Limits,
        lanes: tuple[Lane, ...],
        *,
        run: Callable[[PendingPost], Awaitable[Exception | None]],
        writable: Callable[[bool], None],
        release: Callable[[], Awaitable[None]],
    ) -> None:
        self.name = name
        """The far end's address as text."""
        self.receiver: Receiver | None = None
        self.ending: ChannelError | None = None
        self._limits = limits
        self._lanes = lanes
        self._run = run
        self._writable = writable
        self._release = release
        self._loop = asyncio.get_running_loop()
        self._reported = False
        self._closing: asyncio.Task[None] | None = None
        self._unsent = 0
        self._full = False
        self._notes: dict[asyncio.Task[object] | None, set[PendingPost]] = {}
        self._waiters = Waiters()

    # -- the contract -----------------------------------------------------------------------------

    def send(self, message: bytes, call: Outgoing | None, lane: Lane, how: Any = None) -> None:
        """POST `message`, at once or when it may run. Raises the ending when the channel is over."""
        self.check()
        post = PendingPost(self, lane, message, call, how)
        if call is None:
            post.sender = asyncio.current_task()
            post.taken = self._loop.create_future()
            self._notes.setdefault(post.sender, set()).add(post)
        else:
            call.abandon = post.abandon
        if not lane.waiting and self._may_start(lane):
            self._start(post)
        else:
            lane.waiting[post] = None
            if call is None and (timeout := self._limits.call_timeout) is not None:
                post.until = self._loop.call_later(timeout, self._late, post, timeout)
            self._unsent += len(message)
            if not self._full and self._unsent > self._limits.send_queue:
                self._full = True
                self._writable(False)

    async def flush(self) -> None:
        """Wait for space in the queue, and until the server has accepted the current task's notifications.

        Raises the error of one that was refused.
        """
        mine = [post.taken for post in self._notes.get(asyncio.current_task(), ()) if post.taken]
        while self._full:
            self.check()
            await self._waiters.wait()
        if mine:
            await asyncio.wait(mine)
            for taken in mine:
                if (why := taken.result()) is not None:
                    raise why
        self.check()

    async def close(self) -> None:
        """Let running and waiting POSTs end (within `limits.write_timeout`), then release the wire."""
        if self._closing is None:
            self.ending = Closed(f"{self.name} was closed here: connect anew")
            self._closing = self._loop.create_task(self._drain())
        await asyncio.shield(self._closing)

    def abort(self, why: ChannelError) -> None:
        """Abort every POST and release the wire."""
        if self._closing is None:
            self.ending = why
            self._closing = self._loop.create_task(self._released())
            self._loop.call_soon(self._end)
        self._abandon_all()

    def of_task(self, task: asyncio.Task[Any] | None) -> PendingPost | None:
        """The POST that this task runs."""
        running = (post for lane in self._lanes for post in lane.running)
        return next((post for post in running if post.task is task), None)

    def check(self) -> None:
        """Raise the ending when the channel is over."""
        if self.ending is not None:
            raise again(self.ending)

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
        if not self._reported:
            self._reported = True
            self._waiters.wake()
            if self.receiver is not None and self.ending is not None:
                self.receiver.ended(self.ending)

    def _may_start(self, lane: Lane) -> bool:
        """Whether another POST of this lane may start."""
        if not lane.running:
            return True
        return len(lane.running) < lane.share and sum(len(one.running) for one in self._lanes) < lane.most

    def _late(self, post: PendingPost, timeout: float) -> None:
        """Fail a notification that could not be sent in time."""
        self._settle(post, Broken(f"{self.name}: a notification waited {timeout:g} s for its turn (limit connections)"))
        self.forget(post)

    def _start(self, post: PendingPost) -> None:
        post.lane.running.add(post)
        post.task = self._loop.create_task(self._go(post))
        post.task.add_done_callback(post.over)

    async def _go(self, post: PendingPost) -> None:
        try:
            why = await self._run(post)
        except Exception as error:  # a fault of ours, which must not leave a caller waiting
            log.exception("%s: a POST failed", self.name)
            why = Broken(f"{self.name}: the POST failed: {error!r}")
            if post.call is not None:
                post.call.failed(why)
        if post.call is None:
            self._settle(post, why)

    def forget(self, post: PendingPost) -> None:
        """Remove a waiting message; it is never sent."""
        if post in post.lane.waiting:
            self._unqueue(post)
            self._settle_aborted(post)

    def over(self, post: PendingPost) -> None:
        """Start the next waiting POSTs after one has ended, by precedence of their lanes."""
        post.lane.running.discard(post)
        if post.taken is not None:
            self._settle_aborted(post)
        for lane in self._lanes:
            while lane.waiting and self._may_start(lane):
                following = next(iter(lane.waiting))
                self._unqueue(following)
                self._start(following)

    def _unqueue(self, post: PendingPost) -> None:
        if post.until is not None:
            post.until.cancel()
        del post.lane.waiting[post]
        self._unsent -= len(post.message)
        if self._full and self._unsent <= self._limits.send_queue:
            self._full = False
            self._writable(True)
            self._waiters.wake()
            self._loop.call_soon(self._resumed)

    def _resumed(self) -> None:
        if not self._full and not self._reported and self.receiver is not None:
            self.receiver.resumed()

    def _settle(self, post: PendingPost, why: Exception | None) -> None:
        """Record the outcome of a notification, unless it is known."""
        if post.taken is None or post.taken.done():
            return
        notes = self._notes[post.sender]
        notes.discard(post)
        if not notes:
            del self._notes[post.sender]
        post.taken.set_result(why)

    def _settle_aborted(self, post: PendingPost) -> None:
        """Settle a notification whose POST has ended without an outcome: it was aborted."""
        if post.taken is not None and not post.taken.done():
            self._settle(post, self.ending or Broken(f"{self.name}: the notification was cut off"))
