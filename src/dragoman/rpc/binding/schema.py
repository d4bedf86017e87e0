"""What a caller gives: parameters and their JSON Schemas (2020-12)."""

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


class Made(Struct, frozen=True, eq=False):
    """A default that is made anew for each call."""

    factory: Callable[[], Any]


class Parameter(Struct, frozen=True):
    """A parameter that a caller gives, by the name of its argument. `kind`: "positional" (only), "either", "named"
    (only), "rest" (*args), "members" (**kwargs). `default`: the function's own object or a `Made`, where `required` is
    False. `read`: what decodes its JSON text where msgspec does not."""

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
        """Its JSON Schema (2020-12), whole, with "$defs" where it needs them."""
        (schema,), components = described([self], refs=REFS)
        return schema | ({"$defs": components} if components else {})


def described(parameters: Sequence[Parameter], *, refs: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The parameters' JSON Schemas, with descriptions and defaults, and the components they refer to. Those that stand
    alone, with "$defs", have pydantic's models written out: MCP's hosts do not all follow references."""
    found, components = schemas([p.annotation.shown for p in parameters], refs=refs, inline=refs == REFS)
    whole = []
    for p, schema in zip(parameters, found, strict=True):
        # beside a $ref other words are allowed in 2020-12, and ignored by older readers
        extra: dict[str, Any] = {"description": p.description} if p.description else {}
        if not p.required and p.kind not in ("rest", "members") and type(p.default) is not Made:
            try:
                extra["default"] = msgspec.json.decode(to_json(p.default))
            except LocalError:
                pass
        whole.append(schema | extra)
    return whole, components
