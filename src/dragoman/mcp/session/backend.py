"""The part of an MCP server that its wires use: HTTP, and brokers, whose sessions belong to mailboxes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ...channel import CallLimit
from ...jsonrpc.limits import Limits
from ...rpc.channel_peer import ChannelPeer
from ...rpc.runner import Runner
from ...rpc.service import Service
from ..protocol.admission import Offer
from ..protocol.http_options import HttpOptions
from .changes import ChangeHub

if TYPE_CHECKING:
    from .shared import Replica


class McpBackend(Protocol):
    """An MCP server as its wires see it."""

    @property
    def name(self) -> str: ...
    @property
    def options(self) -> HttpOptions: ...
    @property
    def limits(self) -> Limits: ...
    @property
    def offered(self) -> Offer:
        """The revisions that the server speaks."""

    @property
    def service(self) -> Service: ...
    @property
    def host(self) -> Runner: ...
    @property
    def call_limit(self) -> CallLimit: ...
    @property
    def subscriptions(self) -> ChangeHub: ...
    def scopes_of(self, method: str, name: str) -> frozenset[str]:
        """Return the scopes that a call of this method needs, for the tool, prompt or resource of this name or URI.
        They are empty for an entry that not everybody may know of. Raises nothing."""

    @property
    def shared(self) -> Replica | None:
        """The part of this process in what the replicas share; None without a bus."""

    def peer(self) -> ChannelPeer:
        """Make a peer for one client."""
