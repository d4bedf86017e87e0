"""The snippets of FastMCP's documentation in both: each answers as `checks` says, in both eras."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from dragoman.mcp import Client
from tests import skips
from tests.interop.mcp.environments import ROOT, Missing, program, variables
from tests.interop.mcp.running import listening
from tests.ports import free_port

from .checks import CHECKS, GUARDED, LEGACY, MODERN, POSTS, REMOTE, Post, answer

FOLDER = Path(__file__).parent
PAGE = (ROOT / "docs" / "mcp" / "moving.md").read_text(encoding="utf-8")


async def command(side: str, server: str = "") -> list[str]:
    """What starts a server on stdio; `server`: its name in `here` and `there`, empty for the main one."""
    if side == "here":
        return [sys.executable, "-m", "dragoman", "serve", f"tests.interop.moving.here:{server or 'app'}", "stdio:"]
    try:
        return [*await asyncio.to_thread(program, "fastmcp"), str(FOLDER / "there.py")]
    except Missing as missing:
        skips.missing(f"FastMCP: {missing}")


@pytest.mark.parametrize("revision", [LEGACY, MODERN])
@pytest.mark.parametrize("side", ["here", pytest.param("there", marks=[pytest.mark.slow, pytest.mark.timeout(500)])])
async def test_what_is_answered(side: str, revision: str) -> None:
    words = await command(side)
    environment, root = variables(), str(ROOT)
    async with Client(words, revision=revision, on_elicit=answer, env=environment, cwd=root, stderr=print) as client:
        found = {name: await check.ask(client) for name, check in CHECKS.items()}
    assert found == {name: check.expected(side, revision) for name, check in CHECKS.items()}


@pytest.mark.parametrize("side", ["here", pytest.param("there", marks=[pytest.mark.slow, pytest.mark.timeout(500)])])
@pytest.mark.parametrize(
    ("server", "posts"), [("", POSTS), ("guarded", GUARDED), ("remote", REMOTE)], ids=["open", "guarded", "remote"]
)
async def test_what_is_answered_over_http(side: str, server: str, posts: dict[str, Post]) -> None:
    words, port = await command(side, server), free_port()
    wire = [f"http://127.0.0.1:{port}/mcp"] if side == "here" else [str(port), server or "mcp"]
    with listening([word for word in words if word != "stdio:"] + wire, port, {}):
        found = {name: await asyncio.to_thread(post.status, port) for name, post in posts.items()}
    assert found == {name: post.expected(side) for name, post in posts.items()}


COMMANDS = ("their command", "our command")
"""What the test of the commands has in the page."""


@pytest.mark.slow
@pytest.mark.timeout(500)
async def test_each_command_calls_the_others_server() -> None:
    ours, theirs, (here, there) = await command("here"), await command("there"), (free_port(), free_port())
    with (
        listening([*ours[:-1], f"http://127.0.0.1:{here}/mcp"], here, {}),
        listening([*theirs, str(there)], there, {}),
    ):
        fastmcp, url = str(Path(theirs[0]).parent / "fastmcp"), f"http://127.0.0.1:{here}/mcp"
        listed = json.loads(await asyncio.to_thread(output, fastmcp, "list", url, "--json"))
        assert "part_ping" in [tool["name"] for tool in listed["tools"]]
        person = 'person={"name":"Ada","age":3}'
        assert (await asyncio.to_thread(output, fastmcp, "call", url, "greet", person)).strip() == "Ada is 3"

        dragoman, url = (sys.executable, "-m", "dragoman"), f"http://127.0.0.1:{there}/mcp"
        assert "part_ping() -> string" in await asyncio.to_thread(output, *dragoman, "tools", url)
        assert await asyncio.to_thread(output, *dragoman, "tool", url, "greet", person) == "Ada is 3\n"
        assert await asyncio.to_thread(output, *dragoman, "read", url, "users://7/profile") == "7\n"
        talk = await asyncio.to_thread(output, *dragoman, "prompt", url, "talk", "topic=tea")
        assert talk == "user: About tea\nassistant: Gladly.\n"


def output(*words: str) -> str:
    """What a command prints; it must end well."""
    done = subprocess.run(words, env=variables(), capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def rows() -> list[list[str]]:
    """The rows of the page's tables of sections: pages, sections, what is here, what is checked."""
    lines = PAGE.partition("## Section by section")[2].splitlines()
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines if line.startswith("| `")]


def test_every_check_stands_in_the_page_and_no_other() -> None:
    named = {name for row in rows() for name in row[-1].split(", ") if name}
    assert sorted(named) == sorted([*CHECKS, *POSTS, *GUARDED, *REMOTE, *COMMANDS])
