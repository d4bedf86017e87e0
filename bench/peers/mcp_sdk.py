# mypy: ignore-errors
"""The official Python SDK 2: `http PORT default|json|best`, `stdio`, `memory`, `client URL`, `tools COUNT`,
`list PORT COUNT`.

default: as its `run` does it where no faster parts are installed (asyncio, h11); json: the same, but plain JSON
answers; best: those, on uvloop with httptools.
"""

import asyncio
import gc
import sys
import warnings

import uvicorn
from mcp.server.mcpserver import MCPServer

from bench.worker import offer_async
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


def http(port: int, manner: str, tools: int = 1) -> None:
    fast = {"loop": "uvloop", "http": "httptools"} if manner == "best" else {"loop": "asyncio", "http": "h11"}
    app = server(tools).streamable_http_app(json_response=manner != "default", host="127.0.0.1")
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="error", access_log=False, timeout_keep_alive=120, **fast)


async def memory() -> None:
    async with Client(server()) as client:

        async def call():
            return (await client.call_tool("subtract", {"minuend": 42, "subtrahend": 23})).content[0].text

        await offer_async({"single": call})


async def calling(url: str) -> None:
    async with Client(url) as client:

        async def one():
            return (await client.call_tool("subtract", {"minuend": 42, "subtrahend": 23})).content[0].text

        async def together():
            return await asyncio.gather(*[one() for _ in range(32)])

        await offer_async({"single": one, "together": together})


async def registering(count: int) -> None:
    async def register():
        server(count)
        gc.collect()
        return "19"

    await offer_async({"single": register})


def main(task: str, *words: str) -> None:
    if task == "http":
        http(int(words[0]), words[1])
    elif task == "list":
        http(int(words[0]), "best", int(words[1]))
    elif task == "stdio":
        server().run("stdio")
    elif task == "memory":
        asyncio.run(memory())
    elif task == "client":
        asyncio.run(calling(words[0]))
    elif task == "tools":
        asyncio.run(registering(int(words[0])))


if __name__ == "__main__":
    main(*sys.argv[1:])
