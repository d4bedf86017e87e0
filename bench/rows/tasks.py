"""The store of tasks in a file: what it costs to create them, to create and complete them, and to read one."""

from __future__ import annotations

from bench.figures import Row, at_most
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
