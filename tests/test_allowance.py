"""Fair shares: whose slot goes, who is refused, and who loses nothing."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.addresses import address_of
from dragoman.allowance import Allowance, NoRoom, Owner, Slots, owner_of, share_of
from dragoman.channel import Caller, Identity

ADA, BOB = Owner("ada", known=True), Owner("bob", known=True)
HERE, THERE = Owner("192.0.2.1"), Owner("192.0.2.2")


@pytest.mark.parametrize(
    ("remote", "address"),
    [
        ("192.0.2.1:8080", "192.0.2.1"),
        ("[2001:db8:1:2:3:4:5:6]:8080", "2001:db8:1:2::/64"),
        ("[2001:db8:1:2::9]:1", "2001:db8:1:2::/64"),
        ("[2001:db8:1:3::9]:1", "2001:db8:1:3::/64"),
        ("[fe80::1%eth0]:1", "fe80::/64"),
        ("[::1]:1", "::/64"),
        ("[::ffff:192.0.2.1]:8080", "192.0.2.1"),
        ("2001:db8:1:2::9:80", "2001:db8:1:2::/64"),
        ("a program on this machine", ""),
        ("standard input and output", ""),
        ("memory:app/7", ""),
        ("reply.to.9", ""),
        ("", ""),
        ("1.2.3:9", ""),
        ("a.b.c.d:9", ""),
    ],
)
def test_an_address_is_a_host_and_of_ipv6_what_one_caller_has(remote: str, address: str) -> None:
    assert address_of(remote) == address


@pytest.mark.parametrize(
    ("caller", "owner"),
    [
        (Caller(scheme="http", remote="192.0.2.1:80"), Owner("192.0.2.1")),
        (Caller(scheme="amqp", remote="a mailbox that it chose"), Owner("amqp")),
        (Caller(scheme="unix", remote="a program on this machine"), Owner("unix")),
        (
            Caller(remote="192.0.2.1:80", identity=Identity(subject="ada", issuer="https://as.example", client_id="x")),
            Owner('["https://as.example","ada"]', known=True),
        ),
    ],
)
def test_who_has_an_identity_is_known_by_it(caller: Caller, owner: Owner) -> None:
    assert owner_of(caller) == owner


def filled(most: int, owners: Iterable[Owner]) -> tuple[Slots[str], list[str]]:
    """Slots taken by these owners, in order, under "0", "1", ...; the keys that gave way."""
    slots: Slots[str] = Slots(most)
    gone = [slots.take(owner, str(number)) for number, owner in enumerate(owners)]
    return slots, [key for key in gone if key is not None]


@pytest.mark.parametrize(
    ("held", "newcomer", "goes"),
    [
        ([HERE] * 20, HERE, "0"),  # its own oldest
        ([HERE] * 20, THERE, "0"),
        ([ADA] * 20, HERE, "0"),  # who has more than a share gives way to everybody
        ([ADA] * 12 + [BOB] * 8, BOB, "0"),  # most first
        ([ADA] * 3 + [Owner(f"{n}", known=True) for n in range(17)], ADA, "0"),
        ([ADA] * 2 + [BOB] * 2 + [Owner(f"{n}") for n in range(16)], HERE, "4"),  # strangers before the known
        ([ADA] * 2 + [Owner(f"{n}", known=True) for n in range(18)], BOB, "0"),
        ([ADA] * 2 + [Owner(f"{n}", known=True) for n in range(18)], HERE, None),  # the known give no way to strangers
        ([Owner(f"{n}", known=True) for n in range(20)], BOB, "0"),
    ],
)
def test_who_gives_way_when_all_is_taken(held: list[Owner], newcomer: Owner, goes: str | None) -> None:
    slots, gone = filled(20, held)
    assert gone == []
    if goes is None:
        with pytest.raises(NoRoom):
            slots.take(newcomer, "new")
        assert len(slots) == 20
    else:
        assert slots.take(newcomer, "new") == goes
        assert (goes in slots, "new" in slots, len(slots)) == (False, True, 20)


def test_what_is_in_use_goes_last() -> None:
    slots, _ = filled(3, [HERE] * 3)
    slots.touch("0")
    slots.touch("never seen")
    assert [slots.take(HERE, name) for name in "abc"] == ["1", "2", "0"]


def test_what_is_free_or_over_makes_room() -> None:
    slots: Slots[str] = Slots(2, 10.0)
    assert [slots.take(ADA, "a", 0.0), slots.take(ADA, "b", 5.0)] == [None, None]
    assert slots.take(ADA, "c", 10.0) is None
    assert ("a" in slots, slots.owner("a"), slots.owner("b")) == (False, None, ADA)
    slots.free("b")
    slots.free("b")
    assert slots.take(HERE, "d", 11.0) is None


def test_one_address_that_floods_takes_nothing_from_others() -> None:
    slots, gone = filled(100, [ADA, BOB, THERE, *[HERE] * 1_000])
    assert {"0", "1", "2"}.isdisjoint(gone)
    assert len(slots) == 100


@given(st.lists(st.tuples(st.integers(0, 9), st.booleans(), st.booleans()), max_size=300))
def test_whoever_has_a_share_at_most_loses_nothing_to_one_that_has_more(
    steps: list[tuple[int, bool, bool]],
) -> None:
    """Against a count of all owners, one by one."""
    slots: Slots[int] = Slots(20)
    held: dict[int, Owner] = {}
    for number, (name, known, frees) in enumerate(steps):
        owner = Owner(str(name), known=known)
        if frees and held:
            key = next(iter(held))
            slots.free(key)
            del held[key]
            continue
        counts = {one: sum(each == one for each in held.values()) for one in held.values()}
        try:
            gone = slots.take(owner, number)
        except NoRoom:
            assert len(held) == 20
            assert not owner.known
            assert all(one.known and count <= share_of(20) for one, count in counts.items())
            continue
        if gone is not None:
            loser = held.pop(gone)
            if max(counts.values()) > share_of(20):
                assert counts[loser] == max(counts.values())
            else:
                alike = [count for one, count in counts.items() if one.known == loser.known]
                assert counts[loser] == max(alike)
                assert not loser.known or (owner.known and all(one.known for one in counts))
        held[number] = owner
        assert len(slots) == len(held) <= 20


# -- what must not be forgotten ------------------------------------------------------------------------


def test_an_owner_has_its_share_and_others_theirs() -> None:
    allowance = Allowance(100, 60.0)
    assert [allowance.take(HERE, 0.0) for _ in range(51)] == [True] * 50 + [False]
    assert [allowance.take(THERE, 0.0) for _ in range(11)] == [True] * 10 + [False]
    assert not allowance.take(HERE, 0.0)
    assert allowance.after(0.0) == 120


def test_strangers_leave_a_share_to_the_known() -> None:
    allowance = Allowance(100, 60.0)
    strangers = [Owner(f"{n}") for n in range(50)]
    assert sum(allowance.take(one, 0.0) for one in strangers * 3) == 90
    assert sum(allowance.take(Owner(f"{n}", known=True), 0.0) for n in range(50)) == 10


def test_a_use_counts_for_its_time_at_least_and_twice_as_long_at_most() -> None:
    allowance = Allowance(100, 60.0, each=1)
    assert allowance.take(ADA, 0.0)
    assert [allowance.take(ADA, now) for now in (59.0, 60.0, 119.0, 120.0)] == [False, False, False, True]
    assert allowance.take(ADA, 1_000.0), "also after a pause"


def test_a_use_may_be_given_back() -> None:
    allowance = Allowance(100, 60.0, each=2)
    assert [allowance.take(HERE, 0.0) for _ in range(3)] == [True, True, False]
    allowance.give_back(HERE)
    assert [allowance.take(HERE, 0.0) for _ in range(2)] == [True, False]
    allowance.give_back(THERE)
    assert allowance.take(THERE, 0.0)
    allowance.give_back(THERE)
    assert allowance.take(THERE, 0.0)
