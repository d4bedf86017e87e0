"""The sum of what a server keeps and has not sent: who loses what, and when."""

from __future__ import annotations

import gc
from collections.abc import Callable

import pytest

from dragoman.jsonrpc.budget import Account, Budget
from dragoman.jsonrpc.limits import Limits

LIMITS = Limits(kept_bytes=1_000, response_size=100)


class Kept:
    """Something that is kept."""

    def __init__(self, budget: Budget, owner: str, size: int, gone: list[Kept]) -> None:
        self._gone = gone
        self.account = budget.account(owner, drop=self.drop)
        self.account.set(size)

    def drop(self) -> None:
        self._gone.append(self)
        self.account.set(0)


class Reader:
    """A far end that reads slowly."""

    def __init__(self, budget: Budget, owner: str, size: int, slow: float, closed: list[Reader]) -> None:
        self._slow, self._closed = slow, closed
        self.account = budget.account(owner, reader=self)
        self.account.set(size)

    def slowness(self) -> float:
        return self._slow

    def cut_off(self, why: str) -> None:
        assert "kept_bytes" in why
        self._closed.append(self)


def test_the_oldest_is_dropped_first() -> None:
    budget, gone = Budget(LIMITS), list[Kept]()
    those = [Kept(budget, f"{number}", 100, gone) for number in range(10)]
    assert (gone, budget.used) == ([], 1_000)
    those += [Kept(budget, "10", 100, gone), Kept(budget, "11", 50, gone)]
    assert gone == those[:2]
    those[2].account.keep(those[2].drop)  # it is the newest now
    Kept(budget, "12", 100, gone)
    assert gone == [*those[:2], those[3]]
    assert budget.measures()["kept_dropped_total"] == 3


def test_above_the_sum_an_owner_above_its_share_loses_first() -> None:
    budget, gone = Budget(LIMITS), list[Kept]()
    old = [Kept(budget, f"{number}", 50, gone) for number in range(8)]
    greedy = [Kept(budget, "greedy", 50, gone) for _ in range(12)]
    assert gone == []  # while there is room it may use more than its share
    old.append(Kept(budget, "late", 100, gone))
    assert gone == greedy[:2]
    for number in range(20):
        Kept(budget, f"more {number}", 50, gone)
    assert gone[:10] == greedy[:10]
    assert gone[10:] == [*old[:8], *greedy[10:], old[8]]  # and then all are alike


def test_then_the_slowest_reader_is_closed_and_the_fastest_stays() -> None:
    budget, gone, closed = Budget(LIMITS), list[Kept](), list[Reader]()
    Kept(budget, "a", 100, gone)
    slow, slower = Reader(budget, "b", 90, 2.0, closed), Reader(budget, "c", 90, 3.0, closed)
    greedy = [Reader(budget, "d", 300, 0.1 * number, closed) for number in range(1, 4)]
    assert closed == greedy[:-2:-1]
    assert len(gone) == 1
    assert budget.used == 780
    for one in (slow, slower, *greedy[:2]):
        one.account.set(0)
    closed.clear()
    one = Reader(budget, "e", 1_000, 9.0, closed)
    assert closed == []
    other = Reader(budget, "f", 1_000, 1.0, closed)
    assert closed == [one]
    assert (other.account.size, budget.used) == (1_000, 1_000)


def test_one_answer_of_any_size_is_accepted() -> None:
    closed: list[Reader] = []
    budget = Budget(Limits(kept_bytes=0, response_size=5_000))
    Reader(budget, "a", 5_000, 1.0, closed)
    assert closed == []
    budget.restrict(LIMITS)
    Reader(budget, "b", 1, 1.0, closed)
    assert len(closed) == 1


def test_what_cannot_go_is_refused_beyond_its_owner_s_share() -> None:
    budget, gone = Budget(LIMITS), list[Kept]()
    first = budget.admit("ann", 60)
    assert first is not None
    assert budget.admit("ann", 60) is None
    assert budget.admit("bob", 101) is None
    second = budget.admit("bob", 100)
    assert second is not None
    assert (budget.used, budget.measures()["kept_refused_total"]) == (160, 2)
    first.release()
    first.release()
    again = budget.admit("ann", 100)
    assert again is not None
    del second, again
    gc.collect()
    assert budget.used == 0
    held = [budget.admit(f"{number}", 100) for number in range(5)]
    assert all(held)
    assert budget.admit("more", 10) is None, "half of it is for what is on its way"
    held.pop()
    for number in range(12):
        Kept(budget, f"old {number}", 50, gone)
    assert budget.used == 1_000
    kept = budget.admit("more", 10)
    assert kept is not None, "what is kept gives way"
    assert (len(gone), budget.used) == (1, 960)


def test_what_was_admitted_may_grow_within_the_share() -> None:
    budget = Budget(LIMITS)
    one = budget.admit("ann", 60)
    assert one is not None
    assert one.resize(100)
    assert not one.resize(101)
    assert budget.used == 100
    assert one.resize(10)
    other = budget.admit("ann", 90)
    assert other is not None
    assert not one.resize(11), "they have one share"
    assert budget.measures()["kept_refused_total"] == 2
    others = [budget.admit(f"{number}", 100) for number in range(4)]
    assert all(others)
    assert not one.resize(20), "half of it is for what is on its way"
    one.release()
    assert budget.used == 490


def test_what_is_admitted_may_go_while_it_is_not_used() -> None:
    budget = Budget(LIMITS)
    one = budget.admit("ann", 100)
    assert one is not None
    one.keep(one.release)
    others = [budget.admit(f"{number}", 100) for number in range(4)]
    assert all(others)
    more = budget.admit("more", 100)
    assert more is not None, "the first has gone"
    assert budget.used == 500
    for held in (*others, more):
        assert held is not None
        held.release()
    assert budget.used == 0


def test_what_is_in_use_stays() -> None:
    budget = Budget(LIMITS)
    those = [budget.admit("ann", 50), budget.admit("ann", 50)]
    for one in those:
        assert one is not None
        one.keep(one.release)
    assert those[0] is not None
    those[0].keep(None)
    again = budget.admit("ann", 50)
    assert again is not None
    assert budget.used == 100
    again.keep(None)
    assert budget.admit("ann", 50) is None
    assert budget.used == 100


def test_what_cannot_be_dropped_now_is_passed_over() -> None:
    budget, gone = Budget(LIMITS), list[Kept]()
    stays = budget.account("a", drop=lambda: None)
    stays.set(500)
    other = Kept(budget, "b", 500, gone)
    Kept(budget, "c", 100, gone)
    assert gone == [other]
    stays.set(0)
    assert budget.used == 100


@pytest.mark.parametrize("how", [lambda one: one.set(0), lambda one: one.keep(None), lambda one: one.leave()])
def test_what_is_gone_leaves_nothing_behind(how: Callable[[Account], None]) -> None:
    budget = Budget(LIMITS)
    one = budget.account("a", drop=lambda: None)
    one.set(10)
    how(one)
    assert not budget._kept
    one.set(0)
    assert (budget.used, budget._above, budget._owners) == (0, {}, {})


def test_what_keeps_nothing_cannot_leave_or_give_way() -> None:
    budget = Budget(LIMITS)
    nothing = budget.account("ada", drop=lambda: None)
    nothing.leave()
    nothing.keep(None)
    admitted = budget.admit("ada", 50)
    assert admitted is not None
    assert not admitted.give_way()  # it is in use
    admitted.keep(lambda: None)
    admitted.release()
    assert not admitted.give_way()
    assert (budget.used, budget.measures()["kept_bytes"]) == (0, 0)


def test_what_would_not_fit_beside_what_is_on_its_way_is_refused() -> None:
    budget = Budget(LIMITS)
    on_its_way = budget.account("ada")
    on_its_way.set(950)
    assert budget.admit("bob", 60) is None
    assert (budget.used, budget.measures()["kept_refused_total"]) == (950, 1)
    on_its_way.set(940)
    assert budget.admit("bob", 60) is not None


def test_what_is_dropped_may_keep_something_else() -> None:
    """A session that ends writes a last message: room is made in one round, and not within itself."""
    budget, gone = Budget(LIMITS), list[Kept]()
    last = budget.account("a", drop=lambda: last.set(0))
    first = Kept(budget, "a", 90, gone)

    def end() -> None:
        last.set(100)
        first.drop()

    first.account.keep(end)
    for number in range(10):
        Kept(budget, f"{number}", 91, gone)
    Kept(budget, "late", 50, gone)
    assert gone[0] is first
    assert budget.used <= 1_000


def test_a_reader_that_has_caught_up_is_not_closed() -> None:
    """Its account is brought up to date when it is asked how slow it is; and where closing all is not enough, the rest
    is left as it is."""
    budget, closed = Budget(LIMITS), list[Reader]()

    class CaughtUp(Reader):
        def slowness(self) -> float:
            self.account.set(0)
            return 9.0

    quick = CaughtUp(budget, "quick", 100, 9.0, closed)
    slow = Reader(budget, "slow", 100, 1.0, closed)
    fixed = budget.account("fixed")
    fixed.set(1_100)
    assert (closed, quick.account.size, slow.account.size, budget.used) == ([slow], 0, 0, 1_100)
