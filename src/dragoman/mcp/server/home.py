"""The parts of a server that its extensions may use while it is served."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from msgspec import Struct

from .surroundings import Surroundings

Notify: TypeAlias = Callable[[str, str, Mapping[str, Any] | Struct], None]
"""(topic, key, params): `Subscriptions.notify`."""


class ServerHome:
    """A server, as `ServerExtension.open` gets it, on one event loop. `notify`: sends the notifications of topics."""

    def __init__(self, surroundings: Surroundings, notify: Notify) -> None:
        self.surroundings: Surroundings = surroundings
        """The settings of the server: its stamp, its seal, its options and limits."""
        self._notify = notify

    @property
    def name(self) -> str:
        """The server's name."""
        return self.surroundings.service.name

    def notify(self, topic: str, key: str, params: Mapping[str, Any] | Struct) -> None:
        """Notify the subscribers that `grant` granted this key of the topic, at every replica; from any thread.

        They are those who subscribed by `subscriptions/listen`; with `Topic.sessions` also sessions of the stateful
        era whose clients declared the extension. Each notification is sent, in the order of the calls of one thread;
        what waits for a slow subscriber is bounded, the oldest are dropped. Raises LocalError for an unknown topic,
        for params that are no JSON object, and for more than 64 KiB.
        """
        self._notify(topic, key, params)
