"""Encoding for every revision, proved by the official schemas and examples; and its own rules.

The schemas let most objects have members they do not name. Here they are closed first, so that a
member which a revision does not know is a fault at any depth.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import jsonschema_rs
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import UNSET, Raw, Struct

from dragoman.jsonrpc.errors import LocalError
from dragoman.mcp.protocol import params, types
from dragoman.mcp.protocol.encoding import decode, encode, fit
from dragoman.mcp.protocol.methods import METHODS
from dragoman.mcp.protocol.revisions import R2024_11, R2025_03, R2025_06, R2025_11, R2026_07, REVISIONS, Revision
from dragoman.mcp.protocol.types import (
    AudioContent,
    EmbeddedResource,
    ResourceContents,
    ResourceLink,
    TextContent,
    Tool,
)

from ..schemas import Schema, definitions, examples, messages, needs_schemas, params_of
from ..values import some
from .test_types import BEYOND, MODELLED_BY, OBJECTS_ONCE, STRUCTS, VERBATIM, modelled

# Dicts of ours, which may hold more than the schema names.
OPEN = ("ResultMetaObject", "NotificationMetaObject", "SubscriptionsListenResultMetaObject", "_meta")


def closed(schema: Any, name: str = "") -> Any:
    """The schema with every object that names its members holding no others; JSON Schemas in it stay as they are."""
    if isinstance(schema, list):
        return [closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    new = {}
    for key, one in schema.items():
        inside = key == "properties" and isinstance(one, dict)
        new[key] = {member: closed(inner, member) for member, inner in one.items()} if inside else closed(one, key)
    if schema.get("properties") and "additionalProperties" not in schema and name not in VERBATIM and name not in OPEN:
        new["additionalProperties"] = False
    return new


@cache
def validator(revision: Revision, method: str | None, name: str) -> Any:
    """What checks a definition by name, or the params of a method's message."""
    known = definitions(revision)
    root: Schema | None = {"$ref": f"#/$defs/{name}"}
    if method is not None:
        root = params_of(revision, messages(revision)[method][1])
    elif name in UNIONS:
        root = {"anyOf": [{"$ref": f"#/$defs/{one}"} for one in sorted(UNIONS[name][1] & set(known))]}
    assert root is not None
    document: Any = {"$defs": {one: closed(schema, one) for one, schema in known.items()}, **closed(root)}
    for one, members in BEYOND.items():
        document["$defs"][one]["properties"] |= {name: {} for name, those in members.items() if revision in those}
    text = json.dumps(document).replace("#/definitions/", "#/$defs/")
    return jsonschema_rs.validator_for(json.loads(text))


Target: TypeAlias = tuple[Revision, str | None, str, Any]

# Types that hold several definitions, and which: what they encode to is one of these.
UNIONS: dict[str, tuple[type[Struct], set[str]]] = {
    name: (kind, {one for one, other in MODELLED_BY.items() if other is kind} | ({"EnumSchema"} & {extra}))
    for name, kind, extra in (
        ("ResourceContents", types.ResourceContents, ""),
        ("PrimitiveSchemaDefinition", types.PrimitiveSchema, "EnumSchema"),
        ("ElicitRequestParams", params.ElicitRequestParams, ""),
    )
}


def targets() -> list[Target]:
    """Every (revision, None, definition, type), and (revision, method, "", type) for params written on the spot."""
    found: list[Target] = []
    for revision in REVISIONS.values():
        for name, schema in definitions(revision).items():
            kind = modelled(revision, name, schema)
            # The variants that we keep in one type are tried together, below.
            variant = name in MODELLED_BY and name not in ("Result", "ResourceReference", "RequestMetaObject")
            message = "method" in schema.get("properties", {}) and revision is not R2026_07
            if kind is not None and not variant and not message and name not in UNIONS and name not in OBJECTS_ONCE:
                found.append((revision, None, name, kind))
        for method, (_, schema) in messages(revision).items():
            row = METHODS.get(method)
            if row and row.within(revision) and params_of(revision, schema) is not None:
                found.append((revision, method, "", row.params))
    for revision in REVISIONS.values():
        known = definitions(revision)
        found += [(revision, None, one, kind) for one, (kind, variants) in UNIONS.items() if variants & set(known)]
    return found


TARGETS = targets()


@needs_schemas
@pytest.mark.parametrize(
    ("revision", "method", "name", "kind"),
    TARGETS,
    ids=[f"{one.date}-{method or name}" for one, method, name, _ in TARGETS],
)
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_what_we_encode_is_valid(
    revision: Revision, method: str | None, name: str, kind: type[Struct], data: st.DataObject
) -> None:
    value = data.draw(some(kind, revision))
    raw = encode(value, revision)
    faults = [
        f"{error.instance_path}: {error.message}"
        for error in validator(revision, method, name).iter_errors(json.loads(raw))
    ]
    assert faults == []
    # What was left out stays out, and what was told comes back.
    assert encode(decode(raw, kind), revision) == raw


def test_every_type_is_tried() -> None:
    named = {kind for _, _, _, kind in TARGETS}
    nested = {
        *(types.RootsCapability, types.SamplingCapability, types.ElicitationCapability, types.PromptsCapability),
        *(types.ResourcesCapability, types.ToolsCapability, types.EnumOption, types.EnumItems),
        *(params.CompletionArgument, params.CompletionContext, params.Completion, params.ListRootsRequestParams),
        *(params.UnsupportedProtocolVersionData, params.MissingRequiredClientCapabilityData),
        params.URLElicitationRequiredData,
    }
    assert not TARGETS or set(STRUCTS.values()) - named == nested


# --- The official examples ---------------------------------------------------------------------------------------


def same(left: Any, right: Any) -> bool:
    """Equal as JSON: 1 is not true, and 1.0 not 1."""
    return json.dumps(left, sort_keys=True) == json.dumps(right, sort_keys=True)


def kind_of(name: str, example: Any) -> tuple[Any, Any]:
    """The type of an example and the part of it that has this type: what stands in an envelope without it."""
    if name.endswith("ResultResponse"):
        asks = example["result"]["resultType"] == params.INPUT_REQUIRED
        return (params.InputRequiredResult if asks else STRUCTS[name.removesuffix("Response")]), example["result"]
    if "method" in example and "jsonrpc" in example:
        return METHODS[example["method"]].params, example.get("params", {})
    if "error" in example:
        kinds = {
            "UnsupportedProtocolVersionError": params.UnsupportedProtocolVersionData,
            "MissingRequiredClientCapabilityError": params.MissingRequiredClientCapabilityData,
        }
        return kinds.get(name, Any), example["error"].get("data")
    if name == "InputRequests":
        return params.InputRequests, example
    if name == "InputResponses":
        return dict[str, Raw], example
    if name in ("ParseError", "InternalError", "InvalidParamsError", "MethodNotFoundError"):
        return Any, example.get("data")
    return MODELLED_BY.get(name) or STRUCTS[name], example


# Examples that their own schema refuses or that have what it does not know, and what they should be.
MENDED: dict[str, Any] = {
    # `ttlMs` and `cacheScope` are required; ours are those that ask for no keeping.
    "ReadResourceResultResponse": {"ttlMs": 0, "cacheScope": "private"}.__or__,
    # A question inside a result has no id.
    "ListRootsRequest": lambda example: {name: one for name, one in example.items() if name != "id"},
}


@needs_schemas
@pytest.mark.parametrize("path", examples(), ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_an_official_example_comes_back_as_itself(path: Path) -> None:
    kind, example = kind_of(path.parent.name, json.loads(path.read_text()))
    value = decode(json.dumps(example).encode(), kind)
    wanted = MENDED.get(path.parent.name, dict)(example) if isinstance(example, dict) else example
    assert same(json.loads(encode(value, R2026_07)), wanted)


@needs_schemas
def test_official_answers_have_the_type_their_question_says() -> None:
    for path in examples():
        if path.parent.name == "InputResponses":
            for answer in decode(path.read_bytes(), dict[str, Raw]).values():
                members = decode(answer, dict[str, Any])
                kind: Any = params.CreateMessageResult
                if "action" in members or "roots" in members:
                    kind = params.ElicitResult if "action" in members else params.ListRootsResult
                assert same(json.loads(encode(decode(answer, kind), R2026_07)), members)


# --- Its own rules -----------------------------------------------------------------------------------------------


def told(value: Any, revision: Revision) -> Any:
    return json.loads(encode(value, revision))


def test_what_a_revision_does_not_know_is_left_out_at_any_depth() -> None:
    tool = Tool(
        name="t",
        title="T",
        icons=[types.Icon("https://example.com/i.png")],
        input_schema={"type": "object"},
        execution=types.ToolExecution("optional"),
        annotations=types.ToolAnnotations(read_only_hint=True),
    )
    page = params.ListToolsResult(tools=[tool])
    oldest = {"name": "t", "inputSchema": {"type": "object"}}
    second = oldest | {"annotations": {"readOnlyHint": True}}
    fourth = second | {
        "title": "T",
        "icons": [{"src": "https://example.com/i.png"}],
        "execution": {"taskSupport": "optional"},
    }
    newest = {name: value for name, value in fourth.items() if name != "execution"}
    assert told(page, R2024_11) == {"tools": [oldest]}
    assert told(page, R2025_03) == {"tools": [second]}
    assert told(page, R2025_06) == {"tools": [second | {"title": "T"}]}
    assert told(page, R2025_11) == {"tools": [fourth]}
    stamp = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
    assert told(page, R2026_07) == {"tools": [newest]} | stamp


def test_what_a_revision_knows_whole_is_the_same_object() -> None:
    result = params.CallToolResult(content=[TextContent("hi")])
    assert fit(result, R2026_07) is result
    older = fit(result, R2025_11)
    assert older is not result
    assert older.content is result.content
    assert result.result_type == params.COMPLETE


def test_blocks_that_came_later_become_text() -> None:
    """An older client gets a tool's answer without holes; annotations that it knows stay."""
    link = ResourceLink(
        uri="file:///a",
        name="a",
        title="A",
        annotations=types.Annotations(priority=1, last_modified="2025-01-01T00:00:00Z"),
    )
    result = params.CallToolResult(content=[AudioContent("AAAA", "audio/wav"), link])
    assert told(result, R2024_11) == {
        "content": [
            {"type": "text", "text": "[audio, audio/wav]"},
            {"type": "text", "text": "A: file:///a", "annotations": {"priority": 1}},
        ]
    }
    assert [one["type"] for one in told(result, R2025_03)["content"]] == ["audio", "text"]
    assert [one["type"] for one in told(result, R2025_06)["content"]] == ["audio", "resource_link"]
    message = types.PromptMessage("user", AudioContent("AAAA", "audio/wav"))
    assert told(message, R2024_11)["content"] == {"type": "text", "text": "[audio, audio/wav]"}


def test_tools_in_sampling_cannot_be_told_to_older_clients() -> None:
    use = types.ToolUseContent(id="1", name="t", input={})
    message = types.SamplingMessage("assistant", [use])
    assert told(message, R2025_11)["content"] == [{"type": "tool_use", "id": "1", "name": "t", "input": {}}]
    with pytest.raises(LocalError, match="ToolUseContent cannot be sent to a peer of 2025-06-18"):
        encode(message, R2025_06)


def test_one_block_in_a_list_is_the_block_to_older_clients() -> None:
    message = types.SamplingMessage("user", [TextContent("hi")])
    assert told(message, R2025_06)["content"] == {"type": "text", "text": "hi"}
    assert told(message, R2025_11)["content"] == [{"type": "text", "text": "hi"}]
    two = types.SamplingMessage("user", [TextContent("a"), TextContent("b")])
    with pytest.raises(LocalError, match="one content block"):
        encode(two, R2025_06)


@pytest.mark.parametrize("value", [[1], "text", 1, 1.5, True, None, Raw(b" [1]"), Raw(b"1")])
def test_structured_content_that_is_not_an_object_is_left_out_for_older_clients(value: Any) -> None:
    """2025-11-25, server/tools, Structured Content: a JSON object; any JSON value since 2026-07-28."""
    result = params.CallToolResult(content=[], structured_content=value)
    assert told(result, R2025_11) == {"content": []}
    assert told(result, R2026_07)["structuredContent"] == msgspec.json.decode(msgspec.json.encode(value))


@pytest.mark.parametrize("value", [{"a": 1}, Raw(b' {"a":1}')])
def test_structured_content_that_is_an_object_goes_to_every_revision_that_has_it(value: Any) -> None:
    result = params.CallToolResult(content=[], structured_content=value)
    assert told(result, R2025_03) == {"content": []}
    assert told(result, R2025_06) == {"content": [], "structuredContent": {"a": 1}}


def test_schemas_of_tools_keep_the_order_of_their_members() -> None:
    raw = b'{"name":"t","inputSchema":{"type":"object","b":1,"$defs":{"z":{},"a":true},"properties":{"x":{},"a":{}}}}'
    for revision in REVISIONS.values():
        assert encode(decode(raw, Tool), revision) == raw


def test_schemas_of_properties_are_objects_to_older_clients() -> None:
    tool = Tool(name="t", input_schema={"type": "object", "properties": {"any": True, "no": False, "x": {}}})
    assert told(tool, R2025_11)["inputSchema"]["properties"] == {"any": {}, "no": {"not": {}}, "x": {}}
    assert told(tool, R2026_07)["inputSchema"]["properties"] == {"any": True, "no": False, "x": {}}


def test_output_schemas_of_no_object_are_left_out_for_older_clients() -> None:
    tool = Tool(name="t", input_schema={"type": "object"}, output_schema={"type": "array"})
    assert "outputSchema" not in told(tool, R2025_11)
    assert told(tool, R2026_07)["outputSchema"] == {"type": "array"}


def test_what_a_revision_requires_must_be_set() -> None:
    call = params.CallToolRequestParams(name="t")
    assert told(call, R2025_11) == {"name": "t"}
    with pytest.raises(LocalError, match=r"CallToolRequestParams\.meta must be set: 2026-07-28 requires it"):
        encode(call, R2026_07)
    call = params.CallToolRequestParams(name="t", meta=types.RequestMeta(progress_token=1))
    with pytest.raises(LocalError, match=r"RequestMeta\.protocol_version"):
        encode(call, R2026_07)
    with pytest.raises(LocalError, match=r"request_id"):
        encode(params.CancelledNotificationParams(), R2025_06)
    assert told(params.CancelledNotificationParams(), R2025_11) == {}


def test_a_dict_where_a_type_could_stand_is_the_callers_own_writing() -> None:
    """So `_meta` of a request may hold keys of others' besides the protocol's."""
    own: Any = {"progressToken": 1, "com.example/trace": "x"}
    assert told(params.PaginatedRequestParams(meta=own), R2025_11) == {"_meta": own}
    assert told(params.PaginatedRequestParams(meta=own), R2026_07) == {"_meta": own}


def test_decoding_takes_members_of_all_revisions_and_ignores_others() -> None:
    raw = b'{"name":"t","inputSchema":{"type":"object"},"title":"T","execution":{"taskSupport":"required"},"x":[1]}'
    tool = decode(raw, Tool)
    assert (tool.name, tool.title, tool.description) == ("t", "T", UNSET)
    assert tool.execution == types.ToolExecution("required")


def test_decoding_a_request_keeps_what_belongs_to_its_method_raw() -> None:
    raw = b'{"name":"t","arguments":{"b":1, "a":[2]},"inputResponses":{"k":{"action":"accept"}},"requestState":"s"}'
    call = decode(Raw(raw), params.CallToolRequestParams)
    assert isinstance(call.arguments, Raw)
    assert bytes(call.arguments) == b'{"b":1, "a":[2]}'
    assert call.input_responses == {"k": Raw(b'{"action":"accept"}')}
    assert call.request_state == "s"


def test_an_unknown_log_level_can_be_decoded() -> None:
    """Admission answers it; see basic/index and server/utilities/logging."""
    raw = json.dumps({"_meta": {types.LOG_LEVEL: "loud"}}).encode()
    meta = decode(raw, params.RequestParams).meta
    assert isinstance(meta, types.RequestMeta)
    assert meta.log_level == "loud"
    assert decode(b'{"level":"loud"}', params.SetLevelRequestParams).level == "loud"


@pytest.mark.parametrize(
    ("raw", "kind"),
    [
        (b'{"arguments":{}}', params.CallToolRequestParams),
        (b'{"requestId":1.5}', params.CancelledNotificationParams),
        (b'{"requestId":null}', params.CancelledNotificationParams),
        (b'{"_meta":{"progressToken":1.5}}', params.RequestParams),
        (b'{"role":"user","content":{"type":"video"}}', types.PromptMessage),
        (b'{"level":"loud","data":1}', params.LoggingMessageNotificationParams),
        (b'{"maxTokens":1.5,"messages":[]}', params.CreateMessageRequestParams),
    ],
)
def test_what_does_not_fit_says_where(raw: bytes, kind: type[Struct]) -> None:
    with pytest.raises(msgspec.ValidationError):
        decode(raw, kind)


def test_content_is_easily_made() -> None:
    assert TextContent("hi") == TextContent(text="hi")
    assert types.ImageContent("aGk=", "image/png").decoded() == b"hi"
    assert AudioContent("aGk=", "audio/wav").decoded() == b"hi"
    assert ResourceContents(uri="file:///a", text="hé").decoded() == "hé".encode()
    assert ResourceContents(uri="file:///a", blob="aGk=").decoded() == b"hi"
    assert ResourceContents(uri="file:///a").decoded() == b""
    block = EmbeddedResource(ResourceContents(uri="file:///a", text="hi"))
    assert decode(encode(block, R2026_07), EmbeddedResource) == block


def test_values_that_are_not_a_struct_go_as_they_are() -> None:
    assert encode({"a": [1]}, R2024_11) == b'{"a":[1]}'
    assert encode(Raw(b'{"a": 1}'), R2024_11) == b'{"a": 1}'
