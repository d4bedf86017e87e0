# [notifications]
import asyncio

from dragoman import Context, Service, connect, serve

api = Service("ticker")


@api.method
async def start(ticks: int, context: Context) -> str:
    for number in range(ticks):
        await context.notify("tick", {"number": number})
    return "started"


async def main() -> None:
    async with serve(api, urls="memory:ticker"), connect("memory:ticker") as peer:
        ticks = peer.notifications("tick")
        print(await peer.call("start", [3]))  # started
        async for message in ticks:
            print(message.method, message.params)
            if message.params["number"] == 2:
                break


asyncio.run(main())
# [/notifications]
