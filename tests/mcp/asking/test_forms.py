"""Forms of elicitation (client/elicitation, "Requested Schema"), made from types and from schemas."""

from __future__ import annotations

import dataclasses
import datetime
import enum
from typing import Annotated, Any, Literal, TypedDict

import msgspec
import pydantic
import pytest
from msgspec import Meta, Struct

from dragoman import BadAnswer, LocalError
from dragoman.mcp.asking.forms import CannotAsk, form_of
from dragoman.mcp.protocol.revisions import R2025_06, R2025_11, R2026_07


class Size(enum.Enum):
    """A choice whose names are its values."""

    SMALL = "small"
    BIG = "big"


class Color(enum.Enum):
    """A choice whose names say more than its values."""

    RED = "#FF0000"
    DARK_GREEN = "#008000"


class Booking(Struct):
    """All that a form may have."""

    name: Annotated[str, Meta(title="Your name", description="As in the passport", min_length=2, max_length=5)]
    email: Annotated[str, Meta(extra_json_schema={"format": "email"})]
    day: datetime.date
    nights: Annotated[int, Meta(ge=1, lt=31)] = 1
    price: Annotated[float, Meta(ge=0)] = 9.5
    breakfast: bool = False
    size: Size = Size.SMALL
    color: Color = Color.RED
    extras: list[Literal["sea", "lift"]] = msgspec.field(default_factory=list)
    colors: Annotated[list[Color], Meta(max_length=2)] = msgspec.field(default_factory=list)
    note: str | None = None


NEWEST = {
    "type": "object",
    "properties": {
        "name": {
            "type": "string",
            "title": "Your name",
            "description": "As in the passport",
            "minLength": 2,
            "maxLength": 5,
        },
        "email": {"type": "string", "format": "email"},
        "day": {"type": "string", "format": "date"},
        "nights": {"type": "integer", "default": 1, "minimum": 1, "maximum": 30},
        "price": {"type": "number", "default": 9.5, "minimum": 0},
        "breakfast": {"type": "boolean", "default": False},
        "size": {"type": "string", "title": "Size", "description": Size.__doc__, "default": "small", "enum": []},
    },
    "required": ["name", "email", "day"],
}


def test_every_kind_of_field() -> None:
    schema = form_of(Booking).schema(R2026_07)
    fields = schema["properties"]
    for name in ("name", "email", "day", "nights", "price", "breakfast"):
        assert fields[name] == NEWEST["properties"][name]  # type: ignore[index]
    assert sorted(fields["size"]["enum"]) == ["big", "small"]
    assert fields["size"]["type"] == "string"
    assert {"const": "#008000", "title": "Dark green"} in fields["color"]["oneOf"]
    assert fields["color"]["default"] == "#FF0000"
    assert sorted(fields["extras"]["items"]["enum"]) == ["lift", "sea"]
    assert {"const": "#FF0000", "title": "Red"} in fields["colors"]["items"]["anyOf"]
    assert fields["colors"]["maxItems"] == 2
    assert fields["note"] == {"type": "string"}
    assert schema["required"] == ["name", "email", "day"]


class Plain(Struct):
    """What the oldest revision with forms can say."""

    name: Annotated[str, Meta(pattern="^[a-z]+$")]
    color: Color = Color.RED
    sure: bool = True
    age: int = 7


def test_an_older_revision_gets_what_it_knows() -> None:
    """2025-06-18's client/elicitation: `enumNames`, and defaults for booleans only."""
    fields = form_of(Plain).schema(R2025_06)["properties"]
    assert fields["color"]["type"] == "string"
    assert dict(zip(fields["color"]["enum"], fields["color"]["enumNames"], strict=True)) == {
        "#FF0000": "Red",
        "#008000": "Dark green",
    }
    assert "oneOf" not in fields["color"]
    assert "default" not in fields["color"]
    assert fields["sure"] == {"type": "boolean", "default": True}
    assert fields["age"] == {"type": "integer"}
    assert fields["name"] == {"type": "string"}


def test_a_pattern_goes_where_the_page_has_it_and_is_checked_everywhere() -> None:
    form = form_of(Plain)
    assert form.schema(R2025_11)["properties"]["name"] == {"type": "string", "pattern": "^[a-z]+$"}
    assert form.schema(R2026_07)["properties"]["name"] == {"type": "string"}
    with pytest.raises(BadAnswer, match="name"):
        form.read({"name": "A1"})


def test_a_choice_of_several_has_no_older_form() -> None:
    with pytest.raises(CannotAsk, match="'extras'"):
        form_of(Booking).schema(R2025_06)


def test_it_is_read_into_its_type() -> None:
    got = form_of(Booking).read(
        {
            "name": "Ann",
            "email": "a@b.c",
            "day": "2026-01-02",
            "nights": 2.0,
            "color": "#008000",
            "colors": ["#FF0000"],
            "note": None,
            "unasked": 1,
        }
    )
    assert got == Booking(
        "Ann", "a@b.c", datetime.date(2026, 1, 2), 2, color=Color.DARK_GREEN, colors=[Color.RED], note=None
    )


def test_every_fault_is_named() -> None:
    """ "Servers SHOULD validate received data matches the requested schema"."""
    given = {
        "name": "A",
        "email": "missing",
        "nights": 31,
        "price": "9",
        "breakfast": 1,
        "color": "red",
        "extras": ["sky"],
        "colors": ["#FF0000"] * 3,
    }
    with pytest.raises(BadAnswer) as caught:
        form_of(Booking).read(given)
    text = str(caught.value)
    for name in ("name", "email", "day", "nights", "price", "breakfast", "color", "extras", "colors"):
        assert f"{name}: " in text


@pytest.mark.parametrize("content", [12345, "x", [], True])
def test_an_answer_is_an_object(content: Any) -> None:
    with pytest.raises(BadAnswer):
        form_of(Plain).read(content)


@dataclasses.dataclass
class Data:
    """As a dataclass."""

    city: str
    country: str = "CN"


class Typed(TypedDict, total=False):
    """As a TypedDict."""

    city: str


class Model(pydantic.BaseModel):
    """As a model."""

    city: str = pydantic.Field(min_length=2, description="Where")
    color: Color = Color.RED
    mail: str | None = pydantic.Field(default=None, alias="eMail")


def test_other_kinds_of_types() -> None:
    assert form_of(Data).read({"city": "Rome"}) == Data("Rome")
    assert form_of(Data).schema(R2026_07)["required"] == ["city"]
    assert form_of(Typed).read({}) == {}
    form = form_of(Model)
    fields = form.schema(R2026_07)["properties"]
    assert fields["city"]["minLength"] == 2
    assert fields["city"]["description"] == "Where"
    assert {"const": "#FF0000", "title": "Red"} in fields["color"]["oneOf"]
    assert fields["eMail"]["type"] == "string"
    assert form.read({"city": "Rome", "eMail": "x"}) == Model(city="Rome", eMail="x")
    with pytest.raises(BadAnswer, match="city"):
        form.read({"city": "R"})


def test_a_single_value_is_a_form_of_one_field() -> None:
    form = form_of(int)
    assert form.schema(R2026_07) == {
        "type": "object",
        "properties": {"value": {"type": "integer"}},
        "required": ["value"],
    }
    assert form.read({"value": 3}) == 3
    assert form_of(Color).read({"value": "#FF0000"}) is Color.RED
    assert form_of(Literal["a", "b"]).read({"value": "b"}) == "b"
    assert form_of(list[Literal["a", "b"]]).read({"value": ["b"]}) == ["b"]


def test_nothing_is_a_mere_yes_or_no() -> None:
    assert form_of(None).schema(R2025_06) == {"type": "object", "properties": {}}
    assert form_of(None).read(None) is None


class Holder(Struct):
    """None where nothing came, though there is no default."""

    name: str
    nick: str | None


def test_a_field_that_may_be_none_need_not_be_filled_in() -> None:
    form = form_of(Holder)
    assert form.schema(R2026_07)["required"] == ["name"]
    assert form.read({"name": "a"}) == Holder("a", None)


class Inner(Struct):
    """Not in a form."""

    x: int


class Nested(Struct):
    """One level too deep."""

    inner: Inner


class Listed(Struct):
    """A list of what is not a choice."""

    many: list[str]


class Mixed(Struct):
    """Two types in one."""

    many: str | int


class Numbered(Struct):
    """A choice of numbers."""

    many: Literal[1, 2]


class Bytes(Struct):
    """Bytes."""

    many: bytes


@pytest.mark.parametrize(
    ("kind", "field"),
    [
        (Nested, "inner"),
        (Listed, "many"),
        (Mixed, "many"),
        (Numbered, "many"),
        (Bytes, "many"),
        (dict[str, int], "value"),
    ],
)
def test_what_no_form_holds_is_refused_by_name(kind: Any, field: str) -> None:
    """ "flat objects with primitive properties only"."""
    with pytest.raises(LocalError, match=field):
        form_of(kind)


LEGACY = {
    "type": "object",
    "properties": {
        "untitledSingle": {"type": "string", "enum": ["a", "b"]},
        "titledSingle": {"type": "string", "oneOf": [{"const": "a", "title": "A"}]},
        "legacyEnum": {"type": "string", "enum": ["a", "b"], "enumNames": ["A", "B"]},
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": ["a"]}},
        "titledMulti": {"type": "array", "items": {"anyOf": [{"const": "a", "title": "A"}]}, "minItems": 1},
    },
    "required": ["untitledMulti"],
}


def test_a_schema_goes_as_it_stands() -> None:
    assert form_of(LEGACY).schema(R2025_11) == LEGACY
    assert form_of(LEGACY).read({"untitledMulti": ["a"], "titledMulti": None}) == {"untitledMulti": ["a"]}
    with pytest.raises(BadAnswer, match="titledMulti"):
        form_of(LEGACY).read({"untitledMulti": ["a"], "titledMulti": []})


def test_a_schema_s_dialect_goes_where_it_is_known() -> None:
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object", "properties": {}}
    assert form_of(schema).schema(R2025_11) == schema
    assert "$schema" not in form_of(schema).schema(R2025_06)


@pytest.mark.parametrize(
    ("schema", "word"),
    [
        ({"type": "array"}, "object"),
        ({"type": "object", "properties": {}, "allOf": []}, "allOf"),
        ({"type": "object", "properties": {}, "required": ["x"]}, "'x'"),
        ({"type": "object", "properties": {"x": {"type": "object"}}}, "'x'"),
        ({"type": "object", "properties": {"x": True}}, "'x'"),
        ({"type": "object", "properties": {"x": {"type": "array", "items": {"type": "string"}}}}, "'x'"),
        ({"type": "object", "properties": {"x": {"type": "string", "enum": [1]}}}, "'x'"),
        ({"type": "object", "properties": {"x": {"type": "string", "format": "uuid"}}}, "'x'"),
        ({"type": "object", "properties": {"x": {"type": "integer", "multipleOf": 2}}}, "'x'"),
    ],
)
def test_a_schema_that_is_not_a_form_is_refused_by_name(schema: Any, word: str) -> None:
    with pytest.raises(LocalError, match=word):
        form_of(schema)


def test_a_list_of_choices_is_told_how_to_write_it() -> None:
    with pytest.raises(LocalError, match=r"\['low', 'high'\] is not a type: a choice is written Literal"):
        form_of(["low", "high"])


@pytest.mark.parametrize(
    ("format", "good", "bad"),
    [
        ("email", "a@b.c", "a b@c"),
        ("uri", "https://a.b/c", "a/b"),
        ("date", "2026-02-28", "2026-02-30"),
        ("date-time", "2026-02-28T10:00:00Z", "yesterday"),
    ],
)
def test_formats_are_checked(format: str, good: str, bad: str) -> None:
    form = form_of({"type": "object", "properties": {"x": {"type": "string", "format": format}}})
    assert form.read({"x": good}) == {"x": good}
    with pytest.raises(BadAnswer, match="x: Expected"):
        form.read({"x": bad})
