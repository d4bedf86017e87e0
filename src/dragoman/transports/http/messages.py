"""HTTP requests, replies and heads as values. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from msgspec import Struct

from ...channel import Caller, Servable

JSON = "application/json"

Fields: TypeAlias = Iterable[tuple[bytes, bytes]]
"""Header fields as they came."""
Lines: TypeAlias = Sequence[tuple[str, str]]
"""Header fields to send; the server itself adds `Content-Length` and `Connection`."""


JSON_LINES: Lines = (("Content-Type", JSON),)


class HttpRequest(Struct, frozen=True):
    """The argument of an endpoint. `path` is decoded, `query` is not; the header names are in lower case."""

    method: str
    path: str
    query: str
    body: bytes
    caller: Caller
    head: Head
    """The decision for the head. Equal heads share one object, whose `memo` is for the endpoint."""

    @property
    def headers(self) -> Mapping[str, str]:
        return self.caller.headers


class Reply(Protocol):
    """How an endpoint answers: once with `respond`, or with `start`, any `write`s, and `finish`. On the loop only."""

    gone: Callable[[], None] | None
    """Set by the endpoint: called once when the caller went away before the end. Whatever is sent then is dropped."""
    resumed: Callable[[], None] | None
    """Set by the endpoint: called when `writable` is True again."""
    doubted: Callable[[], None] | None
    """Set by the endpoint: called when it is doubtful that the caller still reads a begun answer: write what it
    skips."""

    @property
    def writable(self) -> bool:
        """False while more than `limits.send_queue` bytes are unsent, and for ever once the caller is gone."""

    def respond(self, status: int, headers: Lines = (), body: bytes = b"") -> None:
        """Send the complete answer."""

    def start(self, status: int, headers: Lines = ()) -> None:
        """Begin an answer of unknown length."""

    def write(self, chunk: bytes) -> None:
        """Send a part of it; never blocks."""

    def finish(self, chunk: bytes = b"") -> None:
        """Send the last part and end the answer."""


Endpoint: TypeAlias = Callable[[HttpRequest, Reply], None]
"""Answers through the reply before it returns, or later."""


class Answer(Struct, frozen=True):
    """A complete answer."""

    status: int
    headers: Lines = ()
    body: bytes = b""
    reason: str = ""
    """The text of a refusal whose body is not yet in the form of its endpoint."""


class Head(Struct, kw_only=True):
    """What is decided from a request's head before its body: one of `served`, `socket`, `endpoint`, `answer` is set."""

    method: str = "GET"
    path: str = ""
    query: str = ""
    headers: dict[bytes, bytes] = {}
    served: Servable | None = None
    """A JSON-RPC endpoint: the body goes to `served.exchange`."""
    socket: Servable | None = None
    """A WebSocket upgrade."""
    endpoint: Endpoint | None = None
    answer: Answer | None = None
    extra: tuple[tuple[str, str], ...] = ()
    """Header fields for every answer (CORS)."""
    length: int = 0
    """Native server: the length of the body."""
    keep: bool = True
    """Native server: another request may follow on this connection."""
    old: bool = False
    """Native server: HTTP/1.0."""
    plain: bool = False
    """Native server: an ordinary answer to it needs no further header fields."""
    memo: Any = None
    """For the endpoint: what it found out about this head."""
    texts: dict[str, str] | None = None
    """The headers as text, after their first use: see `told`."""
    settled: dict[str, str] | None = None
    """The same for its lines that matter, if it was found by them."""
    guarded: bool = False
    """The guard decides about it first."""
    target: bytes = b"/"
    """Path and query as they were sent."""
    fields: Sequence[tuple[bytes, bytes]] = ()
    """Its header fields as they came, names in lower case."""

    def told(self) -> dict[str, str]:
        """The headers as `Caller.headers` has them."""
        if self.texts is None:
            fields = self.headers.items()
            self.texts = {name.decode("latin-1"): value.decode("latin-1") for name, value in fields}
        return self.texts


def collect(fields: Fields) -> dict[bytes, bytes]:
    """Header fields by name in lower case; equal names are joined by ", " (RFC 9110, 5.2)."""
    found: dict[bytes, bytes] = {}
    for name, value in fields:
        name, value = name.lower(), value.strip()
        found[name] = found[name] + b", " + value if name in found else value
    return found
