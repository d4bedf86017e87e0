"""`memory:name`: a bus and a store within one process, shared by all that open the same name.

They live until the last user closes. They belong to one event loop; messages are delivered in a later turn of it, never
from inside `publish`.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable
from typing import Any

from .contract import BusLost, EngineBus, Store
from .store import MemoryBusStore, RemoteStore
from .topics import Subscriber, Take, Topics


class _Hub:
    """The store and the topics that the users of one name share."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.store = MemoryBusStore(clock)
        self.topics = Topics()
        self.users = 0


_HUBS: dict[str, _Hub] = {}


class MemoryBus(EngineBus):
    """A `Bus` within the process. `clock`: seconds, used if this is the first user of the name. For tests,
    `disconnect` cuts this one user off from the engine until `connect_again`."""

    def __init__(self, name: str = "", *, clock: Callable[[], float] = time.monotonic) -> None:
        hub = _HUBS.get(name)
        if hub is None:
            hub = _HUBS[name] = _Hub(clock)
        hub.users += 1
        super().__init__(f"memory:{name}", "the bus")
        self.alive = True
        self._name = name
        self.store: Store | None = RemoteStore(self._ask)
        self._hub = hub
        self._mine: list[Subscriber] = []
        self._lost = ""
        self._closed = False

    def check(self) -> None:
        """Raise BusLost while this user is disconnected."""
        if not self.alive:
            raise BusLost(f"{self.url}: {self._lost}")

    async def _ask(self, verb: str, *words: object) -> Any:
        self.check()
        return getattr(self._hub.store, verb)(*words)

    async def publish(self, topic: str, message: bytes) -> None:
        self.check()
        loop = asyncio.get_running_loop()
        for one in self._hub.topics.of(topic):
            loop.call_soon(one.deliver, message)
        self.published += 1

    async def subscribe(self, topic: str, take: Take) -> Subscriber:
        self.check()
        counted = self.counted(take)

        def take_while_alive(message: bytes) -> object:
            return counted(message) if self.alive else None  # messages of an outage are lost, as with an engine

        one = self._hub.topics.add(topic, take_while_alive)
        self._mine.append(one)
        return one

    def disconnect(self) -> None:
        """Disconnect this user."""
        self._state(False, "disconnected")

    def connect_again(self) -> None:
        """Connect this user again."""
        self._state(True, "")

    def _state(self, alive: bool, why: str) -> None:
        if not self._closed:
            self._lost = why
            self.change_state(alive, why)

    async def close(self) -> None:
        """Close this user's end. When the last user of a name closes, its data is lost."""
        self.alive, self._lost = False, "this end is closed"
        for one in self._mine:
            await one.close()
        self._mine.clear()
        if not self._closed:
            self._closed = True
            self._hub.users -= 1
            if not self._hub.users:
                del _HUBS[self._name]


async def open(url: str, tls: ssl.SSLContext | None = None) -> MemoryBus:
    """Open the bus of that name."""
    return MemoryBus(url.partition(":")[2])
