"""Headers that repeat the body: 2026-07-28, basic/transports/streamable-http, "Request Metadata"."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.jsonrpc.errors import LocalError
from dragoman.mcp.protocol.headers import (
    HeaderParam,
    check,
    check_arguments,
    decode_value,
    encode_value,
    marked,
    mirror,
)


def schema(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


REGION = {"type": "string", "x-mcp-header": "Region"}
SCHEMA = schema(
    region=REGION,
    count={"type": "integer", "x-mcp-header": "Count"},
    dry={"type": "boolean", "x-mcp-header": "Dry"},
    place={"type": "object", "properties": {"town": {"type": "string", "x-mcp-header": "Town"}}},
    query={"type": "string"},
)
MARKED = marked(SCHEMA)


def test_marked() -> None:
    """Schema Extension: "Nested object properties are permitted as long as every step is a `properties` key"."""
    assert marked(SCHEMA) == (
        HeaderParam(("region",), "Region", "string"),
        HeaderParam(("count",), "Count", "integer"),
        HeaderParam(("dry",), "Dry", "boolean"),
        HeaderParam(("place", "town"), "Town", "string"),
    )
    assert marked({"type": "object"}) == ()
    assert marked(True) == ()
    assert marked(schema(a={"type": ["string", "null"], "x-mcp-header": "A"})) == (HeaderParam(("a",), "A", "string"),)
    # a schema may be `true`
    for one in (schema(a=True, b=REGION), schema(b=REGION, a=False), {"anyOf": [True]} | schema(b=REGION)):
        assert marked(one) == (HeaderParam(("b",), "Region", "string"),)
    # a property may be called so
    assert marked(schema(**{"x-mcp-header": {"type": "string"}})) == ()
    # what is not a schema marks nothing
    assert marked(schema(a={"type": "object", "default": {"x-mcp-header": ""}, "enum": [{"x-mcp-header": 1}]})) == ()


@pytest.mark.parametrize(
    "bad",
    [
        *(schema(a={"type": "string", "x-mcp-header": name}) for name in ("", "My Region", "a:b", "Région", "a\t1")),
        *(schema(a={"type": "string", "x-mcp-header": name}) for name in ("a\r\nb", None, 5, ["A"])),
        *(schema(a={"type": kind, "x-mcp-header": "A"}) for kind in ("object", "array", "null", "number")),
        schema(a={"type": ["string", "integer"], "x-mcp-header": "A"}),
        schema(a={"x-mcp-header": "A"}),
        schema(a=REGION, b=REGION),
        schema(a=REGION, b={"type": "string", "x-mcp-header": "region"}),
        {"type": "object", "x-mcp-header": "Root"},
        schema(a={"type": "array", "items": REGION}),
        schema(a={"type": "array", "prefixItems": [REGION]}),
        schema(a={"type": "array", "items": {"type": "object", "properties": {"b": REGION}}}),
        *({"type": "object", key: [schema(a=REGION)]} for key in ("oneOf", "anyOf", "allOf")),
        *({"type": "object", key: schema(a=REGION)} for key in ("not", "if", "then", "else", "contains", "items")),
        *({"type": "object", f"additional{key}": schema(a=REGION)} for key in ("Items", "Properties")),
        *({"type": "object", f"unevaluated{key}": schema(a=REGION)} for key in ("Items", "Properties")),
        *({"type": "object", key: schema(a=REGION)} for key in ("propertyNames", "contentSchema")),
        {"type": "object", "definitions": {"A": REGION}},
        {"type": "object", "additionalProperties": REGION},
        {"type": "object", "patternProperties": {"^a": REGION}},
        {"type": "object", "dependentSchemas": {"a": schema(a=REGION)}},
        {"type": "object", "$defs": {"A": REGION}, "properties": {"a": {"$ref": "#/$defs/A"}}},
        schema(a={"$ref": "#/$defs/A", "x-mcp-header": "A"}),
    ],
)
def test_marked_wrongly(bad: dict[str, Any]) -> None:
    """Schema Extension: every constraint; elsewhere an annotation "makes the tool definition invalid"."""
    with pytest.raises(ValueError, match="x-mcp-header"):
        marked(bad)


def test_a_schema_without_end() -> None:
    def deep(levels: int) -> dict[str, Any]:
        found: dict[str, Any] = {"type": "string", "x-mcp-header": "Deepest"}
        for _ in range(levels):
            found = {"properties": {"a": found}}
        return found

    assert [one.path for one in marked(deep(64))] == [("a",) * 64]
    for levels in (65, 10_000):
        with pytest.raises(ValueError, match="more than 64 levels deep"):
            marked(deep(levels))


@pytest.mark.parametrize(
    ("value", "header"),
    [
        # the table of Value Encoding
        ("us-west1", "us-west1"),
        ("Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="),
        (" padded ", "=?base64?IHBhZGRlZCA=?="),
        ("line1\nline2", "=?base64?bGluZTEKbGluZTI=?="),
        ("=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
        ("a b", "a b"),
        ("", ""),
        ("a\tb", "a\tb"),
        ("\ta", "=?base64?CWE=?="),
        ("=?base64?open", "=?base64?open"),
    ],
)
def test_encoding(value: str, header: str) -> None:
    assert encode_value(value) == header
    assert decode_value(header) == value


def test_an_encoded_text_may_be_empty() -> None:
    assert decode_value("=?base64??=") == ""


@given(st.text())
def test_encoded_and_back(value: str) -> None:
    text = encode_value(value)
    assert decode_value(text) == value
    assert all(" " <= char <= "~" or char == "\t" for char in text)


@pytest.mark.parametrize(
    "header", ["é", "a\x00b", "a\x7f", "=?base64?SGVsbG8?=", "=?base64?SGVs!!!bG8=?=", "=?base64?/w==?=", "a\nb"]
)
def test_decoding_is_strict(header: str) -> None:
    """Server Validation: "A header value contains invalid characters"."""
    with pytest.raises(ValueError, match=r"characters|base64"):
        decode_value(header)


@pytest.mark.parametrize("header", ["=?base64?=", "=?BASE64?QQ==?=", "QQ==", "=?base64?QQ=="])
def test_what_is_not_a_sentinel(header: str) -> None:
    """ "These markers are case-sensitive and MUST appear exactly as shown"."""
    assert decode_value(header) == header


def test_mirror() -> None:
    """Client Behavior, 3 to 5."""
    arguments = {"region": "日", "count": -7, "dry": False, "place": {"town": "Kyoto"}, "query": "x"}
    assert mirror(MARKED, arguments) == {
        "Mcp-Param-Region": "=?base64?5pel?=",
        "Mcp-Param-Count": "-7",
        "Mcp-Param-Dry": "false",
        "Mcp-Param-Town": "Kyoto",
    }
    assert mirror(MARKED, msgspec.Raw(msgspec.json.encode(arguments))) == mirror(MARKED, arguments)
    # "Parameter value is `null`: Client MUST omit the header", "not in arguments: MUST omit"
    assert mirror(MARKED, {"region": None, "place": None}) == {}
    assert mirror(MARKED, None) == {}
    assert mirror((), arguments) == {}
    with pytest.raises(LocalError, match="count"):
        mirror(MARKED, {"count": 2**53})
    assert mirror(MARKED, {"count": 2**53 - 1}) == {"Mcp-Param-Count": "9007199254740991"}


def judge(
    arguments: Any, headers: dict[str, str], name: str | None = "deploy", method: str = "tools/call"
) -> str | None:
    """What `check` and `check_arguments` say to the arguments and headers of one call."""
    raw = msgspec.Raw(msgspec.json.encode(arguments))
    lower = {key.lower(): value for key, value in headers.items()}
    return check(method, name, lower) or check_arguments(raw, MARKED, lower)


GOOD = {"Mcp-Method": "tools/call", "Mcp-Name": "deploy"}


@pytest.mark.parametrize(
    ("arguments", "headers"),
    [
        ({}, {}),
        ({"region": None}, {}),
        ({"region": "eu"}, {"Mcp-Param-Region": "eu"}),
        ({"region": "eu"}, {"MCP-PARAM-REGION": " eu\t"}),
        ({"region": "eu"}, {"Mcp-Param-Region": "=?base64?ZXU=?="}),
        ({"region": ""}, {"Mcp-Param-Region": ""}),
        # "SHOULD compare the header value and the body value numerically"
        ({"count": 42}, {"Mcp-Param-Count": "42.0"}),
        ({"count": 42.0}, {"Mcp-Param-Count": "42"}),
        ({"count": -7}, {"Mcp-Param-Count": "-7"}),
        ({"count": 2**53 - 1}, {"Mcp-Param-Count": "9007199254740991"}),
        ({"dry": True}, {"Mcp-Param-Dry": "true"}),
        ({"place": {"town": "A"}}, {"Mcp-Param-Town": "A"}),
        ({"place": "A"}, {}),
        # a header that names no marked parameter is ignored
        ({}, {"Mcp-Param-Other": "\x00"}),
    ],
)
def test_headers_that_agree(arguments: Any, headers: dict[str, str]) -> None:
    assert judge(arguments, GOOD | headers) is None


@pytest.mark.parametrize(
    ("arguments", "headers", "words"),
    [
        # "Client omits header but value is in body: Server MUST reject the request"
        ({"region": "eu"}, {}, "Mcp-Param-Region header is missing"),
        ({"region": "eu"}, {"Mcp-Param-Region": "us"}, "'us' does not match body value 'eu'"),
        ({"region": "eu"}, {"Mcp-Param-Region": "EU"}, "does not match"),
        ({"region": "eu"}, {"Mcp-Param-Region": "eu, eu"}, "does not match"),
        ({"region": "é"}, {"Mcp-Param-Region": "é"}, "invalid characters"),
        ({"region": "eu"}, {"Mcp-Param-Region": "e\x00u"}, "invalid characters"),
        ({"region": "eu"}, {"Mcp-Param-Region": "=?base64?ZXU?="}, "base64"),
        ({"region": "=?base64?x?="}, {"Mcp-Param-Region": "=?base64?x?="}, "base64"),
        ({}, {"Mcp-Param-Region": "eu"}, "is not in the body"),
        ({"region": None}, {"Mcp-Param-Region": "null"}, "is not in the body"),
        ({"region": ["eu"]}, {"Mcp-Param-Region": "eu"}, "is not in the body"),
        ({"count": 42}, {"Mcp-Param-Count": "43"}, "does not match"),
        ({"count": 42}, {"Mcp-Param-Count": "42.5"}, "does not match"),
        ({"count": 42}, {"Mcp-Param-Count": "42, 42"}, "does not match"),
        ({"count": 42}, {"Mcp-Param-Count": "9" * 10_000}, "does not match"),
        ({"count": 2**53}, {"Mcp-Param-Count": str(2**53)}, "beyond"),
        ({"dry": True}, {"Mcp-Param-Dry": "True"}, "does not match"),
        (
            {},
            {"Mcp-Method": "tools/list"},
            "Mcp-Method header value 'tools/list' does not match body value 'tools/call'",
        ),
        ({}, {"Mcp-Method": "TOOLS/CALL"}, "Mcp-Method"),
        ({}, {"Mcp-Name": "other"}, "Mcp-Name header value 'other' does not match body value 'deploy'"),
        ({}, {"Mcp-Name": "deploy, deploy"}, "Mcp-Name"),
    ],
)
def test_headers_that_disagree(arguments: Any, headers: dict[str, str], words: str) -> None:
    """Server Validation: "MUST reject requests where the values [...] do not match"."""
    fault = judge(arguments, GOOD | headers)
    assert fault is not None
    assert words in fault
    assert fault.startswith("Header mismatch: ")


@pytest.mark.parametrize(
    ("name", "header", "agrees"),
    [
        ("日", "=?base64?5pel?=", True),
        ("日", "日", False),
        ("é", "é", False),
        (" a ", "=?base64?IGEg?=", True),
        ("=?base64?QQ==?=", "=?base64?QQ==?=", False),
        ("a", "=?base64?YQ==?=", True),
        ("file:///a,b", "file:///a,b", True),
    ],
)
def test_names(name: str, header: str, agrees: bool) -> None:
    """ "servers MUST decode an encoded `Mcp-Name` [...] before comparing it"."""
    assert (judge({}, {"Mcp-Method": "tools/call", "Mcp-Name": header}, name) is None) == agrees


def test_missing_standard_headers() -> None:
    assert "Mcp-Method header is missing" in (judge({}, {"Mcp-Name": "deploy"}) or "")
    assert "Mcp-Name header is missing" in (judge({}, {"Mcp-Method": "tools/call"}) or "")
    assert judge({}, {"Mcp-Method": "tools/list"}, None, "tools/list") is None


def test_long_values_are_shortened() -> None:
    fault = judge({"region": "a" * 10_000}, GOOD | {"Mcp-Param-Region": "b" * 10_000})
    assert fault is not None
    assert len(fault) < 300
