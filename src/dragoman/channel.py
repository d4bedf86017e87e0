"""The contract between wires and peers: channels, exchanges, what can be served, and how things end.

A *channel* carries whole messages both ways for as long as it lives (TCP, stdio, WebSocket). An
*exchange* is one message in and its answer out (an HTTP POST, a datagram, a broker's delivery).
Whatever can be served is `Servable`; transports know that protocol and never a service.

Rules every transport keeps:

- A `Channel` delivers nothing before `open`, and calls its receiver only on the event loop, never
  from inside `send` (the receiver may be in the middle of something).
- `send` never blocks and never drops: it queues. The sender watches `writable`.
- After `ended` nothing is delivered; `ended` comes exactly once, also after `close`.
- An `Exchange` gets exactly one `respond`, unless the caller is `gone`, where one more is ignored.
"""

from __future__ import annotations

import copy
import json
import logging
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Literal, Protocol, TypeAlias, get_args, runtime_checkable

from msgspec import Struct, field

from .jsonrpc.codec import decode, failure
from .jsonrpc.errors import InternalError, Refusal
from .jsonrpc.framing import FramingName
from .jsonrpc.limits import Limits
from .jsonrpc.messages import NULL, Malformed, Notification, Request
from .jsonrpc.options import (
    ANYTHING,
    CALLABLE,
    FLAG,
    NAME,
    NONE,
    PAIRS,
    TEXT,
    TEXTS,
    Rule,
    check_struct,
    instance,
    many,
    mapping,
    one_of,
    whole,
)

log = logging.getLogger("dragoman.wire")

# -- how a channel ends ---------------------------------------------------------------------------


class ChannelError(ConnectionError):
    """A channel is over, so nothing more can be sent; the text says why."""


class Ended(ChannelError):
    """The far end finished: end of file, a close frame, the child's exit."""


class Unheard(Ended):
    """The far end finished before it had read anything of what we sent: that was not because of it, and to begin again
    would not help."""


class Closed(ChannelError):
    """We closed it ourselves."""


class Broken(ChannelError):
    """The wire failed: reset, refused, a stalled write, a handshake that did not come about."""


def again(why: ChannelError) -> ChannelError:
    """The same ending as an exception of its own, to be raised: one instance that is raised again and again collects
    tracebacks and contexts, and all that their frames hold."""
    return copy.copy(why)


# -- who is there ---------------------------------------------------------------------------------


class Identity(Struct, frozen=True, kw_only=True):
    """Who a caller is, as a guard found out."""

    subject: str
    """Whom the credentials name: a user, a service. Unique per issuer."""
    client_id: str | None = None
    """The program that acts for the subject."""
    issuer: str | None = None
    """Who says so."""
    scopes: frozenset[str] = frozenset()
    """What it may do."""
    claims: Mapping[str, Any] = {}
    """All else that is said of it."""
    expires_at: float | None = None
    """Unix time, in seconds; None: it does not end."""

    @property
    def principal(self) -> str:
        """Issuer, subject and client in one text that no other three give: a JSON array of them."""
        return _json([self.issuer, self.subject, self.client_id])


_json = json.JSONEncoder(separators=(",", ":")).encode  # it takes any str there is, half a surrogate pair too


class UnixCredentials(Struct, frozen=True):
    """The process at the far end of a Unix socket, as the kernel knows it."""

    pid: int
    uid: int
    gid: int


class Handshake(Struct, frozen=True, kw_only=True):
    """What a guard sees of a caller: all that is known before a body is read, a WebSocket accepted, a delivery decoded."""

    scheme: str
    """The wire: "http", "wss", "tls", "unix", ..."""
    method: str = ""
    """HTTP's; "GET" for a WebSocket."""
    url: str = ""
    """The whole URL that was asked for, path and query as they were sent."""
    headers: Sequence[tuple[bytes, bytes]] = ()
    """Header fields in their order, equal names apart, names in lower case; a broker delivery's, too."""
    remote: str = ""
    """The far end's address in words."""
    certificate: Mapping[str, Any] | None = None
    """The caller's TLS certificate, as `ssl.SSLSocket.getpeercert()` gives it; None: it showed none."""
    credentials: UnixCredentials | None = None


class Admitted(Struct, frozen=True, kw_only=True):
    """A guard's yes."""

    identity: Identity | None = None
    """`Caller.identity` from here on."""
    headers: Sequence[tuple[str, str]] = ()
    """Header fields that join the answer, where the wire has them."""
    expires: float | None = None
    """Unix time at which the admission ends, for a channel that outlives it; None: never."""


class Denied(Struct, frozen=True, kw_only=True):
    """A guard's no."""

    reason: str
    """For the caller, in one line."""
    status: int = 401
    """HTTP's."""
    headers: Sequence[tuple[str, str]] = ()
    """Header fields of the answer, e.g. `WWW-Authenticate`."""


Guard: TypeAlias = Callable[[Handshake], Awaitable[Admitted | Denied]]
"""Decides at the door, before a body is read. One that raises turns the caller away with 500; one that takes longer than
`limits.guard_timeout`, with 503."""


class Caller(Struct, frozen=True, kw_only=True):
    """What a wire knows about the far end. Every member may be empty."""

    scheme: str = ""
    """The wire: "tcp", "http", "ws", "stdio", "memory", "unix", "udp", ..."""
    remote: str = ""
    """The far end's address in words, e.g. "127.0.0.1:54321"."""
    path: str = ""
    """The URL's path, on HTTP and WebSocket."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """HTTP headers, names in lower case; equal names joined by ", "."""
    tls: bool = False
    identity: Identity | None = None
    """Who it is; None where no guard stands."""
    key: str = ""
    """Names this very call for the caller and for a worker that gets it again (idempotency key), where the wire has
    that."""
    redelivered: int = 0
    """How often this message was delivered before: somebody may have begun, or even done, the work. 0 on most wires."""

    @property
    def principal(self) -> str | None:
        """To whom sessions, their streams and sealed states belong: `Identity.principal`; None where no guard stands."""
        return None if self.identity is None else self.identity.principal


# -- channels -------------------------------------------------------------------------------------


class Receiver(Protocol):
    """Who takes what a channel delivers: a peer."""

    def received(self, message: bytes) -> None:
        """One whole message."""

    def refused(self, malformed: Malformed) -> None:
        """The framing threw a message away (too long, bad header); the channel lives on."""

    def resumed(self) -> None:
        """`writable` is True again."""

    def finished(self) -> None:
        """The far end will send nothing more but may still read (half-close): answer what is owed, then close."""

    def ended(self, why: ChannelError) -> None:
        """The channel is over."""


class Outgoing(Protocol):
    """One call that was sent over a wire of exchanges, where each call can fail on its own."""

    abandon: Callable[[], None] | None
    """Set by the channel in `send`: stop waiting for this call's answer (close the POST). None: no such thing."""
    extra: Any
    """What the caller gave for the channel alone (HTTP headers of this one call); None for nothing."""

    @property
    def left(self) -> float | None:
        """Seconds for which the answer is waited for; None: for ever."""

    @property
    def settled(self) -> bool:
        """The answer has come, or is not waited for any more."""

    def failed(self, why: Exception) -> None:
        """This call alone gets no answer (refused, HTTP status without JSON-RPC, late)."""


@runtime_checkable
class Channel(Protocol):
    """Whole messages both ways."""

    caller: Caller
    """The far end."""
    duplex: bool
    """True where the far end can send requests of its own (TCP); False where it only answers (an HTTP client)."""
    writable: bool
    """False while more than `limits.send_queue` bytes are unsent."""

    def open(self, receiver: Receiver) -> None:
        """Start delivering to `receiver`. Called once."""

    def send(self, message: bytes, call: Outgoing | None = None) -> None:
        """Queue one message. Raises the channel's ending when it is over."""

    async def flush(self) -> None:
        """Return once the wire is below its high-water mark. Raises the channel's ending when it is over."""

    async def close(self) -> None:
        """Send what is queued (within `limits.write_timeout`), then close; returns when the wire is released."""

    def abort(self, why: ChannelError) -> None:
        """Close at once and drop what is queued."""


# -- exchanges ------------------------------------------------------------------------------------


class Exchange(Protocol):
    """One message in, its answer out.

    Where its caller has an address that stays (a broker's mailbox, `caller.remote`) it has `tell(message)` as well, which
    is `stream` at any time, after the answer too.
    """

    request: bytes
    caller: Caller
    gone: Callable[[], None] | None
    """Set by what serves: called once, on the loop, when the caller went away before the answer."""

    def respond(self, answer: bytes | None, refusal: Refusal | None = None) -> None:
        """The end: the answer, or None when nothing is owed. `refusal` says that `answer` is our own refusal
        (HTTP turns "busy" and "draining" into 503, "too_large" into 413). On a broker the delivery is
        acknowledged once the answer is confirmed."""

    def stream(self, message: bytes) -> bool:
        """Send a message ahead of the answer where the wire can (Server-Sent Events); False where it cannot."""


class Document(Struct, frozen=True):
    """Something to GET beside the methods: a media type, and either a function that makes the bytes, or the name of the
    JSON-RPC method whose result it is: that is a call like any other, with the headers of the GET as its caller's."""

    media_type: str
    make: Callable[[], bytes] | None = None
    method: str = ""


@runtime_checkable
class Servable(Protocol):
    """Whatever can be served on any wire. What a single wire or the bus may ask for besides is a protocol declared
    there: `transports.http.app.HttpEndpoints`, `bus.contract.JoinsBus`."""

    name: str
    gate: CallLimit

    @property
    def limits(self) -> Limits:
        """What bounds its callers."""

    @property
    def subprotocol(self) -> str | None:
        """The name that it speaks under on WebSocket; None: it needs none."""

    def restrict(self, limits: Limits) -> None:
        """Serve under other limits from now on."""

    async def start(self) -> None:
        """One user more: begin what has a beginning. Called on the loop that serves, before anything comes in."""

    async def stop(self) -> None:
        """The counterpart of `start` for a user that does not drain: others may go on."""

    def exchange(self, x: Exchange) -> None:
        """Take one exchange; `x.respond` is called before this returns, or later on the loop."""

    def attach(self, channel: Channel) -> None:
        """Serve a channel until it ends (calls `channel.open`)."""

    def routes(self) -> Mapping[str, Document]:
        """What HTTP offers beside the endpoint, keyed by path below it: {"/openrpc.json": Document(...)}."""

    async def drain(self, timeout: float) -> None:
        """Refuse new calls, let those in flight end within `timeout` seconds, then cancel them and close every channel."""


def exchanged(served: Servable, x: Exchange) -> None:
    """Give an exchange to what serves it: the one way in which every wire does that. What is served should not raise;
    where it does, the request is answered with -32603 and a reference that stands in the log, and the wire lives."""
    try:
        served.exchange(x)
    except Exception as error:
        reference = os.urandom(6).hex()
        log.error("%s: an exchange raised, reference %s", served.name, reference, exc_info=error)
        message = decode(x.request)
        id = message.id if isinstance(message, Request) else NULL
        answer = failure(id, InternalError(data={"reference": reference}))
        x.respond(None if isinstance(message, Notification) else answer)


class CallLimit:
    """What all wires of one served object share: calls in flight in all, and draining.

    `enter` before a call starts to take time, `leave` when it has ended; `idle` is called on the
    last `leave` while draining.
    """

    __slots__ = ("draining", "idle", "in_flight", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.in_flight = 0
        self.draining = False
        self.idle: Callable[[], None] | None = None

    def refusal(self, taken: bool = False) -> Refusal | None:
        """Why a call cannot come in now, or None. `taken`: it is part of what was accepted before draining began."""
        if self.draining and not taken:
            return Refusal("draining", "Draining: this server is closing and takes no new calls", {"retry_after": 1})
        return busy("calls", self.limit) if self.in_flight >= self.limit else None

    def enter(self, taken: bool = False) -> Refusal | None:
        """Take a place; else why there is none, as `refusal`."""
        if self.in_flight < self.limit and (taken or not self.draining):
            self.in_flight += 1
            return None
        return self.refusal(taken)

    def leave(self) -> None:
        self.in_flight -= 1
        if not self.in_flight and self.idle is not None:
            self.idle()


def busy(limit: str, allowed: int) -> Refusal:
    """The refusal of a call above a limit of concurrency; `retry_after` in seconds."""
    return Refusal(
        "busy", f"Busy: {limit} allows {allowed} at once", {"limit": limit, "allowed": allowed, "retry_after": 1}
    )


# -- dialling and listening -----------------------------------------------------------------------


def _is_pair(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) == 2 and all(isinstance(one, str) for one in value)


class Options(Struct, frozen=True, kw_only=True):
    """What a URL cannot say well, one object for every wire; each wire reads what concerns it."""

    limits: Limits = Limits()
    framing: FramingName | None = None
    """Streams and stdio; None: what the URL's `?framing=` says, else newline."""
    client_tls: Any = None
    """An `ssl.SSLContext` for where we connect: a server, a broker, a bus. None: the system's defaults, which check the
    certificate and its name."""
    server_tls: Any = None
    """An `ssl.SSLContext` with our certificate, for where we listen; https, wss and tls need one."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """HTTP and WebSocket clients: further headers."""
    auth: tuple[str, str] | str | None = None
    """HTTP and WebSocket clients: (user, password) for basic, a string for bearer."""
    subprotocol: str | None = None
    """WebSocket; None: a server offers that of what is served, a client none."""
    hosts: Iterable[str] | None = None
    """HTTP server: allowed Host names. None: loopback's own when bound to loopback, else addresses and this machine's
    names; a mounted ASGI app takes any then, for a proxy in front may send what it likes."""
    origins: Iterable[str] | None = None
    """HTTP server: allowed Origin values. None: loopback's own when bound to loopback, else the server's own."""
    cors: Iterable[str] = ()
    """HTTP server: origins that get CORS headers; none unless asked."""
    guard: Guard | None = None
    """Serving: asked about each caller at the door; None: everybody may come in."""
    empty_status: Literal[200, 204] = 204
    """HTTP server: the status where no answer is owed; 200 with an empty body for callers that know no 204."""
    mode: int = 0o600
    """Unix sockets: the permissions of the socket file."""
    env: Mapping[str, str] | None = None
    """Child processes: further environment variables."""
    cwd: str | None = None
    """Child processes: the folder to start in."""
    stderr: Callable[[str], None] | None = None
    """Child processes: called with each line the child writes to stderr; None: it is logged."""
    amplify: bool = False
    """UDP server: allow answers longer than their request."""
    store: Any = None
    """Brokers, serving: a `bus.Store` for recent answers, so that a request that is delivered again is answered and
    not run again; None: this process remembers its own."""
    sockets: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """Serving: file descriptors of sockets that were bound already, by URL as it was given, without path and query;
    those of streams listen. Other processes have them too, and each takes what it can. They become the listener's."""
    crowd: Any = None
    """Serving on such sockets: a `net.accept.LoadBoard`, by which processes see who of them carries less."""
    unready: Callable[[], str] | None = None
    """HTTP server: why no new work should come here now, for `/ready`; empty when it should."""

    def __post_init__(self) -> None:
        check_struct(self, _RULES)


LIMITS: Final = instance(Limits, "a Limits")
TLS: Final = Rule(lambda value: hasattr(value, "wrap_bio"), "an ssl.SSLContext")
_RULES: Final = {
    "limits": LIMITS,
    "framing": one_of(*get_args(FramingName)) | NONE,
    "client_tls": TLS | NONE,
    "server_tls": TLS | NONE,
    "headers": PAIRS,
    "auth": TEXT | Rule(_is_pair, "a pair of user and password") | NONE,
    "subprotocol": NAME | NONE,
    "hosts": TEXT | TEXTS | NONE,
    "origins": TEXT | TEXTS | NONE,
    "cors": TEXT | TEXTS,
    "empty_status": one_of(204, 200),
    "mode": whole(0),
    "env": PAIRS | NONE,
    "cwd": Rule(lambda value: isinstance(value, str | os.PathLike), "the path of a folder") | NONE,
    "stderr": CALLABLE | NONE,
    "amplify": FLAG,
    "store": ANYTHING,  # a bus.Store, which is made here alone
    "sockets": mapping(many(whole(0))),
    "crowd": ANYTHING,  # made by workers alone
    "unready": CALLABLE | NONE,
    "guard": CALLABLE | NONE,
}


class Listener(Protocol):
    """An open door: accepts channels or exchanges and hands them to what is served."""

    url: str
    """Where it really listens (port 0 replaced by the port)."""

    async def close(self) -> None:
        """Accept nothing more. What is attached lives on; `Servable.drain` ends it."""

    async def closed(self) -> None:
        """Wait for the end of what it carried; returns when the wire is released."""


Dial: TypeAlias = Callable[[str, Options], Awaitable[Channel]]
Listen: TypeAlias = Callable[[str, Mapping[str, Servable], Options], Awaitable[Listener]]
"""Served objects by URL path below the URL's own ("" for the one at the URL itself). Wires without paths take one."""
