"""A task on every wire: started, looked at, followed, cancelled, and found again on another connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from dragoman import InvalidParams, Peer, RpcError, connect, serve
from tests.rpc.tasks.lab import Lab, OutOfPaper, Report, becomes, reports

WIRES = {
    "memory": "memory:tasks",
    "tcp": "tcp://127.0.0.1:0",
    "http": "http://127.0.0.1:0",
    "ws": "ws://127.0.0.1:0",
    "unix": "unix:{folder}/lab.sock",
    "udp": "udp://127.0.0.1:0",
    "broker": "memory+broker:tasks",
}
Connect = Callable[[], Peer]


@asynccontextmanager
async def at(lab: Lab, url: str) -> AsyncIterator[str]:
    async with serve(lab.api, urls=url, amplify=url.startswith("udp")) as serving:
        yield serving.urls[0]


@pytest.fixture(params=WIRES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return WIRES[request.param].format(folder=tmp_path)


async def test_a_task_goes_on_beyond_its_connection(url: str) -> None:
    lab = Lab()
    async with at(lab, url) as where:
        async with connect(where) as peer:
            task = await peer.start("train", {"rows": 3}, result=Report)
            status = await reports(task)
            assert (status.id, status.method, status.status) == (task.id, "train", "working")
            assert status.progress == {"done": 1, "of": 3}
            assert status.until is not None
            assert status.until >= status.created + 3600
        async with connect(where) as peer:
            again = peer.task(task.id, result=Report)
            assert (await again.status()).status == "working"
            waiting = asyncio.ensure_future(again.result(timeout=20))
            lab.go.set()
            assert await waiting == Report(3)
            assert await again.result() == Report(3)
            assert [one.status async for one in again.follow()] == ["completed"]
    assert lab.began == ["train"]


async def test_a_task_is_cancelled(url: str) -> None:
    lab = Lab()
    async with at(lab, url) as where, connect(where) as peer:
        task = await peer.start("train", [3])
        await reports(task)
        assert (await task.cancel()).status == "cancelled"
        assert lab.stopped == ["train"]
        with pytest.raises(RpcError) as caught:
            await task.result()
        assert caught.value.code == -32800
        assert (await task.cancel()).status == "cancelled"


async def test_a_task_of_a_thread(url: str) -> None:
    lab = Lab()
    async with at(lab, url) as where, connect(where) as peer:
        task, other = await peer.start("crunch", [3]), await peer.start("crunch", [4])
        assert (await reports(task)).progress == 1
        assert (await other.cancel()).status == "cancelled"
        lab.may_end.set()
        assert await task.result(timeout=20) == 3


async def test_a_task_that_fails(url: str) -> None:
    lab = Lab()
    async with at(lab, url) as where, connect(where, errors=[OutOfPaper]) as peer:
        task = await peer.start("print_it")
        with pytest.raises(OutOfPaper) as caught:
            await task.result(timeout=20)
        assert caught.value.data == Report(3)
        status = await becomes(task, "failed")
        assert status.message == "Out of paper"


async def test_a_call_of_such_a_method_is_an_ordinary_call(url: str) -> None:
    lab = Lab()
    lab.go.set()
    async with at(lab, url) as where, connect(where) as peer:
        assert await peer.call("train", {"rows": 3}, result=Report) == Report(3)
        with pytest.raises(InvalidParams, match="add cannot be started as a task, only called"):
            await peer.start("add", [1, 2])
