"""Workers as processes of their own, made quickly: this program imports everything once and forks.

It reads lines of JSON, `{"url": ..., "ledger": ..., "skew": 0}`, and makes a worker for each, which says
`born PID`, `ready PID`. A worker whose nursery is gone dies with it.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import logging
import os
import signal
import sys
import time

import msgspec

import dragoman.engines.amqp.wire
import dragoman.engines.mqtt.wire
import dragoman.engines.nats.wire
import dragoman.engines.redis.wire
from dragoman import Context, Service, serve
from dragoman.transports.broker import contract

from .ledger import Ledger

_DIE_WITH_PARENT = 1
_wires = (
    dragoman.engines.amqp.wire,
    dragoman.engines.mqtt.wire,
    dragoman.engines.nats.wire,
    dragoman.engines.redis.wire,
)


class Order(msgspec.Struct):
    """What a worker shall be."""

    url: str
    ledger: str
    skew: float = 0.0
    """Seconds that its clock is ahead."""


def service(ledger: Ledger) -> Service:
    """What the chaos calls. Every method tells its ledger before its work and after it."""
    api = Service("chaos")

    async def run(method: str, key: str, seconds: float, ctx: Context) -> int:
        ledger.write("begin", method, key, ctx.redelivered)
        await asyncio.sleep(seconds)
        ledger.write("end", method, key, ctx.redelivered)
        return os.getpid()

    @api.method
    async def charge(key: str, seconds: float, ctx: Context) -> int:
        "Not to be done twice by a worker that is not told of the first time."
        return await run("charge", key, seconds, ctx)

    @api.method(idempotent=True)
    async def look(key: str, seconds: float, ctx: Context) -> int:
        "May be done again."
        return await run("look", key, seconds, ctx)

    @api.method
    async def note(key: str, ctx: Context) -> None:
        "For notifications."
        await run("note", key, 0.0, ctx)

    @api.method
    async def die(key: str, ctx: Context) -> None:
        "Poison: kills the worker that takes it."
        ledger.write("begin", "die", key, ctx.redelivered)
        os.kill(os.getpid(), signal.SIGKILL)

    return api


async def work(order: Order) -> None:
    """Serve until killed."""
    async with serve(service(Ledger(order.ledger)), urls=[order.url]) as serving:
        say("ready")
        await serving.ended()


def say(what: str) -> None:
    """Tell the process that holds the nursery."""
    os.write(1, f"{what} {os.getpid()}\n".encode())


def child(order: Order) -> None:
    """A worker's whole life."""
    ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    logging.basicConfig(
        filename=f"{order.ledger}.log", level=logging.INFO, format="%(process)d %(asctime)s %(message)s"
    )
    if order.skew:
        contract.now = lambda: time.time() + order.skew
    say("born")
    try:
        asyncio.run(work(order))
    except BaseException:
        logging.exception("a worker ended")
    os._exit(0)


def main() -> None:
    """Take orders until the pipe ends."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # they are not waited for: they are gone when they are dead
    gc.freeze()
    for line in sys.stdin.buffer:
        order = msgspec.json.decode(line, type=Order)
        if os.fork() == 0:
            child(order)


if __name__ == "__main__":
    main()
