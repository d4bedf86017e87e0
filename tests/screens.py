"""The screenshots of the documentation, made from the running program: `python -m tests.screens` writes docs/screens.

The page, the console and a login are taken in a browser, what the command prints from a terminal (`tests.terminal`).
Words after the module choose some: `python -m tests.screens doctor top`. The browser, and fonts for Chinese, are
Debian's packages chromium and fonts-noto-cjk.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import cycle
from pathlib import Path
from typing import Any, Literal

from dragoman import Peer, connect, serve
from dragoman.auth import Bearer, Login, MemoryStore
from dragoman.auth.testing import LocalIssuer
from dragoman.mcp import Client, Server
from tests.snippets import EXAMPLES, ROOT
from tests.terminal import Terminal, record
from tests.web.browsing import Watched, browser, looking
from tests.web.pictures import CONSOLE, method, operating
from tests.web.served import desk, shop

SCREENS = ROOT / "docs" / "screens"
SESSIONS = {"first": ("mcp/first.console", 3), "doctor": ("command_doctor.console", 3)}
"""Pictures of a session of docs/snippets, and how many of its commands they show."""
COLUMNS = 92
SIZE = {"width": 1200, "height": 640}
HERO = {"width": 1000, "height": 545}
"""Pixels."""
Scheme = Literal["light", "dark"]
SCHEMES: tuple[Scheme, Scheme] = ("light", "dark")


@asynccontextmanager
async def opened(url: str, scheme: Scheme, size: dict[str, int] = SIZE, scale: float = 1) -> AsyncIterator[Watched]:
    """A browser at a URL, in light or dark."""
    async with browser() as running:
        options: dict[str, Any] = {"color_scheme": scheme, "viewport": size, "device_scale_factor": scale}
        async with looking(running, url, **options) as at:
            yield at


async def save(at: Watched, name: str) -> None:
    """Write what the browser shows."""
    await at.page.screenshot(path=SCREENS / f"{name}.png")


async def weather() -> None:
    """The page of the README's server, light and dark, in an English and a Chinese hand."""
    names: dict[str, Any] = {}
    exec((EXAMPLES / "weather.py").read_text(), names)
    app: Server = names["app"]
    async with serve(app, urls="http://127.0.0.1:8000/mcp"):
        for scheme in SCHEMES:
            for suffix, city in (("", "Beijing"), ("_zh", "北京")):
                async with opened("http://127.0.0.1:8000", scheme, HERO, 1.5) as at:
                    await at.open("/mcp#/docs/%2Fmcp/tool/forecast")
                    await at.field("city").fill(city)
                    await at.call()
                    await save(at, f"weather{suffix}_{scheme}")


async def page() -> None:
    """A form, and the server's faults beside its fields."""
    served = serve({"/": shop(), "/mcp": desk()}, urls="http://127.0.0.1:8000")
    async with served, opened("http://127.0.0.1:8000", "light") as at:
        await method(at)
        await save(at, "page")


async def console() -> None:
    """Three views of the console; the first in light and dark."""
    async with operating() as it:
        async with opened(it.url, "dark") as at:
            await at.open(f"/#{it.secret}", CONSOLE["now"])
            await save(at, "console_now_dark")
        async with opened(it.url, "light") as at:
            await at.open(f"/#{it.secret}", CONSOLE["now"])
            await save(at, "console_now")
            await at.page.goto(f"{it.url}/#/timeline")
            await at.page.wait_for_selector(CONSOLE["timeline"])
            await save(at, "console_timeline")
            await at.page.set_viewport_size({"width": 1200, "height": 760})  # so that there are rows below what is open
            await at.page.goto(f"{it.url}/#/tasks")
            await at.page.click(CONSOLE["tasks"])
            await at.page.wait_for_selector(".question")
            await save(at, "console_tasks")


async def login() -> None:
    """What a person is asked in the browser by the authorization server for trying."""
    url = "http://127.0.0.1:8000/mcp"
    with LocalIssuer(resources=[url], scopes=["notes:write"], automatic=None) as issuer:
        app = Server("notes", auth=Bearer(issuer.url, resource=url))
        shown: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        async with serve(app, urls=url):
            client = Client(
                url, auth=Login(scopes="notes:write", store=MemoryStore(), browser=False, on_url=shown.set_result)
            )
            entering = asyncio.ensure_future(client.__aenter__())
            async with opened(await shown, "light", {"width": 760, "height": 870}) as at:
                await at.page.goto(await shown)
                await save(at, "login")
            entering.cancel()
            await asyncio.gather(entering, return_exceptions=True)


async def sessions() -> None:
    """What the command prints."""
    for name, (session, most) in SESSIONS.items():
        await asyncio.to_thread(written, name, session, most)


def written(name: str, session: str, most: int) -> None:
    """Write the picture of a session."""
    with tempfile.TemporaryDirectory() as place:
        (SCREENS / f"{name}.svg").write_text(record(session, Path(place), COLUMNS, most))


LAB = """\
import asyncio

from dragoman import Service

api = Service("lab", version="1.0.0")


@api.method
async def train(rows: int) -> int:
    "Train a model."
    await asyncio.sleep(rows)
    return rows


@api.method
async def forecast(city: str) -> str:
    "Tomorrow's weather."
    await asyncio.sleep(len(city) / 500)
    return f"sunny in {city}"
"""
CITIES = ("Lima", "Beijing", "Ulan Bator")


async def top() -> None:
    """`dragoman top` beside a server with calls in flight."""
    with tempfile.TemporaryDirectory() as place:
        (Path(place) / "lab.py").write_text(LAB)
        (Path(place) / "run").mkdir(mode=0o700)
        server, looker = Terminal(COLUMNS, 20, Path(place)), Terminal(COLUMNS, 24, Path(place))
        try:
            await asyncio.to_thread(
                server.run, "dragoman serve lab.py unix:lab.sock --admin run/admin.sock", "lab.sock"
            )
            async with connect(f"unix:{place}/lab.sock") as peer:
                stuck = [asyncio.ensure_future(peer.call("train", [rows])) for rows in (600, 900)]
                busy = asyncio.ensure_future(call_often(peer))
                looker.prompt("dragoman top run/admin.sock")
                await asyncio.to_thread(looker.run, "dragoman top run/admin.sock", "forecast", 12)
                (SCREENS / "top.svg").write_text(looker.svg("dragoman top"))
                for one in (*stuck, busy):
                    one.cancel()
                await asyncio.gather(*stuck, busy, return_exceptions=True)
        finally:
            await asyncio.to_thread(looker.close)
            await asyncio.to_thread(server.close)


async def call_often(peer: Peer) -> None:
    """Call one method after another."""
    for city in cycle(CITIES):
        await peer.call("forecast", [city])


TAKEN: dict[str, Callable[[], Awaitable[None]]] = {
    "weather": weather,
    "page": page,
    "console": console,
    "login": login,
    "sessions": sessions,
    "top": top,
}


async def main(names: list[str]) -> None:
    """Take these, or all of them."""
    for name in names or TAKEN:
        await TAKEN[name]()
        print(name)


if __name__ == "__main__":
    SCREENS.mkdir(exist_ok=True)
    asyncio.run(main(sys.argv[1:]))
