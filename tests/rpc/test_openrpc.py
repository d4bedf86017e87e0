"""rpc.discover: the document validates against the OpenRPC meta-schema and says what the functions say."""

from __future__ import annotations

import datetime
import enum
import json
import shutil
import subprocess
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal

import jsonschema
import pydantic
import pytest
from annotated_types import Gt
from msgspec import Meta, Struct, field
from referencing import Registry, Resource
from referencing.exceptions import NoSuchResource
from referencing.jsonschema import DRAFT7

from dragoman.jsonrpc.errors import RpcError
from dragoman.rpc.binding.rewriting import as_draft_7
from dragoman.rpc.context import Context
from dragoman.rpc.service import Service
from tests.skips import missing

_PACKAGES = ("@open-rpc/meta-schema@1.14.9", "@json-schema-tools/meta-schema@1.8.0")
_READ = """
const pick = (m) => m.openrpcDocument || m.jsonSchema
console.log(JSON.stringify([pick(require("@open-rpc/meta-schema")), pick(require("@json-schema-tools/meta-schema"))]))
"""


@pytest.fixture(scope="session")
def validator(tmp_path_factory: pytest.TempPathFactory) -> jsonschema.Draft7Validator:
    """The official meta-schema, from npm into a temporary folder; it is not part of this repository."""
    npm, node = shutil.which("npm"), shutil.which("node")
    if npm is None or node is None:
        missing("npm and node are needed for the OpenRPC meta-schema")
    folder: Path = tmp_path_factory.mktemp("openrpc")
    install = [str(npm), "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(folder), *_PACKAGES]
    try:
        subprocess.run(install, check=True, capture_output=True, timeout=120, cwd=folder)
        text = subprocess.run([str(node), "-e", _READ], check=True, capture_output=True, timeout=60, cwd=folder).stdout
    except (subprocess.SubprocessError, OSError) as error:
        missing(f"the OpenRPC meta-schema could not be fetched: {error}")
    openrpc, schema = json.loads(text)

    def retrieve(uri: str) -> Resource[Any]:
        if uri.rstrip("/") == "https://meta.json-schema.tools":
            return DRAFT7.create_resource(schema)
        raise NoSuchResource(uri)

    return jsonschema.Draft7Validator(openrpc, registry=Registry(retrieve=retrieve))  # type: ignore[call-arg]


create_model: Any = pydantic.create_model


class Shortage(Struct):
    item: str
    left: int


class OutOfStock(RpcError):
    code = 1001
    message = "Out of stock"
    data: Shortage


class Unwell(RpcError):
    code = 1002
    message = "Unwell"


class Order(Struct):
    quantity: Annotated[int, Gt(0)]
    note: str = ""


class Receipt(pydantic.BaseModel):
    total: float
    lines: list[Line] = []


class Line(pydantic.BaseModel):
    text: str
    price: Decimal


class Currency(enum.Enum):
    """What is paid with."""

    EUR = "EUR"
    USD = "USD"


class Price(pydantic.BaseModel):
    amount: int
    currency: Currency = Currency.EUR


class Offer(Struct):
    """Is another as a result, for its line is."""

    price: Price
    line: Line | None = None


class Cat(Struct, tag=True):
    name: str


class Dog(Struct, tag=True):
    name: str


@pytest.fixture(scope="module")
def service() -> Service:
    service = Service("shop", version="1.2.3", title="The shop", description="Sells.")

    @service.method("order.place", errors=[OutOfStock, Unwell])
    def place(order: Order, count: int = 1) -> Order:
        """Place an order.

        It may be out of stock.

        Args:
            order: what is wanted
        """
        return order

    @service.method("a.first", deprecated=True)
    async def first(ctx: Context, *numbers: int) -> None: ...

    @service.method
    def by_name(a: int, *, b: str = "x", ctx: Context | None = None) -> list[Receipt]:
        return []

    @service.method
    def by_position(a: int, /, b: int = 2) -> dict[str, Order]:
        return {}

    @service.method
    def members(receipt: Receipt, **others: float) -> Any:
        raise NotImplementedError

    @service.method
    def untyped(a, b=json.loads):  # type: ignore[no-untyped-def]
        pass

    return service


@pytest.fixture(scope="module")
def found(service: Service) -> dict[str, Any]:
    answer = service.answer(b'{"jsonrpc":"2.0","method":"rpc.discover","id":1}')
    assert answer is not None
    result: dict[str, Any] = json.loads(answer)["result"]
    return result


def method(found: dict[str, Any], name: str) -> dict[str, Any]:
    return next(entry for entry in found["methods"] if entry["name"] == name)


def references(value: Any) -> set[str]:
    if isinstance(value, dict):
        own = {value["$ref"]} if isinstance(value.get("$ref"), str) else set()
        return own.union(*map(references, value.values()))
    return set().union(*map(references, value)) if isinstance(value, list) else set()


def test_the_meta_schema_accepts_it(
    validator: jsonschema.Draft7Validator, service: Service, found: dict[str, Any]
) -> None:
    validator.validate(found)
    validator.validate(Service("s", servers=["http://127.0.0.1:8000/", "tcp://127.0.0.1:9000"]).openrpc())
    validator.validate(Service("empty").openrpc())


def test_the_meta_schema_is_not_a_rubber_stamp(validator: jsonschema.Draft7Validator, found: dict[str, Any]) -> None:
    for broken in (found | {"openrpc": "9"}, found | {"extra": 1}, found | {"methods": [{"name": "x"}]}):
        assert not validator.is_valid(broken)
    assert not validator.is_valid(
        found | {"methods": [method(found, "untyped") | {"params": [{"name": "a", "schema": {"type": 5}}]}]}
    )


def test_info_and_order(found: dict[str, Any], service: Service) -> None:
    assert found["openrpc"] == "1.3.2"
    assert found["info"] == {"title": "The shop", "version": "1.2.3", "description": "Sells."}
    assert [entry["name"] for entry in found["methods"]] == sorted(service.methods)
    assert "servers" not in found
    assert Service("s", servers=["unix:shop.sock"]).openrpc()["servers"] == [{"url": "unix:shop.sock"}]
    assert Service("bare").openrpc()["info"] == {"title": "bare", "version": "0.0.0"}


def test_a_method(found: dict[str, Any]) -> None:
    entry = method(found, "order.place")
    assert entry["summary"] == "Place an order."
    assert entry["description"] == "It may be out of stock."
    assert entry["paramStructure"] == "either"
    assert entry["params"] == [
        {
            "name": "order",
            "description": "what is wanted",
            "required": True,
            "schema": {"$ref": "#/components/schemas/Order"},
        },
        {"name": "count", "required": False, "schema": {"type": "integer", "default": 1}},
    ]
    assert entry["result"] == {"name": "result", "schema": {"$ref": "#/components/schemas/Order"}}
    assert entry["errors"] == [
        {"code": 1001, "message": "Out of stock", "data": {"$ref": "#/components/schemas/Shortage"}},
        {"code": 1002, "message": "Unwell"},
    ]


def test_the_context_is_not_told(found: dict[str, Any]) -> None:
    assert "ctx" not in json.dumps(found)


def test_param_structure(found: dict[str, Any]) -> None:
    assert method(found, "a.first")["paramStructure"] == "by-position"
    assert method(found, "a.first")["deprecated"] is True
    assert method(found, "a.first")["params"][0]["x-variadic"] == "items"
    assert method(found, "by_name")["paramStructure"] == "by-name"
    assert method(found, "by_position")["paramStructure"] == "by-position"
    assert method(found, "members")["paramStructure"] == "by-name"
    assert method(found, "untyped")["params"][1] == {"name": "b", "required": False, "schema": {}}


def test_components_are_whole(found: dict[str, Any]) -> None:
    named = {f"#/components/schemas/{name}" for name in found["components"]["schemas"]}
    assert references(found) <= named
    assert found["components"]["schemas"]["Order"]["properties"]["quantity"] == {
        "type": "integer",
        "exclusiveMinimum": 0,
    }


def test_two_models_of_one_name() -> None:
    other = pydantic.create_model("Order", text=(str, ...))
    holder = pydantic.create_model("Holder", order=(other, ...))

    def function(a: Order, b: Any) -> None: ...

    function.__annotations__["b"] = holder
    service = Service("clash")
    service.method(function)
    found = service.openrpc()
    assert references(found) <= {f"#/components/schemas/{name}" for name in found["components"]["schemas"]}
    assert sorted(found["components"]["schemas"]) == ["Holder", "Order", "tests.rpc.test_openrpc.Order"]


def test_what_goes_out_otherwise_than_it_comes_in() -> None:
    service = Service("both")

    @service.method
    def both(receipt: Receipt) -> Receipt:
        return receipt

    found = service.openrpc()
    assert "Line-Output" in found["components"]["schemas"]
    assert references(method(found, "both")["result"]) == {"#/components/schemas/Receipt-Output"}
    assert references(method(found, "both")["params"]) == {"#/components/schemas/Receipt"}


def test_an_error_whose_data_cannot_be_described() -> None:
    class Vague(RpcError):
        code = 7
        message = "Vague"
        data: Nowhere  # type: ignore[name-defined]  # noqa: F821

    service = Service("vague")

    @service.method(errors=[Vague])
    def function() -> None: ...

    assert service.openrpc()["methods"][0]["errors"] == [{"code": 7, "message": "Vague"}]


def test_the_form_of_times_is_told() -> None:
    """msgspec's schema of a `datetime` or a `time` is a bare string: a model cannot know what it looks like."""

    class Event(Struct):
        at: datetime.datetime
        ends: datetime.time | None = None
        since: Annotated[datetime.datetime, Meta(description="Since when.")] = datetime.datetime(2026, 1, 1)

    api = Service("times")

    @api.method
    def method(event: Event, at: datetime.datetime, every: list[datetime.time] | None = None) -> Event:
        return event

    moment = {"type": "string", "examples": ["2026-11-22T13:05:00Z"]}
    clock = {"type": "string", "examples": ["13:05:00Z"]}
    document = api.openrpc()
    given = {p["name"]: p["schema"] for p in document["methods"][0]["params"]}
    assert given["at"] == moment | {"format": "date-time"}
    assert given["every"]["anyOf"][0]["items"] == clock | {"format": "time"}
    event = document["components"]["schemas"]["Event"]["properties"]
    assert event["at"] == moment | {"format": "date-time"}
    assert event["ends"]["anyOf"][0] == clock | {"format": "time"}
    assert event["since"]["description"] == "Since when."
    assert event["since"]["examples"] == moment["examples"]
    # what goes out may have no offset, so it promises no format
    result = document["components"]["schemas"]["Event-Output"]["properties"]
    assert result["at"] == moment
    call = b'{"jsonrpc":"2.0","method":"method","params":[{"at":"2026-01-01T00:00:00"},"2026-01-01T00:00:00"],"id":1}'
    assert b'"at":"2026-01-01T00:00:00"' in (api.answer(call) or b"")


def test_each_type_is_one_component() -> None:
    """Models are components as other classes are, and an Enum is the same in a Struct and in a model."""
    api = Service("types")

    @api.method
    def one(price: Price, prices: list[Price], currency: Currency, offer: Offer) -> dict[str, Price]:
        raise NotImplementedError

    @api.method
    def two(price: Price | None = None, currency: Currency | None = None) -> Currency:
        raise NotImplementedError

    found = api.openrpc()
    place = "#/components/schemas/"
    price, currency = {"$ref": place + "Price"}, {"$ref": place + "Currency"}
    assert list(found["components"]["schemas"]) == ["Currency", "Line", "Offer", "Price"]
    given = {(m["name"], p["name"]): p["schema"] for m in found["methods"] for p in m["params"]}
    assert given["one", "price"] == price
    assert given["one", "prices"] == {"type": "array", "items": price}
    assert given["one", "currency"] == currency
    assert given["two", "price"] == {"anyOf": [price, {"type": "null"}], "default": None}
    assert method(found, "one")["result"]["schema"] == {"type": "object", "additionalProperties": price}
    assert method(found, "two")["result"]["schema"] == currency


def test_what_refers_to_another_type_of_results_is_another_too() -> None:
    api = Service("offers")

    @api.method
    def offer(offer: Offer) -> Offer:
        raise NotImplementedError

    found = api.openrpc()
    parts = found["components"]["schemas"]
    assert sorted(parts) == ["Currency", "Line", "Line-Output", "Offer", "Offer-Output", "Price"]
    assert references(parts["Offer"]) == {"#/components/schemas/Line", "#/components/schemas/Price"}
    assert references(parts["Offer-Output"]) == {"#/components/schemas/Line-Output", "#/components/schemas/Price"}
    assert references(method(found, "offer")["params"]) == {"#/components/schemas/Offer"}
    assert references(method(found, "offer")["result"]) == {"#/components/schemas/Offer-Output"}


def test_models_of_one_name_are_told_apart_and_what_has_them_too() -> None:
    def model(name: str, **fields: Any) -> Any:
        return create_model(name, __module__="elsewhere", **{key: (kind, ...) for key, kind in fields.items()})

    first, second = model("Line", text=str), model("Line", number=int)
    pages = [model("Page", line=first), model("Page", line=second), model("Book", page=model("Page", line=second))]
    api = Service("books")

    def read(a: Any, b: Any, c: Any, d: Any) -> None: ...

    read.__annotations__ |= {"a": pages[0], "b": pages[1], "c": pages[2], "d": pages[1]}
    api.method(read)
    found = api.openrpc()
    parts = found["components"]["schemas"]
    assert sorted(parts) == ["Book", "Line", "Page", "elsewhere.Line", "elsewhere.Page"]
    assert references(parts["elsewhere.Page"]) == {"#/components/schemas/elsewhere.Line"}
    assert references(parts["Book"]) == {"#/components/schemas/elsewhere.Page"}
    assert references(parts["Page"]) == {"#/components/schemas/Line"}
    given = [p["schema"]["$ref"].rpartition("/")[2] for p in method(found, "read")["params"]]
    assert given == ["Page", "elsewhere.Page", "Book", "elsewhere.Page"]


@pytest.mark.parametrize(
    ("hint", "type"),
    [
        (Literal["a", "b"], "string"),
        (Literal[1, 2], "integer"),
        (Literal[1, "a", None], ["null", "integer", "string"]),
        (enum.Enum("Colour", {"RED": "red"}), "string"),
        (enum.IntEnum("Level", {"LOW": 1}), "integer"),
        (create_model("Choice", one=(Literal["x"], ...), more=(Literal["x", 1], ...)), None),
        (Cat | Dog, None),
    ],
)
def test_a_type_stands_beside_what_is_enumerated(hint: Any, type: Any) -> None:
    api = Service("choices")

    def take(value: Any) -> None: ...

    take.__annotations__["value"] = hint
    api.method(take)
    found = api.openrpc()

    def enumerated(value: Any) -> list[dict[str, Any]]:
        below = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        own = [value] if isinstance(value, dict) and value.keys() & {"enum", "const"} else []
        return own + [part for inner in below for part in enumerated(inner)]

    parts = enumerated(found)
    assert parts
    assert all("type" in part for part in parts)
    if type is not None:
        assert [part["type"] for part in parts] == [type]


def test_values_in_a_schema_are_not_taken_for_schemas() -> None:
    class Loose(Struct):
        enum: dict[str, Any] = field(default_factory=dict)
        prefixItems: list[int] = []

    api = Service("loose")

    @api.method
    def take(value: dict[str, Any] = {"prefixItems": [1], "const": 1}, loose: Loose | None = None) -> None: ...  # noqa: B006

    found = api.openrpc()
    assert method(found, "take")["params"][0]["schema"]["default"] == {"prefixItems": [1], "const": 1}
    properties = found["components"]["schemas"]["Loose"]["properties"]
    assert properties["enum"] == {"type": "object", "default": {}}
    assert properties["prefixItems"] == {"type": "array", "items": {"type": "integer"}, "default": []}


def test_tuples_are_those_of_draft_7() -> None:
    api = Service("tuples")

    @api.method
    def pair(pair: tuple[int, list[tuple[str, bool]]]) -> None: ...

    inner = {"type": "array", "minItems": 2, "maxItems": 2, "items": [{"type": "string"}, {"type": "boolean"}]}
    lists = {"type": "array", "items": inner}
    (given,) = method(api.openrpc(), "pair")["params"]
    assert given["schema"]["items"] == [{"type": "integer"}, lists]
    assert not {"prefixItems", "additionalItems"} & set(given["schema"])
    assert as_draft_7({"prefixItems": [True], "items": False}) == {"items": [True], "additionalItems": False}


GOOGLE = """Sum up.

    More of it.

    Args:
        a: the first
            goes on
        b: the second

    Returns:
        The sum.
    """
NUMPY = """Sum up.

    More of it.

    Parameters
    ----------
    a : int
        the first goes on
    b : int
        the second

    Returns
    -------
    int
        The sum.
    """
SPHINX = """Sum up.

    More of it.

    :param a: the first
      goes on
    :param int b: the second
    :returns: The sum.
    """


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        (GOOGLE, "Returns:\n    The sum."),
        (NUMPY, "Returns\n-------\nint\n    The sum."),
        (SPHINX, ":returns: The sum."),
    ],
)
def test_parameters_are_described_once(text: str, rest: str) -> None:
    def add(a: int, b: int) -> int:
        return a + b

    add.__doc__ = text
    api = Service("sums")
    api.method(add)
    entry = method(api.openrpc(), "add")
    assert entry["summary"] == "Sum up."
    assert entry["description"] == f"More of it.\n\n{rest}"
    assert [p["description"] for p in entry["params"]] == ["the first goes on", "the second"]


def test_tags_and_the_errors_of_a_service_are_told() -> None:
    inner = Service("inner", errors=[Unwell])

    @inner.method(tags={"b", "a"}, errors=[OutOfStock])
    def deep() -> None: ...

    outer = Service("outer", errors=iter([Unwell, OutOfStock]))

    @outer.method(errors=[Unwell])
    def flat() -> None: ...

    outer.include(inner, namespace="inner", tags=["c"])
    outer.use(_through)
    inner.use(_through)  # which makes its methods anew here

    @inner.method
    def late() -> None: ...

    def told(api: Service) -> dict[str, tuple[list[int], list[str]]]:
        return {
            one["name"]: ([error["code"] for error in one["errors"]], [tag["name"] for tag in one.get("tags", ())])
            for one in api.openrpc()["methods"]
        }

    assert told(inner) == {"deep": ([1001, 1002], ["a", "b"]), "late": ([1002], [])}
    assert told(outer) == {
        "flat": ([1002, 1001], []),
        "inner.deep": ([1001, 1002], ["a", "b", "c"]),
        "inner.late": ([1002, 1001], ["c"]),
    }


async def _through(call: Any, next: Any) -> Any:
    return await next(call)
