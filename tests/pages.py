"""The pages of the documentation: what they show, link to, and head their parts with.

A page shows a file, or the part of one between `# [name]` and `# [/name]`, by a line

    <!-- snippet: docs/snippets/first.console -->
    <!-- snippet: docs/snippets/tutorial/calculator.py [errors] -->

with the text in a fence below it. `python -m tests.pages` writes the fences anew from the files, and docs/pages.md from
the navigation of the site.
"""

from __future__ import annotations

import re
import textwrap
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct

from tests.snippets import ROOT, without_samples

MARK = re.compile(r"^<!-- snippet: (\S+)(?: \[(\w+)\])? -->\n(?:```.*?^```\n)?", re.MULTILINE | re.DOTALL)
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]\n]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
LANGUAGES = {
    ".py": "python",
    ".console": "console",
    ".json": "json",
    ".acl": "text",
    ".conf": "nginx",
    ".service": "ini",
    ".socket": "ini",
    ".toml": "toml",
    ".dockerfile": "dockerfile",
    ".yaml": "yaml",
}
PLAIN = ("text", "make")
"""Languages of fences that show no snippet: `make` has targets of the Makefile, which are checked."""
OTHERS = {"figures.md", "decisions.md", "rough-edges.md", "interop.md"}
"""Pages of docs/ that are written elsewhere, and may have their own ways."""


class Mark(Struct, frozen=True):
    """One place where a page shows a file, whole or in part."""

    path: str
    part: str | None

    @property
    def text(self) -> str:
        """What must stand there."""
        whole = without_samples((ROOT / self.path).read_text())
        if self.part is None:
            return whole
        found = re.search(rf"^ *# \[{self.part}\]\n(.*?)^ *# \[/{self.part}\]$", whole, re.MULTILINE | re.DOTALL)
        if found is None:
            raise AssertionError(f"{self.path} has no part [{self.part}]")
        return textwrap.dedent(found[1]).strip("\n") + "\n"

    @property
    def block(self) -> str:
        """The mark and its fence, as they stand in a page."""
        part = f" [{self.part}]" if self.part else ""
        return f"<!-- snippet: {self.path}{part} -->\n```{LANGUAGES[Path(self.path).suffix]}\n{self.text}```\n"


def pages() -> list[Path]:
    """Every page that these rules are about."""
    docs = [path for path in (ROOT / "docs").rglob("*.md") if path.name not in OTHERS]
    own = [ROOT / f"{name}.md" for name in ("README", "README.zh-CN", "CONTRIBUTING", "SECURITY")]
    return [*own, *sorted(docs)]


def marks(text: str) -> list[Mark]:
    """What a page shows."""
    return [Mark(path, part or None) for path, part in MARK.findall(text)]


def refreshed(text: str) -> str:
    """The page with every fence as its file is now."""
    return MARK.sub(lambda found: Mark(found[1], found[2]).block, text)


def anchors(text: str) -> set[str]:
    """The names by which the headings of a page are linked to."""
    plain = [re.sub(r"[`*]", "", heading).strip().lower() for heading in HEADING.findall(FENCE.sub("", text))]
    return {re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in plain}


def links(path: Path) -> Iterator[tuple[str, Path | None, str]]:
    """The links of a page: as written, the file they lead to (None: the web), and the anchor."""
    for target in LINK.findall(FENCE.sub("", path.read_text())):
        if "://" in target:
            yield target, None, ""
            continue
        place, _, anchor = re.sub("#only-(?:light|dark)$", "", target).partition("#")
        yield target, (path.parent / place).resolve() if place else path, anchor


def listed() -> str:
    """docs/pages.md: the navigation of the site as lists."""
    nav = tomllib.loads((ROOT / "zensical.toml").read_text())["project"]["nav"]
    parts = ["# All pages\n\n<!-- written by `python -m tests.pages`; do not edit -->\n"]
    for tab in nav:
        ((title, entries),) = tab.items()
        parts.append(f"\n## {title}\n\n" + "".join(_rows(entries, "")))
    return "".join(parts)


def _rows(entries: list[Any], indent: str) -> Iterator[str]:
    for entry in entries:
        ((title, target),) = entry.items() if isinstance(entry, dict) else ((_title(entry), entry),)
        if isinstance(target, str):
            yield f"{indent}- [{title}]({target})\n"
        else:
            yield f"{indent}- {title}\n"
            yield from _rows(target, indent + "    ")


def _title(page: str) -> str:
    found = HEADING.search((ROOT / "docs" / page).read_text())
    assert found is not None
    return found[1]


if __name__ == "__main__":
    (ROOT / "docs" / "pages.md").write_text(listed())
    for page in pages():
        before = page.read_text()
        if (after := refreshed(before)) != before:
            page.write_text(after)
            print(f"{page.relative_to(ROOT)} is new")
