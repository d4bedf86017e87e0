"""`dragoman demo`: one calculator, called on every wire and calling back; then some wrong calls with their answers, and
the same calculator as an MCP tool in both eras. With `--brokers` also over the brokers that run or can be started.

Exit status 1 when a result is not as expected; the sentence at the end says which.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import msgspec
from cyclopts import App, Group, Parameter
from rich.console import RenderableType
from rich.highlighter import JSONHighlighter
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from ..exit_status import ANSWERED_WITH_ERROR, FINE, ending_of
from ..options import OUTPUT, Output
from ..progress import read_progress
from ..terminal import clean, compact, out, show
from .brokers import BROKERS, broker_rounds, play_over
from .calculator import api
from .eras import Era, eras
from .rounds import CALLS, Exchanged, Round, make, mistakes, play, progress, rounds

app: App = App(
    name="demo",
    help_epilogue="""\
Examples:

  dragoman demo
  dragoman demo --brokers
  dragoman demo --json | jq '.rounds[] | [.wire, .median_ms]'

To serve the same service: dragoman serve dragoman.cli.demo.calculator:api""",
)

DEMO_GROUP = Group("Demo", sort_key=10)


@app.default
def demo(
    *, brokers: Annotated[bool, Parameter(group=DEMO_GROUP, show_default=False)] = False, output: Output = OUTPUT
) -> int:
    """See a calculator answer on every wire, and as an MCP tool, in about three seconds.

    Parameters
    ----------
    brokers
        Also use RabbitMQ, MQTT, NATS and Redis, if they run at their usual local ports or can be started.
    """
    with tempfile.TemporaryDirectory(prefix="dragoman-", ignore_cleanup_errors=True) as directory:
        return asyncio.run(_demo(Path(directory), output, brokers=brokers))


async def _demo(folder: Path, output: Output, *, brokers: bool) -> int:
    rows, wrong = rounds(folder), mistakes()
    if brokers:
        rows += broker_rounds()
    tried: list[Era] = []
    show = not output.json
    if show:
        _title(rows)
    await _rounds(rows, folder, show)
    failures = [f"{row.wire}: {row.note}" for row in rows if row.state == "failed"]
    try:
        last = await _progress(show)
        await make(wrong)
        tried = await eras()
    except Exception as fault:
        failures.append(ending_of(fault).text or type(fault).__name__)
    else:
        failures += [f"{each.what}: the answer is not the error {each.code}" for each in wrong if not each.fine]
        failures += [] if last == "done" else [f"slow answered {last!r}"]
        failures += [f"MCP {era.revision}: {era.note}" for era in tried if not era.fine]
    if show:
        _wrong(wrong)
        _mcp(tried)
        _sum_up(rows, failures)
    else:
        found = {"fine": not failures, "rounds": [*map(_as_json, rows)], "wrong_calls": [*map(_bytes, wrong)]}
        print(compact(found | {"mcp": [*map(_era, tried)]}))
    return ANSWERED_WITH_ERROR if failures else FINE


def _title(rows: list[Round]) -> None:
    about = f"  {len(api.methods)} methods on {len(rows)} wires, called both ways; the median of {CALLS} calls"
    out.print(Text.assemble((api.name, "bold"), (about, "dim")))
    out.print()


# -- the wires ------------------------------------------------------------------------------------


async def _rounds(rows: list[Round], folder: Path, show: bool) -> None:
    """Play the rounds, one after another; a live table on a terminal, a line each elsewhere."""
    if show and out.is_terminal:
        with Live(_table(rows), console=out, refresh_per_second=12) as live:
            for row in rows:
                await _play(row, folder, lambda: live.update(_table(rows)))
            live.update(_table(rows), refresh=True)
        return
    for row in rows:
        await _play(row, folder, lambda: None)
        if show:
            print(
                "  ".join(f"{cell:{width}}" for cell, width in zip(_cells(row), WIDTHS, strict=True)).rstrip(),
                flush=True,
            )


async def _play(row: Round, folder: Path, changed: Callable[[], None]) -> None:
    broker = next((one for one in BROKERS if one.name == row.wire), None)
    await (play(row, folder, changed) if broker is None else play_over(broker, row, folder, changed))


HEADS = ("wire", "request", "answer", "median", "calls back")
WIDTHS = (15, 29, 11, 7, 0)


def _cells(row: Round) -> tuple[str, str, str, str, str]:
    """A round as texts, one for each column."""
    answer = "" if row.answer is None else compact(row.answer)
    median = "" if row.median is None else f"{row.median:.2f} ms"
    back = "" if row.state in ("waiting", "running") else "one way"
    if row.state in ("skipped", "failed"):
        return row.wire, _request(row), answer, row.state, clean(row.note)
    if row.promise:
        return row.wire, _request(row), answer, median, back and row.promise
    return row.wire, _request(row), answer, median, row.called_back or ("" if row.duplex else back)


def _request(row: Round) -> str:
    """The call in one line."""
    if isinstance(row.params, dict):
        words = [f"{name}={compact(value)}" for name, value in row.params.items()]
    else:
        words = [compact(value) for value in row.params] if isinstance(row.params, list) else []
    text = ", ".join(words)
    return f"{row.method}({text if len(text) < 24 else text[:18].rstrip(', ') + ', ...'})"


def _table(rows: list[Round]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    last = "calls back, or promise" if any(row.promise for row in rows) else HEADS[-1]
    for title in (*HEADS[:-1], last):
        table.add_column(title, justify="right" if title == "median" else "left", no_wrap=title != last)
    for row in rows:
        wire, request, answer, median, back = _cells(row)
        if row.state == "waiting":
            table.add_row(Text(wire, "dim"), Text(request, "dim"))
            continue
        running = row.state == "running" and row.median is None
        time: RenderableType = Spinner("dots", style="cyan") if running else Text(median, STYLES.get(row.state, ""))
        style = "green" if row.called_back else "dim"
        table.add_row(Text(wire, "bold"), Text(request), Text(answer, "cyan"), time, Text(back, style))
    return table


STYLES = {"skipped": "yellow", "failed": "bold red"}


# -- a call that takes its time -------------------------------------------------------------------


async def _progress(show: bool) -> str:
    """Call `slow` and show its progress."""
    if not show:
        return await progress(lambda value: None)
    title = "slow(1.0, 10) tells its progress"
    out.print()
    if not out.is_terminal:
        values: list[Any] = []
        answer = await progress(values.append)
        print(
            f"{title}: {', '.join(f'{read_progress(value).done:g} %' for value in values)}, then {compact(answer)}",
            flush=True,
        )
        return answer
    with Live(Text(title), console=out, refresh_per_second=12) as live:

        def line(done: float, text: str, style: str = "") -> Table:
            grid = Table.grid(padding=(0, 2, 0, 0))
            grid.add_row(Text(title), ProgressBar(total=100, completed=done, width=24), Text(text, style))
            return grid

        def on(value: Any) -> None:
            said = read_progress(value)
            live.update(line(said.done or 0.0, clean(said.text)))

        answer = await progress(on)
        live.update(line(100, compact(answer), "cyan"), refresh=True)
    return answer


# -- what goes wrong ------------------------------------------------------------------------------


def _wrong(wrong: list[Exchanged]) -> None:
    out.print()
    out.print(Text.assemble(("wrong calls", "bold"), ("  over TCP, the exact bytes that went and came", "dim")))
    for each in wrong:
        out.print()
        out.print(
            Text(each.what + ("" if each.fine else "  (not the answer it must be)"), "" if each.fine else "bold red")
        )
        _message("→", each.sent)
        _message("←", each.received)


def _message(arrow: str, raw: bytes) -> None:
    text = Text(clean(raw.decode("utf-8", "backslashreplace")))
    if out.is_terminal:
        JSONHighlighter().highlight(text)
    out.print(Text.assemble((f"  {arrow} ", "dim"), text), soft_wrap=True)


# -- MCP ------------------------------------------------------------------------------------------


def _mcp(tried: list[Era]) -> None:
    out.print()
    out.print(Text.assemble(("MCP", "bold"), ("  the same subtract as a tool, in both eras, over TCP", "dim")))
    for era in tried:
        out.print()
        out.print(Text.assemble((era.revision, "bold"), f": {era.what}" if era.fine else f": {clean(era.note)}"))
        for arrow, raw in era.messages:
            _message(arrow, raw)


NEXT_STEPS = (
    (
        "Yours next:",
        "dragoman serve dragoman.cli.demo.calculator:api",
        "dragoman call http://127.0.0.1:8000 subtract 42 23",
    ),
    (
        "or an MCP server:",
        "dragoman serve dragoman.cli.demo.eras:app",
        "dragoman tool http://127.0.0.1:8000/mcp subtract minuend=42 subtrahend=23",
    ),
    ("and in a browser, while either is served:", "http://127.0.0.1:8000/docs"),
)
"""What to try after the demo: words, and command lines."""


def _sum_up(rows: list[Round], failures: list[str]) -> None:
    out.print()
    for row in rows:
        if row.state == "skipped":
            show(Text.assemble((f"{row.wire} was left out: ", "yellow"), clean(row.note)))
    for failure in failures:
        show(Text.assemble(("failed  ", "bold red"), clean(failure)))
    if not failures:
        for words, *lines in NEXT_STEPS:
            show(words, "dim")
            for line in lines:
                show(line, indent=2)


def _as_json(row: Round) -> dict[str, Any]:
    return {
        "wire": row.wire,
        "url": row.url,
        "method": row.method,
        "params": None if row.params is msgspec.UNSET else row.params,
        "state": row.state,
        "answer": row.answer,
        "median_ms": None if row.median is None else round(row.median, 4),
        "called_back": row.called_back,
        "promise": row.promise,
        "note": row.note,
    }


def _bytes(each: Exchanged) -> dict[str, Any]:
    return {
        "what": each.what,
        "sent": each.sent.decode(),
        "received": each.received.decode("utf-8", "backslashreplace"),
        "fine": each.fine,
    }


def _era(era: Era) -> dict[str, Any]:
    return {
        "revision": era.revision,
        "messages": [
            {"arrow": arrow, "message": raw.decode("utf-8", "backslashreplace")} for arrow, raw in era.messages
        ],
        "fine": era.fine,
        "note": era.note,
    }
