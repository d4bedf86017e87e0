"""The pages of docs/moving/ are true: their programs answer alike, and differ where the tables say so."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dragoman import RpcError, Service, connect
from dragoman.mcp import Client
from tests import skips
from tests.interop.mcp.environments import ROOT, Missing, program, variables

from .checks import LEGACY, MODERN
from .messages import DIFFERENT, PAGES, Page, Side, message
from .programs import FOLDER, command, interpreter, post, posted, said, serving

pytestmark = [pytest.mark.slow, pytest.mark.timeout(500)]
HTTP = [name for name, page in PAGES.items() if page.sides[0].path]


def rows(page: str) -> dict[str, list[str]]:
    """The table of a page: what each program answers to what stands in the first column; remarks are left out."""
    text = (ROOT / "docs" / "moving" / f"{page}.md").read_text(encoding="utf-8")
    lines = text.partition(f"## {DIFFERENT}")[2].partition("\n## ")[0].splitlines()
    cells = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in lines if line.startswith("|")]
    return {row[0]: [cell.partition(";")[0] for cell in row[1:]] for row in cells[2:]}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_says_what_is_answered_differently(name: str, tmp_path: Path) -> None:
    page: Page = PAGES[name]
    ask = posted if page.sides[0].path else said
    found = [ask(side, tmp_path, page.messages) for side in page.sides]
    answers = {sent: [one[sent] for one in found] for sent in page.messages}
    table = rows(name)
    assert table == {sent: answers[sent] for sent in answers if sent in table}
    assert {sent: words for sent, words in answers.items() if len(set(words)) > 1 and sent not in table} == {}


@pytest.mark.parametrize("name", HTTP)
def test_what_is_asked_by_the_book_is_answered_alike(name: str, tmp_path: Path) -> None:
    nested = name == "fastapi-jsonrpc"

    def take(amount: int) -> dict[str, Any]:
        order = {"item": "tea", "amount": amount}
        return {"order": order} if nested else order

    calls = [message("count", params={"item": "tea"}, id=1), message("take", params=take(2), id="a")]
    calls += [message("take", params=take(2), id=2), message("count", params={"item": "tea"}, id=3)]
    if not nested:
        calls.append(message("reports.low", params=[2], id=4))
    found = []
    for side in PAGES[name].sides:
        with serving(side, tmp_path) as port:
            found.append([json.loads(post(port, side.path, call, **{"X-User": "ada"})[1]) for call in calls])
    assert all(one == found[-1] for one in found)
    assert found[-1][0]["result"] == 3
    assert found[-1][2]["error"] == {"code": 1001, "message": "Out of stock", "data": {"left": 1}}
    assert found[-1][1]["result"] == ("2 tea" if name == "jsonrpcserver" else "2 tea for ada")


@pytest.mark.parametrize(
    ("page", "client", "printed"),
    [
        ("jsonrpcserver", "jsonrpcclient", "2 tea\n1001 Out of stock, 1 left\n0\n['tea', 'rice']\n"),
        ("fastapi-jsonrpc", "pjrpc_client", "3\n2 tea for no one\nOut of stock 1\n[0, 0]\n"),
    ],
)
def test_each_client_prints_the_same_with_each_server(page: str, client: str, printed: str, tmp_path: Path) -> None:
    for side in PAGES[page].sides:
        for when, peer in (("before", "moving"), ("after", "")):
            with serving(side, tmp_path) as port:
                words = command(f"{client}_{when}", peer, tmp_path, port)
                done = subprocess.run(words, env=variables(), capture_output=True, text=True, timeout=60, check=False)
            assert (done.stdout, done.stderr) == (printed, ""), (side, when)


@pytest.mark.parametrize("side", PAGES["language-servers"].sides, ids=lambda side: side.program)
async def test_an_editor_gets_the_same_from_each_language_server(side: Side, tmp_path: Path) -> None:
    words = await asyncio.to_thread(command, side.program, side.peer, tmp_path)
    editor, shown = Service("editor"), asyncio.Event()

    @editor.method("textDocument/publishDiagnostics", inline=True)
    def publish(uri: str, diagnostics: list[object], version: int | None = None) -> None:
        if (uri, diagnostics) == ("file:///a", []):
            shown.set()

    @editor.method("workspace/configuration", inline=True)
    def configuration(items: list[dict[str, str]]) -> list[str]:
        return [item["section"].removeprefix("words.") for item in items]

    async with connect(words, framing="content-length", service=editor, stderr=lambda line: None) as server:
        begun = await server.call("initialize", {"processId": None, "rootUri": None, "capabilities": {}})
        assert begun["capabilities"]["hoverProvider"]
        document = {"uri": "file:///a", "languageId": "text", "version": 1, "text": "one two"}
        await server.notify("textDocument/didOpen", {"textDocument": document})
        assert await server.call("words/count", {"uri": "file:///a"}) == 2
        place = {"textDocument": {"uri": "file:///a"}, "position": {"line": 0, "character": 0}}
        assert await server.call("textDocument/hover", place) == {"contents": "2 unit"}
        await shown.wait()
        with pytest.raises(RpcError) as error:
            await server.call("words/count", {"uri": "file:///b"})
        assert (error.value.code, error.value.message) == (1001, "file:///b is not open")
        assert await server.call("shutdown") is None


def mcp_command(name: str, peer: str) -> list[str]:
    """What runs an MCP program on stdio."""
    if not peer:
        return [interpreter(peer), str(FOLDER / f"{name}.py")]
    try:
        return [*program(peer), str(FOLDER / f"{name}.py")]
    except Missing as missing:
        skips.missing(f"{peer}: {missing}")


@pytest.mark.parametrize("revision", [LEGACY, MODERN])
@pytest.mark.parametrize(("name", "peer"), [("fastmcp_before", "fastmcp"), ("mcp_before", "mcp2"), ("mcp_after", "")])
async def test_each_mcp_server_gives_the_same(name: str, peer: str, revision: str) -> None:
    words, steps = await asyncio.to_thread(mcp_command, name, peer), []

    async with Client(
        words,
        revision=revision,
        env=variables(),
        stderr=lambda line: None,
        on_progress=lambda step: steps.append((step.progress, step.total)),
    ) as client:
        tools = {tool.name: tool for tool in await client.list_tools()}
        assert list(tools) == ["count", "take"]
        assert tools["count"].description == "Count what is left of an item."
        assert msgspec.to_builtins(tools["count"].annotations) == {"readOnlyHint": True}
        order = {"order": {"item": "tea", "amount": 2}}
        assert await client.call_tool("take", order, result=dict) == {"item": "tea", "left": 1}
        assert steps == [(1, 2), (2, 2)]
        again = await client.call_tool("take", order)
        assert again.is_error
        assert "only 1 left" in again.content[0].text  # type: ignore[union-attr]
        none = await client.call_tool("take", {"order": {"item": "tea", "amount": 0}})
        assert none.is_error
        assert "order.amount" in none.content[0].text  # type: ignore[union-attr]
        [read] = (await client.read_resource("stock://tea")).contents
        assert json.loads(msgspec.to_builtins(read)["text"]) == {"left": 1}
        prompt = await client.get_prompt("order", {"item": "rice"})
        assert [(one.role, one.content.text) for one in prompt.messages] == [  # type: ignore[union-attr]
            ("user", "Order more rice."),
            ("assistant", "How many?"),
        ]


MCP_CALLS: dict[str, Callable[[Client], Awaitable[Any]]] = {
    "an argument that is too small": lambda client: client.call_tool("take", {"order": {"item": "tea", "amount": 0}}),
    "an argument too few": lambda client: client.call_tool("count", {}),
    "an argument too many": lambda client: client.call_tool("count", {"item": "tea", "x": 1}),
    "a number as a text": lambda client: client.call_tool("take", {"order": {"item": "tea", "amount": "1"}}),
    "an exception in a tool": lambda client: client.call_tool("count", {"item": "gold"}),
    "a tool that is not there": lambda client: client.call_tool("none", {}),
    "an exception in a resource": lambda client: client.read_resource("stock://gold"),
    "a resource that is not there": lambda client: client.read_resource("none://tea"),
    "a prompt without an argument that it needs": lambda client: client.get_prompt("order", {}),
    "a prompt that is not there": lambda client: client.get_prompt("none", {}),
}


async def answered(words: list[str], revision: str) -> list[str]:
    """What an MCP server answers to each of MCP_CALLS."""
    found = []
    async with Client(words, revision=revision, env=variables(), stderr=lambda line: None) as client:
        for ask in MCP_CALLS.values():
            try:
                answer = await ask(client)
                found.append("`isError`" if getattr(answer, "is_error", False) else "a result")
            except RpcError as error:
                found.append(str(error.code))
    return found


async def test_the_page_of_mcp_says_what_is_answered_differently() -> None:
    sides = []
    for name, peer in (("fastmcp_before", "fastmcp"), ("mcp_before", "mcp2"), ("mcp_after", "")):
        words = await asyncio.to_thread(mcp_command, name, peer)
        eras = zip(await answered(words, LEGACY), await answered(words, MODERN), strict=True)
        sides.append([old if old == new else f"{old}, {new}" for old, new in eras])
    assert rows("../mcp/moving") == dict(zip(MCP_CALLS, map(list, zip(*sides, strict=True)), strict=True))
