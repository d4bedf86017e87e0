"""The responses of the native server: one for each request, sent in the order of the requests.

A response puts its bytes into `out` and tells its connection (`answered`), which sends them when the
earlier responses are finished. `over` means that nothing follows; from then on the response does not refer to what
answered it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from http import HTTPStatus
from typing import ClassVar, TypeAlias

from msgspec import Struct

from ...channel import Caller
from ...jsonrpc.errors import Refusal
from .messages import JSON_LINES, Answer, CommonLines, Head, Lines
from .parse import Request
from .parts import Connection
from .refusals import failure, rpc_answer

_OK = JSON_LINES.ok
_BAD_LINE = re.compile(r"[\r\n\0]")
_PHRASES = {status.value: status.phrase for status in HTTPStatus}


def compose(
    head: Head, more: Lines, answer: Answer, *, keep: bool, chunked: bool = False, length: int | None = None
) -> bytes:
    """The bytes of an answer, or of its head (`length` None: it has no known length). `more`: header fields that go
    with it. ValueError for a bad header."""
    status = answer.status
    out = _lines(status, tuple(answer.headers), (*head.extra, *more) if more else tuple(head.extra))
    if chunked:
        out += b"Transfer-Encoding: chunked\r\n"
    elif length is not None and status not in (204, 304):
        out += b"Content-Length: %d\r\n" % length
    if not keep:
        out += b"Connection: close\r\n"
    elif head.old:
        out += b"Connection: keep-alive\r\n"
    return out + b"\r\n"


@lru_cache(maxsize=256)
def _lines(status: int, headers: Lines, extra: Lines) -> bytes:
    """The status line and these fields, which come again and again."""
    lines = [f"HTTP/1.1 {status} {_PHRASES.get(status, 'Status')}\r\n"]
    for name, value in (*headers, *extra):
        if _BAD_LINE.search(name + value):
            raise ValueError(f"the header {name!r} has more than one line")
        lines.append(f"{name}: {value}\r\n")
    return "".join(lines).encode("latin-1")


def joining(asked: Request) -> Lines:
    """Header fields with which the guard admits a request, to be added to its answer."""
    admitted = asked.admitted
    return () if admitted is None or not admitted.headers else tuple(admitted.headers)


class RpcExchange(Struct, eq=False):
    """The exchange of one POST, and its place in the order of the answers."""

    front: Connection
    head: Head
    request: bytes
    asked: Request | None = None
    """What is known of this request beside its head."""
    more: Lines = ()
    """Header fields with which the guard admits the request."""
    gone: Callable[[], None] | None = None
    out: bytes = b""
    over: bool = False
    made: Caller | None = None
    """Its caller, once it was asked for."""
    begun: ClassVar[bool] = False
    """False: nothing is sent before the whole answer."""

    @property
    def caller(self) -> Caller:
        """Made on first use: most handlers never use it."""
        if self.made is None:
            self.made = self.front.caller(self.head, len(self.request), self.asked)
        return self.made

    @caller.setter
    def caller(self, caller: Caller) -> None:
        self.made = caller

    @property
    def acknowledges(self) -> bool:
        """Whether a notification is answered when it was accepted."""
        return not self.front.app.options.await_notifications

    def respond(self, answer: bytes | None, refusal: Refusal | None = None) -> None:
        if self.over:
            return
        front, head = self.front, self.head
        if refusal is None and head.plain and not front.retiring and not self.more:
            self.out = front.app.nothing if answer is None else _OK % (len(answer), answer)
        else:
            whole = rpc_answer(answer, refusal, front.app.options.empty_status)
            self.out = compose(head, self.more, whole, keep=front.keeps(self), length=len(whole.body)) + whole.body
        self.over = True
        front.answered(self)

    def queued(self) -> None:
        """The answer waits for earlier ones: what it answers, which no limit counts any more, is not kept for that."""
        self.request, self.gone = b"", None
        if self.asked is not None:
            self.asked.body = b""

    def stream(self, message: bytes) -> bool:
        """False: an answer in JSON cannot have messages ahead of it."""
        return False


class ResponseWriter(Struct, eq=False):
    """The reply of any other endpoint, and its place in the order of the answers."""

    front: Connection
    head: Head
    more: Lines = ()
    """Header fields with which the guard admits the request."""
    asked: Request | None = None
    """What is known of this request beside its head."""
    gone: Callable[[], None] | None = None
    resumed: Callable[[], None] | None = None
    doubted: Callable[[], None] | None = None
    out: bytes = b""
    over: bool = False
    begun: bool = False
    chunked: bool = False

    @property
    def writable(self) -> bool:
        front = self.front
        return front.transport is not None and not front.full and len(self.out) <= front.app.limits.send_queue

    def reject(self, status: int, reason: str) -> None:
        """As `Reply.reject`."""
        self.front.app.reject(self.head, status, reason, *self.front.origin(self.head, self.asked))

    def respond(self, status: int, headers: Lines = (), body: bytes = b"") -> None:
        if self.over:
            return
        if self.begun:
            self.finish(body)
            return
        front, head = self.front, self.head
        if status == 200 and type(headers) is CommonLines and head.plain and not (front.retiring or self.more):
            self.out = headers.ok % (len(body), body)
        else:
            self.out = compose(head, self.more, Answer(status, headers), keep=front.keeps(self), length=len(body))
            if head.method != "HEAD":
                self.out += body
        self.over = True
        if self.gone is not None:
            self.gone = None
        front.answered(self)

    def start(self, status: int, headers: Lines = ()) -> None:
        if self.begun or self.over:
            return
        bodiless = status in (204, 304)
        self.chunked = not self.head.old and not bodiless
        if not self.chunked and not bodiless:
            self.head.keep = False  # without chunks only the end of the connection ends the body
            self.front.last = True
        keep = self.front.keeps(self)
        self.out = compose(self.head, self.more, Answer(status, headers), keep=keep, chunked=self.chunked)
        self.begun = True
        self.front.answered(self)

    def write(self, chunk: bytes) -> None:
        if chunk and not self.over and self.head.method != "HEAD":
            self.out += b"%x\r\n%b\r\n" % (len(chunk), chunk) if self.chunked else chunk
            self.front.answered(self)

    def finish(self, chunk: bytes = b"") -> None:
        if self.over:
            return
        if self.head.method != "HEAD":
            if not self.chunked:
                self.out += chunk
            elif chunk:
                self.out += b"%x\r\n%b\r\n0\r\n\r\n" % (len(chunk), chunk)
            else:
                self.out += b"0\r\n\r\n"
        self.over = True
        self.gone = self.resumed = self.doubted = None
        self.front.answered(self)

    def fail(self) -> None:
        """The endpoint raised: 500, or if an answer has begun, the end of the connection."""
        if self.begun or self.over:
            self.front.abort()
        else:
            answer = failure()
            self.respond(answer.status, answer.headers, answer.body)


PipelinedResponse: TypeAlias = RpcExchange | ResponseWriter
