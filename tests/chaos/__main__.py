"""The long run: `python -m tests.chaos [kills|restarts] [rabbitmq|mqtt|redis|jetstream|nats] [--times N] [--seed N]`.

Without words, all of them: 1,000 kills of workers over RabbitMQ and 50 restarts of each broker. Prints what it counted;
exit status 1 when a promise did not hold.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
import tempfile
from pathlib import Path

from tests.brokers import engines

from .scenarios import kill_workers, restart_broker
from .test_kills import nothing_is_lost
from .test_restarts import as_promised
from .wires import INNOCENT, WIRES

KILLS, RESTARTS = 1_000, 50


def run(what: str, wire: str, times: int, seed: int) -> bool:
    """One scenario; False when what must hold did not."""
    one = WIRES[wire]
    print(f"{what} over {wire}, {times} times", flush=True)
    with engines.started(one.fixture) as engine, tempfile.TemporaryDirectory(prefix="dragoman-chaos-") as folder:
        url = engine.url + one.path(*([INNOCENT] if what == "kills" else []))
        if what == "kills":
            work = kill_workers(url, Path(folder), kills=times, seed=seed, watch=watch)
        else:
            work = restart_broker(engine, url, Path(folder), times=times, seed=seed, watch=watch)
        found = asyncio.run(work)
    try:
        if what == "kills":
            nothing_is_lost(found)
        else:
            as_promised(found, one.keeps)
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
    parser.add_argument("what", nargs="?", choices=["kills", "restarts"])
    parser.add_argument("wire", nargs="?", choices=list(WIRES))
    parser.add_argument("--times", type=int)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    logging.basicConfig(level=logging.ERROR)  # that brokers go and come is no news here
    plan = [("kills", "rabbitmq")] if chosen.wire is None else [("kills", chosen.wire)]
    plan += [("restarts", wire) for wire in WIRES if chosen.wire in (None, wire)]
    held = [
        run(what, wire, chosen.times or (KILLS if what == "kills" else RESTARTS), chosen.seed)
        for what, wire in plan
        if chosen.what in (None, what)
    ]
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
