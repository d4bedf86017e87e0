"""Peers over the client's side of Streamable HTTP, for its tests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from dragoman import Service
from dragoman.channel import Options
from dragoman.jsonrpc.errors import Dialect
from dragoman.jsonrpc.limits import CLIENT, Limits
from dragoman.mcp.client.http.posts import StreamableHttp, dial_mcp
from dragoman.mcp.protocol.dialect import MCP
from dragoman.rpc.channel_peer import ChannelPeer
from dragoman.rpc.runner import Runner
from tests.behind import behind


def callee() -> Service:
    """What the server may call."""
    service = Service("caller", discover=False)

    @service.method("ask")
    async def ask(question: str) -> str:
        return f"{question}!"

    return service


class Caller:
    """A peer and its channel."""

    def __init__(self, channel: StreamableHttp, peer: ChannelPeer) -> None:
        self.channel = channel
        self.peer = peer

    async def call(self, method: str = "tools/call", extra: Mapping[str, str] | None = None, **params: Any) -> Any:
        return await self.peer.call(method, params, extra=extra)

    async def begin(self) -> Any:
        """The stateful era's beginning."""
        result = await self.call("initialize")
        self.channel.version = "v1"
        return result


@asynccontextmanager
async def calling(
    url: str,
    *,
    stateless: bool = False,
    limits: Limits = CLIENT,
    headers: Mapping[str, str] | None = None,
    dialect: Dialect = MCP,
) -> AsyncIterator[Caller]:
    channel = await dial_mcp(url, Options(limits=limits, headers=headers or {}))
    channel.stateless = stateless
    peer = ChannelPeer(Runner(behind(callee())), limits=limits, dialect=dialect)
    peer.alone = True
    peer.attach(channel)
    try:
        yield Caller(channel, peer)
    finally:
        await peer.close()
