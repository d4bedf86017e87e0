"""What observers are told of what a wire turns away before there is a message for a service: a table of cases."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable, MutableMapping
from typing import Any

import pytest

from dragoman import Service, connect, serve
from dragoman.channel import Admitted, Denied, Handshake
from dragoman.jsonrpc.limits import SERVER
from dragoman.mcp import Server
from dragoman.observer import Additions, Observation, Rejection

SMALL = SERVER.but(message_size=200, drain_timeout=0.1)
CALL = b'{"jsonrpc":"2.0","method":"ping","id":1}'
BIG = b'{"jsonrpc":"2.0","method":"ping","id":1,"params":["' + b"x" * 400 + b'"]}'
MCP = {"Accept": "application/json, text/event-stream"}


class Kept:
    """Keeps what is turned away."""

    def __init__(self) -> None:
        self.rejections: asyncio.Queue[Rejection] = asyncio.Queue()
        self.ends: list[Observation] = []

    def came_in(self, seen: Observation) -> None: ...

    def outbound(self, seen: Observation) -> Additions | None:
        return None

    def started(self, seen: Observation) -> None: ...

    def ended(self, seen: Observation) -> None:
        self.ends.append(seen)

    def rejected(self, seen: Rejection) -> None:
        self.rejections.put_nowait(seen)


def api() -> Service:
    made = Service("calculator")
    made.method("ping", inline=True)(lambda: "pong")
    return made


def request(verb: str, path: str, body: bytes = b"", **fields: str) -> bytes:
    lines = {"Host": "127.0.0.1", "Content-Type": "application/json", "Content-Length": str(len(body)), **fields}
    head = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in lines.items())
    return f"{verb} {path} HTTP/1.1\r\n{head}Connection: close\r\n\r\n".encode() + body


async def deny(asked: Handshake) -> Admitted | Denied:
    return Denied(reason="no such token", status=401)


async def exchange(url: str, raw: bytes) -> bytes:
    host, _, port = url.split("/")[2].partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(raw)
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer


HTTP: dict[str, tuple[bytes, int, str, str, int]] = {
    "no such path": (request("POST", "/nothing", CALL), 404, "not_found", "nothing at /nothing", len(CALL)),
    "another method": (request("PUT", "/", CALL), 405, "unsupported", "PUT", len(CALL)),
    "another type": (request("POST", "/", CALL, Content_Type="text/plain"), 415, "unsupported", "Content-Type", 40),
    "a content coding": (request("POST", "/", CALL, Content_Encoding="br"), 415, "unsupported", "'br'", len(CALL)),
    "too large": (request("POST", "/", BIG), 413, "too_large", "message_size allows 200", len(BIG)),
    "another host": (request("POST", "/", CALL, Host="evil.example"), 421, "denied", "evil.example", len(CALL)),
    "another origin": (request("POST", "/", CALL, Origin="http://evil.example"), 403, "denied", "origin", len(CALL)),
    "no HTTP": (b"hello\r\n\r\n", 400, "malformed", "HTTP request", 0),
    "a long target": (request("GET", "/" + "x" * 70_000), 414, "too_large", "header_size", 0),
}


@pytest.mark.parametrize("case", HTTP)
async def test_what_http_turns_away(case: str) -> None:
    raw, status, kind, words, size = HTTP[case]
    kept = Kept()
    async with serve(api(), urls="http://127.0.0.1:0", observers=[kept], limits=SMALL) as serving:
        answer = await exchange(serving.urls[0], raw)
        assert answer.startswith(b"HTTP/1.1 %d " % status)
        seen = await kept.rejections.get()
    assert (seen.status, seen.kind, seen.size) == (status, kind, size)
    assert words in seen.reason
    assert seen.caller.remote.startswith("127.0.0.1:")
    assert kept.rejections.empty()
    assert kept.ends == []


@pytest.mark.parametrize(
    "raw",
    [
        request("GET", "/live"),
        request("GET", "/ready", Host="x"),
        request("POST", "/", CALL),
        request("HEAD", "/live"),
    ],
)
async def test_what_is_served_is_not_told_as_turned_away(raw: bytes) -> None:
    kept = Kept()
    async with serve(api(), urls="http://127.0.0.1:0", observers=[kept]) as serving:
        assert (await exchange(serving.urls[0], raw)).startswith(b"HTTP/1.1 200 ")
    assert kept.rejections.empty()


@pytest.mark.parametrize(
    ("raw", "status", "kind"),
    [
        (request("POST", "/mcp", CALL, **MCP), 400, "malformed"),
        (request("POST", "/mcp", CALL, Content_Type="text/plain", **MCP), 415, "unsupported"),
        (request("POST", "/mcp", CALL, Accept="text/html"), 406, "unsupported"),
        (request("POST", "/mcp", CALL, **MCP, **{"Mcp-Session-Id": "x"}), 404, "not_found"),
        (request("POST", "/mcp", b"{", **MCP, **{"MCP-Protocol-Version": "2026-07-28"}), 400, "malformed"),
        (request("PUT", "/mcp", CALL, **MCP), 405, "unsupported"),
    ],
)
async def test_what_the_endpoint_of_mcp_turns_away(raw: bytes, status: int, kind: str) -> None:
    kept = Kept()
    async with serve(Server("weather"), urls="http://127.0.0.1:0/mcp", observers=[kept]) as serving:
        assert (await exchange(serving.urls[0], raw)).startswith(b"HTTP/1.1 %d " % status)
        seen = await kept.rejections.get()
    assert (seen.status, seen.kind, seen.place) == (status, kind, "/mcp")
    assert seen.reason
    assert kept.ends == []


@pytest.mark.parametrize("url", ["http://127.0.0.1:0", "ws://127.0.0.1:0", "tcp://127.0.0.1:0", "memory+broker:turned"])
async def test_a_guards_no_is_told_once(url: str) -> None:
    kept = Kept()
    async with serve(api(), urls=url, observers=[kept], guard=deny) as serving:
        with pytest.raises(Exception, match=r".+"):
            async with connect(serving.urls[0]) as peer:
                await peer.call("ping")
        seen = await kept.rejections.get()
    assert seen.kind == "denied"
    assert "no such token" in seen.reason
    assert seen.caller.scheme == url.partition(":")[0]
    assert kept.rejections.empty()


async def test_a_datagram_and_a_delivery_that_are_too_large() -> None:
    kept = Kept()
    async with serve(
        api(), urls=["udp://127.0.0.1:0", "memory+broker:large"], observers=[kept], limits=SMALL
    ) as serving:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            host, _, port = serving.urls[0].removeprefix("udp://").partition(":")
            sock.sendto(BIG, (host, int(port)))
            first = await kept.rejections.get()
        async with connect(serving.urls[1]) as peer:
            with pytest.raises(Exception, match="message_size"):
                await peer.call("ping", ["x" * 400])
        second = await kept.rejections.get()
    assert [(one.kind, one.caller.scheme) for one in (first, second)] == [
        ("too_large", "udp"),
        ("too_large", "memory+broker"),
    ]
    assert first.size == len(BIG)


async def test_a_channel_beyond_the_limit() -> None:
    kept = Kept()
    limits = SERVER.but(channels=1, drain_timeout=0.1)
    async with serve(api(), urls="tcp://127.0.0.1:0", observers=[kept], limits=limits) as serving:
        async with connect(serving.urls[0]) as peer:
            assert await peer.call("ping") == "pong"
            await exchange(serving.urls[0], CALL)
        seen = await kept.rejections.get()
    assert (seen.kind, seen.reason, seen.place) == ("busy", "limits.channels", serving.urls[0])


async def test_a_fault_of_our_own_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Kept()

    def broken(*given: Any) -> None:
        raise RuntimeError("ours")

    async with serve(api(), urls="tcp://127.0.0.1:0", observers=[kept]) as serving:
        monkeypatch.setattr("dragoman.rpc.channel_peer.read", broken)
        _, host, port = serving.urls[0].split(":")
        reader, writer = await asyncio.open_connection(host.strip("/"), int(port))
        writer.write(b"[" + CALL + b"]\n")  # which is not answered in place
        (answer,) = json.loads(await reader.readline())
        assert answer["error"]["code"] == -32603
        writer.close()
        await writer.wait_closed()
        seen = await kept.rejections.get()
    assert (seen.kind, seen.reason) == ("failed", "a fault of this end: RuntimeError")


async def test_the_asgi_application_tells_the_same() -> None:
    from dragoman import http_app

    kept = Kept()
    app = http_app(api(), observers=[kept], limits=SMALL)
    sent: list[MutableMapping[str, Any]] = []

    async def send(event: MutableMapping[str, Any]) -> None:
        sent.append(event)

    def receive(body: bytes) -> Callable[[], Any]:
        async def take() -> dict[str, Any]:
            return {"type": "http.request", "body": body}

        return take

    fields = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(BIG))]
    scope = {"type": "http", "method": "POST", "path": "/", "headers": fields, "client": ("127.0.0.1", 5)}
    await app(scope, receive(BIG), send)
    assert sent[0]["status"] == 413
    assert json.loads(sent[1]["body"])["error"]["code"]
    seen = kept.rejections.get_nowait()
    assert (seen.kind, seen.status, seen.caller.remote) == ("too_large", 413, "127.0.0.1:5")
