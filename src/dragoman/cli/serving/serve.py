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
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Annotated, Any

from cyclopts import App, Group, Parameter

from ...jsonrpc.codec import Leniency
from ...jsonrpc.limits import SERVER, Limits
from ...net.urls import is_standard
from ...rpc import thread_pool
from ...rpc.service import Service
from ...rpc.tracing import json_lines
from ...serving import serve as open_doors
from ...transports.stream.stdio import keep
from ...workers.worker import VARIABLE
from ..ends import FINE, Usage
from ..lines import lines, tell
from ..options import OUTPUT, WIRE, Output, Wire, trace_to
from ..target import Target, folder_of, load
from .announce import announce, as_mcp
from .reload import watch
from .supervise import supervise

DEFAULT_URL = "http://127.0.0.1:8000"
DEFAULT_MCP_URL = DEFAULT_URL + "/mcp"
GRACE = 0.5
"""Seconds that worker threads have to end after everything is closed."""
SERVING = Group("Serving", sort_key=10)

app = App(
    name="serve",
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
  dragoman serve calculator:api --limit calls=100 --trace traffic.jsonl

An MCP server is served in every revision at once:

  dragoman serve weather:app                      http://127.0.0.1:8000/mcp
  dragoman serve weather.py stdio:                as the child of an MCP host
  dragoman serve weather:app http://127.0.0.1:8000/mcp ws://127.0.0.1:8001

Ctrl-C or SIGTERM drains: calls in flight may end, new ones are refused, and
the exit status is 0. A second signal ends the process at once.""",
)


@Parameter(name="*", group=SERVING, show_default=False)
@dataclass(frozen=True, kw_only=True)
class ServeOptions:
    """Options of serving."""

    reload: bool = False
    """Start again whenever a Python file in the target's folder changes."""
    workers: Annotated[int | None, Parameter(metavar="N")] = None
    """Serve from N processes that share the sockets; one that dies is replaced, SIGHUP reloads them."""
    bus: Annotated[str | None, Parameter(metavar="URL")] = None
    """The bus that several processes or machines share: redis, nats or amqp; workers have one of their own."""
    drain: Annotated[float | None, Parameter(metavar="SECONDS")] = None
    """Wait this long for calls in flight after a signal; default 30."""
    debug: bool = False
    """Send callers the reason of an internal error, which is masked otherwise."""
    tls_cert: Annotated[str | None, Parameter(metavar="FILE")] = None
    """The certificate chain for tls, https and wss, as PEM."""
    tls_key: Annotated[str | None, Parameter(metavar="FILE")] = None
    """The private key, if it is not in the same file."""
    host_allowed: Annotated[list[str], Parameter(metavar="NAME")] = field(default_factory=list)
    """Host names that http and ws callers may use; default: loopback's names on loopback, otherwise any."""
    origin_allowed: Annotated[list[str], Parameter(metavar="ORIGIN")] = field(default_factory=list)
    """Origins of web pages that may call."""
    cors: Annotated[list[str], Parameter(metavar="ORIGIN")] = field(default_factory=list)
    """Origins that get CORS headers; default: none."""
    quiet: Annotated[bool, Parameter(alias="-q")] = False
    """Do not print what is served and where."""
    no_uvloop: bool = False
    """Run on asyncio's own loop even when uvloop is installed."""

    def tls(self) -> ssl.SSLContext | None:
        """The server's TLS context, if there is a certificate."""
        if self.tls_cert is None:
            if self.tls_key is not None:
                raise Usage("--tls-key needs --tls-cert")
            return None
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        try:
            context.load_cert_chain(self.tls_cert, self.tls_key)
        except OSError as fault:
            raise Usage(f"--tls-cert {self.tls_cert}: {fault.strerror or fault}") from None
        return context


SERVE_OPTIONS = ServeOptions()


@app.default
def serve(
    target: str,
    /,
    *urls: str,
    options: ServeOptions = SERVE_OPTIONS,
    wire: Wire = WIRE,
    output: Output = OUTPUT,
) -> int:
    """Serve functions on one wire or many.

    Parameters
    ----------
    target
        What to serve: module:attribute or file.py:attribute.
    urls
        Where: http, https, ws, wss, tcp, tls, unix, udp or stdio:, or at a broker: amqp, mqtt, nats, redis.
        [default: http://127.0.0.1:8000, for MCP http://127.0.0.1:8000/mcp]
    """
    if options.workers is not None and not employed():
        return supervise(
            folder_of(target),
            list(urls) or [DEFAULT_URL],
            workers=options.workers,
            bus=options.bus,
            reload=options.reload,
            quiet=options.quiet,
            loop=_loop(options),
        )
    if options.reload and not employed():
        if any(is_standard(place) for place in urls):
            raise Usage("--reload cannot be used with stdio:, because the pipes belong to the first child")
        return watch(folder_of(target))
    tls = options.tls()
    limits = _limits(options, wire)
    served = _loaded(target, urls)
    server = as_mcp(served)
    places = list(urls) or [DEFAULT_URL if server is None else DEFAULT_MCP_URL]
    if server is not None:
        server.debug = server.debug or options.debug
    if isinstance(served, Service):
        served.debug = served.debug or options.debug
        if wire.lenient:
            served.lenient = Leniency(accept_v1=True, null_id=served.lenient.null_id, string_codes=True)
    with trace_to(wire.trace) as write, asyncio.Runner(loop_factory=_loop(options)) as runner:
        status = runner.run(_serve(served, places, options, wire, limits, tls, write, output))
        _leave(status)
        return status


def _loaded(target: str, urls: tuple[str, ...]) -> Target:
    """Import what to serve. If standard output is the wire, output of the import goes to standard error."""
    if not any(is_standard(place) for place in urls):
        return load(target)
    let_go = keep()
    try:
        return load(target)
    except BaseException:
        let_go()
        raise


def employed() -> bool:
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
        tell("a method still runs in a thread that cannot be stopped; ending without it", "yellow")
        lines.flush()
        sys.stdout.flush()
        os._exit(status)


def _limits(options: ServeOptions, wire: Wire) -> Limits | None:
    limits = wire.limits(SERVER)
    if options.drain is None:
        return limits
    if options.drain < 0:
        raise Usage(f"--drain {options.drain:g}: a time is not negative")
    return (limits or SERVER).but(drain_timeout=options.drain)


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
    places: list[str],
    options: ServeOptions,
    wire: Wire,
    limits: Limits | None,
    tls: ssl.SSLContext | None,
    write: Callable[[str], object] | None,
    output: Output,
) -> int:
    stop = _stop_on_signals()
    threads = ThreadPoolExecutor(thread_name_prefix="asyncio")  # the interpreter would wait for asyncio's own
    asyncio.get_running_loop().set_default_executor(threads)
    serving = open_doors(
        served,
        urls=places,
        trace=None if write is None else json_lines(write),
        limits=limits,
        framing=wire.framing,
        tls=tls,
        hosts=options.host_allowed or None,
        origins=options.origin_allowed or None,
        cors=options.cors,
        bus=None if employed() else options.bus,
    )
    async with serving:
        on_stdio = any(is_standard(place) for place in places)
        job = serving.employment
        if not options.quiet and (job is None or job.announce):
            pid = os.getpid() if job is None else job.supervisor
            announce(served, serving.urls, on_stdio=on_stdio, output=output, pid=pid)
        waits: list[asyncio.Future[object]] = [asyncio.ensure_future(stop.wait())]
        if job is not None or all(is_standard(place) for place in places):  # end of input, or the supervisor's
            waits.append(asyncio.ensure_future(serving.ended()))
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
        await serving.close()
    threads.shutdown(wait=False, cancel_futures=True)
    return FINE


def _stop_on_signals() -> asyncio.Event:
    """An event that the first SIGINT or SIGTERM sets; the second one ends the process at once."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def on(number: int) -> None:
        if stop.is_set():
            lines.flush()
            os._exit(128 + number)
        stop.set()
        tell("draining: calls in flight may end, new ones are refused (a second signal ends at once)", "yellow")

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, on, number)
    return stop
