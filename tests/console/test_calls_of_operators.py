"""Calls from the page: one message, as the console's caller, and its answer."""

from __future__ import annotations

import asyncio
import logging
import socket
import struct

import msgspec
import pytest

from dragoman import Context, Service
from dragoman.channel import Admitted, Caller, Denied, Handshake, Identity, Options
from dragoman.console import Watching
from dragoman.console.calls import CALLS, OperatorCalls
from dragoman.console.endpoint import LIMITS, TRY, VIEW, Console
from dragoman.mcp import Server

from .ends import Answer, Ends, listening, with_console

META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "page", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


def shop() -> Service:
    api = Service("shop")

    @api.method
    async def add(a: int, b: int) -> int:
        return a + b

    @api.method
    async def who(ctx: Context) -> str | None:
        return None if ctx.caller.identity is None else ctx.caller.identity.subject

    return api


async def call(ends: Ends, message: object, at: str = "/", **headers: str | None) -> Answer:
    body = message if isinstance(message, bytes) else msgspec.json.encode(message)
    return await ends.send(ends.request(f"/api/try?at={at}", "POST", body, headers))


def request(method: str, **params: object) -> dict[str, object]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


async def test_a_message_gets_its_answer_and_a_line_of_the_audit_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "dragoman.audit")
    async with with_console(shop(), "http://127.0.0.1:0") as ends:
        answer = await call(ends, request("add", a=2, b=3))
        assert (answer.status, answer.json) == (200, {"jsonrpc": "2.0", "id": 1, "result": 5})
        assert (await call(ends, request("add", a="x"))).json["error"]["code"] == -32602
        assert (await call(ends, b"{")).json["error"]["code"] == -32700
        both = [request("add", a=1, b=1), {"jsonrpc": "2.0", "method": "add", "params": [1, 2]}]
        assert [one["result"] for one in (await call(ends, both)).json] == [2]
        told = await call(ends, {"jsonrpc": "2.0", "method": "add", "params": [1, 2]})
        assert (told.status, told.body) == (204, b"")
        lines = [one.getMessage() for one in caplog.records if one.name == "dragoman.audit"]
        assert len(lines) == 5
        assert lines[0].startswith("called service=shop path=/ by=the console's secret at 127.0.0.1:")


async def test_tools_of_a_server_are_called_in_the_stateless_revision() -> None:
    app = Server("app")

    @app.tool
    async def greet(name: str) -> str:
        return f"Hello {name}"

    async with with_console(app, "http://127.0.0.1:0/mcp") as ends:
        listed = await call(ends, request("tools/list", _meta=META))
        assert [one["name"] for one in listed.json["result"]["tools"]] == ["greet"]
        made = request("tools/call", name="greet", arguments={"name": "Ada"}, _meta=META)
        assert (await call(ends, made)).json["result"]["content"] == [{"type": "text", "text": "Hello Ada"}]


async def test_what_is_not_served_and_how_it_is_not_asked() -> None:
    async with with_console(shop(), "http://127.0.0.1:0") as ends:
        for at in ("/other", "//", "%00", "/" * 500):
            answer = await call(ends, request("add"), at)
            assert answer.status == 400
            assert "nothing is served" in answer.json["error"]
        assert (await call(ends, request("add", a=1, b=2), Authorization=None)).status == 401
        assert (await call(ends, request("add", a=1, b=2), Origin="https://evil.example")).status == 403
        text = {"Content-Type": "text/plain"}
        assert (await ends.send(ends.request("/api/try?at=/", "POST", b"{}", text))).status == 415
        assert (await ends.send(ends.request("/api/try?at=/"))).status == 405
        large = b'{"jsonrpc":"2.0","method":"add","id":1,"params":["' + b"x" * LIMITS.message_size + b'"]}'
        assert (await call(ends, large)).status == 413


async def test_it_runs_as_the_one_who_is_at_the_console() -> None:
    async def guard(handshake: Handshake) -> Admitted | Denied:
        (token,) = [value.decode() for name, value in handshake.headers if name == b"authorization"]
        scopes = frozenset((VIEW, TRY) if token.endswith("may") else (VIEW,))
        return Admitted(identity=Identity(subject="ada", scopes=scopes))

    watching, api = Watching(), shop()
    async with with_console(api, "http://127.0.0.1:0") as served:
        console = Console(watching.source(lambda: served.serving.served), secret=None)
        async with listening(console, Options(limits=LIMITS, guard=guard)) as port:
            ends = Ends(served.serving, console, watching.recorder, port, "may")
            assert (await call(ends, request("who"))).json["result"] == "ada"
            ends.secret = "look"
            refused = await call(ends, request("who"))
            assert refused.status == 403
            assert TRY in refused.headers["www-authenticate"][0]
        assert (await call(served, request("who"))).json["result"] is None


async def test_what_is_for_known_callers_is_not_called_by_nobody() -> None:
    api = Service("closed")

    @api.method(scopes="admin")
    async def close() -> None: ...

    async with with_console(api, "stdio:") as ends:
        answer = await call(ends, request("close"))
        assert answer.status == 400
        assert "is for callers that say who they are" in answer.json["error"]


async def test_a_page_that_is_gone_drops_its_call() -> None:
    begun, ended = asyncio.Event(), asyncio.Event()
    api = Service("slow")

    @api.method
    async def wait() -> None:
        begun.set()
        try:
            await asyncio.sleep(600)
        finally:
            ended.set()

    async with with_console(api, "http://127.0.0.1:0") as ends:
        with socket.create_connection(("127.0.0.1", ends.port)) as page:
            page.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # its end is a reset
            page.sendall(ends.request("/api/try?at=", "POST", msgspec.json.encode(request("wait"))))
            await begun.wait()
        await ended.wait()


async def test_there_are_only_so_many_and_tickets_end() -> None:
    api = Service("slow")

    @api.method
    async def wait() -> None:
        await asyncio.sleep(600)

    async with with_console(api, "http://127.0.0.1:0") as ends:
        calls = OperatorCalls(lambda: ends.serving.served)
        body = msgspec.json.encode(request("wait"))
        tickets = [calls.begin("", body, Caller(), "me") for _ in range(CALLS)]
        with pytest.raises(Exception, match=f"{CALLS} calls from consoles"):
            calls.begin("", body, Caller(), "me")
        assert not calls.state(tickets[0]).done
        assert calls.end(tickets[0])
        assert not calls.end(tickets[0])
        with pytest.raises(Exception, match="dropped"):
            calls.state(tickets[0])
        quick = calls.begin("", b"{", Caller(), "me")
        assert calls.state(quick).done
        for one in (*tickets, quick):
            calls.end(one)
