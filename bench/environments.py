"""The peers' environments, under `.venv-bench/`: a virtual environment each, and one folder for node.

They are made when first needed, and kept. What cannot be made (no network, no npm) is `Missing`, with the reason.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).parent.parent
CACHE = ROOT / ".venv-bench"
PYTHON_PEERS = {
    "pjrpc": ["pjrpc", "aiohttp", "aio-pika"],
    "jsonrpcserver": ["jsonrpcserver", "aiohttp"],
    "fastapi-jsonrpc": ["fastapi-jsonrpc", "uvicorn", "httptools", "uvloop"],
    "pylsp-jsonrpc": ["python-lsp-jsonrpc"],
    "pygls": ["pygls"],
    "mcp": ["mcp>=2", "uvicorn", "httptools", "uvloop"],
    "mcp-utils-msgspec": ["mcp-utils-msgspec"],
    "fastmcp": ["fastmcp>=4"],
    "aio-pika": ["aio-pika"],
    "pyjwt": ["pyjwt", "cryptography"],
}
NODE_PEERS = ["jayson", "vscode-jsonrpc", "@modelcontextprotocol/server", "@modelcontextprotocol/client"]
INSTALL_TIME = 180.0


class Missing(Exception):
    """A peer's environment is not there; the text says why."""


class Environments:
    """Where each peer's interpreter is; made on demand, once in a run."""

    def __init__(self) -> None:
        self.known: dict[str, tuple[str, dict[str, str]] | Missing] = {}

    def program(self, peer: str) -> tuple[str, dict[str, str]]:
        """The interpreter of a peer ("" for our own) and the environment variables it needs. Raises Missing."""
        if peer not in self.known:
            self.known[peer] = find(peer)
        found = self.known[peer]
        if isinstance(found, Missing):
            raise found
        return found


def find(peer: str) -> tuple[str, dict[str, str]] | Missing:
    """An environment, made if need be."""
    try:
        if not peer:
            return sys.executable, {"PYTHONPATH": str(ROOT)}
        if peer in NODE_PEERS:
            return node_program(), {"BENCH_NODE": str(CACHE / "node")}
        return python_program(peer), {"PYTHONPATH": str(ROOT)}
    except Missing as missing:
        return missing
    except (OSError, subprocess.SubprocessError) as error:
        return Missing(str(error).splitlines()[0][:200])


def python_program(peer: str) -> str:
    """The interpreter of a Python peer."""
    folder = CACHE / peer
    program, ready = folder / "bin" / "python", folder / f".ready-{len(PYTHON_PEERS[peer])}"
    if not ready.exists():
        shutil.rmtree(folder, ignore_errors=True)
        venv.create(folder, with_pip=False)
        run([sys.executable, "-m", "pip", "--python", str(program), "install", "--quiet", *PYTHON_PEERS[peer]])
        ready.touch()
    return str(program)


def node_program() -> str:
    """node, with the node peers installed."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        raise Missing("node and npm are not on the PATH")
    folder = CACHE / "node"
    ready = folder / f".ready-{len(NODE_PEERS)}"
    if not ready.exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        (folder / "package.json").write_text('{"private": true}\n')
        run([npm, "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(folder), *NODE_PEERS])
        ready.touch()
    return node


def run(argv: list[str]) -> None:
    """Run an installer. Raises Missing with its last word."""
    env = os.environ | {"PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    done = subprocess.run(argv, capture_output=True, text=True, timeout=INSTALL_TIME, env=env, check=False)
    if done.returncode:
        words = (done.stderr.strip() or done.stdout.strip()).splitlines()
        raise Missing(f"{Path(argv[0]).name} failed: {words[-1][:160] if words else done.returncode}")


def versions() -> dict[str, str]:
    """Each installed peer's version, for the tables."""
    found: dict[str, str] = {}
    for peer, packages in PYTHON_PEERS.items():
        stem = packages[0].replace("-", "_")
        for info in sorted((CACHE / peer).glob(f"lib/*/site-packages/{stem}-*.dist-info")):
            found[peer] = info.name.removesuffix(".dist-info").split("-")[1]
    for peer in NODE_PEERS:
        package = CACHE / "node" / "node_modules" / peer / "package.json"
        if package.exists():
            found[peer] = json.loads(package.read_text())["version"]
    return found
