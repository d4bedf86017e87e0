"""The brokers of the tests start, die and come back."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from .brokers import Engine


@pytest.mark.parametrize("which", ["rabbitmq", "mosquitto", "nats", "redis"])
async def test_an_engine_comes_back(which: str, request: pytest.FixtureRequest) -> None:
    engine: Engine = request.getfixturevalue(which)
    engine.control()
    await engine.restart()
    await engine.restart(hard=True)
    _, writer = await asyncio.open_connection(*engine.address)
    writer.close()
    await writer.wait_closed()


_HOLDER = """
import sys, time
from tests.engines.brokers import started
with started(sys.argv[1]) as one:
    print(one.url, one._folder, flush=True)
    time.sleep(600)
"""


@pytest.mark.parametrize("fixture", ["mosquitto", "nats", "redis"])
def test_a_broker_ends_with_the_tests_that_started_it(fixture: str, request: pytest.FixtureRequest) -> None:
    """Also where the tests are killed: no broker runs any more, and no folder is left."""
    request.getfixturevalue(fixture).control()
    argv = [sys.executable, "-c", _HOLDER, fixture]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]) as tests:
        assert tests.stdout is not None
        url, folder = tests.stdout.readline().split()
        tests.kill()
    until = time.monotonic() + 30
    while Path(folder).exists() and time.monotonic() < until:
        time.sleep(0.05)
    assert not Path(folder).exists()
    host, _, port = url.partition("://")[2].rpartition(":")
    with pytest.raises(OSError), socket.create_connection((host, int(port)), 5):
        pass
