"""How a package gives names of its modules without importing them: a module is imported when one of its names is used.

A package says what it gives three times, and a test compares them: plain imports under `TYPE_CHECKING`, which checkers
and editors read; a table for `door`, used at run time only, so that a misspelt import fails the type check; `__all__`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def door(package: str, gives: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The `__getattr__` and `__dir__` of a package. `package`: its `__name__`; `gives`: for each module below the
    package the names that it gives, separated by white space."""
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
