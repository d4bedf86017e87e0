"""The files for systemd and Kubernetes that the documentation shows fit the command."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
import urllib.request
from configparser import ConfigParser
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dragoman.cli.serving.settings import TABLE
from dragoman.jsonrpc.limits import SERVER
from tests.cli.conftest import Command, command  # noqa: F401  (a fixture)
from tests.ports import free_port
from tests.skips import missing
from tests.snippets import EXAMPLES

UNIT = EXAMPLES / "systemd" / "dragoman.service"
SOCKET = UNIT.with_suffix(".socket")
CONTAINER = EXAMPLES / "container"
PROBES = EXAMPLES / "kubernetes" / "probes.yaml"


def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        missing("systemd-analyze is not installed (Debian's package systemd)")
    here = tmp_path / UNIT.name
    here.write_text(UNIT.read_text().replace("/opt/calculator/bin/dragoman", sys.executable))
    beside = tmp_path / SOCKET.name
    beside.write_text(SOCKET.read_text())
    done = subprocess.run(
        [analyze, "verify", "--man=no", str(here), str(beside)], capture_output=True, text=True, timeout=60, check=False
    )
    faults = [line for line in done.stderr.splitlines() if UNIT.stem in line]
    assert (done.returncode, faults) == (0, [])


def test_the_socket_is_that_of_the_unit_s_url() -> None:
    address = next(line for line in SOCKET.read_text().splitlines() if line.startswith("ListenStream="))
    assert f"tcp://{address.partition('=')[2]} " in UNIT.read_text()


def _instructions() -> list[tuple[str, str]]:
    lines = (CONTAINER / "calculator.dockerfile").read_text().splitlines()
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in lines if line)]


def test_the_container_s_parts(command: Command, tmp_path: Path) -> None:  # noqa: F811
    """What it copies is there, its extras exist, its options are in order, and its health check asks a server."""
    found = dict(_instructions())
    extras = re.findall(r"/source\[([a-z,]+)\]", found["RUN"])[0].split(",")
    known = tomllib.loads((EXAMPLES.parent / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(extras) <= set(known)
    for name in found["COPY"].split()[:-1]:
        shutil.copy(EXAMPLES.parent / name, tmp_path)
    program, *words = msgspec.json.decode(found["ENTRYPOINT"], type=list[str])
    assert program == "dragoman"
    done = command.run(*words, "--check")
    assert (done.status, done.err) == (0, "")
    own = ("--config", "dragoman.toml", "--workers", "1", "--metrics", f":{free_port()}")
    _, (url,) = command.serve(f"http://127.0.0.1:{free_port()}", options=own)
    for place in url, url.replace("127.0.0.1", "localhost"):  # as from the machine that compose publishes it on
        assert command.run("call", place, "subtract", "42", "23").out == "19\n"
    check = msgspec.json.decode(found["HEALTHCHECK"].removeprefix("CMD "), type=list[str])
    for place, status in (url.rstrip("/"), 0), (f"http://127.0.0.1:{free_port()}", 1):
        asked = [sys.executable, *(word.replace("http://127.0.0.1:8000", place) for word in check[1:])]
        assert subprocess.run(asked, capture_output=True, timeout=60, check=False).returncode == status


def test_the_build_is_sent_what_it_copies_and_no_more() -> None:
    """Neither `.git` nor an environment; but all that `pip install` reads, and what the other COPY names."""
    first, *rest = (CONTAINER / "calculator.dockerfile.dockerignore").read_text().split()
    sent = {line.removeprefix("!") for line in rest if line.startswith("!")}
    assert first == "*"
    assert all((EXAMPLES.parent / name).exists() for name in sent)
    about = tomllib.loads((EXAMPLES.parent / "pyproject.toml").read_text())
    build, project = about["tool"]["hatch"], about["project"]
    read = {"pyproject.toml", project["readme"], *project["license-files"], build["version"]["path"]}
    read |= {*build["build"]["targets"]["wheel"]["packages"], *dict(_instructions())["COPY"].split()[:-1]}
    assert {name for name in read if not any(name == one or name.startswith(f"{one}/") for one in sent)} == set()


def test_compose_fits_the_container() -> None:
    (service,) = msgspec.yaml.decode((CONTAINER / "compose.yaml").read_bytes())["services"].values()
    build = service["build"]
    assert (CONTAINER / build["context"] / build["dockerfile"]).resolve() == CONTAINER / "calculator.dockerfile"
    options = tomllib.loads((CONTAINER / "dragoman.toml").read_text())
    assert float(service["stop_grace_period"].removesuffix("s")) > options["drain"]
    (port,) = service["ports"]
    assert options["urls"] == [f"http://0.0.0.0:{port.rpartition(':')[2]}"]
    assert set(service["environment"]) <= set(TABLE.variables)


def test_the_container_is_built_and_answers() -> None:
    engine = shutil.which("docker")
    if engine is None or subprocess.run([engine, "info"], capture_output=True, timeout=60, check=False).returncode:
        pytest.skip("no container engine runs here")
    compose = [engine, "compose", "-f", str(CONTAINER / "compose.yaml")]
    try:
        subprocess.run([*compose, "up", "--build", "--detach", "--wait"], timeout=280, check=True)
        done = subprocess.run(
            [sys.executable, "-m", "dragoman", "call", "http://127.0.0.1:8000", "subtract", "42", "23"],
            capture_output=True,
            timeout=60,
            check=True,
        )
        assert done.stdout == b"19\n"
    finally:
        subprocess.run([*compose, "down"], timeout=100, check=False)


def test_the_unit_lets_calls_end() -> None:
    unit = ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[method-assign, assignment]
    unit.read_string(UNIT.read_text())
    assert float(unit["Service"]["TimeoutStopSec"]) > SERVER.drain_timeout


def test_the_probes_ask_what_the_container_answers(command: Command) -> None:  # noqa: F811
    spec: Any = msgspec.yaml.decode(PROBES.read_bytes())["spec"]
    (container,) = spec["containers"]
    program, verb, target, url, *options = container["command"]
    assert (program, verb) == ("dragoman", "serve")
    (port,) = container["ports"]
    assert url.endswith(f":{port['containerPort']}")
    _, (listening,) = command.serve("http://127.0.0.1:0", options=tuple(options))
    for name in ("startupProbe", "livenessProbe", "readinessProbe"):
        get = container[name]["httpGet"]
        assert get["port"] == port["containerPort"]
        asked = urllib.request.Request(listening.rstrip("/") + get["path"], headers={"Host": "10.0.0.1:8000"})
        with urllib.request.urlopen(asked, timeout=60) as answer:
            assert answer.status == 200
    drain = float(options[options.index("--drain") + 1])
    pause = container["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert spec["terminationGracePeriodSeconds"] > drain + pause
    assert target == "calculator:api"
