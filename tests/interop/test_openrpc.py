"""The OpenRPC document, read by OpenRPC's own tools: the playground's checks and parser, and a generator of types.

No type here refers to itself, for the parser then never ends, and there is no dict, whose values the generator forgets.
"""

from __future__ import annotations

import asyncio
import datetime
import enum
import json
import re
import shutil
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

import pydantic
import pytest
from msgspec import Struct

from dragoman import RpcError, Service
from tests.npm import Node, installed

PINNED = ["@open-rpc/schema-utils-js@2.2.1", "@open-rpc/typings@1.13.1"]


class Currency(enum.Enum):
    EUR = "EUR"
    USD = "USD"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Item(pydantic.BaseModel):
    name: str
    price: Decimal
    currency: Currency = Currency.EUR


class Card(Struct, tag=True):
    number: str


class Cash(Struct, tag=True):
    coins: int


class Order(Struct):
    items: list[Item]
    level: Level
    paid: Card | Cash
    kind: Literal["gift", "own"] = "own"
    mode: Literal[1, "fast"] | None = None


class Shortage(Struct):
    item: Item
    left: int


class OutOfStock(RpcError):
    code = 1001
    message = "Out of stock"
    data: Shortage


@pytest.fixture(scope="module")
def api() -> Service:
    api = Service("shop", title="The shop", description="Sells.", servers=["https://shop.example/rpc"])

    @api.method(tags=["orders"], errors=[OutOfStock])
    def place(order: Order, item: Item, currency: Currency, at: datetime.datetime) -> Order:
        raise NotImplementedError

    @api.method
    def find(item: Item | None, pair: tuple[int, str], only: Literal["one"], level: Level = Level.LOW) -> list[Item]:
        raise NotImplementedError

    @api.method(deprecated=True)
    def count(*, prices: list[Decimal], currency: Currency | None = None) -> int:
        raise NotImplementedError

    return api


@pytest.fixture(scope="module")
def read(api: Service, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What the tools made of the document of the service."""
    modules, program = installed(request, PINNED), shutil.which("node")
    assert program is not None
    document = tmp_path_factory.mktemp("openrpc") / "openrpc.json"
    document.write_text(json.dumps(api.openrpc()), "utf-8")
    done = Node(program, modules, Path(__file__).parent).output("openrpc.cjs", str(document))
    return asyncio.run(done)


def test_the_playground_parses_it(api: Service, read: Any) -> None:
    assert read["valid"] is True
    assert [one["name"] for one in read["methods"]] == ["count", "find", "place"]
    for one in read["methods"]:  # it follows each reference, but for the data of errors
        assert '"$ref"' not in json.dumps([one["params"], one["result"]])


def test_its_types_say_what_the_schema_says(read: Any) -> None:
    types: str = read["types"]
    made = set(re.findall(r"^export (?:type|interface) (\w+)", types, re.MULTILINE))
    # every class has one name, and none is anything at all
    assert {"Currency", "Level", "Item", "Card", "Cash", "Order"} <= made
    assert not [name for name in made if re.match(r"(Currency|Level|Item|Card|Cash)\d", name)]
    anything = [
        line
        for line in types.splitlines()
        if re.search(r"\bany\b", line) and not re.match(r"\s*(\*|\[k: string])", line)
    ]
    assert anything == []
    assert 'type Currency = "EUR" | "USD"' in types
    assert "type Level = 1 | 2" in types
    find = re.search(r"export type Find = (.*);", types)
    assert find is not None
    assert re.fullmatch(r"\(item: \w+, pair: \w+, only: \w+, level\?: Level\) => Promise<\w+>", find[1])
