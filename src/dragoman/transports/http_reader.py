"""Reading the requests of one wire: httptools (llhttp), and what it lets through that this server does not.

Ambiguous lengths (both Content-Length and Transfer-Encoding, two of either, a number that is none),
folded lines, bare CR or LF, a bad chunk, no Host or two are 400 and the end of the wire, because
nobody can tell where the next request begins (RFC 9112, 6.3 and 11.2). llhttp sees most of it; the
rest, all sizes included, is seen to here.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING
from urllib.parse import unquote_to_bytes

import httptools

from .http_head import Answer, Head, oversized, turned_away

if TYPE_CHECKING:
    from .http_front import Front

KNOWN_HEAD_SIZE = 2048
"""Longest head that is kept with what was found out about it."""

BETWEEN, HEAD, BODY, OVER = range(4)
"""Where in a request a wire is."""

_LENGTHS = (b"\r\nContent-Length: ", b"\r\ncontent-length: ")
_HOST_VALUE = re.compile(rb"([A-Za-z0-9._~!$&'()*+;=%-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]*)?")
_NOBODY = Head()


class Stop(Exception):
    """Thrown through the parser: nothing more is taken from this wire."""


class Reader:
    """The parser's callbacks. Made when the first request comes whose head is not known."""

    __slots__ = (
        "_body",
        "_front",
        "_head",
        "_header_size",
        "_headers",
        "_parser",
        "_replay",
        "_silent",
        "_size",
        "_target",
        "expecting",
        "received",
    )

    def __init__(self, front: Front) -> None:
        self._front = front
        self._parser = httptools.HttpRequestParser(self)
        self._target = b""
        self._headers: dict[bytes, bytes] = {}
        self._head = _NOBODY
        self._body: bytes | bytearray = b""
        self._header_size = front.app.limits.header_size
        self._size = 0
        """Bytes of header fields."""
        self._silent = 0
        """Bytes that came since the parser last brought forth anything that counts."""
        self.received = 0
        """Bytes of the body."""
        self.expecting = False
        """The far end waits for "100 Continue"."""
        self._replay = False
        """An upgrade is wished for that does not exist here."""

    def parse(self, data: bytes) -> None:
        """Feed the parser; a head that has come before by itself, so that its bytes can be told from what follows."""
        end = data.find(b"\r\n\r\n") + 4 if self._front.state == BETWEEN else 0
        if 4 < end <= KNOWN_HEAD_SIZE:
            raw = data[: end - 4]
            shape = shaped(raw)
            if self._front.door.seen(raw if shape is None else shape[0]):
                self._feed(data[:end])
                head = self._head
                if self._front.state == BODY and head.plain and head.length and not self.received:
                    self._front.door.learn(raw, shape, head)
                data = data[end:]
        if data and self._front.state != OVER:
            self._feed(data)
        elif data:
            self._front.surplus(data)

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
            if self._front.state != OVER and not self._front.last:
                self._front.refuse(self._unreadable(str(fault)))
            self._front.state = OVER
        else:
            if self._front.state in (HEAD, BODY) and self._silent > self._header_size:
                text = f"Too large: header_size allows {self._header_size} bytes, received more"
                self._front.refuse(turned_away(431, text))
        if rest is None:
            return
        if self._replay:  # not in the `except`, or the upgrade would be the context of faults in what follows
            self._without_upgrade(rest)
        elif self._front.state != OVER and self._head.socket is not None:
            self._front.upgrade(self._head, self.raw_head(), rest)

    def _unreadable(self, why: str) -> Answer:
        if (self._target == b"*" and "PRI" in why) or "HTTP version" in why:
            return turned_away(505, "This server speaks HTTP/1.1")
        return turned_away(400, f"This is no HTTP request: {why}")

    def on_message_begin(self) -> None:
        if self._front.last:
            raise Stop
        self._front.began()
        self._target = b""
        self._headers = {}
        self._size = self._silent = 0
        self.expecting = self._replay = False

    def on_url(self, target: bytes) -> None:
        self._target += target
        if len(self._target) > self._header_size:
            raise self._front.refuse(turned_away(414, "Too large: the target is over limit header_size"))

    def on_header(self, name: bytes, value: bytes) -> None:
        self._size += len(name) + len(value) + 4
        if self._size > self._header_size:
            text = f"Too large: header_size allows {self._header_size} bytes, received more"
            raise self._front.refuse(turned_away(431, text))
        if self._front.state == HEAD:  # trailers mean nothing here
            name, value, headers = name.lower(), value.strip(), self._headers
            headers[name] = headers[name] + b", " + value if name in headers else value

    def on_headers_complete(self) -> None:
        self._front.state = BODY
        self._body = b""
        self.received = self._silent = 0
        headers = self._headers
        method, version = self._parser.get_method().decode("ascii"), self._parser.get_http_version()
        upgrade = self._parser.should_upgrade() and method != "CONNECT"
        socket = upgrade and self._front.app.upgrade and headers.get(b"upgrade", b"").lower() == b"websocket"
        if upgrade and not socket:
            self._replay = True
            return
        try:
            path, query, authority = split_target(self._target)
        except ValueError as why:
            raise self._front.refuse(turned_away(400, f"The target is unreadable: {why}")) from None
        if (fault := _ambiguous(version, headers)) is not None:
            raise self._front.refuse(fault)
        if authority is not None:
            headers[b"host"] = authority
        head = self._front.app.judge(method, path, query, headers, loopback=self._front.door.loopback, upgrade=socket)
        head.old = version == "1.0"
        head.keep = self._parser.should_keep_alive() and not (socket and head.answer is not None)
        head.length = int(headers.get(b"content-length", b"0"))
        expects = b"expect" in headers and not head.old
        ours = head.served is not None or (head.endpoint is not None and method != "HEAD")
        head.plain = ours and head.keep and not (head.old or head.extra or expects)
        self._head = head
        if head.length > self._front.app.limits.message_size:
            raise self._front.refuse(
                head.answer or oversized(head, self._front.app.limits.message_size, head.length), head
            )
        if expects:
            self._expect(head, headers[b"expect"])

    def _expect(self, head: Head, expected: bytes) -> None:
        if expected.lower() != b"100-continue":
            raise self._front.refuse(turned_away(417, "The one expectation that is met here is 100-continue"), head)
        if head.answer is not None:  # said before a byte of the body is sent for nothing
            raise self._front.refuse(head.answer, head)
        self.expecting = True

    def on_body(self, data: bytes) -> None:
        self._silent = 0
        self.received += len(data)
        if self.received > (allowed := self._front.app.limits.message_size):
            head = self._head
            raise self._front.refuse(head.answer or oversized(head, allowed, None), head)
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
        self._front.state = BETWEEN
        body, self._body = self._body, b""
        self._front.take(self._head, body if isinstance(body, bytes) else bytes(body))

    def raw_head(self, *, without: bool = False) -> bytes:
        """The head that was read, anew; or the same without the wish for an upgrade."""
        version = self._parser.get_http_version().encode()
        lines = [b"%b %b HTTP/%b" % (self._parser.get_method(), self._target, version)]
        for name, value in self._headers.items():
            if without and name == b"upgrade":
                continue
            if without and name == b"connection":
                options = (option.strip() for option in value.split(b","))
                value = b", ".join(one for one in options if one.lower() not in (b"upgrade", b"http2-settings"))
            lines.append(b"%b: %b" % (name, value))
        return b"\r\n".join((*lines, b"", b""))

    def _without_upgrade(self, rest: bytes) -> None:
        """Go on in HTTP/1.1 with a request that wishes for another protocol, as Java's client does for HTTP/2
        (RFC 9110, 7.8: a server may ignore Upgrade). The parser takes what follows the head for that protocol."""
        raw = self.raw_head(without=True)
        self._parser = httptools.HttpRequestParser(self)
        self._front.state = BETWEEN
        self._feed(raw)
        if rest and self._front.state != OVER:
            self._feed(rest)


def shaped(head: bytes) -> tuple[bytes, int] | None:
    """A head without its `Content-Length` line, and the number in that; None where the line is not of the usual form.

    Of two heads with the same shape one is fit to be served when the other is: a second such line, or another that
    bears on the length, stays in the shape.
    """
    for name in _LENGTHS:
        at = head.find(name)
        if at >= 0:
            end = head.find(b"\r\n", at + 2)
            number = head[at + len(name) :] if end < 0 else head[at + len(name) : end]
            if not number.isdigit() or len(number) > 15:
                return None
            return head[:at] if end < 0 else head[:at] + head[end:], int(number)
    return None


@lru_cache(maxsize=256)
def split_target(target: bytes) -> tuple[str, str, bytes | None]:
    """The decoded path, the query, and the authority where the target has one (RFC 9112, 3.2). ValueError for others."""
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
    """What llhttp lets through and this server does not, in a head that asks for no judgement of its path."""
    if version not in ("1.1", "1.0"):
        return turned_away(505, "This server speaks HTTP/1.1")
    host = headers.get(b"host")
    if host is None and version == "1.1":
        return turned_away(400, "HTTP/1.1 needs a Host")
    if host is not None and not _is_host(host):
        return turned_away(400, "The Host is unreadable, or there are two")
    coding = headers.get(b"transfer-encoding")
    if coding is not None and version == "1.0":
        return turned_away(400, "HTTP/1.0 knows no Transfer-Encoding")
    if coding is not None and coding.lower() != b"chunked":
        return turned_away(501, "The one Transfer-Encoding that is read here is chunked")
    return None


@lru_cache(maxsize=256)
def _is_host(value: bytes) -> bool:
    return _HOST_VALUE.fullmatch(value) is not None
