"""The long run: `python -m tests.chaos [kills|restarts|takeovers|tasks|events]
[rabbitmq|mqtt|redis|jetstream|nats|sqlite] [--times N] [--seed N] [--folder PATH] [--lease SECONDS]`.

Without words, all of them: 1,000 kills of workers over RabbitMQ, 50 restarts of each broker, 50 takeovers over MQTT,
200 kills of servers with tasks in a file and 100 of those with tasks on Redis, 200 kills of servers of events.
Prints what it counted; nothing is tried a second time; exit status 1 when a promise did not hold.

With `--folder`, tasks and events can be laid down and taken up again: one that was stopped, or killed itself, goes on
there with what it has done, until all of its kills are done; what it checks at the end is all of it.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from zlib import crc32

from tests.engines import brokers
from tests.engines.brokers import Engine

from . import events, tasks
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


STORES = {"sqlite": 200, "redis": 100}
"""What keeps tasks -> how many kills."""
EVENTS = 200
"""How many kills of servers of events."""
OVER: dict[str, list[str]] = {
    "kills": list(WIRES),
    "restarts": list(WIRES),
    "takeovers": ["mqtt"],
    "tasks": list(STORES),
    "events": [],
}
"""What -> over which wires, or in which stores."""


@contextmanager
def kept(folder: Path | None, name: str) -> Iterator[Path]:
    """A folder for one scenario: in the one that was named, or one that is removed at the end."""
    if folder is not None:
        (place := folder / name).mkdir(parents=True, exist_ok=True)
        yield place.resolve()
        return
    with tempfile.TemporaryDirectory(prefix="dragoman-chaos-") as own:
        yield Path(own)


def run_tasks(store: str, chosen: argparse.Namespace) -> bool:
    """Kills of servers with tasks; False when what must hold did not."""
    times = chosen.times or STORES[store]
    print(f"tasks on {store}, {times} kills", flush=True)
    with kept(chosen.folder, f"tasks-{store}") as folder, ExitStack() as stack:
        url = ""
        if store == "redis":
            (place := folder / "redis").mkdir(exist_ok=True)
            engine = stack.enter_context(brokers.started("redis", place))
            url = f"{engine.url}?prefix=chaos-{crc32(bytes(folder)):x}:"
        lease = chosen.lease or tasks.LEASE
        return holds(
            lambda: tasks.nothing_is_lost(
                asyncio.run(
                    tasks.kill_task_servers(folder, url, kills=times, seed=chosen.seed, lease=lease, watch=watch)
                )
            )
        )


def run_events(chosen: argparse.Namespace) -> bool:
    """Kills of servers of events; False when what must hold did not."""
    times = chosen.times or EVENTS
    print(f"events, {times} kills", flush=True)
    with kept(chosen.folder, "events") as folder:
        lease = chosen.lease or events.LEASE
        return holds(
            lambda: events.nothing_is_lost(
                asyncio.run(events.kill_event_servers(folder, kills=times, seed=chosen.seed, lease=lease, watch=watch))
            )
        )


def holds(scenario: Callable[[], object]) -> bool:
    """Run a scenario; False when what must hold did not."""
    try:
        scenario()
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
        return holds(lambda: PLAN[what][0](engine, WIRES[wire], Path(folder), times, seed))


def watch(words: str) -> None:
    """How far it is."""
    print(f"  ... {words}", flush=True)


def main() -> int:
    """Choose and run."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=(__doc__ or "").split("\n\n")[1])
    parser.add_argument("what", nargs="?", choices=list(OVER))
    parser.add_argument("wire", nargs="?", choices=[*WIRES, "sqlite"], help="or what keeps tasks: sqlite, redis")
    parser.add_argument("--times", type=int)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="keep everything here, and go on where a run here was stopped")
    parser.add_argument("--lease", type=float, help="seconds after which a silent process is taken for lost")
    chosen = parser.parse_args()
    if chosen.wire and chosen.what and chosen.wire not in OVER[chosen.what]:
        parser.error(f"{chosen.what} over {chosen.wire}: there is only {', '.join(OVER[chosen.what]) or 'one kind'}")
    logging.basicConfig(level=logging.ERROR)  # that brokers go and come is not news here
    held = [
        run(what, wire, chosen.times or times, chosen.seed)
        for what, (_, wires, times) in PLAN.items()
        for wire in ([chosen.wire] if chosen.wire else wires)
        if chosen.what in (None, what) and wire in OVER[what]
    ]
    if chosen.what in (None, "tasks"):
        held += [run_tasks(one, chosen) for one in STORES if chosen.wire in (None, one)]
    if chosen.what in (None, "events") and chosen.wire is None:
        held.append(run_events(chosen))
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
