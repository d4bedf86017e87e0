"""A far end of either kind: a client where it speaks MCP, a peer where it speaks JSON-RPC alone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from ...jsonrpc.errors import BadAnswer, MethodNotFound
from ...mcp import Client
from ...rpc.peer import Peer
from ...system.words import join_command
from ..mcp.mcp_server import McpOptions, OnNotification, server_at
from ..options import LinkOptions, WireOptions
from ..reach import connect_peer
from ..serving.hosts import HostServer


@asynccontextmanager
async def either(
    host: HostServer, options: McpOptions, title: str, on_notification: OnNotification | None = None
) -> AsyncIterator[Client | Peer]:
    """The far end, closed at the end. `on_notification` receives an MCP server's notifications. Raises what `Client`
    and `connect` raise, and Usage."""
    async with AsyncExitStack() as stack:
        far: Client | Peer
        try:
            far, _ = await stack.enter_async_context(server_at(host, options, title, on_notification))
        except BadAnswer as error:
            if not isinstance(error.__cause__, MethodNotFound):  # it knows no `initialize`
                raise
            where = host.target if isinstance(host.target, str) else join_command(host.target)
            wire = WireOptions(trace=options.trace, lenient=options.lenient)
            far = await stack.enter_async_context(connect_peer(where, LinkOptions(access=options.access), wire))
        yield far
