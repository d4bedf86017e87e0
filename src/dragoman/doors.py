"""Imports the modules of a package when their names are first used.

A package states its names three times, and a test compares them: plain imports under `TYPE_CHECKING`, which type
checkers and editors read; a table for `door`, used at run time only, so that a type checker finds a misspelt import;
`__all__`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def door(package: str, gives: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The `__getattr__` and `__dir__` of a package. `package`: its `__name__`; `gives`: for each module in the package,
    the names that the package exports from it, separated by white space."""
    places = {name: module for module, names in gives.items() for name in names.split()}

    def take(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(f".{places[name]}", package), name)
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *places})

    return take, names
