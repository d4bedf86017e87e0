"""Routes beside the endpoint, and observers."""

from __future__ import annotations

from msgspec import Struct

from dragoman import Context, Service
from dragoman.mcp import Server
from dragoman.observer import Observation, Rejection
from dragoman.routes import RouteRequest, RouteResponse
from dragoman.telemetry import AccessLog, Metrics

api = Service("api")
app = Server("app")


class Tea(Struct):
    kind: str


@api.route("/tea", methods=["POST"], timeout=3)
async def tea(request: RouteRequest) -> Tea:
    return request.json(Tea)


@app.route("/metrics.txt", public=True, timeout=None)
def text(request: RouteRequest, ctx: Context) -> RouteResponse:
    kinds: list[str] = request.parameters["kind"]
    return RouteResponse(body=kinds, status=201, headers={"x-method": ctx.method})


class Seen:
    def came_in(self, seen: Observation) -> None:
        print(seen.method)

    def outbound(self, seen: Observation) -> None:
        print(seen.direction)

    def started(self, seen: Observation) -> None:
        print(seen.params)

    def ended(self, seen: Observation) -> None:
        print(seen.outcome)

    def rejected(self, seen: Rejection) -> None:
        print(seen.kind)


end = api.observe(Metrics())
end()
api.observe(Seen())
app.observe(AccessLog(print))


@api.route("/late", timeout="3")  # wrong: seconds are a number
def late(request: RouteRequest) -> None: ...


@api.route("/one", method="GET")  # wrong: misspelt
def one(request: RouteRequest) -> int:
    return request.json(Tea)  # wrong: a Tea


api.route(tea)  # wrong: a path
api.observe(print)  # wrong: an observer
RouteResponse(status="201")  # wrong: a number
RouteResponse("body")  # wrong: by name
