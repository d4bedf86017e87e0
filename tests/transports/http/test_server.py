"""The native HTTP front: order, closing, endpoints of one's own, options."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import sys

import pytest
import trustme

from dragoman.channel import Channel, Document, Exchange, Listener, Options
from dragoman.jsonrpc.errors import LocalError, Refusal
from dragoman.jsonrpc.limits import Limits
from dragoman.rpc.servable import ServableService
from dragoman.transports.http.app import HttpRequest, Reply
from dragoman.transports.http.asgi_socket import AsgiSocket
from dragoman.transports.http.connection import PIPELINE, ResponseWriter, RpcExchange
from dragoman.transports.http.known_heads import KNOWN_HEADS
from dragoman.transports.http.listener import HttpListener, listen
from dragoman.transports.http.parse import split_target
from dragoman.transports.http.websocket import WebSocket
from tests.behind import behind
from tests.calculator import calculator
from tests.servable import refused

from ..ends import options, until
from .cases import ANSWER, CALL, NOTE, PATIENCE, answer, chunked, error, get, post, rest
from .ends import Scripted, asked, native, port_of, reading, wire

# -- order ----------------------------------------------------------------------------------------


async def test_answers_in_the_order_of_the_requests() -> None:
    scripted = Scripted()
    async with asked(scripted) as (_, reader, writer):
        writer.write(post(b"1") + get("/live") + post(b"2") + post(b"3"))
        first, second, third = [await scripted.next() for _ in range(3)]
        third.respond(b"three")
        second.respond(None)
        first.respond(b"one")
        assert [(await answer(reader)).body for _ in range(2)] == [b"one", b'{"status":"live"}']
        assert (await answer(reader)).status == 204
        assert (await answer(reader)).body == b"three"


async def test_pipelining_is_bounded() -> None:
    scripted = Scripted()
    async with asked(scripted) as (_, reader, writer):
        count = PIPELINE + 10
        writer.write(b"".join(post(b"%d" % i) for i in range(count)))
        begun: list[Exchange] = [await scripted.next() for _ in range(PIPELINE)]
        assert scripted.exchanges.empty()
        for x in begun[:10]:
            x.respond(x.request)
        begun += [await scripted.next() for _ in range(10)]
        for x in begun[10:]:
            x.respond(x.request)
        assert [(await answer(reader)).body for _ in range(count)] == [b"%d" % i for i in range(count)]


async def test_known_heads_are_kept_and_forgotten() -> None:
    """A head that comes again is known; many different ones leave no more than a bounded trace."""
    async with asked(ServableService(behind(calculator()))) as (listener, reader, writer):
        for _ in range(2):
            writer.write(post())
            assert (await answer(reader)).body == ANSWER
        assert list(listener.heads.exact) == [post().partition(b"\r\n\r\n")[0]]
        most = 0
        for number in range(1500):
            for _ in range(3):
                writer.write(post(more=f"Mcp-Name: {number}\r\n"))
                assert (await answer(reader)).body == ANSWER
            most = max(most, len(listener.heads.kept), len(listener.heads.exact))
        assert most == KNOWN_HEADS


async def test_heads_of_other_kinds_are_not_kept() -> None:
    kinds = [
        get("/live"),
        post(more="Expect: 100-continue\r\n"),
        post(more="Origin: https://example.com\r\n"),
        post(kind="text/plain"),
        post(b""),
        chunked(CALL),
        post(version="1.0", more="Connection: keep-alive\r\n"),
    ]
    async with asked(ServableService(behind(calculator()))) as (listener, reader, writer):
        for kind in kinds * 3:
            writer.write(kind)
            await answer(reader)
        assert not listener.heads.kept
        assert not listener.heads.exact


async def test_a_known_head_has_its_own_caller() -> None:
    scripted = Scripted(lambda x: x.respond(x.caller.headers["x-id"].encode()))
    async with native({"": scripted}, Options()) as listener:
        for _ in range(3):
            async with wire(port_of(listener)) as (reader, writer):
                writer.write(post(more="X-Id: one\r\n") + post(more="X-Id: two\r\nX-Id: three\r\n"))
                assert (await answer(reader)).body == b"one"
                assert (await answer(reader)).body == b"two, three"
                x = await scripted.next()
                assert x.caller.remote == "{}:{}".format(*writer.get_extra_info("sockname"))
                assert (x.caller.scheme, x.caller.path, x.caller.tls) == ("http", "/", False)
                await scripted.next()


async def test_busy_draining_and_too_large() -> None:
    scripted = Scripted()
    async with asked(scripted) as (_, reader, writer):
        for kind, status, after in (("busy", 503, "7"), ("draining", 503, "7"), ("too_large", 413, None)):
            writer.write(post())
            (await scripted.next()).respond(refused(Refusal(kind, "no", {"retry_after": 7})))
            got = await answer(reader)
            assert (got.status, got.body, got.headers.get("retry-after")) == (status, b"{}", after)
        writer.write(post())
        (await scripted.next()).respond(refused(Refusal("busy", "no"), None))
        got = await answer(reader)
        assert (got.status, got.body, got.headers.get("content-type")) == (503, b"", None)
        writer.write(post())
        (await scripted.next()).respond(refused(Refusal("timed_out", "late")))
        assert (await answer(reader)).status == 200
        scripted.call_limit.draining = True
        for path, found in (("/ready", (503, b'{"status":"draining"}')), ("/live", (200, b'{"status":"live"}'))):
            writer.write(get(path))
            got = await answer(reader)
            assert (got.status, got.body) == found


async def test_what_is_served_raises() -> None:
    def raises(x: Exchange) -> None:
        raise RuntimeError("secret")

    async with asked(Scripted(raises)) as (_, reader, writer):
        writer.write(post())
        got = await answer(reader)
        assert (got.status, json.loads(got.body)["id"]) == (200, 1)
        fault = error(got.body)
        assert (fault["code"], fault["message"], list(fault["data"])) == (-32603, "Internal error", ["reference"])
        writer.write(post(NOTE) + post())
        assert (await answer(reader)).status == 204
        assert error((await answer(reader)).body)["code"] == -32603  # and the wire lives


async def test_documents() -> None:
    def fails() -> bytes:
        raise RuntimeError("secret")

    documents = {"/doc": Document("text/x", lambda: b"text"), "/bad": Document("text/x", fails)}
    async with asked(Scripted(documents=documents)) as (_, reader, writer):
        writer.write(get("/doc") + get("/bad"))
        got = await answer(reader)
        assert (got.body, got.headers["content-type"]) == (b"text", "text/x")
        assert (await answer(reader)).status == 500


# -- closing --------------------------------------------------------------------------------------


async def test_closing() -> None:
    """Idle connections end immediately, busy ones after their answers, and no new one is accepted."""
    scripted = Scripted()
    listener = await listen("http://127.0.0.1:0", {"": scripted}, Options())
    port = port_of(listener)
    async with wire(port) as (idle, _), wire(port) as (reader, writer), wire(port) as (half, half_writer):
        writer.write(post(b"1") + post(b"2"))
        half_writer.write(post()[:20])
        first, second = await scripted.next(), await scripted.next()
        await until(lambda: len(listener.wires) == 3)
        await listener.close()
        assert await rest(idle) == b""
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", port)
        over = asyncio.create_task(listener.closed())
        got = await answer(half)
        assert (got.status, got.headers["connection"], got.headers["retry-after"]) == (503, "close", "1")
        half_writer.close()
        second.respond(b"two")
        first.respond(b"one")
        got = await answer(reader)
        assert (got.body, got.headers.get("connection")) == (b"one", None)
        got = await answer(reader)
        assert (got.body, got.headers["connection"]) == (b"two", "close")
        writer.close()
        async with asyncio.timeout(PATIENCE):
            await over


async def test_closed_cuts_off_what_does_not_end() -> None:
    scripted = Scripted()
    listener = await listen("http://127.0.0.1:0", {"": scripted}, options(drain_timeout=0.05))
    async with wire(port_of(listener)) as (_reader, writer):
        writer.write(post())
        x = await scripted.next()
        gone = asyncio.Event()
        x.gone = gone.set
        await listener.close()
        await listener.closed()
        assert gone.is_set()


# -- endpoints of one's own -----------------------------------------------------------------------


async def test_endpoints(caplog: pytest.LogCaptureFixture) -> None:
    seen: list[HttpRequest] = []

    def plain(request: HttpRequest, reply: Reply) -> None:
        seen.append(request)
        reply.respond(418, (("X-Kind", "pot"),), request.body)
        reply.respond(200)  # one answer, whatever comes

    def stream(request: HttpRequest, reply: Reply) -> None:
        reply.start(200, (("Content-Type", "text/event-stream"),))
        for chunk in (b"one", b"", b"two"):
            reply.write(chunk)
        reply.finish()
        reply.write(b"late")

    def bad(request: HttpRequest, reply: Reply) -> None:
        raise RuntimeError("secret")

    def worse(request: HttpRequest, reply: Reply) -> None:
        reply.start(200)
        raise RuntimeError("secret")

    def injected(request: HttpRequest, reply: Reply) -> None:
        reply.respond(200, (("X", "a\r\nY: b"),))

    ends = {"": plain, "/stream": stream, "/bad": bad, "/worse": worse, "/injected": injected}
    async with native({"/mcp": Scripted(endpoints=ends)}, Options()) as listener:
        async with wire(port_of(listener)) as (reader, writer):
            writer.write(
                get("/mcp?a=%20b", method="DELETE", more="Mcp-Id: 1\r\n") + post(b"body", path="/mcp", kind=None)
            )
            for body in (b"", b"body"):
                got = await answer(reader)
                assert (got.status, got.body, got.headers["x-kind"]) == (418, body, "pot")
            assert (seen[0].method, seen[0].path, seen[0].query) == ("DELETE", "/mcp", "a=%20b")
            assert seen[0].headers["mcp-id"] == "1"
            writer.write(get("/mcp/stream") + get("/mcp/bad") + get("/mcp/injected") + get("/mcp/nope"))
            got = await answer(reader)
            assert (got.body, got.headers["transfer-encoding"]) == (b"onetwo", "chunked")
            assert [(await answer(reader)).status for _ in range(3)] == [500, 500, 404]
            writer.write(get("/mcp/stream", method="HEAD") + get("/mcp/stream", version="1.0"))
            assert (await answer(reader, to="HEAD")).status == 200
            got = await answer(reader)
            assert (got.body, got.headers["connection"]) == (b"onetwo", "close")
        async with wire(port_of(listener)) as (reader, writer):
            writer.write(get("/mcp/worse"))
            assert b"HTTP/1.1 2" not in await rest(reader)
    raised = [one.getMessage() for one in caplog.records if one.exc_info]
    assert raised == [f"The endpoint at /mcp/{name} raised" for name in ("bad", "injected", "worse")]


async def test_a_stream_is_held_back_and_let_go() -> None:
    replies: asyncio.Queue[Reply] = asyncio.Queue()
    scripted = Scripted(endpoints={"": lambda request, reply: replies.put_nowait(reply)})
    async with asked(scripted, options(send_queue=50_000), narrow=True) as (_, reader, writer):
        reading(writer, False)
        writer.write(get() + get())
        first, second = await replies.get(), await replies.get()
        resumed, gone = asyncio.Event(), asyncio.Event()
        first.resumed, first.gone, second.gone = resumed.set, gone.set, gone.set
        second.start(200)
        second.write(b"x" * 60_000)
        assert not second.writable  # it is not its turn yet
        first.start(200)
        written = 0
        while first.writable:
            first.write(b"x" * 10_000)
            written += 10_000
            await asyncio.sleep(0)
        assert not first.writable
        reading(writer, True)
        async with asyncio.timeout(PATIENCE):
            await resumed.wait()
        assert first.writable
        resumed.clear()
        second.resumed = resumed.set
        first.finish()
        assert len((await answer(reader)).body) == written
        async with asyncio.timeout(PATIENCE):
            await resumed.wait()
        await reader.readuntil(b"\r\n\r\n")
        assert not gone.is_set()
        writer.transport.abort()
        async with asyncio.timeout(PATIENCE):
            while not gone.is_set():
                if sys.platform == "win32":  # there it only says that no more requests come: a write tells the rest
                    second.write(b"x")
                await asyncio.sleep(0.01)
        assert not second.writable
        second.write(b"late")
        second.finish()


# -- options --------------------------------------------------------------------------------------


async def test_cors_is_by_choice() -> None:
    options = Options(cors=["https://App.example"])
    async with asked(ServableService(behind(calculator())), options) as (_, reader, writer):
        origin = "Origin: https://app.example\r\n"
        ask = origin + "Access-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: x-a\r\n"
        writer.write(get(method="OPTIONS", more=ask))
        got = await answer(reader)
        assert (got.status, got.headers["access-control-allow-origin"]) == (204, "https://app.example")
        assert got.headers["access-control-allow-headers"] == "x-a"
        assert "POST" in got.headers["access-control-allow-methods"]
        for request, body in ((post(more=origin), ANSWER), (post(), ANSWER), (post(NOTE, more=origin), b"")):
            for _ in range(3):
                writer.write(request)
                got = await answer(reader)
                assert got.body == body
                assert got.headers["vary"] == "Origin"
                assert ("access-control-allow-origin" in got.headers) == (origin.encode() in request)
                exposed = got.headers.get("access-control-expose-headers", "")
                assert ("Mcp-Session-Id" in exposed and "WWW-Authenticate" in exposed) == (origin.encode() in request)
        writer.write(get(method="OPTIONS", more="Origin: http://localhost\r\nAccess-Control-Request-Method: POST\r\n"))
        assert (await answer(reader)).status == 405
        writer.write(post(more="Origin: https://other.example\r\n"))
        assert (await answer(reader)).status == 403


async def test_hosts_and_origins_by_choice() -> None:
    options = Options(hosts=["api.example", "::1"], origins=["https://app.example"])
    async with asked(ServableService(behind(calculator())), options) as (_listener, reader, writer):
        for host, status in (("api.example", 200), ("API.example:80", 200), ("[::1]:1", 200), ("localhost", 421)):
            writer.write(post(host=host))
            assert (await answer(reader)).status == status
        for origin, status in (("https://app.example", 200), ("http://localhost", 403)):
            writer.write(post(host="api.example", more=f"Origin: {origin}\r\n"))
            assert (await answer(reader)).status == status
    options = Options(hosts=["*"], origins=["*"])
    async with asked(ServableService(behind(calculator())), options) as (_, reader, writer):
        writer.write(post(host="any.example", more="Origin: https://any.example\r\n"))
        assert (await answer(reader)).status == 200


NAME = socket.gethostname()


@pytest.mark.parametrize(
    ("host", "origin", "status"),
    [
        ("127.0.0.1:80", None, 200),
        ("192.0.2.7", None, 200),
        ("[2001:db8::1]:8000", None, 200),
        ("localhost", None, 200),
        (f"{NAME}:8000", None, 200),
        (f"{NAME.upper()}", None, 200),
        ("any.example", None, 421),
        (f"{NAME}.any.example", None, 421),
        ("192.0.2.7.any.example", None, 421),
        ("0x7f000001", None, 421),
        ("any.example", "https://any.example", 421),
        ("192.0.2.7", "https://any.example", 403),
        ("192.0.2.7", "null", 403),
        ("192.0.2.7", "http://192.0.2.8", 403),
        ("192.0.2.7:8000", "http://192.0.2.7:3000", 403),
        ("192.0.2.7:8000", "http://localhost:8000", 403),
        ("192.0.2.7:8000", "http://192.0.2.7:8000", 200),
        (f"{NAME}:8000", f"https://{NAME}:8000", 200),
        ("localhost:8000", "http://localhost:8000", 200),
    ],
)
async def test_off_loopback_what_is_foreign_is_refused(host: str, origin: str | None, status: int) -> None:
    async with asked(ServableService(behind(calculator())), Options(), "http://0.0.0.0:0") as (_, reader, writer):
        more = "" if origin is None else f"Origin: {origin}\r\n"
        writer.write(post(host=host, more=more))
        got = await answer(reader)
        assert got.status == status
        if status != 200:
            assert (b"hosts" if status == 421 else b"origins") in got.body
        for path in ("/live", "/ready"):
            writer.write(post(path=path, host=host).replace(b"POST", b"GET"))
            assert (await answer(reader)).status == 200


async def test_off_loopback_what_is_named_comes_in() -> None:
    options = Options(hosts=["any.example"], origins=["https://page.example"])
    async with asked(ServableService(behind(calculator())), options, "http://0.0.0.0:0") as (_, reader, writer):
        for host, origin, status in (
            ("any.example", "https://page.example", 200),
            ("any.example", "https://any.example", 403),
            ("192.0.2.7", "https://page.example", 421),
        ):
            writer.write(post(host=host, more=f"Origin: {origin}\r\n"))
            assert (await answer(reader)).status == status


async def test_with_hosts_alone_the_pages_of_the_server_come_in() -> None:
    async with asked(ServableService(behind(calculator())), Options(hosts=["any.example"]), "http://0.0.0.0:0") as (
        _,
        reader,
        writer,
    ):
        for origin, status in (("https://any.example", 200), ("https://page.example", 403)):
            writer.write(post(host="any.example", more=f"Origin: {origin}\r\n"))
            assert (await answer(reader)).status == status
    async with asked(ServableService(behind(calculator())), Options(hosts=["*"]), "http://0.0.0.0:0") as (
        _,
        reader,
        writer,
    ):
        writer.write(post(host="any.example", more="Origin: https://any.example\r\n"))
        assert (await answer(reader)).status == 403  # any page can say that of itself


@pytest.mark.parametrize(
    ("allowed", "good", "bad"),
    [
        ("example.com:8080", "example.com:8080", "example.com"),
        ("example.com:8080", "Example.com:8080", "example.com:80"),
        ("[::1]", "[::1]", "[::2]"),
        ("[::1]", "[::1]:8000", "::1"),
        ("::1", "[::1]:8000", "localhost"),
        ("example.com", "example.com:8080", "other.example.com"),
    ],
)
async def test_a_host_with_a_port_and_one_in_brackets(allowed: str, good: str, bad: str) -> None:
    async with asked(ServableService(behind(calculator())), Options(hosts=allowed)) as (_, reader, writer):
        writer.write(post(host=good))
        assert (await answer(reader)).status == 200
        writer.write(post(host=bad))
        assert (await answer(reader)).status in (400, 421)


async def test_origins_that_are_always_new_are_not_kept_without_end() -> None:
    async with asked(ServableService(behind(calculator())), Options(origins=["*"])) as (listener, reader, writer):
        for number in range(300):
            writer.write(post(more=f"Origin: https://a{number}.example\r\n"))
            assert (await answer(reader)).status == 200
        assert 0 < len(listener.app.guard._checked) <= 256


async def test_a_request_behind_the_last_one_does_not_run() -> None:
    """The first one says that nothing follows; its head is new, then known."""
    for _ in range(3):
        scripted = Scripted(lambda x: x.respond(x.request))
        async with asked(scripted) as (_, reader, writer):
            writer.write(post(b"1", more="Connection: close\r\n") + post(b"2"))
            assert (await answer(reader)).body == b"1"
            assert await rest(reader) == b""
        assert scripted.exchanges.qsize() == 1


async def test_a_request_behind_a_body_that_ends_with_the_wire_does_not_run() -> None:
    """HTTP/1.0 has no chunks: a stream's end is the end of the wire, whatever the caller wished for."""
    ran: list[str] = []

    def streams(request: HttpRequest, reply: Reply) -> None:
        ran.append(request.path)
        reply.start(200)
        reply.finish(b"all")

    async with asked(Scripted(endpoints={"": streams})) as (_, reader, writer):
        writer.write(2 * get(version="1.0", more="Connection: keep-alive\r\n"))
        assert (await answer(reader)).body == b"all"
    assert ran == ["/"]


async def test_without_websockets_an_upgrade_is_501(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dragoman.transports.http.websocket", None)  # as if its package were not there
    async with asked(Scripted()) as (_, reader, writer):
        lines = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        writer.write(get(more=lines + "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"))
        got = await answer(reader)
        assert (got.status, got.headers["connection"]) == (501, "close")
        assert b"dragoman[websocket]" in got.body


async def test_the_path_of_the_url() -> None:
    what = {"": ServableService(behind(calculator())), "/b": ServableService(behind(calculator()))}
    async with native(what, Options(), "http://127.0.0.1:0/api/") as listener:
        assert listener.url.endswith("/api/")
        async with wire(port_of(listener)) as (reader, writer):
            for path, status in (
                ("/api/", 200),
                ("/api/b", 200),
                ("/api", 200),
                ("/api/b/", 200),
                ("/api//", 404),
                ("/", 404),
                ("/b", 404),
            ):
                writer.write(post(path=path))
                assert (await answer(reader)).status == status
            writer.write(get("/api/openrpc.json") + get("/api/b/openrpc.json") + get("/live"))
            assert [(await answer(reader)).status for _ in range(3)] == [200] * 3


@pytest.mark.parametrize("end", ["in time", "with the listener"])
async def test_tls_handshakes_count_as_channels(end: str) -> None:
    """A caller that begins one and says nothing takes a place, but not for long."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority = trustme.CA()
    authority.issue_cert("127.0.0.1").configure_cert(context)
    limits = Limits(channels=2, header_timeout=2.0 if end == "in time" else None)
    async with native(
        {"": ServableService(behind(calculator()))}, Options(limits=limits, server_tls=context), "https://127.0.0.1:0"
    ) as listener:
        port = port_of(listener)
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
        await until(listener.full)
        async with wire(port) as (reader, _):
            assert await rest(reader) == b""  # turned away immediately
        if end == "in time":
            await until(lambda: not listener.full())
            trusted = ssl.create_default_context()
            authority.configure_trust(trusted)
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusted)
            writer.write(post())
            assert (await answer(reader)).body == ANSWER
            silent.append((reader, writer))
    for reader, writer in silent:
        assert await rest(reader) == b""
        writer.close()


async def test_tls() -> None:
    authority = trustme.CA()
    server, client = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH), ssl.create_default_context()
    authority.issue_cert("localhost").configure_cert(server)
    authority.configure_trust(client)
    scripted = Scripted(lambda x: x.respond(f"{x.caller.scheme} {x.caller.tls}".encode()))
    async with native({"": scripted}, Options(server_tls=server), "https://localhost:0") as listener:
        reader, writer = await asyncio.open_connection("localhost", port_of(listener), ssl=client)
        writer.write(post() + post(more="Connection: close\r\n"))
        for _ in range(2):
            assert (await answer(reader)).body == b"https True"
        assert await rest(reader) == b""
        writer.close()
        await writer.wait_closed()
        reader, writer = await asyncio.open_connection("localhost", port_of(listener), ssl=client)
        writer.write(b"nonsense\r\n\r\n")
        assert (await answer(reader)).status == 400
        writer.close()
        await writer.wait_closed()


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("https://127.0.0.1:0", "tls="),
        ("wss://127.0.0.1:0", "tls="),
        ("tcp://127.0.0.1:1", "http://"),
        ("http://192.0.2.1:1", "not an address of this machine"),
    ],
)
async def test_what_cannot_be_listened_on(url: str, words: str) -> None:
    with pytest.raises(LocalError, match=words):
        await listen(url, {"": Scripted()}, Options())


@pytest.mark.parametrize(
    ("target", "parts"),
    [
        (b"/", ("/", "", None)),
        (b"/a%20b?c=%20?d", ("/a b", "c=%20?d", None)),
        (b"*", ("*", "", None)),
        (b"http://a:1", ("/", "", b"a:1")),
        (b"HTTPS://a?b", ("/", "b", b"a")),
        (b"http://a/b/c", ("/b/c", "", b"a")),
    ],
)
def test_split_target(target: bytes, parts: tuple[str, str, bytes | None]) -> None:
    assert split_target(target) == parts


@pytest.mark.parametrize("target", [b"a", b"ftp://a/", b"/#", b"/%ff", b"a:80", b""])
def test_split_target_refuses(target: bytes) -> None:
    with pytest.raises(ValueError):
        split_target(target)


async def test_peers_write_no_tracebacks(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", "dragoman.http")
    async with asked(ServableService(behind(calculator()))) as (_, reader, writer):
        writer.write(b"\x00\x1b[31m evil\r\n\r\n")
        assert (await answer(reader)).status == 400
    assert caplog.records
    for record in caplog.records:
        assert record.levelname == "DEBUG"
        assert record.exc_info is None
        assert record.getMessage().isprintable()


def contracts(
    listener: HttpListener, post: RpcExchange, told: ResponseWriter, socket: WebSocket, carried: AsgiSocket
) -> tuple[Listener, Exchange, Reply, Channel, Channel]:
    """Never called: mypy sees here that each keeps its contract."""
    return listener, post, told, socket, carried
