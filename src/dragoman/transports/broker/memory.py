"""A broker within this process: `memory+broker:calculator`, on the same contract as RabbitMQ, MQTT, NATS and Redis.

For tests of what a service does over a broker, without one that runs: redeliveries, lost workers, dead letters, an
outage (`broker().stop()`), without delays. Delivery guarantee: at least once, while the process
lives.

Rules:

- There is one broker per event loop; the URL's name is the queue. `?prefetch=`, `?deliveries=`, `?reply_to=` and
  `?mailbox=` as on every broker, `?max=` requests and `?bytes=` bytes are held for a queue (more is `Refused`),
  `?limit=` is the longest message.
- The first worker makes the queue, and it stays: without it a call fails at once (`Unroutable`), with it and without a
  worker calls wait, until their deadline passes.
- A worker that stops returns what it has not settled, with one delivery more on its count. What is rejected is kept
  in `Queue.dead`, the newest of it.
- An answer goes to what is at its address, as with RabbitMQ's default exchange: a mailbox, or another queue. So the
  listener alone decides where answers may go.
- Nothing is delivered from within a call of the adapter's: the loop delivers.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable
from functools import partial
from weakref import WeakKeyDictionary

from msgspec import Struct
from msgspec.structs import replace

from ...doors import public_dir
from ...net.sharing import OnState, ignore_state
from ...net.urls import Url, address, number, printable, read_query
from .contract import BrokerMessage, Mailboxes, NotTaken, Outcome, Refused, Take, Unroutable, mailbox_parts
from .ends import ends

__all__ = ["MemoryBroker", "Queue", "broker", "dial", "listen"]
__dir__: Callable[[], list[str]] = public_dir(__name__)

LIMIT = 16 * 1024 * 1024
"""The longest message, in bytes: RabbitMQ's default, so that a message that fits here fits there."""
MAX = 10_000
"""Requests that wait for one queue's workers."""
BYTES = 64 * 1024 * 1024
"""Bytes of the requests that wait for one queue's workers: they are held in this process's memory."""
DEAD = 1_000
"""Dead letters kept for one queue; beyond that the oldest is dropped."""
_QUERY = ("queue", "prefetch", "deliveries", "reply_to", "mailbox", "max", "bytes", "limit")


# -- the broker -----------------------------------------------------------------------------------


class _Entry(Struct, eq=False):
    """A request in a queue, with the time until which its caller waits, on the loop's clock."""

    message: BrokerMessage
    until: float


class _Worker:
    """Takes requests, at most `prefetch` unsettled at a time."""

    __slots__ = ("held", "prefetch", "take", "taking")

    def __init__(self, take: Take, prefetch: int) -> None:
        self.take: Take = take
        self.prefetch: int = prefetch
        self.taking: bool = True
        self.held: dict[int, _Entry] = {}


class Queue:
    """One queue: waiting requests, `workers`, and dead letters (`dead`). `online`: it delivers."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.dead: deque[BrokerMessage] = deque(maxlen=DEAD)
        self.workers: list[_Worker] = []
        self.online = True
        self._loop = loop
        self._ready: deque[_Entry] = deque()
        self._size = 0
        self._due = False

    def __len__(self) -> int:
        """Requests that wait for a worker."""
        return len(self._ready)

    def full(self, size: int, most: int, most_bytes: int) -> bool:
        """Return whether a request of `size` bytes is more than the queue may hold."""
        return len(self._ready) >= most or self._size + size > most_bytes

    def put(self, entry: _Entry, *, first: bool = False) -> None:
        """Queue a request; `first`: before the others."""
        (self._ready.appendleft if first else self._ready.append)(entry)
        self._size += len(entry.message.body)
        self.wake()

    def wake(self) -> None:
        """Deliver, in the loop's next turn."""
        if not self._due and self.online:
            self._due = True
            self._loop.call_soon(self._deliver)

    def _deliver(self) -> None:
        self._due = False
        while self.online and self._ready:
            worker = next((one for one in self.workers if one.taking and len(one.held) < one.prefetch), None)
            if worker is None:
                return
            self.workers.remove(worker)  # its turn comes again after the others
            self.workers.append(worker)
            entry = self._ready.popleft()
            self._size -= len(entry.message.body)
            if entry.until > self._loop.time():
                worker.held[id(entry)] = entry
                worker.take(replace(entry.message, settle=partial(self._settle, worker, entry)))

    def _settle(self, worker: _Worker, entry: _Entry, outcome: Outcome) -> None:
        if worker.held.pop(id(entry), None) is None:  # it was given back meanwhile
            return
        if outcome == "retry":
            self.put(entry, first=True)
        elif outcome == "reject":
            self.dead.append(entry.message)
        self.wake()

    def give_back(self, worker: _Worker) -> None:
        """Return the requests that a worker holds unsettled to the queue, for the others."""
        held = list(worker.held.values())
        worker.held.clear()
        for entry in reversed(held):
            entry.message = replace(entry.message, count=entry.message.count + 1)
            self.put(entry, first=True)


class MemoryBroker:
    """The broker of one event loop. `stop` and `start` simulate an outage: confirmed requests are kept.

    `queues` and `mailboxes`: by their names; `hearing`: the functions that take broadcasts, by queue; `adapters`: those
    that are connected; `online`: whether there is no outage.
    """

    def __init__(self) -> None:
        self.queues: dict[str, Queue] = {}
        self.mailboxes: dict[str, Take] = {}
        self.hearing: dict[str, list[Take]] = {}
        self.adapters: set[MemoryAdapter] = set()
        self.online: bool = True

    def queue(self, name: str) -> Queue:
        """The queue of that name, made if there is none."""
        if name not in self.queues:
            self.queues[name] = queue = Queue(asyncio.get_running_loop())
            queue.online = self.online
        return self.queues[name]

    def publish(self, to: str, message: BrokerMessage) -> None:
        """Publish to the mailbox or the queue at an address; drop the message if there is none."""
        if (take := self.mailboxes.get(to)) is not None:
            asyncio.get_running_loop().call_soon(take, message)
        elif (queue := self.queues.get(to)) is not None and not queue.full(len(message.body), MAX, BYTES):
            queue.put(_Entry(message, math.inf))

    def stop(self, why: str = "it was stopped") -> None:
        """Begin an outage: every adapter loses the broker, and unsettled requests will be delivered again."""
        self.online = False
        for queue in self.queues.values():
            queue.online = False
            for worker in queue.workers:
                queue.give_back(worker)
        self._report_state(why)

    def start(self) -> None:
        """End the outage; everything that was confirmed is still there."""
        self.online = True
        for queue in self.queues.values():
            queue.online = True
            queue.wake()
        self._report_state("")

    def _report_state(self, why: str) -> None:
        for adapter in tuple(self.adapters):
            adapter.on_state(self.online, why)


_LOOPS: WeakKeyDictionary[asyncio.AbstractEventLoop, MemoryBroker] = WeakKeyDictionary()


def broker() -> MemoryBroker:
    """The broker of the running event loop."""
    return _LOOPS.setdefault(asyncio.get_running_loop(), MemoryBroker())


class MemoryAdapter:
    """The `contract.BrokerAdapter` of this broker."""

    name = "The broker in memory"
    durable = True

    def __init__(self, where: Url) -> None:
        read_query(where, *_QUERY)
        last, before = address(where)
        self.queue: str = f"{before}/{last}" if before else last
        self.limit: int = number(where, "limit", LIMIT)
        self._mailboxes = Mailboxes(where, f"{self.queue}:to:*")
        self.on_state: OnState = ignore_state
        self._most = number(where, "max", MAX), number(where, "bytes", BYTES)
        self._broker = broker()
        self._loop = asyncio.get_running_loop()
        self._worker: _Worker | None = None
        self._control: Take | None = None
        self._mailbox = ""
        self._names = mailbox_parts(where)

    async def open(self) -> None:
        self._reach()
        self._broker.adapters.add(self)

    def _reach(self) -> MemoryBroker:
        if not self._broker.online:
            raise NotTaken(f"{self.name} is away")
        return self._broker

    async def work(self, take: Take, prefetch: int) -> None:
        self._worker = _Worker(take, prefetch)
        queue = self._reach().queue(self.queue)
        queue.workers.append(self._worker)
        queue.wake()

    async def pause(self) -> None:
        if self._worker is not None:
            self._worker.taking = False

    async def receive_control(self, take: Take) -> None:
        self._control = take
        self._reach().hearing.setdefault(self.queue, []).append(take)

    async def mailbox(self, take: Take) -> str:
        self._mailbox = ":".join((f"{self.queue}:to", *self._names))
        self._reach().mailboxes[self._mailbox] = take
        return self._mailbox

    async def request(self, message: BrokerMessage, ttl: float | None) -> None:
        queue = self._reach().queues.get(self.queue)
        if queue is None:
            raise Unroutable(f"no worker serves {printable(self.queue)!r} in this event loop: no such queue")
        if queue.full(len(message.body), *self._most):
            raise Refused(f"{self.name} did not take the message: {printable(self.queue)!r} is full")
        queue.put(_Entry(message, math.inf if ttl is None else self._loop.time() + ttl))

    async def send_control(self, message: BrokerMessage) -> None:
        for take in self._reach().hearing.get(self.queue, ()):
            self._loop.call_soon(take, message)

    def answerable(self, message: BrokerMessage) -> bool:
        return self._mailboxes.hold(message.reply_to)

    async def answer(self, to: str, message: BrokerMessage) -> None:
        self._reach().publish(to, message)

    async def close(self) -> None:
        here = self._broker
        here.adapters.discard(self)
        here.mailboxes.pop(self._mailbox, None)
        if self._control is not None:
            here.hearing[self.queue].remove(self._control)
            self._control = None
        if self._worker is not None:
            queue = here.queue(self.queue)
            queue.workers.remove(self._worker)
            queue.give_back(self._worker)
            self._worker = None


dial, listen = ends(lambda where, options, serving: MemoryAdapter(where), lambda adapter: adapter.queue)
