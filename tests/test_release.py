"""A release is made offline, installs by itself, and has its part in the changelog."""

from __future__ import annotations

import re
import tomllib
import zipfile
from pathlib import Path

import pytest

from dragoman import __version__
from tests.release import build, changes, install, run
from tests.snippets import ROOT


def test_the_version_has_its_changes() -> None:
    _, text = changes(__version__)
    assert text.startswith("### ")
    with pytest.raises(SystemExit, match=r"CHANGELOG\.md has no part '## 99\.0\.0"):
        changes("99.0.0")


def test_a_release_is_built_checked_and_installed_without_a_network(tmp_path: Path) -> None:
    sdist, wheel = sorted(build(tmp_path / "dist"), key=lambda file: file.suffix == ".whl")
    assert (sdist.name, wheel.name) == (f"dragoman-{__version__}.tar.gz", f"dragoman-{__version__}-py3-none-any.whl")
    assert run("-m", "twine", "check", "--strict", str(sdist), str(wheel)).count("PASSED") == 2
    names = set(zipfile.ZipFile(wheel).namelist())
    ours = {str(path.relative_to(ROOT / "src")) for path in (ROOT / "src" / "dragoman").rglob("*") if path.is_file()}
    assert {name for name in ours if "__pycache__" not in name} <= names
    assert not [name for name in names if name.startswith(("tests", "docs"))]
    assert install(wheel) == f"dragoman {__version__}"


def test_what_has_no_1_0_yet_has_a_ceiling() -> None:
    """A minor version before 1.0 may change anything; the next major one is not admitted before it was tried."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    groups = {"": project["dependencies"], **project["optional-dependencies"]}
    every = [one for group in groups.values() for one in group]
    assert not [one for one in every if re.search(r">=0\.", one) and "<" not in one]
