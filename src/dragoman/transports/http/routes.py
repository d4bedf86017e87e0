"""Routes of served objects as endpoints: which one answers a method at a path, and how it is answered."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

import msgspec
from msgspec import Struct

from ...channel import Servable
from ...jsonrpc.errors import INTERNAL_ERROR, LocalError, Refusal, RpcError
from ...routes import HasRoutes, Route, RouteRequest
from .messages import JSON_LINES, STATUSES, Endpoint, HttpRequest, Reply, retry_after


class RouteEndpoint(Struct, frozen=True):
    """The endpoint of one method at one path."""

    endpoint: Endpoint
    public: bool


def table(served: Iterable[Servable], taken: Collection[str]) -> dict[str, dict[str, RouteEndpoint]]:
    """Return the endpoints of routes by path and method. `taken`: the paths of other endpoints and of documents. Raises
    LocalError for a route at one of those, and for two routes with one path and method."""
    found: dict[str, dict[str, RouteEndpoint]] = {}
    for one in {id(one): one for one in served}.values():
        if not isinstance(one, HasRoutes):
            continue
        for route in one.http_routes():
            if route.path in taken:
                raise LocalError(
                    f"{one.name}: the route {route.path} is where an endpoint or a document is served: give the route "
                    "another path, or serve at another one, as in http://127.0.0.1:8000/rpc"
                )
            by_method = found.setdefault(route.path, {})
            for method in route.methods:
                if method in by_method:
                    raise LocalError(f"{one.name}: there is a route for {method} {route.path} already")
                by_method[method] = RouteEndpoint(_endpoint(route), route.public)
    return found


def _endpoint(route: Route) -> Endpoint:
    def endpoint(request: HttpRequest, reply: Reply) -> None:
        x = _RouteExchange(request, reply)
        reply.gone = x.left
        route.answer(x)

    return endpoint


class _RouteExchange:
    """The `RouteExchange` of a request."""

    __slots__ = ("_reply", "caller", "gone", "request")

    def __init__(self, request: HttpRequest, reply: Reply) -> None:
        self.caller = request.caller
        self.request = RouteRequest(
            method=request.method, path=request.path, query=request.query, body=request.body, caller=request.caller
        )
        self.gone: Callable[[], None] | None = None
        self._reply = reply

    def left(self) -> None:
        if self.gone is not None:
            self.gone()

    def respond(self, status: int, headers: Sequence[tuple[str, str]], body: bytes) -> None:
        self._reply.respond(status, tuple(headers), body)

    def fail(self, error: RpcError, refusal: Refusal | None) -> None:
        """500 for what failed, with the reference of the log; the status of a refusal; 503 for what took too long; 400
        for an error that the handler raised for its caller."""
        if refusal is not None:
            status = STATUSES.get(refusal.kind, 503)
        else:
            status = 500 if error.code == INTERNAL_ERROR else 400
        lines = JSON_LINES if refusal is None else (*JSON_LINES, *retry_after(refusal))
        data = error.data if isinstance(error.data, dict) else {}
        self._reply.respond(status, lines, msgspec.json.encode({"error": error.message} | data))

    def stream(self, message: bytes) -> bool:
        return False
