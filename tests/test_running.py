"""`app.run(...)` and `asyncio.run(serve(...))` as programs, ended as a person or a supervisor ends them."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from typing import Any

import pytest

from dragoman import LocalError, Service
from dragoman.channel import Caller, Identity
from dragoman.jsonrpc.errors import InvalidParams
from dragoman.mcp import Client, Context, Server
from dragoman.sync import connect as connect_blocking

SERVICE = """
from dragoman import Service
api = Service("adding", lifespan=None)
@api.method
def add(a: int, b: int) -> int:
    return a + b
"""
SERVER = """
from dragoman.mcp import Server
app = Server("weather")
@app.tool
def forecast(city: str) -> str:
    return f"sunny in {city}"
"""


@pytest.mark.parametrize(
    "how", ["api.run(port=0)", "api.run('http://127.0.0.1:0')", "api.run(transport='tcp', port=0)"]
)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_service_runs_until_a_signal(how: str, number: signal.Signals) -> None:
    program = subprocess.Popen([sys.executable, "-c", f"{SERVICE}\n{how}"], stderr=subprocess.PIPE, text=True)
    assert program.stderr is not None
    with program.stderr:
        line = program.stderr.readline()
        found = re.fullmatch(r"adding is served at (\S+)\n", line)
        assert found is not None, line + program.stderr.read()
        with connect_blocking(found[1]) as peer:
            assert peer.call("add", [1, 2]) == 3
        program.send_signal(number)
        assert program.stderr.read() == ""
        assert program.wait() == 0


@pytest.mark.parametrize("how", ["app.run()", "app.run(transport='stdio')", "app.run('stdio:')"])
async def test_a_server_runs_on_standard_input_until_its_end(how: str) -> None:
    async with Client([sys.executable, "-c", f"{SERVER}\n{how}"]) as client:
        assert await client.call_tool("forecast", {"city": "Lhasa"}, result=str) == "sunny in Lhasa"


@pytest.mark.parametrize(
    ("more", "path"), [("transport='streamable-http'", "/mcp"), ("path='/a/b'", "/a/b"), ("path='/'", "")]
)
def test_a_server_runs_over_http_at_its_path(more: str, path: str) -> None:
    program = subprocess.Popen(
        [sys.executable, "-c", f"{SERVER}\napp.run({more}, host='localhost', port=0)"],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert program.stderr is not None
    with program.stderr:
        found = re.fullmatch(r"weather is served at http://localhost:\d+(\S*)\n", program.stderr.readline())
        assert found is not None
        assert found[1] == path
        program.terminate()
        assert program.wait() == 0


@pytest.mark.parametrize(
    ("urls", "options", "words"),
    [
        (("http://127.0.0.1:0",), {"port": 1}, "give URLs, or transport, host, port and path"),
        ((), {"transport": "carrier pigeon"}, "transport is 'stdio' or 'http'"),
        ((), {"port": "8000"}, "port is a whole number"),
        ((), {"path": "mcp"}, 'path is a path as in "/mcp"'),
        ((), {"transport": "tcp", "path": "/mcp"}, "path='/mcp' is for http and ws; tcp has no paths"),
        ((), {"transport": "stdio", "path": "/mcp"}, "stdio has no paths"),
        (("http://127.0.0.1:0",), {"path": "/mcp"}, "a URL says all of them"),
    ],
)
def test_what_cannot_be_run_is_refused(urls: tuple[str, ...], options: dict[str, Any], words: str) -> None:
    for app in (Service("x"), Server("x")):
        with pytest.raises(LocalError, match=words):
            app.run(*urls, **options)


def test_asyncio_runs_what_serve_returns() -> None:
    program = f"{SERVICE}\nimport asyncio\nfrom dragoman import serve\nasyncio.run(serve(api, urls='stdio:'))"
    message = '{"jsonrpc":"2.0","method":"add","params":[1,2],"id":1}\n'
    done = subprocess.run([sys.executable, "-c", program], input=message, capture_output=True, text=True, check=True)
    assert done.stdout == '{"jsonrpc":"2.0","result":3,"id":1}\n'


async def test_a_server_is_called_without_a_wire() -> None:
    app = Server("here", page_size=2)
    seen: list[str] = []

    @app.use
    async def watch(call: Any, next: Any) -> Any:
        seen.append(call.method)
        return await next(call)

    @app.tool
    async def add(a: int, b: int) -> int:
        return a + b

    @app.tool
    def who(ctx: Context) -> str:
        return "anyone" if ctx.identity is None else str(ctx.identity.subject)

    @app.tool(visible=lambda caller: caller.identity is not None)
    def secret() -> str:
        return "42"

    ada = Caller(identity=Identity(subject="ada"))
    found = await app.call_tool("add", {"a": 1, "b": 2})
    assert "text='3'" in str(found.content)
    assert (await app.call_tool("add", {"a": "x"})).is_error
    assert "anyone" in str((await app.call_tool("who")).content)
    assert "ada" in str((await app.call_tool("who", caller=ada)).content)
    assert [tool.name for tool in await app.list_tools()] == ["add", "who"]
    assert [tool.name for tool in await app.list_tools(caller=ada)] == ["add", "who", "secret"]
    with pytest.raises(InvalidParams, match="Unknown tool: secret"):
        await app.call_tool("secret")
    assert set(seen) == {"tools/call", "tools/list"}
