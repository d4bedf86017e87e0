"""Every number that bounds what a peer can make us do, its default and the reason for it.

One `Limits` object serves every wire and every service. A value of `None`, where the type
allows it, means no limit of our own.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from .options import check_struct, rules_of, whole

KIB = 1024
MIB = 1024 * KIB


class Limits(Struct, frozen=True, kw_only=True):
    """The limits of one served object or one connecting peer. Sizes in bytes, times in seconds."""

    message_size: int = 4 * MIB
    """Longest incoming message. A server holds many at once, so it takes less than a client."""
    response_size: int = 10 * MIB
    """Longest message we send: a bigger answer is an error answer, a bigger call a `LocalError`."""
    depth: int = 512
    """Levels of arrays and objects within one another, in either direction: decoders recurse, and how deep an
    interpreter goes is another with each Python. The array of a batch does not count."""
    strays: int = 1_000
    """Messages in a row that are no JSON-RPC and show no id, on one channel. Each is answered with an error; beyond them the
    channel is closed, since a far end that answers errors with errors would go on for ever."""
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
    """Channels open at once per listener, those among them whose TLS handshake or guard is not done."""
    message_timeout: float | None = 30.0
    """From the first to the last byte of a message that comes in parts, on a server's stream or WebSocket."""
    partial_bytes: int = 256 * MIB
    """Bytes of messages that came in part, over all channels of a listener: they cost memory, not a call. One message of
    `message_size` is always taken."""
    connections: int = 16
    """HTTP connections that one client has open at once: servers take 25 and fewer. Further messages wait their turn."""
    header_size: int = 16 * KIB
    """All HTTP header lines, or the header block of one Content-Length frame."""
    header_timeout: float | None = 10.0
    """From the first byte of an HTTP request to the end of its headers."""
    body_timeout: float | None = 30.0
    """From the end of the HTTP headers to the end of the body."""
    guard_timeout: float | None = 10.0
    """How long the guard at the door may take to decide about one caller."""
    idle_timeout: float | None = 120.0
    """An HTTP connection without a request is closed after this time."""
    threads: int = 40
    """Worker threads for plain functions, per served object."""
    call_timeout: float | None = 30.0
    """Time for one outgoing call, at the caller."""
    handler_timeout: float | None = 300.0
    """Time for one incoming call, at the handler."""
    answers_kept: int = 10_000
    """Brokers: answers that one worker keeps for ten minutes, for requests that are delivered again."""
    answers_kept_size: int = 16 * MIB
    """The same in bytes, so that it is no more memory than that. Both bound what it puts in a shared store, too."""
    cancels_kept: int = 10_000
    """Brokers: cancels that are remembered, for requests that come after them."""
    drain_timeout: float = 30.0
    """How long closing waits for what is in flight."""

    def __post_init__(self) -> None:
        check_struct(self, _RULES)

    def but(self, **changes: object) -> Limits:
        """The same limits with some of them changed: `limits.but(calls=10)`. TypeError for an unknown name, LocalError
        for a value that is none."""
        return replace(self, **changes)


_NOTHING = ("waiting_per_channel", "answers_kept", "answers_kept_size", "cancels_kept", "partial_bytes", "send_queue")
"""Where 0 makes sense: none of them."""
_RULES = rules_of(Limits, **dict.fromkeys(_NOTHING, whole(0)))

SERVER = Limits()
CLIENT = Limits(message_size=10 * MIB)
