"""Whom the console lets in: tables of requests, each sent as bytes to every path of its API, and what comes back.

A row has the lines of a request that differ from one that is in order: "-Host" leaves a line out, a name that stands
twice is sent twice. Of every answer, whoever made it: it forbids what it can, nothing keeps it, no other page may read
it, and the secret is not in it.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
import trustme

from dragoman import Service, serve
from dragoman.auth import Bearer
from dragoman.auth.testing import LocalIssuer
from dragoman.cli.serving.admin import admin, endpoint_of
from dragoman.console import Watching
from dragoman.console.endpoint import LIMITS, STOP, TRY, VIEW
from dragoman.mcp import Server
from dragoman.mcp.extensions.events import Events
from dragoman.mcp.extensions.tasks import Tasks
from dragoman.web import read_console_files
from tests.ports import free_port
from tests.web.reports import Reports, becomes, begin, client

from .ends import Answer, Ends, read_answer, with_console
from .test_door import EVERY_ANSWER, check_headers

GETS = (
    "now", "timeline", "messages", "methods", "errors", "connections", "services", "catalog", "machine", "tasks",
    "subscriptions", "feed",
)  # fmt: skip
POSTS = {
    "stop": '{"ids":[]}',
    "end": '{"ids":[]}',
    "tasks/cancel": '{"ids":[]}',
    "tasks/answer": '{"id":"x","answers":{}}',
    "subscriptions/end": '{"ids":[]}',
    "subscriptions/retry": '{"ids":[]}',
    "try?at=/": '{"jsonrpc":"2.0","method":"add","params":[1,2],"id":1}',
}
PATHS = (*GETS, *POSTS)

Rows = Sequence[tuple[str, int]]

HOSTS: Rows = (
    ("", 200),
    ("Host: localhost:{port}", 200),
    ("Host: LocalHost:{port}", 200),
    ("Host: [::1]:{port}", 200),
    ("Host: [::1]", 200),
    ("Host: 127.0.0.1", 200),
    ("Host: 127.0.0.1:1", 200),
    ("Host: evil.example", 421),
    ("Host: evil.example:{port}", 421),
    ("Host: EVIL.EXAMPLE:{port}", 421),
    ("Host: localhost.evil.example:{port}", 421),
    ("Host: 127.0.0.1.evil.example", 421),
    ("Host: localhost.:{port}", 421),
    ("Host: 127.0.0.1.:{port}", 421),
    ("Host: 127.1:{port}", 421),
    ("Host: 2130706433:{port}", 421),
    ("Host: 0x7f000001", 421),
    ("Host: 0.0.0.0:{port}", 421),
    ("Host: 127.0.0.2:{port}", 421),
    ("Host: 192.168.1.7:{port}", 421),
    ("Host: [::ffff:127.0.0.1]:{port}", 421),
    ("Host: [0:0:0:0:0:0:0:1]:{port}", 421),
    ("Host: [::1%25lo]", 400),
    ("Host: ::1", 400),
    ("Host: user@127.0.0.1:{port}", 400),
    ("Host: 127.0.0.1/evil", 400),
    ("Host: 127.0.0.1 evil.example", 400),
    ("Host: 127.0.0.1, evil.example", 400),
    ("Host: 127.0.0.1:{port}\r\nHost: evil.example", 400),
    ("Host: evil.example\r\nHost: 127.0.0.1:{port}", 400),
    ("Host: 127.0.0.1:{port}\r\nHost: 127.0.0.1:{port}", 400),
    ("Host:", 400),
    ("-Host", 400),
    ("Host: evil.example\r\nX-Forwarded-Host: 127.0.0.1:{port}", 421),
    ("Host: evil.example\r\nForwarded: host=127.0.0.1", 421),
    ("X-Forwarded-Host: evil.example", 200),
)

ORIGINS: Rows = (
    ("Origin: http://127.0.0.1:{port}", 200),
    ("Origin: http://127.0.0.1:{port}\r\nSec-Fetch-Site: same-origin", 200),
    ("Host: localhost:{port}\r\nOrigin: http://localhost:{port}", 200),
    ("Host: [::1]:{port}\r\nOrigin: http://[::1]:{port}", 200),
    ("Origin: null", 403),
    ("Origin: NULL", 403),
    ("Origin:", 403),
    ("Origin: *", 403),
    ("Origin: file://", 403),
    ("Origin: https://evil.example", 403),
    ("Origin: http://127.0.0.1", 403),
    ("Origin: http://127.0.0.1:1", 403),
    ("Origin: http://127.0.0.1:{port}0", 403),
    ("Origin: http://127.0.0.1:0{port}", 403),
    ("Origin: http://127.0.0.1:{port}/", 403),
    ("Origin: http://127.0.0.1:{port}.evil.example", 403),
    ("Origin: http://evil.example#http://127.0.0.1:{port}", 403),
    ("Origin: http://evil127.0.0.1:{port}", 403),
    ("Origin: http://user@127.0.0.1:{port}", 403),
    ("Origin: https://127.0.0.1:{port}", 403),
    ("Origin: ws://127.0.0.1:{port}", 403),
    ("Origin: http://localhost:{port}", 403),
    ("Origin: http://[::1]:{port}", 403),
    ("Origin: HTTP://127.0.0.1:{port}", 403),
    ("Origin: http://127.0.0.1:{port}\r\nOrigin: http://127.0.0.1:{port}", 403),
    ("Origin: http://127.0.0.1:{port}\r\nOrigin: https://evil.example", 403),
    ("Origin: chrome-extension://abcdefghijklmnop", 403),
    ("Origin: https://evil.example\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Host: evil.example", 403),
    ("Origin: https://127.0.0.1:{port}\r\nX-Forwarded-Proto: https", 403),
)

SITES: Rows = (
    ("Sec-Fetch-Site: none", 200),
    ("Sec-Fetch-Site: same-origin", 200),
    ("Sec-Fetch-Site: same-site", 403),
    ("Sec-Fetch-Site: cross-site", 403),
    ("Sec-Fetch-Site: Same-Origin", 403),
    ("Sec-Fetch-Site:", 403),
    ("Sec-Fetch-Site: same-origin\r\nSec-Fetch-Site: cross-site", 403),
    ("Sec-Fetch-Site: cross-site\r\nOrigin: http://127.0.0.1:{port}", 403),
    ("Sec-Fetch-Site: same-site\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: document", 403),
    ("Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: no-cors\r\nSec-Fetch-Dest: script", 403),
    ("Referer: https://evil.example/", 200),  # nothing is decided by what a page may leave out
)

SECRETS: Rows = (
    ("-Authorization", 401),
    ("Authorization:", 401),
    ("Authorization: Bearer", 401),
    ("Authorization: {secret}", 401),
    ("Authorization: bearer {secret}", 401),
    ("Authorization: Bearer  {secret}", 401),
    ("Authorization: Bearer\t{secret}", 401),
    ("Authorization: Bearer {secret}x", 401),
    ("Authorization: Bearer x{secret}", 401),
    ("Authorization: Bearer {half}", 401),
    ("Authorization: Bearer {swapped}", 401),
    ("Authorization: Bearer {secret}, Bearer {secret}", 401),
    ("Authorization: Bearer {secret}\r\nAuthorization: Bearer {secret}", 401),
    ("Authorization: Bearer {secret}\r\nAuthorization: Bearer wrong", 401),
    ("Authorization: Bearer wrong\r\nAuthorization: Bearer {secret}", 401),
    ("Authorization: Basic {secret}", 401),
    ("Authorization: Basic OnNlY3JldA==", 401),
    ("Authorization: Digest {secret}", 401),
    ('Authorization: Bearer "{secret}"', 401),
    ("Authorization: Bearer {long}", 401),
    ("Authorization: Bearer None", 401),
    ("Authorization: Bearer \xff\xfe", 401),
    ("-Authorization\r\nCookie: secret={secret}; Authorization=Bearer {secret}", 401),
    ("-Authorization\r\nX-Authorization: Bearer {secret}", 401),
    ("-Authorization\r\nProxy-Authorization: Bearer {secret}", 401),
    ("-Authorization\r\nX-Api-Key: {secret}", 401),
    ("-Authorization\r\nReferer: http://127.0.0.1:{port}/#{secret}", 401),
    ("Authorization: Bearer {secret}\r\nCookie: a=b", 200),
    ("authorization: Bearer {secret} ", 200),  # blanks around a value are none of it
)

LINES: Rows = (
    ("Range: bytes=0-3", 200),
    ("If-None-Match: *", 200),
    ("If-Modified-Since: Thu, 01 Jan 2099 00:00:00 GMT", 200),
    ("Accept: text/html", 200),
    ("Accept: image/*", 200),
    ("X-Forwarded-For: 127.0.0.1\r\nX-Real-IP: 127.0.0.1\r\nVia: 1.1 evil", 200),
    ("X-Original-URL: /api/stop\r\nX-Rewrite-URL: /api/stop", 200),
    ("X-HTTP-Method-Override: POST\r\nX-Method-Override: DELETE\r\nX-HTTP-Method: PUT", 200),
    ("Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABk", 200),
    ("Access-Control-Request-Method: GET\r\nOrigin: http://127.0.0.1:{port}", 200),
    ("Access-Control-Request-Private-Network: true", 200),
    ("Expect: 200-ok", 417),
    ("Content-Encoding: gzip", 415),
    ("Transfer-Encoding: gzip", 501),
    ("Bad Name: x", 400),
    ("X: a\r\n folded", 400),
    ("X: a\0b", 400),
    ("X: " + "y" * 70_000, 431),
)


def lines_of(ends: Ends, row: str) -> str:
    """Return the header lines of a request: those that are in order, but for what the row says."""
    words = {
        "port": f"{ends.port}", "secret": ends.secret, "half": ends.secret[:21], "swapped": ends.secret.swapcase(),
        "long": "A" * 10_000,
    }  # fmt: skip
    given = [one for one in row.format(**words).split("\r\n") if one]
    named = {one.lstrip("-").partition(":")[0].lower() for one in given}
    order = {"Host": f"127.0.0.1:{ends.port}", "Authorization": f"Bearer {ends.secret}"}
    lines = [f"{name}: {value}" for name, value in order.items() if name.lower() not in named]
    return "".join(f"{one}\r\n" for one in (*lines, *(one for one in given if not one.startswith("-"))))


def asking(ends: Ends, path: str, row: str = "", method: str = "", version: str = "1.1") -> bytes:
    """Return a request for a path of the API that is in order, but for what the row says."""
    body = POSTS.get(path, "")
    lines = lines_of(ends, row)
    if body and "content-type:" not in lines.lower():
        lines += "Content-Type: application/json\r\n"
    if "content-length:" in lines.lower():
        body = ""
    elif body and "transfer-encoding:" not in lines.lower():
        lines += f"Content-Length: {len(body)}\r\n"
    return f"{method or ('POST' if body else 'GET')} /api/{path} HTTP/{version}\r\n{lines}\r\n{body}".encode("latin-1")


def check(ends: Ends, answer: Answer) -> None:
    """Check what is true of every answer."""
    check_headers(answer.headers)
    told = f"{answer.headers}".encode() + answer.body
    assert ends.secret.encode() not in told
    assert ends.secret.swapcase().encode() not in told
    assert b"Traceback" not in told
    assert b".py" not in answer.body or answer.status == 200
    if answer.status == 401:
        assert answer.headers["www-authenticate"] == ['Bearer realm="dragoman console"']


@asynccontextmanager
async def shop() -> AsyncIterator[Ends]:
    """A service with a method, and its console, which keeps messages."""
    api = Service("shop")

    @api.method
    async def add(a: int, b: int) -> int:
        return a + b

    async with with_console({"/": api, "/lab": lab()}, "http://127.0.0.1:0", messages=True) as ends:
        yield ends


def lab() -> Server:
    """A server that has tasks and events."""
    return Server("lab", version="1", extensions=[Tasks(), Events()])


@pytest.fixture(autouse=True)
def _no_faults(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)


def nothing_failed(caplog: pytest.LogCaptureFixture) -> None:
    """No request was a fault of the server, which logs those."""
    assert [one.getMessage() for one in caplog.records if one.levelno >= logging.ERROR] == []


@pytest.mark.parametrize(
    "rows", [HOSTS, ORIGINS, SITES, SECRETS, LINES], ids=["hosts", "origins", "sites", "secrets", "lines"]
)
async def test_who_comes_in(rows: Rows, caplog: pytest.LogCaptureFixture) -> None:
    async with shop() as ends:
        wrong = []
        for row, status in rows:
            for path in PATHS:
                answer = await ends.send(asking(ends, path, row))
                if answer.status != status:
                    wrong.append((row[:80], path, status, answer.status))
                check(ends, answer)
        assert wrong == []
        nothing_failed(caplog)


METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND", "CONNECT")


@pytest.mark.parametrize("method", METHODS)
async def test_methods(method: str, caplog: pytest.LogCaptureFixture) -> None:
    """One for each path, whatever else the request says."""
    async with shop() as ends:
        for path in PATHS:
            own = "POST" if path in POSTS else "GET"
            row = "" if path in POSTS else "Content-Type: application/json\r\nContent-Length: 0"
            answer = await ends.send(asking(ends, path, row, method))
            assert answer.status == (200 if method == own else 405), (path, method)
            assert answer.headers.get("allow") == (None if method == own else [own])
            assert not (method == "HEAD" and answer.body)
            check(ends, answer)
        for foreign in ("-Authorization\r\nOrigin: https://evil.example", "-Authorization"):
            answer = await ends.send(asking(ends, "stop", foreign, method))
            assert answer.status == (403 if "Origin" in foreign else 401 if method == "POST" else 405)
            check(ends, answer)
        for unknown in ("get", "FOO", "GET\t", " GET"):
            assert (await ends.send(asking(ends, "now", "", unknown))).status in (400, 505)
        nothing_failed(caplog)


PREFLIGHTS: Rows = (
    ("Origin: https://evil.example\r\nAccess-Control-Request-Method: GET", 403),
    ("Origin: http://127.0.0.1:1\r\nAccess-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: authorization,content-type", 403),
    ("Origin: null\r\nAccess-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: content-type", 403),
    ("Origin: http://localhost:{port}\r\nAccess-Control-Request-Method: GET", 403),
    ("Origin: http://127.0.0.1:{port}\r\nAccess-Control-Request-Method: GET", 405),
    ("Origin: https://evil.example\r\nAccess-Control-Request-Private-Network: true\r\nAccess-Control-Request-Method: GET", 403),
    ("Host: evil.example\r\nOrigin: http://evil.example\r\nAccess-Control-Request-Method: GET", 421),
    ("-Authorization\r\nAccess-Control-Request-Method: GET", 405),
)  # fmt: skip


async def test_no_page_gets_leave_to_ask() -> None:
    async with shop() as ends:
        for row, status in PREFLIGHTS:
            for path in PATHS:
                answer = await ends.send(
                    asking(ends, path, f"{row}\r\nContent-Length: 0\r\nContent-Type: x", "OPTIONS")
                )
                assert answer.status == status, (row, path)
                check(ends, answer)


TYPES: Rows = (
    ("Content-Type: application/json", 200),
    ("Content-Type: APPLICATION/JSON ; charset=UTF-8", 200),
    ("Content-Type: application/json;", 200),
    ("Content-Type: text/plain", 415),
    ("Content-Type: text/plain;charset=UTF-8", 415),
    ("Content-Type: text/plain; x=application/json", 415),
    ("Content-Type: application/x-www-form-urlencoded", 415),
    ("Content-Type: multipart/form-data; boundary=x", 415),
    ("Content-Type: text/html", 415),
    ("Content-Type: application/xml", 415),
    ("Content-Type: application/octet-stream", 415),
    ("Content-Type: application/json-rpc", 415),
    ("Content-Type: application/csp-report", 415),  # which browsers send by themselves
    ("Content-Type: application/reports+json", 415),
    ("Content-Type: application/json; charset=utf-16", 415),
    ("Content-Type: application/json; charset=utf-7", 415),
    ('Content-Type: application/json; charset="utf-8"', 415),
    ("Content-Type: application/json, text/plain", 415),
    ("Content-Type: text/plain\r\nContent-Type: application/json", 415),
    ("Content-Type: application/json\r\nContent-Type: text/plain", 415),
    ("Content-Type: application/jsonx", 415),
    ("Content-Type: application/json x", 415),
    ("Content-Type:", 415),
)


@pytest.mark.parametrize("path", POSTS)
async def test_a_form_is_no_order(path: str) -> None:
    async with shop() as ends:
        for row, status in TYPES:
            answer = await ends.send(asking(ends, path, row))
            assert answer.status == status, row
            check(ends, answer)
        answer = await ends.send(asking(ends, path).replace(b"Content-Type: application/json\r\n", b""))
        assert answer.status == 415
        assert not ends.recorder.timeline.count or path.startswith("try")


MOST = LIMITS.message_size
# the lines of a POST, its body, and the status
BODIES: Sequence[tuple[str, bytes, int]] = (
    ("Transfer-Encoding: chunked", b"a\r\n" + b'{"ids":[]}' + b"\r\n0\r\n\r\n", 200),
    ("Transfer-Encoding: chunked", b'1\r\n{\r\n9\r\n"ids":[]}\r\n0\r\nAuthorization: x\r\n\r\n', 200),
    ("Transfer-Encoding: chunked", b"a;x=y\r\n" + b'{"ids":[]}' + b"\r\n0\r\n\r\n", 200),
    ("Transfer-Encoding: chunked", b"zz\r\n", 400),
    ("Transfer-Encoding: chunked", b"-1\r\n", 400),
    ("Transfer-Encoding: chunked", b"fffffffffffffffff\r\n", 400),
    ("Transfer-Encoding: chunked", b"11000\r\n" + b"x" * 0x11000 + b"\r\n0\r\n\r\n", 413),
    ("Transfer-Encoding: chunked, gzip", b"", 400),
    ("Transfer-Encoding: identity", b"", 501),
    ("Transfer-Encoding: chunked\r\nContent-Length: 10", b'a\r\n{"ids":[]}\r\n0\r\n\r\n', 400),
    ("Content-Length: 10\r\nTransfer-Encoding: chunked", b'a\r\n{"ids":[]}\r\n0\r\n\r\n', 400),
    ("Content-Length: 10\r\nContent-Length: 11", b'{"ids":[]} ', 400),
    ("Content-Length: -1", b"", 400),
    ("Content-Length: +10", b'{"ids":[]}', 400),
    ("Content-Length: 1e1", b'{"ids":[]}', 400),
    ("Content-Length: " + "9" * 30, b"", 400),
    (f"Content-Length: {MOST + 1}", b"", 413),
    (f"Content-Length: {MOST + 1}\r\nExpect: 100-continue", b"", 413),
    ("Content-Length: 9999999999", b"", 413),
    ("Content-Length: 10\r\nExpect: 100-continue", b'{"ids":[]}', 200),
    ("Content-Length: 10\r\nExpect: 100-continue\r\nOrigin: https://evil.example", b"", 403),
    ("Content-Length: 0", b"", 400),
    ("", b"", 400),
    ("Content-Length: 12", b'\xef\xbb\xbf{"ids":[]}'[:12], 400),
    ("Content-Length: 6", '{"'.encode("utf-16"), 400),
    ("Content-Length: 5000", b"[" * 5000, 400),
    ("Content-Length: 60000", b'{"ids":' * 8571 + b"   ", 400),
    ("Content-Length: 20", b'{"ids":["\\ud800\\u"]} ', 400),
    ("Content-Length: 18", b'{"ids":["\\ud800"]}', 400),
    ("Content-Length: 19", b'{"ids":[],"ids":1} ', 400),
    ("Content-Length: 24", b'{"__proto__":1,"ids":[]}', 400),
    ("Content-Length: 17", b'{"ids":[null,1]} ', 400),
    ("Content-Length: 12", b'{"ids":[""]}', 200),
    ("Content-Length: 27", b'{"ids":["1:1","9999999:1"]}', 200),
)


@pytest.mark.parametrize("path", ["stop", "end", "tasks/cancel", "subscriptions/end", "subscriptions/retry"])
async def test_bodies(path: str, caplog: pytest.LogCaptureFixture) -> None:
    async with shop() as ends:
        for row, body, status in BODIES:
            head = f"POST /api/{path} HTTP/1.1\r\n{lines_of(ends, row)}Content-Type: application/json\r\n\r\n"
            answer = await ends.send(head.encode() + body)
            assert answer.status == status, (row, body[:40], answer.body)
            check(ends, answer)
        nothing_failed(caplog)


# targets and the status of a GET and of a POST of {"ids":[]} to them
TARGETS: Sequence[tuple[str, int, int]] = (
    ("/api/stop/", 405, 200),
    ("/%61pi/stop", 405, 200),
    ("/api/%73top", 405, 200),
    ("http://127.0.0.1:{port}/api/stop", 405, 200),
    ("http://evil.example/api/stop", 421, 421),
    ("https://127.0.0.1:{port}/api/stop", 405, 200),
    ("http://evil.example@127.0.0.1:{port}/api/stop", 421, 421),
    ("http://127.0.0.1:{port}@evil.example/api/stop", 421, 421),
    ("http:///api/stop", 421, 421),
    ("ftp://127.0.0.1/api/stop", 400, 400),
    ("file:///etc/passwd", 400, 400),
    ("//evil.example/api/stop", 404, 404),
    ("//api/stop", 404, 404),
    ("/api//stop", 404, 404),
    ("/api/./stop", 404, 404),
    ("/api/../api/stop", 404, 404),
    ("/api/%2e%2e/api/stop", 404, 404),
    ("/api/..%2fapi%2fstop", 404, 404),
    ("/..%5c..%5cetc%5cpasswd", 404, 404),
    ("/api\\stop", 404, 404),
    ("/api%5cstop", 404, 404),
    ("/api/stop%00", 404, 404),
    ("/api/stop%20", 404, 404),
    ("/api/stop;x", 404, 404),
    ("/api/stop.json", 404, 404),
    ("/API/STOP", 404, 404),
    ("/api/%2573top", 404, 404),
    ("/api/stop%ff", 400, 400),
    ("/api/stop%0d%0aX-Evil:%201", 404, 404),
    ("/api/%E2%80%AEpots", 404, 404),
    ("/api", 404, 404),
    ("/api/", 404, 404),
    ("/api/try/at", 404, 404),
    ("/docs", 404, 404),
    ("/docs/services", 404, 404),
    ("/metrics", 404, 404),
    ("/.well-known/oauth-protected-resource", 404, 404),
    ("/favicon.ico", 404, 404),
    ("/{hash}/", 404, 404),
    ("/{hash}/app.js", 404, 404),
    ("/{hash}/../kit.js", 404, 404),
    ("/{hash}/%2e%2e/pyproject.toml", 404, 404),
    ("/{hash}/console/index.html", 404, 404),
    ("/{hash}/vendor/vendor.toml", 404, 404),
    ("/0000000000000000/kit.js", 404, 404),
    ("/index.html", 404, 404),
    ("*", 404, 404),
    ("?", 400, 400),
    ("api/stop", 400, 400),
    ("/api/stop#x", 400, 400),
    ("/api/stop?", 405, 200),
    ("/api/stop?secret={secret}&access_token={secret}", 405, 200),
    ("/" + "a" * 70_000, 414, 414),
)


async def test_targets(caplog: pytest.LogCaptureFixture) -> None:
    folder = next(path for path in read_console_files() if path != "/").split("/")[1]
    async with shop() as ends:
        for target, *statuses in TARGETS:
            at = target.format(port=ends.port, secret=ends.secret, hash=folder)
            for method, status in zip(("GET", "POST"), statuses, strict=True):
                row = "Content-Type: application/json\r\nContent-Length: 10" if method == "POST" else ""
                body = '{"ids":[]}' if method == "POST" else ""
                answer = await ends.send(f"{method} {at} HTTP/1.1\r\n{lines_of(ends, row)}\r\n{body}".encode())
                assert answer.status == status, (method, target[:80], answer.body)
                assert "x-evil" not in answer.headers
                check(ends, answer)
        nothing_failed(caplog)


@pytest.mark.parametrize(
    "given", ["?secret={secret}", "?access_token={secret}", "?token=Bearer%20{secret}", "?{secret}", "/{secret}"]
)
async def test_the_secret_is_taken_from_nowhere_else(given: str) -> None:
    async with shop() as ends:
        for path in PATHS:
            at = path.partition("?")[0] + given.format(secret=ends.secret)
            raw = asking(ends, path, "-Authorization").replace(f"/api/{path} ".encode(), f"/api/{at} ".encode(), 1)
            answer = await ends.send(raw)
            assert answer.status == (404 if given.startswith("/") else 401)
            if answer.status == 401:  # a 404 repeats the path, to the one who sent it
                check(ends, answer)


# a path with a query, and the status of a request that is in order
QUERIES: Rows = (
    ("now?where=1", 200),
    ("now?where=1&where=0", 200),
    ("now?where=" + "1" * 10_000, 200),
    ("now?where=" + "1" * 60_000, 414),
    ("now?__proto__=1&constructor=2", 200),
    ("now?" + "&".join(["a=1"] * 20), 200),
    ("now?" + "&".join(["a=1"] * 21), 400),
    ("now?" + "&" * 1000, 400),
    ("timeline?limit=1", 200),
    ("timeline?limit=5&limit=0", 400),
    ("timeline?limit=0&limit=5", 200),  # the last one counts
    ("timeline?limit=", 400),
    ("timeline?limit=1.5", 400),
    ("timeline?limit=+5", 400),
    ("timeline?limit=%EF%BC%95", 400),  # a digit, but none of ours
    ("timeline?limit=0x5", 400),
    ("timeline?limit=" + "9" * 10_000, 400),
    ("timeline?before=0", 200),
    ("timeline?before=-1", 200),
    ("timeline?before=1e400", 200),
    ("timeline?before=nan", 200),
    ("timeline?before=", 400),
    ("timeline?before=x", 400),
    ("timeline?before=" + "9" * 10_000, 200),
    ("timeline?q=%00%ff%ed%a0%80", 200),
    ("timeline?q=ms:>nan", 400),
    ("timeline?q=ms:>" + "9" * 400, 400),
    ("timeline?q=" + "(a%2B)%2B%24" * 40, 200),
    ("timeline?q=id:<script>alert(1)</script>".replace("<", "%3C").replace(">", "%3E"), 200),
    ("timeline?q=" + "x" * 501, 400),
    ("timeline?q=__class__:x", 400),
    ("timeline?q=:x", 200),
    ("messages?limit=1001", 400),
    ("messages?before=inf", 200),
    ("tasks?limit=200&status=working", 200),
    ("tasks?limit=201", 400),
    ("tasks?status=", 200),
    ("tasks?status=__class__", 400),
    ("tasks?status=working&status=input_required", 200),
    ("tasks?before=nan", 200),
    ("tasks?before=x", 400),
    ("tasks?id=", 404),
    ("tasks?id=%00", 404),
    ("tasks?id=" + "9" * 10_000, 404),
    ("tasks?id=..%2f..%2fetc%2fpasswd", 404),
    ("subscriptions?limit=200&state=resting", 200),
    ("subscriptions?limit=201", 400),
    ("subscriptions?state=__class__", 400),
    ("subscriptions?q=%00%ff%ed%a0%80", 200),
    ("subscriptions?q=" + "x" * 501, 400),
    ("subscriptions?q=" + "x+" * 6, 400),
    ("subscriptions?after=%00%ff+%ed%a0%80", 200),
    ("subscriptions?after=" + "9" * 10_000, 400),
    ("methods?seconds=1&step=900", 200),
    ("methods?seconds=0", 400),
    ("methods?step=0", 400),
    ("methods?seconds=901", 400),
    ("methods?seconds=900&step=1", 200),
    ("feed?q=ms:fast", 400),
    ("feed?calls=0&q=x", 200),
    ("catalog?at=/../../etc/passwd", 200),
    ("machine?pid=1", 200),
    ("services?may=console:stop", 200),
    ("errors?limit=-1", 200),
    ("connections?more=1", 200),
)


async def test_queries(caplog: pytest.LogCaptureFixture) -> None:
    async with shop() as ends:
        wrong = []
        for target, status in QUERIES:
            answer = await ends.send(asking(ends, target))
            if answer.status != status:
                wrong.append((target[:80], status, answer.status, answer.body[:80]))
            check(ends, answer)
        assert wrong == []
        nothing_failed(caplog)


# what a call names as `at`, and the status
PLACES: Rows = (
    ("try?at=/", 200),
    ("try?at=", 200),
    ("try", 200),
    ("try?at=/other", 400),
    ("try?at=/&at=/other", 400),
    ("try?at=http://evil.example/", 400),
    ("try?at=file:///etc/passwd", 400),
    ("try?at=%00", 400),
    ("try?at=..", 400),
    ("try?at=" + "/" * 10_000, 400),
    ("try?at=__class__", 400),
)
# a message, and the code of its error
MESSAGES: Sequence[tuple[bytes, int | None]] = (
    (b'{"jsonrpc":"2.0","method":"add","params":[1,2],"id":1}', None),
    (b"", -32700),
    (b"[", -32700),
    (b"[" * 60_000, -32003),
    (b"\xff\xfe", -32700),
    (b"[]", -32600),
    (b"7", -32600),
    (b'{"jsonrpc":"2.0","method":"__init__","id":1}', -32601),
    (b'{"jsonrpc":"2.0","method":"rpc.eval","id":1}', -32601),
    (b'{"jsonrpc":"2.0","method":"' + b"w" * 60_000 + b'","id":1}', -32003),
    (b'{"jsonrpc":"2.0","method":"add","params":{"a":1,"b":2,"__class__":3},"id":1}', -32602),
    (b'{"jsonrpc":"2.0","method":"add","params":[1e999,2],"id":1}', -32700),
)


async def test_calls_from_the_page(caplog: pytest.LogCaptureFixture) -> None:
    async with shop() as ends:
        for target, status in PLACES:
            raw = ends.request(f"/api/{target}", "POST", MESSAGES[0][0])
            answer = await ends.send(raw)
            assert answer.status == status, target[:80]
            check(ends, answer)
        for body, code in MESSAGES:
            answer = await ends.send(ends.request("/api/try?at=/", "POST", body))
            assert answer.status == 200, body[:80]
            check(ends, answer)
            found = msgspec.json.decode(answer.body)
            assert (found["error"]["code"] if "error" in found else None) == code, (body[:80], found)
        nothing_failed(caplog)


async def test_one_connection_is_asked_each_time() -> None:
    """What a request with the secret found out about a head is not lent to one without."""
    async with shop() as ends:
        for path in ("now", "services", "stop", "try?at=/"):
            rows = ["", "", "", "-Authorization", "", "Sec-Fetch-Site: cross-site", "", "Origin: null", "", "Host: evil.example",
                    "Authorization: Bearer wrong", "", "Sec-Fetch-Site: same-origin", "Sec-Fetch-Site: same-site"]  # fmt: skip
            answers = await ends.send_all(*(asking(ends, path, row) for row in rows))
            assert [one.status for one in answers] == [
                200,
                200,
                200,
                401,
                200,
                403,
                200,
                403,
                200,
                421,
                401,
                200,
                200,
                403,
            ]
            for one in answers:
                check(ends, one)


async def test_a_request_behind_another_needs_the_secret_too() -> None:
    async with shop() as ends:
        reader, writer = await asyncio.open_connection("127.0.0.1", ends.port)
        writer.write(asking(ends, "services") * 2 + asking(ends, "stop", "-Authorization") + asking(ends, "services"))
        assert [(await read_answer(reader)).status for _ in range(4)] == [200, 200, 401, 200]
        writer.close()


SOCKETS: Rows = (
    ("", 404),
    ("-Authorization", 404),
    ("-Authorization\r\nOrigin: http://127.0.0.1:{port}", 404),
    ("-Authorization\r\nOrigin: http://127.0.0.1:1", 404),  # loopback's, for which the listener has no objection
    ("-Authorization\r\nOrigin: https://evil.example", 403),
    ("Host: evil.example", 421),
)


async def test_there_is_no_web_socket() -> None:
    upgrade = "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="
    async with shop() as ends:
        for row, status in SOCKETS:
            lines = lines_of(ends, f"{row}\r\n{upgrade}")
            answer = await ends.send(f"GET / HTTP/1.1\r\n{lines}\r\n".encode())
            assert answer.status == status, row
            check(ends, answer)


VERSIONS: Sequence[tuple[str, str, int]] = (
    ("1.0", "", 200),
    ("1.0", "-Host", 421),
    ("1.0", "Host: evil.example", 421),
    ("1.0", "-Authorization", 401),
    ("0.9", "", 505),
    ("2.0", "", 505),
    ("1.2", "", 505),
    ("x", "", 400),
)


async def test_versions() -> None:
    async with shop() as ends:
        for version, row, status in VERSIONS:
            answer = await ends.send(asking(ends, "services", row, version=version))
            assert answer.status in (status, 400 if status == 505 else status), (version, row)
            check(ends, answer)
        answer = await ends.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        assert answer.status in (400, 505)
        check(ends, answer)
        answer = await ends.send(b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n")
        assert answer.status == 400
        check(ends, answer)


FILES: Rows = (
    ("", 200),
    ("-Authorization", 200),
    ("Sec-Fetch-Site: none\r\n-Authorization", 200),
    ("Sec-Fetch-Site: same-site", 404),
    ("Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate", 404),
    ("Origin: https://evil.example", 403),
    ("Origin: null", 403),
    ("Host: evil.example:{port}", 421),
)


async def test_files_of_the_page_are_for_the_page() -> None:
    async with shop() as ends:
        for path in read_console_files():
            for row, status in FILES:
                for method in ("GET", "HEAD"):
                    answer = await ends.send(f"{method} {path} HTTP/1.1\r\n{lines_of(ends, row)}\r\n".encode())
                    assert answer.status == status, (path, row)
                    if status == 200:
                        names = ("x-content-type-options", "referrer-policy", "cross-origin-resource-policy")
                        assert {one: answer.headers.get(one) for one in names} == {
                            one: EVERY_ANSWER[one] for one in names
                        }
                        assert not [
                            one for one in answer.headers if one.startswith("access-control") or one == "set-cookie"
                        ]
                        assert ends.secret.encode() not in answer.body
                    else:
                        check(ends, answer)
            if path == "/":
                assert answer.headers["content-type"] == ["application/json"]  # the refusal, too, is no page


# -- behind TLS, with tokens


AUTHORITY = trustme.CA()
RESOURCE = "https://me.example"
ALLOWED = dict.fromkeys(("stop", "end", "tasks/cancel", "subscriptions/end", "subscriptions/retry"), STOP) | {
    "tasks/answer": TRY,
    "try?at=/": TRY,
}
SCOPES: Sequence[str | None] = (
    None, "", VIEW, TRY, STOP, f"{VIEW} {TRY}", f"{VIEW} {STOP}", f"{TRY} {STOP}", f"{VIEW} {TRY} {STOP}", "console",
    "console:*", "CONSOLE:VIEW", "console:views", "admin",
)  # fmt: skip
"""None: no token."""


async def test_each_scope_allows_its_own() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    AUTHORITY.issue_cert("127.0.0.1").configure_cert(context)
    trust = ssl.create_default_context()
    AUTHORITY.configure_trust(trust)
    api = Service("shop")

    @api.method
    async def add(a: int, b: int) -> int:
        return a + b

    with LocalIssuer(resources=[RESOURCE, "https://other.example"]) as issuer:
        auth = Bearer(issuer.url, resource=RESOURCE)
        at: Any = {"urls": "https://127.0.0.1:0", "console": "0.0.0.0:0", "console_messages": True}
        async with serve({"/": api, "/lab": lab()}, tls=context, auth=auth, **at) as serving:
            assert serving.console is not None
            port = int(serving.console.removeprefix("https://0.0.0.0:").rstrip("/"))

            async def ask(path: str, token: str | None, row: str = "") -> Answer:
                ends = Ends(serving, None, None, port, token or "")  # type: ignore[arg-type]
                reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trust)
                writer.write(asking(ends, path, row if token is not None else f"{row}\r\n-Authorization"))
                try:
                    answer = await read_answer(reader)
                finally:
                    writer.close()
                check_headers(answer.headers)
                assert not token or token.encode() not in answer.body + f"{answer.headers}".encode()
                assert answer.headers.get("www-authenticate", ["Bearer"])[0].startswith("Bearer")
                return answer

            for scopes in SCOPES:
                token = None if scopes is None else issuer.token("ada", scopes=scopes, resource=RESOURCE)
                for path in PATHS:
                    needed = ALLOWED.get(path, VIEW)
                    status = 401 if scopes is None else 200 if needed in (scopes or "").split() else 403
                    assert (await ask(path, token)).status == status, (scopes, path)
            everything = f"{VIEW} {TRY} {STOP}"
            good = issuer.token("ada", scopes=everything, resource=RESOURCE)
            other = issuer.token("ada", scopes=everything, resource="https://other.example")
            for path in PATHS:
                for token, row, status in (
                    ("x" * 40, "", 401),
                    (good[:-4] + "AAAA", "", 401),
                    (other, "", 401),
                    (good, "Origin: https://127.0.0.1:{port}", 200),
                    (good, "Origin: http://127.0.0.1:{port}", 403),
                    (good, "Origin: https://evil.example", 403),
                    (good, "Origin: null", 403),
                    (good, "Sec-Fetch-Site: same-site", 403),
                    (good, "X-Forwarded-Host: evil.example\r\nOrigin: https://evil.example", 403),
                ):
                    assert (await ask(path, token, row)).status == status, (path, row, token[:10])
                assert (await ask(f"{path}{'&' if '?' in path else '?'}access_token={good}", None)).status in (400, 401)


async def test_a_question_is_for_those_who_may_answer_it() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    AUTHORITY.issue_cert("127.0.0.1").configure_cert(context)
    trust = ssl.create_default_context()
    AUTHORITY.configure_trust(trust)
    reports = Reports()
    with LocalIssuer(resources=[RESOURCE]) as issuer:
        auth = Bearer(issuer.url, resource=RESOURCE)
        at: Any = {"urls": "https://127.0.0.1:0", "console": "0.0.0.0:0"}
        async with serve(reports.app, tls=context, auth=auth, **at) as serving, client(reports, "ada") as calls:
            assert serving.console is not None
            port = int(serving.console.removeprefix("https://0.0.0.0:").rstrip("/"))
            await becomes(calls, await begin(calls, "publish", title="Which?"), "input_required")

            async def ask(scopes: str, path: str, body: bytes = b"") -> Any:
                ends = Ends(serving, None, None, port, issuer.token("eve", scopes=scopes, resource=RESOURCE))  # type: ignore[arg-type]
                reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trust)
                writer.write(ends.request(path, "POST" if body else "GET", body))
                try:
                    return (await read_answer(reader)).json
                finally:
                    writer.close()

            ((one,),) = [(await ask(VIEW, "/api/tasks"))["tasks"]]
            for scopes, seen in ((VIEW, False), (f"{VIEW} {STOP}", False), (f"{VIEW} {TRY}", True)):
                found = (await ask(scopes, f"/api/tasks?id={one['id']}"))["task"]
                assert (found["questions_open"], "questions" in found) == (1, seen), scopes
            (key,) = found["questions"]
            said = msgspec.json.encode({"id": one["id"], "answers": {key: {"action": "decline"}}})
            assert "console:try" in (await ask(f"{VIEW} {STOP}", "/api/tasks/answer", said))["error"]
            assert (await ask(TRY, "/api/tasks/answer", said))["done"][0]["error"] == ""


# -- `--admin`, which has the same source and no page


ADMIN: Rows = (
    ("", 200),
    ("Host: localhost:{port}", 200),
    ("Host: [::1]:{port}", 200),
    ("Host: evil.example:{port}", 421),
    ("Host: localhost.:{port}", 421),
    ("-Host", 400),
    ("Origin: http://127.0.0.1:{port}", 403),
    ("Origin: http://localhost:{port}", 403),
    ("Origin: https://127.0.0.1:{port}", 403),
    ("Origin: null", 403),
    ("Origin:", 403),
    ("Origin: https://evil.example", 403),
    ("-Authorization", 401),
    ("Authorization: Bearer {half}", 401),
    ("Authorization: Bearer {secret}x", 401),
    ("Authorization: Basic {secret}", 401),
    ("Authorization: Bearer {secret}\r\nAuthorization: Bearer {secret}", 401),
    ("-Authorization\r\nCookie: secret={secret}", 401),
    ("Content-Type: text/plain", 415),
    ("Content-Type: application/x-www-form-urlencoded", 415),
    ("Content-Type: multipart/form-data; boundary=x", 415),
    ("Content-Type: application/json; charset=utf-16", 415),
    ("Content-Encoding: gzip", 415),
    ("Transfer-Encoding: gzip", 501),
)
ADMIN_PATHS: Sequence[tuple[str, str, int]] = (
    ("GET", "/", 405),
    ("OPTIONS", "/", 405),
    ("PUT", "/", 405),
    ("GET", "/docs", 404),
    ("GET", "/docs/services", 404),
    ("GET", "/other", 404),
    ("GET", "/api/now", 404),
    ("CONNECT", "/", 405),
)


async def test_the_admin_endpoint_answers_no_page() -> None:
    endpoint = endpoint_of(f"127.0.0.1:{free_port()}")
    port = int(endpoint.url.rpartition(":")[2])
    ends = Ends(None, None, None, port, endpoint.secret or "")  # type: ignore[arg-type]
    body = '{"jsonrpc":"2.0","method":"look","id":1}'
    async with admin(endpoint, Watching().source(dict)):
        for row, status in ADMIN:
            lines = lines_of(ends, row)
            if "content-type:" not in lines.lower():
                lines += "Content-Type: application/json\r\n"
            if "transfer-encoding:" not in lines.lower():
                lines += f"Content-Length: {len(body)}\r\n"
            answer = await ends.send(f"POST / HTTP/1.1\r\n{lines}\r\n{body}".encode())
            assert answer.status == status, (row, answer)
            assert not [one for one in answer.headers if one.startswith("access-control") or one == "set-cookie"]
            assert ends.secret.encode() not in answer.body
            assert status == 200 or b'"result"' not in answer.body
        for method, path, status in ADMIN_PATHS:
            for row in ("", "-Authorization", "Accept: text/html\r\n-Authorization"):
                answer = await ends.send(f"{method} {path} HTTP/1.1\r\n{lines_of(ends, row)}\r\n".encode())
                assert answer.status in (status, 401), (method, path, row, answer)
                assert "text/html" not in answer.headers.get("content-type", [])
