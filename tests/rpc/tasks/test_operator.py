"""What the operator of a service has of its tasks: a list, a way to stop them, and figures."""

from __future__ import annotations

from dragoman import connect
from dragoman.observer import HasBoards, Measured
from dragoman.rpc.servable import ServableService
from dragoman.tasks.contract import TaskBoard
from tests.console.ends import with_console
from tests.rpc.tasks.lab import Lab, becomes, reports


async def test_the_console_lists_tasks_and_stops_them() -> None:
    lab = Lab()
    async with with_console(lab.api) as ends, connect(ends.serving.urls[0]) as peer:
        assert (await ends.get("/api/tasks"))["tasks"] == []
        task = await peer.start("train", [3])
        await reports(task)
        [row] = (await ends.get("/api/tasks"))["tasks"]
        assert (row["task"], row["service"], row["method"], row["status"]) == (task.id[:6], "lab", "train", "working")
        assert (await ends.get("/api/now"))["figures"]["dragoman_tasks_running"] == 1
        await ends.post("/api/tasks/cancel", row["id"])
        await becomes(task, "cancelled")
        assert lab.stopped == ["train"]


async def test_a_service_has_tasks_to_show_while_it_serves() -> None:
    served = ServableService(Lab().api)
    assert isinstance(served, HasBoards)
    assert isinstance(served, Measured)
    assert served.boards() == ()  # it does not serve yet
    await served.start()
    [board] = served.boards()
    assert isinstance(board, TaskBoard)
    assert served.measures()["tasks_running"] == 0
    await served.drain(0)
    assert served.boards() == ()
