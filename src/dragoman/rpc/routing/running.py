"""Runs the functions of routes. A request to a route is a call: observers see it, middleware runs around it, and
limits, time-outs, draining and the lifespan apply to it as to other calls. Its method is named "GET /path"."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec import Raw

from ...jsonrpc.codec import AnyAnswer, FailedAnswer, ResultMessage
from ...jsonrpc.errors import InternalError, LocalError, RpcError
from ...jsonrpc.messages import Request
from ...routes import RegisteredRoute, RouteExchange, RouteResponse
from ..binding.results import to_json
from ..context import Context
from ..method import Method, living
from ..observing import Deliver
from ..runner import ExchangeOrigin, Runner

OWN: Final = frozenset({"content-length", "transfer-encoding", "connection", "content-type", "upgrade", "trailer"})
"""Header fields that a route cannot set, in lower case: the server frames the body, and `media_type` gives its type."""
_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_VALUE: Final = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
_ID: Final = 0
"""The id of the call that a request becomes; nobody else sees it."""
_ENDED: Final = frozenset({"timed_out", "draining", "forbidden"})
"""The kinds of refusals that can end a request in flight and have an HTTP status of their own."""


class _RouteBinding:
    """The `MethodHandler` of one request: makes the response from what the route's function returns. `limit`: how many
    bytes the body may have."""

    wants_context = opaque = shallow = True

    def __init__(self, route: RegisteredRoute, limit: int) -> None:
        self.function = route.function
        self.kind: Any = "async" if route.kind == "async" else "plain"
        self._takes_context = route.takes_context
        self._limit = limit
        self.response: tuple[int, list[tuple[str, str]], bytes] | None = None

    def arguments(self, params: Any, context: Context[Any] | None = None) -> tuple[Any, ...]:
        """Return the request, and the context if the function takes it."""
        return (params, context) if self._takes_context else (params,)

    def encode(self, answer: Any) -> bytes:
        """Make the response from what the function returned, or middleware in its place; return the answer for
        observers, which has the response's status and its length in bytes, never its body. Raises LocalError for what
        cannot be sent."""
        self.response = status, _, body = response_of(answer.result, self._limit)
        return msgspec.json.encode(ResultMessage({"status": status, "bytes": len(body)}, answer.id))


def take(runner: Runner, route: RegisteredRoute, x: RouteExchange) -> None:
    """Run the function of a route for this request, and send the response, now or later. Raises nothing."""
    name = f"{x.request.method} {route.path}"
    try:
        _start(runner, route, x, name)
    except Exception as error:  # an error in this library
        _fail(x, runner.service._answers.failed(Request(name, msgspec.UNSET, _ID), error))


def _start(runner: Runner, route: RegisteredRoute, x: RouteExchange, name: str) -> None:
    service: Any = runner.service
    request, binding = x.request, _RouteBinding(route, service.limits.response_size)
    # RouteExchange is enough for it, since of an exchange it uses only `gone`
    origin = ExchangeOrigin(x.caller, None, x.stream, True, runner=runner, x=x)  # type: ignore[arg-type]

    def done(answer: AnyAnswer) -> None:
        if type(answer) is FailedAnswer:
            _fail(x, answer)
        elif answer is None or binding.response is None:  # it was cancelled from inside
            x.fail(InternalError(), None)
        else:
            x.respond(*binding.response)

    deliver: Deliver = done
    asked = Request(name, msgspec.UNSET, _ID)
    if service._watch is not None:
        message = msgspec.json.encode({"jsonrpc": "2.0", "method": name, "id": _ID})
        deliver = service._watch.came_in(asked, origin, x.caller, done, message)
    refusal = runner.call_limit.refusal()
    if refusal is not None:
        deliver(service._answers.refused(asked, refusal))
        return
    method = Method(name, binding, "async" if route.kind == "async" else "thread", timeout=route.timeout)
    service._link(method, protocol=False)
    life = service._lifespan
    if life is not None:
        runner.bind()
        method = living(life, method, service._handler)
    origin.start_call(origin, method, Request(name, request, _ID), deliver, len(request.body))


def _fail(x: RouteExchange, answer: FailedAnswer) -> None:
    """Send an error as the wire writes errors."""
    error, ended = answer.error, answer.ended
    data = None if error.data is msgspec.UNSET else msgspec.json.decode(to_json(error.data))
    refusal = answer.refusal or (ended if ended is not None and ended.kind in _ENDED else None)
    x.fail(RpcError.of(error.code, error.message, data), refusal)


def response_of(value: Any, limit: int) -> tuple[int, list[tuple[str, str]], bytes]:
    """Return the status, the header fields and the body for what a route's function returned. `limit`: how many bytes
    the body may have. Raises LocalError for what cannot be sent."""
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
    """Return the media type and the bytes of a body. Raises LocalError for a value that has no JSON."""
    if value is None:
        return "", b""
    if isinstance(value, bytes | bytearray | memoryview):
        return "application/octet-stream", bytes(value)
    if isinstance(value, str):
        return "text/plain; charset=utf-8", value.encode()
    return "application/json", bytes(value) if isinstance(value, Raw) else to_json(value)
