"""`dragoman new service|mcp NAME`: makes a project in a folder of that name.

Rules: nothing that exists is written over; nothing is downloaded or installed.
"""

from __future__ import annotations

import keyword
import re
import shutil
import sys
from pathlib import Path
from typing import Literal

from cyclopts import App
from rich.text import Text

from ... import __version__
from ..ends import FINE, Usage
from ..options import OUTPUT, Output
from ..terminal import out
from .files import files

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
def new(kind: Literal["service", "mcp"], name: str, /, *, output: Output = OUTPUT) -> int:
    """Make a project: a JSON-RPC service, or an MCP server.

    Parameters
    ----------
    kind
        What to make.
    name
        Its name: letters, digits and hyphens; a folder of that name is made here.
    """
    module = _module(name)
    folder = Path(name)
    if folder.exists():
        raise Usage(f"{name} exists already: take another name, or move it away")
    made = files(kind, name, module, __version__)
    for path, text in made.items():
        place = folder / path
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text, encoding="utf-8")
        except OSError as fault:
            shutil.rmtree(folder, ignore_errors=True)  # half a project would stand in the way of the next try
            raise Usage(f"{place} cannot be written: {fault.strerror}") from None
    if output.json:
        output.write({"folder": name, "files": list(made)}, "files")
        return FINE
    for path in made:
        out.print(Text(f"{name}/{path}"), soft_wrap=True)
    out.print(Text.assemble(("try", "bold"), f"  cd {name} && pip install -e '.[dev]' && pytest"), soft_wrap=True)
    return FINE


def _module(name: str) -> str:
    """The name of the project's module. Raises Usage for a name that cannot be one."""
    if not NAME.fullmatch(name):
        raise Usage(f"{name!r} is not a name of a project: write letters, digits and hyphens, as in my-notes")
    module = name.replace("-", "_").lower()
    if keyword.iskeyword(module) or module in sys.stdlib_module_names or module == "dragoman":
        raise Usage(f"{name!r} is the name of a module or a word of Python: take another, as in my-{name}")
    return module
