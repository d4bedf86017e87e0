# [calls]
import asyncio
from datetime import date

from msgspec import Struct

from dragoman import CallTimeout, Service, connect, serve

api = Service("people")


class Person(Struct):
    name: str
    born: date


@api.method(inline=True)
def find(name: str) -> Person:
    return Person(name, date(1815, 12, 10))


@api.method
async def never() -> None:
    await asyncio.get_running_loop().create_future()


async def main() -> None:
    async with serve(api, urls="memory:people"), connect("memory:people", timeout=10) as peer:
        print(await peer.call("find", ["Ada"]))  # {'name': 'Ada', 'born': '1815-12-10'}
        print((await peer.call("find", ["Ada"], result=Person)).born.year)  # 1815
        try:
            await peer.call("never", timeout=0.1)
        except CallTimeout as error:
            print(error)  # never: no answer within 0.1 s


asyncio.run(main())
# [/calls]
