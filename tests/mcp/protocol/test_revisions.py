"""One place knows the dates of revisions; elsewhere code asks a `Revision` what it can do."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import dragoman
from dragoman.mcp.protocol.revisions import REVISIONS

SOURCE = Path(dragoman.__file__).parent
FILES = sorted(path for path in SOURCE.rglob("*.py") if path != SOURCE / "mcp" / "protocol" / "revisions.py")


def words(tree: ast.AST) -> Iterator[ast.Constant]:
    """The texts that the code works with; what stands alone as a statement is documentation."""
    told = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and id(node) not in told:
            yield node


@pytest.mark.parametrize("path", FILES, ids=[str(path.relative_to(SOURCE)) for path in FILES])
def test_no_date_of_a_revision_in_the_code(path: Path) -> None:
    found = [
        f"{path.name}:{node.lineno}: {node.value!r}"
        for node in words(ast.parse(path.read_text()))
        if isinstance(node.value, str | bytes) and any(date in str(node.value) for date in REVISIONS)
    ]
    assert found == []


def test_the_search_finds_one() -> None:
    tree = ast.parse('"""Since 2025-06-18."""\nx = f"{y} 2025-06-18"\n')
    assert [node.value for node in words(tree)] == [" 2025-06-18"]
