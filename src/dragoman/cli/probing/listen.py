"""`dragoman listen`: prints what a far end notifies about, until Ctrl-C.

Rules: on a terminal a line of time, method and params for each; in a pipe and with `--json` a line of JSON,
`{"method": ..., "params": ...}`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from cyclopts import App, Parameter
from msgspec import UNSET, Raw
from rich.text import Text

from ...mcp import Client
from ...net.urls import parse
from ...rpc.peer import Peer
from ..exit_status import FINE, NoAnswer, Usage
from ..mcp.mcp_server import MCP_OPTIONS, SERVER_WORDS, McpOptions, server_and_rest
from ..options import OUTPUT, Output
from ..serving.hosts import HostServer
from ..terminal import clean, compact, out
from .either import either

app: App = App(
    name="listen",
    usage="Usage: dragoman listen [OPTIONS] SERVER [URI...]",
    help_epilogue=f"""\
Examples:

  dragoman listen tcp://127.0.0.1:9000
  dragoman listen ws://127.0.0.1:8001 --count 10 --json
  dragoman listen http://127.0.0.1:8000/mcp                an MCP server's lists
  dragoman listen http://127.0.0.1:8000/mcp file:///log    and a resource

{SERVER_WORDS}

It ends with Ctrl-C, or after --count notifications.""",
)


@app.default
def listen(
    *words: Annotated[str, Parameter(name="SERVER [URI...]")],
    count: Annotated[int | None, Parameter(alias="-n", show_default=False)] = None,
    options: McpOptions = MCP_OPTIONS,
    output: Output = OUTPUT,
) -> int:
    """Print what a server notifies about, until Ctrl-C.

    Parameters
    ----------
    words
        The server, and URIs of resources to subscribe to.
    count
        End after this many notifications.
    """
    if count is not None and count < 1:
        raise Usage("--count is above 0")
    host, uris = server_and_rest(words, options)
    shown = _Shown(count, output.json or not out.is_terminal)
    try:
        asyncio.run(_listen(host, options, uris, shown))
    except KeyboardInterrupt:
        return FINE
    return FINE


class _Shown:
    """Prints notifications, and knows when there were enough."""

    def __init__(self, count: int | None, as_json: bool) -> None:
        self._left = count
        self._as_json = as_json
        self.enough = asyncio.Event()
        self.failed: OSError | None = None
        """Why no more can be printed."""

    def show(self, method: str, params: Any) -> None:
        """Print a notification. Raises nothing: the caller would take an error for one of a user's function."""
        if self.enough.is_set():
            return
        try:
            self._print(method, params)
        except OSError as fault:
            self.failed = fault
            self.enough.set()
            return
        if self._left is not None:
            self._left -= 1
            if self._left == 0:
                self.enough.set()

    def _print(self, method: str, params: Any) -> None:
        if self._as_json:
            print(compact({"method": method} | ({} if params is UNSET else {"params": params})), flush=True)
        else:
            said = "" if params is UNSET else compact(params)
            now = time.strftime("%H:%M:%S")
            out.print(Text.assemble((now, "dim"), "  ", (clean(method), "cyan"), f"  {clean(said)}"), soft_wrap=True)


async def _listen(host: HostServer, options: McpOptions, uris: Sequence[str], shown: _Shown) -> None:
    async with either(host, options, "listen", shown.show) as far:
        if isinstance(far, Client):
            work = asyncio.ensure_future(_of_mcp(far, uris))
        elif uris:
            raise Usage(f"{uris[0]!r} is too much: only an MCP server has resources")
        else:
            _can_hear(far, host)
            work = asyncio.ensure_future(_of_rpc(far, shown))
        enough = asyncio.ensure_future(shown.enough.wait())
        done, rest = await asyncio.wait([work, enough], return_when=asyncio.FIRST_COMPLETED)
        for one in rest:
            one.cancel()
        await asyncio.gather(*rest, return_exceptions=True)
        if shown.failed is not None:
            raise shown.failed
        if work in done:
            work.result()
            raise NoAnswer("the server has ended the subscription")


def _can_hear(peer: Peer, host: HostServer) -> None:
    """Raises Usage for a wire on which only answers come back."""
    if peer._channel is not None and not peer._channel.duplex:
        where = parse(host.target).shown if isinstance(host.target, str) else "this wire"
        raise Usage(f"{where}: on this wire a JSON-RPC server only answers; listen on ws://, tcp:// or unix:")


async def _of_rpc(peer: Peer, shown: _Shown) -> None:
    async for one in peer.notifications():
        shown.show(one.method, UNSET if one.params is UNSET else Raw(msgspec.json.format(one.params, indent=-1)))


async def _of_mcp(client: Client, uris: Sequence[str]) -> None:
    """Subscribe to what the server offers; what comes is printed as it comes."""
    offers = client.capabilities
    lists = {
        name: getattr(offers, name, UNSET) not in (UNSET, None) and getattr(offers, name).list_changed is True
        for name in ("tools", "prompts", "resources")
    }
    if not uris and not any(lists.values()):
        await asyncio.Event().wait()  # it has nothing to subscribe to, and may send its log
    wanted = client.subscribe(uris, tools=lists["tools"], prompts=lists["prompts"], resources=lists["resources"])
    async with wanted as changes:
        async for _ in changes:
            pass  # `on_notification` has received it
