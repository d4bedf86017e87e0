"""The contract between wires and peers: channels, exchanges, servable objects, and how channels end.

A *channel* carries complete messages both ways for as long as it lives (TCP, stdio, WebSocket). An
*exchange* is one message in and its answer out (an HTTP POST, a datagram, a broker's delivery).
An object that can be served implements `Servable`; transports know that protocol and never a service.

- A `Channel` delivers nothing before `open`, and calls its receiver only on the event loop, and not again while it is
  in a call of `received`. It does so from inside `send` only within one process (`transports.memory` and `inside`): a
  sender is ready for the answer before it sends.
- `send` never blocks and never drops: it queues. The sender watches `writable`.
- After `ended` nothing is delivered; `ended` comes exactly once, also after `close`.
- An `Exchange` gets exactly one `respond`, unless the caller is `gone`; then a further one is ignored.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    Literal,
    Protocol,
    TypeAlias,
    TypeVar,
    get_args,
    overload,
    runtime_checkable,
)

import msgspec
from msgspec import NODEFAULT, Struct, field
from msgspec.structs import fields

from .addresses import address_of, network_of
from .channel_errors import Broken, ChannelError, Closed, Ended, EndedUnread, Reason, again
from .credentials import AUTH, Auth
from .doors import public_dir
from .jsonrpc.budget import Budget
from .jsonrpc.call_limit import CallLimit
from .jsonrpc.codec import AnyAnswer, decode, failed_answer
from .jsonrpc.errors import InternalError, LocalError
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

if TYPE_CHECKING:
    from ssl import SSLContext
else:
    SSLContext = Any  # start-up: for wires with TLS; `fields` looks the annotations of a Struct up

__all__ = [
    "Admitted", "Broken", "Budget", "CallLimit", "Caller", "Channel", "ChannelError", "Closed", "Credential", "Denied", "Dial",
    "Document", "Ended", "EndedUnread", "Exchange", "Guard", "Handshake", "Identity", "Listen", "Listener", "Options",
    "Outgoing", "Reason", "Receiver", "Servable", "UnixCredentials", "again",
]  # fmt: skip
__dir__: Callable[[], list[str]] = public_dir(__name__)
log: logging.Logger = logging.getLogger("dragoman.wire")

T = TypeVar("T")


class Credential(Protocol):
    """What a caller showed, such as a token. It is a secret: its `repr` says no more than that it is one."""

    def reveal(self) -> str:
        """The secret itself."""

    async def exchange(self, *, audience: str | None, resource: str | None, scopes: Iterable[str]) -> str:
        """Another token, for a service further on. `Identity.exchange` has the contract."""


class Identity(Struct, frozen=True, kw_only=True):
    """Who a caller is, as a guard found out."""

    subject: str
    """The user or service that the credentials name. Unique per issuer."""
    client_id: str | None = None
    """The program that acts for the subject."""
    issuer: str | None = None
    """The authority that issued the credentials."""
    scopes: frozenset[str] = frozenset()
    """What the caller may do."""
    claims: Mapping[str, Any] = {}
    """All other claims."""
    expires_at: float | None = None
    """Unix time in seconds; None: it does not expire."""
    roles: frozenset[str] = frozenset()
    """What the caller is, where its issuer says so."""
    credential: Credential | None = None
    """What the caller showed; None where the guard keeps it to itself."""

    def __hash__(self) -> int:  # claims cannot be hashed, and equal ones have these equal
        return hash((self.issuer, self.subject, self.client_id, self.expires_at))

    async def exchange(
        self, *, audience: str | None = None, resource: str | None = None, scopes: Iterable[str] = ()
    ) -> str:
        """An access token for a service further on, on behalf of this caller (RFC 8693). The caller's own token is for
        this server and may go nowhere else.

        `audience`: the service's name at the issuer, `resource`: its URL; one of them or both. Raises LocalError where
        the guard cannot exchange tokens, `auth.OAuthError` where the issuer refuses, `auth.IssuerAway` where it does
        not answer.
        """
        if self.credential is None:
            raise LocalError("Identity.exchange: this caller showed no token, or its guard does not keep it")
        return await self.credential.exchange(audience=audience, resource=resource, scopes=scopes)

    @property
    def principal(self) -> str:
        """Issuer, subject and client in one text that no other three give: a JSON array of them."""
        return _principal(self.issuer, self.subject, self.client_id)

    @property
    def account(self) -> str:
        """Issuer and subject in one text that no other two give: a JSON array of them, the same with any client that
        acts for the subject. Fair shares and rates are counted by it, since clients may be registered at will."""
        return _principal(self.issuer, self.subject)


@lru_cache(maxsize=1024, typed=True)
def _principal(*names: str | None) -> str:
    try:
        return msgspec.json.encode(names).decode()
    except UnicodeEncodeError:  # half of a surrogate pair, which UTF-8 cannot hold
        import json  # noqa: PLC0415  (start-up: it is hardly ever so)

        return json.dumps(names, separators=(",", ":"))


class UnixCredentials(Struct, frozen=True):
    """The process at the far end of a Unix socket, as the kernel knows it: `pid`, `uid` and `gid`."""

    pid: int
    uid: int
    gid: int


class Handshake(Struct, frozen=True, kw_only=True):
    """What a guard sees of a caller: what is known before a body is read, a WebSocket accepted or a delivery
    decoded. `credentials`: those of the process at a Unix socket."""

    scheme: str
    """The wire: "http", "wss", "tls", "unix", ..."""
    method: str = ""
    """The HTTP method; "GET" for a WebSocket."""
    url: str = ""
    """The whole URL of the request, path and query as they were sent."""
    headers: Sequence[tuple[bytes, bytes]] = ()
    """Header fields in order, not joined, names in lower case; also those of a broker's delivery."""
    remote: str = ""
    """The far end's address as text."""
    certificate: Mapping[str, Any] | None = None
    """The caller's TLS certificate, as `ssl.SSLSocket.getpeercert()` returns it; None if it sent none."""
    certificate_der: bytes | None = None
    """The same certificate, as DER: what its thumbprint is made of."""
    credentials: UnixCredentials | None = None


class Admitted(Struct, frozen=True, kw_only=True):
    """A guard lets the caller in."""

    identity: Identity | None = None
    """`Caller.identity` from here on."""
    headers: Sequence[tuple[str, str]] = ()
    """Header fields to add to the answer, if the wire has them."""
    expires: float | None = None
    """Unix time at which the admission ends, for a channel that outlives it; None: never."""


class Denied(Struct, frozen=True, kw_only=True):
    """A guard turns the caller away."""

    reason: str
    """The reason, for the caller, in one line."""
    status: int = 401
    """The HTTP status."""
    headers: Sequence[tuple[str, str]] = ()
    """Header fields of the answer, e.g. `WWW-Authenticate`."""


Guard: TypeAlias = Callable[[Handshake], Awaitable[Admitted | Denied]]
"""Decides who may call, before a body is read. One that raises turns the caller away with 500; one that takes longer
than `limits.guard_timeout`, with 503."""


def _without_secrets(value: Struct) -> str:
    """Return the `repr` of a Struct: the fields that differ from their defaults, without values of `headers` and
    `auth`."""
    shown = []
    for one in fields(value):
        given = getattr(value, one.name)
        if given == one.default or (one.default_factory is not NODEFAULT and given == one.default_factory()):
            continue
        if one.name == "headers":
            shown.append(f"headers=<{', '.join(given) if isinstance(given, Mapping) else '...'}>")
        else:
            shown.append(
                f"{one.name}={'***' if one.name == 'auth' and isinstance(given, str | tuple) else repr(given)}"
            )
    return f"{type(value).__name__}({', '.join(shown)})"


class Caller(Struct, frozen=True, kw_only=True):
    """What a wire knows about the far end. Every member may be empty. `tls`: whether the wire itself is TLS."""

    scheme: str = ""
    """The wire: "tcp", "http", "ws", "stdio", "memory", "unix", "udp", ..."""
    remote: str = ""
    """The far end's address as text, e.g. "127.0.0.1:54321"."""
    path: str = ""
    """The URL's path, on HTTP and WebSocket."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """HTTP headers, names in lower case; equal names joined by ", "."""
    tls: bool = False
    identity: Identity | None = None
    """Who the caller is; None without a guard."""
    key: str = ""
    """The idempotency key of this call, the same when the call is delivered again; empty on wires without keys."""
    redelivered: int = 0
    """How often this message was delivered before: if above 0, the work may have been begun or even done. 0 on most
    wires."""

    def __repr__(self) -> str:
        return _without_secrets(self)

    def __hash__(self) -> int:  # headers cannot be hashed
        return hash((self.scheme, self.remote, self.path, self.identity, self.key))

    @property
    def principal(self) -> str | None:
        """The owner of sessions, their streams and sealed states: `Identity.principal`; None without an identity."""
        return None if self.identity is None else self.identity.principal

    @property
    def owner(self) -> str:
        """The name under which its share of what is bounded is counted: the identity's account, else the address
        without its port, of IPv6 its /64."""
        if self.identity is not None:
            return self.identity.account
        if address := address_of(self.remote):
            return address
        host, _, port = self.remote.rpartition(":")
        return host if host and port.isdigit() else self.remote


class Receiver(Protocol):
    """Takes what a channel delivers: a peer."""

    def received(self, message: bytes, call: Outgoing | None = None) -> None:
        """One complete message has come. `call`: the call whose exchange (POST, request of a broker) brought it. Then
        no answer in it is for another call, and a fault in it ends at most this call."""

    def refused(self, malformed: Malformed) -> None:
        """The framing dropped a message (too long, bad header); the channel goes on."""

    def resumed(self) -> None:
        """`writable` is True again."""

    def finished(self) -> None:
        """The far end will send nothing more but may still read (half-close): answer what is owed, then close."""

    def ended(self, why: ChannelError) -> None:
        """The channel is over."""


class Outgoing(Protocol):
    """One call that was sent over a wire of exchanges, where each call can fail on its own."""

    abandon: Callable[[], None] | None
    """Set by the channel in `send`: stops waiting for this call's answer (closes the POST). None: not supported."""
    extra: Any
    """The caller's argument for the channel alone (HTTP headers of this call); None without one."""

    @property
    def left(self) -> float | None:
        """Seconds for which the call still waits for its answer; None: for ever."""

    @property
    def settled(self) -> bool:
        """The answer has come, or the call does not wait for it any more."""

    def awaits(self, id: object) -> bool:
        """Whether an answer with this id is its own (of a batch: that of one of its calls)."""

    def failed(self, why: Exception) -> None:
        """End this call alone, without an answer: refused, an HTTP status without JSON-RPC, late."""

    def hold(self) -> None:
        """Stop its time-out for now: a person has to log in."""

    def resume(self) -> None:
        """Begin its time-out anew."""


@runtime_checkable
class Channel(Protocol):
    """Carries complete messages both ways."""

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


class Exchange(Protocol):
    """One message in, `request` as `caller` sent it, and its answer out.

    If its caller has a permanent address (a broker's mailbox, `caller.remote`) it also has `tell(message)`, which works
    like `stream` at any time, even after the answer. Where it has `acknowledges` and that is True (HTTP), a
    notification is answered with None once it is accepted, and goes on when its caller disconnects; otherwise (brokers)
    it is answered when its handler has ended.
    """

    request: bytes
    caller: Caller
    gone: Callable[[], None] | None
    """Set by the served object: called once, on the loop, when the caller went away before the answer."""

    def respond(self, answer: AnyAnswer) -> None:
        """End the exchange: with the text of a result or of a batch, with an error, or with None when no answer is
        owed. HTTP turns refusals into statuses ("busy" and "draining" into 503, "rate_limited" into 429, "too_large"
        into 413). A broker's delivery is acknowledged once the answer is confirmed."""

    def stream(self, message: bytes) -> bool:
        """Send a message ahead of the answer if the wire can (Server-Sent Events); False if it cannot."""


class Document(Struct, frozen=True):
    """A document for HTTP GET: its `media_type`, and either `make`, which makes the bytes, or `method`, the JSON-RPC
    method whose result it is. The method is called like any other, with the headers of the GET as its caller's."""

    media_type: str
    make: Callable[[], bytes] | None = None
    method: str = ""


@runtime_checkable
class Servable(Protocol):
    """What can be served on any wire, by its `name`; `call_limit` counts its calls. What a wire or the bus needs beside
    this is a protocol declared there: `transports.http.app.HttpEndpoints`, `bus.contract.JoinsBus`."""

    name: str
    call_limit: CallLimit

    @property
    def limits(self) -> Limits:
        """The limits that apply to its callers."""

    @property
    def subprotocol(self) -> str | None:
        """The WebSocket subprotocol that it speaks; None: it needs none."""

    def restrict(self, limits: Limits) -> None:
        """Serve under other limits from now on."""

    async def start(self) -> None:
        """Count one more user, and begin the lifespan if it is the first. Called on the loop that serves, before any
        message."""

    async def stop(self) -> None:
        """Count one user less, without draining: other users go on."""

    def exchange(self, x: Exchange) -> None:
        """Take one exchange; `x.respond` is called before this returns, or later on the loop."""

    def attach(self, channel: Channel) -> None:
        """Serve a channel until it ends (calls `channel.open`)."""

    def routes(self) -> Mapping[str, Document]:
        """The documents for HTTP beside the endpoint, by path below it: {"/openrpc.json": Document(...)}."""

    async def drain(self, timeout: float) -> None:
        """Refuse new calls, let those in flight end within `timeout` seconds, then cancel them and close every
        channel."""


@runtime_checkable
class Serves(Protocol):
    """An object of the user, such as an MCP `Server`, that has a `Servable` for the wires and is not one itself."""

    @property
    def name(self) -> str: ...
    @property
    def limits(self) -> Limits:
        """The limits that apply to its callers."""

    def __servable__(self) -> Servable:
        """Return the `Servable` of this object."""


class Attachable(Protocol):
    """A far end within this process: a `Servable`, or as much of one as a channel needs."""

    def attach(self, channel: Channel) -> None:
        """Serve this channel until it ends."""


@runtime_checkable
class Shareable(Protocol):
    """A served object that several `serve` blocks may serve at once, each with calls of its own."""

    def for_serving(self) -> Servable:
        """Return a `Servable` of it for one more block."""


@overload
def servable(one: Serves | Servable) -> Servable: ...
@overload
def servable(one: Serves | Servable | T) -> Servable | T: ...
def servable(one: object) -> object:
    """Return the `Servable` of an object that `Serves`; anything else as it is."""
    return one.__servable__() if isinstance(one, Serves) else one


def exchanged(served: Servable, x: Exchange) -> None:
    """Pass an exchange to a served object; every wire uses this. If the object raises, which it should not, the answer
    is -32603 with a reference that is in the log, and the wire goes on."""
    try:
        served.exchange(x)
    except Exception as error:
        reference = os.urandom(6).hex()
        log.error("%s: an exchange raised, reference %s", served.name, reference, exc_info=error)
        message = decode(x.request)
        id = message.id if isinstance(message, Request) else NULL
        answer = failed_answer(id, InternalError(data={"reference": reference}))
        x.respond(None if isinstance(message, Notification) else answer)


class Options(Struct, frozen=True, kw_only=True):
    """The options of wires that are not in the URL: one object for all; each wire reads its own. `limits`: bounds."""

    limits: Limits = Limits()
    framing: FramingName | None = None
    """Streams and stdio; None: the URL's `?framing=`, by default newline."""
    client_tls: SSLContext | None = None
    """For connections that we open: to a server, a broker, a bus. None: the system's defaults,
    which verify the certificate and its name."""
    server_tls: SSLContext | None = None
    """With our certificate, for listening; https, wss and tls need one."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Clients of HTTP, WebSocket and brokers: further headers; over a broker, of every message."""
    auth: Auth = None
    """HTTP and WebSocket clients: (user, password), a token, or a value of `dragoman.auth` as `Login()`."""
    subprotocol: str | None = None
    """WebSocket; None: a server offers that of the served object, a client none."""
    hosts: Iterable[str] | None = None
    """HTTP server: allowed Host names. None: on loopback its own names, elsewhere addresses and this machine's names; a
    mounted ASGI app then allows any, because a proxy in front may send any."""
    origins: Iterable[str] | None = None
    """HTTP server: allowed Origin values. None: on loopback its own origins, elsewhere the server's own."""
    cors: Iterable[str] = ()
    """HTTP server: origins that get CORS headers; by default none."""
    trusted_proxies: Iterable[str] = ()
    """HTTP server: addresses and networks of reverse proxies, as "10.0.0.0/8"; from these alone `Forwarded` and
    `X-Forwarded-For`, `-Proto` and `-Host` name the caller. By default none."""
    guard: Guard | None = None
    """Serving: decides about each caller before its message is read; None: all may call."""
    public: bool = False
    """Serving: callers need not say who they are, not even where what is served has a guard of its own."""
    empty_status: Literal[200, 204] = 204
    """HTTP server: the status where no answer is owed; 200 with an empty body for callers that do not accept 204."""
    await_notifications: bool = False
    """HTTP server: a notification is answered when its handler has ended, and ends when its caller leaves; False: it is
    answered when it was accepted."""
    mode: int = 0o600
    """Unix sockets: the permissions of the socket file."""
    env: Mapping[str, str] | None = None
    """Child processes: environment variables, beside the few that every child gets (HOME, LANG, LOGNAME, PATH, SHELL,
    TERM, USER; on Windows those that a program needs there)."""
    env_inherit: bool = False
    """Child processes: pass on our whole environment but for DRAGOMAN_*, secrets in it included."""
    cwd: str | None = None
    """Child processes: the folder to start in."""
    stderr: Callable[[str], None] | None = None
    """Child processes: called with each line the child writes to stderr; None: it is logged."""
    amplify: bool = False
    """UDP server: allow answers longer than their request."""
    store: Any = None
    """Brokers, serving: a `bus.Store` for recent answers, so that a request that is delivered again is answered
    without running again; None: this process keeps its own."""
    sockets: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """Serving: file descriptors of sockets that are already bound, by URL as it was given, without path and query;
    those for streams are listening already. Other processes may share them. The listener closes them."""
    load_board: Any = None
    """Serving on such sockets: a `net.accept.LoadBoard`, which shows each process how many channels the others
    carry."""
    rejected: Callable[[Any], object] | None = None
    """Serving: receives what the wire turns away before there is a message, an `observer.Rejection`. It is false while
    there is no observer."""
    unready: Callable[[], str] | None = None
    """HTTP server: the reason why new work should go elsewhere, for `/ready`; empty if it should not."""
    page: Callable[..., Any] | None = None
    """HTTP server: makes the page that browsers are shown at endpoints, `transports.http.app.Page`, from what is served
    by path and those of the paths that it may list; None: there is none."""

    def __post_init__(self) -> None:
        check_struct(self, _RULES)

    def __repr__(self) -> str:
        return _without_secrets(self)


LIMITS: Final = instance(Limits, "a Limits")
TLS: Final = Rule(lambda value: hasattr(value, "wrap_bio"), "an ssl.SSLContext")
_RULES: Final = {
    "limits": LIMITS,
    "framing": one_of(*get_args(FramingName)) | NONE,
    "client_tls": TLS | NONE,
    "server_tls": TLS | NONE,
    "headers": PAIRS,
    "auth": AUTH,
    "subprotocol": NAME | NONE,
    "hosts": TEXT | TEXTS | NONE,
    "origins": TEXT | TEXTS | NONE,
    "cors": TEXT | TEXTS,
    "trusted_proxies": many(
        Rule(
            lambda value: isinstance(value, str) and network_of(value) is not None,
            "an address, or a network without bits of a host such as 10.0.0.0/8, and not all there are",
        )
    ),
    "empty_status": one_of(204, 200),
    "await_notifications": FLAG,
    "mode": whole(0),
    "env": PAIRS | NONE,
    "env_inherit": FLAG,
    "cwd": Rule(lambda value: isinstance(value, str | os.PathLike), "the path of a folder") | NONE,
    "stderr": CALLABLE | NONE,
    "amplify": FLAG,
    "store": ANYTHING,  # a bus.Store, which `serve` alone sets
    "sockets": mapping(many(whole(0))),
    "load_board": ANYTHING,  # which workers alone set
    "rejected": CALLABLE | NONE,
    "unready": CALLABLE | NONE,
    "page": CALLABLE | NONE,
    "guard": CALLABLE | NONE,
    "public": FLAG,
}


class Listener(Protocol):
    """Listens at an address: accepts channels or exchanges and passes them to what is served there."""

    url: str
    """The URL at which it listens, with the real port in place of port 0."""

    async def close(self) -> None:
        """Accept nothing more. What is attached lives on; `Servable.drain` ends it."""

    async def closed(self) -> None:
        """Wait for the end of what it carried; returns when the wire is released."""


Dial: TypeAlias = Callable[[str, Options], Awaitable[Channel]]
Listen: TypeAlias = Callable[[str, Mapping[str, Servable], Options], Awaitable[Listener]]
"""Served objects by URL path below the URL's own ("" for the one at the URL itself). Wires without paths take one."""
