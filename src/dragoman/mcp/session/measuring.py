"""The sessions and streams of a server, counted when metrics ask for them."""

from __future__ import annotations

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
