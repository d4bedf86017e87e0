"""Every kind of type against every value: what is taken fits the published schema, what fits it is taken, what is not
taken has faults that name their place, and arguments by name and by position are judged alike."""

from __future__ import annotations

import dataclasses
import enum
import typing
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, NamedTuple, NewType, NotRequired, Required, TypedDict, TypeVar
from uuid import UUID

import attrs
import jsonschema
import msgspec
import pydantic
import pytest
from annotated_types import Ge, Interval, Le, Len, MaxLen, MinLen, MultipleOf
from msgspec import UNSET, Meta, Raw, Struct, UnsetType
from typing_extensions import ReadOnly, TypeAliasType
from typing_extensions import TypedDict as NewTypedDict

from dragoman.jsonrpc.errors import InvalidParams, LocalError
from dragoman.rpc.binding.binding import bind

T = TypeVar("T")
U = TypeVar("U")
Whole = TypeVar("Whole", bound=int)


class Plain(Struct):
    a: int
    b: str = "x"


class Closed(Struct, forbid_unknown_fields=True):
    a: int
    b: str = "x"


class Renamed(Struct, rename="camel"):
    first_name: str
    last_name: str = ""


class Array(Struct, array_like=True):
    a: int
    b: str = "x"


class ClosedArray(Struct, array_like=True, forbid_unknown_fields=True):
    a: int
    b: str = "x"


class Keywords(Struct, kw_only=True):
    a: int = 1
    b: str


class TagA(Struct, tag="t"):
    a: int


class TagB(Struct, tag="u"):
    b: int


class NumberA(Struct, tag=1):
    a: int


class NumberB(Struct, tag=2):
    b: int


class ArrayA(Struct, array_like=True, tag="t"):
    a: int
    b: int = 1


class ArrayB(Struct, array_like=True, tag="u"):
    a: int


class BoundA(Struct, tag="k"):
    a: Annotated[int, Ge(1)]


class BoundB(Struct, tag="j"):
    a: Annotated[int, Le(1)]


class Nested(Struct):
    inner: Plain
    more: list[Plain] = []


class Chain(Struct):
    v: int
    next: Chain | None = None


class Box(Struct, Generic[T]):
    item: T
    items: list[T] = []


class Pair(Struct, Generic[T, U]):
    a: T
    b: U


class Swapped(Struct, Generic[T, U]):
    inner: Pair[U, T]


class Absent(Struct):
    a: int | UnsetType = UNSET


class Bounded(Struct):
    a: Annotated[int, Ge(1)]
    b: Annotated[str, Len(2, 3)] = "xx"


class BoundedInside(Struct):
    inner: Bounded
    m: dict[str, Bounded] = {}


class BoundedArray(Struct, array_like=True):
    a: Annotated[int, Ge(1)]
    b: int = 0


class Hashable(Struct, frozen=True):
    a: int


@dataclasses.dataclass
class Data:
    a: int
    b: str = "x"


@dataclasses.dataclass
class Made:
    a: int
    _: dataclasses.KW_ONLY
    b: int = dataclasses.field(init=False, default=3)
    c: typing.ClassVar[int] = 3


@dataclasses.dataclass
class BoundedData:
    a: Annotated[int, Ge(1)]
    b: list[Annotated[int, Ge(1)]] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class GenericData(Generic[T]):
    item: T


@dataclasses.dataclass
class TreeData:
    v: int
    kids: list[TreeData] = dataclasses.field(default_factory=list)


@attrs.define
class Attrs:
    a: int
    b: str = "x"


@attrs.define
class AliasAttrs:
    a: int = attrs.field(alias="z")
    _p: int = 3


class Keys(TypedDict):
    a: int
    b: NotRequired[str]


class SomeKeys(TypedDict, total=False):
    a: Required[int]
    b: str


class MoreKeys(Keys):
    c: int


class BoundedKeys(TypedDict):
    a: Annotated[int, Ge(1)]
    b: NotRequired[Annotated[str, MaxLen(2)]]


class ReadKeys(NewTypedDict):
    a: ReadOnly[int]
    b: NotRequired[ReadOnly[Annotated[str, MaxLen(2)]]]


class ChainKeys(TypedDict):
    v: int
    next: NotRequired[ChainKeys]


OddKeys = TypedDict("OddKeys", {"a-b": int, "class": str})


class Row(NamedTuple):
    a: int
    b: str = "x"


class BoundedRow(NamedTuple):
    a: Annotated[int, Ge(1)]
    b: int = 0


class Word(enum.StrEnum):
    A = "a"
    B = "b"


class Number(enum.IntEnum):
    A = 1
    B = 2


class Bits(enum.IntFlag):
    A = 1
    B = 2


class Strict(pydantic.BaseModel, extra="forbid", strict=True):
    a: pydantic.StrictStr


class Upper(pydantic.BaseModel, alias_generator=lambda name: name.upper()):
    a: list[str]


class Root(pydantic.RootModel[list[str]]):
    pass


class Cat(pydantic.BaseModel):
    kind: Literal["cat"]


class Dog(pydantic.BaseModel):
    kind: Literal["dog"]
    bones: list[str] = []


Numbers = TypeAliasType("Numbers", list[int])
Several = TypeAliasType("Several", list[T], type_params=(T,))
Maybe = TypeAliasType("Maybe", T | None, type_params=(T,))
Positive = TypeAliasType("Positive", Annotated[int, Ge(1)])
UserId = NewType("UserId", int)

CLASSES: list[Any] = [
    *(
        Plain,
        Closed,
        Renamed,
        Array,
        ClosedArray,
        Keywords,
        Nested,
        Chain,
        Box,
        Box[int],
        Box[Plain],
        Box[Annotated[int, Ge(1)]],
    ),
    *(Swapped, Swapped[int, str], Absent, Bounded, BoundedInside, BoundedArray, Data, Made, BoundedData),
    *(
        GenericData[int],
        GenericData[Annotated[int, Ge(1)]],
        TreeData,
        Attrs,
        AliasAttrs,
        Keys,
        SomeKeys,
        MoreKeys,
        BoundedKeys,
    ),
    *(ReadKeys, ChainKeys, OddKeys, Row, BoundedRow, Word, Number, Strict, Upper, Root, Cat, Dog),
]
ALIASES: list[Any] = [
    *(Numbers, Several[int], Positive, list[Positive], UserId, Whole, T, str, typing.LiteralString),
    *(Any, object, Raw, None, list, tuple, dict, list[Any], Mapping[str, int], Sequence[int], Iterable[Plain]),
    *(list[Plain], dict[str, Plain], frozenset[str], set[Hashable], tuple[Plain, ...]),
    *(tuple[Plain, int], tuple[()], Path, list[Path]),
]
METADATA: list[Any] = [
    *(Annotated[int, Ge(1), Le(5)], Annotated[Annotated[int, Ge(1)], Le(5)], Annotated[int, Interval(ge=1, lt=4)]),
    *(Annotated[list[Positive], MaxLen(2)], Annotated[str, Meta(pattern="^a")], Annotated[float, MultipleOf(0.5)]),
    *(Annotated[int | None, Ge(1)], Annotated[int | str, Ge(1)], Annotated[dict[str, int], MinLen(1)]),
    *(Annotated[tuple[int, ...], MinLen(1)], Annotated[Plain, Meta(description="d")], Annotated[str, Len(2, 3)]),
    *(Annotated[Literal[1, 2], Meta(title="t")], Annotated[bool, "whether"], Annotated[Row, "a row"]),
]
UNIONS: list[Any] = [
    *(TagA | TagB, NumberA | NumberB, ArrayA | ArrayB, BoundA | BoundB | None, list[BoundA | BoundB], Plain | None),
    *(int | str, int | float, bool | int, list[int] | dict[str, int], Plain | list[Plain], Plain | Data, Plain | str),
    *(date | str, UUID | str, Plain | dict[str, int], dict[str, int] | Plain, Word | int, Word | str, Number | str),
    *(float | str, tuple[int, int] | list[str], Cat | Dog, Annotated[Cat | Dog, pydantic.Discriminator("kind")]),
    *(
        Maybe[Plain] | str,
        list[Maybe[Plain] | bool],
        Keys | Plain,
        Row | Plain,
        Attrs | None,
        Path | None,
        Bounded | None,
        list[Bounded] | None,
        BoundedData | str,
    ),
    *(dict[str, Bounded] | None, Literal["a", 1, None], Literal["a"] | None, Literal[True, 2]),
]
AGREE = [*CLASSES, *ALIASES, *METADATA, *UNIONS]
MORE_IS_CHECKED: list[Any] = [
    *(dict[int, Plain], dict[Word, int], dict[Literal["a", "b"], int], dict[UUID, int], dict[float, int]),
    *(datetime, date, timedelta, bytes, bytearray, UUID, Bits, Annotated[bytes, MaxLen(2)]),
]
"""Forms of text, names of an object's members, and numbers of flags, of which a schema tells less."""
MORE_IS_TAKEN: list[Any] = [TagA, NumberA, BoundA, set[int], AbstractSet[int], Annotated[set[int], MaxLen(2)]]
"""A tag that is not needed, and an item that comes twice."""
BOTH: list[Any] = [Decimal, Decimal | int, Annotated[Decimal, Ge(Decimal(1))], set, frozenset[Any]]
"""Text that is not a number, and a number that is not text; the same of a set, whose items cannot be arrays."""

VALUES: list[Any] = [
    *(None, True, False, 0, 1, 2, 3, 4, -1, 1.0, 2.5, 1e3, 10**25, -0.0, "", "a", "b", "x", "xx", "xxx", "1"),
    *("2024-01-02", "2024-01-02T03:04:05Z", "PT1S", "12345678-1234-4678-9234-567812345678", "AQID", "AQ=="),
    *([], [1], [1.0], ["a"], [1, "x"], [1, 2], [1, 2, 3], [0, 0], ["t", 1], ["u", 1], ["t", 1, 2], ["t", 1, 2, 3]),
    *([{"a": 1}], [{"a": "x"}], [{"a": 0}], [[1]], [None], ["t"], [{"a": 1}, 1], [{"a": 1}, {"a": "q"}, {"b": 3}]),
    *({}, {"a": 1}, {"a": 1.0}, {"a": "1"}, {"a": 0}, {"a": -1}, {"a": None}, {"a": 1, "b": "y"}, {"a": 1, "b": 2}),
    *({"a": 1, "b": [1]}, {"a": 1, "b": [0]}, {"a": 1, "z": 3}, {"A": ["x"]}, {"z": 1}, {"a": 1, "c": 1.0}),
    *({"b": "q"}, {"b": 1}, {"z": 1, "p": 2}, {"firstName": "x"}, {"first_name": "x"}, {"a": 1, "b": "xxx"}),
    *({"type": "t", "a": 1}, {"type": "u", "b": 1}, {"type": "q"}, {"type": 1, "a": 1}, {"type": 2, "b": 1.0}),
    *({"type": "k", "a": 1}, {"type": "j", "a": 1}, {"type": "k", "a": 0}, {"type": "j", "a": 2}, {"item": 1.0}),
    *({"inner": {"a": 1}}, {"inner": {"a": "x"}}, {"inner": {"a": 0}}, {"inner": {"a": "x", "b": 1.0}}),
    *({"inner": {"a": 1}, "more": [{"a": 1}, {"a": "x"}]}, {"inner": {"a": 1}, "m": {"k": {"a": 0}}}, {"v": 1}),
    *({"v": 1, "next": {"v": 2}}, {"v": 1, "next": {"v": "x"}}, {"v": 1, "next": None}, {"v": 1, "kids": [{"v": 1}]}),
    *({"v": 1, "kids": [{"v": "q"}]}, {"item": 1}, {"item": 0}, {"item": "x"}, {"item": {"a": 1}}, {"xx": 1}),
    *({"item": 1, "items": [1, "x"]}, {"item": {"a": 1}, "items": [{"a": "x"}]}, {"a-b": 1, "class": "x"}, {"1": 1}),
    *({"1": {"a": 1}}, {"2024-01-02": 1}, {"12345678-1234-4678-9234-567812345678": 1}, {"kind": "cat"}, {"1.5": 1}),
    *({"kind": "dog", "bones": ["a"]}, {"kind": "dog", "bones": [1]}, {"kind": "cow"}),
]


class NoContext:
    """Stands for the context type."""


def taken(arguments: Any, params: bytes) -> bool:
    try:
        arguments(Raw(params))
    except InvalidParams as error:
        faults = error.data["errors"]
        assert faults
        assert all(fault["field"].startswith("it") and fault["message"] for fault in faults)
        return False
    return True


@pytest.mark.parametrize("hint", [*AGREE, *MORE_IS_CHECKED, *MORE_IS_TAKEN, *BOTH], ids=str)
def test_what_is_taken_is_what_the_schema_says(hint: Any) -> None:
    def function(it: Any) -> None: ...

    function.__annotations__["it"] = hint
    binding = bind(function, context_type=NoContext)
    schema = binding.params_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    refused: list[Any] = []
    further: list[Any] = []
    for value in VALUES:
        text = msgspec.json.encode(value)
        if value == 10**25:
            text = b"10000000000000000000000000"
        fits = taken(binding.arguments, b'{"it":%s}' % text)
        assert taken(binding.arguments, b"[%s]" % text) is fits, value
        if fits is not validator.is_valid({"it": value}):
            (further if fits else refused).append(value)
    kinds = next(kinds for kinds in (AGREE, MORE_IS_CHECKED, MORE_IS_TAKEN, BOTH) if hint in kinds)
    assert bool(refused) is (kinds in (MORE_IS_CHECKED, BOTH)), refused
    assert bool(further) is (kinds in (MORE_IS_TAKEN, BOTH)), further


@pytest.mark.parametrize(
    "hint", [set[list[int]], set[dict[str, int]], set[Plain], set[Pair[int, int]], frozenset[Data], set[Keys]], ids=str
)
def test_a_set_of_what_cannot_be_hashed_is_refused(hint: Any) -> None:
    def function(it: Any) -> None: ...

    function.__annotations__["it"] = hint
    with pytest.raises(LocalError, match="cannot be an item of a set"):
        bind(function, context_type=NoContext)
