# [both]
import asyncio

from dragoman import Context, Service, connect, serve

greeter = Service("greeter")
guest = Service("guest")


@greeter.method
async def greet(context: Context) -> str:
    name = await context.call("name", result=str)  # the server calls the client back
    return f"Good morning, {name}"


@guest.method(inline=True)
def name() -> str:
    return "Ada"


async def main() -> None:
    async with serve(greeter, urls="tcp://127.0.0.1:9000"):
        async with connect("tcp://127.0.0.1:9000", service=guest) as peer:
            print(await peer.call("greet"))  # Good morning, Ada


asyncio.run(main())
# [/both]
