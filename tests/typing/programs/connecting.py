"""A peer of JSON-RPC, async."""

from __future__ import annotations

import ssl

from dragoman import CallTimeout, Peer, RpcError, Service, connect

back = Service("back")


async def main() -> None:
    context = ssl.create_default_context()
    async with connect("tls://rpc.example:9000", service=back, tls=context, timeout=2.5, dialect="plain") as peer:
        total = await peer.call("sum", [1, 2], result=int, timeout=None, total=10)
        rows: list[str] = await peer.call("rows", {"of": "a"}, result=list[str], on_progress=print)
        async with peer.batch(timeout=3) as batch:
            first = batch.call("sum", [1], result=int)
            batch.notify("seen")
        number: int = first.result() + await first + total
        async for note in peer.notifications("changed"):
            print(note.method, number, rows)
    peer = await connect(["python", "server.py"], reconnect=True, idempotent=["sum"])
    try:
        await peer.call("sum", [1, 2])
    except (RpcError, CallTimeout) as error:
        print(error)
    finally:
        await peer.close(drain=1)


async def mistaken(peer: Peer) -> None:
    connect("tcp://a.example:1", timeout="3")  # wrong: seconds are a number
    connect("tcp://a.example:1", tls=True)  # wrong: an SSLContext
    connect("tcp://a.example:1", dialect="soap")  # wrong: none of the two
    connect("tcp://a.example:1", service="back")  # wrong: a Service
    connect("tcp://a.example:1", framing="lines")  # wrong: no such framing
    connect("tcp://a.example:1", retry=True)  # wrong: no such option
    with connect("tcp://a.example:1"):  # wrong: async with
        pass
    await peer.call("sum", [1, 2], timeout="3")  # wrong: seconds are a number
    total: str = await peer.call("sum", [1, 2], result=int)  # wrong: an int
    number: int = peer.call("sum", [1, 2], result=int)  # wrong: not awaited
    await peer.closed  # wrong: nothing to await
    await peer.batch()  # wrong: it is entered
    await peer.call(["sum"])  # wrong: a method is text
    print(total, number)
