# [bus]
import asyncio

from calculator import api
from dragoman import serve


async def main() -> None:
    async with serve(api, urls="http://127.0.0.1:8000", bus="memory:shop") as serving:
        bus = serving.bus  # without bus= it is the one that DRAGOMAN_BUS names: in a worker the supervisor's
        assert bus is not None
        assert bus.store is not None
        heard = asyncio.Event()
        await bus.subscribe("prices", lambda message: heard.set())
        await bus.publish("prices", b"changed")  # every worker that has subscribed hears it
        await heard.wait()
        print(await bus.store.put_new("order 7", b"taken", ttl=60))  # True
        print(await bus.store.put_new("order 7", b"taken", ttl=60))  # False


asyncio.run(main())
# [/bus]
