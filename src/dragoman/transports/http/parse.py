"""Parses the requests of one connection, without I/O: bytes in, requests out. The parser is httptools (llhttp); this
module adds the checks that llhttp does not make.

Ambiguous lengths (both Content-Length and Transfer-Encoding, two of either, an invalid number),
folded lines, bare CR or LF, a bad chunk, no Host or two are 400 and the end of the connection, because
the beginning of the next request is then unknown (RFC 9112, 6.3 and 11.2). llhttp finds most of these; this module the
rest, and all sizes.

`App.route` decides about a head before its body comes; `feed` returns what the bytes completed, in order.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias
from urllib.parse import unquote_to_bytes

import httptools
from msgspec import Struct

from ...channel import Admitted
from ...net.forwarded import TrustedProxies
from .admission import PendingAdmission, at_once, credentials_in, credentials_of
from .known_heads import KnownHeads, Similar, fields_of
from .messages import Answer, Head, Lines, collect, texts
from .refusals import plain_refusal, too_large_answer

if TYPE_CHECKING:
    from .app import App

BETWEEN, HEAD, BODY, OVER = range(4)
"""The position of a connection within a request."""

_HOST_VALUE = re.compile(rb"([A-Za-z0-9._~!$&'()*+;=%-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]*)?")
_NONE = Head()


class IncomingRequest(Struct, eq=False):
    """A request whose head has come."""

    head: Head
    body: bytes | None
    """None while it has not come: guarded requests are reported before their bodies."""
    raw: bytes | None = None
    """The bytes of its own head, if `head` belongs to another that differs in lines that do not matter."""
    known: Similar | None = None
    """What is known of requests with an equal head; None where it was parsed."""
    upgrade: tuple[bytes, bytes] | None = None
    """It becomes a WebSocket: its head, and the bytes behind it."""
    admission: PendingAdmission | None = None
    """The guard is deciding about it."""
    admitted: Admitted | None = None
    """What the guard admitted it with; None: there is no guard, or it has not admitted it."""
    denied: Answer | None = None
    """The answer with which the guard turns it away."""

    def decide(self) -> bool:
        """Take its guard's decision, if that is known without waiting. Return whether the request may start."""
        head, known = self.head, self.known
        if not head.guarded or self.admitted is not None:
            return True
        if self.denied is not None or self.admission is not None:
            return False
        found: Admitted | Answer | None
        if known is None:
            found = at_once(head, head.credentials)
        elif (kept := known.decided) is not None and kept.holds():
            found = kept.verdict
        else:
            own = head.credentials if known.varied is None else credentials_in(known.varied, head.query)
            found = at_once(head, own, known)
        if isinstance(found, Admitted):
            self.admitted = found
            return True
        self.denied = found
        return False

    def decided(self, verdict: Admitted | Answer) -> None:
        """Record what the guard has decided."""
        if isinstance(verdict, Answer):
            self.denied = verdict
        else:
            self.admitted = verdict

    @property
    def fields(self) -> Sequence[tuple[bytes, bytes]]:
        """Its header fields as they came, names in lower case."""
        if self.raw is not None:
            return fields_of(self.raw)
        return self.head.fields if self.body is None else self.head.sent(len(self.body))

    @property
    def more(self) -> Lines:
        """Header fields with which the guard admits it, to be added to its answer."""
        return () if self.admitted is None or not self.admitted.headers else tuple(self.admitted.headers)

    @property
    def undecided(self) -> bool:
        """Whether its guard has not decided yet."""
        return self.head.guarded and self.admitted is None and self.denied is None


class RefusedRequest(Struct, frozen=True):
    """A request that cannot be served; the connection ends with its answer."""

    answer: Answer
    head: Head | None = None


Event: TypeAlias = IncomingRequest | RefusedRequest


class Stop(Exception):
    """Raised through the parser: nothing more is read from this connection."""


class RequestParser:
    """Parses the requests of one connection. Made for the first request whose head is not cached."""

    __slots__ = (
        "_app",
        "_begun",
        "_body",
        "_events",
        "_fields",
        "_head",
        "_header_size",
        "_known",
        "_loopback",
        "_message_size",
        "_parser",
        "_proxies",
        "_replay",
        "_silent",
        "_size",
        "_target",
        "expecting",
        "last",
        "received",
        "state",
    )

    def __init__(self, app: App, known: KnownHeads, *, loopback: bool, proxies: TrustedProxies | None = None) -> None:
        """`known`: the cache of heads, which is filled here; `loopback`: the bytes were sent to a loopback address;
        `proxies`: they come from one of these."""
        self._proxies = proxies
        self._app = app
        self._known = known
        self._loopback = loopback
        self._header_size, self._message_size = app.header_size, app.limits.message_size
        self._parser = httptools.HttpRequestParser(self)
        self._events: list[Event] = []
        self._target = b""
        self._fields: list[tuple[bytes, bytes]] = []
        self._head = _NONE
        self._body: bytes | bytearray = b""
        self._begun: IncomingRequest | None = None
        """The request that was reported before its body."""
        self._size = 0
        """Bytes of header fields."""
        self._silent = 0
        """Bytes since the parser last made progress."""
        self.state: int = BETWEEN
        self.last: bool = False
        """No further request is taken."""
        self.received: int = 0
        """Bytes of the body."""
        self.expecting: bool = False
        """The far end waits for "100 Continue"."""
        self._replay = False
        """The client requires an upgrade that does not exist here."""

    @property
    def held(self) -> int:
        """Bytes of an incomplete body."""
        return self.received if self.state == BODY else 0

    @property
    def under_way(self) -> Head | None:
        """The head of the request whose body is coming."""
        return self._head if self.state == BODY else None

    def feed(self, data: bytes) -> list[Event]:
        """What these bytes complete. A head that has come before is fed separately, so that its bytes are
        known apart from the following ones."""
        events = self._events = []
        end = data.find(b"\r\n\r\n") + 4 if self.state == BETWEEN else 0
        if end > 4 and self._known.worth(raw := data[: end - 4]):
            self._feed(data[:end])
            head = self._head
            # with `Forwarded`, the believed host depends on lines that are not compared too
            known = self._proxies is None or b"forwarded" not in head.headers
            if self.state == BODY and head.plain and head.length and known and not self.received:
                self._known.learn(raw, head)
            data = data[end:]
        if data and self.state != OVER:
            self._feed(data)
        elif data and events and isinstance(upgraded := events[-1], IncomingRequest) and upgraded.upgrade is not None:
            upgraded.upgrade = (upgraded.upgrade[0], upgraded.upgrade[1] + data)
        return events

    def stop(self) -> None:
        """Read nothing more: an incomplete request will never be completed."""
        self.state = OVER
        self.expecting = False

    def _refuse(self, answer: Answer, head: Head | None = None) -> Stop:
        self._events.append(RefusedRequest(answer, head))
        self.state = OVER
        return Stop()

    def _feed(self, data: bytes) -> None:
        self._silent += len(data)
        rest: bytes | None = None
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as found:
            rest = data[found.args[0] :]
        except httptools.HttpParserError as fault:
            cause = fault.__context__
            if cause is not None and not isinstance(cause, Stop):
                raise cause from None
            if self.state != OVER and not self.last:
                self._refuse(self._unreadable(str(fault)))
            self.state = OVER
        else:
            if self.state in (HEAD, BODY) and self._silent > self._header_size:
                self._refuse(self._app.overlong())
        if rest is None:
            return
        if self._replay:  # not in the `except`, or the upgrade would be the context of faults in what follows
            self._without_upgrade(rest)
        elif self.state != OVER and self._head.socket is not None:
            request = IncomingRequest(self._head, b"")
            request.upgrade = (self._raw_head(), rest)
            self._events.append(request)
            self.state = OVER

    def _unreadable(self, why: str) -> Answer:
        if (self._target == b"*" and "PRI" in why) or "HTTP version" in why:
            return plain_refusal(505, "This server speaks HTTP/1.1")
        return plain_refusal(400, f"This is not an HTTP request: {why}")

    # -- the parser's callbacks

    def on_message_begin(self) -> None:
        if self.last:
            raise Stop
        self.state = HEAD
        self._target = b""
        self._fields = []
        self._size = self._silent = 0
        self.expecting = self._replay = False

    def on_url(self, target: bytes) -> None:
        self._target += target
        if len(self._target) > self._header_size:
            raise self._refuse(plain_refusal(414, "Too large: the target is over limit header_size"))

    def on_header(self, name: bytes, value: bytes) -> None:
        self._size += len(name) + len(value) + 4
        if self._size > self._header_size:
            raise self._refuse(self._app.overlong())
        if self.state == HEAD:  # trailers are ignored
            self._fields.append((name.lower(), value.strip()))

    def on_headers_complete(self) -> None:
        self.state = BODY
        self._body = b""
        self._begun = None
        self.received = self._silent = 0
        headers = collect(self._fields)
        method, version = self._parser.get_method().decode("ascii"), self._parser.get_http_version()
        upgrade = self._parser.should_upgrade() and method != "CONNECT"
        socket = upgrade and self._app.upgrade and headers.get(b"upgrade", b"").lower() == b"websocket"
        if upgrade and not socket:
            self._replay = True
            return
        try:
            path, query, authority = split_target(self._target)
        except ValueError as why:
            raise self._refuse(plain_refusal(400, f"The target is unreadable: {why}")) from None
        if (fault := _ambiguous(version, headers)) is not None:
            raise self._refuse(fault)
        if authority is not None:
            headers[b"host"] = authority
        forwarded = b"" if self._proxies is None else self._proxies.origin_of(texts(headers)).host.encode()
        head = self._app.route(
            method, path, query, headers, loopback=self._loopback, upgrade=socket, forwarded=forwarded
        )
        head.target = self._target
        if head.guarded:
            head.fields = self._fields
            head.credentials = credentials_of(self._fields, query)
        elif not socket:
            self._fields = []
        head.old = version == "1.0"
        head.keep = self._parser.should_keep_alive() and not (socket and head.answer is not None)
        head.length = int(headers.get(b"content-length", b"0"))
        expects = b"expect" in headers and not head.old
        ours = head.served is not None or (head.endpoint is not None and method != "HEAD")
        head.plain = ours and head.keep and not (head.old or head.extra or expects)
        self._head = head
        if head.length > self._message_size:
            raise self._refuse(head.answer or too_large_answer(head, self._message_size, head.length), head)
        if expects:
            self._expect(head, headers[b"expect"])
        if head.guarded and not socket:
            self._begun = IncomingRequest(head, None)
            self._events.append(self._begun)

    def _expect(self, head: Head, expected: bytes) -> None:
        if expected.lower() != b"100-continue":
            raise self._refuse(plain_refusal(417, "The one expectation that is met here is 100-continue"), head)
        if head.answer is not None:  # answered before the client sends a body for nothing
            raise self._refuse(head.answer, head)
        self.expecting = True

    def on_body(self, data: bytes) -> None:
        self._silent = 0
        self.received += len(data)
        if self.received > (allowed := self._message_size):
            raise self._refuse(self._head.answer or too_large_answer(self._head, allowed, None), self._head)
        if not self._body:
            self._body = data
        elif isinstance(self._body, bytearray):
            self._body += data
        else:
            self._body = bytearray(self._body) + data

    def on_message_complete(self) -> None:
        self.expecting = False
        if self._replay or self._head.socket is not None:  # the parser says more about it
            return
        self.state = BETWEEN
        body, self._body = self._body, b""
        body = body if isinstance(body, bytes) else bytes(body)
        if not self._head.keep:
            self.last = True
        if self._begun is not None:
            self._begun.body = body
        else:
            self._events.append(IncomingRequest(self._head, body))

    def _raw_head(self, *, without: bool = False) -> bytes:
        """The head that was read; or the same without the request for an upgrade."""
        version = self._parser.get_http_version().encode()
        lines = [b"%b %b HTTP/%b" % (self._parser.get_method(), self._target, version)]
        for name, value in collect(self._fields).items():
            if without and name == b"upgrade":
                continue
            if without and name == b"connection":
                options = (option.strip() for option in value.split(b","))
                value = b", ".join(one for one in options if one.lower() not in (b"upgrade", b"http2-settings"))
            lines.append(b"%b: %b" % (name, value))
        return b"\r\n".join((*lines, b"", b""))

    def _without_upgrade(self, rest: bytes) -> None:
        """Continue in HTTP/1.1 with a request that asks for another protocol, as Java's client does for HTTP/2 (RFC
        9110, 7.8: a server may ignore Upgrade). The parser would take the bytes after the head for that protocol."""
        raw = self._raw_head(without=True)
        self._parser = httptools.HttpRequestParser(self)
        self.state = BETWEEN
        self._feed(raw)
        if rest and self.state != OVER:
            self._feed(rest)


@lru_cache(maxsize=256)
def split_target(target: bytes) -> tuple[str, str, bytes | None]:
    """The decoded path, the query, and the authority if the target has one (RFC 9112, 3.2). Raises ValueError for
    others."""
    authority = None
    if not target.startswith(b"/"):
        scheme, mark, rest = target.partition(b"://")
        if target == b"*":
            return "*", "", None
        if not mark or scheme.lower() not in (b"http", b"https"):
            raise ValueError("the target is neither a path nor an http URL")
        cut = min(at for at in (rest.find(b"/"), rest.find(b"?"), len(rest)) if at >= 0)
        authority, target = rest[:cut], rest[cut:] or b"/"
        if target.startswith(b"?"):
            target = b"/" + target
    if b"#" in target:
        raise ValueError("the target has a fragment")
    path, _, query = target.partition(b"?")
    return (unquote_to_bytes(path) if b"%" in path else path).decode(), query.decode(), authority


def _ambiguous(version: str, headers: dict[bytes, bytes]) -> Answer | None:
    """Faults of a head that llhttp does not find, apart from its path."""
    if version not in ("1.1", "1.0"):
        return plain_refusal(505, "This server speaks HTTP/1.1")
    host = headers.get(b"host")
    if host is None and version == "1.1":
        return plain_refusal(400, "HTTP/1.1 needs a Host")
    if host is not None and not _is_host(host):
        return plain_refusal(400, "The Host is unreadable, or there are two")
    coding = headers.get(b"transfer-encoding")
    if coding is not None and version == "1.0":
        return plain_refusal(400, "HTTP/1.0 knows no Transfer-Encoding")
    if coding is not None and coding.lower() != b"chunked":
        return plain_refusal(501, "The one Transfer-Encoding that is read here is chunked")
    return None


@lru_cache(maxsize=256)
def _is_host(value: bytes) -> bool:
    return _HOST_VALUE.fullmatch(value) is not None
