"""The sessions and streams of a server, counted when metrics ask for them, and listed for the console."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from ...observer import Connection
from ...rpc.connections import describe_peer
from ...rpc.runner import Runner
from .mailbox import MailboxHome
from .session import Session


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
        if not isinstance(channel, Session):
            kind = "session" if isinstance(channel, MailboxHome) else "channel"
            found.append(describe_peer(peer, name, "session" if kind == "session" else "channel", lag=lag_of(peer)))
            continue
        revision = channel.revision
        about = "" if revision is None else revision.date
        session = describe_peer(peer, name, "session", about=about, lag=lag_of(peer) + channel.unstored)
        found.append(session)
        found += [
            replace(session, id=f"{session.id}.{at}", kind="stream", in_flight=0, lag=cursor.behind, about="", drops=0)
            for at, cursor in enumerate(channel.readers)
        ]
    return found
