"""What the function of an entry finds around it, at each call: the settings of the server that answers.

A server has one `Surroundings`, and each of its entries has its own, with its name. An entry that a server includes has
those of the server that answers, with the caching, the URIs and the notifications of the server it comes from. The
router puts them on the admitted request, so nothing that runs a function holds a server.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec import Struct

from ...jsonrpc.leniency import Leniency
from ...jsonrpc.limits import Limits
from ...rpc.binding.dependencies import Dependencies
from ...rpc.service import Service
from ..asking.request_state import StateSeal
from ..protocol.results import Stamp
from ..protocol.uri_template import Template
from .outcomes import ResultWriter
from .registering import ServerOptions


def same_uri(uri: str) -> str:
    """Return the URI unchanged: that of an entry which is not included."""
    return uri


class Surroundings(Struct, frozen=True, eq=False):
    """What surrounds a function. Its properties may change while the server is served."""

    service: Service
    """The JSON-RPC side of the server that answers."""
    stamp: Stamp
    seal: StateSeal
    options: ServerOptions
    """The options of the server that answers, with the caching of the one that an included entry comes from."""
    outcomes: Mapping[type, ResultWriter]
    """Other results that a function may return, by type."""
    notify_resource_updated: Callable[[str], None]
    own_uri: Callable[[str], str] = same_uri
    """The URI as the function knows it, of one that a client requests."""
    name: str = ""
    """The entry's name or URI, for error texts."""
    template: Template | None = None
    """The entry's template, where it has one."""

    @property
    def debug(self) -> bool:
        """Whether exceptions' texts are sent to clients."""
        return self.service.debug

    @property
    def lenient(self) -> Leniency:
        """What is accepted beyond the specifications."""
        return self.service._lenient

    @property
    def limits(self) -> Limits:
        """The bounds that a message is held to."""
        return self.service.limits

    @property
    def dependencies(self) -> Dependencies:
        """The dependencies of all functions of the server."""
        return self.service._dependencies
