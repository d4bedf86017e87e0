"""`dragoman bench`: a small load test of one method, or one tool of an MCP server, at one URL.

Rules: up to `--concurrency` calls overlap on one peer. The clock is monotonic and starts after a first call, which is
not counted, so connecting is not measured. Every call counts, answered or not; an error from the peer is an answer.
An MCP server (a URL that ends with /mcp, or `--mcp`) has its tools called, by `--sessions` clients in turn.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from time import perf_counter
from typing import Annotated, Any

from cyclopts import App, Parameter
from msgspec import Raw, Struct, UnsetType, field
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from ...channel import ChannelError
from ...jsonrpc.errors import BadAnswer, CallTimeout, RpcError
from ...mcp.protocol.revisions import NEWEST_STATEFUL
from ..advice import of_mcp
from ..arguments import params_of
from ..calls.call import Params
from ..exit_status import ANSWERED_WITH_ERROR, FINE, NO_ANSWER, Usage
from ..mcp.mcp_server import McpOptions, server_and_rest, server_at
from ..mcp.tools import arguments_for
from ..options import LINK, OUTPUT, WIRE, LinkOptions, Output, WireOptions
from ..reach import connect_peer
from ..terminal import err, out, show_rows

LATENCIES = 1_000_000
"""Latencies kept for the percentiles; beyond that number, the latest."""

app: App = App(
    name="bench",
    usage="Usage: dragoman bench [OPTIONS] URL [METHOD [ARGUMENT...]]",
    help_epilogue=f"""\
Examples:

  dragoman bench http://127.0.0.1:8000 subtract 42 23
  dragoman bench tcp://127.0.0.1:9000 subtract 42 23 -c 256 -s 10
  dragoman bench unix:calc.sock sum 1 2 3 --calls 100000 --json
  dragoman bench http://127.0.0.1:8000         without a method: rpc.discover
  dragoman bench http://127.0.0.1:8000/mcp forecast city=Beijing
  dragoman bench http://127.0.0.1:8000/mcp --sessions 8 \\
      --revision {NEWEST_STATEFUL.date}

Compare like with like: caller and server on one machine share its CPU.""",
)


class Tally(Struct):
    """The counts of a run."""

    calls: int = 0
    seconds: float = 0.0
    latencies: list[float] = field(default_factory=list)
    errors: Counter[str] = field(default_factory=Counter)
    """The errors that the peer answered, by text."""
    failures: Counter[str] = field(default_factory=Counter)
    """The reasons for which no answer came, by text."""

    def percentile(self, share: float) -> float:
        """The latency in milliseconds that `share` of the calls did not exceed."""
        ordered = sorted(self.latencies)
        return 1000 * ordered[min(int(share * len(ordered)), len(ordered) - 1)] if ordered else 0.0

    def as_json(self) -> dict[str, Any]:
        """What `--json` prints; latencies in milliseconds."""
        return {
            "calls": self.calls,
            "seconds": round(self.seconds, 3),
            "calls_per_second": round(self.calls / self.seconds, 1) if self.seconds else 0.0,
            "latency_ms": {
                name: round(self.percentile(share), 4)
                for name, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99), ("max", 1.0))
            },
            "errors": dict(self.errors),
            "failures": dict(self.failures),
        }


@Parameter(name="*", show_default=False)
@dataclass(frozen=True, kw_only=True)
class Tools:
    """Options for an MCP server, whose tools are called."""

    mcp: bool = False
    """It is an MCP server, and METHOD a tool; known by itself where the URL ends with /mcp."""
    revision: Annotated[str | None, Parameter(metavar="DATE")] = None
    """Speak this revision of MCP; stateful ones have sessions."""
    sessions: int = 1
    """Clients of the MCP server that share the calls."""


TOOLS = Tools()


@app.default
def bench(
    url: str,
    method: str = "rpc.discover",
    /,
    *args: Annotated[str, Parameter(name="ARGUMENT")],
    params: Params = None,
    calls: Annotated[int | None, Parameter(alias="-n", show_default=False)] = None,
    seconds: Annotated[float | None, Parameter(alias="-s", show_default=False)] = None,
    concurrency: Annotated[int, Parameter(alias="-c")] = 32,
    tools: Tools = TOOLS,
    link: LinkOptions = LINK,
    wire: WireOptions = WIRE,
    output: Output = OUTPUT,
) -> int:
    """Measure how many calls per second a peer answers, and their latency.

    Parameters
    ----------
    url
        The server's URL (http, https, ws, wss, tcp, tls, unix or udp), or a command to start.
    method
        The method to call, or the tool.
    args
        The arguments, by position or as name=value.
    params
        All params at once: JSON, @FILE, or - for stdin.
    calls
        Stop after this many calls.
    seconds
        Stop after this many seconds; default 5 without --calls.
    concurrency
        Calls in flight at once.
    """
    if concurrency < 1 or (calls is not None and calls < 1) or (seconds is not None and not seconds > 0):
        raise Usage("--calls, --seconds and --concurrency are above 0")
    if calls is None and seconds is None:
        seconds = 5.0
    run = _Run(calls, seconds, concurrency)
    tally = asyncio.run(_ask(url, method, args, params, tools, link, wire, run))
    if output.json:
        output.write(tally.as_json())
    else:
        _show(tally, concurrency)
    if tally.failures:
        return NO_ANSWER
    return ANSWERED_WITH_ERROR if tally.errors else FINE


class _Run(Struct, frozen=True):
    """How long to call, and how many calls at once."""

    calls: int | None
    seconds: float | None
    concurrency: int


async def _ask(
    url: str,
    method: str,
    args: tuple[str, ...],
    params: str | None,
    tools: Tools,
    link: LinkOptions,
    wire: WireOptions,
    run: _Run,
) -> Tally:
    if tools.sessions < 1:
        raise Usage("--sessions is above 0")
    if not (tools.mcp or tools.revision is not None or tools.sessions > 1 or of_mcp(url)):
        return await _bench(url, method, params_of(args, params), link, wire, run)
    options = McpOptions(access=link.access, revision=tools.revision, trace=wire.trace, lenient=wire.lenient)
    tool = None if method == "rpc.discover" else method
    return await _bench_mcp(url, tool, [*args], params, tools.sessions, options, run)


async def _bench(
    url: str, method: str, params: Raw | UnsetType, link: LinkOptions, wire: WireOptions, run: _Run
) -> Tally:
    async with connect_peer(url, link, wire) as peer:

        async def ask() -> None:
            await peer.call(method, params, result=Raw)

        return await _measure(ask, run)


async def _bench_mcp(
    url: str, tool: str | None, words: list[str], params: str | None, sessions: int, options: McpOptions, run: _Run
) -> Tally:
    """Call a tool, or without one `ping`, by several clients in turn; a tool that fails counts as an error."""
    host, _ = server_and_rest([url], options)
    async with contextlib.AsyncExitStack() as stack:
        clients = [(await stack.enter_async_context(server_at(host, options, "bench")))[0] for _ in range(sessions)]
        given = {} if tool is None else await arguments_for(clients[0], tool, words, params)
        turn = itertools.cycle(clients)

        async def ask() -> None:
            client = next(turn)
            if tool is None:
                await client.ping()
            elif (result := await client.call_tool(tool, given)).is_error is True:
                raise _failed(result.text)

        return await _measure(ask, run)


async def _measure(ask: Callable[[], Awaitable[None]], run: _Run) -> Tally:
    """Ask once, which does not count, then as long as the run says."""
    with contextlib.suppress(RpcError):
        await ask()
    with _progress(run.calls, run.seconds) as show:
        return await load(ask, run, show)


def _failed(text: str) -> RpcError:
    error = RpcError(text, code=1)
    error.name = "tool error"
    return error


async def load(ask: Callable[[], Awaitable[None]], run: _Run, show: Callable[[float, int], None]) -> Tally:
    """Ask as often and as long as the run says; `show(elapsed, calls)` is called ten times a second."""
    tally = Tally()
    started = perf_counter()
    end = started + run.seconds if run.seconds is not None else float("inf")
    left = run.calls if run.calls is not None else -1

    async def caller() -> None:
        nonlocal left
        while left and perf_counter() < end:
            left -= 1
            at = perf_counter()
            try:
                await ask()
            except RpcError as error:
                tally.errors[f"{error.name or error.code} {error.message}"] += 1
            except (CallTimeout, BadAnswer) as fault:
                tally.failures[str(fault) or type(fault).__name__] += 1
            except ChannelError as fault:
                tally.failures[str(fault)] += 1
                left = 0
            tally.calls += 1
            tally.latencies.append(perf_counter() - at)
            if len(tally.latencies) >= 2 * LATENCIES:
                del tally.latencies[:LATENCIES]

    async def reporter() -> None:
        while True:
            show(perf_counter() - started, tally.calls)
            await asyncio.sleep(0.1)

    report = asyncio.ensure_future(reporter())
    try:
        await asyncio.gather(*(caller() for _ in range(min(run.concurrency, run.calls or run.concurrency))))
    finally:
        report.cancel()
        tally.seconds = perf_counter() - started
    return tally


@contextlib.contextmanager
def _progress(calls: int | None, seconds: float | None) -> Iterator[Callable[[float, int], None]]:
    """A progress bar on stderr, if that is a terminal."""
    columns = (BarColumn(32), TextColumn("{task.fields[rate]}", style="dim"), TimeRemainingColumn())
    with Progress(*columns, console=err, transient=True, disable=not err.is_interactive) as bar:
        task = bar.add_task("", total=1.0, rate="")

        def show(elapsed: float, done: int) -> None:
            shares = [done / calls] if calls else []
            shares += [elapsed / seconds] if seconds else []
            bar.update(
                task, completed=min(1.0, max(shares)), rate=f"{done / elapsed:,.0f} calls/s" if elapsed > 0.05 else ""
            )

        yield show


def _show(tally: Tally, concurrency: int) -> None:
    found = tally.as_json()
    latency = found["latency_ms"]
    out.print(Text.assemble((f"{found['calls_per_second']:,.0f}", "bold green"), " calls/s"))
    rows = [
        (Text("calls", "dim"), f"{tally.calls:,} in {tally.seconds:.2f} s, {concurrency} at once"),
        (Text("latency", "dim"), "   ".join(f"{name} {latency[name]:.2f} ms" for name in ("p50", "p95", "p99"))),
    ]
    for title, found_there in (("errors", tally.errors), ("no answer", tally.failures)):
        rows += [(Text(title, "red"), f"{number:,}  {text[:200]}") for text, number in found_there.most_common(5)]
    if not tally.errors and not tally.failures:
        rows.append((Text("errors", "dim"), "none"))
    show_rows(rows)
