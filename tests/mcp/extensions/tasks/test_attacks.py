"""Callers that want too much, leave at the worst moment, or find the store away: nothing is held, lost or told."""

from __future__ import annotations

import asyncio
import gc
import json
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest
from msgspec import Raw

from dragoman import serve
from dragoman.access import LocalUser
from dragoman.channel import Caller
from dragoman.jsonrpc.limits import Limits
from dragoman.kept_identity import keep_identity
from dragoman.mcp import Client, Context
from dragoman.mcp.extensions.tasks import TaskPolicy, Tasks
from dragoman.mcp.protocol.revisions import R2025_06, R2025_11, R2026_07
from dragoman.rpc.detached import DetachedRun
from dragoman.store.contract import StoreLost
from dragoman.tasks import TaskLimits
from dragoman.tasks.contract import TasksFull
from dragoman.tasks.record import TaskRecord
from dragoman.tasks.sqlite import SqliteTasks
from tests.behind import behind
from tests.engines.wires import until
from tests.mcp.calling import Calls, calling

from .lab import DECLARED, ELICITS, FORM, Lab, asked_of, becomes, ended
from .test_access import ADA, EVE, begun

HERE = Caller(remote="192.0.2.1:4000")
THERE = Caller(remote="192.0.2.2:4000")

ASK = Raw(
    b'{"name":"ask","arguments":{},"_meta":{"io.modelcontextprotocol/clientCapabilities":{"elicitation":{"form":{}}}}}'
)


class Faulty(SqliteTasks):
    """A store that fails as `faults` says: by the method, which exceptions its next calls raise."""

    def __init__(self, limits: TaskLimits | None = None) -> None:
        super().__init__(":memory:", TaskLimits() if limits is None else limits)
        self.faults: dict[str, list[Exception]] = {}
        self.after: dict[str, list[Exception]] = {}
        """As `faults`, but what was asked is done."""

    def _fail(self, method: str, faults: dict[str, list[Exception]]) -> None:
        if faults.get(method):
            raise faults[method].pop(0)

    async def now(self) -> float:
        self._fail("now", self.faults)
        return await super().now()

    async def create(self, record: Any) -> None:
        self._fail("create", self.faults)
        await super().create(record)
        self._fail("create", self.after)

    async def change(self, id: str, edit: Any) -> Any:
        self._fail("change", self.faults)
        found = await super().change(id, edit)
        self._fail("change", self.after)
        return found

    async def claim(self, runner: str, server: str, limit: int) -> Any:
        self._fail("claim", self.faults)
        return await super().claim(runner, server, limit)


def lost(times: int = 1) -> list[Exception]:
    return [StoreLost("the engine is away") for _ in range(times)]


def full(times: int = 1) -> list[Exception]:
    return [TasksFull("no room", busy=True) for _ in range(times)]


def orphan(store: SqliteTasks, **more: Any) -> TaskRecord:
    """A record whose runner is lost."""
    made: dict[str, Any] = {
        "id": "orphan-of-nobody",
        "server": "lab",
        "method": "tools/call",
        "name": "train",
        "created": store._clock.now(),
        "updated": store._clock.now(),
        "keep": 3600.0,
        "params": Raw(b'{"name":"train","arguments":{"rows":1}}'),
        "revision": R2026_07.date,
        "runner": "gone",
    }
    return TaskRecord(**made | more)


@pytest.mark.parametrize("idempotent", [False, True])
@pytest.mark.parametrize(
    ("method", "faults"), [("now", lost), ("change", lost), ("change", full)], ids=["now", "change", "full"]
)
async def test_an_orphan_ends_though_its_store_fails_while_it_is_taken_over(
    method: str, idempotent: bool, faults: Callable[..., list[Exception]]
) -> None:
    store = Faulty()
    lab = Lab(Tasks(store))
    lab.go.set()
    async with calling(lab.app, R2026_07, **DECLARED) as calls:
        await calls.tools()
        store.faults[method] = faults(2)
        await SqliteTasks.create(store, orphan(store, idempotent=idempotent))
        done = await ended(calls, "orphan-of-nobody")
        assert done["status"] == ("completed" if idempotent else "failed")
    await store.close()


@pytest.mark.parametrize(
    ("method", "faults"), [("now", lost), ("change", lost), ("change", full)], ids=["now", "change", "full"]
)
async def test_the_end_of_a_task_is_written_when_its_store_is_there_again(
    method: str, faults: Callable[..., list[Exception]]
) -> None:
    store = Faulty()
    lab = Lab(Tasks(store))
    async with calling(lab.app, R2026_07, **DECLARED) as calls:
        id = await begun(calls)
        await until(lambda: bool(lab.began))
        store.faults[method] = faults(4)
        lab.go.set()
        done = await ended(calls, id)
        assert done["status"] == ("completed" if faults is lost else "failed")
        runner = lab.tasks.access.runner
        await until(lambda: not runner.running)
    await store.close()


@pytest.mark.parametrize("where", ["before", "after"])
@pytest.mark.parametrize("faults", [lost, full], ids=["lost", "full"])
async def test_a_task_that_cannot_be_kept_is_refused_and_leaves_nothing(
    faults: Callable[..., list[Exception]], where: str
) -> None:
    store = Faulty()
    lab = Lab(Tasks(store))
    async with calling(lab.app, R2026_07, **DECLARED) as calls:
        (store.faults if where == "before" else store.after)["create"] = faults()
        store.faults["change"] = full(1)
        error = (await calls.unchecked("tools/call", name="train", arguments={"rows": 1}))["error"]
        assert "engine" not in json.dumps(error)
        runner = lab.tasks.access.runner
        await until(lambda: not behind(lab.app).host.runs)

        async def settled() -> bool:
            return all(one.ended for one in await store.list_tasks("", "", 10))

        if faults is lost:
            async with asyncio.timeout(10):
                while not await settled():  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
        assert not runner.running
        assert not lab.began
    await store.close()


async def test_a_task_that_is_ended_while_it_is_kept_answers_as_a_task() -> None:
    asked, go = asyncio.Event(), asyncio.Event()

    class Slow(SqliteTasks):
        async def create(self, record: Any) -> None:
            asked.set()
            await go.wait()
            await super().create(record)

    store = Slow(":memory:")
    lab = Lab(Tasks(store), timeout=0.05)
    async with calling(lab.app, R2026_07, **DECLARED) as calls:
        making = asyncio.ensure_future(calls.unchecked("tools/call", name="train", arguments={"rows": 1}))
        await asked.wait()
        await until(lambda: not any(isinstance(run, DetachedRun) for run in runs(lab)))
        go.set()
        made = (await making)["result"]
        assert (await ended(calls, made["taskId"]))["status"] == "failed"
        assert not lab.began
    await store.close()


def runs(lab: Lab) -> list[Any]:
    return list(behind(lab.app).host.runs)


async def test_a_question_that_is_not_waited_for_any_more_is_asked_no_more() -> None:
    lab = Lab()

    @lab.app.tool(task=TaskPolicy(poll=0.05, patience=0.1))
    async def impatient(ctx: Context) -> str:
        try:
            await ctx.elicit("Now?", FORM)
        except Exception:
            lab.began.append("went on")
            await lab.go.wait()
        return "done"

    @lab.app.tool(task=TaskPolicy(poll=0.05))
    async def bounded(ctx: Context) -> str:
        try:
            async with asyncio.timeout(0.1):
                await ctx.elicit("Now?", FORM)
        except TimeoutError:
            lab.began.append("went on")
            await lab.go.wait()
        return "done"

    async with calling(lab.app, R2026_07, **DECLARED, **ELICITS) as calls:
        ids = [await begin(calls, name) for name in ("impatient", "bounded")]
        await until(lambda: len(lab.began) == 2)
        for id in ids:
            state = await becomes(calls, id, "working")
            assert "inputRequests" not in state
        lab.go.set()
        for id in ids:
            assert (await ended(calls, id))["result"]["content"][0]["text"] == "done"


async def begin(calls: Calls, tool: str, arguments: dict[str, Any] | None = None, **more: Any) -> str:
    """Begin a task."""
    if calls.revision.stateful:
        more["task"] = {}
    found = (await calls.unchecked("tools/call", name=tool, arguments=arguments or {}, **more))["result"]
    return str(found["task"]["taskId"] if calls.revision.stateful else found["taskId"])


async def test_a_run_from_the_top_asks_under_other_keys() -> None:
    store = Faulty()
    lab = Lab(Tasks(store), idempotent=True)
    async with calling(lab.app, R2026_07, **DECLARED, **ELICITS) as calls:
        first = (await becomes(calls, await begin(calls, "ask"), "input_required"))["inputRequests"]
        await SqliteTasks.create(store, orphan(store, name="ask", idempotent=True, params=ASK))
        state = await becomes(calls, "orphan-of-nobody", "input_required")
        assert not first.keys() & state["inputRequests"].keys()
        [key] = state["inputRequests"]
        answers = {key: {"action": "accept", "content": {"name": "Ada"}}}
        await calls.unchecked("tasks/update", taskId="orphan-of-nobody", inputResponses=answers)
        assert (await ended(calls, "orphan-of-nobody"))["result"]["content"][0]["text"] == "called Ada"
    await store.close()


async def test_an_orphan_waits_while_too_many_calls_go_on() -> None:
    store = Faulty()
    lab = Lab(Tasks(store), limits=Limits(detached_calls=1))
    async with calling(lab.app, R2026_07, **DECLARED) as calls:
        id = await begin(calls, "train", {"rows": 1})
        await SqliteTasks.create(store, orphan(store, idempotent=True))

        async def tried() -> bool:
            found = await store.read("orphan-of-nobody")
            return found is not None and found.runner != "gone"

        async with asyncio.timeout(10):
            while not await tried():  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert (await calls.unchecked("tasks/get", taskId="orphan-of-nobody"))["result"]["status"] == "working"
        lab.go.set()
        await ended(calls, id)
        done = await ended(calls, "orphan-of-nobody")
        assert done["status"] == "completed"
        record = await store.read("orphan-of-nobody")
        assert record is not None
        assert record.runs == 2
    await store.close()


async def test_where_too_many_calls_go_on_a_plain_call_ends_with_its_request() -> None:
    lab = Lab(limits=Limits(detached_calls=1))
    async with calling(lab.app, R2026_07, HERE, **DECLARED) as one, calling(lab.app, R2025_06, THERE) as two:
        await begin(one, "train", {"rows": 1})
        error = (await one.unchecked("tools/call", name="train", arguments={"rows": 1}))["error"]
        assert error["data"]["limit"] == "detached_calls"
        waiting = asyncio.ensure_future(two.call("train", {"rows": 2}))
        await until(lambda: len(lab.began) == 2)
        lab.go.set()
        assert (await waiting)["structuredContent"] == {"rows": 2, "name": ""}


async def test_one_address_leaves_room_for_the_tasks_of_others() -> None:
    lab = Lab(limits=Limits(detached_calls=20))
    async with (
        calling(lab.app, R2026_07, HERE, **DECLARED) as one,
        calling(lab.app, R2026_07, THERE, **DECLARED) as two,
    ):
        answers = [await one.unchecked("tools/call", name="train", arguments={"rows": 1}) for _ in range(30)]
        assert sum("result" in answer for answer in answers) == 10
        assert "result" in await two.unchecked("tools/call", name="train", arguments={"rows": 1})


@pytest.mark.parametrize("revision", [R2025_06, R2025_11], ids=lambda one: one.date)
async def test_calls_that_wait_for_tasks_leave_room_for_others(revision: Any) -> None:
    lab = Lab(limits=Limits(calls=40), answer_within=0.0)
    async with calling(lab.app, revision, HERE) as one, calling(lab.app, revision, THERE) as two:
        mine = (await one.call("train", {"rows": 1}))["structuredContent"]["task_id"]
        other = (await two.call("train", {"rows": 1}))["structuredContent"]["task_id"]

        def wait(calls: Calls, id: str) -> asyncio.Future[dict[str, Any]]:
            if revision is R2025_11:
                return asyncio.ensure_future(calls.unchecked("tasks/result", taskId=id))
            return asyncio.ensure_future(calls.unchecked("tools/call", name="task_result", arguments={"task_id": id}))

        waits = [wait(one, mine) for _ in range(30)]
        await until(lambda: sum(one.done() for one in waits) == 25)
        for each in waits:
            if each.done():
                answer = each.result()
                if revision is R2025_11:
                    assert answer["error"]["data"]["limit"] == "calls"
                else:
                    assert "Not done yet" in answer["result"]["content"][0]["text"]
        theirs = wait(two, other)
        assert (await two.call("add", {"a": 1, "b": 2}))["structuredContent"] is not None
        lab.go.set()
        assert "result" in await theirs
        await asyncio.gather(*waits)


async def test_plain_long_tools_leave_threads_for_quick_ones() -> None:
    lab = Lab(limits=Limits(threads=8))
    release = threading.Event()
    begun_threads: list[int] = []

    @lab.app.tool(task=True)
    def crunch() -> str:
        begun_threads.append(1)
        release.wait(30)
        return "crunched"

    @lab.app.tool
    def quick() -> str:
        return "quick"

    try:
        async with (
            calling(lab.app, R2026_07, HERE, **DECLARED) as one,
            calling(lab.app, R2026_07, THERE, **DECLARED) as two,
        ):
            ids = [await begin(one, "crunch") for _ in range(12)]
            await until(lambda: len(begun_threads) == 3)  # half of three quarters, for one caller
            assert (await one.call("quick"))["content"][0]["text"] == "quick"
            other = await begin(two, "crunch")
            await one.unchecked("tasks/cancel", taskId=ids[-1])
            assert (await ended(one, ids[-1]))["status"] == "cancelled"
            release.set()
            for id in ids[:-1]:
                assert (await ended(one, id))["status"] == "completed"
            assert (await ended(two, other))["status"] == "completed"
            share = behind(lab.app).host.detached_threads
            assert share.waiting == 0
            assert not share._allowance._counts_now.all
    finally:
        release.set()


async def test_a_drain_does_not_wait_for_answers_that_cannot_come() -> None:
    store = SqliteTasks(":memory:")
    lab = Lab(Tasks(store), limits=Limits(drain_timeout=60.0))

    @lab.app.tool(task=TaskPolicy(poll=0.05))
    def plainly(ctx: Context) -> str:
        answer = ctx.elicit("How?", FORM)
        return str(answer)

    async with serve(lab.app, urls="http://127.0.0.1:0/mcp") as serving:
        async with Client(serving.urls[0]) as client:
            await client.list_tools()
        async with calling(lab.app, R2026_07, **DECLARED, **ELICITS) as calls:
            ids = [await begin(calls, "ask"), await begin(calls, "plainly")]
            for id in ids:
                await becomes(calls, id, "input_required")
            async with asyncio.timeout(20):  # and not the minute of the drain
                await behind(lab.app).host.drain(60)
            async with asyncio.timeout(10):
                for id in ids:
                    record = await store.read(id)
                    while record is None or not record.ended:
                        await asyncio.sleep(0.01)
                        record = await store.read(id)
                    assert record.message == "the server was stopped before it was done"
    await store.close()


async def test_a_question_reaches_no_client_that_cannot_answer_it() -> None:
    lab = Lab(answer_within=0.05)
    async with (
        calling(lab.app, R2026_07, ADA, **DECLARED, **ELICITS) as calls,
        calling(lab.app, R2025_11, ADA) as mute,
        calling(lab.app, R2025_11, ADA, **ELICITS) as able,
    ):
        id = await begin(calls, "ask")
        await becomes(calls, id, "input_required")
        first = asyncio.ensure_future(mute.unchecked("tasks/result", taskId=id))
        second = asyncio.ensure_future(able.unchecked("tasks/result", taskId=id))
        await until(lambda: bool(asked_of(able)))
        again = asyncio.ensure_future(able.unchecked("tasks/result", taskId=id))
        await asyncio.sleep(0)
        [question] = asked_of(able)
        answer = {"jsonrpc": "2.0", "id": question["id"], "result": {"action": "accept", "content": {"name": "Ada"}}}
        able.channel.send(json.dumps(answer).encode())
        for each in (first, second, again):
            assert (await each)["result"]["content"][0]["text"] == "called Ada"
        assert not asked_of(mute)
        assert len(asked_of(able)) == 1


async def test_a_client_that_cancels_its_wait_is_asked_again_in_the_next() -> None:
    lab = Lab()
    async with calling(lab.app, R2025_11, **ELICITS) as calls:
        id = await begin(calls, "ask")
        for number in (1, 2, 3):
            message = {"jsonrpc": "2.0", "id": f"w{number}", "method": "tasks/result", "params": {"taskId": id}}
            calls.channel.send(json.dumps(message).encode())
            await until(lambda n=number: len(asked_of(calls)) == n)  # type: ignore[misc]
            cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": f"w{number}"}}
            calls.channel.send(json.dumps(cancel).encode())
            await until(lambda: all(isinstance(run, DetachedRun) for run in runs(lab)))
            await until(lambda: not any(lab.tasks.access._relays.values()))
        await calls.unchecked("tasks/cancel", taskId=id)


@pytest.mark.parametrize("error", [{"code": -32601, "message": "no"}, {"code": -1, "message": "User said no"}])
async def test_a_client_that_answers_a_question_with_an_error_writes_no_traceback(
    error: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    lab = Lab()
    async with calling(lab.app, R2025_11, **ELICITS) as calls:
        id = await begin(calls, "ask")
        waiting = asyncio.ensure_future(calls.unchecked("tasks/result", taskId=id))
        await until(lambda: bool(asked_of(calls)))
        calls.channel.send(json.dumps({"jsonrpc": "2.0", "id": asked_of(calls)[0]["id"], "error": error}).encode())
        await until(lambda: not any(lab.tasks.access._relays.values()))
        assert (await calls.unchecked("tasks/get", taskId=id))["result"]["status"] == "input_required"
        await calls.unchecked("tasks/cancel", taskId=id)
        assert "error" in await waiting
    assert not [one for one in caplog.records if one.levelname in ("ERROR", "WARNING")]


async def test_a_cursor_of_another_is_no_cursor() -> None:
    lab = Lab()
    async with calling(lab.app, R2025_11, ADA) as ada, calling(lab.app, R2025_11, EVE) as eve:
        id = await begin(ada, "train", {"rows": 1})
        odd = (await eve.unchecked("tasks/list", cursor="A" * 24))["error"]
        assert json.dumps((await eve.unchecked("tasks/list", cursor=id))["error"]).replace(id, "A" * 24) == json.dumps(
            odd
        )
        await ada.unchecked("tasks/cancel", taskId=id)


ODD = [
    "",
    " ",
    "\x00",
    "a\x00b",
    "\ud7ff",
    "\U0001f600",
    "../../x",
    "A" * 64,
    "A" * 65,
    "A" * 100_000,
    "%s",
    "'; --",
    "\n",
]


@pytest.mark.parametrize("id", ODD, ids=[f"{len(one)}-{one[:4]!a}" for one in ODD])
@pytest.mark.parametrize("revision", [R2025_11, R2026_07], ids=lambda one: one.date)
async def test_an_odd_id_is_unknown(revision: Any, id: str) -> None:
    lab = Lab()
    more: dict[str, Any] = {} if revision.stateful else DECLARED
    async with calling(lab.app, revision, **more) as calls:
        await begun(calls)
        methods = ["tasks/get", "tasks/cancel", "tasks/result" if revision.stateful else "tasks/update"]
        for method in methods:
            params: dict[str, Any] = {"inputResponses": {}} if method == "tasks/update" else {}
            error = (await calls.unchecked(method, taskId=id, **params))["error"]
            assert error["code"] == -32602
            assert len(json.dumps(error)) < 1000
        for odd in (None, 5, ["x"], {"a": 1}, True):
            for method in methods:
                params = {"inputResponses": {}} if method == "tasks/update" else {}
                assert (await calls.unchecked(method, taskId=odd, **params))["error"]["code"] == -32602
        if revision.stateful:
            listed = await calls.unchecked("tasks/list", cursor=id)
            assert ("error" in listed) is (id != "")
        for tool in ("task_status", "task_result", "task_cancel"):
            assert "Task not found" in await calls.refusal(tool, {"task_id": id})


async def test_answers_that_are_too_many_or_too_large() -> None:
    lab = Lab(Tasks(limits=TaskLimits(record_size=1 << 20)))
    async with calling(lab.app, R2026_07, **DECLARED, **ELICITS) as calls:
        id = await begin(calls, "ask")
        [key] = (await becomes(calls, id, "input_required"))["inputRequests"]
        many = {f"k{number}": {"action": "accept"} for number in range(10_000)}
        assert "result" in await calls.unchecked("tasks/update", taskId=id, inputResponses=many)
        large = {key: {"action": "accept", "content": {"name": "A" * (2 << 20)}}}
        assert "error" in await calls.unchecked("tasks/update", taskId=id, inputResponses=large)
        state = (await calls.unchecked("tasks/get", taskId=id))["result"]
        assert list(state["inputRequests"]) == [key]
        for odd in (5, None, {}, {"action": 5}, {"action": "accept", "content": {"name": 5}}, [1]):
            await calls.unchecked("tasks/update", taskId=id, inputResponses={key: odd})
            state = (await calls.unchecked("tasks/get", taskId=id))["result"]
            if state["status"] in ("failed", "completed", "cancelled"):
                break
            async with asyncio.timeout(10):
                while state["status"] == "working":
                    state = (await calls.unchecked("tasks/get", taskId=id))["result"]
            if state["status"] != "input_required":
                break
            [key] = state["inputRequests"]
        done = await ended(calls, id)
        assert "Traceback" not in json.dumps(done)


async def test_a_result_without_room_fails_and_ends() -> None:
    lab = Lab(Tasks(limits=TaskLimits(record_size=10_000)))

    @lab.app.tool(task=True)
    async def large() -> str:
        return "A" * 100_000

    @lab.app.tool(task=True)
    async def chatty(ctx: Context) -> str:
        for number in range(1000):
            await ctx.progress(number, 1000, "A" * 100_000)
        await lab.go.wait()
        return "said"

    async with calling(lab.app, R2026_07, **DECLARED) as calls:
        done = await ended(calls, await begin(calls, "large"))
        assert done["status"] == "failed"
        assert "record_size" in done["statusMessage"]
        id = await begin(calls, "chatty")
        lab.go.set()
        assert (await ended(calls, id))["status"] == "completed"


async def test_a_task_can_be_cancelled_though_its_store_is_full() -> None:
    store = Faulty()
    lab = Lab(Tasks(store))
    async with calling(lab.app, R2026_07, **DECLARED) as calls:
        id = await begin(calls, "train", {"rows": 1})
        await until(lambda: bool(lab.began))
        store.faults["change"] = full(1)
        assert "result" in await calls.unchecked("tasks/cancel", taskId=id)
        assert (await ended(calls, id))["status"] == "cancelled"
        await until(lambda: lab.stopped == ["train"])
    await store.close()


class _Leaky(Exception):
    message = "password=hunter2"


async def test_a_failure_tells_no_internals() -> None:
    lab = Lab()

    @lab.app.tool(task=True)
    async def leaky() -> str:
        raise _Leaky("password=hunter2")

    @lab.app.tool(task=True)
    async def unsendable() -> str:
        from dragoman.jsonrpc.errors import RpcError

        raise RpcError.of(-31000, "odd", {"it": object()})

    async with calling(lab.app, R2026_07, **DECLARED) as calls:
        assert "hunter2" not in json.dumps(await ended(calls, await begin(calls, "leaky")))
        assert (await ended(calls, await begin(calls, "unsendable")))["status"] == "failed"


@pytest.mark.parametrize("revision", [R2025_11, R2026_07], ids=lambda one: one.date)
async def test_a_task_that_has_ended_leaves_nothing_in_memory(revision: Any) -> None:
    lab = Lab()
    lab.go.set()
    more: dict[str, Any] = {} if revision.stateful else DECLARED
    async with calling(lab.app, revision, **more) as calls:
        await calls.tools()
        runner = lab.tasks.access.runner
        seen: list[weakref.ref[Any]] = []
        follow = runner.follow

        def watched(task: Any, call: Any, error_of: Any) -> None:
            seen.append(weakref.ref(task))
            follow(task, call, error_of)

        runner.follow = watched  # type: ignore[method-assign]
        for _ in range(20):
            await ended(calls, await begin(calls, "train", {"rows": 1}))
        await until(lambda: not runner.running and not runner._waiting)
        await until(lambda: not runs(lab))

        def alive() -> int:
            gc.collect()
            return sum(one() is not None for one in seen)

        await until(lambda: not alive())
        detached = behind(lab.app).host.detached
        assert detached is not None
        assert not detached._counts_now.all


async def test_one_server_served_twice_at_once_and_on_two_loops() -> None:
    lab = Lab()
    lab.go.set()

    @lab.app.tool(task=TaskPolicy(poll=0.05))
    async def echo(text: str) -> str:
        return text

    async def use() -> None:
        async with calling(lab.app, R2026_07, **DECLARED) as one, calling(lab.app, R2026_07, **DECLARED) as two:
            id = await begin(one, "echo", {"text": "hi"})
            assert (await ended(two, id))["result"]["content"][0]["text"] == "hi"

    await use()
    await asyncio.to_thread(asyncio.run, use())
    assert not [loop for loop in lab.tasks.access.runners if loop.is_closed()]


@pytest.mark.parametrize("revision", [R2025_06, R2025_11, R2026_07], ids=lambda one: one.date)
@pytest.mark.parametrize("step", ["before", "create", "kept"])
async def test_a_client_that_leaves_at_any_step_leaves_no_task_that_runs_unknown(revision: Any, step: str) -> None:
    """Before its record is asked for, while it is kept, and when it is kept but not told."""
    reached, go = asyncio.Event(), asyncio.Event()

    class Held(SqliteTasks):
        async def now(self) -> float:
            await hold("before")
            return await super().now()

        async def create(self, record: Any) -> None:
            await hold("create")
            await super().create(record)
            await hold("kept")

    armed = False

    async def hold(name: str) -> None:
        nonlocal armed
        if armed and name == step:
            armed = False
            reached.set()
            await go.wait()

    store = Held(":memory:")
    lab = Lab(Tasks(store), answer_within=0.0)
    more: dict[str, Any] = {} if revision.stateful else {"_meta": META}
    if revision is R2025_11:
        more["task"] = {}
    async with calling(lab.app, revision, **({} if revision.stateful else DECLARED)) as calls:
        await calls.tools()
        armed = True
        params = {"name": "train", "arguments": {"rows": 1}, **more}
        calls.channel.send(json.dumps({"jsonrpc": "2.0", "id": 77, "method": "tools/call", "params": params}).encode())
        await reached.wait()
        calls.channel.send(b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":77}}')
        await until(lambda: not runs(lab))
        go.set()
        runner = lab.tasks.access.runner
        await until(lambda: not runner._work)
        assert not runner.running
        assert all(one.status == "cancelled" for one in await store.list_tasks("", "", 10))
        assert len(lab.stopped) == len(lab.began)
    await store.close()


META = {
    "io.modelcontextprotocol/protocolVersion": R2026_07.date,
    "io.modelcontextprotocol/clientCapabilities": DECLARED,
}


async def test_a_flood_of_tasks_of_one_caller_leaves_room_in_the_store_for_another() -> None:
    lab = Lab(Tasks(limits=TaskLimits(tasks=100, tasks_each=20)))
    lab.go.set()
    async with calling(lab.app, R2026_07, ADA, **DECLARED) as ada, calling(lab.app, R2026_07, EVE, **DECLARED) as eve:
        answers = [await ada.unchecked("tools/call", name="train", arguments={"rows": 1}) for _ in range(30)]
        assert sum("result" in answer for answer in answers) == 20
        assert "tasks_each" in answers[-1]["error"]["message"]
        assert (await ended(eve, await begin(eve, "train", {"rows": 1})))["status"] == "completed"
        plain = await ada.ask("tools/call", name="add", arguments={"a": 1, "b": 2})
        assert "result" in plain
        await until(lambda: not runs(lab))


async def test_the_user_of_this_machine_is_that_also_when_a_task_is_begun_again() -> None:
    """Such a caller has every role, though it has none by name."""
    store = Faulty()
    lab = Lab(Tasks(store))

    @lab.app.tool(task=TaskPolicy(idempotent=True), roles="judge")
    async def verdict() -> str:
        return "innocent"

    async with calling(lab.app, R2026_07, **DECLARED) as calls:
        await calls.tools()
        params, caller = Raw(b'{"name":"verdict","arguments":{}}'), keep_identity(LocalUser(subject="ada"))
        await SqliteTasks.create(store, orphan(store, name="verdict", idempotent=True, params=params, caller=caller))
        done = await ended(calls, "orphan-of-nobody")
        assert done["result"]["content"][0]["text"] == "innocent"
    await store.close()
