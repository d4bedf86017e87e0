"""`kill -9` of servers whose tools go on as tasks, on one file or one bus: no acknowledged task is lost, none is run
twice that may not be, none more often than its record says, and none changes once it has ended."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dragoman.tasks.record import TaskRecord

from .journal import Journal
from .servers import KilledServer, NoResult, kill_servers, request
from .task_server import opened

RATE = 50.0
"""Tasks a second."""
SERVERS = 3
AT_ONCE = 64
"""Calls in flight: beyond that none are made, or a machine that is slower than the load would be buried under it."""
LEASE = 3.0
"""Seconds after which a runner that does not beat is taken for lost."""
SETTLED = 90.0
"""Seconds after the last kill within which every task must have ended."""
PAUSES = (0.1, 0.6)
"""Seconds between two kills, beside those in which a server starts."""


@dataclass
class Found:
    """What came of it."""

    kills: int = 0
    sessions: int = 1
    asked: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    """Why calls were not acknowledged, and how many."""
    acknowledged: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Tool and token, by the id of the task."""
    ends: dict[str, list[Any]] = field(default_factory=dict)
    """Status and text of tasks as clients have first seen them at their end."""
    records: dict[str, TaskRecord | None] = field(default_factory=dict)
    begun: Counter[str] = field(default_factory=Counter)
    """How often each token was run."""
    done: Counter[str] = field(default_factory=Counter)
    """How often each was run to its end."""

    @property
    def lost(self) -> list[str]:
        """Tasks that were acknowledged, and are not there or have not ended."""
        return [id for id, one in self.records.items() if one is None or not one.ended]

    @property
    def unmarked(self) -> list[str]:
        """Tasks that were run, or finished, more often than their records say."""
        return [
            id
            for id, (_, token) in self.acknowledged.items()
            if (one := self.records[id]) is not None and max(self.begun[token], self.done[token]) > one.runs
        ]

    def __str__(self) -> str:
        states = Counter("missing" if one is None else one.status for one in self.records.values())
        rerun = sum(one is not None and one.runs > 1 for one in self.records.values())
        return (
            f"{self.kills} kills in {self.sessions} session(s), {self.asked} calls, not acknowledged "
            f"{dict(self.refused)}, {len(self.acknowledged)} tasks acknowledged: {dict(states)}, {rerun} begun again, {len(self.ends)} seen at their end before the last "
            f"kill; lost {len(self.lost)}, run or finished twice unmarked {len(self.unmarked)}"
        )


async def kill_task_servers(
    folder: Path,
    url: str = "",
    *,
    kills: int,
    seed: int,
    lease: float = LEASE,
    watch: Callable[[str], None] | None = None,
) -> Found:
    """Kill servers under load until so many were killed, in this run and those before it in this folder. `url`: of the
    bus that keeps the tasks; "": a file does."""
    journal, ledger = Journal(folder / "journal"), folder / "ledger"
    ledger.touch()
    store = url or f"sqlite:{folder / 'tasks.db'}"
    dice = random.Random(seed + journal.session)
    arguments = store, str(ledger), str(lease)
    servers = [KilledServer(folder / "servers.log", "task_server", *arguments) for _ in range(SERVERS)]
    try:
        await servers[0].start()
        await asyncio.gather(*[one.start() for one in servers[1:]])
        async with loaded(servers, journal, dice):
            await kill_servers(servers, journal, dice, kills=kills, pauses=PAUSES, watch=watch)
        found = Found(kills=journal.kills, sessions=journal.session)
        found.asked = sum(one["count"] for one in journal.of("asked"))
        found.refused = sum((Counter(one["refused"]) for one in journal.of("asked")), Counter())
        found.acknowledged = {one["id"]: (one["tool"], one["token"]) for one in journal.of("acknowledged")}
        for one in journal.of("ended"):
            found.ends.setdefault(one["id"], one["end"])
        await read_all(store, lease, found)
    finally:
        await asyncio.gather(*[one.kill() for one in servers])
        journal.close()
    for line in ledger.read_text().splitlines():
        what, token = line.split()
        (found.begun if what == "begin" else found.done)[token] += 1
    return found


@asynccontextmanager
async def loaded(servers: list[KilledServer], journal: Journal, dice: random.Random) -> AsyncIterator[None]:
    """Let calls be made, `RATE` a second, and look at what became of some of the tasks, for the length of the block;
    every call has ended after it."""
    loop, threads = asyncio.get_running_loop(), ThreadPoolExecutor(2 * AT_ONCE)
    out: set[asyncio.Task[None]] = set()
    refused: Counter[str] = Counter()
    over, ids = False, [one["id"] for one in journal.of("acknowledged")]

    async def ask(method: str, name: str, params: dict[str, Any]) -> dict[str, Any]:
        there = [one.url for one in servers if one.url]
        if not there:
            raise NoResult("no server was there")
        return await loop.run_in_executor(threads, request, dice.choice(there), method, name, params)

    async def call(number: int) -> None:
        tool, token = dice.choice(["once", "again"]), f"{journal.session}-{number}"
        arguments = {"token": token, "seconds": dice.uniform(0, 2)}
        try:
            result = await ask("tools/call", tool, {"name": tool, "arguments": arguments})
        except NoResult as error:
            refused[str(error)] += 1
        else:
            journal.write("acknowledged", id=result["taskId"], tool=tool, token=token)
            ids.append(result["taskId"])

    async def look() -> None:
        """Note of a task that has ended how."""
        id = dice.choice(ids)
        try:
            state = await ask("tasks/get", id, {"taskId": id})
        except NoResult:
            return
        if state["status"] in ("completed", "failed", "cancelled"):
            text = state["result"]["content"][0]["text"] if state["status"] == "completed" else ""
            journal.write("ended", id=id, end=[state["status"], text])

    def begin(work: Any) -> None:
        out.add(task := loop.create_task(work))
        task.add_done_callback(out.discard)

    async def go() -> None:
        start, made = loop.time(), 0
        try:
            while not over:
                due = int((loop.time() - start) * RATE)
                for number in range(made, made + max(0, min(due - made, AT_ONCE - len(out)))):
                    begin(call(number))
                    if number % 5 == 0 and ids:
                        begin(look())
                    made = number + 1
                start = max(start, loop.time() - made / RATE - 1.0)  # what could not be made is not made up for
                await asyncio.sleep(1 / RATE)
        finally:
            journal.write("asked", count=made, refused=refused)

    going = loop.create_task(go())
    try:
        yield
        over = True
        await going
        await asyncio.gather(*out)
    finally:
        for task in (going, *out):
            task.cancel()
        await asyncio.wait([going, *out])
        threads.shutdown(cancel_futures=True)


async def read_all(url: str, lease: float, found: Found) -> None:
    """Wait until every acknowledged task has ended, and note what came of it."""
    async with opened(url, lease) as (store, _):
        try:
            async with asyncio.timeout(SETTLED):
                for id in found.acknowledged:
                    record = await store.read(id)
                    while record is not None and not record.ended:
                        await asyncio.sleep(0.05)
                        record = await store.read(id)
                    found.records[id] = record
        except TimeoutError:
            for id in found.acknowledged.keys() - found.records.keys():
                found.records[id] = await store.read(id)


def nothing_is_lost(found: Found) -> None:
    """What holds after any number of kills."""
    print(f"\n{found}")
    for id, (tool, token) in found.acknowledged.items():
        record = found.records[id]
        assert record is not None, f"the task {id} was acknowledged, and is lost"
        assert record.ended, f"the task {id} of {tool} has not ended: {record.status}, {record.message}"
        runs = max(found.begun[token], found.done[token])
        assert runs <= record.runs, f"{tool} {token} was run {runs} times: {record}"
        if tool == "once":
            assert runs <= 1
        text = ""
        if record.status == "completed":
            assert record.result is not None
            text = json.loads(bytes(record.result))["content"][0]["text"]
            assert text == token
            assert found.done[token] >= 1
        else:
            assert record.status == "failed"
            assert "lost" in record.message, record.message
        seen = found.ends.get(id, [record.status, text])
        assert seen == [record.status, text], f"the task {id} was seen as {seen}: {record}"
