"""Serves objects on wires: `serve` and `http_app`. `connecting` is the counterpart for peers."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Awaitable, Callable, Collection, Coroutine, Generator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from .access import Protectable
from .channel import LIMITS, TLS, Guard, Listener, Options, Servable, Serves, Shareable, servable
from .jsonrpc.errors import LocalError
from .jsonrpc.framing import FramingName
from .jsonrpc.limits import SERVER, Limits
from .jsonrpc.options import CALLABLE, FLAG, NONE, TEXT, TEXTS, Rule, among, check, one_of, only_async, strict, whole
from .net.urls import scheme_of, shown_target
from .observer import OBSERVERS, Observer, read_measures
from .protecting import options_at, protect
from .routes import HasRoutes
from .rpc.background import needs_asyncio
from .rpc.method import AUTH
from .rpc.observing import rejecting, with_trace
from .rpc.servable import ServableService
from .rpc.service import Service, inside_a_loop
from .schemes import listen
from .serving_observers import ServingObservers, observe_all
from .sharing import BusAndStore
from .store.contract import Engine
from .system.forking import protect_forks
from .system.signals import TERMINATE, on_signal
from .system.streams import use_utf8

if TYPE_CHECKING:
    from ssl import SSLContext

    from .access import Verifiers
    from .bus.contract import Bus
    from .console import ConsoleAddress, Watching
    from .rpc.tracing import Hook
    from .transports.http.app import AsgiApp
    from .workers.worker import ControlPipe, WorkerSpec
else:
    SSLContext = Verifiers = Bus = Hook = AsgiApp = ConsoleAddress = Watching = (
        Any  # start-up: `Any` is enough where annotations are resolved at run time
    )

log: logging.Logger = logging.getLogger("dragoman")

Served: TypeAlias = Service | Servable | Serves
"""What can be served."""

STORE: Final = TEXT | Rule(lambda value: isinstance(value, Engine), "an Engine") | NONE
BUS: Final = TEXT | Rule(lambda value: hasattr(value, "publish"), "a Bus") | NONE
HTTP_APP: Final = {
    "client_tls": TLS | NONE,
    "trace": CALLABLE | NONE,
    "observers": OBSERVERS,
    "limits": LIMITS | NONE,
    "guard": CALLABLE | NONE,
    "auth": AUTH,
    "bus": BUS,
    "store": STORE,
    "tasks": TEXT | NONE,
    "docs": FLAG | NONE,
}
URLS: Final = Rule((TEXT | TEXTS).fits, "text, or a list of texts: URLs as in 'http://127.0.0.1:8000'", (str,))
SERVE: Final = HTTP_APP | {
    "tls": TLS | NONE,
    "urls": URLS,
    "public": TEXT | TEXTS,
    "console": TEXT | whole(0) | NONE,
    "console_messages": FLAG,
}
"""The rules of the options of `serve`; `Options` checks its own."""


@strict("serve")
def serve(
    *served: Served | Mapping[str, Served],
    urls: Sequence[str] | str,
    trace: Hook | None = None,
    observers: Sequence[Observer] = (),
    limits: Limits | None = None,
    framing: FramingName | None = None,
    tls: SSLContext | None = None,
    client_tls: SSLContext | None = None,
    subprotocol: str | None = None,
    hosts: Iterable[str] | None = None,
    origins: Iterable[str] | None = None,
    cors: Iterable[str] = (),
    trusted_proxies: Iterable[str] = (),
    guard: Guard | None = None,
    auth: Verifiers | None = None,
    public: Collection[str] = (),
    empty_status: Literal[200, 204] = 204,
    await_notifications: bool = False,
    mode: int = 0o600,
    amplify: bool = False,
    bus: str | Bus | None = None,
    store: str | Engine | None = None,
    tasks: str | None = None,
    docs: bool | None = None,
    console: str | int | None = None,
    console_messages: bool = False,
    sockets: Mapping[str, Sequence[int]] | None = None,
) -> Serving:
    """Serve one or more objects at one or more URLs: `await serve(api, urls=[...])` serves until it is cancelled,
    then drains; `async with serve(...) as serving` serves for the length of the block.

    `urls`: one, or several. One object is served at the URL itself. Several are served below it, each under its name
    (`/calculator`), or at the paths of a mapping (`serve({"/math": math}, ...)`), on wires that have paths.

    `bus`: what several processes that serve the same share (see `dragoman.bus`), as a URL, which is opened and closed
    here, or as a Bus; None: the URL in the environment variable DRAGOMAN_BUS, if set. A served object with a coroutine
    `join(bus)` gets the bus before it starts. `tls`: the certificate for https, wss and tls URLs, an `ssl.SSLContext`.
    `client_tls`: the context with which brokers and the bus are verified; None: the system's defaults. `store`: what
    keeps `ctx.store`: "memory:" (this process), "sqlite:PATH" (a file, which workers may share) or "bus" (the store of
    the bus); None: each app in memory. `tasks`: where tasks are kept that say nothing else: "sqlite:PATH", "memory:" or
    "bus"; None: in memory. `docs`: whether browsers are shown a page, at HTTP endpoints and `/docs`, that
    describes and calls what is served; None: those on this machine, and only without `trusted_proxies`. `console`: the
    address "[HOST:]PORT" of a page for the operator, which shows what goes on and stops calls; on loopback, or with
    `tls` and `auth`. Its URL is `Serving.console`. `console_messages`: it shows the last messages, too, with secrets
    masked. `sockets`: see `channel.Options`. `observers`: see `dragoman.observer`. `guard`:
    decides about each caller before its message is read, see `channel.Guard`; LocalError for a URL of a wire that
    cannot ask a guard. `trusted_proxies`: see `channel.Options`. `auth`: a verifier of tokens
    (`dragoman.auth.Bearer`) that guards all that is served here; `public`: those of the URLs where callers need
    none. `trace` gets an `Event` for each message (`dragoman.rpc.tracing`). `limits`: the bounds on messages, calls,
    channels and times, instead of those of what is served.

    `framing`: of streams, by default a line each. `subprotocol`: of WebSocket. HTTP: `hosts`, `origins`: the allowed
    values of Host and Origin, by default the server's own; `cors`: origins that get CORS headers; `empty_status`: where
    no answer is owed; `await_notifications`: they are answered when their handler has ended. `mode`: of the file of a
    Unix socket. `amplify`: UDP may answer with more bytes than it received.

    Starting raises LocalError for a URL that cannot be listened on, BusLost when nothing answers at the bus's URL.
    """
    check("serve", SERVE, given := locals())
    mine = {"server_tls": tls, "sockets": sockets or {}, "store": None, "auth": None, "public": False}
    _refuse_classes(served)
    wire = among(Options, given, limits=limits or _limits(served), **mine)
    endpoints, chosen = ([one] if isinstance(one, str) else list(one) for one in (urls, public))
    if unknown := [one for one in chosen if one not in endpoints]:
        raise LocalError(f"public= names some of the URLs that are served, as they stand there; not {unknown[0]!r}")
    if not endpoints:
        raise LocalError("serve needs at least one URL, e.g. urls=['http://127.0.0.1:8000']")
    those = with_trace(trace, observers)
    if any(scheme_of(one) in _PATHS for one in endpoints):
        wire = msgspec.structs.replace(wire, page=_choose_page(docs, wire))
    watching = address = None
    if console is not None:
        from .console import Watching, read_address  # noqa: PLC0415  (start-up: where there is one)

        address, watching = read_address(console, "console="), Watching(those, messages=console_messages)
        those = tuple(watching.observers)
    options = among(ServingOptions, given, wire=wire, observers=those, public=chosen, console=address)
    return Serving(served, endpoints, options, watching)


def _choose_page(docs: bool | None, options: Options) -> Callable[..., Any] | None:
    """What makes the page of an address; None where none is shown."""
    if docs is False or (docs is None and tuple(options.trusted_proxies)):
        return None
    from .web import DocsPage  # noqa: PLC0415  (start-up: for a page that is shown)

    return partial(DocsPage, always=docs is True, hosts=options.hosts is not None)


RUN: Final = {
    "urls": TEXTS,
    "transport": one_of("stdio", "http", "streamable-http", "https", "ws", "wss", "tcp", "unix") | NONE,
    "host": TEXT | NONE,
    "port": whole(0) | NONE,
    "path": Rule(lambda value: isinstance(value, str) and value.startswith("/"), 'a path as in "/mcp"') | NONE,
}
_PATHS: Final = frozenset({"http", "https"})
_MAY_HAVE_PATHS: Final = _PATHS | {"ws", "wss"}


def run(
    served: Served,
    urls: Sequence[str],
    *,
    transport: str | None,
    host: str | None,
    port: int | None,
    path: str | None,
) -> None:
    """Serve an app until it is stopped: `Service.run` and `mcp.Server.run`."""
    check(f"{served.name}.run", RUN, locals())
    given = any(one is not None for one in (transport, host, port, path))
    if urls and given:
        raise LocalError(f"{served.name}.run: give URLs, or transport, host, port and path; a URL says all of them")
    mcp = not isinstance(served, Service)
    scheme = "http" if transport in (None, "streamable-http") else str(transport)
    if path is not None and scheme not in _MAY_HAVE_PATHS:
        raise LocalError(f"{served.name}.run: path={path!r} is for http and ws; {scheme} has no paths")
    if not urls and (transport == "stdio" or (mcp and not given)):
        urls = ["stdio:"]
    elif not urls:
        if path is None:
            path = "/mcp" if mcp and scheme in _PATHS else ""
        name = host or "127.0.0.1"
        urls = [f"{scheme}://{f'[{name}]' if ':' in name else name}:{8000 if port is None else port}{path}"]
    if inside_a_loop():
        raise LocalError(
            f"{served.name}.run starts an event loop, and one runs here: await serve({served.name}, urls=...)"
        )
    use_utf8()  # MCP's hosts read what a server prints as UTF-8
    try:
        asyncio.run(_serve_until_stopped(serve(served, urls=urls), served.name))
    except KeyboardInterrupt:
        pass  # Ctrl-C is how it is ended; it has drained


async def _serve_until_stopped(serving: Serving, name: str) -> None:
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    try:
        on_signal(loop, TERMINATE, stop.set)
    except RuntimeError:  # a thread that is not the main one
        pass
    async with serving:
        for url in serving.urls:
            if not url.startswith("stdio:"):  # whose standard output is the wire
                sys.stderr.write(f"{name} is served at {url}\n")
        ends = [loop.create_task(serving.ended()), loop.create_task(stop.wait())]
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for end in ends:
                end.cancel()


class ServingOptions(Struct, frozen=True, kw_only=True):
    """The options of a serving: options of `serve`, by their names there. `wire`: those that wires read."""

    wire: Options
    observers: Sequence[Observer]
    limits: Limits | None
    bus: str | Bus | None
    store: str | Engine | None
    tasks: str | None
    auth: Verifiers | None
    public: Collection[str]
    docs: bool | None
    console: ConsoleAddress | None
    tls: SSLContext | None


if TYPE_CHECKING:
    _Coroutine = Coroutine[Any, Any, None]
else:
    _Coroutine = object


class Serving(_Coroutine):  # `asyncio.run(serve(...))`
    """What `serve` returns. `urls`: where it listens, once it does."""

    def __init__(
        self,
        served: tuple[Served | Mapping[str, Served], ...],
        endpoints: list[str],
        options: ServingOptions,
        watching: Watching | None = None,
    ) -> None:
        wire = options.wire
        self._watching = watching
        self._beside = AsyncExitStack()
        self.console: str | None = None
        """The URL of the console, with its secret, for a browser; None without one. That of workers is their
        supervisor's."""
        self._shared = BusAndStore(options.bus, options.store, options.tasks, wire.limits, tls=wire.client_tls)
        self._control: ControlPipe | None = None
        self._over: asyncio.Future[None] | None = None
        self.employment: WorkerSpec | None = None
        """What the supervisor passed to this process, if it is one of several workers."""
        self.report: Callable[[], bytes] | None = None
        """Makes the report, one line, that a supervisor requests of this process, its worker."""
        self.answer: Callable[[bytes], Awaitable[bytes | None]] | None = None
        """Answers the JSON-RPC messages of a supervisor, on the loop."""
        self._given = served
        self._endpoints = endpoints
        self._release_stdio: Callable[[], object] = lambda: None
        self._options = options
        self._all_observers = ServingObservers(options.observers)
        self._stop_reading: Callable[[], None] = lambda: None
        self._listeners: list[Listener] = []
        self._served: dict[str, Servable] = {}
        self._closed: asyncio.Future[None] | None = None
        self._running: Coroutine[Any, Any, None] | None = None

    def __repr__(self) -> str:
        return f"<serve {', '.join(map(shown_target, self.urls or self._endpoints))}>"

    if not TYPE_CHECKING:
        __enter__ = __exit__ = only_async("serve(...)", "")

    @property
    def urls(self) -> list[str]:
        """Where it listens, with the ports that were chosen for port 0."""
        return [listener.url for listener in self._listeners]

    @property
    def pages(self) -> list[str]:
        """Where browsers on this machine find the page (`docs`): a URL for each address at which it is shown."""
        if self._options.wire.page is None:
            return []
        from .transports.http.policy import is_loopback  # noqa: PLC0415  (a wire, imported when used)

        found = [urlsplit(url) for url in self.urls if scheme_of(url) in _PATHS]
        shown = [url for url in found if self._options.docs or is_loopback(url.hostname or "")]
        return list(dict.fromkeys(f"{url.scheme}://{url.netloc}/docs" for url in shown))

    @property
    def served(self) -> Mapping[str, Servable]:
        """What is served, by path."""
        return self._served

    @property
    def bus(self) -> Bus | None:
        """The bus that it shares with others, once it serves."""
        return self._shared.bus

    def observe(self, observer: Observer) -> Callable[[], None]:
        """Add an observer from now on. It receives what those of `observers` receive, except the numbers for metrics.
        Return the function that removes it."""
        return self._all_observers.add(observer)

    def __await__(self) -> Generator[Any, None, None]:
        return self._serve().__await__()

    def send(self, value: Any) -> Any:
        """Continue the serving, as `send` of a coroutine. It has `send`, `throw` and `close` because `asyncio.run`
        accepts only coroutines before Python 3.14."""
        if self._running is None:
            self._running = self._serve()
        return self._running.send(value)

    def throw(self, *error: Any) -> Any:
        """Raise an exception in the serving, as `throw` of a coroutine."""
        if self._running is None:
            self._running = self._serve()
        return self._running.throw(*error)

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
        needs_asyncio("serve(...)")
        protect_forks()
        self._served = found = map_served(self._given, self._options.limits)
        protect(found, self._options.auth, self._options.wire.guard)
        self._all_observers.begin(found)
        self._closed = asyncio.get_running_loop().create_future()
        self._release_stdio = _reserve_stdio(self._endpoints)
        try:
            await self._shared.start(found.values())
            store = None if self.bus is None else self.bus.store
            options = msgspec.structs.replace(
                self._options.wire,
                store=store,
                unready=self._shared.unready,
                rejected=self._all_observers,
                **self._employ(),
            )
            for served in self._served.values():
                await served.start()
            for endpoint in self._endpoints:
                at = options_at(endpoint, found, options, self._options.public)
                self._listeners.append(await listen(endpoint, self._served, at))
            _log_unserved_routes(self._endpoints, self._served.values())
            await self._open_console()
        except BaseException:
            await self.close(0)
            raise
        self._stop_reading = read_measures(self._options.observers, self.sources())
        if self._control is not None:
            asyncio.get_running_loop().call_soon(self._control.ready)  # the served object may print something first
        return self

    async def _open_console(self) -> None:
        """Open the console, if there is to be one, and answer those of others that share the bus. Workers answer alone:
        their supervisor has the console."""
        watching, address, auth = self._watching, self._options.console, self._options.auth
        if watching is None or address is None:
            return
        begun, what = self._beside.enter_async_context, (lambda: self._served, self.sources)
        if self.employment is not None:
            if self.bus is not None:
                await begun(watching.answering(self.bus, self.employment.group, *what))
            return
        from .console import open_console  # noqa: PLC0415  (start-up: where there is one)

        source = await begun(watching.shared(self.bus, *what))
        names = ", ".join(dict.fromkeys(one.name for one in self._served.values()))
        auth = auth or next((one.auth for one in self._served.values() if isinstance(one, Protectable)), None)
        self.console = await begun(open_console(address, source, names, tls=self._options.tls, auth=auth))

    def sources(self) -> list[tuple[object, Mapping[str, str]]]:
        """Return what may have numbers for metrics, once it serves, each with its labels."""
        first = next(iter(self._served.values())).name  # of wires without paths, the only one
        wires = [(one, {"service": first, "wire": scheme_of(one.url)}) for one in self._listeners]
        return [*_of_served(self._served.values()), *wires, (self._shared, {"bus": self._shared.scheme})]

    def _employ(self) -> dict[str, Any]:
        """Take what a supervisor has passed to this process, if it is a worker; return the options that this sets, none
        otherwise."""
        if "DRAGOMAN_WORKER" not in os.environ:
            return {}
        from .net.accept import LoadBoard  # noqa: PLC0415  (workers only)
        from .workers.worker import ControlPipe, take_worker_spec  # noqa: PLC0415

        loop = asyncio.get_running_loop()
        self.employment = take_worker_spec()
        if self.employment is None:
            return {}
        if self._watching is not None:
            self.report = self.report or self._watching.report
            self.answer = self.answer or self._watching.service(lambda: self._served, self.sources).answer_async
        closing: list[asyncio.Task[None]] = []
        seconds = self._options.wire.limits.drain_timeout
        drain = lambda: closing.append(loop.create_task(self.close()))  # noqa: E731
        self._control = ControlPipe(self.employment, drain, seconds, self.report, self.answer)
        load_board = LoadBoard(self.employment.load_board, self.employment.number - 1)
        os.close(self.employment.load_board)
        return {"sockets": self.employment.sockets, "load_board": load_board}

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self, drain: float | None = None) -> None:  # type: ignore[override]
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
            seconds = self._options.wire.limits.drain_timeout if drain is None else drain
            faults = await _all(listener.close() for listener in self._listeners)
            faults += await _all(served.drain(seconds) for served in self._served.values())
            faults += await _all(listener.closed() for listener in self._listeners)
            faults += await _all([self._beside.aclose()])  # which may use the bus
            faults += await _all([self._shared.stop()])
            for fault in faults[1:]:
                log.error("closing: a further failure", exc_info=fault)
            if faults:
                raise faults[0]
        finally:
            self._all_observers.end()
            self._stop_reading()
            self._release_stdio()
            self._over.set_result(None)
            if self._control is not None:
                self._control.close()


async def _all(steps: Iterable[Coroutine[Any, Any, None]]) -> list[BaseException]:
    """Run these steps of closing at once; return what they raised. One that fails does not stop the others."""
    return [one for one in await asyncio.gather(*steps, return_exceptions=True) if one is not None]


@strict("http_app")
def http_app(
    *served: Served | Mapping[str, Served],
    trace: Hook | None = None,
    observers: Sequence[Observer] = (),
    limits: Limits | None = None,
    hosts: Iterable[str] | None = None,
    origins: Iterable[str] | None = None,
    cors: Iterable[str] = (),
    trusted_proxies: Iterable[str] = (),
    guard: Guard | None = None,
    auth: Verifiers | None = None,
    empty_status: Literal[200, 204] = 204,
    await_notifications: bool = False,
    bus: str | Bus | None = None,
    store: str | Engine | None = None,
    tasks: str | None = None,
    client_tls: SSLContext | None = None,
    docs: bool | None = None,
) -> AsgiApp:
    """The ASGI application (HTTP and WebSocket) of one or more served objects, for uvicorn, granian, hypercorn, or to
    mount in Starlette, FastAPI or Django. Paths and options are those of `serve`: `trace`, `observers`, `limits`,
    `hosts`, `origins`, `cors`, `trusted_proxies`, `guard`, `auth`, `empty_status`, `await_notifications`, `bus`,
    `store`, `tasks`, `client_tls` and `docs`; the bus and the store are opened at the lifespan's startup."""
    from .transports.http.app import App  # noqa: PLC0415  (a wire, imported when used)

    check("http_app", HTTP_APP, given := locals())
    found = map_served(served, limits)
    protect(found, auth, guard)
    allowed = limits or _limits(served)
    shared = BusAndStore(bus, store, tasks, allowed, found.values(), tls=client_tls)
    found_observers = with_trace(trace, observers)
    observe_all(found, found_observers)
    read_measures(found_observers, [*_of_served(found.values()), (shared, {"bus": shared.scheme})])
    mine = {"store": None, "auth": None, "unready": shared.unready, "rejected": rejecting(found_observers)}
    options = among(Options, given, limits=allowed, **mine)
    options = msgspec.structs.replace(options, page=_choose_page(docs, options))
    options_at("http:", found, options, ())
    return App(found, options, before=shared)


def _reserve_stdio(endpoints: Iterable[str]) -> Callable[[], object]:
    """If standard output is a wire, reserve it for the wire from before the serving begins until it has ended."""
    if not any(endpoint.startswith("stdio:") for endpoint in endpoints):
        return lambda: None
    from .transports.stream.stdio import keep  # noqa: PLC0415  (a wire, imported when used)

    return keep()


def _log_unserved_routes(endpoints: Iterable[str], served: Iterable[Servable]) -> None:
    """Log which routes are not served, because the wire has no HTTP."""
    schemes = dict.fromkeys(endpoint.partition(":")[0] for endpoint in endpoints)
    others = [f"{scheme}:" for scheme in schemes if scheme not in _PATHS]
    for one in {id(one): one for one in served}.values() if others else ():
        if isinstance(one, HasRoutes) and (found := one.http_routes()):
            level = logging.INFO if _PATHS & schemes.keys() else logging.WARNING
            paths = ", ".join(dict.fromkeys(route.path for route in found))
            log.log(
                level, "%s: the routes %s are HTTP's; they are not served on %s", one.name, paths, ", ".join(others)
            )


def _of_served(served: Iterable[Servable]) -> list[tuple[object, Mapping[str, str]]]:
    """Return served objects, and the budget that they share, with the labels of their numbers."""
    those = {id(one): one for one in served}.values()
    first = next(iter(those))
    return [*((one, {"service": one.name}) for one in those), (first.call_limit.budget, {"service": first.name})]


def map_served(given: Sequence[Served | Mapping[str, Served]], limits: Limits | None) -> dict[str, Servable]:
    """The served objects by path; each service gets its `ServableService`. Raises LocalError for two at one path."""
    found: dict[str, Servable] = {}
    several = len(given) > 1
    for those in given:
        pairs = those.items() if isinstance(those, Mapping) else [(f"/{those.name}" if several else "", those)]
        for path, it in pairs:
            path = "/" + path.strip("/") if path.strip("/") else ""
            if path in found:
                raise LocalError(
                    f"two served objects at {path or '/'}: give them paths of their own, serve({{'/a': a}})"
                )
            if not isinstance(it, Service | Servable | Serves):
                raise LocalError(f"cannot serve {it!r}: give a Service, or an object with exchange and attach")
            if isinstance(it, Service):
                found[path] = ServableService(it, limits=limits)
                continue
            one = servable(it)
            found[path] = one.for_serving() if isinstance(one, Shareable) else one
            if limits is not None:
                found[path].restrict(limits)
    if not found:
        raise LocalError("serve needs something to serve: a Service")
    budget = next(iter(found.values())).call_limit.budget
    for each in found.values():  # objects that are served together share one budget
        each.call_limit.budget = budget
    return found


def _refuse_classes(served: Iterable[Served | Mapping[str, Served]]) -> None:
    """Raise LocalError for a class in place of an instance."""
    for it in served:
        for one in it.values() if isinstance(it, Mapping) else (it,):
            if isinstance(one, type):
                made = (
                    f"{one.__name__}(...)" if issubclass(one, Service) or hasattr(one, "__servable__") else "a Service"
                )
                raise LocalError(f"cannot serve the class {one.__name__}: give an instance, {made}")


def _limits(given: Sequence[Served | Mapping[str, Served]]) -> Limits:
    """The limits of the first object that has some."""
    for one in given:
        for it in one.values() if isinstance(one, Mapping) else [one]:
            if isinstance(it, Service | Servable | Serves):
                return it.limits
    return SERVER
