"""The official schemas of the five revisions, read for the tests: the oracle. They lie beside the project, not in
it."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from dragoman.mcp.protocol.revisions import REVISIONS, Revision
from tests.skips import SCHEMAS

needs_schemas = pytest.mark.skipif(not SCHEMAS.is_dir(), reason="the official schemas are not beside the project")

Schema: TypeAlias = dict[str, Any]


@cache
def definitions(revision: Revision) -> dict[str, Schema]:
    """The definitions of a revision's schema, by name; none when the schemas are not there."""
    if not SCHEMAS.is_dir():
        return {}
    document = json.loads((SCHEMAS / f"{revision.date}.json").read_text())
    return dict(document.get("$defs") or document["definitions"])


def all_definitions() -> list[tuple[Revision, str, Schema]]:
    """Every definition of every revision."""
    return [
        (revision, name, schema)
        for revision in REVISIONS.values()
        for name, schema in definitions(revision).items()
    ]  # fmt: skip


def target(schema: Schema) -> str | None:
    """The name of the definition a `$ref` leads to."""
    return str(schema["$ref"]).rsplit("/", 1)[-1] if "$ref" in schema else None


def params_of(revision: Revision, message: Schema) -> Schema | None:
    """The schema of a message's params as an object with properties: a definition's, or written on the spot.

    None where there are no params, or a union of definitions.

    What is written on the spot leaves out the `_meta` that every message of its kind may have: it is put back.
    """
    known = definitions(revision)
    params = message["properties"].get("params")
    if params is None:
        return None
    if (name := target(params)) is not None:
        return known[name] if "properties" in known[name] else None
    kind = "Notification" if message["properties"]["method"]["const"].startswith("notifications/") else "Request"
    shared = known[kind]["properties"]["params"].get("properties") or known.get(f"{kind}Params", {}).get(
        "properties", {}
    )
    return {**params, "properties": {**shared, **params.get("properties", {})}}


def messages(revision: Revision) -> dict[str, tuple[str, Schema]]:
    """Method -> (name, schema) of its message's definition, questions inside a result too."""
    found = {}
    for name, schema in definitions(revision).items():
        method = schema.get("properties", {}).get("method", {}).get("const")
        # In the newest schema the union of one is that one, written out again.
        if method is not None and name != "ClientNotification":
            found[str(method)] = (name, schema)
    return found


def examples() -> list[Path]:
    """The official examples of the newest revision; each in a folder named as its type."""
    return sorted((SCHEMAS / "2026-07-28-examples").glob("*/*.json"))
