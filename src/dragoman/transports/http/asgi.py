"""The answers of the ASGI interface: what is sent for one request, and whether its caller is still there.

A complete answer is sent as two events. A streamed answer waits in a list until the server in front has
taken it, while one watch notices whether the caller leaves, and another whether the server takes anything at all.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from functools import lru_cache
from typing import Any, TypeAlias

from ...channel import Budget, Caller, Identity, Options
from ...jsonrpc.codec import AnyAnswer, FailedAnswer, text_of
from ...jsonrpc.limits import Limits
from ...net.forwarded import FORWARDED, TrustedProxies
from ...net.scheme import is_tls
from ...net.sending import SendWatch
from ...net.sockets import remote_name
from .known_heads import RequestFields
from .messages import JSON, JSON_LINES, Answer, Head, Lines
from .refusals import failure, rpc_answer

log: logging.Logger = logging.getLogger("dragoman.http")

Scope: TypeAlias = MutableMapping[str, Any]
Event: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Event]]
Send: TypeAlias = Callable[[Event], Awaitable[None]]

_JSON_LINE = (b"content-type", JSON.encode())


def start_event(head: Head, answer: Answer) -> Event:
    """The event that begins an answer."""
    lines = _encoded((*answer.headers, *head.extra))
    return {"type": "http.response.start", "status": answer.status, "headers": [*lines]}


@lru_cache(maxsize=256)
def _encoded(lines: Lines) -> tuple[tuple[bytes, bytes], ...]:
    """Header fields as ASGI has them; they come again and again."""
    return tuple((name.lower().encode(), value.encode("latin-1")) for name, value in lines)


async def send_answer(head: Head, answer: Answer, send: Send) -> None:
    """Send a whole answer."""
    length = (b"content-length", b"%d" % len(answer.body))
    if answer.status == 200 and answer.headers == JSON_LINES and not head.extra:
        start: Event = {"type": "http.response.start", "status": 200, "headers": [_JSON_LINE, length]}
    else:
        start = start_event(head, answer)
        if answer.status not in (204, 304):
            start["headers"].append(length)
    await send(start)
    await send({"type": "http.response.body", "body": b"" if head.method == "HEAD" else answer.body})


_COUNTED = 16 * 1024
"""A whole answer from this length on counts in the budget while the server in front takes it."""


async def send_counted(head: Head, answer: Answer, send: Send, budget: Budget | None, owner: Callable[[], str]) -> None:
    """Send a whole answer, which counts in the budget until the server in front has taken it: servers take the body and
    return when their own buffer has room. How fast it leaves cannot be seen here, so it has no time limit, as
    long as the budget has room for it."""
    size, task = len(answer.body), asyncio.current_task()
    if size < _COUNTED or budget is None or task is None:
        await send_answer(head, answer, send)
        return
    cut: list[str] = []

    def too_slow(why: str) -> None:
        log.debug("%s: the caller of %s %s", head.path, owner(), why)
        cut.append(why)
        task.cancel()

    watch = SendWatch(_WITHOUT_CLOCKS, too_slow, budget=budget, owner=owner)
    watch.beside = size
    watch.count()
    try:
        await send_answer(head, answer, send)
    except asyncio.CancelledError:
        if not cut or task.uncancel():
            raise
    finally:
        watch.end()


_WITHOUT_CLOCKS = Limits(write_timeout=None, read_rate=None)


class DisconnectWatch:
    """Notices that a caller leaves while it is being answered.

    The server's next event is awaited once. After the end of the body it may only send `http.disconnect`; a server that
    sends another event at once would send it again and again, and a loop reading these would starve everything else.
    """

    __slots__ = ("_receive", "_task")

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._task: asyncio.Task[bool] | None = None

    async def wait(self, waiter: asyncio.Future[None]) -> bool:
        """Wait for `waiter`; False when the caller has left."""
        if self._task is None:
            self._task = asyncio.ensure_future(self._watch())
        await asyncio.wait((self._task, waiter), return_when=asyncio.FIRST_COMPLETED)
        if self._task.done() and self._stays(self._task):
            await asyncio.wait((waiter,))
        return not self._task.done() or self._stays(self._task)

    @staticmethod
    def _stays(task: asyncio.Task[bool]) -> bool:
        """Return whether the watch has ended although the caller is still there."""
        return not task.cancelled() and task.exception() is None and not task.result()

    async def _watch(self) -> bool:
        kind: str = (await self._receive())["type"]
        return kind == "http.disconnect"

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))
            if not self._task.cancelled() and (why := self._task.exception()) is not None:
                log.debug("While waiting for a caller to leave: %.200r", str(why))


class AsgiExchange:
    """The exchange of one POST on the ASGI interface."""

    __slots__ = (
        "_caller",
        "_empty_status",
        "_identity",
        "_known",
        "_scope",
        "_waiter",
        "acknowledges",
        "answer",
        "gone",
        "request",
    )  # fmt: skip

    def __init__(
        self, known: RequestFields, request: bytes, scope: Scope, options: Options, identity: Identity | None = None
    ) -> None:
        self._empty_status = options.empty_status
        self.acknowledges: bool = not options.await_notifications
        """Whether a notification is answered when it was accepted."""
        self._identity = identity
        self._known = known
        self.request: bytes = request
        self.gone: Callable[[], None] | None = None
        self.answer: Answer | None = None
        self._scope = scope
        self._caller: Caller | None = None
        self._waiter: asyncio.Future[None] | None = None

    @property
    def caller(self) -> Caller:
        """Made on first use: most handlers never use it."""
        if self._caller is None:
            self._caller = caller_of(self._known, self._scope, self._identity)
        return self._caller

    @caller.setter
    def caller(self, caller: Caller) -> None:
        self._caller = caller

    def respond(self, answer: AnyAnswer) -> None:
        if self.answer is not None:
            return
        refusal = answer.refusal if type(answer) is FailedAnswer else None
        self.answer = rpc_answer(text_of(answer), refusal, self._empty_status)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def stream(self, message: bytes) -> bool:
        """False: an answer in JSON cannot have messages ahead of it."""
        return False

    async def wait(self, receive: Receive) -> Answer | None:
        """The answer; None if the caller went away before."""
        self._waiter = asyncio.get_running_loop().create_future()
        watch = DisconnectWatch(receive)
        try:
            await watch.wait(self._waiter)
        finally:
            await watch.stop()
            if self.answer is None and self.gone is not None:
                self.gone()
        return self.answer


class AsgiReply:
    """The reply of an endpoint on the ASGI interface. `limits`: more unsent bytes than `send_queue` make it wait, and a
    server that does not take them in time ends it; `reject`: as `Reply.reject`; `owner`: returns the owner of
    its account in the budget."""

    __slots__ = (
        "_events",
        "_head",
        "_high",
        "_left",
        "_over",
        "_size",
        "_started",
        "_task",
        "_unsent",
        "_waiter",
        "answer",
        "doubted",
        "gone",
        "reject",
        "resumed",
    )

    def __init__(
        self,
        head: Head,
        limits: Limits,
        reject: Callable[[int, str], None],
        budget: Budget | None = None,
        owner: Callable[[], str] = str,
    ) -> None:
        self._head, self._high, self.reject = head, limits.send_queue, reject
        self._unsent = SendWatch(limits, self._too_slow, budget=budget, owner=owner)
        self._task: asyncio.Task[Any] | None = None
        self.answer: Answer | None = None
        """The complete answer, if nothing of it was sent before."""
        self.gone: Callable[[], None] | None = None
        self.resumed: Callable[[], None] | None = None
        self.doubted: Callable[[], None] | None = None  # the server in front notices it by itself
        self._events: list[Event] = []
        self._size = 0
        self._started = self._over = self._left = False
        self._waiter: asyncio.Future[None] | None = None

    @property
    def writable(self) -> bool:
        return self._size <= self._high and not self._left

    def respond(self, status: int, headers: Lines = (), body: bytes = b"") -> None:
        if self._started:
            self.finish(body)
        elif not self._over:
            self.answer = Answer(status, headers, body)
            self._over = True
            self.gone = None
            self._wake()

    def start(self, status: int, headers: Lines = ()) -> None:
        if not self._started:
            self._started = True
            self._put(start_event(self._head, Answer(status, headers)))

    def write(self, chunk: bytes) -> None:
        if chunk and self._head.method != "HEAD":
            self._size += len(chunk)
            self._put({"type": "http.response.body", "body": chunk, "more_body": True})

    def finish(self, chunk: bytes = b"") -> None:
        chunk = b"" if self._head.method == "HEAD" else chunk
        self._size += len(chunk)
        self._put({"type": "http.response.body", "body": chunk})
        self._over = True
        self.gone = self.resumed = self.doubted = None

    def fail(self) -> None:
        """Answer 500, or break off a begun answer: the endpoint raised."""
        if not self._started:
            answer = failure()
            self.respond(answer.status, answer.headers, answer.body)
        elif not self._over:
            self._over = self._left = True  # the server in front aborts an answer without an end

    def _put(self, event: Event) -> None:
        if not self._over and not self._left:
            self._events.append(event)
            self._unsent.added(len(event.get("body", b"")))
            self._unsent.start(self)
            self._wake()

    def get_write_buffer_size(self) -> int:
        """As a transport's: bytes that the server in front has not taken."""
        return self._size

    def _too_slow(self, why: str) -> None:
        log.debug("%s: the server in front %s", self._head.path, why)
        task, self._task = self._task, None
        if task is not None:
            task.cancel()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def carry(self, receive: Receive, send: Send) -> None:
        """Send what is queued until the answer is over or the caller has gone."""
        watch = DisconnectWatch(receive)
        self._task = task = asyncio.current_task()
        try:
            while True:
                while self._events:
                    events, self._events = self._events, []
                    for event in events:
                        await send(event)
                        self._sent(len(event.get("body", b"")))
                if self.answer is not None:
                    if len(self.answer.body) >= _COUNTED:
                        self._unsent.beside = len(self.answer.body)
                        self._unsent.count()
                    await send_answer(self._head, self.answer, send)
                if self._over:
                    return
                self._waiter = asyncio.get_running_loop().create_future()
                if not await watch.wait(self._waiter):
                    return
        except OSError as why:  # a server may report in this way that the caller is gone (ASGI 2.4)
            log.debug("%s: %.200r", self._head.path, str(why))
        except asyncio.CancelledError:
            if self._task is not None or task is None or task.uncancel():
                raise  # not by the watch, or not by it alone
        finally:
            self._unsent.end()
            self._events.clear()
            self._left = True
            if not self._over and self.gone is not None:
                self.gone()
            await watch.stop()

    def _sent(self, length: int) -> None:
        was_full = self._size > self._high
        self._size -= length
        self._unsent.resumed()
        if was_full and self._size <= self._high and self.resumed is not None:
            self.resumed()


def remote(scope: Scope) -> str:
    """The far end's address as text."""
    client = scope.get("client")
    return "" if client is None else remote_name(tuple(client))


def is_secure(scope: Scope) -> bool:
    """Whether the request came by TLS."""
    return is_tls(scope.get("scheme", ""))


_HOST = "dragoman.forwarded_host"


def scope_of_caller(proxies: TrustedProxies, scope: Scope) -> Scope:
    """Return the scope of a request as its caller sent it to a trusted proxy; other scopes as they are."""
    client = scope.get("client")
    if client is None or not proxies.trusts(client[0]):
        return scope
    found: dict[str, str] = {}
    for raw, value in scope["headers"]:
        if raw in _FORWARDED:
            name, text = raw.decode(), value.decode("latin-1").strip()
            found[name] = f"{found[name]}, {text}" if name in found else text
    origin = proxies.origin_of(found)
    changed: Scope = {**scope, _HOST: origin.host.encode()}
    if origin.address is not None:
        changed["client"] = origin.address
    if origin.scheme:
        changed["scheme"] = origin.scheme if scope["type"] == "http" else origin.scheme.replace("http", "ws")
    return changed


_FORWARDED = frozenset(name.encode() for name in FORWARDED)


def forwarded_host(scope: Scope) -> bytes:
    """The host that the caller addressed at a trusted proxy; b"" where none names it."""
    host: bytes = scope.get(_HOST, b"")
    return host


def caller_of(known: RequestFields, scope: Scope, identity: Identity | None = None) -> Caller:
    """The caller of a request."""
    scheme: str = scope.get("scheme", "http")
    headers, host = known.header_texts(scope["headers"]), forwarded_host(scope)
    return Caller(
        scheme=scheme,
        remote=remote(scope),
        path=known.head.path,
        headers=headers | {"host": host.decode()} if host else headers,
        tls=is_tls(scheme),
        identity=identity,
    )
