"""The channels of a runner as values, for observers, and the end of one of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from time import monotonic
from typing import Any, Literal

from ..observer import Connection
from .runner import Runner

_ending: set[asyncio.Task[None]] = set()


def describe_peer(
    peer: Any,
    service: str,
    kind: Literal["channel", "session"] = "channel",
    *,
    about: str = "",
    client: str = "",
    lag: int = 0,
) -> Connection:
    """Return what is known of a peer. `lag`: messages that wait beside those of its queue."""
    caller, conversation = peer.caller, peer._conversation
    return Connection(
        id=f"{peer._number}",
        kind=kind,
        service=service,
        wire=caller.scheme,
        remote=caller.remote,
        principal="" if caller.identity is None else caller.identity.subject,
        session=peer._session_name,
        about=about,
        client=client,
        age=round(monotonic() - peer._since, 3),
        in_flight=len(conversation.inbound) + len(conversation.waiting),
        lag=lag,
        drops=peer.dropped,
    )


def channels_of(runner: Runner) -> list[Connection]:
    """Return the channels of a runner."""
    return [describe_peer(peer, runner.service.name) for peer in tuple(runner.peers)]


def end_peer(peers: Iterable[Any], id: str) -> bool:
    """Begin to close the peer with this number: its calls are dropped. False if there is none."""
    found = next((one for one in tuple(peers) if f"{one._number}" == id), None)
    if found is None:
        return False
    task = asyncio.get_running_loop().create_task(found.close(0))
    _ending.add(task)
    task.add_done_callback(_ending.discard)
    return True
