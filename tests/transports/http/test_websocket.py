"""WebSocket: messages and handshakes; both ends of ours, and each against the library's own."""

from __future__ import annotations

import asyncio
import socket
import ssl
from typing import Any

import pytest
import trustme
from websockets.asyncio.client import connect as library_connect
from websockets.asyncio.server import ServerConnection

from dragoman import Context, Service, connect, serve
from dragoman.channel import Broken, Caller, Closed, Ended, Options
from dragoman.jsonrpc.errors import LocalError
from dragoman.rpc.servable import ServableService
from dragoman.transports.http.websocket import dial
from tests.behind import behind
from tests.calculator import calculator

from ..ends import Echo, Recorder, options, until
from .cases import ANSWER, CALL, PATIENCE, answer, get, post, rest
from .ends import native, wire
from .socket_ends import dialled, echoing, handshake, library, library_server, serving

# -- messages -------------------------------------------------------------------------------------


async def test_both_ends() -> None:
    echo = Echo()
    async with serving(echo) as (_, url):
        for path in ("", "/below"):
            async with dialled(url + path) as end:
                messages = [b"%d" % i * 1000 for i in range(100)] + [b"", "漢字".encode(), b"x" * 500_000]
                for message in messages:
                    end.channel.send(message)
                assert await end.got(len(messages)) == messages
                assert end.channel.duplex
                caller = echo.ends[-1].channel.caller
                assert (caller.scheme, caller.path) == ("ws", path or "/")
                assert caller.headers["upgrade"] == "websocket"
                far: Caller = end.channel.caller
                assert f"ws://{far.remote}" == url
            assert isinstance(end.why, Closed)
            ended = await echo.ends[-1].over()
            assert isinstance(ended, Ended)
            assert str(ended) == "the far end closed the WebSocket: 1000 OK"


async def test_a_real_service() -> None:
    async with serving(ServableService(behind(calculator()))) as (_, url), dialled(url) as end:
        end.channel.send(CALL)
        assert await end.got(1) == [ANSWER]


async def test_peers_call_both_ways() -> None:
    api, near = Service("api"), Service("near")

    @near.method(inline=True)
    def double(number: int) -> int:
        return 2 * number

    @api.method
    async def quadruple(number: int, context: Context) -> Any:
        assert context.peer is not None
        return await context.peer.call("double", [await context.peer.call("double", [number])])

    async with (
        serve(api, urls="ws://127.0.0.1:0/deep/path") as serving_it,
        connect(serving_it.urls[0], service=near) as peer,
    ):
        assert await asyncio.gather(*(peer.call("quadruple", [n]) for n in range(100))) == [4 * n for n in range(100)]


async def test_text_and_binary() -> None:
    async with serving(Echo()) as (_, url), library(url) as far:
        await far.send("text")
        assert await far.recv() == "text"
        await far.send(b"binary")
        assert await far.recv() == b"binary"
        await far.send("text again")
        assert await far.recv() == "text again"
    async with library_server(echoing) as url, dialled(url) as end:
        end.channel.send("é".encode())
        assert await end.got(1) == ["é".encode()]


async def test_fragments() -> None:
    async with serving(Echo()) as (_, url), library(url) as far:
        await far.send(["on", "", "e"])
        assert await far.recv() == "one"
        await far.send([b"\xc3", b"\xa9"], text=True)
        assert await far.recv() == "é"
        await far.send([b"\xff", b"\xfe"])
        assert await far.recv() == b"\xff\xfe"


async def test_pings() -> None:
    async with serving(Echo()) as (_, url), library(url) as far:
        pong = await far.ping("a")
        await far.send("x")
        assert await far.recv() == "x"
        async with asyncio.timeout(PATIENCE):
            await pong

    async def pinging(far: ServerConnection) -> None:
        await (await far.ping())
        await far.send("pong came")
        await far.wait_closed()

    async with library_server(pinging) as url, dialled(url) as end:
        assert await end.got(1) == [b"pong came"]


async def test_many_frames_are_answered_in_one_write() -> None:
    async with serving(Echo()) as (_, url), wire(int(url.rpartition(":")[2])) as (reader, writer):
        writer.write(handshake())
        await answer(reader)
        reads: list[bytes] = []
        protocol = writer.transport.get_protocol()
        feed = protocol.data_received  # type: ignore[attr-defined]

        def spy(data: bytes) -> None:
            reads.append(data)
            feed(data)

        protocol.data_received = spy  # type: ignore[attr-defined]
        writer.write(b"\x81\x81\0\0\0\0x" * 50)
        assert await reader.readexactly(150) == b"\x81\x01x" * 50
        assert reads == [b"\x81\x01x" * 50]


async def test_a_message_right_behind_the_handshake() -> None:
    """What comes before `open` waits for it; what comes with the close frame is delivered too."""

    async def hasty(far: ServerConnection) -> None:
        await far.send("1")
        await far.send("2")

    async with library_server(hasty) as url:
        channel = await dial(url, Options())
        await asyncio.sleep(0)
        end = Recorder(channel)
        assert not end.messages
        assert await end.got(2) == [b"1", b"2"]
        assert isinstance(await end.over(), Ended)
        await channel.close()


async def test_a_message_with_the_handshake() -> None:
    echo = Echo()
    async with serving(echo) as (_, url), wire(int(url.rpartition(":")[2])) as (reader, writer):
        frame = b"\x81\x81\0\0\0\0x"
        writer.write(handshake() + frame + frame)
        assert (await answer(reader)).status == 101
        assert await reader.readexactly(6) == b"\x81\x01x\x81\x01x"
        writer.write(b"\x88\x80\0\0\0\0")
        assert await reader.read() == b"\x88\x00"
        assert str(await echo.ends[0].over()) == "the far end closed the WebSocket: 1005 no status received"


# -- handshakes -----------------------------------------------------------------------------------


async def test_the_very_bytes_of_the_handshake() -> None:
    async with serving(Echo()) as (_, url), wire(int(url.rpartition(":")[2])) as (reader, writer):
        writer.write(handshake())
        assert await reader.readuntil(b"\r\n\r\n") == (
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n"
        )


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (handshake(path="/nope"), 404),
        (handshake(host="example.com"), 421),
        (handshake(more="Origin: https://example.com\r\n"), 403),
        (handshake(key="short"), 400),
        (handshake().replace(b"Version: 13", b"Version: 8"), 426),
        (handshake().replace(b"GET", b"POST"), 405),
        (handshake().replace(b"HTTP/1.1", b"HTTP/1.0"), 505),
        (handshake(more="Content-Length: 5\r\n"), 400),
    ],
)
async def test_handshakes_that_fail(request_: bytes, status: int) -> None:
    async with serving(Echo()) as (_, url), wire(int(url.rpartition(":")[2])) as (reader, writer):
        writer.write(request_)
        got = await answer(reader)
        assert (got.status, got.headers.get("connection")) == (status, "close")


async def test_ws_alone() -> None:
    """At ws:// there are no methods and no documents."""
    async with serving(Echo()) as (_, url), wire(int(url.rpartition(":")[2])) as (reader, writer):
        for request_, status in ((post(), 426), (get(), 426), (get("/live"), 404), (get("/openrpc.json"), 404)):
            writer.write(request_)
            got = await answer(reader)
            assert got.status == status
            assert got.headers.get("upgrade") == ("websocket" if status == 426 else None)


async def test_on_the_port_of_http() -> None:
    async with native({"": ServableService(behind(calculator()))}, Options()) as listener:
        port = int(listener.url.rpartition(":")[2])
        async with wire(port) as (reader, writer):
            writer.write(post() + handshake())
            assert (await answer(reader)).body == ANSWER
            assert (await answer(reader)).status == 101
            await until(lambda: len(listener.wires) == 1)
        async with dialled(f"ws://127.0.0.1:{port}") as end:
            end.channel.send(CALL)
            assert await end.got(1) == [ANSWER]


async def test_subprotocols() -> None:
    async with serving(Echo(), Options(subprotocol="rpc")) as (_, url):
        async with library_connect(url, subprotocols=["x", "rpc"], proxy=None) as far:  # type: ignore[list-item]
            assert far.subprotocol == "rpc"
        async with library_connect(url, subprotocols=["x"], proxy=None) as far:  # type: ignore[list-item]
            assert far.subprotocol is None
        async with library(url) as far:
            assert far.subprotocol is None
        async with dialled(url, Options(subprotocol="rpc")) as end:
            end.channel.send(b"x")
            assert await end.got(1) == [b"x"]
        async with dialled(url, Options(subprotocol="other")):
            pass


async def test_headers_of_the_calling_end() -> None:
    seen: list[dict[str, str]] = []

    async def look(far: ServerConnection) -> None:
        assert far.request is not None
        seen.append({name.lower(): value for name, value in far.request.headers.raw_items()})

    async with library_server(look) as url:
        for auth, headers, at in (
            (("user", "pass"), {"X-A": "1", "Host": "other.example"}, ""),
            ("token", {}, ""),
            (None, {}, "me:secret@"),
        ):
            place = url.replace("ws://", f"ws://{at}")
            channel = await dial(place, Options(auth=auth, headers=headers))
            await Recorder(channel).over()
            await channel.close()
    assert [one["authorization"] for one in seen] == ["Basic dXNlcjpwYXNz", "Bearer token", "Basic bWU6c2VjcmV0"]
    assert (seen[0]["x-a"], seen[0]["host"]) == ("1", "other.example")
    assert "sec-websocket-extensions" not in seen[0]
    with pytest.raises(LocalError, match="has a line break"):
        await dial("ws://127.0.0.1:1", Options(headers={"X": "a\r\nB: c"}))


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno", "HTTP 403 Forbidden: no"),
        (b"HTTP/1.1 302 Found\r\nLocation: /x\r\nContent-Length: 0\r\n\r\n", "HTTP 302 Found"),
        (b"HTTP/1.1 101 OK\r\nUpgrade: x\r\n\r\n", "speaks no WebSocket"),
        (b"SSH-2.0-x\r\n", "speaks no WebSocket"),
        (b"", "speaks no WebSocket"),
        (None, "no answer in time"),
    ],
)
async def test_dialling_what_is_none(said: bytes | None, words: str) -> None:
    done = asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        if said is not None:
            writer.write(said)
            writer.write_eof()
        await rest(reader)
        writer.close()
        done.set()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    with pytest.raises(Broken, match=words):
        await dial(f"ws://127.0.0.1:{port}", options(header_timeout=0.2 if said is None else 10.0))
    async with asyncio.timeout(PATIENCE):
        await done.wait()
    server.close()
    await server.wait_closed()


async def test_dialling_a_port_without_a_server() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    with pytest.raises(Broken, match="connection refused"):
        await dial(f"ws://127.0.0.1:{port}", Options())
    with pytest.raises(LocalError, match="ws://"):
        await dial("http://127.0.0.1:1", Options())


async def test_tls() -> None:
    authority = trustme.CA()
    server, client = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH), ssl.create_default_context()
    authority.issue_cert("localhost").configure_cert(server)
    authority.configure_trust(client)
    echo = Echo()
    async with native({"": echo}, Options(server_tls=server), "wss://localhost:0") as listener:
        async with dialled(listener.url, Options(client_tls=client)) as end:
            messages = [b"x" * 100_000, b"y"]
            for message in messages:
                end.channel.send(message)
            assert await end.got(2) == messages
            assert end.channel.caller.tls
            assert echo.ends[0].channel.caller.scheme == "wss"
        assert isinstance(await echo.ends[0].over(), Ended)
        with pytest.raises(Broken, match="certificate is not trusted"):
            await dial(listener.url, Options())
