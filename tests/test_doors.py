"""Packages give names of their modules lazily: what they give is the same for a checker, at run time and for `*`."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import mypy.api
import pytest

import dragoman

ROOT = Path(dragoman.__file__).parent
DOORS = sorted(path.parent for path in ROOT.rglob("__init__.py") if "= door(" in path.read_text())
NAMES = [".".join(("dragoman", *folder.relative_to(ROOT).parts)) for folder in DOORS]


def checked(tree: ast.Module) -> dict[str, set[str]]:
    """What a checker reads: the names by module."""
    (block,) = (node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    assert all(alias.asname is None for node in imports for alias in node.names)
    return {"." * (node.level - 1) + (node.module or ""): {alias.name for alias in node.names} for node in imports}


def used(tree: ast.Module) -> dict[str, set[str]]:
    """What is used at run time: the names by module."""
    (call,) = (node for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func) == "door")
    table: dict[str, str] = ast.literal_eval(call.args[1])
    return {module: set(names.split()) for module, names in table.items()}


@pytest.mark.parametrize("folder", DOORS, ids=NAMES)
def test_a_door_says_the_same_three_times(folder: Path) -> None:
    tree = ast.parse((folder / "__init__.py").read_text())
    assert checked(tree) == used(tree)
    (names,) = (
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    )
    assert set(names) == set().union(*used(tree).values())


@pytest.mark.parametrize("folder", DOORS, ids=NAMES)
def test_no_door_gives_a_name_that_is_a_module_of_its_room(folder: Path) -> None:
    names = set().union(*used(ast.parse((folder / "__init__.py").read_text())).values())
    assert not names & {path.stem for path in folder.iterdir()}  # `from room import name` would be either


@pytest.mark.parametrize("package", NAMES)
def test_what_a_door_gives_is_there_and_nothing_else(package: str) -> None:
    module = importlib.import_module(package)
    assert {name for name in module.__all__ if getattr(module, name, None) is None} == set()
    assert set(module.__all__) <= set(dir(module))
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'misspelt'"):
        module.misspelt  # noqa: B018


def test_a_misspelt_import_fails_the_type_check(tmp_path: Path) -> None:
    source = tmp_path / "misspelt.py"
    source.write_text("".join(f"from {package} import misspelt\n" for package in NAMES))
    said, _, status = mypy.api.run([str(source), "--config-file", str(ROOT.parents[1] / "pyproject.toml")])
    assert status == 1, said
    for line, package in enumerate(NAMES, 1):
        assert f'misspelt.py:{line}: error: Module "{package}" has no attribute "misspelt"' in said
