"""Which process is killed when."""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from dragoman import RpcError, connect
from dragoman.engines.mqtt.connection import MqttEndpoint, MqttLink
from dragoman.engines.mqtt.messages import MqttMessage
from dragoman.engines.mqtt.topics import topic_of
from dragoman.net.urls import parse
from tests.engines.brokers import Engine

from .ledger import read
from .load import DEADLINE, RATE, Load
from .nursery import Nursery, nursery
from .tally import Tally, present, tally

SETTLED = 30.0
"""Seconds after the last call within which accepted notifications must have been run."""
AWAY = 120.0
"""Seconds that calls have where brokers restart: a busy machine takes that long to stop one and to start it."""
Watch = Callable[[str], None]
"""Told how far it is, by scenarios that take long."""


@asynccontextmanager
async def scene(
    url: str,
    folder: Path,
    *,
    workers: int,
    seed: int,
    rate: float = RATE,
    deadline: float = DEADLINE,
    by: str = "",
) -> AsyncIterator[tuple[Nursery, Load]]:
    """Workers that serve a URL and a caller that calls there, or `by` another way to the same place."""
    async with nursery(folder) as nest:
        await nest.start(url)
        await nest.serving()  # the first alone, as a supervisor does: RabbitMQ may fail where two make a queue at once
        for _ in range(1, workers):
            await nest.start(url)
        await nest.serving()
        async with connect(by or url, timeout=deadline) as peer:
            load = Load(peer, seed=seed, rate=rate, deadline=deadline)
            try:
                yield nest, load
            finally:
                await load.abandon()


async def settled(nest: Nursery, load: Load) -> None:
    """Wait for what was accepted and owes no answer."""
    until = time.monotonic() + SETTLED
    accepted = {call.key for call in load.calls if call.method == "note" and call.outcome == "answered"}
    while not accepted <= read(nest.ledger).done.get("note", {}).keys() and time.monotonic() < until:  # noqa: ASYNC110
        await asyncio.sleep(0.1)


async def kill_workers(
    url: str, folder: Path, *, kills: int, seed: int, workers: int = 4, watch: Watch | None = None
) -> Tally:
    """`kill -9` of one worker after the other, sometimes of all together; each is replaced immediately."""
    dice = random.Random(seed)
    start = time.monotonic()
    async with scene(url, folder, workers=workers, seed=seed) as (nest, load):
        done = 0
        while done < kills:
            await load.more(dice.randrange(10, 60))
            victims = min(workers if dice.random() < 0.05 else 1, kills - done)
            for pid in dice.sample(nest.living, victims):
                nest.kill(pid)
            done += victims
            for _ in range(victims):
                await nest.start(url)
            if watch is not None and done % 100 < victims:
                watch(
                    f"{done} kills in {time.monotonic() - start:.0f} s, {load.answered} answered, {dict(load.errors)}"
                )
        await nest.serving()
        await load.stop()
        await settled(nest, load)
        return tally(f"kill -9 of workers, seed {seed}", done, time.monotonic() - start, load, read(nest.ledger))


async def take_over(url: str, folder: Path, *, seed: int, rate: float = 100.0) -> tuple[Tally, list[int]]:
    """Two workers of an MQTT topic. One dies of a request; the other, the only one left, takes over what it had and
    dies of the same request; of two new ones one takes over what both had. Returns how often the request had been
    delivered before, for each worker that died of it, beside the tally. `url` says `deliveries=3`."""
    start = time.monotonic()
    async with (
        scene(url, folder, workers=2, seed=seed, rate=rate, deadline=AWAY) as (nest, load),
        connect(url) as other,
        dead_letters(url) as dead,
    ):
        await load.more(50)
        fate = asyncio.create_task(other.call("die", ["poison"], timeout=AWAY))
        await nest.loss()
        await nest.loss()
        await nest.start(url)
        await nest.start(url)
        with pytest.raises(RpcError, match="given up after 3 deliveries"):
            await fate
        await load.more(50)
        await load.stop()
        await settled(nest, load)
        runs = read(nest.ledger)
        aside = {body["params"][0] for body in map(msgspec.json.decode, dead) if body["method"] == "note"}
        title = f"mqtt: the worker that takes over dies, seed {seed}"
        found = tally(title, 1, time.monotonic() - start, load, runs, aside=aside)
    return found, runs.begun["die"]["poison"]


@asynccontextmanager
async def dead_letters(url: str) -> AsyncIterator[list[bytes]]:
    """What the workers of an MQTT topic set aside from now on. A notification that was with as many of the dead as the
    poison is a suspect too; no answer says so."""
    where, found = parse(url), list[bytes]()

    def take(link: MqttLink, message: MqttMessage) -> None:
        found.append(message.body)
        link.acknowledge(message)

    place = MqttEndpoint(host=where.host, port=where.port, client="dead-letters")
    link = MqttLink(place, take, lambda link, why: None)
    await link.open()
    await link.subscribe([f"{topic_of(where)}/dead"], 1)
    try:
        yield found
    finally:
        await link.close(forget=True)


def unsaved(engine: Engine, load: Load, nest: Nursery) -> set[str]:
    """The keys of which a broker that was killed knows nothing any more, though it may have confirmed them: neither
    answered nor run to the end, nor stored."""
    stored = engine.stored()
    if stored is None:
        return set()
    runs = read(nest.ledger)
    waiting = {call.key for call in load.calls if not call.outcome or not runs.done.get(call.method, {}).get(call.key)}
    return waiting - {key.decode() for key in re.findall(rb'"params":\["(\d+)"', stored)}


async def restart_broker(
    engine: Engine,
    url: str,
    folder: Path,
    *,
    times: int,
    seed: int,
    hard: bool | None = None,
    workers: int = 2,
    watch: Watch | None = None,
) -> Tally:
    """The broker is killed (`hard`), or ends in good order, or both in turn (None), and comes back."""
    engine.control()
    dice = random.Random(seed)
    start = time.monotonic()
    outages: list[tuple[float, float]] = []
    back: list[float] = []
    forgotten: set[str] = set()
    async with scene(url, folder, workers=workers, seed=seed, deadline=AWAY + DEADLINE) as (nest, load):
        for n in range(times):
            await load.more(dice.randrange(50, 200))
            gone = time.monotonic()
            if n % 2 == 1 if hard is None else hard:
                await engine.kill()
                forgotten |= unsaved(engine, load, nest)
            else:
                await engine.stop()
            await engine.start()
            there = time.monotonic()
            outages.append((gone, there))
            # one of the calls that waited: those that are made now have to queue up behind them
            back.append(await load.first_since(gone, after=there) - there)
            if watch is not None and (n + 1) % 10 == 0:
                watch(
                    f"{n + 1} restarts in {time.monotonic() - start:.0f} s, {load.answered} answered, {dict(load.errors)}"
                )
        await load.stop(forgotten)
        await settled(nest, load)
        title = f"{engine.scheme}: restarts of the broker, seed {seed}"
        found = tally(title, times, time.monotonic() - start, load, read(nest.ledger), back, forgotten)
        found.waited = max(present(call, outages) for call in load.calls if call.outcome)
        return found
