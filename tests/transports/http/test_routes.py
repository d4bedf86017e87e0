"""Routes of services and MCP servers beside the endpoint, on the native front and on an ASGI server."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from msgspec import Struct

from dragoman import Context, Limits, LocalError, RpcError, Service, http_app, serve
from dragoman.channel import Admitted, Denied, Handshake, Identity, Options, Servable
from dragoman.jsonrpc.call_limit import busy
from dragoman.jsonrpc.errors import CallRefused
from dragoman.mcp import Server
from dragoman.middleware import AuditEntry, audit, rate_limit, response_cache, size_limit
from dragoman.routes import RouteRequest, RouteResponse
from dragoman.rpc.servable import ServableService
from dragoman.telemetry import AccessLog
from tests.behind import behind

from .cases import PATIENCE, Answered, answer, get, post
from .ends import asgi, face, native, port_of, wire

KINDS = ["native", "asgi"]
BOTH = pytest.mark.parametrize("kind", KINDS)
APPS = pytest.mark.parametrize("made", [Service, Server], ids=["service", "server"])


class Tea(Struct):
    name: str
    price: int


@dataclass
class Milk:
    fat: float


def with_routes(given: Any) -> Any:
    """An app with a route for each thing a handler may do."""
    app: Service = given  # or a Server, which has the same

    @app.route("/echo", methods=["get", "POST", "PUT"])
    async def echo(request: RouteRequest) -> Any:
        return {
            "method": request.method,
            "path": request.path,
            "query": request.parameters,
            "body": request.body.decode("latin-1"),
            "x": request.headers.get("x-a"),
            "scheme": request.caller.scheme,
            "who": None if request.identity is None else request.identity.subject,
        }

    @app.route("/thread")
    def thread(request: RouteRequest, ctx: Context) -> str:
        assert threading.current_thread() is not threading.main_thread()
        return f"{ctx.method} {ctx.state}"

    @app.route("/tea", methods=["POST"])
    async def tea(request: RouteRequest) -> Tea:
        return request.json(Tea)

    @app.route("/tea", methods=["DELETE"])
    async def no_tea(request: RouteRequest) -> None:
        """Nothing."""

    values: dict[str, Any] = {
        "/text": "tëa",
        "/bytes": b"\x00\xff",
        "/json": [1, None, {"a": "b"}],
        "/dataclass": Milk(3.5),
        "/number": 5,
        "/made": RouteResponse(body="<p>", status=404, media_type="text/html", headers={"X-B": "c"}),
        "/moved": RouteResponse(status=303, headers={"Location": "/text"}),
        "/unchanged": RouteResponse(body="dropped", status=304, headers={"ETag": '"1"'}),
        "/caf\u00e9 ".strip(): "coffee",
        "/bad/status": RouteResponse(status=100),
        "/bad/name": RouteResponse(headers={"X A": "b"}),
        "/bad/lines": RouteResponse(headers={"X": "a\r\nSet-Cookie: b"}),
        "/bad/length": RouteResponse(headers={"Content-Length": "5"}),
        "/bad/media": RouteResponse(media_type="a\nb"),
        "/bad/json": object(),
        "/bad/size": "x" * 20_000,
    }
    for path, value in values.items():
        app.route(path)(lambda request, value=value: value)

    @app.route("/raises")
    async def raises(request: RouteRequest) -> None:
        raise KeyError("the password")

    @app.route("/tells")
    async def tells(request: RouteRequest) -> None:
        raise RpcError("Not at night", {"until": 8}, code=7)

    @app.route("/cancelled")
    async def cancelled(request: RouteRequest) -> None:
        raise asyncio.CancelledError

    return app


def servable(app: Any) -> Servable:
    return ServableService(behind(app)) if isinstance(app, Service) else app.__servable__()


@asynccontextmanager
async def served(kind: str, app: Any, **options: Any) -> AsyncIterator[Any]:
    """Asks the app, whose endpoint is at /rpc."""
    limits = options.pop("limits", None) or Limits(message_size=10_000, response_size=10_000)
    one = servable(app)
    one.restrict(limits)
    async with face(kind, {"/rpc": one}, Options(limits=limits, **options)) as port, wire(port) as (reader, writer):

        async def ask(request: bytes, to: str = "GET") -> Answered:
            writer.write(request)
            return await answer(reader, to=to)

        yield ask


ANSWERS: list[tuple[str, bytes, int, str | None, bytes]] = [
    ("text", get("/text"), 200, "text/plain; charset=utf-8", "tëa".encode()),
    ("bytes", get("/bytes"), 200, "application/octet-stream", b"\x00\xff"),
    ("json", get("/json"), 200, "application/json", b'[1,null,{"a":"b"}]'),
    ("a dataclass", get("/dataclass"), 200, "application/json", b'{"fat":3.5}'),
    ("a number", get("/number"), 200, "application/json", b"5"),
    ("a response", get("/made"), 404, "text/html", b"<p>"),
    ("not followed", get("/moved"), 303, None, b""),
    ("304 has no body", get("/unchanged"), 304, None, b""),
    ("a path is decoded", get("/caf%C3%A9"), 200, "text/plain; charset=utf-8", b"coffee"),
    ("a query is not the path", get("/text?a=/b"), 200, "text/plain; charset=utf-8", "tëa".encode()),
    ("nothing", get("/tea", method="DELETE"), 204, None, b""),
    ("a typed body", post(b'{"name":"a","price":1}', path="/tea"), 200, "application/json", b'{"name":"a","price":1}'),
    ("a lifespan's value", get("/thread"), 200, "text/plain; charset=utf-8", b"GET /thread open"),
    ("two slashes", get("//text"), 404, "application/json", b""),
    ("a slash more", get("/text/"), 404, "application/json", b""),
    ("another case", get("/TEXT"), 404, "application/json", b""),
    ("dots are not resolved", get("/bytes/../text"), 404, "application/json", b""),
    ("another method", get("/text", method="POST"), 405, "application/json", b'{"error":"POST is not for /text"}'),
    ("OPTIONS", get("/text", method="OPTIONS"), 405, "application/json", b'{"error":"OPTIONS is not for /text"}'),
    ("what the caller may know", get("/tells"), 400, "application/json", b'{"error":"Not at night","until":8}'),
]


@BOTH
@APPS
async def test_answers(kind: str, made: Any) -> None:
    async def lifespan(app: Any) -> AsyncIterator[str]:
        yield "open"

    async with served(kind, with_routes(made("app", lifespan=lifespan))) as ask:
        for name, request, status, media_type, body in ANSWERS:
            found = await ask(request)
            assert (found.status, found.headers.get("content-type")) == (status, media_type), name
            assert not body or found.body == body, name
        found = await ask(get("/made"))
        assert found.headers["x-b"] == "c"
        found = await ask(get("/text", method="POST"))
        assert found.headers["allow"] == "GET, HEAD"
        found = await ask(get("/tea"))
        assert (found.status, found.headers["allow"]) == (405, "POST, DELETE")
        found = await ask(get("/text", method="HEAD"), to="HEAD")
        assert (found.status, found.headers["content-length"], found.body) == (200, "4", b"")
        found = await ask(post(b'{"jsonrpc":"2.0","method":"nope","id":1}', path="/rpc"))
        assert found.status in (200, 400, 406), "the endpoint is still there"


@BOTH
async def test_what_a_handler_gets(kind: str) -> None:
    async with served(kind, with_routes(Service("app"))) as ask:
        for turn in range(4):  # the head is known by then
            found = await ask(
                post(b"b\xff", path=f"/echo?a=1&a=%C3%A4&b&t={turn % 2}", kind="text/plain", more="X-A: c\r\n")
            )
            assert json.loads(found.body) == {
                "method": "POST",
                "path": "/echo",
                "query": {"a": ["1", "ä"], "b": [""], "t": [str(turn % 2)]},
                "body": "b\xff",
                "x": "c",
                "scheme": "http",
                "who": None,
            }
        for name in ("d", "e"):
            assert json.loads((await ask(get("/echo", more=f"X-A: {name}\r\n"))).body)["x"] == name
        assert json.loads((await ask(get("/echo", method="PUT", more="Content-Length: 0\r\n"))).body)["method"] == "PUT"
        assert (await ask(post(b"x", path="/echo", more="Content-Encoding: gzip\r\n"))).status == 200, "bytes are bytes"


FAULTS = [
    "/raises",
    "/cancelled",
    *[f"/bad/{n}" for n in ("status", "name", "lines", "length", "media", "json", "size")],
]


@BOTH
@APPS
@pytest.mark.parametrize("path", FAULTS)
async def test_a_fault_is_500_with_a_reference_and_no_more(
    kind: str, made: Any, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with served(kind, with_routes(made("app"))) as ask:
        found = await ask(get(path))
        assert (found.status, found.headers["content-type"]) == (500, "application/json")
        told = json.loads(found.body)
        assert told == {"error": "Internal error", "reference": told["reference"]}
        assert told["reference"] in caplog.text
        assert (await ask(get("/text"))).status == 200


@BOTH
@pytest.mark.parametrize(
    ("name", "request_", "status", "words"),
    [
        ("no JSON", post(b"{", path="/tea"), 400, "does not fit"),
        ("another type", post(b'{"name":1}', path="/tea"), 400, "Expected `str`"),
        ("a deep body", post(b"[" * 9_000, path="/tea"), 400, "does not fit"),
        ("no UTF-8", post(b'"\xff"', path="/tea"), 400, "does not fit"),
        ("too large", post(b"x" * 10_001, path="/tea"), 413, "message_size"),
        ("a foreign page", get("/text", more="Origin: http://evil.example\r\n"), 403, "Pages of this origin"),
    ],
    ids=lambda one: one if isinstance(one, str) and " " not in one else None,
)
async def test_what_is_refused_is_said_in_words(kind: str, name: str, request_: bytes, status: int, words: str) -> None:
    async with served(kind, with_routes(Service("app"))) as ask:
        found = await ask(request_)
        assert found.status == status, name
        told = json.loads(found.body)
        assert words in told["error"], name
        assert "jsonrpc" not in told


async def test_a_foreign_host_is_refused_and_a_slow_body_cut_off() -> None:
    async with served("native", with_routes(Service("app"))) as ask:
        assert (await ask(get("/text").replace(b"localhost", b"evil.example"))).status == 421
    for kind in KINDS:
        limits = Limits(body_timeout=0.2)
        async with served(kind, with_routes(Service("app")), limits=limits) as ask:
            found = await ask(post(b"xx", path="/tea").replace(b"Content-Length: 2", b"Content-Length: 20"))
            assert found.status == 408
            assert "jsonrpc" not in json.loads(found.body)


# -- the guard ---------------------------------------------------------------------------------------


@BOTH
async def test_routes_stand_behind_the_guard_unless_they_are_public(kind: str) -> None:
    asked: list[str] = []

    async def guard(handshake: Handshake) -> Admitted | Denied:
        asked.append(handshake.url)
        token = dict(handshake.headers).get(b"authorization")
        if token is None:
            return Denied(reason="Who are you?", headers=(("WWW-Authenticate", "Bearer"),))
        return Admitted(identity=Identity(subject=token.decode()), headers=(("X-Seen", "yes"),))

    app = with_routes(Service("app"))
    app.route("/open", public=True)(lambda request: f"open {request.identity}")
    async with served(kind, app, guard=guard) as ask:
        found = await ask(get("/echo"))
        assert (found.status, found.headers["www-authenticate"]) == (401, "Bearer")
        assert json.loads(found.body) == {"error": "Who are you?"}
        found = await ask(get("/echo", more="Authorization: ada\r\n"))
        assert (found.status, found.headers["x-seen"]) == (200, "yes")
        assert json.loads(found.body)["who"] == "ada"
        asked.clear()
        found = await ask(get("/open", more="Authorization: ada\r\n"))
        assert (found.status, found.body) == (200, b"open None")
        assert (await ask(get("/open", method="PUT"))).status == 405
        assert not asked
        assert (await ask(get("/echo"))).status == 401, "what is known of a head is not who asked"


# -- calls like any other ----------------------------------------------------------------------------


@BOTH
@APPS
async def test_middleware_and_observers_see_them(kind: str, made: Any) -> None:
    entries: list[AuditEntry] = []
    lines: list[str] = []
    app = with_routes(made("app", middleware=[audit(entries.append), rate_limit(0.5, burst=2, clock=lambda: 1.0)]))
    app.observe(AccessLog(lines.append))
    async with served(kind, app) as ask:
        assert (await ask(get("/text"))).status == 200
        assert (await ask(get("/raises"))).status == 500
        found = await ask(get("/text"))
        assert (found.status, found.headers["retry-after"]) == (429, "2")
        assert json.loads(found.body)["error"].startswith("Busy")
    assert [(one.name, one.outcome) for one in entries] == [
        ("GET /text", "ok"),
        ("GET /raises", "failed"),
        ("GET /text", "-32000"),
    ]
    assert [line for line in lines if "GET /text" in line]
    assert not [line for line in lines if "tëa" in line]


@BOTH
async def test_ready_middleware_looks_at_query_and_body(kind: str) -> None:
    ran: list[str] = []
    app = Service("app", middleware=[response_cache(["POST /kept"], ttl=60, shared=True), size_limit(3)])

    @app.route("/kept", methods=["POST"])
    async def kept(request: RouteRequest) -> str:
        ran.append(request.query)
        return f"{request.query} {request.body!r}"

    async with served(kind, app) as ask:
        for query, body in (("a", b"1"), ("b", b"1"), ("a", b"2"), ("a", b"1")):
            found = await ask(post(body, path=f"/kept?{query}", more=f"X-A: {len(ran)}\r\n"))
            assert found.body.decode() == f"{query} {body!r}"
        assert ran == ["a", "b", "a"]
        found = await ask(post(b"1234", path="/kept"))
        assert (found.status, json.loads(found.body)["received"]) == (413, 4)


@BOTH
async def test_middleware_may_answer_in_place_of_the_handler(kind: str) -> None:
    async def other(call: Any, next: Any) -> Any:
        if call.params.query == "own":
            return RouteResponse(body="another", status=201)
        if call.params.query == "no":
            raise CallRefused(busy("rooms", 1))
        return await next(call)

    async with served(kind, with_routes(Service("app", middleware=[other]))) as ask:
        found = await ask(get("/text?own"))
        assert (found.status, found.body) == (201, b"another")
        assert (await ask(get("/text?no"))).status == 503
        assert (await ask(get("/text"))).body == "tëa".encode()


@BOTH
async def test_time_and_number_are_bounded_and_a_caller_that_leaves_ends_its_call(kind: str) -> None:
    app, ended, begun = Service("app"), asyncio.Event(), asyncio.Event()

    @app.route("/slow", timeout=0.05)
    @app.route("/slower")
    async def slow(request: RouteRequest) -> None:
        begun.set()
        try:
            await asyncio.sleep(PATIENCE)
        finally:
            ended.set()

    limits = Limits(calls=1, drain_timeout=0.1)
    one = ServableService(behind(app), limits=limits)
    async with face(kind, {"/rpc": one}, Options(limits=limits)) as port:
        async with wire(port) as (reader, writer):
            writer.write(get("/slow"))
            found = await answer(reader, to="GET")
            assert found.status == 503
            assert json.loads(found.body)["limit"] == "handler_timeout"
        ended.clear()
        begun.clear()
        async with wire(port) as (reader, writer):
            writer.write(get("/slower"))
            async with asyncio.timeout(PATIENCE):
                await begun.wait()
            async with wire(port) as (other, asks):
                asks.write(get("/slower"))
                found = await answer(other, to="GET")
                assert (found.status, found.headers["retry-after"]) == (503, "1")
        async with asyncio.timeout(PATIENCE):
            await ended.wait()
        await one.drain(0)
        async with wire(port) as (reader, writer):
            writer.write(get("/slower"))
            assert (await answer(reader, to="GET")).status == 503, "it drains"


async def test_pages_that_may_call_learn_the_methods_of_a_route() -> None:
    more = "Origin: http://shop.example\r\nAccess-Control-Request-Method: PUT\r\n"
    for kind in KINDS:
        async with served(kind, with_routes(Service("app")), cors=["http://shop.example"]) as ask:
            found = await ask(get("/echo", method="OPTIONS", more=more))
            assert (found.status, found.headers["access-control-allow-methods"]) == (204, "GET, HEAD, POST, PUT")
            found = await ask(get("/rpc", method="OPTIONS", more=more))
            assert found.headers["access-control-allow-methods"] == "GET, POST, DELETE"


# -- where they are ----------------------------------------------------------------------------------


async def test_included_apps_bring_theirs_and_several_apps_share_a_server() -> None:
    inner, outer, server = Service("inner"), Service("outer"), Server("server")
    inner.method("m")(lambda: 1)
    inner.route("/r/inner")(lambda request: "r/inner")
    outer.include(inner, namespace="in")
    outer.route("/r/outer")(lambda request: "r/outer")
    server.route("/r/server")(lambda request: "r/server")
    for app in (serve(outer, server, urls="http://127.0.0.1:0"), None):
        if app is None:
            async with asgi(http_app(outer, server)) as port:
                await _look(port)
        else:
            async with app:
                await _look(int(app.urls[0].split(":")[2].partition("/")[0]))


async def _look(port: int) -> None:
    async with wire(port) as (reader, writer):
        for name in ("r/inner", "r/outer", "r/server"):
            writer.write(get(f"/{name}"))
            assert (await answer(reader, to="GET")).body == name.encode()
        writer.write(get("/nope"))
        assert "/r/outer" in json.loads((await answer(reader, to="GET")).body)["error"]


@pytest.mark.parametrize(
    ("at", "path", "words"),
    [
        ("/rpc", "/rpc", "the route /rpc is where an endpoint or a document is served"),
        ("", "/", "the route / is where an endpoint"),
        ("/api", "/api/openrpc.json", "/api/openrpc.json is where"),
    ],
)
async def test_a_route_at_an_endpoint_is_refused_when_serving_begins(at: str, path: str, words: str) -> None:
    app = Service("app")
    app.route(path)(lambda request: "")
    with pytest.raises(LocalError, match=words):
        async with serve({at: app}, urls="http://127.0.0.1:0"):
            pass
    with pytest.raises(LocalError, match=words):
        http_app({at: app})


async def test_two_apps_with_one_route_are_refused_when_serving_begins() -> None:
    one, two = Service("one"), Service("two")
    for app in (one, two):
        app.route("/r")(lambda request: "")
    with pytest.raises(LocalError, match="two: there is a route for GET /r already"):
        http_app(one, two)


@pytest.mark.parametrize(
    ("urls", "level"),
    [
        (["memory:routes"], logging.WARNING),
        (["memory:routes", "http://127.0.0.1:0/rpc"], logging.INFO),
        (["http://127.0.0.1:0/rpc"], 0),
    ],
    ids=["none", "one of two", "all"],
)
async def test_wires_without_http_say_that_routes_are_not_there(
    urls: list[str], level: int, caplog: pytest.LogCaptureFixture
) -> None:
    app = Service("app")
    app.route("/r")(lambda request: "")
    caplog.set_level(logging.INFO, "dragoman")
    async with serve(app, urls=urls):
        found = [one for one in caplog.records if "routes" in one.getMessage()]
        assert [one.levelno for one in found] == ([level] if level else [])
        assert all("/r are HTTP's; they are not served on memory:" in one.getMessage() for one in found)


async def test_a_websocket_url_has_no_routes() -> None:
    app = Service("app")
    app.route("/r")(lambda request: "")
    async with (
        native({"": ServableService(behind(app))}, Options(), "ws://127.0.0.1:0") as listener,
        wire(port_of(listener)) as (reader, writer),
    ):
        writer.write(get("/r"))
        assert (await answer(reader, to="GET")).status == 404


# -- registering -------------------------------------------------------------------------------------


def one_argument(request: RouteRequest) -> None: ...
def no_argument() -> None: ...
def three(request: RouteRequest, ctx: Context, more: int) -> None: ...
def named(request: RouteRequest, *, more: int) -> None: ...
def of_a_class(self: Any, request: RouteRequest) -> None: ...
def yields(request: RouteRequest) -> Any:
    yield 1


WRONG: list[tuple[Any, dict[str, Any], Any, str]] = [
    (5, {}, one_argument, "a route has a path"),
    ("r", {}, one_argument, "begins with /"),
    ("", {}, one_argument, "begins with /"),
    ("/live", {}, one_argument, "'/live' is the server's own: it says that the process answers"),
    ("/ready", {}, one_argument, "'/ready' is the server's own"),
    ("/metrics", {}, one_argument, "metrics have an address of their own"),
    ("/openrpc.json", {}, one_argument, "it is the OpenRPC document"),
    ("/.well-known/oauth-protected-resource", {}, one_argument, "RFC 8615"),
    ("/a?b", {}, one_argument, "without a query"),
    ("/a b", {}, one_argument, "spaces"),
    ("/a%20b", {}, one_argument, "decoded"),
    ("/a\nb", {}, one_argument, "decoded"),
    ("/items/{id}", {}, one_argument, "take them from the query"),
    ("/a/../b", {}, one_argument, "nothing would come to it"),
    ("/a//b", {}, one_argument, "nothing would come to it"),
    ("/r", {"methods": "GET"}, one_argument, r"\['GET'\]"),
    ("/r", {"methods": []}, one_argument, "methods is a list"),
    ("/r", {"methods": ["GET", "FETCH"]}, one_argument, "not 'FETCH'"),
    ("/r", {"methods": [5]}, one_argument, "not 5"),
    ("/r", {"public": "yes"}, one_argument, "public is True or False"),
    ("/r", {"timeout": "1"}, one_argument, "timeout is"),
    ("/taken", {}, one_argument, "app has a route for GET /taken already"),
    ("/taken", {"methods": ["HEAD"]}, one_argument, "HEAD /taken already"),
    ("/r", {}, 5, "5 is not a function"),
    ("/r", {}, Tea, "is not a function"),
    ("/r", {}, no_argument, "takes the request"),
    ("/r", {}, three, "takes the request"),
    ("/r", {}, named, "takes the request"),
    ("/r", {}, of_a_class, "stands within a class"),
    ("/r", {}, yields, "yields"),
]


@APPS
@pytest.mark.parametrize(("path", "options", "function", "words"), WRONG, ids=[str(n) for n in range(len(WRONG))])
def test_what_cannot_be_a_route_is_refused_in_words(
    made: Any, path: Any, options: Any, function: Any, words: str
) -> None:
    app = made("app")
    app.route("/taken")(one_argument)
    with pytest.raises(LocalError, match=words):
        app.route(path, **options)(function)
    assert [one.path for one in behind(app)._own_routes] == ["/taken"]
