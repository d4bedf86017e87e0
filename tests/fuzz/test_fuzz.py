"""The fuzzer, as long as a test may take; `python -m tests.fuzz` runs it as long as you like. A new seed is drawn where
CI=true: elsewhere two runs of one commit try the same inputs."""

from __future__ import annotations

import os
import secrets

import pytest

from .__main__ import run
from .oracle import expected, fault

COUNT = 10_000
WIRES = ["http", "tcp", "stdio"]
SEEDS = [pytest.param(20, id="fixed")]
if os.environ.get("CI") == "true":
    SEEDS.append(pytest.param(secrets.randbelow(2**32), id="random"))


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_every_mutated_message_has_the_right_answer(seed: int) -> None:
    print(f"seed {seed}: python -m tests.fuzz --count {COUNT} --seed {seed}")  # pytest shows it when it fails
    run(COUNT, seed, WIRES)


@pytest.mark.parametrize(
    ("message", "right"),
    [
        (b'{"jsonrpc":"2.0","method":"get_data","id":1,"result":1e404}', True),
        (b'{"jsonrpc":"2.0","method":"get_data","params":[1e404],"id":1,"params":[]}', True),
        (b'{"jsonrpc":"2.0","method":"get_data","params":[],"id":1,"params":[1e404]}', False),
        (b'{"jsonrpc":"2.0","method":"get_data","params":[1e404],"id":1}', False),
        (b'{"jsonrpc":"2.0","method":"get_data","params":[{"method":"x","id":1,"error":1e404}],"id":1}', False),
    ],
)
def test_what_no_decoder_can_hold_may_stand_where_none_looks(message: bytes, right: bool) -> None:
    answers = b'{"jsonrpc":"2.0","result":["hello",5],"id":1}', b'{"jsonrpc":"2.0","error":%b,"id":null}' % PARSE_ERROR
    assert [fault(answer, expected(message)) is None for answer in answers] == [right, True]


PARSE_ERROR = b'{"code":-32700,"message":"Parse error"}'
