"""`dragoman serve --config FILE`: the options of `serve` from a TOML file and from the environment.

Rules:

- The table of options is that of the command line: a key of the file is an option's name (`log-level` or
  `log_level`), a variable is `DRAGOMAN_SERVE_LOG_LEVEL`. `target` and `urls` stand in both too; in the file `limit` may
  be a table.
- An option goes before a variable, and a variable before the file.
- Every fault of the file is reported at once: where, what, and what would be right.
- Paths are those of the current folder, as on the command line.
"""

from __future__ import annotations

import os
import re
import tomllib
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any, Literal, TypeAlias, Union, get_args, get_origin, get_type_hints

import msgspec
from cyclopts.config import Dict, Env

from ...system.files import reason_of
from ..arguments import unread
from ..exit_status import Usage, suggest_name

PREFIX = "DRAGOMAN_SERVE_"
LONGEST = 1 << 20
"""Bytes of a file: what is longer is something else."""
_NOT_THERE = ("config", "check")
"""Options that say where to read from, or not to serve."""


Source: TypeAlias = Callable[..., Any]
"""As cyclopts takes it: adds values to the arguments of a command."""
Data: TypeAlias = Mapping[str, Any]
"""What a file says, by option."""


class OptionTable:
    """Every option, by its name on the command line, and its type."""

    def __init__(self, *groups: type) -> None:
        self.types: dict[str, Any] = {"target": str, "urls": list[str]}
        for group in groups:
            hints = get_type_hints(group)
            self.types |= {one.name.replace("_", "-"): hints[one.name] for one in fields(group)}
        for name in _NOT_THERE:
            del self.types[name]

    @property
    def variables(self) -> list[str]:
        """What the environment may say."""
        return [PREFIX + name.upper().replace("-", "_") for name in (*self.types, *_NOT_THERE)]

    def fault(self, name: str, value: Any) -> str:
        """What is wrong with the value of a key; "" when it fits."""
        if name not in self.types:
            return f"there is no such option; {suggest_name(name, self.types, 'there are ' + ', '.join(sorted(self.types)))}"
        wanted = self.types[name]
        choices = _choices(wanted)
        if choices and value not in choices:
            return f"{value!r}: write one of {', '.join(map(repr, choices))}"
        try:
            msgspec.convert(value, dict[str, str | int | float] | list[str] if name == "limit" else wanted)
        except msgspec.ValidationError as why:
            return _in_words(str(why))
        return ""


class FaultyOptions(Usage):
    """The file or its content is wrong: every fault, a line each."""

    def __init__(self, faults: Sequence[str]) -> None:
        super().__init__("\n".join(faults))
        self.faults: tuple[str, ...] = tuple(faults)


def read(path: str) -> dict[str, Any]:
    """What a file says, by option. Raises FaultyOptions for one that cannot be read."""
    try:
        with open(path, "rb") as file:
            raw = file.read(LONGEST + 1)
    except OSError as why:
        raise FaultyOptions([f"--config {path}: {reason_of(why)}"]) from None
    if len(raw) > LONGEST:
        raise FaultyOptions([f"--config {path}: it has more than {LONGEST} bytes; a file of options is shorter"])
    try:
        found = tomllib.loads(raw.decode())
    except UnicodeDecodeError as why:
        raise FaultyOptions([f"{path}: byte {why.start} is not UTF-8, which TOML is"]) from None
    except tomllib.TOMLDecodeError as why:
        raise FaultyOptions([f"{path}: {_lower(str(why))}; write name = value, with text in quotes"]) from None
    return {name.replace("_", "-"): value for name, value in found.items()}


def faults(data: Mapping[str, Any], path: str, table: OptionTable) -> dict[str, str]:
    """A sentence for each key that is wrong."""
    found = {name: table.fault(name, value) for name, value in data.items()}
    return {name: f"{path}: {name}: {why}" for name, why in found.items() if why}


def unknown_variables(table: OptionTable, environment: Mapping[str, str] = os.environ) -> list[str]:
    """A sentence for each variable DRAGOMAN_SERVE_... that is not an option."""
    known = table.variables
    return [
        f"the environment's {name} is not an option of serve; {suggest_name(name, known, 'dragoman serve --help lists them')}"
        for name in sorted(environment)
        if name.startswith(PREFIX) and name not in known
    ]


def sources(path: str | None, table: OptionTable) -> tuple[list[Source], dict[str, Any]]:
    """Where options come from besides the command line, the foremost first, and what the file says. Raises
    FaultyOptions with every fault of the file."""
    found, data, wrong = read_sources(path, table)
    if wrong:
        raise FaultyOptions(wrong)
    return found, data


def read_sources(path: str | None, table: OptionTable) -> tuple[list[Source], dict[str, Any], list[str]]:
    """Where options come from, what the file says without what is wrong, and the faults: for `--check`."""
    environment = Env(PREFIX, command=False, show=False)
    target = os.environ.get(f"{PREFIX}TARGET")
    named = {} if target is None else {"target": target}
    if path is None:
        return [environment], named, []
    try:
        data = read(path)
    except FaultyOptions as why:
        return [environment], named, list(why.faults)
    wrong = faults(data, path, table)
    data = {name: value for name, value in data.items() if name not in wrong}
    return [environment, _find_faults(data, path)], data | named, list(wrong.values())


def _find_faults(data: Mapping[str, Any], path: str) -> Source:
    values = {name: value for name, value in data.items() if name not in ("target", "urls")}
    if isinstance(limits := values.get("limit"), dict):
        values["limit"] = [f"{name}={value}" for name, value in limits.items()]
    found = Dict(values, source=path)
    return lambda app, _, arguments: found(app, (), arguments)  # beside others, `console` would be that command


def _choices(wanted: Any) -> tuple[Any, ...]:
    if get_origin(wanted) is Literal:
        return get_args(wanted)
    if get_origin(wanted) in (Union, types.UnionType):
        return tuple(value for part in get_args(wanted) for value in _choices(part))
    return ()


_KINDS = {
    "str": "text in quotes",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "array": "a list in brackets",
    "object": "a table",
}


def _in_words(text: str) -> str:
    """What msgspec says of a value, in words of TOML."""
    text = text.partition(" - at ")[0].replace(" | null", "")
    return _lower(re.sub("`([^`]*)`", lambda m: " or ".join(_KINDS.get(one, one) for one in m[1].split(" | ")), text))


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]


def path_of(arguments: Sequence[str], environment: Mapping[str, str] = os.environ) -> str | None:
    """The file that the command line names, or the environment."""
    return next(iter(unread("--config", arguments)), None) or environment.get(f"{PREFIX}CONFIG") or None
