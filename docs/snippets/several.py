import asyncio

from calculator import api

# [several]
from dragoman import Service, connect, http_app, serve

clock = Service("clock")


@clock.method(inline=True)
def zone() -> str:
    return "UTC"


async def main() -> None:
    async with serve(api, clock, urls=["http://127.0.0.1:8000", "ws://127.0.0.1:8001"]):
        async with connect("http://127.0.0.1:8000/calculator") as peer:
            print(await peer.call("subtract", [42, 23]))  # 19
        async with connect("ws://127.0.0.1:8001/clock") as peer:
            print(await peer.call("zone"))  # UTC


app = http_app({"/math": api, "/clock": clock})  # the same as an ASGI application
# [/several]
asyncio.run(main())
