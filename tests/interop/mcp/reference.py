"""Servers with the tools of well known ones: mcp-server-time, -git, -fetch and -sqlite, for the same calls of hosts.

Names of tools, and names and types of arguments, are theirs; everything else is ours. They are lenient, as a server for
hosts should be. `python -m tests.interop.mcp.reference time | git | fetch | sqlite FILE` serves one on stdio.
"""

from __future__ import annotations

import re
import sqlite3
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import closing
from datetime import datetime
from typing import Annotated, Any
from urllib.parse import urlsplit
from urllib.robotparser import RobotFileParser
from zoneinfo import ZoneInfo

from msgspec import Meta, Struct

from dragoman import serve
from dragoman.mcp import Server, ToolError

AGENT = "dragoman-reference"
PATIENCE = 20.0
"""Seconds for git, and for a page."""


class Moment(Struct):
    """A time somewhere."""

    timezone: str
    datetime: str
    is_dst: bool


def time_server() -> Server:
    """What time it is, and elsewhere."""
    server = Server("time", lenient=True)

    def zone(name: str) -> ZoneInfo:
        try:
            return ZoneInfo(name)
        except (KeyError, ValueError, OSError) as error:
            raise ToolError(f"There is no time zone {name!r}; Europe/Paris is one") from error

    def moment(name: str, when: datetime) -> Moment:
        return Moment(name, when.isoformat(timespec="seconds"), bool(when.dst()))

    @server.tool(inline=True)
    def get_current_time(timezone: str) -> Moment:
        return moment(timezone, datetime.now(zone(timezone)))

    @server.tool(inline=True)
    def convert_time(source_timezone: str, time: str, target_timezone: str) -> list[Moment]:
        source, target = zone(source_timezone), zone(target_timezone)
        found = re.fullmatch(r"([01]?\d|2[0-3]):([0-5]\d)", time)
        if found is None:
            raise ToolError(f"{time!r} is no time: HH:MM, such as 09:30")
        when = datetime.now(source).replace(hour=int(found[1]), minute=int(found[2]), second=0, microsecond=0)
        return [moment(source_timezone, when), moment(target_timezone, when.astimezone(target))]

    return server


def git(repo_path: str, *words: str) -> str:
    """What git prints. Raises ToolError with its words."""
    done = subprocess.run(
        ["git", "-C", repo_path, *words], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    if done.returncode:
        raise ToolError(done.stderr.strip() or f"git ended with status {done.returncode}")
    return done.stdout


def named(name: str) -> str:
    """A branch or a revision that is no option. Raises ToolError."""
    if name.startswith("-"):
        raise ToolError(f"{name!r} is an option, not a name")
    return name


def git_server() -> Server:
    """A repository's state, its history, and changes of it."""
    server = Server("git", lenient=True)

    @server.tool
    def git_status(repo_path: str) -> str:
        return git(repo_path, "status", "--short", "--branch")

    @server.tool
    def git_diff_unstaged(repo_path: str, context_lines: int = 3) -> str:
        return git(repo_path, "diff", f"--unified={context_lines}")

    @server.tool
    def git_diff_staged(repo_path: str, context_lines: int = 3) -> str:
        return git(repo_path, "diff", "--cached", f"--unified={context_lines}")

    @server.tool
    def git_diff(repo_path: str, target: str, context_lines: int = 3) -> str:
        return git(repo_path, "diff", f"--unified={context_lines}", named(target), "--")

    @server.tool
    def git_commit(repo_path: str, message: str) -> str:
        return git(repo_path, "commit", "-m", message)

    @server.tool
    def git_add(repo_path: str, files: Annotated[list[str], Meta(min_length=1)]) -> str:
        return git(repo_path, "add", "--", *files) or "added"

    @server.tool
    def git_reset(repo_path: str) -> str:
        return git(repo_path, "reset") or "nothing is staged"

    _history(server)
    return server


def _history(server: Server) -> None:
    @server.tool
    def git_log(
        repo_path: str, max_count: int = 10, start_timestamp: str | None = None, end_timestamp: str | None = None
    ) -> str:
        since = [] if start_timestamp is None else [f"--since={start_timestamp}"]
        until = [] if end_timestamp is None else [f"--until={end_timestamp}"]
        return git(repo_path, "log", f"--max-count={max_count}", "--format=%h %an %s", *since, *until)

    @server.tool
    def git_show(repo_path: str, revision: str) -> str:
        return git(repo_path, "show", named(revision), "--")

    @server.tool
    def git_create_branch(repo_path: str, branch_name: str, base_branch: str | None = None) -> str:
        base = [] if base_branch is None else [named(base_branch)]
        return git(repo_path, "branch", named(branch_name), *base) or branch_name

    @server.tool
    def git_checkout(repo_path: str, branch_name: str) -> str:
        return git(repo_path, "checkout", named(branch_name), "--") or branch_name

    @server.tool
    def git_branch(
        repo_path: str, branch_type: str, contains: str | None = None, not_contains: str | None = None
    ) -> str:
        kinds = {"local": [], "remote": ["--remotes"], "all": ["--all"]}
        if branch_type not in kinds:
            raise ToolError(f"{branch_type!r} is no kind of branch: local, remote or all")
        having = [] if contains is None else ["--contains", named(contains)]
        lacking = [] if not_contains is None else ["--no-contains", named(not_contains)]
        return git(repo_path, "branch", "--list", *kinds[branch_type], *having, *lacking)


def page_at(url: str) -> str:
    """The text at a URL. Raises ToolError."""
    try:
        with urllib.request.urlopen(
            urllib.request.Request(url, headers={"User-Agent": AGENT}), timeout=PATIENCE
        ) as got:
            text: str = got.read(1 << 20).decode(errors="replace")
            return text
    except (OSError, ValueError) as error:
        raise ToolError(f"{url}: {error}") from error


def fetch_server() -> Server:
    """Pages, where their sites allow programs."""
    server = Server("fetch", lenient=True)

    @server.tool
    def fetch(
        url: Annotated[str, Meta(pattern="^https?://.")],
        max_length: Annotated[int, Meta(ge=1, le=999_999)] = 5000,
        start_index: Annotated[int, Meta(ge=0)] = 0,
        raw: bool = False,
    ) -> str:
        place = urlsplit(url)
        rules = f"{place.scheme}://{place.netloc}/robots.txt"
        robots = RobotFileParser(rules)
        try:
            robots.read()
        except OSError as error:
            raise ToolError(f"{rules}: {error}") from error
        if not robots.can_fetch(AGENT, url):
            raise ToolError(f"{rules} does not allow it")
        text = page_at(url)
        if not raw:
            text = re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", text)).strip()
        return text[start_index : start_index + max_length] or "there is nothing more"

    return server


def sqlite_server(file: str) -> Server:
    """Tables of one file."""
    server = Server("sqlite", lenient=True)
    insights: list[str] = []

    def run(query: str, *values: Any) -> list[dict[str, Any]]:
        with closing(sqlite3.connect(file)) as base:
            base.row_factory = sqlite3.Row
            try:
                with base:
                    return [dict(row) for row in base.execute(query, values)]
            except sqlite3.Error as error:
                raise ToolError(f"sqlite: {error}") from error

    def begins(query: str, *words: str) -> None:
        if not query.lstrip().upper().startswith(words):
            raise ToolError(f"This takes {', '.join(words)} alone")

    @server.tool
    def read_query(query: str) -> list[dict[str, Any]]:
        begins(query, "SELECT")
        return run(query)

    @server.tool
    def write_query(query: str) -> list[dict[str, Any]]:
        begins(query, "INSERT", "UPDATE", "DELETE")
        return run(query)

    @server.tool
    def create_table(query: str) -> str:
        begins(query, "CREATE TABLE")
        run(query)
        return "created"

    @server.tool
    def list_tables() -> list[dict[str, Any]]:
        return run("SELECT name FROM sqlite_master WHERE type = 'table'")

    @server.tool
    def describe_table(table_name: str) -> list[dict[str, Any]]:
        return run("SELECT * FROM pragma_table_info(?)", table_name)

    @server.tool(inline=True)
    def append_insight(insight: str) -> str:
        insights.append(insight)
        return f"{len(insights)} insights"

    @server.resource("memo://insights")
    def memo() -> str:
        return "\n".join(insights)

    return server


SERVERS: dict[str, Callable[..., Server]] = {
    "time": time_server,
    "git": git_server,
    "fetch": fetch_server,
    "sqlite": sqlite_server,
}


async def main(name: str, *words: str) -> None:
    """Serve one on stdio."""
    await serve(SERVERS[name](*words), urls=["stdio:"])


if __name__ == "__main__":
    import asyncio

    asyncio.run(main(*sys.argv[1:]))
