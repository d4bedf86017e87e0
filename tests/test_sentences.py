"""Docstrings, comments, messages and pages are written as an engineer writes: no person stands for a program, and what
something is not is said with "not"."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.snippets import ROOT

WRITTEN = [
    path
    for path in sorted(
        [ROOT / "README.md", ROOT / "CHANGELOG.md"]
        + [path for folder in ("src", "tests", "docs", "examples", "bench") for path in (ROOT / folder).rglob("*")]
    )
    if path.suffix in (".py", ".md", ".toml") and path != Path(__file__)
]
STRANGE = {
    "a pronoun of a person": r"(?i)\b(?:s?h[e]|h(?:im|is|er)|nobod[y]|whoeve[r])\b",
    "'who' for the caller": r"\b(?:to|from|by|of) who\b|\bwho (?:calls|is called)\b",
    "'is no X' for 'is not an X'": (
        r"(?<![Tt]here )\b(?:is|are|was|were) no (?!longer|more|one\b|such|less|other|need|use\b|way\b)[\w`\"]+"
    ),
}


@pytest.mark.parametrize("what", STRANGE)
def test_no_sentence_is_strange(what: str) -> None:
    strange = re.compile(STRANGE[what])
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in WRITTEN
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if strange.search(line)
    ]
    assert found == []
