"""The declaration of an MCP extension, one value for both ends. Pure.

An extension has a name and settings, which both ends put into `capabilities.extensions`; it may add methods, and values
of `resultType` (2026-07-28's basic/versioning, "Extension Negotiation"; basic/index, "ResultType"). Its functions are
given to the server and the client: see `server.extensions` and `client.extensions`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec
from msgspec import NODEFAULT, UNSET, Struct, UnsetType, field

from ...jsonrpc.errors import LocalError
from .methods import METHODS, Row
from .params import COMPLETE, INPUT_REQUIRED

_LABEL: Final = r"[A-Za-z](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_NAME: Final = rf"{_LABEL}(?:\.{_LABEL})*/[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"


class Extension(Struct, frozen=True, kw_only=True):
    """What an extension declares.

    Raises LocalError for a name without a prefix ("com.example/echo" has one), for methods that the protocol has
    itself, and for the protocol's own values of `resultType`.
    """

    name: str
    """"Extension identifiers MUST follow the `_meta` key naming rules, with a mandatory prefix"."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """The value for its name in `capabilities.extensions`, a JSON object."""
    methods: tuple[Row, ...] = ()
    """Methods that it adds, in the revisions of their rows."""
    results: Mapping[str, type[Struct]] = field(default_factory=dict)
    """Values of `resultType` that it adds, with the types of these results."""

    def __post_init__(self) -> None:
        if re.fullmatch(_NAME, self.name) is None:
            raise LocalError(f"{self.name!r} names no extension: it has a prefix and a name, as in com.example/echo")
        for row in self.methods:
            if not isinstance(row, Row):
                raise LocalError(f"{self.name}: methods are rows, Row(name, params, result), and not {row!r:.100}")
            if row.name in METHODS:
                raise LocalError(f"{self.name}: {row.name} is a method of the protocol itself")
            if row.ask:
                _check_fields(row.params, f"{self.name}: {row.name} may ask", "input_responses", "request_state")
            if row.cacheable:
                _check_fields(row.result, f"{self.name}: {row.name} is cacheable", "ttl_ms", "cache_scope")
        for kind, result in self.results.items():
            if kind in (COMPLETE, INPUT_REQUIRED) or not (isinstance(result, type) and issubclass(result, Struct)):
                raise LocalError(f"{self.name}: results are Structs by a resultType of their own, and not {kind!r}")
            if (wrong := _result_type_fault(result, kind)) is not None:
                raise LocalError(f"{self.name}: {result.__name__} cannot be a result of the type {kind!r}: {wrong}")


def _result_type_fault(result: type[Struct], kind: str) -> str | None:
    """Return why the results of a type would have another `resultType` than `kind`; None if they have this one. A type
    without such a member gets it when it is sent."""
    config = result.__struct_config__
    if config.array_like:
        return "it is an array in JSON"
    if config.tag is not None and config.tag_field == "resultType":
        return None if config.tag == kind else f"its tag is {config.tag!r}"
    tag = next((one for one in msgspec.structs.fields(result) if one.encode_name == "resultType"), None)
    if tag is None:
        return None
    if tag.default not in (NODEFAULT, kind):
        return f"its {tag.name} is {tag.default!r}"
    return "omit_defaults leaves it out" if config.omit_defaults and tag.default == kind else None


def _check_fields(kind: type[Struct] | None, what: str, *names: str) -> None:
    if not all(hasattr(kind, name) for name in names):
        raise LocalError(f"{what}: then {kind!r} has the fields {' and '.join(names)}")


class Extensions:
    """The extensions of one server or client. `methods`: the protocol's and theirs, by name. Raises LocalError for two
    with the same name, method or `resultType`."""

    def __init__(self, those: Iterable[Extension] = ()) -> None:
        self.all: tuple[Extension, ...] = tuple(those)
        self.methods: dict[str, Row] = dict(METHODS)
        self.results: dict[str, type[Struct]] = {}
        self._by_method: dict[str, Extension] = {}
        names: set[str] = set()
        for one in self.all:
            if one.name in names:
                raise LocalError(f"the extension {one.name} is given twice")
            names.add(one.name)
            for row in one.methods:
                if row.name in self._by_method:
                    raise LocalError(f"{one.name} and {self._by_method[row.name].name} both have the method {row.name}")
                self.methods[row.name] = row
                self._by_method[row.name] = one
            for kind, result in one.results.items():
                if kind in self.results:
                    raise LocalError(f"{one.name}: another extension has the resultType {kind!r} already")
                self.results[kind] = result

    def of_method(self, name: str) -> Extension | None:
        """Return the extension that adds a method; None: it is the protocol's, or unknown."""
        return self._by_method.get(name)

    @property
    def declared(self) -> dict[str, Any] | UnsetType:
        """The value of `capabilities.extensions`; UNSET without extensions."""
        return {one.name: dict(one.settings) for one in self.all} if self.all else UNSET


NONE: Final = Extensions()
"""No extensions: only the protocol's own methods."""
