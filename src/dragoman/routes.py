"""HTTP routes beside an endpoint, as values: what a handler receives and may return, and what HTTP serves.

    @api.route("/price", methods=["GET"])
    async def price(request: RouteRequest) -> Any:
        return {"price": prices[request.parameters["name"][0]]}

An app registers routes (`rpc.routing`), HTTP serves them (`transports.http.routes`); neither imports the other. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar, overload, runtime_checkable

import msgspec
from msgspec import Struct, UnsetType

from .channel import Caller, Identity
from .doors import public_dir
from .jsonrpc.errors import InvalidParams, Refusal, RpcError

__all__ = ["RouteRequest", "RouteResponse"]
__dir__: Callable[[], list[str]] = public_dir(__name__)

T = TypeVar("T")


class RouteRequest(Struct, frozen=True, kw_only=True, eq=False):
    """One HTTP request to a route. `path` is decoded; `query` is the text behind the "?" as it was sent; `body` has at
    most `limits.message_size` bytes."""

    method: str
    """In upper case: "GET"."""
    path: str
    query: str = ""
    body: bytes = b""
    caller: Caller = Caller()
    """What HTTP knows of the caller."""

    @property
    def headers(self) -> Mapping[str, str]:
        """The header fields, names in lower case; equal names are joined by ", "."""
        return self.caller.headers

    @property
    def identity(self) -> Identity | None:
        """Who the caller is, as the guard found out; None without a guard, and for a public route."""
        return self.caller.identity

    @property
    def parameters(self) -> dict[str, list[str]]:
        """The values of each name in the query, in order: "?a=1&a=2" is {"a": ["1", "2"]}."""
        from urllib.parse import parse_qs  # noqa: PLC0415  (start-up: for a query)

        return parse_qs(self.query, keep_blank_values=True)

    @overload
    def json(self, type: type[T]) -> T: ...
    @overload
    def json(self, type: Any = ...) -> Any: ...
    def json(self, type: Any = Any) -> Any:
        """The body as JSON, decoded to a type that msgspec knows. Raises InvalidParams, which is answered with 400."""
        try:
            return msgspec.json.decode(self.body, type=type)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise InvalidParams(f"The body does not fit: {error}") from error


class RouteResponse(Struct, frozen=True, kw_only=True):
    """An answer that is more than a body. `media_type`: by default that of the kind of body (bytes, text, JSON).
    `headers`: further fields; those that frame the body (Content-Length, ...) are the server's."""

    body: Any = b""
    """bytes, text, or a value for JSON."""
    status: int = 200
    """The HTTP status."""
    media_type: str | None = None
    headers: Mapping[str, str] = {}


class RegisteredRoute(Struct, frozen=True, eq=False):
    """A function that answers HTTP requests to a path, as an app registered it."""

    path: str
    methods: tuple[str, ...]
    public: bool
    """No guard decides about its requests."""
    function: Callable[..., Any]
    kind: str
    """"async" or "thread"."""
    takes_context: bool
    timeout: float | UnsetType | None
    """Seconds; None: no time-out; UNSET: the limits' `handler_timeout`."""


class RouteExchange(Protocol):
    """One request to a route. It is answered exactly once, unless the caller goes away before."""

    request: RouteRequest
    caller: Caller
    gone: Callable[[], None] | None
    """Set by `Route.answer`: called once, on the loop, when the caller went away before the answer."""

    def respond(self, status: int, headers: Sequence[tuple[str, str]], body: bytes) -> None:
        """Send the answer."""

    def fail(self, error: RpcError, refusal: Refusal | None) -> None:
        """Send the error of a handler that failed, or of a request that is refused. It holds only what the caller may
        see."""

    def stream(self, message: bytes) -> bool:
        """Return False: nothing is sent ahead of an answer."""


class Route(Struct, frozen=True, eq=False):
    """What answers HTTP requests to a path of a served object."""

    path: str
    methods: tuple[str, ...]
    public: bool
    """No guard decides about its requests."""
    answer: Callable[[RouteExchange], None]
    """Answers a request, now or later on the loop. Raises nothing."""


@runtime_checkable
class HasRoutes(Protocol):
    """A served object with routes."""

    def http_routes(self) -> Sequence[Route]:
        """Return all of them, also of what is included."""
