"""The console's board of tasks in a real browser: tasks are seen, answered and cancelled, and texts of others are
texts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import cycle
from typing import Any

import pytest

from tests.mcp.calling import Calls
from tests.npm import installed

from .browsing import Watched, looking
from .consoled import Operated, operated
from .reports import Reports, becomes, begin, client
from .served import shop
from .test_console import ROWS, WORST, go, poisoned, press_until
from .test_page import BIDI, MARKUP

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.slow,
    pytest.mark.xdist_group("browser"),
]
TITLE = "Publish the report “Sales 2026”?"


@asynccontextmanager
async def board(running: Any, **options: Any) -> AsyncIterator[tuple[Reports, Calls, Operated, Watched]]:
    """A server with tasks, its client, its console, and a browser at the board."""
    reports = Reports()
    async with (
        operated({"/reports": reports.app}) as it,
        client(reports, "ada") as calls,
        looking(running, it.url, **options) as at,
    ):
        await at.open(f"/#{it.secret}", "header a:has-text('Tasks')")
        await go(at, "Tasks", "h1:has-text('Tasks')")
        yield reports, calls, it, at
        at.fine()
        reports.go.set()
        for one in (await it.console._source.tasks("input_required", None, 100)).tasks:  # type: ignore[union-attr]
            await it.console._source.cancel_task(one.id, "the test")


async def asking(calls: Calls, title: str = TITLE) -> str:
    """A task that asks."""
    id = await begin(calls, "publish", title=title)
    await becomes(calls, id, "input_required")
    return id


async def test_a_task_is_seen_from_its_begin_to_its_result(running: Any) -> None:
    async with board(running) as (reports, calls, _, at):
        await at.page.wait_for_selector("text=Nothing fits.")
        id = await begin(calls, "render", pages=12)
        await at.page.wait_for_selector(f"{ROWS}:has-text('render'):has-text('3 of 12')")
        said = await at.page.locator(ROWS).inner_text()
        for words in ("working", "reports", "page 3: figures by region", "ada", "this process"):
            assert words in said
        assert await at.page.locator(f"{ROWS} progress").evaluate("(one) => one.position") == 0.25
        await at.page.click(ROWS)
        await at.page.wait_for_selector(".detail h2:has-text('render')")
        assert f"task {id[:6]}" in await at.page.inner_text(".detail .facts")
        reports.go.set()
        await at.page.wait_for_selector(".detail pre:has-text('\"pages\":12')")
        await at.page.wait_for_selector(f"{ROWS}:has-text('completed')")
        assert await at.page.locator("text=Cancel the task").count() == 0
        assert id not in await at.page.content()


async def test_its_question_is_answered_by_the_keyboard_alone(running: Any) -> None:
    async with board(running) as (reports, calls, _, at):
        id = await asking(calls)
        await at.page.wait_for_selector(f"{ROWS}:has-text('asks'):has-text('{TITLE}')")
        await press_until(at, "table[role=grid]")
        await at.page.keyboard.press("ArrowDown")
        await at.page.keyboard.press("Enter")
        await at.page.wait_for_selector(".question")
        assert TITLE in await at.page.inner_text(".question")
        await press_until(at, ".question select")
        await at.page.keyboard.press("c")  # of the choices, "company" begins so
        await press_until(at, ".question button.main")
        await at.page.keyboard.press("Enter")
        await at.page.wait_for_selector(".done:has-text('answered')")
        await becomes(calls, id, "completed")
        assert reports.said == ["accept company"]
        await at.page.wait_for_selector(".detail pre:has-text('published for accept company')")
        assert await at.page.evaluate("document.activeElement.matches('.detail h2')")
        await press_until(at, ".detail .bar > button:last-child")
        await at.page.keyboard.press("Enter")
        await at.page.wait_for_selector(".detail", state="detached")


async def test_what_somebody_else_has_answered_is_said(running: Any) -> None:
    async with board(running) as (reports, calls, _, at):
        id = await asking(calls)
        await at.page.click(ROWS)
        await at.page.wait_for_selector(".question")
        await at.page.route("**/api/tasks?*", lambda route: asyncio.Event().wait())  # it does not learn of it
        ((key, _),) = (await becomes(calls, id, "input_required"))["inputRequests"].items()
        await calls.unchecked("tasks/update", taskId=id, inputResponses={key: {"action": "cancel"}})
        await becomes(calls, id, "completed")
        await at.page.click(".question button:text-is('Decline')")
        await at.page.wait_for_selector(".done .fault:has-text('no such question')")
        assert reports.said == ["cancel"]


async def test_one_is_cancelled_after_it_was_asked_for(running: Any) -> None:
    async with board(running) as (reports, calls, _, at):
        id = await begin(calls, "render", pages=12)
        await at.page.click(ROWS)
        await at.page.click("text=Cancel the task…")
        assert "render" in await at.page.inner_text("dialog")
        await at.page.keyboard.press("Escape")
        assert not reports.stopped.is_set()
        await at.page.click("text=Cancel the task…")
        await at.page.click("dialog >> text=Cancel it")
        await at.page.wait_for_selector(".done:has-text('is to be cancelled')")
        await asyncio.wait_for(reports.stopped.wait(), 20)
        await becomes(calls, id, "cancelled")
        await at.page.wait_for_selector(f"{ROWS}:has-text('◼ cancelled')")


async def test_they_are_chosen_by_state_and_words_and_older_ones_are_read(running: Any) -> None:
    async with board(running) as (reports, calls, _, at):
        reports.go.set()
        for pages in range(104):
            last = await begin(calls, "render", pages=pages, words=f"figures-{pages}")
        await becomes(calls, last, "completed")
        await asking(calls)
        await at.page.wait_for_selector("main > .note:has-text('100 tasks')")
        await at.page.click("text=Older ones")
        await at.page.wait_for_selector("main > .note:has-text('105 tasks')")
        await at.page.select_option(".by select", label="? asks")
        await at.page.wait_for_selector("main > .note:has-text('1 task.')")
        await at.page.select_option(".by select", label="✔ completed")
        await at.page.wait_for_selector("main > .note:has-text('100 tasks')")
        await at.page.fill("input[type=search]", "no such words")
        await at.page.wait_for_selector("text=Nothing fits.")


async def test_where_nothing_has_tasks_there_is_no_board(running: Any) -> None:
    async with operated(shop()) as it, looking(running, it.url) as at:
        await at.open(f"/#{it.secret}", "header a:has-text('Try')")
        assert await at.page.locator("header a:has-text('Tasks')").count() == 0


async def test_who_may_look_alone_can_neither_answer_nor_cancel(running: Any) -> None:
    async with board(running) as (_, calls, it, at):
        await asking(calls)
        only = {"services": [], "may": ["console:view"]}
        await at.page.route("**/api/services", lambda route: route.fulfill(json=only))

        async def without_questions(route: Any) -> None:  # as the console answers who may not answer them
            answer = await route.fetch()
            found = await answer.json()
            found.get("task", {}).pop("questions", None)
            await route.fulfill(json=found)

        await at.page.route("**/api/tasks?*", without_questions)
        await at.page.reload()
        await go(at, "Tasks", ROWS)
        await at.page.click(ROWS)
        await at.page.wait_for_selector(".detail:has-text('It waits for 1 answer, of which none can be given here.')")
        assert await at.page.locator(".question, .detail .stop").count() == 0
        assert it.url in at.page.url


async def test_texts_of_others_are_texts(running: Any) -> None:
    async with board(running) as (reports, calls, _, at):
        title = f"{MARKUP} {BIDI} javascript:alert(4)"
        await asking(calls, title)
        await begin(calls, "render", pages=4, words=MARKUP)
        await at.page.wait_for_selector(f"{ROWS}:has-text('onerror')")
        await at.page.click(f"{ROWS}:has-text('publish')")
        await at.page.wait_for_selector(".question")
        assert "<img src=x" in await at.page.inner_text(".question")
        assert "⟨U+202E⟩" in await at.page.inner_text(".question")
        await at.page.click(".detail .bar >> text=Close")
        reports.go.set()
        await at.page.click(f"{ROWS}:has-text('render')")
        await at.page.wait_for_selector(".detail pre:has-text('onerror')")
        await begin(calls, "export", words=MARKUP)
        await at.page.click(f"{ROWS}:has-text('export'):has-text('tool error')")
        await at.page.wait_for_selector(".detail h2:has-text('export')")
        await at.page.wait_for_selector(".detail pre:has-text('onerror')")


async def test_an_answer_of_nothing_but_hostile_texts_is_drawn(running: Any) -> None:
    """The console's own server is trusted; a task's members are of others, whatever they hold."""
    async with board(running) as (_, calls, _, at):
        await asking(calls)
        turn = cycle(WORST)

        async def worst(route: Any) -> None:
            found = await (await route.fetch()).json()
            for one in (*found.get("tasks", ()), *filter(None, [found.get("task")])):
                kept = {name: one[name] for name in ("id", "status") if name in one}
                one |= poisoned(one, turn) | kept | {"result": MARKUP, "error": next(turn), "arguments": next(turn)}
            await route.fulfill(json=found)

        await at.page.route("**/api/tasks?*", worst)
        await at.page.reload()
        await go(at, "Tasks", ROWS)
        await at.page.click(ROWS)
        await at.page.wait_for_selector(".detail pre:has-text('onerror')")
        assert (
            await at.page.evaluate("document.querySelectorAll('main img, main script, main svg, main iframe').length")
            == 0
        )


@pytest.mark.parametrize("width", [360, 1440])
async def test_axe_finds_nothing_and_it_is_not_wider_than_the_window(
    running: Any, request: pytest.FixtureRequest, width: int
) -> None:
    source = (installed(request, ["axe-core@4.10.3"]) / "axe-core" / "axe.min.js").read_text()
    async with board(running, viewport={"width": width, "height": 900}) as (_, calls, _, at):
        await asking(calls)
        await begin(calls, "render", pages=12)
        await at.page.click(f"{ROWS}:has-text('publish')")
        await at.page.wait_for_selector(".question")
        await at.page.evaluate(source)
        for scheme in ("light", "dark"):
            await at.page.emulate_media(color_scheme=scheme)
            found = await at.page.evaluate("axe.run()")
            said = [(one["id"], [node["html"][:160] for node in one["nodes"][:3]]) for one in found["violations"]]
            assert said == [], scheme
        assert await at.page.evaluate("document.documentElement.scrollWidth") <= width
        inner = "[...document.querySelectorAll('main')].some((one) => one.scrollWidth > one.clientWidth + 1)"
        assert not await at.page.evaluate(inner)
