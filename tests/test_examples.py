"""Every example runs to its end and prints what its comments say."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.snippets import EXAMPLES, brokers, run_python

NEEDS = {
    "client.py": ("calculator:api", "http://127.0.0.1:8000"),
    "mcp_client.py": ("weather:app", "http://127.0.0.1:8000/mcp"),
}
"""What a client calls, for those without a server of their own."""


@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.glob("*.py")))
def test_an_example_runs_and_ends(name: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    asked = brokers((EXAMPLES / name).read_text())
    engines = {port: str(request.getfixturevalue(fixture).address[1]) for port, fixture in asked.items()}
    run_python(EXAMPLES / name, tmp_path, NEEDS.get(name, ()), engines)
