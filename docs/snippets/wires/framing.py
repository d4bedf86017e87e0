import asyncio

from calculator import api
from dragoman import connect, serve


# [framing]
async def main() -> None:
    async with serve(api, urls="tcp://127.0.0.1:9002?framing=content-length"):
        async with connect("tcp://127.0.0.1:9002?framing=content-length") as peer:
            print(await peer.call("subtract", [42, 23]))  # 19


# [/framing]
asyncio.run(main())
