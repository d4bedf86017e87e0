"""The sessions and streams of a server, counted when metrics ask for them, and listed for the console."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal

from msgspec.structs import replace

from ...observer import Connection
from ...rpc.connections import describe_peer
from ...rpc.runner import Runner
from ..protocol.admission import SessionState
from .mailbox import MailboxHome
from .session import Session

CLIENT: Final = 100
"""Characters of a client's name and version in a list."""


def measure_sessions(host: Runner) -> dict[str, float]:
    """Return the measures of the runner, with sessions counted apart from channels. `streams` are those that have a
    reader here; `stream_lag`: messages that are in a stream and not yet sent to its reader."""
    found = host.measures()
    sessions = mailboxes = streams = lag = 0
    for peer in tuple(host.peers):
        channel = peer._channel
        if isinstance(channel, Session):
            sessions += 1
            lag += channel.unstored
            for cursor in channel.readers:
                streams += 1
                lag += cursor.behind
        elif isinstance(channel, MailboxHome):
            mailboxes += 1
    found["channels"] -= sessions + mailboxes
    return found | {"sessions": sessions + mailboxes, "streams": streams, "stream_lag": lag}


def list_sessions(host: Runner, lag_of: Callable[[Any], int]) -> list[Connection]:
    """Return the channels of a runner, its sessions, each once, and their streams that have a reader here. `lag_of`:
    returns how many notifications wait for a peer."""
    found: list[Connection] = []
    for peer in tuple(host.peers):
        channel, name = peer._channel, host.service.name
        state: SessionState | None = peer.state
        about = "" if state is None else state.revision.date
        client = "" if state is None else f"{state.client.name} {state.client.version}"[:CLIENT]
        if not isinstance(channel, Session):
            kind: Literal["session", "channel"] = "session" if isinstance(channel, MailboxHome) else "channel"
            found.append(describe_peer(peer, name, kind, about=about, client=client, lag=lag_of(peer)))
            continue
        waiting = lag_of(peer) + channel.unstored
        session = describe_peer(peer, name, "session", about=about, client=client, lag=waiting)
        found.append(session)
        found += [
            replace(session, id=f"{session.id}.{at}", kind="stream", in_flight=0, lag=cursor.behind, about="", drops=0)
            for at, cursor in enumerate(channel.readers)
        ]
    return found
