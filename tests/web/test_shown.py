"""Who is shown the page: raw requests, on the native front and on the ASGI app, in every order on one connection."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from dragoman import LocalError, Service, http_app, serve
from dragoman.auth import Bearer
from dragoman.auth.testing import LocalIssuer
from dragoman.mcp import Server
from tests.calculator import calculator
from tests.transports.http.cases import Answered, answer
from tests.transports.http.ends import asgi, wire

FACES = pytest.mark.parametrize("face", ["native", "asgi"])
BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
)


@asynccontextmanager
async def served(face: str, what: Mapping[str, Any], at: str = "127.0.0.1", **options: Any) -> AsyncIterator[int]:
    """These services on either face; the port."""
    if face == "asgi":
        async with asgi(http_app(dict(what), **options)) as port:
            yield port
    else:
        async with serve(dict(what), urls=f"http://{at}:0", **options) as serving:
            yield int(serving.urls[0].rpartition(":")[2].rstrip("/"))


def both() -> dict[str, Any]:
    return {"/": calculator(), "/mcp": Server("notes", version="1.0.0")}


def get(
    path: str = "/docs", *, host: str = "127.0.0.1", accept: str = BROWSER, more: str = "", method: str = "GET"
) -> bytes:
    return f"{method} {path} HTTP/1.1\r\nHost: {host}\r\nAccept: {accept}\r\n{more}\r\n".encode()


async def asked(port: int, *requests: bytes) -> list[Answered]:
    """The answers to requests on one connection."""
    async with wire(port) as (reader, writer):
        found = []
        for one in requests:
            writer.write(one)
            found.append(await answer(reader, to=one.partition(b" ")[0].decode()))
        return found


def is_page(got: Answered) -> bool:
    return got.status == 200 and got.headers.get("content-security-policy") == POLICY


@FACES
@pytest.mark.parametrize("path", ["/", "/mcp", "/mcp/", "/docs", "/docs/"])
async def test_a_browser_on_this_machine_is_shown_it(face: str, path: str) -> None:
    async with served(face, both()) as port:
        for host in (f"127.0.0.1:{port}", "localhost", "[::1]:1", "LOCALHOST:80"):
            [got, head] = await asked(port, get(path, host=host), get(path, host=host, method="HEAD"))
            assert is_page(got), (host, got)
            assert got.headers["content-type"] == "text/html; charset=utf-8"
            assert got.headers["x-content-type-options"] == "nosniff"
            assert b'<script type="module" src="' in got.body
            assert (head.status, head.body, head.headers["etag"]) == (200, b"", got.headers["etag"])


NOT_SHOWN = {
    "any type": {"accept": "*/*"},
    "JSON": {"accept": "application/json"},
    "a stream": {"accept": "text/html, text/event-stream"},
    "no html": {"accept": "text/html;q=0, */*"},
    "another name": {"host": "rebound.example"},
    "a name like ours": {"host": "localhost.rebound.example"},
    "an address": {"host": "192.0.2.1"},
    "forwarded": {"more": "Forwarded: for=192.0.2.1\r\n"},
    "forwarded for": {"more": "X-Forwarded-For: 192.0.2.1\r\n"},
    "forwarded host": {"more": "x-forwarded-host: localhost\r\n"},
    "any forwarded": {"more": "X-Forwarded-Anything: 1\r\n"},
    "via": {"more": "Via: 1.1 proxy\r\n"},
    "a foreign page": {"more": "Origin: http://rebound.example\r\n"},
    "a body": {"more": "Content-Length: 0\r\n"},
}


@FACES
@pytest.mark.parametrize("path", ["/", "/mcp", "/docs"])
@pytest.mark.parametrize("case", NOT_SHOWN)
async def test_all_others_get_what_they_get_without_it(face: str, path: str, case: str) -> None:
    request = get(path, **NOT_SHOWN[case])
    async with served(face, both(), docs=False) as port:
        [without] = await asked(port, request)
    async with served(face, both()) as port:
        shown, *found = await asked(port, get(path), request, request, request)
        assert is_page(shown)
    date = {"date", "server"}
    wanted = {name: value for name, value in without.headers.items() if name not in date}
    for got in found:
        assert not is_page(got)
        assert (got.status, got.body) == (without.status, without.body)
        assert {name: value for name, value in got.headers.items() if name not in date} == wanted


@FACES
async def test_a_call_is_what_it_was(face: str) -> None:
    body = b'{"jsonrpc":"2.0","method":"subtract","params":[42,23],"id":1}'
    for accept in (BROWSER, "*/*"):
        head = f"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: {accept}\r\nContent-Type: application/json\r\n"
        call = f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
        async with served(face, both()) as port:
            found = await asked(port, get("/"), *[call] * 4, get("/"))
        assert [is_page(got) for got in found] == [True, False, False, False, False, True]
        assert {got.body for got in found[1:5]} == {b'{"jsonrpc":"2.0","result":19,"id":1}'}


@FACES
@pytest.mark.parametrize("path", ["/docs", "/docs/services"])
async def test_other_methods_are_not_for_it(face: str, path: str) -> None:
    async with served(face, both()) as port:
        found = await asked(port, *[get(path, method=method) for method in ("DELETE", "OPTIONS", "PUT")])
    assert [got.status for got in found] == [404, 404, 404]


@FACES
@pytest.mark.parametrize(
    ("options", "forwarded", "foreign"),
    [({}, False, False), ({"docs": False}, False, False), ({"docs": True}, True, False),
     ({"docs": True, "hosts": ["docs.example"]}, True, True), ({"trusted_proxies": ["192.0.2.0/24"]}, False, False),
     ({"docs": True, "trusted_proxies": ["127.0.0.1"]}, True, False)],
    ids=["default", "off", "on", "on with hosts", "behind proxies", "on behind proxies"],
)  # fmt: skip
async def test_the_option_says_to_whom(face: str, options: dict[str, Any], forwarded: bool, foreign: bool) -> None:
    async with served(face, both(), **options) as port:
        more = "X-Forwarded-For: 192.0.2.1\r\n"
        host = "docs.example" if foreign else "127.0.0.1"
        [got, other] = await asked(port, get(host=host, more=more), get(host="docs.example"))
        assert (is_page(got), is_page(other)) == (forwarded, foreign)
        [plain] = await asked(port, get(host=host))
        assert is_page(plain) == ((options.get("docs") is not False and "trusted_proxies" not in options) or forwarded)


async def test_another_interface_than_loopback_needs_the_option() -> None:
    for docs, shown in [(None, False), (True, True)]:
        async with served("native", both(), "0.0.0.0", docs=docs) as port:
            assert [is_page(got) for got in await asked(port, get())] == [shown]


async def test_the_serving_says_where_it_is() -> None:
    urls = ["http://127.0.0.1:0/rpc", "http://0.0.0.0:0", "tcp://127.0.0.1:0"]
    for docs, shown in [(None, 1), (True, 2), (False, 0)]:
        async with serve(calculator(), urls=urls, docs=docs) as serving:
            assert serving.pages == [url.replace("/rpc", "") + "/docs" for url in serving.urls[:shown]]


@FACES
async def test_the_files_are_kept_for_ever_and_come_compressed(face: str) -> None:
    async with served(face, both()) as port:
        [page] = await asked(port, get("/mcp"))
        folder = page.body.decode().split('src="')[1].split("app.js")[0]
        assert folder.startswith("docs/")
        [plain, packed] = await asked(
            port,
            get(f"/{folder}app.js", accept="*/*"),
            get(f"/{folder}app.js", accept="*/*", more="Accept-Encoding: gzip, br\r\n"),
        )
        assert plain.headers["content-type"] == "text/javascript; charset=utf-8"
        assert plain.headers["cache-control"] == "public, max-age=31536000, immutable"
        assert (packed.headers["content-encoding"], gzip.decompress(packed.body)) == ("gzip", plain.body)
        assert plain.headers["etag"] != packed.headers["etag"]
        [again, other] = await asked(
            port,
            get(f"/{folder}app.js", accept="*/*", more=f'If-None-Match: "x", W/{plain.headers["etag"]}\r\n'),
            get(f"/{folder}app.js", accept="*/*", more='If-None-Match: "x"\r\n'),
        )
        assert (again.status, again.body, again.headers["etag"]) == (304, b"", plain.headers["etag"])
        assert (other.status, other.body) == (200, plain.body)
        [index, *absent] = await asked(
            port,
            get("/mcp", more=f"If-None-Match: {page.headers['etag']}\r\n"),
            *[
                get(f"/{folder}{name}")
                for name in ("", "no.js", "../pyproject.toml", "vendor/vendor.toml", "index.html")
            ],
            get("/docs/0000000000000000/app.js"),
            get(f"/{folder}app.js", host="rebound.example"),
        )
        assert index.status == 304
        assert {got.status for got in absent} <= {404, 421, 400}


@FACES
async def test_what_is_served_is_listed(face: str) -> None:
    async with served(face, both()) as port:
        [got, foreign] = await asked(
            port, get("/docs/services", accept="*/*"), get("/docs/services", host="rebound.example")
        )
        rows = [
            {"path": "/", "name": "calculator", "kind": "jsonrpc"},
            {"path": "/mcp", "name": "notes", "kind": "mcp"},
        ]
        assert (json.loads(got.body), got.headers["cache-control"]) == ({"services": rows}, "no-store")
        assert foreign.status in (404, 421)


@FACES
async def test_an_own_route_goes_first(face: str) -> None:
    api = Service("own")

    @api.route("/docs")
    def mine(request: Any) -> str:
        return "mine"

    async with served(face, {"/rpc": api}) as port:
        [docs, endpoint, services] = await asked(port, get("/docs"), get("/rpc"), get("/docs/services"))
        assert (docs.status, docs.body) == (200, b"mine")
        assert is_page(endpoint)
        assert services.status == 200


@FACES
async def test_a_service_at_its_place_has_it_there(face: str) -> None:
    async with served(face, {"/docs": Service("docs"), "/x": Service("x")}) as port:
        [docs] = await asked(port, get("/docs"))
        assert is_page(docs)
        assert b'data-path="/docs" data-kind="jsonrpc"' in docs.body


@FACES
async def test_behind_a_guard_the_page_is_public_and_the_list_is_not(face: str) -> None:
    with LocalIssuer() as issuer:
        auth = Bearer(issuer.url, resource="http://127.0.0.1/")
        async with served(face, both(), auth=auth) as port:
            [page, endpoint, closed, wrong] = await asked(
                port,
                get("/docs"),
                get("/mcp"),
                get("/docs/services", accept="*/*"),
                get("/docs/services", accept="*/*", more="Authorization: Bearer wrong\r\n"),
            )
            assert is_page(page)
            assert is_page(endpoint)
            assert b"calculator" not in page.body
            assert (closed.status, wrong.status) == (401, 401)
            assert "Bearer" in closed.headers["www-authenticate"]
            token = issuer.token("alice", resource="http://127.0.0.1/")
            [open_] = await asked(port, get("/docs/services", more=f"Authorization: Bearer {token}\r\n"))
            assert [one["name"] for one in json.loads(open_.body)["services"]] == ["calculator", "notes"]


@FACES
async def test_of_several_guards_it_lists_what_has_none(face: str) -> None:
    with LocalIssuer() as issuer:
        mine = Service("mine", auth=Bearer(issuer.url, resource="http://127.0.0.1/"))
        async with served(face, {"/mine": mine, "/open": Service("open")}) as port:
            [got, page] = await asked(port, get("/docs/services"), get("/mine"))
            assert [one["name"] for one in json.loads(got.body)["services"]] == ["open"]
            assert is_page(page)


async def test_a_mounted_app_names_its_files_relatively() -> None:
    from starlette.applications import Starlette
    from starlette.routing import Mount

    app = Starlette(routes=[Mount("/api/v1", http_app({"/mcp": Server("notes"), "/": calculator()}))])
    async with asgi(app) as port:
        for path, base in [("/api/v1/mcp", ""), ("/api/v1/docs", ""), ("/api/v1/mcp/", "../"), ("/api/v1/", "")]:
            [got] = await asked(port, get(path))
            assert is_page(got), path
            assert f'src="{base}docs/'.encode() in got.body


def test_a_wrong_option_is_told() -> None:
    with pytest.raises(LocalError, match="docs"):
        serve(calculator(), urls="http://127.0.0.1:0", docs="yes")  # type: ignore[arg-type]


async def test_a_plain_service_with_the_page_loads_no_mcp() -> None:
    import subprocess
    import sys

    script = """
import asyncio, sys, urllib.request
from dragoman import Service, serve

async def main():
    async with serve(Service("plain"), urls="http://127.0.0.1:0") as serving:
        request = urllib.request.Request(serving.urls[0].rstrip("/") + "/docs", headers={"Accept": "text/html"})
        answer = await asyncio.to_thread(urllib.request.urlopen, request)
        assert b"<script" in answer.read()

asyncio.run(main())
assert not [name for name in sys.modules if name.startswith("dragoman.mcp")]
"""
    done = await asyncio.to_thread(subprocess.run, [sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
