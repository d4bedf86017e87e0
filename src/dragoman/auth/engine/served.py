"""An authorization engine as an object that `serve(...)` serves over HTTP."""

from __future__ import annotations

from collections.abc import Sequence

from ...routes import Route, RouteExchange
from ...transports.http.alone import HttpAlone
from .engine import AuthorizationEngine
from .messages import EndpointRequest


class ServedEngine(HttpAlone):
    """Serves the endpoints of an engine over HTTP."""

    def __init__(self, name: str, engine: AuthorizationEngine) -> None:
        super().__init__(name, "This is an authorization server: it answers HTTP alone")
        self.engine: AuthorizationEngine = engine
        """The engine that answers the requests."""

    def http_routes(self) -> Sequence[Route]:
        """Return the endpoints, at paths that begin with the issuer's own path. They need no guard."""
        return [
            Route(path, (*methods, "HEAD") if "GET" in methods else tuple(methods), True, self._take)
            for path, methods in self.engine.paths().items()
        ]

    def _take(self, x: RouteExchange) -> None:
        refusal = self.call_limit.enter()
        if refusal is not None:
            x.respond(503, (("Retry-After", "1"),), b"")
            return
        self._begin(self._answer(x)).add_done_callback(lambda _: self.call_limit.leave())

    async def _answer(self, x: RouteExchange) -> None:
        request = x.request
        made = await self.engine.answer(
            EndpointRequest(
                method=request.method,
                path=request.path,
                query=request.query,
                headers=request.headers,
                body=request.body,
                remote=x.caller.remote,
            )
        )
        x.respond(made.status, made.headers, made.body)
