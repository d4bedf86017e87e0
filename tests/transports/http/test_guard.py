"""The guard over HTTP, on the native front and as an ASGI application: it decides before a body is read."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from websockets.asyncio.client import connect as ws_connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.frames import Close, CloseCode

from dragoman import Context, Service, http_app, serve
from dragoman.channel import Admitted, Denied, Handshake, Identity, Options
from dragoman.jsonrpc.limits import Limits
from dragoman.rpc.servable import ServableService
from dragoman.transports.http.app import HttpRequest, Reply
from tests.behind import behind

from ..ends import until
from .cases import CALL, PATIENCE, answer, error, get, post, rest
from .ends import Scripted, asgi, asked, face, native, port_of, wire

FACES = pytest.mark.parametrize("kind", ["native", "asgi"])
BEARER = "Authorization: Bearer ada\r\n"


class RecordingGuard:
    """A guard that admits callers with a bearer token, and remembers the handshakes that it saw."""

    def __init__(self) -> None:
        self.seen: list[Handshake] = []
        self.headers: tuple[tuple[str, str], ...] = (("X-Admitted", "yes"),)
        self.lasts: float | None = None
        self.wait: Callable[[], Awaitable[object]] = lambda: asyncio.sleep(0)

    async def __call__(self, handshake: Handshake) -> Admitted | Denied:
        self.seen.append(handshake)
        await self.wait()
        token = dict(handshake.headers).get(b"authorization", b"").decode()
        if not token.startswith("Bearer "):
            return Denied(reason="Show a token", headers=[("WWW-Authenticate", 'Bearer realm="here"')])
        if token == "Bearer eve":
            return Denied(reason="Not you", status=403)
        who = Identity(subject=token.removeprefix("Bearer "), scopes=frozenset({"read"}))
        expires = None if self.lasts is None else time.time() + self.lasts
        return Admitted(identity=who, headers=self.headers, expires=expires)


def telling() -> Service:
    api = Service("telling")

    @api.method(inline=True)
    def who(context: Context) -> str:
        identity = context.caller.identity
        return "anonymous" if identity is None else identity.subject

    @api.method(inline=True)
    def note() -> None: ...

    return api


WHO = b'{"jsonrpc":"2.0","method":"who","id":1}'


@FACES
async def test_admitted_and_denied_callers(kind: str) -> None:
    guard = RecordingGuard()
    async with (
        face(kind, {"": ServableService(behind(telling()))}, Options(guard=guard)) as port,
        wire(port) as (reader, writer),
    ):
        for _ in range(4):  # the head is known by then, and the guard is asked all the same
            writer.write(post(WHO, more=BEARER))
            got = await answer(reader)
            assert (got.status, json.loads(got.body)["result"]) == (200, "ada")
            assert got.headers["x-admitted"] == "yes"
            writer.write(post(WHO))
            got = await answer(reader)
            assert (got.status, got.headers["www-authenticate"]) == (401, 'Bearer realm="here"')
            assert error(got.body)["message"] == "Show a token"
            assert "x-admitted" not in got.headers
            writer.write(post(b'{"jsonrpc":"2.0","method":"note"}', more=BEARER))
            got = await answer(reader)
            assert (got.status, got.headers["x-admitted"]) == (204, "yes")
            writer.write(post(WHO, more=BEARER.replace("ada", "eve")))
            assert (await answer(reader)).status == 403
        assert len(guard.seen) == 16


@FACES
async def test_what_the_guard_sees(kind: str) -> None:
    guard = RecordingGuard()
    async with (
        face(kind, {"/rpc": Scripted(lambda x: x.respond(b"1"))}, Options(guard=guard)) as port,
        wire(port) as (reader, writer),
    ):
        writer.write(post(path="/rpc?a=%20b", more=f"{BEARER}X-Two: 1\r\nX-Two: 2\r\n"))
        assert (await answer(reader)).body == b"1"
        name = writer.get_extra_info("sockname")
    [seen] = guard.seen
    assert (seen.scheme, seen.method, seen.url) == ("http", "POST", "http://127.0.0.1/rpc?a=%20b")
    assert [value for field, value in seen.headers if field == b"x-two"] == [b"1", b"2"]
    assert (seen.remote, seen.certificate, seen.credentials) == ("{}:{}".format(*name), None, None)


@FACES
async def test_the_guard_sees_the_length_of_each_body(kind: str) -> None:
    guard = RecordingGuard()
    async with (
        face(kind, {"": Scripted(lambda x: x.respond(b"1"))}, Options(guard=guard)) as port,
        wire(port) as (reader, writer),
    ):
        for length in (20, 20, 21, 30, 20):
            writer.write(post(b"x" * length, more=BEARER))
            assert (await answer(reader)).body == b"1"
            assert dict(guard.seen[-1].headers)[b"content-length"] == b"%d" % length


@FACES
async def test_health_needs_no_admission(kind: str) -> None:
    guard = RecordingGuard()
    async with (
        face(kind, {"": ServableService(behind(telling()))}, Options(guard=guard)) as port,
        wire(port) as (reader, writer),
    ):
        for path, method, status in (
            ("/live", "GET", 200),
            ("/ready", "HEAD", 200),
            ("/nope", "GET", 404),
            ("/", "GET", 405),
            ("/openrpc.json", "GET", 401),
        ):
            writer.write(get(path, method=method))
            assert (await answer(reader, to=method)).status == status
        assert [one.url for one in guard.seen] == ["http://localhost/openrpc.json"]
        writer.write(get("/openrpc.json", more=BEARER))
        got = await answer(reader)
        assert (got.status, got.headers["x-admitted"]) == (200, "yes")


@FACES
async def test_a_guard_that_raises_or_never_decides(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    async def raises(handshake: Handshake) -> Admitted | Denied:
        raise RuntimeError("secret")

    async def hangs(handshake: Handshake) -> Admitted | Denied:
        await asyncio.Event().wait()
        raise AssertionError

    for guard, status in ((raises, 500), (hangs, 503)):
        options = Options(guard=guard, limits=Limits(guard_timeout=0.1))
        scripted = Scripted()
        async with face(kind, {"": scripted}, options) as port, wire(port) as (reader, writer):
            writer.write(post())
            got = await answer(reader)
            assert got.status == status
            assert b"secret" not in got.body
            assert ("retry-after" in got.headers) == (status == 503)
            assert scripted.exchanges.empty()
    assert any("reference" in record.message and record.exc_info for record in caplog.records)


@FACES
async def test_endpoints_and_streams(kind: str) -> None:
    def streams(request: HttpRequest, reply: Reply) -> None:
        assert request.caller.identity is not None
        reply.start(200, (("Content-Type", "text/plain"),))
        reply.finish(request.caller.identity.subject.encode())

    def plain(request: HttpRequest, reply: Reply) -> None:
        reply.respond(200, (("Content-Type", "text/plain"),), b"plain")

    scripted = Scripted(endpoints={"/streams": streams, "/plain": plain})
    async with face(kind, {"": scripted}, Options(guard=RecordingGuard())) as port, wire(port) as (reader, writer):
        for path, body in (("/streams", b"ada"), ("/plain", b"plain")):
            writer.write(get(path, more=BEARER))
            got = await answer(reader)
            assert (got.body, got.headers["x-admitted"]) == (body, "yes")
            writer.write(get(path))
            got = await answer(reader)
            assert (got.status, json.loads(got.body)) == (
                401,
                {"jsonrpc": "2.0", "error": {"code": -32600, "message": "Show a token"}},
            )


# -- before the body ------------------------------------------------------------------------------

HEAD = "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{}Content-Length: {}\r\n\r\n"


async def test_the_body_of_a_denied_request_is_not_waited_for() -> None:
    for more in ("", "Expect: 100-continue\r\n"):
        async with asked(Scripted(), Options(guard=RecordingGuard())) as (_, reader, writer):
            writer.write(HEAD.format(more, 1_000_000).encode())
            got = await answer(reader)
            assert (got.status, got.interim, got.headers["connection"]) == (401, (), "close")
            assert await rest(reader) == b""


async def test_a_body_is_asked_for_once_its_request_is_let_in() -> None:
    guard, scripted = RecordingGuard(), Scripted(lambda x: x.respond(b"1"))
    go = asyncio.Event()
    guard.wait = go.wait
    async with asked(scripted, Options(guard=guard)) as (_, reader, writer):
        writer.write(HEAD.format(BEARER + "Expect: 100-continue\r\n", len(CALL)).encode())
        await until(lambda: guard.seen)
        go.set()
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(CALL)
        assert (await answer(reader)).body == b"1"
        assert (await scripted.next()).request == CALL
        writer.write(post(more=BEARER))
        assert (await answer(reader)).body == b"1"


async def test_nothing_is_read_while_the_guard_decides() -> None:
    guard, scripted = RecordingGuard(), Scripted(lambda x: x.respond(b"1"))
    go = asyncio.Event()
    guard.wait = go.wait
    size = 3_000_000
    async with asked(scripted, Options(guard=guard), narrow=True) as (listener, reader, writer):
        writer.write(HEAD.format(BEARER, size).encode())
        await until(lambda: guard.seen)
        writer.write(b" " * size)
        sent = asyncio.ensure_future(writer.drain())
        [connection] = listener.wires
        await asyncio.sleep(0.05)
        assert connection.parser.received < 300_000  # type: ignore[union-attr]
        go.set()
        assert (await answer(reader)).body == b"1"
        assert len((await scripted.next()).request) == size
        await sent


async def test_pipelined_requests_are_admitted_and_answered_in_their_order() -> None:
    guard = RecordingGuard()
    requests = [post(b"%d" % n, more=BEARER if n % 3 else "") for n in range(30)]
    async with asked(Scripted(lambda x: x.respond(x.request)), Options(guard=guard)) as (_, reader, writer):
        for _ in range(2):
            writer.write(b"".join(requests))
            for n in range(30):
                got = await answer(reader)
                assert (got.status, got.body) == (200, b"%d" % n) if n % 3 else (401, got.body)
        writer.write(requests[1] + requests[2][:-1])
        assert (await answer(reader)).body == b"1"
        writer.write(requests[2][-1:] + requests[4])
        assert [(await answer(reader)).body for _ in range(2)] == [b"2", b"4"]


async def test_a_caller_that_leaves_ends_the_guards_work() -> None:
    guard = RecordingGuard()
    cancelled = asyncio.Event()

    async def wait() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    guard.wait = wait
    async with native({"": Scripted()}, Options(guard=guard)) as listener, wire(port_of(listener)) as (_, writer):
        writer.write(post())
        await until(lambda: guard.seen)
        writer.transport.abort()
        async with asyncio.timeout(PATIENCE):
            await cancelled.wait()


async def test_a_body_that_is_too_slow_or_too_large_after_it_was_let_in() -> None:
    limits = Limits(body_timeout=0.1, message_size=1000)
    async with native({"": Scripted()}, Options(guard=RecordingGuard(), limits=limits)) as listener:
        for sent, status in (
            (HEAD.format(BEARER, 100).encode() + b"1", 408),
            (HEAD.format(BEARER, 1001).encode(), 413),
            (
                HEAD.format(BEARER, 1).encode().replace(b"Content-Length: 1", b"Transfer-Encoding: chunked")
                + b"400\r\n"
                + b"x" * 1024,
                413,
            ),
        ):
            async with wire(port_of(listener)) as (reader, writer):
                writer.write(sent)
                got = await answer(reader)
                assert (got.status, got.headers["connection"]) == (status, "close")
                assert await rest(reader) == b""


async def test_a_listener_closes_while_the_guard_decides() -> None:
    guard = RecordingGuard()
    go = asyncio.Event()
    guard.wait = go.wait
    async with (
        native({"": Scripted(lambda x: x.respond(b"1"))}, Options(guard=guard)) as listener,
        wire(port_of(listener)) as (reader, writer),
    ):
        writer.write(post(more=BEARER))
        await until(lambda: guard.seen)
        await listener.close()
        go.set()
        got = await answer(reader)
        assert (got.status, got.headers["connection"]) == (200, "close")


# -- WebSocket ------------------------------------------------------------------------------------


@FACES
async def test_a_websocket_is_accepted_when_the_guard_has_admitted_it(kind: str) -> None:
    guard = RecordingGuard()
    async with face(kind, {"": ServableService(behind(telling()))}, Options(guard=guard)) as port:
        url = f"ws://127.0.0.1:{port}/"
        with pytest.raises(InvalidStatus) as refused:
            await ws_connect(url, proxy=None)
        assert refused.value.response.status_code == 401
        assert refused.value.response.headers["WWW-Authenticate"] == 'Bearer realm="here"'
        async with ws_connect(url, proxy=None, additional_headers={"Authorization": "Bearer ada"}) as far:
            assert far.response is not None
            assert far.response.headers["X-Admitted"] == "yes"
            await far.send(WHO.decode())
            assert json.loads(await far.recv())["result"] == "ada"
        assert [(one.scheme, one.method) for one in guard.seen] == [("ws", "GET")] * 2
        guard.lasts = 0.2
        async with ws_connect(url, proxy=None, additional_headers={"Authorization": "Bearer ada"}) as far:
            with pytest.raises(ConnectionClosed) as ended:
                async with asyncio.timeout(PATIENCE):
                    await far.recv()
            assert ended.value.rcvd == Close(CloseCode.POLICY_VIOLATION, "The admission has expired")


async def test_what_comes_behind_a_handshake_waits_for_the_guard() -> None:
    guard = RecordingGuard()
    go = asyncio.Event()
    guard.wait = go.wait
    async with asked(ServableService(behind(telling())), Options(guard=guard)) as (_, reader, writer):
        lines = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        key = "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
        writer.write(get(more=lines + key + BEARER) + bytes([0x81, 0x80 | len(WHO), 0, 0, 0, 0]) + WHO[:9])
        await until(lambda: guard.seen)
        writer.write(WHO[9:])
        go.set()
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")
        head = await reader.readexactly(2)
        assert json.loads(await reader.readexactly(head[1]))["result"] == "ada"


# -- where it is given ----------------------------------------------------------------------------


async def test_serve_and_http_app_take_a_guard() -> None:
    guard = RecordingGuard()
    async with (
        serve(telling(), urls="http://127.0.0.1:0", guard=guard) as serving,
        wire(int(serving.urls[0].rpartition(":")[2])) as (reader, writer),
    ):
        writer.write(post(WHO))
        assert (await answer(reader)).status == 401
    app: Any = http_app(telling(), guard=guard)
    async with asgi(app) as port, wire(port) as (reader, writer):
        writer.write(post(WHO))
        assert (await answer(reader)).status == 401
    assert len(guard.seen) == 2
