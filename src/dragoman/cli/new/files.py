"""PURE: the files of a new project, by their paths.

`{module}`, `{name}`, `{version}`, `{about}` and `{extras}` are replaced, and nothing else, so that braces in code stay.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

Kind: TypeAlias = Literal["service", "mcp"]

_PYPROJECT = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "{name}"
version = "0.1.0"
description = "{about}"
readme = "README.md"
requires-python = ">=3.11"
dependencies = ["dragoman[{extras}]>={version}"]

[project.optional-dependencies]
dev = ["pytest>=8"]

[tool.hatch.build.targets.wheel]
packages = ["src/{module}"]

[tool.pytest.ini_options]
testpaths = ["tests"]
pythonpath = ["src"]
"""

_GITIGNORE = """\
__pycache__/
.venv/
dist/
"""

_SERVICE = '''\
"""A JSON-RPC service."""

from dragoman import RpcError, Service

api = Service("{name}", version="0.1.0")


class DivisionByZero(RpcError):
    """What `divide` answers instead of dividing by zero."""

    code = 1001
    message = "Division by zero"


@api.method
def subtract(minuend: int, subtrahend: int) -> int:
    """Subtract one number from another."""
    return minuend - subtrahend


@api.method(errors=[DivisionByZero])
def divide(dividend: float, divisor: float) -> float:
    """Divide one number by another."""
    if divisor == 0:
        raise DivisionByZero
    return dividend / divisor
'''

_SERVICE_TESTS = '''\
"""The service, called as its callers do, in this process."""

import asyncio

import pytest
from dragoman import InvalidParams, connect, serve

from {module}.service import DivisionByZero, api


def call(method, params):
    """The result of one call over a wire in memory."""

    async def run():
        async with serve(api, urls=["memory:tests"]):
            async with connect("memory:tests", errors=[DivisionByZero]) as peer:
                return await peer.call(method, params)

    return asyncio.run(run())


def test_subtract():
    assert call("subtract", [42, 23]) == 19
    assert call("subtract", {"minuend": 42, "subtrahend": 23}) == 19


def test_arguments_are_checked():
    with pytest.raises(InvalidParams):
        call("subtract", ["42", 23])


def test_divide():
    assert call("divide", [1, 4]) == 0.25
    with pytest.raises(DivisionByZero):
        call("divide", [1, 0])
'''

_SERVICE_README = """\
# {name}

A JSON-RPC 2.0 service.

    pip install -e ".[dev]"
    pytest
    dragoman call {module}.service:api divide 1 4
    dragoman serve {module}.service:api http://127.0.0.1:8000 tcp://127.0.0.1:9000

And while it is served, in another terminal:

    dragoman call http://127.0.0.1:8000 subtract 42 23
    dragoman methods http://127.0.0.1:8000

`src/{module}/service.py` has the methods: typed functions, whose annotations check the arguments. `--reload` starts
the server again when a file changes.
"""

_MCP = '''\
"""An MCP server."""

from dragoman.mcp import Icon, ResourceNotFound, Server, ToolAnnotations, ToolError

app = Server(
    "{name}",
    version="0.1.0",
    title="Notes",
    description="Keeps notes while it runs.",
    instructions="Keep a note with the tool add_note, and read one as the resource note:///TITLE.",
    website_url="https://example.org/{name}",
    icons=[Icon("https://example.org/{name}.png", mime_type="image/png", sizes=["48x48"])],
    # lenient=True,  # for hosts that send text for a number, or arguments of their own
)

NOTES: dict[str, str] = {"welcome": "Add a note with the tool add_note."}


@app.tool(
    title="Add a note",
    annotations=ToolAnnotations(
        read_only_hint=False, destructive_hint=False, idempotent_hint=False, open_world_hint=False
    ),
)
def add_note(title: str, text: str) -> str:
    """Keep a note.

    Args:
        title: The title, by which it is found again.
        text: What to keep.
    """
    if title in NOTES:
        raise ToolError(f"there is a note {title!r} already; take another title")
    NOTES[title] = text
    return f"kept, {len(NOTES)} in all"


@app.resource("note:///{title}", title="A note", mime_type="text/plain")
def note(title: str) -> str:
    """A note by its title."""
    if title not in NOTES:
        raise ResourceNotFound(f"there is no note {title!r}; there are {', '.join(NOTES)}")
    return NOTES[title]


@app.prompt(title="Summarize a note")
def summarize(title: str) -> str:
    """Ask for a summary of a note.

    Args:
        title: The note's title.
    """
    return f"Summarize this note in one sentence:\\n\\n{note(title)}"


if __name__ == "__main__":
    app.run()
'''

_MCP_TESTS = '''\
"""The server, used as its hosts do, in this process."""

import asyncio

import pytest
from dragoman import InvalidParams
from dragoman.mcp import Client

from {module}.server import NOTES, app


@pytest.fixture(autouse=True)
def notes():
    """Each test begins with the notes of the beginning."""
    kept = dict(NOTES)
    yield
    NOTES.clear()
    NOTES.update(kept)


def using(work):
    """What `work` returns, given a client of the server."""

    async def run():
        async with Client(app) as client:
            return await work(client)

    return asyncio.run(run())


def test_a_note_is_kept():
    async def work(client):
        result = await client.call_tool("add_note", {"title": "tea", "text": "two minutes"})
        return result.text, (await client.read_resource("note:///tea")).contents[0].text

    assert using(work) == ("kept, 2 in all", "two minutes")


def test_a_title_is_taken_once():
    async def work(client):
        return await client.call_tool("add_note", {"title": "welcome", "text": "again"})

    result = using(work)
    assert result.is_error
    assert "another title" in result.text


def test_the_prompt():
    async def work(client):
        return (await client.get_prompt("summarize", {"title": "welcome"})).messages[0].content.text

    assert "Add a note" in using(work)


@pytest.mark.parametrize("read", [False, True])
def test_a_title_that_there_is_not(read):
    async def work(client):
        if read:
            return await client.read_resource("note:///coffee")
        return await client.get_prompt("summarize", {"title": "coffee"})

    with pytest.raises(InvalidParams, match="there is no note 'coffee'; there are welcome"):
        using(work)
'''

_MCP_README = """\
# {name}

An MCP server.

    pip install -e ".[dev]"
    pytest
    dragoman tools {module}.server:app
    dragoman tool {module}.server:app add_note title=tea "text=two minutes"
    dragoman read {module}.server:app note:///welcome
    dragoman serve {module}.server:app http://127.0.0.1:8000/mcp

And while it is served, in another terminal:

    dragoman discover http://127.0.0.1:8000/mcp

A host starts it as a command:

    {"mcpServers": {"{name}": {"command": "python", "args": ["-m", "{module}.server"]}}}

`src/{module}/server.py` has the tools, resources and prompts: typed functions, whose annotations are the schema. What
hosts show of the server stands at its top: put your own words, web site and icon there. `lenient=True` there is for
hosts that send text for a number, or arguments of their own.
"""


def files(kind: Kind, name: str, module: str, version: str) -> Mapping[str, str]:
    """The text of each file."""
    part = "service" if kind == "service" else "server"
    known = {
        "name": name,
        "module": module,
        "version": version,
        "about": "A JSON-RPC service" if kind == "service" else "An MCP server",
        "extras": "cli,http" if kind == "service" else "cli,mcp",
    }
    texts = {
        "pyproject.toml": _PYPROJECT,
        ".gitignore": _GITIGNORE,
        "README.md": _SERVICE_README if kind == "service" else _MCP_README,
        f"src/{module}/__init__.py": '"""{about}."""\n',
        f"src/{module}/{part}.py": _SERVICE if kind == "service" else _MCP,
        f"tests/test_{part}.py": _SERVICE_TESTS if kind == "service" else _MCP_TESTS,
    }
    return {path: _fill(text, known) for path, text in texts.items()}


def _fill(text: str, known: Mapping[str, str]) -> str:
    for key, value in known.items():
        text = text.replace(f"{{{key}}}", value)
    return text
