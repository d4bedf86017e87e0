"""Our client at our server, in both generations: it waits, follows, answers, cancels, and finds a task again."""

from __future__ import annotations

import asyncio
import gc
import sys
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from dragoman import serve
from dragoman.channel import ChannelError
from dragoman.jsonrpc.errors import CallTimeout, InvalidParams, LocalError, RpcError
from dragoman.mcp import Client, Server, TaskHandle, Tasks, TasksClient, TaskStatus
from dragoman.mcp.client.blocking import connect
from dragoman.mcp.http.readers import HttpReader
from dragoman.rpc.tracing import Event
from tests.ports import free_port

from .lab import Lab, Report

ERAS = ("2025-11-25", "2026-07-28")
HTTP = "http://127.0.0.1:0/mcp"
LAB = [sys.executable, "-m", "tests.mcp.extensions.tasks.lab"]
eras = pytest.mark.parametrize("era", ERAS)
wires = pytest.mark.parametrize("wire", ["memory", HTTP, "stdio"])


def named(question: Any) -> dict[str, str]:
    """The answer to the lab's question."""
    return {"name": "Ada"}


@asynccontextmanager
async def client_of(lab: Lab | None, wire: str, era: str, **options: Any) -> AsyncIterator[tuple[Client, TasksClient]]:
    """A client of a lab, and its tasks."""
    tasks = TasksClient()
    options = {"on_elicit": named, **options, "revision": era, "extensions": [tasks]}
    if wire == "stdio":
        async with Client(LAB, cwd=str(Path(__file__).parents[4]), env_inherit=True, **options) as client:
            yield client, tasks
        return
    assert lab is not None
    if wire == "memory":
        async with Client(lab.app, **options) as client:
            yield client, tasks
        return
    async with serve(lab.app, urls=[wire]) as serving, Client(serving.urls[0], **options) as client:
        yield client, tasks
        lab.go.set()  # or the server waits for its tools


async def until(condition: Any) -> None:
    """Wait until it is true."""
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110  (what a server does is not told here)
            await asyncio.sleep(0.01)


# -- waiting --------------------------------------------------------------------------------------


@eras
@wires
async def test_a_call_waits_for_the_end_of_its_task(wire: str, era: str) -> None:
    lab = Lab()
    lab.go.set()
    async with client_of(lab, wire, era) as (client, _):
        assert await client.call_tool("train", {"rows": 3}, result=Report) == Report(3)
        assert (await client.call_tool("ask")).text == "called Ada"
        assert (await client.call_tool("break_down")).is_error is True
        with pytest.raises(RpcError) as raised:
            await client.call_tool("refuse")
        assert (raised.value.code, raised.value.message, raised.value.data) == (-31000, "out of order", {"since": 2})
        assert (await client.call_tool("add", {"a": 1, "b": 2}, result=int)) == 3


async def use_up(era: str) -> weakref.ref[Lab]:
    """Let tasks of a lab fail, and be cancelled; return the lab, which is used no more."""
    lab = Lab()
    async with client_of(lab, HTTP, era) as (client, tasks):
        with pytest.raises(RpcError):
            await client.call_tool("refuse")
        await (await tasks.start("train", {"rows": 3})).cancel()
    return weakref.ref(lab)


@eras
async def test_a_call_that_failed_leaves_nothing_behind(era: str) -> None:
    """What it raised keeps its frames, and is freed with them."""
    before = {id(one) for one in gc.get_objects() if type(one) is HttpReader}
    lab = await use_up(era)
    for _ in range(3):  # what hangs on a Struct that the collector does not follow is free one turn later
        await asyncio.sleep(0)
        gc.collect()
    assert [one for one in gc.get_objects() if type(one) is HttpReader and id(one) not in before] == []
    assert lab() is None


@eras
async def test_a_tool_that_is_only_called_as_a_task(era: str) -> None:
    lab = Lab(required=True)
    lab.go.set()
    async with client_of(lab, HTTP, era) as (client, _):
        assert await client.call_tool("train", {"rows": 3}, result=Report) == Report(3)


@eras
@pytest.mark.parametrize("wire", ["memory", HTTP])
async def test_progress_reaches_the_caller(wire: str, era: str) -> None:
    lab, heard = Lab(), []

    def progress(said: Any) -> None:
        heard.append((said.progress, said.total, said.message))
        lab.go.set()

    async with client_of(lab, wire, era) as (client, tasks):
        await client.call_tool("train", {"rows": 1}, on_progress=progress)
        assert heard == [(1, 4, "loading")]
        lab.go.clear()
        heard.clear()
        handle = await tasks.start("train", {"rows": 1})
        await handle.result(on_progress=progress)
        assert heard == [(1, 4, "loading")]


@eras
async def test_the_functions_of_a_call_answer_its_task(era: str) -> None:
    async with client_of(Lab(), HTTP, era) as (client, tasks):
        call = client.call_tool("ask", on_elicit=lambda question: {"name": "Eve"})
        assert (await call).text == "called Eve"
        handle = await tasks.start("ask", on_elicit=lambda question: {"name": "Bob"})
        assert (await handle.result()).text == "called Bob"


@eras
async def test_what_is_asked_before_a_call_is_a_task_is_asked_on_its_own_stream(era: str) -> None:
    options: dict[str, Any] = {"revision": era, "on_elicit": named}
    async with serve(Lab().app, urls=[HTTP]) as serving, Client(serving.urls[0], **options) as client:
        found = await client.call_tool("ask", on_elicit=lambda question: {"name": "Eve"})
    assert found.text == "called Eve"


@eras
@pytest.mark.parametrize("wire", ["memory", HTTP])
async def test_waiting_that_takes_too_long_cancels_the_task(wire: str, era: str) -> None:
    lab = Lab()
    async with client_of(lab, wire, era) as (client, _):
        with pytest.raises(CallTimeout, match=r"no result within 1\.0 s"):
            await client.call_tool("train", {"rows": 1}, total=1.0)
        await until(lambda: lab.stopped == ["train"])


@eras
@pytest.mark.parametrize("wire", ["memory", HTTP])
async def test_waiting_that_is_cancelled_cancels_the_task(wire: str, era: str) -> None:
    lab, sent = Lab(), list[str]()
    async with client_of(lab, wire, era, trace=lambda event: sent.append(event.method or "")) as (client, _):
        waiting = asyncio.ensure_future(client.call_tool("train", {"rows": 1}))
        await until(lambda: any(one.startswith("tasks/") for one in sent))  # before, it knows of no task
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await until(lambda: lab.stopped == ["train"])


async def test_a_task_that_somebody_else_cancels_is_an_error() -> None:
    lab = Lab()
    async with client_of(lab, "memory", "2026-07-28") as (_, tasks):
        handle = await tasks.start("train", {"rows": 1})
        waiting = asyncio.ensure_future(handle.result())
        await tasks.task(handle.id).cancel()
        with pytest.raises(RpcError, match="Request cancelled"):
            await waiting


# -- handles --------------------------------------------------------------------------------------


@eras
@wires
async def test_a_handle_is_there_at_once(wire: str, era: str) -> None:
    lab = Lab()
    async with client_of(lab, wire, era) as (_, tasks):
        handle = await tasks.start("train", {"rows": 3})
        assert len(handle.id) >= 22
        if wire != "stdio":  # whose lab does not wait
            status = await handle.status()
            assert (status.id, status.status, status.ended) == (handle.id, "working", False)
            assert (status.ttl, status.poll) == (3600, 0.05)
        lab.go.set()
        assert await handle.result(result=Report) == Report(3)
        assert await tasks.task(handle.id).result(result=Report) == Report(3)
        assert (await handle.status()).status == "completed"


@eras
async def test_a_handle_that_is_followed(era: str) -> None:
    lab, seen = Lab(), list[TaskStatus]()
    async with client_of(lab, "memory", era) as (_, tasks):
        handle = await tasks.start("train", {"rows": 3})
        async for status in handle.follow():
            seen.append(status)
            if status.message == "loading":
                lab.go.set()
        assert [one.status for one in seen[:1] + seen[-1:]] == ["working", "completed"]
        assert any((one.progress, one.total) == (1, 4) for one in seen)
        assert len(seen) == len({(one.status, one.message, one.progress, one.updated) for one in seen})


async def test_a_handle_answers_by_hand() -> None:
    async with client_of(Lab(), "memory", "2026-07-28") as (_, tasks):
        handle = await tasks.start("ask")
        async for status in handle.follow():
            if status.status == "input_required":
                [(key, question)] = status.questions.items()
                assert question["params"]["message"] == "How is it called?"
                await handle.answer({"none": {"action": "cancel"}})
                await handle.answer({key: {"action": "accept", "content": {"name": "Eve"}}})
        assert (await handle.result()).text == "called Eve"


@eras
async def test_a_cancelled_handle(era: str) -> None:
    lab = Lab()
    async with client_of(lab, HTTP, era) as (_, tasks):
        handle = await tasks.start("train", {"rows": 1})
        waiting = asyncio.ensure_future(handle.result())
        await until(lambda: lab.began)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        with pytest.raises(CallTimeout, match=r"had not ended after 0\.1 s"):
            await handle.result(total=0.1)
        assert (await handle.status()).status == "working"
        await handle.cancel()
        assert [one.status async for one in handle.follow()][-1] == "cancelled"
        await handle.cancel()
        assert lab.stopped == ["train"]


@eras
async def test_a_tool_that_answers_at_once_has_a_handle_too(era: str) -> None:
    async with client_of(Lab(), HTTP, era) as (_, tasks):
        handle = await tasks.start("add", {"a": 1, "b": 2})
        assert handle.id == ""
        assert (await handle.status()).status == "completed"
        assert [one.status async for one in handle.follow()] == ["completed"]
        assert await handle.result(result=int) == 3
        assert (await handle.result()).text == "3"
        await handle.cancel()
        await handle.answer({})


async def test_the_list_of_2025() -> None:
    lab = Lab()
    async with client_of(lab, HTTP, "2025-11-25") as (_, tasks):
        handles = [await tasks.start("train", {"rows": row}) for row in range(3)]
        listed = await tasks.list()
        assert [one.id for one in listed] == [one.id for one in reversed(handles)]
        with pytest.raises(LocalError, match="a task asks the client that waits for its result"):
            await handles[0].answer({})


async def test_more_pages_than_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dragoman.mcp.extensions.tasks.server.LISTED", 2)
    async with client_of(Lab(), "memory", "2025-11-25") as (_, tasks):
        handles = [await tasks.start("train", {"rows": row}) for row in range(5)]
        assert {one.id for one in await tasks.list()} == {one.id for one in handles}


@eras
async def test_a_function_that_answers_may_call_another_tool(era: str) -> None:
    lab = Lab(begin_after=0.2)
    lab.go.set()
    clients: list[Client] = []

    async def answer(question: Any) -> dict[str, str]:
        return {"name": (await clients[0].call_tool("train", {"rows": 3})).text}

    async with client_of(lab, HTTP, era, on_elicit=answer) as (client, tasks):
        clients.append(client)
        handle = await tasks.start("ask")
        assert (await handle.result()).text == 'called {"rows":3,"name":""}'


# -- what may not be ------------------------------------------------------------------------------


async def test_wrong_uses() -> None:
    tasks = TasksClient()
    with pytest.raises(LocalError, match=r"TasksClient belongs to no client: give it to one"):
        await tasks.start("train")
    with pytest.raises(LocalError, match="ttl"):
        TasksClient(ttl=0)
    async with Client(Lab().app, extensions=[tasks]) as client:
        assert client.extension(TasksClient) is tasks
        with pytest.raises(LocalError, match=r"has no tasks/list: keep the ids"):
            await tasks.list()
        with pytest.raises(LocalError, match="the result comes later"):
            await tasks.start("train", result=int)  # type: ignore[call-arg]
        for id in ("", "x" * 1001, 3):
            with pytest.raises(LocalError, match="the id of a task is a text"):
                tasks.task(id)  # type: ignore[arg-type]
        with pytest.raises(InvalidParams, match="Task not found"):
            await tasks.task("nobody").status()
        with pytest.raises(InvalidParams, match="Task not found"):
            await tasks.task("nobody").result()
    with pytest.raises(LocalError, match="belongs to another client"):
        Client(Lab().app, extensions=[tasks])
    async with Client(Server("bare")) as client:
        with pytest.raises(LocalError, match=r"has no TasksClient: Client\(..., extensions=\[TasksClient"):
            client.extension(TasksClient)
    tasks = TasksClient()
    async with Client(Server("bare"), revision="2025-11-25", extensions=[tasks]):
        with pytest.raises(LocalError, match=r"does not declare tasks\.list"):
            await tasks.list()
        with pytest.raises(LocalError, match=r"does not declare tasks\.cancel"):
            await tasks.task("a").cancel()


# -- what is pushed -------------------------------------------------------------------------------


async def test_pushed_states_need_no_looks() -> None:
    lab, sent = Lab(poll=3600), list[str]()

    def trace(event: Event) -> None:
        if event.direction == "out" and event.kind == "started" and event.method is not None:
            sent.append(event.method)

    async with client_of(lab, HTTP, "2026-07-28", trace=trace) as (client, _):
        waiting = asyncio.ensure_future(client.call_tool("train", {"rows": 3}, result=Report))
        await until(lambda: sent.count("tasks/get") == 1)
        lab.go.set()
        assert await waiting == Report(3)
        assert (await client.call_tool("ask")).text == "called Ada"
    one_task = ["subscriptions/listen", "tasks/get"]
    assert [one for one in sent if one not in ("server/discover", "tools/list")] == [
        "tools/call", *one_task, "tools/call", *one_task, "tasks/update",
    ]  # fmt: skip


# -- a restart ------------------------------------------------------------------------------------


@eras
async def test_a_call_waits_across_a_restart_of_the_server(tmp_path: Path, era: str) -> None:
    url, store = f"http://127.0.0.1:{free_port()}/mcp", f"sqlite:{tmp_path}/tasks.db"
    before, after = (Lab(Tasks(store), idempotent=True) for _ in range(2))
    tasks = TasksClient()
    async with serve(before.app, urls=[url]) as serving, Client(url, revision=era, extensions=[tasks]) as client:
        waiting = asyncio.ensure_future(client.call_tool("train", {"rows": 3}, result=Report))
        await until(lambda: before.began)
        await serving.close(drain=0.1)
        async with serve(after.app, urls=[url]):
            after.go.set()
            assert await waiting == Report(3)
            assert after.began == ["train"]


@eras
async def test_a_task_is_found_again_after_a_restart_of_both(tmp_path: Path, era: str) -> None:
    store = f"sqlite:{tmp_path}/tasks.db"
    lab = Lab(Tasks(store))
    lab.go.set()
    async with client_of(lab, HTTP, era) as (_, tasks):
        handle = await tasks.start("train", {"rows": 3})
        await handle.result()
        id = handle.id
    async with client_of(Lab(Tasks(store)), HTTP, era) as (_, tasks):
        assert await tasks.task(id).result(result=Report) == Report(3)
        assert (await tasks.task(id).status()).status == "completed"


async def test_a_server_that_is_lost_for_good_ends_the_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dragoman.mcp.extensions.tasks.following.LOST", 0.1)
    lab = Lab()
    async with serve(lab.app, urls=[HTTP]) as serving, Client(serving.urls[0], extensions=[TasksClient()]) as client:
        waiting = asyncio.ensure_future(client.call_tool("train", {"rows": 3}))
        await until(lambda: lab.began)
        await serving.close(drain=0.1)
        with pytest.raises(ChannelError):
            await waiting


# -- blocking -------------------------------------------------------------------------------------


@eras
def test_the_blocking_client_has_tasks(era: str) -> None:
    tasks = TasksClient()
    options: dict[str, Any] = {"revision": era, "extensions": [tasks], "on_elicit": named, "env_inherit": True}
    with connect(LAB, cwd=str(Path(__file__).parents[4]), **options) as client:
        assert client.call_tool("train", {"rows": 3}, result=Report) == Report(3)
        handle: TaskHandle = client.run(client.extension(TasksClient).start, "ask")
        assert client.run(handle.result).text == "called Ada"
        assert [one.status for one in client.each(handle.follow())] == ["completed"]
