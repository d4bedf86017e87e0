# served: calculator:api tcp://127.0.0.1:9000
# [both]
import asyncio

from dragoman import Service, connect

mine = Service("me")


@mine.method(inline=True)
def confirm(question: str) -> bool:
    print(question)  # Clear all?
    return True


async def main() -> None:
    async with connect("tcp://127.0.0.1:9000", service=mine) as peer:
        print(await peer.call("clear"))  # cleared


asyncio.run(main())
# [/both]
