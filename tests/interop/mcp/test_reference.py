"""Calls of hosts at servers with the tools of mcp-server-time, -git, -fetch and -sqlite: at ours, and at the real ones.

Each row says what comes of a call at ours, and at the real one where that is another thing; `HERE` is a repository or a
site of the test.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import pytest

from dragoman.jsonrpc.errors import RpcError
from dragoman.mcp import Client
from tests import skips

from .environments import CACHE, ROOT, Missing, python, variables
from .reference import SERVERS

Outcome: TypeAlias = Literal["result", "error"]
HERE: Final = "HERE"

TEXT: Final = ("string",)
NUMBER: Final = ("integer",)
MAYBE: Final = ("null", "string")
REPO: Final = {"repo_path": TEXT}
LINES: Final = {"context_lines": NUMBER}

ARGUMENTS: Mapping[str, Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    "time": {
        "get_current_time": {"timezone": TEXT},
        "convert_time": {"source_timezone": TEXT, "time": TEXT, "target_timezone": TEXT},
    },
    "git": {
        "git_status": REPO,
        "git_diff_unstaged": REPO | LINES,
        "git_diff_staged": REPO | LINES,
        "git_diff": REPO | LINES | {"target": TEXT},
        "git_commit": REPO | {"message": TEXT},
        "git_add": REPO | {"files": ("array of string",)},
        "git_reset": REPO,
        "git_log": REPO | {"max_count": NUMBER, "start_timestamp": MAYBE, "end_timestamp": MAYBE},
        "git_create_branch": REPO | {"branch_name": TEXT, "base_branch": MAYBE},
        "git_checkout": REPO | {"branch_name": TEXT},
        "git_show": REPO | {"revision": TEXT},
        "git_branch": REPO | {"branch_type": TEXT, "contains": MAYBE, "not_contains": MAYBE},
    },
    "fetch": {"fetch": {"url": TEXT, "max_length": NUMBER, "start_index": NUMBER, "raw": ("boolean",)}},
    "sqlite": {
        "read_query": {"query": TEXT},
        "write_query": {"query": TEXT},
        "create_table": {"query": TEXT},
        "list_tables": {},
        "describe_table": {"table_name": TEXT},
        "append_insight": {"insight": TEXT},
    },
}
"""The tools of each server, and the types of their arguments."""

Row: TypeAlias = tuple[str, dict[str, Any] | None, Outcome, Outcome]
CALLS: Mapping[str, list[Row]] = {
    "time": [
        ("get_current_time", {"timezone": "UTC"}, "result", "result"),
        ("get_current_time", {"timezone": "UTC", "toolCallId": "n8n"}, "result", "result"),
        ("get_current_time", {"timezone": None}, "error", "error"),
        ("get_current_time", {"timezone": 1}, "error", "error"),
        ("get_current_time", {"timezone": "Mars/Olympus"}, "error", "error"),
        ("get_current_time", {}, "error", "error"),
        ("get_current_time", None, "error", "error"),
        ("convert_time", {"source_timezone": "UTC", "time": "16:30", "target_timezone": "Asia/Tokyo"},
         "result", "result"),
        ("convert_time", {"source_timezone": "UTC", "time": "25:00", "target_timezone": "Asia/Tokyo"},
         "error", "error"),
        ("convert_time", {"source_timezone": "UTC", "time": 16, "target_timezone": "Asia/Tokyo"}, "error", "error"),
        ("convert_time", {"source_timezone": "UTC", "time": "16:30"}, "error", "error"),
        ("what_time", {}, "error", "error"),
    ],
    "git": [
        ("git_status", {"repo_path": HERE}, "result", "result"),
        ("git_status", {"repo_path": HERE, "verbose": "true"}, "result", "result"),
        ("git_status", {"repo_path": HERE + "/nowhere"}, "error", "error"),
        ("git_status", {}, "error", "error"),
        ("git_diff_unstaged", {"repo_path": HERE, "context_lines": 1}, "result", "result"),
        ("git_diff_unstaged", {"repo_path": HERE, "context_lines": "3"}, "result", "result"),
        ("git_diff_unstaged", {"repo_path": HERE, "context_lines": None}, "result", "error"),
        ("git_diff_unstaged", {"repo_path": HERE, "context_lines": "three"}, "error", "error"),
        ("git_add", {"repo_path": HERE, "files": '["a.txt"]'}, "result", "result"),
        ("git_add", {"repo_path": HERE, "files": ["a.txt"]}, "result", "result"),
        ("git_add", {"repo_path": HERE, "files": "a.txt"}, "error", "error"),
        ("git_add", {"repo_path": HERE, "files": []}, "error", "error"),
        ("git_diff_staged", {"repo_path": HERE, "context_lines": "0"}, "result", "result"),
        ("git_commit", {"repo_path": HERE, "message": "more"}, "result", "result"),
        ("git_commit", {"repo_path": HERE, "message": None}, "error", "error"),
        ("git_log", {"repo_path": HERE, "max_count": "1", "start_timestamp": None, "end_timestamp": None},
         "result", "result"),
        ("git_log", {"repo_path": HERE, "max_count": 1, "start_timestamp": "yesterday"}, "result", "result"),
        ("git_log", {"repo_path": HERE, "max_count": "many"}, "error", "error"),
        ("git_show", {"repo_path": HERE, "revision": "HEAD"}, "result", "result"),
        ("git_show", {"repo_path": HERE, "revision": "nothing"}, "error", "error"),
        ("git_diff", {"repo_path": HERE, "target": "HEAD~1", "context_lines": "1"}, "result", "result"),
        ("git_diff", {"repo_path": HERE, "target": "--output=/tmp/x"}, "error", "error"),
        ("git_create_branch", {"repo_path": HERE, "branch_name": "side", "base_branch": None}, "result", "result"),
        ("git_checkout", {"repo_path": HERE, "branch_name": "side"}, "result", "result"),
        ("git_checkout", {"repo_path": HERE, "branch_name": "nowhere"}, "error", "error"),
        ("git_branch", {"repo_path": HERE, "branch_type": "local", "contains": None}, "result", "result"),
        ("git_reset", {"repo_path": HERE}, "result", "result"),
    ],
    "fetch": [
        ("fetch", {"url": HERE + "/page"}, "result", "result"),
        ("fetch", {"url": HERE + "/page", "max_length": "500", "raw": "true"}, "result", "error"),
        ("fetch", {"url": HERE + "/page", "max_length": 5, "start_index": "1"}, "result", "error"),
        ("fetch", {"url": HERE + "/page", "max_length": None, "start_index": None, "raw": None}, "result", "error"),
        ("fetch", {"url": HERE + "/page", "toolCallId": "n8n"}, "result", "result"),
        ("fetch", {"url": HERE + "/page", "max_length": 0}, "error", "error"),
        ("fetch", {"url": HERE + "/page", "max_length": "0"}, "error", "error"),
        ("fetch", {"url": HERE + "/page", "max_length": "all"}, "error", "error"),
        ("fetch", {"url": HERE + "/page", "raw": "perhaps"}, "error", "error"),
        ("fetch", {"url": HERE + "/private/page"}, "error", "error"),
        ("fetch", {"url": HERE + "/nowhere"}, "error", "error"),
        ("fetch", {"url": "no URL"}, "error", "error"),
        ("fetch", {}, "error", "error"),
    ],
    "sqlite": [
        ("create_table", {"query": "CREATE TABLE t (n INTEGER)"}, "result", "result"),
        ("write_query", {"query": "INSERT INTO t VALUES (1)"}, "result", "result"),
        ("write_query", {"query": "SELECT 1"}, "error", "result"),
        ("read_query", {"query": "SELECT n FROM t", "toolCallId": "n8n"}, "result", "result"),
        ("read_query", {"query": "DROP TABLE t"}, "error", "result"),
        ("read_query", {"query": "SELECT n FROM nowhere"}, "error", "result"),
        ("read_query", {"query": None}, "error", "error"),
        ("read_query", {"query": 1}, "error", "error"),
        ("read_query", {}, "error", "error"),
        ("list_tables", {}, "result", "result"),
        ("list_tables", None, "result", "result"),
        ("describe_table", {"table_name": "t"}, "result", "result"),
        ("append_insight", {"insight": "one"}, "result", "result"),
        ("append_insight", {"insight": ["one"]}, "error", "error"),
    ],
}  # fmt: skip
"""A tool, its arguments, what comes of the call at ours, and at the real one: that of fetch takes no text for a number,
none of them null for an argument that takes none, and that of sqlite says in a result what was wrong."""


class Site(BaseHTTPRequestHandler):
    """A page, one that programs must not read, and nothing else."""

    pages: Mapping[str, tuple[str, str]] = {
        "/robots.txt": ("text/plain", "User-agent: *\nDisallow: /private/\n"),
        "/page": ("text/html", f"<html><body><article><p>{'A sentence. ' * 60}</p></article></body></html>"),
        "/private/page": ("text/html", "<html><body>secret</body></html>"),
    }

    def do_GET(self) -> None:
        kind, text = self.pages.get(self.path, ("", ""))
        self.send_response(200 if kind else 404)
        self.send_header("Content-Type", kind or "text/plain")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *args: Any) -> None: ...


@pytest.fixture
def site() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Site) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def repository(tmp_path: Path) -> str:
    """One commit, and a file that has changed since."""
    folder = tmp_path / "repository"
    folder.mkdir()
    for words in (["init", "-q"], ["config", "user.name", "Ann"], ["config", "user.email", "ann@example.org"]):
        subprocess.run(["git", *words], cwd=folder, check=True)
    (folder / "a.txt").write_text("one\n")
    subprocess.run(["git", "add", "a.txt"], cwd=folder, check=True)
    subprocess.run(["git", "commit", "-qm", "first"], cwd=folder, check=True)
    (folder / "a.txt").write_text("one\ntwo\n")
    return str(folder)


@pytest.fixture
def here(name: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """What `HERE` is for a server."""
    fixtures = {"git": "repository", "fetch": "site"}
    return str(request.getfixturevalue(fixtures[name])) if name in fixtures else ""


def placed(value: Any, here: str) -> Any:
    return json.loads(json.dumps(value).replace(HERE, here))


async def outcomes(client: Client, name: str, here: str) -> list[tuple[str, Any, Outcome]]:
    """What comes of each call."""
    found: list[tuple[str, Any, Outcome]] = []
    for tool, arguments, _, _ in CALLS[name]:
        try:
            result = await client.call_tool(tool, placed(arguments, here))
            outcome: Outcome = "error" if result.is_error else "result"
        except RpcError:
            outcome = "error"
        found.append((tool, arguments, outcome))
    return found


async def listed(client: Client) -> dict[str, dict[str, tuple[str, ...]]]:
    """The tools, and the types of their arguments."""
    return {
        tool.name: {name: types(one) for name, one in tool.input_schema.get("properties", {}).items()}
        for tool in await client.list_tools()
    }


def types(schema: Mapping[str, Any]) -> tuple[str, ...]:
    if "anyOf" in schema:
        return tuple(sorted(name for one in schema["anyOf"] for name in types(one)))
    found = schema["type"]
    names = found if isinstance(found, list) else [found]
    return tuple(sorted(f"array of {types(schema['items'])[0]}" if one == "array" else one for one in names))


@pytest.mark.parametrize("name", SERVERS)
async def test_ours(name: str, here: str, tmp_path: Path) -> None:
    server = SERVERS[name](*([str(tmp_path / "base.db")] if name == "sqlite" else []))
    async with Client(server) as client:
        assert await listed(client) == ARGUMENTS[name]
        expected = [(tool, arguments, ours) for tool, arguments, ours, _ in CALLS[name]]
        assert await outcomes(client, name, here) == expected


@pytest.mark.parametrize("name", SERVERS)
async def test_ours_in_a_process(name: str, tmp_path: Path) -> None:
    words = [str(tmp_path / "base.db")] if name == "sqlite" else []
    command = [sys.executable, "-m", "tests.interop.mcp.reference", name, *words]
    async with Client(command, cwd=str(ROOT), env=variables()) as client:
        assert await listed(client) == ARGUMENTS[name]


@pytest.mark.slow
@pytest.mark.timeout(500)
@pytest.mark.parametrize("name", SERVERS)
async def test_the_real_one(name: str, here: str, tmp_path: Path) -> None:
    try:
        python(name)
    except Missing as missing:
        skips.missing(f"{name}: {missing}")
    words = {"sqlite": ["--db-path", str(tmp_path / "base.db")], "fetch": ["--allow-private-ips"]}.get(name, [])
    command = [str(CACHE / name / "bin" / f"mcp-server-{name}"), *words]
    async with Client(command, env=variables(), cwd=str(tmp_path), stderr=lambda line: None) as client:
        assert await listed(client) == ARGUMENTS[name]
        expected = [(tool, arguments, theirs) for tool, arguments, _, theirs in CALLS[name]]
        assert await outcomes(client, name, here) == expected
