"""Tasks at replicas that share a bus: any of them answers any request about a task."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw, structs

from dragoman import serve
from dragoman.bus.memory import MemoryBus
from dragoman.mcp.extensions.tasks import Tasks
from dragoman.mcp.protocol.revisions import R2025_06, R2025_11, R2026_07, Revision
from dragoman.tasks.contract import ClaimedTask
from dragoman.tasks.sqlite import SqliteTasks
from tests.behind import behind
from tests.engines.wires import until
from tests.mcp.calling import Calls, calling
from tests.mcp.replicas import KEYS
from tests.tasks.table import record

from .lab import DECLARED, ELICITS, Lab, becomes, ended
from .test_access import begun, listen


@asynccontextmanager
async def replicas() -> AsyncIterator[tuple[Lab, Lab, Calls, Calls]]:
    """Two replicas on one bus, and a client of each."""
    bus = MemoryBus()
    one, two = (Lab(Tasks("bus", keys=()), keys=KEYS) for _ in range(2))
    said: dict[str, Any] = {**DECLARED, **ELICITS}
    async with (
        serve(one.app, urls="http://127.0.0.1:0/mcp", bus=bus),
        serve(two.app, urls="http://127.0.0.1:0/mcp", bus=bus),
        calling(one.app, R2026_07, **said) as here,
        calling(two.app, R2026_07, **said) as there,
    ):
        yield one, two, here, there
    await bus.close()


async def test_any_replica_answers() -> None:
    async with replicas() as (one, _, here, there):
        id = await begun(here)
        assert (await there.unchecked("tasks/get", taskId=id))["result"]["status"] == "working"
        await listen(there, taskIds=[id])
        one.go.set()
        assert (await ended(there, id))["result"]["structuredContent"] == {"rows": 1, "name": ""}
        await until(lambda: any(told["params"].get("status") == "completed" for told in there.told))


async def test_a_cancel_and_an_answer_reach_who_runs_it() -> None:
    async with replicas() as (one, _, here, there):
        id = await begun(here)
        await until(lambda: bool(one.began))
        await there.unchecked("tasks/cancel", taskId=id)
        assert (await ended(there, id))["status"] == "cancelled"
        await until(lambda: bool(one.stopped))
        asking = await begun(here, "ask")
        [key] = (await becomes(there, asking, "input_required"))["inputRequests"]
        answers = {key: {"action": "accept", "content": {"name": "Ada"}}}
        await there.unchecked("tasks/update", taskId=asking, inputResponses=answers)
        assert (await ended(there, asking))["result"]["content"][0]["text"] == "called Ada"


async def test_who_waits_at_another_replica_is_woken() -> None:
    async with replicas() as (one, two, here, _):
        id = await begun(here)
        runner = two.tasks.access.runner
        waiting = asyncio.ensure_future(runner.wait(id, 30, lambda record: record.ended))
        await asyncio.sleep(0.05)
        one.go.set()
        record = await asyncio.wait_for(waiting, 4)  # before it would look by itself
        assert record is not None
        assert record.status == "completed"


@pytest.mark.parametrize("tool", ["train", "ask"])
@pytest.mark.parametrize("revision", [R2025_11, R2025_06], ids=lambda one: one.date)
async def test_a_drain_is_not_held_up_by_who_waits_for_a_task_that_goes_on_without_it(
    revision: Revision, tool: str
) -> None:
    """One that runs at another replica, and one that waits for an answer: the client is told to ask again."""
    bus = MemoryBus()
    one, two = (Lab(Tasks("bus", keys=()), keys=KEYS) for _ in range(2))
    async with (
        serve(one.app, urls="http://127.0.0.1:0/mcp", bus=bus) as serving,
        serve(two.app, urls="http://127.0.0.1:0/mcp", bus=bus),
        calling(two.app, R2025_11, **ELICITS) as there,
        calling(one.app, revision, **ELICITS) as here,
    ):
        id = await begun(there, tool)
        if tool == "ask":
            await becomes(there, id, "input_required")
        waiting = asyncio.ensure_future(wait_for(here, id))
        await until(lambda: any(runner._waiting for runner in one.tasks.access.runners.values()))
        await serving.close(600)
        answer = await waiting
        if revision is R2025_11:
            assert "Draining: this server closes" in answer["error"]["message"]
            assert answer["error"]["data"]["retry_after"] == 1
        else:
            assert answer["result"]["structuredContent"]["task_id"] == id
        assert (await there.unchecked("tasks/get", taskId=id))["result"]["status"] in ("working", "input_required")
        two.go.set()
    await bus.close()


@pytest.mark.parametrize("revision", [R2025_11, R2025_06], ids=lambda one: one.date)
async def test_a_task_that_ends_within_the_drain_is_waited_for(revision: Revision) -> None:
    lab = Lab()
    async with (
        serve(lab.app, urls="http://127.0.0.1:0/mcp") as serving,
        calling(lab.app, R2025_11) as begins,
        calling(lab.app, revision) as calls,
    ):
        id = await begun(begins)
        waiting = asyncio.ensure_future(wait_for(calls, id))
        await until(lambda: any(runner._waiting for runner in lab.tasks.access.runners.values()))
        closing = asyncio.ensure_future(serving.close(600))
        await until(lambda: behind(lab.app).call_limit.draining)
        await until(lambda: any(runner._waiting for runner in lab.tasks.access.runners.values()))
        assert not waiting.done()
        lab.go.set()
        assert (await waiting)["result"]["structuredContent"] == {"rows": 1, "name": ""}
        await closing


async def wait_for(calls: Calls, id: str) -> dict[str, Any]:
    """Wait for the result of a task, as a client of this revision does."""
    if calls.revision is R2025_11:
        return await calls.unchecked("tasks/result", taskId=id)
    return await calls.unchecked("tools/call", name="task_result", arguments={"task_id": id})


class Overtaken(SqliteTasks):
    """A store in which whoever claims tasks is slow, is taken for lost, and has them no more when it hears of them."""

    claims = 0

    async def claim(self, runner: str, server: str, limit: int) -> list[ClaimedTask]:
        self.claims += 1
        claimed = await super().claim(runner, server, limit)
        if claimed:
            await self.leave(runner)
            assert len(await super().claim("another", server, limit)) == len(claimed)
        return claimed


async def test_a_task_that_another_has_claimed_meanwhile_is_not_begun(tmp_path: Path) -> None:
    store = Overtaken(str(tmp_path / "tasks.db"))
    params = Raw(b'{"name":"train","arguments":{"rows":1}}')
    made = record("t1", runner="lost", method="tools/call", params=params, now=await store.now(), keep=600.0)
    await store.create(structs.replace(made, server="lab", name="train", idempotent=True))
    await store.beat("another")
    lab = Lab(Tasks(store), idempotent=True)
    async with serve(lab.app, urls="http://127.0.0.1:0/mcp"):
        await until(lambda: store.claims >= 2)  # with the next beat
        found = await store.read("t1")
        assert found is not None
        assert (found.runner, found.runs, lab.began) == ("another", 1, [])
    await store.close()
