"""What is told of a message that was too long to keep."""

from __future__ import annotations

import pytest

from dragoman.jsonrpc.dropped import dropped
from dragoman.jsonrpc.errors import Refusal
from dragoman.jsonrpc.messages import NULL

TOO_LARGE = Refusal("too_large", "too large")


@pytest.mark.parametrize("id", [b'"\xff"', b'"\\x"', b"1.2.3"])
def test_an_id_that_cannot_be_read_is_null(id: bytes) -> None:
    found = dropped(b'{"jsonrpc":"2.0","method":"m","id":%b,"params":["x' % id, b'x"]}', TOO_LARGE)
    assert found.id == NULL
    assert found.answerable


def test_an_id_that_can_be_read_is_the_call_s() -> None:
    found = dropped(b'{"jsonrpc":"2.0","method":"m","params":["x', b'x"],"id":"seven"}', TOO_LARGE)
    assert found.id == "seven"
    assert found.answerable
