"""Subscriptions by topic, for engines that subscribe to a topic once and pass messages to all local subscribers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import TypeAlias

from .contract import call_subscriber

Take: TypeAlias = Callable[[bytes], object]


class Subscriber:
    """One subscription."""

    def __init__(self, topics: Topics, topic: str, take: Take) -> None:
        self.topic = topic
        self._topics = topics
        self._take: Take | None = take

    def deliver(self, message: bytes) -> None:
        """Call the subscriber with a message, unless it is closed."""
        if self._take is not None:
            call_subscriber(self._take, self.topic, message)

    async def close(self) -> None:
        self._take = None
        await self._topics.drop(self)


class Topics:
    """Topics and their subscriptions. `on_unused`: awaited with a topic when its last subscription is closed."""

    def __init__(self, on_unused: Callable[[str], Awaitable[None]] | None = None) -> None:
        self._on_unused = on_unused
        self._subscribers: dict[str, list[Subscriber]] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(tuple(self._subscribers))

    def of(self, topic: str) -> tuple[Subscriber, ...]:
        """Return the current subscriptions of a topic."""
        return tuple(self._subscribers.get(topic, ()))

    def add(self, topic: str, take: Take) -> Subscriber:
        """Add a subscription."""
        one = Subscriber(self, topic, take)
        self._subscribers.setdefault(topic, []).append(one)
        return one

    def deliver(self, topic: str, message: bytes) -> None:
        """Pass a message to all subscribers of a topic."""
        for one in self.of(topic):
            one.deliver(message)

    async def drop(self, one: Subscriber) -> None:
        """Remove a subscription, unless it was removed before."""
        subscribers = self._subscribers.get(one.topic, [])
        if one in subscribers:
            subscribers.remove(one)
            if not subscribers:
                del self._subscribers[one.topic]
                if self._on_unused is not None:
                    await self._on_unused(one.topic)
