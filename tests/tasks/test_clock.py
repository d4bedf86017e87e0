"""The time of a store of tasks."""

from __future__ import annotations

from dragoman.tasks.clock import Clock


class Hands:
    """Two clocks that a test moves: the time of day, and the time since some start."""

    wall = 1_000.0
    since = 50.0

    def clock(self) -> Clock:
        return Clock(lambda: self.wall, lambda: self.since)


def test_it_follows_the_time_of_day() -> None:
    hands = Hands()
    clock = hands.clock()
    assert clock.now() == 1_000.0
    hands.wall += 100.0
    assert clock.now() == 1_100.0


def test_a_clock_that_is_set_back_goes_on() -> None:
    hands = Hands()
    clock = hands.clock()
    hands.wall -= 500.0
    assert clock.now() == 1_000.0
    hands.wall, hands.since = hands.wall + 10.0, hands.since + 10.0
    assert clock.now() == 1_010.0
    hands.wall = 2_000.0
    assert clock.now() == 2_000.0


def test_a_later_time_that_another_has_seen_counts() -> None:
    hands = Hands()
    clock = hands.clock()
    assert clock.reach(900.0) == 1_000.0
    assert clock.reach(3_000.0) == 3_000.0
    hands.since += 1.0
    assert clock.now() == 3_001.0
