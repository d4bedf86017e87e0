"""Serves objects on wires: `serve` and `http_app`. `connecting` is the counterpart for peers."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from .bus.contract import Bus, JoinsBus, open_bus
from .channel import LIMITS, TLS, Guard, Listener, Options, Servable
from .jsonrpc.errors import LocalError
from .jsonrpc.framing import FramingName
from .jsonrpc.limits import SERVER, Limits
from .jsonrpc.options import CALLABLE, NONE, TEXT, TEXTS, Rule, among, check
from .observer import OBSERVERS, Observable, Observer
from .rpc.observing import with_trace
from .rpc.servable import ServableService
from .rpc.service import Service
from .schemes import listen

if TYPE_CHECKING:
    from .rpc.tracing import Hook
    from .workers.worker import ControlPipe, WorkerSpec

BUS: Final = TEXT | Rule(lambda value: hasattr(value, "publish"), "a Bus") | NONE
HTTP_APP: Final = {
    "client_tls": TLS | NONE,
    "trace": CALLABLE | NONE,
    "observers": OBSERVERS,
    "limits": LIMITS | NONE,
    "guard": CALLABLE | NONE,
    "bus": BUS,
}
SERVE: Final = HTTP_APP | {"tls": TLS | NONE, "urls": TEXT | TEXTS}
"""What the options may be; `Options` checks its own."""


def serve(
    *served: Service | Servable | Mapping[str, Service | Servable],
    urls: Sequence[str] | str,
    trace: Hook | None = None,
    observers: Sequence[Observer] = (),
    limits: Limits | None = None,
    framing: FramingName | None = None,
    tls: Any = None,
    client_tls: Any = None,
    subprotocol: str | None = None,
    hosts: Iterable[str] | None = None,
    origins: Iterable[str] | None = None,
    cors: Iterable[str] = (),
    guard: Guard | None = None,
    empty_status: Literal[200, 204] = 204,
    mode: int = 0o600,
    amplify: bool = False,
    bus: str | Bus | None = None,
    sockets: Mapping[str, Sequence[int]] | None = None,
) -> Serving:
    """Serve one or more objects at one or more URLs: `await serve(api, urls=[...])` serves until it is cancelled,
    then drains; `async with serve(...) as serving` serves for the length of the block.

    One object is served at the URL itself. Several are served below it, each under its name (`/calculator`), or at the
    paths of a mapping (`serve({"/math": math}, ...)`), on wires that have paths.

    `bus`: what several processes that serve the same share (see `dragoman.bus`), as a URL, which is opened and closed
    here, or as a Bus; None: the URL in the environment variable DRAGOMAN_BUS, if set. A served object with a coroutine
    `join(bus)` gets the bus before it starts. `tls`: the certificate for https, wss and tls URLs, an `ssl.SSLContext`.
    `client_tls`: the context with which brokers and the bus are verified; None: the system's defaults. `sockets`: see
    `channel.Options`. `observers`: see `dragoman.observer`. `guard`: decides about each caller before its message is
    read, see `channel.Guard`; LocalError for a URL of a wire that cannot ask a guard.

    Starting raises LocalError, in one sentence, for a URL that cannot be listened on, and BusLost when nothing answers
    at the bus's URL.
    """
    check("serve", SERVE, given := locals())
    options = among(Options, given, limits=limits or _limits(served), server_tls=tls, sockets=sockets or {})
    places = [urls] if isinstance(urls, str) else list(urls)
    if not places:
        raise LocalError("serve needs at least one URL, e.g. urls=['http://127.0.0.1:8000']")
    return Serving(served, places, options, with_trace(trace, observers), limits, bus)


class Serving:
    """What `serve` returns. `urls`: where it listens, once it does."""

    def __init__(
        self,
        served: tuple[Service | Servable | Mapping[str, Service | Servable], ...],
        places: list[str],
        options: Options,
        observers: Sequence[Observer],
        limits: Limits | None,
        bus: str | Bus | None = None,
    ) -> None:
        self._limits = limits
        self._shared = _Shared(bus, tls=options.client_tls)
        self._line: ControlPipe | None = None
        self._over: asyncio.Future[None] | None = None
        self.employment: WorkerSpec | None = None
        """What the supervisor passed to this process, if it is one of several workers."""
        self._given = served
        self._places = places
        self._let_go: Callable[[], object] = lambda: None
        self._options = options
        self._observers = observers
        self._unobserve: Callable[[], None] = lambda: None
        self._listeners: list[Listener] = []
        self._served: dict[str, Servable] = {}
        self._closed: asyncio.Future[None] | None = None

    @property
    def urls(self) -> list[str]:
        """Where it listens, with the ports that were chosen for port 0."""
        return [listener.url for listener in self._listeners]

    @property
    def served(self) -> Mapping[str, Servable]:
        """What is served, by path."""
        return self._served

    @property
    def bus(self) -> Bus | None:
        """The bus that it shares with others, once it serves."""
        return self._shared.bus

    def __await__(self) -> Generator[Any, None, None]:
        return self._serve().__await__()

    async def _serve(self) -> None:
        if self._closed is not None:
            return await self.ended()
        async with self:
            await self.ended()

    async def ended(self) -> None:
        """Wait until the serving ends: by `close`, or by the end of stdio when there is no other wire."""
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
        self._served = found = hosted(self._given, self._limits)
        self._unobserve = _observed(found, self._observers)
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
                await served.start()
            for place in self._places:
                self._listeners.append(await listen(place, self._served, options))
        except BaseException:
            await self.close(0)
            raise
        if self._line is not None:
            asyncio.get_running_loop().call_soon(self._line.ready)  # the served object may print something first
        return self

    def _employ(self) -> dict[str, Any]:
        """If this process is a supervisor's worker, take what was passed to it; returns the options that come with
        it."""
        if "DRAGOMAN_WORKER" not in os.environ:
            return {}
        from .net.accept import LoadBoard  # noqa: PLC0415  (workers only)
        from .workers.worker import ControlPipe, employed  # noqa: PLC0415

        loop = asyncio.get_running_loop()
        self.employment = employed()
        if self.employment is None:
            return {}
        closing: list[asyncio.Task[None]] = []
        seconds = self._options.limits.drain_timeout
        self._line = ControlPipe(self.employment, lambda: closing.append(loop.create_task(self.close())), seconds)
        load_board = LoadBoard(self.employment.load_board, self.employment.number - 1)
        os.close(self.employment.load_board)
        return {"sockets": self.employment.sockets, "load_board": load_board}

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
            if self._over is not None:  # another task is closing: wait for it
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
            self._unobserve()
            self._let_go()
            self._over.set_result(None)
            if self._line is not None:
                self._line.close()


def http_app(
    *served: Service | Servable | Mapping[str, Service | Servable],
    trace: Hook | None = None,
    observers: Sequence[Observer] = (),
    limits: Limits | None = None,
    hosts: Iterable[str] | None = None,
    origins: Iterable[str] | None = None,
    cors: Iterable[str] = (),
    guard: Guard | None = None,
    empty_status: Literal[200, 204] = 204,
    bus: str | Bus | None = None,
    client_tls: Any = None,
) -> Any:
    """The ASGI application (HTTP and WebSocket) of one or more served objects, for uvicorn, granian, hypercorn, or to
    mount in Starlette, FastAPI or Django. Paths, `bus` and `client_tls` as in `serve`; the bus is opened at the
    lifespan's startup."""
    from .transports.http.app import App  # noqa: PLC0415  (a wire, imported when used)

    check("http_app", HTTP_APP, given := locals())
    found = hosted(served, limits)
    shared = _Shared(bus, found.values(), tls=client_tls)
    options = among(Options, given, limits=limits or _limits(served), unready=shared.unready)
    _observed(found, with_trace(trace, observers))
    return App(found, options, before=shared)


class _Shared:
    """The bus of the served objects: opened and joined before they start; closed after they end, if it was opened
    here."""

    def __init__(self, given: str | Bus | None, served: Iterable[Servable] = (), *, tls: Any = None) -> None:
        self._tls = tls
        self._given = os.environ.get("DRAGOMAN_BUS") or None if given is None else given
        self._served = served
        self.bus: Bus | None = None
        self.closing = False

    async def start(self, served: Iterable[Servable] = ()) -> None:
        given = self._given
        if given is None:
            return
        if isinstance(given, str):
            self.bus = await open_bus(given, tls=self._tls)
        else:
            self.bus = given
        for one in {id(one): one for one in (*self._served, *served)}.values():
            if isinstance(one, JoinsBus):
                await one.join(self.bus)

    async def stop(self) -> None:
        if self.bus is not None and isinstance(self._given, str):
            await self.bus.close()

    def unready(self) -> str:
        """Why new work should go elsewhere; empty if it should not."""
        if self.closing:
            return "draining"
        return "the bus is gone" if self.bus is not None and not self.bus.alive else ""


def _stdio_kept(places: Iterable[str]) -> Callable[[], object]:
    """If standard output is a wire, reserve it for the wire from before the serving begins until it has ended."""
    if not any(place.startswith("stdio:") for place in places):
        return lambda: None
    from .transports.stream.stdio import keep  # noqa: PLC0415  (a wire, imported when used)

    return keep()


def _observed(served: Mapping[str, Servable], observers: Sequence[Observer]) -> Callable[[], None]:
    """Tell these observers of what is served; gives what ends that. LocalError where something has none."""
    ends: list[Callable[[], None]] = []
    for one in {id(one): one for one in served.values()}.values() if observers else ():
        if not isinstance(one, Observable):
            raise LocalError(f"{one!r} has no `observe`: trace= and observers= are for a Service or a Server")
        ends += [one.observe(observer) for observer in observers]

    def over() -> None:
        for end in ends:
            end()

    return over


def hosted(
    given: Sequence[Service | Servable | Mapping[str, Service | Servable]], limits: Limits | None
) -> dict[str, Servable]:
    """The served objects by path; each service gets its `ServableService`. Raises LocalError for two at one path."""
    found: dict[str, Servable] = {}
    several = len(given) > 1
    for one in given:
        pairs = one.items() if isinstance(one, Mapping) else [(f"/{one.name}" if several else "", one)]
        for path, it in pairs:
            path = "/" + path.strip("/") if path.strip("/") else ""
            if path in found:
                raise LocalError(
                    f"two served objects at {path or '/'}: give them paths of their own, serve({{'/a': a}})"
                )
            if not isinstance(it, Service | Servable):
                raise LocalError(f"cannot serve {it!r}: give a Service, or an object with exchange and attach")
            if not isinstance(it, Service):
                if limits is not None:
                    it.restrict(limits)
                found[path] = it
            else:
                found[path] = ServableService(it, limits=limits)
    if not found:
        raise LocalError("serve needs something to serve: a Service")
    return found


def _limits(given: Sequence[Service | Servable | Mapping[str, Service | Servable]]) -> Limits:
    """The limits of the first object that has some."""
    for one in given:
        for it in one.values() if isinstance(one, Mapping) else [one]:
            if isinstance(it, Service | Servable):
                return it.limits
    return SERVER
