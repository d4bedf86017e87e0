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


ANSWERED = [
    # beginning, end, id, whether it looks like the answer to a batch
    (b'{"jsonrpc":"2.0","id":7,"result":["x', b"x]}", 7, False),
    (b'{"jsonrpc":"2.0","result":1,"id":7}} ', b'"id":7}} ', 7, False),
    (b'{"jsonrpc":"2.0","result":["x', b'x"],"id":7}', 7, False),
    (b'[{"jsonrpc":"2.0","id":7,"result":["x', b'x"]}]', 7, True),
    (b' [ {"jsonrpc":"2.0","result":1,"id":7},{"x', b'x"}]', 7, True),
    (b'[{"jsonrpc":"2.0","error":{"x', b'x"},"id":7} ]\r', 7, True),
    (b'[{"jsonrpc":"2.0","result":["x', b'x"]}]', NULL, True),
]


@pytest.mark.parametrize(("head", "tail", "id", "batch"), ANSWERED)
def test_a_response_shows_its_id_at_either_end(head: bytes, tail: bytes, id: object, batch: bool) -> None:
    found = dropped(head, tail, TOO_LARGE)
    assert (found.id, found.batch, found.answerable) == (id, batch, False)


@pytest.mark.parametrize(
    "head", [b'[{"jsonrpc":"2.0","method":"m","id":1,"params":["x', b'[{"jsonrpc":"2.0","x":["x', b"[1,"]
)
def test_another_array_is_answered_with_null(head: bytes) -> None:
    found = dropped(head, b'x"],"id":7}]', TOO_LARGE)
    assert (found.id, found.batch, found.answerable) == (NULL, False, True)
