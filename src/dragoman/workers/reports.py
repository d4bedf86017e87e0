"""What a supervisor requests from its workers over their control pipes: reports, and answers to messages."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Literal, TypeAlias

from msgspec import Struct

from .process import WorkerProcess

REPORT_TIME = 1.0
"""Seconds to wait for a worker's report; a worker whose loop is blocked is counted as it was before."""
State: TypeAlias = Literal["starting", "serving", "draining"]


class Report(Struct, frozen=True):
    """A worker and what it reported. `number`: its number among the workers; `age`: seconds since it listens, or was
    started; `text`: its last report, empty where it has sent none."""

    number: int
    pid: int
    age: float
    state: State
    text: bytes


class Reports(Struct, frozen=True):
    """What workers reported: those that live, and the last reports of those that have ended since the request
    before."""

    living: list[Report]
    ended: list[bytes]
    starts: int
    """Workers that were started, in all."""
    failures: int
    """Workers that ended by themselves or never listened, in all."""


async def collect_reports(workers: Collection[WorkerProcess]) -> list[Report]:
    """Return every worker's report; of one that does not answer in time, the one before."""
    waiting = [worker.request_report() for worker in workers if worker.ready.done()]
    if waiting:
        await asyncio.wait(waiting, timeout=REPORT_TIME)
    now = asyncio.get_running_loop().time()
    return [
        Report(one.number, one.pid, now - one.since, _state(one), one.report)
        for one in sorted(workers, key=lambda one: (one.number, one.since))
    ]


async def collect_answers(workers: Collection[WorkerProcess], message: bytes) -> dict[int, bytes]:
    """Return the workers' answers to a JSON-RPC message of one line, by process id; without those that do not answer in
    time."""
    waiting = {worker.pid: worker.query(message) for worker in workers if worker.ready.done()}
    if waiting:
        await asyncio.wait(waiting.values(), timeout=REPORT_TIME)
    found = {pid: answer.result() for pid, answer in waiting.items() if answer.done()}
    for late in waiting.values():
        late.cancel()
    return {pid: answer for pid, answer in found.items() if answer}


def _state(worker: WorkerProcess) -> State:
    if worker.draining:
        return "draining"
    return "serving" if worker.ready.done() else "starting"
