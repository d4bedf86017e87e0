"""bind: types, constraints, pydantic, and what is refused at registration."""

from __future__ import annotations

import base64
import dataclasses
import datetime
import enum
import sys
import uuid
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Final,
    Generic,
    Literal,
    LiteralString,
    NamedTuple,
    NewType,
    NotRequired,
    TypedDict,
    TypeGuard,
    TypeVar,
    Unpack,
)

import attrs
import msgspec
import pydantic
import pytest
from annotated_types import Ge, Gt, Interval, Le, Len, Lt, MaxLen, MinLen, MultipleOf, Timezone, Unit, doc
from msgspec import UNSET, Meta, Raw, Struct
from typing_extensions import TypeAliasType

from dragoman.jsonrpc.errors import InvalidParams, LocalError
from dragoman.rpc.binding.binding import bind
from dragoman.rpc.binding.json_schema import validator
from dragoman.rpc.binding.schema import described
from tests.rpc.binding.hinted import Special2, binding_of, faults, take

if TYPE_CHECKING:
    from somewhere import Missing, Special  # type: ignore[import-not-found]

T = TypeVar("T")


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Mixed(enum.Enum):
    ONE = 1
    TWO = "two"


class Point(Struct):
    x: int
    y: int = 0


class Pair(NamedTuple):
    x: int
    y: int = 0


class Options(TypedDict):
    depth: int
    deep: NotRequired[bool]


@dataclasses.dataclass
class Item:
    price: float
    name: str = ""


@attrs.define
class Part:
    size: int


class Node(Struct):
    value: int
    next: Node | None = None


class Box(Struct, Generic[T]):
    content: T


class Cat(Struct, tag=True):
    lives: int


class Dog(Struct, tag=True):
    bones: int


class Renamed(Struct, rename="camel", forbid_unknown_fields=True):
    some_name: int


UserId = NewType("UserId", int)
Positive = TypeAliasType("Positive", Annotated[int, Gt(0)])
Maybe = TypeAliasType("Maybe", T | None, type_params=(T,))


class Free(TypedDict, total=False):
    any: int


@pytest.mark.parametrize(
    ("hint", "value", "expected"),
    [
        (int, 5, 5),
        (int, 2**70, 2**70),
        (float, 5, 5.0),
        (str, "ü", "ü"),
        (bool, True, True),
        (None, None, None),
        (Any, {"a": [1.5, None]}, {"a": [1.5, None]}),
        (object, [1], [1]),
        (bytes, base64.b64encode(b"\x00\xff").decode(), b"\x00\xff"),
        (datetime.datetime, "2024-01-02T03:04:05Z", datetime.datetime(2024, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)),
        (datetime.date, "2024-01-02", datetime.date(2024, 1, 2)),
        (uuid.UUID, "12345678-1234-5678-1234-567812345678", uuid.UUID(int=0x12345678123456781234567812345678)),
        (Decimal, "1.10", Decimal("1.10")),
        (Color, "red", Color.RED),
        (Level, 2, Level.HIGH),
        (Literal["a", 1], 1, 1),
        (list[int], [1, 2], [1, 2]),
        (list[object], [1.0, "a"], [1.0, "a"]),
        (Sequence[int], [1], [1]),
        (Iterable[int], [1], [1]),
        (dict[str, int], {"a": 1}, {"a": 1}),
        (Mapping[str, Point], {"a": {"x": 1}}, {"a": Point(1)}),
        (dict[int, str], {"1": "a"}, {1: "a"}),
        (set[int], [1, 2], {1, 2}),
        (frozenset[str], ["a"], frozenset("a")),
        (tuple[int, str], [1, "a"], (1, "a")),
        (tuple[int, ...], [1, 2], (1, 2)),
        (int | None, None, None),
        (int | str | list[Point], [{"x": 1}], [Point(1)]),
        (Point, {"x": 1}, Point(1)),
        (Pair, [1], Pair(1)),
        (Options, {"depth": 1}, {"depth": 1}),
        (Item, {"price": 1}, Item(1.0)),
        (Part, {"size": 1}, Part(1)),
        (Node, {"value": 1, "next": {"value": 2}}, Node(1, Node(2))),
        (Box[int], {"content": 1}, Box(1)),
        (Cat | Dog, {"type": "Dog", "bones": 3}, Dog(3)),
        (UserId, 5, 5),
        (Positive, 5, 5),
        (list[Positive], [5], [5]),
        (Renamed, {"someName": 1}, Renamed(1)),
        (int | msgspec.UnsetType, 5, 5),
        (LiteralString, "x", "x"),
        (Iterable, [1, "a"], [1, "a"]),
        (dict, {"a": 1}, {"a": 1}),
        (Final[int], 5, 5),
        (Annotated[str, slice(1, 2)], "a", "a"),
        (Annotated[list[int], slice(0, None)], [], []),
        (Maybe[int], None, None),
        (Free, {"any": 1}, {"any": 1}),
        (Annotated[int, doc("said")], 5, 5),
    ],
)
def test_types(hint: Any, value: Any, expected: Any) -> None:
    found = take(hint, value)
    assert found == expected
    assert type(found) is type(expected)


def test_unset_as_a_default() -> None:
    def function(it: int | msgspec.UnsetType = UNSET) -> Any:
        return it

    binding = bind(function, context_type=Special2)
    assert binding.function(*binding.arguments(UNSET)) is UNSET
    assert binding.function(*binding.arguments(Raw(b"[3]"))) == 3


# -- integral floats


@pytest.mark.parametrize(
    ("hint", "value", "expected"),
    [
        (int, 1.0, 1),
        (int, -2e2, -200),
        (int | None, 1.0, 1),
        (int | float, 1.0, 1.0),
        (float, 1.0, 1.0),
        (Any, 1.0, 1.0),
        (list[int], [1.0, 2], [1, 2]),
        (tuple[int, float], [1.0, 1.0], (1, 1.0)),
        (dict[str, list[int]], {"a": [1.0]}, {"a": [1]}),
        (Point, {"x": 1.0, "y": 2.0}, Point(1, 2)),
        (Item | int, 1.0, 1),
        (list[Point] | int, [{"x": 1.0}], [Point(1)]),
        (Pair, [1.0, 2.0], Pair(1, 2)),
        (Options, {"depth": 1.0}, {"depth": 1}),
        (Part, {"size": 3.0}, Part(3)),
        (Node, {"value": 1.0, "next": {"value": 2.0}}, Node(1, Node(2))),
        (Cat | Dog, {"type": "Cat", "lives": 9.0}, Cat(9)),
        (Level, 2.0, Level.HIGH),
        (Literal[1, 2], 2.0, 2),
        (Annotated[int, Meta(gt=0)], 3.0, 3),
        (UserId, 3.0, 3),
    ],
)
def test_integral_floats_are_integers(hint: Any, value: Any, expected: Any) -> None:
    found = take(hint, value)
    assert found == expected
    assert repr(found) == repr(expected)


@pytest.mark.parametrize("value", [1.5, True, "1", None])
def test_what_is_not_an_integer(value: Any) -> None:
    assert faults(int, value)[0][1].startswith("Expected an integer, got ")
    assert faults(list[int], [value])[0][0] == "it[0]"


# -- constraints


@dataclasses.dataclass
class Order:
    quantity: Annotated[int, Gt(0)]
    note: Annotated[str, MaxLen(3)] = ""
    tags: list[Annotated[str, MinLen(1)]] = dataclasses.field(default_factory=list)


class Line(Struct, rename="camel"):
    unit_price: Annotated[float, Ge(0)]
    order: Order | None = None


class Basket(TypedDict):
    lines: list[Line]
    discount: NotRequired[Annotated[float, Interval(ge=0, lt=1)]]


class Limit(NamedTuple):
    low: Annotated[int, Ge(0)]
    high: int = 10


class Egg(Struct, tag="egg"):
    size: Annotated[int, Gt(0)]


class Hen(Struct, tag="hen"):
    age: int


class Sealed(Struct, forbid_unknown_fields=True):
    """Closed."""

    size: Annotated[int, Gt(0)]
    spots: list[Point] = msgspec.field(default_factory=list)
    label: str = "x"


class Loop(Struct):
    size: Annotated[int, Gt(0)]
    next: Loop | None = None


@pytest.mark.parametrize(
    ("hint", "good", "bad", "message"),
    [
        (Annotated[int, pydantic.Field(gt=0)], 1, 0, "Expected an integer >= 1"),
        (Annotated[int, pydantic.Field(gt=0, le=9, description="d")], 9, 10, "Expected an integer <= 9"),
        (Annotated[str, pydantic.Field(pattern="^a")], "ab", "b", "Expected a string matching regex '^a'"),
        (pydantic.constr(pattern="^a", min_length=2), "ab", "a", "Expected a string of length >= 2"),
        (pydantic.conint(ge=3), 3, 2, "Expected an integer >= 3"),
        (pydantic.StrictInt, 3, "3", "Expected an integer, got a string"),
        (Annotated[int, Gt(0)], 1, 0, "Expected an integer >= 1"),
        (Annotated[int, Ge(0), Lt(10), Gt(2)], 3, 2, "Expected an integer >= 3"),
        (Annotated[int, Interval(gt=0, le=5)], 5, 6, "Expected an integer <= 5"),
        (Annotated[float, Le(1)], 1, 1.5, "Expected a number <= 1.0"),
        (Annotated[int, MultipleOf(3)], 6, 7, "Expected a multiple of 3"),
        (Annotated[str, Len(2, 3)], "ab", "a", "Expected a string of length >= 2"),
        (Annotated[list[int], MaxLen(1)], [1], [1, 2], "Expected an array of length <= 1"),
        (Annotated[int | None, Gt(0)], None, -1, "Expected an integer >= 1"),
        (Annotated[int | str, Gt(0)], "", -1, "Expected an integer >= 1"),
        (Annotated[int, Unit("s"), "seconds"], 1, "x", "Expected an integer, got a string"),
        (Annotated[datetime.datetime, Timezone(...)], "2024-01-02T03:04:05Z", "2024-01-02T03:04:05", "Expected a date and time (RFC 3339) with a timezone component"),
        (Annotated[datetime.datetime, Timezone(None)], "2024-01-02T03:04:05", "2024-01-02T03:04:05Z", "Expected a date and time (RFC 3339) with no timezone component"),
        (Annotated[int, Gt(1), Ge(5)], 5, 4, "Expected an integer >= 5"),
        (Annotated[int, Lt(9), Le(5)], 5, 6, "Expected an integer <= 5"),
        (Annotated[int, Meta(gt=0), Gt(5)], 6, 5, "Expected an integer >= 6"),
    ],
)  # fmt: skip
def test_constraints(hint: Any, good: Any, bad: Any, message: str) -> None:
    take(hint, good)
    assert faults(hint, bad) == [("it", message)]


@pytest.mark.parametrize(
    ("hint", "good", "bad", "field"),
    [
        (list[Annotated[int, Gt(0)]], [1], [1, 0], "it[1]"),
        (dict[str, Annotated[int, Gt(0)]], {"a": 1}, {"a": 0}, "it.a"),
        (Order, {"quantity": 1}, {"quantity": 0}, "it.quantity"),
        (list[Order], [{"quantity": 1}], [{"quantity": 1, "tags": ["a", ""]}], "it[0].tags[1]"),
        (Line, {"unitPrice": 1}, {"unitPrice": 1, "order": {"quantity": 1, "note": "long"}}, "it.order.note"),
        (Basket, {"lines": [{"unitPrice": 1}]}, {"lines": [], "discount": 1}, "it.discount"),
        (Limit, [1], [-1], "it[0]"),
        (Egg | Hen, {"type": "egg", "size": 1}, {"type": "egg", "size": 0}, "it.size"),
        (Box[Annotated[int, Gt(0)]], {"content": 1}, {"content": 0}, "it.content"),
        (Sealed, {"size": 1}, {"size": 1, "sise": 2}, "it.sise"),
        (Box[Order], {"content": {"quantity": 1}}, {"content": {"quantity": 0}}, "it.content.quantity"),
    ],
)
def test_constraints_inside(hint: Any, good: Any, bad: Any, field: str) -> None:
    take(hint, good)
    assert [name for name, _ in faults(hint, bad)] == [field]


def test_what_arrives_is_of_the_users_class() -> None:
    order = take(Order, {"quantity": 2.0, "tags": ["x"]})
    assert type(order) is Order
    assert order == Order(2, "", ["x"])
    assert type(take(Egg | Hen, {"type": "egg", "size": 1})) is Egg


def test_constraints_stand_in_the_schema() -> None:
    schema = binding_of(list[Order]).params_schema()
    assert schema["$defs"]["Order"]["properties"]["quantity"] == {"type": "integer", "exclusiveMinimum": 0}
    assert schema["$defs"]["Order"]["required"] == ["quantity"]


def test_text_is_not_taken_for_a_description_or_constraint() -> None:
    binding = binding_of(Annotated[int, "how many"])
    assert binding.parameters[0].description == "how many"


# -- refused at registration


class Custom:
    pass


@dataclasses.dataclass
class Unruly:
    x: int = pydantic.Field(default=3, gt=0)


class Tree(Struct):
    label: str | datetime.date
    next: Tree | None = None


class Model(pydantic.BaseModel):
    x: int = pydantic.Field(gt=0)
    y: float = 1.0


@pytest.mark.parametrize(
    ("hint", "reason"),
    [
        (Custom, r"cannot be decoded to Custom; use"),
        (list[Custom | None], r"cannot be decoded to Custom"),
        (complex, r"cannot be decoded to complex"),
        (type, r"cannot be decoded"),
        (Loop, r"refers to itself .* msgspec.Meta"),
        (Annotated[str, Gt(0)], r"numeric"),
        (Annotated[datetime.datetime, Timezone("Europe/Berlin")], r"check it in the function"),
        (
            list[Annotated[int, pydantic.Field(alias="b")]],
            r"Field\(alias=...\) is for a parameter or a model's field.*leave it",
        ),
        (list[Annotated[int, pydantic.Field(default=3)]], r"Field\(default=...\) is for a parameter"),
        (
            list[Annotated[list[int], pydantic.Field(default_factory=list)]],
            r"Field\(default_factory=...\) is for a parameter.*a pydantic model",
        ),
        (Annotated[int | str, pydantic.Field(discriminator="kind")], r"pydantic cannot decode.*use pydantic models"),
        (Annotated[int, pydantic.Field(validate_default=True)], r"write the default as it is to arrive"),
        (Annotated[int, pydantic.Field(json_schema_extra=lambda s: None)], r"is a dict here, not a function"),
        (Annotated[int, pydantic.Field(validation_alias=pydantic.AliasChoices("a", "b"))], r"an argument has one name"),
        (Annotated[Point, pydantic.AfterValidator(abs)], r"pydantic cannot decode.*use pydantic models, dataclasses"),
        (Unruly, r"Unruly.x = Field\(...\) is read in pydantic's classes alone; write x: Annotated"),
        (Tree, r"Tree refers to itself and has types that msgspec cannot decode; make it a pydantic model"),
        (dict[Point, int], r"the names of a JSON object are text"),
        (Unpack[Options], r"is not supported; write the arguments one by one, or as the type of each value"),
        (Unpack[tuple[int, ...]], r"is not supported; write the arguments one by one"),
        (tuple[int, *tuple[str, ...]], r"is not supported; write .* a list in place of an unpacked tuple"),
        (Mixed, r"give all members texts or all whole numbers, or write Literal\[1, 'one'\]"),
        (list[Mixed | None], r"give all members texts or all whole numbers"),
        (TypeGuard[int], r"is not supported"),
        ("Nowhere", r"names 'Nowhere', which is not known here"),
        ("Missing", r"names 'Missing'.*not under TYPE_CHECKING"),
        ("list[", r"cannot be evaluated"),
    ],
)
def test_refused(hint: Any, reason: str) -> None:
    with pytest.raises(LocalError, match=reason) as caught:
        binding_of(hint)
    assert "binding_of.<locals>.function(), parameter 'it'" in str(caught.value)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="the statement came with 3.12")
def test_an_alias_that_refers_to_itself_is_refused() -> None:
    names: dict[str, Any] = {}
    exec("type Endless = list[Endless] | int", names)
    with pytest.raises(LocalError, match="refers to itself"):
        binding_of(names["Endless"])


class Tame(pydantic.BaseModel):
    kind: Literal["tame"] = "tame"
    name: str = ""


class Wild(pydantic.BaseModel):
    kind: Literal["wild"] = "wild"


class Zoo(pydantic.BaseModel):
    animal: Tame | Wild = pydantic.Field(discriminator="kind")


@pytest.mark.parametrize(
    ("hint", "wrap"),
    [
        (Annotated[Tame | Wild, pydantic.Field(discriminator="kind")], lambda animal: animal),
        (list[Annotated[Tame | Wild, pydantic.Field(discriminator="kind")]], lambda animal: [animal]),
        (Zoo, lambda animal: {"animal": animal}),
        (list[Zoo], lambda animal: [{"animal": animal}]),
    ],
)
@pytest.mark.parametrize("refs", ["#/$defs/{name}", "#/components/schemas/{name}"])
def test_the_tag_of_a_discriminated_union_is_required(hint: Any, wrap: Any, refs: str) -> None:
    """A default of the tag is for who makes one in Python: what chooses by it must be there."""
    binding = binding_of(hint)
    (schema,), components = described(binding.parameters, refs=refs)
    text = msgspec.json.encode([schema, components]).decode().replace("#/components/schemas/", "#/$defs/")
    schema, components = msgspec.json.decode(text)
    validate = validator(schema | {"$defs": components})
    for animal, fits in (({"kind": "tame"}, True), ({"kind": "wild"}, True), ({}, False), ({"name": "x"}, False)):
        assert (not validate(wrap(animal))) is fits
        try:
            binding.arguments(Raw(msgspec.json.encode({"it": wrap(animal)})))
        except InvalidParams:
            assert not fits
        else:
            assert fits


class Dangling(Struct):
    x: Nowhere  # type: ignore[name-defined]  # noqa: F821


def test_a_field_that_cannot_be_resolved_is_named() -> None:
    with pytest.raises(LocalError, match=r"'it': .*Dangling.*'Nowhere'"):
        binding_of(Dangling)


def test_an_unresolved_or_unencodable_result_is_refused() -> None:
    def unresolved() -> Missing:
        raise NotImplementedError

    def custom() -> list[Custom]:
        return []

    with pytest.raises(LocalError, match=r"result: .*'Missing'"):
        bind(unresolved, context_type=Special2)
    with pytest.raises(LocalError, match=r"result: .*Custom"):
        bind(custom, context_type=Special2)


def test_the_context_resolves_even_under_type_checking() -> None:
    class Special:
        pass

    def function(a: int, ctx: Special) -> None: ...

    function.__annotations__["ctx"] = "Special"
    hidden = function.__globals__.get("Special")
    assert hidden is None
    assert bind(function, context_type=Special).wants_context


def test_names_of_enclosing_functions_resolve() -> None:
    class Local(Struct):
        x: int

    def inner(it: Local, others: list[Local]) -> Local:
        return it

    class Api:
        Mine = Literal["a"]

        def method(this, it: Local, choice: Mine) -> None: ...

        bound = bind(method, context_type=Special2)

    binding = bind(inner, context_type=Special2)
    assert binding.function(*binding.arguments(Raw(b'[{"x":1},[]]'))) == Local(1)
    assert Api.bound.parameters[2].annotation.type == Literal["a"]
