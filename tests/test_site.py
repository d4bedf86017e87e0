"""The documentation site: it builds without a complaint, has every page and every public name, and loads nothing from
elsewhere."""

from __future__ import annotations

import importlib
import json
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import griffe
import pytest

from tests.snippets import ROOT

CONFIG = tomllib.loads((ROOT / "zensical.toml").read_text())["project"]
LOADED = re.compile(r'<(?:script|img|iframe|link)\b[^>]*\b(?:src|href)="(?:https?:)?//[^"]*"[^>]*>')
"""An element that makes a browser load something from another host."""


def navigated(entries: list[object]) -> Iterator[str]:
    """The pages of a navigation."""
    for entry in entries:
        match entry:
            case str():
                yield entry
            case dict():
                for value in entry.values():
                    yield from navigated(value if isinstance(value, list) else [value])


def test_every_page_is_in_the_navigation_once() -> None:
    found = list(navigated(CONFIG["nav"]))
    pages = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")}
    assert sorted(found) == sorted(pages)


@pytest.mark.parametrize(
    "module",
    [
        "dragoman",
        "dragoman.jsonrpc",
        "dragoman.mcp",
        "dragoman.middleware",
        "dragoman.routes",
        "dragoman.store",
        "dragoman.sync",
        "dragoman.telemetry",
        "dragoman.testing",
    ],
)
def test_every_public_name_is_in_the_reference_once(module: str) -> None:
    texts = [path.read_text() for path in sorted((ROOT / "docs" / "reference").glob("*.md"))]
    found = re.findall(rf"^::: {re.escape(module)}\.(\w+)$", "\n".join(texts), re.MULTILINE)
    again = {"Limits", "RpcError"} if module == "dragoman.jsonrpc" else set()  # those of `dragoman`, where they stand
    assert sorted(found) == sorted(set(importlib.import_module(module).__all__) - again)


def test_the_site_builds_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    for name in ("docs", "src"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "zensical.toml", tmp_path)
    (tmp_path / "tests").mkdir()
    shutil.copy(ROOT / "tests" / "reference.py", tmp_path / "tests")
    command = [str(Path(sys.executable).parent / "zensical"), "build", "--strict"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    pages = sorted((tmp_path / "site").rglob("*.html"))
    assert len(pages) > len(list(navigated(CONFIG["nav"])))  # and the page for what is not found
    for page in pages:
        text = page.read_text()
        assert not LOADED.findall(text), page
        assert 'class="mermaid"' not in text, f"{page} would load the program that draws it"
    shown = (tmp_path / "site/reference/services/index.html").read_text()
    assert 'id="dragoman.Service.method"' in shown
    searched = {
        one["location"]: one["text"] for one in json.loads((tmp_path / "site/search.json").read_text())["items"]
    }
    assert "Missing argument" in searched["errors/#faults-of-arguments"]
    assert "takes no new calls" in searched["errors/#errors-that-cross-the-wire"]
    assert not [location for location in searched if location.startswith(("architecture", "decisions", "mutants"))]


def test_the_reference_shows_no_constants_of_the_inside() -> None:
    """A default is what it is, and not the name of a constant of its module."""
    package = griffe.load(
        "dragoman",
        search_paths=[str(ROOT / "src")],
        extensions=griffe.load_extensions(str(ROOT / "tests" / "reference.py")),
    )
    bearer = package["auth.Bearer"].final_target
    defaults = {one.name: str(one.default) for one in bearer.members["__init__"].parameters}
    assert defaults["leeway"] == "30.0"
    assert bearer["issuers"].value is None
