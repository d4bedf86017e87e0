# [http]
import asyncio

from calculator import api
from dragoman import connect, serve


async def main() -> None:
    async with serve(api, urls="http://127.0.0.1:8000"):
        async with connect("http://127.0.0.1:8000", auth=("user", "secret"), headers={"X-Request": "7"}) as peer:
            print(await peer.call("subtract", [42, 23]))  # 19


asyncio.run(main())
# [/http]
