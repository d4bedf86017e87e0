"""Every argument error at once: where it is, in words, and what was received."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import json
import uuid
from collections.abc import Callable
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple, TypedDict

import msgspec
import pydantic
import pytest
from annotated_types import Ge, Gt, MaxLen
from msgspec import Meta, Raw, Struct

from dragoman.jsonrpc.errors import InvalidParams, ParseError
from dragoman.rpc.binding.binding import bind
from dragoman.rpc.binding.faults import MOST, words


class NoContext:
    pass


def errors(function: Callable[..., Any], params: Any) -> list[dict[str, Any]]:
    text = params if isinstance(params, bytes) else json.dumps(params).encode()
    with pytest.raises(InvalidParams) as caught:
        bind(function, context_type=NoContext).arguments(Raw(text))
    assert set(caught.value.data) == {"errors"}
    found: list[dict[str, Any]] = caught.value.data["errors"]
    assert all(set(fault) <= {"field", "message", "received"} for fault in found)
    msgspec.json.encode(found)
    return found


def told(function: Callable[..., Any], params: Any) -> list[tuple[str, str]]:
    return [(fault["field"], fault["message"]) for fault in errors(function, params)]


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Size(TypedDict):
    width: int
    height: int


@dataclasses.dataclass
class Item:
    price: float
    color: Color = Color.RED
    size: Size | None = None


class Sealed(Struct, forbid_unknown_fields=True):
    name: str
    count: int = 0


class Strict(Struct, tag="strict", forbid_unknown_fields=True):
    count: int


class Spot(NamedTuple):
    x: int
    y: int


class Row(Struct, array_like=True):
    x: int
    label: str


class Shelf(pydantic.BaseModel):
    rows: int
    height: int


class Book(pydantic.BaseModel):
    title: str
    pages: int
    year: int


NO_INTEGER = "Input should be a valid integer, unable to parse string as an integer"


@dataclasses.dataclass
class Wide:
    wide: int


@dataclasses.dataclass
class High:
    high: int


class Cat(Struct, tag="cat"):
    lives: int
    name: str


class Dog(Struct, tag="dog"):
    bones: int


class Node(Struct):
    value: int
    next: Node | None = None


class Closed(Struct, forbid_unknown_fields=True):
    a: int


class Model(pydantic.BaseModel):
    x: int
    kids: list[Model] = []


class Even(Struct):
    number: int

    def __post_init__(self) -> None:
        if self.number % 2:
            raise ValueError("must be even")


def test_all_at_once() -> None:
    def order(items: list[Item], customer: str, when: datetime.date, express: bool = False) -> None: ...

    params = {
        "items": [
            {"price": 1},
            {"price": "2", "color": "green", "size": {"width": "w"}},
            5,
        ],
        "when": "tomorrow",
        "express": "yes",
        "custommer": "me",
    }
    assert errors(order, params) == [
        {"field": "items[1].price", "message": "Expected a number, got a string", "received": "2"},
        {"field": "items[1].color", "message": 'Expected one of "red", "blue"', "received": "green"},
        {"field": "items[1].size.width", "message": "Expected an integer, got a string", "received": "w"},
        {"field": "items[1].size.height", "message": "Missing field"},
        {"field": "items[2]", "message": "Expected an object, got an integer", "received": 5},
        {"field": "customer", "message": "Missing argument"},
        {"field": "when", "message": "Invalid RFC3339 encoded date", "received": "tomorrow"},
        {"field": "express", "message": "Expected true or false, got a string", "received": "yes"},
        {"field": "custommer", "message": "Unknown argument; did you mean 'customer'?", "received": "me"},
    ]


def test_null_is_a_value_and_missing_has_none() -> None:
    def function(a: int, b: int) -> None: ...

    assert errors(function, {"a": None}) == [
        {"field": "a", "message": "Expected an integer, got null", "received": None},
        {"field": "b", "message": "Missing argument"},
    ]


@pytest.mark.parametrize(
    ("hint", "value", "expected"),
    [
        (Sealed, {"nam": "x"}, [("it.name", "Missing field"), ("it.nam", "Unknown field; did you mean 'name'?")]),
        (Sealed, {"name": "x", "zzz": 1}, [("it.zzz", "Unknown field")]),
        (Spot, ["x", "y"], [("it[0]", "Expected an integer, got a string"), ("it[1]", "Expected an integer, got a string")]),
        (Spot, [1], [("it", "Expected an array of length 2")]),
        (Row, ["x", 2], [("it[0]", "Expected an integer, got a string"), ("it[1]", "Expected a string, got an integer")]),
        (Row, {"x": 1}, [("it", "Expected an array, got an object")]),
        (tuple[int, str], [None, None], [("it[0]", "Expected an integer, got null"), ("it[1]", "Expected a string, got null")]),
        (tuple[int, str], [1], [("it", "Expected an array of length 2")]),
        (tuple[int, ...], [1, "a"], [("it[1]", "Expected an integer, got a string")]),
        (set[int], ["a"], [("it[0]", "Expected an integer, got a string")]),
        (dict[str, int], {"a b": "x", "c": "y"}, [('it["a b"]', "Expected an integer, got a string"), ("it.c", "Expected an integer, got a string")]),
        (dict[int, int], {"a": 1}, [("it.a", "The name does not fit: Expected an integer, got a string")]),
        (Annotated[list[int], MaxLen(1)], ["a", 2], [("it[0]", "Expected an integer, got a string"), ("it", "Expected an array of length <= 1")]),
        (Annotated[dict[str, int], MaxLen(1)], {"a": "x", "b": 1}, [("it.a", "Expected an integer, got a string"), ("it", "Expected an object of length <= 1")]),
        (int | None, "x", [("it", "Expected an integer or null, got a string")]),
        (list[int] | None, ["x"], [("it[0]", "Expected an integer, got a string")]),
        (Item | list[int], {}, [("it.price", "Missing field")]),
        (Item | list[int], ["x"], [("it[0]", "Expected an integer, got a string")]),
        (Cat | Dog, {"type": "cat", "lives": "x"}, [("it.lives", "Expected an integer, got a string"), ("it.name", "Missing field")]),
        (Cat | Dog, {"type": "cow"}, [("it.type", "Invalid value 'cow'")]),
        (Cat | Dog, {}, [("it", "Missing field type")]),
        (Literal["a", 2], "b", [("it", 'Expected one of "a", 2')]),
        (Literal["a"], "b", [("it", 'Expected "a"')]),
        (Color, 5, [("it", 'Expected one of "red", "blue"')]),
        (uuid.UUID, "x", [("it", "Invalid UUID")]),
        (uuid.UUID, 5, [("it", "Expected a UUID, got an integer")]),
        (Decimal, "x", [("it", "Invalid decimal string")]),
        (bytes, "=x", [("it", "Invalid base64 encoded string")]),
        (bytes, 5, [("it", "Expected a base64 string, got an integer")]),
        (datetime.timedelta, 5.5, [("it", "Expected a duration (ISO 8601), got a number")]),
        (Annotated[str, Meta(pattern="^a$")], "b", [("it", "Expected a string matching regex '^a$'")]),
        (Even, {"number": 3}, [("it", "must be even")]),
        (list[Even], [{"number": 2}, {"number": 3}, {"number": "x"}], [("it[1]", "must be even"), ("it[2].number", "Expected an integer, got a string")]),
        (dict[str, Even], {"a": {"number": 1}}, [("it.a", "must be even")]),
        (Model, {"kids": [{}, {"x": "y"}]}, [("it.x", "Missing field"), ("it.kids[0].x", "Missing field"), ("it.kids[1].x", "Input should be a valid integer, unable to parse string as an integer")]),
        (list[Model | None], [None, 5], [("it[1]", "Input should be an object")]),
        (Closed | list[int], {"a": 1, "b": 2}, [("it.b", "Unknown field")]),
        (Shelf | Book, {"rows": "x", "height": "y"}, [("it.rows", NO_INTEGER), ("it.height", NO_INTEGER)]),
        (Shelf | Book, {"title": "x", "pages": "y", "year": 1}, [("it.pages", NO_INTEGER)]),
        (Shelf | Book, {}, [("it.rows", "Missing field"), ("it.height", "Missing field")]),
        (Shelf | list[int], {"rows": "x", "height": "y"}, [("it.rows", NO_INTEGER), ("it.height", NO_INTEGER)]),
        (Shelf | list[int], ["x", "y"], [("it[0]", "Input should be a valid integer"), ("it[1]", "Input should be a valid integer")]),
        (Shelf | Book, {"title": 1, "pages": "y", "year": "z"}, [("it.title", "Input should be a valid string"), ("it.pages", NO_INTEGER), ("it.year", NO_INTEGER)]),
        (Shelf | None, {"rows": "x", "height": "y"}, [("it.rows", NO_INTEGER), ("it.height", NO_INTEGER)]),
        (Wide | High, {"wide": "x"}, [("it.wide", "Expected an integer, got a string")]),
        (Wide | High, {"high": "x"}, [("it.high", "Expected an integer, got a string")]),
        (Wide | High, {}, [("it.wide", "Missing field")]),
        (Strict, {"type": "strict", "count": "x", "more": 1}, [("it.count", "Expected an integer, got a string"), ("it.more", "Unknown field")]),
        (Annotated[Literal["a", "b"], Meta(description="which")], "c", [("it", 'Expected one of "a", "b"')]),
        (None, 5, [("it", "Expected null, got an integer")]),
    ],
)  # fmt: skip
def test_words(hint: Any, value: Any, expected: list[tuple[str, str]]) -> None:
    def function(it: Any) -> None: ...

    function.__annotations__["it"] = hint
    assert told(function, [value]) == expected


def test_long_values_are_searched_as_well_until_reading_them_again_takes_too_long() -> None:
    """Every level reads what is below it anew: eight times the whole, and then the first fault must do."""

    def function(node: Node, text: str) -> None: ...

    def faults_at(depth: int, size: int) -> int:
        value: dict[str, Any] = {"value": "x" * size, "next": {"value": "bad"}}
        for _ in range(depth):
            value = {"value": 1, "next": value}
        return len(told(function, [value, ""]))

    assert [faults_at(depth, 200_000) for depth in (1, 4, 20)] == [2, 2, 1]
    assert faults_at(20, 10) == 2


def test_deep_faults_are_found() -> None:
    def function(node: Node) -> None: ...

    value: dict[str, Any] = {"value": "bad"}
    for _ in range(5):
        value = {"value": 1.5, "next": value}
    found = told(function, [value])
    assert len(found) == 6
    assert found[-1] == ("node.next.next.next.next.next.value", "Expected an integer, got a string")


def test_beyond_the_depth_msgspec_tells_the_first() -> None:
    def function(node: Node) -> None: ...

    value: dict[str, Any] = {"value": "bad"}
    for _ in range(100):
        value = {"value": 1, "next": value}
    found = errors(function, [value])
    assert found == [{"field": "node" + ".next" * 100 + ".value", "message": "Expected an integer, got a string"}]


def test_all_faults_are_told_down_to_a_depth_and_then_the_first() -> None:
    def function(node: Node) -> None: ...

    def faults_at(depth: int) -> int:
        value: dict[str, Any] = {"value": "bad", "next": {"value": "bad"}}
        for _ in range(depth):
            value = {"value": 1, "next": value}
        return len(told(function, [value]))

    assert [faults_at(depth) for depth in (30, 31, 32, 33)] == [2, 2, 1, 1]


def test_at_most_a_hundred() -> None:
    def function(numbers: list[int], more: dict[str, int], **rest: int) -> None: ...

    assert len(told(function, {"numbers": ["x"] * 5_000, "more": {}})) == MOST
    assert len(told(function, {"numbers": [], "more": {f"k{i}": "x" for i in range(5_000)}})) == MOST
    assert len(told(function, {"numbers": [], "more": {}} | {f"k{i}": "x" for i in range(5_000)})) == MOST

    def plain(a: int) -> None: ...

    assert len(told(plain, [1] * 5_000)) == MOST
    assert len(told(plain, {f"k{i}": 1 for i in range(5_000)})) == MOST


def test_faults_far_apart_in_long_arrays() -> None:
    def function(numbers: list[int], names: dict[str, int], *rest: int) -> None: ...

    numbers: list[Any] = [0] * 2_000
    names: dict[str, Any] = {f"k{index}": 0 for index in range(2_000)}
    for index in (0, 255, 256, 1_999):
        numbers[index] = "x"
        names[f"k{index}"] = "x"
    places = [0, 255, 256, 1_999]
    expected = [f"numbers[{i}]" for i in places] + [f"names.k{i}" for i in places] + ["[5]"]
    assert [field for field, _ in told(function, [numbers, names, 1, 2, 3, "x"])] == expected


def test_received_is_shortened() -> None:
    def function(a: int, b: int, c: int) -> None: ...

    long, exact, wide = "x" * 500, "x" * 198, ["ü" * 50] * 10
    found = errors(function, [long, exact, wide])
    assert found[0]["received"] == '"' + "x" * 196 + "..."
    assert found[1]["received"] == exact
    assert found[2]["received"].endswith("...")
    assert len(found[2]["received"].encode()) <= 200


def test_long_names_are_neither_compared_nor_shown_whole() -> None:
    def function(a: int = 0) -> None: ...

    ((field, message),) = told(function, {"a" * 100_000: 1})
    assert len(field) <= 68
    assert message == "Unknown argument"


def test_integral_floats_do_not_hide_other_faults() -> None:
    def function(a: int, b: list[int], c: Spot) -> None: ...

    assert told(function, [1.0, [2.0, 2.5], [1.0, "x"]]) == [
        ("b[1]", "Expected an integer, got a number"),
        ("c[1]", "Expected an integer, got a string"),
    ]


def test_constraints_come_with_their_numbers() -> None:
    def function(a: Annotated[int, Ge(5)], b: Annotated[str, MaxLen(2)] = "") -> None: ...

    assert told(function, [4, "abc"]) == [("a", "Expected an integer >= 5"), ("b", "Expected a string of length <= 2")]


def test_a_number_no_double_holds_comes_before_faults() -> None:
    def function(a: int, b: str) -> None: ...

    for text in (b'["x",1e400]', b'{"c":1e400}'):
        with pytest.raises(ParseError):
            bind(function, context_type=NoContext).arguments(Raw(text))


def test_a_type_that_breaks_is_not_a_fault_of_the_caller() -> None:
    class Broken(Struct):
        x: int

        def __post_init__(self) -> None:
            raise LookupError("our own")

    def function(it: Broken) -> None: ...

    with pytest.raises(LookupError):
        bind(function, context_type=NoContext).arguments(Raw(b'[{"x":1}]'))


def test_recursion_in_the_arguments_is_a_fault_or_a_parse_error() -> None:
    def function(node: Node) -> None: ...

    deep = b'{"value":1,"next":' * 100_000 + b"null" + b"}" * 100_000  # Python 3.13 takes thousands
    with pytest.raises((ParseError, InvalidParams)):
        bind(function, context_type=NoContext).arguments(Raw(b"[" + deep + b"]"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Expected `int`, got `str`", ("Expected an integer, got a string", "")),
        ("Expected `int | null`, got `bool` - at `$.a[0]`", ("Expected an integer or null, got a boolean", ".a[0]")),
        ("Expected `str` of length >= 2 - at `key` in `$`", ("Expected a string of length >= 2", "")),
        ("Object missing required field `x` - at `$[3]`", ("Missing field x", "[3]")),
        ("Something new", ("Something new", "")),
    ],
)
def test_translation(text: str, expected: tuple[str, str]) -> None:
    assert words(text) == expected


# -- where nothing told before --------------------------------------------------------------------

UNHASHABLE = Meta(extra_json_schema={"examples": [1]})


@pytest.mark.parametrize(
    ("hint", "value", "expected"),
    [
        (int, 1.0, 1),
        (int | float, 1.0, 1.0),
        (float | int, 1.0, 1.0),
        (int | None, 1.0, 1),
        (int | str, 1.0, 1),
        (float | str, 1.0, 1.0),
        (Annotated[int, UNHASHABLE], 1.0, 1),
        (list[Annotated[int, UNHASHABLE]], [1.0], [1]),
        (Annotated[int, UNHASHABLE] | Annotated[float, UNHASHABLE], 1.0, 1.0),
    ],
    ids=str,
)
def test_an_integral_float_is_an_integer_only_where_no_float_is_wanted(hint: Any, value: Any, expected: Any) -> None:
    def function(it: Any, other: int) -> Any: ...

    function.__annotations__["it"] = hint
    binding = bind(function, context_type=NoContext)
    for params in ([value, 1.0], {"it": value, "other": 1.0}):
        found = binding.arguments(Raw(json.dumps(params).encode()))
        assert found == (expected, 1)
        assert str(found) == str((expected, 1))  # 1 == 1.0


class Pair(msgspec.Struct, array_like=True):
    name: str
    count: int
    share: float = 0.0


class Box(msgspec.Struct):
    counts: list[int]
    pair: Pair
    by_name: dict[str, int]
    place: tuple[float, int]
    share: float
    text: str = ""
    other: list[int] | int | None = None


def test_integral_floats_are_integers_wherever_they_stand() -> None:
    def function(box: Box, some: int | list[Box], *rest: int) -> Any: ...

    inside = {
        "counts": [1.0, 2],
        "pair": ["a", 3.0, 4.0],
        "by_name": {"b": 5.0},
        "place": [6.0, 7.0],
        "share": 8.0,
        "other": [9.0],
    }
    params = [inside, [inside | {"other": 10.0}], 11.0]
    found = bind(function, context_type=NoContext).arguments(Raw(json.dumps(params).encode()))
    box = Box([1, 2], Pair("a", 3, 4.0), {"b": 5}, (6.0, 7), 8.0, "", [9])
    assert repr(found) == repr((box, [msgspec.structs.replace(box, other=10)], 11))  # 1 == 1.0


def test_a_fault_that_the_finder_misses_is_a_fault() -> None:
    """A twin with the constraints is checked first, which knows no `__post_init__`; then the class says no."""

    @dataclasses.dataclass
    class Even:
        x: Annotated[int, Gt(0)]

        def __post_init__(self) -> None:
            if self.x % 2:
                raise ValueError("x is odd")

    def function(it: Even, other: int = 1) -> Any: ...

    binding = bind(function, context_type=NoContext)
    with pytest.raises(InvalidParams) as error:
        binding.arguments(Raw(b'[{"x":3}]'))
    assert error.value.data == {"errors": [{"field": "it", "message": "x is odd", "received": {"x": 3}}]}
    assert binding.arguments(Raw(b'[{"x":2}]')) == (Even(2), 1)
