"""Which of several processes accepts less: `LoadBoard`, which they all see."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator

import pytest

from dragoman.net.accept import ABSENT, PATIENCE, LoadBoard


@pytest.fixture
def boards() -> Iterator[list[LoadBoard]]:
    """Three places in one memory; the third is empty."""
    with tempfile.TemporaryFile() as file:
        file.write(ABSENT.to_bytes(8, "little", signed=True) * 3)
        file.flush()
        yield [LoadBoard(file.fileno(), place) for place in range(2)]


def test_who_carries_more_gives_way(boards: list[LoadBoard]) -> None:
    one, other = boards
    carried = [0, 0]
    one.join(lambda: carried[0])
    assert not one.gives_way()  # alone
    other.join(lambda: carried[1])
    assert not one.gives_way()  # as many
    carried[0] = 1
    assert one.gives_way()
    assert not other.gives_way()
    carried[1] = 5
    assert other.gives_way()
    assert not one.gives_way()


def test_patience_ends_until_something_changes(boards: list[LoadBoard]) -> None:
    one, other = boards
    carried = [9, 0]
    one.join(lambda: carried[0])
    other.join(lambda: carried[1])
    assert [one.gives_way() for _ in range(PATIENCE + 3)] == [True] * PATIENCE + [False] * 3
    carried[1] = 1
    assert not other.gives_way()  # it lives
    assert one.gives_way()


def test_several_doors_of_one_process_count_together(boards: list[LoadBoard]) -> None:
    one, other = boards
    first, second = lambda: 2, lambda: 3
    one.join(first)
    one.join(second)
    other.join(lambda: 4)
    assert one.gives_way()
    one.leave(second)
    assert not one.gives_way()
    one.leave(second)  # once more does no harm
