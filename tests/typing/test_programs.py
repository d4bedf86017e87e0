"""What type checkers, and so editors, say of users' programs: mypy --strict and basedpyright in its mode "strict".

The programs are in `programs`: a line that ends with `# wrong: why` must be an error, and no other may be one. Each
checker reads all of them in one run.
"""

from __future__ import annotations

import ast
import functools
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = Path(__file__).with_name("programs")
PROGRAMS = sorted(one for one in FOLDER.glob("*.py") if one.name != "__init__.py")
REVEALING = FOLDER / "revealed.py"

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
        "TextContent | ImageContent | AudioContent | ResourceLink | EmbeddedResource | ForeignContent",
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


def _revealing() -> list[tuple[int, str]]:
    """The line and the text of what each `reveal_type` is given."""
    calls = [
        node
        for node in ast.walk(ast.parse(REVEALING.read_text("utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "reveal_type"
    ]
    return sorted((call.lineno, ast.unparse(call.args[0])) for call in calls)


def _expected() -> dict[int, str]:
    return {line: type for (line, _), (_, type) in zip(_revealing(), REVEALED, strict=True)}


class Said(NamedTuple):
    """What a checker says of all programs: by program and line the errors, and by line the types that are revealed."""

    errors: dict[tuple[str, int], str]
    revealed: dict[int, str]


def _run(*command: str) -> str:
    done = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr  # there are errors to find
    return done.stdout


@functools.cache
def _mypy() -> Said:
    report = _run("mypy", "--strict", "--no-error-summary", "--hide-error-context", *map(str, PROGRAMS))
    said = re.findall(r"^(?:.*/)?(\w+)\.py:(\d+): (error|note): (.*)$", report, re.MULTILINE)
    told = re.compile(r'Revealed type is "(.*)"')
    return Said(
        {(name, int(line)): text for name, line, kind, text in said if kind == "error"},
        {int(line): _plain(found[1]) for _, line, _, text in said if (found := told.fullmatch(text))},
    )


@functools.cache
def _basedpyright() -> Said:
    report = json.loads(_run("basedpyright", "-p", str(FOLDER), "--pythonpath", sys.executable, "--outputjson"))
    said = [
        (Path(one["file"]).stem, one["range"]["start"]["line"] + 1, one["severity"], one["message"])
        for one in report["generalDiagnostics"]
    ]
    return Said(
        {(name, line): text for name, line, severity, text in said if severity in ("error", "warning")},
        {
            line: _plain(text.rsplit('" is "', 1)[1][:-1])
            for _, line, severity, text in said
            if severity == "information"
        },
    )


CHECKERS = [pytest.param(_mypy, id="mypy"), pytest.param(_basedpyright, id="basedpyright")]


def _marked(program: Path) -> set[int]:
    """The lines of a program in which something is wrong."""
    return {line for line, text in enumerate(program.read_text("utf-8").splitlines(), 1) if "  # wrong: " in text}


def test_the_table_has_each_expression() -> None:
    assert [text for _, text in _revealing()] == [ast.unparse(ast.parse(code, mode="eval")) for code, _ in REVEALED]


@pytest.mark.parametrize("checker", CHECKERS)
def test_the_types_of_expressions(checker: Callable[[], Said]) -> None:
    assert checker().revealed == _expected()


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.stem)
@pytest.mark.parametrize("checker", CHECKERS)
def test_what_is_wrong_is_found_and_nothing_else_is(checker: Callable[[], Said], program: Path) -> None:
    found = {line: text for (name, line), text in checker().errors.items() if name == program.stem}
    wrong = _marked(program)
    assert {line: text for line, text in found.items() if line not in wrong} == {}
    assert wrong - found.keys() == set()


def test_most_programs_hold_wrong_uses() -> None:
    assert len(PROGRAMS) > 20
    assert sum(bool(_marked(program)) for program in PROGRAMS) > 20
