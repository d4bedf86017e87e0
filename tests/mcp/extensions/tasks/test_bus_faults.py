"""Two replicas on a bus that loses what is told, or whose wire is cut or goes dead: what either says of a task is
right, or an error that says that it cannot be read now; and once the bus is back, everything that was asked for comes
true."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from dragoman import serve
from dragoman.bus import Bus, open_bus
from dragoman.bus.memory import MemoryBus
from dragoman.mcp.extensions.tasks import Tasks
from dragoman.mcp.protocol.revisions import R2026_07
from tests.chaos.proxy import Proxy, proxy
from tests.engines.brokers import Engine, name
from tests.engines.wires import until
from tests.mcp.calling import Calls, calling
from tests.mcp.replicas import KEYS

from .lab import DECLARED, ELICITS, Lab, becomes, ended
from .test_access import begun

PATIENCE = 30.0
AWAY = {"code": -32603, "message": "Busy: tasks cannot be read now", "data": {"retry_after": 1}}


class Losing:
    """A bus that loses everything that is told; its store keeps what it has."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    def __getattr__(self, name: str) -> Any:
        return getattr(self._bus, name)

    async def publish(self, topic: str, message: bytes) -> None:
        """Lose it."""


@asynccontextmanager
async def replicas(one_bus: Any, other_bus: Any) -> AsyncIterator[tuple[Lab, Calls, Calls]]:
    """The lab that runs tasks, a client of it, and a client of the other replica."""
    one, two = (Lab(Tasks("bus", keys=()), keys=KEYS) for _ in range(2))
    said: dict[str, Any] = {**DECLARED, **ELICITS}
    async with (
        serve(one.app, urls="http://127.0.0.1:0/mcp", bus=one_bus),
        serve(two.app, urls="http://127.0.0.1:0/mcp", bus=other_bus),
        calling(one.app, R2026_07, **said) as here,
        calling(two.app, R2026_07, **said) as there,
    ):
        yield one, here, there


async def result(lab: Lab, here: Calls, there: Calls) -> None:
    """A result is read at the other replica."""
    id = await begun(here)
    assert (await there.unchecked("tasks/get", taskId=id))["result"]["status"] == "working"
    lab.go.set()
    assert (await ended(there, id))["result"]["structuredContent"] == {"rows": 1, "name": ""}


async def cancel(lab: Lab, here: Calls, there: Calls) -> None:
    """A task is cancelled at the other replica."""
    id = await begun(here)
    await until(lambda: bool(lab.began))
    await there.unchecked("tasks/cancel", taskId=id)
    assert (await ended(there, id))["status"] == "cancelled"
    await until(lambda: bool(lab.stopped))
    assert (await ended(here, id))["status"] == "cancelled"


async def answer(lab: Lab, here: Calls, there: Calls) -> None:
    """A question is answered at the other replica."""
    id = await begun(here, "ask")
    [key] = (await becomes(there, id, "input_required"))["inputRequests"]
    answers = {key: {"action": "accept", "content": {"name": "Ada"}}}
    await there.unchecked("tasks/update", taskId=id, inputResponses=answers)
    assert (await ended(here, id))["result"]["content"][0]["text"] == "called Ada"


async def wait_there(lab: Lab, here: Calls, there: Calls) -> None:
    """Who waits for a result at the other replica by the helper tool gets it."""
    id = await begun(here)
    waiting = asyncio.ensure_future(there.unchecked("tools/call", name="task_result", arguments={"task_id": id}))
    await until(lambda: bool(lab.began))
    lab.go.set()
    text = str(await asyncio.wait_for(waiting, PATIENCE))
    assert "'rows': 1" in text or '"rows":1' in text


USES: dict[str, Callable[[Lab, Calls, Calls], Awaitable[None]]] = {
    one.__name__: one for one in (result, cancel, answer, wait_there)
}


@pytest.mark.parametrize("use", USES)
async def test_a_bus_that_loses_what_is_told_loses_no_task(use: str) -> None:
    bus = MemoryBus(name())
    async with replicas(Losing(bus), Losing(bus)) as (lab, here, there):
        await USES[use](lab, here, there)
    await bus.close()


@asynccontextmanager
async def apart(redis: Engine, *, runner: bool) -> AsyncIterator[tuple[Proxy, Lab, Calls, Calls]]:
    """Two replicas, of which one reaches Redis through a proxy: the one that runs tasks, or the other."""
    tail = f"?prefix={name('tasks')}:"
    async with proxy(redis) as way:
        near, far = await open_bus(redis.url + tail), await open_bus(way.url + tail)
        buses = (far, near) if runner else (near, far)
        async with replicas(*buses) as (lab, here, there):
            yield way, lab, here, there
        await near.close()
        await far.close()


async def until_read(calls: Calls, id: str) -> dict[str, Any]:
    """Ask for a task until it can be read; each answer before that says that it cannot."""
    async with asyncio.timeout(PATIENCE):
        while "result" not in (found := await calls.unchecked("tasks/get", taskId=id)):
            assert found["error"] == AWAY
            await asyncio.sleep(0.02)
        return dict(found["result"])


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("runner", [True, False], ids=["who runs it", "the other"])
async def test_a_wire_that_is_cut_again_and_again_loses_no_task(redis: Engine, runner: bool, use: str) -> None:
    async with apart(redis, runner=runner) as (way, lab, here, there):
        id = await begun(here)
        way.cut()
        assert (await until_read(here if runner else there, id))["status"] == "working"
        lab.go.set()
        lab.began.clear()
        await until(lambda: not lab.tasks.access.runner.running)
        lab.go.clear()
        way.cut()
        assert (await until_read(there, id))["status"] == "completed"
        assert (await until_read(here, id))["status"] == "completed"
        await USES[use](lab, here, there)


@pytest.mark.parametrize("runner", [True, False], ids=["who runs it", "the other"])
async def test_a_wire_that_goes_dead_is_told_and_what_was_asked_for_comes_true(redis: Engine, runner: bool) -> None:
    async with apart(redis, runner=runner) as (way, lab, here, there):
        id = await begun(here)
        await until(lambda: bool(lab.began))
        way.freeze()
        cut_off = here if runner else there
        told = asyncio.ensure_future(cut_off.unchecked("tasks/cancel", taskId=id))
        await asyncio.wait([told], timeout=1.0)
        way.thaw()
        answered = await asyncio.wait_for(told, PATIENCE)
        assert "result" in answered or answered["error"] == AWAY
        if "error" in answered:
            await until_read(cut_off, id)
            await cut_off.unchecked("tasks/cancel", taskId=id)
        assert (await ended(there, id))["status"] == "cancelled"
        await until(lambda: bool(lab.stopped))
