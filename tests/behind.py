"""What tests look at behind the public types."""

from __future__ import annotations

from dragoman import Peer
from dragoman.rpc.peering.channel_peer import ChannelPeer


def behind(peer: Peer) -> ChannelPeer:
    """The peer itself, with all that `Peer` does not show."""
    assert isinstance(peer, ChannelPeer)
    return peer
