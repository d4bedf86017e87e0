"""Each extra alone brings what it is for, without the packages of the others."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text("utf-8"))["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]

MODULES = {
    "httptools": "httptools",
    "websockets": "websockets",
    "aiormq": "aiormq",
    "paho-mqtt": "paho",
    "nats-py": "nats",
    "redis": "redis",
    "itsdangerous": "itsdangerous",
    "jsonschema-rs": "jsonschema_rs",
    "joserfc": "joserfc",
    "cryptography": "cryptography",
    "keyring": "keyring",
    "cyclopts": "cyclopts",
    "rich": "rich",
    "opentelemetry-api": "opentelemetry",
    "opentelemetry-sdk": "opentelemetry",
    "opentelemetry-exporter-otlp-proto-http": "opentelemetry",
    "watchfiles": "watchfiles",
    "uvloop": "uvloop",
}
"""What a package of an extra is imported as."""

SERVED = """
import asyncio
from dragoman import Service, connect, serve
api = Service("alone")
api.method("add", inline=True)(lambda a, b: a + b)
async def main():
    async with serve(api, urls=%r) as serving, connect(serving.urls[0]) as peer:
        assert await peer.call("add", [1, 2]) == 3
asyncio.run(main())
"""
TOOL = """
import asyncio
from dragoman import serve
from dragoman.mcp import Client, Server
app = Server("alone")
@app.tool(inline=True)
def add(a: int, b: int) -> int:
    return a + b
async def main():
    async with serve(app, urls="http://127.0.0.1:0/mcp") as serving, Client(serving.urls[0]) as client:
        assert (await client.call_tool("add", {"a": 1, "b": 2})).content[0].text == "3"
asyncio.run(main())
"""
GUARDED = """
import asyncio
from dragoman import Service, connect, serve
from dragoman.auth import Static
api = Service("alone", auth=Static({"kN3xV0q2f9Wb": "ada"}))
@api.method
def who() -> str:
    return "ada"
async def main():
    async with serve(api, urls="http://127.0.0.1:0") as serving:
        async with connect(serving.urls[0], auth="kN3xV0q2f9Wb") as peer:
            assert await peer.call("who") == "ada"
asyncio.run(main())
"""
PROGRAMS = {
    "http": SERVED % "http://127.0.0.1:0",
    "websocket": SERVED % "ws://127.0.0.1:0",
    "amqp": "import dragoman.engines.amqp.connection",
    "mqtt": "import dragoman.engines.mqtt.connection",
    "nats": "import dragoman.engines.nats.connection",
    "redis": "import dragoman.engines.redis.connection",
    "brokers": "import dragoman.engines.amqp.connection, dragoman.engines.redis.connection",
    "mcp": TOOL,
    "auth": GUARDED,
    "keyring": "from dragoman.auth import FileStore; FileStore('store')",
    "cli": "from dragoman.cli import main; import sys; sys.argv = ['dragoman', '--version']; main()",
    "otel": "from dragoman.telemetry import Meters, Metrics, Traces; Meters(Metrics()); Traces()",
    "reload": "import watchfiles",
    "speed": "import uvloop",
    "all": TOOL,
}
"""What each extra is for."""

ALONE = """
import sys
hidden = %r
class Hides:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in hidden:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Hides())
"""


def packages(extra: str) -> set[str]:
    """The packages of an extra and of those that it includes."""
    found = set()
    for line in EXTRAS[extra]:
        if line.startswith("dragoman["):
            for inner in line.partition("[")[2].rstrip("]").split(","):
                found |= packages(inner)
        else:
            found.add(line.partition(">=")[0].partition("[")[0])
    return found


def test_the_tables_are_whole() -> None:
    assert PROGRAMS.keys() == EXTRAS.keys() - {"dev", "docs"}
    assert set().union(*(packages(extra) for extra in PROGRAMS)) == MODULES.keys()


@pytest.mark.parametrize("extra", PROGRAMS)
def test_an_extra_stands_alone(extra: str, tmp_path: Path) -> None:
    own = packages(extra)
    hidden = set(MODULES.values()) - {MODULES[package] for package in own}
    command = [sys.executable, "-c", ALONE % hidden + PROGRAMS[extra]]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
