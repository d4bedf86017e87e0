"""Real peers from npm, run by the scripts of this folder."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.npm import Node, installed

PINNED = ["vscode-jsonrpc@10.0.0", "jayson@5.0.0"]


@pytest.fixture(scope="session")
def modules(request: pytest.FixtureRequest) -> Path:
    """The folder of the installed packages."""
    return installed(request, PINNED)


@pytest.fixture
def node(modules: Path) -> Iterator[Node]:
    """Runs the scripts of this folder."""
    program = shutil.which("node")
    assert program is not None
    node = Node(program, modules, Path(__file__).parent)
    yield node
    node.end()
