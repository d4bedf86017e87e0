"""A real browser at the page: what it asked for, what it complained of, what ran."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.skips import missing

PATIENCE = 20_000.0
"""Milliseconds for what a test waits for."""


class Watched:
    """A page of the browser. `elsewhere`: requests to other origins; `complaints`: of its policy, and errors of its
    scripts; `dialogs`: what a script has shown, which nothing here may."""

    def __init__(self, page: Any, url: str) -> None:
        self.page, self.url = page, url
        self.elsewhere: list[str] = []
        self.complaints: list[str] = []
        self.dialogs: list[str] = []
        page.set_default_timeout(PATIENCE)
        page.on("request", lambda one: self._asked(one.url))
        page.on("console", lambda one: self._said(one.text))
        page.on("pageerror", lambda one: self.complaints.append(str(one)))
        page.on("popup", lambda one: self.elsewhere.append(one.url))
        page.on("dialog", self._dialog)

    def _asked(self, url: str) -> None:
        if not url.startswith((self.url + "/", "data:")):
            self.elsewhere.append(url)

    def _said(self, text: str) -> None:
        if any(word in text for word in ("Security Policy", "Trusted", "integrity", "MIME")):
            self.complaints.append(text)

    async def _dialog(self, one: Any) -> None:
        self.dialogs.append(one.message)
        await one.dismiss()

    async def open(self, path: str = "/docs", wait: str = ".list a") -> None:
        """Go to a path, with the fragment."""
        await self.page.goto("about:blank")
        await self.page.goto(self.url + path)
        await self.page.wait_for_selector(wait)

    async def until(self, expression: str, arg: object = None) -> None:
        """Wait until an expression of JavaScript is true: `wait_for_function` of Playwright looks again by `eval` in
        the page, which the page's policy forbids."""
        async with asyncio.timeout(PATIENCE / 1000):
            while not await self.page.evaluate(expression, arg):  # noqa: ASYNC110
                await asyncio.sleep(0.05)

    def field(self, name: str, kind: str = "input, textarea, select") -> Any:
        """The control of a field by its name."""
        return self.page.locator(f".field:has(> .label .name:text-is('{name}'))").locator(kind).first

    async def call(self, button: str = "Call") -> str:
        """Press the button of the form, and wait for what comes; its text."""
        await self.page.click(f"article .bar button.main:text-is('{button}')")
        return await self.outcome()

    async def outcome(self) -> str:
        await self.page.wait_for_selector("article section[aria-busy=false] .outcome")
        found: str = await self.page.inner_text("article .outcome")
        return found

    def fine(self) -> None:
        """Nothing was asked for elsewhere, nothing ran that should not, and no policy was violated."""
        assert (self.elsewhere, self.complaints, self.dialogs) == ([], [], []), (
            self.elsewhere,
            self.complaints,
            self.dialogs,
        )


@asynccontextmanager
async def browser(*args: str) -> AsyncIterator[Any]:
    """The system's browser, with further arguments."""
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        missing("no chromium on this machine, so no browser")
    try:
        from playwright.async_api import async_playwright
    except ModuleNotFoundError:
        missing("no playwright, which drives the browser")
    async with async_playwright() as playwright:
        running = await playwright.chromium.launch(executable_path=program, args=["--no-sandbox", *args])
        yield running
        await running.close()


@asynccontextmanager
async def looking(running: Any, url: str, **options: Any) -> AsyncIterator[Watched]:
    """A page in a browser of its own."""
    context = await running.new_context(**{"viewport": {"width": 1440, "height": 900}} | options)
    page = await context.new_page()
    try:
        yield Watched(page, url.rstrip("/"))
    finally:
        await page.unroute_all(behavior="ignoreErrors")  # what is on its way has nobody to answer any more
        await context.close()
