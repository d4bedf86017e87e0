"""A result that is not what its method declares is an error of the method's, and is not sent."""

from __future__ import annotations

import datetime
import enum
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple, NotRequired, TypedDict
from uuid import UUID

import msgspec
import pydantic
import pytest
from msgspec import Raw, Struct

from dragoman import Service


class Item(Struct):
    a: int
    b: str = "b"


class Hidden(Struct):
    a: int
    _key: str = "secret"


class Keyed(TypedDict):
    a: int
    b: NotRequired[str]


class Pair(NamedTuple):
    a: int
    b: str


@dataclass
class Inner:
    items: list[Item]
    when: datetime.datetime | None = None


class Model(pydantic.BaseModel):
    a: int
    b: str = pydantic.Field("b", alias="B")


class Cat(Struct, tag=True):
    name: str


class Dog(Struct, tag=True):
    name: str


class Access(enum.Flag):
    READ = 1
    WRITE = 2


def answer(hint: Any, value: Any) -> dict[str, Any]:
    """What a method declared to return `hint` is answered with when it returns `value`."""
    api = Service("it", debug=True)

    def method() -> Any:
        return value

    method.__annotations__["return"] = hint
    api.method(inline=True)(method)
    raw = api.answer(b'{"jsonrpc":"2.0","method":"method","id":1}')
    assert raw is not None
    found: dict[str, Any] = json.loads(raw)
    return found


@pytest.mark.parametrize(
    ("hint", "value", "fault"),
    [
        (Item, {"b": "x"}, "result.a: Missing field"),
        (Item, {"a": "1"}, "result.a: Expected an integer, got a string"),
        (Item, 5, "result: Expected an object, got an integer"),
        (Item, "text", "result: Expected an object, got a string"),
        (Item, None, "result: Expected an object, got null"),
        (Item, Item("1"), "result.a: Expected an integer, got a string"),  # type: ignore[arg-type]
        (Item | None, 5, "result: Expected an object or null, got an integer"),
        (list[Item], [Item(1), 5], "result[1]: Expected an object, got an integer"),
        (list[Item], [{"a": 1}, {"b": "x"}], "result[1].a: Missing field"),
        (list[int], 3, "result: Expected an array, got an integer"),
        (list[int], {"a": 1}, "result: Expected an array, got an object"),
        (list[int], [1, "2"], "result[1]: Expected an integer, got a string"),
        (tuple[int, str], (1,), "result: Expected an array"),
        (dict[str, int], [1], "result: Expected an object, got an array"),
        (dict[str, int], {"a": "x"}, "result.a: Expected an integer, got a string"),
        (Mapping[str, list[Item]], {"a": [{}]}, "result.a[0].a: Missing field"),
        (Keyed, {"b": "x"}, "result.a: Missing field"),
        (Pair, Pair("1", "b"), "result[0]: Expected an integer, got a string"),  # type: ignore[arg-type]
        (Inner, {"items": [5]}, "result.items[0]: Expected an object, got an integer"),
        (Inner, Inner([Item(1)], 5), "result.when: Expected"),  # type: ignore[arg-type]
        (Model, {"B": "x"}, "result.a: Missing field"),
        (Model, 5, "result: Input should be an object"),
        (list[Model], [None], "result[0]: Input should be an object"),
        (Cat | Dog, {"type": "Cow", "name": "x"}, "result"),
    ],
    ids=lambda one: str(one)[:40].partition(" at ")[0],
)
def test_what_is_not_declared_is_an_error(hint: Any, value: Any, fault: str) -> None:
    error = answer(hint, value)["error"]
    assert error["code"] == -32603
    assert error["data"]["reference"]
    assert f"method() returned what it does not declare: {fault}" in error["data"]["exception"]


@pytest.mark.parametrize(
    ("hint", "value", "sent"),
    [
        (Item, {"a": 1}, {"a": 1}),
        (Item, {"a": 1.0}, {"a": 1.0}),
        (Item | None, None, None),
        (Hidden, Hidden(1), {"a": 1}),
        (Inner, Inner([Item(1)]), {"items": [{"a": 1, "b": "b"}], "when": None}),
        (Inner, Inner([], datetime.datetime(2026, 1, 2)), {"items": [], "when": "2026-01-02T00:00:00"}),
        (Keyed, {"a": 1}, {"a": 1}),
        (Pair, Pair(1, "b"), [1, "b"]),
        (Model, Model(a=1, B="b"), {"a": 1, "B": "b"}),
        (Model, {"a": 1}, {"a": 1}),
        (Cat | Dog, Dog("x"), {"type": "Dog", "name": "x"}),
        (Sequence[int], (1, 2), [1, 2]),
        (Iterable[int], {1}, [1]),
        (list[float], [1.5, math.nan, 2], [1.5, None, 2]),
        (dict[str, float | int], {"a": math.inf}, {"a": None}),
        (dict[str, Access], {"a": Access.READ | Access.WRITE}, {"a": 3}),
        (dict[str, Path], {"a": Path("x")}, {"a": "x"}),
        (list[Decimal], [Decimal("1.50"), Decimal("NaN")], ["1.50", "NaN"]),
        (list[UUID | bytes], [UUID(int=1), b"x"], ["00000000-0000-0000-0000-000000000001", "eA=="]),
        (Item, Raw(b"5"), 5),
        (Any, 5, 5),
        (dict, {"a": Item(1)}, {"a": {"a": 1, "b": "b"}}),
        # a scalar is sent as it is
        (int, "5", "5"),
        (int | None, {"a": 1}, {"a": 1}),
    ],
    ids=lambda one: str(one)[:40].partition(" at ")[0],
)
def test_what_is_declared_is_sent(hint: Any, value: Any, sent: Any) -> None:
    assert answer(hint, value) == {"jsonrpc": "2.0", "id": 1, "result": sent}


def test_in_1_0_and_in_a_batch_too() -> None:
    api = Service("it", accept_v1=True)

    @api.method(inline=True)
    def method() -> Item:
        return {"b": "x"}  # type: ignore[return-value]

    old = msgspec.json.decode(api.answer(b'{"method":"method","params":[],"id":1}') or b"")
    assert (old["result"], old["error"]["code"]) == (None, -32603)
    (new,) = msgspec.json.decode(api.answer(b'[{"jsonrpc":"2.0","method":"method","id":1}]') or b"")
    assert new["error"]["code"] == -32603
