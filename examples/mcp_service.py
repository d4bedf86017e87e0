"""A JSON-RPC service, served as MCP as well: the same functions are methods and tools.

dragoman serve mcp_service.py:api tcp://127.0.0.1:9000
dragoman serve mcp_service.py:app
"""

import asyncio

from dragoman import Service, connect, serve
from dragoman.mcp import Client, Server

api = Service("stock", version="1.0.0")
shelf = {"tea": 12}


@api.method(inline=True)
def count(item: str) -> int:
    "How many there are."
    return shelf.get(item, 0)


@api.method(inline=True)
def take(item: str, number: int = 1) -> int:
    "Take some; how many are left."
    shelf[item] = count(item) - number
    return shelf[item]


app = Server("stock", version=api.version)
app.include(api)


async def main() -> None:
    async with serve({"/rpc": api, "/mcp": app}, urls="http://127.0.0.1:8000"):
        async with connect("http://127.0.0.1:8000/rpc") as peer:
            print(await peer.call("take", ["tea", 2]))  # 10
        async with Client("http://127.0.0.1:8000/mcp") as client:
            print([tool.name for tool in await client.list_tools()])  # ['count', 'take']
            print(await client.call_tool("count", {"item": "tea"}, result=int))  # 10


if __name__ == "__main__":
    asyncio.run(main())
