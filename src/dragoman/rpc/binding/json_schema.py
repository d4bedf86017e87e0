"""Checks values against JSON Schemas that a user or a far end wrote (basic/index, JSON Schema Usage).

Rules:

- A schema is 2020-12 unless `$schema` names another dialect; 2019-09, 7, 6 and 4 are known, too. It is compiled by
  jsonschema-rs (extra `mcp`), and must be valid.
- A `$ref` out of the document is refused, and never fetched.
- A schema may come from a far end, and so may values. Schemas that are too deep or too large, or would have one value
  checked in too many ways, are refused beforehand, because jsonschema-rs cannot be stopped; so are values too deep.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, TypeAlias

import msgspec

from ...jsonrpc.errors import LocalError
from .bounded_schema import BoundedSchema
from .compiled_schema import DEEPEST, compile_schema, deep, reason_of
from .faults import MOST, ValueFault, below, fault

Validate: TypeAlias = Callable[[Any], list[ValueFault]]
"""Returns every fault of a decoded JSON value; an empty list if it fits."""

LARGEST: Final = 1_048_576
"""How many bytes a schema's JSON text may have."""
WAYS: Final = 10_000
"""In how many ways, through compositions and references, one value may be checked."""
SEARCHED: Final = 32_768
"""Of a value whose JSON text has at most so many bytes every fault is reported; of a larger one, only the first."""


def validator(schema: Any, *, where: str = "this schema") -> Validate:
    """Return a function that finds every fault of a decoded JSON value.

    Raises LocalError, whose text begins with `where`, for what is not a JSON Schema of its dialect, for an unknown
    dialect, for a `$ref` out of the document and for a schema beyond the bounds; and another LocalError if
    jsonschema-rs is not installed."""
    _refuse_unbounded(schema, where)
    if isinstance(schema, dict) and schema.get("additionalProperties") is False:
        schema = {"properties": {}} | schema  # jsonschema-rs reports unknown members by name only beside `properties`
    known = compile_schema(schema, where)
    import jsonschema_rs  # noqa: PLC0415  (an extra, imported when used)

    search = _Search(schema)

    def validate(value: Any) -> list[ValueFault]:
        try:
            if known.is_valid(value):
                return []
            if deep(value):
                return [fault("", "Nested too deep")]
            if search.needed():
                return search.first(value)
            if len(msgspec.json.encode(value)) <= SEARCHED:
                return _faults(known.iter_errors(value))
            known.validate(value)
        except jsonschema_rs.ValidationError as error:
            return _faults([error])
        except (ValueError, RecursionError) as error:  # nested deeper than the validator can check
            return [fault("", reason_of(error))]
        return []

    return validate


# -- bounds ---------------------------------------------------------------------------------------


def _refuse_unbounded(schema: Any, where: str) -> None:
    """Raise LocalError for a schema beyond the bounds: "Implementations SHOULD apply reasonable bounds"
    (Composition-Keyword Resource Use)."""
    if not isinstance(schema, dict | bool):
        raise LocalError(f"{where}: a JSON Schema is an object, not {type(schema).__name__}")
    if deep(schema):
        raise LocalError(f"{where}: more than {DEEPEST} levels deep")
    size = len(msgspec.json.encode(schema))
    if size > LARGEST:
        raise LocalError(f"{where}: {size} bytes, and at most {LARGEST} are read")
    if isinstance(schema, dict) and _WayCounter(schema).too_many():
        raise LocalError(f"{where}: its compositions could be tried in more than {WAYS} ways")


_LISTS = ("allOf", "anyOf", "oneOf")
_ONES = ("not", "if", "then", "else")
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")


class _WayCounter:
    """Counts in how many ways a schema has one value checked: the parts that `allOf`, `anyOf`, `$ref` and the like
    apply to it."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self._root = schema
        self._named: dict[str, dict[str, Any]] = {}
        self._known: dict[int, int] = {}
        self._parts = list(self._objects(schema))
        for part in self._parts:
            for key in ("$id", "$anchor", "$dynamicAnchor"):
                if isinstance(name := part.get(key), str):
                    self._named.setdefault(name.rstrip("#"), part)

    def too_many(self) -> bool:
        """Return whether a part of the schema has a value checked in more than `WAYS` ways."""
        try:
            return any(self._count(part) > WAYS for part in self._parts)
        except RecursionError:
            return True

    def _objects(self, schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
        todo: list[Any] = [schema]
        while todo:
            part = todo.pop()
            if isinstance(part, dict):
                yield part
                todo += part.values()
            elif isinstance(part, list):
                todo += part

    def _count(self, part: dict[str, Any]) -> int:
        found = self._known.get(id(part))
        if found is None:
            self._known[id(part)] = 0  # a circle of references ends here
            found = min(WAYS + 1, 1 + sum(self._count(one) for one in self._below(part)))
            self._known[id(part)] = found
        return found

    def _below(self, part: dict[str, Any]) -> Iterator[dict[str, Any]]:
        inner = [one for key in _LISTS if isinstance(found := part.get(key), list) for one in found]
        inner += [part.get(key) for key in _ONES]
        if isinstance(dependent := part.get("dependentSchemas"), dict):
            inner += dependent.values()
        inner += [self._target(name) for key in _REFERENCES if isinstance(name := part.get(key), str)]
        yield from (one for one in inner if isinstance(one, dict))

    def _target(self, reference: str) -> Any:
        base, _, fragment = reference.partition("#")
        if fragment and not fragment.startswith("/"):
            return self._named.get(fragment)
        part: Any = self._named.get(base, self._root) if base else self._root
        for step in fragment.split("/")[1:]:
            step = step.replace("~1", "/").replace("~0", "~")
            if isinstance(part, list) and step.isdecimal() and int(step) < len(part):
                part = part[int(step)]
            else:
                part = part.get(step) if isinstance(part, dict) else None
        return part


# -- faults ---------------------------------------------------------------------------------------


class _Search:
    """Finds the first fault in a bounded number of steps, for recursive schemas, with which finding all of them could
    take 2 ** depth steps."""

    def __init__(self, schema: Any) -> None:
        self._schema = schema
        self._refuse_unbounded: Any = None

    def needed(self) -> bool:
        """Return whether the schema is recursive, or not one for which the number of steps is bounded otherwise."""
        if self._refuse_unbounded is None:
            try:
                self._refuse_unbounded = BoundedSchema(self._schema)
            except LocalError:
                self._refuse_unbounded = False
        return not self._refuse_unbounded or self._refuse_unbounded.rate is None

    def first(self, value: Any) -> list[ValueFault]:
        """Return the first fault of a value that does not fit, alone in a list."""
        found: list[ValueFault] = self._refuse_unbounded(value) if self._refuse_unbounded else []
        return found or [fault("", "It does not fit the schema")]


def _faults(errors: Iterable[Any]) -> list[ValueFault]:
    found: list[ValueFault] = []
    for error in errors:
        path = ""
        for part in error.instance_path:
            path = f"{path}[{part}]" if isinstance(part, int) else below(path, part)
        name = error.kind.name
        if name == "required":
            found.append(fault(below(path, error.kind.property), "Missing field" if path else "Missing argument"))
        elif name in ("additionalProperties", "unevaluatedProperties") and isinstance(error.instance, dict):
            what = "Unknown field" if path else "Unknown argument"
            found += [fault(below(path, one), what, error.instance.get(one)) for one in error.kind.unexpected[:MOST]]
        elif name == "falseSchema" and list(error.schema_path)[-1:] == ["additionalProperties"]:
            # without named properties the validator does not report which one is unknown
            found.append(fault(path, "Unknown field: nothing is allowed here", error.instance))
        else:
            text = error.message if len(error.message) <= 300 else error.message[:297] + "..."
            found.append(fault(path, text, error.instance))
        if len(found) >= MOST:
            break
    return found[:MOST]
