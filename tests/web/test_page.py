"""The page in a real browser: what it shows, calls, asks, and keeps to itself."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import pytest_asyncio

from dragoman import Service, serve
from dragoman.auth import Bearer
from dragoman.auth.testing import LocalIssuer
from dragoman.mcp import Server, ToolAnnotations
from dragoman.web import read_page_files
from tests.npm import installed
from tests.skips import SCHEMAS

from .browsing import Watched, looking
from .served import desk, left, shop

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.slow,
    pytest.mark.xdist_group("browser"),
]
REVISIONS = ["2026-07-28", "2025-11-25", "2025-06-18"]


@pytest_asyncio.fixture(loop_scope="module")
async def at(running: Any) -> AsyncIterator[Watched]:
    """The page of a shop at `/` and a travel desk at `/mcp`."""
    async with (
        serve({"/": shop(), "/mcp": desk()}, urls="http://127.0.0.1:0") as serving,
        looking(running, serving.urls[0]) as watched,
    ):
        yield watched
        watched.fine()


async def test_it_lists_what_a_service_and_a_server_offer(at: Watched) -> None:
    await at.open()
    assert await at.page.locator(".list code").all_inner_texts() == [
        "cancel", "find", "place", "slow", "subtract", "total", "tree",
    ]  # fmt: skip
    assert "Orders of a small shop" in await at.page.inner_text("main")
    assert await at.page.get_attribute("main a", "rel") == "noreferrer"
    await at.page.select_option(".pick:has-text('Service') select", index=1)
    await at.page.wait_for_selector(".list code:text-is('book')")
    names = await at.page.locator(".list code").all_inner_texts()
    assert sorted(names) == sorted(
        ["ask", "book", "convert", "forecast", "wait", "trip://cities", "trip://{id}/plan", "pack"]
    )
    assert "Plan and book trips" in await at.page.inner_text("main")
    await at.open("/mcp")
    assert "MCP server" in await at.page.inner_text("main")


async def test_a_call_by_a_form(at: Watched) -> None:
    await at.open("/#/docs/%2F/method/place")
    await at.page.click("text=Add an item")
    for name, value in [("sku", "a-1"), ("street", "Main"), ("city", "Lima"), ("postcode", "12345")]:
        await at.field(name).fill(value)
    await at.page.locator("fieldset:has(> legend .name:text-is('pay')) select").first.select_option(
        label="type: invoice"
    )
    await at.field("priority").select_option(label="urgent")
    await at.page.locator(".field:has(> .label .name:text-is('wanted')) input[type=checkbox]").check()
    assert '"city": "Lima"' in await at.call()
    await at.page.click("text=The bytes that went and came")
    sent = json.loads((await at.page.inner_text("article details pre >> nth=0")).split("\n\n")[1])
    assert sent["params"] == {
        "items": [{"sku": "a-1"}], "to": {"street": "Main", "city": "Lima", "postcode": "12345"},
        "pay": {"type": "invoice"}, "priority": "urgent", "wanted": None,
    }  # fmt: skip


async def test_the_servers_faults_are_beside_the_fields(at: Watched) -> None:
    await at.open("/#/docs/%2F/method/place")
    await at.page.click("text=Add an item")
    await at.field("postcode").fill("1")
    assert "Error -32602" in await at.call()
    for name, words in [("sku", "Missing"), ("postcode", "received"), ("street", "Missing")]:
        shown = at.page.locator(f".field:has(> .label .name:text-is('{name}')) > .fault")
        assert words in await shown.inner_text()
    assert await at.page.evaluate("document.activeElement.closest('.field.wrong') !== null")
    await at.open("/mcp#/docs/%2Fmcp/tool/book")
    await at.field("city").fill("Lima")
    await at.field("nights").fill("many")
    await at.call()
    assert "integer" in await at.page.locator(".field:has(> .label .name:text-is('nights')) > .fault").inner_text()


async def test_notifications_and_batches(at: Watched) -> None:
    await at.open("/#/docs/%2F/method/subtract")
    await at.field("minuend").fill("42")
    await at.field("subtrahend").fill("23")
    await at.page.click("article button:text-is('Notify')")
    assert "Accepted" in await at.outcome()
    for _ in range(2):
        await at.page.click("article button:text-is('Add to a batch')")
    await at.page.click("header a:has-text('Batch')")
    await at.page.click("button:text-is('Send 2 calls')")
    await at.page.wait_for_selector(".outcome table")
    assert (await at.page.inner_text(".outcome")).count("19") == 2
    await at.page.click("header a:has-text('History')")
    assert await at.page.locator(".sent").count() == 2


TYPING = """words => new Promise((done) => {
  const [box, list] = [document.querySelector("nav input"), document.querySelector(".list")];
  new MutationObserver((_, watch) => {
    if (!list.querySelector("a code")?.textContent.includes(words.split(" ").at(-1))) return;
    watch.disconnect();
    done(performance.now() - began);
  }).observe(list, { childList: true, subtree: true, characterData: true });
  const began = performance.now();
  box.value = words;
  box.dispatchEvent(new Event("input", { bubbles: true }));
})"""
"""Types into the search, and says after how many milliseconds the first row fits."""


async def test_a_thousand_methods_are_searched_as_one_types(running: Any) -> None:
    api = Service("many")
    for n in range(1000):

        def one(value: int) -> int:
            return value

        api.method(name=f"group{n % 10}.method{n}")(one)
    async with serve(api, urls="http://127.0.0.1:0") as serving, looking(running, serving.urls[0]) as at:
        await at.open()
        took = [await at.page.evaluate(TYPING, words) for words in ("method77", "group3 method8", "method1")]
        assert max(took) < 500, took
        await at.page.fill("nav input", "nothing at all")
        assert "Nothing has these words" in await at.page.inner_text(".list")
        await at.page.fill("nav input", "method999")
        await at.page.press("nav input", "ArrowDown")
        await at.page.keyboard.press("Enter")
        await at.page.wait_for_selector("article h1:has-text('group9.method999')")
        at.fine()


@pytest.mark.parametrize("revision", REVISIONS)
async def test_a_question_of_the_server_is_answered(at: Watched, revision: str) -> None:
    await at.open("/mcp#/docs/%2Fmcp/tool/book")
    await at.page.select_option(".pick:has-text('Revision') select", label=revision)
    await at.page.wait_for_selector("article")
    await at.field("city").fill("Lima")
    await at.field("nights").fill("3")
    await at.page.click("article .bar button.main")
    await at.page.wait_for_selector(".question:has-text('Book 3 nights in Lima for 270 euros?')")
    await at.page.locator(".question .field:has(.name:text-is('pay')) select").select_option(label="true")
    await at.page.locator(".question .field:has(.name:text-is('seat')) select").select_option(label="aisle")
    await at.page.click(".question button:text-is('Accept')")
    assert "accept aisle" in await at.outcome()
    await at.page.click("article .bar button.main")
    await at.page.click(".question button:text-is('Decline')")
    await at.page.wait_for_selector(".outcome:has-text('decline')")
    await at.page.click(".list code:text-is('ask')")
    await at.field("question").fill("how much?")
    await at.page.click("article .bar button.main")
    await at.page.fill(".question textarea", "a lot")
    await at.page.click(".question button:text-is('Answer')")
    assert "it says a lot" in await at.outcome()


@pytest.mark.parametrize("revision", ["2026-07-28", "2025-11-25"])
async def test_progress_the_log_and_cancelling(at: Watched, revision: str) -> None:
    await at.open("/mcp#/docs/%2Fmcp/tool/convert")
    await at.page.select_option(".pick:has-text('Revision') select", label=revision)
    await at.page.select_option(".pick:has-text('Log') select", label="info")
    await at.page.wait_for_selector("article")
    await at.field("amount").fill("10")
    assert "11.00" in await at.call()
    assert "5 of 5 step 5" in await at.page.inner_text("article section:has(.outcome)")
    assert "asked source 5" in await at.page.inner_text("article details .log:last-child")
    await at.page.click(".list code:text-is('wait')")
    left.clear()
    await at.page.click("article .bar button.main")
    await at.page.wait_for_selector("text=1 of 4 waiting")
    await at.page.click("article button:text-is('Cancel')")
    assert "Cancelled" in await at.outcome()
    await left.wait()


async def test_resources_templates_and_prompts(at: Watched) -> None:
    await at.open("/mcp#/docs/%2Fmcp/resource/trip%3A%2F%2Fcities")
    assert "Lisbon" in await at.call("Read")
    await at.page.click(".list code:text-is('trip://{id}/plan')")
    await at.field("id").fill("a/b")
    await at.call("Read")
    await at.page.click(".list code:text-is('pack')")
    await at.field("place").fill("Lima")
    assert "for Lima in summer" in await at.call("Get")


async def test_a_call_is_written_for_elsewhere(at: Watched) -> None:
    await at.open("/#/docs/%2F/method/subtract")
    await at.field("minuend").fill("42")
    await at.field("subtrahend").fill("23")
    found = {}
    for name in ("curl", "Python", "urllib", "dragoman", "JSON-RPC"):
        await at.page.click(f".tabs button:text-is('{name}')")
        found[name] = await at.page.inner_text(".copy pre")
    assert found["dragoman"] == f"dragoman call {at.url}/ subtract minuend=42 subtrahend=23"
    assert 'await peer.call("subtract", {"minuend":42,"subtrahend":23})' in found["Python"]
    for name in ("Python", "urllib"):
        compile(found[name], name, "exec")
    assert json.loads(found["JSON-RPC"])["params"] == {"minuend": 42, "subtrahend": 23}
    assert '--data-raw \'{"jsonrpc"' in found["curl"]
    await at.open("/mcp#/docs/%2Fmcp/tool/forecast")
    await at.field("city").fill("L'Aquila")
    assert "-H 'Mcp-Name: forecast'" in await at.page.inner_text(".copy pre")
    await at.page.click(".tabs button:text-is('mcp.json')")
    assert json.loads(await at.page.inner_text(".copy pre"))["mcpServers"]["travel"]["url"] == f"{at.url}/mcp"


async def test_a_tool_that_destroys_is_called_after_a_second_yes(running: Any) -> None:
    app, wiped = Server("wrecker"), []

    @app.tool(annotations=ToolAnnotations(destructive_hint=True))
    def wipe() -> str:
        wiped.append(1)
        return "gone"

    async with serve({"/mcp": app}, urls="http://127.0.0.1:0") as serving, looking(running, serving.urls[0]) as at:
        await at.open("/mcp#/docs/%2Fmcp/tool/wipe", "article")
        await at.page.dblclick("article .bar button.main")
        await at.page.wait_for_selector("text=It may destroy what is there.")
        await at.page.press("article .bar button.main", "Control+Enter")
        await at.page.click("text=Leave it")
        await at.page.wait_for_selector("text=It may destroy what is there.", state="detached")
        assert wiped == []
        await at.page.click("article .bar button.main")
        await at.page.click(".notice button:text-is('Call it')")
        assert "gone" in await at.outcome()
        assert wiped == [1]
        at.fine()


async def test_a_link_fills_in_a_form_and_calls_nothing(at: Watched) -> None:
    await at.open("/#/docs/%2F/method/cancel?%7B%22id%22%3A7%7D")
    await at.page.wait_for_selector(".notice:has-text('The link that led here')")
    assert await at.field("id").input_value() == "7"
    assert await at.page.locator(".outcome").count() == 0
    assert await at.page.inner_text("header a:has-text('History')") == "History (0)"


async def test_by_the_keyboard_alone(at: Watched) -> None:
    await at.open()
    await at.page.keyboard.press("Tab")
    assert "Skip" in await at.page.evaluate("document.activeElement.innerText")
    await at.page.keyboard.press("Enter")
    assert await at.page.evaluate("document.activeElement.id") == "main"
    await at.page.keyboard.press("/")
    await at.page.keyboard.type("subtr")
    await at.page.keyboard.press("ArrowDown")
    await at.page.keyboard.press("Enter")
    await at.page.wait_for_selector("article")
    for value in ("42", "23"):
        while not await at.page.evaluate("document.activeElement.matches('article input')") or value == "23":
            await at.page.keyboard.press("Tab")
            if value == "23":
                break
        await at.page.keyboard.type(value)
    await at.page.keyboard.press("Control+Enter")
    assert "19" in await at.outcome()


async def test_a_protected_server_takes_a_token(running: Any) -> None:
    with LocalIssuer() as issuer:
        options: dict[str, Any] = {"auth": Bearer(issuer.url, resource="http://127.0.0.1/")}
        async with (
            serve({"/": shop(), "/mcp": desk()}, urls="http://127.0.0.1:0", **options) as serving,
            looking(running, serving.urls[0]) as at,
        ):
            for path in ("/docs", "/mcp"):
                await at.open(path, "input[type=password]")
                said = await at.page.inner_text("main")
                assert "401" in said
                assert "orders" not in said
                await at.page.fill("input[type=password]", issuer.token("alice", resource="http://127.0.0.1/"))
                await at.page.keyboard.press("Enter")
                await at.page.wait_for_selector(".list code")
                await at.page.click(".list a >> nth=0")
                assert "$TOKEN" in await at.page.inner_text(".copy pre")
                stored = "JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie])"
                assert await at.page.evaluate(stored) == '[{},{},""]'
            at.fine()


MARKUP = "<img src=x onerror=alert(1)><script>alert(2)</script><svg onload=alert(3)>"
RAW = {
    "type": "object",
    "properties": {
        MARKUP: {"type": "string", "title": MARKUP, "description": MARKUP, "default": MARKUP, "pattern": "(a+)+$"},
        "__proto__": {"type": "string"},
        "constructor": {"$ref": "#/$defs/self"},
        "bad": {"$ref": "#/$defs/loop"},
        "away": {"$ref": "https://evil.example/schema.json"},
        "far": {"$ref": "#/properties/" + "a/" * 10_000},
        "all": {"allOf": [{"$ref": "#/$defs/all"}]},
        "any": {"anyOf": [{"$ref": "#/$defs/any"}]},
        "big": {"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(10_000)}},
        "many": {"enum": [f"v{n}" for n in range(5_000)]},
        "odd": {"type": 7, "enum": "x", "properties": [], "required": {}, "anyOf": {}, "minimum": "a"},
        "word": {"type": "string", "description": "w" * 1_000_000},
        "one": {"$ref": "#/$defs/one"},
        "null": {"$ref": "#/$defs/null"},
        "wide": {"$ref": "#/$defs/wide"},
        "choices": {"$ref": "#/$defs/choices"},
        "slow": {"patternProperties": {"^(a+)+$": {"type": "string"}}, "default": {"a" * 90 + "!": "x"}},
        "percent": {"$ref": "#/%zz"},
        "half": {"enum": ["\ud800", "b"]},
    },
    "required": [
        *(MARKUP, "constructor", "big", "all", "any", "__proto__", "bad", "one", "null", "wide", "choices", "slow"),
    ],
    "$defs": {
        "self": {"type": "object", "properties": {"self": {"$ref": "#/$defs/self"}}, "required": ["self"]},
        "loop": {"$ref": "#/$defs/loop"},
        "all": {"allOf": [{"$ref": "#/$defs/all"}, {"$ref": "#/$defs/all"}]},
        "any": {"anyOf": [{"$ref": "#/$defs/any"}, {"$ref": "#/$defs/any"}]},
        "one": {"anyOf": [{"$ref": "#/$defs/one"}]},
        "null": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/null"}]},
        "wide": {"allOf": [{"$ref": "#/$defs/wide"}] * 200},
        "choices": {"anyOf": [{"type": "object", "properties": {"x": {"$ref": "#/$defs/choices"}}}] * 200},
    },
}
BIDI = "user\u202egnp.exe\u2066 \u200b\x1b[31m"
HOSTILE: list[dict[str, Any]] = [
    {"name": MARKUP, "title": MARKUP, "description": f"{MARKUP} javascript:alert(4) https://evil.example/?q=1 `{MARKUP}`"},
    {"name": BIDI, "description": "w" * 1_000_000, "inputSchema": RAW},
    {"name": "../../x?y#z", "inputSchema": []},
    {"name": 7, "description": {"constructor": None, "type": "script", "props": {"children": "alert(5)"}}},
    {"name": "content", "inputSchema": {"type": "object"}},
]  # fmt: skip
PICTURE = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
CONTENT = [
    {"type": "text", "text": MARKUP},
    {"type": "text", "text": "w" * 1_000_000},
    {"type": "image", "data": PICTURE, "mimeType": "image/png"},
    {"type": "image", "data": "PHN2Zy8+", "mimeType": "image/svg+xml"},
    {"type": "image", "data": "x' onerror='alert(6)", "mimeType": "image/png"},
    {"type": "audio", "data": "AAAA", "mimeType": "audio/wav"},
    {"type": "resource_link", "uri": "javascript:alert(7)", "name": "a script"},
    {"type": "resource_link", "uri": "http://evil.example/", "name": "plain"},
    {"type": "resource_link", "uri": "https://user@evil.example/", "name": "user"},
    {"type": "resource_link", "uri": "https://safe.example/", "name": "a page"},
    {"type": "resource", "resource": {"uri": "data:text/html,<script>alert(8)</script>", "text": MARKUP}},
    {"type": MARKUP, "constructor": None, "props": {"dangerouslySetInnerHTML": {"__html": MARKUP}}},
    7,
    None,
]


async def lie(route: Any) -> None:
    """Answer lists and calls of tools as a hostile server would."""
    body = route.request.post_data_json if route.request.method == "POST" else {}
    if body.get("method") not in ("tools/list", "tools/call"):
        await route.continue_()
        return
    listed = body["method"] == "tools/list"
    structured = [{"constructor": None, "__proto__": 1, MARKUP: MARKUP}]
    result: Any = {"content": CONTENT, "structuredContent": structured, "resultType": "complete"}
    result = {"tools": HOSTILE, "resultType": "complete"} if listed else result
    text = json.dumps({"jsonrpc": "2.0", "id": body["id"], "result": result})
    await route.fulfill(body=text, content_type="application/json")


async def look_through(at: Watched) -> None:
    """Open all that a hostile server lists, call it, and look at what comes."""
    links = at.page.locator(".list a")
    named = [one for one in HOSTILE if isinstance(one["name"], str)]
    assert await at.page.locator("[href*='/tool/']").count() == len(named)
    assert "\u27e8U+202E\u27e9" in await at.page.inner_text(".list")
    for n in range(len(named)):
        began = time.perf_counter()
        await links.nth(n).click()
        await at.page.wait_for_selector("article h1")
        for add in await at.page.locator("article .field button:text-is('Add')").all():
            if await add.count():
                await add.click()
        for asks in ("As JSON", "As a form", "Clear"):
            button = at.page.locator(f"article button:text-is('{asks}')")
            if await button.count():
                await button.click()
        assert time.perf_counter() - began < 15
    shown = await at.call()
    assert "Result" in shown
    for title in ("14 blocks", "JSON"):
        await at.page.click(f".outcome .tabs button:text-is('{title}')")
    await at.page.click(".outcome .tabs button:text-is('14 blocks')")
    assert await at.page.locator(".outcome img").count() == 1
    hrefs = await at.page.locator("main a").evaluate_all("all => all.map(one => one.getAttribute('href'))")
    assert [one for one in hrefs if not one.startswith("https://safe.example/")] == []
    assert await at.page.locator(ACTIVE).count() == 0


ACTIVE = "main :is(script, iframe, object, embed, form[action], [onerror], [onload], [href^='javascript'])"
"""What text of others never becomes."""


async def test_a_hostile_server_runs_nothing_asks_for_nothing_and_hangs_nothing(running: Any) -> None:
    async with serve({"/mcp": desk()}, urls="http://127.0.0.1:0") as serving, looking(running, serving.urls[0]) as at:
        await at.page.route("**/mcp", lie)
        await at.open("/mcp")
        await look_through(at)
        at.fine()


@pytest.mark.parametrize(("scheme", "width"), [("light", 360), ("dark", 360), ("light", 2560), ("dark", 1440)])
async def test_it_fits_the_window(running: Any, scheme: str, width: int) -> None:
    view = {"width": width, "height": 800}
    async with (
        serve({"/": shop(), "/mcp": desk()}, urls="http://127.0.0.1:0") as serving,
        looking(running, serving.urls[0], viewport=view, color_scheme=scheme) as at,
    ):
        await at.open("/#/docs/%2F/method/place")
        await at.call()
        assert await at.page.evaluate("document.documentElement.scrollWidth") <= width
        ink = await at.page.evaluate("getComputedStyle(document.body).color")
        assert (ink == "rgb(29, 33, 37)") == (scheme == "light")
        at.fine()


# -- schemas of the world in the form's own code


def corpus() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    table = Path(__file__).parents[1] / "rpc" / "binding" / "signatures.jsonl"
    for line in table.read_text().splitlines():
        row = json.loads(line)
        found += [
            row[who]["schema"] for who in ("here", "fastmcp") if isinstance(row.get(who), dict) and "schema" in row[who]
        ]
    for path in sorted(SCHEMAS.glob("*.json")) if SCHEMAS.is_dir() else []:
        whole = json.loads(path.read_text())
        key = "$defs" if "$defs" in whole else "definitions"
        found += [{"$ref": f"#/{key}/{name}", key: whole[key]} for name in whole[key]]
    for one in (shop().openrpc(),):
        schemas = one["components"]["schemas"]
        found += [{"$ref": f"#/components/schemas/{name}", "components": {"schemas": schemas}} for name in schemas]
    return [one for one in found if isinstance(one, dict)]


async def test_the_corpus_of_schemas_gets_forms_with_values_that_fit(at: Watched) -> None:
    await at.open()
    schemas = corpus()
    assert len(schemas) > 300
    source = (Path(__file__).parent / "sample.js").read_text().replace("export const sampler =", "const sampler =")
    body = f"""async ([schemas, base]) => {{
      {source}
      const {{ plan, Form }} = await import(base + "form.js");
      const {{ html, render }} = await import(base + "kit.js");
      const sample = sampler(plan);
      const found = [];
      for (const schema of schemas) {{
        await new Promise((next) => setTimeout(next));
        try {{
          const value = sample(schema, schema);
          const place = document.createElement("div");
          render(html`<${{Form}} schema=${{schema}} root=${{schema}} value=${{value}} set=${{() => {{}}}} />`, place);
          const box = plan(schema, schema).kind === "json";
          const controls = place.querySelectorAll("input, textarea, select, button, code").length;
          render(null, place);
          found.push({{ value, box, controls }});
        }} catch (fault) {{
          found.push({{ fault: String(fault.stack) }});
        }}
      }}
      return found;
    }}"""
    base = f"{at.url}/docs/{read_page_files().hash}/"
    found = await at.page.evaluate(body, [schemas, base])
    assert [one["fault"] for one in found if "fault" in one] == []
    wrong = []
    for schema, one in zip(schemas, found, strict=True):
        if not jsonschema_rs.validator_for(schema).is_valid(one["value"]):
            wrong.append((json.dumps(schema)[:300], one["value"]))
    boxes = sum(one["box"] for one in found)
    assert (len(wrong) + boxes) / len(schemas) <= 0.02, (len(schemas), boxes, len(wrong), wrong[:20])


# -- for everybody


async def test_axe_finds_nothing(at: Watched, request: pytest.FixtureRequest) -> None:
    source = (installed(request, ["axe-core@4.10.3"]) / "axe-core" / "axe.min.js").read_text()
    for path, before in [
        ("/docs", ".list a"),
        ("/#/docs/%2F/method/place", "article"),
        ("/mcp#/docs/%2Fmcp/tool/book", "article"),
        ("/#/token", "input[type=password]"),
        ("/#/history", "h1"),
    ]:
        for scheme in ("light", "dark"):
            await at.page.emulate_media(color_scheme=scheme)
            await at.open(path, before)
            if before == "article":
                await at.call()
            await at.page.evaluate(source)
            found = await at.page.evaluate("axe.run()")
            said = [(one["id"], [node["html"][:120] for node in one["nodes"][:3]]) for one in found["violations"]]
            assert said == [], (path, scheme)
