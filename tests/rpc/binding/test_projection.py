"""What may leave a function: of every kind of type the declared fields, and nothing that was not meant to be told."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Generic, NamedTuple, NewType, TypedDict, TypeVar, cast

import attrs
import msgspec
import pydantic
import pytest
from msgspec import Meta, Struct

from dragoman import LocalError, RpcError, Service
from dragoman.mcp import Server
from dragoman.mcp.protocol.revisions import R2025_11, R2026_07, Revision
from dragoman.rpc.binding.annotations import result_tree
from dragoman.rpc.binding.projection import projection
from tests.mcp.calling import calling

SECRET = "swordfish"


T = TypeVar("T")
IT: Any = T


class Page(Struct, Generic[T]):
    items: list[T]


# -- a class and a subclass of each kind ----------------------------------------------------------


class StructUser(Struct):
    name: str
    age: int = 3


class StructAdmin(StructUser):
    token: str = SECRET


class FrozenUser(Struct, frozen=True, rename="camel"):
    full_name: str
    age: int = 3


class FrozenAdmin(FrozenUser, frozen=True):
    token: str = SECRET


class TaggedUser(Struct, tag="user", omit_defaults=True):
    name: str
    age: int = 3


class TaggedAdmin(TaggedUser, tag="user"):
    token: str = SECRET


class ArrayUser(Struct, array_like=True):
    name: str
    age: int = 3


class ArrayAdmin(ArrayUser):
    token: str = SECRET


class PrivateUser(Struct):
    name: str
    age: int = 3
    _token: str = SECRET


@dataclass
class DataUser:
    name: str
    age: int = 3


@dataclass
class DataAdmin(DataUser):
    token: str = SECRET


@dataclass
class PrivateData:
    name: str
    age: int = 3
    _token: str = SECRET


@dataclass
class MadeData:
    name: str
    age: int = field(init=False, default=3)

    def __post_init__(self) -> None:
        self.age = 3
        self.token = SECRET


@attrs.define(slots=False)
class AttrsUser:
    name: str
    age: int = 3


@attrs.define(slots=False)
class AttrsAdmin(AttrsUser):
    token: str = SECRET


@attrs.define
class SlotsUser:
    name: str
    age: int = 3
    _token: str = SECRET


@attrs.define
class SlotsAdmin(SlotsUser):
    password: str = SECRET


class KeyedUser(TypedDict):
    name: str
    age: int


class KeyedAdmin(KeyedUser):
    token: str


class TupleUser(NamedTuple):
    name: str
    age: int = 3


class TupleAdmin(TupleUser):
    token = SECRET


class ModelUser(pydantic.BaseModel):
    name: str
    age: int = pydantic.Field(default=3, serialization_alias="age")
    _token: str = pydantic.PrivateAttr(SECRET)


class ModelAdmin(ModelUser):
    token: str = SECRET


class ClosedUser(pydantic.BaseModel):
    name: str
    age: int = 3
    token: str = pydantic.Field(default=SECRET, exclude=True)


class LoneUser(Struct):
    """It has no subclass."""

    name: str
    age: int = 3


class Team(pydantic.BaseModel):
    lead: ModelUser
    others: list[ModelUser] = []
    below: Team | None = None
    boss: ModelUser | None = pydantic.Field(None, exclude=True)


class OpenTeam(pydantic.BaseModel, extra="allow"):
    lead: ModelUser


class Users(pydantic.RootModel[dict[str, ModelUser]]):
    pass


@dataclass
class Folder:
    at: Path
    size: int = field(init=False, default=3)


@dataclass
class DeepFolder(Folder):
    token: str = SECRET


class Node(Struct):
    user: StructUser
    inner: Node | None = None


class Other(Struct, tag="other"):
    x: int = 1


def with_attributes(value: Any) -> Any:
    """The same object, with what was hung on it later."""
    value.token = value._token = SECRET
    return value


ONE = {"name": "ada", "age": 3}
CAMEL = {"fullName": "ada", "age": 3}
TAGGED = {"type": "user", "name": "ada"}
ARRAY = ["ada", 3]

KINDS: list[tuple[str, Any, Callable[[], Any], Any]] = [
    ("a Struct", StructUser, lambda: StructUser("ada"), ONE),
    ("a Struct's subclass", StructUser, lambda: StructAdmin("ada"), ONE),
    ("a Struct's private field", PrivateUser, lambda: PrivateUser("ada"), ONE),
    ("a frozen Struct with other names", FrozenUser, lambda: FrozenUser("ada"), CAMEL),
    ("its subclass", FrozenUser, lambda: FrozenAdmin("ada"), CAMEL),
    ("a tagged Struct without its defaults", TaggedUser, lambda: TaggedUser("ada"), TAGGED),
    ("its subclass ", TaggedUser, lambda: TaggedAdmin("ada"), TAGGED),
    ("a Struct that is an array", ArrayUser, lambda: ArrayUser("ada"), ARRAY),
    ("its subclass  ", ArrayUser, lambda: ArrayAdmin("ada"), ARRAY),
    ("another class with the same fields", StructUser, lambda: DataAdmin("ada"), ONE),
    ("a model for a Struct", StructUser, lambda: ModelAdmin(name="ada"), ONE),
    ("a dict for a Struct", StructUser, lambda: {"name": "ada", "age": 3, "token": SECRET}, ONE),
    ("a dict for a Struct with other names", FrozenUser, lambda: CAMEL | {"token": SECRET}, CAMEL),
    ("a dict for a tagged Struct", TaggedUser, lambda: TAGGED | {"token": SECRET}, TAGGED),
    ("a dataclass", DataUser, lambda: DataUser("ada"), ONE),
    ("a dataclass's subclass", DataUser, lambda: DataAdmin("ada"), ONE),
    ("a dataclass's private field", PrivateData, lambda: PrivateData("ada"), ONE),
    ("a dataclass with attributes", DataUser, lambda: with_attributes(DataUser("ada")), ONE),
    ("a dataclass that makes a field", MadeData, lambda: MadeData("ada"), ONE),
    ("a Struct for a dataclass", DataUser, lambda: StructAdmin("ada"), ONE),
    ("an attrs class", AttrsUser, lambda: AttrsUser("ada"), ONE),
    ("an attrs class's subclass", AttrsUser, lambda: AttrsAdmin("ada"), ONE),
    ("an attrs class with attributes", AttrsUser, lambda: with_attributes(AttrsUser("ada")), ONE),
    ("an attrs class with slots", SlotsUser, lambda: SlotsUser("ada"), ONE),
    ("its subclass   ", SlotsUser, lambda: SlotsAdmin("ada"), ONE),
    ("a TypedDict", KeyedUser, lambda: KeyedUser(name="ada", age=3), ONE),
    ("a TypedDict's subclass", KeyedUser, lambda: KeyedAdmin(name="ada", age=3, token=SECRET), ONE),
    ("a dict with more keys", KeyedUser, lambda: {"name": "ada", "age": 3, 5: SECRET}, ONE),
    ("a NamedTuple", TupleUser, lambda: TupleUser("ada"), ARRAY),
    ("a NamedTuple's subclass", TupleUser, lambda: TupleAdmin("ada"), ARRAY),
    ("a model", ModelUser, lambda: ModelUser(name="ada"), ONE),
    ("a model's subclass", ModelUser, lambda: ModelAdmin(name="ada"), ONE),
    ("a model's excluded field", ClosedUser, lambda: ClosedUser(name="ada"), ONE),
    ("a dict for a model", ModelUser, lambda: ONE | {"token": SECRET}, ONE),
    ("another class for one without subclasses", LoneUser, lambda: StructAdmin("ada"), ONE),
    ("a dict for one without subclasses", LoneUser, lambda: ONE | {"token": SECRET}, ONE),
    ("a dict of another kind", LoneUser, lambda: OrderedDict(ONE | {"token": SECRET}), ONE),
]

new_type: Any = NewType  # mypy fails on one of a Struct
Named = new_type("Named", StructUser)

SHAPES: list[tuple[str, Any, Callable[[Any], Any], Callable[[Any], Any]]] = [
    ("itself", IT, lambda v: v, lambda j: j),
    ("annotated", Annotated[IT, Meta(description="d")], lambda v: v, lambda j: j),
    ("optional", IT | None, lambda v: v, lambda j: j),
    ("union", IT | int | None, lambda v: v, lambda j: j),
    ("list", list[IT], lambda v: [v, v], lambda j: [j, j]),
    ("sequence", Sequence[IT], lambda v: (v,), lambda j: [j]),
    ("tuple", tuple[int, IT], lambda v: (1, v), lambda j: [1, j]),
    ("tuples", tuple[IT, ...], lambda v: (v,), lambda j: [j]),
    ("dict", dict[str, IT], lambda v: {"a": v}, lambda j: {"a": j}),
    ("mapping", Mapping[str, list[IT]], lambda v: {"a": [v]}, lambda j: {"a": [j]}),
    ("optional list", list[IT] | None, lambda v: [v], lambda j: [j]),
    ("list of optionals", list[IT | None], lambda v: [v, None], lambda j: [j, None]),
    ("field", cast(Any, Page)[IT], lambda v: Page([v]), lambda j: {"items": [j]}),
]
"""In what a value may stand: the annotation, the value, its JSON."""


def cases() -> list[Any]:
    found = []
    for kind, hint, make, wanted in KINDS:
        for shape, alias, put, shown in SHAPES:
            declared = hint if alias is IT else alias[hint]
            found.append(pytest.param(declared, lambda p=put, m=make: p(m()), shown(wanted), id=f"{kind}, {shape}"))
    return found


def of_method(hint: Any, make: Callable[[], Any], *, inline: bool, v1: bool = False) -> bytes:
    api = Service("api", accept_v1=v1, debug=True)

    def method() -> Any:
        return make()

    method.__annotations__["return"] = hint
    api.method(inline=inline)(method)
    ask = b'{"method":"method","params":[],"id":1}' if v1 else b'{"jsonrpc":"2.0","method":"method","id":1}'
    return api.answer(ask) or b""


@pytest.mark.parametrize(("hint", "make", "wanted"), cases())
def test_of_a_methods_result_what_is_declared_leaves(hint: Any, make: Callable[[], Any], wanted: Any) -> None:
    for inline in (True, False):
        text = of_method(hint, make, inline=inline)
        assert json.loads(text)["result"] == wanted
        assert SECRET.encode() not in text


def failing(hint: Any, make: Callable[[], Any]) -> type[RpcError]:
    """An error whose data is annotated so."""

    def init(self: RpcError) -> None:
        RpcError.__init__(self, data=make())

    members = {"code": 7, "message": "Failed", "__annotations__": {"data": hint}, "__init__": init}
    return type("Failing", (RpcError,), members)


@pytest.mark.parametrize("listed", [True, False])
@pytest.mark.parametrize(("hint", "make", "wanted"), cases())
def test_of_an_errors_data_what_is_declared_leaves(
    hint: Any, make: Callable[[], Any], wanted: Any, listed: bool
) -> None:
    """Whether the method lists the error or not: its class declares what its data is."""
    api, kind = Service("api"), failing(hint, make)

    @api.method(inline=True, errors=[kind] if listed else ())
    def method() -> None:
        raise kind

    text = api.answer(b'{"jsonrpc":"2.0","method":"method","id":1}') or b""
    assert json.loads(text)["error"] == {"code": 7, "message": "Failed", "data": wanted}
    assert SECRET.encode() not in text


async def test_of_an_errors_data_what_is_declared_leaves_a_tool() -> None:
    server, service = Server("tests"), Service("included")
    kind = failing(StructUser, lambda: StructAdmin("ada"))
    reserved = type("Reserved", (kind,), {"code": -32001})  # the protocol keeps it for itself: the code changes

    @service.method(errors=[kind])
    def told() -> None:
        raise kind

    @server.tool
    def raised() -> None:
        raise kind

    @server.tool
    def changed() -> None:
        raise reserved

    server.include(service)
    async with calling(server, R2026_07) as calls:
        assert await calls.refusal("told") == 'Failed\n{"name":"ada","age":3}'
        for name, code in (("raised", 7), ("changed", -32603)):
            error = await calls.error("tools/call", name=name, arguments={})
            assert (error["code"], error["data"]) == (code, {"name": "ada", "age": 3})


def test_an_error_with_other_data_than_declared_is_masked_and_one_that_declares_nothing_is_not() -> None:
    class Unclear(RpcError):
        code = 8
        message = "Unclear"
        data: Nowhere  # type: ignore[name-defined]  # noqa: F821

    api, kind = Service("api"), failing(StructUser, Other)

    @api.method(inline=True)
    def method(which: int) -> None:
        raise (kind, Unclear(data={"a": 1}), RpcError("Plain", {"a": 1}, code=9))[which]

    for which, code, data in ((0, -32603, None), (1, 8, {"a": 1}), (2, 9, {"a": 1})):
        text = api.answer(b'{"jsonrpc":"2.0","method":"method","params":[%d],"id":1}' % which) or b""
        error = json.loads(text)["error"]
        assert error["code"] == code
        assert SECRET not in str(error)
        if data:
            assert error["data"] == data
        else:
            assert error["data"].keys() == {"reference"}


@pytest.mark.parametrize("revision", [R2025_11, R2026_07], ids=lambda one: one.date)
async def test_of_a_tools_result_what_is_declared_leaves(revision: Revision) -> None:
    """As structured content, as its text, as a resource's text, and as a method of a service that became a tool."""
    server, service = Server("tests"), Service("included")
    tools: dict[str, Any] = {}
    for case in cases():
        hint, make, wanted = case.values

        def tool(make: Any) -> Callable[[], Any]:
            return lambda: make()

        adds: tuple[Any, Any] = server.tool, service.method
        for number, add in enumerate(adds):
            function = tool(make)
            function.__annotations__ = {"return": hint}
            add(f"{len(tools)}.{number}")(function)
        function = tool(make)
        function.__annotations__ = {"return": hint}
        server.add_resource(function, f"x://{len(tools)}")
        tools[str(len(tools))] = wanted
    server.include(service)
    async with calling(server, revision) as calls:
        for name, wanted in tools.items():
            for tool_name in (f"{name}.0", f"{name}.1"):
                result = await calls.call(tool_name)
                structured = result["structuredContent"]
                if revision is R2025_11 and not isinstance(wanted, dict):
                    structured = structured["result"]
                if structured != wanted:  # a union is wrapped for the older ones
                    structured = structured["result"]
                assert structured == wanted
                assert json.loads(result["content"][0]["text"]) == wanted
                assert SECRET not in str(result)
            text = (await calls.result("resources/read", uri=f"x://{name}"))["contents"][0]["text"]
            assert json.loads(text) == wanted
        listed = (await calls.result("tools/list"))["tools"]
        assert SECRET not in str(listed)
        assert "_token" not in str([tool["outputSchema"] for tool in listed])


@pytest.mark.parametrize(
    ("hint", "value", "wanted"),
    [
        (Named, StructAdmin("ada"), ONE),
        (StructUser | None, None, None),
        (TaggedUser | Other, TaggedAdmin("ada"), TAGGED),
        (TaggedUser | Other, Other(), {"type": "other", "x": 1}),
        (DataUser | KeyedUser, DataAdmin("ada"), ONE),
        (ModelUser | DataUser, ModelAdmin(name="ada"), ONE),
        (DataUser | dict[str, int], {"a": 1}, {"a": 1}),
        (DataUser | dict[str, int], {"name": "ada", "age": 3, "token": SECRET}, ONE),
        (list[StructUser] | StructUser, [StructAdmin("ada")], [ONE]),
        (
            Node,
            Node(StructAdmin("ada"), Node(StructAdmin("ada"))),
            {"user": ONE, "inner": {"user": ONE, "inner": None}},
        ),
        (set[FrozenUser], {FrozenAdmin("ada")}, [CAMEL]),
        # several lists and several dicts in a union
        (list[LoneUser] | list[str], [StructAdmin("ada"), "b"], [ONE, "b"]),
        (list[str] | list[LoneUser] | None, [StructAdmin("ada")], [ONE]),
        (tuple[int, LoneUser] | list[str], (1, StructAdmin("ada")), [1, ONE]),
        (dict[str, int] | dict[str, LoneUser], {"a": 1, "b": StructAdmin("ada")}, {"a": 1, "b": ONE}),
        (dict[str, LoneUser] | dict[str, int] | None, OrderedDict(a=StructAdmin("ada")), {"a": ONE}),
        (list[LoneUser] | list, [StructAdmin("ada")], [ONE | {"token": SECRET}]),
        (LoneUser | Sequence, [StructAdmin("ada")], [ONE | {"token": SECRET}]),
        (LoneUser | Mapping, {"a": StructAdmin("ada")}, {"a": ONE | {"token": SECRET}}),
        # what is inside of a dict in place of a model
        (
            Team,
            {"lead": ModelAdmin(name="ada"), "others": [ONE | {"token": SECRET}], "boss": ONE},
            {"lead": ONE, "others": [ONE]},
        ),
        (
            Team,
            {"lead": ONE, "below": {"lead": ONE | {"token": SECRET}, "more": SECRET}},
            {"lead": ONE, "below": {"lead": ONE}},
        ),
        (OpenTeam, {"lead": ONE | {"token": SECRET}, "more": 1}, {"lead": ONE, "more": 1}),
        (Users, {"a": ONE | {"token": SECRET}}, {"a": ONE}),
        (Users, Users({"a": ModelUser(name="ada")}), {"a": ONE}),
        (StructUser, msgspec.Raw(b"1"), 1),
        # what is not declared leaves as it is
        (Any, StructAdmin("ada"), ONE | {"token": SECRET}),
        (dict, {"a": StructAdmin("ada")}, {"a": ONE | {"token": SECRET}}),
        (list[Any], [StructAdmin("ada")], [ONE | {"token": SECRET}]),
        (StructUser | Any, StructAdmin("ada"), ONE | {"token": SECRET}),
        # paths are their text
        (Path, Path("a/b"), str(Path("a/b"))),
        (Folder, DeepFolder(Path("a")), {"at": "a", "size": 3}),
        (list[Path], [Path("a")], ["a"]),
        (Any, {"at": Path("a")}, {"at": "a"}),
    ],
    ids=lambda one: str(one)[:40].partition(" at ")[0],
)
def test_of_further_types(hint: Any, value: Any, wanted: Any) -> None:
    for inline in (True, False):
        assert json.loads(of_method(hint, lambda: value, inline=inline))["result"] == wanted


@pytest.mark.parametrize(
    ("hint", "value"),
    [
        (StructUser, Other()),
        (list[StructUser], StructAdmin("ada")),
        (dict[str, StructUser], StructAdmin("ada")),
        (tuple[int, StructUser], StructAdmin("ada")),
        (StructUser | None, Other()),
        (ModelUser, Other()),
        (list[ModelUser], [Other()]),
        (LoneUser, [StructAdmin("ada")]),
        (list[LoneUser], {"users": [StructAdmin("ada")]}),
        (dict[str, LoneUser], [StructAdmin("ada")]),
        (LoneUser | None, [{"token": SECRET}]),
        (list[LoneUser] | None, {"token": SECRET}),
    ],
    ids=lambda one: str(one)[:40].partition(" at ")[0],
)
def test_what_has_nothing_to_do_with_what_is_declared_does_not_leave(hint: Any, value: Any) -> None:
    error = json.loads(of_method(hint, lambda: value, inline=True))["error"]
    assert error["code"] == -32603
    assert "was returned where" in error["data"]["exception"]


async def test_every_way_of_answering() -> None:
    api = Service("api", accept_v1=True)

    @api.method
    async def waits() -> StructUser:
        return StructAdmin("ada")

    @api.method
    def plain() -> StructUser:
        return StructAdmin("ada")

    @api.method(inline=True)
    def quick() -> StructUser:
        return StructAdmin("ada")

    async def pass_on(call: Any, next: Any) -> Any:
        return await next(call)

    for _ in range(2):
        for name in ("waits", "plain", "quick"):
            alone = b'{"jsonrpc":"2.0","method":"%s","id":1}' % name.encode()
            for text in (
                alone,
                b"[" + alone + b"," + alone + b"]",
                b'{"method":"%s","params":[],"id":1}' % name.encode(),
            ):
                answer = json.loads(await api.answer_async(text) or b"")
                for one in answer if isinstance(answer, list) else [answer]:
                    assert one["result"] == ONE
        api.use(pass_on)


def test_subclasses_that_come_later_count() -> None:
    class Early(Struct):
        a: int

    leave = projection(result_tree(list[Early], "it"))
    assert leave is not None
    value = [Early(1)]
    assert leave(value) is value

    class Late(Early):
        b: int = 2

    assert leave([Late(1)]) == [{"a": 1}]
    assert leave(value) is value


class Deep(Struct):
    user: LoneUser
    inner: Deep | None = None
    others: list[Deep] = []


def test_a_value_may_be_as_deep_as_an_answer_may_and_one_that_has_itself_inside_is_an_error() -> None:
    value: Any = None
    for _ in range(500):
        value = Deep(LoneUser("ada"), value)
    result = json.loads(of_method(Deep, lambda: value, inline=True))["result"]
    for _ in range(500):
        assert result["user"] == ONE
        result = result["inner"]
    value.others = [value, value, value]
    assert json.loads(of_method(Deep, lambda: value, inline=True))["error"]["code"] == -32603


@pytest.mark.parametrize("hint", [int, str, Any, dict, list[int], dict[str, Any], int | None, tuple[int, str], object])
def test_it_costs_nothing_where_nothing_has_fields(hint: Any) -> None:
    assert projection(result_tree(hint, "it")) is None


def test_a_declared_class_is_named_where_a_field_is_missing() -> None:
    leave = projection(result_tree(StructUser, "it"))
    assert leave is not None
    with pytest.raises(LocalError, match="Other was returned where StructUser is declared: it has no name"):
        leave(Other())
