"""Checks values against JSON Schemas that a user or a far end wrote (basic/index, JSON Schema Usage).

Rules:

- A schema is 2020-12 unless `$schema` names another dialect; 2019-09, 7, 6 and 4 are known, too. It is read by
  jsonschema-rs (extra `mcp`), and must be valid.
- A `$ref` out of the document is refused, and never fetched.
- A schema may come from a far end, and so may values: those that are too deep, too large or would be tried in
  too many ways are refused beforehand, because the validator cannot be stopped.
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
"""Every fault of a decoded JSON value; none when it fits."""

LARGEST: Final = 1_048_576
"""Bytes of a schema's JSON text."""
WAYS: Final = 10_000
"""In how many ways, through compositions and references, one value may be checked."""
SEARCHED: Final = 32_768
"""Bytes of a value up to which every fault is searched; above, only the first is reported."""


def validator(schema: Any, *, where: str = "this schema") -> Validate:
    """What finds every fault of decoded JSON values.

    Raises LocalError, opening with `where`, for what is not a JSON Schema of its dialect, for a dialect that is not
    known, a `$ref` out of the document, what is beyond the bounds, and where jsonschema-rs is not there.
    """
    _bounded(schema, where)
    if isinstance(schema, dict) and schema.get("additionalProperties") is False:
        schema = {"properties": {}} | schema  # only beside it are unknown members reported by name
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
        except (ValueError, RecursionError) as error:  # deeper than the validator goes
            return [fault("", reason_of(error))]
        return []

    return validate


# -- bounds ---------------------------------------------------------------------------------------


def _bounded(schema: Any, where: str) -> None:
    """ "Implementations SHOULD apply reasonable bounds" (Composition-Keyword Resource Use)."""
    if not isinstance(schema, dict | bool):
        raise LocalError(f"{where}: a JSON Schema is an object, not {type(schema).__name__}")
    if deep(schema):
        raise LocalError(f"{where}: more than {DEEPEST} levels deep")
    size = len(msgspec.json.encode(schema))
    if size > LARGEST:
        raise LocalError(f"{where}: {size} bytes, and at most {LARGEST} are read")
    if isinstance(schema, dict) and _Ways(schema).too_many():
        raise LocalError(f"{where}: its compositions could be tried in more than {WAYS} ways")


_LISTS = ("allOf", "anyOf", "oneOf")
_ONES = ("not", "if", "then", "else")
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")


class _Ways:
    """Counts the ways in which one value is looked at: what `allOf`, `anyOf`, `$ref` and their like lead to."""

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
        """Whether anything in the schema is looked at in more than `WAYS` ways."""
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
        inner += [self._led_to(name) for key in _REFERENCES if isinstance(name := part.get(key), str)]
        yield from (one for one in inner if isinstance(one, dict))

    def _led_to(self, reference: str) -> Any:
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
    """Looks for the first fault in a bounded number of steps, where looking for all of them can take 2 ** depth: in
    schemas that lead to themselves."""

    def __init__(self, schema: Any) -> None:
        self._schema = schema
        self._bounded: Any = None

    def needed(self) -> bool:
        """Whether the schema is such a one."""
        if self._bounded is None:
            try:
                self._bounded = BoundedSchema(self._schema)
            except LocalError:
                self._bounded = False
        return not self._bounded or self._bounded.rate is None

    def first(self, value: Any) -> list[ValueFault]:
        """The first fault of a value that does not fit."""
        found: list[ValueFault] = self._bounded(value) if self._bounded else []
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
            # where no properties are named the validator does not say which one it was
            found.append(fault(path, "Unknown field: nothing is allowed here", error.instance))
        else:
            text = error.message if len(error.message) <= 300 else error.message[:297] + "..."
            found.append(fault(path, text, error.instance))
        if len(found) >= MOST:
            break
    return found[:MOST]
