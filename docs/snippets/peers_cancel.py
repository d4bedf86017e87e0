# [cancel]
import asyncio

from dragoman import Service, connect, serve

api = Service("slow")
stopped = asyncio.Event()


@api.method
async def dig() -> None:
    try:
        await asyncio.get_running_loop().create_future()
    finally:
        stopped.set()


async def main() -> None:
    async with serve(api, urls="memory:slow"), connect("memory:slow") as peer:
        try:
            async with asyncio.timeout(0.1):
                await peer.call("dig", timeout=None)
        except TimeoutError:
            await stopped.wait()
            print("the handler has stopped")  # the handler has stopped


asyncio.run(main())
# [/cancel]
