"""The settings of the server that answers, which the code around an entry's function needs at each call.

A server has one `Surroundings`, and each of its entries has its own, with its name. An included entry has those of the
server that answers, with the caching, the URIs and the notifications of the server that it comes from. The router puts
them on the admitted request, so that the code that runs a function does not refer to a server.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from ...jsonrpc.leniency import Leniency
from ...jsonrpc.limits import Limits
from ...jsonrpc.options import Rule
from ...rpc.binding.dependencies import Dependencies
from ...rpc.service import Service
from ..asking.request_state import StateSeal
from ..protocol.results import Stamp
from ..protocol.uri_template import Template
from .options import ServerOptions
from .outcomes import ResultWriter


def same_uri(uri: str) -> str:
    """Return the URI unchanged, for an entry that is not included."""
    return uri


class Surroundings(Struct, frozen=True, eq=False):
    """The settings for one function. Those that are properties may change while the server is served."""

    service: Service
    """The JSON-RPC side of the server that answers."""
    stamp: Stamp
    """The server's description, which results carry."""
    seal: StateSeal
    """Seals the state that clients get with questions."""
    options: ServerOptions
    """The options of the server that answers; `ttl` and `cache_scope` are those of the server of an included entry."""
    outcomes: Mapping[type, ResultWriter]
    """The writers of other results that a function may return, by type."""
    added_options: Mapping[str, Mapping[str, Rule]]
    """The rules of the options that extensions add, by kind of entry."""
    notify_resource_updated: Callable[[str], None]
    """Notifies the subscribers of the resource at a URI."""
    own_uri: Callable[[str], str] = same_uri
    """Takes a URI that a client requests, and returns it as the function knows it."""
    name: str = ""
    """The entry's name or URI, for error texts."""
    template: Template | None = None
    """The entry's template; None: it has none."""
    extended: Mapping[str, Any] = {}
    """The values of the entry's options that extensions add."""
    own_state: bool = False
    """Whether the function reads `requestState` itself; see `Row.own_state`."""

    @property
    def debug(self) -> bool:
        """Whether exceptions' texts are sent to clients."""
        return self.service.debug

    @property
    def lenient(self) -> Leniency:
        """Which deviations from the specifications are accepted."""
        return self.service._lenient

    @property
    def limits(self) -> Limits:
        """The limits of messages, calls, channels and times."""
        return self.service.limits

    @property
    def dependencies(self) -> Dependencies:
        """The dependencies of all functions of the server."""
        return self.service._dependencies
