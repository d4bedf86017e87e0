"""The long run: `python -m tests.chaos [kills|restarts|takeovers|tasks] [rabbitmq|mqtt|redis|jetstream|nats]
[--times N] [--seed N]`.

Without words, all of them: 1,000 kills of workers over RabbitMQ, 50 restarts of each broker, 50 takeovers over MQTT and
200 kills of servers with tasks.
Prints what it counted; nothing is tried a second time; exit status 1 when a promise did not hold.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.engines import brokers
from tests.engines.brokers import Engine

from . import tasks
from .scenarios import kill_workers, restart_broker, take_over
from .test_broken import taken_over
from .test_kills import nothing_is_lost
from .test_restarts import as_promised
from .wires import INNOCENT, WIRES, Wire

Scenario = Callable[[Engine, Wire, Path, int, int], None]
"""Broker, wire, folder, times, seed; raises AssertionError where a promise does not hold."""


def kills(engine: Engine, wire: Wire, folder: Path, times: int, seed: int) -> None:
    """`kill -9` of workers."""
    url = engine.url + wire.path(INNOCENT)
    nothing_is_lost(asyncio.run(kill_workers(url, folder, kills=times, seed=seed, watch=watch)))


def restarts(engine: Engine, wire: Wire, folder: Path, times: int, seed: int) -> None:
    """The broker stops, or is killed, and starts again."""
    url = engine.url + wire.path()
    found = asyncio.run(restart_broker(engine, url, folder, times=times, seed=seed, watch=watch))
    as_promised(found, wire.keeps)


def takeovers(engine: Engine, wire: Wire, folder: Path, times: int, seed: int) -> None:
    """A worker dies, and the one that takes over what it had; each time with a seed of its own."""
    for n in range(times):
        watch(f"takeover {n + 1} of {times}")
        with tempfile.TemporaryDirectory(prefix="takeover-", dir=folder) as own:
            url = engine.url + wire.path(wire.brisk.replace("deliveries=4", "deliveries=3"))
            taken_over(*asyncio.run(take_over(url, Path(own), seed=seed + n)))


PLAN: dict[str, tuple[Scenario, list[str], int]] = {
    "kills": (kills, ["rabbitmq"], 1_000),
    "restarts": (restarts, list(WIRES), 50),
    "takeovers": (takeovers, ["mqtt"], 50),
}
"""What -> how, over which wires where none is named, how many times."""


def run_tasks(times: int, seed: int) -> bool:
    """Kills of servers with tasks, which need no broker; False when what must hold did not."""
    print(f"tasks, {times} kills", flush=True)
    with tempfile.TemporaryDirectory(prefix="dragoman-chaos-") as folder:
        try:
            tasks.nothing_is_lost(asyncio.run(tasks.kill_servers(Path(folder), kills=times, seed=seed, watch=watch)))
        except AssertionError as fault:
            print(f"FAILED: {fault}", flush=True)
            return False
    return True


def run(what: str, wire: str, times: int, seed: int) -> bool:
    """One scenario; False when what must hold did not."""
    print(f"{what} over {wire}, {times} times", flush=True)
    with (
        brokers.started(WIRES[wire].fixture) as engine,
        tempfile.TemporaryDirectory(prefix="dragoman-chaos-") as folder,
    ):
        try:
            PLAN[what][0](engine, WIRES[wire], Path(folder), times, seed)
        except AssertionError as fault:
            print(f"FAILED: {fault}", flush=True)
            return False
    return True


def watch(words: str) -> None:
    """How far it is."""
    print(f"  ... {words}", flush=True)


def main() -> int:
    """Choose and run."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=(__doc__ or "").split("\n\n")[1])
    parser.add_argument("what", nargs="?", choices=[*PLAN, "tasks"])
    parser.add_argument("wire", nargs="?", choices=list(WIRES))
    parser.add_argument("--times", type=int)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    logging.basicConfig(level=logging.ERROR)  # that brokers go and come is not news here
    held = [
        run(what, wire, chosen.times or times, chosen.seed)
        for what, (_, wires, times) in PLAN.items()
        for wire in ([chosen.wire] if chosen.wire else wires)
        if chosen.what in (None, what) and (wire == "mqtt" or what != "takeovers")
    ]
    if chosen.what in (None, "tasks"):
        held.append(run_tasks(chosen.times or 200, chosen.seed))
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
