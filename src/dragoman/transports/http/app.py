"""The HTTP application: endpoints by path, and the ASGI interface.

One `App` has two interfaces: it is an ASGI application (`await app(scope, receive, send)`), and `listener` serves the
same object by the native server. Rules of both:

- `route` examines only the head and decides which endpoint gets the request, or which answer refuses it.
- The path must match exactly, but for a slash at the end of an endpoint's, which clients add and leave out; other paths
  are 404. A JSON-RPC endpoint takes POST (405 else) of JSON that is not compressed (415 else;
  `Leniency.any_media_type`) up to `limits.message_size` (413 else).
- In addition there are the routes of `HasRoutes`, at paths from the root on (405 with Allow for another method), and
  the documents of `Servable.routes()`, `/live` and `/ready`, by GET and HEAD. `/live` is 200 as
  long as the process answers; `/ready` is 503 while it drains, and while `Options.unready` has a reason, so that new
  work goes elsewhere. These two answer for any Host.
- Where `Options.page` makes a `Page`, a browser that goes to an endpoint by GET may be shown that in place of a
  refusal. No path is the page's alone: what is served there goes first.
- What is served may be `HttpEndpoints`: endpoints of its own by their paths, given the one it is
  served at, in place of the JSON-RPC one. They get every method and header, and answer as they like, also by a
  stream.
- On the ASGI interface the server in front of it speaks HTTP, with its own time-outs for heads.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Generator, Iterable, Mapping
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

from msgspec import structs

from ...access import Protectable, Protection
from ...channel import Admitted, Budget, Caller, CallLimit, Document, Guard, Options, Servable, exchanged
from ...net.forwarded import TrustedProxies
from ...observer import Rejection
from ...routes import HasRoutes
from . import asgi_socket
from .admission import ask_guard, at_once, credentials_of, handshake
from .alone import HttpAlone
from .asgi import (
    AsgiExchange,
    AsgiReply,
    Event,
    Receive,
    Scope,
    Send,
    caller_of,
    forwarded_host,
    is_secure,
    remote,
    scope_of_caller,
    send_answer,
    send_counted,
    start_event,
)
from .documents import document_endpoint
from .known_heads import KnownFields, RequestFields, length_of
from .messages import JSON, JSON_LINES, Answer, Endpoint, Head, HttpRequest, Lines, Reply, collect
from .policy import OriginPolicy, is_json, is_loopback
from .refusals import (
    failure,
    kind_of,
    plain_refusal,
    refusal,
    refuse_coding,
    rpc_refusal,
    too_large_answer,
    wrong_media_type,
)
from .routes import RouteEndpoint, table

if TYPE_CHECKING:
    from ...jsonrpc.leniency import Leniency
    from ...jsonrpc.limits import Limits

__all__ = ["Answer", "App", "Endpoint", "Head", "HttpRequest", "Reply"]

log: logging.Logger = logging.getLogger("dragoman.http")

NOTHING = {204: b"HTTP/1.1 204 No Content\r\n\r\n", 200: b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"}
"""The whole answer where none is owed, by its status."""
HEALTH = ("/live", "/ready")
_CACHED = ("Cache-Control", "public, max-age=300")
"""For public documents: a change is seen after five minutes at the latest."""
_DIGITS = 20
"""The digits of a Content-Length that is reported; a longer one is reported as 0."""
PATHS_NAMED = 5
"""Paths that a 404 names: enough to see a mistake, and little for a stranger to make us write."""


@runtime_checkable
class HttpEndpoints(Protocol):
    """A served object with HTTP endpoints of its own, instead of one for POSTs of single messages."""

    def http_endpoints(self, at: str) -> Mapping[str, Endpoint]:
        """The endpoints by path; `at` is the path at which the object is served."""


@runtime_checkable
class Lenient(Protocol):
    """A served object that says what it accepts beyond the specifications."""

    @property
    def lenient(self) -> Leniency:
        """What it accepts; HTTP uses `any_media_type`."""


class Page(Protocol):
    """What browsers are shown at the endpoints of an address: a page, which is public, its files, and its catalog."""

    catalog: str
    """The path of what is for callers alone: the guard decides about it, if all that is served has the same one."""
    lines: Lines
    """Header fields of every answer at its address that no endpoint makes, unless the answer has one of that name."""

    @property
    def endpoints(self) -> Collection[str]:
        """The paths of endpoints at which it is shown; elsewhere, what is served goes first."""

    def find(self, path: str, headers: Mapping[bytes, bytes], *, loopback: bool) -> Answer | None:
        """Return the answer to a GET of `path`, spelled as it was sent; None if the request is not for the page."""


class Lifecycle(Protocol):
    """Something that starts before the served objects and stops after them."""

    async def start(self) -> None:
        """Begin."""

    async def stop(self) -> None:
        """End."""


AsgiApp: TypeAlias = Callable[[Scope, Receive, Send], Coroutine[Any, Any, None]]
"""An ASGI application, as frameworks mount it and servers run it."""


class App:
    """Served objects by path, over HTTP: an ASGI application, and what the native server serves.

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
        before: Lifecycle | None = None,
        names: Iterable[str] | None = None,
    ) -> None:
        self.options: Options = Options() if options is None else options
        self.limits: Limits = self.options.limits
        self.nothing: bytes = NOTHING[self.options.empty_status]
        self.guard: OriginPolicy = OriginPolicy(self.options, names)
        proxies = tuple(self.options.trusted_proxies)
        self.proxies: TrustedProxies | None = TrustedProxies(proxies) if proxies else None
        self.methods: bool = methods
        self.upgrade: bool = upgrade
        self.served: tuple[Servable, ...] = tuple(served.values())
        self.budget: Budget | None = next((one.call_limit.budget for one in self.served), None)
        self._before = before
        self.calls: dict[str, Servable] = {}
        self.endpoints: dict[str, Endpoint] = {}
        self.documents: dict[str, Document] = {}
        self.described: dict[str, Endpoint] = {}
        """Documents that are the result of a method."""
        self.sockets: dict[str, Servable] = {}
        self.own: dict[str, dict[str, RouteEndpoint]] = {}
        """Routes, by path and method."""
        self.known: KnownFields = KnownFields()
        """Of the ASGI interface: heads that were routed to an endpoint."""
        self.guards: dict[str, Guard] = {}
        """The guard of each path that has one."""
        self.published: dict[str, Document] = {}
        """Public documents by path, which say how to get a token."""
        self._spellings: dict[str, str] = {}
        """The paths that differ from those of endpoints by a slash at the end."""
        self._protections: list[Protection] = []
        for below, one in served.items():
            self._serve_at(prefix.rstrip("/") + below.rstrip("/") if below else prefix or "/", one)
        self.documents.setdefault("/live", Document(JSON, lambda: b'{"status":"live"}'))
        self.documents.setdefault("/ready", Document(JSON, lambda: b'{"status":"ready"}'))
        if methods:
            self.own = table(self.served, {*self.calls, *self.endpoints, *self.documents, *self.described})
        taken = {*self.calls, *self.sockets, *self.endpoints, *self.documents, *self.described, *self.own}
        both = {_other_spelling(at): at for at in (*self.calls, *self.sockets, *self.endpoints) if at != "/"}
        self._spellings = {path: at for path, at in both.items() if path not in taken}
        self.page: Page | None = None
        """What browsers are shown."""
        self._page_guard: Guard | None = None
        """What decides about its catalog."""
        self._not_page: frozenset[str] = frozenset()
        """The paths at which something else is served."""
        if methods and self.options.page is not None:
            self._show(self.options.page, taken)

    def __repr__(self) -> str:
        return f"<http_app {', '.join(f'{one.name} at {path}' for path, one in self.sockets.items())}>"

    def _serve_at(self, at: str, one: Servable) -> None:
        """Put what is served at a path, its endpoints, documents and routes there."""
        self.sockets[at] = one
        paths = [at]
        if isinstance(one, HttpEndpoints):
            self.endpoints |= (own := one.http_endpoints(at))
            paths += own
        else:
            self.calls[at] = one
        for path, document in one.routes().items():
            paths.append(there := at.rstrip("/") + path)
            if document.method:
                self.described[there] = document_endpoint(one, document)
            else:
                self.documents[there] = document
        paths += [route.path for route in one.http_routes()] if isinstance(one, HasRoutes) else ()
        self._guard(one, paths)

    def _guard(self, one: Servable, paths: Iterable[str]) -> None:
        """Put a guard before what is served at these paths, if there is one."""
        protection = one.protection if isinstance(one, Protectable) else None
        guard = None if self.options.public else protection or self.options.guard
        if guard is None:
            return
        self.guards |= {path: guard for path in paths if path not in self.guards}
        if protection is not None and protection not in self._protections:
            shared = self.published.keys() & protection.documents().keys()
            self._protections.append(protection)
            self.published |= protection.documents()
            for path in shared:  # a path that two resources would share belongs to neither
                del self.published[path]

    def _show(self, make: Callable[..., Page], taken: Collection[str]) -> None:
        """Make the page. Its catalog lists what has no guard; all, if one guard decides about all and so about it."""
        guards = {self.guards.get(path) for path in self.sockets}
        self._page_guard = guards.pop() if len(guards) == 1 else None
        one_for_all = not guards
        listed = [path for path in self.sockets if one_for_all or path not in self.guards]
        self.page = page = make(self.sockets, listed)
        self._not_page = frozenset(taken) - {*page.endpoints}

    def _find_page(self, head: Head, sent: str, loopback: bool) -> bool:
        """Whether a request is for the page, and gets its answer. `sent`: its path as it was sent."""
        page = self.page
        if page is None or head.method not in ("GET", "HEAD") or head.path in self._not_page:
            return False
        answer = page.find(sent, head.headers, loopback=loopback)
        if answer is None:
            return False
        head.answer = answer
        if sent == page.catalog and self._page_guard is not None:
            head.guard, head.guarded = self._page_guard, True
            head.protection = next((one for one in self._protections if one is head.guard), None)
        return True

    @property
    def protected(self) -> bool:
        """Whether a guard of tokens protects anything here."""
        return bool(self._protections)

    @property
    def header_size(self) -> int:
        """The most bytes of header fields that are read: with room for a token where one may come."""
        return self.limits.header_size + max((one.room for one in self._protections), default=0)

    def overlong(self) -> Answer:
        """Return the answer to a request with more bytes of header fields. Its path is not known, so the answer has a
        challenge only if there is one guard of tokens."""
        lines = (self._protections[0].too_long(),) if len(self._protections) == 1 else ()
        return plain_refusal(431, f"Too large: header_size allows {self.header_size} bytes, received more", lines)

    def route(
        self,
        method: str,
        path: str,
        query: str,
        headers: dict[bytes, bytes],
        *,
        loopback: bool,
        upgrade: bool = False,
        forwarded: bytes = b"",
    ) -> Head:
        """The route of a request, from its head. `loopback`: it came to a loopback address; `upgrade`: it is a
        WebSocket's; `forwarded`: see `OriginPolicy.check`."""
        sent, path = path, self._spellings.get(path, path)
        head = Head(method=method, path=path, query=query, headers=headers)
        head.answer, head.extra = self.guard.check(headers, loopback, forwarded)
        if self.methods and (published := self.published.get(path)) is not None:
            return self._publish(head, published)
        if head.answer is not None and head.answer.status == 421 and path in HEALTH and self.methods:
            head.answer = None  # monitoring may use any name for the server
        if method == "OPTIONS" and head.answer is None:
            head.answer = self.guard.preflight(headers, head.extra, ", ".join(self.own.get(path, ())))
        if head.answer is not None:
            if head.answer.plain and self.methods and path in self.endpoints:
                head.answer = rpc_refusal(head.answer)
            return head
        if not upgrade and self._find_page(head, sent, loopback):
            return head
        if upgrade and self.upgrade and path in self.sockets:
            self._socket(head)
        elif self.methods and (call := self.calls.get(path)) is not None:
            if method != "POST":
                head.answer = plain_refusal(405, f"{method} is not for JSON-RPC; POST a message", (("Allow", "POST"),))
            elif ((kind := headers.get(b"content-type")) is None or not is_json(kind)) and not _any_media_type(call):
                head.answer = wrong_media_type(kind)
            else:
                head.answer = refuse_coding(headers)
                head.served = call if head.answer is None else None
        elif self.methods and (endpoint := self.endpoints.get(path)) is not None:
            head.answer = refuse_coding(headers)
            head.endpoint = endpoint if head.answer is None else None
        elif (own := self.own.get(path)) is not None:
            self._route(head, own)
        elif self.methods and (described := self.described.get(path)) is not None:
            head.endpoint = described
        elif self.methods and (document := self.documents.get(path)) is not None:
            head.answer = self._document(method, path, document)
        elif not self.methods and path in self.sockets:
            lines = (("Upgrade", "websocket"), ("Connection", "Upgrade"))
            head.answer = plain_refusal(426, "This URL speaks WebSocket alone", lines)
        else:
            head.answer = plain_refusal(404, f"There is nothing at {path}", advice=self._what_is_there())
        if self.guards and self._has_a_guard(head):
            head.guard = self.guards.get(path)
            head.guarded = head.guard is not None
            head.protection = next((one for one in self._protections if one is head.guard), None)
        return head

    def _publish(self, head: Head, document: Document) -> Head:
        """Answer with a public document, also for pages of other origins, since it says how to get a token."""
        if head.answer is not None and head.answer.status == 421:
            return head
        head.extra = (("Access-Control-Allow-Origin", "*"),)
        if head.method == "OPTIONS":
            wanted = head.headers.get(b"access-control-request-headers", b"*").decode("latin-1")
            lines = [("Access-Control-Allow-Methods", "GET, HEAD"), ("Access-Control-Max-Age", "600")]
            head.answer = Answer(204, (*lines, ("Access-Control-Allow-Headers", wanted)))
        else:
            head.answer = self._document(head.method, head.path, document)
            if head.answer.status == 200:
                head.extra = (*head.extra, _CACHED)
        return head

    def _route(self, head: Head, own: Mapping[str, RouteEndpoint]) -> None:
        found = own.get(head.method)
        if found is None:
            words = f"{head.method} is not for {head.path}"
            head.answer = plain_refusal(405, words, (("Allow", ", ".join(own)),))
        else:
            head.endpoint, head.route, head.public = found.endpoint, True, found.public

    def _what_is_there(self) -> str:
        """The paths that are served, for a caller with a wrong one; a guarded server names none."""
        if self.guards or not self.methods:
            return ""
        served = [path for path in (*self.calls, *self.endpoints, *self.own) if path.isprintable()]
        return f"served here: {', '.join(served[:PATHS_NAMED])}" if served else ""

    def _has_a_guard(self, head: Head) -> bool:
        """Whether the guard decides about a request: if it goes to a served object. Not if it is refused anyway, nor
        for health checks and public routes."""
        if head.answer is None:
            return not head.public
        return head.answer.status == 200 and head.path not in HEALTH

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        """Start and stop the served objects with the ASGI server. What has started stops, also where others fail."""
        await receive()
        moment = "startup"
        try:
            async with AsyncExitStack() as started:
                for one in (*((self._before,) if self._before is not None else ()), *self.served):
                    await one.start()
                    started.push_async_callback(one.stop)
                for one in self.served:
                    started.push_async_callback(_idle, one.call_limit, self.limits.drain_timeout)
                await send({"type": "lifespan.startup.complete"})
                moment = "shutdown"
                await receive()
        except Exception as error:
            log.exception("lifespan %s failed", moment)
            await send({"type": f"lifespan.{moment}.failed", "message": str(error)})
        else:
            await send({"type": "lifespan.shutdown.complete"})

    def _socket(self, head: Head) -> None:
        if isinstance(self.sockets[head.path], HttpAlone):
            head.answer = plain_refusal(404, f"There is no WebSocket at {head.path}")
        elif head.method != "GET":
            head.answer = plain_refusal(405, "A WebSocket begins with GET", (("Allow", "GET"),))
        elif head.headers.get(b"sec-websocket-version", b"13") != b"13":
            head.answer = plain_refusal(426, "The WebSocket version here is 13", (("Sec-WebSocket-Version", "13"),))
        else:
            head.socket = self.sockets[head.path]

    def lines_of(self, head: Head, answer: Answer) -> Lines:
        """Return the header fields of an answer that no endpoint makes: its own, and those of the page's address."""
        if self.page is None or not self.page.lines:
            return answer.headers
        given = {name.lower() for name, _ in (*answer.headers, *head.extra)}
        return (*answer.headers, *(line for line in self.page.lines if line[0].lower() not in given))

    def reject(self, head: Head, status: int, reason: str, remote: str, secure: bool = False) -> None:
        """Report to the observers that a request is turned away, unless it is a health check."""
        rejected = self.options.rejected
        if not rejected or head.path in HEALTH:
            return
        length = head.headers.get(b"content-length", b"")
        size = head.length or (int(length) if length.isdigit() and len(length) < _DIGITS else 0)
        scheme = "http" if head.socket is None else "ws"
        caller = Caller(scheme=scheme, remote=remote, path=head.path, tls=secure)
        kind = kind_of(status)
        rejected(Rejection(kind=kind, reason=reason, place=head.path, caller=caller, size=size, status=status))

    def reject_with(self, head: Head, answer: Answer, remote: str, secure: bool = False) -> None:
        """Report to the observers that a request gets this answer, if the answer is a refusal."""
        if self.options.rejected and answer.status >= 400:
            self.reject(head, answer.status, answer.reason, remote, secure)

    def _document(self, method: str, path: str, document: Document) -> Answer:
        if method not in ("GET", "HEAD"):
            return plain_refusal(405, f"{method} is not for {path}; GET it", (("Allow", "GET, HEAD"),))
        if path == "/ready":
            status = "draining" if any(one.call_limit.draining for one in self.served) else ""
            if not status and self.options.unready is not None:
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
        if self.proxies is not None:
            scope = scope_of_caller(self.proxies, scope)
        if scope["type"] == "http":
            await _http(self, scope, receive, send)
        elif scope["type"] == "websocket":
            await _websocket(self, scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        else:
            raise ValueError(f"ASGI scope {scope['type']!r} is unknown here")


# -- the ASGI interface ---------------------------------------------------------------------------


async def _idle(calls: CallLimit, timeout: float) -> None:
    """Wait for the calls that go on behind their answers (notifications), at most `timeout` seconds."""
    if calls.in_flight:
        idle = asyncio.get_running_loop().create_future()
        calls.idle = lambda: None if idle.done() else idle.set_result(None)
        await asyncio.wait([idle], timeout=timeout)
        calls.idle = None


async def _http(app: App, scope: Scope, receive: Receive, send: Send) -> None:
    known = _known_fields(app, scope)
    head = shown = known.head
    answer = head.answer
    body = b""
    verdict: Admitted | None = None
    if head.guarded:
        found_out = _at_once(known, scope) or await _admitted(app, head, scope)
        if isinstance(found_out, Answer):
            app.reject_with(head, found_out, remote(scope), is_secure(scope))
            await send_answer(head, found_out, send)
            return
        verdict = found_out
        if verdict.headers:
            shown = structs.replace(head, extra=(*head.extra, *verdict.headers))
    identity = None if verdict is None else verdict.identity
    if answer is None:
        found = await _body(app, known, receive)
        if found is None:
            return
        body, answer = found
    if answer is not None:
        app.reject_with(head, answer, remote(scope), is_secure(scope))
        await send_answer(shown, answer, send)
    elif head.served is not None:
        exchange = AsgiExchange(known, body, scope, app.options, identity)
        exchanged(head.served, exchange)
        answer = exchange.answer or await exchange.wait(receive)
        if answer is not None:
            await send_counted(shown, answer, send, app.budget, lambda: exchange.caller.owner)
    elif head.endpoint is not None:
        reject = lambda status, why: app.reject(shown, status, why, remote(scope), is_secure(scope))  # noqa: E731
        request = HttpRequest(head.method, head.path, head.query, body, caller_of(known, scope, identity), head)
        reply = AsgiReply(shown, app.limits, reject, app.budget, lambda: request.caller.owner)
        try:
            head.endpoint(request, reply)
        except Exception:
            log.exception("The endpoint at %s raised", head.path)
            reply.fail()
        if reply.answer is not None:
            await send_counted(shown, reply.answer, send, app.budget, lambda: request.caller.owner)
        else:
            await reply.carry(receive, send)


def _at_once(known: RequestFields, scope: Scope) -> Admitted | Answer | None:
    """Return the decision that the guard of a request can make without waiting, or None."""
    if (kept := known.decided) is not None and kept.holds():
        return kept.verdict
    return at_once(known.head, credentials_of(scope["headers"], known.head.query), known)


async def _admitted(app: App, head: Head, scope: Scope) -> Admitted | Answer:
    """The guard's decision about a request; if it denies, the answer."""
    guard = head.guard
    assert guard is not None  # it is guarded
    host = forwarded_host(scope) or head.headers.get(b"host", b"")
    seen = handshake(head, scope.get("scheme", "http"), host, scope["headers"], remote(scope))
    return await ask_guard(guard, seen, head, app.limits.guard_timeout)


def _known_fields(app: App, scope: Scope) -> RequestFields:
    """The decision for a head. Callers send the same head again and again, so decisions for calls are cached by the
    parts of the head that matter."""
    method, fields = scope["method"], scope["headers"]
    target = (
        method,
        scope["path"],
        scope.get("raw_path"),
        scope.get("query_string"),
        scope.get("root_path"),
        scope.get("server"),
        forwarded_host(scope),
    )
    try:
        known = app.known.find(target, fields)
    except TypeError:  # a server that gives lists
        return RequestFields(_route(app, method, scope, upgrade=False), length_of(fields))
    if known is None:
        head = _route(app, method, scope, upgrade=False)
        known = RequestFields(head, length_of(fields))
        # whether the page is shown depends on fields that are not compared
        if (head.served is not None or head.endpoint is not None) and (app.page is None or method == "POST"):
            app.known.learn(target, fields, head)
    return known


def _route(app: App, method: str, scope: Scope, *, upgrade: bool) -> Head:
    path: str = scope["path"]
    root: str = scope.get("root_path", "").rstrip("/")
    if root and (path == root or path.startswith(root + "/")):  # the path begins with the mount point
        path = path[len(root) :]
    server = scope.get("server")
    loopback = server is not None and is_loopback(server[0])
    query = scope.get("query_string", b"").decode("latin-1")
    headers, forwarded = collect(scope["headers"]), forwarded_host(scope)
    head = app.route(method, path or "/", query, headers, loopback=loopback, upgrade=upgrade, forwarded=forwarded)
    if head.guarded:
        raw: bytes = scope.get("raw_path") or scope["path"].encode()
        head.target = raw + b"?" * bool(query) + scope.get("query_string", b"")
    return head


async def _body(app: App, known: RequestFields, receive: Receive) -> tuple[bytes, Answer | None] | None:
    """The body, or the answer to one that is too large or too slow; None when the caller went away."""
    head, allowed = known.head, app.limits.message_size
    if known.length > allowed:
        return b"", too_large_answer(head, allowed, known.length)
    steps = receive().__await__()
    try:
        first = next(steps)
    except StopIteration as there:  # the server already has the body: no time-out is needed
        event: Event = there.value
        if event["type"] == "http.disconnect":
            return None
        if not event.get("more_body"):
            body: bytes = event.get("body", b"")
            return body, too_large_answer(head, allowed, None) if len(body) > allowed else None
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
            return b"", too_large_answer(head, allowed, None)
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
            caller = caller_of(RequestFields(head), scope, verdict.identity)
            await asgi_socket.run(head.socket, caller, app.options, scope, receive, send, verdict)
            return
        answer = verdict
    answer = answer or plain_refusal(404, f"There is no WebSocket at {head.path}")
    app.reject_with(head, answer, remote(scope), is_secure(scope))
    if "websocket.http.response" in (scope.get("extensions") or {}):
        await send({**start_event(head, answer), "type": "websocket.http.response.start"})
        await send({"type": "websocket.http.response.body", "body": answer.body})
    else:
        await send({"type": "websocket.close", "code": 1008})


def _other_spelling(path: str) -> str:
    """The path with a slash at its end, or without."""
    return path.removesuffix("/") if path.endswith("/") else f"{path}/"


def _any_media_type(served: Servable) -> bool:
    return isinstance(served, Lenient) and served.lenient.any_media_type
