"""Connects peers to wires: `connect`. Only this module and its counterpart `serving` know both `rpc` and the wires."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal

from msgspec import UNSET, Struct, UnsetType

from .channel import LIMITS, TLS, Broken, Channel, ChannelError, Options
from .credentials import Auth
from .jsonrpc.errors import DIALECTS, Dialect, LocalError, RpcError
from .jsonrpc.framing import FramingName
from .jsonrpc.leniency import CHOSEN, STRICT, Leniency, chosen
from .jsonrpc.limits import CLIENT, Limits
from .jsonrpc.options import (
    CALL_TIME,
    CALLABLE,
    FLAG,
    NONE,
    NOT_GIVEN,
    PAIRS,
    TEXTS,
    Rule,
    among,
    check,
    instance,
    many,
    only_async,
    strict,
)
from .net.reconnect import reconnect
from .net.urls import shown_target
from .observer import OBSERVERS, Observer
from .rpc.background import needs_asyncio
from .rpc.channel_peer import ChannelPeer, OnState
from .rpc.method import ERROR
from .rpc.middleware import Middleware
from .rpc.observing import with_trace
from .rpc.peer import Peer
from .rpc.runner import Runner
from .rpc.service import Service
from .schemes import dial as dial

if TYPE_CHECKING:
    from ssl import SSLContext

    from .rpc.tracing import Hook
else:
    SSLContext = Hook = Any  # start-up: `Any` is enough where annotations are resolved at run time

PAUSES = (0.1, 30.0)
"""The first and the longest pause before a peer dials again, in seconds: a server may be away for a day."""


CONNECT: Final = {
    "target": Rule(
        lambda target: isinstance(target, str) or (TEXTS.fits(target) and not isinstance(target, Mapping)),
        "a URL, or a command as text or a list of texts",
    ),
    "service": instance(Service, "a Service") | NONE,
    "timeout": CALL_TIME | NOT_GIVEN,
    "reconnect": FLAG,
    "on_state": CALLABLE | NONE,
    "idempotent": TEXTS,
    "middleware": many(CALLABLE),
    "errors": many(ERROR),
    "trace": CALLABLE | NONE,
    "observers": OBSERVERS,
    "limits": LIMITS | NONE,
    "v1": FLAG,
    "lenient": CHOSEN,
    "accept_v1": FLAG,
    "dialect": instance((str, Dialect), "the name of a dialect, or a Dialect"),
    "headers": PAIRS | NONE,
    "tls": TLS | NONE,
}
"""The rules of the options of `connect`; `Options` and `Leniency` check theirs."""


@strict("connect")
def connect(
    target: str | Sequence[str],
    *,
    service: Service | None = None,
    timeout: float | UnsetType | None = UNSET,
    dialect: Dialect | Literal["lsp", "plain"] = "lsp",
    reconnect: bool = False,
    on_state: OnState | None = None,
    idempotent: Iterable[str] = (),
    middleware: Sequence[Middleware] = (),
    errors: Sequence[type[RpcError]] = (),
    trace: Hook | None = None,
    observers: Sequence[Observer] = (),
    limits: Limits | None = None,
    v1: bool = False,
    lenient: Leniency | bool = False,
    accept_v1: bool = False,
    null_id: Literal["request", "notification"] = "request",
    string_codes: bool = False,
    framing: FramingName | None = None,
    tls: SSLContext | None = None,
    headers: Mapping[str, str] | None = None,
    auth: Auth = None,
    subprotocol: str | None = None,
    env: Mapping[str, str] | None = None,
    env_inherit: bool = False,
    cwd: str | None = None,
    stderr: Callable[[str], None] | None = None,
) -> Connecting:
    """Connect to a URL, or start a command and talk to it: `async with connect(...) as peer`, or `await connect(...)`.

    `target`: a URL (tcp:, tls:, unix:, udp:, http(s):, ws(s):, memory:, stdio:, or a broker's: amqp(s):, mqtt(s):,
    nats(s):, redis(s):), or a command as a list or a string. `service`: what the far end may call. `timeout`: seconds
    per call (None: for ever). `dialect`: the messages for cancelling and progress. `reconnect`: dial again with growing
    pauses when the channel is lost; `on_state`: `on_state(state, why)` is called then. Calls in flight fail, except
    those of methods named in `idempotent`, which are sent again. `middleware`: around our own calls, see
    `dragoman.middleware`. `errors`: declared RpcErrors to raise by their code. `limits`: the bounds on messages, calls
    and times. `v1`: speak JSON-RPC 1.0. `lenient`: what is accepted beyond the specification (`jsonrpc.Leniency`; True:
    `jsonrpc.LENIENT`); `accept_v1`, `null_id` and `string_codes` are three of its options by their own names. `trace`
    gets an `Event` for each message (`dragoman.rpc.tracing`); `observers`: see `dragoman.observer`.

    `framing`: of streams, by default a line each. `tls`: an `ssl.SSLContext`, None: the system's defaults. `headers`:
    further ones, of HTTP, WebSocket and brokers. `auth`: (user, password), a token, or where tokens come from
    (`dragoman.auth.Login()`). `subprotocol`: of WebSocket. `env`: variables for a command, which gets few of our own
    (HOME, LANG, PATH, ...); `env_inherit`: all but DRAGOMAN_*; `cwd`: the folder where it starts; `stderr`: called with
    each line that it writes there.

    Entering raises Broken when nothing answers at the target, LocalError for an invalid target.
    """
    check("connect", CONNECT, given := locals())
    options = among(Options, given, limits=limits or CLIENT, client_tls=tls, headers=headers or {})
    found = chosen(lenient, accept_v1=accept_v1 or v1, null_id=null_id, string_codes=string_codes)
    return Connecting(among(ConnectOptions, given, options=options, lenient=found, dialect=_dialect(dialect)))


def _dialect(named: Dialect | str) -> Dialect:
    if not isinstance(named, str):
        return named
    if named not in DIALECTS:
        raise LocalError(f"there is no dialect {named!r}; choose one of {', '.join(DIALECTS)}, or give a Dialect")
    return DIALECTS[named]


class ConnectOptions(Struct, frozen=True, kw_only=True):
    """The arguments of `connect`, by name."""

    target: str | Sequence[str]
    options: Options
    lenient: Leniency
    dialect: Dialect
    service: Service | None
    timeout: float | UnsetType | None
    reconnect: bool
    on_state: OnState | None
    idempotent: Iterable[str]
    middleware: Sequence[Middleware]
    errors: Sequence[type[RpcError]]
    trace: Hook | None
    observers: Sequence[Observer]
    v1: bool


def _observed(service: Service | None, observers: Sequence[Observer]) -> Service:
    """Return what the far end may call, observed by these observers too, on this connection alone."""
    if service is None:
        seen = Service("caller", discover=False)
    else:
        seen = service._within(service.limits) if observers else service
    for observer in observers:
        seen.observe(observer)
    return seen


class Connecting:
    """What `connect` returns: await it or enter it for a `Peer`."""

    def __init__(self, wanted: ConnectOptions) -> None:
        self._wanted = wanted
        self._peer: ChannelPeer | None = None

    def __repr__(self) -> str:
        return f"<connect {shown_target(self._wanted.target)}: await it, or write async with>"

    def __await__(self) -> Generator[Any, None, Peer]:
        return self._open().__await__()

    if not TYPE_CHECKING:
        __enter__ = __exit__ = only_async("connect(...)", "; dragoman.sync.connect(...) blocks")

        def __getattr__(self, name: str) -> Any:
            raise AttributeError(
                f"connect(...) is not a Peer yet, and has no {name!r}: write `async with connect(...) as peer` or "
                "`peer = await connect(...)`; outside a loop it is dragoman.sync.connect(...)"
            )

    async def __aenter__(self) -> Peer:
        self._peer = await self._open()
        return self._peer

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._peer is not None:
            await self._peer.close()

    async def _open(self) -> ChannelPeer:
        needs_asyncio("connect(...)")
        channel = await self._reach()
        peer = self._make()
        peer.attach(channel)
        return peer

    async def _reach(self) -> Channel:
        return await dial(self._wanted.target, self._wanted.options)

    def _make(self) -> ChannelPeer:
        wanted, service = self._wanted, self._wanted.service
        peer = ChannelPeer(
            Runner(_observed(service, with_trace(wanted.trace, wanted.observers))),
            limits=wanted.options.limits,
            dialect=wanted.dialect,
            lenient=wanted.lenient if service is None or wanted.lenient is not STRICT else None,
            errors=wanted.errors,
            middleware=wanted.middleware,
            v1=wanted.v1,
        )
        if wanted.timeout is not UNSET:
            peer._timeout = wanted.timeout
        peer.idempotent = frozenset(wanted.idempotent)
        peer.alone = True
        peer.on_state = wanted.on_state
        if wanted.reconnect:
            peer._on_lost = lambda why: self._lost(peer)
        return peer

    def _lost(self, peer: ChannelPeer) -> bool:
        peer.redialling = peer.later(self._again(peer))
        return True

    async def _again(self, peer: ChannelPeer) -> None:
        """Dial until it succeeds; closing the peer cancels this."""
        try:
            channel = await reconnect(self._reach, PAUSES, failed=_hopeless, faults=(ChannelError,))
        except ChannelError as error:
            peer.given_up(error)
            return
        except Exception as error:  # not a failure of the wire: trying again would not help
            peer.given_up(Broken(f"{error}" if isinstance(error, LocalError) else f"cannot dial again: {error!r}"))
            return
        if peer.closing:
            await channel.close()
        else:
            peer.attach(channel)


def _hopeless(why: Exception) -> None:
    """Raise a failure after which nothing must be tried again: each try would open one more window for a login."""
    if isinstance(why, ChannelError) and why.reason == "login":
        raise why


def pair(limits: Limits) -> tuple[Channel, Channel]:
    """Two ends of one channel within this process: what one end sends, the other receives."""
    from .transports.memory import pair as ends  # noqa: PLC0415  (a wire, imported when used)

    return ends(limits)
