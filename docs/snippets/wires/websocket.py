# [websocket]
import asyncio

from dragoman import Context, Service, connect, serve

clock = Service("clock")


@clock.method
async def count(to: int, context: Context) -> str:
    for number in range(to):
        await context.notify("tick", [number])
    return "done"


async def main() -> None:
    async with serve(clock, urls="ws://127.0.0.1:8001"):
        async with connect("ws://127.0.0.1:8001") as peer:
            ticks = peer.notifications("tick")
            print(await peer.call("count", [2]))  # done
            print((await anext(ticks)).params)  # [0]


asyncio.run(main())
# [/websocket]
