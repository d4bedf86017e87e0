"""Types for the table of signatures (`signatures`), which peers evaluate too: nothing of dragoman or msgspec here."""

import dataclasses
import enum
import ipaddress
import pathlib
import typing
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime as dt, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, NamedTuple, NewType, Optional, TypeVar, Union

from uuid import UUID

import annotated_types
import attrs
import pydantic
from annotated_types import Ge, Gt, Interval, Le, Len, Lt, MaxLen, MinLen, MultipleOf, Predicate
from pydantic import (
    AfterValidator,
    AnyUrl,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    HttpUrl,
    Json,
    NegativeInt,
    PlainValidator,
    PositiveFloat,
    PositiveInt,
    RootModel,
    SecretStr,
    StrictBool,
    StrictFloat,
    StrictInt,
    StrictStr,
    StringConstraints,
    Tag,
    UUID4,
    WrapValidator,
    conint,
    conlist,
    constr,
    field_validator,
    model_validator,
)
from typing_extensions import Doc, NotRequired, Required, TypeAliasType, TypedDict

T = TypeVar("T")


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Shade(enum.StrEnum):
    DARK = "dark"


class Bits(enum.IntFlag):
    A = 1
    B = 2


@dataclasses.dataclass
class Point:
    x: int
    y: int = 0


@dataclasses.dataclass
class Circle:
    radius: float
    label: str = "round"


@dataclasses.dataclass(frozen=True)
class Bounded:
    x: Annotated[int, Field(ge=1, description="at least one")]
    tags: list[Annotated[str, MinLen(1)]] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Validated:
    n: Annotated[int, AfterValidator(lambda n: n * 2)]
    when: date | str = "now"


@dataclasses.dataclass
class Files:
    path: pathlib.Path
    more: list[pathlib.Path] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Chain:
    x: int
    next: Optional["Chain"] = None


@attrs.define
class Part:
    size: int
    name: str = ""


class Options(TypedDict):
    x: int
    deep: NotRequired[bool]


class Loose(TypedDict, total=False):
    x: Required[int]
    note: Annotated[str, Field(max_length=3)]


class Pair(NamedTuple):
    x: int
    y: int = 0


class Model(BaseModel):
    x: int = Field(ge=0, description="how far", examples=[3])
    y: float = 1.0


class Aliased(BaseModel):
    some_name: int = Field(alias="someName")


class Checked(BaseModel):
    x: int

    @field_validator("x")
    @classmethod
    def even(cls, value: int) -> int:
        if value % 2:
            raise ValueError("must be even")
        return value


class Ordered(BaseModel):
    low: int
    high: int

    @model_validator(mode="after")
    def order(self) -> "Ordered":
        if self.low > self.high:
            raise ValueError("low is above high")
        return self


class Closed(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    x: int


class Outer(BaseModel):
    inner: Model
    many: list[Model] = []


class Tree(BaseModel):
    x: int
    children: list["Tree"] = []


class Generic1(BaseModel, Generic[T]):
    content: T


class Numbers(RootModel[list[int]]):
    pass


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int = 9


class Dog(BaseModel):
    kind: Literal["dog"]
    bones: int


class A(BaseModel):
    a: int


class B(BaseModel):
    b: int


@pydantic.dataclasses.dataclass
class Strange:
    x: int = Field(ge=1)


UserId = NewType("UserId", int)
Positive = TypeAliasType("Positive", Annotated[int, Gt(0)])
Maybe = TypeAliasType("Maybe", Optional[T], type_params=(T,))


def even(value: int) -> int:
    if value % 2:
        raise ValueError("must be even")
    return value


def split(value: Any) -> Any:
    return value.split(",") if isinstance(value, str) else value
