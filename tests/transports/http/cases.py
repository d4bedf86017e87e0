"""The conformity table of HTTP: raw bytes in, and what must come out, on the native front and on an ASGI server.

`asks` reads answers as a strict client would: status, header fields, body by its length or its chunks.
"""

from __future__ import annotations

import asyncio
from typing import Any

from msgspec import Struct

PATIENCE = 20.0
"""Seconds before a test that waits gives up; never reached when all is well."""
CALL = b'{"jsonrpc":"2.0","method":"subtract","params":[42,23],"id":1}'
ANSWER = b'{"jsonrpc":"2.0","result":19,"id":1}'
NOTE = b'{"jsonrpc":"2.0","method":"update","params":[1]}'
LIMIT = 10_000
"""The `message_size` of the servers that the table is tried on."""


class Answered(Struct, frozen=True):
    """One answer. `interim`: the statuses of the 1xx ones before it."""

    status: int
    headers: dict[str, str]
    body: bytes
    interim: tuple[int, ...] = ()


async def answer(reader: asyncio.StreamReader, *, to: str = "POST") -> Answered:
    """Read one answer. EOFError (IncompleteReadError) when there is none."""
    async with asyncio.timeout(PATIENCE):
        interim: list[int] = []
        while True:
            first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")[:-2]
            version, status, _ = first.split(" ", 2)
            assert version == "HTTP/1.1"
            if not status.startswith("1") or status == "101":
                break
            interim.append(int(status))
        headers: dict[str, str] = {}
        for line in lines:
            name, value = line.split(": ", 1)
            assert name.lower() not in headers, f"{name} twice"
            headers[name.lower()] = value
        if to == "HEAD" or status in ("204", "304", "101"):
            body = b""
        elif headers.get("transfer-encoding") == "chunked":
            assert "content-length" not in headers
            body = b""
            while (size := int(await reader.readline(), 16)) > 0:
                body += await reader.readexactly(size)
                assert await reader.readline() == b"\r\n"
            assert await reader.readline() == b"\r\n"
        elif "content-length" in headers:
            body = await reader.readexactly(int(headers["content-length"]))
        else:
            body = await reader.read()
        return Answered(int(status), headers, body, tuple(interim))


async def rest(reader: asyncio.StreamReader) -> bytes:
    """Everything up to the end; a reset is an end too."""
    async with asyncio.timeout(PATIENCE):
        try:
            return await reader.read()
        except ConnectionError:
            return b""


def post(
    body: bytes = CALL,
    *,
    path: str = "/",
    kind: str | None = "application/json",
    host: str = "127.0.0.1",
    more: str = "",
    version: str = "1.1",
) -> bytes:
    """A POST with a Content-Length. `more`: further header lines, each with its line end."""
    lines = [f"POST {path} HTTP/{version}\r\n", f"Host: {host}\r\n", more, f"Content-Length: {len(body)}\r\n"]
    if kind is not None:
        lines.append(f"Content-Type: {kind}\r\n")
    return "".join((*lines, "\r\n")).encode("latin-1") + body


def get(path: str = "/", *, method: str = "GET", more: str = "", version: str = "1.1") -> bytes:
    """A request without a body."""
    return f"{method} {path} HTTP/{version}\r\nHost: localhost\r\n{more}\r\n".encode("latin-1")


def lined(*lines: str, body: bytes = b"") -> bytes:
    """A request by its lines; whatever the test wants to be wrong."""
    return "\r\n".join((*lines, "", "")).encode("latin-1") + body


def chunked(*chunks: bytes, more: str = "", trailer: bytes = b"") -> bytes:
    """A POST in chunks."""
    head = f"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{more}"
    parts = b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks)
    return head.encode() + b"Transfer-Encoding: chunked\r\n\r\n" + parts + b"0\r\n" + trailer + b"\r\n"


class Case(Struct, frozen=True, kw_only=True):
    """One request and its answer. Members that are None are not looked at."""

    name: str
    request: bytes
    status: int = 200
    body: bytes | None = None
    code: int | None = None
    """Of the JSON-RPC error in the body."""
    headers: dict[str, str | None] = {}
    """None: must not be there."""
    to: str = "POST"
    closes: bool = False
    """The wire is closed after it; else another request is answered on it."""
    native: bool = False
    """HTTP itself: on an ASGI server it is the server's own to decide."""


PLAIN = {"content-type": "application/json", "content-length": str(len(ANSWER)), "connection": None}
WRONG_KINDS = {
    "text/plain": "text/plain",
    "text/plain with a hidden type": "text/plain; x=application/json",
    "a form": "application/x-www-form-urlencoded",
    "another charset": "application/json; charset=latin-1",
    "UTF-16": 'application/json; charset="utf-16"',
    "half a suffix": "application/xjson",
    "a list of types": "text/plain, application/json",
    "jsonp": "application/json-p",
    "nothing": "",
}
RIGHT_KINDS = {
    "plain": "application/json",
    "charset": "application/json; charset=utf-8",
    "CHARSET": 'Application/JSON;CharSet="UTF-8"',
    "json-rpc": "application/json-rpc",
    "suffix": "application/vnd.api+json",
    "other parameters": "application/json; profile=x",
}
FRAMING_FAULTS: dict[str, tuple[str, ...]] = {
    "both lengths": ("Content-Length: 61", "Transfer-Encoding: chunked"),
    "both lengths, the other way": ("Transfer-Encoding: chunked", "Content-Length: 61"),
    "two equal lengths": ("Content-Length: 61", "Content-Length: 61"),
    "two lengths": ("Content-Length: 61", "Content-Length: 6"),
    "two lengths in one": ("Content-Length: 61, 61",),
    "a signed length": ("Content-Length: +61",),
    "a negative length": ("Content-Length: -1",),
    "a hexadecimal length": ("Content-Length: 0x3d",),
    "an empty length": ("Content-Length:",),
    "a length no integer holds": ("Content-Length: 99999999999999999999",),
    "a space before the colon": ("Content-Length : 61",),
    "a folded line": ("Content-Length: 61", "X: a", " b"),
    "a folded length": ("Content-Length: 6", " 1"),
    "a bare CR": ("Content-Length: 61", "X: a\rY: b"),
    "a bare LF": ("Content-Length: 61", "X: a\nY: b"),
    "a NUL": ("Content-Length: 61", "X: a\0b"),
    "no colon": ("Content-Length: 61", "X"),
    "no name": ("Content-Length: 61", ": x"),
    "chunked is not last": ("Transfer-Encoding: chunked, identity",),
    "no coding": ("Transfer-Encoding:",),
    "chunked twice": ("Transfer-Encoding: chunked", "Transfer-Encoding: chunked"),
    "two Hosts": ("Content-Length: 61", "Host: localhost"),
}
CHUNK_FAULTS = {
    "a size in 0x": b"0x3d\r\n" + CALL + b"\r\n0\r\n\r\n",
    "a negative size": b"-1\r\n\r\n",
    "no size": b"\r\n" + CALL + b"\r\n0\r\n\r\n",
    "a size no integer holds": b"fffffffffffffffff\r\n",
    "bare LFs": b"3d\n" + CALL + b"\n0\n\n",
    "more than its size": b"3\r\n" + CALL + b"\r\n0\r\n\r\n",
}
POST_LINES = ("POST / HTTP/1.1", "Host: localhost", "Content-Type: application/json")

CASES = [
    # -- answers
    Case(name="a call", request=post(), body=ANSWER, headers=PLAIN),
    Case(name="a notification", request=post(NOTE), status=204, body=b"", headers={"content-type": None}),
    Case(name="an error is 200", request=post(b'{"jsonrpc":"2.0","method":"nope","id":1}'), code=-32601),
    Case(name="no JSON is 200", request=post(b"{"), code=-32700),
    Case(name="an empty body is not JSON", request=post(b""), code=-32700),
    Case(name="Accept means nothing", request=post(more="Accept: text/html\r\n"), body=ANSWER),
    Case(name="a batch", request=post(b"[" + CALL + b"," + NOTE + b"]"), body=b"[" + ANSWER + b"]"),
    Case(name="a query means nothing", request=post(path="/?a=b"), body=ANSWER),
    Case(name="an escaped path", request=post(path="/%6dath"), body=ANSWER),
    Case(name="another endpoint", request=post(path="/math"), body=ANSWER),
    *[Case(name=f"type: {n}", request=post(kind=kind), body=ANSWER) for n, kind in RIGHT_KINDS.items()],
    # -- what turns away
    *[Case(name=f"wrong type: {n}", request=post(kind=k), status=415, code=-32600) for n, k in WRONG_KINDS.items()],
    *[
        Case(
            name=f"coding {coding}",
            request=post(more=f"Content-Encoding: {coding}\r\n"),
            status=415,
            code=-32600,
            headers={"accept-encoding": "identity"},
        )
        for coding in ("gzip", "x-gzip", "br", "deflate, gzip", "identity, gzip", "nonsense")
    ],
    *[
        Case(name=f"coding {coding}", request=post(more=f"Content-Encoding: {coding}\r\n"), body=ANSWER)
        for coding in ("identity", "Identity")
    ],
    Case(name="no type", request=post(kind=None), status=415, code=-32600),
    Case(name="another path", request=post(path="/nope"), status=404, headers={"content-type": "application/json"}),
    Case(name="two slashes more", request=post(path="/math//"), status=404),
    Case(name="another case", request=post(path="/MATH"), status=404),
    *[
        Case(name=f"{m} is not for methods", request=get(method=m), status=405, headers={"allow": "POST"})
        for m in ("GET", "PUT", "DELETE", "PATCH", "OPTIONS")
    ],
    Case(name="POST is not for documents", request=post(path="/live"), status=405, headers={"allow": "GET, HEAD"}),
    Case(name="too large", request=post(b"x" * (LIMIT + 1)), status=413, code=-32003, closes=True),
    Case(name="as large as may be", request=post(CALL + b" " * (LIMIT - len(CALL))), body=ANSWER),
    # a mounted app leaves the Host to the server in front
    Case(name="a foreign Host", request=post(host="example.com"), status=421, native=True),
    Case(name="a Host that begins alike", request=post(host="localhost.example.com"), status=421, native=True),
    Case(
        name="the health of a foreign Host",
        request=get("/live", more="X: y\r\n").replace(b"localhost", b"example.com"),
        body=b'{"status":"live"}',
    ),
    *[
        Case(name=f"own Host {host}", request=post(host=host), body=ANSWER)
        for host in ("localhost", "LocalHost:1", "127.0.0.1:8000", "[::1]", "[::1]:80")
    ],
    *[
        Case(name=f"foreign Origin {origin}", request=post(more=f"Origin: {origin}\r\n"), status=403)
        for origin in ("https://example.com", "null", "http://localhost.example.com", "file://localhost", "localhost")
    ],
    *[
        Case(name=f"own Origin {o}", request=post(more=f"Origin: {o}\r\n"), body=ANSWER)
        for o in ("http://localhost", "https://localhost:3000", "http://127.0.0.1:8000", "http://[::1]:80")
    ],
    Case(
        name="no CORS", request=post(more="Origin: http://localhost\r\n"), headers={"access-control-allow-origin": None}
    ),
    # -- documents
    Case(name="health", request=get("/live"), body=b'{"status":"live"}', headers={"content-type": "application/json"}),
    Case(name="HEAD", request=get("/live", method="HEAD"), to="HEAD", body=b"", headers={"content-length": "17"}),
    Case(name="the OpenRPC document", request=get("/openrpc.json"), headers={"content-type": "application/json"}),
    Case(name="that of another endpoint", request=get("/math/openrpc.json")),
    # -- messages of HTTP
    Case(name="chunks", request=chunked(CALL[:7], CALL[7:]), body=ANSWER),
    Case(name="one byte a chunk", request=chunked(*(CALL[i : i + 1] for i in range(len(CALL)))), body=ANSWER),
    Case(name="a chunk's extension", request=chunked(CALL).replace(b"3d\r\n", b"3d;a=b\r\n"), body=ANSWER),
    Case(name="a trailer", request=chunked(CALL, trailer=b"X-Sum: 1\r\n"), body=ANSWER),
    Case(name="chunks that are too many", request=chunked(*[b"x" * 1000] * 11), status=413, code=-32003, closes=True),
    Case(name="close", request=post(more="Connection: close\r\n"), body=ANSWER, closes=True),
    Case(name="a blank line before", request=b"\r\n" + post(), body=ANSWER, native=True),
    Case(name="HTTP/1.0", request=post(version="1.0"), body=ANSWER, closes=True, headers={"connection": "close"}),
    Case(
        name="HTTP/1.0 that stays",
        request=post(version="1.0", more="Connection: keep-alive\r\n"),
        body=ANSWER,
        headers={"connection": "keep-alive"},
        native=True,
    ),
    Case(
        name="HTTP/1.0 without a Host",
        request=lined("POST / HTTP/1.0", "Content-Type: application/json", "Content-Length: 61", body=CALL),
        body=ANSWER,
        closes=True,
    ),
    Case(
        name="a whole URL",
        request=post(path="http://localhost:80/math?x", host="example.com"),
        body=ANSWER,
        native=True,
    ),
    Case(name="a foreign URL", request=post(path="http://example.com/"), status=421, native=True),
    Case(
        name="a wish for HTTP/2",
        request=post(more="Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQ\r\n"),
        body=ANSWER,
        native=True,
    ),
    Case(
        name="100-continue with the body",
        request=post(more="Expect: 100-continue\r\n"),
        body=ANSWER,
    ),
    Case(
        name="100-continue for nothing",
        request=post(b"", path="/nope", more="Expect: 100-continue\r\n"),
        status=404,
        closes=True,
        native=True,
    ),
    Case(name="another expectation", request=post(more="Expect: x\r\n"), status=417, closes=True, native=True),
    Case(
        name="another expectation of HEAD",
        request=get("/live", method="HEAD", more="Expect: x\r\n"),
        status=417,
        to="HEAD",
        body=b"",
        closes=True,
        native=True,
    ),
    # -- what is not HTTP, or whose end is not known
    *[
        Case(
            name=f"framing: {name}", request=lined(*POST_LINES, *lines, body=CALL), status=400, closes=True, native=True
        )
        for name, lines in FRAMING_FAULTS.items()
    ],
    *[
        Case(
            name=f"chunk: {name}",
            request=lined(*POST_LINES, "Transfer-Encoding: chunked", body=body),
            status=400,
            closes=True,
            native=True,
        )
        for name, body in CHUNK_FAULTS.items()
    ],
    *[
        Case(
            name=f"coding: {coding}",
            request=lined(*POST_LINES, f"Transfer-Encoding: {coding}", body=b"0\r\n\r\n"),
            status=501,
            closes=True,
            native=True,
        )
        for coding in ("gzip, chunked", "xchunked", "identity")
    ],
    Case(
        name="chunks in HTTP/1.0",
        request=chunked(CALL).replace(b"HTTP/1.1", b"HTTP/1.0"),
        status=400,
        closes=True,
        native=True,
    ),
    Case(name="no Host", request=lined("POST / HTTP/1.1", body=b""), status=400, closes=True, native=True),
    Case(name="an empty Host", request=post(host=""), status=400, closes=True, native=True),
    Case(name="a Host that is none", request=post(host="a b"), status=400, closes=True, native=True),
    Case(name="bare line ends", request=b"POST / HTTP/1.1\nHost: localhost\n\n", status=400, closes=True, native=True),
    Case(name="a method that is none", request=lined("FOO / HTTP/1.1"), status=400, closes=True, native=True),
    Case(name="TLS", request=b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", status=400, closes=True, native=True),
    Case(name="a JSON line", request=CALL + b"\n", status=400, closes=True, native=True),
    Case(name="a path that is none", request=lined("POST x HTTP/1.1"), status=400, closes=True, native=True),
    Case(name="a path in no UTF-8", request=post(path="/%ff"), status=400, closes=True, native=True),
    Case(name="a fragment", request=post(path="/#a"), status=400, closes=True, native=True),
    Case(name="CONNECT", request=lined("CONNECT a:80 HTTP/1.1", "Host: a"), status=400, closes=True, native=True),
    Case(name="HTTP/2", request=b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", status=505, closes=True, native=True),
    Case(
        name="every path, and a header that is none",
        request=lined("OPTIONS * HTTP/1.1", "Host: localhost", "a b: c"),
        status=400,
        closes=True,
        native=True,
    ),
    Case(name="HTTP/2 in words", request=get().replace(b"1.1", b"2.0"), status=505, closes=True, native=True),
    Case(name="HTTP/1.2", request=get().replace(b"1.1", b"1.2"), status=505, closes=True, native=True),
    Case(name="HTTP/0.9", request=b"GET /\r\n\r\n", status=505, closes=True, native=True),
    Case(name="a long head", request=get(more=f"X: {'x' * 20_000}\r\n"), status=431, closes=True, native=True),
    Case(name="many headers", request=get(more="X: x\r\n" * 5_000), status=431, closes=True, native=True),
    Case(name="a long target", request=get("/" + "x" * 20_000), status=414, closes=True, native=True),
    Case(
        name="a long trailer",
        request=chunked(CALL, trailer=b"X: " + b"x" * 20_000 + b"\r\n"),
        status=431,
        closes=True,
        native=True,
    ),
]


def check(case: Case, got: Answered) -> None:
    """AssertionError unless it is what the case asks for."""
    assert got.status == case.status, got
    if case.body is not None:
        assert got.body == case.body
    for name, value in case.headers.items():
        assert got.headers.get(name) == value, (name, got.headers)
    if case.code is not None:
        assert error(got.body)["code"] == case.code


def error(body: bytes) -> dict[str, Any]:
    """The error of a JSON-RPC answer."""
    import json

    told = json.loads(body)
    assert told["jsonrpc"] == "2.0"
    assert told["id"] in (None, 1)
    found: dict[str, Any] = told["error"]
    return found
