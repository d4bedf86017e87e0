"""Reads what stands beside a type in `Annotated`: translates constraints of annotated_types and pydantic to
`msgspec.Meta`, and finds descriptions.

Rules:

- They are recognised by name and attribute; neither package is imported.
- A constraint is either honoured, or refused with a text that says what to write instead; none is ignored silently.
  Metadata of other packages is ignored. What only pydantic can honour is in `by_pydantic`.
"""

from __future__ import annotations

import datetime
import decimal
import operator
import re
from collections.abc import Callable, Iterable
from typing import Annotated, Any, TypeAlias, get_args, get_origin

from msgspec import Meta

from ...jsonrpc.errors import LocalError
from .by_pydantic import of_pydantic

_KEYS = {"Gt": "gt", "Ge": "ge", "Lt": "lt", "Le": "le", "MultipleOf": "multiple_of", "MinLen": "min_length"}
_KEYS |= {"MaxLen": "max_length"}
_NO_CONSTRAINTS = ("Unit", "DocInfo", "GroupedMetadata")
"""Names of classes of annotated_types that constrain nothing."""


def constraints(extra: Any, where: str) -> Iterable[tuple[str, Any]]:
    """Yield the `msgspec.Meta` arguments, name and value, for one member of `Annotated`; nothing for what is not a
    constraint. Raises LocalError, whose text begins with `where`, for a constraint that cannot be checked on JSON."""
    if isinstance(extra, slice):  # an old spelling of Len
        if extra.start:
            yield "min_length", extra.start
        if extra.stop is not None:
            yield "max_length", extra.stop
        return
    module = type(extra).__module__.partition(".")[0]
    if module == "pydantic":
        yield from of_pydantic(extra)
        return
    kinds = [kind for kind in type(extra).__mro__ if kind.__module__.partition(".")[0] == "annotated_types"]
    if not kinds or any(kind.__name__ == "DocInfo" for kind in kinds):
        return
    if getattr(extra, "__is_annotated_types_grouped_metadata__", False):
        for part in extra:
            yield from constraints(part, where)
        return
    name = kinds[0].__name__
    if name in _KEYS:
        value = getattr(extra, _KEYS[name])
        if name != "MinLen" or value:
            yield _KEYS[name], value
    elif name == "Timezone" and (extra.tz is ... or extra.tz is None):
        yield "tz", extra.tz is ...
    elif name not in _NO_CONSTRAINTS:
        raise LocalError(f"{where}: {extra!r} cannot be checked on JSON; check it in the function")


CHECKS = ("gt", "ge", "lt", "le", "multiple_of", "pattern", "min_length", "max_length", "tz")
"""The attributes of a `msgspec.Meta` that constrain values."""
DESCRIBED = ("title", "description", "examples", "extra_json_schema", "extra")
"""The attributes of a `msgspec.Meta` that describe values to the reader of a schema."""


def merged(metas: list[Meta], foreign: list[tuple[str, Any]]) -> list[Meta]:
    """Return metas and further constraints as one meta. A constraint that is given several times stands there once, as
    the strictest of them, because msgspec refuses repeated ones. Raises TypeError or ValueError for what msgspec
    refuses."""
    constrained = [(key, value) for meta in metas for key in CHECKS if (value := getattr(meta, key)) is not None]
    texts = {key: value for meta in metas for key in DESCRIBED if (value := getattr(meta, key)) is not None}
    if "extra_json_schema" in texts:
        texts["extra_json_schema"] = {k: v for meta in metas for k, v in (meta.extra_json_schema or {}).items()}
    constraints: dict[str, Any] = {}
    for key, value in (*constrained, *foreign):
        constraints[key] = _stricter(key, constraints[key], value) if key in constraints else value
    if "gt" in constraints and "ge" in constraints:
        del constraints["gt" if constraints["ge"] > constraints["gt"] else "ge"]
    if "lt" in constraints and "le" in constraints:
        del constraints["lt" if constraints["le"] < constraints["lt"] else "le"]
    try:
        return [Meta(**constraints, **texts)]
    except re.error as error:
        raise TypeError(f"the pattern {constraints['pattern']!r} is not a regular expression: {error}") from None


def _stricter(key: str, one: Any, other: Any) -> Any:
    if key in ("gt", "ge", "min_length"):
        return max(one, other)
    return min(one, other) if key in ("lt", "le", "max_length") else other


def predicate(extra: Any) -> Test | None:
    """Return the function of an `annotated_types.Predicate` and its name; None for other metadata."""
    kinds = {kind.__name__ for kind in type(extra).__mro__ if kind.__module__.partition(".")[0] == "annotated_types"}
    if "Predicate" not in kinds or not callable(getattr(extra, "func", None)):
        return None
    return extra.func, getattr(extra.func, "__name__", None) or repr(extra)


COMPARED = (datetime.datetime, datetime.date, datetime.time, datetime.timedelta, decimal.Decimal)
"""Types whose bounds msgspec does not check, so that they are checked here (`comparison`)."""
COMPARISONS: dict[str, tuple[Callable[[Any, Any], bool], str]] = {
    "gt": (operator.gt, ">"),
    "ge": (operator.ge, ">="),
    "lt": (operator.lt, "<"),
    "le": (operator.le, "<="),
    "multiple_of": (lambda value, step: value % step == 0, "a multiple of"),
}


Test: TypeAlias = tuple[Callable[[Any], Any], str]
"""A predicate, and the words for it that follow "Does not satisfy" in fault messages."""

FINITE: Test = decimal.Decimal.is_finite, "a finite number"
"""Every Decimal must satisfy it: JSON has no NaN and no Infinity, and a Decimal, which is text in JSON, could otherwise
be one, which passes every comparison or makes it fail."""
FINITE_IF_DECIMAL: Test = lambda value: not isinstance(value, decimal.Decimal) or value.is_finite(), FINITE[1]
FINITE_NAMES: Test = lambda value: all(name.is_finite() for name in value), "names that are finite numbers"


def comparison(key: str, bound: Any) -> Test:
    """Return the predicate that checks a bound, and its words. `key`: a key of `COMPARISONS`."""
    compare, words = COMPARISONS[key]

    def holds(value: Any) -> bool:
        try:
            return compare(value, bound)
        except ArithmeticError:  # a Decimal whose remainder has more digits than the context allows
            return False

    return holds, f"{words} {bound}"


def described(hint: Any) -> str:
    """Return the description in an `Annotated`: that of Doc("..."), doc("..."), msgspec.Meta(description=...) or
    Field(...), or a string; "" for none."""
    if get_origin(hint) is not Annotated:
        return ""
    return next(filter(None, map(text_of, get_args(hint)[1:])), "")


def text_of(extra: Any) -> str:
    """Return the description that one member of `Annotated` has; "" for none."""
    text = extra if isinstance(extra, str) else None
    for name in ("documentation", "description"):
        text = text or getattr(extra, name, None)
    return text if isinstance(text, str) else ""
