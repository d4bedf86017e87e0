import asyncio

from calculator import api
from dragoman import connect, serve

URL = "tcp://127.0.0.1:9000"


# [reconnect]
def tell(state: str, why: Exception | None) -> None:
    print(state, why or "")


async def watch() -> None:
    async with connect(URL, reconnect=True, on_state=tell, idempotent=["subtract"]) as peer:
        print(await peer.call("subtract", [42, 23]))
        await restart_the_server()
        print(await peer.call("subtract", [42, 23]))  # 19


# [/reconnect]

serving = serve(api, urls=URL)


async def restart_the_server() -> None:
    global serving
    await serving.close()
    serving = serve(api, urls=URL)
    await serving.__aenter__()


async def main() -> None:
    await serving.__aenter__()
    await watch()
    await serving.close()


asyncio.run(main())
