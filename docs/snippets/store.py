# [store]
import asyncio

from dragoman import Context, Service, connect, serve
from dragoman.channel import Admitted, Denied, Handshake, Identity

shop = Service("shop")


@shop.method
async def put(item: str, ctx: Context) -> int:
    basket = await ctx.store.get("basket", [])  # of this caller alone
    await ctx.store.set("basket", [*basket, item], ttl=86_400)
    return len(basket) + 1


@shop.method
def basket(ctx: Context) -> list[str]:
    return ctx.store.get("basket", [])  # in a plain function it blocks


async def guard(handshake: Handshake) -> Admitted | Denied:
    token = dict(handshake.headers).get(b"authorization", b"").removeprefix(b"Bearer ")
    return Admitted(identity=Identity(subject=token.decode())) if token else Denied(reason="Who are you?")


async def main() -> None:
    async with serve(shop, urls="http://127.0.0.1:0", guard=guard, store="memory:") as serving:
        for name in ("ada", "bob"):
            async with connect(serving.urls[0], auth=name) as peer:
                await peer.call("put", ["tea"])
                print(name, await peer.call("put", ["milk"]), await peer.call("basket"))


asyncio.run(main())
# ada 2 ['tea', 'milk']
# bob 2 ['tea', 'milk']
# [/store]
