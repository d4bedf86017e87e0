"""`dragoman top`: what goes on in a server, from the socket of `serve --admin`."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Annotated

from cyclopts import App, Parameter
from rich.live import Live

from ...channel import Broken
from ...connecting import connect
from ...jsonrpc.errors import BadAnswer, MethodNotFound, RpcError
from ...rpc.peer import Peer
from ..arguments import address_of
from ..exit_status import FINE, Usage
from ..options import OUTPUT, Output
from ..serving.admin import NO_SECRET
from ..terminal import out
from .keys import keys
from .top_view import View

NOT_ADMIN = (
    "dragoman top looks at the place of dragoman serve --admin PLACE, as in --admin run/admin.sock or --admin :9091, "
    "and not at the URL at which a service is called"
)
WHOLE = 1000
"""Columns where stdout is not a terminal: names are not cut there."""

app: App = App(
    name="top",
    help_epilogue="""\
Examples:

  dragoman top run/admin.sock                     until q or Ctrl-C
  dragoman top run/admin.sock --once --json       for scripts
  dragoman top run/admin.sock --kill 7            end a call
  dragoman top 127.0.0.1:9091 --secret 4b1f...    where --admin is an address

The server answers if it was started with --admin run/admin.sock, in a folder
that is yours alone (mkdir -m 700 run), or with --admin :9091, for which it
prints a secret when it starts.

Keys: q quits, s sorts the methods by another column, space pauses, up and
down select a call, and k ends it, after a question.""",
)


@app.default
def top(
    endpoint: Annotated[str, Parameter(metavar="PATH|[HOST]:PORT", allow_leading_hyphen=False)],
    /,
    *,
    once: bool = False,
    kill: Annotated[str | None, Parameter(metavar="ID", show_default=False)] = None,
    interval: Annotated[float, Parameter(metavar="SECONDS")] = 1.0,
    secret: Annotated[str | None, Parameter(metavar="TEXT", env_var="DRAGOMAN_ADMIN_SECRET")] = None,
    output: Output = OUTPUT,
) -> int:
    """Show the calls in flight of a server, its methods, sessions, queues and workers.

    Parameters
    ----------
    endpoint
        The socket or the address of serve --admin.
    once
        Show it once and end, as in a pipe and with --json.
    kill
        End the call of this ID; its caller gets an error.
    interval
        Time between two looks.
    secret
        The secret that serve printed for its address; other users cannot see the variable.
    """
    if not 0.1 <= interval <= 3600:
        raise Usage(f"--interval {interval:g}: write 0.1 to 3600 seconds")
    try:
        return asyncio.run(_top(url_of(endpoint), secret, once or output.json, kill, interval, output))
    except KeyboardInterrupt:
        return FINE


def url_of(endpoint: str) -> str:
    """The URL of an endpoint as `serve --admin` takes or prints it. Raises Usage for the URL of anything else."""
    if endpoint.startswith("unix:"):
        return endpoint
    if endpoint.startswith("http://"):
        url = endpoint
    elif (found := address_of(endpoint)) is not None:
        url = f"http://{found[0]}:{found[1]}"
    else:
        return f"unix:{endpoint}"
    if "/" in url.removeprefix("http://").rstrip("/"):
        raise Usage(f"{endpoint}: {NOT_ADMIN}")
    return url


@asynccontextmanager
async def _connect(url: str, secret: str | None) -> AsyncIterator[Peer]:
    """The peer of `serve --admin` there. Raises Usage where it is another server, or wants a secret."""
    try:
        async with connect(url, auth=secret) as peer:
            yield peer
    except MethodNotFound:
        raise Usage(f"{url} answers, and is no address of serve --admin: {NOT_ADMIN}") from None
    except RpcError as refused:
        if refused.message != NO_SECRET:
            raise
        given = "this is not" if secret is not None else "it needs"
        raise Usage(
            f"{url}: {given} the secret that dragoman serve --admin told when it started: --secret TEXT, or "
            "DRAGOMAN_ADMIN_SECRET in the environment"
        ) from None
    except (Broken, BadAnswer) as fault:
        fault.add_note(NOT_ADMIN)
        raise


async def _top(url: str, secret: str | None, once: bool, kill: str | None, interval: float, output: Output) -> int:
    async with _connect(url, secret) as peer:
        if kill is not None:
            await peer.call("kill", [kill])
            return FINE
        if once or not (out.is_interactive and sys.stdin.isatty()):
            seen = await peer.call("look")
            if output.json:
                output.write(seen, "calls", "methods", "services", "workers")
            else:
                view = View()
                view.take(seen, 0.0)
                if not out.is_terminal:
                    out.width = WHOLE
                out.print(view.screen())
        else:
            await _live(peer, interval)
    return FINE


async def _live(peer: Peer, interval: float) -> None:
    clock = asyncio.get_running_loop().time
    view = View()
    view.take(await peer.call("look"), clock())
    with keys() as pressed, Live(view.screen(keys=True), console=out, screen=True, auto_refresh=False) as live:
        live.refresh()
        until = clock() + interval
        while not view.over:
            key = await _key(pressed, None if view.paused else until - clock())
            if key is None:
                view.take(await peer.call("look"), clock())
                until = clock() + interval
            elif (chosen := view.press(key)) is not None:
                view.note = await _kill(peer, chosen)
            live.update(view.screen(keys=True), refresh=True)


async def _key(pressed: asyncio.Queue[str], seconds: float | None) -> str | None:
    """The next key; None if there is none in time."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            return await pressed.get()
    return None


async def _kill(peer: Peer, id: str) -> str:
    """End a call; what became of that, in words."""
    try:
        await peer.call("kill", [id])
    except RpcError as refused:
        return refused.message
    return f"call {id} is ended"
