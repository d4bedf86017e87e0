"""What tests look at behind the public types."""

from __future__ import annotations

import copy
from typing import overload

from dragoman import Limits, Peer, Service
from dragoman.mcp import Server
from dragoman.mcp.server.catalog.server_core import ServerCore
from dragoman.rpc.peering.channel_peer import ChannelPeer
from dragoman.rpc.registering.service_core import ServiceCore
from dragoman.rpc.service import behind as core


@overload
def behind(one: Service) -> ServiceCore: ...
@overload
def behind(one: Server) -> ServerCore: ...
@overload
def behind(one: Peer) -> ChannelPeer: ...
def behind(one: Service | Server | Peer) -> ServiceCore | ServerCore | ChannelPeer:
    """The object behind a public one, with all that this does not show."""
    if isinstance(one, Service):
        return core(one)
    if isinstance(one, Server):
        return one.__servable__()
    assert isinstance(one, ChannelPeer)
    return one


def limited(service: Service, limits: Limits) -> Service:
    """A service as `serve(service, limits=limits)` serves it."""
    other = copy.copy(service)
    other._core = core(service).within(limits)
    return other
