"""The console's list of event subscriptions in a real browser: how deliveries go is seen, one is tried again and ended,
and texts of others are texts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import cycle
from typing import Any

import pytest

from tests.mcp.calling import Calls
from tests.mcp.extensions.events.receiving import Receiver, echo, receiving
from tests.npm import installed

from .browsing import Watched, looking
from .consoled import operated
from .served import shop
from .shipments import Shipments, failing, subscribe, subscriber
from .test_console import ROWS, WORST, go, poisoned, press_until

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.slow,
    pytest.mark.xdist_group("browser"),
]


@asynccontextmanager
async def listing(running: Any, **options: Any) -> AsyncIterator[tuple[Shipments, Calls, Receiver, Watched]]:
    """A server with events, a client that subscribes, a receiver that fails, and a browser at the console's list."""
    shipments = Shipments(retries=[600])
    async with (
        receiving(failing()) as receiver,
        operated({"/shop": shipments.app}) as it,
        subscriber(shipments, "ada") as calls,
        looking(running, it.url, **options) as at,
    ):
        await at.open(f"/#{it.secret}", "header a:has-text('Events')")
        await go(at, "Events", "h1:has-text('Event subscriptions')")
        yield shipments, calls, receiver, at
        at.fine()


async def test_one_is_seen_from_its_first_refusal_to_its_last_delivery(running: Any) -> None:
    async with listing(running) as (shipments, calls, receiver, at):
        await at.page.wait_for_selector("text=Nothing fits.")
        id = await subscribe(calls, receiver, path="/t0psecret")
        await at.page.wait_for_selector(f"{ROWS}:has-text('active'):has-text('orders.shipped')")
        await shipments.ship("1", "2")
        await at.page.wait_for_selector(f"{ROWS}:has-text('retrying'):has-text('http_5xx'):has-text('in ')")
        await at.page.wait_for_selector(".tile.bad:has-text('retrying'):has-text('1')")
        await at.page.click(ROWS)
        said = await at.page.inner_text(".detail")
        for words in (
            receiver.url.removesuffix("/hooks"),
            "ada",
            "https://id.example.org",
            "never",
            id,
            "this process",
        ):
            assert words in said
        receiver.behave = echo
        await at.page.click("text=Try again now")
        await at.page.wait_for_selector(".done:has-text('is tried again')")
        await at.page.wait_for_selector(f"{ROWS}:has-text('active')")
        await at.page.wait_for_selector(".tile:has-text('delivered'):has-text('2')")
        assert await at.page.locator("text=Try again now").count() == 0
        assert "t0psecret" not in await at.page.content()


async def test_one_is_ended_by_the_keyboard_after_it_was_asked_for(running: Any) -> None:
    async with listing(running) as (_, calls, receiver, at):
        await subscribe(calls, receiver)
        await at.page.wait_for_selector(ROWS)
        await press_until(at, "table[role=grid]")
        await at.page.keyboard.press("ArrowDown")
        await at.page.keyboard.press("Enter")
        await press_until(at, ".detail button.stop")
        await at.page.keyboard.press("Enter")
        assert "orders.shipped" in await at.page.inner_text("dialog")
        await press_until(at, "dialog button.stop")
        await at.page.keyboard.press("Enter")
        await at.page.wait_for_selector(".done:has-text('has ended')")
        await at.page.wait_for_selector("text=Nothing fits.")
        await at.page.wait_for_selector(".detail", state="detached")
        (told,) = await receiver.have(1)
        assert told.message["type"] == "terminated"


async def test_they_are_chosen_by_state_and_words_and_more_are_read(running: Any) -> None:
    async with listing(running) as (shipments, calls, receiver, at):
        for number in range(100):
            await subscribe(calls, receiver, "orders.returned", path=f"/{number}")
        async with subscriber(shipments, "bob") as bob:
            await subscribe(bob, receiver)
            await shipments.ship("1")
            await at.page.wait_for_selector("main > .note:has-text('100 subscriptions')")
            await at.page.click("main > .note >> text=More")
            await at.page.wait_for_selector("main > .note:has-text('101 subscriptions')")
            await at.page.select_option(".by select", label="◌ retrying")
            await at.page.wait_for_selector("main > .note:has-text('1 subscription.')")
            await at.page.select_option(".by select", label="any")
            await at.page.fill("input[type=search]", "Bob shipped")
            await at.page.keyboard.press("Enter")
            await at.page.wait_for_selector("main > .note:has-text('1 subscription.')")
            await at.page.fill("input[type=search]", "x " * 30)
            await at.page.keyboard.press("Enter")
            await at.page.wait_for_selector("main .fault:has-text('at most 5 words')")


async def test_where_nothing_has_events_there_is_no_list(running: Any) -> None:
    async with operated(shop()) as it, looking(running, it.url) as at:
        await at.open(f"/#{it.secret}", "header a:has-text('Try')")
        assert await at.page.locator("header a:has-text('Events')").count() == 0


async def test_who_may_look_alone_can_neither_end_nor_retry(running: Any) -> None:
    async with listing(running) as (shipments, calls, receiver, at):
        await subscribe(calls, receiver)
        await shipments.ship("1")
        only = {"services": [], "may": ["console:view"]}
        await at.page.route("**/api/services", lambda route: route.fulfill(json=only))
        await at.page.reload()
        await go(at, "Events", f"{ROWS}:has-text('retrying')")
        await at.page.click(ROWS)
        await at.page.wait_for_selector(".detail:has-text('http_5xx')")
        assert await at.page.locator(".detail button").count() == 1  # Close


async def test_an_answer_of_nothing_but_hostile_texts_is_drawn(running: Any) -> None:
    """The console's own server is trusted; a subscription's members are of others, whatever they hold."""
    async with listing(running) as (shipments, calls, receiver, at):
        await subscribe(calls, receiver)
        await shipments.ship("1")
        turn = cycle(WORST)

        async def worst(route: Any) -> None:
            found = await (await route.fetch()).json()
            rows = [poisoned(one, turn) | {"arguments": next(turn)} for one in found["subscriptions"]]
            await route.fulfill(json=found | {"subscriptions": rows, "away": [next(turn)]})

        await at.page.route("**/api/subscriptions?*", worst)
        await at.page.reload()
        await go(at, "Events", ROWS)
        await at.page.click(ROWS)
        await at.page.wait_for_selector(".detail pre")
        hostile = "document.querySelectorAll('main img, main script, main svg, main iframe').length"
        assert await at.page.evaluate(hostile) == 0


@pytest.mark.parametrize("width", [360, 1440])
async def test_axe_finds_nothing_and_it_is_not_wider_than_the_window(
    running: Any, request: pytest.FixtureRequest, width: int
) -> None:
    source = (installed(request, ["axe-core@4.10.3"]) / "axe-core" / "axe.min.js").read_text()
    async with listing(running, viewport={"width": width, "height": 900}) as (shipments, calls, receiver, at):
        await subscribe(calls, receiver)
        await shipments.ship("1")
        await at.page.click(f"{ROWS}:has-text('retrying')")
        await at.page.wait_for_selector(".detail")
        await at.page.evaluate(source)
        for scheme in ("light", "dark"):
            await at.page.emulate_media(color_scheme=scheme)
            found = await at.page.evaluate("axe.run()")
            said = [(one["id"], [node["html"][:160] for node in one["nodes"][:3]]) for one in found["violations"]]
            assert said == [], scheme
        assert await at.page.evaluate("document.documentElement.scrollWidth") <= width
