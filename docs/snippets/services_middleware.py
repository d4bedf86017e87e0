import asyncio

from calculator import api

from dragoman import connect, serve

# [middleware]
import time

from dragoman import RpcError


class Denied(RpcError):
    code = 403
    message = "Denied"


@api.use
async def timed(call, next):
    started = time.perf_counter()
    try:
        return await next(call)
    finally:
        seconds = time.perf_counter() - started
        print(call.method, "took less than a second" if seconds < 1 else "was slow")


@api.use
async def guarded(call, next):
    if call.method == "subtract" and call.context.caller.scheme == "http":
        raise Denied
    return await next(call)


# [/middleware]


async def main() -> None:
    async with serve(api, urls="memory:m"), connect("memory:m") as peer:
        print(await peer.call("subtract", [42, 23]))  # 19


asyncio.run(main())
