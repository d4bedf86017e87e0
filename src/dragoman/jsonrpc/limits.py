"""The limits on what a peer can make us do, with their defaults and reasons.

One `Limits` object serves every wire and every service. A value of `None`, where the type
allows it, means no limit of our own.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from .errors import LocalError
from .options import check_struct, rules_of, unknown_option, whole

KIB = 1024
MIB = 1024 * KIB


class Limits(Struct, frozen=True, kw_only=True, repr_omit_defaults=True):
    """The limits of one served object or one connecting peer. Sizes in bytes, times in seconds."""

    message_size: int = 4 * MIB
    """Longest incoming message. A server holds many at once, so it takes less than a client."""
    response_size: int = 10 * MIB
    """Longest message we send: a bigger answer becomes an error, a bigger call a `LocalError`."""
    depth: int = 512
    """Levels of nested arrays and objects, in either direction. Decoders recurse, and the depth that an interpreter
    allows differs between Python versions. The array of a batch does not count."""
    malformed_in_a_row: int = 1_000
    """Messages in a row on one channel that are not JSON-RPC and show no id. Each is answered with an error; then the
    channel is closed, because a far end that answers errors with errors would go on for ever."""
    batch_length: int = 1_000
    """Most elements in one batch: each costs a call, however few its bytes."""
    batch_concurrency: int = 16
    """Most elements of one batch that run at once: a batch belongs to one caller and must not take every slot."""
    id_length: int = 1_024
    """Longest request id in its JSON text: ids are kept and echoed."""
    method_length: int = 256
    """Longest method name: names are logged and looked up."""
    calls_per_channel: int = 256
    """Calls running at once for one channel."""
    waiting_per_channel: int = 256
    """Calls that wait for one of those slots; beyond them a call is refused as busy."""
    list_size: int = 32 * MIB
    """Bytes of one list of an MCP server, all pages together: a client keeps the list, and each page may have
    `message_size`. 10,000 tools of 3 KB fit. One page is always accepted."""
    list_pages: int = 1_000
    """Pages of one list of an MCP server."""
    list_time: float | None = 300.0
    """Time for one list of an MCP server, from its first page to its last; each page has its own `timeout` besides."""
    questions: int = 32
    """Questions of one MCP server that a client answers at once: each takes a person or a model. More are refused as
    busy."""
    calls: int = 1_000
    """Calls in flight in all, per served object."""
    calls_size: int = 256 * MIB
    """Bytes of the params of those calls together: a thousand calls of `message_size` would be 4 GiB. One call of any
    size is always accepted."""
    detached_calls: int = 500
    """Calls whose work goes on beyond their requests, such as tasks, at once; never more than half of `calls`, since
    requests must find room beside them. A caller has a tenth, and more while less than half of it is taken."""
    half_closed_timeout: float | None = 60.0
    """How long calls go on whose far end has closed its sending side of a stream, unless it is known earlier that it
    has gone: a program that was killed looks like one that has sent everything and waits for its answers."""
    send_queue: int = 1 * MIB
    """High-water mark of unsent bytes: above it no further waiting call is started."""
    write_timeout: float | None = 30.0
    """A write that makes no progress for this long breaks its channel."""
    read_rate: int | None = 1 * KIB
    """The bytes a second, over `read_rate_over`, that a far end must read while bytes wait for it; None: any. One that
    reads a little now and then would make us hold its answers for ever. A modem reads four times as fast."""
    read_rate_over: float = 30.0
    """The time over which `read_rate` is measured: far ends do not read steadily."""
    read_grace: float = 30.0
    """How long bytes may wait before `read_rate` is measured: a far end may be busy for a moment."""
    kept_bytes: int = 64 * MIB
    """Bytes that a server keeps for callers (streams for a returning client, what sessions know of theirs) or has not
    sent to them, in all and on all wires. Above it the oldest stream is dropped, then the slowest reader is closed,
    first those of callers with more than a tenth of it. One answer of `response_size` is always accepted."""
    client_info_size: int = 64 * KIB
    """MCP: `clientInfo` and `capabilities` of an `initialize` together: they are kept as long as the session."""
    channels: int = 20_000
    """Channels open at once per listener, including those whose TLS handshake or guard has not finished."""
    message_timeout: float | None = 30.0
    """From the first to the last byte of a message that arrives in parts, on a server's stream or WebSocket."""
    partial_bytes: int = 256 * MIB
    """Bytes of incomplete messages over all channels of a listener: they cost memory before they are a call. One
    message of `message_size` is always accepted."""
    connections: int = 16
    """HTTP connections that one client has open at once: servers accept 25 and fewer. Further messages wait for one."""
    header_size: int = 16 * KIB
    """All HTTP header lines, or the header block of one Content-Length frame."""
    header_timeout: float | None = 10.0
    """From the first byte of an HTTP request to the end of its headers."""
    body_timeout: float | None = 30.0
    """From the end of the HTTP headers to the end of the body."""
    guard_timeout: float | None = 10.0
    """How long the guard may take to decide about one caller."""
    idle_timeout: float | None = 120.0
    """An HTTP connection without a request is closed after this time."""
    threads: int = 40
    """Worker threads for plain functions, per served object. Half of them at most wait for answers that come in later
    requests, which may take days; three quarters at most run calls that go on beyond their requests, in fair shares."""
    call_timeout: float | None = 30.0
    """Time for one outgoing call, at the caller."""
    handler_timeout: float | None = 300.0
    """Time for one incoming call, at the handler; progress begins it again."""
    answers_kept: int = 10_000
    """Brokers: answers that one worker keeps for ten minutes, for requests that are delivered again."""
    answers_kept_size: int = 16 * MIB
    """`answers_kept` in bytes, because answers differ in size. Both also bound what the worker puts in a shared
    store."""
    cancels_kept: int = 10_000
    """Brokers: cancels that are remembered, for requests that arrive after them."""
    store_key_length: int = 256
    """`ctx.store`: longest key, in characters: keys are kept and compared."""
    store_value_size: int = 64 * KIB
    """`ctx.store`: longest value, as JSON text."""
    store_keys: int = 256
    """`ctx.store`: most keys of one caller: a caller drives what a function stores for it."""
    store_size: int = 256 * KIB
    """`ctx.store`: all that is stored for one caller; it is read and written as a whole."""
    store_owners: int = 10_000
    """`ctx.store`, in memory and in a file: callers with something stored. Above it what anonymous callers have stored
    gives way, first that of the address that has most; then nothing is stored for others."""
    store_total: int = 256 * MIB
    """`ctx.store`, in memory and in a file: bytes of all callers together; above it as `store_owners`."""
    store_session_life: float = 3_600.0
    """`ctx.store`: how long a value of an anonymous caller is kept after it was set: sessions end without notice."""
    drain_timeout: float = 30.0
    """How long closing waits for calls in flight."""

    def __post_init__(self) -> None:
        check_struct(self, _RULES)

    def but(self, **changes: object) -> Limits:
        """The same limits with some of them changed: `limits.but(calls=10)`. Raises LocalError for an unknown name and
        for an invalid value."""
        for name in changes:
            if name not in self.__struct_fields__:
                raise LocalError(f"Limits: {unknown_option(name, self.__struct_fields__)}")
        return replace(self, **changes)


_MAY_BE_ZERO = (
    "waiting_per_channel",
    "answers_kept",
    "answers_kept_size",
    "cancels_kept",
    "partial_bytes",
    "send_queue",
    "kept_bytes",
)
"""Limits that may be 0: none at all is kept, queued or waits."""
_RULES = rules_of(Limits, **dict.fromkeys(_MAY_BE_ZERO, whole(0)))

SERVER = Limits()
CLIENT = Limits(message_size=10 * MIB)
