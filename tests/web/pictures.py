"""Pictures of the page, to be looked at: `python -m tests.web.pictures FOLDER` writes them, in light and dark."""

from __future__ import annotations

import asyncio
import sys
from itertools import product
from pathlib import Path
from typing import Literal

from dragoman import serve
from tests.web.browsing import Watched, browser, looking
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


async def main(folder: Path) -> None:
    """Write them all."""
    async with serve({"/": shop(), "/mcp": desk()}, urls="http://127.0.0.1:0") as serving, browser() as running:
        for scheme, width in product(SCHEMES, (1440, 390)):
            view = {"width": width, "height": 900}
            async with looking(running, serving.urls[0], color_scheme=scheme, viewport=view) as at:
                for draw in VIEWS if width == 1440 else (method, overview):
                    await draw(at)
                    await at.page.screenshot(path=folder / f"{draw.__name__}-{scheme}-{width}.png")


if __name__ == "__main__":
    Path(sys.argv[1]).mkdir(parents=True, exist_ok=True)
    asyncio.run(main(Path(sys.argv[1])))
