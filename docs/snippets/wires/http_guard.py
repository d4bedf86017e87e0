import asyncio

from calculator import api
from dragoman import connect, serve
from dragoman.channel import Admitted, Denied, Handshake, Identity


# [guard]
async def guard(handshake: Handshake) -> Admitted | Denied:
    token = dict(handshake.headers).get(b"authorization", b"")
    if token != b"Bearer secret":
        return Denied(reason="Show a token", headers=[("WWW-Authenticate", "Bearer")])
    return Admitted(identity=Identity(subject="ada"))


async def main() -> None:
    async with serve(api, urls="http://127.0.0.1:8003", guard=guard):
        async with connect("http://127.0.0.1:8003", auth="secret") as peer:
            print(await peer.call("subtract", [42, 23]))  # 19


# [/guard]
asyncio.run(main())
