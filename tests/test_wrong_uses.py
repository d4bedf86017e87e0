"""Every wrong use of the library gets an error that says what was wrong, where, and what would be right."""

from __future__ import annotations

import ast
import inspect
import threading
from types import CodeType
from typing import Any

import pytest

import dragoman.sync
from dragoman import CallTimeout, RpcError, Service, connect, serve
from dragoman.mcp import Client, Server

from .wrong_uses import USES, WORLD


async def done(code: CodeType, world: dict[str, Any]) -> None:
    """Run the code, and what it awaits."""
    running = eval(code, world)
    if inspect.iscoroutine(running):
        await running


@pytest.mark.parametrize(("code", "what", "where", "right"), USES, ids=[use[0] for use in USES])
async def test_an_error_has_three_parts(code: str, what: str, where: str, right: str) -> None:
    world: dict[str, Any] = {}
    exec(WORLD, world)
    runs = compile(code, "wrong_use", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    with pytest.raises(Exception, match=r".") as caught:
        await done(runs, world)
    said = "\n".join([str(caught.value), *getattr(caught.value, "__notes__", ())])
    for part in (what, where, right):
        assert part in said, said
    assert caught.type.__module__.startswith("dragoman") or caught.type in (AttributeError, ImportError), caught.type


@pytest.mark.parametrize("package", ["dragoman", "dragoman.mcp"])
def test_a_name_of_another_package_is_still_not_there(package: str) -> None:
    module = __import__(package, fromlist=["__name__"])
    assert not hasattr(module, "Service" if package == "dragoman.mcp" else "Server")


async def test_a_result_that_is_no_json_is_told_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    api = Service("api")

    @api.method
    def odd() -> object:
        return threading.Lock()

    assert b"Internal error" in (await api.answer_async(b'{"jsonrpc":"2.0","method":"odd","id":1}') or b"")
    for part in ("method 'odd' failed", "lock cannot be put into JSON", "a dataclass, a TypedDict, a msgspec Struct"):
        assert part in caplog.text


async def test_a_blocking_call_warns_while_it_holds_up_its_own_loop(caplog: pytest.LogCaptureFixture) -> None:
    api = Service("api")

    @api.method
    async def go() -> int:
        return 1

    async with serve(api, urls="tcp://127.0.0.1:0") as serving:
        with dragoman.sync.connect(serving.urls[0]) as peer, pytest.raises(CallTimeout):
            peer.call("go", timeout=1.2)
    assert "holds up the event loop of its own thread, and waits still" in caplog.text
    assert "await dragoman.connect(...) there" in caplog.text


async def test_no_hidden_name_is_proposed() -> None:
    app = Server("app")

    @app.tool(visible=lambda caller: False)
    def secrets() -> str:
        return ""

    api = Service("api", debug=True)
    api.method("secrets", allow=lambda identity, params: False)(secrets)
    async with Client(app) as client:
        with pytest.raises(RpcError) as caught:
            await client.call_tool("secret")
    assert str(caught.value) == "Unknown tool: secret (-32602)"
    async with serve(api, urls="memory:hidden"), connect("memory:hidden") as peer:
        with pytest.raises(RpcError) as caught:
            await peer.call("secret")
    assert caught.value.data == {"reason": "there is no method 'secret'"}
