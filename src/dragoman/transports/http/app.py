"""The HTTP application: endpoints by path, and the ASGI interface.

One `App` has two interfaces: it is an ASGI application (`await app(scope, receive, send)`), and
`http_server` serves the same object on the native front. Rules of both:

- `route` examines only the head and decides which endpoint gets the request, or which answer refuses it.
- The path must match exactly ("/a" is not "/a/"); other paths are 404. A JSON-RPC endpoint takes POST (405 else) of
  JSON that is not compressed (415 else) up to `limits.message_size` (413 else).
- In addition there are the documents of `Servable.routes()`, `/health` and `/ready`, by GET and HEAD. `/health` is 503
  while draining; `/ready` also while `Options.unready` has a reason, so that new work goes elsewhere. These two answer
  for any Host.
- What is served may be `HttpEndpoints`: endpoints of its own by their paths, given the one it is
  served at, in place of the JSON-RPC one. They get every method and header, and answer as they like, also by a
  stream.
- On the ASGI face the server in front of it speaks HTTP; time-outs for heads are its own.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Generator, Iterable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from msgspec import structs

from ...channel import Admitted, Document, Options, Servable, exchanged
from ...jsonrpc.errors import LocalError
from . import asgi_socket
from .admission import admitted, handshake
from .asgi import Event, Receive, ResponseWriter, RpcExchange, Scope, Send, answered, begin, remote, who
from .documents import document_endpoint
from .known_heads import KnownFields
from .messages import JSON, JSON_LINES, Answer, Endpoint, Head, HttpRequest, Reply, collect
from .policy import OriginPolicy, is_json, is_loopback
from .refusals import failure, oversized, refusal, to_endpoint, turned_away, uncoded, unsupported

__all__ = ["Answer", "App", "Endpoint", "Head", "HttpRequest", "Reply"]

log = logging.getLogger("dragoman.http")

NOTHING = {204: b"HTTP/1.1 204 No Content\r\n\r\n", 200: b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"}
"""The whole answer where none is owed, by its status."""
HEALTH = ("/health", "/ready")


@runtime_checkable
class HttpEndpoints(Protocol):
    """A served object with HTTP endpoints of its own, instead of one for POSTs of single messages."""

    def http_endpoints(self, at: str) -> Mapping[str, Endpoint]:
        """The endpoints by path; `at` is the path at which the object is served."""


class Life(Protocol):
    """Something that starts before the served objects and stops after them."""

    async def start(self) -> None:
        """Begin."""

    async def stop(self) -> None:
        """End."""


class App:
    """Served objects by path, over HTTP: an ASGI application, and what the native front serves.

    `served` maps the path below `prefix` ("" for the one at the prefix itself) to what is served
    there. `methods=False` leaves WebSocket upgrades alone; `upgrade=False` leaves them out. `before`
    starts before the served objects and stops after them, with an ASGI server's lifespan. `names`: see `OriginPolicy`.
    """

    def __init__(
        self,
        served: Mapping[str, Servable],
        options: Options | None = None,
        *,
        prefix: str = "",
        methods: bool = True,
        upgrade: bool = True,
        before: Life | None = None,
        names: Iterable[str] | None = None,
    ) -> None:
        self.options = Options() if options is None else options
        self.limits = self.options.limits
        if self.options.empty_status not in NOTHING:
            raise LocalError(f"empty_status is 204 or 200, not {self.options.empty_status!r}")
        self.nothing = NOTHING[self.options.empty_status]
        self.guard = OriginPolicy(self.options, names)
        self.methods, self.upgrade = methods, upgrade
        self.served = tuple(served.values())
        self._before = before
        self.calls: dict[str, Servable] = {}
        self.endpoints: dict[str, Endpoint] = {}
        self.documents: dict[str, Document] = {}
        self.described: dict[str, Endpoint] = {}
        """Documents that are the result of a method."""
        self.sockets: dict[str, Servable] = {}
        self.known = KnownFields()
        """Of the ASGI interface: heads that were routed to an endpoint."""
        for below, one in served.items():
            at = prefix.rstrip("/") + below.rstrip("/") if below else prefix or "/"
            self.sockets[at] = one
            if isinstance(one, HttpEndpoints):
                self.endpoints |= one.http_endpoints(at)
            else:
                self.calls[at] = one
            for path, document in one.routes().items():
                if document.method:
                    self.described[at.rstrip("/") + path] = document_endpoint(one, document)
                else:
                    self.documents[at.rstrip("/") + path] = document
        self.documents.setdefault("/health", Document(JSON, lambda: b'{"status":"ok"}'))
        self.documents.setdefault("/ready", Document(JSON, lambda: b'{"status":"ready"}'))

    def route(
        self, method: str, path: str, query: str, headers: dict[bytes, bytes], *, loopback: bool, upgrade: bool = False
    ) -> Head:
        """The route of a request, from its head. `loopback`: it came to a loopback address; `upgrade`: it is a
        WebSocket's."""
        head = Head(method=method, path=path, query=query, headers=headers)
        head.answer, head.extra = self.guard.check(headers, loopback)
        if head.answer is not None and head.answer.status == 421 and path in HEALTH and self.methods:
            head.answer = None  # monitoring may use any name for the server
        if method == "OPTIONS" and head.answer is None:
            head.answer = self.guard.preflight(headers, head.extra)
        if head.answer is not None:
            if head.answer.reason and self.methods and path in self.endpoints:
                head.answer = to_endpoint(head.answer)
            return head
        if upgrade and self.upgrade and path in self.sockets:
            self._socket(head)
        elif self.methods and (call := self.calls.get(path)) is not None:
            if method != "POST":
                head.answer = turned_away(405, f"{method} is not for JSON-RPC; POST a message", (("Allow", "POST"),))
            elif (kind := headers.get(b"content-type")) is None or not is_json(kind):
                head.answer = unsupported(kind)
            else:
                head.answer = uncoded(headers)
                head.served = call if head.answer is None else None
        elif self.methods and (endpoint := self.endpoints.get(path)) is not None:
            head.answer = uncoded(headers)
            head.endpoint = endpoint if head.answer is None else None
        elif self.methods and (described := self.described.get(path)) is not None:
            head.endpoint = described
        elif self.methods and (document := self.documents.get(path)) is not None:
            head.answer = self._document(method, path, document)
        elif not self.methods and path in self.sockets:
            lines = (("Upgrade", "websocket"), ("Connection", "Upgrade"))
            head.answer = turned_away(426, "This URL speaks WebSocket alone", lines)
        else:
            head.answer = turned_away(404, f"There is nothing at {path}")
        head.guarded = self.options.guard is not None and self._has_a_guard(head)
        return head

    def _has_a_guard(self, head: Head) -> bool:
        """Whether the guard decides about a request: if it goes to a served object. Not if it is refused anyway, nor
        for health checks."""
        if head.answer is None:
            return True
        return head.answer.status == 200 and head.path not in HEALTH

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        """The served objects start and stop with the ASGI server."""
        for moment, name in (("startup", "start"), ("shutdown", "stop")):
            await receive()
            parts: Sequence[Life] = (*((self._before,) if self._before is not None else ()), *self.served)
            try:
                for one in parts if name == "start" else reversed(parts):
                    await (one.start() if name == "start" else one.stop())
            except Exception as error:
                log.exception("lifespan %s failed", moment)
                await send({"type": f"lifespan.{moment}.failed", "message": str(error)})
                return
            await send({"type": f"lifespan.{moment}.complete"})

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
        if path in HEALTH:
            status = "draining" if any(one.gate.draining for one in self.served) else ""
            if path == "/ready" and not status and self.options.unready is not None:
                status = self.options.unready()
            if status:
                return Answer(503, JSON_LINES, b'{"status":"%b"}' % status.encode())
        try:
            made = b"" if document.make is None else document.make()
            return Answer(200, (("Content-Type", document.media_type),), made)
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
            await self._lifespan(receive, send)
        else:
            raise ValueError(f"ASGI scope {scope['type']!r} is unknown here")


# -- the ASGI face --------------------------------------------------------------------------------


async def _http(app: App, scope: Scope, receive: Receive, send: Send) -> None:
    head = told = _head(app, scope)
    answer = head.answer
    body = b""
    verdict: Admitted | None = None
    if head.guarded:
        found_out = await _admitted(app, head, scope)
        if isinstance(found_out, Answer):
            await answered(head, found_out, send)
            return
        verdict = found_out
        if verdict.headers:
            told = structs.replace(head, extra=(*head.extra, *verdict.headers))
    identity = None if verdict is None else verdict.identity
    if answer is None:
        found = await _body(app, head, scope, receive)
        if found is None:
            return
        body, answer = found
    if answer is not None:
        await answered(told, answer, send)
    elif head.served is not None:
        post = RpcExchange(head, body, scope, app.options.empty_status, identity)
        exchanged(head.served, post)
        answer = post.answer or await post.wait(receive)
        if answer is not None:
            await answered(told, answer, send)
    elif head.endpoint is not None:
        reply = ResponseWriter(told, app.limits.send_queue)
        request = HttpRequest(head.method, head.path, head.query, body, who(head, scope, identity), head)
        try:
            head.endpoint(request, reply)
        except Exception:
            log.exception("The endpoint at %s raised", head.path)
            reply.fail()
        if reply.answer is not None:
            await answered(told, reply.answer, send)
        else:
            await reply.carry(receive, send)


async def _admitted(app: App, head: Head, scope: Scope) -> Admitted | Answer:
    """The guard's decision about a request; if it denies, the answer."""
    guard = app.options.guard
    assert guard is not None  # it is guarded
    seen = handshake(head, scope.get("scheme", "http"), head.headers.get(b"host", b""), scope["headers"], remote(scope))
    return await admitted(guard, seen, head, app.limits.guard_timeout)


def _head(app: App, scope: Scope) -> Head:
    """The decision for a head. Callers send the same head again and again, so decisions for calls are cached by the
    parts of the head that matter."""
    method, fields = scope["method"], scope["headers"]
    place = (scope["path"], scope.get("raw_path"), scope.get("query_string"), scope.get("root_path"))
    asked = (method, place, scope.get("server"))
    try:
        known = app.known.find(asked, fields)
    except TypeError:  # a server that gives lists
        return _route(app, method, scope, upgrade=False)
    if known is None:
        known = _route(app, method, scope, upgrade=False)
        if known.served is not None or known.endpoint is not None:
            app.known.learn(asked, fields, known)
    return known


def _route(app: App, method: str, scope: Scope, *, upgrade: bool) -> Head:
    path: str = scope["path"]
    root: str = scope.get("root_path", "").rstrip("/")
    if root and (path == root or path.startswith(root + "/")):  # the path begins with the mount point
        path = path[len(root) :]
    server = scope.get("server")
    loopback = server is not None and is_loopback(server[0])
    query = scope.get("query_string", b"").decode("latin-1")
    fields = scope["headers"]  # pairs of bytes, the names in lower case (ASGI)
    headers = dict(fields)
    if len(headers) != len(fields):
        headers = collect(fields)
    head = app.route(method, path or "/", query, headers, loopback=loopback, upgrade=upgrade)
    if head.guarded:
        raw: bytes = scope.get("raw_path") or scope["path"].encode()
        head.target = raw + b"?" * bool(query) + scope.get("query_string", b"")
    return head


async def _body(app: App, head: Head, scope: Scope, receive: Receive) -> tuple[bytes, Answer | None] | None:
    """The body, or the answer to one that is too large or too slow; None when the caller went away."""
    allowed = app.limits.message_size
    for name, length in scope["headers"]:
        if name == b"content-length" and length.isdigit() and int(length) > allowed:
            return b"", oversized(head, allowed, int(length))
    steps = receive().__await__()
    try:
        first = next(steps)
    except StopIteration as there:  # the server already has the body: no time-out is needed
        event: Event = there.value
        if event["type"] == "http.disconnect":
            return None
        if not event.get("more_body"):
            body: bytes = event.get("body", b"")
            return body, oversized(head, allowed, None) if len(body) > allowed else None
        waiting: Awaitable[Event] | None = None
        parts = bytearray(event.get("body", b""))
    else:
        waiting, parts = _Begun(steps, first), bytearray()
    try:
        async with asyncio.timeout(app.limits.body_timeout):
            more = True
            while len(parts) <= allowed:
                if not more:
                    return bytes(parts), None
                event = await (receive() if waiting is None else waiting)
                if event["type"] == "http.disconnect":
                    return None
                waiting = None
                parts += event.get("body", b"")
                more = bool(event.get("more_body"))
            return b"", oversized(head, allowed, None)
    except TimeoutError:
        return b"", refusal(head, 408, "The body took too long", (("Connection", "close"),))


class _Begun:
    """An awaitable whose first step was already taken."""

    __slots__ = ("_first", "_steps")

    def __init__(self, steps: Generator[Any, Any, Event], first: Any) -> None:
        self._steps, self._first = steps, first

    def __await__(self) -> Generator[Any, Any, Event]:
        yield self._first
        return (yield from self._steps)


async def _websocket(app: App, scope: Scope, receive: Receive, send: Send) -> None:
    await receive()  # websocket.connect
    head = _route(app, "GET", scope, upgrade=True)
    answer = head.answer
    if head.socket is not None:
        verdict = await _admitted(app, head, scope) if head.guarded else Admitted()
        if isinstance(verdict, Admitted):
            caller = who(head, scope, verdict.identity)
            await asgi_socket.run(head.socket, caller, app.options, scope, receive, send, verdict)
            return
        answer = verdict
    answer = answer or turned_away(404, f"There is no WebSocket at {head.path}")
    if "websocket.http.response" in (scope.get("extensions") or {}):
        await send({**begin(head, answer), "type": "websocket.http.response.start"})
        await send({"type": "websocket.http.response.body", "body": answer.body})
    else:
        await send({"type": "websocket.close", "code": 1008})
