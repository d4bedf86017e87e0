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

    def tell(self, message: bytes) -> None:
        """Call the subscriber with a message, unless it is closed."""
        if self._take is not None:
            call_subscriber(self._take, self.topic, message)

    async def close(self) -> None:
        self._take = None
        await self._topics.drop(self)


class Topics:
    """Topics and their subscriptions. `left`: awaited with a topic when its last subscription is closed."""

    def __init__(self, left: Callable[[str], Awaitable[None]] | None = None) -> None:
        self._left = left
        self._heard: dict[str, list[Subscriber]] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(tuple(self._heard))

    def of(self, topic: str) -> tuple[Subscriber, ...]:
        """The subscriptions of a topic now."""
        return tuple(self._heard.get(topic, ()))

    def add(self, topic: str, take: Take) -> Subscriber:
        """Add a subscription."""
        one = Subscriber(self, topic, take)
        self._heard.setdefault(topic, []).append(one)
        return one

    def tell(self, topic: str, message: bytes) -> None:
        """Pass a message to all subscribers of a topic."""
        for one in self.of(topic):
            one.tell(message)

    async def drop(self, one: Subscriber) -> None:
        """Remove a subscription, unless it was removed before."""
        listening = self._heard.get(one.topic, [])
        if one in listening:
            listening.remove(one)
            if not listening:
                del self._heard[one.topic]
                if self._left is not None:
                    await self._left(one.topic)
