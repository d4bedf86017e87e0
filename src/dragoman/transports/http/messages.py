"""HTTP requests, replies and heads as values. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import ceil
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

from msgspec import Struct

from ...channel import Admitted, Caller, Guard, Servable
from ...jsonrpc.errors import Refusal

if TYPE_CHECKING:
    from ...access import Protection

JSON = "application/json"

Fields: TypeAlias = Iterable[tuple[bytes, bytes]]
"""Header fields as they came."""
Lines: TypeAlias = Sequence[tuple[str, str]]
"""Header fields to send; the server itself adds `Content-Length` and `Connection`."""


class CommonLines(tuple[tuple[str, str], ...]):
    """Header fields to send that many answers have: the head of an ordinary 200 with them is written once."""

    ok: bytes
    """Such an answer, but for the length of its body and the body."""

    def __new__(cls, *lines: tuple[str, str]) -> CommonLines:
        made = super().__new__(cls, lines)
        text = "".join(f"{name}: {value}\r\n" for name, value in lines).replace("%", "%%").encode("latin-1")
        made.ok = b"HTTP/1.1 200 OK\r\n" + text + b"Content-Length: %d\r\n\r\n%b"
        return made


JSON_LINES = CommonLines(("Content-Type", JSON))
STATUSES: Mapping[str, int] = {"busy": 503, "draining": 503, "rate_limited": 429, "too_large": 413, "forbidden": 403}
"""The statuses of our own refusals, by their kind; the others are JSON-RPC errors alone."""


def retry_after(refusal: Refusal) -> Lines:
    """Return the header field that says after how many seconds to try again, or with which credentials; none where
    trying again would not help."""
    if refusal.kind == "forbidden":
        return (("WWW-Authenticate", refusal.challenge),) if refusal.challenge else ()
    if refusal.kind == "too_large":
        return ()
    seconds = refusal.data.get("retry_after", 1)
    return (("Retry-After", str(max(1, ceil(seconds)) if isinstance(seconds, int | float) else 1)),)


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
    """How an endpoint answers: once with `respond`, or with `start`, any `write`s, and `finish`. On the loop only.

    What the endpoint has set is forgotten with the end of the answer, so that neither keeps the other alive.
    """

    gone: Callable[[], None] | None
    """Set by the endpoint: called once when the caller went away before the end. What is sent then is dropped."""
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

    def reject(self, status: int, reason: str) -> None:
        """Report to observers that the request is turned away before a service sees it; `respond` follows."""

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
    """The text of a refusal."""
    plain: bool = False
    """It is a refusal whose body is not yet in the form of its endpoint."""


class Decided(Struct, frozen=True):
    """What a guard decides about requests with equal credentials, for as long as `holds` says so."""

    verdict: Admitted | Answer
    holds: Callable[[], bool]


SECRETS = frozenset({b"authorization", b"dpop"})
"""Header fields that only a guard of tokens reads: what the handler does not see it cannot log, or send on."""
LENGTHS = 32
"""Lengths of bodies for which a head keeps its texts; when there are more, all are dropped."""


@runtime_checkable
class NamesScopes(Protocol):
    """An endpoint that knows from a head what is called."""

    def scopes_of(self, head: Head) -> frozenset[str]:
        """Return the scopes that the call needs according to its head, as far as a stranger may know them; none where
        the head does not name the call. The body, which is not read yet, may name another. Raises nothing."""


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
    """The headers as text, after their first use."""
    sized: dict[int, dict[str, str]] = {}
    """`texts` for other lengths of the body, by length."""
    settled: dict[str, str] | None = None
    """`texts` of the lines that matter, if the head was found by them."""
    route: bool = False
    """Its endpoint is a route, whose callers expect no JSON-RPC."""
    public: bool = False
    """No guard decides about it."""
    guarded: bool = False
    """A guard decides about it first: `guard`."""
    guard: Guard | None = None
    """The guard of what the request is for."""
    protection: Protection | None = None
    """The guard, if it is one of tokens: then `Caller.headers` does not have the tokens."""
    credentials: bytes | None = None
    """Its one `Authorization` field, b"" without one, if nothing else says who the caller is; None: the guard has to
    decide."""
    target: bytes = b"/"
    """Path and query as they were sent."""
    fields: Sequence[tuple[bytes, bytes]] = ()
    """Its header fields as they came, names in lower case."""

    @property
    def speaks_rpc(self) -> bool:
        """Whether a refusal by its endpoint is a JSON-RPC error."""
        return self.endpoint is not None and not self.route

    @property
    def shown(self) -> dict[bytes, bytes]:
        """Its headers without secrets that a guard has looked at."""
        if self.protection is None:
            return self.headers
        return {name: value for name, value in self.headers.items() if name not in SECRETS}

    def header_texts(self, length: int | None = None) -> dict[str, str]:
        """The headers as `Caller.headers` has them. `length`: of the body, where the head may be that of an earlier
        request with a body of another length."""
        if self.texts is None:
            self.texts = texts(self.shown)
        if length is None or length == self.length or not self.length:
            return self.texts
        found = self.sized.get(length)
        if found is None:
            if len(self.sized) >= LENGTHS:
                self.sized.clear()
            found = self.sized[length] = self.texts | {"content-length": str(length)}
        return found

    def sent(self, length: int) -> Sequence[tuple[bytes, bytes]]:
        """Its header fields as they came with a body of this length, as for `header_texts`."""
        if length == self.length or not self.length:
            return self.fields
        own = b"%d" % length
        return [(name, own if name == b"content-length" else value) for name, value in self.fields]


def texts(fields: Mapping[bytes, bytes]) -> dict[str, str]:
    """Header fields as text."""
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in fields.items()}


def collect(fields: Fields) -> dict[bytes, bytes]:
    """Header fields by name in lower case; equal names are joined by ", " (RFC 9110, 5.2)."""
    found: dict[bytes, bytes] = {}
    for name, value in fields:
        name, value = name.lower(), value.strip()
        found[name] = found[name] + b", " + value if name in found else value
    return found
