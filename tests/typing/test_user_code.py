"""What type checkers, and so editors, say of a user's code: mypy --strict and basedpyright, from one table."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CODE = "tests/typing/user_code.py"

REVEALED = [
    ("ctx.state", "AppState"),
    ("database.get(key)", "str"),
    ("ctx.time_left", "float | None"),
    ("ctx.caller.identity", "Identity | None"),
    ("ctx.cancelled", "bool"),
    ("session", "Database"),
    ("ctx.state", "Any"),
    ("await ctx.progress(1)", "bool"),
    ("ctx.store", "CallStore"),
    ("ctx.state.database", "Database"),
    ("await ctx.elicit(f'A table for {day}?', Table)", "Elicited[Table]"),
    ("(await ctx.elicit('Guests?', Table)).content", "Table | None"),
    ("await ctx.elicit_url('Pay', 'https://pay.example')", "Elicited[None]"),
    ("await ctx.sample('A line, please.')", "CreateMessageResult"),
    ("(await ctx.sample(['One', 'Two'])).text", "str"),
    ("await ctx.roots()", "list[Root]"),
    (
        "await ctx.ask(m.Elicit('Name?', Table), m.Sample(messages='Hello'), m.Roots())",
        "tuple[Elicited[Table], CreateMessageResult, list[Root]]",
    ),
    (
        "await ctx.ask(m.Sample(messages='Hello'), m.ElicitUrl('Pay', 'https://pay.example'))",
        "tuple[CreateMessageResult, Elicited[None]]",
    ),
    ("(await ctx.ask(m.Roots()))[0][0].uri", "str"),
    ("await ctx.elicit('Any?', {'type': 'object', 'properties': {}})", "Elicited[Any]"),
    ("(await ctx.elicit('Guests?', Table)).accepted", "bool"),
    ("ctx.identity", "Identity | None"),
    ("ctx.client", "Implementation | None"),
    ("ctx.capabilities.sampling", "SamplingCapability | UnsetType"),
    ("ctx.revision", "Revision"),
    ("await ctx.progress(1, 2, 'half')", "bool"),
    ("await ctx.info('booked')", "bool"),
    ("database", "Database"),
    ("ctx.elicit(f'A table for {day}?', Table).content", "Table | None"),
    ("ctx.sample('A line, please.').text", "str"),
    ("ctx.elicit_url('Pay', 'https://pay.example').accepted", "bool"),
    ("ctx.roots()[0].uri", "str"),
    ("ctx.ask(m.Elicit('Name?', Table))[0].content", "Table | None"),
    ("peer", "Peer"),
    ("await peer.call('add', {'a': 1, 'b': 2}, result=int)", "int"),
    ("await peer.call('add', [1, 2], result=list[Table])", "list[Table]"),
    ("await peer.call('add', [1, 2])", "Any"),
    ("await peer.proxy(Calculator).add(1, 2)", "int"),
    ("peer.proxy(Calculator, prefix='math.')", "Calculator"),
    ("peer.proxy().math", "Proxy"),
    ("await peer.notify('seen')", "None"),
    ("total", "BatchResult[int]"),
    ("await total", "int"),
    ("note.method", "str"),
    ("client", "Client"),
    ("await client.call_tool('book', {'day': 'Monday'})", "CallToolResult"),
    ("await client.call_tool('book', {'day': 'Monday'}, result=Table)", "Table"),
    ("(await client.list_tools())[0].input_schema", "dict[str, Any]"),
    ("(await client.read_resource('note://a')).contents[0].text", "str | UnsetType"),
    (
        "(await client.get_prompt('greet', {'name': 'Ann'})).messages[0].content",
        "TextContent | ImageContent | AudioContent | ResourceLink | EmbeddedResource",
    ),
    ("(await client.complete('greet', 'name', 'A')).values", "list[str]"),
    ("client.capabilities.tools", "ToolsCapability | UnsetType"),
    ("change", "Changed"),
    ("peer", "SyncPeer"),
    ("peer.call('add', [1, 2], result=int)", "int"),
    ("peer.proxy(BlockingCalculator).add(1, 2)", "int"),
    ("answer.result()", "int"),
    ("client", "BlockingClient"),
    ("client.call_tool('book', result=Table)", "Table"),
    ("peer.closed", "bool"),
    ("add", "(a: int, b: int) -> Coroutine[Any, Any, int]"),
    ("store_row", "(key: str, ctx: Context[Any]) -> Coroutine[Any, Any, None]"),
    ("book", "(day: str, ctx: Context[AppState]) -> Coroutine[Any, Any, str]"),
    ("pay", "(amount: int, database: Database) -> Coroutine[Any, Any, CallToolResult]"),
    ("note", "(name: str) -> str"),
    ("greet", "(name: str) -> list[PromptMessage]"),
    ("api.answer(b'')", "bytes | None"),
    ("api.override(connect_database, Database)", "AbstractContextManager[None, bool | None]"),
]
"""Each expression of `reveal_type` in the code, in order, and its type without the names of modules."""


def _plain(type: str) -> str:
    """A type as the table writes it: without modules, functions as basedpyright writes them."""
    type = re.sub(r"\b(?:[A-Za-z_]\w*\.)+(?=[A-Za-z_])", "", type).removeprefix("def ")
    return type.replace("CoroutineType[", "Coroutine[")


def _lines() -> list[tuple[int, str]]:
    """The line and the text of what each `reveal_type` is given."""
    calls = [
        node
        for node in ast.walk(ast.parse((ROOT / CODE).read_text("utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "reveal_type"
    ]
    return sorted((call.lineno, ast.unparse(call.args[0])) for call in calls)


def _run(*command: str) -> str:
    done = subprocess.run([sys.executable, "-m", *command, CODE], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_table_has_each_expression() -> None:
    assert [text for _, text in _lines()] == [ast.unparse(ast.parse(code, mode="eval")) for code, _ in REVEALED]


def test_mypy_reveals_these_types() -> None:
    said = re.findall(r':(\d+): note: Revealed type is "(.*)"', _run("mypy", "--strict", "--no-error-summary"))
    assert {int(line): _plain(type) for line, type in said} == _expected()


def test_basedpyright_reveals_these_types() -> None:
    pytest.importorskip("basedpyright")
    report = json.loads(_run("basedpyright", "--pythonpath", sys.executable, "--outputjson"))
    said = [one for one in report["generalDiagnostics"] if one["severity"] == "information"]
    found = {one["range"]["start"]["line"] + 1: _plain(one["message"].rsplit('" is "', 1)[1][:-1]) for one in said}
    assert found == _expected()


def _expected() -> dict[int, str]:
    return {line: type for (line, _), (_, type) in zip(_lines(), REVEALED, strict=True)}
