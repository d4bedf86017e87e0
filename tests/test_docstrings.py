"""Each public name has a docstring: what the documented packages and modules export, and of their classes each public
method, property and attribute.

An attribute is described by the text below it, or by its name in backticks in the docstring of its class, of
`__init__` or of a base class. Members that many types of MCP have are described once, in the modules of these types.
"""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import re
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from .test_public_names import DOCUMENTED

SHARED = ("dragoman.mcp.protocol.types", "dragoman.mcp.protocol.params")
"""The modules whose docstring describes members of many of their types."""


@functools.cache
def _tree(path: str) -> ast.Module:
    return ast.parse(Path(path).read_text("utf-8"))


def _class(kind: type) -> ast.ClassDef:
    found = [
        node
        for node in ast.walk(_tree(inspect.getsourcefile(kind) or ""))
        if isinstance(node, ast.ClassDef) and node.name == kind.__name__
    ]
    return found[0]


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _assigned(body: list[ast.stmt], owner: str | None) -> Iterator[tuple[str, bool]]:
    """The names that a class's body assigns, or those of `owner` (`self`) that a method's does, and whether a text
    stands below."""
    for node, below in zip_longest(body, body[1:]):
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        for target in targets:
            for one in target.elts if isinstance(target, ast.Tuple) else [target]:
                if owner is None and isinstance(one, ast.Name):
                    yield one.id, below is not None and _is_text(below)
                elif isinstance(one, ast.Attribute) and isinstance(one.value, ast.Name) and one.value.id == owner:
                    yield one.attr, below is not None and _is_text(below)
        for part in ("body", "orelse", "finalbody"):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                yield from _assigned(getattr(node, part, []), owner)


def attributes_of(kind: type) -> dict[str, bool]:
    """The public attributes that a class itself assigns, and whether a text stands below one of the assignments."""
    node = _class(kind)
    found = list(_assigned(node.body, None))
    for function in node.body:
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef) and function.args.args:
            found.extend(_assigned(function.body, function.args.args[0].arg))
    return {name: any(told for one, told in found if one == name) for name, _ in found if not name.startswith("_")}


def _texts(kind: type) -> str:
    """Where a class may describe its attributes."""
    texts = [kind.__doc__, kind.__init__.__doc__]  # type: ignore[misc]
    if kind.__module__ in SHARED:
        texts += [importlib.import_module(kind.__module__).__doc__, importlib.import_module(SHARED[0]).__doc__]
    return "\n".join(text for text in texts if text)


def ours(kind: type) -> list[type]:
    """The class and its bases, as far as they are of its own package."""
    package = kind.__module__.partition(".")[0]
    return [one for one in kind.__mro__ if one.__module__.partition(".")[0] == package]


def _lacking_attributes(kind: type) -> Iterator[str]:
    bases = ours(kind)
    told = {name for one in bases for name, text in attributes_of(one).items() if text}
    texts = "\n".join(map(_texts, bases))
    for one in bases:
        for name in attributes_of(one):
            described = name in told or re.search(rf"`{name}[`(=]", texts) or callable(vars(one).get(name))
            if not described:
                yield f"{one.__module__}.{one.__name__}.{name}"


def _lacking_methods(kind: type) -> Iterator[str]:
    for one in ours(kind):
        for name, value in vars(one).items():
            inner = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
            if inspect.isfunction(inner) and not name.startswith("_") and not inner.__doc__:
                yield f"{one.__module__}.{one.__name__}.{name}"


def lacking(module: ModuleType) -> set[str]:
    """The public names of a module, and those of its classes, that nothing describes."""
    found: set[str] = set()
    for name in module.__all__:
        value: Any = getattr(module, name)
        if inspect.isclass(value):
            found.update(_lacking_attributes(value), _lacking_methods(value))
        if (inspect.isclass(value) or inspect.isfunction(value)) and not value.__doc__:
            found.add(f"{module.__name__}.{name}")
    return found


@pytest.mark.parametrize("name", DOCUMENTED)
def test_every_public_name_is_described(name: str) -> None:
    assert sorted(lacking(importlib.import_module(name))) == []


SAMPLE = '''
__all__ = ["Bare", "mute"]

class Base:
    """Has `shared`."""

class Bare(Base):
    """One with `named`."""

    told = 1
    """Described."""
    named = 2
    shared = 3
    bare = 4
    _private = 5

    def __init__(self):
        self.kept, self.left = 6, 7
        """Described."""
        if self.kept:
            self.deep = 8

    def silent(self): ...

    def spoken(self):
        """Described."""

def mute(): ...
'''


def test_what_is_not_described_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "described_or_not.py").write_text(SAMPLE)
    monkeypatch.syspath_prepend(tmp_path)
    found = lacking(importlib.import_module("described_or_not"))
    assert found == {"described_or_not.mute"} | {f"described_or_not.Bare.{name}" for name in ("bare", "deep", "silent")}
