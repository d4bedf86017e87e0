"""Behind a reverse proxy: everybody sees the caller that a trusted proxy names, and nobody believes anybody else."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from typing import Any

import pytest
from websockets.asyncio.client import connect as ws_connect

from dragoman import Context, Limits, Service
from dragoman.channel import Admitted, Denied, Handshake, Options
from dragoman.mcp import Context as McpContext
from dragoman.mcp import Server
from dragoman.middleware import rate_limit
from dragoman.observer import Rejection
from dragoman.rpc.servable import ServableService
from dragoman.transports.http.app import App
from tests.behind import behind

from .cases import Answered, answer, get, post
from .ends import asgi, face, native, port_of

FACES = pytest.mark.parametrize("kind", ["native", "asgi"])
HERE = "127.0.0.1"
TOLD = "X-Forwarded-For: 203.0.113.7\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Host: mcp.example\r\n"
RFC = 'Forwarded: for="203.0.113.7:4711";proto=https;host=mcp.example\r\n'
SAID = b'{"jsonrpc":"2.0","method":"said","id":1}'


def telling(**options: Any) -> Service:
    api = Service("telling", **options)

    @api.method(inline=True)
    def said(context: Context) -> dict[str, Any]:
        caller = context.caller
        told = {"remote": caller.remote, "scheme": caller.scheme, "tls": caller.tls, "owner": caller.owner}
        return told | {"host": caller.headers.get("host", "")}

    @api.route("/here")
    def here(request: Any) -> dict[str, Any]:
        caller = request.caller
        return {"remote": caller.remote, "scheme": caller.scheme, "host": caller.headers.get("host", "")}

    return api


def served(**options: Any) -> dict[str, Any]:
    return {"": ServableService(behind(telling(**options)))}


async def exchanged(port: int, *requests: bytes, here: str = HERE) -> list[Answered]:
    """Requests on one connection from an address, each after the answer before it."""
    found = []
    reader, writer = await asyncio.open_connection(HERE, port, local_addr=(here, 0))
    try:
        for one in requests:
            writer.write(one)
            found.append(await answer(reader))
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
    return found


def result(got: Answered) -> Any:
    return json.loads(got.body)["result"]


# -- who is believed


@FACES
@pytest.mark.parametrize("trusted", [(), ("10.0.0.0/8",), ("::1",)])
@pytest.mark.parametrize("more", [TOLD, RFC])
async def test_by_default_and_from_other_networks_nothing_is_believed(
    kind: str, trusted: tuple[str, ...], more: str
) -> None:
    async with face(kind, served(), Options(trusted_proxies=trusted)) as port:
        for got in await exchanged(port, *[post(SAID, more=more)] * 4):
            told = result(got)
            assert told["remote"].startswith("127.0.0.1:")
            assert (told["scheme"], told["tls"], told["host"]) == ("http", False, "127.0.0.1")


@FACES
@pytest.mark.parametrize(("more", "remote"), [(TOLD, "203.0.113.7:0"), (RFC, "203.0.113.7:4711")])
async def test_a_trusted_proxy_names_caller_scheme_and_host(kind: str, more: str, remote: str) -> None:
    """Also where the head is one that came before."""
    async with face(kind, served(), Options(trusted_proxies=[HERE])) as port:
        for got in await exchanged(port, *[post(SAID, more=more)] * 4):
            assert result(got) == {
                "remote": remote,
                "scheme": "https",
                "tls": True,
                "owner": "203.0.113.7",
                "host": "mcp.example",
            }
        (route,) = await exchanged(port, get("/here", more=more))
        assert json.loads(route.body) == {"remote": remote, "scheme": "https", "host": "mcp.example"}


@FACES
async def test_each_request_of_a_connection_has_its_own_caller(kind: str) -> None:
    """A proxy sends the requests of many callers over one connection; their heads differ in nothing else."""
    async with face(kind, served(), Options(trusted_proxies=[HERE])) as port:
        callers = [f"203.0.113.{number % 7}" for number in range(40)]
        requests = [post(SAID, more=f"X-Forwarded-For: {one}\r\n") for one in callers]
        found = [result(got) for got in await exchanged(port, *requests, post(SAID))]
        assert [one["owner"] for one in found] == [*callers, "127.0.0.1"]
        assert {one["host"] for one in found} == {"127.0.0.1"}


@FACES
async def test_lines_of_one_name_are_one_list(kind: str) -> None:
    more = "X-Forwarded-For: 198.51.100.1\r\nX-Request-Id: 7\r\nX-Forwarded-For: 203.0.113.7\r\n"
    async with face(kind, served(), Options(trusted_proxies=[HERE])) as port:
        for got in await exchanged(port, *[post(SAID, more=more)] * 4):
            assert result(got)["owner"] == "203.0.113.7"


HOSTILE = [
    "X-Forwarded-For: <script>alert(1)</script>\r\n",
    "X-Forwarded-For: 203.0.113.7\x01\r\n",
    "X-Forwarded-For: \xff\xfe\r\n",
    f"X-Forwarded-For: {', '.join(['10.0.0.1x'] * 500)}\r\n",
    "X-Forwarded-For: 127.0.0.1, unknown\r\n",
    "X-Forwarded-Proto: gopher\r\nX-Forwarded-Host: a/../b\r\n",
    "X-Forwarded-Host: evil.example\r\nForwarded: host=mcp.example\r\n",
    'Forwarded: for="\r\n',
    "Forwarded: for=203.0.113.7;for=203.0.113.8\r\n",
    "Forwarded: for=203.0.113.7\r\nX-Forwarded-For: 203.0.113.8\r\n",
]


@FACES
@pytest.mark.parametrize("more", HOSTILE)
async def test_what_makes_no_sense_is_not_believed(kind: str, more: str) -> None:
    async with face(kind, served(), Options(trusted_proxies=[HERE])) as port:
        (got,) = await exchanged(port, post(SAID, more=more))
        if got.status == 400:  # not a field value, and no request for either parser
            return
        told = result(got)
        assert told["owner"] == "127.0.0.1"
        assert (told["scheme"], told["host"]) == ("http", "127.0.0.1")


@pytest.mark.skipif(sys.platform != "linux", reason="a second address of loopback, which Linux has")
@FACES
async def test_heads_of_a_proxy_and_of_others_are_not_mixed_up(kind: str) -> None:
    """One head of a trusted proxy and of a stranger: what was found out about it is not the same."""
    options = Options(trusted_proxies=[HERE], hosts=["mcp.example", "other.example"])
    one = post(SAID, more=TOLD.replace("mcp.example", "evil.example"), host="mcp.example")
    two = post(SAID, more=TOLD, host="other.example")
    async with face(kind, served(), options) as port:
        for _ in range(3):
            assert [got.status for got in await exchanged(port, *[one] * 3)] == [421] * 3
            assert [got.status for got in await exchanged(port, *[one] * 3, here="127.0.0.2")] == [200] * 3
            for got in await exchanged(port, *[two] * 3, here="127.0.0.2"):
                assert (result(got)["owner"], result(got)["host"]) == ("127.0.0.2", "other.example")
            for got in await exchanged(port, *[two] * 3):
                assert (result(got)["owner"], result(got)["host"]) == ("203.0.113.7", "mcp.example")


# -- who sees it


@FACES
async def test_a_rate_limit_counts_callers_and_not_their_proxy(kind: str) -> None:
    limit = rate_limit(0.001, burst=1)
    async with face(kind, served(middleware=[limit]), Options(trusted_proxies=[HERE])) as port:
        callers = ["203.0.113.7", "203.0.113.8", "203.0.113.7", "2001:db8::1", "2001:db8::2", "2001:db8:0:1::1"]
        requests = [post(SAID, more=f"X-Forwarded-For: {one}\r\n") for one in callers]
        statuses = [got.status for got in await exchanged(port, *requests)]
        assert statuses == [200, 200, 429, 200, 429, 200]


@FACES
async def test_a_guard_sees_the_caller_and_the_url_that_it_called(kind: str) -> None:
    seen: list[Handshake] = []

    async def guard(handshake: Handshake) -> Admitted | Denied:
        seen.append(handshake)
        return Admitted() if len(seen) % 2 else Denied(reason="no")

    rejected: list[Rejection] = []
    options = Options(trusted_proxies=[HERE], guard=guard, rejected=rejected.append)
    async with face(kind, served(), options) as port:
        for more in (TOLD, RFC):
            assert [got.status for got in await exchanged(port, *[post(SAID, more=more)] * 2)] == [200, 401]
    assert [one.remote for one in seen] == ["203.0.113.7:0"] * 2 + ["203.0.113.7:4711"] * 2
    assert {(one.scheme, one.url) for one in seen} == {("https", "https://mcp.example/")}
    assert [one.caller.remote for one in rejected] == ["203.0.113.7:0", "203.0.113.7:4711"]
    assert all(one.caller.tls for one in rejected)


@FACES
@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (get("/nowhere", more=TOLD), 404),
        (get("/", more=TOLD), 405),
        (post(SAID, more=TOLD, kind="text/plain"), 415),
        (post(b" " * 5_000, more=TOLD), 413),
        (post(SAID, more=TOLD + "Origin: https://evil.example\r\n"), 403),
    ],
)
async def test_observers_are_told_who_was_turned_away(kind: str, request_: bytes, status: int) -> None:
    rejected: list[Rejection] = []
    options = Options(trusted_proxies=[HERE], rejected=rejected.append, limits=Limits(message_size=1_000))
    async with face(kind, served(), options) as port:
        (got,) = await exchanged(port, request_)
        assert got.status == status
    assert [(one.status, one.caller.remote, one.caller.tls) for one in rejected] == [(status, "203.0.113.7:0", True)]


@FACES
async def test_a_websocket_has_the_caller_of_its_handshake(kind: str) -> None:
    headers = {"X-Forwarded-For": "203.0.113.7", "X-Forwarded-Proto": "https", "X-Forwarded-Host": "mcp.example"}
    async with (
        face(kind, served(), Options(trusted_proxies=[HERE])) as port,
        ws_connect(f"ws://127.0.0.1:{port}/", proxy=None, additional_headers=headers) as far,
    ):
        await far.send(SAID.decode())
        told = json.loads(await far.recv())["result"]
    assert (told["remote"], told["scheme"], told["tls"]) == ("203.0.113.7:0", "wss", True)
    assert told["host"] == "mcp.example"


@FACES
async def test_a_tool_of_mcp_has_its_caller(kind: str) -> None:
    server = Server("weather", version="1")

    @server.tool
    async def who(ctx: McpContext) -> str:
        return f"{ctx.caller.scheme} {ctx.caller.remote}"

    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "c", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    call = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": "who", "arguments": {}, "_meta": meta},
    }
    more = "Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: 2026-07-28\r\n"
    more += "Mcp-Method: tools/call\r\nMcp-Name: who\r\n"
    what = {"/mcp": server.__servable__()}
    async with face(kind, what, Options(trusted_proxies=[HERE])) as port:
        request = post(json.dumps(call).encode(), path="/mcp", more=TOLD + more)
        for got in await exchanged(port, *[request] * 3):
            assert json.loads(got.body)["result"]["content"][0]["text"] == "https 203.0.113.7:0"


# -- hosts and origins


PAGE = "Origin: https://mcp.example\r\n"


@pytest.mark.parametrize(
    ("hosts", "host", "more", "status"),
    [
        # the proxy decides which names it serves; the Host is what it addressed
        (None, "127.0.0.1", TOLD, 200),
        (None, "localhost:8000", TOLD + PAGE, 200),
        (None, "127.0.0.1", TOLD + "Origin: https://evil.example\r\n", 403),
        # DNS rebinding: a page of a browser on the proxy's machine writes what it likes but for Host
        (None, "evil.example", TOLD.replace("mcp.example", "127.0.0.1"), 421),
        (None, "evil.example", TOLD, 421),
        (None, "127.0.0.1", "X-Forwarded-For: 203.0.113.7\r\n" + PAGE, 403),
        # names that are allowed are those that callers use
        (["mcp.example"], "127.0.0.1", TOLD, 200),
        (["mcp.example"], "mcp.example", TOLD, 200),
        (["mcp.example"], "127.0.0.1", TOLD + PAGE, 200),
        (["mcp.example"], "127.0.0.1", TOLD.replace("mcp.example", "evil.example"), 421),
        (["mcp.example"], "evil.example", TOLD, 421),
        (["mcp.example"], "127.0.0.1", "", 421),
        (["mcp.example"], "mcp.example", "", 200),
    ],
)
async def test_the_host_that_was_addressed_at_the_proxy_is_checked(
    hosts: list[str] | None, host: str, more: str, status: int
) -> None:
    async with native(served(), Options(trusted_proxies=[HERE], hosts=hosts)) as listener:
        for got in await exchanged(port_of(listener), *[post(SAID, more=more, host=host)] * 3):
            assert got.status == status


@pytest.mark.parametrize(
    ("hosts", "host", "more", "status"),
    [
        (None, "upstream", TOLD, 200),  # a mounted application checks no Host
        (None, "upstream", TOLD + PAGE, 403),
        (["mcp.example"], "upstream", TOLD, 421),
        (["mcp.example"], "127.0.0.1", TOLD + PAGE, 200),
        (["mcp.example"], "127.0.0.1", TOLD.replace("mcp.example", "evil.example"), 421),
    ],
)
async def test_the_same_as_an_asgi_application(hosts: list[str] | None, host: str, more: str, status: int) -> None:
    async with asgi(App(served(), Options(trusted_proxies=[HERE], hosts=hosts))) as port:
        for got in await exchanged(port, *[post(SAID, more=more, host=host)] * 3):
            assert got.status == status
