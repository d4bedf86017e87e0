"""What a shell may complete that only the server knows: targets, methods, tools, prompts, resources, arguments, values.

Rules:

- A key press starts nothing but what `dragoman` serves itself: Python files of this folder, looked at for something to
  serve without importing them; a command line in quotes is never started for it.
- Within `PATIENCE` seconds or not at all; every fault is the absence of proposals.
- What a server says, or a file is called, is proposed if it is one word of at most `LONGEST` characters that no shell
  takes for anything but itself: letters and digits of any script, and `PLAIN`; not `-` at its beginning, which makes an
  option of it, nor `=` or `+`. A word with others would be run when it stands on the command line.
"""

from __future__ import annotations

import ast
import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Raw

from ..connecting import connect
from ..mcp import Client, ClientExtension
from ..mcp.extensions.events import EventsClient
from ..system.words import split_command
from .calls.methods import DescribedMethod
from .programs import FILE, MODULE
from .reach import target_of

PATIENCE = 2.0
"""Seconds for the proposals of one key press."""
LONGEST = 200
"""Characters of one proposal."""
PLAIN = frozenset("_.,:/@%+=-")
"""Characters beside letters and digits that mean nothing in the middle of a word of bash, zsh and fish: not `;&|<>()`,
which end a command, `$` and the backquote, which begin one, `{}*?[]~^#!`, which a shell expands, quotes or spaces."""
MOST = 200
"""Proposals for one key press."""
SIZE = 1024 * 1024
"""Bytes of a Python file that is looked at."""
SERVED = ("Service", "Server")
"""What is called to make something to serve."""
SCHEMES = ("http://", "https://", "ws://", "tcp://", "unix:")
"""Beginnings of a target that are proposed."""

Completer = Callable[[str, Sequence[str], str], Any]


def proposals(line: str) -> list[str]:
    """What may stand at the end of a command line after `dragoman`, whose last word may be empty or begun."""
    words = _words(line)
    if len(words) < 2 or words[-1].startswith("-"):
        return []
    command, *rest = words
    *before, begun = [word for word in rest if not word.startswith("-") or word == rest[-1]]
    if command not in TAKES:
        return []
    try:
        found = _targets() if not before else asyncio.run(_asked(TAKES[command], before, begun))
    except Exception:  # the command itself reports a fault, not a key press
        return []
    fitting = [one for one in dict.fromkeys(found) if one.startswith(begun) and _is_word(one)]
    return fitting[:MOST]


def _words(line: str) -> list[str]:
    try:
        words = split_command(line)
    except ValueError:  # a quote is open
        return []
    return [*words, ""] if not line or line[-1:].isspace() else words


def _is_word(text: str) -> bool:
    if not 0 < len(text) <= LONGEST or text[0] in "-=+%@":
        return False
    return all(one.isalnum() or one in PLAIN for one in text)


def _targets() -> list[str]:
    """Files and modules of this folder with something to serve, its sockets, and the beginnings of URLs."""
    found = []
    for path in sorted(Path.cwd().glob("*.py"))[:MOST]:
        for name in _served_in(path):
            found += [path.name, f"{path.stem}:{name}"]
    sockets = [f"unix:{path.name}" for path in sorted(Path.cwd().glob("*.sock"))]
    return [*found, *sockets, *SCHEMES]


def _served_in(path: Path) -> list[str]:
    """The names that a module gives to what it can serve; it is read, not run."""
    try:
        if path.stat().st_size > SIZE:
            return []
        tree = ast.parse(path.read_bytes())
    except (OSError, ValueError, SyntaxError, RecursionError):
        return []
    made = [node for node in tree.body if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)]
    return [
        target.id
        for node in made
        if ast.unparse(node.value.func).rpartition(".")[2] in SERVED  # type: ignore[attr-defined]
        for target in node.targets
        if isinstance(target, ast.Name)
    ]


async def _asked(ask: Completer, before: Sequence[str], begun: str) -> list[str]:
    target = before[0]
    if not _may_be_asked(target):
        return []
    async with asyncio.timeout(PATIENCE):
        found: list[str] = await ask(target, before[1:], begun)
    return found


def _may_be_asked(target: str) -> bool:
    """Whether a key press may ask this target: a URL, or a file or module that is served; no command line."""
    begins = target.partition(":")[0].lower()
    return begins in ("http", "https", "ws", "wss", "tcp", "tls", "unix") or bool(
        FILE.fullmatch(target) or MODULE.fullmatch(target)
    )


# -- JSON-RPC


class _Methods(msgspec.Struct):
    methods: list[DescribedMethod]


async def _of_service(target: str, rest: Sequence[str], begun: str) -> list[str]:
    """The methods of a service, or the arguments of one."""
    async with connect(
        target_of(target),
        timeout=PATIENCE,
        stderr=_unheard,
    ) as peer:
        raw = await peer.call("rpc.discover", result=Raw)
    known = {one.name: one for one in msgspec.json.decode(raw, type=_Methods).methods}
    if not rest:
        return sorted(known)
    return _arguments({one.name: one.schema for one in known[rest[0]].params}, rest[1:])


# -- MCP


@asynccontextmanager
async def _client(target: str, *extensions: ClientExtension) -> AsyncIterator[Client]:
    async with Client(
        target_of(target),
        name="dragoman",
        timeout=PATIENCE,
        extensions=extensions,
        stderr=_unheard,
    ) as client:
        yield client


async def _of_tools(target: str, rest: Sequence[str], begun: str) -> list[str]:
    """The tools of a server, or the arguments of one."""
    async with _client(target) as client:
        known = {one.name: one for one in await client.list_tools()}
    if not rest:
        return sorted(known)
    return _arguments(known[rest[0]].input_schema.get("properties", {}), rest[1:])


async def _of_events(target: str, rest: Sequence[str], begun: str) -> list[str]:
    """The event types of a server, or the arguments of one."""
    events = EventsClient()
    async with _client(target, events):
        known = {one.name: one for one in await events.list()}
    if not rest:
        return sorted(known)
    return _arguments(known[rest[0]].input_schema.get("properties", {}), rest[1:])


async def _of_prompts(target: str, rest: Sequence[str], begun: str) -> list[str]:
    """The prompts of a server, the arguments of one, or the values that the server proposes for one."""
    async with _client(target) as client:
        known = {one.name: one for one in await client.list_prompts()}
        if not rest:
            return sorted(known)
        name, mark, value = begun.partition("=")
        if mark:
            given = dict(word.split("=", 1) for word in rest[1:] if "=" in word)
            found = await client.complete(rest[0], name, value, given or None)
            return [f"{name}={one}" for one in found.values]
    return _arguments({one.name: {} for one in known[rest[0]].arguments or ()}, rest[1:])


async def _of_resources(target: str, rest: Sequence[str], begun: str) -> list[str]:
    """The URIs of a server's resources."""
    if rest:
        return []
    async with _client(target) as client:
        return [one.uri for one in await client.list_resources()]


async def _nothing(target: str, rest: Sequence[str], begun: str) -> list[str]:
    return []


def _arguments(schemas: Mapping[str, Any], given: Iterable[str]) -> list[str]:
    """`name=` for each argument that is not given yet; `name=value` too where its schema lists the values."""
    taken = {word.partition("=")[0] for word in given}
    found = []
    for name, schema in schemas.items():
        if name not in taken:
            found.append(f"{name}=")
            found += [f"{name}={value}" for value in _values(schema)]
    return found


def _values(schema: Any) -> list[str]:
    if not isinstance(schema, dict):
        return []
    if schema.get("type") == "boolean":
        return ["true", "false"]
    values = schema.get("enum")
    return [value for value in values if isinstance(value, str)] if isinstance(values, list) else []


def _unheard(line: str) -> None:
    """A key press shows nothing of what a program says on stderr."""


TAKES: Mapping[str, Completer] = (
    dict.fromkeys(("call", "notify", "methods", "bench"), _of_service)
    | dict.fromkeys(("tool", "tools"), _of_tools)
    | dict.fromkeys(("prompt", "complete"), _of_prompts)
    | {"events": _of_events, "read": _of_resources}
    | dict.fromkeys(("serve", "describe", "listen", "doctor", "resources", "prompts", "discover", "ping"), _nothing)
)
"""The commands that take a target first, and what knows what stands after it."""
