"""What other pages of the same browser can do to a console that is open in it: nothing; what stays of its secret; and
what texts of far ends do there: nothing."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import pytest_asyncio

from dragoman import RpcError, Service, connect, serve
from dragoman.console import Watching
from dragoman.console.endpoint import Console, new_secret
from dragoman.mcp import Client, Server
from dragoman.web import read_console_files
from tests.console.ends import listening, with_console

from .browsing import Watched, browser, looking
from .consoled import Operated, operated
from .hostile import ATTEMPTS, HELPERS, hostile_site
from .served import desk, shop
from .test_console import VIEWS
from .test_page import ACTIVE, BIDI, MARKUP, lie, look_through

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.slow,
    pytest.mark.xdist_group("browser"),
]
REBOUND = "rebound.example"
SCRIPT = next(path for path in read_console_files() if path.endswith("/console/console.js"))


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def running() -> AsyncIterator[Any]:
    """A browser for which a name of another site leads to this machine."""
    async with browser(f"--host-resolver-rules=MAP {REBOUND} 127.0.0.1") as one:
        yield one


class Counted:
    """A console's source, and what was asked of it."""

    def __init__(self, source: Any) -> None:
        self._source = source
        self.asked: list[str] = []

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._source, name)

        def ask(*given: Any) -> Any:
            self.asked.append(name)
            return found(*given)

        return ask


@asynccontextmanager
async def counted(at: int = 0) -> AsyncIterator[tuple[Operated, Counted]]:
    """A shop and a travel desk with a console at a port, and what was asked of it."""
    watching, secret = Watching(), new_secret()
    async with serve({"/": shop(), "/mcp": desk()}, urls="http://127.0.0.1:0", observers=watching.observers) as serving:
        source = Counted(watching.source(lambda: serving.served))
        console = Console(source, secret=secret)
        async with listening(console, port=at) as port:
            yield Operated(serving, console, watching.recorder, f"http://127.0.0.1:{port}", secret), source


async def attempt(page: Any, name: str, at: str, script: str = SCRIPT) -> Any:
    """Return what one attempt could read."""
    body = f"async ([at, own]) => {{ {HELPERS} {ATTEMPTS[name]} }}"
    return await page.evaluate(body, [at, at + script])


OWN = [
    "fetch, simple",
    "order by JSON",
    "XMLHttpRequest",
    "a form by POST",
    "a form of text that is JSON",
    "the page's own script",
    "an import",
    "a frame",
    "an object",
    "a service worker here",
    "a window",
]


async def test_another_page_reads_nothing_and_does_nothing(running: Any, caplog: pytest.LogCaptureFixture) -> None:
    """A console without readers, so that whatever is asked of its source is asked for a foreign page."""
    caplog.set_level(logging.INFO, "dragoman.audit")
    async with (
        counted() as (it, source),
        hostile_site() as site,
        looking(running, site.url) as at,
        connect(it.serving.urls[0], timeout=None) as peer,
    ):
        stuck = asyncio.ensure_future(peer.call("slow", [600]))
        await at.open("/", "p")
        for name in OWN:  # what they can do where nothing is in their way
            assert await attempt(at.page, name, site.url, "/worker.js") is not None, name
        read, done = {}, {}
        for name in ATTEMPTS:
            found = await attempt(at.page, name, it.url)
            if found is not None:
                read[name] = found
            if source.asked:
                done[name] = source.asked.copy()
                source.asked.clear()
        assert (read, done) == ({}, {})
        frames = [await one.evaluate("document.body.innerText") for one in at.page.frames if it.url in one.url]
        assert not [one for one in frames if one.strip()]
        assert not stuck.done()
        assert [one for one in caplog.records if one.name == "dragoman.audit"] == []
        assert at.dialogs == []
        stuck.cancel()


DOORS = ["order by JSON", "order by text", "a form of text that is JSON", "a web socket at the API"]


async def test_a_page_that_is_open_beside_it_changes_nothing_of_it(running: Any) -> None:
    """In the same profile, where the console has its secret."""
    async with (
        counted() as (it, source),
        hostile_site() as site,
        looking(running, it.url) as at,
        connect(it.serving.urls[0], timeout=None) as peer,
    ):
        stuck = asyncio.ensure_future(peer.call("slow", [600]))
        await at.open(f"/#{it.secret}", "td.where:has-text('served.py')")
        other = Watched(await at.page.context.new_page(), site.url)
        await other.open("/", "p")
        for name in DOORS:
            assert await attempt(other.page, name, it.url) is None, name
        assert not {"kill", "end", "call"} & set(source.asked)
        assert not stuck.done()
        await at.page.wait_for_selector("td.where:has-text('served.py')")
        stuck.cancel()
        at.fine()


LURES = {
    "GET": "{}",
    "GET with a token": "{ headers: { Authorization: 'Bearer x' } }",
    "GET with credentials": "{ credentials: 'include' }",
    "POST": "{ method: 'POST', body: ORDER, headers: JSON_TYPE }",
    "PUT": "{ method: 'PUT', body: ORDER, headers: JSON_TYPE }",
}


async def test_a_name_that_was_led_here_is_not_believed(running: Any) -> None:
    """DNS rebinding: to the browser the console is of the hostile page's own origin."""
    async with hostile_site() as site:
        url = site.url.replace("127.0.0.1", REBOUND)
        port = int(url.rpartition(":")[2])
        async with looking(running, url) as at:
            await at.open("/", "p")
            await site.leave()
            async with counted(port) as (_, source):
                await ask_as_own(at, source)


async def ask_as_own(at: Watched, source: Counted) -> None:
    for name, init in LURES.items():
        for path in ("/", "/api/now", "/api/services", "/api/stop", "/api/try?at=/", "/api/feed", SCRIPT):
            body = f"([path]) => {{ {HELPERS} return fetch(path, {init}).then((one) => one.status); }}"
            assert await at.page.evaluate(body, [path]) == 421, (name, path)
    answer = await at.page.goto(f"{at.url}/")
    assert answer.status == 421
    assert await at.page.locator("script").count() == 0
    assert source.asked == []


DOCS = ["fetch, simple", "a frame", "an object", "a window", "the page's own script", "an import"]
CALL = '{"jsonrpc":"2.0","method":"subtract","params":[2,1],"id":1}'


async def test_another_page_does_not_call_what_the_docs_page_calls(running: Any) -> None:
    async with counted() as (it, _), hostile_site() as site, looking(running, site.url) as at:
        service = it.serving.urls[0].rstrip("/")
        await at.open("/", "p")
        for name in DOCS:
            assert await attempt(at.page, name, service, "/docs/services") is None, name
        for path in ("/docs", "/", "/mcp"):
            got = await at.page.evaluate(
                f"([url]) => {{ {HELPERS} return add('iframe', {{ src: url }}).then(([one]) => inside(one)); }}",
                [service + path],
            )
            assert got is None, path
        for kind in ("application/json", "text/plain", "application/x-www-form-urlencoded", ""):
            for mode in ("cors", "no-cors"):
                init = f"{{ method: 'POST', mode: '{mode}', body: new Blob([body], {{ type: '{kind}' }}) }}"
                got = await at.page.evaluate(
                    f"([url, body]) => {{ {HELPERS} return read(url, {init}); }}", [service + "/", CALL]
                )
                assert got is None, (kind, mode)
        methods = [one.method for one in await it.console._source.timeline("", 100, None)]
        assert set(methods) <= {"rpc.discover"}  # which the page asks for where it was opened in a window


# -- the secret


LEFT = """async () => JSON.stringify([
  location.href, document.URL, document.referrer, document.title, document.cookie, window.name, history.state,
  { ...localStorage }, performance.getEntries().map((one) => one.name.split("#")[0]), document.documentElement.outerHTML,
  await indexedDB.databases(), await caches.keys(), (await navigator.serviceWorker.getRegistrations()).length,
])"""


async def test_what_stays_of_the_secret(running: Any) -> None:
    async with counted() as (it, _), looking(running, it.url) as at:
        sent: list[dict[str, str]] = []
        at.page.on("request", lambda one: sent.append({"url": one.url.partition("#")[0]} | one.headers))
        await at.open(f"/#{it.secret}", "h1:has-text('In flight')")
        for _ in range(2):
            left = await at.page.evaluate(LEFT)
            assert it.secret not in left
            await at.page.reload()
            await at.page.wait_for_selector("h1:has-text('In flight')")
        assert [one for one in sent if one.get("referer") or it.secret in one["url"] or "cookie" in one] == []
        assert {one.get("authorization") for one in sent if "/api/" in one["url"]} == {f"Bearer {it.secret}"}
        assert {one.get("authorization") for one in sent if "/api/" not in one["url"]} == {None}
        await at.page.go_back()
        await at.page.go_forward()
        assert it.secret not in at.page.url
        await at.page.wait_for_selector("h1:has-text('In flight')")
        other = await at.page.context.new_page()
        await other.goto(it.url)
        await other.wait_for_selector("h1:has-text('The console is locked')")
        assert await other.evaluate("JSON.stringify([{...sessionStorage}, {...localStorage}])") == "[{},{}]"
        at.fine()


FRAGMENTS = [
    "javascript:alert(1)", "%6aavascript:alert(1)", "data:text/html,<script>alert(1)</script>", "<img src=x onerror=alert(1)>",
    "%3Cimg%20src=x%20onerror=alert(1)%3E", "//evil.example/", "/%2F%2Fevil.example", "/timeline?<svg onload=alert(1)>",
    "/timeline?%", "/__proto__", "/constructor", "/docs/javascript:alert(1)/method/x", "/docs/https%3A%2F%2Fevil.example/method/x",
    "a%0Ab", "%E6%97%A5%E6%9C%AC", "%ff", "%00", "x" * 100_000,
]  # fmt: skip


async def test_fragments_run_nothing_and_lock_the_page(running: Any) -> None:
    """A fragment that begins with a slash is a view, any other a secret; none of these is ours."""
    async with counted() as (it, source), looking(running, it.url) as at:
        for one in FRAGMENTS:
            await at.open(f"/#{one}", "h1:has-text('The console is locked')")
            assert at.page.url.startswith(f"{it.url}/#/")
            await at.page.evaluate("sessionStorage.clear()")
        assert source.asked == []
        at.fine()


# -- texts of far ends


async def test_a_hostile_server_in_the_consoles_view_of_it(running: Any) -> None:
    async with operated({"/mcp": desk()}) as it, looking(running, it.url) as at:
        await at.page.route("**/api/try?*", lie)
        await at.open(f"/#{it.secret}", "header a:has-text('Try')")
        await at.page.click("header a:has-text('Try')")
        await at.page.wait_for_selector(".list a")
        await look_through(at)
        at.fine()


class Worst(RpcError):
    """An error whose texts are all hostile."""

    code = 4000
    message = f"{MARKUP} {BIDI} javascript:alert(1) https://evil.example/?q=1 {'w' * 10_000}"


def poisonous() -> dict[str, Any]:
    """A service and a server whose every text is hostile."""
    words = f"{MARKUP} {BIDI} [x](javascript:alert(1)) https://evil.example/?q=1 `{MARKUP}`"
    api = Service(f"s {MARKUP}", description=words, version=MARKUP)

    async def fail(text: str = MARKUP) -> str:
        raise Worst(data={MARKUP: words, "__proto__": {"constructor": 1}})

    async def wait(text: str = MARKUP) -> str:
        await asyncio.sleep(600)
        return text

    fail.__doc__ = wait.__doc__ = words
    api.method(name=f"fail {MARKUP}", tags=[MARKUP], errors=[Worst])(fail)
    api.method(name=f"wait {BIDI}")(wait)
    app = Server(f"m {MARKUP}", title=words, version=MARKUP, instructions=words)

    @app.tool(title=words, description=words)
    async def echo(text: str) -> str:
        return text + MARKUP

    return {"/": api, "/mcp": app}


async def test_hostile_clients_and_services_are_texts_in_every_view(running: Any) -> None:
    """Nothing is put into the answers here: what the views get has gone through the server."""
    async with (
        with_console(poisonous(), "http://127.0.0.1:0", messages=True) as ends,
        looking(running, f"http://127.0.0.1:{ends.port}") as at,
        connect(ends.serving.urls[0], timeout=None) as peer,
        Client(f"{ends.serving.urls[0].rstrip('/')}/mcp", revision="2025-11-25", name=MARKUP, version=BIDI) as client,
    ):
        for name in (f"fail {MARKUP}", MARKUP, BIDI, "javascript:alert(1)", "__proto__", "constructor", "w" * 250):
            with pytest.raises(RpcError):
                await peer.call(name, {"text": MARKUP})
        await client.call_tool("echo", {"text": BIDI})
        stuck = asyncio.ensure_future(peer.call(f"wait {BIDI}", [MARKUP]))
        await at.open(f"/#{ends.secret}", "td.where:has-text('test_console_matrix.py')")
        for name, wait in VIEWS.items():
            await at.page.goto(f"{at.url}/#/{name}")
            await at.page.wait_for_selector(wait)
            for button in (".rows tbody tr[id]", "main td button.name", "main .plain"):
                for one in (await at.page.locator(button).all())[:8]:
                    if await one.is_visible():
                        await one.click()
            assert await at.page.locator(ACTIVE).count() == 0, name
            assert await at.page.locator("main img").count() == 0, name
        await at.page.click("header a:has-text('Try')")
        for n in range(2):
            await at.page.select_option(".pick:has-text('Service') select", index=n)
            await at.page.wait_for_selector(f".list a[href*='{('method', 'tool')[n]}']")
            for one in await at.page.locator(".list a").all():
                await one.click()
                await at.page.wait_for_selector("article h1")
                assert await at.page.locator(f"{ACTIVE}, main img").count() == 0
        await at.page.click(".list a >> nth=0")
        at.fine()
        stuck.cancel()
