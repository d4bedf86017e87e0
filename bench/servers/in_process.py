"""dragoman in process: `answer` for the loopless rows (argument: how many methods), or `async` for `answer_async`."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable

from bench.servers.calculator import calculator
from bench.worker import BATCH, SINGLE, offer, offer_async


def loopless(methods: int) -> None:
    """`service.answer`."""
    answer = calculator(methods).answer
    plain = SINGLE.replace(b"subtract", b"subtract_plain")
    offer({"single": lambda: answer(SINGLE), "batch": lambda: answer(BATCH), "plain": lambda: answer(plain)})


async def on_a_loop() -> None:
    """`await service.answer_async`."""
    answer = calculator().answer_async

    def task(raw: bytes) -> Callable[[], Awaitable[object]]:
        return lambda: answer(raw)

    thread, coroutine = SINGLE.replace(b"subtract", b"subtract_plain"), SINGLE.replace(b"subtract", b"subtract_async")
    await offer_async({"single": task(SINGLE), "thread": task(thread), "async": task(coroutine), "batch": task(BATCH)})


if __name__ == "__main__":
    if sys.argv[1] == "async":
        asyncio.run(on_a_loop())
    else:
        loopless(int(sys.argv[1]))
