"""Connects a peer to the URL and the options of a command line."""

from __future__ import annotations

import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from ..channel import ChannelError
from ..connecting import connect
from ..jsonrpc.errors import BadAnswer, RpcError
from ..jsonrpc.limits import CLIENT
from ..net.urls import is_standard, scheme_of
from ..rpc.peer import Peer
from ..system.words import split_command
from .advice import about_mcp, add_advice
from .auth.on_demand import on_demand
from .exchange import exchange
from .exit_status import Usage
from .options import LinkOptions, WireOptions
from .programs import child_lines, environment, serve_command
from .progress import Bar

OF_V1 = ("`jsonrpc` is missing", '`jsonrpc` must be "2.0", not "1.0"')
"""What an error says of an answer in JSON-RPC 1.0."""
ADDRESS = re.compile(r"(\[[0-9a-fA-F:.]+\]|[\w.-]+):\d+(/.*)?")


def target_of(url: str) -> str | list[str]:
    """The argument of `connect`: the URL, or the command that speaks on its stdin and stdout, as a list."""
    if ADDRESS.fullmatch(url):
        raise Usage(f"{url} lacks its wire: write http://{url}, ws://{url}, tcp://{url} or udp://{url}")
    if not url.strip():
        raise Usage("the URL is empty")
    if (program := serve_command(url)) is not None:
        return program
    scheme = scheme_of(url)
    if not scheme:
        return _words(url)
    command = url.partition(":")[2]
    if not is_standard(url):
        return url
    if not command or command.startswith("?"):
        raise Usage("stdio: is this command's own input and output; to call a child, write 'stdio:python server.py'")
    return _words(command)


def _words(command: str) -> list[str]:
    try:
        return split_command(command)
    except ValueError as fault:
        raise Usage(f"{command!r} is not a command: {fault}") from None


def peer_options(link: LinkOptions, wire: WireOptions, seconds: float | None) -> dict[str, Any]:
    """The options of `connect`, but for `auth`, that a command line says. `seconds`: for connecting and the handshake,
    too. Raises Usage."""
    return {
        "timeout": seconds,
        "limits": (wire.limits(CLIENT) or CLIENT).but(call_timeout=seconds, header_timeout=seconds),
        "lenient": wire.lenient,
        "accept_v1": wire.lenient or link.v1,
        "v1": link.v1,
        "framing": wire.framing,
        "tls": link.access.tls(),
        "headers": link.access.headers(),
        "env": link.access.environment(),
        "env_inherit": link.access.env_inherit,
    }


@asynccontextmanager
async def connect_peer(url: str, link: LinkOptions, wire: WireOptions) -> AsyncIterator[Peer]:
    """The peer at `url`, closed at the end. Raises what `connect` raises, and Usage."""
    target = target_of(url)
    access = link.access
    options = peer_options(link, wire, access.seconds())
    options["env"] = environment(target) | options["env"]
    try:
        with exchange(wire.trace) as trace, child_lines(target) as lines, Bar(f"connecting to {url}") as bar:
            async with (
                add_advice(target, access, lambda: lines.cause),
                connect(
                    target,
                    trace=trace,
                    **options,
                    auth=access.auth()
                    or on_demand(target, access.headers(), access.account, sys.stdin.isatty() and sys.stderr.isatty()),
                    stderr=lines,
                ) as peer,
            ):
                bar.pause()
                yield peer
    except (RpcError, ChannelError, BadAnswer) as error:
        about_mcp(error, url)
        if isinstance(error, BadAnswer) and any(sign in str(error) for sign in OF_V1):
            error.add_note("if it speaks JSON-RPC 1.0: --v1, or --lenient, which accepts it in answers")
        raise
