# mypy: ignore-errors
"""The official Python SDK 2.

Over HTTP `default`: as its `run` does it where no faster parts are installed (asyncio, h11); `json`: the same, but plain
JSON answers; `best`: those, on uvloop with httptools.
"""

import asyncio
import gc
import warnings

import uvicorn
from mcp.server.mcpserver import MCPServer

from bench.worker import measure_async
from mcp import Client

warnings.simplefilter("ignore")


def server(tools: int = 1) -> MCPServer:
    app = MCPServer("bench", version="1.0.0", log_level="ERROR")

    @app.tool()
    async def subtract(minuend: int, subtrahend: int) -> int:
        return minuend - subtrahend

    @app.tool()
    def subtract_thread(minuend: int, subtrahend: int) -> int:
        return minuend - subtrahend

    for number in range(tools - 1):

        async def another(minuend: int, subtrahend: int) -> int:
            return minuend - subtrahend

        app.add_tool(another, name=f"tool_{number}")
    return app


def http(port: str, manner: str, tools: str = "1") -> None:
    fast = {"loop": "uvloop", "http": "httptools"} if manner == "best" else {"loop": "asyncio", "http": "h11"}
    app = server(int(tools)).streamable_http_app(json_response=manner != "default", host="127.0.0.1")
    about = {"log_level": "error", "access_log": False, "timeout_keep_alive": 120}
    uvicorn.run(app, host="127.0.0.1", port=int(port), **about, **fast)


def stdio() -> None:
    server().run("stdio")


async def _calling(target: str | MCPServer, together: int = 1) -> None:
    async with Client(target) as client:

        async def one():
            return (await client.call_tool("subtract", {"minuend": 42, "subtrahend": 23})).content[0].text

        async def some():
            return await asyncio.gather(*[one() for _ in range(together)])

        await measure_async(one if together == 1 else some)


async def memory() -> None:
    await _calling(server())


async def client(port: str, together: str) -> None:
    await _calling(f"http://127.0.0.1:{port}/mcp", int(together))


async def tools(count: str) -> None:
    async def register():
        server(int(count))
        gc.collect()
        return "19"

    await measure_async(register)
