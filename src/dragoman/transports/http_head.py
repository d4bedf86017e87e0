"""What HTTP requests and answers are here, and what the head of a request decides. Pure.

Rules:

- Bound to loopback, a foreign `Host` is 421 and a foreign `Origin` 403: a web page must not reach
  a server on its reader's machine. `options.hosts` and `options.origins` say otherwise.
- A body is taken for JSON when its `Content-Type` says so, in UTF-8; never as `text/plain`, which a
  foreign page may send without asking first.
- No CORS header unless `options.cors` names the page's origin.
- A JSON-RPC answer is 200, also with an error in it; 204 when nothing is owed; 503 when busy or
  draining, 413 when too large.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Protocol, TypeAlias

import msgspec
from msgspec import Struct

from ..channel import Caller, Options, Served
from ..jsonrpc.errors import INTERNAL_ERROR, INVALID_REQUEST, MESSAGES, PLAIN, Refusal, RpcError, too_large

JSON = "application/json"
MEDIA = "application/json (or application/json-rpc, or a type that ends in +json), in UTF-8"

Fields: TypeAlias = Iterable[tuple[bytes, bytes]]
"""Header fields as they came."""
Lines: TypeAlias = Sequence[tuple[str, str]]
"""Header fields to send; `Content-Length` and `Connection` are the front's own."""


JSON_LINES: Lines = (("Content-Type", JSON),)


class HttpRequest(Struct, frozen=True):
    """What an endpoint gets. `path` is decoded, `query` is not; the header names are in lower case."""

    method: str
    path: str
    query: str
    body: bytes
    caller: Caller
    head: Head
    """What the head decided. Heads that repeat are the same object, whose `memo` is the endpoint's."""

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
    """Set by the endpoint: called when it is doubtful that the caller still reads a begun answer: write what he skips."""

    @property
    def writable(self) -> bool:
        """False while more than `limits.send_queue` bytes are unsent, and for ever once the caller is gone."""

    def respond(self, status: int, headers: Lines = (), body: bytes = b"") -> None:
        """The whole answer."""

    def start(self, status: int, headers: Lines = ()) -> None:
        """Begin an answer of unknown length."""

    def write(self, chunk: bytes) -> None:
        """Go on with it; never blocks."""

    def finish(self, chunk: bytes = b"") -> None:
        """The end of it, with this."""


Endpoint: TypeAlias = Callable[[HttpRequest, Reply], None]
"""Answers through the reply before it returns, or later."""


class Answer(Struct, frozen=True):
    """A whole answer."""

    status: int
    headers: Lines = ()
    body: bytes = b""


class Head(Struct, kw_only=True):
    """What a request's head decides before a byte of its body: one of `served`, `socket`, `endpoint`, `answer` is set."""

    method: str = "GET"
    path: str = ""
    query: str = ""
    headers: dict[bytes, bytes] = {}
    served: Served | None = None
    """A JSON-RPC endpoint: the body goes to `served.exchange`."""
    socket: Served | None = None
    """A WebSocket upgrade."""
    endpoint: Endpoint | None = None
    answer: Answer | None = None
    extra: tuple[tuple[str, str], ...] = ()
    """Header fields that go with any answer (CORS)."""
    length: int = 0
    """The native front's: the length of the body."""
    keep: bool = True
    """The native front's: another request may follow on this wire."""
    old: bool = False
    """The native front's: HTTP/1.0."""
    plain: bool = False
    """The native front's: an ordinary answer to it needs no further header fields."""
    memo: Any = None
    """The endpoint's: what it found out about this head."""
    texts: dict[str, str] | None = None
    """The headers as `caller` tells them, once somebody asked."""

    def caller(self, scheme: str, remote: str, tls: bool) -> Caller:
        """Who sent it."""
        texts = self.texts
        if texts is None:
            texts = {name.decode("latin-1"): value.decode("latin-1") for name, value in self.headers.items()}
            self.texts = texts
        return Caller(scheme=scheme, remote=remote, path=self.path, headers=texts, tls=tls)


def collect(fields: Fields) -> dict[bytes, bytes]:
    """Header fields by name in lower case; equal names are joined by ", " (RFC 9110, 5.2)."""
    found: dict[bytes, bytes] = {}
    for name, value in fields:
        name, value = name.lower(), value.strip()
        found[name] = found[name] + b", " + value if name in found else value
    return found


# -- bodies of our own answers --------------------------------------------------------------------


def rpc_error(error: RpcError) -> bytes:
    """A JSON-RPC error for a request whose id nobody read."""
    told: dict[str, Any] = {"code": error.code, "message": error.message}
    if error.data is not msgspec.UNSET:
        told["data"] = error.data
    return msgspec.json.encode({"jsonrpc": "2.0", "error": told, "id": None})


def turned_away(status: int, text: str, headers: Lines = ()) -> Answer:
    """A plain HTTP refusal in words."""
    return Answer(status, (("Content-Type", JSON), *headers), msgspec.json.encode({"error": text}))


def oversized(head: Head, allowed: int, received: int | None) -> Answer:
    """413, as a JSON-RPC error where a JSON-RPC endpoint was meant."""
    refusal = too_large("message_size", allowed, received)
    if head.served is None:
        return turned_away(413, refusal.reason)
    return Answer(413, JSON_LINES, rpc_error(PLAIN.error(refusal)))


def rpc_answer(answer: bytes | None, refusal: Refusal | None) -> Answer:
    """What `Exchange.respond` was given, as HTTP: 200, 204 for nothing, 503 and 413 for refusals."""
    if refusal is None or refusal.kind not in ("busy", "draining", "too_large"):
        return Answer(204) if answer is None else Answer(200, JSON_LINES, answer)
    kind: Lines = () if answer is None else JSON_LINES
    if refusal.kind == "too_large":
        return Answer(413, kind, answer or b"")
    return Answer(503, (*kind, ("Retry-After", str(refusal.data.get("retry_after", 1)))), answer or b"")


def unsupported(kind: bytes | None) -> Answer:
    """415, as a JSON-RPC error that says what would be right."""
    got = "there is none" if kind is None else f"not {kind.decode('latin-1')!r}"
    error = RpcError.of(INVALID_REQUEST, f"Content-Type must be {MEDIA}; {got}")
    return Answer(415, JSON_LINES, rpc_error(error))


def failure() -> Answer:
    """500: something of ours raised that must not."""
    return Answer(500, JSON_LINES, rpc_error(RpcError.of(INTERNAL_ERROR, MESSAGES[INTERNAL_ERROR])))


# -- the checks -----------------------------------------------------------------------------------

_SUFFIX = re.compile(r"[a-z0-9!#$&^_.+-]+/[a-z0-9!#$&^_.+-]+\+json")
_LOOPBACK_ORIGIN = re.compile(r"https?://(localhost|127\.0\.0\.1|\[::1\])(:[0-9]+)?")
LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})


@lru_cache(maxsize=256)
def is_json(value: bytes) -> bool:
    """May a body of this `Content-Type` be taken for JSON text in UTF-8?"""
    kind, *parameters = value.decode("latin-1").lower().split(";")
    kind = kind.strip()
    if kind not in (JSON, "application/json-rpc") and not _SUFFIX.fullmatch(kind):
        return False
    for parameter in parameters:
        name, _, text = parameter.strip().partition("=")
        if name.strip() == "charset" and text.strip().strip('"') not in ("utf-8", "utf8"):
            return False
    return True


def is_loopback(host: str) -> bool:
    """Is this the address of a loopback interface?"""
    return host in ("localhost", "::1") or host.startswith(("127.", "::ffff:127."))


def _name(host: str) -> str:
    """A Host value without its port, in lower case."""
    host = host.lower()
    if host.endswith("]") or ":" not in host:
        return host
    return host.rpartition(":")[0]


class Guard:
    """The checks of `Host` and `Origin`, and what CORS adds."""

    def __init__(self, options: Options) -> None:
        self.hosts = None if options.hosts is None else {_bracketed(host) for host in _strings(options.hosts)}
        self.origins = None if options.origins is None else {one.lower() for one in _strings(options.origins)}
        self.cors = {one.lower() for one in _strings(options.cors)}
        self._checked: dict[
            tuple[bytes | None, bytes | None, bool], tuple[Answer | None, tuple[tuple[str, str], ...]]
        ] = {}

    def check(
        self, headers: Mapping[bytes, bytes], loopback: bool
    ) -> tuple[Answer | None, tuple[tuple[str, str], ...]]:
        """The answer that turns a foreign page away, or None, and what CORS adds to any answer."""
        key = (headers.get(b"host"), headers.get(b"origin"), loopback)
        found = self._checked.get(key)
        if found is None:
            if len(self._checked) >= 256:
                self._checked.clear()
            found = self._checked[key] = (self._fault(*key), self._extra(key[1]))
        return found

    def _fault(self, host: bytes | None, origin: bytes | None, loopback: bool) -> Answer | None:
        allowed = self.hosts if self.hosts is not None else LOOPBACK if loopback else None
        # A browser always names the host: without one (HTTP/1.0) it is no page that asks.
        if allowed is not None and host is not None and "*" not in allowed:
            text = host.decode("latin-1")
            if _name(text) not in allowed and text.lower() not in allowed:
                return turned_away(421, f"This server does not answer for the host {text!r}; option hosts allows more")
        if origin is not None and not self._origin(origin.decode("latin-1").lower(), loopback):
            return turned_away(403, "Pages of this origin may not call this server; option origins allows more")
        return None

    def _origin(self, origin: str, loopback: bool) -> bool:
        if origin in self.cors or "*" in self.cors:
            return True
        if self.origins is not None:
            return origin in self.origins or "*" in self.origins
        return not loopback or _LOOPBACK_ORIGIN.fullmatch(origin) is not None

    def _extra(self, raw: bytes | None) -> tuple[tuple[str, str], ...]:
        if not self.cors:
            return ()
        origin = (raw or b"").decode("latin-1")
        if origin and (origin.lower() in self.cors or "*" in self.cors):
            return (("Access-Control-Allow-Origin", origin), ("Vary", "Origin"))
        return (("Vary", "Origin"),)

    def preflight(self, headers: Mapping[bytes, bytes], extra: Lines) -> Answer | None:
        """The answer to an OPTIONS in which a browser asks whether a page may call, or None when it is another one."""
        if len(extra) < 2 or b"access-control-request-method" not in headers:
            return None
        asked = headers.get(b"access-control-request-headers", b"content-type").decode("latin-1")
        lines = [("Access-Control-Allow-Methods", "GET, POST, DELETE"), ("Access-Control-Max-Age", "600")]
        return Answer(204, (*lines, ("Access-Control-Allow-Headers", asked)))


def _strings(value: Iterable[str]) -> Iterable[str]:
    return (value,) if isinstance(value, str) else value


def _bracketed(host: str) -> str:
    """A host name as `Host` has it: lower case, an IPv6 address in brackets."""
    return f"[{host}]".lower() if host.count(":") > 1 and not host.startswith("[") else host.lower()
