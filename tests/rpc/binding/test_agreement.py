"""For any annotation decoder, JSON Schema and fault finder agree: the walkers of one tree know one meaning.

Whatever the decoder takes the schema admits and the finder finds no fault in; whatever it refuses has at least one
fault and, where JSON Schema can say why, is not admitted.
"""

from __future__ import annotations

import dataclasses
import enum
from typing import Annotated, Any, Literal, NamedTuple, TypedDict, TypeVar

import jsonschema
import msgspec
from annotated_types import Ge, Gt, Len, MinLen
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Meta, Raw, Struct

from dragoman.jsonrpc.errors import InvalidParams
from dragoman.rpc.binding.binding import Binding, bind
from dragoman.rpc.binding.faults import find, integral


class NoContext:
    pass


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Plain(Struct):
    a: int
    b: list[str] = []
    c: Level | None = None


class Closed(Struct, forbid_unknown_fields=True, rename="camel"):
    first_name: Annotated[str, Meta(min_length=1)]
    levels: dict[str, Level] = {}


class Cat(Struct, tag=True):
    lives: Annotated[int, Ge(1)] = 9


class Dog(Struct, tag="dog"):
    name: str


class Arrayed(Struct, array_like=True):
    x: int
    y: float = 0.0


class Chain(Struct):
    value: int
    next: Chain | None = None


@dataclasses.dataclass
class Data:
    x: Annotated[int, Gt(0)]
    tags: Annotated[list[str], Len(0, 2)] = dataclasses.field(default_factory=list)


class Keyed(TypedDict, total=False):
    a: int
    b: Annotated[str, MinLen(2)]


class Pair(NamedTuple):
    left: int
    right: str = ""


SCALARS: list[Any] = [int, float, str, bool, None, Any, Literal["a", "b"], Literal[1, 2], Color, Level]
SCALARS += [Annotated[int, Ge(0)], Annotated[int, Meta(ge=-1, lt=3)], Annotated[str, Meta(pattern="^a")], int | float]
CLASSES: list[Any] = [Plain, Closed, Arrayed, Chain, Data, Keyed, Pair, Cat | Dog]


def of(alias: Any, *inner: Any) -> Any:
    """A generic alias with its type variables filled in."""
    return alias[inner if len(inner) > 1 else inner[0]]


_A = TypeVar("_A")
_B = TypeVar("_B")
A: Any = _A
B: Any = _B


def containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    one = st.sampled_from([list[A], dict[str, A], tuple[A, ...], Annotated[list[A], Len(0, 2)]])
    return st.one_of(
        st.builds(of, one, inner),
        st.builds(of, st.just(tuple[A, B]), inner, inner),
        inner.map(lambda hint: hint if hint is Any or hint is None else hint | None),
    )


HINTS = st.recursive(st.sampled_from([*SCALARS, *CLASSES]), containers, max_leaves=4)

NAMES = st.sampled_from(
    ["a", "b", "c", "x", "y", "tags", "value", "next", "type", "name", "lives", "firstName", "levels"]
)
NUMBERS = st.one_of(st.integers(-3, 12), st.sampled_from([1.0, 2.0, -1.0, 1.5, 1e3]))
ATOMS = st.one_of(st.none(), st.booleans(), NUMBERS, st.sampled_from(["", "a", "ab", "b", "red", "Cat", "dog"]))
VALUES = st.recursive(
    ATOMS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4), max_leaves=8
)


def fitting(schema: dict[str, Any], root: dict[str, Any], draw: Any) -> Any:
    """A value that is much like what a schema admits."""
    while "$ref" in schema:
        schema = root["$defs"][schema["$ref"].rpartition("/")[2]]
    if "anyOf" in schema:
        return fitting(draw(st.sampled_from(schema["anyOf"])), root, draw)
    if "enum" in schema:
        return draw(st.sampled_from(schema["enum"]))
    if "const" in schema:
        return schema["const"]
    kind = schema.get("type")
    if kind == "object":
        known = schema.get("properties", {})
        names = [n for n in known if n in schema.get("required", ()) or draw(st.booleans())]
        found = {name: fitting(known[name], root, draw) for name in names}
        more = schema.get("additionalProperties")
        return found | ({"k": fitting(more, root, draw)} if isinstance(more, dict) and more else {})
    if kind == "array":
        lead = [fitting(one, root, draw) for one in schema.get("prefixItems", ())]
        items: Any = schema.get("items")
        count = draw(st.integers(0, 2)) if isinstance(items, dict) else 0
        return lead + [fitting(items, root, draw) for _ in range(count)]
    simple = {"integer": NUMBERS, "number": NUMBERS, "boolean": st.booleans(), "null": st.none()}
    return draw(simple.get(str(kind), ATOMS))


def bound(hint: Any) -> Binding:
    def function(it: Any) -> None: ...

    function.__annotations__["it"] = hint
    return bind(function, context_type=NoContext)


@settings(deadline=None, max_examples=80)
@given(hint=HINTS, data=st.data())
def test_decoder_schema_and_faults_agree(hint: Any, data: st.DataObject) -> None:
    binding = bound(hint)
    (parameter,) = binding.parameters
    schema = parameter.schema
    value = fitting(schema, schema, data.draw) if data.draw(st.booleans()) else data.draw(VALUES)
    validator = jsonschema.Draft202012Validator(schema)
    text = msgspec.json.encode(value)
    tree = parameter.annotation.tree
    found = find(integral(msgspec.json.decode(text), tree), tree, "it")
    for params in (b"[" + text + b"]", b'{"it":' + text + b"}"):
        try:
            binding.arguments(Raw(params))
        except InvalidParams as error:
            faults = error.data["errors"]
            assert faults
            assert all(fault["field"].startswith("it") and fault["message"] for fault in faults)
            assert not validator.is_valid(value)
            assert found
        else:
            assert validator.is_valid(value), list(validator.iter_errors(value))
            assert not found
