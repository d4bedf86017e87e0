"""The shop, the notes and the bank of `examples/`: by a client in both eras and over HTTP, and from the command."""

from __future__ import annotations

import importlib
import json
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from types import ModuleType
from typing import Any

import pytest

from dragoman import Depends, RpcError, serve
from dragoman.mcp import Client, ToolError
from dragoman.mcp.client import blocking
from dragoman.testing import Answers
from tests.cli.conftest import environment
from tests.snippets import EXAMPLES

ERAS = pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
CARD = {"kind": "card", "digits": "4242"}
PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """Imports an example anew: no test sees what another has changed."""
    monkeypatch.syspath_prepend(str(EXAMPLES))

    def imported(name: str) -> ModuleType:
        monkeypatch.delitem(sys.modules, name, raising=False)
        return importlib.import_module(name)

    return imported


def dragoman(*words: str) -> tuple[int, str]:
    """The command, in the folder of the examples: its status, and what it wrote to stdout and then to stderr."""
    command = [sys.executable, "-m", "dragoman", *words]
    done = subprocess.run(
        command, cwd=EXAMPLES, env=environment(), capture_output=True, text=True, timeout=60, check=False
    )
    return done.returncode, done.stdout + done.stderr


async def contents(client: Client, prompt: str, arguments: dict[str, str]) -> list[Any]:
    """What the messages of a prompt have."""
    return [message.content for message in (await client.get_prompt(prompt, arguments)).messages]


# -- the shop


@ERAS
async def test_the_shop(example: Callable[[str], ModuleType], revision: str) -> None:
    shop = example("mcp_shop")
    async with Client(shop.app, revision=revision) as client:
        assert "find" in str(client.instructions)
        found = await client.call_tool("find", {"words": "TEA"}, result=list[dict[str, Any]])
        assert [item["id"] for item in found] == ["assam", "sencha", "pot"]
        lines = [{"item": "sencha", "count": 2}, {"item": "pot"}]
        receipt = await client.call_tool("order", {"lines": lines, "payment": CARD}, result=shop.Receipt)
        assert receipt == shop.Receipt(total=37, paid=True)
        bill = {"kind": "invoice", "email": "ada@example.org"}
        assert not (await client.call_tool("order", {"lines": lines, "payment": bill}, result=shop.Receipt)).paid


@ERAS
@pytest.mark.parametrize(
    ("tool", "arguments", "faults"),
    [
        ("find", {"most": 0}, ["most: "]),
        ("order", {"lines": [], "payment": {"kind": "cheque"}}, ["lines: ", "payment: Input tag 'cheque'"]),
        ("order", {"lines": [{"item": "pot", "count": 21}]}, ["lines[0].count: ", "payment: Missing argument"]),
        ("order", {"lines": [{"item": "pot"}, {"item": "pot"}], "payment": CARD}, ["name every item once"]),
        ("order", {"lines": [{"item": "gong"}], "payment": CARD}, ["there is no item 'gong', only sencha"]),
        ("compare", {"items": ["pot"]}, ["items: "]),
    ],
)
async def test_the_shop_names_every_fault(
    example: Callable[[str], ModuleType], revision: str, tool: str, arguments: dict[str, Any], faults: list[str]
) -> None:
    async with Client(example("mcp_shop").app, revision=revision) as client:
        with pytest.raises(ToolError) as told:
            await client.call_tool(tool, arguments, result=object)
        assert [fault for fault in faults if fault not in str(told.value)] == []


@ERAS
async def test_the_shop_shows_images(example: Callable[[str], ModuleType], revision: str) -> None:
    async with Client(example("mcp_shop").app, revision=revision) as client:
        [picture] = list[Any]((await client.call_tool("picture", {"item": "pot"})).content)
        assert (picture.type, picture.mime_type) == ("image", "image/png")
        assert picture.decoded().startswith(PNG)
        blocks = (await client.call_tool("compare", {"items": ["sencha", "pot"]})).content
        assert [block.type for block in blocks] == ["text", "image", "text", "image"]


def test_the_shop_from_the_command() -> None:
    _, out = dragoman("tools", "mcp_shop.py")
    assert "order(lines: [Line], payment: Card | Invoice) -> Receipt" in out
    assert "find(words?: string, most?: number | null) -> [Item]" in out
    payment = "payment=" + json.dumps(CARD)
    status, out = dragoman("tool", "mcp_shop.py", "order", 'lines=[{"item": "assam"}]', payment)
    assert (status, json.loads(out)) == (0, {"total": 3.8, "paid": True})
    status, out = dragoman("tool", "mcp_shop.py", "order", "lines=assam", payment)
    assert (status, out) == (2, "dragoman: lines: it must be an array, not 'assam'\n")
    status, out = dragoman("tool", "mcp_shop.py", "picture", "item=gong")
    assert status == 1
    assert "there is no item 'gong'" in out


# -- the notes


@ERAS
async def test_the_notes(example: Callable[[str], ModuleType], revision: str) -> None:
    async with Client(example("mcp_notes").app, revision=revision) as client:

        async def read(uri: str) -> str:
            [contents] = (await client.read_resource(uri)).contents
            return str(contents.text)

        assert json.loads(await read("notes://titles")) == ["roses", "soup", "tulips"]
        assert await read("notes://note/soup") == "# soup\n\nLeek, potato, a little cream.\n"
        assert [one["title"] for one in json.loads(await read("notes://tagged/garden?most=1"))] == ["roses"]
        async with client.subscribe(uris=["notes://titles", "notes://note/bread"]) as changes:
            assert await client.call_tool("write", {"title": "bread", "text": "Knead."}, result=str) == "written"
            assert (await anext(changes)).uri == "notes://titles"
            assert await client.call_tool("write", {"title": "bread", "text": "Wait."}, result=str) == "written anew"
            assert (await anext(changes)).uri == "notes://note/bread"
        assert await read("notes://note/bread") == "# bread\n\nWait.\n"
        with pytest.raises(ToolError, match="a title has no slash"):
            await client.call_tool("write", {"title": "a/b", "text": ""}, result=str)
        with pytest.raises(RpcError, match="there is no note 'gold'"):
            await client.read_resource("notes://note/gold")


@ERAS
async def test_prompts_of_the_notes(example: Callable[[str], ModuleType], revision: str) -> None:
    async with Client(example("mcp_notes").app, revision=revision) as client:
        asked, attached = await contents(client, "shorten", {"title": "roses", "words": "7"})
        assert asked.text == "Say this in at most 7 words."
        assert attached.resource.uri == "notes://note/roses"
        [question] = await contents(client, "ask", {"tag": "garden", "title": "roses"})
        assert "The notes tulips may know" in question.text
        with pytest.raises(RpcError, match="there is no note 'gold'"):
            await client.get_prompt("shorten", {"title": "gold"})
        with pytest.raises(RpcError, match="words: Expected an integer"):
            await client.get_prompt("shorten", {"title": "roses", "words": "few"})


@ERAS
async def test_completion_of_the_notes(example: Callable[[str], ModuleType], revision: str) -> None:
    async with Client(example("mcp_notes").app, revision=revision) as client:
        for ref in ("shorten", "notes://note/{title}"):
            assert (await client.complete(ref, "title", "s")).values == ["soup"]
        assert (await client.complete("ask", "title", "", {"tag": "garden"})).values == ["roses", "tulips"]
        found = await client.complete("notes://tagged/{tag}{?most}", "tag", "")
        assert (found.values, found.total, found.has_more) == (["garden", "autumn", "kitchen"], 4, True)


def test_the_notes_from_the_command() -> None:
    status, out = dragoman("read", "mcp_notes.py", "notes://note/roses")
    assert (status, out) == (0, "# roses\n\nCut them in March.\n")
    status, out = dragoman("prompt", "mcp_notes.py", "shorten", "title=roses", "words=7")
    assert (status, out) == (0, "user: Say this in at most 7 words.\nuser: # roses\n\nCut them in March.\n\n")
    status, out = dragoman("prompt", "mcp_notes.py", "shorten", "title=roses", "words=few")
    assert (status, out.count("Expected an integer")) == (1, 1)
    status, out = dragoman("complete", "mcp_notes.py", "ask", "title=", "tag=garden")
    assert (status, out) == (0, "roses\ntulips\n")


# -- the bank


@ERAS
async def test_the_bank(example: Callable[[str], ModuleType], revision: str) -> None:
    bank = example("mcp_bank")
    answers = Answers({"sure": True}, {"sure": False}, False, None)
    async with Client(bank.app, revision=revision, on_elicit=answers) as client:
        much = {"source": "ada", "target": "bob", "amount": 300}
        told = [await client.call_tool("money_send", much, result=str) for _ in range(4)]
        assert told == ["sent", "not sent", "not sent", "not sent"]
        assert {question.message for question in answers.asked} == {"Send 300.00 euros from ada to bob?"}
        assert await client.call_tool("money_send", much | {"amount": 100}, result=str) == "sent"  # without a question
        left = [await client.call_tool("accounts_balance", {"owner": owner}, result=float) for owner in ("ada", "bob")]
        assert left == [600, 420]
        [contents] = (await client.read_resource("accounts://accounts/owners")).contents
        assert json.loads(str(contents.text)) == ["ada", "bob"]
    assert [line.split()[0] for line in bank.took].count("accounts_balance") == 2
    assert answers.left == 0


@ERAS
async def test_the_bank_undoes_what_fails(example: Callable[[str], ModuleType], revision: str) -> None:
    """The second update breaks a rule of the database, so the first is undone; the model is not told how."""
    bank = example("mcp_bank")

    def burn(owner: str, db: sqlite3.Connection = Depends(bank.transaction)) -> None:  # noqa: B008
        db.execute("update account set euros = 0 where owner = ?", [owner])
        db.execute("update account set euros = -1 where owner = ?", [owner])

    bank.money.add_tool(burn)
    async with Client(bank.app, revision=revision) as client:
        with pytest.raises(ToolError, match=r"^money_burn failed \(reference \w+\)$"):
            await client.call_tool("money_burn", {"owner": "ada"}, result=str)
        assert await client.call_tool("accounts_balance", {"owner": "ada"}, result=float) == 1000
        for arguments, why in (
            ({"source": "bob", "target": "ada", "amount": 21}, "bob has 20.00 euros only"),
            ({"source": "bob", "target": "eve", "amount": 1}, "eve has no account here"),
            ({"source": "bob", "target": "ada", "amount": 0}, "amount: "),
        ):
            with pytest.raises(ToolError, match=why):
                await client.call_tool("money_send", arguments, result=str)


async def test_a_part_of_the_bank_alone(example: Callable[[str], ModuleType]) -> None:
    """A server that is included elsewhere is tested without the others, and with another database."""
    bank = example("mcp_bank")
    with closing(sqlite3.connect(":memory:")) as db, bank.accounts.override(bank.transaction, lambda: db):
        db.execute("create table account (owner text, euros real)")
        db.execute("insert into account values ('eve', 5)")
        bank.accounts.add_tool(bank.balance, name="quick", inline=True)  # SQLite's connection stays in its thread
        async with Client(bank.accounts) as client:
            assert await client.call_tool("quick", {"owner": "eve"}, result=float) == 5


def test_the_bank_from_the_command() -> None:
    """Of the three servers in the file the one is meant that includes the others."""
    _, out = dragoman("tools", "mcp_bank.py")
    assert [line.partition("(")[0] for line in out.splitlines()] == ["accounts_balance", "money_send"]
    send = ("tool", "mcp_bank.py", "money_send", "source=ada", "target=bob", "amount=200", "--answer")
    status, out = dragoman(*send, "sure=yes")
    assert (status, out) == (0, "sent\nbank asks: Send 200.00 euros from ada to bob?\n  sure = true\n")


# -- all of them, served


@pytest.mark.parametrize(
    ("name", "tools"),
    [
        ("mcp_shop", ["find", "order", "picture", "compare"]),
        ("mcp_notes", ["write"]),
        ("mcp_bank", ["accounts_balance", "money_send"]),
    ],
)
def test_they_are_served(name: str, tools: list[str]) -> None:
    """`dragoman serve FILE`, and clients of both eras at its URL."""
    command = [sys.executable, "-m", "dragoman", "serve", f"{name}.py", "http://127.0.0.1:0/mcp"]
    with subprocess.Popen(command, cwd=EXAMPLES, env=environment(), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            process.stdout.readline()  # its name
            url = process.stdout.readline().strip()
            for revision in ("2025-11-25", "2026-07-28"):
                with blocking.connect(url, revision=revision) as client:
                    assert [tool.name for tool in client.list_tools()] == tools
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=60)
    assert process.returncode == 0


async def test_a_question_over_http(example: Callable[[str], ModuleType]) -> None:
    bank = example("mcp_bank")
    async with serve(bank.app, urls="http://127.0.0.1:0/mcp") as serving:
        for revision in ("2025-11-25", "2026-07-28"):
            async with Client(serving.urls[0], revision=revision, on_elicit=Answers({"sure": True})) as client:
                much = {"source": "ada", "target": "bob", "amount": 300}
                assert await client.call_tool("money_send", much, result=str) == "sent"
        told: Any = await bank.app.call_tool("accounts_balance", {"owner": "ada"})
        assert told.content[0].text == "400.0"
