"""The console's door and its API: an `HttpAlone` for an address of its own.

The door, before anything is read or done:

- `Host` is one of `hosts`, by default loopback's names: a page cannot reach it under a name of its own (DNS rebinding).
- `Origin` is absent, or exactly the console's own; `Sec-Fetch-Site` is absent, "same-origin" or "none". There are no
  CORS headers.
- A POST has `Content-Type: application/json`, which a foreign page may not send without asking.
- It needs the secret, 256 bits, as `Authorization: Bearer`, compared in constant time.
  There are no cookies, so a browser sends nothing by itself. Where a guard stands in front there is no secret, and the
  caller's identity needs the scopes `VIEW`, `TRY` and `STOP`.
- Every answer forbids what it can: `HEADERS`. It is JSON; texts of far ends are strings in it.

Nothing here starts a process or opens a URL. A method is called only by `/api/try`, as `calls` says; tasks are
cancelled and answered as `tasks` says, subscriptions ended and retried as `subscriptions` says.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, get_args
from urllib.parse import parse_qsl

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ..access import Protection, Verifiers
from ..channel import Caller
from ..events.board import SubscriptionState
from ..jsonrpc.errors import LocalError, RpcError
from ..jsonrpc.limits import KIB, SERVER, Limits
from ..jsonrpc.options import CALLABLE, NONE, Rule, check, many
from ..secret import SHORTEST
from ..tasks.record import Status
from ..transports.http.alone import HttpAlone
from ..transports.http.messages import JSON, HttpRequest, Lines, Reply
from ..transports.http.policy import LOOPBACK
from ..web import CONTENT_SECURITY_POLICY
from .calls import SCHEME
from .errors import group_errors
from .feed import Feed
from .gathering import ConsoleSource
from .process import ROWS
from .rows import Ended, TaskDetail
from .series import SECONDS
from .subscriptions import ROWS as SUBSCRIPTIONS
from .tasks import ROWS as TASKS
from .views import encode, parse_filter

log: logging.Logger = logging.getLogger("dragoman")

VIEW: Final = "console:view"
TRY: Final = "console:try"
STOP: Final = "console:stop"
"""The scopes: to look, to call methods and answer tasks from the page; to stop calls and tasks, end connections and
subscriptions, and retry these."""
HEADERS: Final[Lines] = (
    ("Content-Security-Policy", CONTENT_SECURITY_POLICY),
    ("Cache-Control", "no-store"),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
)
LIMITS: Final = SERVER.but(message_size=64 * KIB, send_queue=64 * KIB, channels=100, kept_bytes=8 * 1024 * KIB)
"""The bounds under which it is served: `listen(url, {"": console}, Options(limits=LIMITS))`."""
IDS: Final = 1_000
"""Calls, connections, tasks or subscriptions that one request is about."""
STATUSES: Final[tuple[str, ...]] = get_args(Status)
STATES: Final[tuple[str, ...]] = get_args(SubscriptionState)
NO_SECRET: Final = "This needs the secret that was printed when the server started, as a bearer token"
SOURCE: Final = Rule(lambda value: hasattr(value, "tick") and hasattr(value, "look"), "a ConsoleSource")
SECRET: Final = Rule(
    lambda value: isinstance(value, str) and len(value) >= SHORTEST and value.isascii() and value.isprintable(),
    f"a text of at least {SHORTEST} plain characters; make one with new_secret()",
)
_OPTIONS: Final = {
    "source": SOURCE,
    "secret": SECRET | NONE,
    "hosts": many(Rule(lambda one: isinstance(one, str), "a host")) | NONE,
    "protection": CALLABLE | NONE,
}


class _Orders(Struct, forbid_unknown_fields=True):
    """The body of a POST."""

    ids: list[str]


class _Answers(Struct, forbid_unknown_fields=True):
    """The body of a POST that answers questions of a task, by their keys."""

    id: str
    answers: dict[str, Any]


_orders = msgspec.json.Decoder(_Orders).decode
_answers = msgspec.json.Decoder(_Answers).decode


class _Refused(Exception):
    """A request is answered with this status."""

    def __init__(self, status: int, reason: str, *headers: tuple[str, str]) -> None:
        super().__init__(reason)
        self.status, self.reason, self.headers = status, reason, headers


def new_secret() -> str:
    """Return a new secret of 256 bits, fit for the fragment of a URL."""
    return secrets.token_urlsafe(32)


class Console(HttpAlone):
    """Serves the console's API at an address of its own.

    `source`: what it shows. `secret`: what callers must show; None: a guard stands in front, and callers have an
    identity. `protection`: that guard, if it is one of tokens. `hosts`: what callers may have as `Host`, without a
    port; None: anything. Raises LocalError for invalid options.
    """

    def __init__(
        self,
        source: ConsoleSource,
        *,
        secret: str | None,
        protection: Protection | None = None,
        hosts: Iterable[str] | None = LOOPBACK,
    ) -> None:
        check("Console", _OPTIONS, locals())
        super().__init__("console", "This serves the console alone, over HTTP")
        self.limits: Limits = LIMITS
        self._source = source
        self._secret = secret
        self._bearer = b"" if secret is None else f"Bearer {secret}".encode()
        self.auth: Verifiers | None = None
        """None: it gets its guard when it is made."""
        self.demanded: frozenset[str] | None = None
        """None: what it demands depends on the request."""
        self.protection: Protection | None = protection
        """The guard behind which it is served."""
        self._hosts = None if hosts is None else frozenset(one.lower() for one in hosts)
        self._feed = Feed(source)
        self._get: Mapping[str, Callable[[dict[str, str], Caller], Awaitable[object]]] = {
            "/api/now": self._now,
            "/api/timeline": self._timeline,
            "/api/messages": self._messages,
            "/api/methods": self._methods,
            "/api/errors": self._errors,
            "/api/connections": self._connections,
            "/api/services": self._services,
            "/api/catalog": self._catalog,
            "/api/machine": self._machine,
            "/api/tasks": self._tasks_of,
            "/api/subscriptions": self._subscriptions_of,
        }
        self._post: Mapping[str, tuple[str, Callable[[HttpRequest], Awaitable[object]]]] = {
            "/api/stop": (STOP, lambda request: self._order(request, source.kill)),
            "/api/end": (STOP, lambda request: self._order(request, source.end)),
            "/api/tasks/cancel": (STOP, lambda request: self._order(request, source.cancel_task)),
            "/api/tasks/answer": (TRY, self._answer_task),
            "/api/subscriptions/end": (STOP, lambda request: self._order(request, source.end_subscription)),
            "/api/subscriptions/retry": (STOP, lambda request: self._order(request, source.retry_subscription)),
        }
        """By path: the scope that it needs, and what it does."""

    def protect(self, protection: Protection) -> None:
        """Serve behind this guard from now on."""
        self.protection = protection

    def __repr__(self) -> str:
        return f"<Console of {self._source!r}>"

    def page_url(self, url: str) -> str:
        """Return the URL to open in a browser, with the secret in its fragment, which no server is sent."""
        return f"{url.rstrip('/')}/" if self._secret is None else f"{url.rstrip('/')}/#{self._secret}"

    async def drain(self, timeout: float) -> None:
        """End the streams, and wait for the requests that are being answered."""
        self._feed.close()
        await super().drain(timeout)

    def http_endpoints(self, at: str) -> Mapping[str, Callable[[HttpRequest, Reply], None]]:
        """Return the endpoints below this path."""
        base = at.rstrip("/")
        paths = (*self._get, *self._post, "/api/feed", "/api/try")
        return {base + path: self._endpoint(path) for path in paths}

    def _endpoint(self, path: str) -> Callable[[HttpRequest, Reply], None]:
        def serve(request: HttpRequest, reply: Reply) -> None:
            try:
                self._check_page(request)
                if path == "/api/try":
                    self._check_method(request, "POST")
                    self._check_caller(request, TRY)
                    work = self._begin(self._call(reply, request, _query(request.query)))
                    reply.gone = lambda: _leave(work)
                    return
                if path in self._post:
                    scope, work_of = self._post[path]
                    self._check_method(request, "POST")
                    self._check_caller(request, scope)
                    self._begin(self._answer(reply, work_of(request)))
                    return
                self._check_method(request, "GET")
                self._check_caller(request, VIEW)
                query = _query(request.query)
                if path == "/api/feed":
                    self._open_feed(query, reply)
                else:
                    self._begin(self._answer(reply, self._get[path](query, request.caller)))
            except (_Refused, LocalError) as refused:
                _refuse(reply, refused)

        return serve

    # -- the door

    def _check_page(self, request: HttpRequest) -> None:
        """Raise _Refused for a request that a foreign page may have caused."""
        headers = request.headers
        host = headers.get("host", "").lower()
        if self._hosts is not None and _without_port(host) not in self._hosts:
            raise _Refused(421, "This console does not answer for that host")
        scheme = "https" if request.caller.tls else "http"
        if (origin := headers.get("origin")) is not None and origin != f"{scheme}://{host}":
            raise _Refused(403, "Other pages may not use this console")
        if headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
            raise _Refused(403, "Other pages may not use this console")

    def _check_method(self, request: HttpRequest, *allowed: str) -> None:
        if request.method not in allowed:
            raise _Refused(405, f"Only {' and '.join(allowed)} here", ("Allow", ", ".join(allowed)))
        if request.method == "POST":
            kind, *parameters = request.headers.get("content-type", "").lower().split(";")
            if kind.strip() != JSON or any(one.strip() not in ("charset=utf-8", "") for one in parameters):
                raise _Refused(415, "The body must be application/json")
            if len(request.body) > LIMITS.message_size:
                raise _Refused(413, f"The body has at most {LIMITS.message_size} bytes")

    def _check_caller(self, request: HttpRequest, scope: str) -> None:
        """Raise _Refused for a caller without the secret, or without the scope."""
        if self._secret is not None:
            given = request.headers.get("authorization", "").encode("latin-1")
            if not secrets.compare_digest(given, self._bearer):
                raise _Refused(401, NO_SECRET, ("WWW-Authenticate", 'Bearer realm="dragoman console"'))
            return
        identity = request.caller.identity
        if identity is None:
            raise _Refused(401, "This needs a caller who is known", ("WWW-Authenticate", "Bearer"))
        if scope not in identity.scopes:
            challenge = f'Bearer error="insufficient_scope", scope="{scope}"'
            raise _Refused(403, f"This needs the scope {scope}", ("WWW-Authenticate", challenge))

    # -- answers

    async def _answer(self, reply: Reply, work: Awaitable[object]) -> None:
        try:
            found = encode(await work)
        except (_Refused, LocalError) as refused:
            _refuse(reply, refused)
        except RpcError as error:  # others cannot be asked now
            _refuse(reply, _Refused(503, error.message))
        except Exception:
            log.exception("the console could not answer")
            _refuse(reply, _Refused(500, "A fault of the server; its log has it"))
        else:
            reply.respond(200, (("Content-Type", JSON), *HEADERS), found)

    async def _now(self, query: dict[str, str], caller: Caller) -> object:
        return await self._source.look(query.get("where") == "1")

    async def _timeline(self, query: dict[str, str], caller: Caller) -> object:
        before = query.get("before")
        limit = _whole(query, "limit", 200, 1, ROWS)
        return {
            "rows": await self._source.timeline(query.get("q", ""), limit, None if before is None else _time(before))
        }

    async def _messages(self, query: dict[str, str], caller: Caller) -> object:
        limit, before = _whole(query, "limit", 200, 1, ROWS), query.get("before")
        found = await self._source.messages(query.get("q", ""), limit, None if before is None else _time(before))
        if found is None:
            raise _Refused(404, "No messages are kept here: start the server with --console-messages for that")
        return found

    async def _methods(self, query: dict[str, str], caller: Caller) -> object:
        seconds, step = _whole(query, "seconds", SECONDS, 1, SECONDS), _whole(query, "step", 10, 1, SECONDS)
        return {"seconds": seconds, "step": step, "methods": await self._source.methods(seconds, step)}

    async def _errors(self, query: dict[str, str], caller: Caller) -> object:
        found = await self._source.errors()
        return {"errors": found, "groups": group_errors(found)}

    async def _connections(self, query: dict[str, str], caller: Caller) -> object:
        return await self._source.connections()

    async def _services(self, query: dict[str, str], caller: Caller) -> object:
        return {"may": self._scopes_of(caller), "services": await self._source.services()}

    def _scopes_of(self, caller: Caller) -> list[str]:
        identity = caller.identity
        return [one for one in (VIEW, TRY, STOP) if self._secret is not None or (identity and one in identity.scopes)]

    async def _catalog(self, query: dict[str, str], caller: Caller) -> object:
        return {"served": await self._source.catalog()}

    async def _machine(self, query: dict[str, str], caller: Caller) -> object:
        return await self._source.machine()

    async def _tasks_of(self, query: dict[str, str], caller: Caller) -> object:
        if "id" in query:
            return {"task": await self._task(query["id"], caller)}
        status, before = query.get("status", ""), query.get("before")
        if status not in ("", *STATUSES):
            raise _Refused(400, f"status is one of {', '.join(STATUSES)}")
        limit = _whole(query, "limit", 100, 1, TASKS)
        wanted: Any = status or None
        found = await self._source.tasks(wanted, None if before is None else _time(before), limit)
        if found is None:
            raise _Refused(404, "Nothing that is served here has tasks")
        return found

    async def _subscriptions_of(self, query: dict[str, str], caller: Caller) -> object:
        state, limit = query.get("state", ""), _whole(query, "limit", 100, 1, SUBSCRIPTIONS)
        if state not in ("", *STATES):
            raise _Refused(400, f"state is one of {', '.join(STATES)}")
        wanted: Any = state or None
        found = await self._source.subscriptions(wanted, query.get("q", ""), query.get("after", ""), limit)
        if found is None:
            raise _Refused(404, "Nothing that is served here has subscriptions of webhooks")
        return found

    async def _task(self, id: str, caller: Caller) -> TaskDetail:
        found = await self._source.task(id)
        if found is None:
            raise _Refused(404, "There is no such task, or it was not listed lately")
        # a question is for those who may answer it
        return found if TRY in self._scopes_of(caller) else replace(found, questions={})

    async def _answer_task(self, request: HttpRequest) -> object:
        """Answer questions of a task; say what became of it."""
        try:
            given = _answers(request.body)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            raise _Refused(400, f'The body is not {{"id": "...", "answers": {{"KEY": ...}}}}: {error}') from None
        who = _who(request.caller)
        return {"done": [await _try(lambda id, by: self._source.answer_task(id, given.answers, by), given.id, who)]}

    async def _order(self, request: HttpRequest, do: Callable[[str, str], Awaitable[None]]) -> object:
        """Stop calls, or end connections; say of each what became of it."""
        try:
            ids = _orders(request.body).ids
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            raise _Refused(400, f'The body is not {{"ids": ["..."]}}: {error}') from None
        if len(ids) > IDS:
            raise _Refused(400, f"At most {IDS} ids in one request, and these are {len(ids)}")
        return {"done": await asyncio.gather(*(_try(do, id, _who(request.caller)) for id in dict.fromkeys(ids)))}

    async def _call(self, reply: Reply, request: HttpRequest, query: dict[str, str]) -> None:
        """Make a call from the page, and answer with its answer."""
        known = request.caller
        caller = Caller(scheme=SCHEME, remote=known.remote, tls=known.tls, identity=known.identity)
        try:
            found = await self._source.call(query.get("at") or "/", request.body, caller, _who(known))
        except RpcError as error:
            _refuse(reply, _Refused(400, error.message))
        except Exception:
            log.exception("the console could not call")
            _refuse(reply, _Refused(500, "A fault of the server; its log has it"))
        else:
            reply.respond(204 if found is None else 200, (("Content-Type", JSON), *HEADERS), found or b"")

    def _open_feed(self, query: dict[str, str], reply: Reply) -> None:
        lines = (("Content-Type", "application/jsonl"), ("X-Accel-Buffering", "no"), *HEADERS)
        if self._feed.open(reply, lines, parse_filter(query.get("q", "")), calls=query.get("calls") != "0") is None:
            raise _Refused(503, "Too many pages are open", ("Retry-After", "5"))


async def _try(do: Callable[[str, str], Awaitable[None]], id: str, by: str) -> Ended:
    try:
        await do(id, by)
    except RpcError as error:
        return Ended(id=id[:100], error=error.message)
    return Ended(id=id[:100])


def _leave(work: asyncio.Task[None]) -> None:
    """Drop the call of a page that is gone."""
    work.cancel()


def _who(caller: Caller) -> str:
    """Return who a caller is, for the log."""
    who = "the console's secret" if caller.identity is None else caller.identity.subject
    return f"{who} at {caller.remote}"


def _refuse(reply: Reply, refused: _Refused | LocalError) -> None:
    status, headers = (refused.status, refused.headers) if isinstance(refused, _Refused) else (400, ())
    reply.reject(status, f"{refused}")
    reply.respond(status, (("Content-Type", JSON), *HEADERS, *headers), encode({"error": f"{refused}"}))


def _query(text: str) -> dict[str, str]:
    """Return the parameters of a query. Raises _Refused for too many."""
    try:
        return dict(parse_qsl(text, keep_blank_values=True, max_num_fields=20))
    except ValueError:
        raise _Refused(400, "A query has at most 20 parameters") from None


def _whole(query: dict[str, str], name: str, default: int, least: int, most: int) -> int:
    text = query.get(name, f"{default}")
    if not (text.isascii() and text.isdigit() and len(text) < 10 and least <= int(text) <= most):
        raise _Refused(400, f"{name} is a whole number from {least} to {most}")
    return int(text)


def _time(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise _Refused(400, "before is a time in Unix seconds") from None


def _without_port(host: str) -> str:
    """Return a Host without its port."""
    name, colon, port = host.rpartition(":")
    return name if colon and port.isascii() and port.isdigit() and not host.endswith("]") else host
