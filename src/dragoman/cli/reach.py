"""Connects a peer to the URL and the options of a command line."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ..connecting import connect
from ..jsonrpc.limits import CLIENT
from ..net.urls import is_standard, scheme_of
from ..rpc.peer import Peer
from ..rpc.tracing import json_lines
from .ends import Usage
from .options import Link, Wire, trace_to
from .terminal import clean

PLACE = re.compile(r"(\[[0-9a-fA-F:.]+\]|[\w.-]+):\d+(/.*)?")


def place_of(url: str) -> str | list[str]:
    """The argument of `connect`: the URL, or the command that speaks on its stdin and stdout, as a list."""
    if PLACE.fullmatch(url):
        raise Usage(f"{url} lacks its wire: write http://{url}, ws://{url}, tcp://{url} or udp://{url}")
    if not url.strip():
        raise Usage("the URL is empty")
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
        return shlex.split(command)
    except ValueError as fault:
        raise Usage(f"{command!r} is not a command: {fault}") from None


def child_line(line: str) -> None:
    """Pass on a line that the child process wrote to its stderr."""
    print(clean(line), file=sys.stderr)


@asynccontextmanager
async def reached(url: str, link: Link, wire: Wire) -> AsyncIterator[Peer]:
    """The peer at `url`, closed at the end. Raises what `connect` raises, and Usage."""
    place = place_of(url)
    access = link.access
    seconds = access.seconds()  # for connecting and the handshake, too
    limits = (wire.limits(CLIENT) or CLIENT).but(call_timeout=seconds, header_timeout=seconds)
    with trace_to(wire.trace) as write:
        async with connect(
            place,
            timeout=seconds,
            trace=None if write is None else json_lines(write),
            limits=limits,
            accept_v1=wire.lenient or link.v1,
            string_codes=wire.lenient,
            v1=link.v1,
            framing=wire.framing,
            tls=access.tls(),
            headers=access.headers(),
            auth=access.auth(),
            stderr=child_line,
        ) as peer:
            yield peer
