import asyncio

from dragoman import connect


async def main() -> None:
    async with connect("http://127.0.0.1:8000") as peer:
        print(await peer.call("subtract", [42, 23]))  # 19


asyncio.run(main())
