"""Where peers and wires meet: `connect`, `serve` and `http_app`.

Nothing else knows both `rpc` and `transports`.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import UNSET

from .channel import Broken, Channel, ChannelError, Listener, Options, Served
from .jsonrpc.codec import Leniency
from .jsonrpc.errors import DIALECTS, Dialect, LocalError, RpcError
from .jsonrpc.limits import CLIENT, SERVER, Limits
from .rpc.host import Host
from .rpc.middleware import Middleware
from .rpc.peer import OnState, Peer
from .rpc.service import Service
from .transports import dial as dial
from .transports import listen

if TYPE_CHECKING:
    from .bus import Bus
    from .rpc.trace import Hook
    from .worker import Employment, Line

FIRST_PAUSE = 0.1
LONGEST_PAUSE = 30.0


def connect(
    target: str | Sequence[str],
    *,
    service: Service | None = None,
    timeout: float | Any | None = UNSET,
    dialect: Dialect | Literal["lsp", "plain"] = "lsp",
    reconnect: bool = False,
    on_state: OnState | None = None,
    idempotent: Iterable[str] = (),
    middleware: Sequence[Middleware] = (),
    errors: Sequence[type[RpcError]] = (),
    trace: Hook | None = None,
    limits: Limits | None = None,
    v1: bool = False,
    accept_v1: bool = False,
    null_id: Literal["request", "notification"] = "request",
    string_codes: bool = False,
    framing: Literal["newline", "content-length"] | None = None,
    tls: Any = None,
    headers: Mapping[str, str] | None = None,
    auth: tuple[str, str] | str | None = None,
    subprotocol: str | None = None,
    env: Mapping[str, str] | None = None,
    cwd: str | None = None,
    stderr: Callable[[str], None] | None = None,
) -> Connecting:
    """Connect to a URL, or start a command and talk to it: `async with connect(...) as peer`, or `await connect(...)`.

    `target`: a URL (tcp:, tls:, unix:, udp:, http(s):, ws(s):, memory:, stdio:, or a broker's: amqp(s):, mqtt(s):,
    nats(s):, redis(s):), or a command as a list or a string. `service`: what the far end may call. `timeout`: seconds
    per call (None: for ever). `dialect`: how cancelling and progress are said. `reconnect`: come back with growing
    pauses when the channel is lost (`on_state(state, why)` is told); calls in flight fail, except those of methods
    named in `idempotent`, which are sent again. `errors`: declared RpcErrors to raise by their code. `v1`: speak
    JSON-RPC 1.0. The other options: `channel.Options` and `jsonrpc.Leniency`.

    Entering raises Broken when nobody answers there, LocalError for a target that makes no sense.
    """
    options = Options(
        limits=limits or CLIENT,
        framing=framing,
        tls=tls,
        headers=headers or {},
        auth=auth,
        subprotocol=subprotocol,
        env=env,
        cwd=cwd,
        stderr=stderr,
    )
    lenient = Leniency(accept_v1=accept_v1 or v1, null_id=null_id, string_codes=string_codes)
    if isinstance(dialect, str):
        if dialect not in DIALECTS:
            raise LocalError(f"there is no dialect {dialect!r}; choose one of {', '.join(DIALECTS)}, or give a Dialect")
        dialect = DIALECTS[dialect]

    async def reach() -> Channel:
        channel = await dial(target, options)
        if trace is None:
            return channel
        from .rpc.trace import traced_channel  # noqa: PLC0415  (nobody pays for a trace he does not take)

        return traced_channel(channel, trace)

    def make() -> Peer:
        host = Host(service if service is not None else Service("caller", discover=False))
        peer = Peer(
            host,
            limits=options.limits,
            dialect=dialect,
            lenient=lenient if service is None or lenient != Leniency() else None,
            errors=errors,
            middleware=middleware,
            v1=v1,
        )
        if timeout is not UNSET:
            peer.timeout = timeout
        peer.idempotent = frozenset(idempotent)
        peer.alone = True
        return peer

    return Connecting(make, reach, reconnect, on_state)


class Connecting:
    """What `connect` gives: await it, or enter it, for a `Peer`."""

    def __init__(
        self,
        make: Callable[[], Peer],
        reach: Callable[[], Awaitable[Channel]],
        reconnect: bool,
        on_state: OnState | None,
    ) -> None:
        self._make = make
        self._reach = reach
        self._reconnect = reconnect
        self._on_state = on_state
        self._peer: Peer | None = None

    def __await__(self) -> Generator[Any, None, Peer]:
        return self._open().__await__()

    async def __aenter__(self) -> Peer:
        self._peer = await self._open()
        return self._peer

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._peer is not None:
            await self._peer.close()

    async def _open(self) -> Peer:
        channel = await self._reach()
        peer = self._make()
        peer.on_state = self._on_state
        if self._reconnect:
            peer.on_lost = lambda why: self._lost(peer)
        peer.attach(channel)
        return peer

    def _lost(self, peer: Peer) -> bool:
        peer.redialling = peer.later(self._again(peer))
        return True

    async def _again(self, peer: Peer) -> None:
        """Dial until it works or the peer is closed. Pauses grow and are jittered, so that a thousand
        callers of a restarted server do not come back in the same instant."""
        pause = FIRST_PAUSE
        while not peer.closing:
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            try:
                channel = await self._reach()
            except ChannelError:
                pause = min(pause * 2, LONGEST_PAUSE)
                continue
            except Exception as error:  # no wire's failure: it would be the same the next time
                peer.given_up(Broken(f"{error}" if isinstance(error, LocalError) else f"cannot dial again: {error!r}"))
                return
            if peer.closing:
                await channel.close()
                return
            peer.attach(channel)
            return


def pair(limits: Limits) -> tuple[Channel, Channel]:
    """Two ends of one channel within this process: what is sent into one comes out of the other."""
    from .transports.memory import pair as ends  # noqa: PLC0415  (a wire, imported when used)

    return ends(limits)


def serve(
    *served: Service | Served | Mapping[str, Service | Served],
    urls: Sequence[str] | str,
    trace: Hook | None = None,
    limits: Limits | None = None,
    framing: Literal["newline", "content-length"] | None = None,
    tls: Any = None,
    subprotocol: str | None = None,
    hosts: Iterable[str] | None = None,
    origins: Iterable[str] | None = None,
    cors: Iterable[str] = (),
    mode: int = 0o600,
    amplify: bool = False,
    bus: str | Bus | None = None,
    sockets: Mapping[str, Sequence[int]] | None = None,
) -> Serving:
    """Serve one or more objects at one or more URLs: `await serve(api, urls=[...])` serves until it is cancelled,
    then drains; `async with serve(...) as serving` serves for the length of the block.

    One object is served at the URL itself. Several are served below it, each under its name
    (`/calculator`), or where a mapping says (`serve({"/math": math}, ...)`), on wires that have paths.

    `bus`: what several processes that serve the same share (see `dragoman.bus`), as a URL, which is opened and closed
    here, or as a Bus; None: the URL in the environment's DRAGOMAN_BUS, where there is one. Whatever is served and has
    a coroutine `join(bus)` gets it before it starts. `sockets`: see `channel.Options`.

    Starting raises LocalError, with one clear sentence, where a URL cannot be listened on, BusLost where nobody
    answers at the bus's.
    """
    options = Options(
        limits=limits or _limits(served),
        framing=framing,
        tls=tls,
        subprotocol=subprotocol,
        hosts=hosts,
        origins=origins,
        cors=cors,
        mode=mode,
        amplify=amplify,
        sockets=sockets or {},
    )
    places = [urls] if isinstance(urls, str) else list(urls)
    if not places:
        raise LocalError("serve needs at least one URL, e.g. urls=['http://127.0.0.1:8000']")
    return Serving(served, places, options, trace, limits, bus)


class Serving:
    """What `serve` gives. `urls`: where it really listens, once it does."""

    def __init__(
        self,
        served: tuple[Service | Served | Mapping[str, Service | Served], ...],
        places: list[str],
        options: Options,
        trace: Hook | None,
        limits: Limits | None,
        bus: str | Bus | None = None,
    ) -> None:
        self._limits = limits
        self._shared = _Shared(bus)
        self._line: Line | None = None
        self._over: asyncio.Future[None] | None = None
        self.employment: Employment | None = None
        """What the supervisor of several workers handed down, where this process is one of them."""
        self._given = served
        self._places = places
        self._let_go: Callable[[], object] = lambda: None
        self._options = options
        self._trace = trace
        self._listeners: list[Listener] = []
        self._served: dict[str, Served] = {}
        self._closed: asyncio.Future[None] | None = None

    @property
    def urls(self) -> list[str]:
        """Where it listens, with real ports."""
        return [listener.url for listener in self._listeners]

    @property
    def served(self) -> Mapping[str, Served]:
        """What is served, by path."""
        return self._served

    @property
    def bus(self) -> Bus | None:
        """What it shares with others, once it serves."""
        return self._shared.bus

    def __await__(self) -> Generator[Any, None, None]:
        return self._serve().__await__()

    async def _serve(self) -> None:
        if self._closed is not None:
            return await self.ended()
        async with self:
            await self.ended()

    async def ended(self) -> None:
        """Wait until there is nothing more to serve: `close`, or the end of stdio when there is no other wire."""
        if self._closed is None:
            raise LocalError("nothing is served yet: `async with serve(...) as serving`, or `await serve(...)`")
        waits = {asyncio.ensure_future(asyncio.shield(self._closed))}
        if all(listener.url.startswith("stdio:") for listener in self._listeners):
            waits |= {asyncio.ensure_future(listener.closed()) for listener in self._listeners}
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    async def __aenter__(self) -> Serving:
        found = hosted(self._given, self._limits)
        self._served = _watched(found, self._trace)
        self._closed = asyncio.get_running_loop().create_future()
        self._let_go = _stdio_kept(self._places)
        try:
            await self._shared.start(found.values())
            store = None if self.bus is None else self.bus.store
            options = msgspec.structs.replace(
                self._options,
                store=store,
                unready=self._shared.unready,
                **self._employ(),
            )
            for served in self._served.values():
                await started(served)
            for place in self._places:
                self._listeners.append(await listen(place, self._served, options))
        except BaseException:
            await self.close(0)
            raise
        if self._line is not None:
            asyncio.get_running_loop().call_soon(self._line.ready)  # whoever serves may say something first
        return self

    def _employ(self) -> dict[str, Any]:
        """Take the employment of this process, if it is a supervisor's worker; gives the options that come with it."""
        if "DRAGOMAN_WORKER" not in os.environ:
            return {}
        from .transports.shared import Crowd  # noqa: PLC0415  (workers only)
        from .worker import Line, employed  # noqa: PLC0415

        loop = asyncio.get_running_loop()
        self.employment = employed()
        if self.employment is None:
            return {}
        closing: list[asyncio.Task[None]] = []
        seconds = self._options.limits.drain_timeout
        self._line = Line(self.employment, lambda: closing.append(loop.create_task(self.close())), seconds)
        crowd = Crowd(self.employment.crowd, self.employment.number - 1)
        os.close(self.employment.crowd)
        return {"sockets": self.employment.sockets, "crowd": crowd}

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self, drain: float | None = None) -> None:
        """Accept nothing more, let the calls in flight end within `drain` seconds (default: the limits'
        `drain_timeout`), close every channel."""
        if self._closed is None:
            return
        if self._closed.done():
            if self._over is not None:  # another closes already: wait with him
                await asyncio.shield(self._over)
            return
        self._closed.set_result(None)
        self._shared.closing = True
        self._over = asyncio.get_running_loop().create_future()
        try:
            seconds = self._options.limits.drain_timeout if drain is None else drain
            await asyncio.gather(*(listener.close() for listener in self._listeners))
            await asyncio.gather(*(served.drain(seconds) for served in self._served.values()))
            await asyncio.gather(*(listener.closed() for listener in self._listeners))
            await self._shared.stop()
        finally:
            self._let_go()
            self._over.set_result(None)
            if self._line is not None:
                self._line.close()


def http_app(
    *served: Service | Served | Mapping[str, Service | Served],
    trace: Hook | None = None,
    limits: Limits | None = None,
    hosts: Iterable[str] | None = None,
    origins: Iterable[str] | None = None,
    cors: Iterable[str] = (),
    bus: str | Bus | None = None,
) -> Any:
    """The ASGI application (HTTP and WebSocket) of one or more served objects, for uvicorn, granian, hypercorn, or to
    mount in Starlette, FastAPI or Django. Paths and `bus` as in `serve`; the bus is opened at the lifespan's startup."""
    from .transports.http import App  # noqa: PLC0415  (a wire, imported when used)

    found = hosted(served, limits)
    shared = _Shared(bus, found.values())
    options = Options(limits=limits or _limits(served), hosts=hosts, origins=origins, cors=cors, unready=shared.unready)
    return App(_watched(found, trace), options, before=shared)


class _Shared:
    """The bus of what is served: opened and joined before it starts, closed after its end where it is ours."""

    def __init__(self, given: str | Bus | None, served: Iterable[Served] = ()) -> None:
        self._given = os.environ.get("DRAGOMAN_BUS") or None if given is None else given
        self._served = served
        self.bus: Bus | None = None
        self.closing = False

    async def start(self, served: Iterable[Served] = ()) -> None:
        given = self._given
        if isinstance(given, str):
            from .bus import open_bus  # noqa: PLC0415  (nobody pays for a bus he does not take)

            self.bus = await open_bus(given)
        else:
            self.bus = given
        if self.bus is None:
            return
        for one in {id(one): one for one in (*self._served, *served)}.values():
            if (join := getattr(one, "join", None)) is not None:
                await join(self.bus)

    async def stop(self) -> None:
        if self.bus is not None and isinstance(self._given, str):
            await self.bus.close()

    def unready(self) -> str:
        """Why new work should go elsewhere."""
        if self.closing:
            return "draining"
        return "the bus is gone" if self.bus is not None and not self.bus.alive else ""


def _stdio_kept(places: Iterable[str]) -> Callable[[], object]:
    """Keep standard output for the wire where it is one, before what is served begins and until it has ended."""
    if not any(place.startswith("stdio:") for place in places):
        return lambda: None
    from .transports.stdio import keep  # noqa: PLC0415  (a wire, imported when used)

    return keep()


async def started(served: Served) -> None:
    """Let what is served begin, where it has a beginning of its own (`start`)."""
    start = getattr(served, "start", None)
    if start is not None:
        await start()


def _watched(served: dict[str, Served], trace: Hook | None) -> dict[str, Served]:
    if trace is None:
        return served
    from .rpc.trace import traced_served  # noqa: PLC0415  (nobody pays for a trace he does not take)

    return {path: traced_served(one, trace) for path, one in served.items()}


def hosted(
    given: Sequence[Service | Served | Mapping[str, Service | Served]], limits: Limits | None
) -> dict[str, Served]:
    """What was given to serve, by path; each service gets its host. LocalError for two at one path."""
    found: dict[str, Served] = {}
    several = len(given) > 1
    for one in given:
        pairs = one.items() if isinstance(one, Mapping) else [(f"/{one.name}" if several else "", one)]
        for path, it in pairs:
            path = "/" + path.strip("/") if path.strip("/") else ""
            if path in found:
                raise LocalError(
                    f"two served objects at {path or '/'}: give them paths of their own, serve({{'/a': a}})"
                )
            if not isinstance(it, Service | Served):
                raise LocalError(f"{it!r} is nothing to serve: a Service, or an object with exchange and attach")
            if not isinstance(it, Service):
                if limits is not None and (restrict := getattr(it, "restrict", None)) is not None:
                    restrict(limits)
                found[path] = it
            else:
                found[path] = Host(it, limits=limits)
    if not found:
        raise LocalError("serve needs something to serve: a Service")
    return found


def _limits(given: Sequence[Service | Served | Mapping[str, Service | Served]]) -> Limits:
    """The limits of the first thing given that has some."""
    for one in given:
        for it in one.values() if isinstance(one, Mapping) else [one]:
            limits = getattr(it, "limits", None)
            if isinstance(limits, Limits):
                return limits
    return SERVER
