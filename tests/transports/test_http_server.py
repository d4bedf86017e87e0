"""The native HTTP front: order, closing, endpoints of one's own, options."""

from __future__ import annotations

import asyncio
import ssl

import pytest
import trustme

from dragoman.channel import Channel, Document, Exchange, Listener, Options
from dragoman.jsonrpc.errors import LocalError, Refusal
from dragoman.rpc.host import Host
from dragoman.transports.asgi_socket import AsgiSocket
from dragoman.transports.http import HttpRequest, Reply
from dragoman.transports.http_front import KNOWN_HEADS, PIPELINE
from dragoman.transports.http_reader import split_target
from dragoman.transports.http_server import HttpListener, listen
from dragoman.transports.http_turns import Post, Told
from dragoman.transports.websocket import WebSocket
from tests.calculator import calculator

from .ends import options, until
from .http_cases import ANSWER, CALL, NOTE, PATIENCE, answer, chunked, error, get, post, rest
from .http_ends import Scripted, asked, native, port_of, reading, wire

# -- order ----------------------------------------------------------------------------------------


async def test_answers_in_the_order_of_the_requests() -> None:
    scripted = Scripted()
    async with asked(scripted) as (_, reader, writer):
        writer.write(post(b"1") + get("/health") + post(b"2") + post(b"3"))
        first, second, third = [await scripted.next() for _ in range(3)]
        third.respond(b"three")
        second.respond(None)
        first.respond(b"one")
        assert [(await answer(reader)).body for _ in range(2)] == [b"one", b'{"status":"ok"}']
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
    async with asked(Host(calculator())) as (listener, reader, writer):
        for _ in range(2):
            writer.write(post())
            assert (await answer(reader)).body == ANSWER
        assert list(listener.heads) == [post().partition(b"\r\n\r\n")[0]]
        most = 0
        for number in range(1500):
            for _ in range(3):
                writer.write(post(more=f"X-Id: {number}\r\n"))
                assert (await answer(reader)).body == ANSWER
            most = max(most, len(listener.heads))
        assert most == KNOWN_HEADS


async def test_heads_of_other_kinds_are_not_kept() -> None:
    kinds = [
        get("/health"),
        post(more="Expect: 100-continue\r\n"),
        post(more="Origin: https://example.com\r\n"),
        post(kind="text/plain"),
        post(b""),
        chunked(CALL),
        post(version="1.0", more="Connection: keep-alive\r\n"),
    ]
    async with asked(Host(calculator())) as (listener, reader, writer):
        for kind in kinds * 3:
            writer.write(kind)
            await answer(reader)
        assert not listener.heads


async def test_a_known_head_says_who_calls() -> None:
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
            (await scripted.next()).respond(b"{}", Refusal(kind, "no", {"retry_after": 7}))
            got = await answer(reader)
            assert (got.status, got.body, got.headers.get("retry-after")) == (status, b"{}", after)
        writer.write(post())
        (await scripted.next()).respond(None, Refusal("busy", "no"))
        got = await answer(reader)
        assert (got.status, got.body, got.headers.get("content-type")) == (503, b"", None)
        writer.write(post())
        (await scripted.next()).respond(b"{}", Refusal("timed_out", "late"))
        assert (await answer(reader)).status == 200
        scripted.gate.draining = True
        writer.write(get("/health"))
        got = await answer(reader)
        assert (got.status, got.body) == (503, b'{"status":"draining"}')


async def test_what_is_served_raises() -> None:
    def raises(x: Exchange) -> None:
        raise RuntimeError("secret")

    async with asked(Scripted(raises)) as (_, reader, writer):
        writer.write(post())
        got = await answer(reader)
        assert got.status == 500
        assert error(got.body) == {"code": -32603, "message": "Internal error"}


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
    """Idle wires go at once, busy ones after their answers, and nobody comes in."""
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
        assert (got.status, got.headers["connection"]) == (503, "close")
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


async def test_endpoints() -> None:
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
            await gone.wait()
        assert not second.writable
        second.write(b"late")
        second.finish()


# -- options --------------------------------------------------------------------------------------


async def test_cors_is_by_choice() -> None:
    options = Options(cors=["https://App.example"])
    async with asked(Host(calculator()), options) as (_, reader, writer):
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
        writer.write(get(method="OPTIONS", more="Origin: http://localhost\r\nAccess-Control-Request-Method: POST\r\n"))
        assert (await answer(reader)).status == 405
        writer.write(post(more="Origin: https://other.example\r\n"))
        assert (await answer(reader)).status == 403


async def test_hosts_and_origins_by_choice() -> None:
    options = Options(hosts=["api.example", "::1"], origins=["https://app.example"])
    async with asked(Host(calculator()), options) as (_listener, reader, writer):
        for host, status in (("api.example", 200), ("API.example:80", 200), ("[::1]:1", 200), ("localhost", 421)):
            writer.write(post(host=host))
            assert (await answer(reader)).status == status
        for origin, status in (("https://app.example", 200), ("http://localhost", 403)):
            writer.write(post(host="api.example", more=f"Origin: {origin}\r\n"))
            assert (await answer(reader)).status == status
    options = Options(hosts=["*"], origins=["*"])
    async with asked(Host(calculator()), options) as (_, reader, writer):
        writer.write(post(host="any.example", more="Origin: https://any.example\r\n"))
        assert (await answer(reader)).status == 200


async def test_bound_to_every_address_nothing_is_checked() -> None:
    async with asked(Host(calculator()), Options(), "http://0.0.0.0:0") as (_, reader, writer):
        writer.write(post(host="any.example", more="Origin: https://any.example\r\n"))
        assert (await answer(reader)).status == 200


async def test_the_path_of_the_url() -> None:
    what = {"": Host(calculator()), "/b": Host(calculator())}
    async with native(what, Options(), "http://127.0.0.1:0/api/") as listener:
        assert listener.url.endswith("/api")
        async with wire(port_of(listener)) as (reader, writer):
            for path, status in (("/api", 200), ("/api/b", 200), ("/api/", 404), ("/", 404), ("/b", 404)):
                writer.write(post(path=path))
                assert (await answer(reader)).status == status
            writer.write(get("/api/openrpc.json") + get("/api/b/openrpc.json") + get("/health"))
            assert [(await answer(reader)).status for _ in range(3)] == [200] * 3


async def test_tls() -> None:
    authority = trustme.CA()
    server, client = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH), ssl.create_default_context()
    authority.issue_cert("localhost").configure_cert(server)
    authority.configure_trust(client)
    scripted = Scripted(lambda x: x.respond(f"{x.caller.scheme} {x.caller.tls}".encode()))
    async with native({"": scripted}, Options(tls=server), "https://localhost:0") as listener:
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
        ("http://192.0.2.1:1", "no address of this machine"),
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
    async with asked(Host(calculator())) as (_, reader, writer):
        writer.write(b"\x00\x1b[31m evil\r\n\r\n")
        assert (await answer(reader)).status == 400
    assert caplog.records
    for record in caplog.records:
        assert record.levelname == "DEBUG"
        assert record.exc_info is None
        assert record.getMessage().isprintable()


def contracts(
    listener: HttpListener, post: Post, told: Told, socket: WebSocket, carried: AsgiSocket
) -> tuple[Listener, Exchange, Reply, Channel, Channel]:
    """Never called: mypy sees here that each keeps its contract."""
    return listener, post, told, socket, carried
