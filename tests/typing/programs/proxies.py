"""The far end as an object."""

from __future__ import annotations

from typing import Protocol

from dragoman import Peer
from dragoman.sync import SyncPeer


class Calculator(Protocol):
    async def add(self, a: int, b: int) -> int: ...


class BlockingCalculator(Protocol):
    def add(self, a: int, b: int) -> int: ...


async def use(peer: Peer) -> int:
    far = peer.proxy(Calculator, prefix="math.")
    await peer.proxy().math.add(1, 2)
    return await far.add(1, b=2)


def use_blocking(peer: SyncPeer) -> int:
    peer.proxy().math.add(1, 2)
    return peer.proxy(BlockingCalculator).add(1, 2)


async def mistaken(peer: Peer, blocking: SyncPeer) -> None:
    far = peer.proxy(Calculator)
    text: str = await far.add(1, 2)  # wrong: an int
    number: int = far.add(1, 2)  # wrong: not awaited
    await far.add("1", 2)  # wrong: numbers
    await far.add(1)  # wrong: one is missing
    await far.subtract(1, 2)  # wrong: no such method
    peer.proxy(Calculator, prefix=1)  # wrong: text
    peer.proxy("Calculator")  # wrong: the class
    await blocking.proxy(BlockingCalculator).add(1, 2)  # wrong: it blocks
    print(text, number)
