"""Every number that bounds what a peer can make us do, its default and the reason for it.

One `Limits` object serves every wire and every service. A value of `None`, where the type
allows it, means no limit of our own.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

KIB = 1024
MIB = 1024 * KIB


class Limits(Struct, frozen=True, kw_only=True):
    """The limits of one served object or one connecting peer. Sizes in bytes, times in seconds."""

    message_size: int = 4 * MIB
    """Longest incoming message. A server holds many at once, so it takes less than a client."""
    response_size: int = 10 * MIB
    """Longest message we send: a bigger answer is an error answer, a bigger call a `LocalError`."""
    batch_length: int = 1_000
    """Most elements in one batch: each costs a call, whatever its bytes."""
    batch_concurrency: int = 16
    """Most elements of one batch that run at once: a batch is one caller's and must not take every slot."""
    id_length: int = 1_024
    """Longest request id in its JSON text: ids are kept and echoed."""
    method_length: int = 256
    """Longest method name: names are logged and looked up."""
    calls_per_channel: int = 256
    """Calls running at once for one channel."""
    waiting_per_channel: int = 256
    """Calls that wait for one of those places; beyond them a call is refused as busy."""
    calls: int = 1_000
    """Calls in flight in all, per served object."""
    send_queue: int = 1 * MIB
    """High-water mark of unsent bytes: above it no further waiting call is started."""
    write_timeout: float | None = 30.0
    """A write that makes no headway for so long breaks its channel."""
    channels: int = 20_000
    """Channels open at once per listener."""
    header_size: int = 16 * KIB
    """All HTTP header lines, or the header block of one Content-Length frame."""
    header_timeout: float | None = 10.0
    """From the first byte of an HTTP request to the end of its headers."""
    body_timeout: float | None = 30.0
    """From the end of the HTTP headers to the end of the body."""
    idle_timeout: float | None = 120.0
    """An HTTP connection without a request is closed after this time."""
    threads: int = 40
    """Worker threads for plain functions, per served object."""
    call_timeout: float | None = 30.0
    """Time for one outgoing call, at the caller."""
    handler_timeout: float | None = 300.0
    """Time for one incoming call, at the handler."""
    drain_timeout: float = 30.0
    """How long closing waits for what is in flight."""

    def but(self, **changes: object) -> Limits:
        """The same limits with some of them changed: `limits.but(calls=10)`. TypeError for an unknown name."""
        return replace(self, **changes)


SERVER = Limits()
CLIENT = Limits(message_size=10 * MIB)
