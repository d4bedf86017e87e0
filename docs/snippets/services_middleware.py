# [middleware]
import time

from calculator import api
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
        print(call.method, "was slow" if time.perf_counter() - started > 1 else "was quick")


@api.use
async def guarded(call, next):
    if call.method == "subtract" and call.context.caller.scheme == "http":
        raise Denied
    return await next(call)


# [/middleware]
import asyncio

from dragoman import connect, serve


async def main() -> None:
    async with serve(api, urls="memory:m"), connect("memory:m") as peer:
        print(await peer.call("subtract", [42, 23]))  # 19


asyncio.run(main())
