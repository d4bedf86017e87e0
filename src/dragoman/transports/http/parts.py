"""What the parts of the native front need of one another: a connection of its listener, its answers and stages of it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Protocol

from ...channel import Caller
from ..partial import PartialMessages
from .app import App
from .known_heads import KnownHeads
from .messages import Answer, Head
from .parse import Request, RequestParser
from .request_queue import RequestQueue


class Door(Protocol):
    """The listener of a connection."""

    app: App
    tls: bool
    loopback: bool
    heads: KnownHeads
    partial: PartialMessages
    now: float
    """The time of its last look at the deadlines."""
    waits: Sequence[float]
    """Seconds for each stage."""

    def admit(self, connection: Any) -> bool:
        """A connection has come; False when there are too many."""

    def became(self, connection: Any, socket: Any) -> None:
        """A connection was upgraded to a WebSocket."""

    def gone(self, wire: Any) -> None:
        """A connection or a WebSocket is over."""


class Connection(Protocol):
    """A connection, for its answers and its stages."""

    app: App
    transport: asyncio.Transport | None
    parser: RequestParser | None
    waiting: RequestQueue | None
    owed: list[Any]
    """The answers under way, in the order of their requests."""
    remote: str
    full: bool
    last: bool
    eof: bool
    retiring: bool
    stage: int
    probes: int
    unsent: int

    @property
    def state(self) -> int:
        """Where in a request it is."""

    def caller(self, head: Head, asked: Request | None = None) -> Caller:
        """Who sent a request."""

    def keeps(self, turn: Any) -> bool:
        """May another request follow the answer to this one?"""

    def answered(self, turn: Any) -> None:
        """An answer has something to say."""

    def refuse(self, answer: Answer, head: Head | None = None) -> None:
        """Answer what cannot be served, and take nothing more."""

    def enter(self, stage: int) -> None:
        """Wait for this from now on."""

    def close(self) -> None:
        """Send what is queued, then close."""

    def abort(self) -> None:
        """Cut it off."""
