from __future__ import annotations

import asyncio

import pytest

from dragoman.net.sending import LOOKS, StallWatch, Waiters

TIMEOUT = 0.04


class Transport:
    """Has what was given to it and did not leave; `left` says how much leaves until each look."""

    def __init__(self, unsent: int, left: list[int], looks: int = 0) -> None:
        self.unsent = unsent
        self.left = left
        self.looks = 0
        self.enough = asyncio.Event()
        self._wanted = looks

    def get_write_buffer_size(self) -> int:
        self.looks += 1
        if self.looks == self._wanted:
            self.enough.set()
        if self.left:
            self.unsent -= self.left.pop(0)
        return self.unsent


@pytest.mark.parametrize(
    ("left", "looks", "stalled"),
    [
        ([0] * 20, 1 + LOOKS, True),  # nothing ever leaves
        ([0, 1, 1, 1, 1, 1, 95], 7, False),  # slow, and then all of it
        ([0, 0, 0, 0, 1], 5 + LOOKS, True),  # a byte at the last moment, and then nothing
        ([100], 1, False),
    ],
)
async def test_a_write_that_makes_no_headway_is_noticed(left: list[int], looks: int, stalled: bool) -> None:
    told: list[float] = []
    transport = Transport(100, left, looks)
    watch = StallWatch(TIMEOUT, told.append)
    watch.given = 100
    watch.start(transport)
    watch.start(transport)  # it looks already
    async with asyncio.timeout(20):
        await transport.enough.wait()
    assert told == ([TIMEOUT] if stalled else [])
    watch.end()


async def two_looks() -> None:
    """As long as another watch takes for its second look."""
    transport = Transport(100, [], 2)
    watch = StallWatch(TIMEOUT, lambda seconds: None)
    watch.start(transport)
    async with asyncio.timeout(20):
        await transport.enough.wait()
    watch.end()


async def test_a_watch_that_is_stopped_looks_no_more_and_may_start_again() -> None:
    told: list[float] = []
    transport = Transport(100, [])
    watch = StallWatch(TIMEOUT, told.append)
    watch.start(transport)
    watch.stop()
    await two_looks()
    assert (transport.looks, told) == (1, [])
    watch.start(transport)
    watch.end()
    watch.start(transport)
    await two_looks()
    assert (transport.looks, told) == (2, [])


async def test_without_a_limit_nothing_is_looked_at() -> None:
    transport = Transport(100, [])
    StallWatch(None, lambda seconds: None).start(transport)
    assert transport.looks == 0


async def test_all_waiters_go_on_and_a_cancelled_one_does_not_hold_up_the_others() -> None:
    waiters = Waiters()
    tasks = [asyncio.create_task(waiters.wait()) for _ in range(3)]
    await asyncio.sleep(0)
    tasks[1].cancel()
    waiters.wake()
    waiters.wake()
    async with asyncio.timeout(20):
        ended = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(one) for one in ended] == [type(None), asyncio.CancelledError, type(None)]
