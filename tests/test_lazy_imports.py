"""Imports within functions: these and no others, each with its reason; all else is imported where a module begins."""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Iterator
from functools import cache
from importlib.util import resolve_name
from pathlib import Path
from typing import Final

import pytest

import dragoman

ROOT: Final = Path(dragoman.__file__).parents[1]

EXTRA: Final = "an optional extra that may not be installed: the words that name it stand beside the import"
EVENTS: Final = "start-up: asyncio, of which a service that is only asked needs nothing"
WIRE: Final = "start-up: a wire that most programs never open"
TRACE: Final = "start-up: a trace that most programs never take"
WORKERS: Final = "start-up: what only a supervisor's worker needs"
INSPECT: Final = "start-up: the standard library's inspect, which plain functions do not need"

LAZY: Final = {
    ("dragoman.cli", "dragoman.cli.app"): EXTRA,
    ("dragoman.cli.serving.reload", "watchfiles"): EXTRA,
    ("dragoman.connecting", "dragoman.transports.memory"): WIRE,
    ("dragoman.mcp.asking.request_state", "itsdangerous"): EXTRA,
    ("dragoman.rpc.observing", "dragoman.rpc.tracing"): TRACE,
    ("dragoman.mcp.client.session", "dragoman.mcp.client.http.legacy_2024"): WIRE,
    ("dragoman.mcp.client.session", "dragoman.mcp.client.http.posts"): WIRE,
    ("dragoman.mcp.server.server", "dragoman.mcp.http.endpoint"): WIRE,
    ("dragoman.rpc.binding.json_schema", "jsonschema_rs"): EXTRA,
    ("dragoman.rpc.binding.signature", "inspect"): INSPECT,
    ("dragoman.rpc.service", "dragoman.rpc.runner"): EVENTS,
    ("dragoman.rpc.service", "dragoman.rpc.background"): EVENTS,
    ("dragoman.serving", "dragoman.net.accept"): WORKERS,
    ("dragoman.serving", "dragoman.workers.worker"): WORKERS,
    ("dragoman.serving", "dragoman.transports.http.app"): WIRE,
    ("dragoman.serving", "dragoman.transports.stream.stdio"): WIRE,
    ("dragoman.transports.http.connection", "dragoman.transports.http.websocket"): EXTRA,
    ("dragoman.transports.http.listener", "dragoman.transports.http.websocket"): EXTRA,
}
"""(The module, what is imported within one of its functions) -> why."""

BY_NAME: Final = {
    "dragoman.cli.serving.serve": "uvloop, an optional extra",
    "dragoman.cli.target": "the application that the command line names",
    "dragoman.doors": "a package's public names, each when it is first asked for",
    "dragoman.net.scheme": "a scheme's wire, when a URL has it",
}
"""Modules that import by a name made at run time -> what."""


@cache
def modules() -> dict[str, ast.Module]:
    """Every module of the package, parsed."""
    found = {}
    for path in sorted((ROOT / "dragoman").rglob("*.py")):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        found[name] = ast.parse(path.read_text(encoding="utf-8"))
    return found


def package(module: str) -> str:
    """What the dots of a module's relative imports count from."""
    path = ROOT.joinpath(*module.split("."))
    return module if path.is_dir() else module.rpartition(".")[0]


def names(module: str, node: ast.Import | ast.ImportFrom) -> Iterator[str]:
    """The modules that a statement imports, each by its full name."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
        return
    base = resolve_name("." * node.level + (node.module or ""), package(module)) if node.level else str(node.module)
    below = {f"{base}.{alias.name}" for alias in node.names} & set(modules())
    yield from below
    if len(below) < len(node.names):
        yield base


def found(module: str) -> Iterator[tuple[str, bool]]:
    """What a module imports, and whether within a function. What is for types alone is left out."""

    def walk(node: ast.AST, within: bool) -> Iterator[tuple[str, bool]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
                continue
            if isinstance(child, ast.Import | ast.ImportFrom):
                yield from ((name, within) for name in names(module, child))
            yield from walk(child, within or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef))

    yield from walk(modules()[module], False)


@cache
def loaded(module: str) -> frozenset[str]:
    """What is imported by the time that a module is: it, what it imports, and the packages that they are in."""
    known: set[str] = set()
    due = deque([module])
    while due:
        name = due.popleft()
        if name not in known:
            known.add(name)
            if name in modules():
                due.extend(other for other, within in found(name) if not within)
                due.extend(filter(None, [name.rpartition(".")[0]]))
    return frozenset(known)


def test_lazy_imports_are_these_and_no_others() -> None:
    lazy = {(module, name) for module in modules() for name, within in found(module) if within}
    assert lazy == set(LAZY)


@pytest.mark.parametrize(("module", "name"), LAZY)
def test_a_lazy_import_is_needed(module: str, name: str) -> None:
    """Nothing that its module imports where it begins has imported it by then."""
    assert name not in loaded(module)


def test_modules_that_import_by_name_are_these_and_no_others() -> None:
    by_name = {
        module
        for module, tree in modules().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in ("import_module", "__import__")
    }
    assert by_name == set(BY_NAME)
