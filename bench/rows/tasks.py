"""Tasks in a file: what it costs the store to create, complete and read them, and what calls that become tasks cost."""

from __future__ import annotations

from bench.figures import Row, at_least, at_most
from bench.referee import Contestant, Referee

OURS = ["-m", "bench.servers.tasks"]
LIMIT = ["-m", "bench.limits.tasks"]
TASKS = {
    "create": ("32 tasks created at once, in a file", 200, 60.0 * 32),
    "complete": ("32 tasks created and completed at once, in a file", 100, 250.0 * 32),
    "read": ("a task read, from a file", 5_000, 20.0),
}
"""For each: the title of its row, the calls of one sample, and the most microseconds that it may take."""


def tasks(referee: Referee) -> list[Row]:
    """A row for each."""
    rows = []
    for task, (title, calls, most) in TASKS.items():
        ours = Contestant("dragoman", OURS, calls, task=task)
        limit = Contestant("sqlite3 by hand", LIMIT, calls, task=task)
        referee.in_process([ours, limit])
        row = Row(f"tasks-{task}", title, "us", ours.figure, limit.figure)
        median = ours.figure.median if ours.figure.samples else None
        row.goals = [at_most(f"<= {most:g} us", median, most, " us")]
        rows.append(row)
    return rows


def calls(referee: Referee) -> list[Row]:
    """Calls of MCP that become tasks, bytes to bytes."""
    program = ["-m", "bench.servers.task_calls"]
    made = Contestant("dragoman", program, 50, task="calls")
    status = Contestant("dragoman", program, 2_000, task="status")
    for one in (made, status):
        referee.in_process([one])
    made.figure.samples = [sample / 32 for sample in made.figure.samples]
    row = Row("task-call", "MCP tools/call that becomes a task and ends, 32 at once, in a file", "us", made.figure)
    cost = made.figure.median if made.figure.samples else None
    row.goals = [
        at_most("<= 200 us", cost, 200.0, " us"),
        at_least(">= 2,000 tasks/s a core", None if cost is None else 1e6 / cost, 2_000, "/s"),
    ]
    read = Row("task-status", "MCP tasks/get of a task that has ended, in a file", "us", status.figure)
    read.goals = [at_most("<= 30 us", status.figure.median if status.figure.samples else None, 30.0, " us")]
    return [row, read]
