"""The rooms of docs/architecture.md: one line for every file of the package, the first sentence of its docstring.

python -m tests.rooms     write them anew
"""

from __future__ import annotations

import ast
import re
import textwrap
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "dragoman"
PAGE = ROOT / "docs" / "architecture.md"
BEGIN, END = "<!-- written by python -m tests.rooms -->\n", "<!-- end -->\n"


def sentence(path: Path) -> str:
    """What a file says of itself."""
    text = " ".join((ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").split())
    found = re.match(r".*?\.(?=\s|$)", text)
    return found.group() if found else text


def room(folder: Path) -> str:
    """A folder's heading, what it is for, and its files."""
    files = [path for path in sorted(folder.glob("*.py")) if path.name not in ("__init__.py", "__main__.py")]
    name = folder.relative_to(SOURCE).as_posix()
    about = "\n".join(textwrap.wrap(sentence(folder / "__init__.py"), 118, break_on_hyphens=False))
    head = f"### `{'dragoman' if name == '.' else name}/`\n\n{about}\n"
    said = {path.stem: sentence(path).removesuffix(".").replace("|", "\\|") for path in files}
    rows = [f"| `{name}` | {text} |\n" for name, text in said.items()]
    return "".join([head, "\n| file | what it is |\n| --- | --- |\n" if rows else "", *rows])


def rooms() -> str:
    """Every room, in the order of their names."""
    folders = sorted(path.parent for path in SOURCE.rglob("__init__.py"))
    return "\n".join(room(folder) for folder in folders)


def written(page: str) -> str:
    """The page with the rooms as they are."""
    before, _, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    assert end, f"{PAGE.name} lacks the marks"
    return f"{before}{BEGIN}\n{rooms()}\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
