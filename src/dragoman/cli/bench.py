"""`dragoman bench`: a small load test of one method at one URL.

Rules: up to `--concurrency` calls overlap on one peer. The clock is monotonic and starts after a first call, which is
not counted, so connecting is not measured. Every call counts, answered or not; an error from the peer is an answer.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from time import perf_counter
from typing import Annotated, Any

from cyclopts import App, Parameter
from msgspec import Raw, Struct, UnsetType, field
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from ..channel import ChannelError
from ..jsonrpc.errors import BadAnswer, CallTimeout, RpcError
from ..rpc.peer import Peer
from .arguments import params_of
from .call import Params
from .ends import ANSWERED_WITH_ERROR, FINE, NO_ANSWER, Usage
from .options import LINK, OUTPUT, WIRE, Link, Output, Wire
from .reach import reached
from .terminal import clean, compact, err, out

LATENCIES = 1_000_000
"""Latencies kept for the percentiles; beyond that number, the latest."""

app = App(
    name="bench",
    help_epilogue="""\
Examples:

  dragoman bench http://127.0.0.1:8000 subtract 42 23
  dragoman bench tcp://127.0.0.1:9000 subtract 42 23 -c 256 -s 10
  dragoman bench unix:calc.sock sum 1 2 3 --calls 100000 --json
  dragoman bench http://127.0.0.1:8000         without a method: rpc.discover

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


@app.default
def bench(
    url: str,
    method: str = "rpc.discover",
    /,
    *args: str,
    params: Params = None,
    calls: Annotated[int | None, Parameter(alias="-n", show_default=False)] = None,
    seconds: Annotated[float | None, Parameter(alias="-s", show_default=False)] = None,
    concurrency: Annotated[int, Parameter(alias="-c")] = 32,
    link: Link = LINK,
    wire: Wire = WIRE,
    output: Output = OUTPUT,
) -> int:
    """Measure how many calls per second a peer answers, and their latency.

    Parameters
    ----------
    url
        Where: http, https, ws, wss, tcp, tls, unix or udp; or a command to start.
    method
        The method to call.
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
    given = params_of(args, params)
    if calls is None and seconds is None:
        seconds = 5.0
    tally = asyncio.run(_bench(url, method, given, calls, seconds, concurrency, link, wire))
    if output.json:
        print(compact(tally.as_json()))
    else:
        _show(tally, concurrency)
    if tally.failures:
        return NO_ANSWER
    return ANSWERED_WITH_ERROR if tally.errors else FINE


async def _bench(
    url: str,
    method: str,
    params: Raw | UnsetType,
    calls: int | None,
    seconds: float | None,
    concurrency: int,
    link: Link,
    wire: Wire,
) -> Tally:
    async with reached(url, link, wire) as peer:
        with contextlib.suppress(RpcError):
            await peer.call(method, params, result=Raw)
        with _progress(calls, seconds) as show:
            return await load(peer, method, params, calls, seconds, concurrency, show)


async def load(
    peer: Peer,
    method: str,
    params: Any,
    calls: int | None,
    seconds: float | None,
    concurrency: int,
    show: Callable[[float, int], None],
) -> Tally:
    """Call until `calls` were made or `seconds` have passed; `show(elapsed, calls)` is called ten times a second."""
    tally = Tally()
    started = perf_counter()
    end = started + seconds if seconds is not None else float("inf")
    left = calls if calls is not None else -1

    async def caller() -> None:
        nonlocal left
        while left and perf_counter() < end:
            left -= 1
            at = perf_counter()
            try:
                await peer.call(method, params, result=Raw)
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
        await asyncio.gather(*(caller() for _ in range(min(concurrency, calls or concurrency))))
    finally:
        report.cancel()
        tally.seconds = perf_counter() - started
    return tally


@contextlib.contextmanager
def _progress(calls: int | None, seconds: float | None) -> Iterator[Callable[[float, int], None]]:
    """A progress bar on stderr, if that is a terminal."""
    columns = (BarColumn(32), TextColumn("{task.fields[rate]}", style="dim"), TimeRemainingColumn())
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as bar:
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
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(style="dim")
    table.add_column()
    table.add_row("calls", f"{tally.calls:,} in {tally.seconds:.2f} s, {concurrency} at once")
    table.add_row("latency", f"p50 {latency['p50']:.2f} ms   p95 {latency['p95']:.2f} ms   p99 {latency['p99']:.2f} ms")
    for title, found_there in (("errors", tally.errors), ("no answer", tally.failures)):
        for text, number in found_there.most_common(5):
            table.add_row(Text(title, "red"), f"{number:,}  {clean(text)[:200]}")
    if not tally.errors and not tally.failures:
        table.add_row("errors", "none")
    out.print(table)
