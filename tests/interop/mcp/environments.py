"""The peers' environments, under `.venv-peers/`: a virtual environment for each Python peer, one folder for node's.

They are made when first needed, in pinned versions, and kept; what cannot be made is `Missing`, with the reason. Two
processes that need the same one wait for each other. On Windows a Python peer is a folder of packages for the
interpreter that runs the tests, which Linux can make for it.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dragoman.system.files import lock

ROOT = Path(__file__).parents[3]
CACHE = ROOT / ".venv-peers"
PYTHON = {
    "mcp2": ["mcp==2.3.0"],
    "mcp1": ["mcp==1.30.0"],
    "fastmcp": ["fastmcp==4.2.3"],
    "time": ["mcp-server-time==2026.10.19"],
    "git": ["mcp-server-git==2026.10.19"],
    "fetch": ["mcp-server-fetch==2026.10.24"],
    "sqlite": ["mcp-server-sqlite==2025.4.25", "mcp==1.30.0"],
    "webhooks": ["standardwebhooks==1.1.0", "mcp-webhook-events==0.2.0"],
    "moving": [
        "json-rpc==1.15.0",
        "jsonrpcserver==5.0.9",
        "jsonrpcclient==4.0.3",
        "ajsonrpc==1.2.0",
        "fastapi-jsonrpc==4.1.0",
        "pjrpc==2.2.0",
        "python-lsp-jsonrpc==1.1.2",
        "pygls==2.1.1",
        "aiohttp==3.14.5",
        "pydantic==2.14.4",
        "requests==2.34.2",
        "uvicorn==0.54.0",
        "werkzeug==3.1.9",
    ],
}
NODE = {
    "ts1": ["@modelcontextprotocol/sdk@1.32.2"],
    "ts2": [
        "@modelcontextprotocol/client@2.4.0",
        "@modelcontextprotocol/server@2.4.0",
        "@modelcontextprotocol/node@2.1.2",
    ],
    "aisdk": ["@ai-sdk/mcp@2.0.99"],
    "everything": ["@modelcontextprotocol/server-everything@2026.8.31"],
}
INSTALLING = 240.0
"""Seconds for an installer."""


class Missing(Exception):
    """A peer's environment is not there; the text says why."""


def version(peer: str) -> str:
    """Which one of a peer is installed: its first package's version."""
    return re.split("==|@", (PYTHON | NODE)[peer][0])[-1]


def program(peer: str) -> list[str]:
    """The command that runs a script of this peer. Raises Missing."""
    if peer not in PYTHON:
        return [node()]
    if os.name == "nt":
        return [sys.executable, str(Path(__file__).parent / "peers" / "from_folder.py"), str(for_windows(peer))]
    return [python(peer)]


def variables() -> dict[str, str]:
    """What a peer's process needs in its environment."""
    return os.environ | {"PEERS_NODE": str(CACHE / "node"), "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"}


def python(peer: str) -> str:
    """The interpreter of a Python peer."""
    folder = CACHE / peer
    interpreter = folder / "bin" / "python"
    with made(folder, PYTHON[peer]) as missing:
        if missing:
            venv.create(folder, with_pip=False)
            pip = [sys.executable, "-m", "pip", "--python", str(interpreter), "install", "--quiet"]
            run([*pip, "--disable-pip-version-check", *PYTHON[peer]])
    return str(interpreter)


def for_windows(peer: str) -> Path:
    """The packages of a Python peer for CPython 3.12 on Windows. Raises Missing."""
    folder = CACHE / f"{peer}-windows"
    with made(folder, PYTHON[peer]) as missing:
        if missing:
            pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
            wheels = ["--platform", "win_amd64", "--python-version", "3.12", "--only-binary=:all:"]
            run([*pip, *wheels, "--target", str(folder), *PYTHON[peer]])
    return folder


def node() -> str:
    """node, with the node peers installed."""
    found, npm = shutil.which("node"), shutil.which("npm")
    if found is None or npm is None:
        raise Missing("node and npm are not on the PATH")
    folder = CACHE / "node"
    packages = [package for peer in NODE.values() for package in peer]
    with made(folder, packages) as missing:
        if missing:
            folder.mkdir()
            (folder / "package.json").write_text('{"private": true}\n')
            run([npm, "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(folder), *packages])
    return found


@contextmanager
def made(folder: Path, packages: list[str]) -> Iterator[bool]:
    """Whether the folder has to be made (True: it is gone now); marked as ready at the end, for these packages."""
    CACHE.mkdir(exist_ok=True)
    ready = folder / f".ready-{hashlib.sha256(' '.join(packages).encode()).hexdigest()[:16]}"
    with (CACHE / f"{folder.name}.lock").open("w") as file:
        while not lock(file.fileno()):
            time.sleep(0.05)
        if ready.exists():
            yield False
            return
        shutil.rmtree(folder, ignore_errors=True)
        yield True
        ready.touch()


def run(argv: list[str]) -> None:
    """Run an installer. Raises Missing with its last word."""
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=INSTALLING, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Missing(f"{Path(argv[0]).name}: {error}") from error
    if done.returncode:
        words = (done.stderr.strip() or done.stdout.strip()).splitlines()
        raise Missing(f"{Path(argv[0]).name} failed: {words[-1][:200] if words else done.returncode}")
