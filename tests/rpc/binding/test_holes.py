"""What only a changed line of the binding would show."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import pytest
from msgspec import Struct

from dragoman import Limits, LocalError, Service
from dragoman.rpc.binding import binding

UNHASHABLE: Any = ["a list"]


def ask(api: Service, method: str, params: str) -> Any:
    answer = api.answer(f'{{"jsonrpc":"2.0","method":"{method}","params":{params},"id":1}}'.encode())
    assert answer is not None
    return msgspec.json.decode(answer)


@pytest.mark.parametrize(
    ("params", "field"),
    [("[1.0,[2.0]]", None), ('["x",[1]]', "number"), ('[1,[1,"x"]]', "numbers[1]"), ("[1,[1.5]]", "numbers[0]")],
)
def test_metadata_that_cannot_be_hashed_is_metadata(params: str, field: str | None) -> None:
    api = Service("api")

    @api.method
    def total(
        number: Annotated[int, UNHASHABLE], numbers: Annotated[list[Annotated[int, UNHASHABLE]], UNHASHABLE]
    ) -> int:
        return number + sum(numbers)

    answer = ask(api, "total", params)
    if field is None:
        assert answer["result"] == 3
    else:
        assert answer["error"]["code"] == -32602
        assert [fault["field"] for fault in answer["error"]["data"]["errors"]] == [field]


class Tree(Struct):
    weight: int
    inner: list[Tree] = []


def tree(levels: int, weight: str) -> str:
    """Arrays and objects of 2 * `levels` - 1 levels."""
    return f'{{"weight":{weight},"inner":[' * (levels - 1) + f'{{"weight":{weight}}}' + "]}" * (levels - 1)


class Chain(Struct):
    weight: int
    inner: Chain | None = None


def chain(levels: int, weight: str) -> str:
    """Objects of `levels` levels."""
    return f'{{"weight":{weight},"inner":' * (levels - 1) + f'{{"weight":{weight}}}' + "}" * (levels - 1)


@pytest.mark.parametrize("weight", ["1", "1.0"])
@pytest.mark.parametrize("depth", [41, 512])
def test_a_value_as_deep_as_the_limit_is_taken_and_a_deeper_one_is_too_large(depth: int, weight: str) -> None:
    """1.0 for 1, too, which is found after the value did not fit."""
    api = Service("api", limits=Limits(depth=depth))

    @api.method
    def tree_of(it: Tree) -> int:
        return it.weight + sum(map(tree_of, it.inner))

    @api.method
    def chain_of(it: Chain) -> int:
        total, left = 0, [it]
        while left:
            total += (one := left.pop()).weight
            left += [] if one.inner is None else [one.inner]
        return total

    levels = depth - 2  # beside it the message and its params
    for method, make, most in (("tree_of", tree, (levels + 1) // 2), ("chain_of", chain, levels)):
        assert ask(api, method, f"[{make(most, weight)}]") == {"jsonrpc": "2.0", "id": 1, "result": most}
        refused = ask(api, method, f"[{make(most + 1, weight)}]")["error"]
        assert (refused["code"], refused["data"]["limit"]) == (-32003, "depth")


def test_a_type_that_has_no_decoder_is_refused_at_registration(monkeypatch: pytest.MonkeyPatch) -> None:
    def decoder(annotation: Any) -> Any:
        raise TypeError("this type is not supported")

    monkeypatch.setattr(binding, "decoder", decoder)
    api = Service("api")
    with pytest.raises(LocalError, match="'number': this type is not supported"):

        @api.method
        def total(number: int) -> int:
            return number

    assert not api.methods
