"""The parameters that a caller gives, and their JSON Schemas (2020-12)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from ...jsonrpc.errors import LocalError
from .annotations import Annotation
from .hooks import schemas
from .results import to_json
from .signature import Kind

REFS = "#/$defs/{name}"
"""The form of references in a schema that contains its components itself."""


class Made(Struct, frozen=True, eq=False):
    """A default that `factory` makes anew for each call."""

    factory: Callable[[], Any]


class Parameter(Struct, frozen=True):
    """A parameter that a caller gives. `name`: as callers call it; `kind`: how it may be given (`signature.Kind`);
    `default`: the function's own object or a `Made`, if `required` is False; `decode`: decodes the JSON text of one
    value, and raises what msgspec raises; `read`: the same by an adapter, None if msgspec decodes the parameter
    itself."""

    name: str
    kind: Kind
    required: bool
    default: Any
    annotation: Annotation
    description: str
    decode: Callable[[Any], Any]
    read: Callable[[Any], Any] | None = None

    @property
    def schema(self) -> dict[str, Any]:
        """The parameter's JSON Schema (2020-12), complete, with the "$defs" that it needs."""
        (schema,), components = described([self], refs=REFS)
        return schema | ({"$defs": components} if components else {})


def described(parameters: Sequence[Parameter], *, refs: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return the parameters' JSON Schemas, with descriptions and defaults, and the components to which they refer.
    `refs`: the form of references; with `REFS`, pydantic's models are written out where they are used, since not all
    MCP hosts follow references."""
    found, components = schemas([p.annotation.shown for p in parameters], refs=refs, inline=refs == REFS)
    whole = []
    for p, schema in zip(parameters, found, strict=True):
        # 2020-12 allows other keywords beside a $ref; readers of older dialects ignore them
        extra: dict[str, Any] = {"description": p.description} if p.description else {}
        if not p.required and p.kind not in ("rest", "members") and type(p.default) is not Made:
            try:
                extra["default"] = msgspec.json.decode(to_json(p.default))
            except LocalError:
                pass
        whole.append(schema | extra)
    return whole, components
