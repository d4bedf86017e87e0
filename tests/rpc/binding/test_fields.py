"""pydantic's `Field` beside a parameter: as its default, in `Annotated`, and what cannot be honoured."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from msgspec import Meta
from pydantic import AfterValidator, BaseModel, Field

from dragoman.jsonrpc.errors import LocalError
from tests.rpc.binding.bindings import CONTEXT, Context, bound, call, faults


class Pet(BaseModel):
    name: str
    age: int = Field(default=1, ge=0, description="in years")


def bounded(limit: int = Field(default=5, ge=1, le=9, description="how many")) -> Any:
    return limit


def required(limit: int = Field(ge=1)) -> Any:
    return limit


def ellipsis(limit: int = Field(..., ge=1)) -> Any:
    return limit


def within(limit: Annotated[int, Field(default=5, ge=1)]) -> Any:
    return limit


def overridden(limit: Annotated[int, Field(default=5, ge=1)] = 7) -> Any:
    return limit


def made(items: list[int] = Field(default_factory=lambda: [1])) -> Any:
    return items


def made_within(items: Annotated[list[int], Field(default_factory=list)]) -> Any:
    return items


def renamed(user_id: int = Field(alias="userId"), page: Annotated[int, Field(validation_alias="pageNo")] = 1) -> Any:
    return user_id, page


def keyword(*, user_id: int = Field(alias="userId"), page: int = 1) -> Any:
    return user_id, page


def before_required(a: Annotated[int, Field(default=3)], b: int) -> Any:
    return a, b


def model(pet: Pet = Field(description="whose"), context: Context | None = None) -> Any:
    assert context is CONTEXT
    return pet


def both(n: Annotated[int, Meta(description="d"), Field(gt=0), AfterValidator(lambda n: n * 2)] = 1) -> Any:
    return n


@pytest.mark.parametrize(
    ("function", "params", "expected"),
    [
        (bounded, [], 5),
        (bounded, {}, 5),
        (bounded, [9], 9),
        (bounded, {"limit": 1.0}, 1),
        (required, [1], 1),
        (ellipsis, {"limit": 2}, 2),
        (within, [], 5),
        (within, {"limit": 1}, 1),
        (overridden, {}, 7),
        (made, {}, [1]),
        (made_within, [], []),
        (renamed, {"userId": 1, "pageNo": 2}, (1, 2)),
        (renamed, [1, 2], (1, 2)),
        (renamed, {"userId": 1}, (1, 1)),
        (keyword, {"userId": 1, "page": 3}, (1, 3)),
        (before_required, {"b": 1}, (3, 1)),
        (before_required, [2, 1], (2, 1)),
        (model, [{"name": "x"}], Pet(name="x")),
        (model, {"pet": {"name": "x", "age": 2}}, Pet(name="x", age=2)),
        (both, [3], 6),
        (both, {}, 1),
    ],
)
def test_taken(function: Any, params: Any, expected: Any) -> None:
    assert call(bound(function), params) == expected


@pytest.mark.parametrize(
    ("function", "params", "expected"),
    [
        (bounded, [0], [("limit", "Expected an integer >= 1")]),
        (required, {}, [("limit", "Missing argument")]),
        (ellipsis, [], [("limit", "Missing argument")]),
        (renamed, {"user_id": 1}, [("userId", "Missing argument"), ("user_id", "Unknown argument; did you mean 'userId'?")]),
        (renamed, {"userId": "a", "pageNo": "b"}, [("userId", "Expected an integer, got a string"), ("pageNo", "Expected an integer, got a string")]),
        (before_required, [1], [("b", "Missing argument")]),
        (model, [{"age": -1}], [("pet.name", "Missing field"), ("pet.age", "Input should be greater than or equal to 0")]),
        (both, [0], [("n", "Input should be greater than 0")]),
    ],
)  # fmt: skip
def test_refused(function: Any, params: Any, expected: list[tuple[str, str]]) -> None:
    assert faults(bound(function), params) == expected


def test_a_default_factory_makes_one_for_each_call() -> None:
    binding = bound(made)
    call(binding, {}).append(2)
    assert call(binding, {}) == [1]


def test_what_stands_in_the_schema() -> None:
    assert bound(bounded).params_schema()["properties"]["limit"] == {
        "type": "integer",
        "minimum": 1,
        "maximum": 9,
        "description": "how many",
        "default": 5,
    }
    schema = bound(renamed).params_schema()
    assert list(schema["properties"]) == ["userId", "pageNo"]
    assert schema["required"] == ["userId"]

    def told(x: int = Field(1, title="X", examples=[3], deprecated=True, json_schema_extra={"unit": "cm"})) -> Any: ...

    assert bound(told).params_schema()["properties"]["x"] == {
        "type": "integer",
        "title": "X",
        "examples": [3],
        "deprecated": True,
        "unit": "cm",
        "default": 1,
    }


def taken_twice(a: int, b: int = Field(alias="a")) -> Any: ...


def beside_members(a: int = Field(alias="b"), **more: int) -> Any: ...


def from_others(a: int, b: int = Field(default_factory=lambda data: 1)) -> Any: ...


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (taken_twice, "two arguments have the name 'a'; change an alias"),
        (beside_members, r"the argument 'b' has an alias beside \*\*kwargs.*name the parameter"),
        (from_others, r"a default_factory here takes no other values; write Field\(default_factory=lambda: ...\)"),
    ],
)
def test_what_no_call_can_honour(function: Any, reason: str) -> None:
    with pytest.raises(LocalError, match=reason):
        bound(function)
