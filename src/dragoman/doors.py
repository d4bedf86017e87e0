"""Imports the modules of a package when their names are first used.

A package states its names three times, and a test compares them: plain imports under `TYPE_CHECKING`, which type
checkers and editors read; a table for `door`, used at run time only, so that a type checker finds a misspelt import;
`__all__`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any, Final


def public_dir(name: str) -> Callable[[], list[str]]:
    """The `__dir__` of a package or module: what its `__all__` has, the packages and modules below it that are loaded
    and have an `__all__`, and the names with two underscores. `name`: its `__name__`."""

    def names() -> list[str]:
        module = sys.modules[name]
        below = (one for one, value in vars(module).items() if _public(name, one, value))
        return sorted({*module.__all__, *below, *(one for one in vars(module) if one.startswith("__"))})

    return names


def _public(package: str, name: str, value: Any) -> bool:
    return isinstance(value, ModuleType) and value.__name__ == f"{package}.{name}" and "__all__" in vars(value)


ROOMS: Final = ("dragoman", "dragoman.mcp", "dragoman.auth")
"""Packages in which a name is looked up that is missing from another of them."""
OTHER_NAMES: Final = {"FastMCP": "Server", "MCPServer": "Server", "ClientSession": "Client"}
"""Names of other libraries, and what they are called here."""


def _exporter(name: str, package: str) -> str:
    """The other package that exports a name; "" where none does, or the name is a module of this package."""
    if name.startswith("_") or package not in ROOMS or find_spec(f"{package}.{name}") is not None:
        return ""
    wanted = OTHER_NAMES.get(name, name)
    return next(
        (room for room in ROOMS if wanted in import_module(room).__all__ and (room != package or wanted != name)), ""
    )


def door(package: str, exports: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The `__getattr__` and `__dir__` of a package. `package`: its `__name__`; `exports`: for each module in the
    package, the names that the package exports from it, separated by white space."""
    modules = {name: module for module, names in exports.items() for name in names.split()}

    def get(name: str) -> Any:
        if name not in modules:
            text = f"module {package!r} has no attribute {name!r}"
            if other := _exporter(name, package):
                text += f"; write from {other} import {OTHER_NAMES.get(name, name)}"
                # an AttributeError in `from package import name` becomes an ImportError without these words
                if sys._getframe(1).f_code.co_name == "_handle_fromlist":
                    raise ImportError(text, name=name, path=sys.modules[package].__file__)
            raise AttributeError(text)
        value = getattr(import_module(f".{modules[name]}", package), name)
        setattr(sys.modules[package], name, value)
        return value

    return get, public_dir(package)
