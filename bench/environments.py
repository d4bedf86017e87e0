"""The interpreters of contestants, by the names of their files. The peers' are under `.venv-bench/`: a virtual environment
for each Python peer, one folder for node's, made when first needed and kept. What cannot be made (no network, no npm) is
`Missing`, with the reason."""

from __future__ import annotations

import functools
import json
import re
import subprocess
import sys
from pathlib import Path

from tests.interop.mcp.environments import Missing, made_node, made_python

ROOT = Path(__file__).parent.parent
CACHE = ROOT / ".venv-bench"
PYTHON = {
    "pjrpc": ["pjrpc", "aiohttp", "aio-pika"],
    "jsonrpcserver": ["jsonrpcserver", "aiohttp"],
    "fastapi_jsonrpc": ["fastapi-jsonrpc", "uvicorn", "httptools", "uvloop"],
    "pylsp_jsonrpc": ["python-lsp-jsonrpc"],
    "pygls": ["pygls"],
    "mcp_sdk": ["mcp>=2", "uvicorn", "httptools", "uvloop"],
    "mcp_utils_msgspec": ["mcp-utils-msgspec"],
    "fastmcp": ["fastmcp>=4"],
    "bare_amqp": ["aio-pika"],
    "pyjwt": ["pyjwt", "cryptography"],
}
NODE = {
    "jayson": ["jayson"],
    "vscode_jsonrpc": ["vscode-jsonrpc"],
    "mcp_typescript": ["@modelcontextprotocol/server", "@modelcontextprotocol/client"],
}


def interpreter(name: str) -> tuple[list[str], dict[str, str]]:
    """The interpreter of a contestant, and the environment variables that it needs. Raises Missing."""
    return [_found(name)], {"PYTHONPATH": str(ROOT), "BENCH_NODE": str(CACHE / "node")}


@functools.cache
def _found(name: str) -> str:
    try:
        if name in NODE:
            return made_node(CACHE / "node", [package for packages in NODE.values() for package in packages])
        return made_python(CACHE / name, PYTHON[name]) if name in PYTHON else sys.executable
    except (OSError, subprocess.SubprocessError) as error:
        raise Missing(str(error).splitlines()[0][:200]) from error


def command(text: str) -> tuple[list[str], dict[str, str]]:
    """A contestant's command as an argv with its environment variables. Raises Missing."""
    words = text.split()
    name = words[words[0] == "uvloop"]
    argv, env = interpreter(name)
    if name in NODE:
        return [*argv, f"bench/contestants/{name}.js", *words[1:]], env
    return [*argv, "-m", "bench.contestants", *words], env


def versions() -> dict[str, str]:
    """Each installed peer's version, for the tables."""
    found: dict[str, str] = {}
    for name, (package, *_) in PYTHON.items():
        package = re.split("[<>=]", package)[0]
        for info in (CACHE / name).glob(f"lib/*/site-packages/{package.replace('-', '_')}-*.dist-info"):
            found[package] = info.name.removesuffix(".dist-info").split("-")[1]
    for package in (package for packages in NODE.values() for package in packages):
        about = CACHE / "node" / "node_modules" / package / "package.json"
        if about.exists():
            found[package] = json.loads(about.read_text())["version"]
    return found
