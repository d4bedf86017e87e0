"""`kill -9` of servers of events on one file, while programs emit through them, receivers of webhooks take what is
posted, and clients follow by a stream and by polling.

What holds: an event whose emit was acknowledged reaches everyone who follows it, all in the order of their emits. A
receiver gets an event again only at once, the one that it accepted last, and only where a process was killed in
between.
"""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from dragoman.mcp import Client
from dragoman.mcp.extensions.events import EventsClient, listening
from dragoman.mcp.extensions.events import model as m
from dragoman.mcp.protocol.revisions import R2025_11, R2026_07, Revision
from tests.mcp.extensions.events.receiving import SECRET, Posted, echo, receiving, reply
from tests.ports import free_port

from .event_server import WEEK, Stepped
from .journal import Journal
from .servers import TOKEN, KilledServer, NoResult, kill_servers, request

NAME = "stepped"
LANES = ("a", "b", "c", "d")
"""Programs that emit, each one event after the other."""
RATE = 50.0
"""Events a second, of all lanes."""
SERVERS = 2
LEASE = 2.0
"""Seconds after which a process that does not renew its lease does not deliver any more."""
PAUSES = (0.3, 2.0)
"""Seconds between two kills, beside those in which a server starts."""
SETTLED = 90.0
"""Seconds after the last kill within which every event must have reached everyone."""
SLACK = 1.0
"""Seconds within which is read what a process had written when it was killed."""
REFUSED = 0.05
"""The part of the posts that the shaky receiver refuses."""
SUBSCRIPTIONS: dict[str, tuple[str, str]] = {"all": ("firm", ""), "lane a": ("firm", "a"), "shaky": ("shaky", "")}
"""Name -> its receiver and the lane that it filters, "": all."""
FOLLOWERS: dict[str, tuple[Literal["push", "poll"], Revision]] = {
    "stream": ("push", R2026_07),
    "poll": ("poll", R2025_11),
}


@dataclass
class Found:
    """What came of it. Events are `LANE.NUMBER`."""

    kills: list[float] = field(default_factory=list)
    """When processes were killed, and when a run was stopped."""
    killed: int = 0
    sessions: int = 1
    emits: int = 0
    acknowledged: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    """Those in the file, in their order."""
    taken: dict[str, list[tuple[float, str]]] = field(default_factory=dict)
    """What each subscription's receiver has accepted, and each follower got: when, and what."""
    truncated: list[str] = field(default_factory=list)

    def wants(self, who: str) -> list[str]:
        """What a subscription or follower must get."""
        lane = SUBSCRIPTIONS[who][1] if who in SUBSCRIPTIONS else ""
        return [one for one in self.kept if one.startswith(lane)]

    def lost(self, who: str) -> list[str]:
        """Events that it has not got."""
        got = {id for _, id in self.taken[who]}
        return [one for one in self.wants(who) if one not in got]

    def repeats(self, who: str) -> list[tuple[str, bool]]:
        """Events that it has got again, and whether it was at once and a process was killed in between."""
        taken, seen, found = self.taken[who], dict[str, float](), []
        for n, (at, id) in enumerate(taken):
            if id in seen:
                killed = any(seen[id] - SLACK <= one <= at for one in self.kills)
                found.append((id, killed and taken[n - 1][1] == id))
            seen[id] = at
        return found

    def __str__(self) -> str:
        lines = [f"{self.killed} kills in {self.sessions} session(s), {self.emits} emits"]
        lines[0] += (
            f", {len(self.acknowledged)} acknowledged, {len(self.kept)} kept; acknowledged and not kept {len(self.unkept)}"
        )
        for who, taken in self.taken.items():
            again = Counter(marked for _, marked in self.repeats(who))
            lines.append(
                f"  {who}: {len(taken)} of {len(self.wants(who))}, lost {len(self.lost(who))}, again after a kill "
                f"{again[True]}, again without one {again[False]}"
            )
        return "\n".join(lines)

    @property
    def unkept(self) -> set[str]:
        """What was acknowledged, and is not kept."""
        return set(self.acknowledged) - set(self.kept)


async def kill_event_servers(
    folder: Path, *, kills: int, seed: int, lease: float = LEASE, watch: Callable[[str], None] | None = None
) -> Found:
    """Kill servers under load until so many were killed, in this run and those before it in this folder."""
    journal, file = Journal(folder / "journal"), folder / "events.db"
    dice = random.Random(seed + journal.session)
    ports = next(iter(journal.of("ports")), None)
    if ports is None:
        ports = {name: free_port() for name in ("firm", "shaky", *(f"server {n}" for n in range(SERVERS)))}
        journal.write("ports", **ports)
    servers = [
        KilledServer(folder / "servers.log", "event_server", str(file), str(ports[f"server {n}"]), str(lease))
        for n in range(SERVERS)
    ]
    pauses, listening.PAUSES = listening.PAUSES, (0.05, 0.5)  # type: ignore[misc]  # they come back soon
    try:
        async with AsyncExitStack() as stack:
            for name in ("firm", "shaky"):
                behave = _receiver(journal, dice, REFUSED if name == "shaky" else 0.0)
                await stack.enter_async_context(receiving(behave, ports[name]))
            for one in servers:
                stack.push_async_callback(one.kill)
                await one.start()
            await subscribe(servers[0].url, journal, ports)
            for n, who in enumerate(FOLLOWERS):
                await stack.enter_async_context(followed(who, servers[n].url, journal))
            async with emitted(servers, journal, dice):
                await kill_servers(servers, journal, dice, kills=kills, pauses=PAUSES, watch=watch)
            return await settle(journal, file)
    finally:
        listening.PAUSES = pauses  # type: ignore[misc]
        journal.close()


def client(url: str, revision: Revision, extension: Any) -> Client:
    """A client that the servers know."""
    return Client(url, revision=revision, extensions=[extension], headers={"Authorization": f"Bearer {TOKEN}"})


async def subscribe(url: str, journal: Journal, ports: dict[str, Any]) -> None:
    """Make the subscriptions, or refresh them, and note where all begins."""
    async with client(url, R2026_07, m.DECLARED) as one:
        if not journal.of("begin"):
            polled = await one.request("events/poll", m.PollEventsParams(name=NAME))
            journal.write("begin", cursor=polled.cursor)
        for name, (receiver, lane) in SUBSCRIPTIONS.items():
            params = m.SubscribeEventsParams(
                name=NAME,
                arguments={"lane": lane} if lane else {},
                delivery=m.Delivery(url=f"http://127.0.0.1:{ports[receiver]}/{name.replace(' ', '-')}", secret=SECRET),
                cursor=journal.of("begin")[0]["cursor"],
                ttl_ms=int(WEEK * 1000),
            )
            await one.request("events/subscribe", params)


def _receiver(journal: Journal, dice: random.Random, refused: float) -> Callable[[Posted], bytes]:
    """What a receiver does: it notes what it accepts, and refuses some."""

    def behave(posted: Posted) -> bytes:
        if posted.is_verification:
            return echo(posted)
        if dice.random() < refused:
            return reply(503)
        journal.write("taken", who=posted.path[1:].replace("-", " "), id=posted.message["eventId"])
        return reply(204)

    return behave


@asynccontextmanager
async def followed(who: str, url: str, journal: Journal) -> AsyncIterator[None]:
    """Let a client follow all events from where it was, for the length of the block."""
    mode, revision = FOLLOWERS[who]
    before = [one for one in journal.of("taken") if one["who"] == who]
    cursor = next((one["cursor"] for one in reversed(before) if one["cursor"]), journal.of("begin")[0]["cursor"])
    events = EventsClient(min_poll=0.001)

    async def follow() -> None:
        async with events.listen(NAME, mode=mode, cursor=cursor) as found:
            async for one in found:
                step = one.read(Stepped)
                # of a poll the last event alone has a position: those before it come again after a stop
                journal.write("taken", who=who, id=f"{step.lane}.{step.number}", cursor=one.cursor)
                if one.truncated:
                    journal.write("truncated", who=who)

    async with client(url, revision, events):
        following = asyncio.create_task(follow())
        try:
            yield
        finally:
            following.cancel()
            await asyncio.wait([following])
            if not following.cancelled():
                following.result()


@asynccontextmanager
async def emitted(servers: list[KilledServer], journal: Journal, dice: random.Random) -> AsyncIterator[None]:
    """Let each lane emit one event after the other, for the length of the block. One that was not acknowledged is
    emitted again, with its id, at any of the servers, or is given up."""
    over, threads = asyncio.Event(), ThreadPoolExecutor(len(LANES))
    loop = asyncio.get_running_loop()

    async def emit(lane: str, number: int) -> None:
        while not over.is_set():
            there = [one.url for one in servers if one.url]
            if there:
                journal.write("emit")
                arguments = {"name": "step", "arguments": {"lane": lane, "number": number}}
                try:
                    url = dice.choice(there)
                    await loop.run_in_executor(threads, request, url, "tools/call", "step", arguments)
                except NoResult:
                    if dice.random() < 0.3:
                        return
                else:
                    journal.write("acknowledged", id=f"{lane}.{number}")
                    return
            await asyncio.sleep(0.05)

    async def go(lane: str) -> None:
        number = journal.session * 1_000_000
        while not over.is_set():
            number += 1
            await emit(lane, number)
            await asyncio.sleep(len(LANES) / RATE)

    lanes = [loop.create_task(go(lane)) for lane in LANES]
    try:
        yield
        over.set()
        await asyncio.gather(*lanes)
    finally:
        for one in lanes:
            one.cancel()
        await asyncio.wait(lanes)
        threads.shutdown(cancel_futures=True)


async def settle(journal: Journal, file: Path) -> Found:
    """Wait until everything has reached everyone, and return what came of it."""
    with closing(sqlite3.connect(file)) as db:
        kept = [id for (id,) in db.execute("SELECT id FROM events ORDER BY number")]
    found = Found(kept=kept, killed=journal.kills, sessions=journal.session)
    loop = asyncio.get_running_loop()
    until = loop.time() + SETTLED
    while True:
        taken = {who: list[tuple[float, str]]() for who in (*SUBSCRIPTIONS, *FOLLOWERS)}
        for one in journal.of("taken"):
            taken[one["who"]].append((one["at"], one["id"]))
        found.taken = taken
        if loop.time() > until or not any(found.lost(who) for who in taken):
            break
        await asyncio.sleep(0.25)
    await asyncio.sleep(0.25)  # what comes again
    found.kills = [one["at"] for one in (*journal.of("kill"), *journal.of("session"))]
    found.emits = len(journal.of("emit"))
    found.acknowledged = [one["id"] for one in journal.of("acknowledged")]
    found.truncated = [one["who"] for one in journal.of("truncated")]
    return found


def nothing_is_lost(found: Found) -> None:
    """What holds after any number of kills."""
    print(f"\n{found}")
    assert not found.unkept, f"acknowledged, and lost: {sorted(found.unkept)[:5]}"
    assert not found.truncated
    last: dict[str, int] = {}
    for id in found.kept:
        lane, _, number = id.partition(".")
        assert last.get(lane, 0) < int(number), f"{id} is kept behind {last[lane]}"
        last[lane] = int(number)
    for who, taken in found.taken.items():
        assert not found.lost(who), f"{who} has lost {found.lost(who)[:5]}"
        if found.sessions == 1 or who in SUBSCRIPTIONS:
            firsts = [id for n, (_, id) in enumerate(taken) if n == 0 or taken[n - 1][1] != id]
            assert firsts == found.wants(who), f"{who} has not got them in order"
            wrong = [id for id, after_kill in found.repeats(who) if not after_kill]
            assert not wrong, f"{who} has got {wrong[:5]} again, and nothing was killed"
        if who in FOLLOWERS:
            assert found.sessions > 1 or not found.repeats(who)
