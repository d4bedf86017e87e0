"""What clients of each generation get of a long tool, as bytes."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from dragoman.mcp import Context, Server
from dragoman.mcp.extensions.tasks import TaskPolicy
from dragoman.mcp.protocol.revisions import R2024_11, R2025_03, R2025_06, R2025_11, R2026_07, Revision
from tests.engines.wires import until
from tests.mcp.calling import Calls, calling, conforms

from .lab import DECLARED, ELICITS, FORM, Lab, asked_of, becomes, ended

every = pytest.mark.parametrize(
    "revision", [R2024_11, R2025_03, R2025_06, R2025_11, R2026_07], ids=lambda one: one.date
)


async def test_a_client_with_the_extension_gets_a_task() -> None:
    lab = Lab()
    async with calling(lab.app, R2026_07, **DECLARED) as calls:
        found = (await calls.unchecked("tools/call", name="train", arguments={"rows": 3}))["result"]
        id = found["taskId"]
        assert found["resultType"] == "task"
        assert found["status"] == "working"
        assert found["ttlMs"] == 3_600_000
        assert found["pollIntervalMs"] == 50
        assert found.keys() <= {
            "_meta",
            "resultType",
            "taskId",
            "status",
            "statusMessage",
            "createdAt",
            "lastUpdatedAt",
            "ttlMs",
            "pollIntervalMs",
        }
        working = (await calls.unchecked("tasks/get", taskId=id))["result"]
        assert working["resultType"] == "complete"
        assert working["status"] == "working"
        assert "result" not in working
        lab.go.set()
        done = await ended(calls, id)
        assert done["status"] == "completed"
        assert done["result"]["structuredContent"] == {"rows": 3, "name": ""}
        conforms(R2026_07, "CallToolResult", done["result"])


async def test_a_client_of_2025_gets_a_task_for_which_it_asks() -> None:
    lab = Lab()
    async with calling(lab.app, R2025_11) as calls:
        tools = await calls.tools()
        assert tools["train"]["execution"] == {"taskSupport": "optional"}
        assert "execution" not in tools["add"]
        made = (await calls.unchecked("tools/call", name="train", arguments={"rows": 3}, task={"ttl": 90_000}))[
            "result"
        ]
        conforms(R2025_11, "CreateTaskResult", made)
        id = made["task"]["taskId"]
        assert made["task"]["ttl"] == 90_000
        got = (await calls.unchecked("tasks/get", taskId=id))["result"]
        conforms(R2025_11, "GetTaskResult", got)
        listed = (await calls.unchecked("tasks/list"))["result"]
        conforms(R2025_11, "ListTasksResult", listed)
        assert [one["taskId"] for one in listed["tasks"]] == [id]
        waiting = asyncio.ensure_future(calls.unchecked("tasks/result", taskId=id))
        await asyncio.sleep(0)
        assert not waiting.done()
        lab.go.set()
        result = (await waiting)["result"]
        conforms(R2025_11, "CallToolResult", result)
        assert result["structuredContent"] == {"rows": 3, "name": ""}
        assert result["_meta"]["io.modelcontextprotocol/related-task"] == {"taskId": id}
        cancelled = await calls.unchecked("tasks/cancel", taskId=id)
        assert cancelled["error"]["code"] == -32602


@every
async def test_any_client_gets_the_result_that_is_there_in_time(revision: Revision) -> None:
    lab = Lab()
    lab.go.set()
    async with calling(lab.app, revision) as calls:
        result = await calls.call("train", {"rows": 3})
        assert result["content"][0]["text"] == '{"rows":3,"name":""}'


@every
async def test_any_client_gets_a_handle_and_the_result_by_it(revision: Revision) -> None:
    lab = Lab(answer_within=0)
    async with calling(lab.app, revision) as calls:
        tools = await calls.tools()
        assert {"task_status", "task_result", "task_cancel"} <= tools.keys()
        result = await calls.call("train", {"rows": 3})
        text = result["content"][0]["text"]
        assert "Not done yet: train goes on as a task" in text
        id = text.split('"task_id": "')[1].split('"')[0]
        if revision.structured:
            assert result["structuredContent"]["task_id"] == id
        assert "working" in (await calls.call("task_status", {"task_id": id}))["content"][0]["text"]
        waiting = asyncio.ensure_future(calls.call("task_result", {"task_id": id}))
        await asyncio.sleep(0)
        lab.go.set()
        assert (await waiting)["content"][0]["text"] == '{"rows":3,"name":""}'
        assert (await calls.call("task_result", {"task_id": id}))["content"][0]["text"] == '{"rows":3,"name":""}'
        assert "completed" in (await calls.call("task_cancel", {"task_id": id}))["content"][0]["text"]


async def test_lists_show_the_helper_tools_to_clients_that_need_them() -> None:
    lab = Lab()
    async with calling(lab.app, R2026_07, **DECLARED) as calls:
        assert (await calls.tools()).keys() == {"train", "ask", "break_down", "refuse", "add"}
    async with calling(lab.app, R2026_07) as calls:
        assert (await calls.tools()).keys() >= {"task_status", "task_result", "task_cancel"}


@pytest.mark.parametrize("revision", [R2025_11, R2026_07], ids=lambda one: one.date)
async def test_a_task_asks_and_goes_on_with_the_answer(revision: Revision) -> None:
    lab = Lab()
    async with calling(lab.app, revision, **(ELICITS if revision.stateful else {**DECLARED, **ELICITS})) as calls:
        if revision.stateful:
            made = (await calls.unchecked("tools/call", name="ask", arguments={}, task={}))["result"]
            id = made["task"]["taskId"]
            await becomes(calls, id, "input_required")
            waiting = asyncio.ensure_future(calls.unchecked("tasks/result", taskId=id))
            await until(lambda: bool(asked_of(calls)))
            asked = asked_of(calls)
            assert asked[0]["params"]["_meta"]["io.modelcontextprotocol/related-task"] == {"taskId": id}
            calls.channel.send(
                b'{"jsonrpc":"2.0","id":%d,"result":{"action":"accept","content":{"name":"Ada"}}}' % asked[0]["id"]
            )
            assert (await waiting)["result"]["content"][0]["text"] == "called Ada"
            return
        id = (await calls.unchecked("tools/call", name="ask", arguments={}))["result"]["taskId"]
        state = await becomes(calls, id, "input_required")
        [(key, question)] = state["inputRequests"].items()
        assert question["method"] == "elicitation/create"
        ignored = await calls.unchecked("tasks/update", taskId=id, inputResponses={"other": {"action": "cancel"}})
        assert ignored["result"]["resultType"] == "complete"
        answer = {"action": "accept", "content": {"name": "Ada"}}
        await calls.unchecked("tasks/update", taskId=id, inputResponses={key: answer})
        done = await ended(calls, id)
        assert done["result"]["content"][0]["text"] == "called Ada"
        await calls.unchecked("tasks/update", taskId=id, inputResponses={key: answer})
        assert (await ended(calls, id))["lastUpdatedAt"] == done["lastUpdatedAt"]


def questions_to(calls: Calls) -> list[dict[str, Any]]:
    """The questions that a session was asked."""
    return [one for one in calls.told if one.get("method") == "elicitation/create"]


async def until_asked(calls: Calls, count: int) -> dict[str, Any]:
    async with asyncio.timeout(20):
        while len(questions_to(calls)) < count:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    return questions_to(calls)[-1]


@pytest.mark.parametrize("waits", [False, True], ids=["looks alone", "requests the result later"])
async def test_a_client_of_2025_that_only_looks_is_asked_in_its_session(waits: bool) -> None:
    lab = Lab()
    async with calling(lab.app, R2025_11, **ELICITS) as calls:
        made = (await calls.unchecked("tools/call", name="ask", arguments={}, task={}))["result"]
        id = made["task"]["taskId"]
        await becomes(calls, id, "input_required")
        assert not questions_to(calls)
        await calls.unchecked("tasks/get", taskId=id)
        asked = await until_asked(calls, 1)
        assert asked["params"]["_meta"]["io.modelcontextprotocol/related-task"] == {"taskId": id}
        await calls.unchecked("tasks/get", taskId=id)
        waiting = asyncio.ensure_future(calls.unchecked("tasks/result", taskId=id)) if waits else None
        if waiting is not None:
            asked = await until_asked(calls, 2)
        assert len(questions_to(calls)) == 1 + waits
        answer = {"action": "accept", "content": {"name": "Ada"}}
        calls.channel.send(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": answer}).encode())
        assert (await ended(calls, id))["status"] == "completed"
        if waiting is not None:
            assert (await waiting)["result"]["content"][0]["text"] == "called Ada"
        cancelled = [one["params"]["requestId"] for one in calls.told if one["method"] == "notifications/cancelled"]
        assert cancelled == [questions_to(calls)[0]["id"]] * waits


FAILURES = {
    "break_down": ("completed", "failed"),
    "refuse": ("failed", "failed"),
}


@pytest.mark.parametrize("name", FAILURES)
async def test_a_tool_that_fails_and_a_call_that_fails(name: str) -> None:
    lab = Lab()
    now, before = FAILURES[name]
    async with calling(lab.app, R2026_07, **DECLARED) as calls:
        id = (await calls.unchecked("tools/call", name=name, arguments={}))["result"]["taskId"]
        done = await ended(calls, id)
        assert done["status"] == now
        if name == "refuse":
            assert done["error"] == {"code": -31000, "message": "out of order", "data": {"since": 2}}
        else:
            assert done["result"]["isError"] is True
    async with calling(lab.app, R2025_11) as calls:
        made = (await calls.unchecked("tools/call", name=name, arguments={}, task={}))["result"]
        id = made["task"]["taskId"]
        assert (await ended(calls, id))["status"] == before
        answer = await calls.unchecked("tasks/result", taskId=id)
        if name == "refuse":
            assert answer["error"] == {"code": -31000, "message": "out of order", "data": {"since": 2}}
        else:
            assert answer["result"]["isError"] is True


@pytest.mark.parametrize("revision", [R2025_11, R2026_07], ids=lambda one: one.date)
async def test_a_cancelled_task_stops(revision: Revision) -> None:
    lab = Lab()
    more: dict[str, Any] = {"task": {}} if revision.stateful else {}
    async with calling(lab.app, revision, **({} if revision.stateful else DECLARED)) as calls:
        made = (await calls.unchecked("tools/call", name="train", arguments={"rows": 1}, **more))["result"]
        id = made["task"]["taskId"] if revision.stateful else made["taskId"]
        answer = (await calls.unchecked("tasks/cancel", taskId=id))["result"]
        if revision.stateful:
            assert answer["status"] == "cancelled"
            conforms(revision, "CancelTaskResult", answer)
        else:
            assert answer.keys() <= {"resultType", "_meta"}
        assert (await ended(calls, id))["status"] == "cancelled"
        if not revision.stateful:
            assert (await calls.unchecked("tasks/cancel", taskId=id))["result"]["resultType"] == "complete"
        await until(lambda: len(lab.stopped) == len(lab.began))


async def test_who_may_not() -> None:
    lab = Lab()
    async with calling(lab.app, R2026_07) as calls:
        for method in ("tasks/get", "tasks/cancel"):
            error = (await calls.unchecked(method, taskId="x"))["error"]
            assert error["code"] == -32021
            assert error["data"]["requiredCapabilities"]["extensions"] == {"io.modelcontextprotocol/tasks": {}}
    async with calling(lab.app, R2026_07, **DECLARED) as calls:
        for method in ("tasks/result", "tasks/list"):
            assert (await calls.unchecked(method, taskId="x"))["error"]["code"] == -32601
        for method in ("tasks/get", "tasks/cancel", "tasks/update"):
            more: dict[str, Any] = {"inputResponses": {}} if method == "tasks/update" else {}
            error = (await calls.unchecked(method, taskId="x", **more))["error"]
            assert error["code"] == -32602
            assert "Task not found" in error["message"]
        result = (await calls.unchecked("tools/call", name="add", arguments={"a": 1, "b": 2}, task={"ttl": 1}))[
            "result"
        ]
        assert result["structuredContent"] == 3


@pytest.mark.parametrize("name", ["add", "inline", "inner_inline", "task_status"])
async def test_a_call_with_task_of_a_tool_that_is_none(name: str) -> None:
    """2025-11-25, Tool-Level Negotiation, where the server has declared tasks of tools; any other one ignores `task`,
    as all other revisions do."""
    lab, plain = Lab(), Server("plain")
    lab.app.include(inner := Server("inner"), namespace="inner")
    for app in (lab.app, plain, inner):
        app.add_tool(lambda: 7, name="inline", inline=True)
    plain.add_tool(lambda a=1, b=2: a + b, name="add")
    arguments = {"a": 1, "b": 2} if name == "add" else {}
    odds: tuple[Any, ...] = ({}, {"ttl": 1}, {"ttl": "odd"}, 3)
    for task in odds:
        async with calling(lab.app, R2025_11) as calls:
            error = (await calls.unchecked("tools/call", name=name, arguments=arguments, task=task))["error"]
            assert error["code"] == -32601
            assert "leave out the member `task`" in error["message"]
            assert "error" not in await calls.unchecked("tools/call", name="add", arguments={"a": 1, "b": 2}, task=None)
        if name != "task_status":
            for revision in (R2025_06, R2026_07):
                async with calling(lab.app, revision) as calls:
                    answer = await calls.unchecked("tools/call", name=name, arguments=arguments, task=task)
                    assert not answer["result"].get("isError")
    if name in ("add", "inline"):
        async with calling(plain, R2025_11) as calls:
            answer = await calls.unchecked("tools/call", name=name, arguments=arguments, task={})
            assert not answer["result"].get("isError")


async def test_a_tool_that_is_always_a_task() -> None:
    lab = Lab(required=True)
    async with calling(lab.app, R2026_07) as calls:
        error = (await calls.unchecked("tools/call", name="train", arguments={"rows": 1}))["error"]
        assert error["code"] == -32021
        assert "task_result" not in await calls.tools()
    async with calling(lab.app, R2025_11) as calls:
        assert (await calls.tools())["train"]["execution"] == {"taskSupport": "required"}
        error = (await calls.unchecked("tools/call", name="train", arguments={"rows": 1}))["error"]
        assert error["code"] == -32601


async def test_a_tool_that_asks_before_it_becomes_a_task() -> None:
    """ "Servers [...] SHOULD resolve all MRTR exchanges synchronously before responding with a `CreateTaskResult`"
    (ext-tasks, Task Creation)."""
    lab = Lab(begin_after=0.3)

    @lab.app.tool(task=TaskPolicy(begin_after=0.3, poll=0.05))
    async def named(ctx: Context) -> str:
        answer = await ctx.elicit("How is it called?", FORM)
        await lab.go.wait()
        return f"called {(answer.content or {})['name']}"

    async with calling(lab.app, R2026_07, **DECLARED, **ELICITS) as calls:
        first = (await calls.unchecked("tools/call", name="named", arguments={}))["result"]
        assert first["resultType"] == "input_required"
        [key] = first["inputRequests"]
        answers = {key: {"action": "accept", "content": {"name": "Ada"}}}
        second = await calls.unchecked(
            "tools/call", name="named", arguments={}, inputResponses=answers, requestState=first["requestState"]
        )
        assert second["result"]["resultType"] == "task"
        lab.go.set()
        done = await ended(calls, second["result"]["taskId"])
        assert done["result"]["content"][0]["text"] == "called Ada"
