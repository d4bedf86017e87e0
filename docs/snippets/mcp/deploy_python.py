import asyncio

# [serve]
from weather import app

from dragoman import serve


async def main() -> None:
    await serve(app, urls=["http://127.0.0.1:8000/mcp", "unix:weather.sock"], hosts=["weather.example"])


# [/serve]
from dragoman.mcp import Client


async def tried() -> None:
    serving = asyncio.ensure_future(main())
    while True:
        await asyncio.sleep(0.05)
        try:
            async with Client("unix:weather.sock") as client:
                print((await client.call_tool("forecast", {"city": "Lhasa"}, result=dict))["celsius"])  # 21.5
            break
        except ConnectionError:
            continue
    serving.cancel()
    await asyncio.wait([serving])


asyncio.run(tried())
