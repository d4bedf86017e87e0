import asyncio

from calculator import api
from dragoman import connect, serve


# [middleware]
async def logged(call, next):
    print("calling", call.method, call.params)
    return await next(call)


async def main() -> None:
    async with serve(api, urls="memory:c"), connect("memory:c", middleware=[logged]) as peer:
        print(await peer.call("subtract", [42, 23]))  # 19


# [/middleware]
asyncio.run(main())
