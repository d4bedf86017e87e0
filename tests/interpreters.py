"""The tests of `FOLDERS` on each interpreter that the project is for and that is found: on PATH, or in pyenv's folders.

    python -m tests.interpreters [pytest's arguments]

The interpreter that runs this is left to `make test`, and so are tests that are marked as slow: they wait for peers.
With CI=true it is a failure to find fewer than `LEAST` in all.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDERS = ("tests/jsonrpc", "tests/rpc", "tests/transports", "tests/mcp")
LEAST = 3
OWN = f"{sys.version_info.major}.{sys.version_info.minor}"


def versions() -> list[str]:
    """What the package says it is for."""
    return re.findall(r'"Programming Language :: Python :: (3\.\d+)"', (ROOT / "pyproject.toml").read_text())


def candidates(version: str) -> Iterator[str]:
    """Where an interpreter of this version may be."""
    if (there := shutil.which(f"python{version}")) is not None:
        yield there
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    found = (pyenv / "versions").glob(f"{version}.*/bin/python")
    yield from (str(path) for path in sorted(found, reverse=True))


def interpreter(version: str) -> str | None:
    """An interpreter of this version that runs, and can make an environment; pyenv's shims do not always."""
    for place in candidates(version):
        ask = "import sys, venv, ensurepip; print('%d.%d' % sys.version_info[:2])"
        done = subprocess.run([place, "-c", ask], capture_output=True, text=True, check=False)
        if done.stdout.strip() == version:
            return place
    return None


def environment(version: str, place: str) -> Path:
    """An environment with the project and what its tests need, made again when pyproject.toml is newer."""
    folder = ROOT / f".venv-{version}"
    python, ready = folder / "bin" / "python", folder / ".ready"
    if not ready.exists() or ready.stat().st_mtime < (ROOT / "pyproject.toml").stat().st_mtime:
        subprocess.run([place, "-m", "venv", "--clear", str(folder)], check=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "--editable", ".[dev]"], cwd=ROOT, check=True)
        ready.touch()
    return python


def main(arguments: list[str]) -> int:
    """Run them one after the other; say what came of each. The exit status."""
    found = {version: place for version in versions() if (place := interpreter(version)) is not None}
    print(f"interpreters: {', '.join(found)} of {', '.join(versions())}", flush=True)
    few = os.environ.get("CI") == "true" and len({OWN, *found}) < LEAST
    ends = {OWN: "as `make test` says"}
    for version, place in found.items():
        if version == OWN:
            continue
        began = time.monotonic()
        python = environment(version, place)
        done = subprocess.run(
            [str(python), "-m", "pytest", "-q", "-m", "not slow", *FOLDERS, *arguments], cwd=ROOT, check=False
        )
        words = "passed" if done.returncode == 0 else f"FAILED ({done.returncode})"
        ends[version] = f"{words} in {time.monotonic() - began:.0f} s"
    said = [f"Python {version}: {ends.get(version, 'not on this machine')}" for version in versions()]
    print(*said, sep="\n")
    (ROOT / ".venv" / "interpreters").write_text("\n".join(said) + "\n")
    if few:
        print(f"CI wants {LEAST} interpreters at least", file=sys.stderr)
    return int(few or any(end.startswith("FAILED") for end in ends.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
