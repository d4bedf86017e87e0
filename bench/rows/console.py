"""What the console costs a call, and a server at a steady rate: without it, with it, and with a browser at its feed
that reads, or has hung."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

from bench.environments import Missing
from bench.figures import Figure, Goal, Row, at_most, ratio
from bench.referee import Contestant, Failed, Referee
from bench.rows.telemetry import more

MANNERS = {
    "console": "with a console",
    "none": "without one",
    "reading": "and one browser that reads",
    "hung": "and one browser that has hung",
}
URLS = {"plain": "tcp://127.0.0.1:%", "mcp": "http://127.0.0.1:%/mcp"}
TOOL = {"era": "2026", "tool": "subtract_inline"}
CONNECTIONS = 32
RATE = 5_000
"""Calls a second of the steady load."""
SECONDS = 5.0
"""How long one sample of it takes."""


def contestants(kind: str, calls: int, mcp: Mapping[str, Any] | None = None) -> list[Contestant]:
    """A server in each manner."""
    program = ["-m", "bench.servers.console", kind]
    return [Contestant(told, [*program, name, URLS[kind], "PORT"], calls, mcp=mcp) for name, told in MANNERS.items()]


def console(referee: Referee) -> list[Row]:
    """An inline method over TCP, and an inline tool of MCP over HTTP: each call, then the steady load."""
    plain, tool = contestants("plain", 40_000), contestants("mcp", 8_000, TOOL)
    referee.over_wire(plain, framing="newline")
    referee.over_wire(tool, framing="http", connections=CONNECTIONS)
    rows = [
        each_call("console", "a console, TCP, inline, 32 in flight", plain),
        each_call("console-mcp", "a console, MCP tools/call over HTTP, inline", tool),
    ]
    for kind, title, mcp in (("plain", "TCP, inline", None), ("mcp", "MCP over HTTP, inline", TOOL)):
        steady = contestants(kind, 0, mcp)
        share(referee, steady, {"framing": "newline"} if mcp is None else {"connections": CONNECTIONS, "mcp": mcp})
        key = "console-share" if mcp is None else "console-mcp-share"
        rows.append(steady_load(key, f"a console at {RATE:,} calls/s, {title}", [one.figure for one in steady]))
    return rows


def each_call(key: str, title: str, made: Sequence[Contestant]) -> Row:
    """The row of microseconds of CPU for one call."""
    ours, without, _, hung = figures = [one.figure for one in made]
    row = Row(key, title, "us", ours, also=figures[1:])
    row.goals = [
        at_most("<= 1 us more than without one", more(ours, without), 1.0, " us"),
        at_most("a hung browser costs no more (within 5 %)", ratio(hung, ours), 1.05),
    ]
    return row


def steady_load(key: str, title: str, figures: Sequence[Figure]) -> Row:
    """The row of percents of a core."""
    ours, without, reading, hung = figures
    row = Row(key, title, "%", ours, also=[without, reading, hung])
    row.goals = [under("<= 5 % of a core for it", ours, without), under("<= 5 % with a browser", reading, without)]
    row.goals.append(under("<= 5 % with a hung one", hung, without))
    return row


def under(text: str, figure: Figure, without: Figure) -> Goal:
    """The goal of a share."""
    return at_most(text, more(figure, without), 5.0, " %")


def share(referee: Referee, made: Sequence[Contestant], wire: Mapping[str, Any]) -> None:
    """Fill the figures with the percents of a core that servers take under the steady load, in turn."""
    seconds = SECONDS * referee.scale
    program = "bench.load" if made[0].mcp is None else "bench.mcp_load"
    try:
        with contextlib.ExitStack() as ends:
            load = ends.enter_context(referee.generator(program))
            places = [ends.enter_context(referee.server(one)) for one in made]
            for number in range(referee.rounds + 1):
                for one, (pid, address) in zip(made, places, strict=True):
                    load.ask(do="open", name=one.name, pid=pid, address=address, **wire)
                    spent = load.ask(do="pace", name=one.name, rate=RATE, seconds=seconds if number else seconds / 5)
                    load.ask(do="close", name=one.name)
                    if number:  # the first warms it up
                        one.figure.samples.append(spent["cpu"] / seconds * 100)  # not of a busy machine's wall time
    except (Missing, Failed, OSError) as error:
        for one in made:
            one.figure.samples, one.figure.missing = [], f"{error}"
