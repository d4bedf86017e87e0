"""Checks values against JSON Schemas that a far end wrote, in a bounded number of steps.

jsonschema-rs cannot be stopped, and some schemas keep it busy for years: with `{"allOf": [{"items": {"$ref": "#"}},
{"items": {"$ref": "#"}}]}` it checks each value in 2 ** depth ways. So this module checks values itself, and counts
every step.

Rules:

- The work of jsonschema-rs is bounded by the schema and the size of the value (`Rates`) if no part of the schema is
  recursive. If the bound is low enough, jsonschema-rs checks the value; only if it does not fit, it is checked here.
- A step is one keyword at one value; long texts, large values and patterns count as several. A value that takes more
  than `STEPS` is refused. Each part of a schema checks one value only once, however many references lead to it.
- A value of more than `DEEPEST` levels is refused unread; so is a schema of more than `PARTS` parts, or whose patterns
  stand for more than `STATES` characters.
- Only the first fault is reported.
- `pattern` and `patternProperties` run in an engine without backtracking. A pattern that it does not support
  (look-around, a back reference) is never run: `pattern` then allows every text, `patternProperties` every value.
- `format`, `contentEncoding` and `contentMediaType` are annotations (2020-12: "implementations MAY" check them).
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from itertools import zip_longest
from typing import Any, Final, TypeAlias
from urllib.parse import unquote, urljoin

import msgspec
from msgspec import Struct

from ...jsonrpc.errors import LocalError
from .compiled_schema import DEEPEST, compile_schema, deep, measured
from .far_pattern import STATES, STEPS, TEXT, far_pattern, states_of
from .faults import ValueFault, below, fault

PARTS: Final = 20_000
"""How many objects, arrays, members and items one schema may have in all."""
NESTED: Final = 200
"""How deep schemas may be within one another while one value is checked, references included."""
TreePart: TypeAlias = "dict[str, Any] | bool"
"""A schema, or a schema within one."""


class _TooMuch(Exception):
    """A bound is exceeded, so that the check cannot go on; the text says which."""


# -- schemas --------------------------------------------------------------------------------------

_D4 = "http://json-schema.org/draft-04/schema"
_DIALECTS = {
    _D4: 4,
    "http://json-schema.org/draft-06/schema": 6,
    "http://json-schema.org/draft-07/schema": 7,
    "https://json-schema.org/draft/2019-09/schema": 2019,
    "https://json-schema.org/draft/2020-12/schema": 2020,
}
_OFFICIAL = ("https://json-schema.org/draft/", "http://json-schema.org/draft-")
_NAMED = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"})
"""Keywords whose value is an object of schemas by name; the names are not keywords."""


class BoundedSchema:
    """A schema that a far end wrote, ready to check values. `steps`: how many the last check took: at most `STEPS`, and
    as many again to find what does not fit.

    Raises LocalError, whose text begins with `where`, for what is not a JSON Schema of its dialect, for a `$ref` out of
    the document and for a schema beyond the bounds; and another LocalError if jsonschema-rs is not installed.
    """

    def __init__(self, schema: Any, *, where: str = "this schema") -> None:
        self._bound(schema, where)
        compile_schema(schema, where)  # raises if it is no schema, or if a reference leads nowhere
        self.steps: int = 0
        self.root: TreePart = schema
        self.dialect: dict[str, str] = {}
        """The schema's `$schema` member, if it has one, to be put into another schema."""
        if isinstance(schema, dict) and isinstance(schema.get("$schema"), str):
            self.dialect["$schema"] = schema["$schema"]
        self.draft: int = _DIALECTS.get(self.dialect.get("$schema", "").rstrip("#"), 2020)
        self.bases: dict[int, str] = {}
        """The base URI of every part, by the part's id()."""
        self.known: dict[str, TreePart] = {}
        """The parts with an `$id` or an anchor, by their URI."""
        self.dynamic: dict[str, dict[str, TreePart]] = {}
        """The parts with a `$dynamicAnchor`, by base URI and name."""
        self.marks = False
        """Whether a keyword (`unevaluatedProperties`, `unevaluatedItems`) depends on which members and items others
        have evaluated."""
        self.scoped = False
        """Whether a reference (`$dynamicRef`, `$recursiveRef`) depends on the schemas through which it was reached."""
        self._kept: dict[int, Any] = {}
        self._resolved: dict[tuple[int, str], TreePart] = {}
        self._rules: dict[int, list[_Rule]] = {}
        self._register(schema, "")
        self.rate: Rate | None = Rates(self).of(schema)
        """How much work a value can be for jsonschema-rs, at most; None if there is no bound."""
        self._quick: Any = None
        if self.rate is not None:
            with contextlib.suppress(LocalError):  # a pattern that needs backtracking
                self._quick = compile_schema(schema, where, linear=True)

    def __call__(self, value: Any) -> list[ValueFault]:
        """Return the first fault of a decoded JSON value, alone in a list; an empty list if it fits."""
        self.steps = 0
        check = Check(self)
        levels, counts = measured(value)
        if levels > DEEPEST:
            return [fault("", f"Nested too deep: more than {DEEPEST} levels")]
        if self._quick is not None and self.rate is not None:
            cost = self.rate.cost(counts, len(msgspec.json.encode(value)))
            if cost <= _QUICK:
                self.steps = cost // _STEP
                if self._quick.is_valid(value):
                    return []
        try:
            found = check.visit(self.root, value, (self.bases.get(id(self.root), ""),), 0).fault
        except _TooMuch as much:
            return [fault("", f"It cannot be checked: {much}")]
        except RecursionError:  # if the calling program is deep in its stack already
            return [fault("", "It cannot be checked: too many schemas are within one another")]
        finally:
            self.steps += check.steps
        return [] if found is None else [found.as_fault()]

    def _bound(self, schema: Any, where: str) -> None:
        """Raise LocalError for a schema that is too deep, has too many parts or whose patterns are too long."""
        if deep(schema):
            raise LocalError(f"{where}: more than {DEEPEST} levels deep")
        parts = states = 0
        for part in _containers(schema):
            parts += 1 + len(part)
            if parts > PARTS:
                raise LocalError(f"{where}: more than {PARTS} parts")
            if isinstance(part, dict):
                named = part.get("patternProperties")
                texts = [part.get("pattern"), *(named if isinstance(named, dict) else ())]
                states += sum(states_of(text) for text in texts if isinstance(text, str))
                if states > STATES:
                    raise LocalError(f"{where}: its patterns stand for more than {STATES} characters")

    def _register(self, part: Any, base: str) -> None:
        """Note the base URI, identifiers and anchors of a part and of all parts in it."""
        if not isinstance(part, dict) or id(part) in self.bases:
            return
        name = part.get("id" if self.draft == 4 else "$id")
        if isinstance(name, str) and not (self.draft < 2019 and ("$ref" in part or name.startswith("#"))):
            base = urljoin(base, name).rstrip("#")
            self.known.setdefault(base, part)
        elif isinstance(name, str) and name.startswith("#"):  # an anchor, until draft 7
            self.known.setdefault(base + name, part)
        self.bases[id(part)] = base
        for key in ("$anchor", "$dynamicAnchor"):
            if isinstance(anchor := part.get(key), str):
                self.known.setdefault(f"{base}#{anchor}", part)
                if key == "$dynamicAnchor":
                    self.dynamic.setdefault(base, {}).setdefault(anchor, part)
        self.marks = self.marks or "unevaluatedProperties" in part or "unevaluatedItems" in part
        self.scoped = self.scoped or "$dynamicRef" in part or "$recursiveRef" in part
        for key, inner in part.items():
            since, until = _HOLDS.get(key, (0, 0))
            if since <= self.draft < until:
                named = key in _NAMED and isinstance(inner, dict)
                for one in inner.values() if named else inner if isinstance(inner, list) else (inner,):
                    self._register(one, base)

    def resolve(self, part: Mapping[str, Any], reference: str) -> TreePart:
        """Return the part to which a reference in `part` leads. Raises _TooMuch if it leads out of the schema."""
        found = self._resolved.get((id(part), reference))
        if found is None:
            found = self._resolved[id(part), reference] = self._resolve(part, reference)
        return found

    def _resolve(self, part: Mapping[str, Any], reference: str) -> TreePart:
        base = self.bases.get(id(part), "")
        target = base + reference if reference.startswith("#") else urljoin(base, reference)
        found = self.known.get(target.rstrip("#"))
        if found is not None:
            return found
        base, _, fragment = target.partition("#")
        step: Any = self.known.get(base)
        if step is None:
            step = self.root if base == "" else None
        if fragment and not fragment.startswith("/"):
            step = None  # an anchor that the schema does not have
        for name in fragment.split("/")[1:]:
            base = self.bases.get(id(step), base)
            name = unquote(name).replace("~1", "/").replace("~0", "~")
            if isinstance(step, list):
                step = step[int(name)] if name.isdecimal() and int(name) < len(step) else None
            else:
                step = step.get(name) if isinstance(step, dict) else None
        if not isinstance(step, dict | bool):
            raise _TooMuch(f"{reference} is not in the document, and nothing is fetched")
        self._register(step, base)  # it may be where no keyword has a schema
        target_part: TreePart = step
        return target_part

    def rules(self, part: dict[str, Any]) -> list[_Rule]:
        """Return the keywords of a part that its dialect knows, in the order in which they are checked."""
        found = self._rules.get(id(part))
        if found is None:
            found = self._rules[id(part)] = _rules(self.draft, part)
        return found

    def kept(self, owner: Any, make: Callable[[], Any]) -> Any:
        """Return what `make` returned for a value in the schema (`owner`), calling it only the first time."""
        found = self._kept.get(id(owner))
        if found is None:
            found = self._kept[id(owner)] = make()
        return found


def _containers(value: Any) -> Iterator[dict[str, Any] | list[Any]]:
    todo = [value]
    while todo:
        part = todo.pop()
        if isinstance(part, dict | list):
            yield part
            todo += part.values() if isinstance(part, dict) else part


class Rate(Struct, frozen=True):
    """How long jsonschema-rs takes at most to check a value, in nanoseconds. `levels`: for each value at this depth,
    that of the value itself first; `character`: for each character of the value's JSON text."""

    levels: tuple[int, ...] = ()
    character: int = 0

    def __add__(self, other: Rate) -> Rate:
        levels = tuple(map(sum, zip_longest(self.levels, other.levels, fillvalue=0)))
        return Rate(levels, self.character + other.character)

    def below(self) -> Rate:
        """Return the rate for a value whose members are checked at this rate."""
        return Rate((0, *self.levels), self.character)

    def cost(self, counts: Sequence[int], characters: int) -> int:
        """Return the nanoseconds for a value that has so many values at each depth, and so many characters."""
        return sum(rate * count for rate, count in zip(self.levels, counts, strict=False)) + self.character * characters


class Rates:
    """Finds the rates of a schema's parts. A part that is recursive has none.

    If a schema has a rate, jsonschema-rs may check values first, since its work is at most the rate times their size.
    """

    def __init__(self, schema: BoundedSchema) -> None:
        self._schema = schema
        self._known: dict[int, Rate | None] = {}

    def of(self, part: Any) -> Rate | None:
        """Return the rate of a part; None if it has none."""
        if not isinstance(part, dict):
            return Rate()
        if id(part) not in self._known:
            self._known[id(part)] = None  # a recursive part has no rate
            with contextlib.suppress(_TooMuch, RecursionError):
                self._known[id(part)] = self._sum(part)
        return self._known[id(part)]

    def _sum(self, part: dict[str, Any]) -> Rate:
        if not part.keys().isdisjoint(_UNRATED):
            raise _TooMuch("it has no rate")
        patterns = [*part.get("patternProperties", ()), *([part["pattern"]] if "pattern" in part else ())]
        entries = len(part) + len(patterns)
        for key in ("properties", "required", "prefixItems", "dependentRequired", "dependentSchemas", "dependencies"):
            entries += len(part.get(key, ()))
        data = [*part.get("enum", ()), *([part["const"]] if "const" in part else ())]
        held = sum(sum(measured(one)[1]) for one in data if isinstance(one, dict | list))
        own = _ENTRY * entries + _SCALAR * len(data) + _HELD * held + (_DIVISION if "multipleOf" in part else 0)
        total = Rate((own,), 1 + _STATE * sum(map(states_of, patterns)))
        # of keywords that each apply to other members, the highest rate counts; all others add up
        items = part.get("items")
        rest = items if isinstance(items, list) else [items]
        total += self._most([*part.get("properties", {}).values(), part.get("additionalProperties")])
        total += self._most([*part.get("prefixItems", ()), *rest, part.get("additionalItems")])
        total += self._all(part.get("patternProperties", {}).values()).below()
        total += self._all(part.get(key) for key in ("contains", "propertyNames")).below()
        for key in ("allOf", "anyOf", "oneOf"):
            total += self._all(part.get(key, ()))
        for key in ("dependentSchemas", "dependencies"):
            total += self._all(part.get(key, {}).values())
        total += self._all(part.get(key) for key in ("not", "if", "then", "else"))
        if "$ref" in part and not part["$ref"].startswith(_OFFICIAL):
            total += self._all([self._schema.resolve(part, part["$ref"])])
        for key in ("unevaluatedProperties", "unevaluatedItems"):
            if key in part:  # all other keywords are checked once more, for what they evaluate
                total = total + total + self._all([part[key]]).below()
        if max(*total.levels, total.character) > _QUICK:
            raise _TooMuch("it has no rate that would do")
        return total

    def _all(self, parts: Iterable[Any]) -> Rate:
        total = Rate()
        for part in parts:
            found = self.of(part)
            if found is None:
                raise _TooMuch("it has no rate")
            total += found
        return total

    def _most(self, parts: Iterable[Any]) -> Rate:
        found = [self._all([part]) for part in parts]
        levels = tuple(map(max, zip_longest(*[one.levels for one in found], fillvalue=0)))
        return Rate(levels, max(one.character for one in found)).below()


_UNRATED = frozenset({"$dynamicRef", "$recursiveRef"})
"""Keywords that lead to other parts, depending on the schemas through which they were reached."""
_ENTRY, _SCALAR, _HELD, _DIVISION, _STATE = 200, 16, 2_000, 12_000, 16
"""Nanoseconds that jsonschema-rs takes, as measured: for a keyword or a name that one lists; for a value in `enum` or
`const`, and for each value within such an array or object; for a `multipleOf`; for each state of a pattern, at each
character."""
_STEP = 10_000
"""How many nanoseconds count as one step."""
_QUICK = STEPS * _STEP
"""How many nanoseconds jsonschema-rs may take for a value."""


# -- one check ------------------------------------------------------------------------------------


class _Fault(Struct, frozen=True):
    """A fault of a value, and the path to it from the value that is checked, the last step first."""

    message: str
    value: Any
    path: tuple[str | int, ...] = ()

    def as_fault(self) -> ValueFault:
        """Return the fault as it is reported."""
        path = ""
        for step in reversed(self.path):
            path = f"{path}[{step}]" if isinstance(step, int) else below(path, step)
        return fault(path, self.message, self.value)


class _Outcome(Struct):
    """What a part of the schema found in a value: the first fault, and the names and indexes that it evaluated."""

    fault: _Fault | None = None
    names: set[str] = msgspec.field(default_factory=set)
    items: set[int] = msgspec.field(default_factory=set)


_FITS = _Outcome()
_TRUE, _FALSE = object(), object()
Scope: TypeAlias = "tuple[str, ...]"
"""The base URIs of the schemas through which a part was reached, the outermost first, each once."""
_KINDS: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "null": (type(None),),
    "number": (int, float),
    "integer": (int,),
}


class Check:
    """The check of one value against one schema. `steps`: how many it has taken so far."""

    def __init__(self, schema: BoundedSchema) -> None:
        self.schema = schema
        self.steps: int = 0
        self._seen: dict[tuple[int, int, Scope], _Outcome] = {}

    def count(self, steps: int) -> None:
        """Count steps. Raises _TooMuch beyond `STEPS`."""
        self.steps += steps
        if self.steps > STEPS:
            self.steps = STEPS + 1
            raise _TooMuch(f"it takes more than {STEPS} steps")

    def visit(self, part: TreePart, value: Any, scope: Scope, nested: int) -> _Outcome:
        """Check the value against `part`. `nested`: how many schemas this one is within. Raises _TooMuch."""
        self.count(1)
        if part is True:
            return _FITS
        if part is False:
            return _Outcome(_Fault("Nothing is allowed here", value))
        if nested > NESTED:
            raise _TooMuch(f"more than {NESTED} schemas are within one another")
        schema = self.schema
        if schema.scoped and (base := schema.bases.get(id(part), "")) not in scope:
            scope = (*scope, base)
        kept = isinstance(value, dict | list)
        key = (id(part), id(value), scope)
        if kept:
            if (found := self._seen.get(key)) is not None:
                return found
            self._seen[key] = _FITS  # a circle of references adds no fault
        self.count(len(part))
        seen = _Outcome()
        at = _PartAtValue(self, part, value, scope, nested, seen)
        for word, kinds, run in schema.rules(part):
            if isinstance(value, kinds):
                seen.fault = run(at, part[word])
                if seen.fault is not None:
                    break
        if kept:
            self._seen[key] = seen
        return seen

    def frozen(self, value: Any) -> Any:
        """Return a JSON value in a form that can be compared and put into sets, where 1 and 1.0 are equal, and 1 and
        true are not."""
        if isinstance(value, bool):
            return _TRUE if value else _FALSE
        if isinstance(value, str):
            self.count(len(value) // TEXT)
        elif isinstance(value, list):
            self.count(1 + len(value) // 8)
            return tuple([self.frozen(one) for one in value])
        elif isinstance(value, dict):
            self.count(1 + len(value) // 8)
            return frozenset([(name, self.frozen(one)) for name, one in value.items()])
        return value


_Run: TypeAlias = "Callable[[_PartAtValue, Any], _Fault | None]"
_Rule: TypeAlias = "tuple[str, tuple[type, ...], _Run]"


class _PartAtValue(Struct):
    """A part of the schema that is checked at a value; keywords take it."""

    check: Check
    part: dict[str, Any]
    value: Any
    scope: Scope
    nested: int
    seen: _Outcome

    def check_value(self, part: TreePart, value: Any) -> _Fault | None:
        """Check another part at another value."""
        return self.check.visit(part, value, self.scope, self.nested + 1).fault

    def here(self, part: TreePart) -> _Fault | None:
        """Check another part at the same value. If the value fits, what it has evaluated is evaluated here too."""
        seen = self.check.visit(part, self.value, self.scope, self.nested + 1)
        if seen.fault is None and self.check.schema.marks:
            self.check.count((len(seen.names) + len(seen.items)) // 8)
            self.seen.names |= seen.names
            self.seen.items |= seen.items
        return seen.fault

    def member(self, part: TreePart, name: str | int) -> _Fault | None:
        """Check another part at a member or an item."""
        if self.check.schema.marks:
            (self.seen.names if isinstance(name, str) else self.seen.items).add(name)  # type: ignore[arg-type]
        if part is False and isinstance(name, str):
            return _Fault("Unknown field", self.value[name], (name,))
        found = self.check.visit(part, self.value[name], self.scope, self.nested + 1).fault
        return None if found is None else _below(found, name)

    def pattern(self, pattern: str, text: str) -> bool:
        """Return whether a text has a match of a pattern; True also if the pattern is not run."""
        compiled = far_pattern(pattern)
        self.check.count(compiled.steps(text))
        return compiled.matches(text)

    def fault(self, message: str) -> _Fault:
        """Return a fault of the value."""
        return _Fault(message, self.value)


def _below(found: _Fault, step: str | int) -> _Fault:
    """Return a fault of a member as a fault of the array or object that has it."""
    return _Fault(found.message, found.value, (*found.path, step))


def _each_member(at: _PartAtValue, parts: Iterable[tuple[TreePart, str | int]]) -> _Fault | None:
    """Check members, each against its part, and return the first fault."""
    for part, name in parts:
        if (found := at.member(part, name)) is not None:
            return found
    return None


def _each_part(at: _PartAtValue, parts: Iterable[TreePart]) -> _Fault | None:
    """Check parts at the same value, and return the first fault."""
    for part in parts:
        if (found := at.here(part)) is not None:
            return found
    return None


def _shown(value: Any) -> str:
    """Return a value in a few characters, for messages."""
    if isinstance(value, list | dict):
        what = "an array" if isinstance(value, list) else "an object"
        return f"{what} of {len(value)}" if value else what
    text = msgspec.json.encode(value[:60] if isinstance(value, str) else value).decode()
    return text if len(text) <= 60 else text[:57] + "..."


# -- keywords of any value ------------------------------------------------------------------------


def _type(at: _PartAtValue, wanted: Any) -> _Fault | None:
    for kind in (wanted,) if isinstance(wanted, str) else wanted:
        fits = isinstance(at.value, _KINDS[kind]) and (kind == "boolean" or not isinstance(at.value, bool))
        if fits or (kind == "integer" and isinstance(at.value, float) and at.value.is_integer()):
            return None
    kinds = _shown(wanted) if isinstance(wanted, str) else " or ".join(map(_shown, wanted))
    return at.fault(f"{_shown(at.value)} is not of type {kinds}")


def _enum(at: _PartAtValue, allowed: list[Any]) -> _Fault | None:
    values = at.check.schema.kept(allowed, lambda: frozenset(map(at.check.frozen, allowed)))
    return (
        None
        if at.check.frozen(at.value) in values
        else at.fault(f"{_shown(at.value)} is not one of {', '.join(map(_shown, allowed[:8]))}")
    )


def _const(at: _PartAtValue, allowed: Any) -> _Fault | None:
    same = at.check.frozen(at.value) == at.check.frozen(allowed)
    return None if same else at.fault(f"{_shown(at.value)} is not {_shown(allowed)}")


def _ref(at: _PartAtValue, reference: str) -> _Fault | None:
    if not reference.startswith(_OFFICIAL):
        return at.here(at.check.schema.resolve(at.part, reference))
    # a reference to JSON Schema's own schema, which jsonschema-rs has: the value must be a schema
    at.check.frozen(at.value)  # for the steps that it counts
    schema = at.check.schema
    official = schema.kept(reference, lambda: compile_schema(schema.dialect | {"$ref": reference}, "this schema"))
    return None if official.is_valid(at.value) else at.fault(f"{_shown(at.value)} is not a schema of {reference}")


def _dynamic_ref(at: _PartAtValue, reference: str) -> _Fault | None:
    schema, found = at.check.schema, at.check.schema.resolve(at.part, reference)
    name = reference.partition("#")[2]
    if isinstance(found, dict) and name and found.get("$dynamicAnchor") == name:
        outer = (schema.dynamic[base][name] for base in at.scope if name in schema.dynamic.get(base, ()))
        found = next(outer, found)
    return at.here(found)


def _recursive_ref(at: _PartAtValue, reference: str) -> _Fault | None:
    schema, found = at.check.schema, at.check.schema.resolve(at.part, reference)
    if isinstance(found, dict) and found.get("$recursiveAnchor") is True:
        roots = (schema.known.get(base, schema.root if not base else None) for base in at.scope)
        found = next((one for one in roots if isinstance(one, dict) and one.get("$recursiveAnchor") is True), found)
    return at.here(found)


def _all_of(at: _PartAtValue, parts: list[TreePart]) -> _Fault | None:
    return _each_part(at, parts)


def _any_of(at: _PartAtValue, parts: list[TreePart]) -> _Fault | None:
    some = False
    for part in parts:
        some = at.here(part) is None or some
        if some and not at.check.schema.marks:  # else all must be checked, for what they evaluate
            break
    return None if some else at.fault(f"{_shown(at.value)} fits none of the schemas in anyOf")


def _one_of(at: _PartAtValue, parts: list[TreePart]) -> _Fault | None:
    fits = 0
    for part in parts:
        fits += at.here(part) is None
    return None if fits == 1 else at.fault(f"{_shown(at.value)} fits {fits} of the schemas in oneOf, not one")


def _not(at: _PartAtValue, part: TreePart) -> _Fault | None:
    if at.check_value(part, at.value) is not None:
        return None
    return at.fault(f"{_shown(at.value)} fits what it must not")


def _if(at: _PartAtValue, part: TreePart) -> _Fault | None:
    then = at.part.get("then" if at.here(part) is None else "else", True)
    return at.here(then)


# -- keywords of numbers and texts ----------------------------------------------------------------


def _bound(word: str, fits: Callable[[float, float], bool]) -> _Run:
    def run(at: _PartAtValue, limit: Any) -> _Fault | None:
        if isinstance(at.value, bool) or isinstance(limit, bool) or fits(at.value, limit):
            return None
        return at.fault(f"{_shown(at.value)} is not {word} {_shown(limit)}")

    return run


def _minimum(at: _PartAtValue, limit: Any) -> _Fault | None:
    beyond = at.part.get("exclusiveMinimum") is True  # draft 4
    return (_ABOVE if beyond else _FROM)(at, limit)


def _maximum(at: _PartAtValue, limit: Any) -> _Fault | None:
    beyond = at.part.get("exclusiveMaximum") is True
    return (_UNDER if beyond else _TO)(at, limit)


_FROM, _TO = (
    _bound("at least", lambda value, limit: value >= limit),
    _bound("at most", lambda value, limit: value <= limit),
)
_ABOVE, _UNDER = (
    _bound("above", lambda value, limit: value > limit),
    _bound("below", lambda value, limit: value < limit),
)


def _multiple_of(at: _PartAtValue, step: Any) -> _Fault | None:
    if isinstance(at.value, bool):
        return None
    if isinstance(at.value, int) and isinstance(step, int):
        rest: Any = at.value % step
    elif isinstance(at.value, float) and not math.isfinite(at.value):
        rest = 1
    else:
        rest = Fraction(Decimal(str(at.value))) % Fraction(Decimal(str(step)))
    return None if rest == 0 else at.fault(f"{_shown(at.value)} is not a multiple of {_shown(step)}")


def _sized(least: bool, what: str) -> _Run:
    word = "at least" if least else "at most"

    def run(at: _PartAtValue, limit: float) -> _Fault | None:
        fits = len(at.value) >= limit if least else len(at.value) <= limit
        return None if fits else at.fault(f"{_shown(at.value)} must have {word} {limit} {what}")

    return run


def _pattern(at: _PartAtValue, pattern: str) -> _Fault | None:
    return None if at.pattern(pattern, at.value) else at.fault(f"{_shown(at.value)} does not match {_shown(pattern)}")


# -- keywords of arrays ---------------------------------------------------------------------------


def _items(at: _PartAtValue, parts: Any) -> _Fault | None:
    draft, value = at.check.schema.draft, at.value
    if isinstance(parts, list):  # until 2019-09
        found = _each_member(at, zip(parts, range(len(value)), strict=False))
        rest = at.part.get("additionalItems")
        if found is not None or rest is None:
            return found
        return _each_member(at, ((rest, index) for index in range(len(parts), len(value))))
    before = len(at.part.get("prefixItems", ())) if draft >= 2020 else 0
    return _each_member(at, ((parts, index) for index in range(before, len(value))))


def _prefix_items(at: _PartAtValue, parts: list[TreePart]) -> _Fault | None:
    return _each_member(at, zip(parts, range(len(at.value)), strict=False))


def _contains(at: _PartAtValue, part: TreePart) -> _Fault | None:
    schema = at.check.schema
    least = at.part.get("minContains", 1) if schema.draft >= 2019 else 1
    most = at.part.get("maxContains") if schema.draft >= 2019 else None
    fitting = [index for index, one in enumerate(at.value) if at.check_value(part, one) is None]
    if schema.draft >= 2020:
        at.seen.items |= set(fitting)
    if len(fitting) < least or (most is not None and len(fitting) > most):
        return at.fault(f"{len(fitting)} of the items fit what the array must contain")
    return None


def _unique_items(at: _PartAtValue, wanted: bool) -> _Fault | None:
    if not wanted or len({at.check.frozen(one) for one in at.value}) == len(at.value):
        return None
    return at.fault(f"{_shown(at.value)} has equal items")


def _unevaluated_items(at: _PartAtValue, part: TreePart) -> _Fault | None:
    at.check.count(len(at.value) // 8)
    return _each_member(at, [(part, index) for index in range(len(at.value)) if index not in at.seen.items])


# -- keywords of objects --------------------------------------------------------------------------


def _required(at: _PartAtValue, names: Any) -> _Fault | None:
    at.check.count(len(names) // 8)
    missing = next((name for name in names if name not in at.value), None)
    return None if missing is None else _Fault("Missing field", msgspec.UNSET, (missing,))


def _properties(at: _PartAtValue, parts: dict[str, TreePart]) -> _Fault | None:
    at.check.count(len(parts) // 8)
    return _each_member(at, ((part, name) for name, part in parts.items() if name in at.value))


def _pattern_properties(at: _PartAtValue, parts: dict[str, TreePart]) -> _Fault | None:
    for pattern, part in parts.items():
        if far_pattern(pattern).search is not None:
            names = [name for name in at.value if at.pattern(pattern, name)]
            if (found := _each_member(at, ((part, name) for name in names))) is not None:
                return found
    return None


def _additional_properties(at: _PartAtValue, part: TreePart) -> _Fault | None:
    known, patterns = at.part.get("properties", {}), at.part.get("patternProperties", ())
    at.check.count(len(at.value) // 8)
    rest = [name for name in at.value if name not in known]
    if patterns:
        rest = [name for name in rest if not any(at.pattern(pattern, name) for pattern in patterns)]
    return _each_member(at, ((part, name) for name in rest))


def _property_names(at: _PartAtValue, part: TreePart) -> _Fault | None:
    for name in at.value:
        if (found := at.check_value(part, name)) is not None:
            return _below(found, name)
    return None


def _dependent_required(at: _PartAtValue, names: dict[str, list[str]]) -> _Fault | None:
    at.check.count(len(names) // 8)
    return next(filter(None, (_required(at, needed) for name, needed in names.items() if name in at.value)), None)


def _dependent_schemas(at: _PartAtValue, parts: dict[str, TreePart]) -> _Fault | None:
    at.check.count(len(parts) // 8)
    return _each_part(at, [part for name, part in parts.items() if name in at.value])


def _dependencies(at: _PartAtValue, needs: dict[str, Any]) -> _Fault | None:
    lists = {name: one for name, one in needs.items() if isinstance(one, list)}
    return _dependent_required(at, lists) or _dependent_schemas(
        at, {name: one for name, one in needs.items() if name not in lists}
    )


def _unevaluated_properties(at: _PartAtValue, part: TreePart) -> _Fault | None:
    at.check.count(len(at.value) // 8)
    return _each_member(at, [(part, name) for name in at.value if name not in at.seen.names])


_ANY, _NUMBER = (object,), (int, float)
_EVER: Final = (4, 9999)
_KEYWORDS: Final[tuple[tuple[str, tuple[type, ...], tuple[int, int], _Run], ...]] = (
    ("type", _ANY, _EVER, _type),
    ("enum", _ANY, _EVER, _enum),
    ("const", _ANY, (6, 9999), _const),
    ("minimum", _NUMBER, _EVER, _minimum),
    ("maximum", _NUMBER, _EVER, _maximum),
    ("exclusiveMinimum", _NUMBER, (6, 9999), _ABOVE),
    ("exclusiveMaximum", _NUMBER, (6, 9999), _UNDER),
    ("multipleOf", _NUMBER, _EVER, _multiple_of),
    ("minLength", (str,), _EVER, _sized(True, "characters")),
    ("maxLength", (str,), _EVER, _sized(False, "characters")),
    ("minItems", (list,), _EVER, _sized(True, "items")),
    ("maxItems", (list,), _EVER, _sized(False, "items")),
    ("minProperties", (dict,), _EVER, _sized(True, "members")),
    ("maxProperties", (dict,), _EVER, _sized(False, "members")),
    ("required", (dict,), _EVER, _required),
    ("dependentRequired", (dict,), (2019, 9999), _dependent_required),
    ("pattern", (str,), _EVER, _pattern),
    ("uniqueItems", (list,), _EVER, _unique_items),
    ("$ref", _ANY, _EVER, _ref),
    ("$recursiveRef", _ANY, (2019, 2020), _recursive_ref),
    ("$dynamicRef", _ANY, (2020, 9999), _dynamic_ref),
    ("properties", (dict,), _EVER, _properties),
    ("patternProperties", (dict,), _EVER, _pattern_properties),
    ("additionalProperties", (dict,), _EVER, _additional_properties),
    ("propertyNames", (dict,), (6, 9999), _property_names),
    ("prefixItems", (list,), (2020, 9999), _prefix_items),
    ("items", (list,), _EVER, _items),
    ("contains", (list,), (6, 9999), _contains),
    ("dependencies", (dict,), (4, 2019), _dependencies),
    ("dependentSchemas", (dict,), (2019, 9999), _dependent_schemas),
    ("allOf", _ANY, _EVER, _all_of),
    ("anyOf", _ANY, _EVER, _any_of),
    ("oneOf", _ANY, _EVER, _one_of),
    ("not", _ANY, _EVER, _not),
    ("if", _ANY, (7, 9999), _if),
    ("unevaluatedItems", (list,), (2019, 9999), _unevaluated_items),
    ("unevaluatedProperties", (dict,), (2019, 9999), _unevaluated_properties),
)
"""The keywords, in the order in which they are checked (the cheap ones first, those that depend on others last), with
the types of the values that each applies to, and the dialects that know it: from the first, before the second."""

_HOLDS: Final[dict[str, tuple[int, int]]] = {
    "$defs": (2019, 9999),
    "additionalItems": (4, 2020),
    "additionalProperties": _EVER,
    "allOf": _EVER,
    "anyOf": _EVER,
    "contains": (6, 9999),
    "contentSchema": (2019, 9999),
    "definitions": _EVER,
    "dependencies": _EVER,
    "dependentSchemas": (2019, 9999),
    "else": (7, 9999),
    "if": (7, 9999),
    "items": _EVER,
    "not": _EVER,
    "oneOf": _EVER,
    "patternProperties": _EVER,
    "prefixItems": (2020, 9999),
    "properties": _EVER,
    "propertyNames": (6, 9999),
    "then": (7, 9999),
    "unevaluatedItems": (2019, 9999),
    "unevaluatedProperties": (2019, 9999),
}
"""The keywords whose values are schemas (the dialect's own schema has checked that they are), and the dialects that
know them: from the first, before the second."""


def _rules(draft: int, part: Mapping[str, Any]) -> list[_Rule]:
    if draft < 2019 and "$ref" in part:
        return [("$ref", _ANY, _ref)]  # "All other properties in a "$ref" object MUST be ignored" (draft 7)
    return [
        (key, kinds, run) for key, kinds, (since, until), run in _KEYWORDS if key in part and since <= draft < until
    ]
