import asyncio
import os

from calculator import api
from dragoman import connect, serve

# [guard]
from dragoman.channel import Admitted, Denied, Handshake, Identity


async def guard(handshake: Handshake) -> Admitted | Denied:
    process = handshake.credentials
    if process is None or process.uid != os.getuid():
        return Denied(reason="Not your server", status=403)
    return Admitted(identity=Identity(subject=f"uid {process.uid}"))


async def main() -> None:
    async with serve(api, urls="unix:calc.sock", guard=guard):
        async with connect("unix:calc.sock") as peer:
            print(await peer.call("subtract", [42, 23]))  # 19


# [/guard]
asyncio.run(main())
