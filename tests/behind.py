"""What tests look at behind the public types."""

from __future__ import annotations

import copy
from typing import overload

from dragoman import Limits, Peer, Service
from dragoman.rpc.peering.channel_peer import ChannelPeer
from dragoman.rpc.registering.service_core import ServiceCore
from dragoman.rpc.service import behind as core


@overload
def behind(one: Service) -> ServiceCore: ...
@overload
def behind(one: Peer) -> ChannelPeer: ...
def behind(one: Service | Peer) -> ServiceCore | ChannelPeer:
    """The object behind a public one, with all that this does not show."""
    if isinstance(one, Service):
        return core(one)
    assert isinstance(one, ChannelPeer)
    return one


def limited(service: Service, limits: Limits) -> Service:
    """A service as `serve(service, limits=limits)` serves it."""
    other = copy.copy(service)
    other._core = core(service).within(limits)
    return other
