"""The tasks of what is served: who sees what of them, and how they are cancelled and answered from the console."""

from __future__ import annotations

import asyncio
import logging
import uuid
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dragoman import Service, serve
from dragoman.console import tasks as shown
from dragoman.console.rows import TaskRow, TaskRows
from dragoman.console.views import merge_tasks
from dragoman.mcp import Server
from dragoman.mcp.extensions.tasks import Tasks
from dragoman.store.contract import StoreLost
from dragoman.tasks import SqliteTasks
from tests.web.reports import Reports, becomes, begin, client

from .ends import Answer, Ends, with_console
from .test_opening import ends_of
from .test_replicas import machines
from .test_workers import two_workers

HTTP = "http://127.0.0.1:0"


async def listed(ends: Ends, query: str = "") -> list[dict[str, Any]]:
    found = await ends.get(f"/api/tasks{query}")
    return list(found["tasks"])


async def whole(ends: Ends, id: str) -> dict[str, Any]:
    return dict((await ends.get(f"/api/tasks?id={id}"))["task"])


async def until_status(ends: Ends, id: str, status: str) -> dict[str, Any]:
    """All that is shown of a task, once it has this status."""
    async with asyncio.timeout(20):
        while (found := await whole(ends, id))["status"] != status:
            pass
    return found


async def answer(ends: Ends, id: str, **answers: Any) -> Answer:
    body = msgspec.json.encode({"id": id, "answers": answers})
    return await ends.send(ends.request("/api/tasks/answer", "POST", body))


async def test_tasks_of_all_callers_are_listed_and_named_so_that_nobody_can_use_the_name() -> None:
    reports = Reports()
    outer = Server("outer", version="1")
    outer.include(reports.app, prefix="in")
    async with with_console(outer, HTTP) as ends, client(reports, "ada") as ada, client(reports) as anybody:
        assert await listed(ends) == []
        ids = [await begin(ada, "render", pages=8), await begin(anybody, "publish", title="Which?")]
        await becomes(anybody, ids[1], "input_required")
        answered = await ends.send(ends.request("/api/tasks"))
        second, first = answered.json["tasks"]
        assert (answered.json["before"], answered.json["away"]) == (None, [])
        assert {name: first[name] for name in ("task", "service", "method", "target", "principal", "status")} == {
            "task": ids[0][:6],
            "service": "reports",
            "method": "tools/call",
            "target": "render",
            "principal": "ada",
            "status": "working",
        }
        assert (first["progress"], first["total"], first["message"]) == (3, 8, "page 3: figures by region")
        assert first["here"]
        assert (await ends.get("/api/now"))["figures"]["dragoman_tasks_running"] == 2
        assert (second["target"], second["status"], second["questions_open"]) == ("publish", "input_required", 1)
        assert "principal" not in second
        details = [await ends.send(ends.request(f"/api/tasks?id={one['id']}")) for one in (first, second)]
        for id in ids:
            for seen in (answered, *details):
                assert id.encode() not in seen.body
            assert (await ends.send(ends.request(f"/api/tasks?id={id}"))).status == 404
            assert "no task" in (await ends.post("/api/tasks/cancel", id))[id]
        reports.go.set()


async def test_they_are_filtered_by_state_and_come_in_pages() -> None:
    reports = Reports()
    reports.go.set()
    async with with_console(reports.app, HTTP) as ends, client(reports) as calls:
        for pages in range(5):
            await becomes(calls, await begin(calls, "render", pages=pages), "completed")
        waiting = await begin(calls, "publish", title="Which?")
        await becomes(calls, waiting, "input_required")
        for status, count in (("", 6), ("completed", 5), ("input_required", 1), ("working", 0), ("failed", 0)):
            assert len(await listed(ends, f"?status={status}")) == count, status
        seen: list[str] = []
        before = ""
        while True:
            page = await ends.get(f"/api/tasks?status=completed&limit=2{before}")
            seen += [one["id"] for one in page["tasks"]]
            if page["before"] is None:
                break
            before = f"&before={page['before']!r}"
        assert seen == [one["id"] for one in await listed(ends, "?status=completed")]
        for query in ("?status=done", "?limit=0", f"?limit={shown.ROWS + 1}", "?before=x"):
            assert (await ends.send(ends.request(f"/api/tasks{query}"))).status == 400, query
        (one,) = await listed(ends, "?status=input_required")
        await ends.post("/api/tasks/cancel", one["id"])


async def test_where_nothing_has_tasks_there_is_no_list() -> None:
    async with with_console(Service("none"), HTTP) as ends:
        found = await ends.send(ends.request("/api/tasks"))
        assert (found.status, found.json) == (404, {"error": "Nothing that is served here has tasks"})
        assert "no task" in (await ends.post("/api/tasks/cancel", "x"))["x"]


async def test_one_is_cancelled_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "dragoman.audit")
    reports = Reports()
    async with with_console(reports.app, HTTP) as ends, client(reports) as calls:
        id = await begin(calls, "render", pages=8)
        (one,) = await listed(ends)
        assert await ends.post("/api/tasks/cancel", one["id"]) == {one["id"]: ""}
        await asyncio.wait_for(reports.stopped.wait(), 20)
        await becomes(calls, id, "cancelled")
        again = await ends.post("/api/tasks/cancel", one["id"], "4711:x")
        assert again == {
            one["id"]: f"task {id[:6]} is cancelled already",
            "4711:x": "no task 4711:x was listed, or it is kept no more",
        }
        (line,) = [record.getMessage() for record in caplog.records if record.name == "dragoman.audit"]
        assert line.startswith(f"cancelled task={id[:6]} service=reports method=tools/call target=render by=")
        assert "the console's secret at 127.0.0.1:" in line
        assert id not in line


async def test_its_question_is_answered(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "dragoman.audit")
    reports = Reports()
    async with with_console(reports.app, HTTP) as ends, client(reports) as calls:
        id = await begin(calls, "publish", title="For whom? The password is 7")
        await becomes(calls, id, "input_required")
        (one,) = await listed(ends)
        assert one["message"] == "waits for an answer: For whom? The password***"
        ((key, question),) = (await whole(ends, one["id"]))["questions"].items()
        assert question["method"] == "elicitation/create"
        assert question["params"]["message"] == "For whom? The password is 7"  # who is to answer must know
        assert "audience" in question["params"]["requestedSchema"]["properties"]
        wrong = await answer(ends, one["id"], other={"action": "decline"})
        assert "no such question" in wrong.json["done"][0]["error"]
        none = await answer(ends, one["id"])
        assert "no such question" in none.json["done"][0]["error"]
        said = {"action": "accept", "content": {"audience": "everyone"}}
        good = await answer(ends, one["id"], **{key: said})
        assert (good.status, good.json) == (200, {"done": [{"id": one["id"], "error": ""}]})
        found = await until_status(ends, one["id"], "completed")
        assert reports.said == ["accept everyone"]
        assert "published for accept everyone" in found["result"]
        late = await answer(ends, one["id"], **{key: said})
        assert "no such question" in late.json["done"][0]["error"]
        (line,) = [record.getMessage() for record in caplog.records if record.name == "dragoman.audit"]
        assert line.startswith(f"answered task={id[:6]} ")
        assert "everyone" not in line


BODIES = (
    b"",
    b"{}",
    b"[]",
    b'{"id":"x"}',
    b'{"id":1,"answers":{}}',
    b'{"id":"x","answers":[]}',
    b'{"id":"x","answers":{},"more":1}',
    b'{"id":"x","answers":' + b"[" * 5000,
    b'{"id":"x","answers":{"a":1e999}}',
    b'{"id":"\xff","answers":{}}',
)


@pytest.mark.parametrize("body", BODIES, ids=range(len(BODIES)))
async def test_what_is_no_answer_is_refused(body: bytes) -> None:
    async with with_console(Reports().app, HTTP) as ends:
        found = await ends.send(ends.request("/api/tasks/answer", "POST", body))
        assert found.status == 400, found
        assert "The body is not" in found.json["error"]


@pytest.mark.parametrize("messages", [False, True])
async def test_arguments_are_shown_where_messages_are_and_secrets_nowhere(messages: bool) -> None:
    reports = Reports()

    @reports.app.tool(task=True)
    async def log_in(password: str, user: str) -> dict[str, str]:
        await reports.go.wait()
        return {"token": "t0psecret", "user": user}

    async with with_console(reports.app, HTTP, messages=messages) as ends, client(reports) as calls:
        await begin(calls, "log_in", password="hunter2", user="ada")
        (one,) = await listed(ends)
        raw = await ends.send(ends.request(f"/api/tasks?id={one['id']}"))
        assert b"hunter2" not in raw.body
        assert raw.json["task"].get("arguments", "") == (
            '{"name":"log_in","arguments":{"password":"***","user":"ada"}}' if messages else ""
        )
        reports.go.set()
        done = await until_status(ends, one["id"], "completed")
        assert '"user":"ada"' in done["result"]
        assert "t0psecret" not in done["result"]


async def test_a_tool_that_failed_says_so_and_a_long_result_is_cut() -> None:
    reports = Reports()
    reports.go.set()
    async with with_console(reports.app, HTTP) as ends, client(reports) as calls:
        await becomes(calls, await begin(calls, "export", words="no more paper"), "completed")
        (one,) = await listed(ends)
        assert one["tool_error"]
        assert "no more paper" in (await whole(ends, one["id"]))["result"]
        await becomes(calls, await begin(calls, "render", pages=3, words="long " * 10_000), "completed")
        long, _ = await listed(ends)
        found = (await whole(ends, long["id"]))["result"]
        assert 4096 <= len(found) < 5000
        assert "bytes in all" in found


class Away(SqliteTasks):
    """A store whose engine may be away."""

    away = False

    async def list_recent(self, *given: Any, **options: Any) -> Any:
        if self.away:
            raise StoreLost("the engine is away")
        return await super().list_recent(*given, **options)

    async def read(self, id: str) -> Any:
        if self.away:
            raise StoreLost("the engine is away")
        return await super().read(id)


async def test_a_store_that_is_away_takes_no_other_along() -> None:
    store = Away(":memory:")
    reports, other = Reports(Tasks(store)), Server("other", version="1", extensions=[Tasks()])
    reports.go.set()
    async with with_console({"/a": reports.app, "/b": other}, HTTP) as ends, client(reports) as calls:
        await becomes(calls, await begin(calls, "render", pages=3), "completed")
        (one,) = await listed(ends)
        store.away = True
        found = await ends.get("/api/tasks")
        assert (found["tasks"], found["away"]) == ([], ["reports"])
        lost = await ends.send(ends.request(f"/api/tasks?id={one['id']}"))
        assert (lost.status, lost.json) == (503, {"error": "the tasks of reports cannot be reached now"})
        assert "cannot be reached now" in (await ends.post("/api/tasks/cancel", one["id"]))[one["id"]]
        store.away = False
    await store.close()


async def test_only_the_last_ones_that_were_listed_can_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shown, "NAMED", 2)
    reports = Reports()
    reports.go.set()
    async with with_console(reports.app, HTTP) as ends, client(reports) as calls:
        for pages in range(3):
            await becomes(calls, await begin(calls, "render", pages=pages), "completed")
        rows = await listed(ends)
        statuses = [(await ends.send(ends.request(f"/api/tasks?id={one['id']}"))).status for one in rows]
        assert statuses == [404, 200, 200]


def row(id: str, created: float, **more: Any) -> TaskRow:
    return TaskRow(id=id, task=id, service="s", method="m", status="working", created=created, updated=created, **more)


def page(before: float | None, *rows: tuple[str, float]) -> TaskRows:
    return TaskRows(tasks=[row(id, created) for id, created in rows], before=before)


@pytest.mark.parametrize(
    ("pages", "limit", "names", "before"),
    [
        ([], 9, "", None),
        ([page(None, ("1:c", 3), ("1:a", 1)), page(None, ("2:b", 2))], 9, "1:c 2:b 1:a", None),
        ([page(None, ("1:c", 3), ("1:a", 1)), page(None, ("2:b", 2))], 2, "1:c 2:b", 2),
        ([page(None, ("1:a", 1)), page(None, ("2:a", 1))], 9, "1:a", None),
        # older ones follow on the first page, so what the second has from before them waits for the next look
        ([page(3, ("1:d", 4), ("1:c", 3)), page(None, ("2:d", 4), ("2:b", 2))], 9, "1:d 1:c", 3),
        ([page(3), page(None, ("2:b", 2))], 9, "", 3),
        ([page(3, ("1:c", 3)), page(1, ("2:c", 3), ("2:b", 2), ("2:a", 1))], 9, "1:c", 3),
    ],
)
def test_pages_of_several_are_one(pages: list[TaskRows], limit: int, names: str, before: float | None) -> None:
    found = merge_tasks(pages, limit)
    assert (" ".join(one.id for one in found.tasks), found.before) == (names, before)


def test_of_a_task_that_several_list_the_row_of_its_own_process_is_shown() -> None:
    other, own = row("1:a", 1.0, worker=""), row("2:a", 1.0, here=True, worker="2")
    for rows in ([other, own], [own, other]):
        (found,) = merge_tasks([TaskRows(tasks=[one], away=["x"]) for one in rows], 9).tasks
        assert found == own


async def test_replicas_that_share_a_store_list_each_task_once_and_orders_find_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO, "dragoman.audit")
    monkeypatch.setenv("DRAGOMAN_SECRET", f"{uuid.uuid4()}")
    url = f"sqlite:{tmp_path / 'tasks.db'}"
    one, other = (Reports(Tasks(url, keys=())) for _ in range(2))
    bus = f"memory:{uuid.uuid4()}"
    async with (
        serve(one.app, urls=HTTP, bus=bus, console=0) as first,
        serve(other.app, urls=HTTP, bus=bus, console=0) as second,
        client(one) as here,
        client(other) as there,
    ):
        assert first.console is not None
        assert second.console is not None
        ends, far = ends_of(first.console), ends_of(second.console)
        keys = [row["key"] for row in await machines(ends, 2)]
        rendering, asking = await begin(here, "render", pages=8), await begin(there, "publish", title="Which?")
        await becomes(there, asking, "input_required")
        for each in (ends, far):
            newest, oldest = await listed(each)
            assert (newest["task"], oldest["task"]) == (asking[:6], rendering[:6])
            assert (newest["worker"], oldest["worker"]) == (keys[1], keys[0])
            assert newest["id"].startswith(f"{keys[1]}:")
            assert len(await listed(each, "?limit=1")) == 1
        ((key, _),) = (await whole(ends, newest["id"]))["questions"].items()
        done = await answer(ends, newest["id"], **{key: {"action": "decline"}})
        assert done.json["done"] == [{"id": newest["id"], "error": ""}]
        await until_status(ends, newest["id"], "completed")
        assert other.said == ["decline"]
        stopped = await far.post("/api/tasks/cancel", oldest["id"], f"{keys[0]}:nothing", "nobody:x", "x")
        assert stopped.pop(oldest["id"]) == ""
        assert all("no task" in said for said in stopped.values())
        assert len(stopped) == 3
        await asyncio.wait_for(one.stopped.wait(), 20)
        lines = [record.getMessage() for record in caplog.records if record.name == "dragoman.audit"]
        assert [line.split()[0] for line in lines] == ["answered", "cancelled"]
        assert f"in the console of {keys[1]}" in lines[1]
        missing = await ends.send(ends.request("/api/tasks?id=nobody:x"))
        assert missing.status == 503
        for id in ("x", ":x", "x:"):
            assert (await ends.send(ends.request(f"/api/tasks?id={id}"))).status in (404, 503)


PROGRAM = """\
import asyncio, os, sys

from dragoman import serve
from dragoman.mcp import Context, Server
from dragoman.mcp.extensions.tasks import Tasks

app = Server("counted", version="1", extensions=[Tasks("sqlite:" + os.environ["TASKS"], keys=())])


@app.tool(task=True)
async def publish(ctx: Context) -> str:
    answer = await ctx.elicit("Which?", {"type": "object", "properties": {"name": {"type": "string"}}})
    return f"{answer.content['name']} by {os.getpid()}"


async def main() -> None:
    async with serve(app, urls=[sys.argv[1]], console=0) as serving:
        await serving.ended()


asyncio.run(main())
"""


async def test_tasks_of_workers_are_answered_over_their_pipes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TASKS", f"{tmp_path / 'tasks.db'}")
    async with two_workers(tmp_path, program=PROGRAM) as (ends, _):
        await machines(ends, 3)
        meta = {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {
                "extensions": {"io.modelcontextprotocol/tasks": {}},
                "elicitation": {"form": {}},
            },
        }
        params = {"name": "publish", "arguments": {}, "_meta": meta}
        body = msgspec.json.encode({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
        made = await ends.send(ends.request("/api/try?at=/", "POST", body))
        assert made.json["result"]["resultType"] == "task", made
        async with asyncio.timeout(20):
            while not (rows := await listed(ends, "?status=input_required")):
                pass
        (one,) = rows
        assert one["task"] == made.json["result"]["taskId"][:6]
        assert one["id"].startswith(f"{one['worker']}:")
        ((key, _),) = (await whole(ends, one["id"]))["questions"].items()
        said = await answer(ends, one["id"], **{key: {"action": "accept", "content": {"name": "Lima"}}})
        assert said.json["done"] == [{"id": one["id"], "error": ""}]
        found = await until_status(ends, one["id"], "completed")
        assert f"Lima by {one['worker']}" in found["result"]
        assert len(await listed(ends)) == 1
