"""bind and result_decoder: results out and in, and pydantic's models both ways."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import math
from typing import Annotated, Any, NamedTuple, NoReturn

import attrs
import jsonschema
import pydantic
import pytest
from annotated_types import Gt, MaxLen, MinLen
from msgspec import Raw, Struct

from dragoman.jsonrpc.codec import ResultMessage
from dragoman.jsonrpc.errors import BadAnswer, LocalError
from dragoman.rpc.binding.binding import bind
from dragoman.rpc.binding.results import result_decoder, to_json
from tests.rpc.binding.bindings import result_schema
from tests.rpc.binding.hinted import Special2, binding_of, faults, take


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Point(Struct):
    x: int
    y: int = 0


class Pair(NamedTuple):
    x: int
    y: int = 0


@dataclasses.dataclass
class Item:
    price: float
    name: str = ""


@attrs.define
class Part:
    size: int


@dataclasses.dataclass
class Order:
    quantity: Annotated[int, Gt(0)]
    note: Annotated[str, MaxLen(3)] = ""
    tags: list[Annotated[str, MinLen(1)]] = dataclasses.field(default_factory=list)


class Custom:
    pass


class Model(pydantic.BaseModel):
    x: int = pydantic.Field(gt=0)
    y: float = 1.0


# -- results


class Twice(Struct):
    y: int


def test_results_that_can_only_go_out() -> None:
    def function() -> Point | Twice:
        return Point(1)

    schema = result_schema(bind(function, context_type=Special2))
    assert schema["anyOf"] == [{"$ref": "#/$defs/Point"}, {"$ref": "#/$defs/Twice"}]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Point(1), b'{"x":1,"y":0}'),
        (Item(1.5), b'{"price":1.5,"name":""}'),
        (Part(2), b'{"size":2}'),
        (Pair(1), b"[1,0]"),
        (Color.RED, b'"red"'),
        ([math.nan, math.inf], b"[null,null]"),
        ({"m": [Model(x=1)]}, b'{"m":[{"x":1,"y":1.0}]}'),
        (Raw(b"[1.50]"), b"[1.50]"),
        (b"\x00", b'"AA=="'),
    ],
)
def test_encode(value: Any, text: bytes) -> None:
    assert binding_of(int).encode(value) == text
    assert to_json(value) == text


def test_what_cannot_be_encoded() -> None:
    endless: list[Any] = []
    endless.append(endless)

    async def coroutine() -> None: ...

    encode = binding_of(int).encode
    for value, kind in (
        (endless, RecursionError),
        ("\ud800", UnicodeEncodeError),
        (Custom(), TypeError),
        (coroutine(), TypeError),
    ):
        with pytest.raises(kind):
            encode(value)
    for value in (endless, "\ud800", Custom()):
        with pytest.raises(LocalError):
            to_json(value)


def test_result_decoder() -> None:
    assert result_decoder(int)(Raw(b"5")) == 5
    assert result_decoder(int)(Raw(b"5.0")) == 5
    assert result_decoder(None)(b"null") is None
    assert result_decoder(Any)(b"[1.0]") == [1.0]
    assert result_decoder(list[Model])(b'[{"x":1}]') == [Model(x=1)]
    assert result_decoder(Order)(b'{"quantity":1}') == Order(1)
    assert result_decoder(list[Point]) is result_decoder(list[Point])
    unhashable = Annotated[int, ["a list"]]
    assert result_decoder(unhashable)(b"3.0") == 3
    with pytest.raises(LocalError, match="cannot be decoded to Custom"):
        result_decoder(Custom)


@pytest.mark.parametrize(
    ("kind", "text", "message"),
    [
        (int, b'"x"', "result: Expected an integer, got a string"),
        (
            list[Point],
            b'[{"x":1},{"y":"a"}]',
            r"result\[1\].x: Missing field; result\[1\].y: Expected an integer, got a string",
        ),
        (Order, b'{"quantity":0}', "result.quantity: Expected an integer >= 1"),
        (Model, b'{"x":0}', "result.x: Input should be greater than 0"),
        (list[int], b"[null,null,null,null,null,null,null]", r"and 2 more"),
        (Any, b"1e400", "cannot be read"),
        (int, b"[" * 100_000, "cannot be read"),
    ],
)
def test_bad_answers(kind: Any, text: bytes, message: str) -> None:
    with pytest.raises(BadAnswer, match=message):
        result_decoder(kind)(Raw(text))


# -- pydantic


class Inner(pydantic.BaseModel):
    when: datetime.date
    kids: list[Inner] = []


class Strict(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(strict=True, populate_by_name=False)

    day: datetime.date = pydantic.Field(alias="theDay")


@pytest.mark.parametrize(
    ("hint", "value", "expected"),
    [
        (Model, {"x": 1}, Model(x=1)),
        (list[Model], [{"x": 1}], [Model(x=1)]),
        (dict[str, Model | None], {"a": None, "b": {"x": 2}}, {"a": None, "b": Model(x=2)}),
        (Inner, {"when": "2024-01-02", "kids": [{"when": "2024-01-03"}]}, None),
        (Strict, {"theDay": "2024-01-02"}, Strict(theDay=datetime.date(2024, 1, 2))),
        (Model, {"x": 1.0}, Model(x=1)),
    ],
)
def test_pydantic(hint: Any, value: Any, expected: Any) -> None:
    found = take(hint, value)
    if expected is not None:
        assert found == expected
    else:
        assert found.kids[0].when == datetime.date(2024, 1, 3)


def test_pydantic_faults_are_its_own() -> None:
    assert faults(Model, {"x": 0, "y": "a"}) == [
        ("it.x", "Input should be greater than 0"),
        ("it.y", "Input should be a valid number, unable to parse string as a number"),
    ]
    assert faults(list[Model], [{"x": 1}, {}]) == [("it[1].x", "Missing field")]
    assert faults(Inner, {"when": "2024-01-02", "kids": [{"when": "x"}]})[0][0] == "it.kids[0].when"


def test_pydantic_results() -> None:
    def function() -> Strict:
        raise NotImplementedError

    binding = bind(function, context_type=Special2)
    answer = ResultMessage(Strict(theDay=datetime.date(2024, 1, 2)), 1)
    assert binding.encode(answer) == b'{"jsonrpc":"2.0","result":{"theDay":"2024-01-02"},"id":1}'
    assert "theDay" in result_schema(binding)["$defs"]["Strict"]["properties"]


def test_pydantic_references_are_hoisted() -> None:
    schema = binding_of(list[Inner]).params_schema()
    assert "Inner" in schema["$defs"]
    jsonschema.Draft202012Validator.check_schema(schema)


def test_what_never_returns_and_what_only_goes_out() -> None:
    def never() -> NoReturn:
        raise NotImplementedError

    def choice() -> list[Point | Item]:
        return []

    def model() -> Model | int:
        return 1

    assert result_schema(bind(never, context_type=Special2)) == {}
    assert result_schema(bind(choice, context_type=Special2))["items"] == {
        "anyOf": [{"$ref": "#/$defs/Point"}, {"$ref": "#/$defs/Item"}]
    }
    schema = result_schema(bind(model, context_type=Special2))
    assert schema["anyOf"][1] == {"type": "integer"}


def test_a_model_alone_is_described_by_pydantic() -> None:
    def function(it: Model) -> None: ...

    (parameter,) = bind(function, context_type=Special2).parameters
    assert parameter.schema["properties"]["x"] == {"exclusiveMinimum": 0, "title": "X", "type": "integer"}


def test_two_models_of_one_name_stay_apart() -> None:
    one = pydantic.create_model("Same", a=(int, ...))
    two = pydantic.create_model("Same", __module__="elsewhere", b=(int, ...))
    first = pydantic.create_model("First", same=(one, ...))
    second = pydantic.create_model("Second", same=(two, ...))

    def function(a: Any, b: Any) -> None: ...

    function.__annotations__ |= {"a": first, "b": second}
    schema = bind(function, context_type=Special2).params_schema()
    assert sorted(schema["$defs"]) == ["Same", "tests.rpc.binding.test_results.Same"]
    jsonschema.validate({"a": {"same": {"a": 1}}, "b": {"same": {"b": 1}}}, schema, cls=jsonschema.Draft202012Validator)
