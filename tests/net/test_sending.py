from __future__ import annotations

import asyncio

import pytest

from dragoman.jsonrpc.budget import Budget
from dragoman.jsonrpc.limits import Limits
from dragoman.net.sending import PIECE, SendWatch, Waiters

LARGE = 10**15


class Transport:
    """Has bytes that were given to it and did not leave, of which some leave between any two looks."""

    def __init__(self, unsent: int, leaves: int = 0) -> None:
        self.unsent, self.leaves = unsent, leaves
        self.looks = 0
        self.marks: tuple[int | None, int | None] = (None, None)

    def get_write_buffer_size(self) -> int:
        self.looks += 1
        self.unsent = max(self.unsent - self.leaves, 0)
        return self.unsent

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.marks = high, low

    def write(self, data: bytes) -> None:
        self.unsent += len(data)


STALL = Limits(write_timeout=0.04, read_rate=None)
RATE = Limits(write_timeout=None, read_rate_over=0.04, read_grace=0.01)


@pytest.mark.parametrize(
    ("limits", "leaves", "why"),
    [
        (STALL, 0, "took nothing of what was sent to it for 0.04 s (limit write_timeout)"),
        (STALL, 1, ""),
        (RATE.but(read_rate=10**9), 1, "took less than 1000000000 bytes a second"),
        (RATE.but(read_rate=10**9), 0, "took less than 1000000000 bytes a second"),
        (RATE.but(read_rate=1), 1_000, ""),
        (STALL.but(read_rate=10**9, read_rate_over=0.04, read_grace=0.01), 1, "took less than 1000000000"),
    ],
)
async def test_who_reads_too_slowly_is_noticed(limits: Limits, leaves: int, why: str) -> None:
    told: list[str] = []
    transport = Transport(LARGE, leaves)
    watch = SendWatch(limits, told.append)
    watch.start(transport)
    watch.start(transport)  # it looks already
    async with asyncio.timeout(20):
        while not told and transport.looks < 60:  # noqa: ASYNC110
            await asyncio.sleep(0)
    assert [one.startswith(why) for one in told] == ([True] if why else [])
    watch.end()


async def test_a_grace_and_the_time_of_an_outage_are_not_measured() -> None:
    told: list[str] = []
    watch = SendWatch(RATE.but(read_rate=10**9, read_grace=3_600.0), told.append)
    transport = Transport(LARGE, 1)
    watch.start(transport)
    async with asyncio.timeout(20):
        while transport.looks < 60:  # noqa: ASYNC110
            await asyncio.sleep(0)
    assert told == []
    watch.end()


async def test_a_far_end_that_started_this_process_is_given_time_below_the_high_water_mark() -> None:
    told: list[str] = []
    small, much = Transport(100), Transport(LARGE)
    patient = SendWatch(STALL, told.append, patient=True)
    patient.start(small)
    async with asyncio.timeout(20):
        while small.looks < 60:  # noqa: ASYNC110
            await asyncio.sleep(0)
    assert told == []
    patient.write(much, b"")
    patient.stop()
    patient.start(much)
    async with asyncio.timeout(20):
        while not told:  # noqa: ASYNC110
            await asyncio.sleep(0)
    patient.end()


async def test_the_marks_of_the_transport_follow_what_is_unsent() -> None:
    """At first it tells when anything stays behind; above the high-water mark, when a quarter of that is left."""
    transport = Transport(100)
    watch = SendWatch(STALL.but(send_queue=1_000), str)
    watch.start(transport)
    assert (watch.on, watch.full, transport.marks) == (True, False, (None, None))
    watch.write(transport, b"x" * 901)
    assert (watch.full, transport.marks) == (True, (1_000, 250))
    transport.unsent = 250
    watch.resumed()
    assert (watch.on, watch.full, transport.marks) == (True, False, (1, 0))
    transport.unsent = 0
    watch.resumed()
    assert not watch.on
    watch.end()


async def test_the_budget_counts_what_is_unsent_and_what_waits_beside_it() -> None:
    budget = Budget(STALL)
    transport = Transport(100)
    watch = SendWatch(STALL, str, budget=budget, owner=lambda: "ann")
    assert budget.used == 0
    watch.start(transport)
    watch.beside = 50
    watch.write(transport, b"x" * 10)
    assert (budget.used, budget.measures()["unsent_bytes"]) == (160, 160)
    transport.unsent = 0
    watch.resumed()
    assert budget.used == 50
    watch.end()
    assert budget.used == 0
    watch.start(Transport(100))  # it is over
    assert (watch.on, budget.used) == (False, 0)


async def test_tls_gets_large_writes_in_pieces() -> None:
    sizes: list[int] = []

    class Pieces(Transport):
        def write(self, data: bytes) -> None:
            sizes.append(len(data))

    SendWatch(STALL, str).write(Pieces(0), b"x" * (2 * PIECE + 1), tls=True)
    assert sizes == [PIECE, PIECE, 1]
    SendWatch(STALL, str).write(Pieces(0), b"x" * (2 * PIECE + 1))
    assert sizes[3:] == [2 * PIECE + 1]


async def test_without_a_limit_nothing_is_looked_at() -> None:
    transport = Transport(100)
    watch = SendWatch(Limits(write_timeout=None, read_rate=None), str)
    watch.start(transport)
    assert [one for one in asyncio.get_running_loop()._scheduled if not one.cancelled()] == []  # type: ignore[attr-defined]


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
