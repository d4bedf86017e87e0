"""Wires that go dead with their sockets open, poison, full queues, and clocks that are off; under load."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from dragoman import Context, RpcError, Service, connect, serve
from tests.engines.brokers import Engine

from .ledger import read
from .nursery import nursery
from .proxy import proxy
from .scenarios import scene, settled, take_over
from .tally import Tally, tally
from .test_kills import nothing_is_lost
from .wires import KEEPING, WIRES, over

RATE = 100.0
DEAD_FOR = 5.0
"""Seconds that a wire is dead: both ends notice in less."""


@pytest.fixture
def engine(wire: str, request: pytest.FixtureRequest) -> Engine:
    """The broker of a wire."""
    found: Engine = request.getfixturevalue(WIRES[wire].fixture)
    return found


@over(KEEPING)
async def test_a_worker_s_wire_goes_dead(wire: str, engine: Engine, tmp_path: Path) -> None:
    """What it has goes to another when the broker notices, and it works again when its wire does."""
    path = WIRES[wire].path(WIRES[wire].brisk)
    start = time.monotonic()
    async with (
        proxy(engine) as way,
        scene(engine.url + path, tmp_path, workers=1, seed=3, rate=RATE) as (nest, load),
    ):
        await nest.serving(await nest.start(way.url + path))
        for _ in range(2):
            await load.more(50)
            way.freeze()
            await asyncio.sleep(DEAD_FOR)
            way.thaw()
        await load.more(50)
        await load.stop()
        await settled(nest, load)
        found = tally(f"{wire}: a worker's dead wire", 2, time.monotonic() - start, load, read(nest.ledger))
    nothing_is_lost(found)


@over(KEEPING)
async def test_a_dead_wire_costs_one_delivery(wire: str, engine: Engine) -> None:
    """However long it is dead: what the broker sent into it reached no worker, and is not given up for that."""
    api = Service("patient")

    @api.method
    async def times(ctx: Context) -> int:
        "How often this request was delivered before."
        return ctx.redelivered

    path = WIRES[wire].path(WIRES[wire].brisk.replace("deliveries=4", "deliveries=2"))
    async with proxy(engine) as way, serve(api, urls=[way.url + path]), connect(engine.url + path) as peer:
        assert await peer.call("times", timeout=60) == 0
        way.freeze()
        call = asyncio.create_task(peer.call("times", timeout=60))
        await asyncio.sleep(2 * DEAD_FOR)
        way.cut()
        way.thaw()
        assert await call <= 1


@over(WIRES)
async def test_the_caller_s_wire_goes_dead(wire: str, engine: Engine, tmp_path: Path) -> None:
    """Every call ends in its deadline, and those that are made when the wire is back are answered."""
    path = WIRES[wire].path(WIRES[wire].brisk)
    start = time.monotonic()
    async with proxy(engine) as way:
        by = way.url + path
        async with scene(engine.url + path, tmp_path, workers=2, seed=4, rate=RATE, by=by) as (nest, load):
            back = []
            for _ in range(2):
                await load.more(50)
                way.freeze()
                await asyncio.sleep(DEAD_FOR)
                way.cut()
                way.thaw()
                there = time.monotonic()
                back.append(await load.first_since(there) - there)
            await load.stop()
            await settled(nest, load)
            found = tally(f"{wire}: the caller's dead wire", 2, time.monotonic() - start, load, read(nest.ledger), back)
    if WIRES[wire].mailbox:
        nothing_is_lost(found)
    else:
        print(f"\n{found}")
        assert (found.pending, found.late, found.unmarked) == (0, 0, [])
        assert all(kind.startswith(("CallTimeout: ", "Broken: ")) for kind in found.errors)
    assert len(found.reconnections) == found.blows


@over(KEEPING)
async def test_poison(wire: str, engine: Engine, tmp_path: Path) -> None:
    """A request that kills the workers that take it kills three, is answered with an error, and harms no other."""
    url = engine.url + WIRES[wire].path(WIRES[wire].brisk.replace("deliveries=4", "deliveries=3"))
    start = time.monotonic()
    async with scene(url, tmp_path, workers=5, seed=5, rate=RATE, deadline=60.0) as (nest, load):
        await load.more(50)
        async with connect(url) as other:
            with pytest.raises(RpcError, match="given up after 3 deliveries"):
                await other.call("die", ["poison"], timeout=60)
        await load.more(50)
        await load.stop()
        await settled(nest, load)
        runs = read(nest.ledger)
        found = tally(f"{wire}: poison", 1, time.monotonic() - start, load, runs)
    print(f"\n{found}")
    assert len(runs.begun["die"]["poison"]) == 3
    assert runs.begun["die"]["poison"] == sorted(set(runs.begun["die"]["poison"]))
    assert (found.pending, found.late, found.unmarked, found.lost) == (0, 0, [], [])
    # a call that was with all three of the dead is suspected as well
    assert all("given up after 3 deliveries" in kind for kind in found.errors)


@pytest.mark.xdist_group("mosquitto")
@pytest.mark.parametrize("seed", [8, 9, 10])
async def test_who_takes_over_dies_of_it(seed: int, mosquitto: Engine, tmp_path: Path) -> None:
    """On MQTT the rest of a dead worker's requests is fetched by another. Here that is the only one left, and it dies
    of what it fetched; one that comes then fetches what both had."""
    one = WIRES["mqtt"]
    url = mosquitto.url + one.path(one.brisk.replace("deliveries=4", "deliveries=3"))
    taken_over(*await take_over(url, tmp_path, seed=seed))


def taken_over(found: Tally, poisoned: list[int]) -> None:
    """After a takeover by a worker that died, too: a call that all three dead workers had may be suspected."""
    print(f"\n{found}")
    assert poisoned == [0, 1, 2]
    assert (found.pending, found.unmarked, found.lost, found.unanswered) == (0, [], [], [])
    assert all("given up after 3 deliveries" in kind for kind in found.errors)


@over(name for name in KEEPING if WIRES[name].bound)
async def test_a_full_queue(wire: str, engine: Engine, tmp_path: Path) -> None:
    """What is too much is refused immediately and by name; what was taken is answered when a worker comes."""
    url = engine.url + WIRES[wire].path(WIRES[wire].brisk, f"{WIRES[wire].bound}=20")
    start = time.monotonic()
    async with scene(url, tmp_path, workers=1, seed=6, rate=RATE) as (nest, load):
        await load.more(20)
        nest.kill(nest.living[0])
        await load.refused()
        await nest.serving(await nest.start(url))
        await load.more(50)
        await load.stop()
        await settled(nest, load)
        found = tally(f"{wire}: a full queue", 1, time.monotonic() - start, load, read(nest.ledger))
    print(f"\n{found}")
    assert (found.pending, found.late, found.unmarked, found.lost, found.unanswered) == (0, 0, [], [], [])
    assert found.errors
    assert all(kind.startswith("Refused: ") for kind in found.errors)


@over(WIRES)
@pytest.mark.parametrize("skew", [-3600.0, -5.0, 5.0, 3600.0])
async def test_a_worker_s_clock_is_off(wire: str, skew: float, engine: Engine, tmp_path: Path) -> None:
    """Deadlines travel as times of day. A clock that is behind runs what it need not; one that is ahead by less than a
    call's time harms none; by more, it runs nothing: its calls end in their deadline, and nothing is run late."""
    url = engine.url + WIRES[wire].path()
    async with nursery(tmp_path) as nest:
        await nest.serving(await nest.start(url, skew=skew))
        async with connect(url) as peer:
            patience = 3.0 if skew > 10 else 30.0
            calls = [asyncio.create_task(peer.call("charge", [str(n), 0.01], timeout=patience)) for n in range(20)]
            if skew > 10:
                for call in calls:
                    with pytest.raises(TimeoutError):
                        await call
            else:
                await asyncio.gather(*calls)
        runs = read(nest.ledger)
    assert len(runs.begun.get("charge", {})) == (0 if skew > 10 else 20)
