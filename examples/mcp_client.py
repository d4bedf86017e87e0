import asyncio

from dragoman.mcp import Client


async def main() -> None:
    async with Client("http://127.0.0.1:8000/mcp") as client:
        print(await client.call_tool("forecast", {"city": "Beijing"}, result=dict))  # {'sky': 'sunny in Beijing, CN'...


asyncio.run(main())
