# [versions]
import asyncio

from dragoman.mcp import Client, Server

app = Server("sums", version="1.0.0")


@app.tool("add", version="1")
async def add_two(a: int, b: int) -> int:
    return a + b


@app.tool("add", version="2")
async def add_all(numbers: list[int]) -> int:
    return sum(numbers)


async def main() -> None:
    async with Client(app) as client:
        [tool] = await client.list_tools()
        print(tool.meta)
        print((await client.call_tool("add", {"numbers": [1, 2, 3]})).text)
        print((await client.call_tool("add", {"a": 1, "b": 2}, version="1")).text)


asyncio.run(main())
# {'fastmcp': {'version': '2', 'versions': ['2', '1']}}
# 6
# 3
# [/versions]
