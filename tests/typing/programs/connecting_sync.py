"""A peer of JSON-RPC, blocking."""

from __future__ import annotations

from dragoman.sync import SyncPeer, connect

with connect("tcp://127.0.0.1:9000", timeout=2.5, headers={"a": "b"}) as peer:
    total = peer.call("sum", [1, 2], result=int) + 1
    rows: list[str] = peer.call("rows", {"of": "a"}, result=list[str], total=3)
    with peer.batch() as batch:
        first = batch.call("sum", [1], result=int)
    number: int = first.result()
    for note in peer.notifications():
        print(note.method, note.params)


def mistaken(peer: SyncPeer) -> None:
    connect("tcp://a.example:1", timeout="3")  # wrong: seconds are a number
    connect("tcp://a.example:1", url="tcp://b.example:1")  # wrong: no such option
    connect()  # wrong: a target is missing
    peer.call("sum", timeout="3")  # wrong: seconds are a number
    total: str = peer.call("sum", result=int)  # wrong: an int
    first: int = batch.call("sum", result=int)  # wrong: an Answer
    print(total, first)


async def waiting(peer: SyncPeer) -> None:
    await peer.call("sum", result=int)  # wrong: it blocks
    await peer.notify("seen")  # wrong: it blocks
