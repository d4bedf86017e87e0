"""For tests of servers: a clock that a test moves, answers given in turn, and a snapshot of the contract.

from dragoman.testing import assert_contract
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec

from .doors import public_dir
from .jsonrpc.errors import LocalError
from .mcp import Client, Server
from .rpc.service import Service

__all__ = ["Answers", "Clock", "assert_contract", "contract"]
__dir__: Callable[[], list[str]] = public_dir(__name__)


class Clock:
    """Seconds that a test moves, for options named `clock`: `rate_limit(5, clock=clock)`, then `clock.advance(1)`."""

    def __init__(self, now: float = 0.0) -> None:
        self.now: float = now
        """What it says, in seconds."""

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        """Move it forward. Raises LocalError for a negative number: a monotonic clock never goes back."""
        if seconds < 0:
            raise LocalError(f"Clock.advance: seconds is 0 or more, not {seconds}")
        self.now += seconds


class Answers:
    """Answers a server's questions in turn: `Client(app, on_elicit=Answers({"seat": "window"}, None))`.

    Each answer is what `on_elicit` or `on_sample` may return, or an exception, which is raised. `asked` has the params
    of the questions. A question without an answer left is an AssertionError, which the server sees as a failure too.
    """

    def __init__(self, *answers: object) -> None:
        self._left = list(answers)
        self.asked: list[Any] = []

    async def __call__(self, params: object) -> object:
        """The next answer."""
        self.asked.append(params)
        if not self._left:
            raise AssertionError(f"question {len(self.asked)} has no answer: {params!r:.200}")
        answer = self._left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    @property
    def left(self) -> int:
        """How many answers no question has used."""
        return len(self._left)


async def contract(app: Service | Server) -> str:
    """What callers rely on, as JSON text with sorted members: the methods of a service (OpenRPC), or what an MCP server
    lists to a caller without an identity: tools, resources, templates, prompts."""
    if isinstance(app, Service):
        found: Any = app.openrpc()
    else:
        async with Client(app, cache=False) as client:
            able = client.capabilities
            found = {
                "tools": _by_name(await client.list_tools() if able.tools else []),
                "resources": _by_name(await client.list_resources() if able.resources else []),
                "resourceTemplates": _by_name(await client.list_resource_templates() if able.resources else []),
                "prompts": _by_name(await client.list_prompts() if able.prompts else []),
            }
    return json.dumps(msgspec.to_builtins(found), indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def _by_name(entries: Iterable[Any]) -> dict[str, Any]:
    return {one.name: one for one in entries}


async def assert_contract(app: Service | Server, path: str | Path, *, update: bool = False) -> None:
    """Compare the contract with the one in a file. Raises AssertionError with the lines that differ, and where there is
    no file. `update=True` writes the file instead: for a change that is intended."""
    _compare(Path(path), await contract(app), update)


def _compare(file: Path, now: str, update: bool) -> None:
    if update:
        file.write_text(now, encoding="utf-8")
        return
    if not file.exists():
        raise AssertionError(f"{file} is not there; write it once by assert_contract(..., update=True)")
    before = file.read_text(encoding="utf-8")
    if before != now:
        lines = difflib.unified_diff(before.splitlines(), now.splitlines(), str(file), "now", lineterm="", n=3)
        raise AssertionError("the contract has changed:\n" + "\n".join(lines))
