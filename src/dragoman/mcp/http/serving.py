"""The part of a server that MCP's HTTP side uses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ...channel import CallLimit
from ...jsonrpc.limits import Limits
from ...rpc.runner import Runner
from ...rpc.service import Service
from ..protocol.admission import Offer
from ..protocol.options import HttpOptions

if TYPE_CHECKING:
    from ..session.replica import Subscribed
    from ..session.shared import Shared


class Serving(Protocol):
    """An MCP server."""

    @property
    def name(self) -> str: ...
    @property
    def options(self) -> HttpOptions: ...
    @property
    def limits(self) -> Limits: ...
    @property
    def offered(self) -> Offer:
        """The revisions that it speaks."""

    @property
    def service(self) -> Service: ...
    @property
    def host(self) -> Runner: ...
    @property
    def call_limit(self) -> CallLimit: ...
    @property
    def subscriptions(self) -> Subscribed: ...
    def scopes_of(self, method: str, name: str) -> frozenset[str]:
        """The scopes that a call of this method needs, of the tool, prompt or resource of this name or URI; none where
        not every stranger may know of it. Raises nothing."""

    @property
    def shared(self) -> Shared | None:
        """The state shared with other replicas; None without a bus."""
