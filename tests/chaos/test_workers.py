"""`dragoman serve --workers 4`: workers are killed one after the other under 200 calls a second, over channels that
stay."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from contextlib import AsyncExitStack

from msgspec import Struct, field

from dragoman import connect
from dragoman.channel import ChannelError
from dragoman.rpc.peer import Peer
from tests.workers.conftest import Starter

CALLERS, RATE, KILLS = 40, 200.0, 8
PATIENCE = 30.0
SERVICE = """\
import asyncio, os
from dragoman import Service

api = Service("napping", version="1.0.0")


@api.method
async def nap(seconds: float) -> int:
    await asyncio.sleep(seconds)
    return os.getpid()
"""


class Caller(Struct):
    """One channel that comes back, and the worker at its other end."""

    peer: Peer
    worker: int = 0
    calls: int = 0
    answered: int = 0
    failed: int = 0
    harmed: int = 0
    """Calls that failed though the worker at the other end lived."""
    recovered: list[float] = field(default_factory=list)
    """Seconds from the death of a worker to the next answer."""


async def test_others_are_unharmed_and_its_own_recover(starter: Starter) -> None:
    starter.file.write_text(SERVICE)
    run = await starter.serve("tcp://127.0.0.1:0", workers=4)
    dice = random.Random(7)
    died: dict[int, float] = {}
    stopped = asyncio.Event()
    async with AsyncExitStack() as stack:
        callers = [
            Caller(await stack.enter_async_context(connect(run.urls[0], reconnect=True, timeout=PATIENCE)))
            for _ in range(CALLERS)
        ]

        async def call(one: Caller, start: float) -> None:
            await asyncio.sleep(start - time.monotonic())
            while not stopped.is_set():
                one.calls += 1
                try:
                    pid = await one.peer.call("nap", [0.05], result=int)
                except ChannelError:
                    one.failed += 1
                    one.harmed += one.worker not in died
                else:
                    one.answered += 1
                    if one.worker != pid and one.worker in died:
                        one.recovered.append(time.monotonic() - died[one.worker])
                    one.worker = pid
                due = start + one.calls * CALLERS / RATE
                await asyncio.sleep(max(0.0, due - time.monotonic()))

        now = time.monotonic()
        tasks = [asyncio.create_task(call(one, now + n / RATE)) for n, one in enumerate(callers)]
        try:
            async with asyncio.timeout(PATIENCE * 3):
                await _answers(callers, 1)
                for _ in range(KILLS):
                    victim = dice.choice(sorted(run.pids.values()))
                    number = next(number for number, pid in run.pids.items() if pid == victim)
                    died[victim] = time.monotonic()
                    os.kill(victim, signal.SIGKILL)
                    await run.err.until(rf"worker {number} \(pid {victim}\) was ended by SIGKILL; another starts")
                    await run.ready(1)
                    await _answers(callers, 2)  # every one again, whichever its worker was
        finally:
            stopped.set()
            await asyncio.gather(*tasks)
    calls, answered = sum(one.calls for one in callers), sum(one.answered for one in callers)
    failed, harmed = sum(one.failed for one in callers), sum(one.harmed for one in callers)
    recovered = sorted(seconds for one in callers for seconds in one.recovered)
    print(
        f"\n{KILLS} of 4 workers killed, {CALLERS} callers: calls {calls}, answered {answered}, failed with their channel "
        f"{failed}, of callers of another worker {harmed}; channels that came back {len(recovered)}, "
        f"median {recovered[len(recovered) // 2]:.2f} s, longest {recovered[-1]:.2f} s"
    )
    assert harmed == 0
    assert answered + failed == calls
    assert failed > 0  # the blows have hit
    assert recovered


async def _answers(callers: list[Caller], more: int) -> None:
    """Wait until every caller has so many further answers."""
    until = [one.answered + more for one in callers]
    while any(one.answered < count for one, count in zip(callers, until, strict=True)):  # noqa: ASYNC110
        await asyncio.sleep(0.02)
