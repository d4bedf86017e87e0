"""The fuzzer, as long as a test may take; `python -m tests.fuzz` runs it as long as you like."""

from __future__ import annotations

import secrets

import pytest

from .__main__ import run

COUNT = 10_000
WIRES = ["http", "tcp", "stdio"]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [20, secrets.randbelow(2**32)], ids=["fixed", "random"])
def test_every_mutated_message_has_the_right_answer(seed: int) -> None:
    print(f"seed {seed}: python -m tests.fuzz --count {COUNT} --seed {seed}")  # pytest shows it when it fails
    run(COUNT, seed, WIRES)
