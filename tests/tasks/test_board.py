"""A board of tasks for the operator: pages by state, however few tasks have it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from msgspec import Raw

from dragoman.tasks import SqliteTasks, board
from dragoman.tasks.board import RunnerBoard
from dragoman.tasks.contract import TaskBoard
from dragoman.tasks.record import Status
from dragoman.tasks.runner import TaskRunner

from .table import record

NOW = 1_000_000.0


@pytest.fixture
async def tasks() -> AsyncIterator[RunnerBoard]:
    """Twelve tasks, of which every fourth failed; and one of another server."""
    store = SqliteTasks(":memory:", clock=lambda: NOW)

    async def resume(found: object) -> None: ...

    runner = TaskRunner(store, "reports", resume=resume, changed=lambda found: None, bus=None)
    for n in range(12):
        status: Status = "completed" if n % 4 else "failed"
        await store.create(
            record(f"t{n}", created=NOW + n, keep=None, status=status, result=Raw(b'"' + b"x" * 1000 + b'"'))
        )
    await store.create(record("other", server="mail", created=NOW, keep=None))
    yield RunnerBoard(runner, "reports")
    await store.close()


async def all_of(found: RunnerBoard, status: Status | None, limit: int) -> tuple[list[str], int]:
    """All tasks with this status, and the number of pages that it took."""
    ids: list[str] = []
    before, pages = None, 0
    while True:
        page = await found.list_recent(status, before, limit)
        assert len(page.records) <= limit
        pages += 1
        ids += [one.id for one in page.records]
        if page.before is None:
            return ids, pages
        assert before is None or page.before < before
        before = page.before


@pytest.mark.parametrize("bound", ["LOOKED", "SIZE"])
async def test_a_page_ends_where_much_was_looked_at_and_the_next_goes_on(
    tasks: RunnerBoard, monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    assert isinstance(tasks, TaskBoard)
    assert await all_of(tasks, "failed", 5) == (["t8", "t4", "t0"], 1)
    monkeypatch.setattr(board, "SOUGHT", 2)
    monkeypatch.setattr(board, bound, {"LOOKED": 3, "SIZE": 3000}[bound])
    assert (await tasks.list_recent("working", None, 2)).records == []
    ids, pages = await all_of(tasks, "failed", 2)
    assert ids == ["t8", "t4", "t0"]
    assert pages > 1


@pytest.mark.parametrize("limit", [1, 2, 5, 12, 50])
async def test_no_task_is_left_out_or_there_twice(tasks: RunnerBoard, limit: int) -> None:
    ids, _ = await all_of(tasks, None, limit)
    assert ids == [f"t{n}" for n in reversed(range(12))]
    assert (await all_of(tasks, "input_required", limit))[0] == []


async def test_a_task_of_another_server_is_not_found(tasks: RunnerBoard) -> None:
    assert await tasks.find("other") is None
    found = await tasks.find("t1")
    assert found is not None
    assert await tasks.find("t99") is None
