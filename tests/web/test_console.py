"""The console's page in a real browser, over a real console: what it shows, stops and ends, and keeps to itself."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import cycle
from typing import Any

import pytest

import dragoman
from dragoman import Context, RpcError, Service, connect
from dragoman.mcp import Client, Server, ToolAnnotations
from tests.engines.wires import until
from tests.npm import installed

from .browsing import Watched, looking
from .consoled import Operated, operated
from .served import desk, shop
from .test_page import BIDI, MARKUP

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.slow,
    pytest.mark.xdist_group("browser"),
]


@asynccontextmanager
async def console(running: Any, served: Any = None, **options: Any) -> AsyncIterator[tuple[Operated, Watched]]:
    """A server with its console, and a browser that has opened it with the secret."""
    async with operated(served or {"/": shop(), "/mcp": desk()}) as it, looking(running, it.url, **options) as at:
        await at.open(f"/#{it.secret}", "h1:has-text('In flight')")
        yield it, at
        at.fine()


# -- the secret


async def test_the_secret_leaves_the_url_and_survives_a_reload(running: Any) -> None:
    async with console(running) as (it, at):
        assert at.page.url == f"{it.url}/#/now"
        await at.page.reload()
        await at.page.wait_for_selector("h1:has-text('In flight')")
        assert await at.page.evaluate("JSON.stringify([{...localStorage}, document.cookie])") == '[{},""]'


async def test_without_the_secret_there_is_a_box_for_it(running: Any) -> None:
    async with operated(shop()) as it, looking(running, it.url) as at:
        await at.open("/", "h1:has-text('The console is locked')")
        await at.page.fill("input[type=password]", "0123456789abcdef")
        await at.page.keyboard.press("Enter")
        await at.page.wait_for_selector("text=The server did not take it")
        await at.page.fill("input[type=password]", it.secret)
        await at.page.keyboard.press("Enter")
        await at.page.wait_for_selector("h1:has-text('In flight')")
        at.fine()


# -- what is in flight


async def test_a_stuck_call_is_found_looked_into_and_stopped(running: Any) -> None:
    async with console(running) as (it, at), connect(it.serving.urls[0], timeout=None) as peer:
        stuck = asyncio.ensure_future(peer.call("slow", [600]))
        await at.page.wait_for_selector("td.where:has-text('served.py')")
        row = at.page.locator("main tbody tr")
        assert await row.count() == 1
        said = await row.inner_text()
        for words in ("slow", "orders", "127.0.0.1", "http", "shop.<locals>.slow"):
            assert words in said
        await row.locator("button").click()
        assert "tests/web/served.py" in await at.page.inner_text(".stack .at")
        await row.locator("input").check()
        await at.page.click("text=Stop 1 call")
        assert "slow" in await at.page.inner_text("dialog")
        await at.page.keyboard.press("Escape")
        assert not stuck.done()
        await at.page.click("text=Stop 1 call")
        await at.page.click("dialog >> text=Stop it")
        await at.page.wait_for_selector(".done:has-text('stopped')")
        with pytest.raises(RpcError, match="Cancelled by the operator of the server"):
            await stuck
        await at.page.wait_for_selector("text=Nothing is in flight.")


async def test_stopping_by_the_keyboard_alone(running: Any) -> None:
    async with console(running) as (it, at), connect(it.serving.urls[0], timeout=None) as peer:
        stuck = [asyncio.ensure_future(peer.call("slow", [600])) for _ in range(3)]
        await at.page.wait_for_selector("main tbody tr:nth-child(3)")
        await press_until(at, "main input[type=checkbox]")
        await at.page.keyboard.press("Space")
        await press_until(at, "button.stop:not(:disabled)", back=True)
        await at.page.keyboard.press("Enter")
        await at.page.wait_for_selector("dialog")
        assert await at.page.evaluate("document.activeElement.innerText") == "Leave it"
        await press_until(at, "dialog button.stop")
        await at.page.keyboard.press("Enter")
        await at.page.wait_for_selector(".done:has-text('stopped')")
        with pytest.raises(RpcError, match="Cancelled by the operator"):
            await stuck[0]
        assert not any(one.done() for one in stuck[1:])
        for one in stuck[1:]:
            one.cancel()


async def test_what_came_too_late_is_said_of_each_call(running: Any) -> None:
    async with console(running) as (it, at), connect(it.serving.urls[0], timeout=None) as peer:
        stuck = [asyncio.ensure_future(peer.call("slow", [600])) for _ in range(2)]
        await at.page.wait_for_selector("main tbody tr:nth-child(2)")
        await at.page.click("text=Choose all")
        await at.page.click("text=Stop 2 calls")
        await it.console._source.kill(str(min(it.recorder.board.listed)))
        await at.page.click("dialog >> text=Stop them")
        await at.page.wait_for_selector(".done .state:has-text('stopped')")
        assert "no call" in await at.page.inner_text(".done .fault")
        await asyncio.gather(*stuck, return_exceptions=True)


async def press_until(at: Watched, selector: str, *, back: bool = False) -> None:
    """Press Tab until this has the focus."""
    for _ in range(60):
        if await at.page.evaluate("wanted => document.activeElement.matches(wanted)", selector):
            return
        await at.page.keyboard.press("Shift+Tab" if back else "Tab")
    raise AssertionError(f"the keyboard does not lead to {selector}")


# -- the timeline


async def fill(it: Operated) -> None:
    """Call some methods, of which a third fails."""
    async with connect(it.serving.urls[0]) as peer:
        for number in range(30):
            if number % 3:
                await peer.call("subtract", [number, 1])
            else:
                with pytest.raises(RpcError):
                    await peer.call("subtract", [number])
        await peer.call("find", {"city": "Lima"})


async def go(at: Watched, name: str, wait: str) -> None:
    """Go to a view by its tab."""
    await at.page.click(f"header a:has-text('{name}')")
    await at.page.wait_for_selector(wait)


ROWS = ".rows tbody tr[id]"


async def test_the_timeline_is_filtered_and_says_what_is_wrong_with_a_filter(running: Any) -> None:
    async with console(running) as (it, at):
        await fill(it)
        await go(at, "Timeline", "text=31 rows")
        await at.page.fill(".filter", "method:subtract status:error")
        await at.page.keyboard.press("Enter")
        await at.page.wait_for_selector("text=10 rows")
        assert at.page.url.endswith("#/timeline?method%3Asubtract%20status%3Aerror")
        assert "-32602" in await at.page.locator(ROWS).first.inner_text()
        await fill(it)  # what the feed tells fits it too
        await at.page.wait_for_selector("text=20 rows")
        await at.page.fill(".filter", "colour:red")
        await at.page.click("button:text-is('Filter')")
        assert "colour is nothing that a filter knows" in await at.page.inner_text(".fault[role=alert]")
        await at.page.click("main form >> text=Clear")
        await at.page.wait_for_selector("text=62 rows")


async def test_a_row_is_opened_by_the_keyboard_and_leads_to_what_it_belongs_to(running: Any) -> None:
    asks, own = Service("asks"), Service("own")

    @asks.method
    async def book(ctx: Context) -> Any:
        return await ctx.call("agree")

    @own.method
    def agree() -> bool:
        return True

    async with (
        operated(asks, "tcp://127.0.0.1:0") as it,
        looking(running, it.url) as at,
        connect(it.serving.urls[0], service=own) as peer,
    ):
        await peer.call("book")
        await at.open(f"/#{it.secret}", "h1:has-text('In flight')")
        await go(at, "Timeline", f"{ROWS}:has-text('agree')")
        await at.page.locator("[role=grid]").focus()
        await at.page.keyboard.press("ArrowDown")
        await at.page.keyboard.press("Enter")
        await at.page.wait_for_selector(".detail h2:has-text('book')")
        await at.page.click(".detail dd button:has-text('agree')")
        await at.page.wait_for_selector(".detail h2:has-text('agree')")
        assert "sent by this server" in await at.page.inner_text(".detail")
        await at.page.click(".detail dd button:has-text('book')")
        await at.page.wait_for_selector(".detail h2:has-text('book')")
        await at.page.keyboard.press("Escape")
        await at.page.wait_for_selector(".detail", state="detached")
        await at.until("document.activeElement.role === 'grid'")  # where the focus was
        await at.page.keyboard.press("End")
        await at.page.keyboard.press("Enter")
        await at.page.click(".detail >> text=Only this method")
        await at.page.wait_for_selector("text=1 row")
        assert at.page.url.endswith("#/timeline?method%3Aagree")
        at.fine()


async def test_a_range_is_brushed_and_every_view_keeps_to_it(running: Any) -> None:
    async with console(running) as (it, at):
        await fill(it)
        await go(at, "Timeline", "text=31 rows")
        box = await at.page.locator("canvas").bounding_box()
        y = box["y"] + 10
        await at.page.mouse.move(box["x"] + box["width"] / 4, y)
        await at.page.mouse.down()
        await at.page.mouse.move(box["x"] + box["width"] / 2, y, steps=4)
        await at.page.mouse.up()
        await at.page.wait_for_selector(".range")
        await at.page.wait_for_selector("text=0 rows")
        await go(at, "Methods", "text=Nothing was called.")
        await go(at, "Errors", "text=There are none.")
        await at.page.click("text=Clear the range")
        await at.page.wait_for_selector("td:has-text('InvalidParams')")
        await go(at, "Timeline", "text=31 rows")
        await at.page.locator("label:has-text('From') input").focus()
        await at.page.keyboard.press("End")
        for _ in range(12):
            await at.page.keyboard.press("ArrowLeft")
        await at.page.wait_for_selector(".range:has-text('1 min 0 s')")
        await at.page.wait_for_selector("text=31 rows")
        await go(at, "Methods", "tr:has-text('subtract'):has-text('30')")
        assert "33 %" in await at.page.inner_text("tr:has-text('subtract')")


async def test_ten_thousand_rows_are_scrolled_with_few_in_the_document(running: Any) -> None:
    async with console(running) as (it, at), connect(it.serving.urls[0]) as peer:
        for _ in range(20):
            await asyncio.gather(*(peer.call("subtract", [2, 1]) for _ in range(500)))
        await it_has(it, 10_000)
        await go(at, "Timeline", "text=10,000 rows")
        most = 0
        for share in (0.0, 0.1, 0.5, 0.9, 1.0):
            await at.page.evaluate(
                "share => { const box = document.querySelector('.rows'); box.scrollTop = share * box.scrollHeight; }",
                share,
            )
            wanted = round(share * 9_900)
            await at.until(
                "([wanted, rows]) => [...document.querySelectorAll(rows)].some((one) => Math.abs(one.ariaRowIndex - wanted) < 200)",
                [wanted, ROWS],
            )
            most = max(most, await at.page.locator(".rows tbody tr").count())
        assert 20 < most <= 200
        assert await at.page.get_attribute("[role=grid]", "aria-rowcount") == "10001"
        await at.page.locator("[role=grid]").focus()
        await at.page.keyboard.press("Home")
        await at.page.keyboard.press("End")
        await at.page.wait_for_selector(f"{ROWS}.active[aria-rowindex='10001']")
        assert await at.page.locator(".rows tbody tr").count() <= 200


async def it_has(it: Operated, rows: int) -> None:
    await until(lambda: it.recorder.timeline.count >= rows)


# -- methods, errors, connections, the machine


async def test_a_method_shows_its_last_errors_with_what_to_do(running: Any) -> None:
    async with console(running) as (it, at), Client(f"{it.serving.urls[0].rstrip('/')}/mcp") as client:
        await fill(it)
        await client.call_tool("forecast", {"city": "Lima"})
        await go(at, "Methods", "tr:has-text('forecast')")
        cells = await at.page.locator("tr:has-text('subtract') td").all_inner_texts()
        assert (cells[2], cells[4]) == ("30", "10 (33 %)")
        assert await at.page.locator("tr:has-text('subtract') svg polyline").count() == 1
        assert "about" in await at.page.inner_text("tr:has-text('forecast') td:last-child")
        await at.page.click("tr:has-text('subtract') button")
        await at.page.wait_for_selector(".detail:has-text('10 errors kept')")
        said = await at.page.inner_text(".detail")
        assert "data.errors lists every fault" in said
        await go(at, "Errors", "td:has-text('InvalidParams')")
        assert await at.page.locator(ROWS).count() == 10


async def test_a_connection_is_ended_after_it_was_asked_for(running: Any) -> None:
    async with (
        console(running) as (it, at),
        Client(f"{it.serving.urls[0].rstrip('/')}/mcp", revision="2025-11-25") as client,
    ):
        await client.list_tools()
        await go(at, "Connections", "tr:has-text('session')")
        await at.page.fill("main input[type=search]", "nobody")
        await at.page.wait_for_selector("text=None fits.")
        await at.page.fill("main input[type=search]", "session")
        await at.page.click("tr:has-text('session') >> text=End…")
        await at.page.click("dialog >> text=Leave it")
        await at.page.click("tr:has-text('session') >> text=End…")
        await at.page.click("dialog >> text=End it")
        await at.page.wait_for_selector(".done:has-text('it ends')")
        await at.page.wait_for_selector("td:text-is('session')", state="detached")


async def test_the_machine_and_what_is_not_known_of_it(running: Any) -> None:
    async with console(running) as (_, at):

        async def more(route: Any) -> None:
            found = await (await route.fetch()).json()
            found["replicas"] = [{"name": "r-1", "lag": 3}]
            found["processes"][0]["limits"] = {"message_size": 1048576}
            await route.fulfill(json=found)

        await at.page.route("**/api/machine", more)
        await go(at, "Machine", ".card")
        said = (await at.page.inner_text("main")).lower()
        for words in (f"process {os.getpid()}", dragoman.__version__, "open files", "replicas", "r-1", "message size"):
            assert words in said, words


# -- who may what


async def test_who_may_not_stop_is_shown_no_button_for_it(running: Any) -> None:
    async with (
        operated(shop()) as it,
        looking(running, it.url) as at,
        connect(it.serving.urls[0], timeout=None) as peer,
    ):
        stuck = asyncio.ensure_future(peer.call("slow", [600]))
        await at.page.route(
            "**/api/services", lambda route: route.fulfill(json={"services": [], "may": ["console:view"]})
        )
        await at.open(f"/#{it.secret}", "td.where:has-text('served.py')")
        assert await at.page.locator("main button.stop, main input[type=checkbox]").count() == 0
        assert await at.page.locator("header a:has-text('Try')").count() == 0
        await at.page.click("header a:has-text('Connections')")
        await at.page.wait_for_selector("h1:has-text('Connections')")
        assert await at.page.locator("text=End…").count() == 0
        stuck.cancel()


async def test_who_may_not_look_is_asked_for_another_token(running: Any) -> None:
    async with operated(shop()) as it, looking(running, it.url) as at:
        words = {"error": "This needs the scope console:view"}
        await at.page.route("**/api/services", lambda route: route.fulfill(status=403, json=words))
        await at.open(f"/#{it.secret}", "text=This needs the scope console:view")
        await at.page.unroute("**/api/services")
        await at.page.fill("input[type=password]", it.secret)
        await at.page.keyboard.press("Enter")
        await at.page.wait_for_selector("h1:has-text('In flight')")
        at.fine()


# -- the feed


async def test_a_page_that_is_too_slow_is_told_so(running: Any) -> None:
    async with operated(shop()) as it, looking(running, it.url) as at:
        line = {"time": 1, "in_flight": 0, "ended": 9, "errors": 0, "calls": [], "rows": [], "missed": 1234}
        await at.page.route("**/api/feed?*", lambda route: route.fulfill(body=json.dumps(line) + "\n"))
        await at.open(f"/#{it.secret}", "text=you missed 1,234 rows")
        await at.page.wait_for_selector("text=not connected: the server ended the stream")
        at.fine()


async def test_it_says_that_it_is_not_connected_and_connects_again(running: Any) -> None:
    async with console(running) as (it, at), connect(it.serving.urls[0]) as peer:
        await at.page.wait_for_selector(".link", state="detached")
        await at.page.route("**/api/services", lambda route: route.abort())
        it.console._feed.close()
        await at.page.wait_for_selector("text=not connected: Failed to fetch")
        await peer.call("subtract", [2, 1])
        await at.page.unroute("**/api/services")
        await at.page.wait_for_selector(".link", state="detached")
        await at.page.wait_for_selector(".tile:has-text('Ended'):has-text('1')")


async def test_rows_that_ended_while_it_was_not_connected_are_read(running: Any) -> None:
    async with console(running) as (it, at):
        await fill(it)
        await go(at, "Timeline", "text=31 rows")
        await at.page.route("**/api/services", lambda route: route.abort())
        it.console._feed.close()
        await at.page.wait_for_selector("text=not connected: Failed to fetch")
        await fill(it)
        await at.page.unroute("**/api/services")
        await at.page.wait_for_selector("text=62 rows")


# -- the documentation's views


async def test_methods_and_tools_are_tried_through_the_consoles_door(running: Any) -> None:
    async with console(running, {"/": shop(), "/mcp": wrecker()}) as (it, at):
        await go(at, "Try", ".list code:text-is('subtract')")
        await at.page.click(".list code:text-is('subtract')")
        await at.field("minuend").fill("42")
        await at.field("subtrahend").fill("23")
        assert "19" in await at.call()
        assert await at.page.locator("text=The same call elsewhere").count() == 0
        assert it.url not in await at.page.inner_text("main")
        await at.page.click("article button:text-is('Notify')")
        assert "Accepted" in await at.outcome()
        await at.page.select_option(".pick:has-text('Service') select", index=1)
        await at.page.wait_for_selector(".list code:text-is('wipe')")
        assert await at.page.locator(".pick").count() == 1  # neither revision nor log
        await at.page.click(".list code:text-is('wipe')")
        await at.page.dblclick("article .bar button.main")
        await at.page.wait_for_selector("text=It may destroy what is there.")
        await at.page.click("text=Leave it")
        await at.page.press("article .bar button.main", "Control+Enter")
        assert wiped == []
        await at.page.click(".notice button:text-is('Call it')")
        assert "wiped" in await at.outcome()
        assert wiped.pop() == 1
        await at.page.click(".list code:text-is('peek')")
        assert "seen" in await at.call()
        await go(at, "Timeline", "tr:has-text('peek')")


wiped: list[int] = []


def wrecker() -> Server:
    """A server with a tool that destroys, and one that does not say."""
    app = Server("wrecker")

    @app.tool(annotations=ToolAnnotations(destructive_hint=True))
    def wipe() -> str:
        wiped.append(1)
        return "wiped"

    @app.tool
    def peek() -> str:
        return "seen"

    return app


# -- messages


MESSAGES = [
    {"seq": 2, "time": 1000.5, "direction": "out", "service": "orders", "wire": "http", "remote": "127.0.0.1:9", "session": "",
     "method": "subtract", "target": "", "id": "1", "outcome": "result", "ms": 0.5, "size": 37,
     "text": '{"jsonrpc":"2.0","result":19,"id":1}\n'},
    {"seq": 1, "time": 1000.0, "direction": "in", "service": "orders", "wire": "http", "remote": "127.0.0.1:9", "session": "",
     "method": "subtract", "target": "", "id": "1", "outcome": "result", "ms": 0.5, "size": 62,
     "text": '{"jsonrpc":"2.0","method":"subtract","params":[42,23],"id":1}'},
]  # fmt: skip


async def test_messages_are_pinned_and_copied_as_a_test(running: Any) -> None:
    async with (
        operated(shop()) as it,
        looking(running, it.url, permissions=["clipboard-read", "clipboard-write"]) as at,
    ):
        asked = []

        async def answer(route: Any) -> None:
            asked.append(route.request.url)
            await route.fulfill(json={"messages": MESSAGES, "kept": 2})

        await at.page.route("**/api/messages?*", answer)
        await at.open(f"/#{it.secret}", "header a:has-text('Messages')")
        await go(at, "Messages", "text=2 messages of 2 kept ones")
        await at.page.fill(".filter", "direction:in")
        await at.page.keyboard.press("Enter")
        await at.page.click(f"{ROWS} >> nth=1")
        assert '"params":[42,23]' in await at.page.inner_text(".detail pre")
        assert asked[-1].endswith("/api/messages?limit=200&q=direction%3Ain")
        await at.page.click(".detail button:text-is('Pin')")
        await go(at, "Now", "h1:has-text('In flight')")
        await go(at, "Messages", "main ul button")
        await at.page.click("main ul button")
        await at.page.click("text=Copy as curl")
        copied = "navigator.clipboard.readText()"
        await at.page.wait_for_selector("text=Copied")
        assert '--data-raw \'{"jsonrpc"' in await at.page.evaluate(copied)
        await at.page.click("text=Copy as a test")
        await at.until("navigator.clipboard.readText().then((text) => text.includes('def test'))")
        code = await at.page.evaluate(copied)
        assert "def test_subtract() -> None:" in code
        compile(code, "test", "exec")
        at.fine()


async def test_without_messages_there_is_no_tab(running: Any) -> None:
    async with console(running) as (_, at):
        await at.page.wait_for_selector("header a:has-text('Try')")
        assert await at.page.locator("header a:has-text('Messages')").count() == 0


# -- hostile texts


VIEWS = {
    "now": "h1:has-text('In flight')",
    "timeline": ".rows",
    "methods": "h1:has-text('Methods')",
    "errors": "h1:has-text('Errors')",
    "connections": "h1:has-text('Connections')",
    "machine": ".card, dl",
    "messages": ".rows",
}
WORST = [MARKUP, BIDI, "javascript:alert(1)", "w" * 1_000_000, "https://evil.example/x.js", "data:text/html,x"]


def poisoned(value: Any, turn: Iterator[str]) -> Any:
    """The same JSON with hostile texts for all texts, but those that lead on."""
    if isinstance(value, dict):
        return {
            one: held if one in ("id", "kind", "state", "outcome", "direction") else poisoned(held, turn)
            for one, held in value.items()
        }
    if isinstance(value, list):
        return [poisoned(one, turn) for one in value]
    return next(turn) if isinstance(value, str) else value


async def test_hostile_texts_run_nothing_and_ask_for_nothing(running: Any) -> None:
    async with console(running) as (it, at), connect(it.serving.urls[0], timeout=None) as peer:
        await fill(it)
        stuck = asyncio.ensure_future(peer.call("slow", [600]))
        turn = cycle(WORST)

        async def poison(route: Any) -> None:
            if "/messages" in route.request.url:
                await route.fulfill(json=poisoned({"messages": MESSAGES, "kept": 2}, turn))
                return
            found = await (await route.fetch()).json()
            await route.fulfill(json=poisoned(found, turn))

        await at.page.route(re.compile("/api/(now|timeline|methods|errors|connections|machine|messages)"), poison)
        await at.page.reload()
        await at.page.wait_for_selector("header a:has-text('Messages')")
        for name, wait in VIEWS.items():
            await at.page.goto(f"{it.url}/#/{name}")
            await at.page.wait_for_selector(wait)
            for button in (".rows tbody tr[id]", "main td button.name", "main .plain"):
                if await at.page.locator(button).count():
                    await at.page.locator(button).first.click()
            assert await at.page.locator("main img, main script, main iframe, main a[href^=javascript]").count() == 0
        await at.page.goto(f"{it.url}/#/timeline")
        await at.page.wait_for_selector("text=\u27e8U+202E\u27e9")
        at.fine()
        stuck.cancel()


# -- for everybody


@pytest.mark.parametrize("width", [360, 1440])
async def test_axe_finds_nothing_in_any_view(running: Any, request: pytest.FixtureRequest, width: int) -> None:
    source = (installed(request, ["axe-core@4.10.3"]) / "axe-core" / "axe.min.js").read_text()
    view = {"width": width, "height": 900}
    async with console(running, viewport=view) as (it, at), connect(it.serving.urls[0], timeout=None) as peer:
        await at.page.route("**/api/messages?*", lambda route: route.fulfill(json={"messages": MESSAGES, "kept": 2}))
        await fill(it)
        stuck = asyncio.ensure_future(peer.call("slow", [600]))
        await at.page.reload()
        await at.page.wait_for_selector("header a:has-text('Messages')")
        opened = {
            "now": "td button.name",
            "timeline": ROWS,
            "methods": "td button.name",
            "errors": ROWS,
            "messages": ROWS,
        }
        for scheme in ("light", "dark"):
            await at.page.emulate_media(color_scheme=scheme)
            for name, wait in (VIEWS | {"docs/%2F/method/subtract": "article"}).items():
                await at.page.goto(f"{it.url}/#/{name}")
                await at.page.wait_for_selector(wait)
                if name in opened:
                    await at.page.locator(opened[name]).first.click()
                    await at.page.wait_for_selector(".detail")
                if name == "now":
                    await at.page.locator("main input[type=checkbox]").first.check()
                    await at.page.click("text=Stop 1 call")
                await at.page.evaluate(source)
                found = await at.page.evaluate("axe.run()")
                said = [(one["id"], [node["html"][:160] for node in one["nodes"][:3]]) for one in found["violations"]]
                assert said == [], (name, scheme)
                if name == "now":
                    await at.page.keyboard.press("Escape")
        stuck.cancel()


@pytest.mark.parametrize("width", [360, 1440, 2560])
async def test_no_view_is_wider_than_the_window(running: Any, width: int) -> None:
    async with (
        console(running, viewport={"width": width, "height": 800}) as (it, at),
        connect(it.serving.urls[0], timeout=None) as peer,
    ):
        await fill(it)
        stuck = asyncio.ensure_future(peer.call("slow", [600]))
        await at.page.wait_for_selector("td.where:has-text('served.py')")
        for name in ("Now", "Timeline", "Methods", "Errors", "Connections", "Machine"):
            await go(at, name, f"h1:has-text('{'In flight' if name == 'Now' else name}')")
            await at.page.wait_for_selector("main table, main .note")
            assert await at.page.evaluate("document.documentElement.scrollWidth") <= width, name
            inner = "[...document.querySelectorAll('main')].some((one) => one.scrollWidth > one.clientWidth + 1)"
            assert not await at.page.evaluate(inner), name
        stuck.cancel()
