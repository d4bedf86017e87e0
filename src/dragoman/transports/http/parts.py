"""Protocols between the parts of the native server: a connection, its listener, its responses and stages."""

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


class ConnectionOwner(Protocol):
    """The listener of a connection."""

    app: App
    tls: bool
    loopback: bool
    heads: KnownHeads
    heads_behind: KnownHeads
    partial: PartialMessages
    now: float
    """The time of its last check of the deadlines."""
    waits: Sequence[float]
    """Seconds for each stage."""

    def admit(self, connection: Any) -> bool:
        """A connection has come; False when there are too many."""

    def became(self, connection: Any, socket: Any) -> None:
        """A connection was upgraded to a WebSocket."""

    def gone(self, wire: Any) -> None:
        """A connection or a WebSocket has ended."""


class Connection(Protocol):
    """A connection, as its responses and its stages use it."""

    app: App
    owner: ConnectionOwner
    transport: asyncio.Transport | None
    parser: RequestParser | None
    waiting: RequestQueue | None
    owed: list[Any]
    """The unfinished responses, in the order of their requests."""
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
        """The position within a request."""

    def origin(self, head: Head, asked: Request | None = None) -> tuple[str, bool]:
        """The address of a request's caller, and whether the caller sent it by TLS."""

    def caller(self, head: Head, length: int, asked: Request | None = None) -> Caller:
        """The caller of a request with a body of this length."""

    def keeps(self, turn: Any) -> bool:
        """Whether another request may follow this response."""

    def answered(self, turn: Any) -> None:
        """A response has bytes to send."""

    def refuse(self, answer: Answer, head: Head | None = None) -> None:
        """Answer a request that cannot be served, and accept no further one."""

    def enter(self, stage: int) -> None:
        """Enter a stage."""

    def close(self) -> None:
        """Send what is queued, then close."""

    def abort(self) -> None:
        """Close at once."""
