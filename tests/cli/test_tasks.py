"""`dragoman tool --task` and `dragoman tasks`, against a server in a process of its own, in both generations."""

from __future__ import annotations

import json
import os
import stat
import sys
from typing import Any

import pytest

from dragoman.cli.mcp import begun

from .conftest import Command, Done
from .test_mcp import typed_at

SERVER = """\
import asyncio
from typing import Any

from msgspec import Struct

from dragoman.mcp import Context, Server, TaskPolicy, Tasks, ToolError

app = Server("lab", version="1.0.0", extensions=[Tasks()])
LONG: dict[str, Any] = {"task": TaskPolicy(poll=0.05)}


class Name(Struct):
    name: str


@app.tool(**LONG)
async def train(rows: int, ctx: Context) -> str:
    for row in range(rows):
        await ctx.progress(row + 1, rows, f"row {row}")
    return f"trained with {rows} rows"


@app.tool(**LONG)
async def wait(ctx: Context) -> str:
    await ctx.progress(1, 4, "loading")
    await asyncio.Event().wait()
    return ""


@app.tool(**LONG)
async def ask(ctx: Context) -> str:
    answer = await ctx.elicit("How is it called?", Name)
    return f"called {answer.content.name if answer.content else answer.action}"


@app.tool(**LONG)
async def fail() -> str:
    raise ToolError("no more paper")


@app.tool
async def add(a: int, b: int) -> int:
    return a + b
"""
eras = pytest.mark.parametrize("era", ["2025-11-25", "2026-07-28"])


@pytest.fixture
def url(command: Command) -> str:
    (command.folder / "lab.py").write_text(SERVER)
    _, urls = command.serve_of("lab:app", "http://127.0.0.1:0/mcp")
    return urls[0]


def started(command: Command, url: str, *words: str) -> str:
    """The id of a task that is begun."""
    done = command.run("tool", url, *words, "--task")
    assert done.status == 0, done.err
    id = done.out.strip()
    assert len(id) == 32
    return id


@eras
def test_a_task_from_its_beginning_to_its_result(command: Command, url: str, era: str) -> None:
    era_words = ("--revision", era)
    assert command.run("tool", url, "train", "rows=3", *era_words).out == "trained with 3 rows\n"
    id = started(command, url, "train", "rows=2", *era_words)
    assert command.run("tasks", url, id, "--result", *era_words).out == "trained with 2 rows\n"
    assert command.run("tasks", url, id, "--watch", *era_words).out == "completed\n"
    state = command.run("tasks", url, id, "--json", *era_words).json["task"]
    assert (state["id"], state["status"], state["progress"], state["total"]) == (id, "completed", 2, 2)
    result = command.run("tasks", url, id, "--result", "--json", *era_words).json["result"]
    assert result["content"][0]["text"] == "trained with 2 rows"
    listed = command.run("tasks", url, *era_words).out.split()
    assert listed == [id, "train", "completed"]
    done = command.run("tool", url, "train", "rows=1", "--task", "--wait", *era_words)
    assert done.out == "trained with 1 rows\n"
    assert done.err.startswith("task ")


@eras
def test_a_task_that_is_cancelled(command: Command, url: str, era: str) -> None:
    id = started(command, url, "wait", "--revision", era)
    shown = command.run("tasks", url, id, "--revision", era)
    assert shown.out.startswith("working")
    cancelled = command.run("tasks", url, id, "--cancel", "--revision", era)
    assert cancelled.status == 0
    assert command.run("tasks", url, id, "--watch", "--revision", era).status == 1
    result = command.run("tasks", url, id, "--result", "--revision", era, "--json")
    assert result.status == 1
    assert result.json["error"]["code"] == -32603


def test_questions_are_left_open_or_answered(command: Command, url: str) -> None:
    id = started(command, url, "ask")
    shown = command.run("tasks", url, id)
    assert shown.out == "input_required  waits for an answer: How is it called?\n"
    assert "How is it called?" in shown.err
    answered = command.run("tasks", url, id, "--watch", "--answer", "name=Ada")
    assert answered.status == 0
    assert answered.out.splitlines()[-1] == "completed"
    assert command.run("tasks", url, id, "--result").out == "called Ada\n"
    id = started(command, url, "ask")
    assert command.run("tasks", url, id, "--result").out == "called decline\n"


def test_questions_are_answered_at_a_terminal(command: Command, url: str) -> None:
    id = started(command, url, "ask")
    status, seen = typed_at(command, [("name: ", "Ada\n"), ("send this?", "a\n")], "tasks", url, id, "--result")
    assert status == 0, seen
    assert "lab asks: How is it called?" in seen
    assert "called Ada" in seen


def test_what_failed(command: Command, url: str) -> None:
    id = started(command, url, "fail")
    done = command.run("tasks", url, id, "--result")
    assert (done.status, done.err) == (1, "tool error  no more paper\n")


def test_a_tool_that_answers_at_once(command: Command, url: str) -> None:
    done = command.run("tool", url, "add", "a=1", "b=2", "--task")
    assert done.out == "3\n"
    assert "there is no task" in done.err
    assert command.run("tasks").err == "you have begun no task: dragoman tool SERVER NAME --task does\n"


def test_all_that_was_begun(command: Command, url: str) -> None:
    assert command.run("tasks", url).err == "you have no task at this server\n"
    ids = [started(command, url, "train", "rows=1") for _ in range(2)]
    whole = command.run("tasks", "--json").json["tasks"]
    assert [one["id"] for one in whole] == ids[::-1]
    assert {(one["tool"], one["server"]) for one in whole} == {("train", url)}
    assert [line.split()[0] for line in command.run("tasks", "--output", "table").out.splitlines()] == ids[::-1]
    kept = command.folder / ".state" / "dragoman" / "tasks"
    if sys.platform != "win32":
        assert stat.S_IMODE(kept.stat().st_mode) == 0o700
        assert {stat.S_IMODE(path.stat().st_mode) for path in kept.iterdir()} == {0o600}
    for path in kept.iterdir():
        assert json.loads(path.read_text()).keys() == {"id", "tool", "server", "target", "began"}
    # the server does not know a task any more: it is forgotten
    lost = next(iter(kept.iterdir()))
    entry = json.loads(lost.read_text()) | {"id": "lost"}
    lost.unlink()
    (kept / f"{begun._name(entry['target'], 'lost')}.json").write_text(json.dumps(entry))
    assert len(command.run("tasks", url, "--json").json["tasks"]) == 1
    assert len(command.run("tasks", "--json").json["tasks"]) == 1


WRONG: dict[str, tuple[list[str], str]] = {
    "two at once": (["x", "id", "--watch", "--result"], "--watch and --result exclude each other"),
    "no id": (["http://127.0.0.1:1/mcp", "--cancel"], "--cancel needs the id of a task"),
    "no server": (["--result"], "--result needs a server and the id of a task"),
    "too much": (["http://127.0.0.1:1/mcp", "a", "b"], "'b' is too much"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_uses(command: Command, case: str) -> None:
    words, said = WRONG[case]
    done: Done = command.run("tasks", *words)
    assert done.status == 2
    assert said in done.err


def test_an_unknown_task(command: Command, url: str) -> None:
    done = command.run("tasks", url, "nobody")
    assert done.status == 1
    assert "Task not found" in done.err
    assert command.run("tool", url, "add", "a=1", "b=2", "--wait").status == 2


def test_kept_ids_have_a_bound(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("XDG_STATE_HOME", "LOCALAPPDATA"):
        monkeypatch.setenv(variable, str(tmp_path))
    monkeypatch.setattr(begun, "MOST", 3)
    for number in range(5):
        begun.remember("http://127.0.0.1/mcp?key=secret", f"t{number}", "train")
    assert [one.id for one in begun.begun()] == ["t4", "t3", "t2"]
    assert "secret" not in "".join(path.read_text() for path in (tmp_path / "dragoman" / "tasks").iterdir())
    assert begun.begun("http://127.0.0.1/other") == []
    begun.forget("http://127.0.0.1/mcp?key=secret", "t3")
    assert [one.id for one in begun.begun("http://127.0.0.1/mcp?key=secret")] == ["t4", "t2"]
    monkeypatch.setattr(begun, "KEPT", -1.0)
    assert begun.begun() == []
    assert os.listdir(tmp_path / "dragoman" / "tasks") == []
