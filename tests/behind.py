"""What tests look at behind the public types."""

from __future__ import annotations

import weakref
from typing import overload

from dragoman import Limits, Peer, Service
from dragoman.mcp import Server
from dragoman.mcp.server.catalog.server_core import ServerCore
from dragoman.rpc.peering.channel_peer import ChannelPeer

_serving: weakref.WeakKeyDictionary[ServerCore, weakref.ref[ServerCore]] = weakref.WeakKeyDictionary()
_for_serving = ServerCore.for_serving


def _noted(server: ServerCore) -> ServerCore:
    """What `serve` serves of a server, which is noted for `behind`."""
    found = _for_serving(server)
    _serving[server] = weakref.ref(found)
    return found


ServerCore.for_serving = _noted  # type: ignore[assignment,method-assign]


@overload
def behind(one: Service) -> Service: ...
@overload
def behind(one: Server) -> ServerCore: ...
@overload
def behind(one: Peer) -> ChannelPeer: ...
def behind(one: Service | Server | Peer) -> Service | ServerCore | ChannelPeer:
    """The object behind a public one, with all that this does not show; of a server what was served last of it."""
    if isinstance(one, Service):
        return one
    if isinstance(one, Server):
        server = one.__servable__()
        return (_serving[server]() if server in _serving else None) or server
    assert isinstance(one, ChannelPeer)
    return one


def limited(service: Service, limits: Limits) -> Service:
    """A service as `serve(service, limits=limits)` serves it."""
    return service._within(limits)
