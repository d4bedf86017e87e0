"""A Decimal is a finite number wherever it stands, and a bound that cannot be computed is a fault of the argument."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any, NewType, TypedDict

import annotated_types as at
import pydantic
import pytest
from msgspec import Meta, Struct

from dragoman.jsonrpc.errors import InvalidParams
from dragoman.rpc.binding.binding import bind


class Held(Struct):
    it: Decimal


class Bounded(Struct):
    it: Annotated[Decimal, at.Interval(gt=0, lt=100)]


@dataclass
class Kept:
    it: Decimal


class Keyed(TypedDict):
    it: Decimal


class Model(pydantic.BaseModel):
    it: Decimal


Amount = NewType("Amount", Decimal)
Cents = Annotated[Decimal, at.MultipleOf(Decimal("0.01"))]

ALONE: list[Any] = [
    Decimal,
    Amount,
    Decimal | None,
    Decimal | int,
    Decimal | list[int],
    Annotated[Decimal, pydantic.Field(gt=0)],
    Annotated[Amount, at.Gt(0)],
    Annotated[Decimal, at.Le(10)],
    Annotated[Decimal, at.Predicate(lambda value: value > 0)],
    Annotated[Decimal, at.Gt(0)] | None,
    Annotated[Decimal, Meta(description="an amount")],
    Cents,
]
WITHIN: list[tuple[Any, str]] = [
    (Held, '{"it":%s}'),
    (Bounded, '{"it":%s}'),
    (Kept, '{"it":%s}'),
    (Keyed, '{"it":%s}'),
    (Model, '{"it":%s}'),
    (list[Decimal], "[%s]"),
    (tuple[Decimal, int], "[%s,1]"),
    (set[Decimal], "[%s]"),
    (dict[str, Decimal], '{"a":%s}'),
    (dict[Decimal, int], "{%s:1}"),
    (dict[Decimal, Decimal], '{"1":%s}'),
    (dict[str, list[Held]], '{"a":[{"it":%s}]}'),
    (list[Decimal | None], "[%s]"),
]
NOT_FINITE = ["NaN", "nan", "sNaN", "-NaN", "Infinity", "-Infinity", "inf", "-inf", "NaN123"]


def taken(hint: Any, text: str) -> Any:
    def function(it: Any) -> None: ...

    function.__annotations__["it"] = hint
    (value,) = bind(function, context_type=type("No", (), {})).arguments(b'{"it":%b}' % text.encode())
    return value


@pytest.mark.parametrize("number", NOT_FINITE)
@pytest.mark.parametrize("hint", ALONE, ids=range(len(ALONE)))
def test_what_is_not_finite_is_refused(hint: Any, number: str) -> None:
    with pytest.raises(InvalidParams) as refused:
        taken(hint, f'"{number}"')
    assert refused.value.data["errors"][0]["field"] == "it"


@pytest.mark.parametrize("number", NOT_FINITE)
@pytest.mark.parametrize(("hint", "text"), WITHIN, ids=range(len(WITHIN)))
def test_within_others_too(hint: Any, text: str, number: str) -> None:
    with pytest.raises(InvalidParams) as refused:
        taken(hint, text % f'"{number}"')
    assert refused.value.data["errors"][0]["field"].startswith("it")


@pytest.mark.parametrize("hint", ALONE, ids=range(len(ALONE)))
def test_what_is_finite_is_taken(hint: Any) -> None:
    assert taken(hint, '"1.50"') == Decimal("1.50")


@pytest.mark.parametrize(("hint", "text"), WITHIN, ids=range(len(WITHIN)))
def test_within_others_it_is_taken(hint: Any, text: str) -> None:
    taken(hint, text % '"1.50"')


def test_which_member_of_a_union_is_meant_stays_as_it_is() -> None:
    assert type(taken(Decimal | int, "5")) is int
    assert type(taken(Decimal | int, '"5"')) is Decimal
    assert taken(dict[Decimal, int], '{"1.5":2}') == {Decimal("1.5"): 2}


@pytest.mark.parametrize("number", ["1e1000000", "-1e1000000", "1e30"])
def test_a_remainder_beyond_the_precision_is_a_fault_of_the_argument(number: str) -> None:
    with pytest.raises(InvalidParams, match="Invalid params") as refused:
        taken(Cents, f'"{number}"')
    assert refused.value.data["errors"] == [
        {"field": "it", "message": "Does not satisfy a multiple of 0.01", "received": number}
    ]
