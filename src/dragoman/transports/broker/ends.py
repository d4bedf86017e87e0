"""Makes `dial` and `listen` for a broker's scheme from the function that makes its adapter."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from ...channel import Channel, Dial, Listen, Listener, Options, Servable
from ...net.sockets import sole_service
from ...net.urls import Url, parse
from .channel import reach
from .contract import BrokerAdapter
from .listener import begin

A = TypeVar("A", bound=BrokerAdapter)


def ends(make: Callable[[Url, Options, bool], A], name: Callable[[A], str]) -> tuple[Dial, Listen]:
    """Return `dial` and `listen` of a scheme. `make`: returns an adapter for a URL, not open yet, or raises LocalError;
    its last argument is whether the adapter serves. `name`: returns the address of an adapter as it is shown."""

    async def dial(url: str, options: Options) -> Channel:
        """A channel whose requests go to the URL's address. Raises Broken when the broker does not answer, and
        LocalError for a wrong URL."""
        where = parse(url)
        return await reach(make(where, options, False), where, options)

    async def listen(url: str, served: Mapping[str, Servable], options: Options) -> Listener:
        """A listener that is one more worker at the URL's address. Raises LocalError when the broker does not answer or
        the URL is wrong."""
        where = parse(url)
        one, adapter = sole_service(where, served), make(where, options, True)
        return await begin(adapter, where, one, options, name=name(adapter))

    return dial, listen
