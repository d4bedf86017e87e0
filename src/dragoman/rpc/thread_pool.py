"""Worker threads of one event loop, for plain functions that may block.

An executor wakes a thread for each piece of work and the loop for each result; for a quick function under load that is
most of the cost. Here the loop is woken once for all results that are ready, and one thread at a time is on its way to
waiting work: it wakes the next one before it begins, so that a function that blocks delays nothing behind it.

Rules:

- What a thread calls on the loop (`call_soon`) and the ends of functions reach the loop in the order in which they
  happened.
- `Work.abandon` withdraws work that has not begun; work that has begun cannot be stopped, and reports its return.
- Threads hold no reference to the pool: without one their queue is worked off and they end. At the interpreter's exit
  functions that have begun are waited for, as the standard library's executors do.
"""

from __future__ import annotations

import asyncio
import atexit
import contextvars
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

from msgspec import Struct, field


class Work(Struct, eq=False):
    """One function in the pool; `future` gets its result or its exception."""

    future: asyncio.Future[Any]
    _function: Callable[..., Any]
    _arguments: tuple[Any, ...]
    _context: contextvars.Context = field(default_factory=contextvars.copy_context)
    _begun: bool = False
    _abandoned: bool = False
    _returned: Callable[[], None] | None = None
    thread: int = 0
    """The thread that runs it now, as `threading.get_ident` numbers it; 0: none does."""
    _result: Any = None
    _error: BaseException | None = None

    def abandon(self, returned: Callable[[], None]) -> bool:
        """Ignore the result. True while the function runs: `returned` is called on the loop once it has returned.

        On the loop. The thread sets `_begun` before it looks at `_abandoned`; here it is the other way round, so that
        one of the two sees the other.
        """
        if self.future.done() and not self.future.cancelled():  # settled already
            self.future.exception()
            return False
        self._abandoned = True
        if self._begun:
            self._returned = returned
        return self._begun

    def run(self) -> None:
        """Call the function; runs in a worker thread."""
        self._begun = True
        if self._abandoned:
            return
        self.thread = threading.get_ident()
        try:
            self._result = self._context.run(self._function, *self._arguments)
        except (StopIteration, GeneratorExit) as error:  # a future, or a coroutine, cannot carry these
            self._error = RuntimeError(f"the method raised {type(error).__name__}")
            self._error.__cause__ = error
        except BaseException as error:
            self._error = error
        finally:
            self.thread = 0

    def settle(self) -> None:
        """Set the future's result; runs on the loop, after `run`."""
        error, self._error = self._error, None  # no reference cycle through its traceback
        if self._returned is not None:
            self._returned()
        elif self.future.done():
            return
        elif error is None:
            self.future.set_result(self._result)
        else:
            self.future.set_exception(error)


class ThreadPool:
    """At most `size` threads, each started when there is work and no idle thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, size: int, name: str) -> None:
        self._queue = queue = _Queue(loop, size, name)
        weakref.finalize(self, queue.close).atexit = False

    @property
    def waiting(self) -> int:
        """Work that no thread has begun."""
        return len(self._queue.waiting)

    def submit(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Work:
        """Call the function in a thread, in a copy of the current context; on the loop. Raises RuntimeError after
        `close`."""
        queue = self._queue
        if queue.closed:
            raise RuntimeError("the thread pool is closed")
        work = Work(queue.loop.create_future(), function, arguments)
        queue.waiting.append(work)
        try:
            queue.wake()
        except RuntimeError:  # the system has no thread left, and there is none of ours
            queue.waiting.remove(work)
            raise
        return work

    def call_soon(self, callback: Callable[..., object], *arguments: Any) -> bool:
        """Make the loop call a function; from any thread. False if the loop is closed."""
        return self._queue.call_soon(callback, *arguments)

    def close(self) -> None:
        """Cancel work that has not begun; idle threads end now, the others when their function returns. On the loop."""
        queue = self._queue
        while queue.waiting:
            work = queue.waiting.popleft()
            if not queue.loop.is_closed():
                work.future.cancel()
        queue.close()


class _Queue:
    """The state that the threads of a pool share. Code under `lock` is short and calls nothing foreign."""

    def __init__(self, loop: asyncio.AbstractEventLoop, size: int, name: str) -> None:
        self.loop = loop
        self.size = size
        self.name = name
        self.waiting: deque[Work] = deque()
        self.closed = False
        self.lock = threading.Lock()
        self.threads: set[threading.Thread] = set()
        self.idle: list[threading.Lock] = []  # one per waiting thread, released to wake it
        self.waking = False  # a thread is on its way to `waiting`
        self.callbacks: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self.calling = False  # the loop will call `call` for `callbacks`

    def wake(self) -> None:
        """Wake a thread if work waits, none is on its way yet, and one is available."""
        with self.lock:
            if self.waking or not self.waiting:
                return
            if self.idle:
                self.waking = True
                self.idle.pop().release()
                return
            if len(self.threads) == self.size:
                return
            thread = threading.Thread(target=self.work, name=f"{self.name}_{len(self.threads)}", daemon=True)
            self.threads.add(thread)
            self.waking = True
        try:
            thread.start()
        except RuntimeError:  # "can't start new thread": running threads will take the work
            with self.lock:
                self.threads.discard(thread)
                self.waking = False
                alone = not self.threads
            if alone:
                raise

    def work(self) -> None:
        """The main function of one thread."""
        _queues.add(self)
        parked = threading.Lock()
        parked.acquire()
        arrived = True
        while True:
            with self.lock:
                if arrived:
                    self.waking = False
                if not self.waiting:
                    if self.closed:
                        self.threads.discard(threading.current_thread())
                        return
                    self.idle.append(parked)
                    work = None
                else:
                    work = self.waiting.popleft()
            if work is None:
                parked.acquire()
                arrived = True
                continue
            arrived = False
            if self.waiting:
                self.wake()
            work.run()
            self.call_soon(work.settle)
            del work  # release its arguments before the next one comes

    def call_soon(self, callback: Callable[..., object], *arguments: Any) -> bool:
        """Make the loop call a function; the loop is woken once for all functions that wait."""
        self.callbacks.append((callback, arguments))
        if not self.calling:
            self.calling = True
            try:
                self.loop.call_soon_threadsafe(self.call)
            except RuntimeError:  # the loop is closed, and with it all waiting tasks
                self.callbacks.clear()
                self.calling = False
                return False
        return True

    def call(self) -> None:
        """On the loop: call the functions queued so far. Later ones need another wake-up, so that other tasks can
        run."""
        self.calling = False
        for _ in range(len(self.callbacks)):
            callback, arguments = self.callbacks.popleft()
            try:
                callback(*arguments)
            except Exception as error:
                self.loop.call_exception_handler({"message": "a callback from a thread failed", "exception": error})

    def close(self) -> None:
        """End the threads once no work waits."""
        with self.lock:
            self.closed = True
            idle, self.idle = self.idle, []
        for parked in idle:
            parked.release()


_queues: weakref.WeakSet[_Queue] = weakref.WeakSet()


@atexit.register
def finish(patience: float | None = None) -> bool:
    """At exit: waiting work never begins, running work may return within `patience` seconds. False: some has not."""
    until = None if patience is None else time.monotonic() + patience
    for queue in tuple(_queues):
        queue.waiting.clear()
        queue.close()
        for thread in tuple(queue.threads):
            thread.join(None if until is None else max(0.0, until - time.monotonic()))
            if thread.is_alive():
                return False
    return True
