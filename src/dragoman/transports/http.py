"""The HTTP app: endpoints by path, and the ASGI face.

One `App` has two faces: it is an ASGI application (`await app(scope, receive, send)`), and
`http_server` serves the same object on the native front. Rules of both:

- `judge` looks at the head alone and says who the request goes to, or what turns it away.
- The path is the endpoint, to the letter ("/a" is not "/a/"); other paths are 404. A JSON-RPC
  endpoint takes POST (405 else) of JSON (415 else) up to `limits.message_size` (413 else).
- Beside it stand what `Served.routes()` offers and `/health`, by GET and HEAD.
- Whatever is served may offer `http_endpoints()`: endpoints of its own, by path below it, in place
  of the JSON-RPC one. They get every method and header, and answer as they like, also by a stream.
- On the ASGI face the server in front of it speaks HTTP; time-outs for heads are its own.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Mapping, MutableMapping
from typing import Any, TypeAlias

from ..channel import Caller, Document, Options, Served
from ..jsonrpc.errors import Refusal
from . import asgi_socket
from .http_head import (
    JSON,
    JSON_LINES,
    Answer,
    Endpoint,
    Guard,
    Head,
    HttpRequest,
    Lines,
    Reply,
    collect,
    failure,
    is_json,
    is_loopback,
    oversized,
    rpc_answer,
    turned_away,
    unsupported,
)

__all__ = ["Answer", "App", "Endpoint", "Head", "HttpRequest", "Reply"]

log = logging.getLogger("dragoman.http")

Scope: TypeAlias = MutableMapping[str, Any]
Event: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Event]]
Send: TypeAlias = Callable[[Event], Awaitable[None]]


class App:
    """Served objects by path, over HTTP: an ASGI application, and what the native front serves.

    `served` maps the path below `prefix` ("" for the one at the prefix itself) to what is served
    there. `methods=False` leaves WebSocket upgrades alone; `upgrade=False` leaves them out.
    """

    def __init__(
        self,
        served: Mapping[str, Served],
        options: Options | None = None,
        *,
        prefix: str = "",
        methods: bool = True,
        upgrade: bool = True,
    ) -> None:
        self.options = Options() if options is None else options
        self.limits = self.options.limits
        self.guard = Guard(self.options)
        self.methods, self.upgrade = methods, upgrade
        self.served = tuple(served.values())
        self.calls: dict[str, Served] = {}
        self.endpoints: dict[str, Endpoint] = {}
        self.documents: dict[str, Document] = {}
        self.sockets: dict[str, Served] = {}
        self.known: dict[object, Head] = {}
        """The ASGI face's: heads that were judged to be calls."""
        for below, one in served.items():
            at = prefix.rstrip("/") + below.rstrip("/")
            self.sockets[at or "/"] = one
            offered = getattr(one, "http_endpoints", None)
            if offered is None:
                self.calls[at or "/"] = one
            else:
                self.endpoints |= {(at + path) or "/": endpoint for path, endpoint in offered().items()}
            self.documents |= {at + path: document for path, document in one.routes().items()}
        self.documents.setdefault("/health", Document(JSON, lambda: b'{"status":"ok"}'))

    def judge(
        self, method: str, path: str, query: str, headers: dict[bytes, bytes], *, loopback: bool, upgrade: bool = False
    ) -> Head:
        """Where a request goes, by its head. `loopback`: it came to a loopback address; `upgrade`: it is a WebSocket's."""
        head = Head(method=method, path=path, query=query, headers=headers)
        head.answer, head.extra = self.guard.check(headers, loopback)
        if method == "OPTIONS" and head.answer is None:
            head.answer = self.guard.preflight(headers, head.extra)
        if head.answer is not None:
            return head
        if upgrade and self.upgrade and path in self.sockets:
            self._socket(head)
        elif self.methods and (call := self.calls.get(path)) is not None:
            if method != "POST":
                head.answer = turned_away(405, f"{method} is not for JSON-RPC; POST a message", (("Allow", "POST"),))
            elif (kind := headers.get(b"content-type")) is None or not is_json(kind):
                head.answer = unsupported(kind)
            else:
                head.served = call
        elif self.methods and (endpoint := self.endpoints.get(path)) is not None:
            head.endpoint = endpoint
        elif self.methods and (document := self.documents.get(path)) is not None:
            head.answer = self._document(method, path, document)
        elif not self.methods and path in self.sockets:
            lines = (("Upgrade", "websocket"), ("Connection", "Upgrade"))
            head.answer = turned_away(426, "This URL speaks WebSocket alone", lines)
        else:
            head.answer = turned_away(404, f"There is nothing at {path}")
        return head

    def _socket(self, head: Head) -> None:
        if head.method != "GET":
            head.answer = turned_away(405, "A WebSocket begins with GET", (("Allow", "GET"),))
        elif head.headers.get(b"sec-websocket-version", b"13") != b"13":
            head.answer = turned_away(426, "The WebSocket version here is 13", (("Sec-WebSocket-Version", "13"),))
        else:
            head.socket = self.sockets[head.path]

    def _document(self, method: str, path: str, document: Document) -> Answer:
        if method not in ("GET", "HEAD"):
            return turned_away(405, f"{method} is not for {path}; GET it", (("Allow", "GET, HEAD"),))
        if path == "/health" and any(one.gate.draining for one in self.served):
            return Answer(503, JSON_LINES, b'{"status":"draining"}')
        try:
            return Answer(200, (("Content-Type", document.media_type),), document.make())
        except Exception:
            log.exception("The document at %s raised", path)
            return failure()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI application: scopes `http`, `websocket` and `lifespan`."""
        if scope["type"] == "http":
            await _http(self, scope, receive, send)
        elif scope["type"] == "websocket":
            await _websocket(self, scope, receive, send)
        elif scope["type"] == "lifespan":
            while (await receive())["type"] == "lifespan.startup":
                await send({"type": "lifespan.startup.complete"})
            await send({"type": "lifespan.shutdown.complete"})
        else:
            raise ValueError(f"ASGI scope {scope['type']!r} is unknown here")


# -- the ASGI face --------------------------------------------------------------------------------


async def _http(app: App, scope: Scope, receive: Receive, send: Send) -> None:
    head = _head(app, scope)
    answer = head.answer
    body = b""
    if answer is None:
        found = await _body(app, head, receive)
        if found is None:
            return
        body, answer = found
    if answer is not None:
        await _answer(head, answer, send)
    elif head.served is not None:
        post = _Post(head, body, scope)
        try:
            head.served.exchange(post)
        except Exception:
            log.exception("The exchange at %s raised", head.path)
            post.answer = failure()
        answer = post.answer or await post.wait(receive)
        if answer is not None:
            await _answer(head, answer, send)
    elif head.endpoint is not None:
        reply = _Reply(head, app.limits.send_queue)
        request = HttpRequest(head.method, head.path, head.query, body, _caller(head, scope))
        try:
            head.endpoint(request, reply)
        except Exception:
            log.exception("The endpoint at %s raised", head.path)
            reply.fail()
        await reply.carry(receive, send)


def _head(app: App, scope: Scope) -> Head:
    """What the head decides. Callers send the same one again and again, so what is a call is kept by its parts."""
    try:
        key = (scope["method"], scope["path"], scope.get("root_path"), scope.get("server"), tuple(scope["headers"]))
        known = app.known.get(key)
    except TypeError:  # a server that gives lists
        return _judge(app, scope["method"], scope, upgrade=False)
    if known is not None:
        return known
    head = _judge(app, scope["method"], scope, upgrade=False)
    if head.served is not None and head.answer is None:
        if len(app.known) >= _KNOWN:
            app.known.clear()
        app.known[key] = head
    return head


def _judge(app: App, method: str, scope: Scope, *, upgrade: bool) -> Head:
    path: str = scope["path"]
    root: str = scope.get("root_path", "").rstrip("/")
    if root and (path == root or path.startswith(root + "/")):  # it begins with where the app is mounted
        path = path[len(root) :]
    server = scope.get("server")
    loopback = server is not None and is_loopback(server[0])
    query = scope.get("query_string", b"").decode("latin-1")
    fields = scope["headers"]  # pairs of bytes, the names in lower case (ASGI)
    headers = dict(fields)
    if len(headers) != len(fields):
        headers = collect(fields)
    return app.judge(method, path or "/", query, headers, loopback=loopback, upgrade=upgrade)


def _caller(head: Head, scope: Scope) -> Caller:
    client = scope.get("client")
    remote = "" if client is None else f"{client[0]}:{client[1]}"
    scheme: str = scope.get("scheme", "http")
    return head.caller(scheme, remote, scheme in ("https", "wss"))


async def _body(app: App, head: Head, receive: Receive) -> tuple[bytes, Answer | None] | None:
    """The body, or the answer to one that is too large or too slow; None when the caller went away."""
    allowed = app.limits.message_size
    length = head.headers.get(b"content-length", b"0")
    if length.isdigit() and int(length) > allowed:
        return b"", oversized(head, allowed, int(length))
    steps = receive().__await__()
    try:
        first = next(steps)
    except StopIteration as there:  # servers that have the body already: no clock is needed
        event: Event = there.value
        if event["type"] == "http.disconnect":
            return None
        if not event.get("more_body"):
            body: bytes = event.get("body", b"")
            return body, oversized(head, allowed, None) if len(body) > allowed else None
        waiting: Awaitable[Event] = receive()
        parts = bytearray(event.get("body", b""))
    else:
        waiting, parts = _Begun(steps, first), bytearray()
    try:
        async with asyncio.timeout(app.limits.body_timeout):
            while True:
                event = await waiting
                if event["type"] == "http.disconnect":
                    return None
                parts += event.get("body", b"")
                if len(parts) > allowed:
                    return b"", oversized(head, allowed, None)
                if not event.get("more_body"):
                    return bytes(parts), None
                waiting = receive()
    except TimeoutError:
        return b"", turned_away(408, "The body took too long", (("Connection", "close"),))


class _Begun:
    """An awaitable whose first step has been taken."""

    __slots__ = ("_first", "_steps")

    def __init__(self, steps: Generator[Any, Any, Event], first: Any) -> None:
        self._steps, self._first = steps, first

    def __await__(self) -> Generator[Any, Any, Event]:
        yield self._first
        return (yield from self._steps)


_KNOWN = 256
_JSON_LINE = (b"content-type", JSON.encode())


def _start(head: Head, answer: Answer) -> Event:
    lines = [(name.lower().encode(), value.encode("latin-1")) for name, value in (*answer.headers, *head.extra)]
    return {"type": "http.response.start", "status": answer.status, "headers": lines}


async def _answer(head: Head, answer: Answer, send: Send) -> None:
    """Send a whole answer."""
    length = (b"content-length", b"%d" % len(answer.body))
    if answer.status == 200 and answer.headers == JSON_LINES and not head.extra:
        start: Event = {"type": "http.response.start", "status": 200, "headers": [_JSON_LINE, length]}
    else:
        start = _start(head, answer)
        if answer.status not in (204, 304):
            start["headers"].append(length)
    await send(start)
    await send({"type": "http.response.body", "body": b"" if head.method == "HEAD" else answer.body})


class _Watch:
    """Sees a caller leave while he is being answered."""

    __slots__ = ("_receive", "_task")

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._task: asyncio.Task[None] | None = None

    async def wait(self, waiter: asyncio.Future[None]) -> bool:
        """Wait for `waiter`; False when the caller has left."""
        if self._task is None:
            self._task = asyncio.ensure_future(self._watch())
        await asyncio.wait((self._task, waiter), return_when=asyncio.FIRST_COMPLETED)
        return not self._task.done()

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))
            if not self._task.cancelled() and (why := self._task.exception()) is not None:
                log.debug("While waiting for a caller to leave: %.200r", str(why))


class _Post:
    """The exchange of one POST on the ASGI face."""

    __slots__ = ("_caller", "_scope", "_waiter", "answer", "gone", "head", "request")

    def __init__(self, head: Head, request: bytes, scope: Scope) -> None:
        self.head, self.request = head, request
        self.gone: Callable[[], None] | None = None
        self.answer: Answer | None = None
        self._scope = scope
        self._caller: Caller | None = None
        self._waiter: asyncio.Future[None] | None = None

    @property
    def caller(self) -> Caller:
        """Made when someone asks: most handlers never do."""
        if self._caller is None:
            self._caller = _caller(self.head, self._scope)
        return self._caller

    @caller.setter
    def caller(self, caller: Caller) -> None:
        self._caller = caller

    def respond(self, answer: bytes | None, refusal: Refusal | None = None) -> None:
        self.answer = rpc_answer(answer, refusal)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def stream(self, message: bytes) -> bool:
        """False: an answer in JSON has nothing ahead of it."""
        return False

    async def wait(self, receive: Receive) -> Answer | None:
        """The answer; None when the caller went away before."""
        self._waiter = asyncio.get_running_loop().create_future()
        watch = _Watch(receive)
        try:
            await watch.wait(self._waiter)
        finally:
            await watch.stop()
            if self.answer is None and self.gone is not None:
                self.gone()
        return self.answer


class _Reply:
    """The reply of an endpoint on the ASGI face."""

    def __init__(self, head: Head, high: int) -> None:
        self._head, self._high = head, high
        self.gone: Callable[[], None] | None = None
        self.resumed: Callable[[], None] | None = None
        self._events: deque[Event] = deque()
        self._size = 0
        self._started = self._over = self._left = False
        self._waiter: asyncio.Future[None] | None = None

    @property
    def writable(self) -> bool:
        return self._size <= self._high and not self._left

    def respond(self, status: int, headers: Lines = (), body: bytes = b"") -> None:
        if not self._started:
            length = () if status in (204, 304) else (("Content-Length", str(len(body))),)
            self.start(status, (*headers, *length))
        self.write(body)
        self.finish()

    def start(self, status: int, headers: Lines = ()) -> None:
        if not self._started:
            self._started = True
            self._put(_start(self._head, Answer(status, headers)))

    def write(self, chunk: bytes) -> None:
        if chunk and self._head.method != "HEAD":
            self._size += len(chunk)
            self._put({"type": "http.response.body", "body": chunk, "more_body": True})

    def finish(self) -> None:
        self._put({"type": "http.response.body", "body": b""})
        self._over = True

    def fail(self) -> None:
        """The endpoint raised."""
        if not self._started:
            answer = failure()
            self.respond(answer.status, answer.headers, answer.body)
        elif not self._over:
            self._over = self._left = True  # the server in front sees an answer without an end, and cuts it off

    def _put(self, event: Event) -> None:
        if not self._over and not self._left:
            self._events.append(event)
            if self._waiter is not None and not self._waiter.done():
                self._waiter.set_result(None)

    async def carry(self, receive: Receive, send: Send) -> None:
        """Send what is queued until the answer is over or the caller has gone."""
        watch = _Watch(receive)
        try:
            while True:
                while self._events:
                    event = self._events.popleft()
                    await send(event)
                    self._sent(len(event.get("body", b"")))
                if self._over:
                    return
                self._waiter = asyncio.get_running_loop().create_future()
                if not await watch.wait(self._waiter):
                    return
        except OSError as why:  # how a server may tell that the caller is gone (ASGI 2.4)
            log.debug("%s: %.200r", self._head.path, str(why))
        finally:
            self._events.clear()
            self._left = True
            if not self._over and self.gone is not None:
                self.gone()
            await watch.stop()

    def _sent(self, length: int) -> None:
        was_full = self._size > self._high
        self._size -= length
        if was_full and self._size <= self._high and self.resumed is not None:
            self.resumed()


async def _websocket(app: App, scope: Scope, receive: Receive, send: Send) -> None:
    await receive()  # websocket.connect
    head = _judge(app, "GET", scope, upgrade=True)
    if head.socket is not None:
        await asgi_socket.run(head.socket, _caller(head, scope), app.options, scope, receive, send)
        return
    answer = head.answer or turned_away(404, f"There is no WebSocket at {head.path}")
    if "websocket.http.response" in (scope.get("extensions") or {}):
        await send({**_start(head, answer), "type": "websocket.http.response.start"})
        await send({"type": "websocket.http.response.body", "body": answer.body})
    else:
        await send({"type": "websocket.close", "code": 1008})
