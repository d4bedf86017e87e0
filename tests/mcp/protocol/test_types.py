"""The types against the official schemas: every definition and property has its field, and no field more.

What the schemas say about a type in a revision is a *sighting*: its properties and which are required.
Sightings are collected from named definitions, from params written on the spot (the older schemas), and
from objects nested in properties; then each type's fields are compared with all that was seen of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

import pytest
from msgspec import UNSET, Raw, Struct, UnsetType, structs

from dragoman.mcp.protocol import params, types
from dragoman.mcp.protocol.encoding import knows, requires
from dragoman.mcp.protocol.foreign import ForeignContent
from dragoman.mcp.protocol.methods import METHODS
from dragoman.mcp.protocol.revisions import R2024_11, R2025_06, R2025_11, R2026_07, REVISIONS, Revision

from ..schemas import Schema, all_definitions, definitions, messages, needs_schemas, params_of, target

pytestmark = needs_schemas

STRUCTS: dict[str, type[Struct]] = {
    name: one
    for module in (types, params)
    for name, one in vars(module).items()
    if isinstance(one, type) and issubclass(one, Struct) and one.__module__ == module.__name__
}

# Renamed between revisions, variants without a tag that we keep in one type, and what stands in a message.
MODELLED_BY: dict[str, type[Struct]] = {
    "Result": params.EmptyResult,
    "ResourceReference": params.ResourceTemplateReference,
    "TextResourceContents": types.ResourceContents,
    "BlobResourceContents": types.ResourceContents,
    "ElicitRequestFormParams": params.ElicitRequestParams,
    "ElicitRequestURLParams": params.ElicitRequestParams,
    "StringSchema": types.PrimitiveSchema,
    "NumberSchema": types.PrimitiveSchema,
    "BooleanSchema": types.PrimitiveSchema,
    "LegacyTitledEnumSchema": types.PrimitiveSchema,
    "UntitledSingleSelectEnumSchema": types.PrimitiveSchema,
    "TitledSingleSelectEnumSchema": types.PrimitiveSchema,
    "UntitledMultiSelectEnumSchema": types.PrimitiveSchema,
    "TitledMultiSelectEnumSchema": types.PrimitiveSchema,
    "RequestMetaObject": types.RequestMeta,
}
# The older schema writes a choice as an object, the later ones as a union of the above.
OBJECTS_ONCE = {"EnumSchema": types.PrimitiveSchema}

ENVELOPE = "the envelope of JSON-RPC: dragoman.jsonrpc.messages; test_methods has the methods in it"
BASE = "what the schema's own types share; no message or member has this type by itself"
TASKS = "the tasks of 2025-11-25, which have no rows yet"
FREE = "kept verbatim as a dict"
NOT_MODELLED = {
    **dict.fromkeys(
        (
            *("JSONRPCMessage", "JSONRPCRequest", "JSONRPCNotification", "JSONRPCResponse", "JSONRPCError"),
            *("JSONRPCBatchRequest", "JSONRPCBatchResponse", "JSONRPCResultResponse", "JSONRPCErrorResponse"),
            *("Request", "Notification", "PaginatedRequest", "Error", "ParseError", "InvalidRequestError"),
            *("MethodNotFoundError", "InvalidParamsError", "InternalError", "HeaderMismatchError"),
            *("ClientRequest", "ClientNotification", "ClientResult"),
            *("ServerRequest", "ServerNotification", "ServerResult"),
        ),
        ENVELOPE,
    ),
    **dict.fromkeys(
        (
            *("Annotated", "BaseMetadata", "Icons", "CacheableResult", "PaginatedResult"),
            *("InputResponseRequestParams", "ResourceRequestParams"),
        ),
        BASE,
    ),
    **dict.fromkeys(
        (
            *("Task", "TaskStatus", "TaskMetadata", "RelatedTaskMetadata", "TaskAugmentedRequestParams"),
            *("CreateTaskResult", "GetTaskResult", "GetTaskPayloadResult", "CancelTaskResult", "ListTasksResult"),
            *("GetTaskRequest", "GetTaskPayloadRequest", "CancelTaskRequest", "ListTasksRequest"),
            *("TaskStatusNotification", "TaskStatusNotificationParams"),
        ),
        TASKS,
    ),
    **dict.fromkeys(("MetaObject", "JSONObject", "JSONArray", "JSONValue"), FREE),
}
TASK_MEMBER = "task"
"""Of params in 2025-11-25: "receivers that do not declare the task capability MUST process requests ... normally,
ignoring any task-augmentation metadata if present" (basic/utilities/tasks)."""

# `_meta` as the schema tells it where we keep the dict: each key that the protocol gives a meaning has its name here.
META_KEYS = {
    "ResultMetaObject": {types.SERVER_INFO},
    "NotificationMetaObject": {types.SUBSCRIPTION_ID},
    "SubscriptionsListenResultMetaObject": {types.SERVER_INFO, types.SUBSCRIPTION_ID},
}
# Names for a type that is not an object of its own: (our hint, or None where `expand` in the comparison is proof
# enough).
ALIASES: dict[str, Any] = {
    "Role": types.Role,
    "LoggingLevel": types.LoggingLevel,
    "RequestId": params.RequestId,
    "ProgressToken": types.ProgressToken,
    "Cursor": params.Cursor,
    "ResultType": str,
    "ContentBlock": types.ContentBlock,
    "SamplingMessageContentBlock": types.SamplingMessageContentBlock,
    "InputRequest": params.InputRequest,
    "InputRequests": params.InputRequests,
    "InputResponse": params.InputResponse,
    "InputResponses": dict[str, Raw],
    "EmptyResult": params.EmptyResult,
    "ElicitRequestParams": params.ElicitRequestParams,
    "EnumSchema": types.PrimitiveSchema,
    "SingleSelectEnumSchema": types.PrimitiveSchema,
    "MultiSelectEnumSchema": types.PrimitiveSchema,
    "PrimitiveSchemaDefinition": types.PrimitiveSchema,
}
# Errors with data: the type of `data` by the definition.
ERRORS: dict[str, type[Struct]] = {
    "UnsupportedProtocolVersionError": params.UnsupportedProtocolVersionData,
    "MissingRequiredClientCapabilityError": params.MissingRequiredClientCapabilityData,
    "URLElicitationRequiredError": params.URLElicitationRequiredData,
}
VERBATIM = {"inputSchema", "outputSchema", "requestedSchema"}
"""JSON Schemas: theirs is the last word on what is in them."""

# Looser than the schema on purpose: (type, member) -> why.
LOOSER = {
    (types.RequestMeta, types.LOG_LEVEL): "an unknown level is answered, not undecodable",
    (params.SetLevelRequestParams, "level"): "an unknown level is answered, not undecodable",
    (params.ElicitResult, "content"): "numbers of a form need not be integers (the prose), and peers send null",
    (params.ElicitRequestParams, "mode"): "one type for both modes",
    (types.PrimitiveSchema, "type"): "one type for all fields of a form",
    (types.PrimitiveSchema, "default"): "one type for all fields of a form",
    (types.EnumItems, "type"): "one type for choices with and without titles",
}


class Sighting(NamedTuple):
    """What a schema says about a type in one revision."""

    revision: Revision
    where: str
    properties: dict[str, Schema]
    required: frozenset[str]


def unwrap(hint: Any) -> Any:
    """The hint without its history."""
    return get_args(hint)[0] if get_origin(hint) is Annotated else hint


def options(hint: Any) -> list[Any]:
    """The members of a union, UNSET and foreign blocks not counted; of anything else, itself."""
    hint = unwrap(hint)
    members = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    members = tuple(one for one in members if one not in (UnsetType, ForeignContent))  # blocks of no schema
    return [inner for one in members for inner in ([one] if one is hint else options(one))]


def structs_in(hint: Any) -> set[type[Struct]]:
    """The Structs a value of this hint may hold at its first level: itself, or an item of its list or dict."""
    found: set[type[Struct]] = set()
    for one in options(hint):
        if get_origin(one) in (list, dict):
            found |= structs_in(get_args(one)[-1])
        elif isinstance(one, type) and issubclass(one, Struct):
            found.add(one)
    return found


def fields(kind: type[Struct]) -> dict[str, structs.FieldInfo]:
    """By the name on the wire."""
    return {field.encode_name: field for field in structs.fields(kind)}


def tag(kind: type[Struct]) -> tuple[str, str] | None:
    """The member that tells the type, and what it says."""
    config = kind.__struct_config__
    return (str(config.tag_field), str(config.tag)) if config.tag_field else None


def parts(
    revision: Revision, where: str, kind: type[Struct], schema: Schema
) -> Iterator[tuple[type[Struct], Sighting]]:
    """The sighting of `kind` in an object's schema and those of the objects written inside it."""
    properties = {name: one for name, one in schema.get("properties", {}).items() if name != TASK_MEMBER}
    told = tag(kind)
    if told is not None:
        assert properties.pop(told[0])["const"] == told[1]
    yield kind, Sighting(revision, where, properties, frozenset(schema.get("required", ())) - {told and told[0]})
    for name, inner in properties.items():
        if name in VERBATIM or name not in fields(kind):
            continue
        while inner.get("type") == "array":
            inner = inner["items"]
        nested = structs_in(fields(kind)[name].type)
        if "properties" in inner and nested:
            (one,) = nested
            yield from parts(revision, f"{where}.{name}", one, inner)


def modelled(revision: Revision, name: str, schema: Schema) -> type[Struct] | None:
    """The type that a definition which is an object has here."""
    if "properties" in schema and name in OBJECTS_ONCE:
        return OBJECTS_ONCE[name]
    return MODELLED_BY.get(name) or (STRUCTS.get(name) if name not in ALIASES else None)


def sightings() -> dict[type[Struct], list[Sighting]]:
    """All that the five schemas say about each of our types."""
    found: dict[type[Struct], list[Sighting]] = {}
    for revision, name, schema in all_definitions():
        kind = modelled(revision, name, schema)
        seen: list[tuple[type[Struct], Sighting]] = []
        if name in ERRORS:
            (data,) = [
                one["properties"]["data"] for one in schema["properties"]["error"]["allOf"] if "properties" in one
            ]
            seen = list(parts(revision, name, ERRORS[name], data))
        elif name in ("CreateMessageRequest", "ListRootsRequest", "ElicitRequest") and "id" in schema["properties"]:
            pass
        elif kind is not None and (revision is R2026_07 or not name.endswith("Request")):
            seen = list(parts(revision, name, kind, schema))
        for one, sighting in seen:
            found.setdefault(one, []).append(sighting)
    for revision in REVISIONS.values():
        for method, (name, schema) in messages(revision).items():
            if method in METHODS and METHODS[method].within(revision):
                inline = params_of(revision, schema)
                if inline is not None:
                    for one, sighting in parts(revision, f"{name}.params", METHODS[method].params, inline):
                        found.setdefault(one, []).append(sighting)
            elif revision is R2026_07 and name == "ListRootsRequest":
                one = params.ListRootsRequestParams
                found.setdefault(one, []).extend(
                    s for _, s in parts(revision, name, one, schema["properties"]["params"])
                )
    return found


SEEN = sightings()


def test_every_definition_is_modelled_or_says_why_not() -> None:
    strangers = set()
    for revision, name, schema in all_definitions():
        message = schema.get("properties", {}).get("method") is not None or name.endswith("ResultResponse")
        if name in NOT_MODELLED or name in ERRORS or name in META_KEYS or name in ALIASES or message:
            continue
        if modelled(revision, name, schema) is None:
            strangers.add((revision.date, name))
    assert strangers == set()


def test_no_reason_for_what_is_not_there() -> None:
    names = {name for _, name, _ in all_definitions()}
    assert {*NOT_MODELLED, *MODELLED_BY, *ALIASES, *ERRORS, *META_KEYS, *OBJECTS_ONCE} <= names
    assert {name for name in NOT_MODELLED if name in STRUCTS} == set()


@pytest.mark.parametrize("kind", STRUCTS.values(), ids=STRUCTS)
def test_a_type_is_in_the_schemas(kind: type[Struct]) -> None:
    assert kind in SEEN


@pytest.mark.parametrize("kind", STRUCTS.values(), ids=STRUCTS)
def test_every_property_has_its_field_and_no_field_more(kind: type[Struct]) -> None:
    seen = {name for sighting in SEEN[kind] for name in sighting.properties}
    assert set(fields(kind)) == seen


BEYOND: dict[str, dict[str, tuple[Revision, ...]]] = {
    "ClientCapabilities": {"extensions": (R2025_06, R2025_11)},
    "ServerCapabilities": {"extensions": (R2025_06, R2025_11)},
}
"""Members that we write in revisions whose schemas do not name them, by definition. `capabilities` may have others
there, and the pages of the extensions show `extensions` in an `initialize` of 2025-06-18."""


@pytest.mark.parametrize("kind", STRUCTS.values(), ids=STRUCTS)
def test_the_history_of_every_field(kind: type[Struct]) -> None:
    for revision in {sighting.revision.date: sighting.revision for sighting in SEEN[kind]}.values():
        has = {name for sighting in SEEN[kind] if sighting.revision is revision for name in sighting.properties}
        has |= {name for name, those in BEYOND.get(kind.__name__, {}).items() if revision in those}
        assert {name for name, one in fields(kind).items() if knows(one.type, revision)} == has, revision.date


def always(field: structs.FieldInfo) -> bool:
    """Whether the field cannot be UNSET: it has no default, or one that is written."""
    return field.default is not UNSET


@pytest.mark.parametrize("kind", STRUCTS.values(), ids=STRUCTS)
def test_what_is_required_in_which_revision(kind: type[Struct]) -> None:
    for revision in {sighting.revision.date: sighting.revision for sighting in SEEN[kind]}.values():
        # Of variants kept in one type, what all of them require.
        wanted = frozenset.intersection(*(one.required for one in SEEN[kind] if one.revision is revision))
        ours = {
            name
            for name, one in fields(kind).items()
            if knows(one.type, revision) and (always(one) or requires(one.type, revision))
        }
        assert ours == wanted, revision.date


def test_tagged_types_say_their_tag_as_an_attribute() -> None:
    tagged = {kind: told for kind in STRUCTS.values() if (told := tag(kind)) is not None}
    assert {kind: getattr(kind, field) for kind, (field, _) in tagged.items()} == {
        kind: word for kind, (_, word) in tagged.items()
    }


def test_blocks_are_as_old_as_their_definitions() -> None:
    for kind in (*options(types.ContentBlock), *options(types.SamplingMessageContentBlock)):
        first = next(one for one in REVISIONS.values() if kind.__name__ in definitions(one))
        assert types.BORN.get(kind, R2024_11) is first


def test_keys_of_meta_are_named() -> None:
    for _, name, schema in all_definitions():
        if name in META_KEYS:
            assert set(schema["properties"]) == META_KEYS[name]


# --- The types of members ----------------------------------------------------------------------------------------

PLAIN = {"string": str, "integer": int, "boolean": bool, "number": float, "null": type(None)}


def misfit(revision: Revision, schema: Schema, hint: Any) -> str | None:
    """Why a hint is not what the schema says; None when it is."""
    name = target(schema)
    if name is not None:
        return _misfit_of_name(revision, name, hint)
    if "anyOf" in schema:
        return _misfit_of_union(revision, schema["anyOf"], hint)
    if schema == {} or not set(schema) - {"description"}:
        return None if options(hint) == [Any] else f"any value, here {hint}"
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    if kinds == ["array"]:
        ours = options(hint)
        if len(ours) != 1 or get_origin(ours[0]) is not list:
            return f"a list, here {hint}"
        return misfit(revision, schema["items"], get_args(ours[0])[0])
    if kinds == ["object"]:
        return _misfit_of_object(revision, schema, hint)
    if "enum" in schema or "const" in schema:
        words = set(schema.get("enum") or [schema["const"]])
        ours = options(hint)
        return None if get_origin(ours[0]) is Literal and set(get_args(ours[0])) == words else f"{words}, here {hint}"
    wanted = {PLAIN[kind] for kind in kinds} | ({int} if "number" in kinds else set())
    return None if set(options(hint)) == wanted else f"{kinds}, here {hint}"


def _misfit_of_name(revision: Revision, name: str, hint: Any) -> str | None:
    schema = definitions(revision)[name]
    kind = modelled(revision, name, schema)
    if kind is not None:
        return None if options(hint) == [kind] else f"{kind.__name__}, here {hint}"
    if name == "InputResponses":
        return None if options(hint) == [dict[str, Raw]] else f"answers kept raw, here {hint}"
    if name in META_KEYS or name in NOT_MODELLED:
        return None if options(hint) == [types.Free] else f"an object kept verbatim, here {hint}"
    return misfit(revision, schema, hint)


def _misfit_of_union(revision: Revision, variants: list[Schema], hint: Any) -> str | None:
    wanted: set[Any] = set()
    for one in variants:
        name = target(one)
        if name is None:
            assert one["type"] == "array"
            lists = [mine for mine in options(hint) if get_origin(mine) is list]
            if not lists or misfit(revision, one["items"], get_args(lists[0])[0]):
                return f"also a list, here {hint}"
            wanted.add(lists[0])
        else:
            wanted.add(modelled(revision, name, definitions(revision)[name]))
    return None if set(options(hint)) == wanted else f"{wanted}, here {hint}"


def _misfit_of_object(revision: Revision, schema: Schema, hint: Any) -> str | None:
    ours = options(hint)
    if ours == [Raw]:
        return None if schema.get("additionalProperties") == {} else "an object with a form of its own, here raw"
    if get_origin(ours[0]) is dict:
        values = get_args(ours[0])[1]
        rest = schema.get("additionalProperties")
        return None if values is Any or not isinstance(rest, dict) else misfit(revision, rest, values)
    # Our own type for an object written on the spot: compared as a sighting.
    return None if structs_in(hint) and len(ours) == 1 else f"an object, here {hint}"


@pytest.mark.parametrize("kind", STRUCTS.values(), ids=STRUCTS)
def test_the_type_of_every_member(kind: type[Struct]) -> None:
    """As the newest revision that has the member says; older forms are proved by encoding."""
    wrong = {}
    for name, field in fields(kind).items():
        if (kind, name) in LOOSER:
            continue
        last = max((one for one in SEEN[kind] if name in one.properties), key=lambda one: one.revision.order)
        fault = misfit(last.revision, last.properties[name], field.type)
        if fault is not None:
            wrong[name] = f"{last.where}: {fault}"
    assert wrong == {}


def test_words_of_the_aliases() -> None:
    for revision, name, schema in all_definitions():
        if name in ("Role", "LoggingLevel", "RequestId", "ProgressToken", "Cursor", "ResultType"):
            assert misfit(revision, schema, ALIASES[name]) is None


def test_unions_are_those_of_the_newest_schema() -> None:
    for name in ("ContentBlock", "SamplingMessageContentBlock", "InputRequest", "InputResponse"):
        assert misfit(R2026_07, definitions(R2026_07)[name], ALIASES[name]) is None
