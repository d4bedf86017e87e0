"""What is sent of tasks, as it stands on the wire; who is told of them; and what a service with tasks looks like."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any, cast

import pytest

from dragoman import (
    BadAnswer,
    CallTimeout,
    Context,
    Identity,
    InvalidParams,
    LocalError,
    RpcError,
    Service,
    TaskPolicy,
    connect,
    serve,
)
from dragoman.channel import Caller
from dragoman.jsonrpc.limits import SERVER
from dragoman.rpc.detached import PROGRESS_SIZE
from dragoman.tasks import SqliteTasks, TaskLimits, TaskSettings
from tests.engines.wires import until
from tests.rpc.tasks.lab import Lab, Report

ADA, EVE = Caller(identity=Identity(subject="ada")), Caller(identity=Identity(subject="eve"))


async def ask(api: Service, method: str, params: Any, caller: Caller | None = None) -> Any:
    """The result or the error of a call, as JSON values."""
    text = json.dumps({"jsonrpc": "2.0", "method": method, "params": params, "id": 1}).encode()
    answer = json.loads(await api.answer_async(text, caller=caller or Caller()) or b"")
    assert answer["id"] == 1
    return answer.get("result", answer.get("error"))


async def test_the_messages_of_a_task() -> None:
    lab = Lab()
    started = await ask(lab.api, "tasks.start", {"method": "train", "params": {"rows": 3}})
    id = started["id"]
    assert started == {
        "id": id,
        "method": "train",
        "status": "working",
        "created": started["created"],
        "updated": started["created"],
        "until": started["created"] + 3600,
        "poll": 1.0,
    }
    assert len(id) == 24
    got = await ask(lab.api, "tasks.get", {"id": id, "after": started["updated"], "wait": 20})
    assert got["progress"] == {"done": 1, "of": 3}
    assert got["updated"] > started["updated"]
    assert await ask(lab.api, "tasks.result", [id]) == got
    lab.go.set()
    done = await ask(lab.api, "tasks.result", {"id": id, "wait": 20})
    assert done["status"] == "completed"
    assert done["result"] == {"rows": 3}
    assert done["until"] == pytest.approx(done["updated"] + 3600, abs=1)
    assert await ask(lab.api, "tasks.cancel", {"id": id}) == {k: v for k, v in done.items() if k != "result"}


FAILURES = {
    "print_it": (1001, "Out of paper", {"rows": 3}),
    "refuse": (-32000, "Too many", None),
}


@pytest.mark.parametrize("method", FAILURES)
async def test_the_error_of_a_task(method: str) -> None:
    lab = Lab()
    id = (await ask(lab.api, "tasks.start", [method]))["id"]
    failed = await ask(lab.api, "tasks.result", {"id": id, "wait": 20})
    code, message, data = FAILURES[method]
    assert failed["status"] == "failed"
    assert failed["error"] == {"code": code, "message": message} | ({} if data is None else {"data": data})
    assert failed["message"] == message


async def test_what_a_function_raised_is_masked() -> None:
    lab = Lab()
    id = (await ask(lab.api, "tasks.start", ["break_down"]))["id"]
    failed = await ask(lab.api, "tasks.result", {"id": id, "wait": 20})
    assert failed["error"]["code"] == -32603
    assert failed["error"]["data"].keys() == {"reference"}
    assert "a detail" not in json.dumps(failed)


async def test_a_caller_of_json_rpc_1() -> None:
    lab = Lab(accept_v1=True)
    lab.go.set()
    answer = json.loads(await lab.api.answer_async(b'{"method":"tasks.start","params":["train",[3]],"id":1}') or b"")
    assert answer["error"] is None
    result = b'{"method":"tasks.result","params":["%b",20],"id":2}' % answer["result"]["id"].encode()
    assert json.loads(await lab.api.answer_async(result) or b"")["result"]["result"] == {"rows": 3}


WRONG = {
    "a method that is none": ({"method": "nope"}, -32601),
    "a method without tasks": ({"method": "add", "params": [1, 2]}, -32602),
    "arguments that do not fit": ({"method": "train", "params": {"rows": "x"}}, -32602),
    "arguments that are no structure": ({"method": "train", "params": 3}, -32602),
    "no method": ({}, -32602),
    "a method of tasks": ({"method": "tasks.start", "params": ["train", [3]]}, -32602),
    "the document": ({"method": "rpc.discover"}, -32602),
    "an unknown member": ({"method": "train", "params": [3], "again": "x"}, -32602),
}


@pytest.mark.parametrize("case", WRONG)
async def test_what_is_not_started(case: str) -> None:
    lab = Lab()
    params, code = WRONG[case]
    assert (await ask(lab.api, "tasks.start", params))["code"] == code
    assert lab.began == []


@pytest.mark.parametrize("method", ["tasks.get", "tasks.result", "tasks.cancel"])
async def test_an_unknown_task(method: str) -> None:
    lab = Lab()
    for id in ("", "x", "x" * 24, "a key of others", "\u0000", "x" * 10_000):
        error = await ask(lab.api, method, [id])
        assert error["code"] == -32602
        assert "is unknown, or its time is over" in error["message"]
        assert len(error["message"]) < 200


async def test_elements_of_a_batch() -> None:
    lab = Lab()
    lab.go.set()
    start = {"jsonrpc": "2.0", "method": "tasks.start", "params": ["train", [3]]}
    batch = [start | {"id": 1}, start, start | {"id": 2, "params": ["nope"]}, start | {"id": 3}]
    answers = json.loads(await lab.api.answer_async(json.dumps(batch).encode()) or b"")
    assert [one["id"] for one in answers] == [1, 2, 3]
    assert answers[1]["error"]["code"] == -32601
    ids = {one["result"]["id"] for one in (answers[0], answers[2])}
    waits = [{"jsonrpc": "2.0", "method": "tasks.result", "params": [id, 20], "id": 1} for id in sorted(ids)]
    outcomes = json.loads(await lab.api.answer_async(json.dumps(waits).encode()) or b"")
    assert [one["result"]["result"] for one in outcomes] == [{"rows": 3}] * 2
    await until(lambda: len(lab.began) == 3)  # also that of the notification


async def test_the_channel_that_asks_for_it_is_notified() -> None:
    lab = Lab()
    async with serve(lab.api, urls="tcp://127.0.0.1:0") as serving, connect(serving.urls[0]) as peer:
        changes = peer.notifications("tasks.changed")
        await peer.start("train", [1])
        task = await peer.start("train", [3], notify=True)
        lab.go.set()
        statuses = []
        async with asyncio.timeout(20):
            async for one in changes:
                assert one.params["id"] == task.id
                statuses.append(one.params["status"])
                if statuses[-1] == "completed":
                    break
        assert statuses[-1] == "completed"


async def test_another_principal_does_not_know_a_task() -> None:
    lab = Lab()
    mine = (await ask(lab.api, "tasks.start", ["train", [3]], ADA))["id"]
    assert (await ask(lab.api, "tasks.get", [mine], ADA))["status"] == "working"
    for caller in (EVE, Caller()):
        for method in ("tasks.get", "tasks.result", "tasks.cancel"):
            assert (await ask(lab.api, method, [mine], caller))["code"] == -32602
    nobodys = (await ask(lab.api, "tasks.start", ["train", [3]]))["id"]
    assert (await ask(lab.api, "tasks.get", [nobodys], EVE))["status"] == "working"


class Guarded:
    """A service whose `train` needs the scope "train", and whose `judge` the role "judge"."""

    def __init__(self) -> None:
        self.api = api = Service("guarded")

        @api.method(task=True, scopes="train")
        async def train(rows: int) -> int:
            return rows

        @api.method(task=True, roles="judge", allow=lambda identity, given: given is None or given["rows"] < 10)
        async def judge(rows: int) -> int:
            return rows


def who(name: str, scopes: str = "", roles: str = "") -> Caller:
    return Caller(identity=Identity(subject=name, scopes=frozenset(scopes.split()), roles=frozenset(roles.split())))


async def test_what_a_method_demands_is_demanded_of_its_start_and_of_its_tasks() -> None:
    api = Guarded().api
    error = await ask(api, "tasks.start", ["train", [3]], who("ada"))
    assert error["code"] == -32004
    id = (await ask(api, "tasks.start", ["train", [3]], who("ada", "train")))["id"]
    assert (await ask(api, "tasks.result", [id, 20], who("ada", "train")))["result"] == 3
    assert (await ask(api, "tasks.result", [id], who("ada")))["code"] == -32004
    assert (await ask(api, "tasks.result", [id], who("eve", "train")))["code"] == -32602
    assert (await ask(api, "tasks.start", ["judge", [30]], who("ada", roles="judge")))["code"] == -32004
    assert (await ask(api, "tasks.start", ["judge", [3]], who("ada", roles="judge")))["status"] == "working"


async def test_the_methods_of_tasks_are_listed_for_those_that_may_start_one() -> None:
    lab = Lab()
    document = await ask(lab.api, "rpc.discover", [])
    found = {one["name"]: one for one in document["methods"]}
    assert {"tasks.start", "tasks.get", "tasks.result", "tasks.cancel"} < found.keys()
    assert found["train"]["x-task"] is True
    assert "x-task" not in found["add"]
    assert {one["name"]: one["required"] for one in found["tasks.start"]["params"]} == {
        "method": True,
        "params": False,
        "notify": False,
    }
    assert document["components"]["schemas"]["TaskOutcome"]["properties"].keys() > {"result", "error", "status"}
    api = Service("roles")

    @api.method(task=True, roles="judge")
    async def judge() -> None: ...

    @api.method
    async def look() -> None: ...

    names = [one["name"] for one in (await ask(api, "rpc.discover", [], who("ada")))["methods"]]
    assert names == ["look"]
    names = [one["name"] for one in (await ask(api, "rpc.discover", [], who("ada", roles="judge")))["methods"]]
    assert names == ["judge", "look", "tasks.cancel", "tasks.get", "tasks.result", "tasks.start"]


def test_a_service_without_tasks_has_no_methods_for_them() -> None:
    api = Service("plain")
    assert (
        json.loads(api.answer(b'{"jsonrpc":"2.0","method":"tasks.get","params":["x"],"id":1}') or b"")["error"]["code"]
        == -32601
    )
    assert api._lifespan is None


async def test_bounds_of_the_store() -> None:
    lab = Lab(tasks=TaskSettings(limits=TaskLimits(tasks=4, tasks_each=1, record_size=50_000)))
    assert (await ask(lab.api, "tasks.start", ["train", [3]], ADA))["status"] == "working"
    error = await ask(lab.api, "tasks.start", ["train", [3]], ADA)
    assert error["code"] == -32003
    assert "tasks_each allows 1" in error["message"]
    assert (await ask(lab.api, "tasks.start", ["train", [3]], EVE))["status"] == "working"
    assert lab.began == ["train"] * 2
    large = (await ask(lab.api, "tasks.start", ["count", [20_000]]))["id"]
    failed = await ask(lab.api, "tasks.result", [large, 20])
    assert failed["status"] == "failed"
    assert "no room in the store of tasks" in failed["error"]["message"]


async def test_a_result_that_no_answer_has_room_for() -> None:
    lab = Lab(limits=SERVER.but(response_size=60_000))
    fits = (await ask(lab.api, "tasks.start", ["count", [8_000]]))["id"]
    assert (await ask(lab.api, "tasks.result", [fits, 20]))["result"] == list(range(8_000))
    large = (await ask(lab.api, "tasks.start", ["count", [9_000]]))["id"]
    failed = await ask(lab.api, "tasks.result", [large, 20])
    assert failed["error"]["code"] == -32003
    assert failed["error"]["data"]["limit"] == "response_size"


async def test_too_many_answers_that_wait() -> None:
    lab = Lab(limits=SERVER.but(calls=40))
    id = (await ask(lab.api, "tasks.start", ["train", [3]], ADA))["id"]
    waits = [asyncio.ensure_future(ask(lab.api, "tasks.result", [id, 20], ADA)) for _ in range(30)]
    done, waiting = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    while len(done) < 20:  # those that are refused are refused at once
        more, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        done |= more
    assert all(one.result()["code"] == -32000 for one in done)
    assert (await ask(lab.api, "tasks.get", [id], ADA))["status"] == "working"
    lab.go.set()
    assert [(await one)["status"] for one in waiting] == ["completed"] * 10


async def test_a_long_progress_is_dropped() -> None:
    api = Service("talk")
    said: list[bool] = []

    @api.method(task=True)
    async def talk(context: Context) -> str:
        said.append(bool(await context.progress("x" * PROGRESS_SIZE)))
        said.append(bool(await context.progress("short")))
        return "done"

    id = (await ask(api, "tasks.start", ["talk"]))["id"]
    done = await ask(api, "tasks.result", [id, 20])
    assert done["progress"] == "short"
    assert said == [False, True]


async def test_the_time_of_a_task() -> None:
    lab = Lab(TaskPolicy(timeout=0.1))
    id = (await ask(lab.api, "tasks.start", ["train", [3]]))["id"]
    failed = await ask(lab.api, "tasks.result", [id, 20])
    assert failed["error"]["code"] == -32002
    assert lab.stopped == ["train"]


async def test_slots_of_a_method_are_waited_for_by_the_task_and_not_by_its_start() -> None:
    api, go = Service("one"), asyncio.Event()
    running: list[int] = []

    @api.method(task=True, concurrency=1)
    async def one(number: int) -> int:
        running.append(number)
        await go.wait()
        running.remove(number)
        return number

    first = (await ask(api, "tasks.start", ["one", [1]]))["id"]
    second = (await ask(api, "tasks.start", ["one", [2]]))["id"]
    await until(lambda: bool(running))
    assert running == [1]
    go.set()
    assert (await ask(api, "tasks.result", [first, 20]))["result"] == 1
    assert (await ask(api, "tasks.result", [second, 20]))["result"] == 2


async def test_middleware_is_around_the_work_of_a_task() -> None:
    lab = Lab()
    seen: list[Any] = []

    @lab.api.use
    async def around(call: Any, next: Any) -> Any:
        if call.method == "train":
            seen.append((call.method, dict(call.arguments)))
            call.arguments = {"rows": 5}
            result = await next(call)
            seen.append(result)
            return result
        return await next(call)

    lab.go.set()
    id = (await ask(lab.api, "tasks.start", {"method": "train", "params": {"rows": 3}}))["id"]
    assert (await ask(lab.api, "tasks.result", [id, 20]))["result"] == {"rows": 5}
    assert seen == [("train", {"rows": 3}), Report(5)]
    id = (await ask(lab.api, "tasks.start", {"method": "count", "params": {"to": "x"}}))["id"]
    assert (await ask(lab.api, "tasks.result", [id, 20]))["error"]["code"] == -32602


async def test_an_included_service_has_its_tasks_there() -> None:
    lab = Lab()
    outer = Service("outer")
    outer.include(lab.api, namespace="lab")
    lab.go.set()
    id = (await ask(outer, "tasks.start", ["lab.train", [3]]))["id"]
    assert (await ask(outer, "tasks.result", [id, 20]))["result"] == {"rows": 3}
    assert (await ask(lab.api, "tasks.get", [id]))["code"] == -32602
    assert (await ask(outer, "lab.tasks.start", ["train", [3]]))["code"] == -32601


def test_where_tasks_of_included_services_are_kept() -> None:
    first, second, third = (Service(name, tasks=f"sqlite:{name}.db") for name in ("a", "b", "a"))
    outer, own = Service("outer"), Service("own", tasks="memory:")
    outer.include(first, namespace="first")
    assert outer._task_settings == TaskSettings(store="sqlite:a.db")
    outer.include(third, namespace="third")
    with pytest.raises(LocalError, match="keeps tasks elsewhere"):
        outer.include(second, namespace="second")
    own.include(second)
    assert own._task_settings == TaskSettings(store="memory:")


async def nothing() -> None: ...


WRONG_USES: dict[str, Callable[[], Any]] = {
    "tasks is True": lambda: Service("x", tasks=cast("Any", 3)),
    "task is True or False, or a TaskPolicy": lambda: Service("x").method("y", task=cast("Any", 3))(nothing),
    "an inline function is quick": lambda: Service("x").method("y", task=True, inline=True)(len),
    "answer_within of a TaskPolicy is for tools": lambda: Service("x").method("y", task=TaskPolicy(answer_within=3))(
        nothing
    ),
    "keep is at least 60 seconds": lambda: TaskPolicy(keep=3),
    "limits is a TaskLimits": lambda: TaskSettings(limits=cast("Any", 3)),
    "store is text": lambda: TaskSettings(store=cast("Any", 3)),
}


@pytest.mark.parametrize("words", WRONG_USES)
def test_wrong_uses(words: str) -> None:
    with pytest.raises(LocalError, match=words):
        WRONG_USES[words]()


def test_names_that_tasks_take() -> None:
    async def go() -> None: ...

    api = Service("x", tasks=True)
    with pytest.raises(LocalError, match=r"has a method 'tasks\.get' already"):
        api.method("tasks.get")(go)
    other = Service("y")
    other.method("tasks.get")(go)
    with pytest.raises(LocalError, match=r"tasks\.get is a method of tasks"):
        other.method("long", task=True)(go)
    assert list(other.methods) == ["tasks.get"]


async def test_a_start_that_is_not_waited_for_leaves_no_task() -> None:
    may, asked = asyncio.Event(), asyncio.Event()

    class SlowTasks(SqliteTasks):
        kept = ""

        async def create(self, record: Any) -> None:
            asked.set()
            await may.wait()
            await super().create(record)
            self.kept = record.id

    store = SlowTasks(":memory:")
    lab = Lab(tasks=store)
    starting = asyncio.ensure_future(ask(lab.api, "tasks.start", ["train", [3]]))
    await asked.wait()
    starting.cancel()
    await asyncio.wait([starting])
    may.set()
    await until(lambda: store.kept != "")
    assert (await ask(lab.api, "tasks.result", [store.kept, 20]))["status"] == "cancelled"


def crunch_elsewhere(rows: int, context: Context) -> int:
    context.progress({"rows": rows})
    return 2 * rows


async def test_a_task_runs_in_a_child_process() -> None:
    api = Service("children")
    api.method(task=True, process=True)(crunch_elsewhere)
    id = (await ask(api, "tasks.start", ["crunch_elsewhere", [3]]))["id"]
    done = await ask(api, "tasks.result", [id, 20])
    assert (done["result"], done["progress"]) == (6, {"rows": 3})


async def test_a_peer_that_is_called_may_have_tasks() -> None:
    lab, caller = Lab(), Service("caller")
    lab.go.set()

    @caller.method
    async def please(context: Context) -> int:
        assert context.peer is not None
        task = await context.peer.start("train", [3], result=Report)
        return (await task.result(timeout=20)).rows

    async with (
        serve(caller, urls="tcp://127.0.0.1:0") as serving,
        connect(serving.urls[0], service=lab.api) as peer,
    ):
        assert await peer.call("please") == 3


async def test_a_task_calls_its_caller_while_that_is_there() -> None:
    api = Service("asks")

    @api.method(task=True)
    async def asks(context: Context) -> Any:
        return await context.call("name")

    mine = Service("mine")
    mine.method("name", inline=True)(lambda: "Ada")
    async with serve(api, urls="tcp://127.0.0.1:0") as serving, connect(serving.urls[0], service=mine) as peer:
        task = await peer.start("asks")
        assert await task.result(timeout=20) == "Ada"
    id = (await ask(api, "tasks.start", ["asks"]))["id"]
    assert (await ask(api, "tasks.result", [id, 20]))["error"]["code"] == -32600


async def test_results_that_do_not_fit() -> None:
    lab = Lab()
    async with serve(lab.api, urls="memory:fit"), connect("memory:fit") as peer:
        task = await peer.start("count", [3], result=str)
        with pytest.raises(BadAnswer, match="count"):
            await task.result(timeout=20)
        assert await peer.task(task.id).result() == [0, 1, 2]
        long = await peer.start("train", [3])
        with pytest.raises(CallTimeout, match=r"has not ended within 0\.05 s"):
            await long.result(timeout=0.05)
        with pytest.raises(LocalError, match="timeout is a number of seconds"):
            await long.result(timeout=-1)
        with pytest.raises(InvalidParams):
            await peer.task("nope").status()
        await long.cancel()
        with pytest.raises(RpcError, match="the task was cancelled"):
            await long.result()
