"""Makes a release and checks it, without a network: `make release`.

It builds the sdist and from it the wheel, checks their metadata and the README as an index shows it, installs the wheel
in an environment of its own, and prints the part of CHANGELOG.md. What is left is to upload `dist/`.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

from dragoman import __version__
from tests.snippets import ROOT

DIST = ROOT / "dist"
SECTION = re.compile(r"^## (\S+) \((unreleased|\d{4}-\d\d-\d\d)\)\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)


def changes(version: str) -> tuple[str, str]:
    """The date of a version in CHANGELOG.md ("unreleased" without one), and what has changed."""
    for name, date, text in SECTION.findall((ROOT / "CHANGELOG.md").read_text()):
        if name == version:
            return date, text.strip()
    raise SystemExit(f"CHANGELOG.md has no part '## {version} (DATE)': write one")


def build(folder: Path) -> list[Path]:
    """The sdist and the wheel, new in a folder."""
    shutil.rmtree(folder, ignore_errors=True)
    run("-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT))
    return sorted(folder.iterdir())


def install(wheel: Path) -> str:
    """What the command of a wheel that is installed alone says of its version."""
    with tempfile.TemporaryDirectory() as place:
        venv.create(place, with_pip=True)
        python = Path(place) / "bin" / "python"
        run("-m", "pip", "install", "--quiet", "--no-index", "--no-deps", str(wheel), python=python)
        return run("-m", "dragoman", "--version", python=python).strip()


def run(*words: str, python: Path = Path(sys.executable)) -> str:
    """Run a module of Python, outside the sources; its output."""
    command = [str(python), *words]
    done = subprocess.run(command, cwd=tempfile.gettempdir(), capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(words)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def main() -> None:
    """Make it, check it, and say what is left to do."""
    date, text = changes(__version__)
    files = build(DIST)
    run("-m", "twine", "check", "--strict", *map(str, files))
    (wheel,) = [file for file in files if file.suffix == ".whl"]
    said = install(wheel)
    if said != f"dragoman {__version__}":
        raise SystemExit(f"the wheel says {said!r}, and src/dragoman/__init__.py {__version__!r}")
    print(text, "\n")
    for file in files:
        print(f"{file.relative_to(ROOT)}  {file.stat().st_size:,} bytes")
    if date == "unreleased":
        print(f"not yet: '## {__version__} (unreleased)' in CHANGELOG.md has no date; git tag v{__version__} after it")
    else:
        print(f"left to do: git tag v{__version__}; twine upload dist/*")


if __name__ == "__main__":
    main()
