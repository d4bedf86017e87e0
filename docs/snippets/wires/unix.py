# [unix]
import asyncio

from calculator import api
from dragoman import connect, serve


async def main() -> None:
    async with serve(api, urls="unix:calc.sock", mode=0o660):
        async with connect("unix:calc.sock") as peer:
            print(await peer.call("subtract", [42, 23]))  # 19


asyncio.run(main())
# [/unix]
