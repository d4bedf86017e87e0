"""The caller's end of a task: what it survives, how it waits, and far ends that answer wrongly."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from dragoman import BadAnswer, ChannelError, InternalError, RpcError, Service, TaskPolicy, TaskStatus, connect, serve
from dragoman.jsonrpc.errors import CallRefused, Refusal
from dragoman.rpc import task_handle
from dragoman.rpc.task_handle import HELD
from dragoman.store.contract import StoreLost
from dragoman.sync import connect as connect_blocking
from dragoman.tasks import SqliteTasks
from dragoman.tasks.record import TaskRecord
from tests.engines.wires import until
from tests.ports import free_port
from tests.rpc.tasks.lab import Lab, Report, reports


@pytest.mark.parametrize("scheme", ["tcp", "http"])
async def test_a_caller_waits_while_the_server_is_restarted(tmp_path: Path, scheme: str) -> None:
    """On a channel it connects again; over HTTP nobody listens for a while."""
    url, store = f"{scheme}://127.0.0.1:{free_port()}", f"sqlite:{tmp_path / 'lab.db'}"
    first, second = (Lab(TaskPolicy(idempotent=True), tasks=store) for _ in range(2))
    async with serve(first.api, urls=url) as serving, connect(url, reconnect=scheme == "tcp") as peer:
        task = await peer.start("train", [3], result=Report)
        await reports(task)
        waiting = asyncio.ensure_future(task.result(timeout=60))
        seen = [one async for one in _taken(task.follow(), 1)]
        await serving.close()
        async with serve(second.api, urls=url):
            await until(lambda: second.began == ["train"])
            second.go.set()
            assert await waiting == Report(3)
            assert seen[0].status == "working"


async def _taken(source: AsyncIterator[TaskStatus], count: int) -> AsyncIterator[TaskStatus]:
    async for one in source:
        yield one
        count -= 1
        if not count:
            return


async def test_a_channel_that_is_lost_for_good_ends_the_waiting() -> None:
    lab = Lab()
    async with serve(lab.api, urls="tcp://127.0.0.1:0") as serving, connect(serving.urls[0]) as peer:
        task = await peer.start("train", [3])
        waiting = asyncio.ensure_future(task.result())
        await until(lambda: bool(task_handle._held.get(peer)))
        await peer.close()
        with pytest.raises(ChannelError):
            await waiting


async def test_many_that_wait_over_http_leave_room_for_other_calls() -> None:
    lab = Lab(TaskPolicy(poll=0.05))
    async with serve(lab.api, urls="http://127.0.0.1:0") as serving, connect(serving.urls[0]) as peer:
        task = await peer.start("train", [3])
        waiting = [asyncio.ensure_future(task.result(timeout=30)) for _ in range(40)]
        await until(lambda: task_handle._held.get(peer) == HELD)
        assert (await task.status()).status == "working"
        lab.go.set()
        assert await asyncio.gather(*waiting) == [{"rows": 3}] * 40
    assert lab.began == ["train"]


STATUS = {"id": "x", "method": "m", "status": "completed", "created": 1.0, "updated": 2.0}
WRONG: dict[str, tuple[Any, type[Exception], str]] = {
    "no status": (3, BadAnswer, "tasks.result"),
    "a status that is none": (STATUS | {"status": "asleep"}, BadAnswer, "tasks.result"),
    "nothing came of it": (STATUS, BadAnswer, "without a result and without an error"),
    "an error that is none": (STATUS | {"error": 3}, BadAnswer, "no error object"),
    "another result": (STATUS | {"result": "x"}, BadAnswer, "m: "),
    "an error with data": (STATUS | {"error": {"code": 5, "message": "no", "data": [1]}}, RpcError, "no"),
    "an error that our own refusals have": (STATUS | {"error": {"code": -32000, "message": "no"}}, RpcError, "no"),
}


@pytest.mark.parametrize("case", WRONG)
async def test_answers_that_are_wrong(case: str) -> None:
    answer, error, words = WRONG[case]
    far = Service("far")
    far.method("tasks.result")(lambda id, wait=0: answer)
    async with serve(far, urls="memory:far"), connect("memory:far") as peer:
        with pytest.raises(error, match=words):
            await peer.task("x", result=Report).result(timeout=20)


async def test_a_far_end_that_does_not_wait_is_not_asked_all_the_time() -> None:
    far, asked = Service("far"), []

    @far.method("tasks.get")
    async def get(id: str, after: float = 0, wait: float = 0) -> Any:
        asked.append(wait)
        return STATUS | {"status": "working" if len(asked) < 4 else "completed", "poll": 0.0}

    async with serve(far, urls="memory:far"), connect("memory:far") as peer:
        began = asyncio.get_running_loop().time()
        statuses = [one.status async for one in peer.task("x").follow()]
    assert statuses == ["working", "completed"]
    assert len(asked) == 4
    assert asyncio.get_running_loop().time() - began >= 2 * task_handle.LEAST_POLL


async def test_what_does_not_last_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_handle, "PAUSES", (0.001, 4.0))
    far, refusals = Service("far"), ["busy", "draining", "busy"]

    @far.method("tasks.result")
    async def result(id: str, wait: float) -> Any:
        if refusals:
            raise CallRefused(Refusal(refusals.pop(), "later"))
        return STATUS | {"result": 3}

    async with serve(far, urls="memory:far"), connect("memory:far") as peer:
        assert await peer.task("x").result() == 3


async def test_while_the_store_is_away() -> None:
    class Frail(SqliteTasks):
        away = False

        async def read(self, id: str) -> TaskRecord | None:
            self.check()
            return await super().read(id)

        async def create(self, record: TaskRecord) -> None:
            self.check()
            await super().create(record)

        def check(self) -> None:
            if self.away:
                raise StoreLost("gone")

    store = Frail(":memory:")
    lab = Lab(tasks=store)
    async with serve(lab.api, urls="memory:frail"), connect("memory:frail") as peer:
        task = await peer.start("train", [3])
        store.away = True
        for call in (task.status, task.cancel, lambda: peer.start("train", [3])):
            with pytest.raises(RpcError) as caught:
                await call()
            assert caught.value.code == -32000
        assert lab.began == ["train"]
        waiting = asyncio.ensure_future(task.result(timeout=20))
        store.away = False
        lab.go.set()
        assert await waiting == {"rows": 3}


async def test_a_task_of_which_nobody_knows_whether_it_is_kept_ends() -> None:
    made: list[str] = []

    class Forgetful(SqliteTasks):
        async def create(self, record: TaskRecord) -> None:
            await super().create(record)
            made.append(record.id)
            raise StoreLost("it was kept, and the answer was lost")

    lab = Lab(tasks=Forgetful(":memory:"))
    async with serve(lab.api, urls="memory:forgetful"), connect("memory:forgetful") as peer:
        with pytest.raises(RpcError) as caught:
            await peer.start("train", [3])
        assert caught.value.code == -32000
        assert [one.status async for one in peer.task(made[0]).follow()][-1] == "cancelled"
        assert lab.began == []


async def test_the_blocking_api() -> None:
    lab = Lab()

    def use(url: str) -> list[Any]:
        with connect_blocking(url) as peer:
            task = peer.start("count", [3], result=list[int])
            assert [one.status for one in task.follow()][-1] == "completed"
            other = peer.task(task.id, result=list[int])
            assert task.id in repr(other.id)
            stopped = peer.start("train", [3], notify=True)
            assert stopped.status().status == "working"
            assert stopped.cancel().status == "cancelled"
            failing = peer.start("break_down")
            with pytest.raises(InternalError):
                failing.result(timeout=20)
            return other.result(timeout=20)

    async with serve(lab.api, urls="tcp://127.0.0.1:0") as serving:
        assert await asyncio.to_thread(use, serving.urls[0]) == [0, 1, 2]
