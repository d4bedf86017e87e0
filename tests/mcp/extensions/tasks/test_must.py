"""What the two specifications of tasks demand of a server, a row a sentence, tried with bytes.

Not kept, on purpose: "receivers that cannot identify requestors SHOULD NOT declare the `tasks.list` capability"
(2025-11-25): an anonymous session lists only what it knows already.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any

import pytest

from dragoman.mcp import Context
from dragoman.mcp.extensions.tasks import TaskPolicy
from dragoman.mcp.protocol.revisions import R2025_06, R2025_11, R2026_07
from tests.engines.wires import until
from tests.mcp.calling import Calls, calling, conforms
from tests.mcp.http_wire import body, meta, served, standard

from .lab import DECLARED, ELICITS, FORM, Lab, asked_of, becomes, ended
from .test_access import ADA, EVE, listen
from .test_attacks import begin

RELATED = "io.modelcontextprotocol/related-task"
Check = Callable[[Lab, Calls], Awaitable[None]]
NOW: list[tuple[str, Check]] = []
"""Sentences of ext-tasks (2026-07-28)."""
BEFORE: list[tuple[str, Check]] = []
"""Sentences of 2025-11-25, basic/utilities/tasks."""


def must(rows: list[tuple[str, Check]], *sentences: str) -> Callable[[Check], Check]:
    """Add a row for each sentence that a check proves."""

    def add(check: Check) -> Check:
        rows.extend((sentence, check) for sentence in sentences)
        return check

    return add


async def states(lab: Lab, calls: Calls) -> dict[str, dict[str, Any]]:
    """A task in each state, by the state; of the failed ones that of an error."""
    found = {"working": await begin(calls, "train", {"rows": 1}), "input_required": await begin(calls, "ask")}
    found["failed"] = await begin(calls, "refuse")
    found["completed"] = await begin(calls, "add_slowly")
    found["cancelled"] = await begin(calls, "train", {"rows": 2})
    await calls.unchecked("tasks/cancel", taskId=found["cancelled"])
    return {status: await becomes_or_ended(calls, id, status) for status, id in found.items()}


async def becomes_or_ended(calls: Calls, id: str, status: str) -> dict[str, Any]:
    ending = status in ("failed", "completed", "cancelled")
    state = await (ended(calls, id) if ending else becomes(calls, id, status))
    assert state["status"] == status
    return state


def with_more_tools(lab: Lab) -> Lab:
    @lab.app.tool(task=TaskPolicy(poll=0.05))
    async def add_slowly() -> str:
        return "3"

    @lab.app.tool(task=TaskPolicy(poll=0.05))
    async def ask_twice(ctx: Context) -> str:
        found = [await ctx.elicit("The same?", FORM) for _ in range(2)]
        return ",".join(str((one.content or {})["name"]) for one in found)

    @lab.app.tool(task=TaskPolicy(poll=0.05))
    async def report(ctx: Context) -> str:
        await ctx.progress(1, 2, "half")
        await lab.go.wait()
        return "reported"

    @lab.app.tool(task=TaskPolicy(poll=0.05, required=True))
    async def always() -> str:
        return "always"

    return lab


# -- 2026-07-28


@must(NOW, "A server MUST NOT return `CreateTaskResult` to a client that did not include the extension capability")
async def _(lab: Lab, calls: Calls) -> None:
    lab.go.set()
    calls.capabilities = {}
    assert (await calls.call("train", {"rows": 1}))["resultType"] == "complete"


@must(
    NOW,
    "If a server is unable to service a request [...] without returning `CreateTaskResult`, the server MUST return "
    "an error with the code `-32021` [...] indicating the required extension",
    "Servers MUST return this error [-32021] for non-declaring clients issuing `tasks/get`, `tasks/update`, and "
    "`tasks/cancel` requests",
    "Servers MUST return this error [-32021] for non-declaring clients requesting task notifications on "
    "`subscriptions/listen`",
)
async def _(lab: Lab, calls: Calls) -> None:
    id = await begin(calls, "train", {"rows": 1})
    calls.capabilities = {}
    asked: list[tuple[str, dict[str, Any]]] = [
        ("tools/call", {"name": "always", "arguments": {}}),
        ("tasks/get", {"taskId": id}),
        ("tasks/cancel", {"taskId": id}),
        ("tasks/update", {"taskId": id, "inputResponses": {}}),
        ("subscriptions/listen", {"notifications": {"taskIds": [id]}}),
    ]
    for method, params in asked:
        error = (await calls.unchecked(method, **params))["error"]
        assert error["code"] == -32021
        assert error["data"]["requiredCapabilities"] == {"extensions": {"io.modelcontextprotocol/tasks": {}}}


@must(
    NOW,
    'Servers MUST set `resultType` to `"task"` when returning a `CreateTaskResult`',
    "A server MUST NOT return `CreateTaskResult` until the task is durably created",
    'Servers MUST NOT set `resultType` to `"task"` on result types other than `CreateTaskResult`',
    'The `resultType` field MUST be set to `"complete"` on [the result of `tasks/get`]',
    'The `resultType` field MUST be set to `"complete"` on `UpdateTaskResult`',
    'The `resultType` field MUST be set to `"complete"` on `CancelTaskResult`',
    "On success, the server MUST acknowledge the request with an empty result. [tasks/update]",
    "On success, the server MUST acknowledge the request with an empty result. [tasks/cancel]",
)
async def _(lab: Lab, calls: Calls) -> None:
    made = (await calls.unchecked("tools/call", name="train", arguments={"rows": 1}))["result"]
    assert made["resultType"] == "task"
    id = made["taskId"]
    got = (await calls.unchecked("tasks/get", taskId=id))["result"]
    assert got["resultType"] == "complete"
    update = (await calls.unchecked("tasks/update", taskId=id, inputResponses={"none": {}}))["result"]
    cancel = (await calls.unchecked("tasks/cancel", taskId=id))["result"]
    for empty in (update, cancel):
        assert {key: value for key, value in empty.items() if key != "_meta"} == {"resultType": "complete"}


@must(
    NOW,
    "1. If the status is `working`, the server MUST return a a `Task` object with status `working`",
    "2. [...] `input_required` and an `inputRequests` field [which] MUST contain all outstanding requests",
    "3. [...] a `Task` object with status `completed` and a `result` field containing the final result",
    "4. If the status is `cancelled`, the server MUST return a `Task` object with status `cancelled`",
    "5. [...] a `Task` object with status `failed` and the error that occurred during execution",
    "The `tasks/get` response SHOULD include a `statusMessage` field with diagnostic information about the failure, and "
    "MUST include the `error` field with the JSON-RPC error",
)
async def _(lab: Lab, calls: Calls) -> None:
    for status, state in (await states(lab, calls)).items():
        extra = {"inputRequests", "result", "error"} & state.keys()
        expected = {"input_required": {"inputRequests"}, "completed": {"result"}, "failed": {"error"}}
        assert extra == expected.get(status, set())
        assert isinstance(state["ttlMs"], int)
        assert isinstance(state["pollIntervalMs"], int)
        for time in ("createdAt", "lastUpdatedAt"):
            assert datetime.fromisoformat(state[time]).tzinfo is not None
        if status == "failed":
            assert state["error"] == {"code": -31000, "message": "out of order", "data": {"since": 2}}
            assert state["statusMessage"]


@must(
    NOW,
    "The `failed` status MUST NOT be used to represent non-JSON-RPC errors",
    "Errors within the context of a protocol method result MUST use the `completed` status",
    "If the request completed with a result (even if `isError: true` [...]) [...] the `result` field MUST contain it",
)
async def _(lab: Lab, calls: Calls) -> None:
    state = await ended(calls, await begin(calls, "break_down"))
    assert state["status"] == "completed"
    assert state["result"]["isError"] is True
    assert state["result"]["content"][0]["text"] == "no more paper"
    conforms(R2026_07, "CallToolResult", state["result"])


@must(
    NOW,
    "Each request key in `inputRequests` MUST be unique over the lifetime of a single task",
    "A server MUST NOT reuse a key for a subsequent server-to-client request after a response",
    "A server SHOULD ignore any `inputResponses` responses mapped to a key that is not currently outstanding",
)
async def _(lab: Lab, calls: Calls) -> None:
    id = await begin(calls, "ask_twice")
    keys: list[str] = []
    for name in ("Ada", "Eve"):
        [key] = (await becomes(calls, id, "input_required"))["inputRequests"]
        stale = {old: {"action": "accept", "content": {"name": "stale"}} for old in keys}
        assert "result" in await calls.unchecked("tasks/update", taskId=id, inputResponses={**stale, "never": {"a": 1}})
        assert list((await becomes(calls, id, "input_required"))["inputRequests"]) == [key]
        keys.append(key)
        answer = {"action": "accept", "content": {"name": name}}
        await calls.unchecked("tasks/update", taskId=id, inputResponses={key: answer})
        if name == "Ada":
            await until_keys_differ(calls, id, key)
    assert len(set(keys)) == 2
    assert (await ended(calls, id))["result"]["content"][0]["text"] == "Ada,Eve"


async def until_keys_differ(calls: Calls, id: str, key: str) -> None:
    async with asyncio.timeout(10):
        while key in (await calls.unchecked("tasks/get", taskId=id))["result"].get("inputRequests", [key]):  # noqa: ASYNC110
            await asyncio.sleep(0.01)


@must(
    NOW,
    "Invalid or nonexistent `taskId`: `-32602` [...] Servers MUST return this error for `tasks/get`",
    "Servers SHOULD return this error [-32602] for `tasks/update` and `tasks/cancel`",
    "Servers SHOULD provide informative error messages to describe the cause of errors",
)
async def _(lab: Lab, calls: Calls) -> None:
    for method in ("tasks/get", "tasks/cancel", "tasks/update"):
        more: dict[str, Any] = {"inputResponses": {}} if method == "tasks/update" else {}
        for id in ("unknown", 5, None):
            error = (await calls.unchecked(method, taskId=id, **more))["error"]
            assert error["code"] == -32602
            assert error["message"]


@must(
    NOW,
    "Servers MUST generate them with sufficient entropy that a third party cannot enumerate or guess them",
    "Servers MUST perform authentication and authorization checks on each task-related request",
)
async def _(lab: Lab, calls: Calls) -> None:
    ids = [await begin(calls, "add_slowly") for _ in range(20)]
    assert all(len(id) >= 22 for id in ids)  # 128 bits at least, by 6 bits a character
    assert len({id[:8] for id in ids}) == 20
    async with calling(lab.app, R2026_07, ADA, **DECLARED) as ada, calling(lab.app, R2026_07, EVE, **DECLARED) as eve:
        mine = await begin(ada, "train", {"rows": 1})
        for method in ("tasks/get", "tasks/cancel", "tasks/update"):
            more: dict[str, Any] = {"inputResponses": {}} if method == "tasks/update" else {}
            assert (await eve.unchecked(method, taskId=mine, **more))["error"]["code"] == -32602
        assert (await ada.unchecked("tasks/get", taskId=mine))["result"]["status"] == "working"


@must(
    NOW,
    "`notifications/progress` and `notifications/message` notifications MUST NOT be sent on the `subscriptions/listen` "
    "stream for a task, and are not supported on tasks in general",
    "Each notification carries a complete `DetailedTask` for the current status",
)
async def _(lab: Lab, calls: Calls) -> None:
    more = {"_meta": {"progressToken": "p", "io.modelcontextprotocol/logLevel": "debug"}}
    id = await begin(calls, "report", **more)
    await listen(calls, taskIds=[id])
    lab.go.set()
    await ended(calls, id)

    def told() -> list[dict[str, Any]]:
        return [one["params"] for one in calls.told if one["method"] == "notifications/tasks"]

    await until(lambda: any(one["status"] == "completed" for one in told()))
    assert {one["method"] for one in calls.told} <= {"notifications/tasks", "notifications/subscriptions/acknowledged"}
    assert told()[-1]["result"]["content"][0]["text"] == "reported"
    assert told()[-1]["taskId"] == id


@must(NOW, "[tasks/result and tasks/list are no methods of this extension; `task` of a call is ignored]")
async def _(lab: Lab, calls: Calls) -> None:
    for method in ("tasks/result", "tasks/list"):
        assert (await calls.unchecked(method, taskId="x"))["error"]["code"] == -32601
    assert (await calls.call("add", {"a": 1, "b": 2}))["structuredContent"] is not None


@pytest.mark.parametrize(("sentence", "check"), NOW, ids=lambda one: one[:70] if isinstance(one, str) else "")
async def test_of_2026(sentence: str, check: Check) -> None:
    lab = with_more_tools(Lab())
    async with calling(lab.app, R2026_07, **DECLARED, **ELICITS) as calls:
        await check(lab, calls)


@pytest.mark.parametrize("kind", ["native", "asgi"])
async def test_routing_headers(kind: str) -> None:
    """ "The client MUST set the `Mcp-Name` header to the value of `params.taskId`": otherwise 400 and -32020. A method
    that is absent: 404. A task that cannot be had without the extension: 400."""
    lab = with_more_tools(Lab())
    async with served(lab.app, kind) as place:

        async def post(method: str, header: str | None, capabilities: Any = DECLARED, **params: Any) -> Any:
            raw = body(method, params | {"_meta": meta(capabilities=capabilities)})
            answered = await place.ask(raw, standard(method, header))
            return answered.status, json.loads(answered.body)

        status, made = await post("tools/call", "train", name="train", arguments={"rows": 1})
        assert (status, made["result"]["resultType"]) == (200, "task")
        id = made["result"]["taskId"]
        for method in ("tasks/get", "tasks/update", "tasks/cancel"):
            more: dict[str, Any] = {"inputResponses": {}} if method == "tasks/update" else {}
            for wrong in (None, "x", id[:-1], id + "x"):
                status, refused = await post(method, wrong, taskId=id, **more)
                assert (status, refused["error"]["code"]) == (400, -32020)
            status, refused = await post(method, id, {}, taskId=id, **more)
            assert (status, refused["error"]["code"]) == (400, -32021)
            status, _ = await post(method, id, taskId=id, **more)
            assert status == 200
        for method in ("tasks/result", "tasks/list"):
            status, refused = await post(method, None, taskId=id)
            assert (status, refused["error"]["code"]) == (404, -32601)
        status, refused = await post("tools/call", "always", {}, name="always", arguments={})
        assert (status, refused["error"]["code"]) == (400, -32021)


# -- 2025-11-25


@must(
    BEFORE,
    "Servers [...] that support task-augmented requests MUST declare a `tasks` capability during initialization",
    'If `execution.taskSupport` is "required" [...] servers MUST return a `-32601` (Method not found) error if a client '
    "does not attempt to do so",
    'If `execution.taskSupport` is not present or "forbidden" [...] servers SHOULD return a `-32601` (Method not found) '
    "error if a client attempts to do so",
)
async def _(lab: Lab, calls: Calls) -> None:
    info = {"name": "test", "version": "1"}
    async with calling(lab.app, R2025_06) as older:
        assert "execution" not in (await older.tools())["train"]
    async with calling(lab.app, R2025_11) as other:
        said = await other.unchecked("ping")
        assert "result" in said
    tools = await calls.tools()
    assert {name: tools[name].get("execution") for name in ("train", "always", "add")} == {
        "train": {"taskSupport": "optional"},
        "always": {"taskSupport": "required"},
        "add": None,
    }
    assert (await calls.unchecked("tools/call", name="always", arguments={}))["error"]["code"] == -32601
    refused = await calls.unchecked("tools/call", name="add", arguments={"a": 1, "b": 2}, task={})
    assert refused["error"]["code"] == -32601
    async with served(lab.app) as place:
        params = {"protocolVersion": R2025_11.date, "capabilities": {}, "clientInfo": info}
        answered = await place.ask(body("initialize", params))
        declared = json.loads(answered.body)["result"]["capabilities"]["tasks"]
    assert declared == {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}


@must(
    BEFORE,
    "Task IDs MUST be a string value",
    "Task IDs MUST be unique among all tasks controlled by the receiver",
    "Tasks MUST begin in the `working` status when created",
    "Receivers MUST include a `createdAt` ISO 8601-formatted timestamp in all task responses",
    "Receivers MUST include a `lastUpdatedAt` ISO 8601-formatted timestamp in all task responses",
    "Receivers MUST include the actual `ttl` duration (or `null` for unlimited) in `tasks/get` responses",
    "Receivers that accept a task-augmented request MUST return a `CreateTaskResult` as the response",
    "All requests, notifications, and responses related to a task MUST include [related-task] [CreateTaskResult]",
)
async def _(lab: Lab, calls: Calls) -> None:
    ids = set()
    for ttl in (None, 1, 90_000, 1e300, -5):
        task = {} if ttl is None else {"ttl": ttl}
        made = (await calls.unchecked("tools/call", name="train", arguments={"rows": 1}, task=task))["result"]
        conforms(R2025_11, "CreateTaskResult", made)
        id = made["task"]["taskId"]
        ids.add(id)
        assert made["_meta"][RELATED] == {"taskId": id}
        got = (await calls.unchecked("tasks/get", taskId=id))["result"]
        listed = (await calls.unchecked("tasks/list"))["result"]["tasks"][0]
        for state in (made["task"], got, listed):
            assert state["status"] == "working"
            assert state["taskId"] == id
            assert 60_000 <= state["ttl"] <= 3_600_000
            for time in ("createdAt", "lastUpdatedAt"):
                datetime.fromisoformat(state[time])
    assert len(ids) == 5


@must(
    BEFORE,
    "[For] a `tasks/result` request for a task in a terminal status [...] it MUST return the final result [...], "
    "whether that is a successful result or a JSON-RPC error",
    "[For] any other non-terminal status (`working` or `input_required`), it MUST block the response",
    "The `tasks/result` operation MUST include this metadata in its response",
    "If the underlying request resulted in a JSON-RPC error, `tasks/result` MUST return that same JSON-RPC error",
    "[tasks/get, tasks/list, tasks/cancel:] receivers SHOULD NOT include related-task metadata in the result",
    "Receivers MUST ignore such metadata if present in favor of the RPC method parameter",
)
async def _(lab: Lab, calls: Calls) -> None:
    found = await states(lab, calls)
    odd = {"_meta": {RELATED: {"taskId": found["completed"]["taskId"]}}}
    for status, state in found.items():
        id = state["taskId"]
        got = (await calls.unchecked("tasks/get", taskId=id, **odd))["result"]
        assert got["taskId"] == id
        assert RELATED not in got.get("_meta", {})
        asking = asyncio.ensure_future(calls.unchecked("tasks/result", taskId=id, **odd))
        if status in ("working", "input_required"):
            await calls.unchecked("ping")
            assert not asking.done()
            await calls.unchecked("tasks/cancel", taskId=id)
            assert "error" in await asking
        elif status == "completed":
            result = (await asking)["result"]
            assert result["content"][0]["text"] == "3"
            assert result["_meta"][RELATED] == {"taskId": id}
        elif status == "failed":
            assert (await asking)["error"] == {"code": -31000, "message": "out of order", "data": {"since": 2}}
        else:
            assert "error" in await asking


@must(
    BEFORE,
    "The receiver MUST include the related-task metadata in the request to associate it with the task",
    "All requests, notifications, and responses related to a task MUST include [related-task] [progress]",
    "The `progressToken` provided in the initial request remains valid throughout the task lifetime",
    "When the receiver receives all required input, the task SHOULD transition out of `input_required` status",
)
async def _(lab: Lab, calls: Calls) -> None:
    id = await begin(calls, "report", _meta={"progressToken": "p"})

    def progress() -> list[dict[str, Any]]:
        return [one["params"] for one in calls.told if one["method"] == "notifications/progress"]

    await until(lambda: bool(progress()))
    assert progress()[0]["progressToken"] == "p"
    assert progress()[0]["_meta"][RELATED] == {"taskId": id}
    asking = await begin(calls, "ask")
    result = asyncio.ensure_future(calls.unchecked("tasks/result", taskId=asking))
    await until(lambda: bool(asked_of(calls)))
    [question] = asked_of(calls)
    assert question["params"]["_meta"][RELATED] == {"taskId": asking}
    answer = {"jsonrpc": "2.0", "id": question["id"], "result": {"action": "accept", "content": {"name": "Ada"}}}
    calls.channel.send(json.dumps(answer).encode())
    assert (await result)["result"]["content"][0]["text"] == "called Ada"


@must(
    BEFORE,
    "Receivers MUST include a `nextCursor` in the response if more tasks are available",
    "If a task is retrievable via `tasks/get` for a requestor, it MUST be retrievable via `tasks/list`",
    "Invalid or nonexistent cursor in `tasks/list`: `-32602` (Invalid params)",
)
async def _(lab: Lab, calls: Calls) -> None:
    ids = [await begin(calls, "add_slowly") for _ in range(51)]
    first = (await calls.unchecked("tasks/list"))["result"]
    second = (await calls.unchecked("tasks/list", cursor=first["nextCursor"]))["result"]
    assert [one["taskId"] for one in first["tasks"] + second["tasks"]] == ids[::-1]
    assert "nextCursor" not in second
    assert (await calls.unchecked("tasks/list", cursor="odd"))["error"]["code"] == -32602


@must(
    BEFORE,
    "Receivers MUST reject cancellation requests for tasks already in a terminal status [...] with -32602",
    "Receivers SHOULD attempt to stop the task execution and MUST transition the task to `cancelled` status before "
    "sending the response",
    "Once a task is cancelled, it MUST remain in `cancelled` status even if execution continues",
    "Tasks with a `completed`, `failed`, or `cancelled` status [...] MUST NOT transition to any other status",
)
async def _(lab: Lab, calls: Calls) -> None:
    id = await begin(calls, "train", {"rows": 1})
    await until(lambda: bool(lab.began))
    cancelled = (await calls.unchecked("tasks/cancel", taskId=id))["result"]
    assert cancelled["status"] == "cancelled"
    lab.go.set()
    assert (await calls.unchecked("tasks/get", taskId=id))["result"]["status"] == "cancelled"
    for other in (id, await begin(calls, "add_slowly"), await begin(calls, "refuse")):
        state = await ended(calls, other)
        assert (await calls.unchecked("tasks/cancel", taskId=other))["error"]["code"] == -32602
        assert (await calls.unchecked("tasks/get", taskId=other))["result"] == state


@must(
    BEFORE,
    "For tool calls specifically, [`failed`] includes cases where the tool call result has `isError` set to true",
    "The `tasks/get` response SHOULD include a `statusMessage` field with diagnostic information about the failure",
)
async def _(lab: Lab, calls: Calls) -> None:
    for tool in ("break_down", "refuse"):
        state = await ended(calls, await begin(calls, tool))
        assert state["status"] == "failed"
        assert state["statusMessage"]


@must(
    BEFORE,
    "Invalid or nonexistent `taskId` in `tasks/get`, `tasks/result`, or `tasks/cancel`: `-32602`",
    "When an authorization context is provided, receivers MUST bind tasks to said context",
    "Receivers MUST reject [requests] for tasks that do not belong to the same authorization context",
    "For `tasks/list` requests, receivers MUST ensure the returned task list includes only [the requestor's]",
)
async def _(lab: Lab, calls: Calls) -> None:
    async with calling(lab.app, R2025_11, ADA) as ada, calling(lab.app, R2025_11, EVE) as eve:
        id = await begin(ada, "train", {"rows": 1})
        for method in ("tasks/get", "tasks/result", "tasks/cancel"):
            for name in (id, "unknown"):
                assert (await eve.unchecked(method, taskId=name))["error"]["code"] == -32602
        assert (await eve.unchecked("tasks/list"))["result"]["tasks"] == []
        assert [one["taskId"] for one in (await ada.unchecked("tasks/list"))["result"]["tasks"]] == [id]


@pytest.mark.parametrize(("sentence", "check"), BEFORE, ids=lambda one: one[:70] if isinstance(one, str) else "")
async def test_of_2025(sentence: str, check: Check) -> None:
    lab = with_more_tools(Lab())
    async with calling(lab.app, R2025_11, **ELICITS) as calls:
        await check(lab, calls)
