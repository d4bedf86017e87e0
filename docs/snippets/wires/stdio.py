# [stdio]
import asyncio
import sys

from dragoman import connect

COMMAND = [sys.executable, "-m", "dragoman", "serve", "calculator:api", "stdio:"]


async def main() -> None:
    async with connect(COMMAND, stderr=lambda line: print("child:", line)) as peer:
        print(await peer.call("subtract", [42, 23]))  # 19


asyncio.run(main())
# [/stdio]
