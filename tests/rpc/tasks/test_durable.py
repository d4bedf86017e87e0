"""Tasks outlive processes: restarts, kills, deploys, several processes on one file, and on a bus."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from dragoman import InternalError, Service, TaskPolicy, connect, serve
from dragoman.bus.hub import open_hub
from dragoman.tasks import TaskSettings
from tests.engines.wires import until
from tests.rpc.tasks.lab import QUICK, Lab, Report, becomes, reports

ROOT = Path(__file__).parents[3]


class Process:
    """One server of `program`."""

    def __init__(self, process: asyncio.subprocess.Process, url: str) -> None:
        self.process, self.url = process, url

    async def kill(self) -> None:
        self.process.kill()
        await self.process.wait()

    async def stop(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert await self.process.wait() == 0


class Folder:
    """Where the processes of one test keep their tasks, and note what they run."""

    def __init__(self, path: Path) -> None:
        self.log = path / "log"
        self.store = f"sqlite:{path / 'lab.db'}"

    def go(self) -> None:
        """Let what waits end."""
        Path(f"{self.log}.go").touch()

    def ran(self, method: str) -> int:
        """How often a method was begun."""
        return self.log.read_text().count(method) if self.log.exists() else 0

    @asynccontextmanager
    async def process(self, *more: str) -> AsyncIterator[Process]:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.rpc.tasks.program", self.store, str(self.log), *more),
            cwd=ROOT,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        assert process.stdout is not None
        try:
            yield Process(process, (await process.stdout.readline()).decode().strip())
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


async def test_a_result_is_there_after_a_restart(tmp_path: Path) -> None:
    path = f"sqlite:{tmp_path / 'lab.db'}"
    first = Lab(tasks=path)
    first.go.set()
    async with serve(first.api, urls="tcp://127.0.0.1:0") as serving, connect(serving.urls[0]) as peer:
        id = (await peer.start("train", [3])).id
        assert await peer.task(id, result=Report).result(timeout=20) == Report(3)
    second, url = Lab(), "tcp://127.0.0.1:0"
    limits = QUICK.but(calls=10)  # under other limits the service is served as a copy
    async with serve(second.api, urls=url, tasks=path, limits=limits) as serving, connect(serving.urls[0]) as peer:
        assert await peer.task(id, result=Report).result(timeout=20) == Report(3)
    assert second.began == []


async def test_what_is_in_the_file_is_encrypted(tmp_path: Path) -> None:
    file = tmp_path / "lab.db"
    api = Service("lab", tasks=TaskSettings(store=f"sqlite:{file}", keys=["a key of sixteen bytes or more"]))

    @api.method(task=True)
    async def echo(text: str) -> str:
        return text

    async with serve(api, urls="tcp://127.0.0.1:0") as serving, connect(serving.urls[0]) as peer:
        task = await peer.start("echo", ["a word that is seen"])
        assert await task.result(timeout=20) == "a word that is seen"
        found = b"".join(one.read_bytes() for one in sorted(tmp_path.iterdir()))  # noqa: ASYNC240
        assert task.id.encode() in found
        assert b"a word" not in found
    assert "sixteen" not in repr(TaskSettings(keys=("a key of sixteen bytes or more",)))


@pytest.mark.parametrize("idempotent", [True, False])
async def test_a_deploy(tmp_path: Path, idempotent: bool) -> None:
    """A server that ends hands over what may be run again, and says of the rest that it was stopped."""
    path = f"sqlite:{tmp_path / 'lab.db'}"
    first, second = (Lab(TaskPolicy(idempotent=idempotent), tasks=path) for _ in range(2))
    async with serve(first.api, urls="tcp://127.0.0.1:0") as serving, connect(serving.urls[0]) as peer:
        task = await peer.start("train", [3])
        await reports(task)
    assert first.stopped == ["train"]
    async with serve(second.api, urls="tcp://127.0.0.1:0") as serving, connect(serving.urls[0]) as peer:
        task = peer.task(task.id)
        if idempotent:
            await until(lambda: second.began == ["train"])
            assert (await task.status()).message == "it was handed over, and begun again"
            second.go.set()
            assert await task.result(timeout=20) == {"rows": 3}
        else:
            with pytest.raises(InternalError, match="stopped before it was done"):
                await task.result(timeout=20)
            assert second.began == []


async def test_a_task_that_waits_for_its_turn_is_run_elsewhere(tmp_path: Path) -> None:
    """Its function was not begun, so it may be, idempotent or not; that of the one before it was."""
    store = f"sqlite:{tmp_path / 'lab.db'}"

    def served() -> tuple[Service, list[int], asyncio.Event]:
        api, began, go = Service("lab", tasks=store, limits=QUICK), list[int](), asyncio.Event()

        @api.method(task=True, concurrency=1)
        async def one(number: int) -> int:
            began.append(number)
            await go.wait()
            return number

        return api, began, go

    api, began, _ = served()
    async with serve(api, urls="tcp://127.0.0.1:0") as serving, connect(serving.urls[0]) as peer:
        first, second = await peer.start("one", [1]), await peer.start("one", [2])
        await until(lambda: began == [1])
    api, began, go = served()
    go.set()
    async with serve(api, urls="tcp://127.0.0.1:0") as serving, connect(serving.urls[0]) as peer:
        assert await peer.task(second.id).result(timeout=20) == 2
        with pytest.raises(InternalError, match="stopped before it was done"):
            await peer.task(first.id).result(timeout=20)
    assert began == [2]


async def test_one_that_waits_goes_to_the_next_server(folder: Folder) -> None:
    """A caller that waits for a result when its server is replaced gets the result from the next one."""
    async with folder.process() as first:
        async with connect(first.url) as peer:
            task = await peer.start("again")
            await reports(task)
            port = first.url
        await first.stop()
    async with folder.process() as second, connect(second.url) as peer:
        waiting = asyncio.ensure_future(peer.task(task.id).result(timeout=30))
        await until(lambda: folder.ran("again") == 2)
        folder.go()
        assert await waiting == "ran for None"
        assert port != second.url


async def test_a_process_that_is_killed(folder: Folder) -> None:
    async with folder.process() as first, folder.process() as second:
        async with connect(first.url) as peer:
            once, again = await peer.start("once"), await peer.start("again")
            await reports(again)
            await until(lambda: folder.ran("once") == 1)
        await first.kill()
        killed = time.monotonic()
        async with connect(second.url) as peer:
            with pytest.raises(InternalError, match="the process that ran the task was lost"):
                await peer.task(once.id).result(timeout=20)
            await until(lambda: folder.ran("again") == 2)
            noticed = time.monotonic() - killed
            status = await becomes(peer.task(again.id), "working")
            assert status.message == "its process was lost, and it was begun again"
            folder.go()
            assert await peer.task(again.id).result(timeout=20) == "ran for None"
        print(f"noticed after {noticed:.1f} s")
    assert folder.ran("once") == 1


async def test_a_task_that_ends_its_process_each_time_does_not_go_on_for_ever(folder: Folder) -> None:
    async with folder.process() as first, connect(first.url) as peer:
        id = (await peer.start("kill")).id
        folder.go()
        await first.process.wait()
    for _ in range(2):
        async with folder.process() as other:
            await other.process.wait()
    async with folder.process() as last, connect(last.url) as peer:
        with pytest.raises(InternalError, match="was lost"):
            await peer.task(id).result(timeout=20)
    assert folder.ran("kill") == 3


@pytest.mark.parametrize("store", ["sqlite", "bus"])
@pytest.mark.parametrize("bus", ["memory:lab-tasks", "unix"])
async def test_two_replicas_on_a_bus(tmp_path: Path, bus: str, store: str) -> None:
    """Each replica answers for the tasks of the other, is told of their changes, and cancels them there."""
    hub = await open_hub(str(tmp_path / "bus.sock")) if bus == "unix" else None
    if hub is not None:
        bus = hub.url
    path = f"sqlite:{tmp_path / 'lab.db'}" if store == "sqlite" else "bus"
    first, second = Lab(tasks=path), Lab(tasks=path)
    try:
        async with (
            serve(first.api, urls="tcp://127.0.0.1:0", bus=bus) as one,
            serve(second.api, urls="tcp://127.0.0.1:0", bus=bus) as two,
            connect(one.urls[0]) as here,
            connect(two.urls[0]) as there,
        ):
            done, stopped = await here.start("train", [3]), await here.start("train", [4])
            waiting = asyncio.ensure_future(there.task(done.id).result(timeout=20))
            assert (await reports(there.task(stopped.id))).progress == {"done": 1, "of": 4}
            assert (await there.task(stopped.id).cancel()).status == "cancelled"
            assert first.stopped == ["train"]
            first.go.set()
            assert await waiting == {"rows": 3}
            assert (first.began, second.began) == (["train"] * 2, [])
    finally:
        if hub is not None:
            await hub.close()


async def test_workers_of_a_broker_are_replicas(tmp_path: Path) -> None:
    path = f"sqlite:{tmp_path / 'lab.db'}"
    first, second = Lab(tasks=path), Lab(tasks=path)
    url = "memory+broker:replicas"
    async with serve(first.api, urls=url), serve(second.api, urls=url), connect(url) as peer:
        tasks = [await peer.start("train", [rows]) for rows in range(6)]
        for lab in (first, second):
            lab.go.set()
        assert [(await one.result(timeout=20))["rows"] for one in tasks] == list(range(6))
    assert len(first.began) + len(second.began) == 6


async def test_a_server_that_ends_does_not_wait_for_those_that_wait(tmp_path: Path) -> None:
    """An answer that waits for a task is refused as soon as the server drains, which would be held up else."""
    store = f"sqlite:{tmp_path / 'lab.db'}"
    lab = Lab(TaskPolicy(idempotent=True), tasks=store, limits=Service("x").limits)
    async with serve(lab.api, urls="http://127.0.0.1:0") as serving, connect(serving.urls[0]) as peer:
        task = await peer.start("train", [3])
        await reports(task)
        waiting = asyncio.ensure_future(peer.call("tasks.result", {"id": task.id, "wait": 20}))
        await until(
            lambda: lab.api._tasks is not None and any(one.runner._waiting for one in lab.api._tasks._here.values())
        )
        closing = asyncio.ensure_future(serving.close(5))
        await asyncio.wait([waiting, closing], return_when=asyncio.FIRST_COMPLETED)
        assert not closing.done()
        assert getattr(waiting.exception(), "code", 0) == -32001
        lab.go.set()
        await closing
