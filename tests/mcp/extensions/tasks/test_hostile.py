"""Our client at servers that break the rules of tasks, as bytes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from dragoman.jsonrpc.errors import BadAnswer, CallTimeout, InvalidParams, LocalError, RpcError
from dragoman.mcp import Client, TasksClient
from dragoman.mcp.extensions.tasks import following
from tests.mcp.scripted import Dies, Error, Message, Result, Scripted, legacy, modern, notification

NAME = "io.modelcontextprotocol/tasks"
TOOL = {"name": "train", "inputSchema": {"type": "object"}, "execution": {"taskSupport": "required"}}
DONE: dict[str, Any] = {"result": {"content": [{"type": "text", "text": "done"}]}}


def state(status: str = "working", **members: Any) -> dict[str, Any]:
    """A task, as 2026-07-28 shows it."""
    usual = {"taskId": "t1", "status": status, "createdAt": "2026-01-01T00:00:00Z", "ttlMs": 60_000}
    return {**usual, "lastUpdatedAt": "2026-01-01T00:00:00Z", "pollIntervalMs": 50, **members}


def asks(*keys: str, message: str = "Name?") -> dict[str, Any]:
    """A task that asks these questions."""
    form = {"mode": "form", "message": message, "requestedSchema": {"type": "object", "properties": {}}}
    return state(
        "input_required", inputRequests={key: {"method": "elicitation/create", "params": form} for key in keys}
    )


def serving(
    *states: Any, created: dict[str, Any] | None = None, more: Callable[[Message], Any] | None = None
) -> Scripted:
    """A server whose `tasks/get` answers with these states, the last again and again, and which pushes none."""
    left: Iterator[Any] = iter(states)
    latest: list[Any] = []

    def answers(message: Message) -> Iterable[Any]:
        method = message.get("method")
        if more is not None and (found := more(message)) is not None:
            return [found]
        if method == "tools/call":
            return [Result({"resultType": "task", **(state() if created is None else created)})]
        if method == "tasks/get":
            latest[:] = [next(left, latest[0] if latest else None)]
            said = latest[0]
            return [said if isinstance(said, Error | Result | Dies) else Result({"resultType": "complete", **said})]
        if method in ("tasks/update", "tasks/cancel"):
            return [Result({"resultType": "complete"})]
        return [Error(-32601)] if "id" in message else []

    return modern(answers, extensions={NAME: {}})


async def called(server: Scripted, **options: Any) -> Any:
    async with asyncio.timeout(20):
        async with Client(server, extensions=[TasksClient()], **options) as client:
            return await client.call_tool("train")


WRONG: dict[str, tuple[list[Any], str]] = {
    "an unknown status": ([state("resting")], "unknown status 'resting'"),
    "another task": ([state(taskId="t2")], "answers with the task 't2' in place of 't1'"),
    "no id": ([{**state(), "taskId": None}], "answers with the task None"),
    "no result": ([state("completed")], "completed, and has no result"),
    "no error": ([state("failed")], "failed, and has no error"),
    "an error that is none": ([state("failed", error={"code": "x"})], "the error of the task cannot be read"),
    "a task in place of a state": ([Result({"resultType": "task", **state()})], "only tools/call may become"),
    "questions that need no answer": ([asks("a")], "was not declared"),
    "a question that no server may ask": (
        [state("input_required", inputRequests={"a": {"method": "tools/call", "params": {}}})], "no server may ask",
    ),
    "questions that are too deep": (
        [state("input_required", inputRequests={"a": json.loads("[" * 900 + "]" * 900)})], "depth allows 512 levels",
    ),
    "too many questions at once": ([asks(*map(str, range(101)))], "asks 101 questions at once"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
async def test_a_state_that_is_wrong_is_no_answer(case: str) -> None:
    states, words = WRONG[case]
    server = serving(*states)
    with pytest.raises(BadAnswer, match=words):
        await called(server)
    ended = case in ("no result", "no error", "an error that is none")
    assert ("tasks/cancel" in server.methods()) is not ended


CREATED = {
    "no id": ({**state(), "taskId": ""}, "a task that has no id"),
    "an unknown status": (state("resting"), "unknown status"),
}


@pytest.mark.parametrize("case", CREATED)
async def test_a_task_that_is_created_wrongly(case: str) -> None:
    created, words = CREATED[case]
    with pytest.raises(BadAnswer, match=words):
        await called(serving(state("completed", **DONE), created=created))


async def test_an_id_without_measure() -> None:
    with pytest.raises(LocalError, match="1 to 1000 characters"):
        await called(serving(created=state(taskId="x" * 5_000)))


async def test_a_task_in_place_of_another_result() -> None:
    server = serving(
        more=lambda one: Result({"resultType": "task", **state()}) if one["method"] == "prompts/get" else None
    )
    async with Client(server, extensions=[TasksClient()]) as client:
        with pytest.raises(BadAnswer, match="prompts/get: the server answers with a task, which only tools/call"):
            await client.get_prompt("x")


async def test_questions_are_answered_once_each() -> None:
    heard: list[str] = []

    def answer(question: Any) -> dict[str, Any]:
        heard.append(question.message)
        return {}

    server = serving(asks("a"), asks("a"), asks("a"), asks("a", "b"), asks("b"), state(), state("completed", **DONE))
    assert (await called(server, on_elicit=answer)).text == "done"
    assert len(heard) == 2
    answered = [one["params"]["inputResponses"] for one in server.of("tasks/update")]
    assert [list(one) for one in answered] == [["a"], ["b"]]


async def test_another_question_under_a_used_key() -> None:
    server = serving(asks("a"), asks("a", message="And your password?"))
    with pytest.raises(BadAnswer, match="another question under the key 'a'"):
        await called(server, on_elicit=lambda question: {})
    assert "tasks/cancel" in server.methods()


async def test_questions_without_end() -> None:
    server = serving(*(asks(f"q{number}") for number in range(200)))
    with pytest.raises(BadAnswer, match="more than 100 questions"):
        await called(server, on_elicit=lambda question: {})
    assert len(server.of("tasks/update")) <= 100


async def test_a_task_that_goes_on_after_its_end() -> None:
    tasks = TasksClient()
    async with Client(serving(state("completed", **DONE), state()), extensions=[tasks]):
        handle = tasks.task("t1")
        assert (await handle.status()).ended
        with pytest.raises(BadAnswer, match="the task was completed, and is working now"):
            await handle.status()


PAUSES = {
    "none": (None, 1.0, 1.2),
    "zero": (0.0, 0.05, 0.06),
    "in the past": (-5.0, 0.05, 0.06),
    "a year": (31_536_000.0, 300.0, 360.0),
    "two seconds": (2.0, 2.0, 2.4),
}


@pytest.mark.parametrize("case", PAUSES)
def test_pauses_between_looks_have_bounds(case: str) -> None:
    named, least, most = PAUSES[case]
    assert all(least <= following.pause_of(named) <= most for _ in range(100))
    assert 300 <= following.pause_of(named, 300) <= 360


async def test_a_time_to_live_that_is_over_changes_nothing() -> None:
    over: dict[str, Any] = {"ttlMs": -1, "createdAt": "1970-01-01T00:00:00Z"}
    assert (await called(serving(state(**over), state("completed", **DONE, **over)))).text == "done"


async def test_an_unknown_task_is_not_cancelled() -> None:
    server = serving(Error(-32602, "Task not found"))
    with pytest.raises(InvalidParams, match="Task not found"):
        await called(server)
    assert "tasks/cancel" not in server.methods()


async def test_a_server_that_is_busy_is_asked_again() -> None:
    busy = Error(-32000, "Busy", {"retry_after": 0.01})
    server = serving(busy, Error(-32603, "Internal error"), state("completed", **DONE))
    assert (await called(server)).text == "done"
    assert len(server.of("tasks/get")) == 3


async def test_a_server_that_pushes_nothing_is_asked_for_that_once() -> None:
    server = serving(state("completed", **DONE))
    async with Client(server, extensions=[TasksClient()]) as client:
        for _ in range(3):
            assert (await client.call_tool("train")).text == "done"
    assert len(server.of("subscriptions/listen")) == 1


LOOKED_UP = {
    "an unknown status": state("resting"),
    "no status": {"taskId": "t1"},
    "no result": state("completed"),
    "no questions": state("input_required", inputRequests=3),
}


@pytest.mark.parametrize("case", LOOKED_UP)
async def test_a_push_that_is_wrong_is_looked_up(case: str) -> None:
    server = serving(state(pollIntervalMs=3_600_000), state("completed", **DONE))

    def script(message: Message) -> Iterable[Any]:
        tag: Any = {"_meta": {"io.modelcontextprotocol/subscriptionId": message.get("id")}}
        if message.get("method") == "subscriptions/listen":
            granted = {"taskIds": ["t1"]}
            return [notification("notifications/subscriptions/acknowledged", notifications=granted, **tag)]
        found = [*plain(message)]
        if message.get("method") == "tasks/get" and len(server.of("tasks/get")) == 1:
            for params in ({}, state("completed", taskId="t2"), LOOKED_UP[case]):
                found.append(notification("notifications/tasks", **params))
        return found

    plain, server.script = server.script, script
    assert (await called(server)).text == "done"
    assert len(server.of("tasks/get")) == 2


async def test_pushes_without_end_do_not_make_looks_without_pause() -> None:
    server = serving(state())

    def script(message: Message) -> Iterable[Any]:
        if message.get("method") == "tasks/get":  # each look makes the next one necessary
            return [*plain(message), notification("notifications/tasks", taskId="t1")]
        return plain(message)

    plain, server.script = server.script, script
    began = asyncio.get_running_loop().time()
    with pytest.raises(CallTimeout):
        async with Client(server, extensions=[TasksClient()]) as client:
            await client.call_tool("train", total=0.6)
    assert len(server.of("tasks/get")) <= (asyncio.get_running_loop().time() - began) / following.LEAST_POLL + 1


# -- 2025-11-25 -----------------------------------------------------------------------------------


def before(result: Callable[[Message], Iterable[Any]], *states: Any, cancels: bool = True) -> Scripted:
    """A server of 2025-11-25. `result`: answers `tasks/result`; `states`: what `tasks/get` answers."""
    left: Iterator[Any] = iter(states)
    latest = ["working"]
    can: dict[str, Any] = {"requests": {"tools": {"call": {}}}} | ({"cancel": {}} if cancels else {})

    def task(status: str, **members: Any) -> dict[str, Any]:
        times = {"createdAt": "2026-01-01T00:00:00Z", "lastUpdatedAt": "2026-01-01T00:00:00Z"}
        return {"taskId": "t1", "status": status, **times, "ttl": 1000, "pollInterval": 10, **members}

    def answers(message: Message) -> Iterable[Any]:
        match message.get("method"):
            case "tools/list":
                return [Result({"tools": [TOOL]})]
            case "tools/call":
                assert message["params"]["task"] == {"ttl": 86_400_000}
                return [Result({"task": task("working")})]
            case "tasks/get":
                latest[:] = [next(left, latest[0])]
                return [Result(task(latest[0]))]
            case "tasks/cancel":
                return [Result(task("cancelled"))]
            case "tasks/result":
                return result(message)
        return []

    return legacy(answers, tools={}, tasks=can)


def text(words: str) -> Result:
    return Result({"content": [{"type": "text", "text": words}]})


async def test_tools_are_listed_before_the_first_call() -> None:
    server = before(lambda message: [text("done")])
    async with Client(server, extensions=[TasksClient()]) as client:
        assert (await client.call_tool("train")).text == "done"
        assert (await client.call_tool("train")).text == "done"
    assert server.methods().count("tools/list") == 1


async def test_a_tool_that_is_not_listed_is_called_without_a_task() -> None:
    server = before(lambda message: [text("done")])
    plain = server.script

    def script(message: Message) -> Iterable[Any]:
        if message.get("method") == "tools/list":
            return [Error(-32601)]
        if message.get("method") == "tools/call":
            assert "task" not in message["params"]
            return [text("at once")]
        return plain(message)

    server.script = script
    assert (await called(server)).text == "at once"


async def test_a_result_that_does_not_come_is_requested_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "LATE", 0.05)
    monkeypatch.setattr(following, "BLOCKED_POLL", 0.05)
    said: list[Any] = []

    def result(message: Message) -> Iterable[Any]:
        said.append(message)
        return [text("done")] if len(said) == 2 else []

    assert (await called(before(result, "working", "completed", "completed"))).text == "done"


async def test_an_error_is_that_of_the_task_once_it_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "PAUSES", (0.01, 0.02))
    server = before(lambda message: [Error(-31000, "out of order")], "working", "failed")
    with pytest.raises(RpcError, match="out of order"):
        await called(server)
    assert server.methods().count("tasks/result") >= 2
    assert "tasks/cancel" not in server.methods()


@pytest.mark.parametrize("cancels", [True, False])
async def test_errors_without_end(monkeypatch: pytest.MonkeyPatch, cancels: bool) -> None:
    monkeypatch.setattr(following, "PAUSES", (0.001, 0.002))
    server = before(lambda message: [Error(-31000, "out of order")], cancels=cancels)
    with pytest.raises(BadAnswer, match="no result after 20 requests"):
        await called(server)
    assert ("tasks/cancel" in server.methods()) is cancels
