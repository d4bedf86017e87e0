"""Real peers from npm: installed once in pinned versions into pytest's cache, run by node."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.skips import missing

HERE = Path(__file__).parent
PINNED = ["vscode-jsonrpc@10.0.0", "jayson@5.0.0"]
INSTALLING = 180.0
"""Seconds for npm."""
PATIENCE = 60.0
"""Seconds for a script."""


class Node:
    """Scripts of this folder, run by node with the packages at hand."""

    def __init__(self, program: str, modules: Path) -> None:
        self.program = program
        self.modules = modules
        self.started: list[subprocess.Popen[str]] = []

    @property
    def environment(self) -> dict[str, str]:
        """What a script needs to find the packages."""
        return {**os.environ, "NODE_PATH": str(self.modules)}

    def command(self, script: str, *words: str) -> list[str]:
        """A script as a command."""
        return [self.program, str(HERE / script), *words]

    async def output(self, script: str, *words: str) -> Any:
        """What a script prints, as JSON; it must end well."""
        child = await asyncio.create_subprocess_exec(
            *self.command(script, *words), env=self.environment, stdout=subprocess.PIPE
        )
        async with asyncio.timeout(PATIENCE):
            out, _ = await child.communicate()
        assert child.returncode == 0
        return json.loads(out)

    def listen(self, script: str, *words: str) -> int:
        """Start a script that prints the port it listens on; the port. The fixture ends it."""
        process = subprocess.Popen(
            self.command(script, *words),
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.started.append(process)
        assert process.stdout is not None
        return int(process.stdout.readline())

    def end(self) -> None:
        """End what was started."""
        for process in self.started:
            process.kill()
            process.communicate()


@pytest.fixture(scope="session")
def modules(request: pytest.FixtureRequest) -> Path:
    """The folder of the installed packages. Without node or npm: a skip, or a failure where CI=true."""
    absent = [name for name in ("node", "npm") if shutil.which(name) is None]
    if absent:
        missing(f"no {' and no '.join(absent)} on this machine, so no peers from npm")
    cache = request.config.cache
    assert cache is not None
    place = Path(cache.mkdir("interop")) / "-".join(PINNED).replace("@", "_")
    if not place.exists():
        making = place.with_name(f"{place.name}.{os.getpid()}")
        making.mkdir()
        done = subprocess.run(
            ["npm", "install", "--no-audit", "--no-fund", "--no-save", "--prefix", str(making), *PINNED],
            capture_output=True,
            text=True,
            timeout=INSTALLING,
            check=False,
        )
        if done.returncode:
            shutil.rmtree(making)
            missing(f"npm cannot install {' and '.join(PINNED)}: {done.stderr.strip()[-500:]}")
        try:
            making.rename(place)
        except OSError:  # another process of the same run was quicker
            shutil.rmtree(making)
    return place / "node_modules"


@pytest.fixture
def node(modules: Path) -> Iterator[Node]:
    """Runs the scripts of this folder."""
    program = shutil.which("node")
    assert program is not None
    node = Node(program, modules)
    yield node
    node.end()
