"""Read a subscription as Ethereum's nodes offer it: `eth_subscribe` over WebSocket, read with `async for`.

python examples/ethereum_subscription.py   has a small node of its own inside
"""

import asyncio
from itertools import count

from dragoman import Context, Peer, Service, connect, serve

node = Service("node", version="1.0.0")
sending: dict[str, asyncio.Task[None]] = {}


@node.method
async def eth_subscribe(kind: str, context: Context) -> str:
    "Send every new block of this `kind` from now on; the answer is the subscription's id."
    assert context.peer is not None  # it is None where nothing can be called back: HTTP, UDP
    subscription = hex(len(sending) + 1)
    sending[subscription] = asyncio.create_task(send_blocks(subscription, context.peer))
    return subscription


@node.method
async def eth_unsubscribe(subscription: str) -> bool:
    "Send no more."
    task = sending.pop(subscription, None)
    return task is not None and task.cancel()


async def send_blocks(subscription: str, peer: Peer) -> None:
    for number in count(1):
        await asyncio.sleep(0.01)
        await peer.notify("eth_subscription", {"subscription": subscription, "result": {"number": hex(number)}})


async def watch(url: str) -> None:
    async with connect(url) as peer:
        blocks = peer.notifications("eth_subscription")  # listen first, or the first block may be missed
        subscription = await peer.call("eth_subscribe", ["newHeads"])
        async for message in blocks:
            print("block", message.params["result"]["number"])
            if message.params["result"]["number"] == "0x3":
                break
        print("unsubscribed", await peer.call("eth_unsubscribe", [subscription]))


async def main() -> None:
    async with serve(node, urls="ws://127.0.0.1:0") as serving:
        await watch(serving.urls[0])


if __name__ == "__main__":
    asyncio.run(main())
