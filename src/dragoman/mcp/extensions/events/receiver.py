"""The receiving end of webhooks: verifies what is POSTed to a callback, and hands each event to a function once.

    receiver = EventReceiver(handle)
    receiver.mount(app, "/hooks/orders")      # a route of a Service or a Server
    uvicorn.run(receiver)                     # or an ASGI application

Rules:

- Nothing of a message is believed before a secret of its subscription has signed it. The secret says whose the message
  is: the id in the header is not signed, and two servers may have made the same one.
- A challenge is answered only for subscriptions that were begun here.
- A message is accepted, with a status of 2xx, when the function has returned; otherwise the server sends it again. So
  an event may come again, and one that was accepted before is accepted without the function.
- 400: no message of Events. 401: not signed, or not by this subscription. 410: no such subscription. 413: too large.
  500: the function failed. 503: busy, too slow, or not known yet. None of them says more.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from hashlib import sha256
from math import inf
from typing import Any, Final, Protocol, TypeAlias

import msgspec
from msgspec import UNSET, Struct, UnsetType

from ....events.limits import EVENT_SIZE
from ....jsonrpc.errors import LocalError, RpcError
from ....jsonrpc.options import CALLABLE, NONE, SECONDS, TIME, check, whole
from ....repeats import Repeats
from ....routes import RouteRequest, RouteResponse
from .model import SUBSCRIPTION_HEADER, ErrorObject, EventOccurrence
from .received import ReceivedEnd, ReceivedEvent, ReceivedGap, received
from .signing import MAX_ID, TOLERANCE, Headers, InvalidSignature, SignedHeaders, is_signed, read_headers, read_secret
from .signing import header as header_of

logger: logging.Logger = logging.getLogger("dragoman.mcp")
repeats: Repeats = Repeats(logger)

SEEN: Final = 10_000
"""Messages that are recognised when they come again, without a store: a day of seven a minute. What comes later than
that is handled again."""
SEEN_FOR: Final = 24 * 3600.0
"""Seconds for which a store recognises a message: longer than the hours for which servers try to deliver one."""
HANDLE_TIME: Final = 30.0
"""Seconds that the function may take; servers wait for five to ten of them, and then send the event again, which waits
for the same run."""
HANDLING: Final = 64
"""Messages that are handled at once; beyond that the server is asked to come again."""
BODY_TIME: Final = 30.0
"""Seconds within which a whole body has come, for ASGI servers, which set no limit of their own."""
DROPPED: Final = 1024 * 1024
"""Bytes of a body that is too large which are read all the same: its sender would not see the answer otherwise, and
send it again."""
RETRY_AFTER: Final = 5
"""Seconds after which a server should come again, where it is busy or the subscription is not known yet."""
CHALLENGE_SIZE: Final = 1024
"""Characters of a challenge; servers make some forty."""
OLD_SECRET_FOR: Final = 300.0
"""Seconds for which a secret that was replaced is accepted: what was signed before may still be under way."""

Handle: TypeAlias = Callable[[ReceivedEvent], object]
"""Handles an event: `async def`, or a plain function, which runs in a worker thread."""
OnGap: TypeAlias = Callable[[ReceivedGap], object]
OnEnd: TypeAlias = Callable[[ReceivedEnd], object]
SecretFor: TypeAlias = Callable[[str], "str | Sequence[str] | Awaitable[str | Sequence[str] | None] | None"]
"""Returns the secret of a subscription, or several while it is replaced, by its id; None: there is none. Plain or
`async def`; called on the loop."""
Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class SeenStore(Protocol):
    """Keeps which messages were handled, so that a restart does not forget it. The store of a bus is one."""

    async def get(self, key: str) -> bytes | None:
        """Return what was put under a key; None: nothing, or it is over."""

    async def put(self, key: str, value: bytes, *, ttl: float | None = None) -> None:
        """Keep a value for `ttl` seconds."""


class HasRoute(Protocol):
    """A `Service` or a `Server`."""

    def route(self, path: str, *, methods: Sequence[str], public: bool) -> Callable[[Any], Any]: ...


class _Message(Struct, frozen=True, kw_only=True, rename="camel"):
    """The members of any body that a server POSTs."""

    type: str | UnsetType = UNSET
    """The kind of a message that is no event."""
    challenge: str | UnsetType = UNSET
    cursor: str | UnsetType | None = UNSET
    error: ErrorObject | UnsetType = UNSET


_UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_RULES: Final = {
    "handle": CALLABLE | NONE,
    "on_gap": CALLABLE | NONE,
    "on_end": CALLABLE | NONE,
    "secret_for": CALLABLE | NONE,
    "tolerance": SECONDS,
    "max_body": whole(1),
    "timeout": TIME,
    "clock": CALLABLE,
}


class Registration:
    """A subscription of which an `EventReceiver` accepts messages, from `begin` on until `end`. `handle`, `on_gap`,
    `on_end`: the functions that get them."""

    def __init__(
        self, receiver: EventReceiver, secret: str, handle: Handle | None, on_gap: OnGap | None, on_end: OnEnd | None
    ) -> None:
        read_secret(secret)
        self.id: str | None = None
        """The id of the subscription; None before `bind`."""
        self.handle = handle
        self.on_gap = on_gap
        self.on_end = on_end
        self.scope: str = scope_of(secret)
        """The name under which its messages are recognised when they come again; the same after a new secret."""
        self._receiver = receiver
        self._secret = secret
        self._old: tuple[str, float] | None = None

    def __repr__(self) -> str:
        return f"<Registration {self.id or 'begun'}>"

    def secrets(self, now: float) -> list[str]:
        """Return the secrets that its messages may be signed by."""
        if self._old is not None and self._old[1] > now:
            return [self._secret, self._old[0]]
        self._old = None
        return [self._secret]

    def bind(self, id: str) -> None:
        """Accept the messages of the subscription with this id, which `events/subscribe` has returned. Raises
        LocalError for an id that cannot be a header."""
        if not is_id(id):
            raise LocalError(f"the id of a subscription has 1 to {MAX_ID} visible ASCII characters, not {id[:80]!r}")
        if id != self.id:
            self._receiver._forget(self)
            self.id = id
            self._receiver._known.setdefault(id, []).append(self)

    def replace(self, secret: str) -> None:
        """Accept messages signed by another secret, too; the one before is accepted until `OLD_SECRET_FOR` seconds
        after `confirm`. Raises LocalError for an invalid secret."""
        read_secret(secret)
        if secret != self._secret:
            self._old = (self._secret, inf)
            self._secret = secret

    def confirm(self) -> None:
        """Note that the server has the secret that was given last."""
        if self._old is not None and self._old[1] == inf:
            self._old = (self._old[0], self._receiver._clock() + OLD_SECRET_FOR)

    def end(self) -> None:
        """Accept no more messages: the subscription is over. Servers are told by 410."""
        self._receiver._forget(self)


class EventReceiver:
    """Receives the webhooks of subscriptions: a function of headers and a body, a route, and an ASGI application.

    `handle`: gets each event, once it is verified; `on_gap`, `on_end`: get what a server tells of a subscription, that
    events were skipped and that it has ended. Each is `async def`, or a plain function, which runs in a worker thread.

    Subscriptions are those of `begin`, which `EventsClient.subscribe` calls, and those for whose id `secret_for`
    returns a secret; the latter have no challenges before their id is known. `seen`: keeps which messages were handled
    (default: the last `SEEN`, in memory). `tolerance`: seconds by which a timestamp may differ from the clock.
    `max_body`: bytes of a body. `timeout`: seconds that a function may take. `clock`: returns Unix seconds.
    """

    def __init__(
        self,
        handle: Handle | None = None,
        *,
        secret_for: SecretFor | None = None,
        on_gap: OnGap | None = None,
        on_end: OnEnd | None = None,
        seen: SeenStore | None = None,
        tolerance: float = TOLERANCE,
        max_body: int = EVENT_SIZE,
        timeout: float = HANDLE_TIME,
        clock: Callable[[], float] = time.time,
    ) -> None:
        check("EventReceiver", _RULES, locals())
        self.max_body: int = max_body
        self.handle: Handle | None = handle
        self.on_gap: OnGap | None = on_gap
        self.on_end: OnEnd | None = on_end
        self._secret_for = secret_for
        self._seen: SeenStore = _SeenInMemory() if seen is None else seen
        self._tolerance = tolerance
        self._timeout = timeout
        self._clock = clock
        self._begun: set[Registration] = set()
        """Those without an id."""
        self._known: dict[str, list[Registration]] = {}
        self._handling: dict[str, asyncio.Task[int]] = {}
        """The messages that are being handled, and the statuses that will answer them."""

    def __repr__(self) -> str:
        return f"<EventReceiver of {sum(map(len, self._known.values()))} subscriptions>"

    # -- subscriptions

    def begin(
        self, secret: str, *, handle: Handle | None = None, on_gap: OnGap | None = None, on_end: OnEnd | None = None
    ) -> Registration:
        """Accept messages that are signed by this secret, which a subscription is about to be made with: its challenge
        comes before the server has answered. The functions are those of this subscription (default: the receiver's).
        Raises LocalError for an invalid secret."""
        one = self._registration(secret, handle, on_gap, on_end)
        self._begun.add(one)
        return one

    def _registration(
        self, secret: str, handle: Handle | None = None, on_gap: OnGap | None = None, on_end: OnEnd | None = None
    ) -> Registration:
        return Registration(
            self,
            secret,
            self.handle if handle is None else handle,
            self.on_gap if on_gap is None else on_gap,
            self.on_end if on_end is None else on_end,
        )

    def _forget(self, one: Registration) -> None:
        self._begun.discard(one)
        same = self._known.get(one.id, []) if one.id is not None else []
        if one in same:
            same.remove(one)
            if not same:
                del self._known[str(one.id)]

    # -- ways in

    def mount(self, app: HasRoute, path: str) -> None:
        """Receive at a path of an app's HTTP server, beside its endpoint. No guard is asked: messages are verified
        here."""
        app.route(path, methods=("POST",), public=True)(self.take)

    async def take(self, request: RouteRequest) -> RouteResponse:
        """Answer the request of a route."""
        return await self.answer(request.headers, request.body)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve as an ASGI application, at every path."""
        if scope["type"] == "lifespan":
            await _live(receive, send)
        elif scope["type"] == "http":
            answer = await self._answer_asgi(scope, receive)
            if answer is not None:
                await _send(answer, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})

    async def _answer_asgi(self, scope: Scope, receive: Receive) -> RouteResponse | None:
        """Return the answer to an HTTP request; None: the caller left before it had sent everything."""
        if scope["method"] != "POST":
            return RouteResponse(status=405, headers={"Allow": "POST"})
        headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]]
        body, size = bytearray(), 0
        try:
            async with asyncio.timeout(BODY_TIME):
                while True:
                    event = await receive()
                    if event["type"] != "http.request":
                        return None
                    size += len(part := event.get("body", b""))
                    if size <= self.max_body:
                        body += part
                    if size > self.max_body + DROPPED or not event.get("more_body", False):
                        break
        except TimeoutError:
            return RouteResponse(status=408)
        return RouteResponse(status=413) if size > self.max_body else await self.answer(headers, bytes(body))

    async def answer(self, headers: Headers, body: bytes) -> RouteResponse:
        """Return the answer to a POST, for any framework. `headers`: by name, or as pairs, as they came; `body`: the
        bytes as they came, since they are what is signed."""
        if len(body) > self.max_body:
            return RouteResponse(status=413)
        now = self._clock()
        try:
            signed = read_headers(headers, now, self._tolerance)
            subscription = header_of(headers, SUBSCRIPTION_HEADER.lower())
        except InvalidSignature as error:
            logger.debug("A webhook was refused: %s", error)
            return RouteResponse(status=401)
        if not is_id(subscription):
            return RouteResponse(status=401)
        try:
            found = await self._find(subscription, signed, body, now)
        except Exception:
            repeats.error("The secret of a webhook's subscription could not be found", exc_info=True)
            return _later()
        if isinstance(found, RouteResponse):
            return found
        return await self._accept(found, subscription, signed, body)

    # -- what was verified

    async def _find(
        self, subscription: str, signed: SignedHeaders, body: bytes, now: float
    ) -> Registration | RouteResponse:
        """Return the subscription of a message, found by the secret that signed it, or the refusal. Raises what
        `secret_for` raises."""
        known = self._known.get(subscription, [])
        for one in [*known, *self._begun]:
            if is_signed(signed, one.secrets(now), body):
                return one
        secrets: Any = None if self._secret_for is None else self._secret_for(subscription)
        if inspect.isawaitable(secrets):
            secrets = await secrets
        given = [secrets] if isinstance(secrets, str) else list(secrets or ())
        if given and is_signed(signed, given, body):
            one = self._registration(given[0])
            one.scope = scope_of(subscription)
            return one
        if known or given:
            logger.debug("A webhook was refused: none of the subscription's secrets has signed it")
            return RouteResponse(status=401)
        # "an `id` it has not yet been told to route ... a retryable status": the answer of `events/subscribe` may be
        # under way, and the message another one's
        return _later() if self._begun else RouteResponse(status=410)

    async def _accept(self, one: Registration, subscription: str, signed: SignedHeaders, body: bytes) -> RouteResponse:
        """Return the answer to a verified message."""
        try:
            message = msgspec.json.decode(body, type=_Message)
            body.decode()
        except _UNREADABLE as error:
            logger.debug("A webhook of %s cannot be read: %s", subscription, error)
            return RouteResponse(status=400)
        if message.type == "verification":
            if message.challenge is UNSET or len(message.challenge) > CHALLENGE_SIZE:
                return RouteResponse(status=400)
            return RouteResponse(body={"challenge": message.challenge})
        work = self._work(one, subscription, message, body)
        if work is None:
            return RouteResponse(status=400)
        id, run = work
        status = await self._once(f"{one.scope}.{id or signed.id}", run)
        return _later() if status == 503 else RouteResponse(status=status)

    def _work(
        self, one: Registration, subscription: str, message: _Message, body: bytes
    ) -> tuple[str, Callable[[], Awaitable[None]]] | None:
        """Return the id of an event ("" for other messages) and what handles the message; None if it does not fit."""
        if message.type is UNSET:
            try:
                event = received(msgspec.json.decode(body, type=EventOccurrence), subscription=subscription)
            except _UNREADABLE as error:
                logger.debug("A webhook of %s is no event: %s", subscription, error)
                return None
            return event.id, lambda: run_handler(one.handle, event)
        if message.type == "gap":
            gap = ReceivedGap(subscription=subscription, cursor=None if message.cursor is UNSET else message.cursor)
            return "", lambda: run_handler(one.on_gap, gap)
        if message.type == "terminated":
            return "", lambda: self._terminate(one, subscription, message.error)
        # a kind that a later text has: sending it again would change nothing
        repeats.warning("A webhook of the kind %.40r was accepted, and is not known here", message.type)
        return "", _nothing

    async def _terminate(self, one: Registration, subscription: str, error: ErrorObject | UnsetType) -> None:
        if error is UNSET:
            error = ErrorObject(0, "the server has ended the subscription")
        why = RpcError.of(error.code, error.message, None if error.data is UNSET else error.data)
        await run_handler(one.on_end, ReceivedEnd(subscription=subscription, error=why))
        one.end()

    async def _once(self, key: str, run: Callable[[], Awaitable[None]]) -> int:
        """Handle a message, unless that was done or is being done; return the status that answers it."""
        key = f"mcp-event.{sha256(key.encode()).hexdigest()}"
        task = self._handling.get(key)
        if task is None:
            if len(self._handling) >= HANDLING:
                repeats.warning("A webhook has to come again: %d are handled at once", HANDLING)
                return 503
            # a task of its own: a server that gives up waiting comes again, and waits for the same one
            task = self._handling[key] = asyncio.get_running_loop().create_task(self._handle_one(key, run))
            task.add_done_callback(lambda _: self._handling.pop(key, None))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            request = asyncio.current_task()
            if task.cancelled() and request is not None and not request.cancelling():
                return 500  # the function was cancelled from inside
            raise

    async def _handle_one(self, key: str, run: Callable[[], Awaitable[None]]) -> int:
        try:
            async with asyncio.timeout(self._timeout) as within:
                if await self._seen.get(key) is not None:
                    return 204
                await run()
                await self._seen.put(key, b"1", ttl=SEEN_FOR)
        except TimeoutError:
            if within.expired():
                repeats.error("A webhook was not handled within %g s, and comes again", self._timeout)
                return 503
            repeats.error("A webhook could not be handled, and comes again", exc_info=True)
            return 500
        except Exception:
            repeats.error("A webhook could not be handled, and comes again", exc_info=True)
            return 500
        return 204


class _SeenInMemory:
    """The newest `SEEN` keys."""

    def __init__(self) -> None:
        self._keys: OrderedDict[str, None] = OrderedDict()

    async def get(self, key: str) -> bytes | None:
        return b"1" if key in self._keys else None

    async def put(self, key: str, value: bytes, *, ttl: float | None = None) -> None:
        self._keys[key] = None
        if len(self._keys) > SEEN:
            self._keys.popitem(last=False)


def is_id(text: str) -> bool:
    """Return whether a text can be the id of a subscription in a header."""
    return 0 < len(text) <= MAX_ID and text.isascii() and text.isprintable() and " " not in text


def scope_of(text: str) -> str:
    """Return the name under which the messages of a subscription are recognised: nothing of the text is in it."""
    return sha256(text.encode()).hexdigest()[:32]


def _later() -> RouteResponse:
    return RouteResponse(status=503, headers={"Retry-After": str(RETRY_AFTER)})


async def _nothing() -> None:
    return None


async def run_handler(function: Callable[[Any], object] | None, given: object) -> None:
    """Call a user's function, a plain one in a worker thread."""
    if function is None:
        return
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__):
        found = function(given)
    else:
        found = await asyncio.to_thread(function, given)
    if inspect.isawaitable(found):
        await found


async def _live(receive: Receive, send: Send) -> None:
    """Answer the lifespan of an ASGI server: there is nothing to start or stop."""
    while True:
        kind = (await receive())["type"]
        await send({"type": f"{kind}.complete"})
        if kind == "lifespan.shutdown":
            return


async def _send(answer: RouteResponse, send: Send) -> None:
    """Send an answer to an ASGI server."""
    body = b"" if answer.body == b"" else msgspec.json.encode(answer.body)
    lines = [(name.lower().encode(), value.encode()) for name, value in answer.headers.items()]
    if body:
        lines.append((b"content-type", b"application/json"))
    if answer.status != 204:
        lines.append((b"content-length", b"%d" % len(body)))
    with contextlib.suppress(OSError):  # the caller has left
        await send({"type": "http.response.start", "status": answer.status, "headers": lines})
        await send({"type": "http.response.body", "body": body})
