"""rpc.discover: the document validates against the OpenRPC meta-schema and says what the functions say."""

from __future__ import annotations

import datetime
import json
import shutil
import subprocess
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import jsonschema
import pydantic
import pytest
from annotated_types import Gt
from msgspec import Meta, Struct
from referencing import Registry, Resource
from referencing.exceptions import NoSuchResource
from referencing.jsonschema import DRAFT7

from dragoman.jsonrpc.errors import RpcError
from dragoman.rpc.context import Context
from dragoman.rpc.openrpc import document
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
    def members(receipt: Receipt, **others: float) -> Any: ...

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
    validator.validate(document(service, servers=["http://127.0.0.1:8000/", "tcp://127.0.0.1:9000"]))
    validator.validate(document(Service("empty")))


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
    assert document(service, servers=["unix:shop.sock"])["servers"] == [{"url": "unix:shop.sock"}]
    assert document(Service("bare"))["info"] == {"title": "bare", "version": "0.0.0"}


def test_a_method(found: dict[str, Any]) -> None:
    entry = method(found, "order.place")
    assert entry["summary"] == "Place an order."
    assert entry["description"].startswith("It may be out of stock.\n\nArgs:\n    order:")
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
    found = document(service)
    assert references(found) <= {f"#/components/schemas/{name}" for name in found["components"]["schemas"]}
    assert len(found["components"]["schemas"]) == 2


def test_what_goes_out_otherwise_than_it_comes_in() -> None:
    service = Service("both")

    @service.method
    def both(receipt: Receipt) -> Receipt:
        return receipt

    found = document(service)
    assert "Line-Output" in found["components"]["schemas"]
    assert references(method(found, "both")["result"]) == {"#/components/schemas/Line-Output"}
    assert references(method(found, "both")["params"]) == {"#/components/schemas/Line"}


def test_an_error_whose_data_cannot_be_described() -> None:
    class Vague(RpcError):
        code = 7
        message = "Vague"
        data: Nowhere  # type: ignore[name-defined]  # noqa: F821

    service = Service("vague")

    @service.method(errors=[Vague])
    def function() -> None: ...

    assert document(service)["methods"][0]["errors"] == [{"code": 7, "message": "Vague"}]


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
