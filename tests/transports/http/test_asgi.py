"""The ASGI face, driven as a server would, and mounted in Starlette under a real one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount
from websockets.asyncio.client import connect as ws_connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from dragoman.channel import Broken, Channel, Closed, Exchange, Options, Servable
from dragoman.jsonrpc.errors import Refusal
from dragoman.jsonrpc.limits import Limits
from dragoman.rpc.servable import ServableService
from dragoman.transports.http.app import App, HttpRequest, Reply
from tests.behind import behind
from tests.calculator import calculator
from tests.servable import Idle, refused

from ..ends import Echo
from .cases import ANSWER, CALL, PATIENCE, answer, error, get, post
from .ends import Scripted, asgi, wire

Event = dict[str, Any]


class Driven:
    """One request, with a server that the test plays."""

    def __init__(self, what: Mapping[str, Servable], options: Options | None = None, **scope: Any) -> None:
        self.inbox: asyncio.Queue[Event] = asyncio.Queue()
        self.outbox: asyncio.Queue[Event] = asyncio.Queue()
        self.ready = asyncio.Event()
        self.ready.set()
        self.fault: Exception | None = None
        base: Event = {
            "type": "http",
            "method": "POST",
            "path": "/",
            "query_string": b"",
            "headers": [(b"content-type", b"application/json")],
            "client": ("10.0.0.1", 5),
            "server": ("api.example", 80),
            "scheme": "http",
        }
        app = App(what, options)
        self.task = asyncio.create_task(app({**base, **scope}, self.inbox.get, self._send))

    async def _send(self, event: Any) -> None:
        await self.ready.wait()
        if self.fault is not None:
            raise self.fault
        self.outbox.put_nowait(event)

    def body(self, data: bytes = CALL, more: bool = False) -> None:
        self.inbox.put_nowait({"type": "http.request", "body": data, "more_body": more})

    def leave(self) -> None:
        self.inbox.put_nowait({"type": "http.disconnect"})

    async def answered(self) -> tuple[int, dict[str, str], bytes]:
        """The whole answer."""
        async with asyncio.timeout(PATIENCE):
            start = await self.outbox.get()
            assert start["type"] == "http.response.start"
            body, more = b"", True
            while more:
                event = await self.outbox.get()
                assert event["type"] == "http.response.body"
                body += event["body"]
                more = event.get("more_body", False)
            await self.task
            assert self.outbox.empty()
            headers = {name.decode(): value.decode() for name, value in start["headers"]}
            return start["status"], headers, body

    async def silent(self) -> None:
        """It ends without a word."""
        async with asyncio.timeout(PATIENCE):
            await self.task
        assert self.outbox.empty()


async def test_a_body_in_pieces() -> None:
    driven = Driven({"": ServableService(behind(calculator()))})
    driven.body(CALL[:9], True)
    driven.body(b"", True)
    driven.body(CALL[9:])
    headers = {"content-type": "application/json", "content-length": str(len(ANSWER))}
    assert await driven.answered() == (200, headers, ANSWER)


@pytest.mark.parametrize("told", [True, False])
async def test_too_large(told: bool) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", b"1800")]
    options = Options(limits=Limits(message_size=1000))
    driven = Driven({"": ServableService(behind(calculator()))}, options, headers=headers[: 1 + told])
    driven.body(b"x" * 900, True)
    driven.body(b"x" * 900, True)
    status, _, body = await driven.answered()
    assert status == 413
    assert error(body)["code"] == -32003


async def test_a_body_that_does_not_come() -> None:
    driven = Driven({"": ServableService(behind(calculator()))}, Options(limits=Limits(body_timeout=0.05)))
    driven.body(CALL[:9], True)
    assert (await driven.answered())[0] == 408


async def test_a_caller_that_leaves_in_the_middle_of_the_body() -> None:
    scripted = Scripted()
    driven = Driven({"": scripted})
    driven.body(CALL[:9], True)
    driven.leave()
    await driven.silent()
    assert scripted.exchanges.empty()


async def test_an_answer_later() -> None:
    scripted = Scripted()
    driven = Driven({"": scripted}, headers=[(b"content-type", b"application/json"), (b"x", b"1"), (b"x", b"2")])
    driven.body()
    x = await scripted.next()
    assert x.request == CALL
    assert (x.caller.scheme, x.caller.remote, x.caller.path) == ("http", "10.0.0.1:5", "/")
    assert x.caller.headers["x"] == "1, 2"
    assert not x.stream(b"{}")
    await asyncio.sleep(0)
    x.respond(b"later")
    assert (await driven.answered())[2] == b"later"
    assert x.gone is None


async def test_a_caller_that_leaves() -> None:
    scripted = Scripted()
    driven = Driven({"": scripted})
    driven.body()
    x = await scripted.next()
    gone = asyncio.Event()
    x.gone = gone.set
    driven.leave()
    await driven.silent()
    assert gone.is_set()
    x.respond(b"late")


async def test_a_server_that_stops_cancels() -> None:
    scripted = Scripted()
    driven = Driven({"": scripted})
    driven.body()
    x = await scripted.next()
    gone = asyncio.Event()
    x.gone = gone.set
    driven.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await driven.task
    assert gone.is_set()


async def test_refusals_and_faults() -> None:
    def raises(x: Exchange) -> None:
        raise RuntimeError("secret")

    driven = Driven({"": Scripted(lambda x: x.respond(refused(Refusal("busy", "no", {"retry_after": 3}))))})
    driven.body()
    status, headers, body = await driven.answered()
    assert (status, headers["retry-after"], body) == (503, "3", b"{}")
    driven = Driven({"": Scripted(lambda x: x.respond(None))})
    driven.body()
    assert await driven.answered() == (204, {}, b"")
    driven = Driven({"": Scripted(raises)})
    driven.body()
    status, _, body = await driven.answered()
    assert (status, error(body)["code"], json.loads(body)["id"]) == (200, -32603, 1)


HERE, ELSEWHERE = ("127.0.0.1", 80), ("10.0.0.1", 80)


@pytest.mark.parametrize(
    ("server", "hosts", "host", "origin", "status"),
    [
        # a proxy in front may send any Host, and its probes none that is known
        (HERE, None, b"api.example", None, 200),
        (("::1", 80), None, b"api.example", None, 200),
        (ELSEWHERE, None, b"api.example", None, 200),
        (("/run/app.sock", None), None, b"api.example", None, 200),
        (None, None, b"api.example", None, 200),
        (HERE, ["api.example"], b"api.example:80", None, 200),
        (HERE, ["api.example"], b"localhost", None, 421),
        (ELSEWHERE, ["api.example"], b"10.0.0.1", None, 421),
        # the Host is not known to be ours, so that of a page says nothing
        (HERE, None, b"api.example", b"https://api.example", 403),
        (HERE, None, b"localhost", b"http://localhost:3000", 200),
        (ELSEWHERE, None, b"api.example", b"https://api.example", 403),
        (ELSEWHERE, None, b"api.example", b"http://localhost:3000", 403),
        (None, None, b"api.example", b"https://api.example", 403),
        (ELSEWHERE, ["api.example"], b"api.example", b"https://api.example", 200),
        (ELSEWHERE, ["api.example"], b"api.example", b"https://page.example", 403),
    ],
)
async def test_hosts_and_origins(
    server: Any, hosts: list[str] | None, host: bytes, origin: bytes | None, status: int
) -> None:
    headers = [(b"content-type", b"application/json"), (b"host", host)]
    headers += [] if origin is None else [(b"origin", origin)]
    driven = Driven({"": ServableService(behind(calculator()))}, Options(hosts=hosts), server=server, headers=headers)
    driven.body()
    assert (await driven.answered())[0] == status


@pytest.mark.parametrize("begun", [False, True])
async def test_a_server_that_never_stops_answering_receive(begun: bool) -> None:
    """Asked again and again it would starve the loop: the answer comes from beside it."""
    events = 0

    async def receive() -> Any:
        nonlocal events
        events += 1
        return {"type": "http.request", "body": CALL if events == 1 else b"", "more_body": False}

    sent: list[Any] = []

    async def send(event: Any) -> None:
        sent.append(event)

    def streams(request: HttpRequest, reply: Reply) -> None:
        if begun:
            reply.start(200)
        asyncio.get_running_loop().call_later(0.01, lambda: reply.finish() if begun else reply.respond(200))

    scope = {"type": "http", "method": "POST", "path": "/", "headers": [(b"content-type", b"application/json")]}
    async with asyncio.timeout(PATIENCE):
        await App({"": Scripted(endpoints={"": streams})})(scope, receive, send)
    assert sent[-1]["type"] == "http.response.body"
    assert events < 5


async def test_endpoints() -> None:
    def echo(request: HttpRequest, reply: Reply) -> None:
        reply.respond(418, (("X-Kind", "pot"),), request.body + request.query.encode() + request.headers["x"].encode())
        reply.respond(200)

    def bad(request: HttpRequest, reply: Reply) -> None:
        raise RuntimeError("secret")

    def worse(request: HttpRequest, reply: Reply) -> None:
        reply.start(200)
        reply.write(b"a")
        raise RuntimeError("secret")

    what = {"": Scripted(endpoints={"/echo": echo, "/bad": bad, "/worse": worse})}
    driven = Driven(what, path="/echo", method="DELETE", query_string=b"?", headers=[(b"x", b"y")])
    driven.body(b"b")
    assert await driven.answered() == (418, {"x-kind": "pot", "content-length": "3"}, b"b?y")
    driven = Driven(what, path="/bad")
    driven.body(b"")
    assert (await driven.answered())[0] == 500
    driven = Driven(what, path="/worse")
    driven.body(b"")
    async with asyncio.timeout(PATIENCE):
        await driven.task
    events = [driven.outbox.get_nowait() for _ in range(driven.outbox.qsize())]
    assert all(event.get("more_body", True) for event in events)  # it has no end


async def streaming(options: Options | None = None) -> tuple[Driven, Reply]:
    """A GET of an endpoint, and the reply that the endpoint was given."""
    replies: asyncio.Queue[Reply] = asyncio.Queue()
    what = {"": Scripted(endpoints={"": lambda request, reply: replies.put_nowait(reply)})}
    driven = Driven(what, options, method="GET")
    driven.body(b"")
    return driven, await replies.get()


async def test_a_stream() -> None:
    driven, reply = await streaming(Options(limits=Limits(send_queue=10)))
    resumed = asyncio.Event()
    reply.resumed = resumed.set
    reply.start(200, (("Content-Type", "text/event-stream"),))
    driven.ready.clear()
    reply.write(b"x" * 11)
    assert not reply.writable
    driven.ready.set()
    async with asyncio.timeout(PATIENCE):
        await resumed.wait()
    assert reply.writable
    reply.write(b"y")
    reply.finish()
    assert await driven.answered() == (200, {"content-type": "text/event-stream"}, b"x" * 11 + b"y")


@pytest.mark.parametrize("how", ["leaves", "breaks"])
async def test_a_stream_whose_reader_goes(how: str) -> None:
    driven, reply = await streaming()
    gone = asyncio.Event()
    reply.gone = gone.set
    reply.start(200)
    if how == "leaves":
        driven.leave()
    else:
        driven.fault = OSError("gone")
        reply.write(b"x")
    async with asyncio.timeout(PATIENCE):
        await driven.task
    assert gone.is_set()
    assert not reply.writable
    reply.write(b"late")
    reply.finish()


async def test_a_stream_of_which_the_server_takes_nothing_ends() -> None:
    driven, reply = await streaming(Options(limits=Limits(write_timeout=0.2)))
    gone = asyncio.Event()
    reply.gone = gone.set
    reply.start(200)
    reply.write(b"taken")
    await driven.outbox.get()
    await driven.outbox.get()
    driven.ready.clear()
    reply.write(b"not taken")
    async with asyncio.timeout(PATIENCE):
        await driven.task
    assert gone.is_set()
    assert not reply.writable
    assert not driven.task.cancelled()


async def test_a_server_that_cancels_a_stream_is_obeyed() -> None:
    driven, reply = await streaming()
    gone = asyncio.Event()
    reply.gone = gone.set
    reply.start(200)
    driven.task.cancel()
    await asyncio.wait([driven.task])
    assert driven.task.cancelled()
    assert gone.is_set()


async def test_lifespan_and_unknown_scopes() -> None:
    driven = Driven({"": Scripted()}, type="lifespan")
    for word in ("startup", "shutdown"):
        driven.inbox.put_nowait({"type": f"lifespan.{word}"})
        assert await driven.outbox.get() == {"type": f"lifespan.{word}.complete"}
    await driven.task
    with pytest.raises(ValueError, match="unknown"):
        await Driven({"": Scripted()}, type="carrier-pigeon").task


class Living(Idle):
    """Says when it starts and stops, and fails at one of the two if it shall."""

    def __init__(self, name: str, said: list[str], fails: str = "") -> None:
        super().__init__()
        self.name, self.said, self.fails = name, said, fails

    async def start(self) -> None:
        self._say("start")

    async def stop(self) -> None:
        self._say("stop")

    def _say(self, word: str) -> None:
        self.said.append(f"{self.name} {word}")
        if self.fails == word:
            raise RuntimeError(f"no {word}")


@pytest.mark.parametrize(
    ("fails", "event", "said"),
    [
        ("start", "lifespan.startup.failed", ["a start", "b start", "a stop"]),
        ("stop", "lifespan.shutdown.failed", ["a start", "b start", "c start", "c stop", "b stop", "a stop"]),
    ],
)
async def test_a_lifespan_that_fails_stops_what_has_started(fails: str, event: str, said: list[str]) -> None:
    told: list[str] = []
    what = {f"/{name}": Living(name, told, fails if name == "b" else "") for name in "abc"}
    driven = Driven(what, type="lifespan")
    for word in ("startup", "shutdown"):
        driven.inbox.put_nowait({"type": f"lifespan.{word}"})
    await driven.task
    events = [driven.outbox.get_nowait() for _ in range(driven.outbox.qsize())]
    assert events[-1] == {"type": event, "message": f"no {fails}"}
    assert told == said


# -- under a real server --------------------------------------------------------------------------


async def test_mounted() -> None:
    app = Starlette(
        routes=[
            Mount(
                "/rpc",
                app=App({"": ServableService(behind(calculator())), "/math": ServableService(behind(calculator()))}),
            )
        ]
    )
    async with asgi(app) as port, wire(port) as (reader, writer):
        for path in ("/rpc/", "/rpc/math"):
            writer.write(post(path=path))
            assert (await answer(reader)).body == ANSWER
        writer.write(get("/rpc/openrpc.json") + get("/rpc/nope"))
        assert (await answer(reader)).status == 200
        assert (await answer(reader)).status == 404


@asynccontextmanager
async def socket_server(what: Servable, options: Options | None = None) -> AsyncIterator[str]:
    async with asgi(App({"": what, "/math": what}, options)) as port:
        yield f"ws://127.0.0.1:{port}"


async def test_websocket() -> None:
    async with socket_server(ServableService(behind(calculator())), Options(subprotocol="rpc")) as url:
        for path in ("/", "/math"):
            async with ws_connect(url + path, compression=None, proxy=None) as far:
                await far.send(CALL.decode())
                assert await far.recv() == ANSWER.decode()
                await far.send(CALL)
                assert await far.recv() == ANSWER
                assert far.subprotocol is None
        async with ws_connect(url, subprotocols=["other", "rpc"], proxy=None) as far:  # type: ignore[list-item]
            assert far.subprotocol == "rpc"


async def test_websocket_refusals() -> None:
    async with socket_server(ServableService(behind(calculator()))) as url:
        for path, origin, status in (("/nope", None, 404), ("/", "https://example.com", 403)):
            with pytest.raises(InvalidStatus) as refused:
                await ws_connect(url + path, origin=origin, proxy=None)  # type: ignore[arg-type]
            assert refused.value.response.status_code == status


async def test_websocket_refused_where_the_server_has_no_words() -> None:
    driven = Driven({"": Scripted()}, type="websocket", path="/nope", subprotocols=[])
    driven.inbox.put_nowait({"type": "websocket.connect"})
    assert await driven.outbox.get() == {"type": "websocket.close", "code": 1008}
    await driven.task


async def test_websocket_too_large() -> None:
    """The server took it whole, so that the channel can live on."""
    options = Options(limits=Limits(message_size=1000))
    async with socket_server(ServableService(behind(calculator())), options) as url, ws_connect(url, proxy=None) as far:
        await far.send("x" * 2000)
        assert error(str(await far.recv()).encode())["code"] == -32003
        await far.send(CALL.decode())
        assert await far.recv() == ANSWER.decode()


async def test_websocket_endings() -> None:
    echo = Echo()
    async with socket_server(echo) as url:
        async with ws_connect(url, proxy=None) as far:
            await far.send("1")
            await far.recv()
            await far.close(1001, "bye")
        why = await echo.ends[0].over()
        assert "1001" in str(why)
        assert "bye" in str(why)
        async with ws_connect(url, proxy=None) as far:
            await far.send("2")
            await far.recv()
            closing = asyncio.create_task(echo.ends[1].channel.close())
            with pytest.raises(ConnectionClosed) as closed:
                await far.recv()
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 1000
            await closing
        assert isinstance(await echo.ends[1].over(), Closed)
        channel = echo.ends[1].channel
        with pytest.raises(Closed):
            channel.send(b"late")
        with pytest.raises(Closed):
            await channel.flush()
        async with ws_connect(url, proxy=None) as far:
            await far.send("3")
            await far.recv()
            echo.ends[2].channel.abort(Broken("enough"))
            with pytest.raises(ConnectionClosed):
                await far.recv()
        assert str(await echo.ends[2].over()) == "enough"


async def test_a_websocket_of_which_the_server_takes_nothing_is_broken() -> None:
    echo = Echo()
    driven = Driven({"": echo}, Options(limits=Limits(send_queue=100, write_timeout=0.2)), type="websocket")
    driven.inbox.put_nowait({"type": "websocket.connect"})
    driven.inbox.put_nowait({"type": "websocket.receive", "text": "1"})
    assert (await driven.outbox.get())["type"] == "websocket.accept"
    assert await driven.outbox.get() == {"type": "websocket.send", "text": "1"}
    [end] = echo.ends
    driven.ready.clear()
    end.channel.send(b"x" * 101)
    waiting = [asyncio.create_task(end.channel.flush()) for _ in range(3)]
    why = await end.over()
    assert isinstance(why, Broken)
    assert str(why) == "the server in front took nothing of what was sent to it for 0.2 s (limit write_timeout)"
    for flushed in waiting:
        with pytest.raises(Broken, match="took nothing"):
            await flushed
    async with asyncio.timeout(PATIENCE):
        await driven.task
    assert driven.outbox.empty()


async def test_websocket_that_does_not_read() -> None:
    channels: list[Channel] = []
    echo = Echo()
    driven = Driven({"": echo}, Options(limits=Limits(send_queue=100)), type="websocket")
    driven.inbox.put_nowait({"type": "websocket.connect"})
    driven.inbox.put_nowait({"type": "websocket.receive", "text": "1"})
    assert (await driven.outbox.get())["type"] == "websocket.accept"
    assert await driven.outbox.get() == {"type": "websocket.send", "text": "1"}
    channels.append(echo.ends[0].channel)
    driven.ready.clear()
    channels[0].send(b"x" * 101)
    assert not channels[0].writable
    flushed = asyncio.create_task(channels[0].flush())
    await asyncio.sleep(0)
    assert not flushed.done()
    driven.ready.set()
    async with asyncio.timeout(PATIENCE):
        await flushed
    assert channels[0].writable
    assert echo.ends[0].resumptions == 1
    driven.inbox.put_nowait({"type": "websocket.disconnect", "code": 1000})
    async with asyncio.timeout(PATIENCE):
        await driven.task
