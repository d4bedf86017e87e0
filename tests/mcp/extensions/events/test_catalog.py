"""Event types: what can be one, who may follow it, and which subscription gets which event."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal

import jsonschema
import msgspec
import pytest
from msgspec import UNSET, Meta, Struct

from dragoman.access import LocalUser
from dragoman.channel import Identity
from dragoman.events.catalog import EventArguments, EventDefinition
from dragoman.jsonrpc.errors import InvalidParams, LocalError
from dragoman.mcp.extensions.events import EventLimits, Events
from dragoman.mcp.extensions.events import model as m


class Item(Struct, rename="camel"):
    item_id: str
    count: Annotated[int, Meta(ge=1)] = 1


class Shipped(Struct, rename="camel", omit_defaults=True):
    """An order has left.

    It is on its way.
    """

    order_id: str
    carrier: Literal["DHL", "UPS"] = "DHL"
    weight: float = 1.0
    items: list[Item] = []
    when: datetime | None = None


def definition(**options: Any) -> EventDefinition:
    return EventDefinition(Shipped, **options)


def test_what_the_list_says_of_a_type() -> None:
    found = definition(filters=["order_id", "weight", "when"])
    assert found.name == "shipped"
    assert found.description == "An order has left.\n\nIt is on its way."
    assert found.input_schema["properties"].keys() == {"orderId", "weight", "when"}
    assert found.input_schema["additionalProperties"] is False
    assert found.input_schema["required"] == []
    for schema in (found.input_schema, found.payload_schema):
        assert schema["type"] == "object"
        jsonschema.Draft202012Validator.check_schema(schema)
    event = Shipped("1", items=[Item("a")], when=datetime(2026, 1, 1))
    jsonschema.validate(msgspec.json.decode(definition().encode(event)), found.payload_schema)
    jsonschema.validate({"orderId": "1", "weight": 2}, found.input_schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"order_id": "1"}, found.input_schema)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("OrderShipped", "order_shipped"), ("HTTPError", "http_error"), ("X", "x"), ("Order2Shipped", "order2_shipped")],
)
def test_the_name_of_a_type(name: str, expected: str) -> None:
    assert EventDefinition(msgspec.defstruct(name, [("x", int)])).name == expected


MATCHES = [
    ({}, {}, True),
    ({"orderId": "1"}, {}, True),
    ({"orderId": "2"}, {}, False),
    ({"carrier": "DHL"}, {}, True),  # left out of the payload: it is the default
    ({"carrier": "UPS"}, {}, False),
    ({"carrier": "UPS"}, {"carrier": "UPS"}, True),
    ({"weight": 1}, {}, True),
    ({"weight": 1.0}, {}, True),
    ({"weight": 1.5}, {"weight": 1.5}, True),
    ({"weight": 2}, {"weight": 1.5}, False),
    ({"items": [{"itemId": "a"}]}, {"items": [Item("a")]}, True),
    ({"items": [{"count": 1, "itemId": "a"}]}, {"items": [Item("a")]}, True),
    ({"items": [{"itemId": "b"}]}, {"items": [Item("a")]}, False),
    ({"items": []}, {"items": [Item("a")]}, False),
    ({"when": None}, {}, True),
    ({"when": "2026-01-01T00:00:00"}, {"when": datetime(2026, 1, 1)}, True),
    ({"when": "2026-01-01T00:00:00"}, {}, False),
    ({"orderId": "1", "carrier": "UPS"}, {"carrier": "UPS"}, True),
    ({"orderId": "1", "carrier": "UPS"}, {}, False),
]


@pytest.mark.parametrize(("arguments", "event", "expected"), MATCHES)
def test_which_subscription_gets_which_event(arguments: Any, event: dict[str, Any], expected: bool) -> None:
    one = definition(filters=["order_id", "carrier", "weight", "items", "when"])
    data = one.encode(Shipped("1", **event))
    asked = one.arguments_of(arguments, 1_000)
    assert one.matches(asked, data) is expected
    assert one.matches(one.arguments_from(asked.text), data) is expected  # as they are kept


def test_equal_arguments_have_one_spelling() -> None:
    one = definition(filters=["order_id", "weight"])
    texts: Any = {
        one.arguments_of(given, 1_000).text
        for given in ({"orderId": "1", "weight": 1}, {"weight": 1.0, "orderId": "1"})
    }
    assert len(texts) == 1
    nothing: tuple[Any, ...] = (None, UNSET, {})
    assert {one.arguments_of(given, 1_000).text for given in nothing} == {b"{}"}


@pytest.mark.parametrize(
    "given", [{"x": 1}, {"orderId": 1}, {"order_id": "1"}, [], "x", 1, {"weight": "1"}, {"orderId": None}]
)
def test_what_are_no_arguments(given: Any) -> None:
    with pytest.raises(InvalidParams, match="arguments of shipped"):
        definition(filters=["order_id", "weight"]).arguments_of(given, 1_000)


def test_arguments_of_its_own() -> None:
    class Heavier(Struct):
        than: float = 0.0

    one = definition(arguments=Heavier, match=lambda arguments, event: event.weight > arguments.than)
    assert one.input_schema["properties"].keys() == {"than"}
    heavy, light = one.encode(Shipped("1", weight=5)), one.encode(Shipped("1", weight=1))
    asked = one.arguments_of({"than": 2}, 1_000)
    assert (one.matches(asked, heavy), one.matches(asked, light)) == (True, False)


@dataclass
class Other:
    x: int


class Pair(Struct, array_like=True):
    x: int


class Opaque(Struct):
    x: complex


WRONG: list[tuple[Any, dict[str, Any], str]] = [
    (Other, {}, r"a msgspec\.Struct"),
    (Pair, {}, r"a msgspec\.Struct"),
    (Opaque, {}, "event 'opaque'"),
    (Shipped, {"name": ""}, "a name has"),
    (Shipped, {"name": "a b"}, "a name has"),
    (Shipped, {"name": "x" * 129}, "a name has"),
    (Shipped, {"name": 1}, "name is text"),
    (Shipped, {"modes": []}, "at least one of the modes"),
    (Shipped, {"modes": ["stream"]}, "modes is"),
    (Shipped, {"modes": "poll"}, "modes is"),
    (Shipped, {"filters": ["none"]}, "no field of Shipped"),
    (Shipped, {"filters": "carrier"}, "filters is"),
    (Shipped, {"arguments": Item}, "arguments= with match="),
    (Shipped, {"match": print}, "arguments= with match="),
    (Shipped, {"arguments": Item, "match": print, "filters": ["weight"]}, "filters, or"),
    (Shipped, {"arguments": dict, "match": print}, r"arguments is a msgspec\.Struct"),
    (Shipped, {"scopes": "a\nb\x00"}, "is not a scope"),
    (Shipped, {"allow": 1}, "allow is"),
    (Shipped, {"description": 1}, "description is"),
]


@pytest.mark.parametrize(("kind", "options", "words"), WRONG)
def test_what_is_no_event_type(kind: Any, options: dict[str, Any], words: str) -> None:
    with pytest.raises(LocalError, match=words):
        EventDefinition(kind, **options)


def test_a_name_and_a_class_are_one_type() -> None:
    events = Events()
    events.event(Shipped)
    with pytest.raises(LocalError, match="another event already"):
        events.event("other")(Shipped)
    with pytest.raises(LocalError, match="another event already"):
        events.event("shipped")(Item)
    with pytest.raises(LocalError, match="unexpected keyword"):
        events.event("item", colour="red")(Item)  # type: ignore[call-overload]
    with pytest.raises(LocalError, match=r"a msgspec\.Struct"):
        events.event(Other)  # type: ignore[type-var]


ADA = Identity(subject="ada", scopes=frozenset({"orders"}), roles=frozenset({"clerk"}))
BOB = Identity(subject="bob")
LOCAL = LocalUser(subject="me")
MAY: list[tuple[dict[str, Any], Identity | None, bool]] = [
    ({}, None, True),
    ({"scopes": "orders"}, None, False),
    ({"scopes": "orders"}, ADA, True),
    ({"scopes": "orders"}, BOB, False),
    ({"scopes": "orders"}, LOCAL, True),
    ({"scopes": ["orders", "more"]}, ADA, False),
    ({"roles": "clerk"}, ADA, True),
    ({"roles": "clerk"}, BOB, False),
    ({"allow": lambda identity, arguments: arguments["carrier"] == "DHL"}, BOB, True),
    ({"allow": lambda identity, arguments: arguments["carrier"] == "UPS"}, ADA, False),
    ({"allow": lambda identity, arguments: 1 / 0}, ADA, False),
    ({"allow": lambda identity, arguments: True}, None, False),
]


@pytest.mark.parametrize(("options", "identity", "expected"), MAY)
def test_who_may_follow(options: dict[str, Any], identity: Identity | None, expected: bool) -> None:
    one = definition(filters=["carrier"], **options)
    arguments: EventArguments = one.arguments_of({"carrier": "DHL"}, 1_000)
    assert (one.refuses(identity, arguments) is None) is expected


def test_a_list_hides_what_is_not_for_a_role_but_shows_what_needs_a_scope() -> None:
    assert definition(roles="clerk").refuses(BOB, None) is not None
    assert definition(scopes="orders").refuses(BOB, None) is None


@pytest.mark.parametrize(
    "change",
    [{"events": 0}, {"event_size": 10}, {"events_age": 0}, {"ttl_most": 1.0}, {"events_size": 1_000}, {"streams": "1"}],
)
def test_limits_that_make_no_sense(change: dict[str, Any]) -> None:
    with pytest.raises(LocalError, match="EventLimits"):
        EventLimits(**change)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"profile": "openai"}, "profile is"),
        ({"retries": [-1]}, "retries is"),
        ({"ttl": 0}, "ttl is"),
        ({"keys": "short"}, "at least 16 bytes"),
        ({"clock": 1}, "clock is"),
        (
            {"codes": m.EventCodes(not_found=1, forbidden=2, exhausted=3, unsupported=4, callback=5)},
            "leave it out of codes",
        ),
    ],
)
def test_options_that_make_no_sense(options: dict[str, Any], words: str) -> None:
    with pytest.raises(LocalError, match=words):
        Events(**options)


def test_the_codes_of_the_sep_can_be_chosen() -> None:
    assert Events(codes=m.SEP_CODES).declares.codes == frozenset(range(-32027, -32022))


@pytest.mark.parametrize("timestamp", ["2026-11-27T00:00:00Z", True, float("nan"), float("inf"), 1e18])
async def test_a_time_that_is_none_is_refused_before_the_event_is_kept(timestamp: Any) -> None:
    events = Events()
    events.event(Shipped)
    with pytest.raises(LocalError, match="timestamp is in Unix seconds"):
        await events.emit(Shipped("1"), timestamp=timestamp)
    with pytest.raises(LocalError, match="timestamp is in Unix seconds"):
        events.emit_soon(Shipped("1"), timestamp=timestamp)
