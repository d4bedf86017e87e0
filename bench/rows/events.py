"""Events: what it costs to emit them, to find who gets them, and to deliver them; and how soon a stream brings one."""

from __future__ import annotations

import contextlib
import sys

from bench.figures import Figure, Row, at_most
from bench.referee import Contestant, Failed, Referee, Talker

OURS = ["-m", "bench.servers.events"]
ROWS = {
    "emit": ("an event emitted, 32 at once, in a file", "us", 100, 1 / 32, None),
    "match": ("emit to 1,000 matching of 10,000 subscriptions, until all are queued", "ms", 20, 1e-3, 20.0),
    "deliver": ("an event emitted and delivered to a webhook, one after the other", "us", 20, 1 / 64, None),
}
"""For each: title, unit, calls of one sample, what a microsecond of a call is in the unit, and the most that it may
take."""
PUSH = 50.0
"""Milliseconds that an event may take to a client that follows by a stream."""


def events(referee: Referee) -> list[Row]:
    """A row for each."""
    return [*_costs(referee), _latency(referee)]


def _costs(referee: Referee) -> list[Row]:
    rows = []
    for task, (title, unit, calls, factor, most) in ROWS.items():
        ours = Contestant("dragoman", [*OURS, task], calls, task=task)
        limit = None
        if task == "emit":
            limit = Contestant("sqlite3 by hand", ["-m", "bench.limits.tasks"], calls, task="create")
        referee.in_process([ours] if limit is None else [ours, limit])
        for one in filter(None, (ours, limit)):
            one.figure.samples = [sample * factor for sample in one.figure.samples]
        row = Row(f"events-{task}", title, unit, ours.figure, None if limit is None else limit.figure)
        if most is not None:
            median = ours.figure.median if ours.figure.samples else None
            row.goals = [at_most(f"<= {most:g} {unit} of CPU", median, most, f" {unit}")]
        rows.append(row)
    return rows


def _latency(referee: Referee) -> Row:
    """From before `emit` to the reader of the stream, over HTTP; both ends are in one process."""
    figure = Figure("dragoman")
    with contextlib.ExitStack() as ends:
        try:
            talker = Talker([sys.executable, *OURS, "stream"], referee.server_core, {})
            ends.callback(talker.end)
            calls = max(50, int(500 * referee.scale))
            talker.ask(task="stream", calls=calls)
            for _ in range(referee.rounds):
                figure.samples.append(talker.ask(task="stream", calls=calls)["median"] * 1e3)
        except (Failed, OSError) as error:
            figure.missing = str(error)
    row = Row("events-stream", "an event to a client by a stream, median latency", "ms", figure)
    row.goals = [at_most(f"<= {PUSH:g} ms", figure.median if figure.samples else None, PUSH, " ms")]
    return row
