"""Pictures of the page, to be looked at: `python -m tests.web.pictures FOLDER` writes them, in light and dark. Those of
the documentation: `tests.screens`."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import product
from pathlib import Path
from typing import Any, Literal

from dragoman import RpcError, connect, serve
from dragoman.mcp import Client
from tests.web.browsing import Watched, browser, looking
from tests.web.consoled import Operated, operated
from tests.web.reports import Reports, becomes, begin, client
from tests.web.served import desk, shop


async def method(at: Watched) -> None:
    """A form, and the server's faults beside its fields."""
    await at.open("/#/docs/%2F/method/place")
    await at.page.click("text=Add an item")
    await at.field("postcode").fill("12")
    await at.call()


async def table(at: Watched) -> None:
    """A result that is a table, with the bytes below it."""
    await at.open("/#/docs/%2F/method/find")
    await at.call()
    await at.page.click("text=The bytes that went and came")


async def question(at: Watched) -> None:
    """A server that asks."""
    await at.open("/mcp#/docs/%2Fmcp/tool/book")
    await at.field("city").fill("Lima")
    await at.field("nights").fill("3")
    await at.page.click("article .bar button.main")
    await at.page.wait_for_selector(".question")


async def progress(at: Watched) -> None:
    """Progress and the log."""
    await at.open("/mcp#/docs/%2Fmcp/tool/convert")
    await at.page.select_option(".pick:has-text('Log') select", label="info")
    await at.field("amount").fill("10")
    await at.call()


async def overview(at: Watched) -> None:
    """What a server says of itself."""
    await at.open("/mcp")


VIEWS = (overview, method, table, question, progress)
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")


CONSOLE = {
    "now": "td.where:has-text('served.py')",
    "timeline": ".rows tbody tr[id]",
    "methods": "td button.name",
    "errors": ".rows tbody tr[id]",
    "connections": "td",
    "machine": ".card",
    "tasks": ".rows tbody tr[id]:has-text('publish')",
    "docs/%2F/method/place": "article",
}
"""The views of the console, and what each waits for."""
OPENED = ("now", "timeline", "methods", "tasks")


async def main(folder: Path) -> None:
    """Write them all."""
    async with browser() as running:
        async with serve({"/": shop(), "/mcp": desk()}, urls="http://127.0.0.1:0") as serving:
            for scheme, width in product(SCHEMES, (1440, 390)):
                async with looking(running, serving.urls[0], color_scheme=scheme, viewport=sized(width)) as at:
                    for draw in VIEWS if width == 1440 else (method, overview):
                        await draw(at)
                        await at.page.screenshot(path=folder / f"{draw.__name__}-{scheme}-{width}.png")
        async with operating() as it:
            for scheme, width in product(SCHEMES, (1440, 360)):
                async with looking(running, it.url, color_scheme=scheme, viewport=sized(width)) as at:
                    await at.open(f"/#{it.secret}", "header a:has-text('Try')")
                    for name, wait in CONSOLE.items():
                        await at.page.goto(f"{it.url}/#/{name}")
                        await at.page.wait_for_selector(wait)
                        if name in OPENED:
                            row = wait if name == "tasks" else ".rows tbody tr[id], td button.name"
                            await at.page.locator(row).first.click()
                            await at.page.wait_for_selector(".question" if name == "tasks" else ".detail")
                        await at.page.screenshot(path=folder / f"console-{name.split('/')[0]}-{scheme}-{width}.png")


def sized(width: int) -> Any:
    """A window of this width."""
    return {"width": width, "height": 900}


@asynccontextmanager
async def operating() -> AsyncIterator[Operated]:
    """What the console is looked at with: calls that have ended and calls in flight, and tasks."""
    reports = Reports()
    served = {"/": shop(), "/mcp": desk(), "/reports": reports.app}
    async with operated(served) as it, client(reports, "ada@example.org") as ada, client(reports) as anybody:
        await becomes(ada, await begin(ada, "export", words="archive.example does not answer"), "completed")
        reports.go.set()
        await becomes(anybody, await begin(anybody, "render", pages=4), "completed")
        reports.go.clear()
        asking = await begin(ada, "publish", title="Publish the report “Sales 2026” (12 pages)?")
        await becomes(ada, asking, "input_required")
        rendering = await begin(ada, "render", pages=12)
        async with calling(it):
            yield it
        for id in (asking, rendering):
            await ada.unchecked("tasks/cancel", taskId=id)


@asynccontextmanager
async def calling(it: Operated) -> AsyncIterator[None]:
    """Some calls that have ended, and some in flight."""
    url = it.serving.urls[0].rstrip("/")
    async with connect(url, timeout=None) as peer, Client(f"{url}/mcp", revision="2025-11-25") as client:
        stuck = [asyncio.ensure_future(peer.call("slow", [600])) for _ in range(3)]
        for number in range(60):
            try:
                await peer.call("subtract", [number, 1] if number % 3 else [number])
            except RpcError:
                await client.call_tool("forecast", {"city": "Lima"})
            await asyncio.sleep(0.1)  # so that the timeline has some width
        yield
        for one in stuck:
            one.cancel()


if __name__ == "__main__":
    Path(sys.argv[1]).mkdir(parents=True, exist_ok=True)
    asyncio.run(main(Path(sys.argv[1])))
