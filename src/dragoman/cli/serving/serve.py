"""`dragoman serve`: serves what a target names, on every given URL, until a signal.

The first SIGINT or SIGTERM drains: nothing new is taken, calls in flight end within the drain
time, and the exit status is 0. A second signal ends the process at once.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import signal
import ssl
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, AsyncExitStack, nullcontext
from functools import partial
from typing import Any, NamedTuple

from cyclopts import App

from ... import console
from ...jsonrpc.leniency import LENIENT, Leniency, both
from ...jsonrpc.limits import Limits
from ...net.activation import activation
from ...net.service_manager import managed
from ...net.urls import is_standard
from ...observer import Observer
from ...rpc import thread_pool
from ...rpc.service import Service
from ...rpc.tracing import json_lines
from ...serving import Serving
from ...serving import serve as listen
from ...system.signals import HANGUP, TERMINATE, on_signal
from ...telemetry.metrics import Metrics
from ...transports.stream.stdio import keep
from ...workers.worker import VARIABLE
from ..exit_status import FINE, Usage, check_files
from ..lines import lines, tell
from ..options import OUTPUT, WIRE, Output, WireOptions, trace_to
from ..target import Target, folder_of, load
from .admin import endpoint_of
from .announce import announce, announce_console, as_mcp
from .check import check
from .config import unknown_variables
from .exporting import exporting
from .large_blocks import return_large_blocks
from .live import Live, log_level
from .metrics import metrics_url
from .reload import is_child, watch
from .rereading import Rereading, Settings
from .settings import DEFAULT_MCP_URL, DEFAULT_URL, SERVE_OPTIONS, TABLE, ServeOptions, named
from .supervise import places_beside, supervise

GRACE = 0.5
"""Seconds that worker threads have to end after everything is closed."""

app: App = App(
    name="serve",
    usage="Usage: dragoman serve [OPTIONS] TARGET [URL...]",
    help_epilogue="""\
Examples:

  dragoman serve calculator:api
  dragoman serve calculator.py                    the file's only service
  dragoman serve calculator:api http://127.0.0.1:8000 ws://127.0.0.1:8001 \\
      tcp://127.0.0.1:9000 udp://127.0.0.1:9001 unix:calc.sock
  dragoman serve calculator:api tcp://127.0.0.1:9000?framing=content-length
  dragoman serve calculator:api stdio:            as the child of an editor
  dragoman serve calculator:api https://0.0.0.0:8443 --tls-cert own.pem
  dragoman serve calculator:api amqp://127.0.0.1/calculator    a work queue
  dragoman serve calculator:api --workers 4       four processes, one port
  dragoman serve calculator:api --reload --debug  during development
  dragoman serve calculator:api --log-level info --log-format json
  dragoman serve calculator:api --metrics :9090   for Prometheus
  dragoman serve calculator:api --otlp http://127.0.0.1:4318
  dragoman serve calculator:api --admin run/admin.sock    for dragoman top
  dragoman serve calculator:api --admin :9091     the same, by a secret
  dragoman serve calculator:api --console :9092   a page; see dragoman console
  dragoman serve calculator:api --limit calls=100 --trace traffic.jsonl
  dragoman serve --config dragoman.toml           all of it from a file
  dragoman serve --config dragoman.toml --check   is it in order?

An MCP server is served in every revision at once:

  dragoman serve weather:app                      http://127.0.0.1:8000/mcp
  dragoman serve weather.py stdio:                as the child of an MCP host
  dragoman serve weather:app http://127.0.0.1:8000/mcp ws://127.0.0.1:8001

Ctrl-C or SIGTERM drains: calls in flight may end, new ones are refused, and
the exit status is 0. A second signal ends the process at once.""",
)


@app.default
def serve(
    target: str | None = None,
    /,
    *urls: str,
    options: ServeOptions = SERVE_OPTIONS,
    wire: WireOptions = WIRE,
    output: Output = OUTPUT,
) -> int:
    """Serve functions on one wire or many.

    Parameters
    ----------
    target
        What to serve: module:attribute or file.py:attribute; may stand in the file of --config.
    urls
        Where: http, https, ws, wss, tcp, tls, unix, udp or stdio:, or at a broker: amqp, mqtt, nats, redis.
        [default: http://127.0.0.1:8000, for MCP http://127.0.0.1:8000/mcp]
    """
    if options.check:
        return check(target, urls, options, wire, output)
    check_files()
    target, urls = named(target, urls, options)
    for sentence in unknown_variables(TABLE):
        tell(sentence, "warning")
    log_level(options, output.verbose)
    watched = _make_observers(options)
    settings = target, urls, options, wire, output
    reloaded = is_child()
    if options.workers is not None and not is_worker():
        return _supervise(settings, options.workers)
    if options.reload and not reloaded and not is_worker():
        if any(is_standard(url) for url in urls):
            raise Usage("--reload cannot be used with stdio:, because the pipes belong to the first child")
        return watch(folder_of(target))
    return _here(settings, watched)


def _here(settings: Settings, watched: Watched) -> int:
    """Serve in this process, until a signal."""
    target, urls, options, wire, output = settings
    tls = options.tls()
    limits = options.limits(wire)
    tasks = options.tasks_url(target)
    served = _load(target, urls)
    served_urls = list(urls) or [DEFAULT_URL if as_mcp(served) is None else DEFAULT_MCP_URL]
    if wire.lenient:
        _be_lenient(served)
    live = Live(served, options, wire, verbose=output.verbose)
    rereading = Rereading(app, sys.argv[2:], settings, tls, live)
    with trace_to(wire.trace) as write, asyncio.Runner(loop_factory=_loop(options)) as runner:
        status = runner.run(
            _serve(served, served_urls, options, wire, limits, tls, tasks, write, watched, output, rereading)
        )
        live.end()
        _leave(status)
        return status


def _be_lenient(served: Target) -> None:
    """Accept what `--lenient` says, beside what the app itself chose."""
    mcp = as_mcp(served)
    if mcp is not None:
        service, more = mcp.__servable__().service, LENIENT
    elif isinstance(served, Service):
        service, more = served, both(LENIENT, Leniency(accept_v1=True))
    else:
        return
    service._lenient = both(service._lenient, more)


def _supervise(settings: Settings, workers: int) -> int:
    target, urls, options, *_ = settings
    may_reload = Rereading(app, sys.argv[2:], settings).of_supervisor
    with asyncio.Runner(loop_factory=_loop(options)) as runner:
        return runner.run(
            supervise(folder_of(target), list(urls) or [DEFAULT_URL], workers, options, may_reload=may_reload)
        )


class Watched(NamedTuple):
    """What watches the calls, where an option requires it: the metrics alone, or all that consoles show."""

    metrics: Metrics | None
    watching: console.Watching | None

    @property
    def observers(self) -> list[Observer]:
        """Those of the calls."""
        if self.watching is not None:
            return self.watching.observers
        return [] if self.metrics is None else [self.metrics]


def _make_observers(options: ServeOptions) -> Watched:
    """Raises Usage for URLs that cannot be served."""
    if options.metrics is not None:
        metrics_url(options.metrics)
    options.collector()
    if options.admin is not None and not is_worker():  # a worker's supervisor has looked
        endpoint_of(options.admin)
    if options.console is not None and not (address := console.read_address(options.console, "--console")).loopback:
        console.check_address(address, tls=options.tls(), auth=options.auth())
    if options.admin is not None or options.console is not None:
        watching = console.Watching(messages=options.console_messages)
        return Watched(watching.metrics, watching)
    wanted = options.metrics is not None or options.otlp is not None
    return Watched(Metrics() if wanted else None, None)


def _load(target: str, urls: tuple[str, ...]) -> Target:
    """Import what to serve. If standard output is the wire, output of the import goes to standard error."""
    if not any(is_standard(url) for url in urls):
        return load(target)
    let_go = keep()
    try:
        return load(target)
    except BaseException:
        let_go()
        raise


def is_worker() -> bool:
    """Whether this process is a worker that a supervisor started."""
    return VARIABLE in os.environ


def _leave(status: int) -> None:
    """End the process without waiting for threads that still run a method, because a thread cannot be stopped."""
    until = time.monotonic() + GRACE
    done = thread_pool.finish(GRACE)
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join(max(0.0, until - time.monotonic()))
            done = done and not thread.is_alive()
    if not done:
        tell("a method still runs in a thread that cannot be stopped; ending without it", "warning")
        lines.flush()
        sys.stdout.flush()
        os._exit(status)


def _loop(options: ServeOptions) -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's loop if it is installed, because it is faster."""
    if options.no_uvloop:
        return None
    try:
        uvloop: Any = importlib.import_module("uvloop")
    except ImportError:
        return None
    return uvloop.new_event_loop  # type: ignore[no-any-return]


async def _serve(
    served: Target,
    served_urls: list[str],
    options: ServeOptions,
    wire: WireOptions,
    limits: Limits | None,
    tls: ssl.SSLContext | None,
    tasks: str | None,
    write: Callable[[str], object] | None,
    watched: Watched,
    output: Output,
    rereading: Rereading,
) -> int:
    return_large_blocks()
    stop = _stop_on_signals()
    threads = ThreadPoolExecutor(thread_name_prefix="asyncio")  # the interpreter would wait for asyncio's own
    asyncio.get_running_loop().set_default_executor(threads)
    async with exporting(options.collector(), served, watched.metrics, alone=not is_worker()) as traces:
        serving = listen(
            served,
            urls=served_urls,
            trace=None if write is None else json_lines(write),
            observers=[*watched.observers, *([] if traces is None else [traces])],
            limits=limits,
            framing=wire.framing,
            tls=tls,
            hosts=options.host_allowed or None,
            origins=options.origin_allowed or None,
            cors=options.cors,
            trusted_proxies=options.trusted_proxies,
            auth=options.auth(),
            bus=None if is_worker() else options.bus,
            store=options.store,
            tasks=tasks,
            docs=options.docs,
            console=options.console,
            console_messages=options.console_messages,
        )
        _tell_supervisor(serving, watched)
        rereading.live.begin(serving, options)
        async with serving, _figures(serving, watched, options), AsyncExitStack() as managing:
            on_stdio = any(is_standard(url) for url in served_urls)
            job = serving.employment
            if job is None:
                activation().warn()
                if HANGUP is not None:
                    on_signal(asyncio.get_running_loop(), HANGUP, rereading.of_server)
                elif options.config is not None or options.tls_cert is not None:
                    tell("there is no SIGHUP on Windows: start again to have the certificate and --config read", "info")
            if not options.quiet and (job is None or job.announce):
                pid = os.getpid() if job is None else job.supervisor
                announce(served, serving.urls, on_stdio=on_stdio, output=output, pages=serving.pages, pid=pid)
            if serving.console is not None:
                announce_console(serving.console)
            if job is None:  # a supervisor speaks for its workers
                await managing.enter_async_context(managed())
            waits: list[asyncio.Future[object]] = [asyncio.ensure_future(stop.wait())]
            if job is not None or all(is_standard(url) for url in served_urls):  # end of input, or the supervisor's
                waits.append(asyncio.ensure_future(serving.ended()))
            await _first_of(waits)
            await managing.aclose()
            await serving.close(rereading.live.drain)
    threads.shutdown(wait=False, cancel_futures=True)
    return FINE


def _tell_supervisor(serving: Serving, watched: Watched) -> None:
    """Answer a supervisor that requests the metrics, or what consoles show."""
    if watched.metrics is not None:
        serving.report = partial(console.report, watched.metrics)
    if watched.watching is not None:
        serving.answer = watched.watching.service(lambda: serving.served, serving.sources).answer_async


async def _first_of(waits: Sequence[asyncio.Future[object]]) -> None:
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for wait in waits:
        wait.cancel()


def _figures(serving: Serving, watched: Watched, options: ServeOptions) -> AbstractAsyncContextManager[None]:
    """The metrics and the socket of `--admin`, if there are such options; those of workers are their supervisor's."""
    if serving.employment is not None or watched.metrics is None:
        return nullcontext()
    source = None if watched.watching is None else watched.watching.source(lambda: serving.served, serving.sources)
    return places_beside(options, watched.metrics.text, source)


def _stop_on_signals() -> asyncio.Event:
    """An event that the first SIGINT or SIGTERM sets; the second one ends the process at once."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def on(number: int) -> None:
        if stop.is_set():
            lines.flush()
            os._exit(128 + number)
        stop.set()
        tell("draining: calls in flight may end, new ones are refused (a second signal ends at once)", "warning")

    for number in (signal.SIGINT, TERMINATE):
        on_signal(loop, number, partial(on, number))
    return stop
