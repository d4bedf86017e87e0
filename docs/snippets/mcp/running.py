# [middleware]
import time

from dragoman.mcp import Server

app = Server("desk", version="1.0.0")
times: dict[str, float] = {}


@app.use
async def timed(call, next):
    started = time.perf_counter()
    try:
        return await next(call)
    finally:
        if call.method == "tools/call":
            times[call.params.params.name] = time.perf_counter() - started


@app.tool(inline=True)
def stamp(paper: str) -> str:
    return f"{paper}: stamped"


# [/middleware]
# [limits]
from dragoman import Limits

small = Server("small", version="1.0.0", limits=Limits(message_size=64 * 1024, calls=100))


@small.tool(timeout=0.05, concurrency=2, queue=10)  # two at a time, ten may wait, 0.05 s each
async def slow() -> str:
    await asyncio.sleep(60)
    return "never"


# [/limits]
import asyncio

from dragoman import RpcError
from dragoman.mcp import Client


async def main() -> None:
    async with Client(app) as client:
        print(await client.call_tool("stamp", {"paper": "form 7"}, result=str))  # form 7: stamped
    assert list(times) == ["stamp"], times
    async with Client(small) as client:
        try:
            answer = await client.call_tool("slow")
            print(answer.is_error)
        except RpcError as error:
            print(error.message)  # Timed out: slow...


asyncio.run(main())
