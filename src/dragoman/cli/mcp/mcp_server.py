"""Finds the MCP server that SERVER and the options name, and connects a client to it.

SERVER is a URL, a command in quotes, or a Python file that contains a dragoman server. A command may
also follow at the end, after `--`, and `--config NAME` takes one from the file of an MCP host.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, TypeVar
from urllib.parse import urlsplit

import msgspec
from cyclopts import Parameter

from ... import __version__
from ...channel import Broken
from ...jsonrpc.errors import BadAnswer, MethodNotFound
from ...jsonrpc.limits import CLIENT
from ...jsonrpc.options import nearest_name
from ...mcp import Client, ClientExtension, TasksClient
from ...mcp.client.http.refusals import HttpRefused
from ...mcp.protocol.encoding import encode
from ...mcp.protocol.params import CallToolResult, GetPromptResult
from ...mcp.protocol.revisions import NEWEST, REVISIONS
from ...net.urls import parse
from ...system.words import quote_word, split_command
from ..advice import add_advice
from ..arguments import utf8
from ..auth.on_demand import on_demand
from ..exchange import exchange
from ..exit_status import MissingArgument, Usage
from ..options import ACCESS, LINK_GROUP, AccessOptions
from ..programs import child_lines, environment, target_word
from ..progress import Bar
from ..reach import target_of
from ..serving import hosts
from ..terminal import clean, say
from .asking import Asker, has_terminal, read_line

Level: TypeAlias = Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]

T = TypeVar("T")
OnNotification: TypeAlias = Callable[[str, dict[str, Any]], object]

USUAL_PATH = "/mcp"
"""The path at which servers of MCP usually are."""

SERVER_WORDS = """\
SERVER is a URL (http, https, ws, wss, tcp, tls, unix), a command in quotes
that speaks on its stdin and stdout, or a Python file that contains a dragoman
server. A command may also follow at the end, after --; and --config NAME
takes the place of SERVER."""


@Parameter(name="*", group=LINK_GROUP, show_default=False)
@dataclass(frozen=True, kw_only=True)
class McpOptions:
    """Options that name a server and say how to speak to it."""

    config: Annotated[str | None, Parameter(metavar="NAME")] = None
    """The name of a server in mcp.json, .mcp.json, .vscode/mcp.json or .cursor/mcp.json."""
    config_file: Annotated[str | None, Parameter(metavar="FILE")] = None
    """Look for --config NAME in FILE."""
    revision: Annotated[str | None, Parameter(metavar="DATE")] = None
    """Speak this revision of MCP; default: the newest that both know."""
    access: AccessOptions = ACCESS
    answer: Annotated[list[str], Parameter(metavar="NAME=VALUE")] = field(default_factory=list)
    """Answer a field of the server's questions beforehand; any number of times."""
    log: Annotated[Level | None, Parameter(metavar="LEVEL")] = None
    """Show the server's log from this level on, on stderr."""
    trace: Annotated[str | None, Parameter(metavar="FILE", allow_leading_hyphen=True)] = None
    """Write every message in both directions to FILE as JSON Lines, secrets masked; - is stderr."""
    lenient: bool = False
    """Accept null for what is absent, and strings as error codes, from the server."""
    child: Annotated[str | None, Parameter(show=False)] = None
    """The command after --."""


MCP_OPTIONS = McpOptions()
"""The default options."""


def server_and_rest(words: Sequence[str], options: McpOptions) -> tuple[hosts.HostServer, list[str]]:
    """The server that was named, and the remaining arguments. Raises Usage."""
    rest = list(words)
    for word in rest:
        utf8(word, f"the argument {word!r}")
    if options.config is not None:
        if options.child is not None:
            raise Usage("--config and a command after -- exclude each other")
        return hosts.find(options.config, options.config_file, Path.cwd(), os.environ), rest
    if options.config_file is not None:
        raise Usage("--config-file needs --config NAME")
    if options.child is not None:
        if not options.child:
            raise Usage("there is no command after --")
        return hosts.HostServer(split_command(options.child)), rest
    if not rest:
        raise MissingArgument(
            "say which server: a URL, a command in quotes or after --, a Python file, or --config NAME"
        )
    return hosts.HostServer(target_of(rest[0])), rest[1:]


def as_written(words: Sequence[str], options: McpOptions) -> str:
    """The server as it is written on a command line, for an error that shows another one."""
    if options.config is not None:
        return f"--config {quote_word(options.config)}"
    return quote_word(words[0]) if options.child is None and words else "SERVER"


def only_server(words: Sequence[str], options: McpOptions, instead: str) -> hosts.HostServer:
    """The server that was named, of a command that takes nothing else. Raises Usage, which says what to do instead."""
    host, rest = server_and_rest(words, options)
    if rest:
        raise Usage(f"{rest[0]!r} is too much: {instead}")
    return host


@asynccontextmanager
async def server_at(
    host: hosts.HostServer,
    options: McpOptions,
    title: str,
    on_notification: OnNotification | None = None,
    *,
    answers: bool = True,
    extensions: Sequence[ClientExtension] = (),
) -> AsyncIterator[tuple[Client, Bar]]:
    """A client of the server, closed at the end, and the progress line. `on_notification` receives
    notifications; `answers`: whether questions are answered, or left open; `extensions`: the client's beside tasks.
    Raises what `Client` raises, and Usage."""
    if options.revision is not None and options.revision not in REVISIONS:
        near = nearest_name(options.revision, REVISIONS, 0.9)
        there = f"did you mean {near}?" if near else f"the revisions are {', '.join(REVISIONS)}"
        raise Usage(f"--revision {options.revision}: there is no such revision; {there}")
    access = options.access
    seconds = access.seconds()  # for connecting and the handshake, too
    headers = host.headers | access.headers()
    with (
        exchange(options.trace) as trace,
        Bar(title) as bar,
        child_lines(host.target) as lines,
        _not_there(host.target),
    ):
        asker = Asker("the server", options.answer, bar.pause, read_line if has_terminal() else None)
        async with (
            add_advice(host.target, access, lambda: lines.cause),
            Client(
                host.target,
                name="dragoman",
                version=__version__,
                revision=options.revision,
                timeout=seconds,
                on_elicit=asker.reply if answers else _leave_open,
                on_elicit_url=asker.reply if answers else _leave_open,
                extensions=[TasksClient(), *extensions],
                on_log=_log if on_notification is None else None,
                on_notification=on_notification,
                headers=headers,
                auth=access.auth() or on_demand(host.target, headers, access.account, has_terminal()),
                tls=access.tls(),
                env=environment(host.target) | host.env | access.environment(),
                env_inherit=access.env_inherit,
                cwd=host.cwd,
                stderr=lines,
                trace=trace,
                lenient=options.lenient,
                limits=CLIENT.but(call_timeout=seconds, header_timeout=seconds),
            ) as client,
        ):
            if client.server is not None:
                asker.who = clean(client.server.name)
            if options.log is not None:
                await client.set_log_level(options.log)
            yield client, bar


async def _leave_open(question: Any) -> None:
    """Answer a question never: somebody else may."""
    await asyncio.Event().wait()


def with_client(
    host: hosts.HostServer,
    options: McpOptions,
    title: str,
    work: Callable[[Client, Bar], Awaitable[T]],
    *,
    answers: bool = True,
    extensions: Sequence[ClientExtension] = (),
) -> T:
    """Run `work` with a client of the server and the progress line; returns its result. `answers`, `extensions`: as for
    `server_at`, which raises what this raises."""

    async def run() -> T:
        async with server_at(host, options, title, answers=answers, extensions=extensions) as (client, bar):
            return await work(client, bar)

    return asyncio.run(run())


@contextmanager
def _not_there(target: str | list[str]) -> Iterator[None]:
    """Say where MCP usually is if there is nothing at a URL, and what to call if what is there speaks JSON-RPC."""
    try:
        yield
    except HttpRefused as why:
        if why.status != 404 or not isinstance(target, str) or parse(target).path == USUAL_PATH:
            raise
        at = urlsplit(target)
        raise Broken(f"{why}; MCP is usually at {at.scheme}://{at.netloc}{USUAL_PATH}") from None
    except BadAnswer as why:
        if isinstance(why.__cause__, MethodNotFound):
            where = target_word(target)
            why.add_note(f"dragoman methods {where} lists what it can do, dragoman call {where} METHOD does it")
        raise


async def list_or_empty(ask: Awaitable[list[T]]) -> list[T]:
    """The entries that a server lists; none where it does not know the method."""
    try:
        return await ask
    except MethodNotFound:
        return []


async def list_others(client: Client, kind: str) -> dict[str, set[str]]:
    """What a server lists of other kinds than this one: the names of its tools and prompts, the URIs of its
    resources."""
    found: dict[str, set[str]] = {}
    if kind != "tool":
        found["tool"] = {one.name for one in await list_or_empty(client.list_tools())}
    if kind != "prompt":
        found["prompt"] = {one.name for one in await list_or_empty(client.list_prompts())}
    if kind != "resource":
        found["resource"] = {str(one.uri) for one in await list_or_empty(client.list_resources())}
    return found


def plain(value: Any) -> Any:
    """A protocol value as plain JSON values."""
    # blocks of unknown types are in results alone, and `encode` writes them as they came
    text = encode(value, NEWEST) if isinstance(value, CallToolResult | GetPromptResult) else msgspec.json.encode(value)
    return msgspec.json.decode(text)


def _log(message: Any) -> None:
    """Print a log message of the server, in one line on stderr."""
    line = plain(message)
    data = line.get("data")
    text = data if isinstance(data, str) else msgspec.json.encode(data).decode()
    name = f" {line['logger']}" if line.get("logger") else ""
    say(f"{line.get('level', 'info')}{name}: {text}", "dim")
