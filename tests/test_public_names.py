"""`dir` of each package and module that the documentation names shows public names only."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "docs").rglob("*.py")),
    *sorted((ROOT / "examples").rglob("*.py")),
]
_NAMED = re.compile(r"(?:from|import) (dragoman(?:\.[a-z_0-9]+)*)")


def _named() -> list[str]:
    """The packages and modules from which the documentation and the examples import."""
    return sorted({name for page in PAGES for name in _NAMED.findall(page.read_text("utf-8"))})


DOCUMENTED = _named()


def test_the_documentation_names_the_usual_ones() -> None:
    assert {"dragoman", "dragoman.mcp", "dragoman.sync", "dragoman.testing", "dragoman.channel"} <= set(DOCUMENTED)


@pytest.mark.parametrize("name", DOCUMENTED)
def test_dir_shows_what_is_exported_and_nothing_else(name: str) -> None:
    module = importlib.import_module(name)
    shown = {one for one in dir(module) if not one.startswith("_")}
    below = {one for one in shown if _exporting(module, one)}
    assert shown - below == set(module.__all__)
    assert len(module.__all__) == len(set(module.__all__))


def _exporting(module: ModuleType, name: str) -> bool:
    """Whether this is a package or module below, which says itself what it exports."""
    value = vars(module).get(name)
    return isinstance(value, ModuleType) and value.__name__ == f"{module.__name__}.{name}" and hasattr(value, "__all__")
