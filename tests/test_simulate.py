"""docs/scaling.md reckons with Erlang's formula; here the same is counted, call by call, with a known seed."""

from __future__ import annotations

import pytest
from bench.simulate import Fleet, by_turns, erlang_c, one_queue, workers_needed

CALLS = 100_000


@pytest.mark.parametrize(("workers", "load"), [(1, 0.5), (2, 0.6), (4, 0.75), (6, 0.5), (16, 0.9)])
def test_the_formula_is_what_is_counted(workers: int, load: float) -> None:
    service = 30e-6
    fleet = Fleet(load * workers / service, service, workers)
    said, counted = erlang_c(fleet), one_queue(fleet, CALLS)
    assert counted.delayed == pytest.approx(said.delayed, abs=0.02)
    assert counted.mean == pytest.approx(said.mean, rel=0.15, abs=0.2e-6)
    assert counted.p99 == pytest.approx(said.p99, rel=0.15, abs=1e-6)


def test_a_queue_for_all_beats_a_queue_for_each() -> None:
    fleet = Fleet(100_000, 30e-6, 4)
    assert one_queue(fleet, CALLS).p99 < by_turns(fleet, CALLS).p99


def test_steady_calls_wait_less() -> None:
    at_random, steady = Fleet(100_000, 30e-6, 4), Fleet(100_000, 30e-6, 4, steady=True)
    assert one_queue(steady, CALLS).mean < one_queue(at_random, CALLS).mean


def test_a_fleet_that_cannot_keep_up_is_refused() -> None:
    with pytest.raises(ValueError, match="3 workers cannot keep up"):
        erlang_c(Fleet(100_000, 30e-6, 3))
    assert workers_needed(100_000, 30e-6, 0.6) == 5
