import pytest

from calculator import DivisionByZero, api, subtract
from dragoman import connect, serve


def test_the_function() -> None:
    assert subtract(42, 23) == 19  # it stays a function


def test_the_bytes() -> None:
    assert api.answer(b'{"jsonrpc":"2.0","method":"sum","params":[1,2,4],"id":1}') == (
        b'{"jsonrpc":"2.0","result":7,"id":1}'
    )


@pytest.mark.asyncio
async def test_both_ends() -> None:
    async with serve(api, urls="memory:test"), connect("memory:test", errors=[DivisionByZero]) as peer:
        assert await peer.call("subtract", [42, 23]) == 19
        with pytest.raises(DivisionByZero):
            await peer.call("divide", [1, 0])
