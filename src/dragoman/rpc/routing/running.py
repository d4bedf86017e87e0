"""A request to a route is a call like any other: observers see it, middleware runs around it, and limits, time-outs,
draining and the lifespan are those of calls. Its method is called "GET /path"."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

from ...jsonrpc.codec import ResultMessage, failure
from ...jsonrpc.errors import PLAIN, Dialect, InternalError, LocalError, Refusal, RpcError
from ...jsonrpc.messages import Request
from ...routes import Route, RouteExchange, RouteResponse
from ..binding.results import to_json
from ..context import Context
from ..method import Method, living
from ..observing import Deliver
from ..runner import ExchangeOrigin, Runner

OWN: Final = frozenset({"content-length", "transfer-encoding", "connection", "content-type", "upgrade", "trailer"})
"""Header fields that no handler sets: the server frames the body, and `media_type` says what it is."""
_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_VALUE: Final = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
_ID: Final = 0


class _Call:
    """The `MethodHandler` of one request: it keeps the answer that its wire gets."""

    wants_context = opaque = shallow = True

    def __init__(self, route: Route, limit: int) -> None:
        self.function = route.function
        self.kind: Any = "async" if route.kind == "async" else "plain"
        self._takes_context = route.takes_context
        self._limit = limit
        self.made: tuple[int, list[tuple[str, str]], bytes] | None = None
        self.marker = b""
        """What stands for the answer on the way out, for observers: never the body."""

    def arguments(self, params: Any, context: Context[Any] | None = None) -> tuple[Any, ...]:
        """The request, and the context if it is wanted."""
        return (params, context) if self._takes_context else (params,)

    def encode(self, answer: Any) -> bytes:
        """Make the response of what the handler returned, or middleware in its place."""
        self.made = status, _, body = composed(answer.result, self._limit)
        self.marker = msgspec.json.encode(ResultMessage({"status": status, "bytes": len(body)}, answer.id))
        return self.marker


def take(runner: Runner, service: Any, route: Route, x: RouteExchange) -> None:
    """Run the handler of a route for this request, and answer it. Raises nothing."""
    try:
        _take(runner, service, route, x)
    except Exception as error:  # a fault of ours
        service._answers.faulty(
            b'{"jsonrpc":"2.0","method":"route","id":0}', error, lambda answer: _fail(x, answer, None, PLAIN)
        )


def _take(runner: Runner, service: Any, route: Route, x: RouteExchange) -> None:
    request = x.request
    name = f"{request.method} {route.path}"
    call = _Call(route, service.limits.response_size)
    # of an exchange it uses `gone` alone
    origin = ExchangeOrigin(x.caller, None, x.stream, True, runner=runner, x=x)  # type: ignore[arg-type]

    def done(answer: bytes | None, refusal: Refusal | None = None, /) -> None:
        if call.made is not None and answer is call.marker:
            x.respond(*call.made)
        else:
            _fail(x, answer, refusal, service._answers.dialect)

    deliver: Deliver = done
    if service._watch is not None:
        told = msgspec.json.encode({"jsonrpc": "2.0", "method": name, "id": _ID})
        deliver = service._watch.came_in(Request(name, msgspec.UNSET, _ID), origin, x.caller, done, told)
    refusal = runner.call_limit.refusal()
    if refusal is not None:
        deliver(failure(_ID, service._answers.dialect.error(refusal)), refusal)
        return
    method = Method(name, call, "async" if route.kind == "async" else "thread", timeout=route.timeout)
    service._link(method)
    life = service._lifespan
    if life is not None:
        runner.bind()
        method = living(life, method, service._handler)
    origin.start(origin, method, Request(name, request, _ID), deliver, len(request.body))


class _Error(Struct):
    code: int
    message: str
    data: Raw = Raw(b"null")


class _Failure(Struct):
    error: _Error


def _fail(x: RouteExchange, answer: bytes | None, refusal: Refusal | None, dialect: Dialect) -> None:
    """The error in an answer as the wire's own; None: the call was cancelled from inside."""
    if answer is None:
        x.fail(InternalError(), refusal)
        return
    error = msgspec.json.decode(answer, type=_Failure).error
    told = RpcError.of(error.code, error.message, msgspec.json.decode(error.data))
    x.fail(told, refusal or _ended(told, dialect))


def _ended(error: RpcError, dialect: Dialect) -> Refusal | None:
    """The refusal with which a running call was ended: its time was up, the server closed, or the caller may not."""
    data = error.data if isinstance(error.data, dict) else {}
    for kind, word in (("timed_out", "Timed out: "), ("draining", "Draining: "), ("forbidden", "Forbidden: ")):
        if error.code == dialect.codes[kind] and error.message.startswith(word):
            return Refusal(kind, error.message, data)
    return None


def composed(value: Any, limit: int) -> tuple[int, list[tuple[str, str]], bytes]:
    """The status, the header fields and the body of what a handler returned. LocalError for what cannot be sent."""
    given = (
        value if isinstance(value, RouteResponse) else RouteResponse(body=value, status=204 if value is None else 200)
    )
    kind, body = _body(given.body)
    status = given.status
    if not isinstance(status, int) or isinstance(status, bool) or not 200 <= status <= 599:
        raise LocalError(f"a route's status is a number from 200 to 599, not {status!r}")
    if status in (204, 304) or not body:
        kind, body = "", b""
    if len(body) > limit:
        raise LocalError(f"a route's response has {len(body)} bytes; limit response_size allows {limit}")
    lines = [("Content-Type", given.media_type or kind)] if given.media_type or kind else []
    return status, _checked([*lines, *_fields(given.headers)]), body


def _fields(headers: Mapping[str, str]) -> list[tuple[str, str]]:
    if not isinstance(headers, Mapping):
        raise LocalError(f"a route's headers are a dict of texts, not {headers!r:.80}")
    for name in headers:
        if isinstance(name, str) and name.lower() in OWN:
            own = "media_type says it" if name.lower() == "content-type" else "the server itself sends it"
            raise LocalError(f"a route sets no header {name}: {own}")
    return list(headers.items())


def _checked(lines: list[tuple[str, str]]) -> list[tuple[str, str]]:
    for name, value in lines:
        named = isinstance(name, str) and _NAME.fullmatch(name) is not None
        if not named or not isinstance(value, str) or _VALUE.fullmatch(value) is None:
            raise LocalError(
                f"a route's header {name!r:.80} cannot be sent: its name is a token (RFC 9110, 5.6.2), its "
                "value text of one line in Latin-1"
            )
    return lines


def _body(value: Any) -> tuple[str, bytes]:
    """The media type and the bytes of a body."""
    if value is None:
        return "", b""
    if isinstance(value, bytes | bytearray | memoryview):
        return "application/octet-stream", bytes(value)
    if isinstance(value, str):
        return "text/plain; charset=utf-8", value.encode()
    return "application/json", bytes(value) if isinstance(value, Raw) else to_json(value)
