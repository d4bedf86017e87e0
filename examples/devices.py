"""A fleet of devices over MQTT: every lamp has a topic of its own, and one that all of them share.

mosquitto -p 1883 &                        a broker, or any other
python examples/devices.py                 three lamps and a controller, and it ends
"""

import asyncio
from contextlib import AsyncExitStack

from dragoman import ChannelError, Context, Service, connect, serve

BROKER = "mqtt://127.0.0.1:1883"
ALL = f"{BROKER}/house/lamps"
"Everyone's address: a call goes to any one of them, a broadcast to all."


lit: asyncio.Queue[str] = asyncio.Queue()
"Which lamp was lit, as one would see it from the street."


class Lamp:
    "What runs on a device."

    def __init__(self, name: str) -> None:
        self.name = name
        self.lit = False
        self.service = Service(name)
        self.service.method(self.switch)
        self.service.method(self.status)

    async def switch(self, on: bool, context: Context) -> str:
        "Turn it on or off. A lamp that is asked twice does no harm; a till would look at `redelivered` first."
        again = " again" if context.redelivered else ""
        self.lit = on
        if on:
            lit.put_nowait(self.name)
        return f"{self.name} is {'on' if on else 'off'}{again}"

    async def status(self) -> dict[str, bool]:
        "Whether it burns."
        return {self.name: self.lit}

    @property
    def url(self) -> str:
        "Its own address. Its name is its client id too: the broker keeps what comes while it is away."
        return f"{BROKER}/house/lamps/{self.name}?client={self.name}"


async def main() -> None:
    lamps = [Lamp(name) for name in ("kitchen", "porch", "study")]
    async with AsyncExitStack() as house:
        for lamp in lamps:
            await house.enter_async_context(serve(lamp.service, urls=[lamp.url, ALL]))

        async with connect(f"{BROKER}/house/lamps/porch") as porch, connect(ALL) as everyone:
            print(await porch.call("switch", [True]))  # porch is on
            print(await lit.get())  # porch
            print(len(await everyone.call("status")))  # 1

            await everyone.notify("switch", [True], broadcast=True)
            print(sorted([await lit.get() for _ in lamps]))  # ['kitchen', 'porch', 'study']

        try:
            async with connect(f"{BROKER}/house/lamps/cellar") as cellar:
                await cellar.call("status")
        except ChannelError as why:
            print(why)  # no worker serves house/lamps/cellar at ...


if __name__ == "__main__":
    asyncio.run(main())
