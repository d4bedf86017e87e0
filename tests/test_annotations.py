"""Annotations of what users import resolve while a program runs: documentation tools, wrappers and containers of
dependencies ask `typing.get_type_hints`, for which a name that type checkers alone import is a NameError.

What is not imported at start-up is `Any` there: `if TYPE_CHECKING:` imports `SSLContext`, `else:` makes it `Any`.
"""

from __future__ import annotations

import importlib
import typing
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

import pytest

from .test_docstrings import ours
from .test_public_names import DOCUMENTED


def annotated() -> dict[str, Any]:
    """The classes and functions of ours that the documentation's namespaces export, and their public members."""
    found: dict[int, tuple[str, Any]] = {}
    for module in DOCUMENTED:
        door = importlib.import_module(module)
        for name in door.__all__:
            value = getattr(door, name)
            if not str(getattr(value, "__module__", "")).startswith("dragoman."):
                continue
            if isinstance(value, type):
                for path, one in members(value):
                    found.setdefault(id(one), (f"{module}.{name}{path}", one))
            elif isinstance(value, FunctionType):
                found.setdefault(id(value), (f"{module}.{name}", value))
    return dict(found.values())


def members(kind: type) -> Iterator[tuple[str, Any]]:
    yield "", kind
    for own in ours(kind):
        for name, value in vars(own).items():
            function = getattr(value, "fget", None) or getattr(value, "__func__", None) or value
            if (name == "__init__" or not name.startswith("_")) and isinstance(function, FunctionType):
                yield f".{name}", function


FOUND = annotated()


@pytest.mark.parametrize("name", sorted(FOUND))
def test_annotations_resolve_at_run_time(name: str) -> None:
    typing.get_type_hints(FOUND[name], include_extras=True)


def test_functions_of_every_kind_are_looked_at() -> None:
    wanted = {"dragoman.serve", "dragoman.connect", "dragoman.http_app", "dragoman.Service.__init__"}
    assert wanted <= FOUND.keys()
    assert {
        "dragoman.mcp.Client.call_tool",
        "dragoman.mcp.Server.info",
        "dragoman.auth.Login.authorizing",
    } <= FOUND.keys()


def test_a_name_for_type_checkers_alone_does_not_resolve() -> None:
    function: Callable[..., Any] = lambda: None  # noqa: E731
    function.__annotations__ = {"return": "OnlyForTypeCheckers"}
    with pytest.raises(NameError):
        typing.get_type_hints(function)
