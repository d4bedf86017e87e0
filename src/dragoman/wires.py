"""Where peers and wires meet: `connect`, `serve` and `http_app`.

Nothing else knows both `rpc` and `transports`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

from msgspec import UNSET

from .channel import Broken, Channel, ChannelError, Listener, Options, Served
from .jsonrpc.codec import Leniency
from .jsonrpc.errors import DIALECTS, Dialect, LocalError, RpcError
from .jsonrpc.limits import CLIENT, SERVER, Limits
from .rpc.host import Host
from .rpc.middleware import Middleware
from .rpc.peer import OnState, Peer
from .rpc.service import Service
from .transports import dial, listen

if TYPE_CHECKING:
    from .rpc.trace import Hook

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

    `target`: a URL (tcp:, tls:, unix:, udp:, http(s):, ws(s):, memory:, stdio:), or a command as a list
    or a string. `service`: what the far end may call. `timeout`: seconds per call (None: for ever).
    `dialect`: how cancelling and progress are said. `reconnect`: come back with growing pauses when the
    channel is lost (`on_state(state, why)` is told); calls in flight fail, except those of methods named
    in `idempotent`, which are sent again. `errors`: declared RpcErrors to raise by their code. `v1`:
    speak JSON-RPC 1.0. The other options: `channel.Options` and `jsonrpc.Leniency`.

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
) -> Serving:
    """Serve one or more objects at one or more URLs: `await serve(api, urls=[...])` serves until it is cancelled,
    then drains; `async with serve(...) as serving` serves for the length of the block.

    One object is served at the URL itself. Several are served below it, each under its name
    (`/calculator`), or where a mapping says (`serve({"/math": math}, ...)`), on wires that have paths.

    Starting raises LocalError, with one clear sentence, where a URL cannot be listened on.
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
    )
    places = [urls] if isinstance(urls, str) else list(urls)
    if not places:
        raise LocalError("serve needs at least one URL, e.g. urls=['http://127.0.0.1:8000']")
    return Serving(served, places, options, trace, limits)


class Serving:
    """What `serve` gives. `urls`: where it really listens, once it does."""

    def __init__(
        self,
        served: tuple[Service | Served | Mapping[str, Service | Served], ...],
        places: list[str],
        options: Options,
        trace: Hook | None,
        limits: Limits | None,
    ) -> None:
        self._limits = limits
        self._given = served
        self._places = places
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
        self._served = _watched(hosted(self._given, self._limits), self._trace)
        self._closed = asyncio.get_running_loop().create_future()
        try:
            for place in self._places:
                self._listeners.append(await listen(place, self._served, self._options))
        except BaseException:
            await self.close(0)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self, drain: float | None = None) -> None:
        """Accept nothing more, let the calls in flight end within `drain` seconds (default: the limits'
        `drain_timeout`), close every channel."""
        if self._closed is None or self._closed.done():
            return
        self._closed.set_result(None)
        seconds = self._options.limits.drain_timeout if drain is None else drain
        await asyncio.gather(*(listener.close() for listener in self._listeners))
        await asyncio.gather(*(served.drain(seconds) for served in self._served.values()))
        await asyncio.gather(*(listener.closed() for listener in self._listeners))


def http_app(
    *served: Service | Served | Mapping[str, Service | Served],
    trace: Hook | None = None,
    limits: Limits | None = None,
    hosts: Iterable[str] | None = None,
    origins: Iterable[str] | None = None,
    cors: Iterable[str] = (),
) -> Any:
    """The ASGI application (HTTP and WebSocket) of one or more served objects, for uvicorn, granian, hypercorn, or to
    mount in Starlette, FastAPI or Django. Paths as in `serve`."""
    from .transports.http import App  # noqa: PLC0415  (a wire, imported when used)

    options = Options(limits=limits or _limits(served), hosts=hosts, origins=origins, cors=cors)
    return App(_watched(hosted(served, limits), trace), options)


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
            found[path] = Host(it, limits=limits) if isinstance(it, Service) else it
    if not found:
        raise LocalError("serve needs something to serve: a Service")
    return found


def _limits(given: Sequence[Service | Served | Mapping[str, Service | Served]]) -> Limits:
    """The limits of the first service given."""
    for one in given:
        for it in one.values() if isinstance(one, Mapping) else [one]:
            if isinstance(it, Service):
                return it.limits
    return SERVER
