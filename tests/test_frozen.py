"""A server that PyInstaller has frozen has its wires, which are imported by their names."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from tests.skips import missing

PROGRAM = """
import asyncio, json
from dragoman import Service, connect, serve

api = Service("frozen")

@api.method(inline=True)
def add(a: int, b: int) -> int:
    return a + b

async def main() -> None:
    urls = ["http://127.0.0.1:0", "tcp://127.0.0.1:0", "udp://127.0.0.1:0", "ws://127.0.0.1:0", "memory:frozen"]
    found = {}
    async with serve(api, urls=urls) as serving:
        for url in serving.urls:
            async with connect(url) as peer:
                found[url.partition(":")[0]] = await peer.call("add", [1, 2])
    print(json.dumps(found))

asyncio.run(main())
"""


def test_pyinstaller_finds_the_hooks_of_the_package() -> None:
    (entry,) = entry_points(group="pyinstaller40", name="hook-dirs").select(module="dragoman._pyinstaller")
    (folder,) = entry.load()()
    assert sorted(path.name for path in Path(folder).glob("hook-*")) == ["hook-dragoman.cli.py", "hook-dragoman.py"]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_frozen_server_has_its_wires(tmp_path: Path) -> None:
    if importlib.util.find_spec("PyInstaller") is None:
        missing("no PyInstaller in this environment: pip install pyinstaller")
    program = tmp_path / "frozen.py"
    program.write_text(PROGRAM, "utf-8")
    left_out = ("pydantic", "rich", "cyclopts", "opentelemetry", "cryptography", "nats", "redis", "aiormq", "uvloop")
    command = [sys.executable, "-m", "PyInstaller", "--log-level=WARN", "--distpath=dist", "--workpath=work"]
    command += [f"--exclude-module={name}" for name in left_out]
    done = subprocess.run([*command, str(program)], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    bare = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    frozen = tmp_path / "dist" / "frozen" / "frozen"
    ran = subprocess.run([str(frozen)], capture_output=True, text=True, check=False, timeout=60, env=bare)
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout) == dict.fromkeys(("http", "tcp", "udp", "ws", "memory"), 3)
