# [context]
from dragoman import Context, Service

api = Service("report")


@api.method
async def build(pages: int, context: Context) -> str:
    context.log.info("asked by %s over %s", context.caller.remote, context.caller.scheme)
    for page in range(pages):
        await context.progress({"done": page + 1, "total": pages})
    return f"request {context.id}, {context.time_left:.0f} s left"


@api.method
def crunch(rounds: int, context: Context) -> int:
    for done in range(rounds):  # a thread cannot be stopped from outside: look yourself
        if context.cancelled:
            return done
        context.progress(done)
    return rounds


# [/context]
import asyncio

from dragoman import connect, serve


async def main() -> None:
    async with serve(api, urls="memory:report"), connect("memory:report") as peer:
        print(await peer.call("build", [2], on_progress=print))
        print(await peer.call("crunch", [3]))  # 3


asyncio.run(main())
