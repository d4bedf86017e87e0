"""Far ends of every kind, faulty, healthy and slow, made in this process, and what the doctor must say of each.

A peer is a function that takes a connection. Patience is a fraction of a second, so each row is cheap. The seeded
faults of `faults.py` are faulty peers, too; here stand those that need a talk, and those that are not faulty.
"""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

Reader: TypeAlias = asyncio.StreamReader
Writer: TypeAlias = asyncio.StreamWriter
Peer: TypeAlias = Callable[[Reader, Writer], Awaitable[None]]

NO_METHOD = {"error": {"code": -32601, "message": "no"}}
HELLO = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "x", "version": "1"}}
ROOM = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"


def _read(line: bytes) -> dict[str, Any] | None:
    """The message of a line; None for one that is none, which a patient server passes over."""
    try:
        said: dict[str, Any] = json.loads(line)
    except ValueError:
        return None
    return said


def says(data: bytes) -> Peer:
    """Answers whatever comes with these bytes."""

    async def peer(reader: Reader, writer: Writer) -> None:
        while await reader.read(65536):
            writer.write(data)

    return peer


def lines(answers: dict[str, object], late: float = 0.0, first: bytes = b"", other: object = NO_METHOD) -> Peer:
    """Answers methods in lines, `late` seconds after each; `other`: what other methods get, None for nothing."""

    async def peer(reader: Reader, writer: Writer) -> None:
        writer.write(first)
        while line := await reader.readline():
            if (said := _read(line)) is None:
                continue
            found = answers.get(said["method"], other)
            if "id" in said and found is not None:
                await asyncio.sleep(late)
                writer.write(json.dumps({"jsonrpc": "2.0", "id": said["id"]} | found).encode() + b"\n")  # type: ignore[operator]

    return peer


def dribbles(pause: float) -> Peer:
    """Answers in pieces, with pauses."""

    async def peer(reader: Reader, writer: Writer) -> None:
        while line := await reader.readline():
            if (said := _read(line)) is None or "id" not in said:
                continue
            answer = json.dumps({"jsonrpc": "2.0", "id": said["id"]} | NO_METHOD).encode() + b"\n"
            for at in range(0, len(answer), 20):
                writer.write(answer[at : at + 20])
                await asyncio.sleep(pause)

    return peer


def posts(answers: dict[str, object], late: float = 0.0, keep: bool = True, head: bytes = b"200 OK") -> Peer:
    """Answers methods over HTTP; `keep`: the connection stays, else it is closed after each answer without a word."""

    async def peer(reader: Reader, writer: Writer) -> None:
        while True:
            fields = await reader.readuntil(b"\r\n\r\n")
            size = int(fields.lower().partition(b"content-length:")[2].partition(b"\r\n")[0] or b"0")
            body = await reader.readexactly(size)
            await asyncio.sleep(late)
            said = json.loads(body or b"{}")
            if "id" not in said:
                writer.write(b"HTTP/1.1 405 Method Not Allowed\r\nContent-Length: 0\r\n\r\n" if not body else ACCEPTED)
            else:
                text = {"jsonrpc": "2.0", "id": said["id"]} | answers.get(said["method"], NO_METHOD)  # type: ignore[operator]
                data = json.dumps(text).encode()
                start = b"HTTP/1.1 %b\r\nContent-Type: application/json\r\n" % head
                writer.write(b"%bContent-Length: %d\r\n\r\n%b" % (start, len(data), data))
            await writer.drain()
            if not keep:
                return

    return peer


ACCEPTED = b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n"


def oldest(status: bytes, kind: bytes) -> Peer:
    """Answers a POST with 404, and the GET that begins a session of HTTP+SSE with `status`."""

    async def peer(reader: Reader, writer: Writer) -> None:
        fields = await reader.readuntil(b"\r\n\r\n")
        start = status if fields.startswith(b"GET") else b"404 Not Found"
        writer.write(b"HTTP/1.1 %b\r\nContent-Type: %b\r\nConnection: close\r\n\r\n" % (start, kind))
        await writer.drain()

    return peer


def greets(hello: bytes, then: bytes) -> Peer:
    """Speaks first, and says `then` to what comes."""

    async def peer(reader: Reader, writer: Writer) -> None:
        writer.write(hello)
        while await reader.read(65536):
            writer.write(then)

    return peer


def _method(kind: int, name: int, arguments: bytes) -> bytes:
    payload = struct.pack(">HH", kind, name) + arguments
    return struct.pack(">BHI", 1, 0, len(payload)) + payload + b"\xce"


async def refusing_rabbit(reader: Reader, writer: Writer) -> None:
    """RabbitMQ that refuses a login."""
    await reader.readexactly(8)
    words = struct.pack(">I", 5) + b"PLAIN" + struct.pack(">I", 5) + b"en_US"
    writer.write(_method(10, 10, b"\0\x09" + struct.pack(">I", 0) + words))
    await reader.read(4096)
    why = b"ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN."
    writer.write(_method(10, 50, struct.pack(">HB", 403, len(why)) + why + struct.pack(">HH", 0, 0)))
    await reader.read(4096)


MCP: dict[str, object] = {
    "initialize": {"result": HELLO},
    "tools/list": {"result": {"tools": []}},
    "ping": {"result": {}},
}
INFO = b'INFO {"server_id":"x","version":"2.10.0","proto":1,"max_payload":1048576,"headers":true%b}\r\n'
UNREAD = b'{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"Parse error"}}\n'

FAULTY: list[tuple[str, str, Peer, str, str]] = [
    # scheme and path, what it is, how it talks, the fault, a part of its fix
    ("redis:/calc", "wants a password", says(b"-NOAUTH Authentication required.\r\n"), "login", "DRAGOMAN_REDIS_USER"),
    ("redis:/calc", "HTTP", says(ROOM), "other_protocol", "write http://"),
    ("redis:/calc", "NATS", greets(INFO % b"", b""), "other_protocol", "write nats://"),
    ("redis:/calc", "a server of lines", says(UNREAD), "other_protocol", "check host and port"),
    ("nats:/calc", "wants a password", greets(INFO % b',"auth_required":true', b""), "login", "DRAGOMAN_NATS_USER"),
    ("nats:/calc", "HTTP", says(ROOM), "other_protocol", "write http://"),
    ("nats:/calc", "Redis", says(b"-ERR unknown command\r\n"), "other_protocol", "write redis://"),
    ("mqtt:/calc", "not authorized, 3.1.1", says(b"\x20\x02\x00\x05"), "login", "DRAGOMAN_MQTT_USER"),
    ("mqtt:/calc", "not authorized, 5", says(b"\x20\x03\x00\x87\x00"), "login", "DRAGOMAN_MQTT_USER"),
    ("mqtt:/calc", "bad password, 5", says(b"\x20\x03\x00\x86\x00"), "login", "DRAGOMAN_MQTT_USER"),
    ("mqtt:/calc", "HTTP", says(ROOM), "other_protocol", "write http://"),
    ("amqp:/calc", "refuses the login", refusing_rabbit, "login", "DRAGOMAN_AMQP_USER"),
    ("amqp:/calc", "HTTP", says(ROOM), "other_protocol", "write http://"),
    ("ws:/calc", "HTTP that answers 200", posts({}), "not_websocket", "write http://"),
    (
        "ws:/calc",
        "HTTP that answers 404",
        says(b"HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n"),
        "not_websocket",
        "path",
    ),
    ("ws:/calc", "wants a login", says(b"HTTP/1.1 401 No\r\nContent-Length: 0\r\n\r\n"), "login", "--bearer"),
    ("ws:/calc", "is away", says(b"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n"), "unavailable", "try again later"),
    ("ws:/calc", "a server of lines", says(UNREAD), "not_websocket", "check the path"),
    ("http:/sse", "HTTP+SSE", oldest(b"200 OK", b"text/event-stream"), "sse", "start the server again"),
    ("http:/sse", "HTTP+SSE that has its client", oldest(b"500 No", b"text/plain"), "sse", "start the server again"),
    ("http:/rpc", "a patient server of lines", lines({}), "other_protocol", "write tcp://"),
    ("tls:", "lines without TLS", lines({}), "not_tls", "write tcp://"),
    ("https:/rpc", "lines without TLS", lines({}), "not_tls", "write tcp://"),
]

HEALTHY: list[tuple[str, str, Peer]] = [
    ("tcp:", "JSON-RPC that knows nothing", lines({})),
    ("tcp:", "JSON-RPC that says pong", lines({"ping": {"result": "pong"}})),
    ("tcp:", "JSON-RPC with data in its errors", lines({}, other={"error": {"code": -1, "message": "no", "data": [1]}})),
    ("tcp:", "JSON-RPC that describes itself", lines({"rpc.discover": {"result": {"methods": [{"name": "a"}]}}})),
    ("tcp:", "JSON-RPC with a notification first", lines({}, first=b'{"jsonrpc":"2.0","method":"hello"}\n')),
    ("tcp:", "JSON-RPC with empty lines first", lines({}, first=b"\n\n")),
    ("tcp:", "MCP of 2025", lines(MCP)),
    ("tcp:", "MCP of 2025 without tools", lines(MCP | {"initialize": {"result": HELLO | {"capabilities": {}}}})),
    ("tcp:", "MCP of 2024", lines(MCP | {"initialize": {"result": HELLO | {"protocolVersion": "2024-11-05"}}})),
    ("tcp:", "MCP with resources", lines(MCP | {
        "initialize": {"result": HELLO | {"capabilities": {"resources": {}}}},
        "resources/list": {"result": {"resources": []}},
    })),
    ("tcp:", "MCP with prompts", lines(MCP | {
        "initialize": {"result": HELLO | {"capabilities": {"prompts": {}}}},
        "prompts/list": {"result": {"prompts": []}},
    })),
    ("unix:", "JSON-RPC that knows nothing", lines({})),
    ("unix:", "MCP of 2025", lines(MCP)),
    ("http:/rpc", "JSON-RPC that knows nothing", posts({})),
    ("http:/rpc", "JSON-RPC with HTTP errors", posts({}, head=b"404 Not Found")),
    ("http:/rpc", "JSON-RPC with 400", posts({}, head=b"400 Bad Request")),
    ("http:/mcp", "MCP of 2025", posts(MCP)),
    ("http:/rpc", "one that closes after each answer", posts({}, keep=False)),
    ("http:/mcp", "MCP that closes after each answer", posts(MCP, keep=False)),
    ("http:/rpc", "JSON-RPC that describes itself", posts({"rpc.discover": {"result": {"methods": []}}})),
]  # fmt: skip

LATE = 0.12
"""Seconds of each answer of a slow peer: much of a patience of `SHORT`, and more than one of `TINY`."""
LONG, SHORT, TINY = 5.0, 0.4, 0.05

SLOW: list[tuple[str, str, Peer, float]] = [
    # and the patience with it: it ends as slow, silent or healthy, never as faulty
    *[("tcp:", f"JSON-RPC, {seconds}", lines({}, LATE), seconds) for seconds in (LONG, SHORT, TINY)],
    *[("tcp:", f"MCP of 2025, {seconds}", lines(MCP, LATE), seconds) for seconds in (LONG, SHORT, TINY)],
    *[("unix:", f"JSON-RPC, {seconds}", lines({}, LATE), seconds) for seconds in (LONG, SHORT, TINY)],
    *[("http:/rpc", f"JSON-RPC, {seconds}", posts({}, LATE), seconds) for seconds in (LONG, SHORT, TINY)],
    *[("http:/mcp", f"MCP of 2025, {seconds}", posts(MCP, LATE), seconds) for seconds in (LONG, SHORT, TINY)],
    *[("tcp:", f"an answer in pieces, {seconds}", dribbles(LATE / 4), seconds) for seconds in (LONG, SHORT, TINY)],
    ("tcp:", "a notification, and a late answer", lines({}, LATE, b'{"jsonrpc":"2.0","method":"hello"}\n'), TINY),
    ("tcp:", "one that never answers initialize", lines({"ping": {"result": {}}}, other=None), SHORT),
    ("tcp:", "one that never answers", lines({}, other=None), SHORT),
    ("http:/rpc", "one that never answers", posts({}, 60), SHORT),
    ("redis:/calc", "one that never answers", says(b""), SHORT),
    ("ws:/rpc", "one that never answers", says(b""), SHORT),
    ("tls:", "one that never answers", says(b""), SHORT),
]
