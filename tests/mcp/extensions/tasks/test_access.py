"""Whose a task is, what may be known of it, and how its changes are told."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from dragoman.channel import Caller, Identity
from dragoman.jsonrpc.errors import LocalError
from dragoman.mcp import Context, Server
from dragoman.mcp.extensions.tasks import TaskPolicy, Tasks
from dragoman.mcp.protocol.revisions import R2025_06, R2025_11, R2026_07
from dragoman.store.contract import StoreLost
from dragoman.tasks import TaskLimits
from dragoman.tasks.sqlite import SqliteTasks
from tests.engines.wires import until
from tests.mcp.calling import Calls, calling

from .lab import DECLARED, ELICITS, Lab, asked_of, ended

ADA = Caller(identity=Identity(subject="ada", issuer="https://issuer"))
EVE = Caller(identity=Identity(subject="eve", issuer="https://issuer"))
OTHER_CLIENT = Caller(identity=Identity(subject="ada", issuer="https://issuer", client_id="another"))
OTHER_ISSUER = Caller(identity=Identity(subject="ada", issuer="https://other"))


async def begun(calls: Calls, tool: str = "train", **arguments: Any) -> str:
    """Begin a task."""
    more: dict[str, Any] = {"task": {}} if calls.revision.stateful else {}
    arguments = arguments or ({"rows": 1} if tool == "train" else {})
    found = (await calls.unchecked("tools/call", name=tool, arguments=arguments, **more))["result"]
    return str(found["task"]["taskId"] if calls.revision.stateful else found["taskId"])


@pytest.mark.parametrize("other", [EVE, OTHER_CLIENT, OTHER_ISSUER, None], ids=["other", "client", "issuer", "nobody"])
@pytest.mark.parametrize("revision", [R2025_11, R2026_07], ids=lambda one: one.date)
async def test_a_task_of_another_is_unknown_in_every_way(other: Caller | None, revision: Any) -> None:
    lab = Lab()
    said: dict[str, Any] = {} if revision.stateful else DECLARED
    async with calling(lab.app, revision, ADA, **said) as ada, calling(lab.app, revision, other, **said) as eve:
        id = await begun(ada)
        methods = ["tasks/get", "tasks/cancel", "tasks/result" if revision.stateful else "tasks/update"]
        unknown = json.dumps((await eve.unchecked("tasks/get", taskId="A" * 24))["error"]).replace("A" * 24, id)
        for method in methods:
            more: dict[str, Any] = {"inputResponses": {}} if method == "tasks/update" else {}
            error = (await eve.unchecked(method, taskId=id, **more))["error"]
            assert json.dumps(error) == unknown
        if revision.stateful:
            assert (await eve.unchecked("tasks/list"))["result"]["tasks"] == []
        for tool in ("task_status", "task_result", "task_cancel"):
            assert "Task not found" in await eve.refusal(tool, {"task_id": id})
        assert (await ada.unchecked("tasks/get", taskId=id))["result"]["status"] == "working"
        lab.go.set()
        await ended(ada, id)


MAY = Caller(identity=Identity(subject="ada", scopes=frozenset({"train"}), roles=frozenset({"trainer"})))
MAY_NOT = Caller(identity=Identity(subject="ada"))
"""The same principal, later: it has lost what the tool demands."""
DEMANDS: dict[str, dict[str, Any]] = {
    "scopes": {"scopes": "train"},
    "roles": {"roles": "trainer"},
    "allow": {"allow": lambda identity, arguments: bool(identity.scopes)},
    "visible": {"visible": lambda caller: bool(caller.identity and caller.identity.scopes)},
}


@pytest.mark.parametrize("demand", DEMANDS)
@pytest.mark.parametrize("revision", [R2025_11, R2026_07], ids=lambda one: one.date)
async def test_who_may_not_call_a_tool_any_more_may_not_look_at_its_tasks(revision: Any, demand: str) -> None:
    lab = Lab()

    @lab.app.tool(**lab.long, **DEMANDS[demand])
    async def guarded() -> str:
        await lab.go.wait()
        return "secret"

    said: dict[str, Any] = {} if revision.stateful else DECLARED
    async with (
        calling(lab.app, revision, MAY, **said) as before,
        calling(lab.app, revision, MAY_NOT, **said) as after,
        calling(lab.app, R2025_06, MAY_NOT) as plain,
    ):
        open_id = await begun(after)
        id = await begun(before, "guarded")
        methods = ["tasks/get", "tasks/cancel", "tasks/result" if revision.stateful else "tasks/update"]
        for method in methods:
            more: dict[str, Any] = {"inputResponses": {}} if method == "tasks/update" else {}
            error = (await after.unchecked(method, taskId=id, **more))["error"]
            assert (error["code"], error["message"].split(":")[0]) == (
                (-32602, "Task not found") if demand == "visible" else (-32600, "Forbidden")
            )
        if revision.stateful:
            listed = [(await one.unchecked("tasks/list"))["result"]["tasks"] for one in (before, after)]
            assert [{each["taskId"] for each in one} for one in listed] == [{open_id, id}, {open_id}]
        else:
            await listen(after, taskIds=[id, open_id])
            [acknowledged] = [one for one in after.told if one["method"].endswith("acknowledged")]
            assert acknowledged["params"]["notifications"] == {"taskIds": [open_id]}
        for tool in ("task_status", "task_result", "task_cancel"):
            if demand == "visible":
                assert "Task not found" in await plain.refusal(tool, {"task_id": id})
            else:
                assert (await plain.error("tools/call", name=tool, arguments={"task_id": id}))["code"] == -32600
        assert (await before.unchecked("tasks/get", taskId=id))["result"]["status"] == "working"
        lab.go.set()
        assert (await ended(before, id))["status"] == "completed"
        lab.app.disable("tool", "guarded")
        assert "error" in await after.unchecked("tasks/get", taskId=id)
        lab.app.remove_tool("guarded")  # nothing is known of what it demanded; the task is still its owner's
        assert (await after.unchecked("tasks/get", taskId=id))["result"]["status"] == "completed"


async def test_the_list_of_a_principal_has_pages() -> None:
    lab = Lab()
    lab.go.set()
    async with calling(lab.app, R2025_11, ADA) as one, calling(lab.app, R2025_11, ADA) as two:
        ids = [await begun(one) for _ in range(120)]
        found: list[str] = []
        cursor: dict[str, Any] = {}
        for size in (50, 50, 20):
            page = (await two.unchecked("tasks/list", **cursor))["result"]
            assert len(page["tasks"]) == size
            found += [each["taskId"] for each in page["tasks"]]
            cursor = {"cursor": page.get("nextCursor")}
        assert cursor == {"cursor": None}
        assert found == ids[::-1]
        assert (await two.unchecked("tasks/list", cursor="odd"))["error"]["code"] == -32602


async def test_an_anonymous_session_lists_what_it_knows() -> None:
    lab = Lab()
    async with calling(lab.app, R2025_11) as one, calling(lab.app, R2025_11) as two:
        id = await begun(one)
        assert (await two.unchecked("tasks/list"))["result"]["tasks"] == []
        assert (await two.unchecked("tasks/get", taskId=id))["result"]["status"] == "working"
        assert [each["taskId"] for each in (await two.unchecked("tasks/list"))["result"]["tasks"]] == [id]


async def listen(calls: Calls, **wanted: Any) -> None:
    """Subscribe, and wait for the acknowledgment."""
    before = len(calls.told)
    meta = {
        "io.modelcontextprotocol/protocolVersion": R2026_07.date,
        "io.modelcontextprotocol/clientCapabilities": calls.capabilities,
    }
    message = {"id": 900, "method": "subscriptions/listen", "params": {"notifications": wanted, "_meta": meta}}
    calls.channel.send(json.dumps({"jsonrpc": "2.0", **message}).encode())
    await until(lambda: len(calls.told) > before)


async def test_changes_are_pushed_to_those_who_may_know() -> None:
    lab = Lab()
    async with calling(lab.app, R2026_07, ADA, **DECLARED) as ada, calling(lab.app, R2026_07, EVE, **DECLARED) as eve:
        id = await begun(ada)
        await listen(ada, taskIds=[id, "unknown"])
        await listen(eve, taskIds=[id])
        [acknowledged] = [one for one in ada.told if one["method"].endswith("acknowledged")]
        assert acknowledged["params"]["notifications"] == {"taskIds": [id]}
        lab.go.set()

        def completed() -> list[dict[str, Any]]:
            told = [one["params"] for one in ada.told if one["method"] == "notifications/tasks"]
            return [one for one in told if one["status"] == "completed"]

        await until(lambda: bool(completed()))
        told = completed()
        assert told[0]["result"]["structuredContent"] == {"rows": 1, "name": ""}
        got = (await ada.unchecked("tasks/get", taskId=id))["result"]
        assert {k: v for k, v in told[0].items() if k != "_meta"} == {
            k: v for k, v in got.items() if k not in ("_meta", "resultType")
        }
        assert not [one for one in eve.told if one["method"] == "notifications/tasks"]


async def test_a_client_without_the_extension_may_not_follow() -> None:
    lab = Lab()
    async with calling(lab.app, R2026_07) as calls:
        error = (await calls.unchecked("subscriptions/listen", notifications={"taskIds": ["x"]}))["error"]
        assert error["code"] == -32021
    async with calling(lab.app, R2026_07, **DECLARED) as calls:
        odds: tuple[Any, ...] = (["x"] * 101, "x", [1], {})
        for odd in odds:
            error = (await calls.unchecked("subscriptions/listen", notifications={"taskIds": odd}))["error"]
            assert error["code"] == -32602


async def test_a_waiting_client_gets_progress_and_a_handle_in_time_all_the_same() -> None:
    lab = Lab()
    go = asyncio.Event()

    @lab.app.tool(task=TaskPolicy(answer_within=0.3))
    async def steps(ctx: Context) -> str:
        number = 0
        while not go.is_set():
            number += 1
            await ctx.progress(number, None, f"step {number}")
            await asyncio.sleep(0.02)
        return "walked"

    async with calling(lab.app, R2025_06) as calls:
        id = ""
        for name, token in (("steps", 7), ("task_result", 8)):
            arguments = {"task_id": id} if id else {}
            answer = await calls.unchecked("tools/call", name=name, arguments=arguments, _meta={"progressToken": token})
            assert "Not done yet" in answer["result"]["content"][0]["text"]
            id = answer["result"]["structuredContent"]["task_id"]
            told = [one["params"] for one in calls.told if one["method"] == "notifications/progress"]
            assert [one for one in told if one["progressToken"] == token]
        go.set()
        assert (await calls.call("task_result", {"task_id": id}))["content"][0]["text"] == "walked"


async def test_a_call_that_is_cancelled_while_its_client_waits_stops() -> None:
    lab = Lab()
    async with calling(lab.app, R2025_06) as calls:
        message = {
            "jsonrpc": "2.0",
            "id": 77,
            "method": "tools/call",
            "params": {"name": "train", "arguments": {"rows": 1}},
        }
        calls.channel.send(json.dumps(message).encode())
        await until(lambda: bool(lab.began))
        calls.channel.send(b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":77}}')
        await until(lambda: bool(lab.stopped))
    assert lab.stopped == ["train"]


class Broken(SqliteTasks):
    """A store whose engine is away while `broken`."""

    broken = False

    async def now(self) -> float:
        self._look()
        return await super().now()

    async def read(self, id: str) -> Any:
        self._look()
        return await super().read(id)

    async def change(self, id: str, edit: Any) -> Any:
        self._look()
        return await super().change(id, edit)

    def _look(self) -> None:
        if self.broken:
            raise StoreLost("the engine is away")


async def test_while_the_store_is_away() -> None:
    store = Broken(":memory:")
    lab = Lab(Tasks(store))
    async with calling(lab.app, R2026_07, **DECLARED) as calls:
        id = await begun(calls)
        store.broken = True
        for method in ("tasks/get", "tasks/cancel"):
            error = (await calls.unchecked(method, taskId=id))["error"]
            assert "Busy: tasks cannot be read now" in error["message"]
        error = (await calls.unchecked("tools/call", name="train", arguments={"rows": 1}))["error"]
        assert "Busy: tasks cannot be kept now" in error["message"]
        assert len(lab.began) == 1, "nothing runs that has no record"
        lab.go.set()
        await asyncio.sleep(0.05)
        store.broken = False
        assert (await ended(calls, id))["status"] == "completed"
    await store.close()


async def test_a_store_without_room() -> None:
    lab = Lab(Tasks(limits=TaskLimits(tasks=100, tasks_each=2)), answer_within=0.05)
    async with calling(lab.app, R2026_07, ADA, **DECLARED) as calls:
        ids = [await begun(calls) for _ in range(2)]
        error = (await calls.unchecked("tools/call", name="train", arguments={"rows": 1}))["error"]
        assert "tasks_each" in error["message"]
    async with calling(lab.app, R2026_07, ADA) as plain:
        waiting = asyncio.ensure_future(plain.call("train", {"rows": 5}))
        await asyncio.sleep(0.2)
        assert not waiting.done(), "a call for whose task there is no room waits for its result"
        lab.go.set()
        assert (await waiting)["structuredContent"] == {"rows": 5, "name": ""}
    assert len(ids) == 2


async def test_a_result_that_has_no_room_ends_the_task() -> None:
    lab = Lab(Tasks(limits=TaskLimits(record_size=4_000)))

    @lab.app.tool(task=True)
    async def large() -> str:
        return "x" * 100_000

    async with calling(lab.app, R2026_07, **DECLARED) as calls:
        done = await ended(calls, await begun(calls, "large"))
        assert done["status"] == "failed"
        assert "record_size" in done["statusMessage"]


def test_names_of_helper_tools_are_taken() -> None:
    app = Server("lab", extensions=[Tasks()])

    @app.tool(task=True)
    async def long() -> str:
        return ""

    with pytest.raises(LocalError, match=r"prefix="):

        @app.tool
        def task_status() -> str:
            return ""

    other = Server("lab", extensions=[Tasks()])

    @other.tool(name="task_result")
    def mine() -> str:
        return ""

    with pytest.raises(LocalError, match=r"prefix="):
        other.tool(name="long", task=True)(long)
    free = Server("lab", extensions=[Tasks(prefix="work_")])
    free.tool(name="task_result")(mine)
    free.tool(name="long", task=True)(long)
    with pytest.raises(LocalError, match="option"):
        Server("lab").tool(task=True)(long)


@pytest.mark.parametrize(
    "options",
    [
        {"answer_within": -1},
        {"answer_within": float("inf")},
        {"keep": 1},
        {"keep": "long"},
        {"poll": 0},
        {"timeout": 0},
        {"idempotent": 1},
        {"required": None},
    ],
)
def test_a_policy_that_does_not_fit(options: dict[str, Any]) -> None:
    with pytest.raises(LocalError, match=f"TaskPolicy.*{next(iter(options))}"):
        TaskPolicy(**options)


async def test_a_session_of_an_older_revision_is_asked_while_it_waits_for_the_result() -> None:
    lab = Lab(answer_within=0)

    @lab.app.tool(task=TaskPolicy(answer_within=0))
    async def later(ctx: Context) -> str:
        await asyncio.sleep(0.2)
        answer = await ctx.elicit("How?", {"type": "object", "properties": {"name": {"type": "string"}}})
        return f"called {(answer.content or {})['name']}"

    async with calling(lab.app, R2025_06, **ELICITS) as calls:
        handle = await calls.call("later", {})
        id = handle["structuredContent"]["task_id"]
        waiting = asyncio.ensure_future(calls.call("task_result", {"task_id": id}))
        await until(lambda: bool(asked_of(calls)))
        found = asked_of(calls)
        calls.channel.send(
            b'{"jsonrpc":"2.0","id":%d,"result":{"action":"accept","content":{"name":"Ada"}}}' % found[0]["id"]
        )
        assert (await waiting)["content"][0]["text"] == "called Ada"


async def test_a_client_of_2026_without_tasks_answers_in_a_retry_of_task_result() -> None:
    lab = Lab()

    @lab.app.tool(task=TaskPolicy(answer_within=0))
    async def later(ctx: Context) -> str:
        await asyncio.sleep(0.2)
        answer = await ctx.elicit("How?", {"type": "object", "properties": {"name": {"type": "string"}}})
        return f"called {(answer.content or {})['name']}"

    async with calling(lab.app, R2026_07, **ELICITS) as calls:
        id = (await calls.call("later", {}))["structuredContent"]["task_id"]
        asked = (await calls.unchecked("tools/call", name="task_result", arguments={"task_id": id}))["result"]
        assert asked["resultType"] == "input_required"
        [key] = asked["inputRequests"]
        answers = {key: {"action": "accept", "content": {"name": "Ada"}}}
        more = {"requestState": asked["requestState"]} if "requestState" in asked else {}
        done = await calls.unchecked(
            "tools/call", name="task_result", arguments={"task_id": id}, inputResponses=answers, **more
        )
        assert done["result"]["content"][0]["text"] == "called Ada"


def test_a_tool_that_is_no_task_has_no_middleware_of_the_extension() -> None:
    lab, bare = Lab(), Server("bare")

    @bare.tool
    async def add(a: int, b: int) -> int:
        return a + b

    tools = lab.app._registry._tools.by_key
    assert tools["train"].method.handler is not None
    for quick in ("quick", "runs_inline", "handler"):
        here, there = (getattr(one.method, quick) for one in (tools["add"], bare._registry._tools.by_key["add"]))
        assert (here is None) == (there is None)
        assert isinstance(here, bool) is False or here == there


class Slow(SqliteTasks):
    """A store that creates nothing before `go`."""

    def __init__(self) -> None:
        super().__init__(":memory:")
        self.go, self.asked = asyncio.Event(), asyncio.Event()

    async def create(self, record: Any) -> None:
        self.asked.set()
        await self.go.wait()
        await super().create(record)


async def test_a_client_that_leaves_before_its_task_is_kept_leaves_nothing_behind() -> None:
    store = Slow()
    lab = Lab(Tasks(store))
    async with calling(lab.app, R2026_07, **DECLARED) as calls:
        meta = {
            "io.modelcontextprotocol/protocolVersion": R2026_07.date,
            "io.modelcontextprotocol/clientCapabilities": DECLARED,
        }
        params = {"name": "train", "arguments": {"rows": 1}, "_meta": meta}
        calls.channel.send(json.dumps({"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": params}).encode())
        await store.asked.wait()
        calls.channel.send(b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":9}}')
        await asyncio.sleep(0.05)
        store.go.set()
        runner = lab.tasks.access.runner
        async with asyncio.timeout(10):
            while not (left := await store.list_tasks("", "", 10)) or not left[0].ended:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert left[0].status == "cancelled"
        assert not runner.running
        assert lab.began == []
    await store.close()


async def test_tasks_of_one_server_are_not_those_of_another() -> None:
    shared = Tasks()
    one, two = Lab(shared), Lab(shared)
    async with calling(one.app, R2026_07, **DECLARED) as calls:
        await begun(calls)
        async with calling(two.app, R2026_07, **DECLARED) as others:
            with pytest.raises((AssertionError, KeyError, TimeoutError)):
                await begun(others)


async def test_a_long_tool_of_an_included_server_is_a_task_of_the_outer_one() -> None:
    inner, outer = Lab(), Server("outer", extensions=[Tasks()])
    bare = Server("bare")
    outer.include(inner.app, namespace="lab")
    bare.include(inner.app)
    inner.go.set()
    async with calling(outer, R2026_07, **DECLARED) as calls:
        made = (await calls.unchecked("tools/call", name="lab_train", arguments={"rows": 2}))["result"]
        assert (await ended(calls, made["taskId"]))["result"]["structuredContent"] == {"rows": 2, "name": ""}
    async with calling(outer, R2026_07) as calls:
        assert {name for name in await calls.tools() if "task" in name} == {"task_status", "task_result", "task_cancel"}
    async with calling(bare, R2026_07) as calls:
        assert (await calls.call("train", {"rows": 2}))["structuredContent"] == {"rows": 2, "name": ""}
        assert not [name for name in await calls.tools() if "task" in name]
