"""Which tasks there are on a bus, whose they are and how large: shards, each a value of the bus. Pure.

An entry is made before its task, and goes after it: a process that is killed in between leaves an entry without a task,
which is dropped when it is found.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec
from msgspec import Struct

from .contract import TaskLimits
from .room import Usage, check_room

SHARDS: Final = 64
"""A shard is written whole for each new task: with all 100,000 tasks it has 1,600 entries, about 100 kB."""


class LedgerEntry(Struct, array_like=True):
    """A task. Times are Unix seconds."""

    id: str
    size: int
    """Bytes that it counts."""
    until: float | None
    since: float
    """When it was entered."""
    created: float
    server: str

    def over(self, now: float) -> bool:
        """Whether its time is over."""
        return self.until is not None and self.until <= now


class Ledger(Struct):
    """The tasks of one shard by their owners, the oldest first."""

    owners: dict[str, list[LedgerEntry]] = {}

    def entries(self) -> Iterator[LedgerEntry]:
        """All entries."""
        return (entry for entries in self.owners.values() for entry in entries)

    def find(self, owner: str, id: str) -> LedgerEntry | None:
        """Return the entry of a task."""
        return next((entry for entry in self.owners.get(owner, ()) if entry.id == id), None)

    def drop(self, ids: Iterable[str]) -> bool:
        """Drop entries; return whether there were any."""
        gone, before = frozenset(ids), sum(map(len, self.owners.values()))
        left = {owner: [one for one in entries if one.id not in gone] for owner, entries in self.owners.items()}
        self.owners = {owner: entries for owner, entries in left.items() if entries}
        return sum(map(len, self.owners.values())) < before


class ShardUsage(Struct, frozen=True):
    """What the tasks of a shard take up whose time is not over: all, and those without an owner."""

    all: Usage = Usage()
    unowned: Usage = Usage()


def shard_of(owner: str, id: str) -> int:
    """Return the number of a task's shard: all tasks of an owner are in one, those without an owner in all."""
    return zlib.crc32((owner or id).encode()) % SHARDS


def usage(entries: Iterable[LedgerEntry], now: float) -> Usage:
    """Return what these take up."""
    sizes = [entry.size for entry in entries if not entry.over(now)]
    return Usage(len(sizes), sum(sizes))


def shard_usage(ledger: Ledger, now: float) -> ShardUsage:
    """Return what a shard takes up."""
    return ShardUsage(usage(ledger.entries(), now), usage(ledger.owners.get("", ()), now))


def check_shard(
    limits: TaskLimits, ledger: Ledger, others: ShardUsage, owner: str, now: float, *, new: bool, more: int
) -> None:
    """Raise TasksFull where this shard, with all others, has no room for `more` bytes of an owner."""
    here = shard_usage(ledger, now)
    mine = usage(ledger.owners.get(owner, ()), now) if owner else _sum(here.unowned, others.unowned)
    check_room(limits, owner, mine, _sum(here.all, others.all), new=new, more=more)


def sum_usage(shards: Iterable[ShardUsage]) -> ShardUsage:
    """Return what several shards take up."""
    total = ShardUsage()
    for one in shards:
        total = ShardUsage(_sum(total.all, one.all), _sum(total.unowned, one.unowned))
    return total


def _sum(one: Usage, other: Usage) -> Usage:
    return Usage(one.tasks + other.tasks, one.size + other.size)


write_ledger: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(Ledger).decode


def read_ledger(written: bytes) -> Ledger:
    """Return a ledger; an empty one where it cannot be read."""
    try:
        return _decode(written) if written else Ledger()
    except msgspec.MsgspecError:
        return Ledger()
