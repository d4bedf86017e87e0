"""`@app.route("/path")`: registers functions that answer HTTP requests to other paths than the endpoint's. A path
matches as a whole; no part of it is a parameter."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from msgspec import UNSET, UnsetType

from ...jsonrpc.errors import LocalError
from ...jsonrpc.options import CALL_TIME, FLAG, NOT_GIVEN, check
from ..binding.signature import name_of, runs_as

if TYPE_CHECKING:
    from ...routes import RegisteredRoute, Route
    from ..runner import Runner
else:
    RegisteredRoute = Engine = Any  # start-up: annotations resolve at run time, to no more than this

F = TypeVar("F", bound=Callable[..., Any])

METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
"""The HTTP methods that a route may answer."""
RESERVED: Final[Mapping[str, str]] = {
    "/live": "it says that the process answers",
    "/ready": "it says whether new work may come",
    "/metrics": "metrics have an address of their own: `serve --metrics`, `MetricsPage`",
    "/openrpc.json": "it is the OpenRPC document",
}
"""Paths that no route may have, and why."""
_RULES: Final = {"public": FLAG, "timeout": CALL_TIME | NOT_GIVEN}


class Routed:
    """The part of a service that has its routes, its store and its tasks (an MCP server uses its service's)."""

    name: str
    """The app's name, for error texts, OpenRPC and metrics."""
    # Any: annotations of a class resolve at run time, and `routes`, `store` and `tasks` are not loaded for these
    _own_routes: tuple[Any, ...] = ()
    """The routes that were registered with this app itself, in order: each a `RegisteredRoute`."""
    _kept_in: Any = None
    """The `Engine` that keeps `ctx.store`; None while there is none."""
    _tasks: Any = None
    """Its `ServiceTasks`; None where none of its methods has tasks."""
    _task_settings: Any = None
    """The `TaskSettings` of its option `tasks`, or else of a service that it includes; None: neither says any."""
    _says_tasks: bool = False
    """Whether they are of its own option."""
    _tasks_url: str | None = None
    """Where `serve(tasks=)` says that tasks are kept, as a URL; None: nowhere."""
    _tasks_bus: Any = None
    """The `Bus` on which changes of tasks are told to other replicas; None: there is none."""

    @property
    def _task_methods(self) -> Mapping[str, Any]:
        """The methods by which its tasks are used; none where it has no tasks."""
        return {} if self._tasks is None else self._tasks.methods

    def route(
        self,
        path: str,
        *,
        methods: Iterable[str] = ("GET",),
        public: bool = False,
        timeout: float | UnsetType | None = UNSET,
    ) -> Callable[[F], F]:
        """Register a function that answers HTTP requests to a path of the server, beside the endpoint; the function is
        not changed. It takes the `RouteRequest`, and the `Context` if it has a second parameter, and returns bytes,
        text, a value that becomes JSON, None (status 204) or a `RouteResponse`. A plain function runs in a worker
        thread.

        `methods`: the HTTP methods that it answers; GET includes HEAD. `public`: True lets requests in without asking a
        guard. `timeout`: seconds, as for a method. Wires other than HTTP do not serve routes. Raises LocalError for a
        path that is taken, reserved or impossible, and for a function that cannot be a route's."""
        allowed = _methods(path, methods)
        check(f"{self.name}: the route {path}", _RULES, locals())
        _check_path(self.name, path)
        for one in self._own_routes:
            if one.path == path and (both := [name for name in allowed if name in one.methods]):
                raise LocalError(f"{self.name} has a route for {both[0]} {path} already")

        def register(function: F) -> F:
            from ...routes import RegisteredRoute  # noqa: PLC0415  (start-up: for those who have routes)

            kind, takes_context = _kind(path, function), _takes_context(path, function)
            route = RegisteredRoute(path, allowed, public, function, kind, takes_context, timeout)
            self._own_routes = (*self._own_routes, route)
            return function

        return register


def http_routes(app: Any, runner: Runner) -> Sequence[Route]:
    """Return the routes of an app and of the apps that it includes, at any depth, for an HTTP server. `runner`: runs
    their functions."""
    if not (found := _routes_of(app)):
        return ()
    from ...routes import Route  # noqa: PLC0415  (start-up: for those who have routes)
    from .running import take  # noqa: PLC0415

    return [Route(one.path, one.methods, one.public, partial(take, runner, one)) for one in found]


def _routes_of(app: Any) -> list[RegisteredRoute]:
    found = [*getattr(app, "_own_routes", ())]
    for one in getattr(app, "_included", ()):
        found += [route for route in _routes_of(one) if route not in found]
    return found


def _methods(path: object, methods: Iterable[str]) -> tuple[str, ...]:
    words = "methods is a list of some of " + ", ".join(METHODS)
    if isinstance(methods, str):
        raise LocalError(f"the route {path}: {words}: [{methods!r}]")
    given = [one.upper() if isinstance(one, str) else one for one in methods]
    wrong = [one for one in given if one not in METHODS]
    if wrong or not given:
        raise LocalError(f"the route {path}: {words}, not {wrong[0]!r}" if wrong else f"the route {path}: {words}")
    return tuple(one for one in METHODS if one in given or (one == "HEAD" and "GET" in given))


def _check_path(name: str, path: object) -> None:
    """Raise LocalError for a path that no route may have."""
    if not isinstance(path, str):
        raise LocalError(f'a route has a path: @{name}.route("/path"), not {path!r}')
    what = f"{name}: the route {path!r}"
    if not path.startswith("/"):
        raise LocalError(f"{what}: a path begins with /")
    if path in RESERVED:
        raise LocalError(f"{what} is the server's own: {RESERVED[path]}; take another path")
    if path == "/.well-known" or path.startswith("/.well-known/"):
        raise LocalError(f"{what}: what is well-known (RFC 8615) is the server's own; take another path")
    if not path.isprintable() or any(one in path for one in " ?#%\\"):
        raise LocalError(f"{what}: write the path decoded, without a query, spaces, % and \\")
    if any(one in path for one in "{}<>*"):
        raise LocalError(f"{what}: a path has no parameters here; take them from the query, `request.parameters`")
    if any(part in (".", "..") for part in path.split("/")) or "//" in path:
        raise LocalError(f"{what}: clients take . and .. and // out of a path, so nothing would come to it")


def _kind(path: str, function: object) -> str:
    """Return how a route's function runs: "async", or "thread" for a plain one. Raises LocalError for what cannot be
    one."""
    if isinstance(function, type) or not callable(function):
        raise LocalError(f"the route {path}: {function!r} is not a function: give one that takes the request")
    runs = runs_as(function)
    if runs in ("generator", "async generator"):
        raise LocalError(f"the route {path}: {name_of(function)} yields; a route returns its whole answer")
    return "async" if runs == "coroutine" else "thread"


def _takes_context(path: str, function: Callable[..., Any]) -> bool:
    """Return whether a route's function takes the context beside the request. Raises LocalError if it takes neither the
    request alone nor these two."""
    import inspect  # noqa: PLC0415  (start-up: for those who have routes)

    parameters = inspect.signature(function).parameters.values()
    positional = [one for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    needed = [one for one in positional if one.default is one.empty]
    named = [one.name for one in parameters if one.kind is one.KEYWORD_ONLY and one.default is one.empty]
    if positional and positional[0].name == "self":
        raise LocalError(
            f"the route {path}: {name_of(function)} stands within a class, where there is no instance yet: write "
            f'app.route("{path}")(instance.{name_of(function)}) after it'
        )
    if not positional or len(needed) > 2 or named:
        raise LocalError(
            f"the route {path}: {name_of(function)} takes the request, and the context if it wants it: "
            "def handler(request: RouteRequest) or def handler(request: RouteRequest, ctx: Context)"
        )
    return len(needed) == 2
