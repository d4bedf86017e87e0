"""The rows against the official schemas: the methods, their revisions, the side that sends them, what they carry."""

from __future__ import annotations

import pytest
from msgspec import structs

from dragoman.mcp.protocol import methods
from dragoman.mcp.protocol.methods import DEFINED_CODES, METHODS, RESERVED_CODES, Row
from dragoman.mcp.protocol.revisions import R2025_11, R2026_07, REVISIONS, Revision

from ..schemas import Schema, definitions, messages, needs_schemas, target

# The tasks of 2025-11-25 have no rows yet.
TASKS = {"tasks/get", "tasks/result", "tasks/cancel", "tasks/list", "notifications/tasks/status"}
# What the newest revision asks inside `input_required` has a method's name and is not a method.
QUESTIONS = {"sampling/createMessage", "roots/list", "elicitation/create"}
UNIONS = {
    "client": ("ClientRequest", "ClientNotification"),
    "server": ("ServerRequest", "ServerNotification"),
}
every_row = pytest.mark.parametrize("row", METHODS.values(), ids=METHODS)


def sent(revision: Revision, side: str) -> set[str]:
    """The methods that one side sends, by the schema's unions."""
    known, found = definitions(revision), set()
    for union in UNIONS[side]:
        schema = known.get(union, {"anyOf": []})
        members = [known[str(target(one))] for one in schema["anyOf"]] if "anyOf" in schema else [schema]
        found |= {str(one["properties"]["method"]["const"]) for one in members}
    return found - TASKS


@needs_schemas
@pytest.mark.parametrize("revision", REVISIONS.values(), ids=REVISIONS)
def test_a_revision_has_its_methods_and_no_others(revision: Revision) -> None:
    ours = {name for name, row in METHODS.items() if row.within(revision)}
    questions = QUESTIONS if revision is R2026_07 else set()
    assert ours | questions == set(messages(revision)) - TASKS
    assert ours == sent(revision, "client") | sent(revision, "server")


@needs_schemas
@every_row
def test_the_sender_of_a_method(row: Row) -> None:
    for revision in filter(row.within, REVISIONS.values()):
        senders = {side for side in UNIONS if row.name in sent(revision, side)}
        if row.name == "notifications/progress" and revision is R2026_07:
            # The one whose senders changed: where servers send no requests, clients have no progress to tell.
            assert senders == {"server"}
        else:
            assert senders == ({"client", "server"} if row.direction == "both" else {row.direction})


@needs_schemas
@every_row
def test_the_types_are_the_ones_the_schema_names(row: Row) -> None:
    for revision in filter(row.within, REVISIONS.values()):
        name, schema = messages(revision)[row.name]
        named = target(schema["properties"].get("params", {}))
        if named is not None:
            assert row.params.__name__ == named
        assert (row.result is None) == name.endswith("Notification")
        if row.result is not None:
            result = name.removesuffix("Request") + "Result"
            assert row.result.__name__ == (result if result in definitions(revision) else "EmptyResult")


def answers(schema: Schema) -> set[str]:
    """The names of what a response's `result` may be."""
    result = schema["properties"]["result"]
    return {str(target(one)) for one in result.get("anyOf", [result])}


@needs_schemas
@every_row
def test_what_may_ask_and_what_may_be_kept(row: Row) -> None:
    newest = definitions(R2026_07)
    if row.result is None or not row.within(R2026_07):
        assert not row.ask
        assert not row.cacheable
        return
    name, _ = messages(R2026_07)[row.name]
    may_be = answers(newest[name.removesuffix("Request") + "ResultResponse"])
    assert row.ask == ("InputRequiredResult" in may_be)
    assert may_be - {"InputRequiredResult"} == {row.result.__name__}
    assert row.cacheable == ("ttlMs" in newest[row.result.__name__]["properties"])
    # The retry of what may ask carries the answers.
    assert row.ask == ("inputResponses" in {one.encode_name for one in structs.fields(row.params)})


@every_row
def test_within_counts_both_ends(row: Row) -> None:
    assert row.within(row.since)
    assert row.within(row.until)
    outside = [one for one in REVISIONS.values() if one.order < row.since.order or one.order > row.until.order]
    assert not any(row.within(one) for one in outside)


@needs_schemas
def test_the_codes_are_those_of_the_schemas() -> None:
    codes = {}
    for revision in (R2025_11, R2026_07):
        for name, schema in definitions(revision).items():
            for one in schema.get("properties", {}).get("error", {}).get("allOf", []):
                if "properties" in one:
                    codes[name] = one["properties"]["code"]["const"]
    assert codes == {
        "HeaderMismatchError": methods.HEADER_MISMATCH,
        "MissingRequiredClientCapabilityError": methods.MISSING_CAPABILITY,
        "UnsupportedProtocolVersionError": methods.UNSUPPORTED_VERSION,
        "URLElicitationRequiredError": methods.URL_ELICITATION_REQUIRED,
    }
    assert set(codes.values()) | {methods.RESOURCE_NOT_FOUND} == set(DEFINED_CODES)


def test_reserved_codes() -> None:
    """2026-07-28, basic/index, Error Codes: -32000 to -32019 legacy, -32020 to -32099 the specification's own."""
    assert {-32000, -32019, -32020, -32099, *DEFINED_CODES} <= set(RESERVED_CODES)
    assert len(RESERVED_CODES) == 100
    # "New error codes ... SHOULD be allocated outside the JSON-RPC reserved range (-32768 to -32000)".
    assert not {-31999, -32100, 1, 1001} & set(RESERVED_CODES)


def test_a_resource_that_is_not_there_has_the_code_of_its_revision() -> None:
    """2026-07-28, server/resources, Error Handling: -32602; earlier ones -32002."""
    by_revision = {one.missing_resource for one in REVISIONS.values() if one.stateful}
    assert by_revision == {methods.RESOURCE_NOT_FOUND}
    assert R2026_07.missing_resource == -32602
