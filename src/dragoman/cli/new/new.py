"""`dragoman new service|mcp NAME`: makes a project in a folder of that name.

Rules:

- Nothing that exists is written over; nothing is downloaded or installed.
- A name that is a module's already (of Python, of what is installed here, of what the project or its tests need) is the
  folder's alone: distribution and module have `-service` or `-server` after it, since the project could import neither
  itself nor the other.
"""

from __future__ import annotations

import keyword
import re
import shutil
import sys
from importlib import metadata
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Final

from cyclopts import App
from rich.text import Text

from ... import __version__
from ...system.files import reason_of
from ..exit_status import FINE, Usage
from ..options import OUTPUT, Output
from ..terminal import out
from .files import Kind, files

NEEDED: Final = frozenset(
    (
        *("dragoman", "msgspec", "cyclopts", "rich", "httptools", "itsdangerous", "jsonschema_rs"),
        *("pytest", "iniconfig", "packaging", "pluggy", "pygments", "conftest"),
        *("src", "test", "tests", "test_server", "test_service"),
    )
)
"""Modules that the project needs, and files that it has itself."""
NAME = re.compile(r"[A-Za-z][A-Za-z0-9]*(?:[-_][A-Za-z0-9]+)*")

app: App = App(
    name="new",
    help_epilogue="""\
Examples:

  dragoman new service calculator
  dragoman new mcp notes
  dragoman new mcp my-notes --json

The project has a pyproject.toml, a module, tests that pass, and a README that
says how to run it.""",
)


@app.default
def new(kind: Kind, name: str, /, *, output: Output = OUTPUT) -> int:
    """Make a project: a JSON-RPC service, or an MCP server.

    Parameters
    ----------
    kind
        What to make.
    name
        Its name: letters, digits and hyphens; a folder of that name is made here.
    """
    if not NAME.fullmatch(name):
        raise Usage(f"{name!r} is not a name of a project: write letters, digits and hyphens, as in my-notes")
    project = f"{name}-{'service' if kind == 'service' else 'server'}" if is_taken(name) else name
    module = _module(project)
    folder = Path(name)
    if folder.exists():
        raise Usage(f"{name} exists already: take another name, or move it away")
    made = files(kind, project, module, __version__)
    for path, text in made.items():
        target = folder / path
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
        except OSError as fault:
            shutil.rmtree(folder, ignore_errors=True)  # half a project would stand in the way of the next try
            raise Usage(f"{target} cannot be written: {reason_of(fault)}") from None
    if output.json:
        output.write({"folder": name, "files": list(made)}, "files")
        return FINE
    for path in made:
        out.print(Text(f"{name}/{path}"), soft_wrap=True)
    out.print(Text.assemble(("try", "bold"), f'  cd {name} && pip install -e ".[dev]" && pytest'), soft_wrap=True)
    return FINE


def is_taken(name: str) -> bool:
    """Whether something else has the name, as a module or as a distribution."""
    module = _module(name)
    if keyword.iskeyword(module) or module in sys.stdlib_module_names or module in NEEDED:
        return True
    elsewhere = [target for target in sys.path if target and Path(target) != Path.cwd()]
    if PathFinder.find_spec(module, elsewhere) is not None:
        return True
    try:
        metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def _module(name: str) -> str:
    """The name of a project's module."""
    return name.replace("-", "_").lower()
