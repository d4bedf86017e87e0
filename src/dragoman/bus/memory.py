"""`memory:name`: a bus and a store within one process. All that open the same name share them.

They live until the last one closes. One event loop; deliveries come in a later turn of it, never from
inside `publish`.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable

from .contract import BusLost, Store
from .store import MemoryStore
from .topics import Subscriber, Take, Topics


class _Hub:
    """What those who opened one name share."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.shelves = MemoryStore(clock)
        self.topics = Topics()
        self.ends = 0


_HUBS: dict[str, _Hub] = {}


class AttachedStore:
    """A `Store` within the process."""

    def __init__(self, bus: MemoryBus, shelves: MemoryStore) -> None:
        self._bus = bus
        self._shelves = shelves

    async def get(self, key: str) -> bytes | None:
        self._bus.check()
        return self._shelves.get(key)

    async def put(self, key: str, value: bytes, *, ttl: float | None = None) -> None:
        self._bus.check()
        self._shelves.put(key, value, ttl)

    async def put_new(self, key: str, value: bytes, *, ttl: float | None = None) -> bool:
        self._bus.check()
        return self._shelves.put_new(key, value, ttl)

    async def delete(self, key: str) -> bool:
        self._bus.check()
        return self._shelves.delete(key)

    async def touch(self, key: str, ttl: float) -> bool:
        self._bus.check()
        return self._shelves.touch(key, ttl)

    async def append(
        self, log: str, message: bytes, *, ttl: float, messages: int = 1_000, size: int = 1_048_576
    ) -> int:
        self._bus.check()
        return self._shelves.append(log, message, ttl, messages, size)

    async def read(self, log: str, after: int = 0) -> list[tuple[int, bytes]]:
        self._bus.check()
        return self._shelves.read(log, after)


class MemoryBus:
    """A `Bus` within the process. `clock`: seconds, for the first who opens a name; `away` takes the engine from this
    one end until `back`, for trying out what a loss does."""

    def __init__(self, name: str = "", *, clock: Callable[[], float] = time.monotonic) -> None:
        hub = _HUBS.get(name)
        if hub is None:
            hub = _HUBS[name] = _Hub(clock)
        hub.ends += 1
        self.url = f"memory:{name}"
        self._name = name
        self.store: Store | None = AttachedStore(self, hub.shelves)
        self.alive = True
        self.on_state: Callable[[bool], object] | None = None
        self._hub = hub
        self._mine: list[Subscriber] = []
        self._lost = ""
        self._closed = False

    def check(self) -> None:
        """Raise BusLost while there is no engine for this end."""
        if not self.alive:
            raise BusLost(f"{self.url}: {self._lost}")

    async def publish(self, topic: str, message: bytes) -> None:
        self.check()
        loop = asyncio.get_running_loop()
        for one in self._hub.topics.of(topic):
            loop.call_soon(one.tell, message)

    async def subscribe(self, topic: str, take: Take) -> Subscriber:
        self.check()
        one = self._hub.topics.add(topic, take)
        self._mine.append(one)
        return one

    def away(self) -> None:
        """The engine is gone, for this end."""
        self._state(False, "away")

    def back(self) -> None:
        """It is there again."""
        self._state(True, "")

    def _state(self, alive: bool, why: str) -> None:
        if alive == self.alive or self._closed:
            return
        self.alive, self._lost = alive, why
        if self.on_state is not None:
            self.on_state(alive)

    async def close(self) -> None:
        """As `Bus.close`. With the last end of a name goes what was kept there."""
        self.alive, self._lost = False, "this end is closed"
        for one in self._mine:
            await one.close()
        self._mine.clear()
        if not self._closed:
            self._closed = True
            self._hub.ends -= 1
            if not self._hub.ends:
                del _HUBS[self._name]


async def open(url: str, tls: ssl.SSLContext | None = None) -> MemoryBus:
    """The bus of that name."""
    return MemoryBus(url.partition(":")[2])
