"""From what was typed as SERVER, and the options, to an MCP client.

SERVER is a URL, a command in quotes, or a Python file with a dragoman server in it; a command may
also stand at the end, after `--`, and `--config NAME` takes it from the file of an MCP host.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from cyclopts import Parameter

from .. import __version__
from ..channel import Broken
from ..jsonrpc.limits import CLIENT
from ..mcp import Client
from ..mcp.client.http.refusals import HttpRefused
from ..mcp.protocol.revisions import REVISIONS
from ..net.urls import parse
from ..rpc.tracing import json_lines
from .asking import Asker, at_terminal, typed
from .ends import Usage
from .options import LINK_GROUP, Link, trace_to
from .progress import Bar
from .reach import child_line, place_of
from .serving import hosts
from .terminal import clean, say

Level: TypeAlias = Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]

SERVER_WORDS = """\
SERVER is a URL (http, https, ws, wss, tcp, tls, unix), a command in quotes
that speaks on its stdin and stdout, or a Python file that has a dragoman
server in it. A command may also stand at the end, after --; and
--config NAME takes the place of SERVER."""


@Parameter(name="*", group=LINK_GROUP, show_default=False)
@dataclass(frozen=True, kw_only=True)
class Far:
    """Which server, and how to speak with it."""

    config: Annotated[str | None, Parameter(metavar="NAME")] = None
    """The server that mcp.json, .mcp.json, .vscode/mcp.json or .cursor/mcp.json calls so."""
    config_file: Annotated[str | None, Parameter(metavar="FILE")] = None
    """Look for --config NAME in FILE."""
    revision: Annotated[str | None, Parameter(metavar="DATE")] = None
    """Speak this revision of MCP; the newest that both know unless said."""
    timeout: Annotated[float, Parameter(alias="-t", metavar="SECONDS", show_default=True)] = 30.0
    """Wait so long for the connection, and for the answer; inf waits for ever."""
    header: Annotated[list[str], Parameter(alias="-H", metavar="'NAME: VALUE'")] = field(default_factory=list)
    """A header for http and ws; any number of times."""
    user: Annotated[str | None, Parameter(metavar="NAME:PASSWORD", env_var="DRAGOMAN_USER")] = None
    """Basic authorization."""
    bearer: Annotated[str | None, Parameter(metavar="TOKEN", env_var="DRAGOMAN_BEARER")] = None
    """Bearer authorization."""
    ca: Annotated[str | None, Parameter(metavar="FILE")] = None
    """Trust the certificates in FILE (tls, https, wss)."""
    insecure: bool = False
    """Trust any certificate."""
    answer: Annotated[list[str], Parameter(metavar="NAME=VALUE")] = field(default_factory=list)
    """Answer a field of the server's questions beforehand; any number of times."""
    log: Annotated[Level | None, Parameter(metavar="LEVEL")] = None
    """Show the server's log from this level on, on stderr."""
    trace: Annotated[str | None, Parameter(metavar="FILE", allow_leading_hyphen=True)] = None
    """Write every message of both directions to FILE as JSON Lines, secrets masked; - is stderr."""
    child: Annotated[str | None, Parameter(show=False)] = None
    """The command that stood after --."""

    def link(self) -> Link:
        """The same, as the other commands have it."""
        return Link(
            timeout=self.timeout,
            header=self.header,
            user=self.user,
            bearer=self.bearer,
            ca=self.ca,
            insecure=self.insecure,
        )


FAR = Far()
"""What the commands have by default."""


def found(words: Sequence[str], far: Far) -> tuple[hosts.Host, list[str]]:
    """The server that was named, and the words that are left. Usage where none is."""
    rest = list(words)
    if far.config is not None:
        if far.child is not None:
            raise Usage("--config and a command after -- exclude each other")
        return hosts.find(far.config, far.config_file, Path.cwd(), os.environ), rest
    if far.config_file is not None:
        raise Usage("--config-file needs --config NAME")
    if far.child is not None:
        if not far.child:
            raise Usage("there is no command after --")
        return hosts.Host(shlex.split(far.child)), rest
    if not rest:
        raise Usage("say which server: a URL, a command in quotes or after --, a Python file, or --config NAME")
    return hosts.Host(_target(rest[0])), rest[1:]


def _target(word: str) -> str | list[str]:
    if word.endswith(".py") and Path(word).is_file():
        return [sys.executable, "-m", "dragoman", "serve", word, "stdio:", "--quiet"]
    return place_of(word)


@asynccontextmanager
async def server_at(host: hosts.Host, far: Far, title: str) -> AsyncIterator[tuple[Client, Bar]]:
    """A client of the server, closed at the end, and the line for progress. Raises what `Client` raises, and Usage."""
    if far.revision is not None and far.revision not in REVISIONS:
        raise Usage(f"--revision {far.revision}: the revisions are {', '.join(REVISIONS)}")
    link = far.link()
    seconds = link.seconds()  # for connecting and shaking hands, too
    with trace_to(far.trace) as write, Bar(title) as bar, _nothing_there(host.target):
        asker = Asker("the server", far.answer, bar.pause, typed if at_terminal() else None)
        async with Client(
            host.target,
            name="dragoman",
            version=__version__,
            revision=far.revision,
            timeout=seconds,
            on_elicit=asker.reply,
            on_elicit_url=asker.reply,
            on_log=_log,
            headers=host.headers | link.headers(),
            auth=link.auth(),
            tls=link.tls(),
            env=host.env,
            cwd=host.cwd,
            stderr=child_line,
            trace=None if write is None else json_lines(write),
            limits=CLIENT.but(call_timeout=seconds, header_timeout=seconds),
        ) as client:
            if client.server is not None:
                asker.who = clean(client.server.name)
            if far.log is not None:
                await client.set_log_level(far.log)
            yield client, bar


@contextmanager
def _nothing_there(target: str | list[str]) -> Iterator[None]:
    """Say where MCP usually is when there is nothing at a URL without a path."""
    try:
        yield
    except HttpRefused as why:
        if why.status != 404 or not isinstance(target, str) or parse(target).path not in ("", "/"):
            raise
        raise Broken(f"{why}; MCP is usually at {target.rstrip('/')}/mcp") from None


def plain(value: Any) -> Any:
    """A protocol value as JSON has it."""
    return msgspec.json.decode(msgspec.json.encode(value))


def _log(told: Any) -> None:
    """What the server logs, in a line on stderr."""
    line = plain(told)
    data = line.get("data")
    text = data if isinstance(data, str) else msgspec.json.encode(data).decode()
    name = f" {line['logger']}" if line.get("logger") else ""
    say(f"{line.get('level', 'info')}{name}: {text}", "dim")
