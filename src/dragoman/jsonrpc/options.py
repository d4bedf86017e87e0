"""Options of public constructors and decorators, checked when they are given.

A wrong option raises a LocalError at once that names the option and says what would be right; it does not make a later
call fail. Each constructor has a table with a rule for each of its options; `tests/test_options.py` checks the
public signatures, and fails for an option without a rule.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from math import isnan
from types import CodeType, NoneType
from typing import Any, Final, TypeVar, cast

from msgspec import Struct, UnsetType

from .errors import LocalError

S = TypeVar("S", bound=Struct)
F = TypeVar("F", bound=Callable[..., Any])


class Rule(Struct, frozen=True):
    """A rule for the values of an option. `words`: the rule in words, as they follow "is" in the text of a
    LocalError."""

    fits: Callable[[Any], bool]
    words: str
    kinds: tuple[type, ...] = ()
    """Classes whose instances all fit; they are checked first, since a thousand tools have a dozen options each."""

    def __or__(self, other: Rule) -> Rule:
        return Rule(
            lambda value: self.fits(value) or other.fits(value),
            f"{self.words}, or {other.words}",
            self.kinds + other.kinds,
        )


def check(where: str, rules: Mapping[str, Rule], given: Mapping[str, Any]) -> None:
    """Raise LocalError, beginning with `where`, for the first option that breaks its rule. `given`: the values by name;
    other names, as in `locals()` at the top of a function, are ignored."""
    for name, rule in rules.items():
        value = given[name]
        if not isinstance(value, rule.kinds) and not rule.fits(value):
            raise LocalError(f"{where}: {name} is {rule.words}, not {_short(value)}")


def options_of(
    decorator: str, where: str, rules: Mapping[str, Rule], given: Mapping[str, Any], defaults: Mapping[str, Any]
) -> Any:
    """All options that have rules, by name, for a decorator that takes them as `**options`: as they were given, else by
    `defaults`, else None. Raises LocalError, beginning with `decorator`, for an option that does not exist, and what
    `check` raises."""
    for name in given:
        if name not in rules:
            raise LocalError(f"{decorator}: {unknown_option(name, rules)}")
    options = {name: given.get(name, defaults.get(name)) for name in rules}
    check(where, rules, options)
    return options


def _short(value: Any) -> str:
    """Return a value for an error, without the passwords of URLs in it."""
    text = re.sub(r"://[^\s'\"/]*@", "://***@", repr(value))
    return text if len(text) <= 100 else text[:97] + "..."


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and not isnan(value)


def whole(least: int) -> Rule:
    """An integer of at least `least`."""
    return Rule(
        lambda value: isinstance(value, int) and not isinstance(value, bool) and value >= least,
        f"a whole number of at least {least}",
    )


def one_of(*values: Any) -> Rule:
    """One of these values."""
    words = " or ".join(repr(value) for value in values)
    return Rule(lambda value: any(type(value) is type(one) and value == one for one in values), words)


def instance(kind: type | tuple[type, ...], words: str) -> Rule:
    """An instance of a class."""
    return Rule(lambda value: isinstance(value, kind), words, kind if isinstance(kind, tuple) else (kind,))


def many(rule: Rule) -> Rule:
    """Several values that keep one rule: a list, a tuple or the like, but not a single text. An iterator is not
    checked."""

    def fits(value: Any) -> bool:
        if isinstance(value, list | tuple | set | frozenset | dict):
            return all(rule.fits(one) for one in value)
        return isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping)

    return Rule(fits, f"a list, of which each is {rule.words}")


def mapping(rule: Rule) -> Rule:
    """A mapping from text to values that keep a rule."""
    return Rule(
        lambda value: isinstance(value, Mapping) and all(isinstance(k, str) and rule.fits(v) for k, v in value.items()),
        f"a dict from text to {rule.words}",
    )


NONE: Final = instance(NoneType, "None")
NOT_GIVEN: Final = instance(UnsetType, "left out")
ANYTHING: Final = Rule(lambda value: True, "anything")
TEXT: Final = instance(str, "text")
NAME: Final = Rule(lambda value: isinstance(value, str) and value != "", "text that is not empty")
FLAG: Final = instance(bool, "True or False")
CALLABLE: Final = Rule(callable, "a function or another callable")
SECONDS: Final = Rule(lambda value: _is_number(value) and value >= 0, "a number of seconds, 0 or more")
TIME: Final = Rule(lambda value: _is_number(value) and value > 0, "a number of seconds above 0")
TEXTS: Final = many(TEXT)
PAIRS: Final = mapping(TEXT)
CALL_TIME: Final = TIME | instance(NoneType, "None for ever")
"""How long a call may take."""

_BY_HINT: Final = {
    "int": whole(1),
    "int | None": whole(1) | NONE,
    "float": SECONDS,
    "float | None": SECONDS | NONE,
    "bool": FLAG,
    "str": TEXT,
    "str | None": TEXT | NONE,
}


def rules_of(kind: type[Struct], **others: Rule) -> Mapping[str, Rule]:
    """The rules of a Struct of options, from the annotations of its fields; `others` if the annotations do not suffice.

    An annotation that is unknown here and has no rule in `others` is a KeyError when the module is imported.
    """
    hints = kind.__annotations__
    return {name: others.get(name) or _BY_HINT[hints[name]] for name in kind.__struct_fields__}


def check_struct(options: Struct, rules: Mapping[str, Rule]) -> None:
    """`check` for a Struct of options: its fields by its rules."""
    kind = type(options)
    check(kind.__name__, rules, {name: getattr(options, name) for name in kind.__struct_fields__})


def among(kind: type[S], given: Mapping[str, Any], **others: Any) -> S:
    """Return a Struct of options made of a call's arguments, such as `locals()` at the top of a function: each field
    gets the argument of its name. `others`: fields with another name or value."""
    return kind(**{name: given[name] for name in kind.__struct_fields__ if name in given} | others)


def strict(where: str) -> Callable[[F], F]:
    """Make a function raise a LocalError, beginning with `where`, for an option that it does not have, with the name
    that was probably meant; Python's own TypeError names neither the public function nor the right name."""

    def wrapped(function: F) -> F:
        code: CodeType = function.__code__
        known = frozenset(code.co_varnames[code.co_posonlyargcount : code.co_argcount + code.co_kwonlyargcount])

        @wraps(function)
        def checked(*given: Any, **options: Any) -> Any:
            if not known.issuperset(options):
                wrong = next(name for name in options if name not in known)
                raise LocalError(f"{where}: {unknown_option(wrong, known - {'self'})}")
            return function(*given, **options)

        return cast("F", checked)

    return wrapped


def unknown_option(name: str, known: Iterable[str]) -> str:
    """The sentence about an option that does not exist."""
    return f"there is no option {name!r}; {nearest(name, known)}"


def nearest(name: str, known: Iterable[str]) -> str:
    """Return the clause for a name that does not exist: which name was probably meant, or which names there are."""
    listed = sorted(known)
    if near := alike(name, listed):
        return f"did you mean {near}?"
    return f"there are {', '.join(listed)}" if listed else "there is none"


def elsewhere(kind: str, instance: str, name: str, table: Mapping[str, str]) -> str:
    """Return the text of the AttributeError for an attribute that a class does not have. `kind`: the class; `instance`:
    the usual name of a variable of it; `table`: names of other libraries, and what they are called here."""
    text = f"{kind!r} object has no attribute {name!r}"
    there = table.get(name)
    if there is None:
        return text
    return f"{text}; here it is {there}" if there.startswith("dragoman.") else f"{text}; here it is {instance}.{there}"


ALIKE = 20
"""Names that are suggested for one that does not exist; a peer may have any number of them."""


def alike(name: str, known: Iterable[str]) -> str:
    """Up to `ALIKE` names of which `name` is a word (`size`: `message_size` or `list_size`), else the nearest one, or
    ""."""
    listed = list(known)
    near = [one for one in listed if name in one.replace("-", "_").split("_")][:ALIKE]
    *others, last = near or [nearest_name(name, listed)]
    return f"{', '.join(others)} or {last}" if others else last


def nearest_name(name: str, known: Iterable[str], similarity: float = 0.6) -> str:
    """Return the name that is most like `name`, or the same but for upper and lower case; "" if there is none.
    `similarity`: from 0 to 1, the least that counts."""
    from difflib import get_close_matches  # noqa: PLC0415  (start-up: for a fault)

    listed = list(known)
    near = get_close_matches(name, listed, 1, similarity)
    near = near or [one for one in listed if one.casefold() == name.casefold()]
    return near[0] if near else ""


def only_async(what: str, blocking: str) -> Callable[..., Any]:
    """Return the `__enter__` and `__exit__` of something that only `async with` enters: they raise a LocalError that
    says so. `what` begins its text, `blocking` ends it."""

    def refused(*_: object) -> Any:
        raise LocalError(f"{what} is entered by `async with`, not by `with`{blocking}")

    return refused
